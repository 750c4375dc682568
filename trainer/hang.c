#include "trainer/hang.h"

#include "base/base.h"
#include "trainer/hang_net.h"
#include "trainer/hang_state.h"
#include "trainer/peers.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* Times hang_report_s: see hang.h. */
enum { LONGER = 6, LONG = 60, MEDIANS = 3 };

/* ---- pages --------------------------------------------------------------- */

static void page_new(struct tr_hang *hang)
{
    void *page = MAP_FAILED;

    hang->fd = memfd_create("partune-now", MFD_CLOEXEC);
    if (hang->fd >= 0 && ftruncate(hang->fd, sizeof(*hang->now)) == 0)
        page = mmap(NULL, sizeof(*hang->now), PROT_READ | PROT_WRITE, MAP_SHARED, hang->fd, 0);
    if (page == MAP_FAILED && hang->fd >= 0) {
        close(hang->fd);
        hang->fd = -1;
    }
    hang->now = page == MAP_FAILED ? mem_alloc(sizeof(*hang->now)) : page;
    TR_NOW_SET(hang->now, beat_ns, clock_mono_ns());
}

static void page_free(struct tr_hang *hang)
{
    if (hang->fd < 0) {
        free(hang->now);
        return;
    }
    munmap(hang->now, sizeof(*hang->now));
    close(hang->fd);
}

/* The page of RANK, of a process that this one may look into; NULL: it may not. */
static const struct tr_now *page_of(const struct tr_hang *hang, int rank)
{
    const struct tr_hang_peer *p = &hang->peer[rank];
    char path[64];
    struct stat st;
    void *page;
    int fd;

    if (rank == hang->rank)
        return hang->now;
    if (p->fd < 0 || !tr_peers_near(rank))
        return NULL;
    snprintf(path, sizeof(path), "/proc/%ld/fd/%d", tr_peers_pid(rank), (int)p->fd);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    page = fstat(fd, &st) == 0 && (uint64_t)st.st_ino == p->inode &&
                   st.st_size == (off_t)sizeof(*hang->now)
               ? mmap(NULL, sizeof(*hang->now), PROT_READ, MAP_SHARED, fd, 0)
               : MAP_FAILED;
    close(fd);
    return page == MAP_FAILED ? NULL : page;
}

static void pages_free(struct tr_hang *hang)
{
    for (int i = 0; i < hang->world; i++)
        if (hang->view[i].page && i != hang->rank)
            munmap((void *)(uintptr_t)hang->view[i].page, sizeof(*hang->now));
}

/* ---- the ranks meet ------------------------------------------------------ */

static void leaders(int32_t *ret, const struct tr_comms *comms)
{
    const struct tr_group *groups[] = {&comms->world,    &comms->tp,      &comms->cp,
                                       &comms->moe,      &comms->tied,    &comms->shard[0],
                                       &comms->shard[1], &comms->copy[0], &comms->copy[1]};

    for (int k = 0; k < TR_KINDS; k++)
        ret[k] = comms->world.rank;
    for (size_t i = 0; i < ARRAY_LEN(groups); i++)
        for (int k = 0; k < groups[i]->size; k++)
            if (groups[i]->member[k] < ret[groups[i]->kind])
                ret[groups[i]->kind] = groups[i]->member[k];
}

static bool all_near(const struct tr_hang *hang)
{
    for (int i = 0; i < hang->world; i++)
        if (i != hang->rank && !tr_peers_near(i))
            return false;
    return true;
}

static void meet(struct tr_hang *hang, struct tr_comms *comms)
{
    struct tr_group *world = &comms->world;
    struct tr_hang_peer mine = {.fd = hang->fd};
    struct stat st;
    int32_t site = hang->rank;
    MPI_Request req;

    if (hang->fd >= 0 && fstat(hang->fd, &st) == 0)
        mine.inode = (uint64_t)st.st_ino;
    if (getrandom(&mine.token, sizeof(mine.token), GRND_NONBLOCK) != (ssize_t)sizeof(mine.token))
        mine.token = rng_mix(clock_mono_ns() ^ (uint64_t)getpid());
    leaders(mine.leader, comms);
    (void)gethostname(mine.host, sizeof(mine.host) - 1);
    if (!all_near(hang))
        hang->socket = tr_hang_socket(&mine.port, mine.address);
    MPI_Iallgather(&mine, (int)sizeof(mine), MPI_BYTE, hang->peer, (int)sizeof(mine), MPI_BYTE,
                   world->comm, &req);
    tr_wait(world->progress, tr_op_begin(TR_OP_ALL_GATHER, world), &req, 1);
    for (int i = hang->world - 1; i >= 0; i--) {
        hang->view[i].page = page_of(hang, i);
        if (hang->view[i].page)
            site = i;
    }
    MPI_Iallgather(&site, 1, MPI_INT32_T, hang->site, 1, MPI_INT32_T, world->comm, &req);
    tr_wait(world->progress, tr_op_begin(TR_OP_ALL_GATHER, world), &req, 1);
}

