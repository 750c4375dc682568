/* What a run reads and writes besides its data: initial weights, checkpoints, final weights. */
#include "base/base.h"
#include "trainer/run_state.h"

#include "trainer/resumed.h"
#include "trainer/stop.h"
#include "trainer/team.h"

#include <errno.h>

/* How long a stop waits for a checkpoint: the rate of a slow file system. */
enum { SAVE_S = 10, SAVE_BYTES_S = 100000000 };

/* A failure to write is -EIO, never a class of data errors, whatever its errno. */
static int writing(int code)
{
    return code < 0 && code != -ENOMEM && code != -ECANCELED ? -EIO : code;
}

void tr_run_room(struct run *run)
{
    const struct tr_config *c = run->c;
    AUTO_FREE char *of_checkpoints = NULL, *of_weights = NULL;
    struct err e = {0};

    if (c->checkpoint.dir)
        tr_require_all(
            &run->team,
            writing(tr_ckpt_open(&run->lock, &of_checkpoints, c->checkpoint.dir, &run->team, &e)),
            &e);
    if (c->save_hf)
        tr_require_all(&run->team,
                       writing(tr_hf_open(&run->claim_hf, &of_weights, c->save_hf, &run->team, &e)),
                       &e);
    if (of_checkpoints)
        tr_event_warning(run->events, "no-lock", of_checkpoints);
    if (of_weights)
        tr_event_warning(run->events, "no-lock", of_weights);
}

static struct tr_ckpt_what what(const struct run *run)
{
    return (struct tr_ckpt_what){.model = &run->c->model,
                                 .part = run->part,
                                 .count = run->nparts,
                                 .state = true,
                                 .optimizer = run->c->workload.optimizer};
}

/* Where the run resumes. */
static void resumed(struct run *run, const struct tr_ckpt_state *state, const char *path)
{
    struct tr_identity sources;

    tr_tokens_identity(&sources, run->tokens);
    run->step = state->step;
    run->samples = state->samples;
    tr_skip_resume(&run->skip, &state->skip);
    run->optim.skipped = run->skip.skipped;
    tr_resumed(run->events, run->c, state, &sources, path, &run->optim);
}

static void load_checkpoint(struct run *run, const char *path)
{
    struct tr_ckpt_state s;
    struct tr_ckpt_what w = what(run);
    struct err e = {0};

    tr_require_all(&run->team, tr_ckpt_load(&s, path, &w, &run->team, &e), &e);
    resumed(run, &s, path);
}

/* From the newest whole one; a fresh start where there has never been one. */
static void resume(struct run *run)
{
    struct tr_ckpt_state s;
    struct tr_ckpt_what w = what(run);
    struct err e = {0};
    AUTO_FREE char *path = NULL, *aside = NULL;
    int r = tr_ckpt_resume(&s, &path, &aside, run->c->checkpoint.dir, &w, &run->team, &e);

    if (r == -ENOENT)
        return;
    tr_require_all(&run->team, r, &e);
    if (aside)
        tr_event_warning(run->events, "damaged-checkpoint", aside);
    resumed(run, &s, path);
}

void tr_run_weights(struct run *run)
{
    const struct tr_config *c = run->c;
    struct tr_ckpt_what w = what(run);
    struct err e = {0};

    tr_params_init(&run->r.params, &c->model, (uint64_t)c->train.seed);
    if (c->checkpoint.load)
        load_checkpoint(run, c->checkpoint.load);
    else if (c->checkpoint.resume && c->checkpoint.dir)
        resume(run);
    if (run->step == 0 && c->init) /* the masters, too, in their own precision */
        tr_require_all(&run->team, tr_hf_load(c->init, &w, &run->team, &e), &e);
}

/* A save begins, of this rank's BYTES or so by every rank. */
static void at_save(const struct run *run)
{
    double bytes = 0;

    for (size_t i = 0; i < run->nparts; i++)
        if (run->part[i].save)
            bytes += 4.0 * (double)run->part[i].count;
    tr_stop_finish(SAVE_S + bytes * run->c->layout.world / SAVE_BYTES_S);
}

void tr_run_save(struct run *run)
{
    const struct tr_config *c = run->c;
    struct tr_ckpt_what w = what(run);
    struct tr_ckpt_state s = {.step = run->step,
                              .seed = c->train.seed,
                              .loss = run->loss_last,
                              .samples = run->samples,
                              .lr_decay_steps = run->optim.schedule.decay_steps,
                              .lr_decay_style = run->optim.schedule.style,
                              .lr_wsd_decay_style = run->optim.schedule.wsd_style,
                              .lr_wsd_decay_steps = run->optim.schedule.wsd_steps,
                              .skip = run->skip};
    AUTO_FREE char *path = NULL;
    double bytes = 0;
    uint64_t t = clock_mono_ns();
    struct err e = {0};

    tr_optim_settle(&run->r);
    at_save(run);
    tr_hang_section(run->hang, TR_AT_CHECKPOINT, run->step);
    memcpy(s.data, c->workload.data, sizeof(s.data) - 1);
    tr_tokens_identity(&s.sources, run->tokens);
    tr_require_all(&run->team,
                   writing(tr_ckpt_save(&path, &bytes, c->checkpoint.dir, c->checkpoint.keep, &w,
                                        &s, &run->team, &e)),
                   &e);
    tr_event_checkpoint(run->events, run->step, path, bytes, (double)(clock_mono_ns() - t) * 1e-6);
    tr_watch_checkpoint(run->watch, run->step);
}

void tr_run_save_hf(struct run *run)
{
    struct tr_ckpt_what w = what(run);
    struct err e = {0};

    if (!run->c->save_hf)
        return;
    tr_optim_settle(&run->r);
    at_save(run);
    tr_hang_section(run->hang, TR_AT_CHECKPOINT, run->step);
    tr_require_all(&run->team, writing(tr_hf_save(run->c->save_hf, TR_F32, &w, &run->team, &e)),
                   &e);
}
