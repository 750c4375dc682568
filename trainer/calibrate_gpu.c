/* A profile of GPUs: where they are, and what gpu_rates.h measures of them, in the plan's words. */
#include "trainer/calibrate.h"

#include <errno.h>
#include <math.h>
#include <mpi.h>

#include "plan/plan.h"
#include "trainer/algorithms.h"
#include "trainer/backend.h"
#include "trainer/comm.h"
#include "trainer/events.h"
#include "trainer/gpu_rates.h"
#include "trainer/nvml.h"
#include "trainer/start.h"

static const double GIB = 0x1p30, GIGA = 1e9, TERA = 1e12;

/* A profile is of one host with a rank for each GPU, all of a kind. */
struct place {
    uint64_t host;
    char bus[32], uuid[40], name[96];
};

static int check_place(const struct place *all, int rank, struct err *error)
{
    const struct place *first = &all[0], *here = &all[rank];

    if (here->host != first->host)
        return err_set(error, -EINVAL,
                       "rank %d is on another host than rank 0: a calibration measures one host",
                       rank);
    for (int i = 0; i < rank; i++)
        if (str_eq(all[i].bus, here->bus) && str_eq(all[i].uuid, here->uuid))
            return err_set(error, -EINVAL,
                           "ranks %d and %d have the GPU at %s: a calibration needs a GPU for each "
                           "rank (mpiexec -n GPUS, --device cuda)",
                           i, rank, here->bus);
    if (!str_eq(here->name, first->name))
        return err_set(error, -EINVAL,
                       "rank 0 has the GPU \"%s\", rank %d \"%s\": a profile is of one kind "
                       "(CUDA_VISIBLE_DEVICES chooses GPUs)",
                       first->name, rank, here->name);
    return 0;
}

/* Alike on all ranks. */
static int check_places(int *ret_ranks, struct err *error)
{
    AUTO_FREE struct place *all = NULL;
    struct place mine = {.host = tr_host_hash()};
    int r = 0;

    MPI_Comm_size(MPI_COMM_WORLD, ret_ranks);
    all = mem_alloc(sizeof(*all) * (size_t)*ret_ranks);
    snprintf(mine.bus, sizeof(mine.bus), "%s", tr_backend_bus());
    snprintf(mine.uuid, sizeof(mine.uuid), "%s", tr_backend_gpu()->uuid);
    snprintf(mine.name, sizeof(mine.name), "%s", tr_backend_device());
    tr_start_gather(&mine, sizeof(mine), all);
    for (int i = 1; i < *ret_ranks && r == 0; i++)
        r = check_place(all, i, error);
    return r;
}

/* ---- the profile --------------------------------------------------------- */

/* What the plan's all-reduce of N ranks takes (plan/collective.c): its start, 2 N latencies, and of
 * the bytes 2 (N - 1) / N each way. */
static double reduce_us(const struct tr_gpu_rates *rates)
{
    return rates->reduces ? rates->reduce[0].seconds * 1e6 : 0;
}

static double latency_us(const struct tr_gpu_rates *rates, int ranks)
{
    return fmax(reduce_us(rates) - pl_default_constants.collective_us, 0) / (2 * ranks);
}

static double reduce_bps(const struct tr_gpu_rates *rates, int ranks)
{
    const struct tr_reduce *largest = &rates->reduce[rates->reduces - 1];

    return rates->reduces ? 2.0 * (ranks - 1) / ranks * (double)largest->bytes / largest->seconds
                          : 0;
}

static double copy_bps(const struct tr_gpu_rates *rates)
{
    return fmin(rates->to_bps, rates->from_bps);
}

/* What goes faster than a GPU's link to the host does not take that link. */
static const char *kind_of(const struct tr_gpu_rates *rates, int ranks)
{
    if (!rates->nccl)
        return "through the host, by MPI";
    return reduce_bps(rates, ranks) > copy_bps(rates) ? "nvlink, by NCCL" : "by NCCL";
}

static void take_device(struct pl_device *device, const struct tr_gpu_rates *rates)
{
    double bf16 = tr_best_product(rates, KN_BF16) / TERA;
    double fp32 = tr_best_product(rates, KN_F32) / TERA;
    double bytes = rates->memory > 0 ? rates->memory : (double)tr_backend_gpu()->memory;

    if (device->tflops_fp32 <= 0)
        device->tflops_fp32 = fp32;
    device->gemm_tflops = device->tflops_bf16 > 0 ? fmin(bf16, device->tflops_bf16) : bf16;
    device->memory_gib = (bytes + rates->context + rates->library + rates->nccl_bytes) / GIB;
    device->context_gib = rates->context / GIB;
    device->library_gib = rates->library / GIB;
    device->nccl_gib = rates->nccl_bytes / GIB;
    device->memory_gbs = fmax(rates->add_bps, rates->adamw_bps) / GIGA;
    if (rates->busy_watts > 0) {
        device->busy_watts = rates->busy_watts;
        device->idle_watts = rates->idle_watts;
    }
}

