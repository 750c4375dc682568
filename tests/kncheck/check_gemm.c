/* Matrix multiplication, single and grouped. */
#include "tests/kncheck/checks.h"

/*
 * A sum of K products, each rounded at most once as it is added: the error is at most K u sum |a|
 * |b| (Higham, "Accuracy and stability of numerical algorithms", section 3.1), and one more for
 * adding C.
 */
static void want_product(const struct arr *a, const struct arr *b, struct arr *y, bool ta, bool tb,
                         double beta, size_t a0, size_t b0, size_t c0, size_t m, size_t n, size_t k)
{
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            double old = beta != 0 ? AT(y, c0 + i, j) : 0, sum = old, size = fabs(old);

            for (size_t l = 0; l < k; l++) {
                double p = (ta ? AT(a, a0 + l, i) : AT(a, a0 + i, l)) *
                           (tb ? AT(b, b0 + j, l) : AT(b, b0 + l, j));

                sum += p;
                size += fabs(p);
            }
            kc_want(y, c0 + i, j, sum, (double)(k + 1) * EPS * size);
        }
    }
}

/* m n k, ta, tb, beta; type combinations follow from the storage type, but for the last: 1 a weight
 * gradient in it, too, 2 the same of a router, whose A is fp32. */
static const size_t gemm_cases[][MAX_DIMS] = {
    {0, 3, 2, 0, 0, 0},
    {3, 0, 2, 0, 1, 0},
    {2, 3, 0, 1, 0, 0},
    {2, 3, 0, 0, 0, 1},
    {1, 1, 1, 0, 0, 0},
    {1, 33, 7, 0, 1, 1},
    {14, 32, 16, 0, 0, 0},
    {13, 31, 15, 0, 1, 1},
    {15, 33, 17, 1, 0, 1},
    {28, 64, 64, 1, 0, 0},
    {29, 65, 33, 1, 1, 1},
    {6, 16, 100, 0, 0, 1},
    {7, 17, 101, 0, 1, 0},
    {5, 15, 99, 1, 0, 1},
    {97, 8, 64, 0, 1, 0},
    {8, 64, 97, 1, 0, 1},
    {43, 127, 61, 0, 0, 0},
    {61, 43, 127, 0, 1, 0},
    {127, 61, 43, 1, 0, 1},
    {64, 64, 600, 0, 1, 0},
    {31, 48, 1030, 1, 0, 1},
    {180, 40, 24, 0, 0, 0},
    {20, 530, 24, 0, 1, 0},
    {20, 530, 24, 0, 0, 1},
    {30, 20, 1024, 0, 1, 0},
    {3, 257, 513, 0, 1, 1},
    {1040, 9, 20, 1, 0, 0},
    {1040, 9, 20, 0, 1, 1},
    {100, 100, 129, 1, 1, 0},
    {211, 150, 90, 0, 1, 0},
    {70, 501, 91, 1, 0, 1} /* these are worth threads */,
    {8, 64, 97, 1, 0, 1, 1},
    {31, 48, 1030, 1, 0, 1, 1},
    {70, 501, 91, 1, 0, 1, 1},
    {4, 65, 97, 1, 0, 1, 2},
    /* rows of whole 16 bytes in both types, which with --aligned a GPU's library takes; sums that
     * it may divide */
    {48, 64, 96, 0, 0, 0},
    {48, 64, 96, 1, 0, 1},
    {48, 64, 96, 1, 0, 1, 1},
    {16, 24, 3072, 0, 1, 0},
    {16, 24, 3072, 1, 0, 1},
    {24, 16, 3072, 1, 0, 0, 1},
};

static void gemm_run(struct check *c)
{
    size_t m = c->dim[0], n = c->dim[1], k = c->dim[2], extra = k % 3 ? 5 : 0;
    bool ta = c->dim[3], tb = c->dim[4], acc = c->dim[5];
    /* With bf16 storage a weight gradient (ta) is fp32 or bf16, everything else bf16. */
    enum kn_type ct = ta && !c->dim[6] ? KN_F32 : c->t, at = c->dim[6] == 2 ? KN_F32 : c->t;
    struct arr *a = kc_wide(c, "a", IN, at, ta ? k : m, ta ? m : k, extra);
    struct arr *b = kc_wide(c, "b", IN, c->t, tb ? n : k, tb ? k : n, extra);
    struct arr *y = kc_wide(c, "c", acc ? INOUT : OUT, ct, m, n, extra);
    struct kn_gemm g = {.m = m,
                        .n = n,
                        .k = k,
                        .a = a->at,
                        .b = b->at,
                        .c = y->at,
                        .lda = a->ld,
                        .ldb = b->ld,
                        .ldc = y->ld,
                        .ta = ta,
                        .tb = tb,
                        .beta = acc,
                        .at = at,
                        .bt = c->t,
                        .ct = ct};

    want_product(a, b, y, ta, tb, acc, 0, 0, 0, m, n, k);
    kc_begin(c);
    kn_gemm(c->pool, &g);
}

