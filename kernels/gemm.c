/*
 * Matrix multiplication, the driver: Goto and van de Geijn, "Anatomy of high-performance matrix
 * multiplication", 2008, with loops close to those of BLIS.
 *
 *   for i in m by rows             A's rows
 *     for l in k by kc               pack A (rows, kc) into panels mr high, unless it is
 *                                    read in place
 *       for j in n by nc               pack B (kc, nc) into panels nr wide, which stay in L2
 *         for panels of A                one panel stays in L1
 *           for panels of B                micro-kernel: mr x nr of C
 *
 * A is packed once however wide C is, and B once for each `rows` rows. C is written along its rows.
 * Blocks of m and k, and panels of A, are cut as evenly as possible: 15 rows are 8 and 7, not 14
 * and 1, since a low panel cannot hide the latency of its multiply-adds. Matrices in bf16 are
 * widened as they are packed; a C in bf16 is summed in fp32 in scratch and rounded once.
 */
#include "kernels/gemm.h"
#include "kernels/backend.h"

enum {
    WIDE = 16384,           /* columns of a bf16 C that are summed at once */
    C_FLOATS = 1 << 19,     /* scratch for them */
    THREAD_FLOPS = 2000000, /* less than this is not worth a second thread */
    LINE = 16,              /* floats in a cache line */
    CONFLICT = 4096 / 4,    /* rows this far apart, in floats, fall on one set of an L1 cache */
};

/* A matrix to prefetch: ROWS rows of BYTES bytes. */
struct prefetch {
    const char *at;
    size_t rows, bytes, ld; /* ld in bytes */
};

struct run {
    const struct kn_gemm *g;
    const struct kn_gemm_isa *isa;
    struct kn_blocking bl;
    bool in_place; /* A is read where it is */
    float *pa, *pb;
    float *c; /* element (i, j) of C, as fp32 */
    size_t ldc;
    struct kn_pool *pool;
    int thread;
    struct prefetch after; /* what the thread's next product reads first */
};

/* Size of each of the equal parts, in multiples of UNIT, that cut TOTAL into as few as MAX
 * allows. */
static size_t even(size_t total, size_t max, size_t unit)
{
    size_t parts = (total + max - 1) / max;

    return parts ? ((total + parts - 1) / parts + unit - 1) / unit * unit : unit;
}

/* PANEL of the PANELS that cut ROWS evenly, high ones first: where it begins. */
static size_t panel_at(size_t rows, size_t panels, size_t panel)
{
    return rows / panels * panel + kn_min(panel, rows % panels);
}

static void pack_b(const struct run *run, size_t k0, size_t kn, size_t j0, size_t jn)
{
    const struct kn_gemm *g = run->g;
    size_t at = g->tb ? j0 * g->ldb + k0 : k0 * g->ldb + j0;
    kn_pack *pack = (g->tb ? run->isa->transpose : run->isa->rows)[g->bt];

    pack(run->pb, run->isa->nr, jn, kn_ptr(g->bt, g->b, at), g->ldb, kn);
}

static void pack_a(const struct run *run, size_t i0, size_t in, size_t k0, size_t kn, size_t panels)
{
    const struct kn_gemm *g = run->g;
    kn_pack *pack = (g->ta ? run->isa->rows : run->isa->transpose)[g->at];
    size_t low = in / panels, split = panel_at(in, panels, in % panels);
    const char *from = kn_ptr(g->at, g->a, g->ta ? k0 * g->lda + i0 : i0 * g->lda + k0);

    pack(run->pa, low + 1, split, from, g->lda, kn);
    pack(run->pa + split * kn, low, in - split, kn_ptr(g->at, from, g->ta ? split : split * g->lda),
         g->lda, kn);
}

/*
 * A row-major A is read by the micro-kernel a row at a time, which needs no copy, as long as the
 * rows of a panel do not fight for the same lines of the cache.
 */
static bool can_read_in_place(const struct kn_gemm *gemm)
{
    return gemm->at == KN_F32 && !gemm->ta && gemm->lda % CONFLICT != 0;
}

