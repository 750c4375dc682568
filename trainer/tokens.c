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
#include "trainer/dataset.h"
#include "trainer/megatron.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>

enum { ROUNDS = 6, SYNTHETIC_IDS = 1024 };

struct tr_tokens {
    bool synthetic;
    int vocab, seq;
    uint64_t seed;
    struct tr_stream split[TR_SPLITS];
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

static int open_folder(struct tr_tokens *tokens, const char *folder, struct err *error)
{
    struct tr_dataset d;
    int r = tr_dataset_open(&d, folder, error);

    if (r < 0)
        return r;
    memcpy(tokens->split, d.split, sizeof(tokens->split));
    if (d.vocab > tokens->vocab)
        return err_set(error, -EINVAL,
                       "data set %s has %d token ids, more than the model's vocabulary of %d",
                       folder, d.vocab, tokens->vocab);
    return 0;
}

static int open_named(struct tr_tokens *tokens, const char *data_dir, const char *name,
                      struct err *error)
{
    AUTO_FREE char *folder =
        strchr(name, '/') ? mem_strdup(name) : mem_printf("%s/datasets/%s", data_dir, name);

    if (exists(folder, "/meta.json"))
        return open_folder(tokens, folder, error);
    if (exists(folder, ".idx"))
        return tr_megatron_open(tokens->split, folder, error);
    return err_set(error, -ENOENT, "no data set %s: neither %s/meta.json nor %s.idx exists", name,
                   folder, folder);
}

int tr_tokens_open(struct tr_tokens **ret, const char *data_dir, const char *name, int vocab,
                   int seq, uint64_t seed, struct err *error)
{
    AUTO(tr_tokens) *t = mem_alloc(sizeof(*t));
    int r;

    assert(vocab > 0 && seq > 0);
    *t = (struct tr_tokens){
        .synthetic = str_eq(name, "synthetic"), .vocab = vocab, .seq = seq, .seed = seed};
    if (!t->synthetic) {
        r = open_named(t, data_dir, name, error);
        if (r < 0)
            return r;
        if (tr_tokens_samples(t, TR_SPLIT_TRAIN) == 0)
            return err_set(error, -EINVAL,
                           "%s: %" PRIu64 " tokens are less than one sample of %d + 1",
                           t->split[TR_SPLIT_TRAIN].path, t->split[TR_SPLIT_TRAIN].tokens, seq);
    }
    *ret = TAKE(t);
    return 0;
}

struct tr_tokens *tr_tokens_free(struct tr_tokens *tokens)
{
    if (!tokens)
        return NULL;
    for (int i = 0; i < TR_SPLITS; i++)
        tr_stream_done(&tokens->split[i]);
    free(tokens);
    return NULL;
}

bool tr_tokens_synthetic(const struct tr_tokens *tokens)
{
    return tokens->synthetic;
}

uint64_t tr_tokens_count(const struct tr_tokens *tokens, enum tr_split split)
{
    return tokens->synthetic ? tr_tokens_samples(tokens, split) * (uint64_t)tokens->seq
                             : tokens->split[split].tokens;
}

uint64_t tr_tokens_samples(const struct tr_tokens *tokens, enum tr_split split)
{
    uint64_t n = tokens->split[split].tokens;

    if (tokens->synthetic)
        return split == TR_SPLIT_TRAIN ? UINT64_C(1) << 40 : 1 << 16;
    return n ? (n - 1) / (uint64_t)tokens->seq : 0;
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

int tr_tokens_sample(int32_t *ret, const struct tr_tokens *tokens, enum tr_split split,
                     uint64_t index, struct err *error)
{
    uint64_t n = tr_tokens_samples(tokens, split), k;

    if (tokens->synthetic) {
        synthesize(ret, tokens, split, index);
        return 0;
    }
    if (n == 0)
        return err_set(error, -ENODATA, "%s has no sample of %d tokens", tokens->split[split].path,
                       tokens->seq);
    k = index % n;
    if (split == TR_SPLIT_TRAIN)
        k = tr_permute_index(k, n, rng_mix(tokens->seed) + rng_mix(index / n));
    return tr_stream_read(ret, &tokens->split[split], k * (uint64_t)tokens->seq,
                          (size_t)tokens->seq + 1, tokens->vocab, error);
}
