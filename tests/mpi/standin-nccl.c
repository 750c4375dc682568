/*
 * NCCL for tests without GPUs, among processes of one host, by shared memory. Addresses are those
 * of a GPU that the host only pretends to be (kernels/cuda/shim.cuh), so they are reached as a
 * debugger would.
 *
 * Collectives are done when a call returns. While one waits it lets MPI progress, which a GPU's
 * stream would leave alone. All members must call the same one, with the same size, type and root.
 *
 * Messages are done in the order of their stream by a thread in place of the GPU, as late as NCCL
 * may do them: a send waits for its receive and only then reads its array, a group ends when all
 * its messages are done, and what comes after it in its communicator waits. So a buffer that is
 * written before its message left, and an order that deadlocks, show up as they may on GPUs. Sizes
 * of the two sides must agree. What breaks a rule ends the program with a line (broken();
 * standin_checks.c breaks each).
 *
 * STANDIN_PATIENCE: seconds until a member or a message that does not come ends it (60).
 * STANDIN_NCCL: communicators cannot be made. STANDIN_GONE=N: after N exchanges of messages a rank
 * does none, which is an asynchronous error of its communicators on the others, as if its host had
 * failed. STANDIN_STAYS=N: the host stays in its N-th group of messages. STANDIN_SAYS: on stderr,
 * how many messages one had, and that it was aborted.
 */
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "kernels/cuda/shim_stream.h"

enum { RANKS = 16, CHUNK = 1 << 16, COMMS = 32, BYTES = 0, FLOAT32 = 7, BFLOAT16 = 9 };
enum { REMOTE_ERROR = 6, PATIENCE_S = 60, CROSSED_S = 5 };
enum kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, REDUCE, BROADCAST };

struct id {
    char bytes[128];
};

/* From one rank to another, a chunk at a time. */
struct way {
    _Atomic uint64_t wanted; /* bytes of the message that is received, and 1; 0: none is */
    _Atomic uint64_t full;   /* bytes that are in the chunk; 0: it is free */
    char chunk[CHUNK];
};

/* A collective as a member calls it. */
struct call {
    int kind, type, root;
    uint64_t bytes;
};

struct shared {
    atomic_int arrived;
    atomic_uint turn;
    atomic_bool lost[RANKS];
    /* Whom the current group of each rank still sends to and receives from, a bit each. */
    atomic_uint sends[RANKS], receives[RANKS];
    struct call call[RANKS];
    char part[RANKS][CHUNK];
    struct way way[RANKS][RANKS]; /* from, to */
};

struct message {
    char *at;
    size_t bytes, done;
    int peer;
    bool send, begun;
};

/* Messages that progress together, when the stream has done what is before them. */
struct group {
    struct group *next;
    struct shim_stream *stream;
    struct shim_after after[SHIM_AFTERS];
    int afters, count;
    time_t since; /* when it last moved */
    struct message message[];
};

struct comm {
    int size, rank;
    struct shared *all;
    struct group *first, **last; /* under way, and what waits */
    struct group *open;          /* of the calling thread, until ncclGroupEnd() */
    int error;                   /* as ncclCommGetAsyncError() */
    long messages;               /* all that were asked for */
};

int ncclGetVersion(int *version);
int ncclGetUniqueId(struct id *id);
int ncclCommInitRank(struct comm **ret, int size, struct id id, int rank);
int ncclCommDestroy(struct comm *comm);
int ncclCommAbort(struct comm *comm);
int ncclCommGetAsyncError(struct comm *comm, int *ret);
const char *ncclGetErrorString(int code);
int ncclAllReduce(const char *from, char *to, size_t count, int type, int op, struct comm *comm,
                  void *stream);
int ncclReduceScatter(const char *from, char *to, size_t count, int type, int op, struct comm *comm,
                      void *stream);
int ncclAllGather(const char *from, char *to, size_t count, int type, struct comm *comm,
                  void *stream);
int ncclReduce(const char *from, char *to, size_t count, int type, int op, int root,
               struct comm *comm, void *stream);
int ncclBroadcast(const char *from, char *to, size_t count, int type, int root, struct comm *comm,
                  void *stream);
int ncclSend(char *from, size_t count, int type, int peer, struct comm *comm,
             struct shim_stream *stream);
int ncclRecv(char *to, size_t count, int type, int peer, struct comm *comm,
             struct shim_stream *stream);
int ncclGroupStart(void);
int ncclGroupEnd(void);

