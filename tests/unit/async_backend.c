#include "tests/unit/async_backend.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"

enum { LAUNCHES = 8192, ARGS_BYTES = 1 << 20 };

struct launch {
    void (*run)(const void *args);
    size_t args; /* offset */
};

struct stream {
    struct launch list[LAUNCHES];
    int n, waits;
    size_t used;
    uint64_t stamp[KN_STAMPS];          /* of the clock; 0: not reached */
    _Alignas(16) char args[ARGS_BYTES]; /* of the launches, copied */
};

static int live;

static void *room(struct stream *q, size_t bytes)
{
    void *x = q->args + q->used;

    q->used += (bytes + 15) / 16 * 16;
    assert(q->used <= ARGS_BYTES);
    return x;
}

void async_launch(struct kn_pool *p, void (*run)(const void *), const void *args, size_t bytes)
{
    struct stream *q = kn_pool_stream(p);
    void *kept = room(q, bytes);

    memcpy(kept, args, bytes);
    assert(q->n < LAUNCHES);
    q->list[q->n++] = (struct launch){run, (size_t)((char *)kept - q->args)};
}

/* Memory of its own: nobody else can touch it. */
enum { OWN = 16 };

static struct {
    void *at;
    size_t bytes;
} own[OWN];

static void own_open(bool open)
{
    for (int i = 0; i < OWN; i++)
        if (own[i].at &&
            mprotect(own[i].at, own[i].bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE))
            abort();
}

static void *own_alloc(size_t bytes)
{
    int i = 0;

    while (i < OWN && own[i].at)
        i++;
    assert(i < OWN);
    own[i].at = kn_backend_host()->alloc(bytes);
    own[i].bytes = bytes;
    live += own[i].at != NULL;
    own_open(false);
    return own[i].at;
}

static void own_free(void *x, size_t bytes)
{
    live--;
    for (int i = 0; i < OWN; i++)
        if (own[i].at == x)
            own[i].at = NULL;
    kn_backend_host()->free(x, bytes);
}

static void async_wait(struct kn_pool *p)
{
    struct stream *q = kn_pool_stream(p);

    q->waits += q->n > 0;
    if (q->n > 0)
        own_open(true);
    for (int i = 0; i < q->n; i++)
        q->list[i].run(q->args + q->list[i].args);
    if (q->n > 0)
        own_open(false);
    q->n = 0;
    q->used = 0;
}

struct stamp_args {
    uint64_t *stamp;
};

static void run_stamp(const void *args)
{
    const struct stamp_args *s = args;

    *s->stamp = clock_mono_ns();
}

/* A stream without work is there at once. */
static void async_stamp(struct kn_pool *p, unsigned n)
{
    struct stream *q = kn_pool_stream(p);
    struct stamp_args args = {&q->stamp[n]};

    q->stamp[n] = 0;
    if (q->n == 0)
        run_stamp(&args);
    else
        async_launch(p, run_stamp, &args, sizeof(args));
}

static bool async_stamped(uint64_t *ret_ns, struct kn_pool *p, unsigned from, unsigned to)
{
    const struct stream *q = kn_pool_stream(p);

    if (q->stamp[to] == 0)
        return false;
    assert(q->stamp[from] != 0);
    *ret_ns = q->stamp[to] - q->stamp[from];
    return true;
}

/* Operations whose structs the caller may change as soon as they return. */

struct copy_args {
    void *to;
    const void *from;
    size_t bytes;
};

static void run_copy(const void *args)
{
    const struct copy_args *c = args;

    memcpy(c->to, c->from, c->bytes);
}

static void async_copy(struct kn_pool *p, void *to, const void *from, size_t bytes)
{
    async_launch(p, run_copy, &(struct copy_args){to, from, bytes}, sizeof(struct copy_args));
}

static void run_gemm(const void *args)
{
    kn_host_gemm(NULL, args);
}

void async_gemm(struct kn_pool *p, const struct kn_gemm *g)
{
    async_launch(p, run_gemm, g, sizeof(*g));
}

struct gemm_grouped_args {
    struct kn_gemm g;
    size_t groups, wstride;
    const int32_t *offsets;
};

