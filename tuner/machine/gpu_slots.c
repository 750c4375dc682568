#include "tuner/machine/gpu_slots.h"

#include <assert.h>
#include <errno.h>
#include <glob.h>

#include "tuner/machine/gpus.h"
#include "tuner/machine/proc.h"

/* Numbers of a list, each once, in SLOTS; -EINVAL. */
static int set_list(struct tn_slots *slots, const char *list)
{
    int gpu[TN_MAX_GPUS], n = *list ? tn_cpus_parse(gpu, TN_MAX_GPUS, list) : 0;

    if (n < 0)
        return -EINVAL;
    slots->count = 0;
    for (int i = 0; i < n; i++) {
        bool again = false;

        for (int k = 0; k < slots->count; k++)
            again |= slots->core[k] == gpu[i];
        if (!again)
            slots->core[slots->count++] = gpu[i];
    }
    return 0;
}

/* A trial can have all of it. */
static bool is_whole(const struct tn_gpu *gpu)
{
    return !gpu->error.text[0] && gpu->mig != TN_GPU_ON;
}

static void warn(const struct tn_gpu *gpu, int number)
{
    if (gpu->error.text[0])
        log_warn("GPU %d gets no trials: %s", number, gpu->error.text);
    else
        log_warn("GPU %d gets no trials: it is divided by MIG", number);
}

/* All that FOUND has, if a list has not named them, without those that no trial can have. */
static int choose(struct tn_slots *slots, const struct tn_gpus *found, bool named,
                  struct err *error)
{
    int n = 0;

    for (int i = 0; !named && i < found->count && i < TN_MAX_GPUS; i++)
        slots->core[slots->count++] = i;
    for (int i = 0; i < slots->count; i++) {
        int gpu = slots->core[i];

        if (gpu >= found->count)
            return err_set(error, -EINVAL, "there is no GPU %d: NVML counts %d", gpu, found->count);
        if (is_whole(&found->gpu[gpu]))
            slots->core[n++] = gpu;
        else
            warn(&found->gpu[gpu], gpu);
    }
    slots->count = n;
    return 0;
}

/* Device files of accelerators: kfd is AMD's, accel Intel's and Google's. Those of /dev/dri are of
 * any screen, too. */
static bool is_any(void)
{
    static const char *const files[] = {"/dev/kfd", "/dev/accel*", "/dev/neuron*", "/dev/davinci*",
                                        "/dev/nvidia[0-9]*"};
    bool found = false;

    for (size_t i = 0; i < ARRAY_LEN(files) && !found; i++) {
        glob_t at = {0};

        found = glob(files[i], 0, NULL, &at) == 0;
        globfree(&at);
    }
    return found;
}

int tn_gpu_slots_init(struct tn_gpu_slots *ret, const char *list, struct err *error)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    struct tn_gpus found;
    struct err why = {0};
    int r;

    *ret = (struct tn_gpu_slots){0};
    ret->hidden = !list && (str_eq(visible, "") || str_eq(visible, "-1"));
    if (ret->hidden)
        return 0;
    if (list && set_list(&ret->slots, list) < 0)
        return err_set(error, -EINVAL, "no list of GPUs, such as 0-3,6: %s", list);
    if (!list && visible && set_list(&ret->slots, visible) < 0) {
        log_warn("CUDA_VISIBLE_DEVICES=%s names no numbers: one trial at a time gets all GPUs "
                 "(--gpus)",
                 visible);
        ret->one = true;
        return 0;
    }
    r = tn_gpus_read(&found, &why);
    if (r == 0) {
        r = choose(&ret->slots, &found, list || visible, error);
        ret->counted = true;
    } else {
        if (r != -ENOENT)
            log_warn("GPUs are not counted: %s", why.text);
        ret->counted = list || visible;
        ret->one = is_any();
        r = 0;
    }
    tn_gpus_done(&found);
    ret->slots.free = ret->slots.count;
    return r;
}

bool tn_gpu_slots_take(struct tn_gpus_held *ret, struct tn_gpu_slots *gpus, int count)
{
    assert(count > 0);
    *ret = (struct tn_gpus_held){0};
    if (!gpus->counted) {
        if (gpus->held)
            return false;
        ret->all = gpus->held = gpus->one;
        return true;
    }
    if (!tn_slots_take(ret->gpu, &gpus->slots, count))
        return false;
    ret->count = count;
    return true;
}

void tn_gpu_slots_take_held(struct tn_gpu_slots *gpus, const struct tn_gpus_held *held)
{
    gpus->held |= held->all;
    tn_slots_take_list(&gpus->slots, held->gpu, held->count);
}

void tn_gpu_slots_give(struct tn_gpu_slots *gpus, struct tn_gpus_held *held)
{
    assert(!held->all || held->count == 0);
    if (held->all)
        gpus->held = false;
    tn_slots_give(&gpus->slots, held->gpu, held->count);
    *held = (struct tn_gpus_held){0};
}

static const char ALL[] = "all";

const char *tn_gpus_held_text(char *buf, size_t size, const struct tn_gpus_held *held)
{
    if (held->all)
        return ALL;
    return held->count ? tn_cpus_text(buf, size, held->gpu, held->count) : NULL;
}

void tn_gpus_held_parse(struct tn_gpus_held *ret, const char *text)
{
    *ret = (struct tn_gpus_held){.all = str_eq(text, ALL)};
    if (text && !ret->all)
        ret->count = tn_cpus_parse(ret->gpu, TN_MAX_GPUS, text);
    if (ret->count < 0)
        ret->count = 0;
}