/* All communicators of the process; the thread and the callers take turns. */
static struct {
    pthread_mutex_t lock;
    pthread_t thread;
    struct comm *comm[COMMS];
    int comms, depth; /* depth of ncclGroupStart() */
    bool runs;
} device = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void broken(const char *what)
{
    fprintf(stderr, "standin-nccl: %s\n", what);
    abort();
}

static void move(void *here, const char *there, size_t bytes, int out)
{
    static atomic_int opened = -1;
    int fd = opened;
    ssize_t n;

    if (fd < 0)
        opened = fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    n = out ? pwrite(fd, here, bytes, (off_t)(uintptr_t)there)
            : pread(fd, here, bytes, (off_t)(uintptr_t)there);
    if (n != (ssize_t)bytes)
        broken("an address that is no memory");
}

static time_t patience(void)
{
    const char *word = getenv("STANDIN_PATIENCE");

    return word ? atoi(word) : PATIENCE_S;
}

static void let_mpi_progress(void)
{
    int flag;

    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
}

/* Of what has become of the others. */
static int error_of(struct comm *comm)
{
    for (int i = 0; i < comm->size && !comm->error; i++)
        if (i != comm->rank && atomic_load(&comm->all->lost[i]))
            comm->error = REMOTE_ERROR;
    return comm->error;
}

/* 0, or the error of a member that does not come. */
static int meet(struct comm *comm)
{
    unsigned turn = atomic_load(&comm->all->turn);
    time_t begun = time(NULL);

    if (atomic_fetch_add(&comm->all->arrived, 1) + 1 == comm->size) {
        atomic_store(&comm->all->arrived, 0);
        atomic_fetch_add(&comm->all->turn, 1);
        return 0;
    }
    while (atomic_load(&comm->all->turn) == turn) {
        let_mpi_progress();
        sched_yield();
        if (error_of(comm))
            return comm->error;
        if (time(NULL) - begun > patience())
            broken("a member does not come");
    }
    return 0;
}

/* COMM was made, and has not ended. */
static void check_comm(const struct comm *comm)
{
    bool known = false;

    pthread_mutex_lock(&device.lock);
    for (int i = 0; i < device.comms; i++)
        known |= comm && device.comm[i] == comm;
    pthread_mutex_unlock(&device.lock);
    if (!known)
        broken("a communicator that is none, or has ended");
}

/* All members are in the same collective. 0, or the error of one that does not come. */
static int same(struct comm *comm, enum kind kind, size_t bytes, int type, int root)
{
    struct call *mine = &comm->all->call[comm->rank], *theirs;
    char text[160];
    int r;

    check_comm(comm);
    *mine = (struct call){(int)kind, type, root, bytes};
    r = meet(comm);
    for (int i = 0; i < comm->size && r == 0; i++) {
        theirs = &comm->all->call[i];
        if (theirs->kind != mine->kind)
            broken("members are in different collectives");
        snprintf(text, sizeof(text),
                 "members have collectives of %llu and %llu bytes, types %d and %d, roots %d and "
                 "%d",
                 (unsigned long long)mine->bytes, (unsigned long long)theirs->bytes, mine->type,
                 theirs->type, mine->root, theirs->root);
        if (theirs->bytes != mine->bytes || theirs->type != mine->type ||
            theirs->root != mine->root)
            broken(text);
    }
    return r ? r : meet(comm);
}

static size_t width(int type)
{
    if (type != FLOAT32 && type != BFLOAT16)
        broken("another type");
    return type == FLOAT32 ? 4 : 2;
}

static float wide(uint16_t low)
{
    uint32_t bits = (uint32_t)low << 16;
    float x;

    memcpy(&x, &bits, 4);
    return x;
}

static uint16_t narrow(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, 4);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* The sum of all parts, in the order of ranks, in the first one's place. */
static void add(struct comm *comm, char *sum, size_t bytes, int type)
{
    memcpy(sum, comm->all->part[0], bytes);
    for (int r = 1; r < comm->size; r++)
        for (size_t i = 0; i < bytes / width(type); i++) {
            char *x = sum + i * width(type), *y = comm->all->part[r] + i * width(type);
            float a, b;
            uint16_t p, q;

            if (type == FLOAT32) {
                memcpy(&a, x, 4);
                memcpy(&b, y, 4);
                a += b;
                memcpy(x, &a, 4);
            } else {
                memcpy(&p, x, 2);
                memcpy(&q, y, 2);
                p = narrow(wide(p) + wide(q));
                memcpy(x, &p, 2);
            }
        }
}

