/*
 * What is run in a trial, and how its results are read: the table of functions that each trainer
 * is.
 */
#ifndef TUNER_TRAINER_H
#define TUNER_TRAINER_H

#include "tuner/core/spec.h"
#include "tuner/machine/argv.h"
#include "tuner/output/observe.h"

struct tn_attempt;

/* A step that a line told of. */
struct tn_step_line {
    int64_t n;
    double ms;
    char *json; /* owned; NULL: the line itself is the step's JSON */
};

/* What is run in a trial, and how its results are read. */
struct tn_trainer {
    const char *name;
    int (*ready)(struct tn_service *svc, const struct tn_spec *spec, struct err *error);
    /* Can it run a problem that has less of WHAT, a key of a fidelity that changes the problem
     * (replicas, stage_layers, micro_batches), or be told the "global_batch" of each layout?
     * -EINVAL says why not. NULL: of each. */
    int (*reduces)(const struct tn_service *svc, const struct tn_spec *spec, const char *what,
                   struct err *error);
    /* Write what the program needs into attempt->folder, and give its command line (without
     * mpiexec). Where it fails for the layout's own fault, attempt->seen has the error. */
    int (*prepare)(struct tn_attempt *attempt, struct tn_argv *argv, struct err *error);
    /* File of the attempt's folder that is followed (NULL: none but stdout and stderr), whether
     * those are read, too, and the reading of one line. */
    const char *results;
    bool logs;
    enum tn_line (*line)(struct tn_step_line *ret, struct tn_attempt *attempt,
                         enum tn_stream stream, const char *text, size_t len);
    /* The rest may be NULL. */
    bool (*direct)(const struct tn_service *svc, const struct tn_spec *spec); /* see trainers.h */
    void (*environment)(const struct tn_attempt *attempt, struct tn_argv *env);
    /* To start in; NULL: the attempt's directory. */
    const char *(*directory)(const struct tn_attempt *attempt);
    const char *(*results_of)(const struct tn_attempt *attempt);
    void (*tick)(struct tn_attempt *attempt);
    void (*finish)(struct tn_attempt *attempt); /* its last process is gone, all lines are read */
};

#endif
