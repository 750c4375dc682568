/*
 * A stand-alone program that speaks the trainer's protocol, for faults that a real trainer cannot
 * be made to show.
 *
 *     fake_train [--fault NAME] [--when TEXT] [--step-ms MS] --config FILE --events FILE ...
 *
 * It computes nothing: a step sleeps. Throughput follows from micro_batch and tp in a fixed way, so
 * that a search has something to find. --fault happens only in trials whose configuration contains
 * TEXT (always without --when): oom illegal numeric data io comm   an error event of that class
 *   exit=N         exit code N without an event          signal=N      kills itself
 *   hang           stops speaking after three steps      slow          never ends
 *   garbage        lines that are no JSON, a torn one    flood         64 MiB on stdout
 *   child          leaves a process behind               deaf          ignores TERM and never ends
 *   disturbed      a summary that says so
 *   --log megatron|torchtitan|deepspeed: write that trainer's log lines instead of events, for ever
 *   once=FAULT     FAULT in the first attempt only (by the folder's name)
 */
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

struct fake {
    const char *fault, *when, *config, *events, *log;
    double step_ms;
    FILE *out;
    int rank;
};

static void say(struct fake *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct fake *f, const char *fmt, ...)
{
    AUTO_STR s = {0};
    va_list ap;

    if (f->rank != 0)
        return;
    str_addf(&s, "{\"v\":1,\"event\":");
    va_start(ap, fmt);
    str_vaddf(&s, fmt, ap);
    va_end(ap);
    str_addf(&s, ",\"t\":%.3f}\n", clock_wall_s());
    fwrite(s.text, 1, s.len, f->out);
    fflush(f->out);
}

static void nap(double ms)
{
    struct timespec t = {(time_t)(ms / 1000), (long)(fmod(ms, 1000) * 1e6)};

    while (nanosleep(&t, &t) < 0)
        ;
}

static int number(const json_t *config, const char *part, const char *key, int otherwise)
{
    const json_t *v = json_object_get(json_object_get(config, part), key);

    return json_is_integer(v) ? (int)json_integer_value(v) : otherwise;
}

static void flood(void)
{
    char line[1024];

    memset(line, 'x', sizeof(line));
    line[sizeof(line) - 1] = '\n';
    for (int i = 0; i < 65536; i++)
        fwrite(line, 1, sizeof(line), stdout);
}

static void misbehave(struct fake *f, int step)
{
    static const char *const classes[] = {"illegal", "oom", "numeric",  "data",
                                          "comm",    "io",  "node_fail"};

    for (int i = 0; i < (int)ARRAY_LEN(classes); i++)
        if (str_eq(f->fault, classes[i])) {
            if (f->rank != 0) /* rank 0 speaks first, or mpiexec would kill it */
                nap(300);
            say(f, "\"error\",\"class\":\"%s\",\"rank\":0,\"detail\":\"made to fail\"", classes[i]);
            exit(65 + i);
        }
    if (str_starts(f->fault, "exit="))
        exit((int)strtol(f->fault + 5, NULL, 10));
    if (str_starts(f->fault, "signal="))
        raise((int)strtol(f->fault + 7, NULL, 10));
    if (str_eq(f->fault, "deaf"))
        signal(SIGTERM, SIG_IGN);
    if ((str_eq(f->fault, "hang") && step == 3) || str_eq(f->fault, "deaf"))
        for (;;)
            nap(1000);
    if (str_eq(f->fault, "garbage") && f->rank == 0) {
        fputs("not json\n{\"event\":7}\n[1,2\n\xff\xfe\n{\"v\":1,\"event\":\"unknown\",\"x\":{}}\n",
              f->out);
        for (int i = 0; i < 200000; i++)
            fputc('y', f->out);
        fputc('\n', f->out);
    }
    if (str_eq(f->fault, "flood") && step == 1)
        flood();
    if (str_eq(f->fault, "child") && step == 1 && fork() == 0) {
        setsid();
        nap(600000);
        _exit(0);
    }
}

/* Number of the trial, from the path of its events: …/trials/N/ATTEMPT/events. */
static int trial_of(const struct fake *f)
{
    const char *p = f->events ? strstr(f->events, "/trials/") : NULL;

    return p ? (int)strtol(p + 8, NULL, 10) : 0;
}

/* Larger micro-batches are faster. Runs of three steps, a verification's, may find otherwise:
 * "turned" has them slower, "noisy" has every other run slower whatever it is. */
static double step_ms(const struct fake *f, const json_t *config, int steps)
{
    double tp = number(config, "layout", "tp", 1), mb = number(config, "layout", "micro_batch", 1);
    double gain = 1 + 0.2 * log2(mb), base = f->step_ms * (1 + 0.3 * log2(tp));

    if (steps == 3 && str_eq(f->fault, "turned"))
        return base * gain;
    if (steps == 3 && str_eq(f->fault, "noisy"))
        return f->step_ms * (trial_of(f) % 2 ? 1.5 : 1);
    return base / gain;
}