/* TO = the sum of all members' FROM, at ROOT or (-1) everywhere. */
static int reduce(const char *from, char *to, size_t bytes, int type, int root, struct comm *comm)
{
    char sum[CHUNK];
    int r = 0;

    for (size_t at = 0; at < bytes && r == 0; at += CHUNK) {
        size_t n = bytes - at < CHUNK ? bytes - at : CHUNK;

        move(comm->all->part[comm->rank], from + at, n, 0);
        r = meet(comm);
        if (r)
            break;
        if (root < 0 || root == comm->rank) {
            add(comm, sum, n, type);
            move(sum, to + at, n, 1);
        }
        r = meet(comm);
    }
    return r;
}

static int broadcast(const char *from, char *to, size_t bytes, int root, struct comm *comm)
{
    int r = 0;

    for (size_t at = 0; at < bytes && r == 0; at += CHUNK) {
        size_t n = bytes - at < CHUNK ? bytes - at : CHUNK;

        if (root == comm->rank)
            move(comm->all->part[root], from + at, n, 0);
        r = meet(comm);
        if (r)
            break;
        move(comm->all->part[root], to + at, n, 1);
        r = meet(comm);
    }
    return r;
}

/* ---- messages ------------------------------------------------------------ */

static uint64_t at_most(uint64_t bytes, uint64_t most)
{
    return bytes < most ? bytes : most;
}

/* One step of a message; false: it waits for its peer. */
static bool step_send(struct comm *comm, struct message *message)
{
    struct way *way = &comm->all->way[comm->rank][message->peer];
    uint64_t n = at_most(message->bytes - message->done, CHUNK);
    uint64_t wanted = atomic_load(&way->wanted);
    char text[128];

    if (atomic_load(&way->full) || (message->done < message->bytes && !wanted))
        return false;
    if (message->done < message->bytes && wanted != message->bytes + 1) {
        snprintf(text, sizeof(text), "a message of %zu bytes is received as one of %llu",
                 message->bytes, (unsigned long long)(wanted - 1));
        broken(text);
    }
    move(way->chunk, message->at + message->done, n, 0);
    message->done += n;
    atomic_store(&way->full, n);
    return true;
}

static bool step_receive(struct comm *comm, struct message *message)
{
    struct way *way = &comm->all->way[message->peer][comm->rank];
    uint64_t n = atomic_load(&way->full);

    if (!message->begun) {
        message->begun = true;
        atomic_store(&way->wanted, message->bytes + 1);
        return true;
    }
    if (!n)
        return false;
    move(way->chunk, message->at + message->done, n, 1);
    message->done += n;
    if (message->done == message->bytes)
        atomic_store(&way->wanted, 0);
    atomic_store(&way->full, 0);
    return true;
}

/* What was sent has been taken, too. */
static bool is_done(struct comm *comm, const struct message *message)
{
    return message->done == message->bytes &&
           (!message->send || !atomic_load(&comm->all->way[comm->rank][message->peer].full));
}

/* Of two messages between the same ranks the first comes first. Returns how many are left. */
static int step_all(struct comm *comm, struct group *group, bool *ret_moved)
{
    unsigned open[2] = {0, 0}; /* receives, sends */
    int left = 0;

    for (int i = 0; i < group->count; i++) {
        struct message *m = &group->message[i];

        if (open[m->send] >> m->peer & 1u) {
            left++;
            continue;
        }
        while (!is_done(comm, m) && m->done < m->bytes &&
               (m->send ? step_send(comm, m) : step_receive(comm, m)))
            *ret_moved = true;
        if (is_done(comm, m))
            continue;
        open[m->send] |= 1u << m->peer;
        left++;
    }
    atomic_store(&comm->all->receives[comm->rank], open[0]);
    atomic_store(&comm->all->sends[comm->rank], open[1]);
    return left;
}

/* This rank waits for a peer that waits for this one, and neither has what the other needs. */
static bool crossed(const struct comm *comm)
{
    const struct shared *all = comm->all;
    unsigned me = 1u << comm->rank;

    for (int i = 0; i < comm->size; i++) {
        unsigned it = 1u << i, to = atomic_load(&all->sends[comm->rank]) & it,
                 from = atomic_load(&all->receives[comm->rank]) & it,
                 back = atomic_load(&all->sends[i]) & me,
                 taken = atomic_load(&all->receives[i]) & me;

        if ((to && !taken && back && !from) || (from && !back && taken && !to))
            return true;
    }
    return false;
}

static bool may_begin(const struct group *group)
{
    for (int i = 0; i < group->afters; i++)
        if (__atomic_load_n(&group->after[i].stream->done, __ATOMIC_ACQUIRE) <
            group->after[i].asked)
            return false;
    return true;
}

