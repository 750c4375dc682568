#include "tuner/programs/run_bind.h"

#include <errno.h>
#include <sched.h>

/* The entry's CPUs, up to the comma. */
static int parse(cpu_set_t *ret, const char *entry)
{
    CPU_ZERO(ret);
    for (const char *p = entry;; p++) {
        size_t n = strspn(p, "0123456789");
        long cpu = n > 0 && n < 6 ? strtol(p, NULL, 10) : CPU_SETSIZE;

        if (cpu >= CPU_SETSIZE)
            return -EINVAL;
        CPU_SET((size_t)cpu, ret);
        p += n;
        if (!*p || *p == ',')
            return 0;
        if (*p != '+')
            return -EINVAL;
    }
}

int run_bind(const char *list, struct err *error)
{
    struct ranks ranks;
    const char *entry = list;
    cpu_set_t set;
    int local;

    ranks_from_env(&ranks);
    local = ranks.local >= 0 ? ranks.local : ranks.rank;
    if (!ranks.by)
        return err_set(error, -EINVAL,
                       "--bind: the rank is unknown (none of PMI_RANK, OMPI_COMM_WORLD_RANK, "
                       "PMIX_RANK is set): start it with mpiexec or srun");
    for (int i = 0; i < local && entry; i++) {
        entry = strchr(entry, ',');
        entry += entry != NULL;
    }
    if (!entry)
        return err_set(error, -EINVAL, "--bind: rank %d of this host has no entry in %s", local,
                       list);
    if (parse(&set, entry) < 0)
        return err_set(error, -EINVAL, "--bind: %s is not a list such as 0+1,2+3", list);
    if (sched_setaffinity(0, sizeof(set), &set) < 0)
        return err_set(error, -errno, "--bind: rank %d of this host to %.*s: %s", local,
                       (int)strcspn(entry, ","), entry, strerror(errno));
    return 0;
}
