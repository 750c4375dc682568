/* The files and the warnings of a long run: see watch.h. */
#include "trainer/watch.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#include "base/base.h"

enum { WINDOW = 20, STRAGGLE_OF = 10, STRAGGLE_IN = 8 };
#define STRAGGLE_RATIO 1.4

struct tr_watch {
    const struct tr_config *c;
    struct tr_events *ev;
    int metrics; /* file, or -1 */
    char *prometheus, *temporary;
    struct str text;
    bool failed;       /* a file could not be written: said already */
    double ms[WINDOW]; /* of the last measured steps, a ring */
    int slow[WINDOW];  /* the straggling rank of each, or -1 */
    long measured;
    bool below;    /* slower than expected: said already */
    int straggler; /* said already; -1: none */
    struct tr_step last;
    long full; /* measured steps since the batch is the full one, as expected throughput is */
    long skipped;
    double tokens, validation;
    int checkpoint;
    uint64_t written_ns;
};

int tr_watch_open(struct tr_watch **ret, const struct tr_config *config, struct tr_events *ev,
                  struct err *error)
{
    struct tr_watch *w;
    int fd = -1;

    if (config->metrics) {
        fd = open(config->metrics, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0)
            return err_set(error, -errno, "open metrics file %s: %s", config->metrics,
                           strerror(errno));
    }
    w = mem_alloc(sizeof(*w));
    w->c = config;
    w->ev = ev;
    w->metrics = fd;
    w->straggler = -1;
    w->validation = (double)NAN;
    if (config->prometheus) {
        w->prometheus = mem_strdup(config->prometheus);
        w->temporary = mem_printf("%s.tmp.%ld", config->prometheus, (long)getpid());
    }
    *ret = w;
    return 0;
}

static void failed(struct tr_watch *watch, const char *path, int code)
{
    char text[300];

    if (watch->failed)
        return;
    watch->failed = true;
    snprintf(text, sizeof(text), "write %.200s: %s", path, strerror(code));
    tr_event_warning(watch->ev, "metrics", text);
}

/* ---- files --------------------------------------------------------------- */

static void add(struct str *out, const char *key, double value)
{
    if (isfinite(value))
        str_addf(out, ",\"%s\":%.15g", key, value);
    else
        str_addf(out, ",\"%s\":null", key);
}

static double rate(const struct tr_step *step)
{
    return (double)step->tokens / step->ms * 1e3;
}

static void add_layers(struct str *out, const struct tr_step *step)
{
    if (!step->layer)
        return;
    str_add(out, ",\"layers\":[");
    for (int i = 0; i < step->nlayers; i++) {
        str_add(out, i ? ",{" : "{");
        tr_layer_stats_add(out, &step->layer[i]);
        str_addc(out, '}');
    }
    str_addc(out, ']');
}

static void append_metrics(struct tr_watch *watch)
{
    const struct tr_step *s = &watch->last;

    str_trunc(&watch->text, 0);
    str_addf(&watch->text, "{\"step\":%d", s->n);
    add(&watch->text, "t", clock_wall_s());
    add(&watch->text, "loss", s->loss);
    add(&watch->text, "aux_loss", s->aux_loss);
    if (!isnan(s->z_loss))
        add(&watch->text, "z_loss", s->z_loss);
    if (!isnan(s->moe_z_loss))
        add(&watch->text, "moe_z_loss", s->moe_z_loss);
    if (!isnan(s->mtp_loss))
        add(&watch->text, "mtp_loss", s->mtp_loss);
    add(&watch->text, "lr", s->lr);
    add(&watch->text, "grad_norm", s->grad_norm);
    add(&watch->text, "ms", s->ms);
    add(&watch->text, "tokens_per_s", rate(s));
    add(&watch->text, "tokens", watch->tokens);
    if (s->skips)
        str_addf(&watch->text, ",\"skipped\":%s", s->skipped ? "true" : "false");
    add_layers(&watch->text, s);
    str_add(&watch->text, "}\n");
    if (write(watch->metrics, watch->text.text, watch->text.len) != (ssize_t)watch->text.len)
        failed(watch, watch->c->metrics, errno);
}

