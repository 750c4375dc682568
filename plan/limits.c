#include "plan/limits.h"

#include <errno.h>
#include <math.h>

#include "base/base.h"

const struct pl_trial_limits pl_trial_limits_default = {
    .warmup_steps = 2, .min_steps = 5, .max_steps = 30, .ci = 0.02, .timeout_s = 600};

int pl_trial_limits_check(const struct pl_trial_limits *limits, struct err *error)
{
    if (limits->max_steps < limits->min_steps)
        return err_at(error, -EINVAL, "/trial/max_steps", "max_steps %d is less than min_steps %d",
                      limits->max_steps, limits->min_steps);
    return 0;
}

int pl_trial_limits_parse(struct pl_trial_limits *ret_limits, const json_t *root, struct err *error)
{
    static const char *const keys[] = {"warmup_steps", "min_steps", "max_steps",
                                       "ci",           "timeout_s", NULL};
    struct pl_trial_limits limits = pl_trial_limits_default;
    json_t *trial = NULL;
    int r = jx_get_object(&trial, root, "trial", error);

    if (r == 0 && trial &&
        ((r = jx_keys(trial, keys, error)) < 0 ||
         (r = jx_get_int(&limits.warmup_steps, trial, "warmup_steps", 0, PL_LIMIT_WARMUP_MAX,
                         error)) < 0 ||
         (r = jx_get_int(&limits.min_steps, trial, "min_steps", PL_LIMIT_STEPS_MIN,
                         PL_LIMIT_STEPS_MAX, error)) < 0 ||
         (r = jx_get_int(&limits.max_steps, trial, "max_steps", PL_LIMIT_STEPS_MIN,
                         PL_LIMIT_STEPS_MAX, error)) < 0 ||
         (r = jx_get_f64(&limits.ci, trial, "ci", 0, 1, error)) < 0 ||
         (r = jx_get_f64(&limits.timeout_s, trial, "timeout_s", 0.1, PL_LIMIT_TIMEOUT_MAX, error)) <
             0))
        return err_under(error, "/trial");
    if (r < 0)
        return r;
    if (trial && !json_object_get(trial, "max_steps") && limits.max_steps < limits.min_steps)
        limits.max_steps = limits.min_steps;
    if ((r = pl_trial_limits_check(&limits, error)) < 0)
        return r;
    *ret_limits = limits;
    return 0;
}

json_t *pl_trial_limits_json(const struct pl_trial_limits *limits)
{
    return json_pack("{s:i, s:i, s:i, s:f, s:f}", "warmup_steps", limits->warmup_steps, "min_steps",
                     limits->min_steps, "max_steps", limits->max_steps, "ci", limits->ci,
                     "timeout_s", limits->timeout_s);
}

double pl_trial_steps_expected(const struct pl_trial_limits *limits)
{
    return limits->warmup_steps + fmin(1.6 * limits->min_steps, limits->max_steps);
}
