/* The files and the warnings of a long run: see watch.h. */
#include "trainer/watch.h"

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
    bool below;    /* slower than promised: said already */
    int straggler; /* said already; -1: none */
    struct tr_step last;
    double tokens, validation;
    int checkpoint;
    uint64_t written_ns;
};

int tr_watch_open(struct tr_watch **ret, const struct tr_config *c, struct tr_events *ev,
                  struct err *e)
{
    struct tr_watch *w;
    int fd = -1;

    if (c->metrics) {
        fd = open(c->metrics, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0)
            return err_set(e, -errno, "open metrics file %s: %s", c->metrics, strerror(errno));
    }
    w = mem_alloc(sizeof(*w));
    w->c = c;
    w->ev = ev;
    w->metrics = fd;
    w->straggler = -1;
    w->validation = (double)NAN;
    if (c->prometheus) {
        w->prometheus = mem_strdup(c->prometheus);
        w->temporary = mem_printf("%s.tmp.%ld", c->prometheus, (long)getpid());
    }
    *ret = w;
    return 0;
}

static void failed(struct tr_watch *w, const char *path, int code)
{
    char text[300];

    if (w->failed)
        return;
    w->failed = true;
    snprintf(text, sizeof(text), "write %.200s: %s", path, strerror(code));
    tr_event_warning(w->ev, "metrics", text);
}

/* ---- files ---- */

static void add(struct str *s, const char *key, double v)
{
    if (isfinite(v))
        str_addf(s, ",\"%s\":%.15g", key, v);
    else
        str_addf(s, ",\"%s\":null", key);
}

static double rate(const struct tr_step *s)
{
    return (double)s->tokens / s->ms * 1e3;
}

static void append_metrics(struct tr_watch *w)
{
    const struct tr_step *s = &w->last;

    str_trunc(&w->text, 0);
    str_addf(&w->text, "{\"step\":%d", s->n);
    add(&w->text, "t", clock_wall_s());
    add(&w->text, "loss", s->loss);
    add(&w->text, "aux_loss", s->aux_loss);
    add(&w->text, "lr", s->lr);
    add(&w->text, "grad_norm", s->grad_norm);
    add(&w->text, "ms", s->ms);
    add(&w->text, "tokens_per_s", rate(s));
    add(&w->text, "tokens", w->tokens);
    str_add(&w->text, "}\n");
    if (write(w->metrics, w->text.text, w->text.len) != (ssize_t)w->text.len)
        failed(w, w->c->metrics, errno);
}

/* A label's value: three characters are escaped in Prometheus' text. */
static void add_label(struct str *s, const char *text)
{
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            str_addc(s, '\\');
        if (*text == '\n')
            str_add(s, "\\n");
        else
            str_addc(s, *text);
    }
}

static void gauge(struct tr_watch *w, const char *name, const char *help, double v)
{
    if (isnan(v))
        return;
    str_addf(&w->text,
             "# HELP partune_train_%s %s\n# TYPE partune_train_%s "
             "gauge\npartune_train_%s{model=\"",
             name, help, name, name);
    add_label(&w->text, w->c->model.name);
    str_add(&w->text, "\"} ");
    if (isinf(v))
        str_add(&w->text, v > 0 ? "+Inf\n" : "-Inf\n");
    else
        str_addf(&w->text, "%.15g\n", v);
}

static int replace(const struct tr_watch *w)
{
    int fd = open(w->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644), r;

    if (fd < 0)
        return -errno;
    r = file_write_fd(fd, w->text.text, w->text.len);
    if (close(fd) < 0 && r == 0)
        r = -errno;
    if (r == 0 && rename(w->temporary, w->prometheus) < 0)
        r = -errno;
    if (r < 0)
        unlink(w->temporary);
    return r;
}