static void check_late(struct comm *comm, const struct group *group, bool *ret_doubt)
{
    time_t late = time(NULL) - group->since;
    bool doubt = late > CROSSED_S && crossed(comm);

    if (doubt && *ret_doubt)
        broken("two ranks wait for each other: one sends and receives in another order");
    *ret_doubt = doubt;
    if (late > patience() && !error_of(comm))
        broken("a message is not taken");
}

/* This rank has done EXCHANGES. */
static bool is_gone(struct comm *comm, long exchanges)
{
    const char *word = getenv("STANDIN_GONE");
    bool lost = word && exchanges >= atol(word);

    if (lost)
        atomic_store(&comm->all->lost[comm->rank], true);
    return lost;
}

static bool work(struct comm *comm, bool *ret_doubt)
{
    static long exchanges;
    struct group *group = comm->first;
    bool moved = false;

    if (!group || !may_begin(group) || is_gone(comm, exchanges))
        return false;
    if (!group->since)
        group->since = time(NULL);
    if (step_all(comm, group, &moved) > 0) {
        if (moved)
            group->since = time(NULL);
        check_late(comm, group, ret_doubt);
        return moved;
    }
    exchanges++;
    comm->first = group->next;
    if (!comm->first)
        comm->last = &comm->first;
    __atomic_store_n(&group->stream->done, group->stream->done + 1, __ATOMIC_RELEASE);
    free(group);
    return true;
}

static void *device_main(void *arg)
{
    bool doubt[COMMS] = {false};

    (void)arg;
    for (;;) {
        bool moved = false;

        pthread_mutex_lock(&device.lock);
        for (int i = 0; i < device.comms; i++)
            if (device.comm[i])
                moved |= work(device.comm[i], &doubt[i]);
        pthread_mutex_unlock(&device.lock);
        if (!moved)
            usleep(100);
    }
    return NULL;
}

/* The caller has the lock. */
static void join_device(struct comm *comm)
{
    if (device.comms == COMMS)
        broken("more communicators than expected");
    device.comm[device.comms++] = comm;
    if (!device.runs && pthread_create(&device.thread, NULL, device_main, NULL))
        broken("no thread");
    device.runs = true;
}

static void leave_device(struct comm *comm, bool in_order)
{
    pthread_mutex_lock(&device.lock);
    if (in_order && comm->first)
        broken("a communicator ends before its messages");
    for (int i = 0; i < device.comms; i++)
        if (device.comm[i] == comm)
            device.comm[i] = NULL;
    pthread_mutex_unlock(&device.lock);
}

static int put(char *at, size_t bytes, int type, int peer, struct comm *comm,
               struct shim_stream *stream, bool send)
{
    struct group *g;
    int count;

    check_comm(comm);
    if (type != BYTES || peer < 0 || peer >= comm->size || peer == comm->rank || !stream || !bytes)
        return 4;
    if (!device.depth)
        broken("a message outside of a group");
    g = comm->open;
    if (g && g->stream != stream)
        broken("a group on two streams");
    count = g ? g->count : 0;
    g = realloc(g, sizeof(*g) + sizeof(g->message[0]) * ((size_t)count + 1));
    if (!g)
        broken("no memory");
    g->stream = stream;
    g->message[count] = (struct message){.at = at, .bytes = bytes, .peer = peer, .send = send};
    g->count = count + 1;
    comm->open = g;
    return 0;
}

static void close_group(struct comm *comm)
{
    struct group *g = comm->open;

    comm->open = NULL;
    g->next = NULL;
    g->since = 0;
    g->afters = g->stream->afters;
    if (!g->afters)
        broken("messages that no event is before");
    comm->messages += g->count;
    memcpy(g->after, g->stream->after, sizeof(g->after));
    g->stream->afters = 0;
    g->stream->asked++;
    g->stream->meanwhile = let_mpi_progress;
    *comm->last = g;
    comm->last = &g->next;
}

int ncclSend(char *from, size_t count, int type, int peer, struct comm *comm,
             struct shim_stream *stream)
{
    return put(from, count, type, peer, comm, stream, true);
}

int ncclRecv(char *to, size_t count, int type, int peer, struct comm *comm,
             struct shim_stream *stream)
{
    return put(to, count, type, peer, comm, stream, false);
}

int ncclGroupStart(void)
{
    device.depth++;
    return 0;
}

static void stay(void)
{
    static long groups;
    const char *word = getenv("STANDIN_STAYS");

    while (word && groups + 1 == atol(word))
        pause();
    groups++;
}

