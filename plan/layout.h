/*
 * The keys of a layout and a layout as their values. A part of plan.h.
 */
#ifndef PLAN_LAYOUT_H
#define PLAN_LAYOUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/err.h"

struct pl_model;
struct pl_problem;
struct pl_trainer;
struct pl_workload;

enum pl_schedule {
    PL_GPIPE,
    PL_1F1B,
    PL_INTERLEAVED,
    PL_ZERO_BUBBLE, /* ZB-H1 */
    PL_ZB_V,
    PL_DUALPIPE_V,
    PL_DUALPIPE,
    PL_SCHEDULES
};
enum pl_zero_scope { PL_SCOPE_NONE, PL_SCOPE_EP_AWARE, PL_SCOPE_PLAIN };
enum pl_cp_comm { PL_CP_P2P, PL_CP_ALL_GATHER, PL_CP_A2A, PL_CP_A2A_P2P };
enum pl_moe_dispatch {
    PL_DISPATCH_ALLTOALL,
    PL_DISPATCH_ALLGATHER,
    PL_DISPATCH_DEEPEP,
    PL_DISPATCH_HYBRIDEP
};
enum pl_cuda_graphs { PL_GRAPHS_NONE, PL_GRAPHS_MODULES, PL_GRAPHS_ITERATION };
enum pl_grad_dtype { PL_GRADS_FP32, PL_GRADS_BF16 };
enum pl_recompute_method { PL_RECOMPUTE_UNIFORM, PL_RECOMPUTE_BLOCK };
enum pl_recompute { PL_RECOMPUTE_NONE, PL_RECOMPUTE_SELECTIVE, PL_RECOMPUTE_FULL };

/* Row of pl_layout_keys, and of pl_space.axis, of each key. */
enum pl_key {
#define KEY(name, field, ...) PL_KEY_##name,
#include "plan/keys.def"
    PL_LAYOUT_KEYS
};

/*
 * Every field is an int, so that a layout is also a point: fields but the last, and keys, are the
 * rows of plan/keys.def. A schedule is an enum pl_schedule, and so on. dp and edp follow from
 * world and the other degrees; a layout made by pl_layout_parse or pl_layout_derive has them set.
 */
struct pl_layout {
#define KEY(name, field, ...) int field;
#include "plan/keys.def"
    /* No key: on which of several clusters, from 1, for those who compare layouts of several; 0:
     * there is one. Nothing in plan/ reads it. */
    int cluster;
};

/* Column `trainers` of plan/keys.def. "any" takes what one of them does. */
enum {
    PL_BY_PARTUNE = 1,
    PL_BY_MEGATRON = 2,
    PL_BY_TORCHTITAN = 4,
    PL_BY_DEEPSPEED = 8,
    PL_BY_ALL = 15
};

enum pl_part { PL_STEM, PL_LEAF, PL_OPTION, PL_DERIVED };
enum { PL_NO_STANDARD = -1 };

struct pl_layout_key {
    const char *name;
    size_t offset;            /* of the int in struct pl_layout */
    enum pl_part part;        /* dp and edp are DERIVED */
    const char *label;        /* before the value in pl_layout_text; NULL: not in it */
    const char *const *names; /* NULL-terminated words of an enumeration, or NULL: a number */
    bool log2;                /* a power-like quantity (degrees, micro-batch) */
    bool text;                /* a text, of which the int is the number (plan/stages.h) */
    int min, max;             /* bounds of the syntax; legality is checked elsewhere */
    int standard;             /* default; PL_NO_STANDARD: it depends on the problem */
    unsigned trainers;        /* PL_BY_ bits of those that take other values */
    const char *means;        /* for people, one line */
};

extern const struct pl_layout_key pl_layout_keys[]; /* PL_LAYOUT_KEYS rows, then a NULL name */
extern const char *const pl_layout_key_names[];     /* of the rows, then NULL */

static inline int pl_layout_get(const struct pl_layout *layout, const struct pl_layout_key *key)
{
    int value;

    memcpy(&value, (const char *)layout + key->offset, sizeof(value));
    return value;
}

static inline void pl_layout_set(struct pl_layout *layout, const struct pl_layout_key *key,
                                 int value)
{
    memcpy((char *)layout + key->offset, &value, sizeof(value));
}

