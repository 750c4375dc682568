/*
 * Writer of the event file. A line is built in one growing buffer that is kept between events, then
 * handed to the kernel in a single write(): with O_APPEND a reader never sees two events mixed. A
 * write that the disk cuts short leaves a torn last line, after which nothing more is written, so
 * that it stays the last.
 */
#include "trainer/events.h"

#include "base/base.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

struct tr_events {
    int fd; /* -1: no file */
    int status;
    FILE *console;
    double (*now)(void);
    struct str line;
};

const char *const tr_phase_names[TR_PHASES + 1] = {
    "forward", "backward", "tp", "cp", "ep", "pp_wait", "dp", "optimizer", "other", NULL,
};

const char *const tr_error_names[TR_ERRORS + 1] = {
    "illegal", "oom", "numeric", "data", "comm", "io", "node_fail", NULL,
};

int tr_error_exit(enum tr_error cls)
{
    static const int code[TR_ERRORS] = {
        [TR_ERROR_ILLEGAL] = TR_EXIT_ILLEGAL,     [TR_ERROR_OOM] = TR_EXIT_OOM,
        [TR_ERROR_NUMERIC] = TR_EXIT_NUMERIC,     [TR_ERROR_DATA] = TR_EXIT_DATA,
        [TR_ERROR_COMM] = TR_EXIT_COMM,           [TR_ERROR_IO] = TR_EXIT_IO,
        [TR_ERROR_NODE_FAIL] = TR_EXIT_NODE_FAIL,
    };

    return code[cls];
}

/* ---- one line ------------------------------------------------------------ */

static void add_text(struct str *out, const char *text)
{
    bool clean = str_is_utf8(text, strlen(text));

    str_addc(out, '"');
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\')
            str_addf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            str_addf(out, "\\u%04x", c);
        else
            str_addc(out, c >= 0x80 && !clean ? '?' : (char)c);
    }
    str_addc(out, '"');
}

/* 15 digits: every count up to 2^49 is exact, and 0.1 stays 0.1. */
static void add_number(struct str *out, double value)
{
    if (isfinite(value))
        str_addf(out, "%.15g", value);
    else
        str_add(out, "null");
}

static void field(struct str *out, const char *key, double value)
{
    str_addf(out, ",\"%s\":", key);
    add_number(out, value);
}

static void field_text(struct str *out, const char *key, const char *text)
{
    str_addf(out, ",\"%s\":", key);
    if (text)
        add_text(out, text);
    else
        str_add(out, "null");
}

/* Takes V, the JSON form of a domain object. */
static void field_json(struct str *out, const char *key, json_t *owned_v)
{
    AUTO_FREE char *text = jx_dump(owned_v);

    json_decref(owned_v);
    str_addf(out, ",\"%s\":%s", key, text);
}

static struct str *begin(struct tr_events *ev, const char *event)
{
    str_trunc(&ev->line, 0);
    str_addf(&ev->line, "{\"v\":1,\"event\":\"%s\",\"t\":%.6f", event, ev->now());
    return &ev->line;
}

static void end(struct tr_events *ev)
{
    ssize_t put;

    str_add(&ev->line, "}\n");
    assert(strcspn(ev->line.text, "\n") == ev->line.len - 1); /* an event is one line */
    if (ev->fd < 0 || ev->status)
        return;
    do
        put = write(ev->fd, ev->line.text, ev->line.len);
    while (put < 0 && errno == EINTR);
    if (put < 0)
        ev->status = errno;
    else if ((size_t)put < ev->line.len)
        ev->status = ENOSPC;
}

/* ---- life ---------------------------------------------------------------- */

int tr_events_open(struct tr_events **ret, const char *path, FILE *console, struct err *error)
{
    struct tr_events *ev;
    int fd = -1;

    if (path) {
        fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0)
            return err_set(error, -errno, "open event file %s: %s", path, strerror(errno));
    }
    ev = mem_alloc(sizeof(*ev));
    ev->fd = fd;
    ev->console = console;
    ev->now = clock_wall_s;
    *ret = ev;
    return 0;
}

struct tr_events *tr_events_free(struct tr_events *ev)
{
    if (!ev)
        return NULL;
    if (ev->fd >= 0)
        close(ev->fd);
    str_done(&ev->line);
    free(ev);
    return NULL;
}

int tr_events_status(const struct tr_events *ev)
{
    return ev ? ev->status : 0;
}

void tr_events_clock(struct tr_events *ev, double (*now)(void))
{
    ev->now = now;
}

