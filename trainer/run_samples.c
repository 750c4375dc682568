/* Samples of a run, read in the order of tokens.h: those of each step, and of a validation. */
#include "base/base.h"
#include "trainer/run_state.h"

#include "trainer/stop.h"
#include "trainer/team.h"

#include <assert.h>
#include <errno.h>

/* All that the order of samples depends on, and whether there is a validation too. */
static int same_tokens(const struct run *run, struct err *error)
{
    struct tr_identity ours, theirs;
    char text[450];
    int r = 0;

    tr_tokens_identity(&ours, run->tokens);
    theirs = ours;
    run->team.share(run->team.ctx, &theirs, sizeof(theirs));
    if (tr_identity_differs(text, sizeof(text), &theirs, &ours)) {
        err_set(error, -ESTALE, "%s is not the same here: %s", run->c->workload.data, text);
        r = tr_team_stale(&run->team, "the data set", error);
    }
    return tr_team_agree(&run->team, r, error);
}

void tr_run_tokens(struct run *run)
{
    const struct tr_config *c = run->c;
    int samples = run->r.d.microbatches * run->r.layout.micro_batch;
    struct err e = {0};
    int r = tr_tokens_open(&run->tokens, c->data_dir, &c->sources, c->model.vocab, c->workload.seq,
                           (uint64_t)c->train.seed, &e);

    tr_require_all(&run->team, tr_team_agree(&run->team, r, &e), &e);
    tr_require_all(&run->team, same_tokens(run, &e), &e);
    run->ahead = mem_alloc((size_t)samples * sizeof(*run->ahead));
    run->prefetch = tr_prefetch_new(run->tokens, c->workload.seq, samples);
}

void tr_run_prefetch(struct run *run)
{
    const struct tr_rank *r = &run->r;
    uint64_t first = run->samples + (uint64_t)r->workload.global_batch;
    int n = 0;

    if (!run->prefetch)
        return;
    for (int mb = 0; mb < r->d.microbatches; mb++)
        for (int k = 0; k < r->layout.micro_batch; k++)
            run->ahead[n++] = first + tr_sample_index(r, mb, k);
    tr_prefetch_ask(run->prefetch, run->ahead, n);
}

void tr_run_read(struct run *run, enum tr_split split, uint64_t first, uint64_t end)
{
    struct tr_rank *r = &run->r;
    struct err e = {0};

    for (int mb = 0; mb < r->d.microbatches; mb++)
        for (int k = 0; k < r->layout.micro_batch; k++) {
            uint64_t i = first + tr_sample_index(r, mb, k);

            tr_require(tr_tokens_sample(r->work.sample, run->tokens, split, i, &e), &e);
            tr_sample_put(r, mb, k, r->work.sample);
            if (i >= end)
                tr_sample_ignore(r, mb, k);
        }
}

/* ---- validation ---------------------------------------------------------- */

static bool asked_anywhere(struct run *run)
{
    double asked = tr_stop_requested();

    tr_sum_double(&run->r.comms.world, &asked, 1);
    return asked > 0;
}

/* Samples of a validation: as many as asked for, or as the split has. */
static uint64_t validation_samples(const struct run *run)
{
    uint64_t asked = (uint64_t)run->c->train.validate_samples;
    uint64_t have = tr_tokens_samples(run->tokens, TR_SPLIT_VALIDATION);

    return asked < have ? asked : have;
}

/* Every token that counts does so once, whatever the batch and the layout: the last batch is
 * filled up with ignored ones. */
bool tr_run_validate(struct run *run)
{
    uint64_t batch = (uint64_t)run->c->workload.global_batch, n = validation_samples(run);
    double sum = 0, tokens = 0;

    assert(n > 0);
    tr_rank_batch(&run->r, run->c->workload.global_batch);
    for (uint64_t i = 0; i < n; i += batch) {
        struct tr_result t;

        tr_hang_section(run->hang, TR_AT_SAMPLES, run->step);
        tr_run_read(run, TR_SPLIT_VALIDATION, i, n);
        tr_hang_section(run->hang, TR_AT_VALIDATION, run->step);
        if (asked_anywhere(run))
            return true;
        tr_step_forward(&t, &run->r);
        sum += t.loss * t.tokens;
        tokens += t.tokens;
    }
    sum /= tokens;
    tr_event_validation(run->events, run->step, sum, (int64_t)n * run->c->workload.seq);
    tr_watch_validation(run->watch, sum);
    return false;
}

void tr_run_check_validation(struct run *run)
{
    uint64_t have = validation_samples(run);
    bool several = run->c->sources.count > 1;
    char text[240];

    if (!run->c->train.validate_every || have == (uint64_t)run->c->train.validate_samples)
        return;
    if (have == 0)
        snprintf(text, sizeof(text), "%s no validation split: no validation will run",
                 several ? "a data set of the first ones to be taken has" : "the data set has");
    else
        snprintf(text, sizeof(text),
                 "the validation split%s only %llu samples of %d tokens, --validate-samples is "
                 "%d: a validation uses each of them once",
                 several ? "s have by their weights" : " has", (unsigned long long)have,
                 run->c->workload.seq, run->c->train.validate_samples);
    tr_event_warning(run->events, "validation", text);
}
