/* Energy counters of this machine, as trials read them (docs/reference/protocol.md, Energy). */
#ifndef TUNER_ENERGY_H
#define TUNER_ENERGY_H

#include "base/base.h"

/* 0 if the CPU packages' counters in PARTUNE_POWERCAP, else /sys/class/powercap, can be read: all
 * of them. -ENOENT where there are none, -EACCES with the file that cannot be read. */
int tn_energy_ready(struct err *error);

#endif
