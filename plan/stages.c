/*
 * Divisions of layers over virtual stages. Words are arithmetic; lists are interned in a table of
 * fixed size, open-addressed by a hash of their text, in which entries are only ever added: a
 * reader needs no lock, and a writer claims an empty slot by one compare-and-swap.
 */
#include "plan/stages.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

enum {
    SLOTS = 1 << 20,
    MAX_LISTS = 1 << 16, /* 64 MB at the very most; more is an error */
    MAX_LAYERS_A_STAGE = 1 << 16
};

struct list {
    char text[PL_STAGES_TEXT];
    int runs;
    const int *first; /* layer at which run i begins; [runs] is the number of layers */
    int store[];      /* of a list of the table: where FIRST points */
};

static _Atomic(struct list *) table[SLOTS];
static atomic_int lists;

const char *const pl_stages_words[] = {"even", "balanced", "balanced-embedding", "balanced-loss",
                                       NULL};

/* ---- the table ----------------------------------------------------------- */

static _Thread_local struct list draft;

static const struct list *list_of(int stages)
{
    if (stages == PL_STAGES_DRAFT)
        return &draft;
    assert(stages >= PL_STAGES_WORDS && stages - PL_STAGES_WORDS < SLOTS);
    return atomic_load_explicit(&table[stages - PL_STAGES_WORDS], memory_order_acquire);
}

static uint64_t hash_of(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325U; /* FNV-1a */

    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3U;
    return rng_mix(hash);
}

static int intern(int *ret, struct list *owned_list, struct err *error)
{
    AUTO_FREE struct list *list = owned_list;
    size_t slot = hash_of(list->text) % SLOTS;

    for (;; slot = (slot + 1) % SLOTS) {
        struct list *there = atomic_load_explicit(&table[slot], memory_order_acquire);

        if (!there) {
            if (atomic_load(&lists) >= MAX_LISTS)
                return err_set(error, -E2BIG, "this process already holds %d lists of stages",
                               MAX_LISTS);
            if (atomic_compare_exchange_strong(&table[slot], &there, list)) {
                atomic_fetch_add(&lists, 1);
                list = NULL;
            }
        }
        if (!there || str_eq(there->text, list->text)) {
            *ret = PL_STAGES_WORDS + (int)slot;
            return 0;
        }
    }
}

int pl_stages_draft(const int *first, int runs)
{
    draft.first = first;
    draft.runs = runs;
    return PL_STAGES_DRAFT;
}

/* ---- texts --------------------------------------------------------------- */

static int write_list(char text[PL_STAGES_TEXT], const int *layers, int runs, struct err *error)
{
    AUTO_STR out = {0};

    for (int i = 0, same; i < runs; i += same) {
        for (same = 1; i + same < runs && layers[i + same] == layers[i]; same++)
            ;
        str_addf(&out, "%s%d", i ? "," : "", layers[i]);
        if (same > 1)
            str_addf(&out, "*%d", same);
    }
    if (out.len >= PL_STAGES_TEXT)
        return err_set(error, -E2BIG, "the list of stages is longer than %d characters",
                       PL_STAGES_TEXT - 1);
    snprintf(text, PL_STAGES_TEXT, "%s", str_text(&out));
    return 0;
}

int pl_stages_list(int *ret, const int *layers, int runs, struct err *error)
{
    struct list *list;
    int sum = 0, r;

    if (runs < 1 || runs > PL_MAX_RUNS)
        return err_set(error, -EINVAL, "stages must list 1 to %d virtual stages, not %d",
                       PL_MAX_RUNS, runs);
    list = mem_alloc(sizeof(*list) + ((size_t)runs + 1) * sizeof(list->store[0]));
    if ((r = write_list(list->text, layers, runs, error)) < 0) {
        free(list);
        return r;
    }
    list->runs = runs;
    list->first = list->store;
    for (int i = 0; i < runs; i++) {
        assert(layers[i] >= 0 && layers[i] <= MAX_LAYERS_A_STAGE);
        list->store[i] = sum;
        sum += layers[i];
    }
    list->store[runs] = sum;
    return intern(ret, list, error);
}

/* A number of at most MOST at *POS, which moves behind it; -1: there is none. */
static int number(const char **pos, int most)
{
    char *end;
    long value;

    if (**pos < '0' || **pos > '9')
        return -1;
    errno = 0;
    value = strtol(*pos, &end, 10);
    *pos = end;
    return errno || value > most ? -1 : (int)value;
}

int pl_stages_read(int *ret, const char *text, struct err *error)
{
    AUTO_FREE int *layers = mem_alloc(PL_MAX_RUNS * sizeof(*layers));
    const char *pos = text;
    int runs = 0;

    for (int i = 0; pl_stages_words[i]; i++)
        if (str_eq(pl_stages_words[i], text)) {
            *ret = i;
            return 0;
        }
    do {
        int each = number(&pos, MAX_LAYERS_A_STAGE), times = 1;

        if (each >= 0 && *pos == '*') {
            pos++;
            times = number(&pos, PL_MAX_RUNS);
        }
        if (each < 0 || times < 1 || (*pos && *pos != ','))
            return err_set(error, -EINVAL,
                           "stages \"%.60s\" is neither a word (even, balanced, "
                           "balanced-embedding, balanced-loss) nor a list of layers such as "
                           "\"7,8*14,7\"",
                           text);
        if (times > PL_MAX_RUNS - runs)
            return err_set(error, -E2BIG, "stages lists more than %d virtual stages", PL_MAX_RUNS);
        while (times--)
            layers[runs++] = each;
    } while (*pos++ == ',');
    return pl_stages_list(ret, layers, runs, error);
}

