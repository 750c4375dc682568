/*
 * nth FAILNTH.so [ROUNDS [KIND]]: the Nth allocation, write, fsync or SQLite step fails.
 * PT_JOBS: how many daemons share the rounds (8 with PT_LONG, else 1).
 *
 * A daemon runs with failnth.c preloaded. For N = 1, 1 + K, ... the Nth call of the kind fails once
 * (or, in a second round, every call from the Nth on until it is disarmed) while one script of
 * requests is played: make a campaign on the simulated cluster, list, change its notes, pause,
 * resume, let it end, delete. Each request must be answered, by success or by a problem document.
 * Allocations may end the process instead: mem_alloc() aborts, which is how small ones are handled.
 * Then a new daemon starts on the same directory. At the end of each round the database is whole,
 * and every trial of every campaign is in one state and counted once.
 *
 * A kind is through when a whole script was played without reaching its Nth call, or after ROUNDS.
 * There are hundreds of thousands of allocations, nearly all of them the same few in another turn
 * of the same loop; so with PT_LONG it is the first of each stack of callers that fails, as far as
 * a first run of the script has seen them (12 frames deep; addresses are not randomised for that).
 */
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/fault/failnth.h"

static const char *const kinds[] = {"none", "alloc", "write", "sync", "step", NULL};

static struct {
    const char *library, *build;
    char *folder, *page_path, *url, *bearer;
    struct fail_page *page;
    int pid, status;
    int count, failed; /* TAP */
    int refused;
    CURL *curl;
} t;

static __attribute__((format(printf, 2, 3))) void result(bool good, const char *fmt, ...)
{
    va_list ap;

    printf("%s %d - ", good ? "ok" : "not ok", ++t.count);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    fflush(stdout);
    t.failed += !good;
}

static void die(const char *why)
{
    printf("Bail out! %s\n", why);
    if (t.pid > 0)
        kill(t.pid, SIGKILL);
    exit(99);
}

static void nap(void)
{
    usleep(10000);
}

/* ---- the daemon ---------------------------------------------------------- */

static char *slurp(const char *name)
{
    AUTO_FREE char *path = mem_printf("%s/%s", t.folder, name);
    char *text = NULL;

    return file_read_all(&text, NULL, path, 1 << 20, NULL) < 0 ? NULL : text;
}

/* The library, by its name: the loader takes no path with a space in LD_PRELOAD. */
static void preload(void)
{
    const char *slash = strrchr(t.library, '/'), *others = getenv("LD_LIBRARY_PATH");
    AUTO_FREE char *folders = mem_printf("%.*s%s%s", (int)(slash - t.library), t.library,
                                         others ? ":" : "", others ? others : "");

    setenv("LD_LIBRARY_PATH", folders, 1);
    setenv("LD_PRELOAD", slash + 1, 1);
}

static void run_daemon(void)
{
    AUTO_FREE char *program = mem_printf("%s/partuned", t.build);
    AUTO_FREE char *data = mem_printf("%s/data", t.folder);
    AUTO_FREE char *log = mem_printf("%s/log", t.folder);
    int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    dup2(fd, STDERR_FILENO);
    dup2(fd, STDOUT_FILENO);
    personality(ADDR_NO_RANDOMIZE);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* the test may be ended itself */
    preload();
    setenv("PT_FAIL_PAGE", t.page_path, 1);
    execl(program, program, "--data", data, "--listen", "127.0.0.1:0", (char *)NULL);
    _exit(127);
}

static bool alive(void)
{
    if (t.pid > 0 && waitpid(t.pid, &t.status, WNOHANG) == 0)
        return true;
    t.pid = 0;
    return false;
}

/* A process that aborts takes a moment to be dead. */
static bool survives(void)
{
    for (int i = 0; i < 100 && alive(); i++)
        nap();
    return alive();
}

