/*
 * Counts a rank's calls of MPI that communicate, by MPI's profiling interface: linked with
 * partune-train's main(). At MPI_Finalize() it appends to the file $PT_CALLS
 *
 *   RANK collectives N bytes N messages N communicators N
 *
 * where bytes are what the rank itself gives to collectives, and messages those between two ranks
 * that the program sends or receives. What MPI makes of a collective is its own.
 */
#include "base/base.h"

#include <fcntl.h>
#include <mpi.h>
#include <unistd.h>

static long collectives, messages, communicators;
static int64_t given;

static void collective(int count, MPI_Datatype type)
{
    int size = 0;

    if (count)
        MPI_Type_size(type, &size);
    collectives++;
    given += (int64_t)count * size;
}

int MPI_Iallreduce(const void *mine, void *all, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, MPI_Request *req)
{
    collective(count, type);
    return PMPI_Iallreduce(mine, all, count, type, op, comm, req);
}

int MPI_Iallgather(const void *mine, int count, MPI_Datatype type, void *all, int each,
                   MPI_Datatype all_type, MPI_Comm comm, MPI_Request *req)
{
    collective(count, type);
    return PMPI_Iallgather(mine, count, type, all, each, all_type, comm, req);
}

int MPI_Igather(const void *mine, int count, MPI_Datatype type, void *all, int each,
                MPI_Datatype all_type, int root, MPI_Comm comm, MPI_Request *req)
{
    collective(count, type);
    return PMPI_Igather(mine, count, type, all, each, all_type, root, comm, req);
}

int MPI_Ibcast(void *bytes, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *req)
{
    collective(count, type);
    return PMPI_Ibcast(bytes, count, type, root, comm, req);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request *req)
{
    collective(0, MPI_BYTE);
    return PMPI_Ibarrier(comm, req);
}

int MPI_Isend(const void *bytes, int count, MPI_Datatype type, int rank, int tag, MPI_Comm comm,
              MPI_Request *req)
{
    messages++;
    return PMPI_Isend(bytes, count, type, rank, tag, comm, req);
}

int MPI_Irecv(void *bytes, int count, MPI_Datatype type, int rank, int tag, MPI_Comm comm,
              MPI_Request *req)
{
    messages++;
    return PMPI_Irecv(bytes, count, type, rank, tag, comm, req);
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *ret)
{
    communicators++;
    return PMPI_Comm_split(comm, color, key, ret);
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *ret)
{
    communicators++;
    return PMPI_Comm_split_type(comm, type, key, info, ret);
}

int MPI_Finalize(void)
{
    const char *path = getenv("PT_CALLS");
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1, rank;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (fd < 0 || dprintf(fd, "%d collectives %ld bytes %lld messages %ld communicators %ld\n",
                          rank, collectives, (long long)given, messages, communicators) < 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    close(fd);
    return PMPI_Finalize();
}
