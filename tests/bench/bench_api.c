/*
 * Helpers of bench_api.sh.
 *
 *     bench_api seed DATA TRIALS            : a campaign "bench" that has ended, with so many
 * trials bench_api sse PORT TOKEN ID READERS   : milliseconds from a change to the moment when the
 * last of so many subscribers has heard of it
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "db/db.h"

enum { MAX_READERS = 20000 };

/* ---- seed ---------------------------------------------------------------- */

static const char layout[] =
    "{\"world\":16,\"tp\":2,\"sp\":1,\"cp\":1,\"pp\":2,\"vp\":1,\"schedule\":\"1f1b\",\"ep\":1,"
    "\"etp\":1,"
    "\"dp\":4,\"edp\":4,\"zero\":1,\"zero_scope\":\"ep-aware\",\"micro_batch\":4,\"recompute\":"
    "\"none\","
    "\"overlap_grad_reduce\":0,\"overlap_param_gather\":0,\"overlap_p2p\":0,\"overlap_moe_a2a\":0,"
    "\"precision\":\"bf16\",\"threads\":1}";

static int add_trial(struct db *w, struct rng *rng, int64_t now, struct err *e)
{
    struct db_trial t = {
        .campaign = "bench0000000",
        .kind = "search",
        .state = "queued",
        .repeat_of = DB_NULL,
        .search_id = DB_NULL,
        .layout = layout,
        .layout_text = "tp2 pp2 dp4 mb4 zero1",
        .why = "expected improvement 3.1 %, fits with probability 0.98",
        .predicted_tokens_per_s = 40000,
        .predicted_memory = 3e9,
        .predicted_fits = 0.98,
        .memory_planned =
            "{\"total\":3000000000,\"weights\":1000000000,\"activations\":2000000000}",
        .created = now,
        .started = now,
        .ended = now + 8000,
        .seconds = 8,
        .fidelity = DB_NULL,
        .devices = 8,
        .device_s = 64,
    };
    int64_t n;
    int r = db_trial_add(&n, w, &t, e);

    if (r < 0)
        return r;
    t.n = n;
    t.state = rng_below(rng, 10) ? "ok" : "oom";
    t.tokens_per_s = 30000 + 20000 * rng_unit(rng);
    t.tokens_per_s_se = 100;
    t.tokens_per_s_max = t.mfu = 0.4;
    t.step_ms = t.step_ms_p10 = t.step_ms_p90 = 100;
    t.memory = 1e9 + 1e9 * rng_unit(rng);
    t.phases = "{\"forward\":30.1,\"backward\":55.0,\"tp\":3.0,\"dp\":8.0,\"optimizer\":3.2}";
    t.memory_measured = t.memory_planned;
    t.failure = t.state[1] == 'o' ? "{\"class\":\"oom\",\"detail\":\"activations\",\"rank\":1,"
                                    "\"exit_code\":66,\"signal\":null}"
                                  : NULL;
    return db_trial_settle(w, &t, e);
}

static int seed_job(struct db *w, void *arg, struct err *e)
{
    int64_t now = clock_wall_ms();
    struct db_campaign c = {
        .id = "bench0000000",
        .name = "bench",
        .state = DB_RUNNING,
        .spec = "{}",
        .resolved = "{\"model\":{\"name\":\"m\"},\"cluster\":{\"name\":\"c\"},\"workload\":{"
                    "\"global_batch\":64}}",
        .objective = "tokens_per_s",
        .trainer = "partune",
        .launcher = "local",
        .space = "{\"legal\":100000,\"keys\":{}}",
        .tags = "[]",
        .notes = "",
        .owner = "bench",
        .created = now,
        .started = now,
        .ended = DB_NULL,
        .budget_trials = DB_NULL,
        .active_since = DB_NULL,
    };
    struct rng rng;
    int r = db_campaign_add(w, &c, e);

    rng_seed(&rng, 1);
    for (int i = 0; r == 0 && i < *(int *)arg; i++)
        r = add_trial(w, &rng, now, e);
    if (r == 0)
        r = db_campaign_move(w, c.id, DB_RUNNING, DB_DONE, "budget", now, e);
    return r;
}

static int seed(const char *data, int trials)
{
    AUTO_FREE char *path = mem_printf("%s/partune.db", data);
    struct db_writer *wr = NULL;
    struct db *w = NULL;
    struct err e;
    int r = db_open(&w, path, DB_WRITE, &e);

    if (r == 0)
        r = db_writer_start(&wr, w, &e);
    if (r == 0) {
        r = db_writer_call(wr, seed_job, &trials, &e);
        db_writer_stop(wr);
    }
    if (r < 0)
        fprintf(stderr, "seed: %s\n", e.text);
    return r < 0;
}

/* ---- subscribers --------------------------------------------------------- */

static int dial(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
        perror("connect");
        exit(1);
    }
    return fd;
}

static void say(int fd, const char *text)
{
    if (write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
        perror("write");
        exit(1);
    }
}

/* Read until each of N descriptors has sent WORD; false after 30 s of silence. */
static bool all_heard(struct pollfd *p, int n, const char *word)
{
    int left = n;
    char buf[65536];

    for (int i = 0; i < n; i++)
        p[i].events = POLLIN;
    while (left > 0) {
        if (poll(p, (nfds_t)n, 30000) <= 0)
            return false;
        for (int i = 0; i < n; i++) {
            ssize_t k = p[i].revents ? read(p[i].fd, buf, sizeof(buf) - 1) : -1;

            if (k <= 0)
                continue;
            buf[k] = '\0';
            if (p[i].events && strstr(buf, word)) {
                p[i].events = 0;
                left--;
            }
        }
    }
    return true;
}

static int sse(int port, const char *token, const char *id, int readers)
{
    AUTO_FREE char *get = mem_printf("GET /v1/campaigns/%s/events HTTP/1.1\r\nHost: localhost\r\n"
                                     "Authorization: Bearer %s\r\n\r\n",
                                     id, token);
    struct pollfd *p = mem_alloc((size_t)readers * sizeof(*p));
    struct rlimit files = {(rlim_t)readers + 64, (rlim_t)readers + 64};
    int changer;

    setrlimit(RLIMIT_NOFILE, &files);
    for (int i = 0; i < readers; i++) {
        p[i].fd = dial(port);
        say(p[i].fd, get);
    }
    changer = dial(port);
    if (!all_heard(p, readers, "retry:"))
        return 1;
    for (int i = 0; i < 5; i++) {
        AUTO_FREE char *body = mem_printf("{\"notes\":\"note %d\"}", i);
        AUTO_FREE char *patch = mem_printf(
            "PATCH /v1/campaigns/%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
            "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
            id, token, strlen(body), body);
        AUTO_FREE char *word = mem_printf("note %d", i);
        uint64_t from = clock_mono_ns();

        say(changer, patch);
        if (!all_heard(p, readers, word))
            return 1;
        printf("%.2f\n", (double)(clock_mono_ns() - from) / 1e6);
        fflush(stdout);
    }
    fflush(stdout);
    pause(); /* the caller looks at the server's memory, and kills */
    return 0;
}

int main(int argc, char **argv)
{
    int64_t n = 0, port = 0;

    if (argc == 4 && !strcmp(argv[1], "seed") && str_to_i64(&n, argv[3], 1, 10000000) == 0)
        return seed(argv[2], (int)n);
    if (argc == 6 && !strcmp(argv[1], "sse") && str_to_i64(&port, argv[2], 1, 65535) == 0 &&
        str_to_i64(&n, argv[5], 1, MAX_READERS) == 0)
        return sse((int)port, argv[3], argv[4], (int)n);
    return 2;
}
