/*
 * How the layers of a model are divided over the virtual stages of a pipeline: the key `stages` of
 * a layout. A part of plan.h.
 *
 * Virtual stage c * pp + s is chunk c of stage s, but in a schedule shaped like a V, where the
 * second chunks run back from the last stage to the first. The first virtual stage holds the
 * embedding and the last the loss, wherever the layers are; either may hold no layer at all. A
 * division is one of the words below or a list of numbers of layers, one for each virtual stage in
 * order, in one canonical text: "7,8*14,7". A layout holds an int (docs/adr/0017): a word's number,
 * or the id of a list.
 *
 * Lists are interned for the life of the process. An id follows from the text alone (but for two
 * texts in 10^6 that collide), so that walks and searches are the same in every process. Ids never
 * leave the process: JSON has the text. Every function here may be called from any thread.
 */
#ifndef PLAN_STAGES_H
#define PLAN_STAGES_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>

#include "base/err.h"
#include "plan/layout.h"

/* The words. Even: as equal as can be, the first ones by a layer longer. Balanced: the same, where
 * the embedding and the loss, or one of them, count as a layer each. */
enum {
    PL_STAGES_EVEN,
    PL_STAGES_BALANCED,
    PL_STAGES_BALANCED_EMBEDDING,
    PL_STAGES_BALANCED_LOSS,
    PL_STAGES_WORDS
};

enum {
    PL_STAGES_TEXT = 128, /* bytes of a text, its end included */
    PL_MAX_RUNS = 1024,   /* virtual stages of a list */
    PL_STAGES_DRAFT = INT_MAX
};

extern const char *const pl_stages_words[]; /* PL_STAGES_WORDS of them, then NULL */

/* Read a word or a list, in any spelling ("8,8,7" is "8*2,7"). -EINVAL: neither; -E2BIG: a text
 * too long, or more lists than a process keeps. */
int pl_stages_read(int *ret, const char *text, struct err *error);
/* The list of RUNS numbers. */
int pl_stages_list(int *ret, const int *layers, int runs, struct err *error);
/* A list that is only tried and never kept: returns PL_STAGES_DRAFT, which in the calling thread
 * means, until the next call, that run i of RUNS holds the layers [FIRST[i], FIRST[i + 1]). FIRST
 * is borrowed. It has no text, and no rule accepts it. */
int pl_stages_draft(const int *first, int runs);
/* The canonical text of what LAYOUT holds. Never NULL; lives as long as the process. */
const char *pl_stages_text(int stages);
/* Is it a word's number or the id of a list? */
bool pl_stages_known(int stages);

/* Is SCHEDULE (an enum pl_schedule) shaped like a V? Then vp is 2, and the first stage holds the
 * embedding and the loss. */
bool pl_schedule_is_v(int schedule);
/* The virtual stage that is chunk CHUNK of stage STAGE of PP. With DualPipe virtual stages pp to
 * 2 pp - 1 are those of the second direction: the layers of the first pp, in copies of their own.
 */
int pl_virtual_stage(int schedule, int pp, int stage, int chunk);
/* The stage that holds the last virtual stage, with the loss; the first one that does. */
int pl_loss_stage(const struct pl_layout *layout);

/* DualPipe (DeepSeek-AI 2024) sends half of the micro-batches through the stages in either
 * direction, so that rank s of the pipeline holds stages s and pp - 1 - s, and rank pp - 1 - s does
 * the same work. */
bool pl_is_dualpipe(const struct pl_layout *layout);
/* Chunks of a rank: vp, or DualPipe's two. */
int pl_chunks(const struct pl_layout *layout);
/* Ranks of the pipeline before they repeat: pp, or half of them. */
int pl_unlike_stages(const struct pl_layout *layout);
/* Ranks of the pipeline that hold the same layers: 1 or 2. */
int pl_stage_copies(const struct pl_layout *layout);

/* Layers [*ret_first, *ret_first + n) of virtual stage RUN; returns n. RET_FIRST may be NULL. This
 * is the one place that says what a stage holds. */
int pl_run_layers(int *ret_first, const struct pl_layout *layout, int layers, int run);
/* The same of chunk CHUNK (0..vp-1) of stage STAGE. */
int pl_stage_layers(int *ret_first, const struct pl_layout *layout, int layers, int stage,
                    int chunk);

/* How many virtual stages a list has, and *RET_LAYERS in all; 0 and 0 for a word. */
int pl_stages_total(int *ret_layers, int stages);

/* Layers of the fullest virtual stage of LAYOUT; 0 where its division is not one of LAYERS. */
int pl_stages_longest(const struct pl_layout *layout, int layers);

/* Do all virtual stages of LAYOUT hold equally many of LAYERS? */
bool pl_stages_equal(const struct pl_layout *layout, int layers);

/* Does LAYOUT's division put LAYERS where the word EVEN does? */
bool pl_stages_are_even(const struct pl_layout *layout, int layers);

/* The first word that divides LAYERS as LAYOUT does, else what LAYOUT has. `even` is one only where
 * layers divide: elsewhere what it means is the trainer's matter. */
int pl_stages_canonical(const struct pl_layout *layout, int layers);

#endif
