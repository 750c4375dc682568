/*
 * A campaign's JSON, checked and completed; by earlier campaigns' trials, too (warm.c).
 */
#ifndef TUNER_SPEC_H
#define TUNER_SPEC_H

#include "search/search.h"
#include "tuner/tuner.h"

struct tn_launcher;
struct tn_trainer;

enum { TN_MAX_PRIORITY = 100 }; /* either way; 0 is usual */

struct tn_spec {
    json_t *body;     /* as submitted */
    json_t *resolved; /* the same with every default of today, and what earlier campaigns said */
    struct se_spec se;
    char name[128], trainer_name[64];
    const struct tn_launcher *launcher;
    const struct tn_trainer *trainer;
    int64_t priority;
    char *data_path;         /* folder of the data set; NULL: synthetic */
    char fidelity_note[200]; /* what "auto" leaves out of smaller trials, and why; or "" */
};

/* Check the fidelities of SPEC, parsed so far, against what its trainer can run less of; "auto"
 * does without what it cannot. -EINVAL with the pointer of the key. */
int tn_fidelities_admit(struct tn_spec *spec, const struct tn_service *svc, struct err *error);

/* Can the trainer of SPEC be told which of several batches a layout has? -EINVAL: why not. */
int tn_batches_admit(const struct tn_spec *spec, const struct tn_service *svc, struct err *error);

int tn_spec_parse(struct tn_spec **ret, json_t **ret_rules, const struct tn_service *svc,
                  const json_t *body, struct err *error); /* any thread */
/* BODY with each id in its "search.warm_start" replaced by that campaign's work and trials. Any
 * thread. -EINVAL, or -ENOENT, with the pointer of the id. */
int tn_warm_start(json_t **ret, const struct tn_service *svc, const json_t *body,
                  struct err *error);
struct tn_spec *tn_spec_free(struct tn_spec *spec);
struct pl_problem tn_spec_problem(const struct tn_spec *spec); /* of the first cluster */
AUTO_DEFINE(tn_spec)

#endif