/* What the panels of one packed A have in common. */
struct panels {
    size_t rows, count; /* COUNT panels cut ROWS rows evenly */
    const float *a;     /* in place: element (0, 0) */
};

/*
 * Part PART of PARTS of it: a column of lines, down some of its rows. A burst of prefetches would
 * fill the queue of outstanding misses and stall the arithmetic behind it.
 */
static struct kn_prefetch prefetch_part(const struct prefetch *prefetch, size_t part, size_t parts)
{
    size_t columns = (prefetch->bytes + 63) / 64, pieces, column, from, to;

    if (columns == 0 || columns > parts)
        return (struct kn_prefetch){0};
    pieces = parts / columns;
    column = part / pieces;
    if (column >= columns)
        return (struct kn_prefetch){0};
    from = prefetch->rows * (part % pieces) / pieces;
    to = prefetch->rows * (part % pieces + 1) / pieces;
    return (struct kn_prefetch){prefetch->at + from * prefetch->ld + 64 * column, to - from,
                                prefetch->ld};
}

/* The part of B that is packed at once, from (k0, j0) on. */
static struct prefetch block_of_b(const struct kn_gemm *gemm, const struct kn_blocking *bl,
                                  size_t k0, size_t kn, size_t j0)
{
    size_t w = kn_type_size(gemm->bt), jn = kn_min(bl->nc, gemm->n - j0);

    if (gemm->tb)
        return (struct prefetch){kn_ptr(gemm->bt, gemm->b, j0 * gemm->ldb + k0), jn, kn * w,
                                 gemm->ldb * w};
    return (struct prefetch){kn_ptr(gemm->bt, gemm->b, k0 * gemm->ldb + j0), kn, jn * w,
                             gemm->ldb * w};
}

/* All panels of A times the packed block of B (kn, jn). */
static void block(const struct run *run, const struct panels *pn, size_t kn, size_t jn, float *c,
                  bool add, const struct prefetch *prefetch)
{
    size_t nr = run->isa->nr, jb = (jn + nr - 1) / nr;

    for (size_t p = 0; p < pn->count; p++) {
        size_t i = panel_at(pn->rows, pn->count, p), h = panel_at(pn->rows, pn->count, p + 1) - i;
        const float *a = run->in_place ? pn->a + i * run->g->lda : run->pa + i * kn;
        size_t rs = run->in_place ? 4 * run->g->lda : 4, cs = run->in_place ? 4 : 4 * h;

        for (size_t j = 0; j < jn; j += nr)
            run->isa->ukr[h](kn, a, rs, cs, run->pb + j * kn, 4 * nr, c + i * run->ldc + j,
                             run->ldc, kn_min(nr, jn - j), add,
                             prefetch_part(prefetch, p * jb + j / nr, pn->count * jb));
        kn_pool_poll(run->pool, run->thread);
    }
}

/* Rows i0 .. i0 + in - 1 of C, fp32, all of k and n. */
static void stripe(const struct run *run, size_t i0, size_t in, bool add)
{
    const struct kn_gemm *g = run->g;
    size_t mr = run->isa->mr, kc = even(g->k, run->bl.kc, LINE);
    struct panels pn = {.rows = in, .count = (in + mr - 1) / mr};

    for (size_t l = 0; l < g->k; l += kc) {
        size_t kn = kn_min(kc, g->k - l);

        if (run->in_place)
            pn.a = (const float *)g->a + i0 * g->lda + l;
        else
            pack_a(run, i0, in, l, kn, pn.count);
        for (size_t j = 0; j < g->n; j += run->bl.nc) {
            size_t jn = kn_min(run->bl.nc, g->n - j);
            struct prefetch prefetch = {0};

            if (j + jn < g->n)
                prefetch = block_of_b(g, &run->bl, l, kn, j + jn);
            else if (l + kn == g->k && i0 + in == g->m)
                prefetch = run->after;

            pack_b(run, l, kn, j, jn);
            block(run, &pn, kn, jn, run->c + j, add || l > 0, &prefetch);
        }
    }
}

