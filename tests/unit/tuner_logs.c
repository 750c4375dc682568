/*
 * What other trainers print, read as their trial's result: tests/data/logs has a log a file, in the
 * forms of the trainers' own sources, with what it must be read as.
 *
 *     # parser=NAME world=N tp=N pp=N batch=N seq=N exit=CODE
 *     # want OUTCOME steps=N tokens_per_s=N memory_gib=N loss=N
 *     o a line on stdout
 *     e a line on stderr
 */
#include "tests/unit/unit.h"

#include <dirent.h>
#include <math.h>

#include "tuner/core/attempt.h"
#include "tuner/core/campaign.h"
#include "tuner/core/engine.h"
#include "tuner/machine/proc.h"
#include "tuner/output/observe.h"
#include "tuner/output/trouble.h"
#include "tuner/state/service.h"
#include "tuner/trainers/trainers.h"

/* The value of KEY=VALUE in LINE, OTHERWISE if it is not there. */
static double value(const char *line, const char *key, double otherwise)
{
    AUTO_FREE char *word = mem_printf(" %s=", key);
    const char *at = strstr(line, word);

    return at ? strtod(at + strlen(word), NULL) : otherwise;
}

/* An attempt of a trainer that is configured for it; nothing is run. */
struct world {
    struct conf *conf;
    struct tn_service svc;
    struct tn_spec spec;
    struct tn_engine engine;
    struct tn_campaign campaign;
    struct tn_trial trial;
    struct tn_attempt attempt;
};

static void world_open(struct world *w, const char *parser, const char *head)
{
    AUTO_FREE char *text = mem_printf("[trainer \"x\"]\ncommand = x\nparser = %s\n", parser);
    struct err e = {0};

    *w = (struct world){
        .spec = {.se = {.limits = {.warmup_steps = 1, .min_steps = 3, .max_steps = 100}}}};
    if (conf_parse(&w->conf, text, "x", &e) < 0)
        fail_msg("%s", e.text);
    w->svc.config.conf = w->conf;
    w->spec.se.workload.global_batch = (int)value(head, "batch", 8);
    w->spec.se.workload.seq = (int)value(head, "seq", 64);
    snprintf(w->spec.trainer_name, sizeof(w->spec.trainer_name), "x");
    w->engine.spec = &w->spec;
    w->campaign.svc = &w->svc;
    w->campaign.engine = &w->engine;
    w->trial.campaign = &w->campaign;
    w->trial.layout.world = (int)value(head, "world", 8);
    w->trial.layout.tp = (int)value(head, "tp", 1);
    w->trial.layout.pp = (int)value(head, "pp", 1);
    w->trial.run.workload = w->spec.se.workload;
    w->trial.run.layout = w->trial.layout;
    w->attempt.svc = &w->svc;
    w->attempt.campaign = &w->campaign;
    w->attempt.trial = &w->trial;
    w->attempt.limits = w->spec.se.limits;
    w->attempt.trainer = tn_trainer_external(&w->svc, "x");
    w->attempt.exit = (struct tn_exit){.known = true, .code = (int)value(head, "exit", 0)};
    tn_seen_init(&w->attempt.seen);
}

static void world_close(struct world *w)
{
    tn_seen_done(&w->attempt.seen);
    conf_free(w->conf);
}

/* Step numbers must rise: each is in the database once. */
static void feed(struct world *w, enum tn_stream stream, const char *line, int64_t *last)
{
    struct tn_step_line step = {0};

    if (w->attempt.trainer->line(&step, &w->attempt, stream, line, strlen(line)) == TN_LINE_STEP) {
        AUTO_JSON *v = unit_json(step.json);

        assert_true(json_is_object(v) && step.n > *last);
        *last = step.n;
    }
    free(step.json);
}

static const char *outcome(const struct tn_seen *s)
{
    return s->summary ? "ok" : s->error ? s->error_class : "crash";
}

static bool near(double got, double want)
{
    return isnan(want) || fabs(got / want - 1) < 1e-3;
}

static void check(const char *name, const struct tn_seen *s, const char *want)
{
    double steps = value(want, "steps", s->steps),
           memory = value(want, "memory_gib", NAN) * 1073741824;
    AUTO_FREE char *word = mem_printf("# want %s", outcome(s));

    if (!str_starts(want, word))
        fail_msg("%s: %s (%s) for: %s", name, outcome(s), s->detail, want);
    if (s->steps != (int)steps)
        fail_msg("%s: %d steps for: %s", name, s->steps, want);
    if (!near(s->tokens_per_s, value(want, "tokens_per_s", NAN)))
        fail_msg("%s: %.1f tokens/s for: %s", name, s->tokens_per_s, want);
    if (!near(json_number_value(json_object_get(s->reached, "total")), memory))
        fail_msg("%s: wrong memory for: %s", name, want);
    if (!near(s->loss_last, value(want, "loss", NAN)))
        fail_msg("%s: loss %g for: %s", name, s->loss_last, want);
}