static void take_cluster(struct pl_cluster *ret, const struct pl_device *device,
                         const struct tr_gpu_rates *rates, int ranks)
{
    struct pl_cluster here;

    pl_cluster_here(&here);
    *ret = (struct pl_cluster){
        .name = "local",
        .nodes = 1,
        .devices_per_node = ranks,
        .device = *device,
        .host = {.memory_gib = here.device.memory_gib * here.devices_per_node,
                 .link_gbs = copy_bps(rates) / GIGA},
        .measured = true,
    };
    take_device(&ret->device, rates);
    if (ranks < 2)
        return;
    ret->nlinks = 1;
    ret->link[0] = (struct pl_link){.span = ranks,
                                    .gbs = reduce_bps(rates, ranks) / GIGA,
                                    .share = 1,
                                    .latency_us = latency_us(rates, ranks)};
    snprintf(ret->link[0].kind, sizeof(ret->link[0].kind), "%s", kind_of(rates, ranks));
}

/* Where the facts are from that were not measured. */
static void add_sources(json_t *json, const char *profile, const struct tr_gpu_rates *rates)
{
    AUTO_FREE char *text = NULL;

    if (profile) {
        text = mem_printf("device.peak_tflops, .gemm_tflops_fp8%s .sustained%s: profile %s",
                          rates->busy_watts > 0 ? " and" : ",",
                          rates->busy_watts > 0 ? "" : " and watts", profile);
        json_object_set_new(json, "source", json_pack("[s]", text));
    } else {
        json_object_set_new(json, "assumed",
                            json_pack("[s, s]",
                                      "device.peak_tflops.fp32: the best measured product in fp32",
                                      "device.sustained"));
    }
}

/* ---- the stamp ----------------------------------------------------------- */

static void driver_text(char *ret, size_t size)
{
    const struct kn_gpu *gpu = tr_backend_gpu();
    struct tr_nvml *nvml = NULL;
    struct err unread = {0};
    char version[64] = "";

    if (tr_nvml_open(&nvml, gpu->bus, &unread) == 0)
        tr_nvml_driver(version, sizeof(version), nvml);
    tr_nvml_free(nvml);
    snprintf(ret, size, "%s%sCUDA %d.%d", version, *version ? ", " : "", gpu->cuda / 1000,
             gpu->cuda % 1000 / 10);
}

static json_t *products_json(const struct tr_gpu_rates *rates)
{
    json_t *list = json_array();

    for (int i = 0; i < rates->products; i++) {
        const struct tr_product *p = &rates->product[i];

        json_array_append_new(list, json_pack("{s:s, s:s, s:[I, I, I], s:f}", "form",
                                              tr_product_forms[p->form], "precision",
                                              p->type == KN_F32 ? "fp32" : "bf16", "mnk",
                                              (json_int_t)p->m, (json_int_t)p->n, (json_int_t)p->k,
                                              "tflops", p->flops / TERA));
    }
    return list;
}

static json_t *reduces_json(const struct tr_gpu_rates *rates)
{
    json_t *list = json_array();

    for (int i = 0; i < rates->reduces; i++)
        json_array_append_new(list,
                              json_pack("{s:I, s:f}", "bytes", (json_int_t)rates->reduce[i].bytes,
                                        "us", rates->reduce[i].seconds * 1e6));
    return list;
}

static json_t *measured_json(const struct tr_gpu_rates *rates, int ranks)
{
    json_t *v =
        json_pack("{s:f, s:f, s:f, s:I, s:f, s:I, s:f, s:f}", "gemm_bf16_tflops",
                  tr_best_product(rates, KN_BF16) / TERA, "gemm_fp32_tflops",
                  tr_best_product(rates, KN_F32) / TERA, "add_gbs", rates->add_bps / GIGA,
                  "add_bytes", (json_int_t)rates->add_bytes, "adamw_gbs", rates->adamw_bps / GIGA,
                  "adamw_bytes", (json_int_t)rates->adamw_bytes, "to_gpu_gbs", rates->to_bps / GIGA,
                  "from_gpu_gbs", rates->from_bps / GIGA);

    if (rates->reduces)
        json_object_update_new(
            v, json_pack("{s:f, s:f, s:f, s:f}", "all_reduce_us", reduce_us(rates),
                         "all_reduce_gbs", reduce_bps(rates, ranks) / GIGA, "transfer_us",
                         rates->transfer_s * 1e6, "transfer_gbs", rates->ring_bps / GIGA));
    return v;
}

