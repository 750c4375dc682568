/* The watching thread of hang.h. */
#include "base/base.h"
#include "trainer/fail.h"
#include "trainer/hang_net.h"
#include "trainer/hang_state.h"
#include "trainer/peers.h"
#include "trainer/stop.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000ull
#define LOOK_NS (500 * MS)
#define FRESH_NS (2000 * MS)  /* a process whose thread has not run for longer does not run */
#define PAUSED_NS (2000 * MS) /* nor did this one */
#define HEARD_NS (5000 * MS)  /* a site that has not spoken for longer is silent */
#define ABORT_NS (5000 * MS)  /* for the main thread to end the job */

/* ---- what is known ------------------------------------------------------- */

/* The state of a process's main thread, as ps has it; 0: the process is gone or out of sight. */
static char state_of(long pid)
{
    char path[64], text[256] = "", *end;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%ld/task/%ld/stat", pid, pid);
    f = fopen(path, "re");
    if (!f)
        return 0;
    (void)!fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    end = strrchr(text, ')'); /* the name before it may hold anything */
    return end && end[1] == ' ' ? end[2] : 0;
}

/* The kernel's function in which the main thread sleeps, where the system tells. */
static void kernel_place(char *ret, size_t size, long pid)
{
    char path[64];
    size_t n;
    FILE *f;

    ret[0] = '\0';
    snprintf(path, sizeof(path), "/proc/%ld/wchan", pid);
    f = fopen(path, "re");
    if (!f)
        return;
    n = fread(ret, 1, size - 1, f);
    ret[n] = '\0';
    fclose(f);
    if (str_eq(ret, "0"))
        ret[0] = '\0';
}

static bool fresh(const struct tr_hang *hang, int rank, uint64_t now_ns)
{
    return now_ns < TR_NOW_GET(hang->view[rank].page, beat_ns) + FRESH_NS;
}

/* A rank of this site that has not moved for a while: does its process run, and where is it? */
static void probe(struct tr_hang_rank *ret, const struct tr_hang *hang, int rank, uint64_t now_ns)
{
    long pid = tr_peers_pid(rank);

    ret->state = state_of(pid);
    if (ret->state == 'Z' || ret->state == 'X' || (kill((pid_t)pid, 0) < 0 && errno == ESRCH))
        ret->life = TR_LIFE_GONE;
    else if (ret->state == 'T' || ret->state == 't' || !fresh(hang, rank, now_ns))
        ret->life = TR_LIFE_STOPPED;
    else if (ret->at.op == TR_OP_NONE)
        kernel_place(ret->place, sizeof(ret->place), pid);
}

/* Its site has not spoken for a while, or never. */
static bool is_silent(const struct tr_hang_view *view, uint64_t now_ns)
{
    return !view->page && (!view->heard_ns || now_ns - view->heard_ns > HEARD_NS);
}

static void fill(struct tr_hang_rank *ret, const struct tr_hang *hang, uint64_t now_ns)
{
    for (int i = 0; i < hang->world; i++) {
        const struct tr_hang_view *v = &hang->view[i];

        ret[i] = (struct tr_hang_rank){.known = true};
        if (v->page)
            tr_now_copy(&ret[i].at, v->page);
        else
            ret[i] = v->far;
        if (v->page && now_ns - v->moved_ns > FRESH_NS)
            probe(&ret[i], hang, i, now_ns);
        if (is_silent(v, now_ns))
            ret[i].life = TR_LIFE_SILENT;
        ret[i].seconds = v->moved_ns ? (double)(now_ns - v->moved_ns) * 1e-9 : 0;
        ret[i].host = hang->peer[i].host;
        for (int k = 0; k < TR_KINDS; k++)
            ret[i].leader[k] = hang->peer[i].leader[k];
    }
}

static void see_pages(struct tr_hang *hang, uint64_t now_ns)
{
    for (int i = 0; i < hang->world; i++) {
        struct tr_hang_view *v = &hang->view[i];
        uint64_t moves;

        if (!v->page)
            continue;
        moves = TR_NOW_GET(v->page, moves);
        if (v->moved_ns && moves == v->moves)
            continue;
        v->moves = moves;
        v->moved_ns = now_ns;
    }
}

/* ---- who speaks ---------------------------------------------------------- */

static bool speaks(const struct tr_hang *hang, uint64_t now_ns)
{
    for (int i = 0; i < hang->rank; i++)
        if (hang->view[i].page && fresh(hang, i, now_ns))
            return false;
    return true;
}

/* The first of the sites that judge and are not known to have fallen silent. */
static bool judges(const struct tr_hang *hang, uint64_t now_ns)
{
    int sites = 0;

    for (int i = 0; i < hang->world && sites < TR_HANG_SITES; i++) {
        bool heard = false, ever = false;

        if (hang->site[i] != i)
            continue;
        if (i == hang->site[hang->rank])
            return true;
        sites++;
        for (int k = i; k < hang->world; k++) {
            if (hang->site[k] != i)
                continue;
            ever |= hang->view[k].heard_ns > 0;
            heard |= !is_silent(&hang->view[k], now_ns);
        }
        if (heard || !ever)
            return false;
    }
    return false;
}

/* ---- a hang -------------------------------------------------------------- */

/* The last move of anybody. */
static uint64_t last_move(const struct tr_hang *hang)
{
    uint64_t last = 0;

    for (int i = 0; i < hang->world; i++)
        if (hang->view[i].moved_ns > last)
            last = hang->view[i].moved_ns;
    return last;
}

