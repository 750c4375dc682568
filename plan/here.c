/* This machine as a cluster: what the system says of its cores and memory. The rates are assumed;
 * `--calibrate` of the trainer measures them. */
#include "plan/plan.h"

#include <limits.h>
#include <sched.h>
#include <unistd.h>

#include "base/base.h"

enum { TEXT_MAX = 1 << 16 };

static int cores_here(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        return CPU_COUNT(&set);
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static uint64_t meminfo_bytes(void)
{
    AUTO_FREE char *text = NULL;
    const char *p;
    unsigned long long kib;

    if (file_read_all(&text, NULL, "/proc/meminfo", TEXT_MAX, NULL) == 0 &&
        (p = strstr(text, "MemTotal:")) && sscanf(p, "MemTotal: %llu", &kib) == 1)
        return (uint64_t)kib * 1024;
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* A number in a file; UINT64_MAX where there is none, as in "max". */
static uint64_t number_of(const char *path)
{
    AUTO_FREE char *text = NULL;
    unsigned long long n;

    if (file_read_all(&text, NULL, path, TEXT_MAX, NULL) < 0 || sscanf(text, "%llu", &n) != 1)
        return UINT64_MAX;
    return n;
}

/* The smallest limit of our control group and of all above it: version 2, then version 1. */
static uint64_t cgroup_bytes(void)
{
    AUTO_FREE char *text = NULL;
    uint64_t least = number_of("/sys/fs/cgroup/memory/memory.limit_in_bytes");
    char *at, *end;

    if (file_read_all(&text, NULL, "/proc/self/cgroup", TEXT_MAX, NULL) < 0 ||
        !(at = strstr(text, "0::")))
        return least;
    at += 3;
    at[strcspn(at, "\n")] = '\0';
    while ((end = strrchr(at, '/'))) {
        AUTO_FREE char *path = mem_printf("/sys/fs/cgroup%s/memory.max", at[1] ? at : "");
        uint64_t n = number_of(path);

        if (n < least)
            least = n;
        *end = '\0';
    }
    return least;
}

void pl_cluster_here(struct pl_cluster *ret)
{
    uint64_t bytes = meminfo_bytes(), limit = cgroup_bytes();
    int cores = cores_here();

    if (limit < bytes)
        bytes = limit;
    *ret = (struct pl_cluster){
        .name = "local",
        .nodes = 1,
        .devices_per_node = cores,
        .device = {.name = "core",
                   .cpu = true,
                   .gemm_tflops = 0.1,
                   .sustained = 1,
                   .memory_gib = (double)bytes / cores / (double)(1 << 30),
                   .memory_gbs = 10},
        .link = {{.span = INT_MAX, .gbs = 4, .latency_us = 1, .kind = "shared memory"}},
        .nlinks = 1,
    };
}
