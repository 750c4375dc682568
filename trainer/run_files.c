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
                                 .optimizer = run->c->workload.optimizer,
                                 .pool = run->r.pool};
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
    tr_hang_section(run->hang, TR_AT_CHECKPOINT, run->step);
}

static void state_of(struct tr_ckpt_state *ret, const struct run *run)
{
    *ret = (struct tr_ckpt_state){.step = run->step,
                                  .seed = run->c->train.seed,
                                  .loss = run->loss_last,
                                  .samples = run->samples,
                                  .lr_decay_steps = run->optim.schedule.decay_steps,
                                  .lr_decay_style = run->optim.schedule.style,
                                  .lr_wsd_decay_style = run->optim.schedule.wsd_style,
                                  .lr_wsd_decay_steps = run->optim.schedule.wsd_steps,
                                  .skip = run->skip};
    memcpy(ret->data, run->c->workload.data, sizeof(ret->data) - 1);
    tr_tokens_identity(&ret->sources, run->tokens);
}

static void saved(struct run *run, const struct tr_ckpt_done *done)
{
    tr_event_checkpoint(run->events, done->step, done->path, done->bytes, done->ms, done->held_ms);
    tr_watch_checkpoint(run->watch, done->step);
}

static double ms_since(uint64_t ns)
{
    return (double)(clock_mono_ns() - ns) * 1e-6;
}

/* ---- asynchronous -------------------------------------------------------- */

/* A checkpoint is due after STEP, and training goes on behind it. */
static bool due_after(const struct run *run, int step)
{
    const struct tr_config *c = run->c;

    return c->checkpoint.every && step % c->checkpoint.every == 0 && step < c->train.steps;
}

void tr_run_async(struct run *run)
{
    const struct tr_config *c = run->c;
    const struct tr_device *device = &run->r.device;
    struct tr_ckpt_what w = what(run);
    struct err e = {0};

    if (!c->workload.snapshot)
        return;
    tr_require_all(
        &run->team,
        writing(tr_ckpt_async_new(&run->async, c->checkpoint.dir, c->checkpoint.keep, &w,
                                  tr_device_get(device, PL_BUF_SNAPSHOT, 0, 0),
                                  tr_device_bytes(device, PL_BUF_SNAPSHOT), &run->team, &e)),
        &e);
    if (due_after(run, run->step + 1))
        tr_ckpt_async_turn(run->async, NULL, 0, run->step + 1);
}

/* Until no rank's writer has anything left to do. */
static void settle(struct run *run)
{
    struct tr_ckpt_done done;
    struct err e = {0};

    at_save(run);
    tr_require_all(&run->team, writing(tr_ckpt_async_settle(run->async, &e)), &e);
    run->writer = TR_WRITER_IDLE;
    if (tr_ckpt_async_done(&done, run->async))
        saved(run, &done);
}

/* Until all that was begun is published. */
static void land(struct run *run)
{
    if (!run->async)
        return;
    settle(run);
    while (tr_ckpt_async_flying(run->async)) {
        tr_ckpt_async_turn(run->async, NULL, 0, 0);
        settle(run);
    }
}

/* The step's checkpoint is due and the writer is not ready for it. */
static void wait_for_writer(struct run *run)
{
    uint64_t begun = clock_mono_ns();
    char text[240];

    settle(run);
    if (!tr_ckpt_async_made(run->async, run->step)) {
        tr_ckpt_async_turn(run->async, NULL, 0, run->step);
        settle(run);
    }
    if (run->said_slow)
        return;
    run->said_slow = true;
    snprintf(text, sizeof(text),
             "the checkpoint of step %d was due before earlier ones were written: training waited "
             "for %.0f ms; later waits are only in held_ms of the checkpoints",
             run->step, ms_since(begun));
    tr_event_warning(run->events, "slow-checkpoint", text);
}

/* What the end of a step means for the saves under way. True if training was held. */
static bool advance(struct run *run)
{
    bool due = due_after(run, run->step), next = due_after(run, run->step + 1);
    uint64_t begun = clock_mono_ns();
    struct tr_ckpt_done done;
    struct tr_ckpt_state s;

    if (due)
        tr_optim_settle(&run->r);
    if (run->writer == TR_WRITER_FAILED)
        settle(run); /* which says why, and does not return */
    if (due && (run->writer != TR_WRITER_IDLE || !tr_ckpt_async_made(run->async, run->step)))
        wait_for_writer(run);
    if (run->writer != TR_WRITER_IDLE)
        return false;
    if (tr_ckpt_async_done(&done, run->async))
        saved(run, &done);
    if (due)
        state_of(&s, run);
    if (due || next || tr_ckpt_async_flying(run->async))
        tr_ckpt_async_turn(run->async, due ? &s : NULL, begun, next ? run->step + 1 : 0);
    return due;
}

bool tr_run_checkpoint(struct run *run, bool last)
{
    if (run->async && !last)
        return advance(run);
    if (!last && !due_after(run, run->step))
        return false;
    tr_run_save(run);
    return true;
}

/* ---- at once ------------------------------------------------------------- */

void tr_run_save(struct run *run)
{
    const struct tr_config *c = run->c;
    struct tr_ckpt_what w = what(run);
    struct tr_ckpt_done done = {.step = run->step};
    struct tr_ckpt_state s;
    AUTO_FREE char *path = NULL;
    uint64_t begun;
    struct err e = {0};

    tr_optim_settle(&run->r);
    land(run);
    at_save(run);
    begun = clock_mono_ns();
    state_of(&s, run);
    tr_require_all(&run->team,
                   writing(tr_ckpt_save(&path, &done.bytes, c->checkpoint.dir, c->checkpoint.keep,
                                        &w, &s, &run->team, &e)),
                   &e);
    done.path = path;
    done.ms = done.held_ms = ms_since(begun);
    saved(run, &done);
}

void tr_run_save_hf(struct run *run)
{
    struct tr_ckpt_what w = what(run);
    struct err e = {0};

    if (!run->c->save_hf)
        return;
    tr_optim_settle(&run->r);
    at_save(run);
    tr_require_all(&run->team, writing(tr_hf_save(run->c->save_hf, TR_F32, &w, &run->team, &e)),
                   &e);
}
