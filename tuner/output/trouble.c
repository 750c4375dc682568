/*
 * Lines of a program's output that say why it is about to die.
 *
 * A text is decided by its form, not by a word in it: a library's name for the failure, or the
 * phrase "out of memory" as the statement of an error. Advice ("to avoid running out of memory"),
 * options and warnings contain the same words. What is found here is a suspicion: it becomes the
 * outcome only if the program then ends without a result.
 */
#include <ctype.h>

#include "tuner/output/trouble.h"

/* Nothing but a failure prints these. */
static const char *const no_memory[] = {
    "out of memory. Tried to allocate", /* PyTorch, on every kind of device */
    "CUDA_ERROR_OUT_OF_MEMORY",
    "cudaErrorMemoryAllocation",
    "hipErrorOutOfMemory",
    "hipErrorMemoryAllocation",
    "OUT_OF_DEVICE_MEMORY", /* Unified Runtime, Level Zero, Vulkan, OpenCL */
    "OUT_OF_HOST_MEMORY",
    "MEM_OBJECT_ALLOCATION_FAILURE",
    "STATUS_ALLOC_FAILED", /* cuBLAS, cuDNN, cuSPARSE, hipBLAS */
    "rocblas_status_memory_error",
    "PT_DEVMEM Allocation failed",       /* Gaudi */
    "Failed to alloc DEVICE memory",     /* Neuron's runtime */
    "Ran out of memory in memory space", /* XLA, of TPUs */
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "std::bad_alloc",
    "[Errno 12] Cannot allocate memory",
    "oom_kill event", /* slurmstepd */
    "oom-kill event",
    "cgroup out-of-memory handler",
    "invoked oom-killer",
    "out of memory: Kill", /* the kernel, of a cgroup and of the machine */
    "Out of memory: Kill",
};

/* The device, its bus or its driver, not the program. A GPU that fell off the bus is an unknown
 * error. */
static const char *const lost_device[] = {
    "uncorrectable ECC error encountered", /* CUDA's and HIP's texts, then their names */
    "uncorrectable NVLink error detected",
    "device(s) is/are busy or unavailable",
    "-capable device is detected", /* no CUDA-, no ROCm- */
    "CUDA error: unknown error",
    "HIP error: unknown error",
    "ECCUncorrectable",
    "ECC_UNCORRECTABLE",
    "ECCNotCorrectable",
    "NvlinkUncorrectable",
    "NVLINK_UNCORRECTABLE",
    "cudaErrorDevicesUnavailable",
    "CUDA_ERROR_DEVICE_UNAVAILABLE",
    "RESULT_ERROR_DEVICE_LOST", /* Unified Runtime, Level Zero */
    "GPU is lost",              /* NVML */
    "GPU has fallen off the bus",
};

static const char *const not_finite[] = {
    "found NaN in", /* Megatron-LM and Bridge, of a loss or a gradient */
    "found Inf in",
    "is non-finite, so it cannot be clipped", /* PyTorch */
    "returned nan values in its",
    "Current loss scale already at minimum", /* DeepSpeed, fp16 */
};

static bool any_of(const char *text, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strstr(text, list[i]))
            return true;
    return false;
}

/* Does one of LIST, which is in lower case, occur in the LEN bytes at TEXT? */
static bool word_before(const char *text, size_t len, const char *const *list, size_t count)
{
    AUTO_FREE char *lower = mem_alloc(len + 1);

    for (size_t i = 0; i < len; i++)
        lower[i] = (char)tolower((unsigned char)text[i]);
    lower[len] = '\0';
    return any_of(lower, list, count);
}

/* "OutOfMemoryError: ..." heads an exception, "MemoryError" may be all of it; in "except
 * OutOfMemoryError:" it is a source line. */
static bool heads_an_exception(const char *text)
{
    static const char name[] = "MemoryError";
    static const char *const code[] = {"except ", "isinstance", "import ", "catch"};

    for (const char *at = text; (at = strstr(at, name)); at += sizeof(name) - 1) {
        const char *end = at + sizeof(name) - 1;

        if ((*end == ':' || *end == '(' || !end[strspn(end, " ")]) &&
            !word_before(text, (size_t)(at - text), code, ARRAY_LEN(code)))
            return true;
    }
    return false;
}