/* The log lines of other trainers, until somebody stops us. */
static void write_log(struct fake *f, const json_t *config, double tokens, double ms)
{
    double samples = tokens / number(config, "workload", "seq", 64),
           world = number(config, "layout", "world", 1);

    for (int n = 1; n <= 100000; n++) {
        nap(ms);
        if (str_eq(f->fault, "oom") && n == 2)
            fprintf(
                stderr,
                "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"),
                exit(1);
        if (str_eq(f->log, "megatron"))
            printf(" [2026-03-01 10:00:00] iteration %8d/  100000 | consumed samples: %12d | "
                   "elapsed time per iteration (ms): %.1f"
                   " | learning rate: 1.500000E-04 | global batch size: %5.0f | lm loss: %.6E | "
                   "loss scale: 1.0 |"
                   " grad norm: 1.234 | number of skipped iterations:   0 | number of nan "
                   "iterations:   0 |\n",
                   n, n * (int)samples, ms, samples, 9.5 - 0.01 * n);
        if (str_eq(f->log, "torchtitan"))
            fprintf(stderr,
                    "[rank0]:[titan] 2026-03-01 10:00:00,123 - root - INFO - \033[31mstep: %2d  "
                    "\033[32mloss: %7.4f"
                    "  \033[33mmemory: %5.2fGiB(%.2f%%)  \033[34mtps: %.0f  \033[36mtflops: 1.0  "
                    "\033[35mmfu: 1.0%%\033[39m\n",
                    n, 9.5 - 0.01 * n, 1.5, 1.9, tokens * 1000 / ms / world);
        if (str_eq(f->log, "deepspeed"))
            printf("[2026-03-01 10:00:00,123] [INFO] [timer.py:260:stop] "
                   "epoch=0/micro_step=%d/global_step=%d, "
                   "RunningAvgSamplesPerSec=%.6f, CurrSamplesPerSec=%.6f, MemAllocated=1.2GB, "
                   "MaxMemAllocated=3.4GB\n",
                   n, n, samples * 1000 / ms, samples * 1000 / ms);
        fflush(NULL);
    }
}

static void train(struct fake *f, const json_t *config)
{
    int warmup = number(config, "trial", "warmup_steps", 2),
        max = number(config, "trial", "max_steps", 30);
    int min = number(config, "trial", "min_steps", 5), steps = warmup + (min < max ? min : max);
    int batch = number(config, "workload", "global_batch", 8),
        seq = number(config, "workload", "seq", 64);
    double tokens = (double)batch * seq * (str_eq(f->fault, "lazy") ? 0.5 : 1);
    double ms = step_ms(f, config, max);

    if (f->log) {
        write_log(f, config, tokens, ms);
        return;
    }
    say(f, "\"hello\",\"program\":\"fake_train\",\"version\":\"1\",\"ranks\":%d",
        number(config, "layout", "world", 1));
    say(f, "\"memory\",\"planned\":{\"total\":1000000,\"weights\":1000000}");
    for (int n = 1; n <= steps || str_eq(f->fault, "slow"); n++) {
        if (f->fault)
            misbehave(f, n);
        nap(ms);
        say(f,
            "\"step\",\"n\":%d,\"warmup\":%s,\"ms\":%.3f,\"tokens\":%.0f,\"loss\":%.3f,\"phases\":{"
            "\"forward\":%.3f,"
            "\"backward\":%.3f}",
            n, n <= warmup ? "true" : "false", ms, tokens, 5.0 - 0.01 * n, ms / 3, 2 * ms / 3);
    }
    say(f,
        "\"summary\",\"steps\":%d,\"warmup_steps\":%d,\"tokens_per_s\":%.3f,\"tokens_per_s_se\":%."
        "3f,"
        "\"step_ms\":{\"median\":%.3f,\"p10\":%.3f,\"p90\":%.3f,\"ci95\":0.01},"
        "\"memory\":{\"planned\":{\"total\":1000000},\"measured\":{\"total\":900000}},\"loss_"
        "first\":5,\"loss_last\":4.8%s",
        steps - warmup, warmup, tokens * 1000 / ms, tokens / ms, ms, ms, ms,
        str_eq(f->fault, "disturbed") ? ",\"disturbed\":\"it was hot\"" : "");
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"fault", 1, NULL, 'f'},    {"when", 1, NULL, 'w'},
        {"step-ms", 1, NULL, 's'},  {"config", 1, NULL, 'c'},
        {"events", 1, NULL, 'e'},   {"device-memory", 1, NULL, 'm'},
        {"data-dir", 1, NULL, 'd'}, {"log", 1, NULL, 'l'},
        {"device", 1, NULL, 'D'},   {0}};
    struct fake f = {.step_ms = 10};
    const char *rank = getenv("PMI_RANK");
    AUTO_FREE char *text = NULL;
    AUTO_JSON *config = NULL;
    struct err e = {0};
    int o;

    while ((o = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (o) {
        case 'f':
            f.fault = optarg;
            break;
        case 'w':
            f.when = optarg;
            break;
        case 'l':
            f.log = optarg;
            break;
        case 's':
            f.step_ms = strtod(optarg, NULL);
            break;
        case 'c':
            f.config = optarg;
            break;
        case 'e':
            f.events = optarg;
            break;
        default:
            break;
        }
    f.rank = rank ? (int)strtol(rank, NULL, 10) : 0;
    if (!f.config || !f.events || file_read_all(&text, NULL, f.config, 1 << 20, &e) < 0 ||
        jx_parse(&config, text, strlen(text), &e) < 0) {
        fprintf(stderr, "fake_train: %s\n", e.text);
        return 2;
    }
    if (f.fault && str_starts(f.fault, "once=")) {
        f.fault += 5;
        if (!strstr(f.events, "/1/events"))
            f.fault = NULL;
    }
    if (f.when && !strstr(text, f.when))
        f.fault = NULL;
    f.out = fopen(f.events, "a");
    if (!f.out)
        return 70;
    train(&f, config);
    return 0;
}