static void run_gemm_grouped(const void *args)
{
    const struct gemm_grouped_args *c = args;

    kn_host_gemm_grouped(NULL, &c->g, c->groups, c->offsets, c->wstride);
}

void async_gemm_grouped(struct kn_pool *p, const struct kn_gemm *g, size_t groups,
                        const int32_t *offsets, size_t wstride)
{
    int32_t *kept = room(kn_pool_stream(p), (groups + 1) * sizeof(*kept));

    memcpy(kept, offsets, (groups + 1) * sizeof(*kept));
    async_launch(p, run_gemm_grouped, &(struct gemm_grouped_args){*g, groups, wstride, kept},
                 sizeof(struct gemm_grouped_args));
}

struct attn_fwd_args {
    struct kn_attn a;
    void *o;
    size_t ldo;
    float *lse;
};

static void run_attn_fwd(const void *args)
{
    const struct attn_fwd_args *c = args;

    kn_host_attn_fwd(NULL, &c->a, c->o, c->ldo, c->lse);
}

void async_attn_fwd(struct kn_pool *p, const struct kn_attn *a, void *o, size_t ldo, float *lse)
{
    async_launch(p, run_attn_fwd, &(struct attn_fwd_args){*a, o, ldo, lse},
                 sizeof(struct attn_fwd_args));
}

struct attn_bwd_args {
    struct kn_attn a;
    struct kn_attn_grad g;
    void *workspace;
};

static void run_attn_bwd(const void *args)
{
    const struct attn_bwd_args *c = args;

    kn_host_attn_bwd(NULL, &c->a, &c->g, c->workspace);
}

void async_attn_bwd(struct kn_pool *p, const struct kn_attn *a, const struct kn_attn_grad *g,
                    void *workspace)
{
    async_launch(p, run_attn_bwd, &(struct attn_bwd_args){*a, *g, workspace},
                 sizeof(struct attn_bwd_args));
}

struct attn_part_fwd_args {
    struct kn_attn a;
    struct kn_attn_part part;
    float *o;
    size_t ldo;
    float *lse;
};

static void run_attn_part_fwd(const void *args)
{
    const struct attn_part_fwd_args *c = args;

    kn_host_attn_part_fwd(NULL, &c->a, &c->part, c->o, c->ldo, c->lse);
}

void async_attn_part_fwd(struct kn_pool *p, const struct kn_attn *a,
                         const struct kn_attn_part *part, float *o, size_t ldo, float *lse)
{
    async_launch(p, run_attn_part_fwd, &(struct attn_part_fwd_args){*a, *part, o, ldo, lse},
                 sizeof(struct attn_part_fwd_args));
}

struct attn_part_bwd_args {
    struct kn_attn a;
    struct kn_attn_part part;
    struct kn_attn_grad g;
    void *workspace;
};

static void run_attn_part_bwd(const void *args)
{
    const struct attn_part_bwd_args *c = args;

    kn_host_attn_part_bwd(NULL, &c->a, &c->part, &c->g, c->workspace);
}

void async_attn_part_bwd(struct kn_pool *p, const struct kn_attn *a,
                         const struct kn_attn_part *part, const struct kn_attn_grad *g,
                         void *workspace)
{
    async_launch(p, run_attn_part_bwd, &(struct attn_part_bwd_args){*a, *part, *g, workspace},
                 sizeof(struct attn_part_bwd_args));
}

struct router_fwd_args {
    struct kn_router router;
    float *probs;
    int32_t *idx;
    float *w;
    const float *logits;
    size_t rows;
};

static void run_router_fwd(const void *args)
{
    const struct router_fwd_args *c = args;

    kn_host_router_fwd(NULL, &c->router, c->probs, c->idx, c->w, c->logits, c->rows);
}

void async_router_fwd(struct kn_pool *p, const struct kn_router *router, float *probs, int32_t *idx,
                      float *w, const float *logits, size_t rows)
{
    async_launch(p, run_router_fwd, &(struct router_fwd_args){*router, probs, idx, w, logits, rows},
                 sizeof(struct router_fwd_args));
}

struct router_bwd_args {
    struct kn_router router;
    float *dlogits;
    const float *dw, *dshare, *probs;
    const int32_t *idx;
    const float *w;
    size_t rows;
};

