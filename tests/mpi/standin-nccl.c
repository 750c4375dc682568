/*
 * NCCL for tests without GPUs, among processes of one host: by shared memory, done when a call
 * returns. Addresses are those of a GPU that the host only pretends to be (kernels/cuda/shim.cuh),
 * so they are reached as a debugger would. While it waits it lets MPI progress, which a GPU's
 * stream would leave alone.
 */
#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 16, CHUNK = 1 << 16, FLOAT32 = 7, BFLOAT16 = 9 };

struct id {
    char bytes[128];
};

struct shared {
    atomic_int arrived;
    atomic_uint turn;
    char part[RANKS][CHUNK];
};

struct comm {
    int size, rank;
    struct shared *all;
};

int ncclGetVersion(int *version);
int ncclGetUniqueId(struct id *id);
int ncclCommInitRank(struct comm **ret, int size, struct id id, int rank);
int ncclCommDestroy(struct comm *comm);
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
int ncclGroupStart(void);
int ncclGroupEnd(void);

static void broken(const char *what)
{
    fprintf(stderr, "standin-nccl: %s\n", what);
    abort();
}

static void move(void *here, const char *there, size_t bytes, int out)
{
    static int fd = -1;
    ssize_t n;

    if (fd < 0)
        fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    n = out ? pwrite(fd, here, bytes, (off_t)(uintptr_t)there)
            : pread(fd, here, bytes, (off_t)(uintptr_t)there);
    if (n != (ssize_t)bytes)
        broken("an address that is no memory");
}

static void meet(struct comm *comm)
{
    unsigned turn = atomic_load(&comm->all->turn);
    time_t begun = time(NULL);

    if (atomic_fetch_add(&comm->all->arrived, 1) + 1 == comm->size) {
        atomic_store(&comm->all->arrived, 0);
        atomic_fetch_add(&comm->all->turn, 1);
        return;
    }
    while (atomic_load(&comm->all->turn) == turn) {
        int flag;

        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        sched_yield();
        if (time(NULL) - begun > 60)
            broken("a member does not come");
    }
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
static void reduce(const char *from, char *to, size_t bytes, int type, int root, struct comm *comm)
{
    char sum[CHUNK];

    for (size_t at = 0; at < bytes; at += CHUNK) {
        size_t n = bytes - at < CHUNK ? bytes - at : CHUNK;

        move(comm->all->part[comm->rank], from + at, n, 0);
        meet(comm);
        if (root < 0 || root == comm->rank) {
            add(comm, sum, n, type);
            move(sum, to + at, n, 1);
        }
        meet(comm);
    }
}

static void broadcast(const char *from, char *to, size_t bytes, int root, struct comm *comm)
{
    for (size_t at = 0; at < bytes; at += CHUNK) {
        size_t n = bytes - at < CHUNK ? bytes - at : CHUNK;

        if (root == comm->rank)
            move(comm->all->part[root], from + at, n, 0);
        meet(comm);
        move(comm->all->part[root], to + at, n, 1);
        meet(comm);
    }
}

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
    if (!comm || size > RANKS || fd < 0 || ftruncate(fd, sizeof(struct shared)) < 0)
        broken("no shared memory");
    comm->all = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    comm->size = size;
    comm->rank = rank;
    meet(comm);
    if (rank == 0)
        shm_unlink(id.bytes);
    *ret = comm;
    return 0;
}

int ncclCommDestroy(struct comm *comm)
{
    munmap(comm->all, sizeof(struct shared));
    free(comm);
    return 0;
}

const char *ncclGetErrorString(int code)
{
    return code == 2 ? "unhandled system error" : "another error";
}

int ncclAllReduce(const char *from, char *to, size_t count, int type, int op, struct comm *comm,
                  void *stream)
{
    if (op != 0 || !stream)
        return 4;
    reduce(from, to, count * width(type), type, -1, comm);
    return 0;
}

int ncclReduceScatter(const char *from, char *to, size_t count, int type, int op, struct comm *comm,
                      void *stream)
{
    size_t bytes = count * width(type);

    if (op != 0 || !stream)
        return 4;
    for (int i = 0; i < comm->size; i++)
        reduce(from + (size_t)i * bytes, to, bytes, type, i, comm);
    return 0;
}

int ncclAllGather(const char *from, char *to, size_t count, int type, struct comm *comm,
                  void *stream)
{
    size_t bytes = count * width(type);

    if (!stream)
        return 4;
    for (int i = 0; i < comm->size; i++)
        broadcast(from, to + (size_t)i * bytes, bytes, i, comm);
    return 0;
}

int ncclReduce(const char *from, char *to, size_t count, int type, int op, int root,
               struct comm *comm, void *stream)
{
    if (op != 0 || !stream)
        return 4;
    reduce(from, to, count * width(type), type, root, comm);
    return 0;
}

int ncclBroadcast(const char *from, char *to, size_t count, int type, int root, struct comm *comm,
                  void *stream)
{
    if (!stream)
        return 4;
    broadcast(from, to, count * width(type), root, comm);
    return 0;
}

int ncclGroupStart(void)
{
    return 0;
}

int ncclGroupEnd(void)
{
    return 0;
}
