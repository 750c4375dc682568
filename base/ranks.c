#include "base/base.h"

/* The first launcher whose RANK and SIZE are set has started this process. Slurm's own variables
 * alone say nothing: a script in an allocation has them, too. */
static const struct {
    const char *rank, *size, *local, *locals;
} launchers[] = {
    /* Hydra (MPICH, Intel MPI, MVAPICH), srun --mpi=pmi2 */
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"PALS_RANKID", "PALS_SIZE", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"}, /* Cray's mpiexec */
    {"PMIX_RANK", "SLURM_NTASKS", "SLURM_LOCALID", NULL},                 /* srun --mpi=pmix */
};

static int number_in(const char *name, int otherwise)
{
    const char *value = name ? getenv(name) : NULL;
    int64_t n;

    return value && str_to_i64(&n, value, 0, INT32_MAX) == 0 ? (int)n : otherwise;
}

void ranks_from_env(struct ranks *ret)
{
    int local = number_in("SLURM_LOCALID", -1);

    *ret = (struct ranks){NULL, 0, 1, local, -1};
    for (size_t i = 0; i < ARRAY_LEN(launchers); i++) {
        int rank = number_in(launchers[i].rank, -1), size = number_in(launchers[i].size, 0);

        if (rank < 0 || rank >= size)
            continue;
        *ret = (struct ranks){launchers[i].rank, rank, size, number_in(launchers[i].local, local),
                              number_in(launchers[i].locals, -1)};
        return;
    }
}