static char *after(char *text, const char *mark)
{
    char *at = text ? strstr(text, mark) : NULL;

    return at ? mem_printf("%.*s", (int)strcspn(at + strlen(mark), " \r\n"), at + strlen(mark))
              : NULL;
}

static void start(void)
{
    AUTO_FREE char *old = mem_printf("%s/log", t.folder);

    unlink(old); /* it names another port */
    t.page->kind = FAIL_NONE;
    t.page->pid = 0;
    t.pid = fork();
    if (t.pid == 0)
        run_daemon();
    free(t.url);
    free(t.bearer);
    t.url = t.bearer = NULL;
    for (int i = 0; i < 6000 && !t.url; i++) {
        AUTO_FREE char *log = slurp("log"), *token = slurp("data/token");

        if (!alive()) {
            printf("# %s\n", log ? log : "");
            die("the daemon does not start again");
        }
        t.url = after(log, "ready at ");
        if (t.url && token)
            t.bearer = mem_printf("Authorization: Bearer %.*s", (int)strcspn(token, "\n"), token);
        nap();
    }
    if (!t.url)
        die("the daemon is never ready");
}

static void stop(void)
{
    t.page->kind = FAIL_NONE;
    if (t.pid > 0) {
        kill(t.pid, SIGTERM);
        for (int i = 0; i < 3000 && alive(); i++)
            nap();
        if (alive())
            die("the daemon does not stop");
    }
}

/* ---- requests ------------------------------------------------------------ */

struct reply {
    long status;
    struct str body;
};

static size_t on_body(char *bytes, size_t size, size_t n, void *ctx)
{
    str_addn(&((struct reply *)ctx)->body, bytes, size * n);
    return size * n;
}