/* A label's value: three characters are escaped in Prometheus' text. */
static void add_label(struct str *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            str_addc(out, '\\');
        if (*text == '\n')
            str_add(out, "\\n");
        else
            str_addc(out, *text);
    }
}

static void gauge(struct tr_watch *watch, const char *name, const char *help, double value)
{
    if (isnan(value))
        return;
    str_addf(&watch->text,
             "# HELP partune_train_%s %s\n# TYPE partune_train_%s "
             "gauge\npartune_train_%s{model=\"",
             name, help, name, name);
    add_label(&watch->text, watch->c->model.name);
    str_add(&watch->text, "\"} ");
    if (isinf(value))
        str_add(&watch->text, value > 0 ? "+Inf\n" : "-Inf\n");
    else
        str_addf(&watch->text, "%.15g\n", value);
}

static int replace(const struct tr_watch *watch)
{
    int fd = open(watch->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644), r;

    if (fd < 0)
        return -errno;
    r = file_write_fd(fd, watch->text.text, watch->text.len);
    if (close(fd) < 0 && r == 0)
        r = -errno;
    if (r == 0 && rename(watch->temporary, watch->prometheus) < 0)
        r = -errno;
    if (r < 0)
        unlink(watch->temporary);
    return r;
}

static void write_prometheus(struct tr_watch *watch)
{
    const struct tr_step *s = &watch->last;
    int r;

    str_trunc(&watch->text, 0);
    gauge(watch, "step", "Optimizer steps done.", s->n);
    gauge(watch, "loss", "Mean cross-entropy of the last step.", s->loss);
    gauge(watch, "grad_norm", "Global gradient norm of the last step, before clipping.",
          s->grad_norm);
    gauge(watch, "learning_rate", "Learning rate of the last step.", s->lr);
    gauge(watch, "step_seconds", "Duration of the last step.", s->ms * 1e-3);
    gauge(watch, "tokens_per_second", "Throughput of the last step, whole job.", rate(s));
    gauge(watch, "tokens", "Tokens trained on since the start of training.", watch->tokens);
    gauge(watch, "straggler_ratio",
          "Busy time of the slowest rank divided by that of the median rank.",
          s->rank_ms_median > 0 ? s->rank_ms_max / s->rank_ms_median : (double)NAN);
    gauge(watch, "skipped_steps", "Steps that this run has skipped.",
          s->skips ? (double)watch->skipped : (double)NAN);
    gauge(watch, "validation_loss", "Loss of the last validation.", watch->validation);
    gauge(watch, "checkpoint_step", "Step of the last checkpoint.",
          watch->checkpoint ? watch->checkpoint : (double)NAN);
    gauge(watch, "expected_tokens_per_second", "Throughput that the campaign measured.",
          watch->c->expected.tokens_per_s > 0 ? watch->c->expected.tokens_per_s : (double)NAN);
    gauge(watch, "expected_low_tokens_per_second", "Throughput below which the run is too slow.",
          watch->c->expected.lo > 0 ? watch->c->expected.lo : (double)NAN);
    gauge(watch, "last_step_timestamp_seconds", "When the last step ended.", clock_wall_s());
    r = replace(watch);
    if (r < 0)
        failed(watch, watch->prometheus, -r);
    watch->written_ns = clock_mono_ns();
}

/* ---- warnings ------------------------------------------------------------ */

static int ascending(const void *left, const void *right)
{
    double x = *(const double *)left, y = *(const double *)right;

    return (x > y) - (x < y);
}

