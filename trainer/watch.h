/*
 * What a long run writes next to its events: a metrics file, a Prometheus text file, and warnings
 * when it is slower than expected or when one rank keeps the others waiting.
 *
 * Rank 0 only; NULL does nothing. The files are a convenience: the first failure to write one is a
 * warning event, and the run continues. After the first step nothing is allocated.
 *
 * Metrics: one JSON object a step, appended: step, t, loss, lr, grad_norm, ms, tokens_per_s, tokens
 * (since the start of training), and layers in the steps that have them. Prometheus: the same, but
 * for layers, as gauges partune_train_…, replaced by rename at most once a second, as node
 * exporter's textfile collector wants it.
 *
 * Slower than expected: the median of the last 20 measured steps gives fewer tokens/s than the
 * lower end of the expected interval; reported once until it has recovered. Straggler: in 8 of the
 * last 10 measured steps the same rank was busy 1.4 times as long as the median rank (of two ranks:
 * as the other one); reported once for each rank until it has recovered.
 */
#ifndef TRAINER_WATCH_H
#define TRAINER_WATCH_H

#include "trainer/config.h"
#include "trainer/events.h"

struct tr_watch;

int tr_watch_open(struct tr_watch **ret, const struct tr_config *config, struct tr_events *ev,
                  struct err *error);
/* The text file is brought up to date first. */
struct tr_watch *tr_watch_free(struct tr_watch *watch);

void tr_watch_step(struct tr_watch *watch, const struct tr_step *step);
void tr_watch_validation(struct tr_watch *watch, double loss);
void tr_watch_checkpoint(struct tr_watch *watch, int step);

AUTO_DEFINE(tr_watch)

#endif