static void read_log(const char *name, char *text)
{
    char *head = strsep(&text, "\n"), *want = strsep(&text, "\n"), *line;
    char parser[32] = "";
    int64_t last = -1;
    struct world w;

    sscanf(head, "# parser=%31s", parser);
    world_open(&w, parser, head);
    while ((line = strsep(&text, "\n")))
        if (*line)
            feed(&w, *line == 'o' ? TN_STDOUT : TN_STDERR, line + 2, &last);
    w.attempt.trainer->finish(&w.attempt);
    check(name, &w.attempt.seen, want);
    world_close(&w);
}

static void logs_are_read_as_their_trainers_meant_them(void **state)
{
    AUTO_FREE char *folder = mem_printf("%s/tests/data/logs", getenv("PT_SRC"));
    DIR *d = opendir(folder);
    int count = 0;

    (void)state;
    assert_non_null(d);
    for (struct dirent *entry; (entry = readdir(d));) {
        AUTO_FREE char *path = mem_printf("%s/%s", folder, entry->d_name);
        AUTO_FREE char *text = NULL;
        struct err e = {0};

        if (entry->d_name[0] == '.')
            continue;
        if (file_read_all(&text, NULL, path, 1 << 20, &e) < 0)
            fail_msg("%s", e.text);
        read_log(entry->d_name, text);
        count++;
    }
    closedir(d);
    assert_true(count >= 28);
}

/* ---- which lines say that a program dies --------------------------------- */

