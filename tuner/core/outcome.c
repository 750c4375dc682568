/* What a trial teaches the search, by its state (db/states.def). */
#include "tuner/core/engine.h"

void tn_outcome_of(struct se_outcome *ret, const struct db_trial *trial)
{
    static const enum se_status learned[] = {
#define STATE(NAME, name, life, tries, pauses, learns, ...) SE_##learns,
#include "db/states.def"
    };
    int state = db_state_find(trial->state);

    *ret = (struct se_outcome){.status = state < 0 ? SE_DISCARD : learned[state]};
    if (ret->status == SE_OK) {
        ret->tokens_per_s = trial->tokens_per_s;
        ret->tokens_per_s_se = trial->tokens_per_s_se > 0 ? trial->tokens_per_s_se : 0;
        ret->peak_memory_bytes = trial->memory > 0 ? trial->memory : 0;
    }
    if (ret->status == SE_CENSORED) {
        ret->tokens_per_s_max = trial->tokens_per_s_max;
        if (!(trial->tokens_per_s_max > 0))
            ret->status = SE_DISCARD;
    }
}
