/*
 * Statistics of a series of step times: median, its 95 % interval, throughput.
 *
 * The interval of the median is distribution-free: with n independent values in ascending order,
 * the median lies between the j-th from below and the j-th from above with a probability that is
 * binomial; j is the largest for which that is at least 95 % (Conover, Practical Nonparametric
 * Statistics, 3.2). Fewer than six values allow no such interval: then it is the whole range.
 */
#ifndef TRAINER_MEASURE_H
#define TRAINER_MEASURE_H

struct tr_measure {
    double *ms;  /* measured steps, in order */
    double *tmp; /* for sorting */
    int n, cap;
};

struct tr_stats {
    double median, p10, p90;
    double ci95; /* half-width of the 95 % interval of the median */
};

/* Room for CAP steps; later ones replace the oldest. */
void tr_measure_init(struct tr_measure *measure, int cap);
void tr_measure_done(struct tr_measure *measure);
void tr_measure_add(struct tr_measure *measure, double ms);
/* All zeros without steps. */
void tr_measure_stats(struct tr_stats *ret, const struct tr_measure *measure);

#endif
