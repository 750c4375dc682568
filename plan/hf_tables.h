/* Private to plan/: what plan/hf.c knows of the families of models at Hugging Face. */
#ifndef PLAN_HF_TABLES_H
#define PLAN_HF_TABLES_H

#include <stddef.h>

/* A key and its word: "moe.experts" is a key of the object moe. */
struct pl_hf_row {
    const char *hf, *ours;
};

/* What holds for a family, under what its config.json says: BASE is an object of our words, USUAL
 * one of its keys with the values that its configuration class has where a file lacks them; FIXED,
 * or NULL, one of its keys with the only values that our words mean. All have ' for ". A key of
 * USUAL that is null in a file has no value. Sets end with a row of NULLs, and the array of sets
 * with NULL. */
struct pl_hf_family {
    const char *type, *base, *usual, *fixed;
    unsigned flags;
    const struct pl_hf_row *sets[5];
};

enum {
    PL_HF_OUT_BIAS = 1, /* attention_bias is also the output projection's */
    PL_HF_QK_NORM = 2,  /* use_qk_norm decides about qk_norm */
    /* layers with a window rotate by the same base, but as if there were no rope_scaling */
    PL_HF_PLAIN_WINDOWS = 4,
    PL_HF_CHOSEN_WINDOWS = 8, /* use_sliding_window decides about them */
    PL_HF_LATE_WINDOWS = 16,  /* the first max_window_layers layers have none */
    PL_HF_USE_BIAS = 32,      /* use_bias is that of all products */
    /* where some layers have a window, those without one do not rotate */
    PL_HF_GLOBAL_NO_ROPE = 64,
    PL_HF_NEEDS_WINDOWS = 128, /* without any, none of its layers would rotate */
    PL_HF_L2_NORM = 256,       /* use_qk_norm decides about qk_norm l2 */
    PL_HF_CHUNKS = 512,        /* layers that rotate see chunks, the others all */
    PL_HF_LINEAR = 1024,       /* layer_types or an interval: linear and full attention */
    PL_HF_SPARSE = 2048        /* attention of every layer is sparse */
};

/* Models of several senses: that of language is their object text_config, of type TEXT where that
 * does not say its own. The others are not planned. Ends with type NULL. */
struct pl_hf_nested {
    const char *type, *text;
};

extern const struct pl_hf_nested pl_hf_nested[];

extern const struct pl_hf_family pl_hf_families[]; /* ends with type NULL */

/* Keys of any family with one value that our words mean, as JSON; another is refused. Ends with key
 * NULL. */
struct pl_hf_fixed {
    const char *key, *value;
};

extern const struct pl_hf_fixed pl_hf_fixed[];

/* Keys that say nothing about the shape or the pretraining of the model: files and tokens, how
 * weights are stored and served, regularization of a later run, and what other keys repeat.
 * NULL-terminated. */
extern const char *const pl_hf_ignored[];

#endif