static void failures_are_told_from_talk_of_them(void **state)
{
    static const struct {
        const char *want, *line;
    } rows[] = {
        {"oom", "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 39.4 GiB)"},
        {"oom",
         "[rank3]: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB"},
        {"oom", "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 4.00 GiB. GPU 2 has"},
        {"oom", "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 512.00 MiB. GPU 0"},
        {"oom", "RuntimeError: CUDA error: out of memory"},
        {"oom", "torch.AcceleratorError: CUDA error: out of memory"},
        {"oom", "RuntimeError: HIP error: out of memory"},
        {"oom", "RuntimeError: Triton Error [CUDA]: out of memory"},
        {"oom", "h1:88:91 [0] init.cc:44 NCCL WARN Cuda failure 'out of memory'"},
        {"oom", "h1:88:91 [0] init.cc:44 NCCL WARN Cuda failure 2 'out of memory'"},
        {"oom", "h1:88:91 [0] init.cc:44 NCCL WARN HIP failure 'out of memory'"},
        {"oom", "Last error: Cuda failure 'out of memory'"},
        {"oom", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"},
        {"oom", "CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling hipblasCreate"},
        {"oom", "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED"},
        {"oom", "Native API failed. Native API returns: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)"},
        {"oom", "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)"},
        {"oom", "ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY"},
        {"oom", "RuntimeError: [Rank:3] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for "
                "size::40960000 (39.0625)MB"},
        {"oom",
         "2026-Mar-02 08:01:09.552711 71:71 ERROR  TDRV:dmem_alloc_internal   Failed to alloc "
         "DEVICE memory: 536870912"},
        {"oom", "XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of "
                "memory in memory space hbm. Used 97.1G of 95.7G hbm."},
        {"oom", "ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY"},
        {"oom", "hipErrorOutOfMemory: out of memory"},
        {"oom", "cuMemCreate failed: CUDA_ERROR_OUT_OF_MEMORY"},
        {"oom", "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: "
                "can't allocate memory: you tried to allocate 68719476736 bytes."},
        {"oom", "MemoryError"},
        {"oom",
         "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 9.31 GiB for an array"},
        {"oom", "OSError: [Errno 12] Cannot allocate memory"},
        {"oom", "terminate called after throwing an instance of 'std::bad_alloc'"},
        {"oom",
         "slurmstepd: error: Detected 1 oom_kill event in StepId=71.0. Some of the step tasks"},
        {"oom", "srun: error: gpu017: task 3: Out Of Memory"},
        {"oom", "[ 12.1] Out of memory: Killed process 4711 (python) total-vm:9kB, anon-rss:9kB"},
        {"oom", "[ 12.1] Memory cgroup out of memory: Killed process 4711 (python)"},
        {"oom", "[ERROR] rank 3 ran out of memory"},
        {"oom", "/opt/tests/test_run/train.py: RuntimeError: CUDA out of memory"},
        {"node_fail", "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"},
        {"node_fail",
         "gpu07:71:99 [3] init.cc:401 NCCL WARN Cuda failure 220 'uncorrectable NVLink "
         "error detected during the execution'"},
        {"node_fail",
         "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"},
        {"node_fail", "RuntimeError: CUDA error: unknown error"},
        {"node_fail", "RuntimeError: HIP error: unknown error"},
        {"node_fail", "pynvml.NVMLError_GpuIsLost: GPU is lost"},
        {"node_fail", "RuntimeError: level_zero backend failed with error: 20 "
                      "(UR_RESULT_ERROR_DEVICE_LOST)"},
        {"numeric",
         "Unexpected result nan (message='found NaN in local forward loss calculation')"},
        {"numeric", "found Inf in local grad norm for bucket #0 in backward pass before"},
        {NULL, "RuntimeError: CUDA error: an illegal memory access was encountered"},
        {NULL, "RuntimeError: CUDA error: device-side assert triggered"},
        {NULL, "ValueError: unknown error policy"},
        {NULL, "0 uncorrectable ECC errors since the driver was loaded"},
        {NULL, "WARNING: GPU 3 may run out of memory with this micro-batch size"},
        {NULL, "UserWarning: pinned buffers are used so as not to run out of memory"},
        {NULL, "use --recompute-granularity full to avoid running out of memory"},
        {NULL, "If you see CUDA out of memory errors, lower the micro-batch"},
        {NULL, "out-of-memory handling is on"},
        {NULL, "INFO: CUDA out of memory handling is enabled"},
        {NULL, "logger: error handling: out of memory policy = retry"},
        {NULL, "note: out of memory conditions are retried"},
        {NULL, "  oom_message .................. out of memory"},
        {NULL, "args: --comment 'what to do when out of memory' --seed 1"},
        {NULL, "CUDA OutOfMemoryError encountered during tensors merging. Switching to CPU merge."},
        {NULL, "    except torch.cuda.OutOfMemoryError:"},
        {NULL, "    except (RuntimeError, torch.cuda.OutOfMemoryError) as e:"},
        {NULL, "  max_tokens_to_oom ............ 12000"},
        {NULL, "[titan] 0 CUDA OOM errors thrown."},
        {NULL, "memory: 41.20GiB(52.03%)  tps: 2,200"},
        {NULL, "check_for_nan_in_loss_and_grad .................. True"},
        {NULL, ""},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *got = tn_log_trouble(rows[i].line);

        if (rows[i].want ? !str_eq(got, rows[i].want) : got != NULL)
            fail_msg("%s is taken for: %s", got ? got : "nothing", rows[i].line);
    }
}

/* A progress bar never ends its line, and the log's line is inside it; lines may be torn. */
static void keep(void *ctx, const char *text, size_t n, int64_t end)
{
    int64_t last = -1;
    AUTO_FREE char *line = mem_printf("%.*s", (int)n, text);

    (void)end;
    feed(ctx, TN_STDOUT, line, &last);
}

static void a_progress_bar_hides_no_step(void **state)
{
    static const char step[] =
        "steps: 7 loss: 8.2500 iter time (s): 2.000 samples/sec: 32.000\r 51%|#####     |\r";
    AUTO_FREE char *folder = unit_folder("bar");
    AUTO_FREE char *path = mem_printf("%s/stdout", folder);
    struct tn_reader reader;
    struct world w;
    FILE *f = fopen(path, "w");

    (void)state;
    for (int i = 0; i < 20000; i++)
        fputs(" 50%|#####     |\r", f); /* 320 kB without a line's end */
    fputs(step, f);
    fclose(f);
    world_open(&w, "deepspeed", "");
    tn_reader_init(&reader);
    reader.returns = true;
    while (tn_reader_poll(&reader, path, 1 << 16, keep, &w))
        ;
    assert_int_equal(w.attempt.seen.steps, 1);
    assert_true(w.attempt.seen.loss_last == 8.25);
    tn_reader_done(&reader);
    world_close(&w);
    file_remove_tree(folder, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(logs_are_read_as_their_trainers_meant_them),
    cmocka_unit_test(failures_are_told_from_talk_of_them),
    cmocka_unit_test(a_progress_bar_hides_no_step),
};

UNIT_MAIN(tests)
