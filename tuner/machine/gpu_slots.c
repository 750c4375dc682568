#include "tuner/machine/gpu_slots.h"

#include <assert.h>
#include <errno.h>
#include <glob.h>

#include "tuner/machine/proc.h"

static const char MIG[] = "MIG-";

/* The number of instance UUID, which joins GPUS if it is new; -EINVAL: there are too many. */
static int instance_number(struct tn_gpu_slots *gpus, const char *uuid)
{
    int i = 0;

    while (i < gpus->instances && !str_eq(gpus->instance[i], uuid))
        i++;
    if (i == TN_MAX_GPUS || strlen(uuid) >= TN_GPU_WORD)
        return -EINVAL;
    if (i == gpus->instances)
        snprintf(gpus->instance[gpus->instances++], TN_GPU_WORD, "%s", uuid);
    return TN_FIRST_INSTANCE + i;
}

static bool is_instance(int number)
{
    return number >= TN_FIRST_INSTANCE;
}

static int add_slot(struct tn_slots *slots, int number)
{
    for (int i = 0; i < slots->count; i++)
        if (slots->core[i] == number)
            return 0;
    if (slots->count == TN_MAX_GPUS)
        return -EINVAL;
    slots->core[slots->count++] = number;
    return 0;
}

/* One word of a list: a number, a range of them, or an instance. */
static int add_word(struct tn_gpu_slots *gpus, const char *word)
{
    int gpu[TN_MAX_GPUS], n = 1, r = 0;

    if (str_starts(word, MIG))
        n = (gpu[0] = instance_number(gpus, word)) < 0 ? -EINVAL : 1;
    else
        n = *word ? tn_cpus_parse(gpu, TN_MAX_GPUS, word) : -EINVAL;
    for (int i = 0; i < n && r == 0; i++)
        r = is_instance(gpu[i]) == str_starts(word, MIG) ? add_slot(&gpus->slots, gpu[i]) : -EINVAL;
    return n < 0 ? n : r;
}

/* What a list names, each once; -EINVAL. */
static int set_list(struct tn_gpu_slots *gpus, const char *list)
{
    AUTO_FREE char *copy = mem_strdup(list);
    char *rest = copy;
    int r = 0;

    while (*list && rest && r == 0)
        r = add_word(gpus, strsep(&rest, ","));
    if (gpus->instances && gpus->instances < gpus->slots.count)
        r = -EINVAL; /* CUDA shows no process both */
    if (r < 0)
        gpus->slots.count = gpus->instances = 0;
    return r;
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
        log_warn("GPU %d gets no trials: it is divided by MIG (--gpus MIG-... names instances)",
                 number);
}

static bool has_instance(const struct tn_gpus *found, const char *uuid)
{
    for (int i = 0; i < found->count; i++)
        for (int k = 0; k < found->gpu[i].instances; k++)
            if (str_eq(found->gpu[i].instance[k].uuid, uuid))
                return true;
    return false;
}

/* All whole GPUs; or, where there is none, all instances. */
static void take_all(struct tn_gpu_slots *gpus, const struct tn_gpus *found)
{
    bool whole = false;

    for (int i = 0; i < found->count && i < TN_MAX_GPUS; i++)
        whole |= is_whole(&found->gpu[i]);
    for (int i = 0; i < found->count && i < TN_MAX_GPUS; i++) {
        const struct tn_gpu *gpu = &found->gpu[i];

        if (whole || gpu->error.text[0] || !gpu->instances)
            (void)add_slot(&gpus->slots, i);
        for (int k = 0; k < gpu->instances && !whole; k++) {
            int number = instance_number(gpus, gpu->instance[k].uuid);

            if (number >= 0)
                (void)add_slot(&gpus->slots, number);
        }
    }
}

/* All that FOUND has, if a list has not NAMED them, without those that no trial can have. */
static int choose(struct tn_gpu_slots *gpus, const struct tn_gpus *found, bool named,
                  struct err *error)
{
    struct tn_slots *slots = &gpus->slots;
    int n = 0;

    if (!named)
        take_all(gpus, found);
    for (int i = 0; i < slots->count; i++) {
        int gpu = slots->core[i];
        const char *uuid = is_instance(gpu) ? gpus->instance[gpu - TN_FIRST_INSTANCE] : NULL;

        if (uuid && !has_instance(found, uuid))
            return err_set(error, -EINVAL,
                           "NVML has no MIG instance %s (partune doctor lists them)", uuid);
        if (!uuid && gpu >= found->count)
            return err_set(error, -EINVAL, "there is no GPU %d: NVML counts %d", gpu, found->count);
        if (uuid || is_whole(&found->gpu[gpu]))
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
    if (list && set_list(ret, list) < 0)
        return err_set(error, -EINVAL,
                       "no list of GPUs, such as 0-3,6, or of MIG instances, MIG-UUID,MIG-UUID: %s",
                       list);
    if (!list && visible && set_list(ret, visible) < 0) {
        log_warn("CUDA_VISIBLE_DEVICES=%s names neither numbers nor MIG instances: one trial at a "
                 "time gets all GPUs "
                 "(--gpus)",
                 visible);
        ret->one = true;
        return 0;
    }
    r = tn_gpus_read(&found, &why);
    if (r == 0) {
        r = choose(ret, &found, list || visible, error);
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

const char *tn_gpus_held_text(char *buf, size_t size, const struct tn_gpu_slots *gpus,
                              const struct tn_gpus_held *held)
{
    size_t at = 0;

    if (held->all)
        return ALL;
    if (!held->count)
        return NULL;
    if (!is_instance(held->gpu[0]))
        return tn_cpus_text(buf, size, held->gpu, held->count);
    for (int i = 0; i < held->count && at < size; i++) {
        assert(held->gpu[i] - TN_FIRST_INSTANCE < gpus->instances);
        at += (size_t)snprintf(buf + at, size - at, "%s%s", i ? "," : "",
                               gpus->instance[held->gpu[i] - TN_FIRST_INSTANCE]);
    }
    return buf;
}

void tn_gpus_held_parse(struct tn_gpus_held *ret, const struct tn_gpu_slots *gpus, const char *text)
{
    AUTO_FREE char *copy = mem_strdup(text ? text : "");
    char *rest = copy, *word;

    *ret = (struct tn_gpus_held){.all = str_eq(text, ALL)};
    if (text && !ret->all && !str_starts(text, MIG))
        ret->count = tn_cpus_parse(ret->gpu, TN_MAX_GPUS, text);
    if (ret->count < 0)
        ret->count = 0;
    while (str_starts(copy, MIG) && (word = strsep(&rest, ",")))
        for (int i = 0; i < gpus->instances && ret->count < TN_MAX_GPUS; i++)
            if (str_eq(gpus->instance[i], word))
                ret->gpu[ret->count++] = TN_FIRST_INSTANCE + i;
}
