/*
 * The stand-in for NCCL, used wrongly: standin_checks CASE, on two ranks, breaks the rule of that
 * name, and the stand-in has to say so and end it (standin_checks.sh). "right" breaks none.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "kernels/cuda/shim_stream.h"
#include "trainer/nccl_comms.h"

enum { NUMBERS = 64, PAGE = 1 << 16 };

static const char *const names[] = {
    "ncclGetVersion",     "ncclGetUniqueId", "ncclCommInitRank",
    "ncclCommDestroy",    "ncclCommAbort",   "ncclCommGetAsyncError",
    "ncclGetErrorString", "ncclAllReduce",   "ncclReduceScatter",
    "ncclAllGather",      "ncclReduce",      "ncclBroadcast",
    "ncclSend",           "ncclRecv",        "ncclGroupStart",
    "ncclGroupEnd"};

static struct tr_nccl_calls nccl;
static int rank;
static float number[NUMBERS], other[NUMBERS];
static struct shim_stream before, stream, second;

static void *communicator(int as)
{
    struct tr_nccl_id id = {{0}};
    void *comm = NULL;

    if (rank == 0)
        nccl.unique_id(&id);
    MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, MPI_COMM_WORLD);
    if (nccl.init(&comm, 2, id, as))
        fprintf(stderr, "no communicator\n");
    return comm;
}

/* The next operation of ON is after what is done already. */
static void follow(struct shim_stream *on)
{
    on->after[0] = (struct shim_after){&before, 0};
    on->afters = 1;
}

static void wait_for(struct shim_stream *on)
{
    while (__atomic_load_n(&on->done, __ATOMIC_ACQUIRE) < on->asked)
        usleep(1000);
}

static void exchange(void *comm, void *to, size_t sent, size_t taken)
{
    follow(&stream);
    nccl.group_start();
    if (sent)
        nccl.send(number, sent, TR_NCCL_BYTES, 1 - rank, comm, &stream);
    if (taken)
        nccl.recv(to, taken, TR_NCCL_BYTES, 1 - rank, comm, &stream);
    nccl.group_end();
}

static void sum(void *comm, size_t count, int type)
{
    nccl.all_reduce(number, number, count, type, TR_NCCL_SUM, comm, &stream);
}

/* ---- cases --------------------------------------------------------------- */

static void right(void *comm)
{
    number[0] = 1;
    sum(comm, NUMBERS, TR_NCCL_FLOAT32);
    exchange(comm, other, sizeof(number), sizeof(other));
    wait_for(&stream);
    nccl.all_gather(number + (size_t)rank * (NUMBERS / 2), number, NUMBERS / 2, TR_NCCL_FLOAT32,
                    comm, &stream);
    nccl.destroy(comm);
    if (rank == 0 && number[0] > 1.5f && number[0] < 2.5f && other[0] > 1.5f && other[0] < 2.5f)
        printf("as it should be\n");
}

static void sizes_of_a_collective(void *comm)
{
    sum(comm, NUMBERS - (size_t)rank, TR_NCCL_FLOAT32);
}

static void types_of_a_collective(void *comm)
{
    sum(comm, rank ? NUMBERS : NUMBERS / 2, rank ? TR_NCCL_BFLOAT16 : TR_NCCL_FLOAT32);
}

static void roots(void *comm)
{
    nccl.broadcast(number, number, NUMBERS, TR_NCCL_FLOAT32, rank, comm, &stream);
}

static void order_of_collectives(void *comm)
{
    if (rank == 0)
        sum(comm, NUMBERS, TR_NCCL_FLOAT32);
    else
        nccl.all_gather(number, other, NUMBERS, TR_NCCL_FLOAT32, comm, &stream);
}

static void unknown_type(void *comm)
{
    sum(comm, NUMBERS, 2);
}

static void absent_member(void *comm)
{
    if (rank == 0)
        sum(comm, NUMBERS, TR_NCCL_FLOAT32);
    else
        sleep(20);
}

static void sizes_of_a_message(void *comm)
{
    exchange(comm, other, rank ? 0 : 16, rank ? 32 : 0);
    wait_for(&stream);
}

static void order_of_messages(void *comm) /* both send first, each in a group of its own */
{
    exchange(comm, NULL, 16, 0);
    exchange(comm, other, 0, 16);
    wait_for(&stream);
}

static void message_not_taken(void *comm)
{
    if (rank)
        sleep(20);
    exchange(comm, NULL, 16, 0);
    wait_for(&stream);
}

static void freed_array(void *comm)
{
    void *to = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    munmap(to, PAGE);
    exchange(comm, to, 16, 16);
    wait_for(&stream);
}

static void ended_communicator(void *comm)
{
    nccl.destroy(comm);
    sum(comm, NUMBERS, TR_NCCL_FLOAT32);
}

static void ended_twice(void *comm)
{
    nccl.destroy(comm);
    nccl.destroy(comm);
}

static void ends_before_its_messages(void *comm)
{
    exchange(comm, other, 0, 16);
    nccl.destroy(comm);
}

static void no_group(void *comm)
{
    nccl.send(number, 16, TR_NCCL_BYTES, 1 - rank, comm, &stream);
}

static void two_streams(void *comm)
{
    follow(&stream);
    nccl.group_start();
    nccl.send(number, 16, TR_NCCL_BYTES, 1 - rank, comm, &stream);
    nccl.recv(other, 16, TR_NCCL_BYTES, 1 - rank, comm, &second);
}

static void no_event(void *comm)
{
    exchange(comm, other, 16, 16);
    wait_for(&stream);
    nccl.group_start();
    nccl.send(number, 16, TR_NCCL_BYTES, 1 - rank, comm, &stream);
    nccl.group_end();
}

static void strange_rank(void *comm)
{
    (void)comm;
    (void)communicator(rank + 2);
}

static void many_communicators(void *comm)
{
    (void)comm;
    for (int i = 0; i < 40; i++)
        (void)communicator(rank);
}

#define CASE(name)                                                                                 \
    {                                                                                              \
#name, name                                                                                \
    }
static const struct {
    const char *name;
    void (*run)(void *comm);
} cases[] = {CASE(right),
             CASE(sizes_of_a_collective),
             CASE(types_of_a_collective),
             CASE(roots),
             CASE(order_of_collectives),
             CASE(unknown_type),
             CASE(absent_member),
             CASE(sizes_of_a_message),
             CASE(order_of_messages),
             CASE(message_not_taken),
             CASE(freed_array),
             CASE(ended_communicator),
             CASE(ended_twice),
             CASE(ends_before_its_messages),
             CASE(no_group),
             CASE(two_streams),
             CASE(no_event),
             CASE(strange_rank),
             CASE(many_communicators)};

int main(int argc, char **argv)
{
    struct err error = {0};
    void *library = NULL;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    _Static_assert(sizeof(nccl) == ARRAY_LEN(names) * sizeof(void *), "a name each");
    if (argc != 2 || dl_functions(&library, (void **)&nccl, "libnccl.so.2", names, ARRAY_LEN(names),
                                  &error) < 0) {
        fprintf(stderr, "standin_checks: %s\n", argc == 2 ? error.text : "name a case");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (str_eq(cases[i].name, argv[1]))
            cases[i].run(communicator(rank));
    MPI_Finalize();
    return 0;
}
