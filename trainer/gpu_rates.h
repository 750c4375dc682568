/*
 * What GPUs can do, measured by the trainer's own kernels and communication, for calibration.
 *
 * Every rank has a GPU of its own. All run one operation at once and equally often, as in training;
 * a time is that of the rank that takes longest, so a figure is of the slowest GPU while all are
 * busy. Operations are launched in batches between two waits, as many as take BATCH_S or more, and
 * the best batch counts: other load can only hide what a GPU can do. Arrays lie in the GPU's own
 * memory, hold random numbers, and are as large as its memory and the time of one run allow: beyond
 * any cache on a GPU, small where the kernels are simulated.
 */
#ifndef TRAINER_GPU_RATES_H
#define TRAINER_GPU_RATES_H

#include "base/err.h"
#include "kernels/kernels.h"
#include "plan/plan.h"

enum { TR_PRODUCTS = 320, TR_REDUCES = 8 };

/* One matrix product of a layer's three kinds. */
enum tr_product_form { TR_FORWARD, TR_DGRAD, TR_WGRAD };
extern const char *const tr_product_forms[];

struct tr_gpu_rates {
    struct tr_product {
        enum tr_product_form form;
        size_t m, n, k;
        enum kn_type type;
        bool wide;    /* the result is fp32 whatever the type */
        double flops; /* a second, by the fastest algorithm */
        /* Which is ALGO, the heuristic's ALGO_NUMBER-th (from 0), of so many that were TRIED (0:
         * there is no library to choose from); its rate, and that of the heuristic's first. */
        struct kn_algo algo;
        int algo_number, tried;
        double algo_flops, first_flops; /* as they were compared */
    } product[TR_PRODUCTS];
    int products, left_out;        /* left out: of a model's, for time or memory */
    double idle_watts, busy_watts; /* of a GPU; 0: unknown */
    size_t add_bytes, adamw_bytes; /* moved by one run */
    double add_bps, adamw_bps;     /* bytes read and written a second */
    double to_bps, from_bps;       /* copies from the host's memory, and to it */
    struct tr_reduce {
        size_t bytes;
        double seconds; /* of an all-reduce of all ranks; in ascending sizes */
    } reduce[TR_REDUCES];
    int reduces;                 /* 0: a single rank */
    double transfer_s, ring_bps; /* to the next rank while the one before sends: 8 bytes; rate */
    int nccl;                    /* version, as tr_nccl_version(); 0: by MPI */
    /* Bytes that a rank can have next to the context, the libraries and NCCL, and those of each of
     * them; 0: nobody says what is free */
    double memory, context, library, nccl_bytes;
    char disturbed[160]; /* as tr_meter_disturbed() */
};

/* Collective over MPI_COMM_WORLD; about fifteen seconds, and up to a minute more for the products
 * of MODEL (NULL: none), in bf16, with 1, 2 and 4 sequences in a micro-batch and each degree of tp
 * up to 8 that the GPUs allow. -ENOMEM, on all ranks, where one has no room for its arrays.
 * DISTURBED is rank 0's alone. The algorithms that were chosen are in use afterwards. */
int tr_gpu_rates(struct tr_gpu_rates *ret, const struct pl_model *model, struct err *error);

/* The best product in TYPE, FLOPs a second. */
double tr_best_product(const struct tr_gpu_rates *rates, enum kn_type type);

#endif