int ncclGroupEnd(void)
{
    if (--device.depth)
        return 0;
    stay();
    pthread_mutex_lock(&device.lock);
    for (int i = 0; i < device.comms; i++)
        if (device.comm[i] && device.comm[i]->open)
            close_group(device.comm[i]);
    pthread_mutex_unlock(&device.lock);
    return 0;
}

/* ---- the library --------------------------------------------------------- */

int ncclGetVersion(int *version)
{
    *version = 22803;
    return 0;
}

int ncclGetUniqueId(struct id *id)
{
    static unsigned number;

    memset(id, 0, sizeof(*id));
    snprintf(id->bytes, sizeof(id->bytes), "/standin-nccl-%d-%u", (int)getpid(), number++);
    return 0;
}

int ncclCommInitRank(struct comm **ret, int size, struct id id, int rank)
{
    struct comm *comm = calloc(1, sizeof(*comm));
    int fd = shm_open(id.bytes, O_CREAT | O_RDWR, 0600);

    if (getenv("STANDIN_NCCL"))
        return 2;
    if (rank < 0 || rank >= size)
        broken("a rank that the communicator has not");
    if (!comm || size > RANKS || fd < 0 || ftruncate(fd, sizeof(struct shared)) < 0)
        broken("no shared memory");
    comm->all = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    comm->size = size;
    comm->rank = rank;
    comm->last = &comm->first;
    if (meet(comm))
        return comm->error;
    if (rank == 0)
        shm_unlink(id.bytes);
    pthread_mutex_lock(&device.lock);
    join_device(comm);
    pthread_mutex_unlock(&device.lock);
    *ret = comm;
    return 0;
}

int ncclCommDestroy(struct comm *comm)
{
    check_comm(comm);
    leave_device(comm, true);
    if (getenv("STANDIN_SAYS") && comm->messages)
        fprintf(stderr, "standin-nccl: %ld messages\n", comm->messages);
    munmap(comm->all, sizeof(struct shared));
    free(comm);
    return 0;
}

/* Its memory stays: the caller ends the process. */
int ncclCommAbort(struct comm *comm)
{
    leave_device(comm, false);
    if (getenv("STANDIN_SAYS"))
        fprintf(stderr, "standin-nccl: aborted\n");
    return 0;
}

int ncclCommGetAsyncError(struct comm *comm, int *ret)
{
    *ret = error_of(comm);
    return 0;
}

const char *ncclGetErrorString(int code)
{
    return code == 2              ? "unhandled system error"
           : code == REMOTE_ERROR ? "remote process exited or there was a network error"
                                  : "another error";
}

int ncclAllReduce(const char *from, char *to, size_t count, int type, int op, struct comm *comm,
                  void *stream)
{
    int r;

    if (op != 0 || !stream)
        return 4;
    r = same(comm, ALL_REDUCE, count * width(type), type, -1);
    return r ? r : reduce(from, to, count * width(type), type, -1, comm);
}

int ncclReduceScatter(const char *from, char *to, size_t count, int type, int op, struct comm *comm,
                      void *stream)
{
    size_t bytes = count * width(type);
    int r;

    if (op != 0 || !stream)
        return 4;
    r = same(comm, REDUCE_SCATTER, bytes, type, -1);
    for (int i = 0; i < comm->size && r == 0; i++)
        r = reduce(from + (size_t)i * bytes, to, bytes, type, i, comm);
    return r;
}

int ncclAllGather(const char *from, char *to, size_t count, int type, struct comm *comm,
                  void *stream)
{
    size_t bytes = count * width(type);
    int r;

    if (!stream)
        return 4;
    r = same(comm, ALL_GATHER, bytes, type, -1);
    for (int i = 0; i < comm->size && r == 0; i++)
        r = broadcast(from, to + (size_t)i * bytes, bytes, i, comm);
    return r;
}

int ncclReduce(const char *from, char *to, size_t count, int type, int op, int root,
               struct comm *comm, void *stream)
{
    int r;

    if (op != 0 || !stream)
        return 4;
    r = same(comm, REDUCE, count * width(type), type, root);
    return r ? r : reduce(from, to, count * width(type), type, root, comm);
}

int ncclBroadcast(const char *from, char *to, size_t count, int type, int root, struct comm *comm,
                  void *stream)
{
    int r;

    if (!stream)
        return 4;
    r = same(comm, BROADCAST, count * width(type), type, root);
    return r ? r : broadcast(from, to, count * width(type), root, comm);
}