static void say(const struct tr_events *ev, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void say(const struct tr_events *ev, const char *fmt, ...)
{
    va_list ap;

    if (!ev->console)
        return;
    va_start(ap, fmt);
    vfprintf(ev->console, fmt, ap);
    va_end(ap);
    fputc('\n', ev->console);
    fflush(ev->console);
}

/* ---- the events ---------------------------------------------------------- */

static void add_list(struct str *out, const char *key, const char *const *text, int n)
{
    str_addf(out, ",\"%s\":[", key);
    for (int i = 0; i < n; i++) {
        if (i)
            str_addc(out, ',');
        add_text(out, text[i]);
    }
    str_addc(out, ']');
}

void tr_event_hello(struct tr_events *ev, const struct tr_hello *hello)
{
    struct str *s;
    char text[160];

    if (!ev)
        return;
    s = begin(ev, "hello");
    field_text(s, "program", hello->program);
    field_text(s, "version", hello->version);
    field_text(s, "build", hello->build);
    field(s, "pid", (double)getpid());
    field_text(s, "model", hello->model->name);
    field_json(s, "layout", pl_layout_json(hello->layout));
    field_json(s, "workload", pl_workload_json(hello->workload));
    field(s, "ranks", hello->ranks);
    add_list(s, "hosts", hello->host, hello->nhosts);
    field_text(s, "device", hello->device);
    if (hello->binding)
        add_list(s, "binding", hello->binding, hello->ranks);
    if (hello->mig)
        add_list(s, "mig", hello->mig, hello->ranks);
    end(ev);
    say(ev, "%s %s: %s on %d rank%s of %d host%s, %s", hello->program, hello->version,
        hello->model->name, hello->ranks, hello->ranks == 1 ? "" : "s", hello->nhosts,
        hello->nhosts == 1 ? "" : "s", pl_layout_text(text, hello->layout));
}

void tr_event_memory(struct tr_events *ev, const struct pl_memory *planned, double budget_bytes)
{
    struct str *s;
    char a[24], b[24];

    if (!ev)
        return;
    s = begin(ev, "memory");
    field_json(s, "planned", pl_memory_json(planned));
    field(s, "budget", budget_bytes);
    end(ev);
    say(ev, "memory: %s planned on rank %d, of %s", str_human_bytes(a, planned->total),
        planned->rank, str_human_bytes(b, budget_bytes));
}

/* Four digits: enough for a chart, and the line stays short. */
static void add_busy(struct str *out, const struct tr_step *step)
{
    int each = (step->ranks + TR_BUSY_MAX - 1) / TR_BUSY_MAX;

    assert(each > 0);
    str_add(out, ",\"busy\":[");
    for (int i = 0; i < step->ranks; i += each) {
        double most = step->busy_ms[i];

        for (int k = i + 1; k < i + each && k < step->ranks; k++)
            most = fmax(most, step->busy_ms[k]);
        str_addf(out, isfinite(most) ? "%s%.4g" : "%snull", i ? "," : "", most);
    }
    str_addc(out, ']');
}

void tr_event_step(struct tr_events *ev, const struct tr_step *step)
{
    struct str *s;

    if (!ev)
        return;
    s = begin(ev, "step");
    field(s, "n", step->n);
    str_addf(s, ",\"warmup\":%s", step->warmup ? "true" : "false");
    field(s, "ms", step->ms);
    field(s, "tokens", (double)step->tokens);
    field(s, "loss", step->loss);
    field(s, "aux_loss", step->aux_loss);
    if (!isnan(step->z_loss))
        field(s, "z_loss", step->z_loss);
    if (!isnan(step->moe_z_loss))
        field(s, "moe_z_loss", step->moe_z_loss);
    if (!isnan(step->mtp_loss))
        field(s, "mtp_loss", step->mtp_loss);
    field(s, "grad_norm", step->grad_norm);
    field(s, "lr", step->lr);
    if (step->skips)
        str_addf(s, ",\"skipped\":%s", step->skipped ? "true" : "false");
    str_add(s, ",\"phases\":{");
    for (int i = 0; i < TR_PHASES; i++) {
        str_addf(s, "%s\"%s\":", i ? "," : "", tr_phase_names[i]);
        add_number(s, step->phase_ms[i]);
    }
    str_add(s, "},\"ranks\":{\"min\":");
    add_number(s, step->rank_ms_min);
    field(s, "median", step->rank_ms_median);
    field(s, "max", step->rank_ms_max);
    field(s, "slowest", step->slowest);
    if (step->busy_ms)
        add_busy(s, step);
    str_addc(s, '}');
    end(ev);
    say(ev, "step %5d%s%s  loss %.4f  norm %.3f  lr %.2e  %8.1f ms  %8.0f tokens/s", step->n,
        step->warmup ? " (warm-up)" : "", step->skipped ? " (skipped)" : "", step->loss,
        step->grad_norm, step->lr, step->ms, (double)step->tokens / step->ms * 1e3);
}

void tr_layer_stats_add(struct str *out, const struct tr_layer_stats *layer)
{
    if (layer->layer < 0)
        str_add(out, "\"layer\":null");
    else
        str_addf(out, "\"layer\":%d", layer->layer);
    field(out, "grad_norm", layer->grad_norm);
    field(out, "params_norm", layer->params_norm);
    if (!layer->tokens)
        return;
    str_add(out, ",\"tokens_per_expert\":[");
    for (int i = 0; i < layer->experts; i++)
        str_addf(out, "%s%.15g", i ? "," : "", layer->tokens[i]);
    str_addc(out, ']');
    field(out, "imbalance", layer->imbalance);
}

void tr_event_layers(struct tr_events *ev, const struct tr_step *step)
{
    for (int i = 0; ev && step->layer && i < step->nlayers; i++) {
        struct str *s = begin(ev, "layer");

        field(s, "n", step->n);
        str_addc(s, ',');
        tr_layer_stats_add(s, &step->layer[i]);
        end(ev);
    }
}

void tr_event_validation(struct tr_events *ev, int step, double loss, int64_t tokens)
{
    struct str *s;

    if (!ev)
        return;
    s = begin(ev, "validation");
    field(s, "n", step);
    field(s, "loss", loss);
    field(s, "tokens", (double)tokens);
    end(ev);
    say(ev, "step %5d  validation loss %.4f over %lld tokens", step, loss, (long long)tokens);
}

/* Without a measured step there are no times. */
static double measured(const struct tr_summary *summary, double value)
{
    return summary->steps ? value : (double)NAN;
}

static void add_experts(struct str *s, const struct tr_summary *summary)
{
    if (!summary->moe_layers) {
        str_add(s, ",\"experts\":null");
        return;
    }
    str_add(s, ",\"experts\":{\"imbalance\":");
    add_number(s, measured(summary, summary->imbalance));
    str_add(s, ",\"layers\":[");
    for (int i = 0; i < summary->moe_layers; i++) {
        if (i)
            str_addc(s, ',');
        add_number(s, measured(summary, summary->uneven[i]));
    }
    str_add(s, "]}");
}

void tr_event_summary(struct tr_events *ev, const struct tr_summary *summary)
{
    struct str *s;
    char a[24], b[24];

    if (!ev)
        return;
    s = begin(ev, "summary");
    field(s, "steps", summary->steps);
    field(s, "warmup_steps", summary->warmup_steps);
    field(s, "tokens_per_s", measured(summary, summary->tokens_per_s));
    field(s, "tokens_per_s_se", measured(summary, summary->tokens_per_s_se));
    str_add(s, ",\"step_ms\":{\"median\":");
    add_number(s, measured(summary, summary->ms_median));
    field(s, "p10", measured(summary, summary->ms_p10));
    field(s, "p90", measured(summary, summary->ms_p90));
    field(s, "ci95", measured(summary, summary->ms_ci95));
    str_add(s, "},\"memory\":{\"planned\":");
    {
        AUTO_JSON *planned = pl_memory_json(summary->planned);
        AUTO_FREE char *text = jx_dump(planned);

        str_add(s, text);
    }
    field_json(s, "measured", pl_memory_json(summary->measured));
    field(s, "resident_growth", summary->resident_growth_bytes);
    str_addc(s, '}');
    if (summary->steps && summary->joules > 0)
        field(s, "joules", summary->joules);
    if (summary->steps && *summary->disturbed)
        field_text(s, "disturbed", summary->disturbed);
    field(s, "loss_first", summary->loss_first);
    field(s, "loss_last", summary->loss_last);
    if (summary->skips)
        field(s, "skipped_steps", summary->skipped);
    add_experts(s, summary);
    field_text(s, "ended", summary->ended);
    end(ev);
    if (summary->steps)
        say(ev,
            "%.0f tokens/s (standard error %.0f): median step %.1f ms +- %.1f over %d steps, loss "
            "%.4f to %.4f",
            summary->tokens_per_s, summary->tokens_per_s_se, summary->ms_median, summary->ms_ci95,
            summary->steps, summary->loss_first, summary->loss_last);
    else
        say(ev, "no step was measured");
    if (summary->steps && summary->joules > 0)
        say(ev, "energy: %.4g J a step", summary->joules / summary->steps);
    if (summary->steps && *summary->disturbed)
        say(ev, "disturbed: %s", summary->disturbed);
    if (summary->skips)
        say(ev, "%d of %d steps were skipped", summary->skipped, summary->trained);
    if (summary->steps && summary->moe_layers)
        say(ev, "experts: the busiest of a layer had %.2f x the mean load, averaged over %d layers",
            summary->imbalance, summary->moe_layers);
    say(ev, "memory: peak %s on rank %d, %s planned", str_human_bytes(a, summary->measured->total),
        summary->measured->rank, str_human_bytes(b, summary->planned->total));
}

void tr_event_checkpoint(struct tr_events *ev, int step, const char *path, double bytes, double ms,
                         double held_ms)
{
    struct str *s;
    char a[24];

    if (!ev)
        return;
    s = begin(ev, "checkpoint");
    field(s, "n", step);
    field_text(s, "path", path);
    field(s, "bytes", bytes);
    field(s, "ms", ms);
    field(s, "held_ms", held_ms);
    end(ev);
    say(ev, "step %5d  checkpoint %s, %s in %.0f ms, training held for %.0f ms", step, path,
        str_human_bytes(a, bytes), ms, held_ms);
}

void tr_event_resumed(struct tr_events *ev, int step, const char *path)
{
    struct str *s;

    if (!ev)
        return;
    s = begin(ev, "resumed");
    field(s, "n", step);
    field_text(s, "path", path);
    end(ev);
    say(ev, "step %5d  resumes from %s", step, path);
}

void tr_event_warning(struct tr_events *ev, const char *what, const char *detail)
{
    struct str *s;

    if (!ev)
        return;
    s = begin(ev, "warning");
    field_text(s, "what", what);
    field_text(s, "detail", detail);
    end(ev);
    say(ev, "warning: %s: %s", what, detail);
}

static void add_stuck(struct str *out, const struct tr_stuck *stuck)
{
    str_addf(out, "{\"rank\":%d", stuck->rank);
    field_text(out, "host", stuck->host);
    field_text(out, "state", stuck->state);
    field_text(out, "phase", stuck->phase);
    field_text(out, "operation", stuck->operation);
    field_text(out, "group", stuck->group);
    if (stuck->phase)
        field(out, "n", stuck->step);
    else
        str_add(out, ",\"n\":null");
    field(out, "seconds", stuck->seconds);
    str_addc(out, '}');
}

void tr_event_hang(struct tr_events *ev, const struct tr_hang_event *hang)
{
    struct str *s;

    if (!ev)
        return;
    s = begin(ev, "hang");
    field_text(s, "reason", hang->reason);
    field_text(s, "detail", hang->detail);
    field(s, "seconds", hang->seconds);
    field(s, "waiting", hang->waiting);
    str_add(s, ",\"missing\":[");
    for (int i = 0; i < hang->nmissing; i++) {
        if (i)
            str_addc(s, ',');
        add_stuck(s, &hang->missing[i]);
    }
    str_addc(s, ']');
    end(ev);
}

static struct str *begin_error(struct tr_events *ev, enum tr_error cls, int rank,
                               const char *detail)
{
    struct str *s = begin(ev, "error");

    field_text(s, "class", tr_error_names[cls]);
    if (rank >= 0)
        field(s, "rank", rank);
    else
        str_add(s, ",\"rank\":null");
    field_text(s, "detail", detail);
    return s;
}

void tr_event_error(struct tr_events *ev, enum tr_error cls, int rank, const char *detail)
{
    if (!ev)
        return;
    begin_error(ev, cls, rank, detail);
    end(ev);
}

void tr_event_oom(struct tr_events *ev, int rank, enum pl_mem_class cls, double asked_bytes,
                  double budget_bytes, const char *detail)
{
    struct str *s;

    if (!ev)
        return;
    s = begin_error(ev, TR_ERROR_OOM, rank, detail);
    field_text(s, "memory_class", pl_mem_class_names[cls]);
    field(s, "asked", asked_bytes);
    field(s, "budget", budget_bytes);
    end(ev);
}

void tr_event_stopped(struct tr_events *ev, int step, const char *reason)
{
    struct str *s;

    if (!ev)
        return;
    s = begin(ev, "stopped");
    field(s, "n", step);
    field_text(s, "reason", reason);
    end(ev);
    say(ev, "step %5d  stopped: %s", step, reason);
}
