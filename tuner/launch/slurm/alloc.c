/*
 * Allocations of Slurm that trials share, and one question after all jobs at a time.
 *
 * An allocation belongs to a campaign, of several clusters to one of them, and is known by its
 * job's name, so that the next daemon finds it again: it looks for one before it asks for one. What
 * no campaign needs any more is given back after a while, at a restart at once.
 */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <pwd.h>
#include <unistd.h>

#include "tuner/core/campaign.h"
#include "tuner/core/engine.h"
#include "tuner/core/revive.h"
#include "tuner/core/work.h"
#include "tuner/launch/launch.h"
#include "tuner/launch/slurm/slurm.h"
#include "tuner/machine/argv.h"
#include "tuner/machine/command.h"
#include "tuner/machine/machine.h"
#include "tuner/machine/proc.h"
#include "tuner/machine/slots.h"
#include "tuner/state/state.h"
#include "tuner/tuner.h"

enum { COMMAND_MS = 30000, VANISHED = 3, RETRY_MS = 5000, SWEEP_MS = 60000 };

struct tn_slurm {
    struct tn_service *svc;
    const struct tn_slurm_trials *trials;
    uv_timer_t timer;
    struct tn_slurm_alloc *allocs;
    bool asking;
    uint64_t idle_ms, sweep_at;
    char trouble[200]; /* why squeue did not answer the last time; "": it did */
};

void tn_slurm_name(char name[160], const char *mark)
{
    size_t n = (size_t)snprintf(name, 160, "partune-%s", mark);

    for (size_t i = 0; i < n && i < 159; i++)
        if (name[i] == '/')
            name[i] = '-';
}

/* The job's name of the allocation of CAMPAIGN, of several clusters for cluster AT (from 1): a dot
 * is in no name of an attempt's job. */
static void name_of(char name[160], const struct tn_service *svc, const char *campaign, int at)
{
    char mark[TN_MARK_TEXT + 12];

    snprintf(mark, sizeof(mark), at > 0 ? "%s/%s.%d" : "%s/%s", tn_instance(svc), campaign, at);
    tn_slurm_name(name, mark);
}

static double number(const struct tn_service *svc, const char *key, double otherwise)
{
    const char *text = tn_slurm_option(svc, key);
    double v;

    return text && str_to_f64(&v, text) == 0 && v > 0 ? v : otherwise;
}

static void nothing(void *arg, int status, const char *out, const char *error)
{
    (void)arg;
    (void)out;
    if (status != 0 && !tn_slurm_unknown(error))
        log_warn("scancel: %s", error);
}

void tn_slurm_cancel(struct tn_service *svc, const char *id, const char *option)
{
    struct tn_argv v = {0};

    tn_slurm_program(&v, svc, "scancel");
    if (option) {
        tn_argv_addf(&v, "--signal=%s", option);
        tn_argv_add(&v, "--batch");
    }
    tn_argv_add(&v, id);
    tn_command_run(&tn_machine(svc)->commands, &v, NULL, COMMAND_MS, nothing, NULL);
    tn_argv_done(&v);
}

/* ---- getting one --------------------------------------------------------- */

static struct tn_slurm_alloc *find(struct tn_slurm *sl, const char *campaign, int at)
{
    for (struct tn_slurm_alloc *al = sl->allocs; al; al = al->next)
        if (!strcmp(al->campaign, campaign) && al->at == at)
            return al;
    return NULL;
}

/* Of CAMPAIGN, of several clusters on AT (from 1). */
static struct tn_slurm_alloc *alloc_new(struct tn_slurm *sl, const struct tn_campaign *campaign,
                                        int at)
{
    const struct pl_cluster *cluster = &campaign->engine->spec->se.cluster[at > 0 ? at - 1 : 0];
    struct tn_slurm_alloc *al = mem_alloc(sizeof(*al));

    assert(cluster->nodes * cluster->devices_per_node <= TN_MAX_CORES);
    al->slurm = sl;
    al->per_node = cluster->devices_per_node;
    al->slots.count = al->slots.free = cluster->nodes * cluster->devices_per_node;
    for (int i = 0; i < al->slots.count; i++)
        al->slots.core[i] = i;
    snprintf(al->campaign, sizeof(al->campaign), "%s", campaign->id);
    snprintf(al->cluster, sizeof(al->cluster), "%s", cluster->name);
    al->at = at;
    al->next = sl->allocs;
    sl->allocs = al;
    return al;
}