/* Devices that LAYOUT holds; on a processor they are cores. */
static inline int pl_layout_devices(const struct pl_layout *layout)
{
    return layout->world * layout->threads;
}

/* Bytes of an element of LAYOUT's gradients where they are kept and reduced, as far as the layout
 * says: a stack (struct pl_trainer, half_grads) may have fewer. */
static inline int pl_grad_bytes(const struct pl_layout *layout)
{
    return layout->grad_dtype == PL_GRADS_BF16 ? 2 : 4;
}

const struct pl_layout_key *pl_layout_key_find(const char *name);

/* Can TRAINER run VALUE of KEY in some layout? */
bool pl_trainer_takes(const struct pl_trainer *trainer, enum pl_key key, int value);

/* Read one value of KEY, a number or one of its words; refused by pointer /<key>. */
int pl_layout_word(int *ret, const struct pl_layout_key *key, const json_t *json,
                   struct err *error);

/* A value as JSON (new reference), and as text: one of its words, its text or its digits. BUF is
 * for digits; what is returned lives as long as it does. */
json_t *pl_layout_value_json(const struct pl_layout_key *key, int value);
const char *pl_layout_value_text(char buf[16], const struct pl_layout_key *key, int value);

/* The defaults of all keys, with the workload's precision; world and dp unset (0). */
void pl_layout_default(struct pl_layout *layout, const struct pl_workload *workload);

/* The default layout on WORLD ranks, all of them data parallel, in fp32. */
void pl_layout_replicas(struct pl_layout *ret, int world);

/* dp and edp from world; returns false where world is not a multiple (dp or edp is then 0). */
bool pl_layout_derive(struct pl_layout *layout);

/* Distinct expert coordinates inside the replica group (dp x cp ranks) of a dense tensor: into so
 * many parts zero_scope "plain" splits that group. 1: the two scopes coincide. */
int pl_layout_expert_replicas(const struct pl_layout *layout);

/* Is KEY written only if it differs from its default? */
bool pl_layout_is_option(const struct pl_layout_key *key);

/* Read a layout; absent keys get their defaults, an absent global_batch the first of several, an
 * absent zero_scope with zero >= 1 is ep-aware (or what is canonical). world defaults to what dp
 * implies, else to all devices of the cluster. Unknown keys and words are errors with a pointer.
 * Reads only the problem's cluster and workload; pl_layout_check decides about legality. */
int pl_layout_parse(struct pl_layout *ret, const json_t *json, const struct pl_problem *problem,
                    struct err *error);
/* LAYOUT was read from JSON: set the keys that are absent there and that the trainer fixes to what
 * the trainer does (pl_layout_settle). */
void pl_layout_unsaid(struct pl_layout *layout, const json_t *json,
                      const struct pl_problem *problem);
/* In canonical order, with derived keys, without options (PL_OPTION) that have their default. */
json_t *pl_layout_json(const struct pl_layout *layout); /* new reference */

/* The JSON schema of what pl_layout_json returns: type, bounds or words, default and meaning of
 * each key. New reference. */
json_t *pl_layout_schema(void);

/* Does KEY mean something in LAYOUT: column `when` of plan/keys.def? */
bool pl_key_applies(enum pl_key key, const struct pl_layout *layout, const struct pl_model *model);
/* The canonical form (docs/reference/layout.md): equal layouts have equal structs afterwards. */
void pl_layout_canonical(struct pl_layout *layout, const struct pl_model *model);
bool pl_layout_equal(const struct pl_layout *left, const struct pl_layout *right);

/* Does TRAINER keep gradients of LAYOUT in bf16 whatever it is told? */
bool pl_grads_are_half(const struct pl_trainer *trainer, const struct pl_layout *layout);

/* Make LAYOUT canonical and set what the trainer fixes: overlap that FSDP cannot turn off, etp
 * without a setting, gradients in bf16. For layouts that partune itself makes. */
void pl_layout_settle(struct pl_layout *layout, const struct pl_problem *problem);

/* "tp2 pp2 dp1 mb4 zero1" : what differs from the default, for people. Into BUF, returns it. */
char *pl_layout_text(char buf[160], const struct pl_layout *layout);

#endif
