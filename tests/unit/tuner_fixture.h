/* A service in a fresh data directory, on a loop of its own, with a trainer that only sleeps. */
#ifndef TESTS_UNIT_TUNER_FIXTURE_H
#define TESTS_UNIT_TUNER_FIXTURE_H

#include "tests/unit/unit.h"

#include <errno.h>
#include <sys/stat.h>

#include "tuner/machine/proc.h"
#include "tuner/tuner.h"

struct fixture {
    uv_loop_t loop;
    struct tn_service *svc;
    struct tn_config config;
    char *folder, *data, *train, *supervisor;
};

/* A campaign on 2 devices; MORE is put last, so that its keys win. */
#define CAMPAIGN(more)                                                                             \
    "{'name': 'test', 'model': {'name': 'tiny', 'layers': 4, 'hidden': 64, 'heads': 4, 'ffn': "    \
    "128, 'vocab': 256,"                                                                           \
    " 'seq': 64}, 'cluster': {'name': 'two', 'nodes': 1, 'devices_per_node': 2, 'oversubscribe': " \
    "true, 'device':"                                                                              \
    " {'name': 'core', 'memory_gib': 24, 'peak_tflops': {'fp32': 0.1}, 'memory_gbs': 10},"         \
    " 'links': [{'span': 2, 'gbs': 5, 'latency_us': 1, 'kind': 'shm'}]},"                          \
    " 'WORKLOAD': 0, 'TRIAL': 0, " more "}"

static inline void fixture_start(struct fixture *f)
{
    struct err e = {0};

    uv_loop_init(&f->loop);
    if (tn_service_open(&f->svc, &f->loop, &f->config, &e) < 0)
        fail_msg("open: %s", e.text);
}

static inline void fixture_stop(struct fixture *f)
{
    f->svc = tn_service_close(f->svc);
    for (int i = 0; i < 200 && uv_loop_close(&f->loop) == UV_EBUSY; i++) {
        uv_run(&f->loop, UV_RUN_NOWAIT);
        usleep(10000);
    }
}

static inline void fixture_reopen(struct fixture *f)
{
    fixture_stop(f);
    fixture_start(f);
}

/* OPTIONS go to tests/fault/fake_train. */
static inline void fixture_open(struct fixture *f, const char *name, const char *options)
{
    const char *build = getenv("PT_BUILD") ? getenv("PT_BUILD") : ".";
    AUTO_FREE char *script = NULL;
    struct err e = {0};

    log_setup("test", getenv("PT_VERBOSE") ? LOG_DEBUG : LOG_ERROR);
    memset(f, 0, sizeof(*f));
    f->folder = unit_folder(name);
    f->data = mem_printf("%s/data", f->folder);
    f->train = mem_printf("%s/train", f->folder);
    f->supervisor = mem_printf("%s/partune-run", build);
    script = mem_printf("#!/bin/sh\nexec '%s/tests/fault/fake_train' %s \"$@\"\n", build, options);
    if (file_write_atomic(f->train, script, strlen(script), 0700, &e) < 0)
        fail_msg("%s", e.text);
    f->config = (struct tn_config){
        .data_dir = f->data, .train = f->train, .supervisor = f->supervisor, .grace_ms = 300};
    fixture_start(f);
}

static inline void fixture_close(struct fixture *f)
{
    fixture_stop(f);
    file_remove_tree(f->folder, NULL);
    free(f->folder);
    free(f->data);
    free(f->train);
    free(f->supervisor);
}

/* What CAMPAIGN left open. */
static inline json_t *fixture_body(const char *text)
{
    json_t *v = unit_json(text);

    json_object_del(v, "WORKLOAD");
    json_object_del(v, "TRIAL");
    if (!json_object_get(v, "workload"))
        json_object_set_new(v, "workload", unit_json("{'global_batch': 8, 'seq': 64}"));
    if (!json_object_get(v, "trial"))
        json_object_set_new(v, "trial",
                            unit_json("{'warmup_steps': 2, 'min_steps': 3, 'max_steps': 5}"));
    return v;
}

