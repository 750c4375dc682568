/*
 * A campaign as a spec of its search, in the two steps between which source.c reads the earlier
 * campaigns. Private to the files of search/ that do so.
 */
#ifndef SEARCH_SPEC_H
#define SEARCH_SPEC_H

#include "search/search.h"

/* What is searched for (model, cluster, workload, trainer, objective) and how ("search"). RET may
 * be given to se_spec_done() after an error, too. Errors as in se_spec_parse(). */
int se_spec_begin(struct se_spec *ret, const json_t *campaign, const struct pl_cluster *local,
                  struct err *error);
/* Limits, space and baseline. */
int se_spec_finish(struct se_spec *spec, const json_t *campaign, struct err *error);

#endif