/* After the phrase an error ends, or says where and when; "out of memory errors" is talk of them.
 */
static bool ends_as_an_error(const char *after)
{
    static const char *const next[] = {" on ",    " at ",     " in ",         " while ",
                                       " trying", " during ", " allocating ", " ("};

    if (!*after || (!isalnum((unsigned char)*after) && !strchr(" -_/", *after)))
        return true;
    for (size_t i = 0; i < ARRAY_LEN(next); i++)
        if (str_starts(after, next[i]))
            return true;
    return !after[strspn(after, " ")];
}

/* Where the last clause of the LEN bytes at TEXT begins: after a colon, a semicolon or a full stop.
 */
static size_t last_clause(const char *text, size_t len)
{
    for (size_t i = len; i > 1; i--)
        if (text[i - 1] == ' ' && strchr(":;.", text[i - 2]))
            return i;
    return 0;
}

/* Before the phrase: the LEN bytes at TEXT. */
static bool begins_as_an_error(const char *text, size_t len)
{
    static const char *const talk[] = {"warn", "avoid", "prevent", "if you",  "in case",
                                       "hint", "note:", " may ",   " might ", "--"};
    static const char *const hedges[] = {" can ", " could ", " would ", "if ",        "unless ",
                                         "risk",  "without", "reduce",  "instead of", "when ",
                                         "not ",  "never ",  "handl"};
    static const char *const marks[] = {"error",  "exception", "fatal",
                                        "failed", "failure",   "abort"};
    static const char *const devices[] = {"cuda ", "hip ", "xpu ", "gpu ", "npu ", "device "};
    static const char *const failures[] = {"cuda failure", "hip failure"};
    size_t near = len > 24 ? len - 24 : 0, clause = last_clause(text, len);

    /* NCCL and RCCL: "NCCL WARN Cuda failure 2 'out of memory'" ends the job, warning or not. */
    if (len > 0 && text[len - 1] == '\'' &&
        word_before(text + near, len - near, failures, ARRAY_LEN(failures)))
        return true;
    if (word_before(text, len, talk, ARRAY_LEN(talk)) ||
        word_before(text + clause, len - clause, hedges, ARRAY_LEN(hedges)))
        return false;
    near = len > 7 ? len - 7 : 0;
    if (word_before(text + near, len - near, devices, ARRAY_LEN(devices)) && text[len - 1] == ' ')
        return true;
    return (clause == len || (len >= 4 && !strncmp(text + len - 4, "ran ", 4))) &&
           word_before(text, len, marks, ARRAY_LEN(marks));
}

static bool states_no_memory(const char *text)
{
    static const char phrase[] = "out of memory";

    for (const char *at = text; (at = strcasestr(at, phrase)); at += sizeof(phrase) - 1)
        if (begins_as_an_error(text, (size_t)(at - text)) &&
            ends_as_an_error(at + sizeof(phrase) - 1))
            return true;
    return false;
}

const char *tn_log_trouble(const char *text)
{
    /* Of a flood of lines nearly all have none of these. */
    bool memory = strstr(text, "emory") || strstr(text, "MEM") || strstr(text, "ALLOC") ||
                  strstr(text, "alloc") || strstr(text, "Alloc") || strstr(text, "oom");

    if (memory && (any_of(text, no_memory, ARRAY_LEN(no_memory)) || heads_an_exception(text) ||
                   states_no_memory(text)))
        return "oom";
    if (any_of(text, lost_device, ARRAY_LEN(lost_device)))
        return "node_fail";
    return any_of(text, not_finite, ARRAY_LEN(not_finite)) ? "numeric" : NULL;
}

const char *tn_log_machine_trouble(const char *text, size_t size)
{
    while (size > 0) {
        const char *end = memchr(text, '\n', size);
        size_t len = end ? (size_t)(end - text) : size;
        AUTO_FREE char *line = mem_printf("%.*s", (int)len, text);
        const char *class = tn_log_trouble(line);

        if (str_eq(class, "oom") || str_eq(class, "node_fail"))
            return class;
        text += end ? len + 1 : len;
        size -= end ? len + 1 : len;
    }
    return NULL;
}
