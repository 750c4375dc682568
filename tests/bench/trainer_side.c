#include "tests/bench/trainer_side.h"

#include <assert.h>
#include <unistd.h>

static int job_rank(void)
{
    int rank;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

void side_die(const char *why)
{
    fprintf(stderr, "bench_trainer: rank %d: %s\n", job_rank(), why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

void side_meet(void)
{
    MPI_Request r;
    int done = 0;

    MPI_Ibarrier(MPI_COMM_WORLD, &r);
    while (MPI_Test(&r, &done, MPI_STATUS_IGNORE), !done)
        usleep(1000);
}

static json_t *parse(const char *text)
{
    json_error_t je;
    json_t *v = json_loads(text, 0, &je);

    if (!v)
        side_die(je.text);
    return v;
}

void side_model(struct pl_model *ret, const char *model)
{
    struct err e = {0};
    json_t *v = parse(model);

    if (pl_model_parse(ret, v, &e) < 0)
        side_die(e.text);
    json_decref(v);
}

void side_layout(struct pl_layout *ret, const char *model, const char *layout, int global_batch)
{
    struct pl_workload w = {.global_batch = global_batch, .data = "synthetic"};
    struct pl_cluster here;
    struct pl_verdict why;
    struct pl_model m;
    struct pl_problem problem = {&m, &here, &w, pl_trainer_find("partune")};
    char broken[400];
    struct err e = {0};
    json_t *v = parse(layout);

    side_model(&m, model);
    w.seq = m.seq;
    pl_cluster_here(&here);
    here.oversubscribe = true;
    if (pl_layout_parse(ret, v, &problem, &e) < 0)
        side_die(e.text);
    json_decref(v);
    w.precision = (enum pl_precision)ret->precision;
    if (!pl_layout_check(&why, &problem, ret))
        side_die(pl_verdict_text(broken, sizeof(broken), &why));
}

double side_flops(const struct pl_model *m, int seq, double tokens)
{
    double h = m->hidden, q = (double)m->heads * m->head_dim,
           kv = (double)m->kv_heads * m->head_dim;
    double weights = (double)m->vocab * h, pairs = 0.5 * (seq + 1);

    for (int i = 0; i < m->layers; i++) {
        weights += h * (2 * q + 2 * kv);
        weights += pl_layer_is_moe(m, i)
                       ? h * (m->moe.experts + 3.0 * m->moe.top_k * m->moe.expert_ffn +
                              3.0 * m->moe.shared_ffn)
                       : 3.0 * h * m->ffn;
    }
    /* scores and their product with the values: 2 x 2 FLOPs a pair and column, three passes */
    return tokens * (6 * weights + 12 * pairs * q * m->layers);
}

/* EACH rank by itself, or the first ranks together. */
void side_open_copies(struct side *s, const char *model, const char *layout, int global_batch,
                      int copies)
{
    struct err e = {0};
    enum pl_mem_class cls;
    double asked;
    int color;

    *s = (struct side){.comm = MPI_COMM_NULL,
                       .workload = {.global_batch = global_batch, .data = "synthetic"}};
    side_model(&s->model, model);
    side_layout(&s->layout, model, layout, global_batch);
    s->workload.seq = s->model.seq;
    s->workload.precision = (enum pl_precision)s->layout.precision;
    s->flops = side_flops(&s->model, s->workload.seq, (double)global_batch * s->workload.seq);
    color = job_rank() / s->layout.world;
    if (color >= copies)
        color = MPI_UNDEFINED;
    MPI_Comm_split(MPI_COMM_WORLD, color, job_rank(), &s->comm);
    if (s->comm == MPI_COMM_NULL)
        return;
    if (tr_rank_init(&cls, &asked, &s->r, s->comm, &s->model, &s->layout, &s->workload, UINT64_MAX,
                     side_die, &e) < 0)
        side_die(e.text);
    tr_params_init(&s->r.params, &s->model, 1);
}

void side_open(struct side *s, const char *model, const char *layout, int global_batch)
{
    side_open_copies(s, model, layout, global_batch, 1);
}

void side_close(struct side *s)
{
    if (s->comm == MPI_COMM_NULL)
        return;
    tr_rank_done(&s->r);
    MPI_Comm_free(&s->comm);
}

static void put_samples(struct side *s)
{
    struct tr_rank *r = &s->r;
    uint64_t first = (uint64_t)s->step * (uint64_t)s->workload.global_batch;

    for (int mb = 0; mb < r->d.microbatches; mb++)
        for (int k = 0; k < s->layout.micro_batch; k++) {
            uint64_t at = first + tr_sample_index(r, mb, k);

            for (int i = 0; i <= s->workload.seq; i++)
                r->work.sample[i] =
                    (int32_t)(rng_mix(at * 8191 + (uint64_t)i) % (uint64_t)s->model.vocab);
            tr_sample_put(r, mb, k, r->work.sample);
        }
}

static double one_step(struct side *s)
{
    static const struct tr_optim o = {.schedule = {.lr = 1e-4, .min_lr = 1e-4, .decay_steps = 1000},
                                      .weight_decay = 0.1,
                                      .beta1 = 0.9,
                                      .beta2 = 0.95,
                                      .eps = 1e-8,
                                      .clip = 1.0};
    struct tr_result t;

    put_samples(s);
    tr_step_grads(&t, &s->r, 0);
    tr_optim_step(&s->r, &o, ++s->step, t.norm);
    return t.loss;
}

double side_step(struct side *s)
{
    double seconds = 0;

    side_meet();
    if (s->comm != MPI_COMM_NULL) {
        uint64_t begin;

        MPI_Barrier(s->comm);
        begin = clock_mono_ns();
        one_step(s);
        tr_optim_settle(&s->r);
        MPI_Barrier(s->comm);
        seconds = (double)(clock_mono_ns() - begin) * 1e-9;
    }
    side_meet();
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return seconds;
}

double side_steady(struct side *s, int n, double *ret_exposed)
{
    static const enum tr_phase comm[] = {TR_PHASE_TP, TR_PHASE_CP, TR_PHASE_EP, TR_PHASE_PP_WAIT,
                                         TR_PHASE_DP};
    double x[2] = {0};

    side_meet();
    one_step(s);
    for (int i = 0; i < n; i++) {
        uint64_t begin = clock_mono_ns();

        tr_clock_reset(&s->r.clock);
        one_step(s);
        tr_clock_end(&s->r.clock);
        x[0] += (double)(clock_mono_ns() - begin) * 1e-9 / n;
        for (size_t k = 0; k < ARRAY_LEN(comm); k++)
            x[1] += (double)s->r.clock.ns[comm[k]] * 1e-9 / n;
    }
    tr_optim_settle(&s->r);
    tr_sum_double(&s->r.comms.world, x, 2);
    *ret_exposed = x[1] / s->layout.world;
    return x[0] / s->layout.world;
}
