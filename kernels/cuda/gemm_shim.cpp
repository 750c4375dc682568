/*
 * A library of matrix products for the host, where there is no cuBLASLt: each of its algorithms is
 * the kernel of gemm_plain.cu, so results are the same, and they differ in what gemm.cu has to get
 * right. An algorithm is a word that names the library's version and one that is its number.
 *
 * STANDIN_GEMM_SLOW: the heuristic's choice, number 0, computes everything eight times.
 * STANDIN_GEMM_VERSION: another version's name; algorithms of other versions are refused.
 * STANDIN_SAYS: at the end, on stderr, how many products each algorithm has had.
 */
#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/ops.cuh"

static constexpr unsigned ALGOS = 3, AGAIN = 8;
static unsigned long runs[ALGOS];

static const char *version(void)
{
    const char *word = getenv("STANDIN_GEMM_VERSION");

    return word ? word : "1.0.0";
}

/* What is in the first word of an algorithm. */
static uint64_t seal(void)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (const char *at = version(); *at; at++)
        hash = (hash ^ (unsigned char)*at) * 0x100000001b3u;
    return hash;
}

static void say(void)
{
    for (unsigned i = 0; i < ALGOS; i++)
        if (runs[i])
            fprintf(stderr, "standin-gemm: algorithm %u had %lu products\n", i, runs[i]);
}

const char *cu_lib_name(void)
{
    static char text[64];

    snprintf(text, sizeof(text), "standin-gemm %s", version());
    return text;
}

/* A product of one row or column has the heuristic's choice alone. */
unsigned cu_lib_find(cu_algo *ret, unsigned most, const struct kn_product &product,
                     const cu_aligned &)
{
    unsigned n = product.m == 1 || product.n == 1 ? 1 : ALGOS;

    for (unsigned i = 0; i < n && i < most; i++)
        ret[i] = {{seal(), i}};
    return n < most ? n : most;
}

bool cu_lib_takes(const struct kn_product &, const cu_algo &algo)
{
    return algo.word[0] == seal() && algo.word[1] < ALGOS;
}

bool cu_lib_run(cu_stream *stream, const struct kn_gemm *gemm, const cu_algo &algo)
{
    static const bool says = getenv("STANDIN_SAYS") && atexit(say) == 0;
    static const bool slow = getenv("STANDIN_GEMM_SLOW");
    unsigned number = (unsigned)algo.word[1];
    bool fits = gemm->m * gemm->n * sizeof(float) <= CU_SCRATCH_BYTES;
    struct kn_gemm again = *gemm;

    if (algo.word[0] != seal() || number >= ALGOS)
        cu_failed("a product", "no algorithm of this library");
    runs[number] += says;
    again.c = cu_stream_scratch(stream);
    again.ldc = gemm->n;
    again.beta = 0;
    for (unsigned i = 1; slow && number == 0 && fits && i < AGAIN; i++)
        cu_gemm_plain(stream, &again);
    cu_gemm_plain(stream, gemm);
    return true;
}
