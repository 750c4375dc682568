/*
 * Matrix multiplication by cuBLASLt, which is column-major: row-major C = A B is C^T = B^T A^T
 * there, so B is its first matrix and A its second. Arithmetic is fp32, without TF32. The algorithm
 * that the library's heuristic names is kept for each shape; what it has none for goes to
 * gemm_plain.cu, which is many times slower. So a library that fails, because memory ran out for
 * example, ends the program: its products by gemm_plain.cu would pass for a measurement.
 */
#include "kernels/cuda/ops.cuh"

#include <cublasLt.h>

/* All that the choice of an algorithm depends on; compared byte by byte, so made from zeros. */
struct key {
    size_t m, n, k, lda, ldb, ldc;
    unsigned at, bt, ct, ta, tb, add, align_a, align_b, align_c;
};

struct entry {
    key of;
    bool known, none; /* the library has no algorithm */
    cublasLtMatmulAlgo_t algo;
};

static constexpr unsigned ENTRIES = 1024;
static entry cache[ENTRIES];
static cublasLtHandle_t handle;

struct product {
    cublasLtMatmulDesc_t of;
    cublasLtMatrixLayout_t a, b, c;
};

/* Whether the library takes what it was asked; false: it does not support that. */
static bool takes(cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return true;
    if (status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_INVALID_VALUE &&
        status != CUBLAS_STATUS_ARCH_MISMATCH)
        cu_failed(what, cublasLtGetStatusName(status)); /* one that a log is searched for */
    return false;
}

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
    k.m = g->m;
    k.n = g->n;
    k.k = g->k;
    k.lda = g->lda;
    k.ldb = g->ldb;
    k.ldc = g->ldc;
    k.at = g->at;
    k.bt = g->bt;
    k.ct = g->ct;
    k.ta = g->ta;
    k.tb = g->tb;
    k.add = g->beta != 0;
    k.align_a = alignment(g->a);
    k.align_b = alignment(g->b);
    k.align_c = alignment(g->c);
    return k;
}

static entry *entry_of(const key &k)
{
    const unsigned char *bytes = (const unsigned char *)&k;
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    entry *e;

    for (size_t i = 0; i < sizeof(k); i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    e = &cache[hash % ENTRIES];
    if (e->known && memcmp(&e->of, &k, sizeof(k)) != 0)
        e->known = false;
    return e;
}

static cudaDataType_t type_of(enum kn_type type)
{
    return type == KN_F32 ? CUDA_R_32F : CUDA_R_16BF;
}

static bool describe(product *ret_product, const struct kn_gemm *g)
{
    cublasOperation_t first = g->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = g->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    product p = {};
    bool ok = cublasLtMatmulDescCreate(&p.of, CUBLAS_COMPUTE_32F, CUDA_R_32F) == 0 &&
              cublasLtMatmulDescSetAttribute(p.of, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                             sizeof(first)) == 0 &&
              cublasLtMatmulDescSetAttribute(p.of, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                             sizeof(second)) == 0 &&
              cublasLtMatrixLayoutCreate(&p.b, type_of(g->bt), g->tb ? g->k : g->n,
                                         g->tb ? g->n : g->k, (int64_t)g->ldb) == 0 &&
              cublasLtMatrixLayoutCreate(&p.a, type_of(g->at), g->ta ? g->m : g->k,
                                         g->ta ? g->k : g->m, (int64_t)g->lda) == 0 &&
              cublasLtMatrixLayoutCreate(&p.c, type_of(g->ct), g->n, g->m, (int64_t)g->ldc) == 0;

    *ret_product = p;
    return ok;
}

static void release(const product &p)
{
    cublasLtMatrixLayoutDestroy(p.c);
    cublasLtMatrixLayoutDestroy(p.a);
    cublasLtMatrixLayoutDestroy(p.b);
    cublasLtMatmulDescDestroy(p.of);
}

template <typename T>
static bool limit(cublasLtMatmulPreference_t limits, cublasLtMatmulPreferenceAttributes_t which,
                  const T &value)
{
    return cublasLtMatmulPreferenceSetAttribute(limits, which, &value, sizeof(value)) == 0;
}

/* How parts of a sum over k, where the library divides it, may be added up: in fp32, since a result
 * is rounded once. By itself it may store the parts in the type of the result. */
static uint32_t sums_of(const key &k)
{
    return k.ct == KN_F32
               ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_INPLACE
               : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

/* Ask the heuristic for shape K; the answer stays in E. */
static void choose(entry *e, const key &k, const product &p)
{
    cublasLtMatmulPreference_t limits = NULL;
    cublasLtMatmulHeuristicResult_t found = {};
    uint32_t a = k.align_b, b = k.align_a, c = k.align_c;
    int count = 0;
    bool ok = cublasLtMatmulPreferenceCreate(&limits) == 0 &&
              limit(limits, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (size_t)CU_SCRATCH_BYTES) &&
              limit(limits, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, sums_of(k)) &&
              limit(limits, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, a) &&
              limit(limits, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, b) &&
              limit(limits, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c) &&
              limit(limits, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c) &&
              takes(cublasLtMatmulAlgoGetHeuristic(handle, p.of, p.b, p.a, p.c, p.c, limits, 1,
                                                   &found, &count),
                    "cuBLASLt's heuristic");

    if (limits)
        cublasLtMatmulPreferenceDestroy(limits);
    e->of = k;
    e->known = true;
    e->none = !ok || count == 0 || found.state != CUBLAS_STATUS_SUCCESS;
    if (!e->none)
        e->algo = found.algo;
}

/* False: the library does not take it. */
static bool by_library(cu_stream *stream, const struct kn_gemm *g)
{
    float alpha = 1, beta = g->beta;
    key k = key_of(g);
    entry *e = entry_of(k);
    product p;
    bool done = false;

    if (e->known && e->none)
        return false;
    if (!handle && !takes(cublasLtCreate(&handle), "cuBLASLt"))
        return false;
    if (describe(&p, g)) {
        if (!e->known)
            choose(e, k, p);
        done = !e->none &&
               takes(cublasLtMatmul(handle, p.of, &alpha, g->b, p.b, g->a, p.a, &beta, g->c, p.c,
                                    g->c, p.c, &e->algo, cu_stream_scratch(stream),
                                    CU_SCRATCH_BYTES, (cudaStream_t)cu_stream_handle(stream)),
                     "a product by cuBLASLt");
        e->none = !done; /* the next one of this shape goes the same way */
    }
    release(p);
    return done;
}

extern "C" void cu_gemm(struct kn_pool *pool, const struct kn_gemm *gemm)
{
    cu_stream *stream = cu_stream_of(pool);

    if (gemm->at != gemm->bt || !gemm->m || !gemm->n || !gemm->k || !by_library(stream, gemm))
        cu_gemm_plain(stream, gemm);
}