static void watch_throughput(struct tr_watch *watch)
{
    const struct tr_interval *p = &watch->c->expected;
    double ms[WINDOW], got;
    char text[200];

    if (p->lo <= 0 || watch->full < WINDOW)
        return;
    memcpy(ms, watch->ms, sizeof(ms));
    qsort(ms, WINDOW, sizeof(*ms), ascending);
    got = (double)watch->last.tokens / ((ms[WINDOW / 2 - 1] + ms[WINDOW / 2]) / 2) * 1e3;
    if (got >= p->lo) {
        watch->below = false;
        return;
    }
    if (watch->below)
        return;
    watch->below = true;
    snprintf(text, sizeof(text),
             "%.0f tokens/s over the last %d steps; expected %.0f, at least %.0f", got, WINDOW,
             p->tokens_per_s, p->lo);
    tr_event_warning(watch->ev, "slower-than-expected", text);
}

/* The rank that was busy for much longer than others in this step, or -1. */
static int straggling(const struct tr_watch *watch, const struct tr_step *step)
{
    int world = watch->c->layout.world;
    double usual = world > 2 ? step->rank_ms_median : step->rank_ms_min;

    assert(step->slowest >= 0 && step->slowest < world);
    return world > 1 && step->rank_ms_max > STRAGGLE_RATIO * usual ? step->slowest : -1;
}

static void watch_straggler(struct tr_watch *watch)
{
    int rank = watch->slow[(watch->measured - 1) % WINDOW], n = 0;
    char text[200];

    if (watch->measured < STRAGGLE_OF)
        return;
    for (long i = watch->measured - STRAGGLE_OF; i < watch->measured; i++)
        n += watch->slow[i % WINDOW] == (rank >= 0 ? rank : watch->straggler) &&
             watch->slow[i % WINDOW] >= 0;
    if (n < STRAGGLE_IN) {
        if (n < STRAGGLE_OF - STRAGGLE_IN)
            watch->straggler = -1;
        return;
    }
    if (rank < 0 || rank == watch->straggler)
        return;
    watch->straggler = rank;
    snprintf(text, sizeof(text),
             "rank %d was busy for %.1f ms of the last step, the %s rank for %.1f ms; this "
             "happened in %d of %d steps",
             rank, watch->last.rank_ms_max, watch->c->layout.world > 2 ? "median" : "other",
             watch->c->layout.world > 2 ? watch->last.rank_ms_median : watch->last.rank_ms_min, n,
             STRAGGLE_OF);
    tr_event_warning(watch->ev, "straggler", text);
}

/* ---- what the run calls -------------------------------------------------- */

/* Of a step after the batch ramp. */
static int64_t full_tokens(const struct tr_watch *watch)
{
    return (int64_t)watch->c->workload.global_batch * watch->c->workload.seq;
}

void tr_watch_step(struct tr_watch *watch, const struct tr_step *step)
{
    if (!watch)
        return;
    watch->last = *step;
    watch->tokens = (double)step->trained;
    watch->skipped += step->skipped;
    if (!step->warmup) {
        watch->ms[watch->measured % WINDOW] = step->ms;
        watch->slow[watch->measured % WINDOW] = straggling(watch, step);
        watch->measured++;
        watch->full = step->tokens < full_tokens(watch) ? 0 : watch->full + 1;
        watch_throughput(watch);
        watch_straggler(watch);
    }
    if (watch->metrics >= 0)
        append_metrics(watch);
    if (watch->prometheus && clock_mono_ns() - watch->written_ns >= 1000000000u)
        write_prometheus(watch);
}

void tr_watch_validation(struct tr_watch *watch, double loss)
{
    if (watch)
        watch->validation = loss;
}

void tr_watch_checkpoint(struct tr_watch *watch, int step)
{
    if (watch)
        watch->checkpoint = step;
}

struct tr_watch *tr_watch_free(struct tr_watch *watch)
{
    if (!watch)
        return NULL;
    if (watch->prometheus && watch->last.n)
        write_prometheus(watch);
    if (watch->metrics >= 0)
        close(watch->metrics);
    free(watch->prometheus);
    free(watch->temporary);
    str_done(&watch->text);
    free(watch);
    return NULL;
}
