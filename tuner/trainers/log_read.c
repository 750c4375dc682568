/*
 * What other trainers print, read as steps.
 *
 * Programs print on both streams, and every rank may print its own copy of a line, so a step counts
 * once, by its number, whichever copy comes first. Lines of validation are no steps. A loss that is
 * printed as nan or inf ends the trial; a line that names another failure (output/trouble.c) is
 * only remembered, since programs live on after some of them.
 *
 * The forms are those of the last two years: Megatron-LM and Megatron-Bridge (megatron/training/
 * training.py, bridge/training/utils/train_utils.py), torchtitan (components/metrics.py; on stderr
 * until September 2025, `wps:` for `tps:` until January 2025), DeepSpeed (utils/timer.py and
 * runtime/pipe/engine.py).
 */
#include <assert.h>
#include <ctype.h>
#include <math.h>

#include "tuner/core/attempt.h"
#include "tuner/core/campaign.h"
#include "tuner/core/engine.h"
#include "tuner/core/spec.h"
#include "tuner/core/trainer.h"
#include "tuner/output/log_state.h"
#include "tuner/output/observe.h"
#include "tuner/output/trouble.h"
#include "tuner/trainers/log.h"

enum { LIVED_ON = 2 }; /* so many steps after a suspicion show that it was harmless */

void tn_attempt_fail(struct tn_attempt *attempt, const char *cls, const char *text)
{
    assert(*cls);
    if (attempt->seen.error)
        return;
    attempt->seen.error = true;
    snprintf(attempt->seen.error_class, sizeof(attempt->seen.error_class), "%s", cls);
    snprintf(attempt->seen.detail, sizeof(attempt->seen.detail), "%.390s", text);
}

/* ---- text ---------------------------------------------------------------- */

/* TEXT without escape sequences, other control characters as blanks. */
static void plain_text(struct str *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];

        if (c == 0x1b && i + 1 < len && text[i + 1] == '[') { /* CSI: up to its final byte */
            for (i += 2; i < len && (text[i] < 0x40 || text[i] > 0x7e); i++)
                ;
        } else if (c == 0x1b && i + 1 < len && text[i + 1] == ']') { /* OSC: up to BEL or ESC \ */
            for (i += 2; i < len && text[i] != 0x07 && text[i] != 0x1b; i++)
                ;
        } else {
            str_addc(out, c < ' ' || c == 0x7f ? ' ' : (char)c);
        }
    }
}

/* The number at TEXT, with commas between its digits or without: false if there is none. nan and
 * inf are numbers here. */
static bool number_at(double *ret, const char *text)
{
    char digits[64], *end;
    size_t n = 0;

    text += strspn(text, " ");
    for (const char *p = text; *p && n < sizeof(digits) - 1; p++)
        if (isalnum((unsigned char)*p) || *p == '.' || *p == '+' || *p == '-')
            digits[n++] = *p;
        else if (*p != ',' || !isdigit((unsigned char)p[1]))
            break;
    digits[n] = '\0';
    *ret = strtod(digits, &end);
    return end != digits;
}

/* LABEL as a word of its own: "step:" is not in "global_step:". */
static const char *find_label(const char *text, const char *label)
{
    for (const char *at = text; (at = strstr(at, label)); at++)
        if (at == text || (!isalnum((unsigned char)at[-1]) && at[-1] != '_' && at[-1] != '-'))
            return at;
    return NULL;
}

/* The finite number after LABEL, or NAN. */
static double after(const char *text, const char *label)
{
    const char *at = find_label(text, label);
    double v;

    return at && number_at(&v, at + strlen(label)) && isfinite(v) ? v : (double)NAN;
}

/* ---- steps --------------------------------------------------------------- */

static double tokens_a_step(const struct tn_attempt *attempt)
{
    return tn_trial_tokens(attempt->trial);
}

/* The loss after LABEL, NAN where there is none. Pipeline stages that have no loss print -1. */
static double loss_after(struct tn_attempt *attempt, const char *text, const char *label)
{
    const char *at = find_label(text, label);
    double v;

    if (!at || !number_at(&v, at + strlen(label)))
        return (double)NAN;
    if (!isfinite(v))
        tn_attempt_fail(attempt, "numeric", text);
    return isfinite(v) && v >= 0 ? v : (double)NAN;
}

static char *step_json(const struct tn_attempt *attempt, double number, double ms, double loss)
{
    return isnan(loss) ? mem_printf("{\"n\":%.0f,\"ms\":%.3f,\"tokens\":%.0f,\"loss\":null}",
                                    number, ms, tokens_a_step(attempt))
                       : mem_printf("{\"n\":%.0f,\"ms\":%.3f,\"tokens\":%.0f,\"loss\":%.6g}",
                                    number, ms, tokens_a_step(attempt), loss);
}

