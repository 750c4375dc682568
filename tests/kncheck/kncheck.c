/* The harness: arrays with guards, comparison, seeded faults, options, crash reports, TAP. */
#include "tests/kncheck/kncheck.h"

#include <fnmatch.h>
#include <signal.h>
#include <unistd.h>

enum { GUARD = 80 }; /* elements before, after and (some) between rows */

static const uint32_t canary = 0xffc5ffc5; /* a NaN as fp32 and as two bf16, recognizable */

static struct {
    const char *glob, *isa;
    uint64_t seed;
    bool fault, list, verbose, aligned, reverse;
    uint64_t most;                    /* of a case: the product of its dimensions */
    const struct kn_backend *backend; /* NULL: the host's */
    const char *plugin;               /* the library that has it */
    const char *volatile running;     /* for the crash report */
    char what[160];
    int tests, failed;
    struct kn_pool *pools[2];
} run = {.glob = "*", .seed = 20240229, .most = UINT64_MAX};

/* ---- arrays -------------------------------------------------------------- */

static size_t width(const struct arr *a)
{
    return a->is_int ? 4 : kn_type_size(a->t);
}

void *kc_memory(size_t bytes)
{
    void *memory = kn_alloc(bytes);

    if (!memory)
        abort();
    return memory;
}

static void *elem(const struct arr *a, size_t i, size_t j)
{
    return (char *)a->at + (i * a->ld + j) * width(a);
}

static struct arr *make(struct check *c, const char *name, enum role role, bool is_int,
                        enum kn_type t, size_t rows, size_t cols)
{
    struct arr *a = &c->arr[c->narr++];
    size_t w = is_int ? 4 : kn_type_size(t);

    if (c->narr > MAX_ARR)
        abort();
    *a = (struct arr){
        .name = name, .role = role, .is_int = is_int, .t = t, .rows = rows, .cols = cols};
    a->ld = cols;
    a->bytes = (rows * a->ld + 2 * GUARD + 1) * w;
    a->base = kc_memory(a->bytes + 4);
    for (size_t i = 0; i < a->bytes; i += 4)
        memcpy(a->base + i, &canary, 4);
    a->at = a->base + (GUARD + (run.aligned ? 0 : 1)) * w;
    if (role != IN) {
        a->want = mem_alloc((rows * cols + 1) * sizeof(double));
        a->bound = mem_alloc((rows * cols + 1) * sizeof(double));
    }
    return a;
}

static void fill(struct check *c, struct arr *a)
{
    for (size_t i = 0; i < a->rows; i++)
        for (size_t j = 0; j < a->cols; j++)
            kc_set(a, i, j, rng_normal(&c->rng));
}

struct arr *kc_new(struct check *c, const char *name, enum role role, enum kn_type t, size_t rows,
                   size_t cols)
{
    struct arr *a = make(c, name, role, false, t, rows, cols);

    if (role != OUT)
        fill(c, a);
    return a;
}

struct arr *kc_wide(struct check *c, const char *name, enum role role, enum kn_type t, size_t rows,
                    size_t cols, size_t extra)
{
    struct arr *a = make(c, name, role, false, t, rows, cols + extra);

    a->cols = cols;
    if (role != OUT)
        fill(c, a);
    return a;
}

struct arr *kc_int(struct check *c, const char *name, enum role role, size_t rows, size_t cols)
{
    return make(c, name, role, true, KN_F32, rows, cols);
}

static float bf16_value(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;

    memcpy(&f, &u, 4);
    return f;
}

/* Round a finite number to bf16, to nearest even, written without the library under test. */
static uint16_t bf16_of(double v)
{
    float f = (float)v;
    uint32_t u, rest;

    memcpy(&u, &f, 4);
    rest = u & 0xffff;
    u >>= 16;
    return (uint16_t)(u + (rest > 0x8000 || (rest == 0x8000 && (u & 1))));
}

