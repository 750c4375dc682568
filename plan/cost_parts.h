/* Private to plan/: the parts of the cost model. Formulas and their sources are in
 * docs/explanation/cost-model.md. */
#ifndef PLAN_COST_PARTS_H
#define PLAN_COST_PARTS_H

#include "plan/plan.h"

/* ---- what a machine does for a layout of one precision ------------------- */

struct pl_rates {
    bool cpu;
    double element;  /* bytes of an activation or weight */
    double flops;    /* matrix products, of one rank */
    double vector;   /* products whose sizes the matrix units do not take */
    double memory;   /* bytes/s */
    double passes;   /* over the operands of a product: a processor packs them into panels first */
    double tail;     /* outputs of a product that one wave of tiles covers; 0: no waves */
    double kernel_s; /* least time of one kernel */
    /* Under a narrow precision: */
    double half_flops; /* products that stay in half precision: attention, router, head */
    double operand;    /* bytes of an element that products of FLOPS read */
    double cast;       /* bytes moved to cast one element of an operand */
    bool cast_once;    /* weights once a step, other operands once for all their products */
    double each_cast;  /* kernels in a row that cast an operand of one expert */

    double attention;    /* share of HALF_FLOPS that streaming attention reaches */
    double narrow_time;  /* of attention with fp8 operands and heads of PL_NARROW_WIDTH, of its time
                            with operands in half precision; 0: it has those */
    int units;           /* generation of the matrix units; 0: none that kernels are written for */
    double collective_s; /* start of one collective */
};

void pl_rates_of(struct pl_rates *ret, const struct pl_constants *constants,
                 const struct pl_problem *problem, int precision, int threads);

/* What every formula needs to know, for layouts of one precision and number of threads. */
struct pl_op_ctx {
    const struct pl_constants *constants;
    struct pl_problem problem;
    const struct pl_rates *rates;
};

/* ---- collectives --------------------------------------------------------- */

/* A group of SIZE ranks STRIDE apart, with what its members see of the links. */
struct pl_group {
    int size, per_node;   /* members; members that share a fast domain: a node, or several */
    int pairs;            /* links that one rank uses inside it at once: 1, or all its pairs */
    double near_bps;      /* bytes/s of one rank inside a domain */
    double far_bps;       /* bytes/s of all members of a domain to others */
    double near_s, far_s; /* latency of a hop */
    double start_s;       /* of one collective */
    /* Uplinks that it shares with the groups next to it: */
    double oversubscription; /* 1: none */
    double rings;            /* share of far_bps that rings and messages keep */
    double beyond;           /* share of an exchange that crosses them */
    bool rails;              /* what stays on one rank of the nodes does not */
};

void pl_group_of(struct pl_group *ret, const struct pl_op_ctx *op, int size, int stride);

/* Each of BYTES in the whole tensor: gathered, scattered after reduction, or reduced everywhere. */
double pl_gather_s(const struct pl_group *group, double bytes);
double pl_all_reduce_s(const struct pl_group *group, double bytes);
/* BYTES leave each rank, evenly for all members, itself included. */
double pl_all_to_all_s(const struct pl_group *group, double bytes);
/* BYTES of each rank's tokens go once to every rank that wants them, RANKS of the group's on the
 * average, by way of one member of each domain, DOMAINS on the average (DeepEP's forwarding). */
double pl_dispatch_s(const struct pl_group *group, double bytes, double ranks, double domains);
/* BYTES from one rank to the next on the axis. */
double pl_send_s(const struct pl_group *group, double bytes);

/* ---- operators ----------------------------------------------------------- */

/* Seconds of one layer for one micro-batch, on one rank. */
struct pl_layer_time {
    double fwd, bwd_input, bwd_weight; /* compute */
    double re;                         /* what is computed again before the backward pass */
    double tp_fwd, tp_bwd, tp_re;
    double cp_fwd, cp_bwd, cp_re;
    double ep_fwd, ep_bwd, ep_re;
};

/* The exchange of context parallelism of a layer whose attention computes for CORE seconds. */
void pl_add_context(struct pl_layer_time *layer, double core, const struct pl_op_ctx *op,
                    const struct pl_layout *layout);
/* That of a layer of linear attention. */
void pl_add_linear_context(struct pl_layer_time *layer, const struct pl_op_ctx *op,
                           const struct pl_layout *layout);

struct pl_ends_time { /* first and last stage */
    double embed_fwd, embed_bwd, head_fwd, head_bwd, tp_head;
};

void pl_layer_time_of(struct pl_layer_time *ret, const struct pl_op_ctx *op,
                      const struct pl_layout *layout, bool moe);
void pl_ends_time_of(struct pl_ends_time *ret, const struct pl_op_ctx *op,
                     const struct pl_layout *layout);

/* Seconds of a message between neighboring stages: a micro-batch's activations, or gradients. */
double pl_message_s(const struct pl_op_ctx *op, const struct pl_layout *layout);
/* The same where the two stages are STRIDE ranks apart. */
double pl_message_far_s(const struct pl_op_ctx *op, const struct pl_layout *layout, int stride);
/* By which share of its length a step is longer than in the mean, as all wait for the slowest. */
double pl_slowest_share(const struct pl_op_ctx *op, const struct pl_layout *layout);
/* Seconds of rare long pauses in a step of MICRO micro-batches. */
double pl_stall_s(const struct pl_op_ctx *op, const struct pl_layout *layout, double micro);

/* Messages that the critical path of a pipeline of MICRO micro-batches waits for; SCHEDULE is an
 * enum pl_schedule, and none of pl_v_bubble(). */
double pl_messages(int schedule, int pp, int vp, double micro, bool overlap);

/* Of unlike messages, BORDER_S[s] seconds from stage s to s + 1 of PP in 1F1B with overlap: what
 * equal ones would take of which pl_messages() makes as much. */
double pl_message_chain_s(int pp, const double *border_s);

/* Seconds that a stage idles in a schedule shaped like a V, or in DualPipe, of PP > 1 equal stages
 * with two chunks like CHUNK each, in a step of MICRO micro-batches. Messages of MESSAGE_S seconds
 * are part of it, as of a pl_pipe with OVERLAP. */
double pl_v_bubble(int schedule, int pp, double micro, const struct pl_stage_time *chunk,
                   double message_s, bool overlap);

#endif
