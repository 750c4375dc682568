/*
 * Matrix multiplication by a library, with the algorithm that calibration measured to be fastest
 * (kn_gemm_use), else the one that the library's heuristic names; the answer is kept for each shape
 * and alignment. What the library does not take goes to gemm_plain.cu, which is many times slower.
 */
#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/ops.cuh"

/* All that the choice of an algorithm depends on; compared byte by byte, so made from zeros. */
struct key {
    struct kn_product product;
    cu_aligned aligned;
    unsigned zero; /* no hole */
};

struct entry {
    key of;
    bool known, none; /* the library has no algorithm */
    cu_algo algo;
};

static constexpr unsigned ENTRIES = 1024;
static entry cache[ENTRIES];

static uint64_t hash_of(const void *of, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)of;
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */

    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

/* ---- algorithms that were measured --------------------------------------- */

/* By linear probing; half of it stays empty. */
static constexpr unsigned ROOM = 2 * KN_ALGOS;
static struct {
    bool full;
    struct kn_algo algo;
} kept[ROOM];
static unsigned count;

static unsigned place_of(const struct kn_product &product)
{
    unsigned at = (unsigned)(hash_of(&product, sizeof(product)) % ROOM);

    while (kept[at].full && memcmp(&kept[at].algo.product, &product, sizeof(product)) != 0)
        at = (at + 1) % ROOM;
    return at;
}

static cu_algo algo_of(const struct kn_algo &kept_one)
{
    cu_algo algo;

    memcpy(algo.word, kept_one.word, sizeof(algo.word));
    return algo;
}

bool cu_gemm_use(const struct kn_algo *algo)
{
    unsigned at = place_of(algo->product);

    if ((!kept[at].full && count == KN_ALGOS) || !cu_lib_takes(algo->product, algo_of(*algo)))
        return false;
    count += !kept[at].full;
    kept[at].full = true;
    kept[at].algo = *algo;
    for (auto &e : cache) /* the heuristic's answers, and earlier ones */
        e.known = false;
    return true;
}

size_t cu_gemm_algos(struct kn_algo *ret, size_t most, const struct kn_gemm *gemm)
{
    static constexpr unsigned MOST = 64;
    const cu_aligned aligned = {CU_ALGO_ALIGN, CU_ALGO_ALIGN, CU_ALGO_ALIGN};
    struct kn_product product = kn_product_of(gemm);
    cu_algo found[MOST];
    unsigned n = cu_lib_find(found, (unsigned)cu_least(most, MOST), product, aligned);

    for (unsigned i = 0; i < n; i++) {
        ret[i].product = product;
        memcpy(ret[i].word, found[i].word, sizeof(found[i].word));
    }
    return n;
}

/* ---- one product --------------------------------------------------------- */

/* The largest power of two up to 256 that divides the address. */
static unsigned alignment(const void *at)
{
    uintptr_t bits = cu_addr(at) | 256;

    return (unsigned)(bits & (~bits + 1));
}

static key key_of(const struct kn_gemm *g)
{
    key k;

    memset(&k, 0, sizeof(k));
    k.product = kn_product_of(g);
    k.aligned = {alignment(g->a), alignment(g->b), alignment(g->c)};
    return k;
}

static entry *entry_of(const key &k)
{
    entry *e = &cache[hash_of(&k, sizeof(k)) % ENTRIES];

    if (e->known && memcmp(&e->of, &k, sizeof(k)) != 0)
        e->known = false;
    return e;
}

static void choose(entry *e, const key &k)
{
    const auto &measured = kept[place_of(k.product)];
    unsigned least = (unsigned)cu_least(k.aligned.a, cu_least(k.aligned.b, k.aligned.c));

    e->of = k;
    e->known = true;
    e->none = false;
    if (measured.full && least >= CU_ALGO_ALIGN)
        e->algo = algo_of(measured.algo);
    else
        e->none = cu_lib_find(&e->algo, 1, k.product, k.aligned) == 0;
}

/* False: the library does not take it. */
static bool by_library(cu_stream *stream, const struct kn_gemm *g)
{
    key k = key_of(g);
    entry *e = entry_of(k);

    if (!e->known)
        choose(e, k);
    if (!e->none)
        e->none =
            !cu_lib_run(stream, g, e->algo); /* the next one of this shape goes the same way */
    return !e->none;
}

extern "C" void cu_gemm(struct kn_pool *pool, const struct kn_gemm *gemm)
{
    cu_stream *stream = cu_stream_of(pool);

    assert(gemm->beta == 0 || gemm->beta == 1);
    if (gemm->at != gemm->bt || !gemm->m || !gemm->n || !gemm->k || !by_library(stream, gemm))
        cu_gemm_plain(stream, gemm);
}
