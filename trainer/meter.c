#include "trainer/meter.h"

#include "base/base.h"
#include "trainer/backend.h"
#include "trainer/sharing.h"

#include <math.h>

enum { SAMPLE_NS = 200000000 };

/* A trial with more than this share of slow samples is no measure of its layout. */
static const double SLOW_SHARE = 0.1;

static void gpu_open(struct tr_meter *meter, struct tr_comms *comms)
{
    struct tr_sharing sharing;
    struct err unread = {0};

    tr_sharing(&sharing, comms);
    meter->ranks = sharing.ranks;
    if (sharing.first && tr_nvml_open(&meter->gpu, tr_backend_bus(), &unread) < 0)
        meter->reading.joules = NAN;
    if (meter->gpu)
        meter->last = tr_nvml_joules(meter->gpu);
}

void tr_meter_open(struct tr_meter *meter, struct tr_comms *comms, bool trial)
{
    *meter = (struct tr_meter){0};
    if (!trial)
        meter->reading.joules = NAN;
    else if (*tr_backend_bus())
        gpu_open(meter, comms);
    else if (comms->first_of_host)
        tr_energy_open(&meter->packages, NULL);
}

void tr_meter_close(struct tr_meter *meter)
{
    tr_energy_close(&meter->packages);
    tr_nvml_free(meter->gpu);
    *meter = (struct tr_meter){0};
}

static void sample(struct tr_meter *meter)
{
    uint64_t now = clock_mono_ns();

    if (meter->samples && now - meter->sampled_ns < SAMPLE_NS)
        return;
    meter->sampled_ns = now;
    meter->samples++;
    meter->slow_samples += tr_nvml_slowed(meter->gpu);
    meter->reading.slowed = (double)meter->slow_samples / meter->samples;
    meter->reading.others =
        fmax(meter->reading.others, tr_nvml_processes(meter->gpu) - meter->ranks);
}

void tr_meter_read(struct tr_meter *meter, bool counts)
{
    double joules;

    tr_energy_read(&meter->packages, counts);
    if (!meter->gpu)
        return;
    joules = tr_nvml_joules(meter->gpu);
    if (counts) {
        meter->reading.joules += joules - meter->last;
        sample(meter);
    }
    meter->last = joules;
}

struct tr_reading tr_meter_reading(const struct tr_meter *meter)
{
    struct tr_reading ret = meter->reading;

    ret.joules += meter->packages.joules;
    return ret;
}

void tr_meter_disturbed(char *ret, size_t size, const struct tr_reading *all, int ranks)
{
    int slow = 0, used = 0;
    size_t n = 0;

    for (int i = 1; i < ranks; i++) {
        slow = all[i].slowed > all[slow].slowed ? i : slow;
        used = all[i].others > all[used].others ? i : used;
    }
    *ret = '\0';
    if (all[slow].slowed > SLOW_SHARE)
        n = (size_t)snprintf(ret, size,
                             "heat or the power supply slowed the GPU of rank %d (%.0f %% of the "
                             "samples)",
                             slow, 100 * all[slow].slowed);
    if (all[used].others > 0 && n < size)
        snprintf(ret + n, size - n, "%s%.0f other process%s used the GPU of rank %d", n ? "; " : "",
                 all[used].others, all[used].others > 1 ? "es" : "", used);
}