static void fp32_c(struct run *run)
{
    const struct kn_gemm *g = run->g;
    size_t rows = even(g->m, run->bl.rows, 1);

    for (size_t i = 0; i < g->m; i += rows) {
        run->c = (float *)g->c + i * g->ldc;
        run->ldc = g->ldc;
        stripe(run, i, kn_min(rows, g->m - i), g->beta != 0);
    }
}

/* C in bf16, WIDE columns or fewer: as many rows at a time as the scratch C_SUM holds. */
static void bf16_c(struct run *run, float *c_sum)
{
    const struct kn_gemm *g = run->g;
    size_t rows = even(g->m, kn_min(run->bl.rows, kn_max(1, C_FLOATS / g->n)), 1);

    for (size_t i = 0; i < g->m; i += rows) {
        size_t in = kn_min(rows, g->m - i);
        kn_bf16 *c = (kn_bf16 *)g->c + i * g->ldc;

        for (size_t q = 0; g->beta != 0 && q < in; q++)
            kn_ops()->to_f32(c_sum + q * g->n, c + q * g->ldc, g->n);
        run->c = c_sum;
        run->ldc = g->n;
        stripe(run, i, in, g->beta != 0);
        for (size_t q = 0; q < in; q++)
            kn_ops()->to_bf16(c + q * g->ldc, c_sum + q * g->n, g->n);
    }
}

static void clear_c(const struct kn_gemm *gemm)
{
    for (size_t i = 0; gemm->beta == 0 && i < gemm->m; i++)
        memset(kn_ptr(gemm->ct, gemm->c, i * gemm->ldc), 0, gemm->n * kn_type_size(gemm->ct));
}

/* One thread's product; NEXT, if not NULL, is what it computes afterwards. */
static void serial(const struct kn_gemm *gemm, const struct kn_gemm *next, struct kn_pool *pool,
                   int thread)
{
    float *scratch = kn_pool_scratch(pool, thread);
    struct run r = {.g = gemm, .isa = kn_ops()->gemm_isa, .pool = pool, .thread = thread};

    if (gemm->m == 0 || gemm->n == 0)
        return;
    if (!r.isa) {
        kn_ops()->gemm(gemm);
        return;
    }
    if (gemm->k == 0) {
        clear_c(gemm);
        return;
    }
    r.bl = kn_blocking_get();
    r.in_place = can_read_in_place(gemm);
    if (next)
        r.after = block_of_b(next, &r.bl, 0, kn_min(r.bl.kc, next->k), 0);
    r.pb = scratch;
    r.pa = r.pb + r.bl.kc * (r.bl.nc + KN_MAX_NR);
    if (gemm->ct == KN_F32) {
        fp32_c(&r);
        return;
    }
    for (size_t j = 0; j < gemm->n; j += WIDE) {
        struct kn_gemm part = *gemm;

        part.n = kn_min(WIDE, gemm->n - j);
        part.b = kn_ptr(gemm->bt, gemm->b, gemm->tb ? j * gemm->ldb : j);
        part.c = kn_ptr(gemm->ct, gemm->c, j);
        r.g = &part;
        bf16_c(&r, r.pa + r.bl.rows * r.bl.kc);
    }
}

/* ---- blocking ------------------------------------------------------------ */

static struct kn_blocking blocking = {.rows = 1024, .kc = 512, .nc = 256};

static const struct kn_blocking candidates[] = {
    {1024, 512, 256}, {1024, 384, 256}, {1024, 256, 256}, {1024, 512, 128},
    {1024, 384, 384}, {1024, 256, 512}, {512, 512, 256},  {512, 256, 128},
};

size_t kn_blocking_candidates(const struct kn_blocking **ret)
{
    *ret = candidates;
    return sizeof(candidates) / sizeof(candidates[0]);
}

struct kn_blocking kn_blocking_get(void)
{
    return blocking;
}

bool kn_blocking_set(const struct kn_blocking *sizes)
{
    double floats =
        (double)sizes->kc * (sizes->nc + KN_MAX_NR) + (double)sizes->rows * sizes->kc + C_FLOATS;

    if (sizes->rows < KN_MAX_MR || sizes->kc < LINE || sizes->nc < KN_MAX_NR ||
        sizes->nc % KN_MAX_NR != 0 || sizes->kc % LINE != 0 ||
        floats * sizeof(float) > KN_SCRATCH_BYTES)
        return false;
    blocking = *sizes;
    return true;
}

