/* Keys of a layout that Megatron-LM and Megatron-Bridge have as a switch (megatron_switches.c). */
#ifndef TUNER_EXPORT_SWITCHES_H
#define TUNER_EXPORT_SWITCHES_H

#include "tuner/export/internal.h"

/* Arguments of the keys that are on; fields in SECTION of Megatron-Bridge. */
void tn_megatron_switches(struct str *out, const struct pl_layout *layout);
void tn_bridge_switches(struct str *out, const struct pl_layout *layout, const char *section);
/* Is FLAG such an argument? If SET, LAYOUT's key is. */
bool tn_megatron_switch(struct pl_layout *layout, const char *flag, bool set);
/* Is FIELD in SECTION, of LEN letters, such a field? */
bool tn_bridge_switch(const char *section, size_t len, const char *field);

#endif