static double load(const struct arr *a, const void *p)
{
    uint16_t h;
    float f;
    int32_t n;

    if (a->is_int) {
        memcpy(&n, p, 4);
        return n;
    }
    if (a->t == KN_F32) {
        memcpy(&f, p, 4);
        return (double)f;
    }
    memcpy(&h, p, 2);
    return (double)bf16_value(h);
}

double kc_get(const struct arr *a, size_t i, size_t j)
{
    const char *p = elem(a, i, j);

    return load(a, a->before ? (char *)a->before + (p - a->base) : p);
}

void kc_set(struct arr *a, size_t i, size_t j, double v)
{
    uint16_t h = bf16_of(v);
    float f = (float)v;

    memcpy(elem(a, i, j), a->t == KN_F32 ? (void *)&f : (void *)&h, width(a));
}

int32_t kc_geti(const struct arr *a, size_t i, size_t j)
{
    return (int32_t)load(a, elem(a, i, j));
}

void kc_seti(struct arr *a, size_t i, size_t j, int32_t v)
{
    memcpy(elem(a, i, j), &v, 4);
}

void kc_want(struct arr *a, size_t i, size_t j, double value, double bound)
{
    double unit = a->is_int ? 0 : a->t == KN_F32 ? EPS : EPS_BF16;

    a->want[i * a->cols + j] = value;
    a->bound[i * a->cols + j] = a->is_int ? 0 : bound + unit * (fabs(value) + bound) + 0x1p-149;
}

void kc_exact(struct arr *a, size_t i, size_t j, double value)
{
    a->want[i * a->cols + j] = value;
    a->bound[i * a->cols + j] = 0;
}

double kc_round_bf16(double v)
{
    return (double)bf16_value(bf16_of(v));
}

void kc_begin(struct check *c)
{
    for (size_t i = 0; i < c->narr; i++) {
        struct arr *a = &c->arr[i];

        if (a->role == INOUT && !a->before) {
            a->before = mem_alloc(a->bytes + 4);
            memcpy(a->before, a->base, a->bytes);
        }
    }
    kn_isa_set(c->isa);
}

static void release(struct check *c)
{
    for (size_t i = 0; i < c->narr; i++) {
        kn_free(c->arr[i].base, c->arr[i].bytes + 4);
        free(c->arr[i].want);
        free(c->arr[i].bound);
        free(c->arr[i].before);
    }
    c->narr = 0;
}

/* ---- comparison ---------------------------------------------------------- */

/* How good the result is: the worst error as a share of its bound, and the first thing wrong. */
struct verdict {
    bool ok;
    double worst;
    char text[200];
};