/* What a silent site asked for last may be of a section that it has left since. */
static double patience_s(const struct tr_hang *hang, uint64_t now_ns)
{
    uint64_t most = 0;

    for (int i = 0; i < hang->world; i++) {
        const struct tr_hang_view *v = &hang->view[i];
        uint64_t its = v->page ? TR_NOW_GET(v->page, patience_ns) : v->patience_ns;

        if (its > most && !is_silent(v, now_ns))
            most = its;
    }
    return (double)most * 1e-9;
}

/* Another rank, which has been stopped since, has reported the hang that began at SINCE_NS. */
static bool reported(const struct tr_hang *hang, uint64_t since_ns)
{
    for (int i = 0; i < hang->world; i++) {
        const struct tr_hang_view *v = &hang->view[i];

        if (v->page ? TR_NOW_GET(v->page, reported_ns) > since_ns : v->far_reported)
            return true;
    }
    return false;
}

static void say(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}

static void report(struct tr_hang *hang, const struct tr_hang_rank *ranks, double seconds)
{
    AUTO_FREE bool *missing = mem_alloc(sizeof(*missing) * (size_t)hang->world);
    enum tr_verdict verdict = tr_hang_find(missing, ranks, hang->world);
    AUTO(tr_events) *ev = NULL;
    AUTO_STR line = {0}, page = {0};

    tr_hang_line(&line, ranks, hang->world, verdict, missing, seconds);
    snprintf(hang->why, sizeof(hang->why), "%s", line.text);
    tr_hang_page(&page, "partune-train: ", ranks, hang->world, verdict, missing, seconds);
    if (hang->config->events && tr_events_open(&ev, hang->config->events, NULL, NULL) == 0)
        tr_hang_event(ev, ranks, hang->world, verdict, missing, seconds);
    say(page.text);
}

/* The wait that the main thread is in ends the job. If it does not wait, or not in time, it is in a
 * system call, and nobody is inside MPI. */
static void end_job(struct tr_hang *hang, uint64_t now_ns)
{
    if (!hang->failing_ns) {
        hang->failing_ns = now_ns;
        atomic_store_explicit(&hang->progress->hung, hang->why, memory_order_release);
    }
    if (TR_NOW_GET(hang->now, op) == TR_OP_NONE || now_ns - hang->failing_ns > ABORT_NS)
        tr_fail_comm(hang->why);
}

/* The ranks move again: whoever has reported says so. */
static void resume(struct tr_hang *hang, uint64_t now_ns)
{
    char text[120];

    if (!hang->report_ns || last_move(hang) <= hang->since_ns)
        return;
    snprintf(text, sizeof(text), "partune-train: the ranks continue after %.1f s\n",
             (double)(now_ns - hang->since_ns) * 1e-9);
    if (TR_NOW_GET(hang->now, reported_ns))
        say(text);
    hang->report_ns = 0;
    TR_NOW_SET(hang->now, reported_ns, 0);
}

/* A rank that is stopped or gone will not go on by itself, whatever it was doing. */
static bool any_stopped(const struct tr_hang *hang, const struct tr_hang_rank *ranks)
{
    for (int i = 0; i < hang->world; i++)
        if (ranks[i].life == TR_LIFE_STOPPED || ranks[i].life == TR_LIFE_GONE)
            return true;
    return false;
}

static void judge(struct tr_hang *hang, const struct tr_hang_rank *ranks, uint64_t now_ns)
{
    uint64_t last = last_move(hang), from = last > hang->woken_ns ? last : hang->woken_ns;
    double quiet_s = (double)(now_ns - from) * 1e-9,
           limit_s = hang->config->distributed_timeout_minutes * 60;

    assert(from <= now_ns);
    if (quiet_s < (any_stopped(hang, ranks) ? tr_hang_least_s(hang) : patience_s(hang, now_ns)))
        return;
    if (!hang->report_ns) {
        bool known = reported(hang, last);

        hang->report_ns = now_ns;
        hang->since_ns = last;
        if (!known) {
            TR_NOW_SET(hang->now, reported_ns, now_ns);
            report(hang, ranks, (double)(now_ns - last) * 1e-9);
        }
    }
    if (limit_s > 0 && quiet_s > limit_s)
        end_job(hang, now_ns);
}

/* ---- the thread ---------------------------------------------------------- */

static void look(struct tr_hang *hang, struct tr_hang_rank *ranks)
{
    uint64_t now_ns = clock_mono_ns();

    if (hang->looked_ns && now_ns - hang->looked_ns > PAUSED_NS)
        hang->woken_ns = now_ns;
    hang->looked_ns = now_ns;
    TR_NOW_SET(hang->now, beat_ns, now_ns);
    see_pages(hang, now_ns);
    if (hang->socket >= 0)
        tr_hang_receive(hang, now_ns);
    resume(hang, now_ns);
    if (tr_stop_requested() || !speaks(hang, now_ns))
        return;
    fill(ranks, hang, now_ns);
    if (hang->socket >= 0)
        tr_hang_send(hang, ranks, hang->report_ns > 0);
    if (judges(hang, now_ns))
        judge(hang, ranks, now_ns);
}

/* Until the next look. False: it is over. */
static bool rest(struct tr_hang *hang)
{
    struct timespec until;
    bool over;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)LOOK_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&hang->lock);
    while (!hang->over && pthread_cond_timedwait(&hang->ended, &hang->lock, &until) == 0)
        ;
    over = hang->over;
    pthread_mutex_unlock(&hang->lock);
    return !over;
}

void *tr_hang_watch(void *arg)
{
    struct tr_hang *hang = arg;
    AUTO_FREE struct tr_hang_rank *ranks = mem_alloc(sizeof(*ranks) * (size_t)hang->world);

    do
        look(hang, ranks);
    while (rest(hang));
    return NULL;
}
