/*
 * What a trainer can run of what our words can say: the rule trainer-supports.
 *
 * A trainer's space is what its own exporter writes without loss, so these are also the gaps of
 * that exporter (tn_gap_trainer in tuner/export/gaps.c asks for them): a fact about a trainer is
 * written here once. Single keys are columns of the table in trainer.c, models' features rows of
 * features.def (trains.c); what depends on several keys is a function of a trainer's own file,
 * supports_*.c, and what a trainer does by itself in settle.c. The sources are those that the
 * exporters name.
 */
#include "plan/legal.h"

#include "base/base.h"

void pl_limit_offload(struct pl_check *check, const struct pl_unoffloaded *limit, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct pl_layout_key *key = &pl_layout_keys[limit[i].key];
        int value = pl_layout_get(check->layout, key);

        if (value && limit[i].broken)
            pl_breaks(check, key->name, "trainer %s does not support %s %d with %s",
                      check->problem->trainer->name, key->name, value, limit[i].with);
    }
}

static void unsupported(struct pl_check *check, const struct pl_layout_key *key, int value)
{
    const struct pl_trainer *trainer = check->problem->trainer;
    char digits[16];
    bool words = key->names || key->text || key->max == 1 ||
                 pl_trainer_takes(trainer, (enum pl_key)(key - pl_layout_keys), key->max);

    pl_breaks(check, key->name, "trainer %s does not support %s %s", trainer->name, key->name,
              words      ? pl_layout_value_text(digits, key, value)
              : key->min ? "> 1"
                         : "> 0");
}

static void of_the_layout(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;
    const struct pl_trainer *trainer = check->problem->trainer;

    for (enum pl_key key = 0; key < PL_LAYOUT_KEYS; key++) {
        int value = pl_layout_get(layout, &pl_layout_keys[key]);

        if (value == pl_layout_keys[key].standard || pl_trainer_takes(trainer, key, value))
            continue;
        if (key == PL_KEY_ZERO && value < trainer->min_zero)
            pl_breaks(check, "zero", "trainer %s does not support zero 1: it shards gradients too",
                      trainer->name);
        /* vp is the interleaved schedule's; zero above all stages is told last. */
        if (key != PL_KEY_VP && key != PL_KEY_ZERO && (key != PL_KEY_SCHEDULE || layout->pp > 1))
            unsupported(check, &pl_layout_keys[key], value);
    }
    if (layout->zero > trainer->max_zero)
        pl_breaks(check, "zero", "zero %d: trainer %s supports zero 0 to %d", layout->zero,
                  trainer->name, trainer->max_zero);
}

void pl_trainer_supports(struct pl_check *check)
{
    const struct pl_trainer *trainer = check->problem->trainer;

    if (!check->model_known)
        pl_trainer_trains(check);
    of_the_layout(check);
    pl_trainer_by_itself(check);
    if (trainer->limits)
        trainer->limits(check);
}