static inline void fixture_create(struct fixture *f, char id[32], const char *text)
{
    AUTO_JSON *body = fixture_body(text), *c = NULL;
    struct tn_draft *d = NULL;
    struct err e = {0};

    if (tn_campaign_check(&d, NULL, f->svc, body, NULL, &e) < 0 ||
        tn_campaign_create(&c, f->svc, d, "test", NULL, NULL, &e) < 0)
        fail_msg("create: %s %s", e.pointer, e.text);
    snprintf(id, 32, "%s", json_string_value(json_object_get(c, "id")));
}

static inline void fixture_spin(struct fixture *f, int ms)
{
    uint64_t until = clock_mono_ns() + (uint64_t)ms * 1000000;

    while (clock_mono_ns() < until) {
        uv_run(&f->loop, UV_RUN_NOWAIT);
        usleep(2000);
    }
}

static inline const char *text_at(const json_t *v, const char *key)
{
    const char *s = json_string_value(json_object_get(v, key));

    return s ? s : "";
}

static inline double number_at(const json_t *v, const char *part, const char *key)
{
    return json_number_value(json_object_get(json_object_get(v, part), key));
}

/* The campaign as soon as it is in STATE and nothing of it runs. */
static inline json_t *fixture_wait(struct fixture *f, const char *id, const char *state)
{
    json_t *c = NULL;
    struct err e = {0};

    for (int i = 0; i < 3000; i++) {
        struct tn_stats s;

        fixture_spin(f, 20);
        if (tn_campaign_get(&c, f->svc, id, &e) < 0)
            fail_msg("%s", e.text);
        tn_stats(&s, f->svc);
        if (!strcmp(text_at(c, "state"), state) && s.all.running_attempts == 0)
            return c;
        if (i == 2999)
            fail_msg("campaign is %s (%s), not %s", text_at(c, "state"), text_at(c, "reason"),
                     state);
        json_decref(c);
    }
    return NULL;
}

static inline json_t *fixture_trial(struct fixture *f, const char *id, int64_t n)
{
    json_t *t = NULL;
    struct err e = {0};

    if (tn_trial_get(&t, f->svc, id, n, &e) < 0)
        fail_msg("%s", e.text);
    return t;
}

static inline void fixture_run_until_trial(struct fixture *f, const char *id, int64_t n,
                                           const char *state)
{
    for (int i = 0; i < 1000; i++) {
        json_t *t = fixture_trial(f, id, n);
        bool there = !strcmp(text_at(t, "state"), state);

        json_decref(t);
        if (there)
            return;
        fixture_spin(f, 10);
    }
    fail_msg("trial %lld never became %s", (long long)n, state);
}

/* The trial is in STATE after so many ATTEMPTS; 0: however many. */
static inline void fixture_expect_trial(struct fixture *f, const char *id, int64_t n,
                                        const char *state, int attempts)
{
    json_t *t = fixture_trial(f, id, n);

    assert_string_equal(text_at(t, "state"), state);
    if (attempts > 0)
        assert_int_equal(json_integer_value(json_object_get(t, "attempts")), attempts);
    json_decref(t);
}

/* The trial once it is in a final state. */
static inline json_t *fixture_wait_trial(struct fixture *f, const char *id, int64_t n)
{
    for (int i = 0; i < 3000; i++) {
        json_t *t = fixture_trial(f, id, n);

        if (db_trial_final(text_at(t, "state")))
            return t;
        json_decref(t);
        fixture_spin(f, 10);
    }
    fail_msg("trial %lld never ended", (long long)n);
    return NULL;
}

/* Processes that carry a mark of this service. */
static inline int fixture_processes(struct fixture *f)
{
    AUTO_FREE char *command =
        mem_printf("grep -lsz '^%s=%s/' /proc/[0-9]*/environ 2>/dev/null | wc -l", TN_MARK_ENV,
                   tn_instance(f->svc));
    FILE *p = popen(command, "r");
    int n = -1;

    if (!p || fscanf(p, "%d", &n) != 1)
        fail_msg("cannot count processes");
    pclose(p);
    return n;
}

#endif
