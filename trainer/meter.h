/*
 * What the measured steps of a trial cost, and whether something else slowed its devices.
 *
 * On the CPU the first rank of each host reads the counters of its packages (trainer/energy.h). On
 * GPUs the first of the ranks that use a GPU reads that (trainer/nvml.h): its energy with every
 * step, and a few times a second what slows its clocks and how many processes use it.
 */
#ifndef TRAINER_METER_H
#define TRAINER_METER_H

#include "trainer/comm.h"
#include "trainer/energy.h"
#include "trainer/nvml.h"

/* What a rank has read: 0, or NaN where it is unknown, from one that does not read. */
struct tr_reading {
    double joules; /* of the measured steps */
    double slowed; /* share of the samples in which heat or the power supply lowered the clocks */
    double others; /* most processes besides this job's that were seen */
};

struct tr_meter {
    struct tr_energy packages;
    struct tr_nvml *gpu; /* NULL: not read here */
    int ranks;           /* of this job that use it */
    double last;         /* joules of its counter */
    uint64_t sampled_ns;
    int samples, slow_samples;
    struct tr_reading reading;
};

/* TRIAL: false measures nothing, and all joules are unknown. Collective. */
void tr_meter_open(struct tr_meter *meter, struct tr_comms *comms, bool trial);
void tr_meter_close(struct tr_meter *meter);

/* At the beginning of a step, and after it; if COUNTS, what was used since the last call counts. */
void tr_meter_read(struct tr_meter *meter, bool counts);

struct tr_reading tr_meter_reading(const struct tr_meter *meter);

/* One line of what disturbed the trial, of the readings of all RANKS; empty: nothing known. */
void tr_meter_disturbed(char *ret, size_t size, const struct tr_reading *all, int ranks);

#endif
