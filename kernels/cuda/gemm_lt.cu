/*
 * Matrix multiplication by cuBLASLt, which is column-major: row-major C = A B is C^T = B^T A^T
 * there, so B is its first matrix and A its second. Arithmetic is fp32, without TF32. A library
 * that fails, because memory ran out for example, ends the program: its products by gemm_plain.cu
 * would pass for a measurement.
 */
#include "kernels/cuda/gemm.cuh"

#include <cublasLt.h>
#include <stdio.h>
#include <string.h>

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(cu_algo), "an algorithm is 64 bytes");

static cublasLtHandle_t handle;

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

static bool is_open(void)
{
    return handle || takes(cublasLtCreate(&handle), "cuBLASLt");
}

const char *cu_lib_name(void)
{
    static char text[48];
    size_t version = cublasLtGetVersion(); /* 10000 major + 100 minor + patch */

    snprintf(text, sizeof(text), "cuBLASLt %zu.%zu.%zu", version / 10000, version / 100 % 100,
             version % 100);
    return text;
}

/* ---- descriptions -------------------------------------------------------- */

/* A product as the library has it. */
struct described {
    cublasLtMatmulDesc_t of;
    cublasLtMatrixLayout_t a, b, c;
    bool ok;

    explicit described(const struct kn_product &product);
    ~described();
    described(const described &) = delete;
    described &operator=(const described &) = delete;
};

static cudaDataType_t type_of(unsigned type)
{
    return type == KN_F32 ? CUDA_R_32F : CUDA_R_16BF;
}

template <typename T>
static bool set(cublasLtMatmulDesc_t of, cublasLtMatmulDescAttributes_t which, const T &value)
{
    return cublasLtMatmulDescSetAttribute(of, which, &value, sizeof(value)) == 0;
}

described::described(const struct kn_product &p) : of(), a(), b(), c()
{
    cublasOperation_t first = p.tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = p.ta ? CUBLAS_OP_T : CUBLAS_OP_N;

    ok = cublasLtMatmulDescCreate(&of, CUBLAS_COMPUTE_32F, CUDA_R_32F) == 0 &&
         set(of, CUBLASLT_MATMUL_DESC_TRANSA, first) &&
         set(of, CUBLASLT_MATMUL_DESC_TRANSB, second) &&
         cublasLtMatrixLayoutCreate(&b, type_of(p.bt), p.tb ? p.k : p.n, p.tb ? p.n : p.k,
                                    (int64_t)p.ldb) == 0 &&
         cublasLtMatrixLayoutCreate(&a, type_of(p.at), p.ta ? p.m : p.k, p.ta ? p.k : p.m,
                                    (int64_t)p.lda) == 0 &&
         cublasLtMatrixLayoutCreate(&c, type_of(p.ct), p.n, p.m, (int64_t)p.ldc) == 0;
}

described::~described()
{
    if (c)
        cublasLtMatrixLayoutDestroy(c);
    if (a)
        cublasLtMatrixLayoutDestroy(a);
    if (b)
        cublasLtMatrixLayoutDestroy(b);
    if (of)
        cublasLtMatmulDescDestroy(of);
}

/* ---- algorithms ---------------------------------------------------------- */

template <typename T>
static bool limit(cublasLtMatmulPreference_t limits, cublasLtMatmulPreferenceAttributes_t which,
                  const T &value)
{
    return cublasLtMatmulPreferenceSetAttribute(limits, which, &value, sizeof(value)) == 0;
}

/* How parts of a sum over k, where the library divides it, may be added up: in fp32, since a result
 * is rounded once. By itself it may store the parts in the type of the result. */
static uint32_t sums_of(const struct kn_product &product)
{
    return product.ct == KN_F32
               ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_INPLACE
               : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

static bool set_limits(cublasLtMatmulPreference_t limits, const struct kn_product &product,
                       const cu_aligned &aligned)
{
    uint32_t a = aligned.b, b = aligned.a, c = aligned.c;

    return limit(limits, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (size_t)CU_SCRATCH_BYTES) &&
           limit(limits, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, sums_of(product)) &&
           limit(limits, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, a) &&
           limit(limits, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, b) &&
           limit(limits, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c) &&
           limit(limits, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c);
}

unsigned cu_lib_find(cu_algo *ret, unsigned most, const struct kn_product &product,
                     const cu_aligned &aligned)
{
    static constexpr unsigned MOST = 64;
    cublasLtMatmulHeuristicResult_t found[MOST] = {};
    cublasLtMatmulPreference_t limits = NULL;
    unsigned asked = most < MOST ? most : MOST, n = 0;
    int count = 0;

    if (!is_open())
        return 0;
    described d(product);
    if (d.ok && cublasLtMatmulPreferenceCreate(&limits) == 0 &&
        set_limits(limits, product, aligned) &&
        !takes(cublasLtMatmulAlgoGetHeuristic(handle, d.of, d.b, d.a, d.c, d.c, limits, (int)asked,
                                              found, &count),
               "cuBLASLt's heuristic"))
        count = 0;
    if (limits)
        cublasLtMatmulPreferenceDestroy(limits);
    for (int i = 0; i < count; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS)
            memcpy(&ret[n++], &found[i].algo, sizeof(*ret));
    return n;
}

static cublasLtMatmulAlgo_t theirs(const cu_algo &algo)
{
    cublasLtMatmulAlgo_t ret;

    memcpy(&ret, &algo, sizeof(ret));
    return ret;
}

bool cu_lib_takes(const struct kn_product &product, const cu_algo &algo)
{
    cublasLtMatmulHeuristicResult_t found = {};
    cublasLtMatmulAlgo_t it = theirs(algo);

    if (!is_open())
        return false;
    described d(product);
    return d.ok &&
           takes(cublasLtMatmulAlgoCheck(handle, d.of, d.b, d.a, d.c, d.c, &it, &found),
                 "an algorithm of cuBLASLt") &&
           found.workspaceSize <= (size_t)CU_SCRATCH_BYTES;
}

bool cu_lib_run(cu_stream *stream, const struct kn_gemm *g, const cu_algo &algo)
{
    cublasLtMatmulAlgo_t it = theirs(algo);
    float alpha = 1, beta = g->beta;

    if (!is_open())
        return false;
    described d(kn_product_of(g));
    return d.ok && takes(cublasLtMatmul(handle, d.of, &alpha, g->b, d.b, g->a, d.a, &beta, g->c,
                                        d.c, g->c, d.c, &it, cu_stream_scratch(stream),
                                        CU_SCRATCH_BYTES, (cudaStream_t)cu_stream_handle(stream)),
                         "a product by cuBLASLt");
}