/* The devices of the allocation that we run in are those of every campaign. */
static struct tn_slurm_alloc *inside(struct tn_slurm *sl, const struct tn_trial *trial)
{
    struct tn_slurm_alloc *al = find(sl, "", 0);
    const char *id = getenv("SLURM_JOB_ID"), *nodes = getenv("SLURM_JOB_NODELIST");

    if (!al && id) {
        al = alloc_new(sl, trial->campaign, trial->layout.cluster);
        al->campaign[0] = '\0';
        al->phase = ALLOC_READY;
        snprintf(al->id, sizeof(al->id), "%s", id);
        snprintf(al->nodes, sizeof(al->nodes), "%s", nodes ? nodes : "");
    }
    return al;
}

/* It will not be: the campaign waits for somebody who repairs the reason. */
static void refused(struct tn_slurm_alloc *al, const char *error)
{
    AUTO_FREE char *why = mem_printf("sbatch: %.*s", (int)strcspn(error, "\n"), error);
    struct err e = {0};

    al->phase = ALLOC_OVER;
    if (tn_campaign_change(al->slurm->svc, al->campaign, "running verifying", DB_PAUSED, why, &e) <
            0 &&
        e.code != -ESTALE)
        tn_log_id(LOG_ERROR, al->slurm->svc, al->campaign, ": %s", e.text);
}

static void on_submitted(void *arg, int status, const char *out, const char *error)
{
    struct tn_slurm_alloc *al = arg;
    size_t n = strspn(out, "0123456789");

    al->busy = false;
    if (status == 0 && n > 0 && n < sizeof(al->id)) {
        snprintf(al->id, sizeof(al->id), "%.*s", (int)n, out);
        al->phase = ALLOC_WAIT;
        tn_log_id(LOG_INFO, al->slurm->svc, al->campaign, ": requested an allocation, Slurm job %s",
                  al->id);
        return;
    }
    if (status < 0 || tn_slurm_transient(error)) { /* it may be there nevertheless: look first */
        tn_log_id(LOG_WARN, al->slurm->svc, al->campaign, ": sbatch: %s", error);
        al->phase = ALLOC_LOOK;
        al->retry_at = tn_now_ms() + RETRY_MS;
        return;
    }
    refused(al, error);
}

static void submit(struct tn_slurm_alloc *al)
{
    struct tn_service *svc = al->slurm->svc;
    struct tn_slurm_shape s = {al->slots.count / al->per_node, al->slots.count, al->per_node, 1,
                               false};
    struct tn_argv v = {0};
    char name[160];

    assert(al->phase == ALLOC_SUBMIT && !al->busy);
    name_of(name, svc, al->campaign, al->at);
    tn_slurm_sbatch(&v, svc, al->cluster, &s, name, tn_slurm_option_on(svc, al->cluster, "time"));
    tn_argv_add(&v, "--output=/dev/null");
    tn_argv_add(&v, "--chdir=/");
    tn_argv_add(&v, "--wrap=exec sleep infinity");
    al->busy = true;
    tn_command_run(&tn_machine(svc)->commands, &v, NULL, COMMAND_MS, on_submitted, al);
    tn_argv_done(&v);
}

static void take_state(struct tn_slurm_alloc *al, const struct tn_slurm_job *job)
{
    bool ready = job->phase == SLURM_RUNNING;

    al->missed = job->phase == SLURM_ABSENT ? al->missed + 1 : 0;
    if (job->phase == SLURM_ENDED || job->phase == SLURM_ENDING || al->missed >= VANISHED) {
        if (al->phase != ALLOC_OVER)
            tn_log_id(LOG_INFO, al->slurm->svc, al->campaign, ": allocation %s has ended: %s",
                      al->id, job->state[0] ? job->state : "vanished");
        al->phase = ALLOC_OVER;
    } else if (ready && al->phase != ALLOC_READY) {
        snprintf(al->nodes, sizeof(al->nodes), "%s", job->nodes);
        al->phase = ALLOC_READY;
        tn_log_id(LOG_INFO, al->slurm->svc, al->campaign, ": allocation %s runs on %s", al->id,
                  al->nodes);
        tn_changed(al->slurm->svc);
    } else if (job->phase == SLURM_PENDING && al->phase == ALLOC_READY) {
        al->phase = ALLOC_WAIT; /* requeued, by somebody who allowed it */
    }
}