const struct kc_op kc_gemm = {"gemm", "m n k ta tb beta types", CASES(gemm_cases), true, gemm_run};

/* groups, rows a group (the pattern below), n, k, mode: 0 forward, 1 dgrad, 2 wgrad; beta; whether
 * a weight gradient has the storage type */
static const size_t grouped_cases[][MAX_DIMS] = {
    {1, 5, 7, 9, 0, 0},       {4, 20, 33, 40, 0, 0},    {4, 20, 33, 40, 1, 0},
    {4, 20, 33, 40, 2, 1},    {8, 3, 64, 32, 0, 1},     {8, 3, 64, 32, 1, 1},
    {8, 3, 64, 32, 2, 0},     {3, 0, 8, 8, 0, 0},       {3, 0, 8, 8, 2, 1},
    {3, 0, 8, 8, 2, 0},       {5, 61, 96, 65, 0, 0},    {5, 61, 96, 65, 1, 0},
    {5, 61, 96, 65, 2, 1},    {6, 70, 75, 90, 0, 1},    {6, 70, 75, 90, 1, 0},
    {6, 70, 75, 90, 2, 0},    {6, 70, 91, 75, 2, 1}, /* the last four are worth threads */
    {5, 61, 96, 65, 2, 1, 1}, {6, 70, 91, 75, 2, 0, 1}, {3, 0, 8, 8, 2, 1, 1},
};

/* Uneven: every third group is empty, the others differ. */
static size_t rows_of(size_t group, size_t about)
{
    return group % 3 == 1 ? 0 : about * (group + 1) / 2;
}

static void grouped_run(struct check *c)
{
    size_t e = c->dim[0], n = c->dim[2], k = c->dim[3], mode = c->dim[4], rows = 0;
    bool acc = c->dim[5];
    int32_t offsets[9] = {0};

    for (size_t i = 0; i < e; i++)
        offsets[i + 1] = (int32_t)(rows += rows_of(i, c->dim[1]));

    /* forward: y (rows, n) = x (rows, k) W (n, k)^T; dgrad: the same with W (k, n); wgrad: W (n, k)
     * from dy (rows, n) and x (rows, k) */
    enum kn_type wt = mode == 2 && !c->dim[6] ? KN_F32 : c->t;
    struct arr *x = kc_new(c, "x", IN, c->t, rows, mode == 2 ? n : k);
    struct arr *x2 = mode == 2 ? kc_new(c, "x2", IN, c->t, rows, k) : NULL;
    struct arr *w = kc_new(c, "w", mode == 2 ? (acc ? INOUT : OUT) : IN, wt,
                           e * (mode == 1 ? k : n), mode == 1 ? n : k);
    struct arr *y = mode == 2 ? NULL : kc_new(c, "y", acc ? INOUT : OUT, c->t, rows, n);
    struct kn_gemm g = {.n = n,
                        .k = k,
                        .a = x->at,
                        .b = w->at,
                        .lda = x->ld,
                        .ldb = w->ld,
                        .beta = acc,
                        .tb = mode == 0,
                        .at = c->t,
                        .bt = c->t,
                        .ct = wt};

    for (size_t i = 0; i < e; i++) {
        size_t r0 = (size_t)offsets[i], rn = (size_t)offsets[i + 1] - r0;

        if (mode == 2)
            want_product(x, x2, w, true, false, acc, r0, r0, i * n, n, k, rn);
        else
            want_product(x, w, y, false, mode == 0, acc, r0, i * (mode == 1 ? k : n), r0, rn, n, k);
    }
    if (mode == 2) {
        g.ta = true;
        g.m = n;
        g.n = k;
        g.b = x2->at;
        g.ldb = x2->ld;
        g.c = w->at;
        g.ldc = w->ld;
    } else {
        g.c = y->at;
        g.ldc = y->ld;
    }
    kc_begin(c);
    kn_gemm_grouped(c->pool, &g, e, offsets, n * k);
}

const struct kc_op kc_gemm_grouped = {"gemm_grouped", "groups rows n k mode beta bf16",
                                      CASES(grouped_cases), true, grouped_run};
