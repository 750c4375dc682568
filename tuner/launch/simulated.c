/*
 * The simulated launcher: a dry campaign on any cluster, on no cluster at all. Nothing that it says
 * is a measurement: each of its events has "simulated": true.
 *
 *     "launcher": {"kind": "simulated", "noise": 0.02, "failures": 0, "speed": 100, "seed": 1}
 *
 * A trial's step takes what the cost model says of the problem that it runs, which may be a smaller
 * one, with the pipeline executed event by event instead of its closed form, times a factor
 * exp(noise x normal) of the trial and one of each step. A layout that does not fit runs out of
 * memory; `failures` is the share of attempts that crash. The clock runs `speed` times as fast.
 * Same seed, trial and attempt: same result.
 */
#include <errno.h>
#include <math.h>

#include "tuner/core/attempt.h"
#include "tuner/core/campaign.h"
#include "tuner/core/engine.h"
#include "tuner/core/spec.h"
#include "tuner/launch/launch.h"
#include "tuner/output/observe.h"
#include "tuner/results/view.h"
#include "tuner/state/state.h"
#include "tuner/trainers/trainers.h"

/* What it knows of an attempt. */
struct play {
    uint64_t end_at; /* monotonic ms */
};

struct wishes {
    double noise, failures, speed;
    int seed;
};

static int parse(struct wishes *wishes, const json_t *body, struct err *error)
{
    static const char *const keys[] = {"kind", "noise", "failures", "speed", "seed", NULL};
    const json_t *v = json_object_get(body, "launcher");
    int r;

    *wishes = (struct wishes){.noise = 0.02, .speed = 100, .seed = 1};
    if ((r = jx_keys(v, keys, error)) < 0 ||
        (r = jx_get_f64(&wishes->noise, v, "noise", 0, 1, error)) < 0 ||
        (r = jx_get_f64(&wishes->failures, v, "failures", 0, 1, error)) < 0 ||
        (r = jx_get_f64(&wishes->speed, v, "speed", 1e-3, 1e9, error)) < 0 ||
        (r = jx_get_int(&wishes->seed, v, "seed", 0, INT32_MAX, error)) < 0)
        return err_under(error, "/launcher");
    return 0;
}

static int ready(struct tn_service *svc, const struct tn_spec *spec, struct err *error)
{
    (void)svc;
    (void)spec;
    (void)error;
    return 0;
}

static int admit(const struct tn_service *svc, const struct tn_spec *spec, struct err *error)
{
    struct wishes w;

    (void)svc;
    for (int i = 0; i < spec->se.nclusters; i++)
        if (spec->se.objective == PL_TOKENS_PER_JOULE && !pl_watts_known(&spec->se.cluster[i]))
            return err_at(error, -EINVAL, "/objective",
                          "tokens_per_joule: the simulator knows no watts of this cluster; add "
                          "busy_watts and idle_watts to it");
    return parse(&w, spec->body, error);
}

static bool reserve(struct tn_attempt *attempt)
{
    (void)attempt;
    return true;
}

static void release(struct tn_attempt *attempt)
{
    (void)attempt;
}

/* What was simulated as a Chrome trace, a lane for each stage. A picture that cannot be written is
 * missing, no more. */
static void keep_timeline(const struct tn_attempt *attempt, const struct pl_timeline *timeline)
{
    AUTO_FREE char *path = mem_printf("%s/%s", attempt->folder, TN_TIMELINE_FILE);
    AUTO_JSON *v = pl_timeline_trace(timeline);
    AUTO_FREE char *text = NULL;
    struct err e = {0};

    json_object_set_new(v, "otherData", json_pack("{s:b}", "simulated", 1));
    text = jx_dump(v);
    if (file_write_atomic(path, text, strlen(text), 0600, &e) < 0)
        tn_log_attempt(LOG_WARN, attempt, ": %s", e.text);
}

/* Seconds of a step: the cost model with the pipeline's part by the event simulator. Watts are the
 * cost model's. */
static double step_seconds(double *ret_watts, const struct tn_attempt *attempt,
                           const struct pl_problem *problem)
{
    struct pl_cost_ctx *x = pl_cost_ctx_new(problem, NULL);
    struct pl_stage_time *store = NULL;
    struct pl_timeline t = {0};
    struct pl_pipe pipe;
    struct pl_cost cost;
    double seconds;

    pl_cost_at(&cost, x, &attempt->trial->run.layout);
    seconds = cost.total;
    *ret_watts = pl_watts(NULL, problem->cluster, &attempt->trial->run.layout, &cost);
    pl_pipe_of(&pipe, &store, x, &attempt->trial->run.layout);
    if (pl_simulate(&t, &pipe, NULL) == 0) {
        double exact = seconds - pl_pipe_seconds(&pipe) + t.total;

        seconds = exact > 0 ? exact : seconds;
        keep_timeline(attempt, &t);
        pl_timeline_done(&t);
    }
    free(store);
    pl_cost_ctx_free(x);
    return seconds;
}