/* JOB, which a former daemon asked for, is that allocation. */
static void recover(struct tn_slurm_alloc *al, const struct tn_slurm_job *job)
{
    snprintf(al->id, sizeof(al->id), "%s", job->id);
    al->phase = ALLOC_WAIT;
    tn_log_id(LOG_INFO, al->slurm->svc, al->campaign, ": allocation %s was recovered", al->id);
    take_state(al, job);
}

static void on_looked(void *arg, int status, const char *out, const char *error)
{
    struct tn_slurm_alloc *al = arg;
    struct tn_slurm_job j;

    al->busy = false;
    if (status != 0) {
        tn_log_id(LOG_WARN, al->slurm->svc, al->campaign, ": squeue: %s", error);
        al->retry_at = tn_now_ms() + RETRY_MS;
        return;
    }
    while (tn_slurm_line(&j, &out)) { /* others of that name are swept away */
        if (j.phase != SLURM_PENDING && j.phase != SLURM_RUNNING)
            continue;
        recover(al, &j);
        return;
    }
    al->phase = ALLOC_SUBMIT;
    submit(al);
}

static void look(struct tn_slurm_alloc *al)
{
    struct tn_service *svc = al->slurm->svc;
    struct tn_argv v = {0};
    char name[160];

    assert(al->phase == ALLOC_LOOK && !al->busy);
    name_of(name, svc, al->campaign, al->at);
    tn_slurm_program(&v, svc, "squeue");
    tn_argv_add(&v, "--noheader");
    tn_argv_addf(&v, "--name=%s", name);
    tn_argv_add(&v, "--format=" TN_SLURM_FORMAT);
    al->busy = true;
    tn_command_run(&tn_machine(svc)->commands, &v, NULL, COMMAND_MS, on_looked, al);
    tn_argv_done(&v);
}

static void drop(struct tn_slurm_alloc *al)
{
    struct tn_slurm_alloc **at = &al->slurm->allocs;

    while (*at != al)
        at = &(*at)->next;
    *at = al->next;
    free(al);
}

/* ---- devices ------------------------------------------------------------- */

static int node_free(const struct tn_slurm_alloc *al, int node)
{
    int n = 0;

    for (int i = 0; i < al->per_node; i++)
        n += !al->slots.taken[node * al->per_node + i];
    return n;
}

/* First node of as many as SHAPE needs with room: the fullest that will do, so that whole nodes
 * stay free. */
static int choose(const struct tn_slurm_alloc *al, const struct tn_slurm_shape *shape, int need)
{
    int nodes = al->slots.count / al->per_node, best = -1, best_free = 0, run = 0;

    assert(al->slots.count % al->per_node == 0);
    for (int k = 0; k < nodes; k++) {
        int free_here = node_free(al, k);

        run = free_here == al->per_node ? run + 1 : 0;
        if (shape->nodes > 1 && run == shape->nodes)
            return k - run + 1;
        if (shape->nodes == 1 && free_here >= need && (best < 0 || free_here < best_free)) {
            best = k;
            best_free = free_here;
        }
    }
    return best;
}

static struct tn_slurm_alloc *alloc_of(struct tn_attempt *attempt)
{
    struct tn_slurm *sl = tn_launching(attempt->svc)->slurm;
    struct tn_slurm_alloc *al;

    assert(sl);
    if (tn_slurm_mode(attempt->svc, attempt->campaign->engine->spec) == SLURM_INSIDE)
        return inside(sl, attempt->trial);
    al = find(sl, attempt->campaign->id, attempt->trial->layout.cluster);
    if (al && al->phase == ALLOC_OVER && al->users == 0 && !al->busy) {
        drop(al);
        al = NULL;
    }
    return al ? al : alloc_new(sl, attempt->campaign, attempt->trial->layout.cluster);
}