static void fail(struct verdict *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void fail(struct verdict *v, const char *fmt, ...)
{
    va_list ap;

    if (!v->ok)
        return;
    v->ok = false;
    va_start(ap, fmt);
    vsnprintf(v->text, sizeof(v->text), fmt, ap);
    va_end(ap);
}

static void compare_values(struct verdict *v, const struct arr *a)
{
    for (size_t i = 0; i < a->rows; i++) {
        for (size_t j = 0; j < a->cols; j++) {
            double got = load(a, elem(a, i, j)), want = a->want[i * a->cols + j];
            double bound = a->bound[i * a->cols + j], off = fabs(got - want);

            if (got == want || (isnan(got) && isnan(want)))
                continue;
            if (!(off <= bound))
                fail(v, "%s(%zu,%zu): %.9g, want %.9g +- %.3g", a->name, i, j, got, want, bound);
            else if (off / bound > v->worst)
                v->worst = off / bound;
        }
    }
}

/* Everything outside the matrix is as it was made: the canary. */
static void compare_guards(struct verdict *v, const struct arr *a)
{
    size_t w = width(a), first = (size_t)((char *)a->at - a->base);

    for (size_t b = 0; b < a->bytes; b++) {
        size_t e = (b - first) / w;
        bool inside = b >= first && e < a->rows * a->ld && e % a->ld < a->cols;

        if (!inside && (uint8_t)a->base[b] != ((const uint8_t *)&canary)[b % 4]) {
            fail(v, "%s: wrote outside, %ld bytes from the start", a->name, (long)b - (long)first);
            return;
        }
    }
}

static struct verdict judge(const struct check *c)
{
    struct verdict v = {.ok = true};

    for (size_t i = 0; i < c->narr; i++) {
        if (c->arr[i].role != IN)
            compare_values(&v, &c->arr[i]);
        compare_guards(&v, &c->arr[i]);
    }
    return v;
}

/* ---- seeded faults ------------------------------------------------------- */

enum fault { NO_FAULT, FLIP_SIGN, MISSING_TAIL, ROW_OFF, STALE, SPILL, NUDGE, FAULTS };

static const char *const fault_names[FAULTS] = {
    "none",
    "one sign turned",
    "last element not written",
    "one row off",
    "old value kept",
    "one element too many",
    "one element off by more than rounding",
};

/* A fault that changes nothing (the sign of 0, a row equal to its neighbor) is no fault. */
static bool put_if_new(const struct arr *a, size_t i, size_t j, const void *value)
{
    size_t e = i * a->cols + j;
    double was = load(a, elem(a, i, j)), is = load(a, value);

    if (fabs(is - a->want[e]) <= a->bound[e] || is == was)
        return false;
    memcpy(elem(a, i, j), value, width(a));
    return true;
}

static void number(const struct arr *a, double x, void *out)
{
    uint16_t h = bf16_of(x);
    float f = (float)x;
    int32_t n = (int32_t)x;

    memcpy(out, a->is_int ? (void *)&n : a->t == KN_F32 ? (void *)&f : (void *)&h, width(a));
}

static bool seed_fault(struct arr *a, enum fault kind, struct rng *r)
{
    size_t i, j, e;
    char value[4];

    if (a->rows * a->cols == 0)
        return false;
    i = rng_below(r, a->rows);
    j = rng_below(r, a->cols);
    e = i * a->cols + j;
    switch (kind) {
    case FLIP_SIGN:
        number(a, -load(a, elem(a, i, j)), value);
        return put_if_new(a, i, j, value);
    case MISSING_TAIL:
        i = a->rows - 1;
        j = a->cols - 1;
        if (a->role == INOUT)
            memcpy(value, (char *)a->before + ((char *)elem(a, i, j) - a->base), width(a));
        else
            memcpy(value, &canary, 4);
        return a->role == INOUT ? put_if_new(a, i, j, value)
                                : (memcpy(elem(a, i, j), value, width(a)), true);
    case ROW_OFF:
        if (a->rows < 2)
            return false;
        memcpy(value, elem(a, i ? i - 1 : 1, j), width(a));
        return put_if_new(a, i, j, value);
    case STALE:
        if (a->role != INOUT)
            return false;
        memcpy(value, (char *)a->before + ((char *)elem(a, i, j) - a->base), width(a));
        return put_if_new(a, i, j, value);
    case SPILL:
        memset((char *)elem(a, a->rows - 1, a->cols - 1) + width(a), 0, width(a));
        return true;
    case NUDGE:
        number(a, a->want[e] + 2 * a->bound[e] + (a->is_int ? 1 : 0), value);
        return put_if_new(a, i, j, value);
    default:
        return false;
    }
}

/* ---- running ------------------------------------------------------------- */

static void on_crash(int sig)
{
    static const char head[] = "\nBail out! crash in ";

    /* only async-signal-safe calls */
    if (write(STDOUT_FILENO, head, sizeof(head) - 1) > 0 &&
        write(STDOUT_FILENO, run.what, strlen(run.what)) > 0 && write(STDOUT_FILENO, "\n", 1) > 0)
        signal(sig, SIG_DFL);
    raise(sig);
}

/* What is judged, for the report. */
static const char *candidate(enum kn_isa isa)
{
    return run.backend ? run.backend->name : kn_isa_name(isa);
}

static void describe(char *out, size_t size, const struct kc_op *op, const struct check *c)
{
    const char *p = op->dims;
    size_t n = 0, d = 0;

    n += (size_t)snprintf(out + n, size - n, "%s %s %s threads=%d", op->name, candidate(c->isa),
                          c->t == KN_F32 ? "fp32" : "bf16", kn_pool_threads(c->pool));
    while (*p && n < size) {
        size_t len = strcspn(p, " ");

        n += (size_t)snprintf(out + n, size - n, " %.*s=%zu", (int)len, p, c->dim[d++]);
        p += len + strspn(p + len, " ");
    }
}

static void start_case(struct check *c, const struct kc_op *op, const size_t *dim, enum kn_type t)
{
    memcpy(c->dim, dim, sizeof(c->dim));
    c->t = t;
    c->op = op->name;
    c->operand = run.backend && run.aligned && t == KN_BF16 ? EPS_BF16 : 0;
    rng_seed(&c->rng, run.seed ^ str_hash(op->name, strlen(op->name), 0));
    describe(run.what, sizeof(run.what), op, c);
    op->run(c);
    kn_wait(c->pool);
}

static bool chosen(const size_t *dim)
{
    uint64_t product = 1;

    for (int i = 0; i < MAX_DIMS; i++)
        product *= dim[i] ? dim[i] : 1;
    return product <= run.most;
}

/* All cases of one operation on one instruction set: one TAP line. */
static void check_op(const struct kc_op *op, enum kn_isa isa)
{
    double worst = 0;
    size_t cases = 0, bad = 0;

    for (size_t i = 0; i < op->ncases; i++) {
        for (int t = KN_F32; chosen(op->cases[i]) && t <= (op->bf16 ? KN_BF16 : KN_F32); t++) {
            for (int p = 0; p < (run.backend ? 1 : 2); p++) {
                struct check c = {.isa = isa, .pool = run.pools[p]};
                struct verdict v;

                start_case(&c, op, op->cases[i], (enum kn_type)t);
                v = judge(&c);
                if (!v.ok && bad++ < 5)
                    printf("# %s: %s\n", run.what, v.text);
                worst = fmax(worst, v.worst);
                cases++;
                release(&c);
            }
        }
    }
    run.failed += bad > 0;
    printf("%s %d - %s %s (%zu cases, worst error %.2g of its bound)\n", bad ? "not ok" : "ok",
           ++run.tests, op->name, candidate(isa), cases, worst);
}

/* Seed one fault into one array of a finished case; true if it was noticed or there was nothing to
 * damage. */
static bool notices(struct check *c, struct arr *a, enum fault kind, struct rng *r, size_t *seeded)
{
    char *clean = mem_alloc(a->bytes + 1);
    bool ok = true;

    memcpy(clean, a->base, a->bytes);
    if (seed_fault(a, kind, r)) {
        ok = !judge(c).ok;
        ++*seeded;
    }
    memcpy(a->base, clean, a->bytes);
    free(clean);
    return ok;
}

/* Each kind of fault in each output of a case; returns how many were not noticed. */
static size_t faults_of_case(struct check *c, const struct kc_op *op, size_t i, enum kn_type t,
                             size_t *seeded)
{
    size_t missed = 0;
    struct rng r;

    start_case(c, op, op->cases[i], t);
    rng_seed(&r, run.seed + i);
    for (size_t which = 0; which < c->narr; which++) {
        for (int kind = FLIP_SIGN; c->arr[which].role != IN && kind < FAULTS; kind++) {
            if (!notices(c, &c->arr[which], (enum fault)kind, &r, &seeded[kind]) && missed++ < 5)
                printf("# not noticed in %s of %s: %s\n", c->arr[which].name, run.what,
                       fault_names[kind]);
        }
    }
    release(c);
    return missed;
}

/* In both storage types. */
static void check_faults(const struct kc_op *op, enum kn_isa isa)
{
    size_t seeded[FAULTS] = {0}, total = 0, missed = 0;

    for (size_t i = 0; i < op->ncases; i++)
        for (int t = KN_F32; chosen(op->cases[i]) && t <= (op->bf16 ? KN_BF16 : KN_F32); t++)
            missed += faults_of_case(&(struct check){.isa = isa}, op, i, (enum kn_type)t, seeded);
    for (int kind = FLIP_SIGN; kind < FAULTS; kind++) {
        total += seeded[kind];
        if (run.verbose)
            printf("# %s: %zu\n", fault_names[kind], seeded[kind]);
    }
    run.failed += missed > 0 || total == 0;
    printf("%s %d - %s %s: %zu seeded faults are noticed\n", missed || !total ? "not ok" : "ok",
           ++run.tests, op->name, kn_isa_name(isa), total);
}

static int usage(int code)
{
    fprintf(code ? stderr : stdout,
            "usage: kncheck [options]\n"
            "  --op=GLOB    only these operations\n"
            "  --isa=NAME   only this instruction set (ref, avx2, avx512)\n"
            "  --most=N     only cases whose dimensions, but 0, multiply to at most N\n"
            "  --seed=N     seed of the inputs\n"
            "  --aligned    arrays on multiples of 16 bytes\n"
            "  --plugin=FILE the backend in a library, on the first GPU\n"
            "  --reverse    threads of a simulated device from the last to the first\n"
            "  --fault      seed faults into the results and check that they are noticed\n"
            "  --list       names of the operations\n"
            "  --verbose    more detail\n");
    return code;
}

static int parse(int argc, char **argv)
{
    int64_t value;

    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];

        if (str_starts(a, "--op="))
            run.glob = a + 5;
        else if (str_starts(a, "--isa="))
            run.isa = a + 6;
        else if (str_starts(a, "--seed=") && str_to_i64(&value, a + 7, 0, INT64_MAX) == 0)
            run.seed = (uint64_t)value;
        else if (str_starts(a, "--most=") && str_to_i64(&value, a + 7, 0, INT64_MAX) == 0)
            run.most = (uint64_t)value;
        else if (str_eq(a, "--fault"))
            run.fault = true;
        else if (str_starts(a, "--plugin="))
            run.plugin = a + 9;
        else if (str_eq(a, "--aligned"))
            run.aligned = true;
        else if (str_eq(a, "--reverse"))
            run.reverse = true;
        else if (str_eq(a, "--list"))
            run.list = true;
        else if (str_eq(a, "--verbose"))
            run.verbose = true;
        else
            return usage(str_eq(a, "--help") ? 0 : 2);
    }
    return -1;
}

