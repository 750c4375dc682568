/* Log lines of other trainers; the first byte chooses the parser, that of a line its stream. */
#include <math.h>

#include "tuner/core/attempt.h"
#include "tuner/core/campaign.h"
#include "tuner/core/engine.h"
#include "tuner/output/observe.h"
#include "tuner/state/service.h"
#include "tuner/trainers/log.h"
#include "tuner/trainers/trainers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const parsers[] = {"megatron", "torchtitan", "deepspeed", "jsonl"};

static void feed(struct tn_attempt *a, const uint8_t *data, size_t size)
{
    AUTO_FREE char *text = mem_alloc(size + 1);
    char *save = NULL;

    for (size_t i = 0; i < size; i++)
        text[i] = data[i] ? (char)data[i] : ' ';
    for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        struct tn_step_line step = {0};

        if (a->trainer->line(&step, a, (enum tn_stream)((unsigned char)*l % TN_STREAMS), l,
                             strlen(l)) == TN_LINE_STEP &&
            step.json) {
            AUTO_JSON *v = NULL;

            if (jx_parse(&v, step.json, strlen(step.json), NULL) < 0)
                abort(); /* it goes to subscribers as it is */
        }
        free(step.json);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tn_service svc = {0};
    struct tn_spec spec = {.se = {.limits = {.warmup_steps = 1, .min_steps = 3, .max_steps = 10}}};
    struct tn_engine engine = {.spec = &spec};
    struct tn_campaign campaign = {.svc = &svc, .id = "c", .engine = &engine};
    struct tn_trial trial = {.campaign = &campaign, .n = 1};
    struct tn_attempt *a = mem_alloc(sizeof(*a));
    AUTO_FREE char *text =
        mem_printf("[trainer \"x\"]\ncommand = x\nparser = %s\n", parsers[size ? data[0] % 4 : 0]);
    struct conf *conf = NULL;
    struct err e = {0};

    if (conf_parse(&conf, text, "x", &e) < 0)
        abort();
    svc.config.conf = conf;
    spec.se.workload.global_batch = 8;
    spec.se.workload.seq = 64;
    snprintf(spec.trainer_name, sizeof(spec.trainer_name), "x");
    a->svc = &svc;
    a->campaign = &campaign;
    a->trial = &trial;
    trial.layout.world = 8;
    a->limits = spec.se.limits;
    a->trainer = tn_trainer_external(&svc, "x");
    tn_seen_init(&a->seen);
    if (size)
        feed(a, data + 1, size - 1);
    tn_log_end(a);
    tn_log_blame(a);
    tn_seen_done(&a->seen);
    free(a);
    conf_free(conf);
    return 0;
}