/* ---- threads ------------------------------------------------------------- */

/* PART of PARTS of SIZE, in multiples of UNIT. */
static void share(size_t *ret_at, size_t *ret_len, size_t size, size_t unit, size_t part,
                  size_t parts)
{
    size_t units = (size + unit - 1) / unit;

    *ret_at = kn_min(size, units * part / parts * unit);
    *ret_len = kn_min(size, units * (part + 1) / parts * unit) - *ret_at;
}

/* The part of GEMM at rows i0.., columns j0... */
static struct kn_gemm part_of(const struct kn_gemm *gemm, size_t i0, size_t in, size_t j0,
                              size_t jn)
{
    struct kn_gemm part = *gemm;

    part.m = in;
    part.n = jn;
    part.a = kn_ptr(gemm->at, gemm->a, gemm->ta ? i0 : i0 * gemm->lda);
    part.b = kn_ptr(gemm->bt, gemm->b, gemm->tb ? j0 * gemm->ldb : j0);
    part.c = kn_ptr(gemm->ct, gemm->c, i0 * gemm->ldc + j0);
    return part;
}

struct job {
    const struct kn_gemm *g;
    struct kn_pool *pool;
    size_t groups, wstride, grid_m, grid_n;
    const int32_t *offsets;
};

static void run_part(void *arg, int thread, int threads)
{
    const struct job *j = arg;
    size_t i0, in, j0, jn, t = (size_t)thread;
    struct kn_gemm part;

    (void)threads;
    if (t >= j->grid_m * j->grid_n)
        return;
    share(&i0, &in, j->g->m, 8, t / j->grid_n, j->grid_m);
    share(&j0, &jn, j->g->n, 32, t % j->grid_n, j->grid_n);
    part = part_of(j->g, i0, in, j0, jn);
    serial(&part, NULL, j->pool, thread);
}

/* Threads as a grid over C: each packs its own rows of A and columns of B, so the half perimeter of
 * a thread's part is what packing costs. */
static void choose_grid(struct job *job, size_t threads)
{
    double best = INFINITY;

    if (2.0 * (double)job->g->m * (double)job->g->n * (double)job->g->k < 2.0 * THREAD_FLOPS)
        threads = 1;
    for (size_t gm = 1; gm <= threads; gm++) {
        double cost = (double)job->g->m / (double)gm + (double)job->g->n / (double)(threads / gm);

        if (threads % gm == 0 && cost < best) {
            best = cost;
            job->grid_m = gm;
            job->grid_n = threads / gm;
        }
    }
}

static void check(const struct kn_gemm *gemm)
{
    assert(gemm->beta == 0 || gemm->beta == 1);
    assert(gemm->ldc >= gemm->n && gemm->ldb >= (gemm->tb ? 0 : gemm->n) &&
           gemm->lda >= (gemm->ta ? gemm->m : 0));
}

/* FN on one thread without waking the others, or on all. */
static void start(struct kn_pool *pool, struct job *job, size_t threads,
                  void (*fn)(void *, int, int))
{
    job->pool = kn_pool_acquire(pool);
    if (threads > 1)
        kn_pool_run(job->pool, fn, job);
    else
        fn(job, 0, 1);
    kn_pool_release(pool);
}

void kn_host_gemm(struct kn_pool *pool, const struct kn_gemm *gemm)
{
    struct job j = {.g = gemm};

    check(gemm);
    assert((gemm->ta || gemm->lda >= gemm->k) && (!gemm->tb || gemm->ldb >= gemm->k));
    choose_grid(&j, (size_t)kn_pool_threads(pool));
    start(pool, &j, j.grid_m * j.grid_n, run_part);
}

/* The part of the grouped product that belongs to group EXPERT, rows FROM .. TO - 1 of all rows. */
static struct kn_gemm group_rows(const struct job *job, size_t expert, size_t from, size_t to)
{
    struct kn_gemm one = *job->g;