static void each_op(void)
{
    for (size_t i = 0; kc_ops[i]; i++) {
        const struct kc_op *op = kc_ops[i];

        if (fnmatch(run.glob, op->name, 0))
            continue;
        if (run.list) {
            printf("%s\n", op->name);
            continue;
        }
        if (run.backend) {
            check_op(op, kn_isa_best());
            continue;
        }
        for (int isa = KN_REF; isa <= (int)kn_isa_best(); isa++) {
            if (run.isa && !str_eq(run.isa, kn_isa_name((enum kn_isa)isa)))
                continue;
            kn_isa_set((enum kn_isa)isa);
            (run.fault ? check_faults : check_op)(op, (enum kn_isa)isa);
        }
    }
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct kn_gpu gpu;
    int r = parse(argc, argv);

    if (r >= 0)
        return r;
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGSEGV, on_crash);
    signal(SIGBUS, on_crash);
    signal(SIGILL, on_crash);
    signal(SIGFPE, on_crash);
    signal(SIGABRT, on_crash);
    run.backend = kc_backend(run.reverse);
    if (run.plugin && kn_plugin_load(&run.backend, &gpu, run.plugin, 0, &e) < 0) {
        fprintf(stderr, "kncheck: %s\n", e.text);
        return 1;
    }
    kn_backend_use(run.backend);
    run.pools[0] = kn_pool_new(1);
    run.pools[1] = kn_pool_new(3);
    if (!run.list)
        printf("# seed %llu, this CPU has %s\n", (unsigned long long)run.seed,
               kn_isa_name(kn_isa_best()));
    each_op();
    if (!run.list)
        printf("1..%d\n", run.tests);
    kn_pool_free(run.pools[0]);
    kn_pool_free(run.pools[1]);
    return run.failed > 0;
}