/* ---- life ---------------------------------------------------------------- */

/* Signals are the main thread's. */
static void start(struct tr_hang *hang)
{
    sigset_t all, former;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &former);
    hang->started = pthread_create(&hang->thread, NULL, tr_hang_watch, hang) == 0;
    pthread_sigmask(SIG_SETMASK, &former, NULL);
}

static void init_lock(struct tr_hang *hang)
{
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&hang->lock, NULL);
    pthread_cond_init(&hang->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

struct tr_hang *tr_hang_new(struct tr_comms *comms, struct tr_clock *clock,
                            const struct tr_config *config)
{
    struct tr_hang *hang;

    if (config->hang_report_s <= 0)
        return NULL;
    hang = mem_alloc(sizeof(*hang));
    hang->config = config;
    hang->progress = &comms->progress;
    hang->clock = clock;
    hang->rank = comms->world.rank;
    hang->world = comms->world.size;
    hang->socket = -1;
    hang->peer = mem_alloc(sizeof(*hang->peer) * (size_t)hang->world);
    hang->view = mem_alloc(sizeof(*hang->view) * (size_t)hang->world);
    hang->site = mem_alloc(sizeof(*hang->site) * (size_t)hang->world);
    page_new(hang);
    meet(hang, comms);
    init_lock(hang);
    hang->progress->now = hang->now;
    clock->page = hang->now;
    tr_hang_section(hang, TR_AT_START, 0);
    start(hang);
    return hang;
}

struct tr_hang *tr_hang_free(struct tr_hang *hang)
{
    if (!hang)
        return NULL;
    hang->progress->now = NULL;
    hang->clock->page = NULL;
    pthread_mutex_lock(&hang->lock);
    hang->over = true;
    pthread_cond_signal(&hang->ended);
    pthread_mutex_unlock(&hang->lock);
    if (hang->started)
        pthread_join(hang->thread, NULL);
    pthread_cond_destroy(&hang->ended);
    pthread_mutex_destroy(&hang->lock);
    if (hang->socket >= 0)
        close(hang->socket);
    pages_free(hang);
    page_free(hang);
    free(hang->peer);
    free(hang->view);
    free(hang->site);
    free(hang);
    return NULL;
}

/* ---- what the main thread says ------------------------------------------- */

static int ascending(const void *left, const void *right)
{
    double x = *(const double *)left, y = *(const double *)right;

    return (x > y) - (x < y);
}

static double median_s(const struct tr_hang *hang)
{
    double sorted[TR_HANG_RECENT];
    int n = hang->steps < TR_HANG_RECENT ? (int)hang->steps : TR_HANG_RECENT;

    memcpy(sorted, hang->recent, sizeof(sorted));
    qsort(sorted, (size_t)n, sizeof(*sorted), ascending);
    return n ? sorted[n / 2] * 1e-3 : 0;
}

static double patience_s(const struct tr_hang *hang, enum tr_section section)
{
    double least = tr_hang_least_s(hang), median = MEDIANS * median_s(hang);

    if (section == TR_AT_START || section == TR_AT_CHECKPOINT)
        least *= LONG;
    else if (section == TR_AT_SAMPLES || hang->steps == 0)
        least *= LONGER;
    return median > least ? median : least;
}

void tr_hang_section(struct tr_hang *hang, enum tr_section section, int step)
{
    if (hang)
        tr_now_section(hang->now, section, step, (uint64_t)(patience_s(hang, section) * 1e9));
}

void tr_hang_step(struct tr_hang *hang, double ms)
{
    if (hang)
        hang->recent[hang->steps++ % TR_HANG_RECENT] = ms;
}
