/*
 * Samples from token streams.
 *
 * The permutation of [0, n): a balanced Feistel network of six rounds on the smallest even number
 * of bits that holds n, applied again while its image is outside [0, n) (Black and Rogaway,
 * "Ciphers with arbitrary finite domains", 2002). The domain is less than 4 n, so four applications
 * are expected at most.
 *
 * The synthetic language: each token follows from the one before by a fixed rule three times out of
 * four, else it is drawn from a skewed distribution. A model learns the rule within some hundred
 * steps; the loss falls from ln(vocab) towards the entropy of the draw.
 */
#include "trainer/tokens.h"

#include "base/base.h"
#include "trainer/blend.h"
#include "trainer/dataset.h"
#include "trainer/megatron.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>

enum { ROUNDS = 6, SYNTHETIC_IDS = 1024 };

struct source {
    char name[TR_SOURCE_NAME];
    uint32_t share, crc32;
    int vocab; /* 0: its files do not say it */
    struct tr_tokenizer_id tokenizer;
    struct tr_stream split[TR_SPLITS];
    uint64_t samples[TR_SPLITS];
};

struct tr_tokens {
    bool synthetic;
    int vocab, seq;
    uint64_t seed;
    struct source *source;
    int count;
    struct tr_blend *blend; /* of several sources */
    uint64_t samples[TR_SPLITS];
};

uint64_t tr_permute_index(uint64_t index, uint64_t count, uint64_t key)
{
    int half = 1;
    uint64_t mask;

    assert(count > 0 && index < count); /* else the walk below has no end */
    while (half < 32 && count > UINT64_C(1) << 2 * half)
        half++;
    mask = (UINT64_C(1) << half) - 1;
    do {
        uint64_t l = index >> half, r = index & mask;

        for (uint64_t k = 0; k < ROUNDS; k++) {
            uint64_t f = rng_mix(rng_mix(key + k) ^ r) & mask, next = l ^ f;

            l = r;
            r = next;
        }
        index = l << half | r;
    } while (index >= count);
    return index;
}

/* ---- opening ------------------------------------------------------------- */

static bool exists(const char *folder, const char *tail)
{
    AUTO_FREE char *path = mem_printf("%s%s", folder, tail);

    return file_exists(path);
}

static int open_folder(struct source *source, const char *folder, int vocab, struct err *error)
{
    struct tr_dataset d;
    int r = tr_dataset_open(&d, folder, error);

    if (r < 0)
        return r;
    memcpy(source->split, d.split, sizeof(source->split));
    source->vocab = d.vocab;
    source->crc32 = d.crc32;
    source->tokenizer = d.tokenizer;
    if (d.vocab > vocab)
        return err_set(error, -EINVAL,
                       "data set %s has %d token ids, more than the model's vocabulary of %d",
                       folder, d.vocab, vocab);
    return 0;
}

static int open_named(struct source *source, const char *data_dir, const char *name, int vocab,
                      struct err *error)
{
    AUTO_FREE char *folder =
        strchr(name, '/') ? mem_strdup(name) : mem_printf("%s/datasets/%s", data_dir, name);

    if (exists(folder, "/meta.json"))
        return open_folder(source, folder, vocab, error);
    if (exists(folder, ".idx"))
        return tr_megatron_open(source->split, &source->crc32, folder, error);
    return err_set(error, -ENOENT, "no data set %s: neither %s/meta.json nor %s.idx exists", name,
                   folder, folder);
}

