/*
 * Energy of a host's CPU packages, by the counters of Linux powercap (RAPL): energy_uj of each zone
 * intel-rapl:N whose name begins with "package", in microjoules, which starts again at 0 beyond
 * max_energy_range_uj (Documentation/power/powercap/powercap.rst; AMD's have the same names).
 *
 * A counter is of the whole package, whoever uses it. Since Linux 5.10 only root may read it.
 */
#ifndef TRAINER_ENERGY_H
#define TRAINER_ENERGY_H

#include <stdbool.h>
#include <stdint.h>

struct tr_energy_zone {
    int fd;            /* of energy_uj */
    uint64_t range_uj; /* the largest value of the counter */
    uint64_t last_uj;
};

/* All zeros: a rank that does not read, whose joules are 0. */
struct tr_energy {
    struct tr_energy_zone *zone; /* (count) */
    int count;
    double joules; /* NaN: unknown */
};

/* Open all packages under ROOT (NULL: that of PARTUNE_POWERCAP, else /sys/class/powercap). One that
 * cannot be read, or none at all, makes the joules unknown. */
void tr_energy_open(struct tr_energy *energy, const char *root);
/* Read the counters; if COUNTS, add what they grew by since the last call. To be called at least
 * once in max_energy_range_uj (65 kJ and more: minutes), or whole rounds are missed. */
void tr_energy_read(struct tr_energy *energy, bool counts);
void tr_energy_close(struct tr_energy *energy);

#endif
