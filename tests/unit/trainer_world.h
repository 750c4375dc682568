/*
 * A small training job without MPI, for tests of checkpoints: the parameters of every rank of a
 * layout with known numbers in them, and processes that agree through shared memory.
 */
#ifndef TESTS_UNIT_TRAINER_WORLD_H
#define TESTS_UNIT_TRAINER_WORLD_H

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "tests/unit/unit.h"
#include "trainer/ckpt.h"
#include "trainer/parts.h"

/* ---- ranks that agree ---------------------------------------------------- */

struct world {
    pthread_barrier_t in, out;
    int status[16];
    char text[16][480];
    char shared[4096];
    int size;
};

struct seat {
    struct world *w;
    int rank;
};

static inline struct world *world_new(int size)
{
    pthread_barrierattr_t a;
    struct world *w =
        mmap(NULL, sizeof(*w), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(w != MAP_FAILED && size <= 16);
    pthread_barrierattr_init(&a);
    pthread_barrierattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&w->in, &a, (unsigned)size);
    pthread_barrier_init(&w->out, &a, (unsigned)size);
    w->size = size;
    return w;
}

static inline int world_agree(void *ctx, int status, char *text)
{
    struct seat *s = ctx;
    struct world *w = s->w;
    int worst = 0, who = 0;

    w->status[s->rank] = status;
    memcpy(w->text[s->rank], text, 480);
    pthread_barrier_wait(&w->in);
    for (int i = 0; i < w->size; i++)
        if (w->status[i] < worst) {
            worst = w->status[i];
            who = i;
        }
    if (worst)
        memcpy(text, w->text[who], 480);
    pthread_barrier_wait(&w->out);
    return worst;
}

static inline void world_share(void *ctx, void *bytes, size_t n)
{
    struct seat *s = ctx;
    struct world *w = s->w;

    if (n > sizeof(w->shared))
        abort();
    if (s->rank == 0)
        memcpy(w->shared, bytes, n);
    pthread_barrier_wait(&w->in);
    memcpy(bytes, w->shared, n);
    pthread_barrier_wait(&w->out);
}

/* Run WORK as every rank of a job, each in its own process; returns how many ended badly. */
static inline int world_run(int size, void (*work)(const struct tr_team *team, void *arg),
                            void *arg)
{
    struct world *w = world_new(size);
    pid_t pid[16];
    int bad = 0;

    fflush(NULL);
    for (int i = 0; i < size; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            struct seat seat = {w, i};
            struct tr_team team = {
                .rank = i, .size = size, .agree = world_agree, .share = world_share, .ctx = &seat};

            work(&team, arg);
            _exit(0);
        }
    }
    for (int i = 0; i < size; i++) {
        int status;

        waitpid(pid[i], &status, 0);
        bad += status != 0;
    }
    munmap(w, sizeof(*w));
    return bad;
}

/* Inside WORK: cmocka's asserts do not cross processes. */
#define world_need(cond, ...)                                                                      \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "# %s:%d: ", __FILE__, __LINE__);                                      \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* ---- parameters with known numbers --------------------------------------- */

static inline float known(const char *name, int kind, int64_t global, int stamp)
{
    uint64_t h = str_hash(name, strlen(name), (uint64_t)(kind + 3 * stamp) + 1);
    uint64_t x = rng_mix(h + (uint64_t)global);

    /* 8 bits: exact in bf16 too; second moments are not negative, which nothing here needs. */
    return (float)((int)(x >> 40 & 0xff) - 128);
}

static inline void params_make(struct tr_params *t, const struct pl_model *m,
                               const struct pl_layout *l, int rank)
{
    *t = (struct tr_params){.rank = rank, .type = l->precision == PL_BF16 ? KN_BF16 : KN_F32};
    pl_params_build(&t->table, m, l, rank);
    t->weight = mem_alloc(t->table.weight.count * kn_type_size(t->type));
    t->m = mem_alloc((t->table.state_count + 1) * sizeof(float));
    if (t->table.fixed)
        t->balance = mem_alloc((size_t)(t->table.fixed * m->moe.experts) * sizeof(float));
    t->v = mem_alloc((t->table.state_count + 1) * sizeof(float));
    if (t->type == KN_BF16)
        t->master = mem_alloc((t->table.state_count + 1) * sizeof(float));
}