/* Sources of one run are of one tokenizer. */
static int same_ids(const struct source *first, const struct source *source, struct err *error)
{
    size_t had = tr_id_bytes(first->split[TR_SPLIT_TRAIN].id);
    size_t has = tr_id_bytes(source->split[TR_SPLIT_TRAIN].id);

    if (had != has)
        return err_set(error, -EINVAL, "the ids of %s have %zu bytes, those of %s %zu",
                       source->name, has, first->name, had);
    if (first->vocab && source->vocab && first->vocab != source->vocab)
        return err_set(error, -EINVAL, "data set %s has %d different ids, %s has %d", source->name,
                       source->vocab, first->name, first->vocab);
    if (*first->tokenizer.name && *source->tokenizer.name &&
        (first->tokenizer.crc32 != source->tokenizer.crc32 ||
         first->tokenizer.eod != source->tokenizer.eod))
        return err_set(error, -EINVAL,
                       "data set %s is of the tokenizer %s (crc32 %08" PRIx32
                       ", eod %d), %s of %s (crc32 %08" PRIx32 ", eod %d)",
                       source->name, source->tokenizer.name, source->tokenizer.crc32,
                       source->tokenizer.eod, first->name, first->tokenizer.name,
                       first->tokenizer.crc32, first->tokenizer.eod);
    return 0;
}

static int open_source(struct tr_tokens *tokens, int index, const char *data_dir,
                       const struct tr_source *what, struct err *error)
{
    struct source *source = &tokens->source[index];
    int r;

    tr_source_name(source->name, what->path);
    source->share = what->share;
    if (tokens->synthetic) {
        source->samples[TR_SPLIT_TRAIN] = UINT64_C(1) << 40;
        source->samples[TR_SPLIT_VALIDATION] = 1 << 16;
        return 0;
    }
    r = open_named(source, data_dir, what->path, tokens->vocab, error);
    if (r < 0)
        return r;
    for (int i = 0; i < TR_SPLITS; i++)
        if (source->split[i].tokens)
            source->samples[i] = (source->split[i].tokens - 1) / (uint64_t)tokens->seq;
    if (source->samples[TR_SPLIT_TRAIN] == 0)
        return err_set(error, -EINVAL, "%s: %" PRIu64 " tokens are not one sample of %d + 1",
                       source->split[TR_SPLIT_TRAIN].path, source->split[TR_SPLIT_TRAIN].tokens,
                       tokens->seq);
    for (int i = 0; i < index && r == 0; i++)
        r = same_ids(&tokens->source[i], source, error);
    return r;
}

/* How the sources make one order. */
static void blend(struct tr_tokens *tokens)
{
    uint64_t have[TR_SOURCES_MAX] = {0};
    uint32_t share[TR_SOURCES_MAX];

    for (int i = 0; i < tokens->count; i++) {
        have[i] = tokens->source[i].samples[TR_SPLIT_VALIDATION];
        share[i] = tokens->source[i].share;
        tokens->samples[TR_SPLIT_TRAIN] += tokens->source[i].samples[TR_SPLIT_TRAIN];
    }
    tokens->samples[TR_SPLIT_VALIDATION] = have[0];
    if (tokens->count == 1)
        return;
    tokens->blend = tr_blend_new(share, tokens->count);
    tokens->samples[TR_SPLIT_VALIDATION] = tr_blend_until(tokens->blend, have);
}

int tr_tokens_open(struct tr_tokens **ret, const char *data_dir, const struct tr_sources *sources,
                   int vocab, int seq, uint64_t seed, struct err *error)
{
    AUTO(tr_tokens) *t = mem_alloc(sizeof(*t));
    int r = 0;

    assert(vocab > 0 && seq > 0 && sources->count > 0);
    *t = (struct tr_tokens){.synthetic = str_eq(sources->v[0].path, "synthetic"),
                            .vocab = vocab,
                            .seq = seq,
                            .seed = seed,
                            .source = mem_alloc((size_t)sources->count * sizeof(*t->source)),
                            .count = sources->count};
    assert(!t->synthetic || t->count == 1);
    for (int i = 0; i < t->count && r == 0; i++)
        r = open_source(t, i, data_dir, &sources->v[i], error);
    if (r < 0)
        return r;
    blend(t);
    *ret = TAKE(t);
    return 0;
}

struct tr_tokens *tr_tokens_free(struct tr_tokens *tokens)
{
    if (!tokens)
        return NULL;
    for (int i = 0; i < tokens->count; i++)
        for (int k = 0; k < TR_SPLITS; k++)
            tr_stream_done(&tokens->source[i].split[k]);
    tr_blend_free(tokens->blend);
    free(tokens->source);
    free(tokens);
    return NULL;
}

