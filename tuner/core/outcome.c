/* What a trial teaches the search, by its state (db/states.def). */
#include <math.h>

#include "tuner/core/engine.h"

struct measured {
    double rate, se, max, memory, per_joule;
};

static double number(const json_t *json, const char *key)
{
    const json_t *v = json_object_get(json, key);

    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

/* What ran, be it a smaller problem. */
static void measured_of(struct measured *ret, const struct db_trial *trial)
{
    AUTO_JSON *run =
        trial->fidelity != DB_NULL && trial->run ? json_loads(trial->run, 0, NULL) : NULL;

    *ret = (struct measured){trial->tokens_per_s, trial->tokens_per_s_se, trial->tokens_per_s_max,
                             trial->memory, trial->tokens_per_joule};
    if (trial->fidelity != DB_NULL)
        *ret = (struct measured){number(run, "tokens_per_s"), number(run, "tokens_per_s_se"),
                                 number(run, "tokens_per_s_max"), number(run, "memory_bytes"),
                                 number(run, "tokens_per_joule")};
}

void tn_outcome_of(struct se_outcome *ret, const struct db_trial *trial)
{
    static const enum se_status learned[] = {
#define STATE(NAME, name, life, tries, pauses, learns, ...) SE_##learns,
#include "db/states.def"
    };
    int state = db_state_find(trial->state);
    struct measured m;

    measured_of(&m, trial);

    *ret = (struct se_outcome){.status = state < 0 ? SE_DISCARD : learned[state]};
    if (ret->status == SE_OK) {
        ret->tokens_per_s = m.rate;
        ret->tokens_per_s_se = m.se > 0 ? m.se : 0;
        ret->peak_memory_bytes = m.memory > 0 ? m.memory : 0;
        ret->tokens_per_joule = m.per_joule > 0 ? m.per_joule : 0;
    }
    if (ret->status == SE_CENSORED)
        ret->tokens_per_s_max = m.max;
    if ((ret->status == SE_CENSORED && !(m.max > 0)) || (ret->status == SE_OK && !(m.rate > 0)))
        ret->status = SE_DISCARD;
}
