/*
 * cuBLASLt for tests without a GPU, by the toolkit's own header: what gemm_lt.cu asks for is done
 * on the host, column-major as the library defines it, and checked more strictly than the library
 * does. A call with a description that was destroyed, one that is left over at the end, an
 * algorithm for other sizes, arrays off the alignment that it was asked for, or less workspace than
 * it needs ends the program with a line.
 *
 * An algorithm is: the version, a hash of the product, its number, the workspace that it needs, and
 * the least alignment. Number 2 needs more workspace than it is given unless the limit allows it.
 * STANDIN_GEMM_VERSION: another version (a number).
 */
#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <set>

void shim_own_open(bool open); /* kernels/cuda/shim.cuh */

namespace
{

enum { ALGOS = 4 };

struct layout {
    cudaDataType type;
    uint64_t rows, cols;
    int64_t ld;
};

struct desc {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    cublasOperation_t op[2]; /* of A, of B */
};

struct preference {
    size_t workspace;
    uint32_t sums, align[4];
};

[[noreturn]] void broken(const char *what)
{
    fprintf(stderr, "standin-cublaslt: %s\n", what);
    abort();
}

struct tracked {
    std::set<const void *> live;

    ~tracked()
    {
        if (!live.empty())
            broken("a description is left over at the end");
    }
} handed_out;

template <typename T, typename Handle> const T *of(Handle handle)
{
    T *const *at = (T *const *)handle;

    if (!handed_out.live.count(handle))
        broken("a description that was destroyed, or none");
    return *at;
}

template <typename T, typename Opaque> cublasStatus_t create(Opaque **ret, const T &value)
{
    T **box = (T **)malloc(sizeof(Opaque));

    *box = new T(value);
    handed_out.live.insert(box);
    *ret = (Opaque *)box;
    return CUBLAS_STATUS_SUCCESS;
}

template <typename T, typename Handle> cublasStatus_t destroy(Handle handle)
{
    delete of<T>(handle);
    handed_out.live.erase(handle);
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

size_t version()
{
    const char *word = getenv("STANDIN_GEMM_VERSION");

    return word ? strtoull(word, NULL, 10) : 130100;
}

/* ---- one product --------------------------------------------------------- */

struct product {
    const desc *d;
    const layout *a, *b, *c;
    uint64_t m, n, k;
};

bool is_read(const layout &l)
{
    return (l.type == CUDA_R_32F || l.type == CUDA_R_16BF) && l.rows && l.cols &&
           l.ld >= (int64_t)l.rows;
}

bool product_of(product *ret, const desc *d, const layout *a, const layout *b, const layout *c,
                const layout *out)
{
    bool ta = d->op[0] == CUBLAS_OP_T, tb = d->op[1] == CUBLAS_OP_T;
    uint64_t ka = ta ? a->rows : a->cols, kb = tb ? b->cols : b->rows;

    *ret = {d, a, b, c, c->rows, c->cols, ka};
    return d->compute == CUBLAS_COMPUTE_32F && d->scale == CUDA_R_32F && is_read(*a) &&
           is_read(*b) && is_read(*c) && a->type == b->type && out == c && ka == kb &&
           (ta ? a->cols : a->rows) == c->rows && (tb ? b->rows : b->cols) == c->cols &&
           (c->type == a->type || (a->type == CUDA_R_16BF && c->type == CUDA_R_32F));
}

uint64_t hash_of(const product &p)
{
    const uint64_t words[] = {p.m,
                              p.n,
                              p.k,
                              (uint64_t)p.a->ld,
                              (uint64_t)p.b->ld,
                              (uint64_t)p.c->ld,
                              (uint64_t)p.a->type,
                              (uint64_t)p.c->type,
                              (uint64_t)p.d->op[0],
                              (uint64_t)p.d->op[1]};
    uint64_t hash = 0xcbf29ce484222325u;

    for (uint64_t word : words)
        hash = (hash ^ word) * 0x100000001b3u;
    return hash;
}

struct algorithm {
    uint64_t version, product, number, workspace, align;
};

algorithm algorithm_of(const cublasLtMatmulAlgo_t *algo)
{
    algorithm ret;

    memcpy(&ret, algo, sizeof(ret));
    return ret;
}

float element(const void *at, cudaDataType type, uint64_t i)
{
    uint32_t bits;
    float x;

    if (type == CUDA_R_32F)
        return ((const float *)at)[i];
    bits = (uint32_t)((const uint16_t *)at)[i] << 16;
    memcpy(&x, &bits, 4);
    return x;
}

void put(void *at, cudaDataType type, uint64_t i, float x)
{
    uint32_t bits;

    memcpy(&bits, &x, 4);
    if (type == CUDA_R_32F)
        ((float *)at)[i] = x;
    else if ((bits & 0x7fffffff) > 0x7f800000)
        ((uint16_t *)at)[i] = 0x7fff;
    else
        ((uint16_t *)at)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void multiply(const product &p, const void *a, const void *b, void *c, float beta)
{
    bool ta = p.d->op[0] == CUBLAS_OP_T, tb = p.d->op[1] == CUBLAS_OP_T;
    uint64_t lda = (uint64_t)p.a->ld, ldb = (uint64_t)p.b->ld, ldc = (uint64_t)p.c->ld;

    for (uint64_t j = 0; j < p.n; j++)
        for (uint64_t i = 0; i < p.m; i++) {
            float sum = 0;

            for (uint64_t l = 0; l < p.k; l++)
                sum += element(a, p.a->type, ta ? i * lda + l : l * lda + i) *
                       element(b, p.b->type, tb ? l * ldb + j : j * ldb + l);
            if (beta != 0)
                sum += beta * element(c, p.c->type, j * ldc + i);
            put(c, p.c->type, j * ldc + i, sum);
        }
}

} // namespace

/* ---- the library --------------------------------------------------------- */

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t *ret)
{
    static char one;

    *ret = (cublasLtHandle_t)(void *)&one;
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_ALLOC_FAILED ? "CUBLAS_STATUS_ALLOC_FAILED" : "another status";
}

size_t cublasLtGetVersion(void)
{
    return version();
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *ret, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    return create(ret, desc{compute, scale, {CUBLAS_OP_N, CUBLAS_OP_N}});
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t handle)
{
    return destroy<desc>(handle);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t which,
                                              const void *value, size_t bytes)
{
    desc *d = (desc *)of<desc>(handle);

    if (bytes != sizeof(cublasOperation_t) ||
        (which != CUBLASLT_MATMUL_DESC_TRANSA && which != CUBLASLT_MATMUL_DESC_TRANSB))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&d->op[which == CUBLASLT_MATMUL_DESC_TRANSB], value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *ret, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    return create(ret, layout{type, rows, cols, ld});
}

cublasStatus_t cublasLtMatrixLayoutDestroy(const cublasLtMatrixLayout_t handle)
{
    return destroy<layout>(handle);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *ret)
{
    return create(ret, preference{0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}});
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t handle)
{
    return destroy<preference>(handle);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t which,
                                                    const void *value, size_t bytes)
{
    preference *p = (preference *)of<preference>(handle);
    size_t wide = which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8 : 4;

    if (bytes != wide)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        memcpy(&p->workspace, value, bytes);
    else if (which == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        memcpy(&p->sums, value, bytes);
    else if (which >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
             which <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)
        memcpy(&p->align[which - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
    else
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t limits, int asked,
                                              cublasLtMatmulHeuristicResult_t found[], int *count)
{
    const preference *p = of<preference>(limits);
    uint32_t least = 256;
    product it;

    *count = 0;
    if (asked < 1 || !product_of(&it, of<desc>(operation), of<layout>(a), of<layout>(b),
                                 of<layout>(c), of<layout>(d)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (p->sums & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE)
        broken("parts of a sum may be stored in the type of the result");
    for (uint32_t align : p->align)
        least = align < least ? align : least;
    for (uint64_t i = 0; i < ALGOS && *count < asked; i++) {
        algorithm algo = {version(), hash_of(it), i, i == 2 ? (size_t)1 << 30 : i << 20, least};
        cublasLtMatmulHeuristicResult_t *to = &found[*count];

        if (algo.workspace > p->workspace)
            continue;
        *to = {};
        memcpy(&to->algo, &algo, sizeof(algo));
        to->workspaceSize = algo.workspace;
        to->state = CUBLAS_STATUS_SUCCESS;
        ++*count;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *found)
{
    algorithm it = algorithm_of(algo);
    product p;

    if (!product_of(&p, of<desc>(operation), of<layout>(a), of<layout>(b), of<layout>(c),
                    of<layout>(d)) ||
        it.version != version() || it.product != hash_of(p) || it.number >= ALGOS)
        return CUBLAS_STATUS_INVALID_VALUE;
    found->workspaceSize = it.workspace;
    found->state = CUBLAS_STATUS_SUCCESS;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t la, const void *b,
                              cublasLtMatrixLayout_t lb, const void *beta, const void *c,
                              cublasLtMatrixLayout_t lc, void *d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes,
                              cudaStream_t stream)
{
    algorithm it = algorithm_of(algo);
    product p;

    if (!product_of(&p, of<desc>(operation), of<layout>(la), of<layout>(lb), of<layout>(lc),
                    of<layout>(ld)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (it.version != version() || it.product != hash_of(p) || it.number >= ALGOS)
        broken("an algorithm for another product, or of another version");
    if (it.workspace > bytes || (it.workspace && !workspace))
        broken("less workspace than the algorithm needs");
    if (((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % it.align)
        broken("an array off the alignment that the algorithm was asked for");
    if (*(const float *)alpha != 1 || c != d || !stream)
        broken("another alpha, result or stream than gemm_lt.cu gives");
    shim_own_open(true);
    multiply(p, a, b, d, *(const float *)beta);
    shim_own_open(false);
    return CUBLAS_STATUS_SUCCESS;
}
}
