/*
 * Which MPI starts the ranks: mpiexec programs differ in their options, and ranks that are started
 * by another MPI's mpiexec than the one they are linked with are each rank 0 of 1.
 */
#ifndef TUNER_MPI_H
#define TUNER_MPI_H

#include "base/base.h"
#include "tuner/machine/argv.h"

enum tn_mpi_kind {
    TN_MPI_OTHER, /* nothing is known of it */
    TN_MPI_HYDRA, /* MPICH, and its relatives of one ABI: Intel MPI, MVAPICH, Cray MPICH */
    TN_MPI_OPEN,  /* Open MPI, and Spectrum MPI */
};

enum { TN_MPI_NAME = 64 };

/* One of the two programs, and what it was when it was asked. */
struct tn_mpi_program {
    char *path; /* absolute, or NULL where not found */
    enum tn_mpi_kind kind;
    char name[TN_MPI_NAME]; /* "Open MPI 4.1.4"; "" where unknown */
    uint64_t stamp;
};

struct tn_mpi {
    struct tn_mpi_program mpiexec; /* that of the trainer's MPI, where there is one */
    struct tn_mpi_program train;   /* the bundled trainer: its MPI is the library's */
};

/* By a line in which an MPI names itself: what --version of mpiexec or partune-train prints. */
enum tn_mpi_kind tn_mpi_kind_of(const char *text);

/* Find the programs, or look whether they have changed; GIVEN is an mpiexec and a trainer as
 * tn_find_program takes them, or NULL. Those that are new are run with --version, at most 5 s each.
 * Where GIVEN_MPIEXEC is NULL, mpiexec is tried under its usual names, and the first one of the
 * trainer's MPI is taken. */
void tn_mpi_find(struct tn_mpi *mpi, const char *given_mpiexec, const char *given_train);
void tn_mpi_done(struct tn_mpi *mpi);

/* Is there an mpiexec? -ENOENT. */
int tn_mpi_ready(const struct tn_mpi *mpi, struct err *error);
/* Does it start the bundled trainer? -EINVAL where the two are known to be of different MPIs. */
int tn_mpi_suits(const struct tn_mpi *mpi, struct err *error);

struct tn_mpi_job {
    int ranks;
    int per_node;              /* 0: as they come */
    const char *hosts;         /* "a:4,b:4"; NULL: this machine, or the allocation */
    const char *cpus;          /* of each rank on this machine: "0+1,2+3"; NULL: not bound */
    const char *supervisor;    /* partune-run, which binds where mpiexec has no words for it */
    const struct tn_argv *env; /* what ranks on other hosts get of it: with hosts or per_node */
    int grace_s;               /* between TERM and KILL */
    bool as_root;
};

/* Does Open MPI have to be told that root may? */
bool tn_mpi_as_root(const char *trial_user);

/* What an mpiexec on this machine keeps goes below FOLDER: one that is killed leaves it behind. */
void tn_mpi_env(struct tn_argv *env, const char *folder);
/* mpiexec and its options, up to the program. The job's hosts need a kind that is known. */
int tn_mpi_argv(struct tn_argv *argv, const struct tn_mpi *mpi, const struct tn_mpi_job *job,
                struct err *error);

/* Run ARGV with its output (both streams) in OUT, cut at SIZE. Its exit status, 128 + signal, or
 * negative where it did not start or was ended after TIMEOUT_MS. */
int tn_ask(char *out, size_t size, const char *const *argv, int timeout_ms);

#endif