/* The status; 0 without an answer. */
static long call(struct reply *r, const char *method, const char *path, const char *body)
{
    AUTO_FREE char *url = mem_printf("%s%s", t.url, path);
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");

    str_trunc(&r->body, 0);
    r->status = 0;
    headers = curl_slist_append(headers, t.bearer);
    curl_easy_reset(t.curl);
    curl_easy_setopt(t.curl, CURLOPT_URL, url);
    curl_easy_setopt(t.curl, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(t.curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(t.curl, CURLOPT_TIMEOUT, 30L);
    curl_easy_setopt(t.curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(t.curl, CURLOPT_WRITEDATA, r);
    if (body)
        curl_easy_setopt(t.curl, CURLOPT_COPYPOSTFIELDS, body);
    if (curl_easy_perform(t.curl) == CURLE_OK)
        curl_easy_getinfo(t.curl, CURLINFO_RESPONSE_CODE, &r->status);
    curl_slist_free_all(headers);
    return r->status;
}

static const char *const campaign =
    "{\"name\":\"nth\",\"model\":\"gpt-1.4B\",\"cluster\":{\"profile\":\"dgx-a100\",\"nodes\":1},"
    "\"workload\":{\"global_batch\":8},\"trainer\":\"megatron\",\"budget\":{\"trials\":3},"
    "\"space\":{\"world\":[8],\"micro_batch\":[1,2]},"
    "\"launcher\":{\"kind\":\"simulated\",\"speed\":1000000},"
    "\"trial\":{\"warmup_steps\":1,\"min_steps\":3,\"max_steps\":3}}";

static char *id_of(const struct reply *r)
{
    const char *p = r->status == 201 ? strstr(str_text(&r->body), "\"id\":\"") : NULL;

    return p ? mem_printf("%.*s", (int)strcspn(p + 6, "\""), p + 6) : NULL;
}

/* Wait until the campaign is over or nothing more can be expected; false if the daemon died. */
static bool await_end(const char *id)
{
    AUTO_FREE char *path = mem_printf("/v1/campaigns/%s", id);
    struct reply r = {0};
    bool over = false;

    /* Where every call fails from now on, waiting for long changes nothing. */
    for (int i = 0; i < (t.page->sticky && t.page->failed ? 30 : 300) && !over && alive(); i++) {
        call(&r, "GET", path, NULL);
        over = r.status == 200 && !strstr(str_text(&r.body), "\"state\":\"running\",\"reason\"");
        nap();
    }
    str_done(&r.body);
    return alive();
}

/*
 * The script. Every request has an answer, as long as the process lives: a connection that is
 * dropped without one is a failure too, unless it was memory for the connection itself that was
 * missing.
 */
static bool play(int *ret_silent)
{
    struct reply r = {0};
    AUTO_FREE char *id = NULL, *path = NULL, *verb = NULL;
    bool up;

    call(&r, "POST", "/v1/campaigns", campaign);
    *ret_silent += r.status == 0 && survives();
    t.refused += r.status >= 400;
    id = id_of(&r);
    call(&r, "GET", "/v1/campaigns?sort=-created", NULL);
    *ret_silent += r.status == 0 && survives();
    if (id) {
        path = mem_printf("/v1/campaigns/%s", id);
        verb = mem_printf("%s:pause", path);
        call(&r, "PATCH", path, "{\"notes\":\"n\"}");
        *ret_silent += r.status == 0 && survives();
        call(&r, "POST", verb, "{}");
        *ret_silent += r.status == 0 && survives();
        free(verb);
        verb = mem_printf("%s:resume", path);
        call(&r, "POST", verb, "{}");
        *ret_silent += r.status == 0 && survives();
        await_end(id);
    }
    call(&r, "POST", "/v1/check",
         "{\"model\":\"tiny-moe\",\"workload\":{\"global_batch\":8},\"layout\":{\"world\":1}}");
    *ret_silent += r.status == 0 && survives();
    up = alive();
    str_done(&r.body);
    return up;
}

/* ---- is everything counted once? ----------------------------------------- */

static int64_t sum_of(const json_t *by_state)
{
    int64_t n = 0;
    const char *state;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)by_state, state, v)
        n += json_integer_value(v);
    return n;
}

/* One campaign: its counters, its budget and its list of trials say the same, and n runs from 1. */
static bool counted_once(const json_t *c)
{
    const json_t *progress = json_object_get(c, "progress");
    const char *id = json_string_value(json_object_get(c, "id"));
    AUTO_FREE char *path = mem_printf("/v1/campaigns/%s/trials?page_size=1000", id);
    AUTO_JSON *list = NULL;
    struct reply r = {0};
    json_t *item;
    int64_t total, trials = json_integer_value(json_object_get(progress, "trials"));
    bool good = call(&r, "GET", path, NULL) == 200 &&
                jx_parse(&list, str_text(&r.body), r.body.len, NULL) == 0;
    size_t i;

    total = json_integer_value(json_object_get(list, "total"));
    good = good && total == trials && trials <= 3 &&
           sum_of(json_object_get(progress, "by_state")) == total;
    json_array_foreach(json_object_get(list, "items"), i, item) {
        good = good && json_integer_value(json_object_get(item, "n")) == (int64_t)i + 1;
    }
    if (!good)
        printf("# campaign %s: %.500s\n", id, str_text(&r.body));
    str_done(&r.body);
    return good;
}

/* All campaigns come to their end once nothing fails any more, and are deleted. */
static bool settle_all(void)
{
    AUTO_JSON *list = NULL;
    struct reply r = {0};
    json_t *c;
    size_t i;
    bool good = call(&r, "GET", "/v1/campaigns?page_size=1000", NULL) == 200 &&
                jx_parse(&list, str_text(&r.body), r.body.len, NULL) == 0;

    json_array_foreach(json_object_get(list, "items"), i, c) {
        bool one;
        const char *id = json_string_value(json_object_get(c, "id"));
        AUTO_FREE char *path = mem_printf("/v1/campaigns/%s", id);
        AUTO_FREE char *resume = mem_printf("%s:resume", path);
        AUTO_JSON *now = NULL;

        call(&r, "POST", resume, "{}"); /* 409 unless it was paused */
        for (int k = 0; k < 1000; k++) {
            if (call(&r, "GET", path, NULL) == 200 &&
                strstr(str_text(&r.body), "\"state\":\"done\",\"reason\""))
                break;
            nap();
        }
        one = jx_parse(&now, str_text(&r.body), r.body.len, NULL) == 0 &&
              str_eq(json_string_value(json_object_get(now, "state")), "done");
        if (!one)
            printf("# %.160s\n", str_text(&r.body));
        one = one && counted_once(now) && call(&r, "DELETE", path, NULL) == 204;
        if (!one) { /* so that it is told once */
            AUTO_FREE char *cancel = mem_printf("%s:cancel", path);

            call(&r, "POST", cancel, "{}");
            call(&r, "DELETE", path, NULL);
        }
        good = good && one;
    }
    str_done(&r.body);
    return good;
}

/* ---- rounds -------------------------------------------------------------- */

static void arm(int kind, int n, bool sticky, unsigned stack)
{
    t.page->seen = t.page->failed = 0;
    t.page->target = stack;
    t.page->left = n;
    t.page->sticky = sticky;
    t.page->kind = kind;
}

/* What the rounds of one worker gave, in memory that its parent sees. */
struct outcome {
    int rounds, silent, unsettled, aborts, refused, last;
    int whole; /* 1: it came to its end, and the database is whole */
};

/* What is to be done: N = 1, 1 + STRIDE, ..., or (STACK not NULL) the first call of each stack. */
struct plan {
    int kind, stride, most;
    bool sticky;
    const unsigned *stack;
};

/* True when N was past the last call. */
static bool one(const struct plan *p, int i, struct outcome *o)
{
    unsigned stack = p->stack ? p->stack[i] : 0;
    int n = p->stack ? 1 : 1 + i * p->stride;
    bool past;

    if (!alive())
        start();
    arm(p->kind, n, p->sticky, stack);
    play(&o->silent);
    past = t.page->failed == 0 && !p->stack;
    t.page->kind = FAIL_NONE;
    if (!alive()) {
        AUTO_FREE char *log = slurp("log");

        if (p->kind != FAIL_ALLOC)
            printf("# N = %d: status %#x: %s\n", n, (unsigned)t.status, log ? log : "");
        o->aborts++;
        start();
    }
    if (!settle_all()) {
        printf("# %s, N = %d, stack %08x\n", kinds[p->kind], n, stack);
        o->unsettled++;
    }
    o->last = n;
    return past;
}

static void open_page(void)
{
    int fd;

    t.page_path = mem_printf("%s/page", t.folder);
    fd = open(t.page_path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(*t.page)) < 0)
        die("no page");
    t.page = mmap(NULL, sizeof(*t.page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (t.page == MAP_FAILED)
        die("no page");
}

static bool is_whole(void)
{
    AUTO_FREE char *command = mem_printf(
        "'%s/partuned' --data '%s/data' check | grep -q '^ok *database'", t.build, t.folder);

    return system(command) == 0;
}

/* A daemon of its own, in a folder of its own. */
static void set_up(const char *base, int k)
{
    t.folder = mem_printf("%s.%d", base, k);
    if (file_mkdirs(t.folder, 0700, NULL) < 0)
        die("no folder");
    open_page();
    t.refused = 0;
    t.curl = curl_easy_init();
    start();
}

static void tear_down(struct outcome *o)
{
    stop();
    o->whole = is_whole();
    if (o->whole && o->unsettled == 0)
        file_remove_tree(t.folder, NULL);
    curl_easy_cleanup(t.curl);
}

static void work(const struct plan *p, struct outcome *o, const char *base, int k, int jobs)
{
    set_up(base, k);
    for (int i = k; i < p->most && !one(p, i, o); i += jobs)
        o->rounds++;
    o->refused = t.refused;
    tear_down(o);
    fflush(stdout);
    _exit(0);
}

/* The stacks from which the script makes calls of this kind: their number. */
static int find_stacks(unsigned *ret, int kind, const char *base)
{
    struct outcome o = {0};
    int n = 0, silent = 0;

    set_up(base, 0);
    arm(kind, INT32_MAX, false, 0);
    t.page->record = 1;
    play(&silent);
    t.page->kind = FAIL_NONE;
    t.page->record = 0;
    for (int i = 0; i < FAIL_STACKS; i++)
        if (t.page->stack[i])
            ret[n++] = t.page->stack[i];
    settle_all();
    tear_down(&o);
    t.pid = 0;
    return n;
}

static void round_of(const struct plan *p, const char *base, int jobs)
{
    struct outcome *all = mmap(NULL, sizeof(*all) * (size_t)jobs, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const char *name = kinds[p->kind], *way = p->sticky  ? "from N on"
                                              : p->stack ? "the first of each stack"
                                                         : "the Nth";
    struct outcome sum = {0};
    int whole = 0;

    fflush(stdout);
    for (int k = 0; k < jobs; k++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            work(p, &all[k], base, k, jobs);
        }
    while (wait(NULL) > 0)
        ;
    for (int k = 0; k < jobs; k++) {
        sum.rounds += all[k].rounds;
        sum.silent += all[k].silent;
        sum.unsettled += all[k].unsettled;
        sum.aborts += all[k].aborts;
        sum.refused += all[k].refused;
        sum.last = all[k].last > sum.last ? all[k].last : sum.last;
        whole += all[k].whole;
    }
    if (sum.aborts)
        printf("# %d times the process ended and was started again\n", sum.aborts);
    printf("# %d rounds up to N = %d, %d campaigns refused\n", sum.rounds, sum.last, sum.refused);
    result(sum.silent <= (p->kind == FAIL_ALLOC ? sum.rounds : 0),
           "%s, %s: every request has an answer", name, way);
    result(sum.unsettled == 0, "%s, %s: every trial is counted once", name, way);
    result(p->kind == FAIL_ALLOC || sum.aborts == 0, "%s, %s: the daemon lives", name, way);
    result(whole == jobs, "%s, %s: the database is whole", name, way);
    munmap(all, sizeof(*all) * (size_t)jobs);
}

int main(int argc, char **argv)
{
    static const int share[] = {0, 997, 5, 1, 37}; /* a sample that reaches over the script */
    static unsigned stacks[FAIL_STACKS];
    const char *build = getenv("PT_BUILD") ? getenv("PT_BUILD") : ".";
    const char *only = argc > 3 ? argv[3] : NULL, *given = getenv("PT_JOBS");
    bool all = getenv("PT_LONG") != NULL;
    int most = argc > 2 ? (int)strtol(argv[2], NULL, 10) : all ? INT32_MAX / 2 : 8;
    int jobs = given ? (int)strtol(given, NULL, 10) : all ? 8 : 1;
    AUTO_FREE char *base = mem_printf("%s/tests/run/nth.%d", build, (int)getpid());

    if (argc < 2 || !strchr(argv[1], '/') || jobs < 1)
        return 2;
    t.library = argv[1];
    t.build = build;
    curl_global_init(CURL_GLOBAL_DEFAULT);
    for (int kind = FAIL_ALLOC; kind < FAIL_KINDS; kind++) {
        struct plan p = {.kind = kind, .stride = all ? 1 : share[kind], .most = most};

        if (only && !str_eq(only, kinds[kind]))
            continue;
        if (all && kind == FAIL_ALLOC) {
            int n = find_stacks(stacks, kind, base);

            printf("# %d stacks\n", n);
            p.stack = stacks;
            p.most = n < most ? n : most;
        }
        round_of(&p, base, jobs);
        if (kind == FAIL_ALLOC)
            continue;
        p.stride *= 2;
        p.most = most / 2;
        p.sticky = true;
        round_of(&p, base, jobs);
    }
    printf("1..%d\n", t.count);
    curl_global_cleanup();
    return t.failed > 0;
}