static enum tn_line step(struct tn_step_line *ret, struct tn_attempt *attempt, double number,
                         double ms, double loss)
{
    struct tn_log_state *log = &attempt->log;

    if (attempt->seen.steps > 0 && number >= 0 && number <= log->last_n) { /* another rank's copy */
        if (isnan(attempt->seen.loss_first))
            attempt->seen.loss_first = loss;
        if (isnan(attempt->seen.loss_last))
            attempt->seen.loss_last = loss;
        return TN_LINE_OTHER;
    }
    /* A rate of next to nothing is a step without end, which is no number in JSON. */
    if (!(ms > 0 && ms < 1e12) || !(number >= 0 && number < 1e15))
        return TN_LINE_NOTHING;
    if (log->suspect && log->stream == log->suspect_stream && ++log->steps_since >= LIVED_ON)
        log->suspect = NULL;
    log->last_n = number;
    ret->n = (int64_t)number;
    ret->ms = ms;
    tn_seen_step(&attempt->seen, ms, loss, attempt->seen.steps < attempt->limits.warmup_steps);
    ret->json = step_json(attempt, number, ms, loss);
    return TN_LINE_STEP;
}

/* A report of memory in use: the worst rank's counts. */
static void reached(struct tn_attempt *attempt, double bytes)
{
    const json_t *have = json_object_get(attempt->seen.reached, "total");

    if (!(bytes > 0 && bytes < 1e18) || (have && json_number_value(have) >= bytes))
        return;
    json_decref(attempt->seen.reached);
    attempt->seen.reached = json_pack("{s:f}", "total", bytes);
}

/* ---- the trainers -------------------------------------------------------- */

/* The number of " iteration        5/     100 |", or NAN. */
static double iteration_of(const char *text)
{
    for (const char *at = text; (at = strstr(at, "iteration ")); at++) {
        const char *p = at + strlen("iteration ");
        double n = 0;

        p += strspn(p, " ");
        if (isdigit((unsigned char)*p) && p[strspn(p, "0123456789")] == '/' && number_at(&n, p))
            return n;
    }
    return (double)NAN;
}

/* Bridge's rank 0 says "Step Time : 1.23s GPU utilization: ..." before its last rank prints the
 * line that has the step's number and a tenth of a millisecond. Where only rank 0 is shown, this is
 * all there is: one that no such line has followed when the next comes is a step. */
static enum tn_line bridge_step(struct tn_step_line *ret, struct tn_attempt *attempt,
                                double seconds)
{
    struct tn_log_state *log = &attempt->log;
    double ms = log->held_ms;

    if (log->exact || !(seconds > 0))
        return TN_LINE_OTHER;
    log->held_ms = seconds * 1000;
    return ms > 0 ? step(ret, attempt, attempt->seen.steps + 1, ms, (double)NAN) : TN_LINE_OTHER;
}

/* A loss that is nan is left out of the line; so it is where the iteration was skipped. */
static double megatron_loss(struct tn_attempt *attempt, const char *text)
{
    bool printed = find_label(text, "lm loss:") != NULL;

    if (!printed && attempt->log.had_loss && after(text, "number of skipped iterations:") == 0)
        tn_attempt_fail(attempt, "numeric", text);
    attempt->log.had_loss |= printed;
    if (after(text, "number of nan iterations:") > 0)
        tn_attempt_fail(attempt, "numeric", text);
    return loss_after(attempt, text, "lm loss:");
}

static enum tn_line megatron(struct tn_step_line *ret, struct tn_attempt *attempt, const char *text)
{
    double ms = after(text, "elapsed time per iteration (ms):"),
           seconds = after(text, "Step Time :"), n = iteration_of(text);

    reached(attempt, after(text, "max allocated:") * 1048576);
    reached(attempt, after(text, "mem-max-allocated-gigabytes:") * 1e9);
    if (!isnan(seconds))
        return bridge_step(ret, attempt, seconds);
    if (isnan(ms) || isnan(n))
        return TN_LINE_NOTHING;
    attempt->log.exact = true;
    return step(ret, attempt, n, ms, megatron_loss(attempt, text));
}

/* "step:  5  loss:  7.1234  grad_norm: 1.2  memory: 12.34GiB(15.42%)  tps: 1,234  tflops: ...":
 * tokens a second of one device. "validate step:" has the same words. */