static json_t *stamp_json(const struct tr_gpu_rates *rates, int ranks)
{
    char build[128], date[CLOCK_TEXT], driver[96];
    json_t *v, *algorithms = tr_algorithms_json(rates);

    tr_build_name(build, "cuda");
    clock_format(date, clock_wall_ms());
    driver_text(driver, sizeof(driver));
    v = json_pack("{s:s, s:i, s:f, s:s, s:s, s:s, s:o, s:o}", "gpu", tr_backend_device(), "gpus",
                  ranks, "gpu_memory_gib", (double)tr_backend_gpu()->memory / GIB, "driver", driver,
                  "build", build, "date", date, "measured", measured_json(rates, ranks), "products",
                  products_json(rates));
    if (rates->reduces)
        json_object_set_new(v, "all_reduce", reduces_json(rates));
    if (algorithms)
        json_object_set_new(v, "algorithms", algorithms);
    if (rates->disturbed[0])
        json_object_set_new(v, "disturbed", json_string(rates->disturbed));
    return v;
}

/* ---- for people ---------------------------------------------------------- */

static void tell_between(const struct tr_gpu_rates *rates, const struct pl_cluster *cluster)
{
    const struct pl_link *link = &cluster->link[0];

    printf("between them, %s:\n", link->kind);
    printf("  all-reduce    %8.2f us, %.2f GB/s each way\n", reduce_us(rates), link->gbs);
    printf("  transfer      %8.2f us, %.2f GB/s each way, %s\n", rates->transfer_s * 1e6,
           rates->ring_bps / GIGA, rates->nccl ? "by NCCL" : "by MPI");
}

/* How many products are faster by another algorithm than the heuristic's first. */
static void tell_algorithms(const struct tr_gpu_rates *rates)
{
    double most = 1;
    int tried = 0, other = 0;

    for (int i = 0; i < rates->products; i++) {
        const struct tr_product *p = &rates->product[i];

        tried += p->tried > 0;
        other += p->algo_number > 0;
        if (p->algo_number > 0)
            most = fmax(most, p->algo_flops / p->first_flops);
    }
    if (tried)
        printf("  algorithms    %8d products, of which %d have another one than %s's heuristic "
               "chooses (up to %.2f times as fast)\n",
               tried, other, kn_gemm_library(), most);
    if (rates->left_out)
        printf("  %d products of the model were left out: they take too long, or too much memory\n",
               rates->left_out);
}

static void tell(const struct tr_config *config, const struct tr_gpu_rates *rates,
                 const struct pl_cluster *cluster)
{
    double bf16 = tr_best_product(rates, KN_BF16) / TERA;
    const struct pl_device *device = &cluster->device;
    int ranks = cluster->devices_per_node;

    if (config->quiet)
        return;
    printf("%d GPU%s, %s:\n", ranks, ranks > 1 ? "s, all of them busy" : "", device->name);
    printf("  product       %8.3f TFLOP/s in bf16, %.3f in fp32\n", bf16,
           tr_best_product(rates, KN_F32) / TERA);
    if (bf16 > device->gemm_tflops)
        printf("  that is above the peak of %g in bf16, which the profile has instead: the clock "
               "is wrong, or this is another device\n",
               device->tflops_bf16);
    tell_algorithms(rates);
    printf("  memory        %8.2f GiB, %.2f GB/s\n", device->memory_gib, device->memory_gbs);
    if (device->context_gib > 0)
        printf("  of that       %8.2f GiB context, %.2f libraries, %.2f NCCL\n",
               device->context_gib, device->library_gib, device->nccl_gib);
    if (rates->busy_watts > 0)
        printf("  power         %8.1f W idle, %.1f W in products\n", rates->idle_watts,
               rates->busy_watts);
    printf("  host          %8.2f GB/s to a GPU, %.2f from it\n", rates->to_bps / GIGA,
           rates->from_bps / GIGA);
    if (cluster->nlinks)
        tell_between(rates, cluster);
    if (rates->disturbed[0])
        printf("not alone: %s\n", rates->disturbed);
    printf("written to %s\n", config->calibrate);
}

int tr_calibrate_gpu(const struct tr_config *config, struct err *error)
{
    AUTO_FREE struct tr_gpu_rates *rates = mem_alloc(sizeof(*rates));
    struct pl_device device;
    struct pl_cluster cluster;
    struct pl_model model = config->model;
    const char *profile;
    json_t *v;
    int rank, ranks;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    model.seq = config->workload.seq;
    if (check_places(&ranks, error) < 0)
        return TR_EXIT_USAGE;
    if (tr_gpu_rates(rates, *model.name ? &model : NULL, error) < 0)
        return TR_EXIT_OOM;
    if (rank != 0)
        return TR_EXIT_OK;
    profile = pl_device_known(&device, tr_backend_device());
    take_cluster(&cluster, &device, rates, ranks);
    v = pl_cluster_json(&cluster);
    add_sources(v, profile, rates);
    json_object_set_new(v, "stamp", stamp_json(rates, ranks));
    if (tr_profile_write(config->calibrate, v, error) < 0)
        return TR_EXIT_IO;
    tell(config, rates, &cluster);
    return TR_EXIT_OK;
}