struct tn_slurm_alloc *tn_slurm_take(struct tn_attempt *attempt, const struct tn_slurm_shape *shape)
{
    struct tn_slurm_alloc *al = alloc_of(attempt);
    int need, first;

    if (!al)
        return NULL;
    if (al->phase == ALLOC_LOOK && !al->busy && tn_now_ms() >= al->retry_at)
        look(al);
    if (al->phase != ALLOC_READY || al->closed)
        return NULL;
    assert(attempt->ncpus == 0);
    need = tn_slurm_uses_mpiexec(attempt->svc) ? al->slots.count
                                               : tn_slurm_devices(shape, al->per_node);
    if (tn_slurm_uses_mpiexec(
            attempt->svc)) /* mpiexec knows nothing of other steps: one trial at a time */
        first = al->slots.free == al->slots.count ? 0 : -1;
    else
        first = choose(al, shape, need);
    if (first < 0)
        return NULL;
    for (int i = first * al->per_node; i < al->slots.count && attempt->ncpus < need; i++)
        if (!al->slots.taken[i])
            attempt->cpus[attempt->ncpus++] = i;
    assert(attempt->ncpus == need);
    tn_slots_take_list(&al->slots, attempt->cpus, attempt->ncpus);
    al->users++;
    al->idle_since = 0;
    return al;
}

struct tn_slurm_alloc *tn_slurm_take_again(struct tn_attempt *attempt, const char *id)
{
    struct tn_slurm_alloc *al = alloc_of(attempt);

    if (!al)
        return NULL;
    if (!al->id[0]) {
        snprintf(al->id, sizeof(al->id), "%s", id);
        al->phase = ALLOC_WAIT;
    }
    tn_slots_take_list(&al->slots, attempt->cpus, attempt->ncpus);
    al->users++;
    return al;
}

void tn_slurm_give(struct tn_slurm_alloc *al, struct tn_attempt *attempt)
{
    assert(al->users > 0);
    tn_slots_give(&al->slots, attempt->cpus, attempt->ncpus);
    attempt->ncpus = 0;
    al->users--;
    if (al->closed && al->users == 0)
        tn_slurm_cancel(al->slurm->svc, al->id, NULL);
}

void tn_slurm_close_alloc(struct tn_slurm_alloc *al)
{
    al->closed = al->campaign[0] != '\0'; /* the one that we run in is not ours to end */
}

/* ---- the clock ----------------------------------------------------------- */

/* Does a trial of CAMPAIGN wait for its cluster number AT? */
static bool awaited(const struct tn_campaign *campaign, int at)
{
    for (const struct tn_trial *t = campaign->queue; t; t = t->next)
        if (t->layout.cluster == at)
            return true;
    return false;
}

/* Of several clusters the search may leave one: an allocation there is kept, and waited for, only
 * while trials use it or are to. */
static bool wanted(const struct tn_slurm_alloc *al)
{
    const struct tn_campaign *c = tn_campaign_find(al->slurm->svc, al->campaign);

    return al->users > 0 || !al->campaign[0] ||
           (c && (al->at == 0 || awaited(c, al->at)) &&
            (!strcmp(c->state, DB_RUNNING) || !strcmp(c->state, DB_VERIFYING)));
}

static void care(struct tn_slurm_alloc *al)
{
    uint64_t now = tn_now_ms();

    if (wanted(al)) {
        al->idle_since = 0;
        if (al->phase == ALLOC_LOOK && !al->busy && now >= al->retry_at)
            look(al);
        return;
    }
    if (!al->idle_since)
        al->idle_since = now;
    if (al->busy || (now - al->idle_since < al->slurm->idle_ms && al->phase != ALLOC_OVER))
        return;
    if (al->id[0] && al->phase != ALLOC_OVER) {
        tn_log_id(LOG_INFO, al->slurm->svc, al->campaign, ": allocation %s is released", al->id);
        tn_slurm_cancel(al->slurm->svc, al->id, NULL);
    }
    drop(al);
}