const char *pl_stages_text(int stages)
{
    assert(pl_stages_known(stages));
    return stages < PL_STAGES_WORDS ? pl_stages_words[stages] : list_of(stages)->text;
}

bool pl_stages_known(int stages)
{
    if (stages < PL_STAGES_WORDS)
        return stages >= 0;
    return stages - PL_STAGES_WORDS < SLOTS && list_of(stages);
}

/* ---- what a stage holds -------------------------------------------------- */

bool pl_schedule_is_v(int schedule)
{
    return schedule == PL_ZB_V || schedule == PL_DUALPIPE_V;
}

int pl_virtual_stage(int schedule, int pp, int stage, int chunk)
{
    bool back = pl_schedule_is_v(schedule) || schedule == PL_DUALPIPE;

    return chunk * pp + (chunk && back ? pp - 1 - stage : stage);
}

bool pl_is_dualpipe(const struct pl_layout *layout)
{
    return layout->schedule == PL_DUALPIPE && layout->pp > 1;
}

int pl_chunks(const struct pl_layout *layout)
{
    return pl_is_dualpipe(layout) ? 2 : layout->vp;
}

int pl_stage_copies(const struct pl_layout *layout)
{
    return pl_is_dualpipe(layout) ? 2 : 1;
}

int pl_unlike_stages(const struct pl_layout *layout)
{
    return layout->pp / pl_stage_copies(layout);
}

int pl_loss_stage(const struct pl_layout *layout)
{
    return pl_schedule_is_v(layout->schedule) || pl_is_dualpipe(layout) ? 0 : layout->pp - 1;
}

int pl_stage_layers(int *ret_first, const struct pl_layout *layout, int layers, int stage,
                    int chunk)
{
    int run = pl_virtual_stage(layout->schedule, layout->pp, stage, chunk);

    return pl_run_layers(ret_first, layout, layers, run % (layout->pp * layout->vp));
}

int pl_run_layers(int *ret_first, const struct pl_layout *layout, int layers, int run)
{
    int runs = layout->pp * layout->vp, word = layout->stages;
    int embedding = word == PL_STAGES_BALANCED || word == PL_STAGES_BALANCED_EMBEDDING,
        loss = word == PL_STAGES_BALANCED || word == PL_STAGES_BALANCED_LOSS;
    int each, longer;

    if (word >= PL_STAGES_WORDS) {
        const struct list *list = list_of(word);

        assert(list && run < list->runs);
        if (ret_first)
            *ret_first = list->first[run];
        return list->first[run + 1] - list->first[run];
    }
    each = (layers + embedding + loss) / runs;
    longer = (layers + embedding + loss) % runs;
    if (ret_first)
        *ret_first = run * each + (run < longer ? run : longer) - (run ? embedding : 0);
    return each + (run < longer) - (run ? 0 : embedding) - (run == runs - 1 ? loss : 0);
}

int pl_stages_total(int *ret_layers, int stages)
{
    const struct list *list = stages < PL_STAGES_WORDS ? NULL : list_of(stages);

    *ret_layers = list ? list->first[list->runs] : 0;
    return list ? list->runs : 0;
}

/* Of a list: of as many virtual stages and LAYERS as LAYOUT has. */
static bool is_of(const struct pl_layout *layout, int layers)
{
    int sum, runs;

    if (layout->stages < PL_STAGES_WORDS)
        return true;
    runs = pl_stages_total(&sum, layout->stages);
    return runs == (int64_t)layout->pp * layout->vp && sum == layers;
}

static bool same_division(const struct pl_layout *left, const struct pl_layout *right, int layers)
{
    for (int run = 0; run < left->pp * left->vp; run++)
        if (pl_run_layers(NULL, left, layers, run) != pl_run_layers(NULL, right, layers, run))
            return false;
    return true;
}

int pl_stages_longest(const struct pl_layout *layout, int layers)
{
    int64_t runs = (int64_t)layout->pp * layout->vp;
    int longest = 0;

    if (runs > layers + 2 || !is_of(layout, layers))
        return 0;
    for (int run = 0; run < runs; run++) {
        int n = pl_run_layers(NULL, layout, layers, run);

        longest = n > longest ? n : longest;
    }
    return longest;
}

bool pl_stages_equal(const struct pl_layout *layout, int layers)
{
    return layers % (layout->pp * layout->vp) == 0 && pl_stages_are_even(layout, layers);
}

bool pl_stages_are_even(const struct pl_layout *layout, int layers)
{
    struct pl_layout even = *layout;

    if (layout->stages == PL_STAGES_EVEN)
        return true;
    even.stages = PL_STAGES_EVEN;
    return is_of(layout, layers) && same_division(layout, &even, layers);
}

int pl_stages_canonical(const struct pl_layout *layout, int layers)
{
    struct pl_layout form = *layout;

    if (layout->pp == 1)
        return PL_STAGES_EVEN;
    if (layout->stages == PL_STAGES_EVEN || !is_of(layout, layers))
        return layout->stages;
    for (form.stages = 0; form.stages < PL_STAGES_WORDS && form.stages != layout->stages;
         form.stages++)
        if ((form.stages != PL_STAGES_EVEN || layers % (layout->pp * layout->vp) == 0) &&
            same_division(layout, &form, layers))
            return form.stages;
    return layout->stages;
}