static void run_router_bwd(const void *args)
{
    const struct router_bwd_args *c = args;

    kn_host_router_bwd(NULL, &c->router, c->dlogits, c->dw, c->dshare, c->probs, c->idx, c->w,
                       c->rows);
}

void async_router_bwd(struct kn_pool *p, const struct kn_router *router, float *dlogits,
                      const float *dw, const float *dshare, const float *probs, const int32_t *idx,
                      const float *w, size_t rows)
{
    async_launch(p, run_router_bwd,
                 &(struct router_bwd_args){*router, dlogits, dw, dshare, probs, idx, w, rows},
                 sizeof(struct router_bwd_args));
}

struct adamw_args {
    struct kn_adamw h;
    float *w;
    kn_bf16 *low;
    float *m, *v;
    const float *g;
    size_t n;
};

static void run_adamw(const void *args)
{
    const struct adamw_args *c = args;

    kn_host_adamw(NULL, &c->h, c->w, c->low, c->m, c->v, c->g, c->n);
}

void async_adamw(struct kn_pool *p, const struct kn_adamw *h, float *w, kn_bf16 *low, float *m,
                 float *v, const float *g, size_t n)
{
    async_launch(p, run_adamw, &(struct adamw_args){*h, w, low, m, v, g, n},
                 sizeof(struct adamw_args));
}

struct lamb_args {
    struct kn_adamw h;
    const float *w;
    float *m, *v, *g;
    size_t n;
};

static void run_lamb(const void *args)
{
    const struct lamb_args *c = args;

    kn_host_lamb(NULL, &c->h, c->w, c->m, c->v, c->g, c->n);
}

void async_lamb(struct kn_pool *p, const struct kn_adamw *h, const float *w, float *m, float *v,
                float *g, size_t n)
{
    async_launch(p, run_lamb, &(struct lamb_args){*h, w, m, v, g, n}, sizeof(struct lamb_args));
}

struct momentum_args {
    struct kn_momentum h;
    const float *w;
    float *m, *g;
    size_t n;
};

static void run_momentum(const void *args)
{
    const struct momentum_args *c = args;

    kn_host_momentum(NULL, &c->h, c->w, c->m, c->g, c->n);
}

void async_momentum(struct kn_pool *p, const struct kn_momentum *h, const float *w, float *m,
                    float *g, size_t n)
{
    async_launch(p, run_momentum, &(struct momentum_args){*h, w, m, g, n},
                 sizeof(struct momentum_args));
}

/* The operation that returns a value. */

double async_sumsq(struct kn_pool *p, enum kn_type t, const void *x, size_t n)
{
    double sum;

    async_wait(p);
    own_open(true);
    sum = kn_host_sumsq(NULL, t, x, n);
    own_open(false);
    return sum;
}

static bool async_open(struct kn_pool *p)
{
    struct stream *q = calloc(1, sizeof(*q));

    kn_pool_set_stream(p, q);
    return q != NULL;
}

static void async_close(struct kn_pool *p)
{
    free(kn_pool_stream(p));
}

static void *async_alloc(size_t bytes)
{
    live++;
    return kn_backend_host()->alloc(bytes);
}

static void async_free(void *x, size_t bytes)
{
    live--;
    kn_backend_host()->free(x, bytes);
}

const struct kn_backend *async_backend(bool apart)
{
    static const struct kn_backend backend[] = {{.name = "async",
                                                 .open = async_open,
                                                 .close = async_close,
                                                 .alloc = async_alloc,
                                                 .free = async_free,
                                                 .copy = async_copy,
                                                 .wait = async_wait,
                                                 .stamp = async_stamp,
                                                 .stamped = async_stamped,
#define ASYNC_OP(op) .op = async_##op,
                                                 KN_BACKEND_OPS(ASYNC_OP)
#undef ASYNC_OP
    }};
    static struct kn_backend with_own;

    if (!apart)
        return backend;
    with_own = *backend;
    with_own.alloc_own = own_alloc;
    with_own.free_own = own_free;
    return &with_own;
}

int async_pending(const struct kn_pool *p)
{
    return ((const struct stream *)kn_pool_stream(p))->n;
}

int async_waits(const struct kn_pool *p)
{
    return ((const struct stream *)kn_pool_stream(p))->waits;
}

int async_live(void)
{
    return live;
}