static void hear(struct tn_slurm *sl, const char *answer, bool unknown)
{
    for (struct tn_slurm_alloc *al = sl->allocs; al; al = al->next) {
        struct tn_slurm_job j = {.phase = SLURM_ABSENT}, one;
        const char *p = unknown ? "" : answer;

        while (al->id[0] && tn_slurm_line(&one, &p))
            if (!strcmp(one.id, al->id))
                j = one;
        if (al->id[0] && al->campaign[0])
            take_state(al, &j);
    }
    for (struct tn_attempt *a = tn_work(sl->svc)->attempts, *next; a; a = next) {
        struct tn_slurm_job j = {.phase = SLURM_ABSENT}, one;
        const char *id = sl->trials->asks(a), *p = unknown ? "" : answer;

        next = a->next;
        while (id && tn_slurm_line(&one, &p))
            if (!strcmp(one.id, id))
                j = one;
        if (id)
            sl->trials->heard(a, &j);
    }
}

static void on_answer(void *arg, int status, const char *out, const char *error)
{
    struct tn_slurm *sl = arg;

    sl->asking = false;
    sl->trouble[0] = '\0';
    if (status == 0 || tn_slurm_unknown(error)) {
        hear(sl, out, status != 0);
    } else { /* nothing is learned from a controller that cannot be asked */
        log_warn("squeue: %s", error);
        snprintf(sl->trouble, sizeof(sl->trouble), "squeue: %.180s", error);
    }
}

int tn_slurm_health(const struct tn_service *svc, struct err *error)
{
    struct tn_launching *launching = tn_launching(svc);
    const char *bin = tn_slurm_option(svc, "bin");
    AUTO_FREE char *given = bin ? mem_printf("%s/sbatch", bin) : NULL;
    AUTO_FREE char *sbatch = tn_find_program(given, "sbatch");

    if (!sbatch || access(sbatch, X_OK) < 0)
        return err_set(error, -ENOENT, "%s was not found", given ? given : "sbatch");
    if (launching->slurm && launching->slurm->trouble[0])
        return err_set(error, -EIO, "%s", launching->slurm->trouble);
    return 0;
}

static void ask(struct tn_slurm *sl)
{
    AUTO_STR ids = {0};
    struct tn_argv v = {0};

    for (struct tn_slurm_alloc *al = sl->allocs; al; al = al->next)
        if (al->id[0] && al->campaign[0])
            str_addf(&ids, ",%s", al->id);
    for (struct tn_attempt *a = tn_work(sl->svc)->attempts; a; a = a->next)
        if (sl->trials->asks(a))
            str_addf(&ids, ",%s", sl->trials->asks(a));
    if (!ids.len)
        return;
    tn_slurm_program(&v, sl->svc, "squeue");
    tn_argv_add(&v, "--noheader");
    tn_argv_add(&v, "--states=all");
    tn_argv_addf(&v, "--jobs=%s", ids.text + 1);
    tn_argv_add(&v, "--format=" TN_SLURM_FORMAT);
    sl->asking = true;
    tn_command_run(&tn_machine(sl->svc)->commands, &v, NULL, COMMAND_MS, on_answer, sl);
    tn_argv_done(&v);
}

/* ---- what a former daemon left, or its sbatch that arrived when it was dead ---- */

/* Is JOB the allocation that live campaign C waits for, or had before a restart? The latter is
 * taken back at once, not only by a trial: where none goes there any more, it is idle, and is
 * released like any other. */
static bool is_awaited(struct tn_slurm *sl, const struct tn_campaign *c,
                       const struct tn_slurm_job *job)
{
    int clusters = c->engine->spec->se.nclusters;
    char mine[160];

    if (c->running == 0 && strcmp(c->state, DB_RUNNING) != 0 && strcmp(c->state, DB_VERIFYING) != 0)
        return false;
    for (int at = clusters > 1; at <= (clusters > 1 ? clusters : 0); at++) {
        const struct tn_slurm_alloc *al = find(sl, c->id, at);

        name_of(mine, sl->svc, c->id, at);
        if (strcmp(mine, job->name) != 0)
            continue;
        if (!al && tn_slurm_mode(sl->svc, c->engine->spec) == SLURM_STEPS)
            recover(alloc_new(sl, c, at), job);
        return !al || !al->id[0];
    }
    return false;
}