bool tr_tokens_synthetic(const struct tr_tokens *tokens)
{
    return tokens->synthetic;
}

uint64_t tr_tokens_count(const struct tr_tokens *tokens, enum tr_split split)
{
    uint64_t sum = 0;

    if (tokens->synthetic)
        return tr_tokens_samples(tokens, split) * (uint64_t)tokens->seq;
    for (int i = 0; i < tokens->count; i++)
        sum += tokens->source[i].split[split].tokens;
    return sum;
}

uint64_t tr_tokens_samples(const struct tr_tokens *tokens, enum tr_split split)
{
    return tokens->samples[split];
}

void tr_tokens_identity(struct tr_identity *ret, const struct tr_tokens *tokens)
{
    memset(ret, 0, sizeof(*ret));
    ret->count = tokens->count;
    for (int i = 0; i < tokens->count; i++) {
        const struct source *source = &tokens->source[i];
        struct tr_source_id *id = &ret->v[i];

        memcpy(id->name, source->name, sizeof(id->name));
        id->share = source->share;
        id->crc32 = source->crc32;
        for (int k = 0; k < TR_SPLITS; k++)
            id->tokens[k] = source->split[k].tokens;
    }
}

/* ---- samples ------------------------------------------------------------- */

static void synthesize(int32_t *ret, const struct tr_tokens *tokens, enum tr_split split,
                       uint64_t index)
{
    uint64_t ids = (uint64_t)(tokens->vocab < SYNTHETIC_IDS ? tokens->vocab : SYNTHETIC_IDS);
    struct rng r;

    rng_seed(&r, rng_mix(tokens->seed) ^ rng_mix(2 * index + (split == TR_SPLIT_VALIDATION)));
    ret[0] = (int32_t)rng_below(&r, ids);
    for (int i = 1; i <= tokens->seq; i++) {
        if (rng_u64(&r) >> 62) { /* three of four */
            ret[i] = (int32_t)((5 * (uint64_t)ret[i - 1] + 7) % ids);
        } else {
            double u = rng_unit(&r);

            ret[i] = (int32_t)(u * u * (double)ids);
        }
    }
}

/* Source and number of sample INDEX there, in its split; not for the synthetic language. The split
 * is not empty. */
static const struct source *find(uint64_t *ret, const struct tr_tokens *tokens, enum tr_split split,
                                 uint64_t index)
{
    const struct source *source = tokens->source;
    uint64_t n;

    if (split == TR_SPLIT_VALIDATION)
        index %= tokens->samples[split];
    if (tokens->blend)
        source += tr_blend_at(&index, tokens->blend, index);
    n = source->samples[split];
    *ret = index % n;
    if (split == TR_SPLIT_TRAIN)
        *ret = tr_permute_index(*ret, n, rng_mix(tokens->seed) + rng_mix(index / n));
    return source;
}

int tr_tokens_sample(int32_t *ret, const struct tr_tokens *tokens, enum tr_split split,
                     uint64_t index, struct err *error)
{
    const struct source *source;
    uint64_t k;

    if (tokens->synthetic) {
        synthesize(ret, tokens, split, index);
        return 0;
    }
    if (tokens->samples[split] == 0)
        return err_set(error, -ENODATA, "%s has no sample of %d tokens",
                       tokens->source->split[split].path, tokens->seq);
    source = find(&k, tokens, split, index);
    return tr_stream_read(ret, &source->split[split], k * (uint64_t)tokens->seq,
                          (size_t)tokens->seq + 1, tokens->vocab, error);
}

void tr_tokens_ahead(const struct tr_tokens *tokens, enum tr_split split, uint64_t index)
{
    const struct source *source;
    uint64_t k;

    if (tokens->synthetic || tokens->samples[split] == 0)
        return;
    source = find(&k, tokens, split, index);
    tr_stream_ahead(&source->split[split], k * (uint64_t)tokens->seq, (size_t)tokens->seq + 1);
}