static enum tn_line torchtitan(struct tn_step_line *ret, struct tn_attempt *attempt,
                               const char *text)
{
    const char *at = find_label(text, "step:");
    double tps, n;

    if (!at || !number_at(&n, at + strlen("step:")))
        return TN_LINE_NOTHING;
    tps = after(at, "tps:");
    if (isnan(tps))
        tps = after(at, "wps:");
    if (isnan(tps) || !find_label(at, "loss:"))
        return TN_LINE_NOTHING;
    reached(attempt, after(at, "memory:") * 1073741824);
    if (at - text >= 9 && !strncmp(at - 9, "validate ", 9))
        return TN_LINE_OTHER;
    return step(ret, attempt, n,
                tokens_a_step(attempt) * 1000 / (tps * attempt->trial->run.layout.world),
                loss_after(attempt, at, "loss:"));
}

/* Sequences in what DeepSpeed calls a step, for its rate. It takes every rank for a replica unless
 * it is given the mesh, so with tensor parallelism of its own it counts each sequence tp times.
 * What it counted is in the configuration that it prints: "train_batch_size ............. 128". */
static double deepspeed_batch(const struct tn_attempt *attempt)
{
    const struct pl_layout *l = &attempt->trial->run.layout;

    if (attempt->log.batch > 0)
        return attempt->log.batch;
    return (double)attempt->trial->run.workload.global_batch * (l->pp > 1 ? 1 : l->tp);
}

static void deepspeed_configuration(struct tn_attempt *attempt, const char *text)
{
    const char *at = find_label(text, "train_batch_size ...");
    double batch;

    if (!at)
        return;
    at += strlen("train_batch_size ");
    if (number_at(&batch, at + strspn(at, ".")) && batch >= 1 && batch < 1e12)
        attempt->log.batch = batch;
}

/* "[...] epoch=0/micro_step=10/global_step=10, RunningAvgSamplesPerSec=.., CurrSamplesPerSec=12.3,
 * MemAllocated=1.2GB, MaxMemAllocated=3.4GB", and with pipeline stages "steps: 10 loss: 7.1234 iter
 * time (s): 1.234 samples/sec: 25.9" as well. */
static enum tn_line deepspeed(struct tn_step_line *ret, struct tn_attempt *attempt,
                              const char *text)
{
    double rate = after(text, "CurrSamplesPerSec="), seconds = after(text, "iter time (s):");

    deepspeed_configuration(attempt, text);
    reached(attempt, after(text, "MaxMemAllocated=") * 1073741824);
    if (seconds > 0) {
        attempt->log.exact = true;
        return step(ret, attempt, after(text, "steps:"), seconds * 1000,
                    loss_after(attempt, text, "loss:"));
    }
    if (isnan(rate) || attempt->log.exact)
        return TN_LINE_NOTHING;
    return step(ret, attempt, after(text, "global_step="), deepspeed_batch(attempt) * 1000 / rate,
                (double)NAN);
}

/* ---- a line of a stream -------------------------------------------------- */

/* The first failure is the cause, until steps show that the program lives on. */
static bool suspect(struct tn_attempt *attempt, const char *text)
{
    struct tn_log_state *log = &attempt->log;
    const char *cls = tn_log_trouble(text);

    if (!cls)
        return false;
    if (!log->suspect) {
        log->suspect = cls;
        log->suspect_stream = log->stream;
        log->steps_since = 0;
        snprintf(log->detail, sizeof(log->detail), "%.390s", text + strspn(text, " "));
    }
    return true;
}

static const struct {
    const char *name;
    enum tn_line (*read)(struct tn_step_line *ret, struct tn_attempt *attempt, const char *text);
} parsers[] = {{"megatron", megatron}, {"torchtitan", torchtitan}, {"deepspeed", deepspeed}};

enum tn_line tn_log_line(struct tn_step_line *ret, struct tn_attempt *attempt,
                         enum tn_stream stream, const char *text, size_t len)
{
    AUTO_STR plain = {0};
    enum tn_line kind = TN_LINE_NOTHING;

    plain_text(&plain, text, len);
    attempt->log.stream = stream;
    for (size_t i = 0; i < ARRAY_LEN(parsers); i++)
        if (!strcmp(parsers[i].name, attempt->trainer->name))
            kind = parsers[i].read(ret, attempt, str_text(&plain));
    return suspect(attempt, str_text(&plain)) && kind == TN_LINE_NOTHING ? TN_LINE_OTHER : kind;
}

void tn_log_end(struct tn_attempt *attempt)
{
    struct tn_log_state *log = &attempt->log;
    struct tn_step_line last = {0};

    if (!log->exact && log->held_ms > 0)
        step(&last, attempt, attempt->seen.steps + 1, log->held_ms, (double)NAN);
    free(last.json);
}

void tn_log_blame(struct tn_attempt *attempt)
{
    const struct tn_log_state *log = &attempt->log;

    if (log->suspect && !attempt->seen.summary)
        tn_attempt_fail(attempt, log->suspect, log->detail);
}
