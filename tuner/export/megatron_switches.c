/*
 * Switches of Megatron-LM that are a key of the layout as it is: an argument without a value, and
 * the field of that name in Megatron-Bridge's configuration. What Megatron takes in company only is
 * in megatron.c. A switch without a key is off, whatever a recipe of Megatron-Bridge says.
 */
#include "tuner/export/switches.h"

static const struct {
    enum pl_key key;     /* PL_LAYOUT_KEYS: none */
    const char *section; /* of Megatron-Bridge */
    const char *field;   /* there; the argument has - for _ */
} switches[] = {
    {PL_KEY_SP, "model", "sequence_parallel"},
    {PL_KEY_TP_OVERLAP, "model", "tp_comm_overlap"},
    {PL_KEY_OVERLAP_GRAD, "ddp", "overlap_grad_reduce"},
    {PL_LAYOUT_KEYS, "model", "delay_wgrad_compute"},
    {PL_LAYOUT_KEYS, "model", "defer_embedding_wgrad_compute"},
    {PL_LAYOUT_KEYS, "model", "moe_shared_expert_overlap"},
};

static int value_of(const struct pl_layout *layout, size_t i)
{
    return switches[i].key != PL_LAYOUT_KEYS &&
           pl_layout_get(layout, &pl_layout_keys[switches[i].key]);
}

static void argument(char *ret, size_t size, size_t i)
{
    snprintf(ret, size, "--%s", switches[i].field);
    for (char *at = ret; *at; at++)
        *at = *at == '_' ? '-' : *at;
}

void tn_megatron_switches(struct str *out, const struct pl_layout *layout)
{
    char flag[64];

    for (size_t i = 0; i < ARRAY_LEN(switches); i++) {
        argument(flag, sizeof(flag), i);
        if (value_of(layout, i))
            str_addf(out, "%s\n", flag);
    }
}

void tn_bridge_switches(struct str *out, const struct pl_layout *layout, const char *section)
{
    for (size_t i = 0; i < ARRAY_LEN(switches); i++)
        if (str_eq(switches[i].section, section))
            str_addf(out, "        %s=%s,\n", switches[i].field,
                     value_of(layout, i) ? "True" : "False");
}

bool tn_megatron_switch(struct pl_layout *layout, const char *flag, bool set)
{
    char name[64];

    for (size_t i = 0; i < ARRAY_LEN(switches); i++) {
        argument(name, sizeof(name), i);
        if (switches[i].key == PL_LAYOUT_KEYS || !str_eq(name, flag))
            continue;
        if (set)
            pl_layout_set(layout, &pl_layout_keys[switches[i].key], 1);
        return true;
    }
    return false;
}

bool tn_bridge_switch(const char *section, size_t len, const char *field)
{
    for (size_t i = 0; i < ARRAY_LEN(switches); i++)
        if (switches[i].key != PL_LAYOUT_KEYS && strlen(switches[i].section) == len &&
            !strncmp(switches[i].section, section, len) && str_eq(switches[i].field, field))
            return true;
    return false;
}
