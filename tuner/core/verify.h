/*
 * Interleaved runs of winner and baseline: the next pair of a verification, and what all pairs say.
 * Where both are one layout, as many runs of it as there were to be pairs.
 */
#ifndef TUNER_VERIFY_H
#define TUNER_VERIFY_H

#include "db/db.h"

struct tn_campaign;
struct tn_service;
struct tn_verify;

enum { TN_MAX_PAIRS = 50 };

/* Campaign ROW is `verifying` from now on, in the store: as VERIFY says, whose trials are yet to
 * come. */
int tn_verify_begin(struct tn_service *svc, const struct db_campaign *row,
                    const struct tn_verify *verify, struct err *error);
/* Next trial of the verification, or the end of it. */
void tn_verify_step(struct tn_campaign *campaign);
/* "holds" (the interval lies above 1), "does not hold" (below), "within noise" (it contains 1), or
 * "same" where the winner is the baseline itself. */
const char *tn_verdict(double lo, double hi, bool same);
/* Geometric mean of COUNT ratios with its 95 % interval. */
void tn_ratio_interval(double *ret_mean, double *ret_lo, double *ret_hi, const double *ratio,
                       int count);
/* Geometric mean of throughputs and the 95 % interval of one more; infinite for COUNT = 1. */
void tn_prediction_interval(double *ret_mean, double *ret_lo, double *ret_hi, const double *rate,
                            int count);

/* After a restart: what the verification in ROW had done. */
int tn_verify_restore(struct tn_campaign *campaign, const struct db_campaign *row,
                      struct err *error);

#endif