    one.m = to - from;
    one.a = kn_ptr(one.at, one.a, from * one.lda);
    one.b = kn_ptr(one.bt, one.b, expert * job->wstride);
    one.c = kn_ptr(one.ct, one.c, from * one.ldc);
    return one;
}

/* The first group from EXPERT on that has rows in [*FROM, TO); false if none has. */
static bool next_group(struct kn_gemm *ret, const struct job *job, size_t *expert, size_t *from,
                       size_t to)
{
    for (; *expert < job->groups && *from < to; ++*expert) {
        size_t end = kn_min(to, (size_t)job->offsets[*expert + 1]);

        if (end <= *from)
            continue;
        *ret = group_rows(job, *expert, *from, end);
        *from = end;
        return true;
    }
    return false;
}

static void run_group_rows(void *arg, int thread, int threads)
{
    const struct job *j = arg;
    size_t first = (size_t)j->offsets[0], from, n, e = 0, to;
    struct kn_gemm now, next;
    bool more;

    share(&from, &n, (size_t)j->offsets[j->groups] - first, 1, (size_t)thread, (size_t)threads);
    from += first;
    to = from + n;
    for (more = next_group(&now, j, &e, &from, to); more; now = next) {
        more = next_group(&next, j, &e, &from, to);
        serial(&now, more ? &next : NULL, j->pool, thread);
    }
}

/* The row of a weight of ROWS rows at which the cut lies that leaves PART of it above. */
static size_t row_of_cut(size_t rows, double part)
{
    enum { UNIT = 8 };

    if (part <= 0 || part >= 1)
        return part <= 0 ? 0 : rows;
    return kn_min(rows, (size_t)(part * (double)rows / UNIT + 0.5) * UNIT);
}

/*
 * wgrad: the experts' weights, one below the other, are cut into shares of the same work, so most
 * experts are one thread's and their B is packed once. A weight's row costs its expert's rows, and
 * something for C itself, which is read and written whatever the rows.
 */
static void run_group_weights(void *arg, int thread, int threads)
{
    enum { C_ROWS = 16 };
    const struct job *j = arg;
    double total = (double)(j->offsets[j->groups] - j->offsets[0]) + C_ROWS * (double)j->groups;
    double from = total * thread / threads, to = total * (thread + 1) / threads;

    for (size_t e = 0; e < j->groups; e++) {
        size_t row = (size_t)j->offsets[e], k = (size_t)j->offsets[e + 1] - row, i0, i1;
        double cost = (double)k + C_ROWS;
        struct kn_gemm one;

        i0 = row_of_cut(j->g->m, from / cost);
        i1 = row_of_cut(j->g->m, to / cost);
        from -= cost;
        to -= cost;
        if (i1 <= i0)
            continue;
        one = part_of(j->g, i0, i1 - i0, 0, j->g->n);
        one.k = k;
        one.a = kn_ptr(one.at, one.a, row * one.lda);
        one.b = kn_ptr(one.bt, one.b, row * one.ldb);
        one.c = kn_ptr(one.ct, one.c, e * j->wstride);
        serial(&one, NULL, j->pool, thread);
    }
}

void kn_host_gemm_grouped(struct kn_pool *pool, const struct kn_gemm *gemm, size_t groups,
                          const int32_t *offsets, size_t wstride)
{
    struct job j = {.g = gemm, .groups = groups, .offsets = offsets, .wstride = wstride};
    size_t threads = (size_t)kn_pool_threads(pool);
    double flops;

    check(gemm);
    assert(!(gemm->ta && gemm->tb));
    for (size_t e = 0; e < groups; e++)
        assert(offsets[e] >= 0 && offsets[e] <= offsets[e + 1]);
    if (groups == 0)
        return;
    flops = 2.0 * (double)(offsets[groups] - offsets[0]) * (double)gemm->n *
            (double)(gemm->ta ? gemm->m : gemm->k);
    start(pool, &j, flops < 2.0 * THREAD_FLOPS ? 1 : threads,
          gemm->ta ? run_group_weights : run_group_rows);
}