static void write_prometheus(struct tr_watch *w)
{
    const struct tr_step *s = &w->last;
    int r;

    str_trunc(&w->text, 0);
    gauge(w, "step", "Optimizer steps done.", s->n);
    gauge(w, "loss", "Mean cross-entropy of the last step.", s->loss);
    gauge(w, "grad_norm", "Global gradient norm of the last step, before clipping.", s->grad_norm);
    gauge(w, "learning_rate", "Learning rate of the last step.", s->lr);
    gauge(w, "step_seconds", "Duration of the last step.", s->ms * 1e-3);
    gauge(w, "tokens_per_second", "Throughput of the last step, whole job.", rate(s));
    gauge(w, "tokens", "Tokens trained on since the start of training.", w->tokens);
    gauge(w, "straggler_ratio", "Busy time of the slowest rank over that of the median rank.",
          s->rank_ms_median > 0 ? s->rank_ms_max / s->rank_ms_median : (double)NAN);
    gauge(w, "validation_loss", "Loss of the last validation.", w->validation);
    gauge(w, "checkpoint_step", "Step of the last checkpoint.",
          w->checkpoint ? w->checkpoint : (double)NAN);
    gauge(w, "promised_tokens_per_second", "Throughput that the campaign measured.",
          w->c->promised.tokens_per_s > 0 ? w->c->promised.tokens_per_s : (double)NAN);
    gauge(w, "promised_low_tokens_per_second", "Throughput below which the run is too slow.",
          w->c->promised.lo > 0 ? w->c->promised.lo : (double)NAN);
    gauge(w, "last_step_timestamp_seconds", "When the last step ended.", clock_wall_s());
    r = replace(w);
    if (r < 0)
        failed(w, w->prometheus, -r);
    w->written_ns = clock_mono_ns();
}

/* ---- warnings ---- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void watch_promise(struct tr_watch *w)
{
    const struct tr_promised *p = &w->c->promised;
    double ms[WINDOW], got;
    char text[200];

    if (p->lo <= 0 || w->measured < WINDOW)
        return;
    memcpy(ms, w->ms, sizeof(ms));
    qsort(ms, WINDOW, sizeof(*ms), ascending);
    got = (double)w->last.tokens / ((ms[WINDOW / 2 - 1] + ms[WINDOW / 2]) / 2) * 1e3;
    if (got >= p->lo) {
        w->below = false;
        return;
    }
    if (w->below)
        return;
    w->below = true;
    snprintf(text, sizeof(text),
             "%.0f tokens/s over the last %d steps; %.0f were promised, at least %.0f", got, WINDOW,
             p->tokens_per_s, p->lo);
    tr_event_warning(w->ev, "slower-than-promised", text);
}

/* The rank that was busy for much longer than others in this step, or -1. */
static int straggling(const struct tr_watch *w, const struct tr_step *s)
{
    int world = w->c->layout.world;
    double usual = world > 2 ? s->rank_ms_median : s->rank_ms_min;

    return world > 1 && s->rank_ms_max > STRAGGLE_RATIO * usual ? s->slowest : -1;
}

static void watch_straggler(struct tr_watch *w)
{
    int rank = w->slow[(w->measured - 1) % WINDOW], n = 0;
    char text[200];

    if (w->measured < STRAGGLE_OF)
        return;
    for (long i = w->measured - STRAGGLE_OF; i < w->measured; i++)
        n += w->slow[i % WINDOW] == (rank >= 0 ? rank : w->straggler) && w->slow[i % WINDOW] >= 0;
    if (n < STRAGGLE_IN) {
        if (n < STRAGGLE_OF - STRAGGLE_IN)
            w->straggler = -1;
        return;
    }
    if (rank < 0 || rank == w->straggler)
        return;
    w->straggler = rank;
    snprintf(text, sizeof(text),
             "rank %d was busy for %.1f ms of the last step, the %s rank for %.1f ms; so in %d of "
             "%d steps",
             rank, w->last.rank_ms_max, w->c->layout.world > 2 ? "median" : "other",
             w->c->layout.world > 2 ? w->last.rank_ms_median : w->last.rank_ms_min, n, STRAGGLE_OF);
    tr_event_warning(w->ev, "straggler", text);
}

/* ---- what the run calls ---- */

void tr_watch_step(struct tr_watch *w, const struct tr_step *s)
{
    if (!w)
        return;
    w->last = *s;
    w->tokens = (double)s->n * (double)s->tokens;
    if (!s->warmup) {
        w->ms[w->measured % WINDOW] = s->ms;
        w->slow[w->measured % WINDOW] = straggling(w, s);
        w->measured++;
        watch_promise(w);
        watch_straggler(w);
    }
    if (w->metrics >= 0)
        append_metrics(w);
    if (w->prometheus && clock_mono_ns() - w->written_ns >= 1000000000u)
        write_prometheus(w);
}

void tr_watch_validation(struct tr_watch *w, double loss)
{
    if (w)
        w->validation = loss;
}

void tr_watch_checkpoint(struct tr_watch *w, int n)
{
    if (w)
        w->checkpoint = n;
}

struct tr_watch *tr_watch_free(struct tr_watch *w)
{
    if (!w)
        return NULL;
    if (w->prometheus && w->last.n)
        write_prometheus(w);
    if (w->metrics >= 0)
        close(w->metrics);
    free(w->prometheus);
    free(w->temporary);
    str_done(&w->text);
    free(w);
    return NULL;
}
