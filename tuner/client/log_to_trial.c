/* What of a trial is logged, under which name. */
#include "tuner/client/log_to.h"

#include <time.h>

const char *const log_to_results[][2] = {
    {"tokens_per_s", "tokens_per_s"},
    {"mfu", "mfu"},
    {"tokens_per_joule", "tokens_per_joule"},
    {"step_ms.median", "step_ms_median"},
    {"step_ms.p90", "step_ms_p90"},
    {"predicted.tokens_per_s", "predicted_tokens_per_s"},
    {"memory.measured.total", "memory_bytes"},
    {"memory.planned.total", "memory_planned_bytes"},
    {"loss.last", "loss_last"},
    {NULL, NULL},
};

const char *const log_to_step[][2] = {
    {"ms", "step_ms"}, {"loss", "loss"}, {"grad_norm", "grad_norm"}, {NULL, NULL}};

int64_t log_to_started_ms(const json_t *trial)
{
    const char *text =
        *cl_string(trial, "started") ? cl_string(trial, "started") : cl_string(trial, "created");
    struct tm tm = {0};
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    int64_t ms = rest ? (int64_t)timegm(&tm) * 1000 : 0;

    return rest && *rest == '.' ? ms + (int64_t)(strtod(rest, NULL) * 1000 + 0.5) : ms;
}

char *log_to_value(const json_t *value)
{
    return json_is_string(value) ? mem_strdup(json_string_value(value))
                                 : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
}