static void line(struct str *out, const char *event, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void line(struct str *out, const char *event, const char *fmt, ...)
{
    va_list ap;

    str_addf(out, "{\"v\":1,\"event\":\"%s\",\"t\":%.3f,\"simulated\":true,", event,
             clock_wall_s());
    va_start(ap, fmt);
    str_vaddf(out, fmt, ap);
    va_end(ap);
    str_add(out, "}\n");
}

/* The whole event file of the attempt; returns its seconds on the simulated machine. */
static double simulate_events(struct str *out, const struct tn_attempt *attempt,
                              const struct wishes *wishes)
{
    const struct tn_spec *s = attempt->campaign->engine->spec;
    struct pl_problem p = tn_trial_problem(attempt->trial);
    struct pl_memory memory;
    struct rng rng;
    double ms, start = s->se.trial_start_s, total = 0, sum = 0, sum2 = 0, mean, se;
    double tokens = tn_trial_tokens(attempt->trial), watts;
    AUTO_JSON *planned = NULL;
    AUTO_FREE char *text = NULL;
    AUTO_STR joules = {0};
    int warm = attempt->limits.warmup_steps, n = attempt->limits.min_steps;

    rng_seed(&rng, (uint64_t)wishes->seed * 1000003 + (uint64_t)attempt->trial->n * 101 +
                       (uint64_t)attempt->number);
    pl_memory_worst(&memory, &p, &attempt->trial->run.layout);
    planned = pl_memory_json(&memory);
    text = jx_dump(planned);
    line(out, "hello", "\"program\":\"simulated\",\"ranks\":%d", attempt->trial->run.layout.world);
    line(out, "memory", "\"planned\":%s", text);
    if (memory.total > p.cluster->device.memory_gib * 0x1p30) {
        line(out, "error", "\"class\":\"oom\",\"rank\":%d,\"detail\":\"%.3g GB do not fit\"",
             memory.rank, memory.total / 1e9);
        return start;
    }
    if (rng_unit(&rng) < wishes->failures) {
        line(out, "error", "\"class\":\"comm\",\"rank\":0,\"detail\":\"simulated failure\"");
        return start;
    }
    ms = 1000 * step_seconds(&watts, attempt, &p) * exp(wishes->noise * rng_normal(&rng));
    for (int i = 1; i <= warm + n; i++) {
        double one = ms * exp(wishes->noise * rng_normal(&rng));

        total += one / 1000;
        sum += i > warm ? one : 0;
        sum2 += i > warm ? one * one : 0;
        line(out, "step", "\"n\":%d,\"warmup\":%s,\"ms\":%.4f,\"tokens\":%.0f,\"loss\":null", i,
             i <= warm ? "true" : "false", one, tokens);
    }
    mean = sum / n;
    se = n > 1 ? sqrt(fmax(sum2 / n - mean * mean, 0) / (n - 1)) : 0;
    if (pl_watts_known(p.cluster))
        str_addf(&joules, ",\"joules\":%.6g", watts * sum / 1000);
    line(out, "summary",
         "\"steps\":%d,\"tokens_per_s\":%.6g,\"tokens_per_s_se\":%.6g,\"step_ms\":{\"median\":%.6g,"
         "\"ci95\":%.6g},\"memory\":{\"planned\":%s}%s",
         n, tokens * 1000 / mean, tokens * 1000 / mean * se / mean, mean, 1.96 * se, text,
         str_text(&joules));
    return start + total;
}

/* The attempt ends when its time is over: the tick of attempt.c sees to it. */
static int start(struct tn_attempt *attempt, struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/events", attempt->folder);
    AUTO_STR text = {0};
    struct wishes w;
    double seconds;
    int r = parse(&w, attempt->campaign->engine->spec->body, error);

    if (r < 0)
        return r;
    attempt->trainer = &tn_trainer_partune; /* whatever it stands for, its events are ours */
    seconds = simulate_events(&text, attempt, &w);
    r = file_write_atomic(path, text.text, text.len, 0600, error);
    if (r < 0)
        return r;
    ((struct play *)attempt->launch)->end_at = tn_now_ms() + (uint64_t)(1000 * seconds / w.speed);
    tn_attempt_tick_in(attempt, (uint64_t)(1000 * seconds / w.speed));
    return 0;
}

static int adopt(struct tn_attempt *attempt, const struct db_attempt *row, struct err *error)
{
    int r;

    (void)row;
    if (!file_exists(attempt->folder)) {
        r = file_mkdirs(attempt->folder, 0700, error);
        if (r < 0)
            return r;
    }
    r = start(attempt, error);
    return r < 0 ? r : 1;
}

static void tick(struct tn_attempt *attempt)
{
    const struct play *play = attempt->launch;

    if (tn_now_ms() < play->end_at && attempt->stop == TN_STOP_NONE)
        return;
    attempt->exit = (struct tn_exit){.known = true};
    tn_attempt_ended(attempt);
}

static void stop(struct tn_attempt *attempt)
{
    struct play *play = attempt->launch;

    play->end_at = 0; /* at the next tick */
}

const struct tn_launcher tn_launcher_simulated = {
    .name = TN_SIMULATED,
    .runs = "nowhere: no training job runs, the cost model answers",
    .state = sizeof(struct play),
    .elsewhere = true,
    .several = true,
    .ready = ready,
    .admit = admit,
    .reserve = reserve,
    .release = release,
    .start = start,
    .adopt = adopt,
    .stop = stop,
    .tick = tick,
};