static inline void params_done(struct tr_params *t)
{
    pl_params_done(&t->table);
    free(t->weight);
    free(t->balance);
    free(t->m);
    free(t->v);
    free(t->master);
}

/* Element K of the weights at DATA. */
static inline float weight_at(const struct tr_params *t, const void *data, uint64_t k)
{
    float f;

    if (t->type == KN_F32)
        return ((const float *)data)[k];
    tr_bf16_to_f32(&f, (const uint16_t *)data + k, 1);
    return f;
}

static inline void weight_set(const struct tr_params *t, void *data, uint64_t k, float f)
{
    if (t->type == KN_F32)
        ((float *)data)[k] = f;
    else
        tr_f32_to_bf16((uint16_t *)data + k, &f, 1);
}

/* Elements of rows that no gradient moves that are not what is known; FILL: they become that.
 */
static inline long fixed_wrong(const struct tr_params *t, int stamp, bool fill)
{
    long bad = 0;

    for (int i = t->table.n; i < t->table.n + t->table.fixed; i++) {
        const struct pl_param *p = &t->table.p[i];

        for (uint64_t k = 0; k < p->count; k++) {
            float want = known(p->name, 0, (int64_t)k, stamp);

            bad += t->balance[p->offset + k] != want;
            if (fill)
                t->balance[p->offset + k] = want;
        }
    }
    return bad;
}

/* Give every element its known number; padding gets 7, which must not come back. */
static inline void params_fill(struct tr_params *t, int stamp)
{
    (void)fixed_wrong(t, stamp, true);
    for (int i = 0; i < t->table.n; i++) {
        const struct pl_param *p = &t->table.p[i];
        uint64_t first = 0, at = 0, n = tr_param_state(&first, &at, t, i);
        float *array[] = {t->master, t->m, t->v};
        void *data = NULL;
        uint64_t from = 0, kept = tr_param_kept(&from, &data, t, i);

        for (uint64_t k = 0; k < kept; k++) {
            int64_t g = pl_param_global(p, from + k);

            weight_set(t, data, k, g < 0 ? 7.0f : known(p->name, 0, g, stamp));
        }
        for (int kind = 0; kind < 3; kind++)
            for (uint64_t k = 0; k < n && array[kind]; k++) {
                int64_t g = pl_param_global(p, first + k);

                array[kind][at + k] = g < 0 ? 7.0f : known(p->name, kind, g, stamp);
            }
    }
}

/* Number of elements that are not what params_fill(STAMP) makes of them; padding must be 0. */
static inline long params_wrong(const struct tr_params *t, int stamp, bool state)
{
    long bad = fixed_wrong(t, stamp, false);

    for (int i = 0; i < t->table.n; i++) {
        const struct pl_param *p = &t->table.p[i];
        uint64_t first = 0, at = 0, n = state ? tr_param_state(&first, &at, t, i) : 0;
        const float *array[] = {t->master, t->m, t->v};
        void *data = NULL;
        uint64_t from = 0, kept = tr_param_kept(&from, &data, t, i);

        for (uint64_t k = 0; k < kept; k++) {
            int64_t g = pl_param_global(p, from + k);

            bad += weight_at(t, data, k) != (g < 0 ? 0.0f : known(p->name, 0, g, stamp));
        }
        for (int kind = 0; kind < 3; kind++)
            for (uint64_t k = 0; k < n && array[kind]; k++) {
                int64_t g = pl_param_global(p, first + k);

                bad += array[kind][at + k] != (g < 0 ? 0.0f : known(p->name, kind, g, stamp));
            }
    }
    return bad;
}