/* Does an attempt or a live campaign of ours still want that job? A campaign has one allocation on
 * each of its clusters. */
static bool is_known(struct tn_slurm *sl, const struct tn_slurm_job *job)
{
    struct tn_work *work = tn_work(sl->svc);
    char mine[160];

    for (struct tn_slurm_alloc *al = sl->allocs; al; al = al->next)
        if (!strcmp(al->id, job->id))
            return true;
    for (struct tn_attempt *a = work->attempts; a; a = a->next) {
        tn_slurm_name(mine, a->mark);
        if (!strcmp(mine, job->name) || !strcmp(a->job, job->id))
            return true;
    }
    for (struct tn_campaign *c = work->campaigns; c; c = c->next)
        if (is_awaited(sl, c, job))
            return true;
    return false;
}

static void on_sweep(void *arg, int status, const char *out, const char *error)
{
    struct tn_slurm *sl = arg;
    AUTO_FREE char *ours = mem_printf("partune-%s-", tn_instance(sl->svc));
    struct tn_slurm_job j;

    (void)error;
    if (status != 0)
        sl->sweep_at = 0;
    while (status == 0 && tn_slurm_line(&j, &out))
        if (str_starts(j.name, ours) && !is_known(sl, &j)) {
            log_info("job %s (%s) is no longer needed", j.id, j.name);
            tn_slurm_cancel(sl->svc, j.id, NULL);
        }
}

static void sweep(struct tn_slurm *sl)
{
    const struct passwd *pw = getpwuid(geteuid());
    struct tn_argv v = {0};

    sl->sweep_at = tn_now_ms() + SWEEP_MS;
    if (!pw)
        return;
    tn_slurm_program(&v, sl->svc, "squeue");
    tn_argv_add(&v, "--noheader");
    tn_argv_addf(&v, "--user=%s", pw->pw_name);
    tn_argv_add(&v, "--format=" TN_SLURM_FORMAT);
    tn_command_run(&tn_machine(sl->svc)->commands, &v, NULL, COMMAND_MS, on_sweep, sl);
    tn_argv_done(&v);
}

static void on_timer(uv_timer_t *timer)
{
    struct tn_slurm *sl = timer->data;
    struct tn_slurm_alloc *next;

    if (tn_now_ms() >= sl->sweep_at && tn_reviving(sl->svc, true) == 0)
        sweep(sl);
    if (!sl->asking)
        ask(sl);
    for (struct tn_slurm_alloc *al = sl->allocs; al; al = next) {
        next = al->next;
        care(al);
    }
}

void tn_slurm_watch(struct tn_service *svc, const struct tn_slurm_trials *trials)
{
    struct tn_slurm *sl;
    uint64_t ms = (uint64_t)(1000 * number(svc, "poll", 5));

    if (tn_launching(svc)->slurm)
        return;
    sl = mem_alloc(sizeof(*sl));
    sl->svc = svc;
    sl->trials = trials;
    sl->idle_ms = (uint64_t)(1000 * number(svc, "idle", 60));
    tn_launching(svc)->slurm = sl;
    uv_timer_init(tn_loop(svc), &sl->timer);
    sl->timer.data = sl;
    uv_timer_start(&sl->timer, on_timer, ms < 100 ? 100 : ms, ms < 100 ? 100 : ms);
}

static void on_closed(uv_handle_t *handle)
{
    struct tn_slurm *sl = handle->data;

    while (sl->allocs)
        drop(sl->allocs);
    free(sl);
}

void tn_slurm_close(struct tn_service *svc)
{
    struct tn_phase *phase = tn_phase(svc);
    struct tn_slurm *sl = TAKE(tn_launching(svc)->slurm);

    if (!sl)
        return;
    /* Where trials were ended, nothing needs the allocations: scancel finishes without us. */
    if (phase->stopping && phase->stop_how == TN_STOP_REQUEUE)
        for (struct tn_slurm_alloc *al = sl->allocs; al; al = al->next)
            if (al->id[0] && al->campaign[0])
                tn_slurm_cancel(svc, al->id, NULL);
    uv_close((uv_handle_t *)&sl->timer, on_closed);
}