/* ---- a job --------------------------------------------------------------- */

struct job {
    struct pl_model model;
    struct pl_layout layout;
    const char *dir;
    int stamp; /* also the step */
    int keep;
    uint64_t split_bytes;
};

static inline struct pl_model world_parse(const char *text)
{
    AUTO_JSON *v = unit_json(text);
    struct pl_model m;
    struct err e = {0};

    if (pl_model_parse(&m, v, &e) < 0)
        fail_msg("%s %s", e.text, e.pointer);
    return m;
}

/* An odd vocabulary, so that it is padded, and grouped heads. */
static inline struct pl_model world_model(const char *moe)
{
    AUTO_FREE char *text =
        mem_printf("{'name':'t','layers':4,'hidden':24,'heads':4,'kv_heads':2,'head_dim':6,"
                   "'ffn':40,'vocab':61,'seq':16%s%s}",
                   moe ? ",'moe':" : "", moe ? moe : "");

    return world_parse(text);
}

static inline struct pl_layout world_layout(const struct pl_model *m, int world, const char *keys)
{
    AUTO_FREE char *text = mem_printf("{'world':%d%s%s}", world, *keys ? "," : "", keys);
    AUTO_JSON *v = unit_json(text);
    struct pl_cluster c;
    struct pl_workload w = {.global_batch = 8, .seq = 16, .data = "synthetic"};
    struct pl_problem problem = {m, &c, &w, pl_trainer_find("any")};
    struct pl_layout l;
    struct pl_verdict verdict;
    struct err e = {0};
    char why[400];

    pl_cluster_here(&c);
    c.oversubscribe = true;
    if (pl_layout_parse(&l, v, &problem, &e) < 0)
        fail_msg("%s %s", e.text, e.pointer);
    if (!pl_layout_check(&verdict, &problem, &l))
        fail_msg("%s", pl_verdict_text(why, sizeof(why), &verdict));
    return l;
}

static inline void job_save(const struct tr_team *team, void *arg)
{
    const struct job *j = arg;
    struct tr_params t;
    struct tr_ckpt_what what = {.model = &j->model, .state = true, .split_bytes = j->split_bytes};
    struct tr_ckpt_state state = {.step = j->stamp,
                                  .samples = 8 * (uint64_t)j->stamp,
                                  .seed = -5,
                                  .data = "synthetic",
                                  .loss = 2.5};
    struct err e = {0};
    AUTO_FREE struct tr_part *part = NULL;

    params_make(&t, &j->model, &j->layout, team->rank);
    params_fill(&t, j->stamp);
    what.part = part = tr_parts(&what.count, &t, &j->layout, true);
    world_need(tr_ckpt_save(NULL, NULL, j->dir, j->keep, &what, &state, team, &e) == 0, "%s",
               e.text);
    params_done(&t);
}

static inline void job_load(const struct tr_team *team, void *arg)
{
    const struct job *j = arg;
    struct tr_params t;
    struct tr_ckpt_what what = {.model = &j->model, .state = true};
    struct tr_ckpt_state state;
    struct err e = {0};
    AUTO_FREE char *path = NULL;
    AUTO_FREE struct tr_part *part = NULL;
    long wrong;

    params_make(&t, &j->model, &j->layout, team->rank);
    what.part = part = tr_parts(&what.count, &t, &j->layout, true);
    world_need(tr_ckpt_latest(&path, j->dir, &e) == 0, "%s", e.text);
    world_need(tr_ckpt_load(&state, path, &what, team, &e) == 0, "%s", e.text);
    world_need(state.step == j->stamp, "step %d, not %d", state.step, j->stamp);
    world_need(state.samples == 8 * (uint64_t)j->stamp && state.seed == -5,
               "data position or seed");
    wrong = params_wrong(&t, j->stamp, true);
    world_need(wrong == 0, "rank %d: %ld elements are wrong", team->rank, wrong);
    params_done(&t);
}

#endif
