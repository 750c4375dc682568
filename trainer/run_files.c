/* What a run reads and writes besides its data: where it begins, its checkpoints, its weights. */
#include "base/base.h"
#include "trainer/run_state.h"

#include "trainer/resumed.h"
#include "trainer/stop.h"
#include "trainer/team.h"

#include <errno.h>

/* What a slow file system does in a second, for a checkpoint to be worth waiting for. */
enum { SAVE_S = 10, SAVE_BYTES_S = 100000000 };

/* A failure to write: never the data's, whatever its errno says of a path. */
static int writing(int code)
{
    return code < 0 && code != -ENOMEM && code != -ECANCELED ? -EIO : code;
}

void tr_run_room(struct run *u)
{
    const struct tr_config *c = u->c;
    AUTO_FREE char *of_checkpoints = NULL, *of_weights = NULL;
    struct err e = {0};

    if (c->checkpoint.dir)
        tr_require_all(
            &u->team,
            writing(tr_ckpt_open(&u->claim, &of_checkpoints, c->checkpoint.dir, &u->team, &e)), &e);
    if (c->save_hf)
        tr_require_all(
            &u->team, writing(tr_hf_open(&u->claim_hf, &of_weights, c->save_hf, &u->team, &e)), &e);
    if (of_checkpoints)
        tr_event_warning(u->events, "no-lock", of_checkpoints);
    if (of_weights)
        tr_event_warning(u->events, "no-lock", of_weights);
}

static struct tr_ckpt_what what(const struct run *u)
{
    return (struct tr_ckpt_what){
        .model = &u->c->model, .part = u->part, .count = u->nparts, .state = true};
}

/* Where the run resumes. */
static void resumed(struct run *u, const struct tr_ckpt_state *s, const char *path)
{
    u->step = s->step;
    u->samples = s->samples;
    tr_resumed(u->events, u->c, s, path, &u->optim);
}

static void load_checkpoint(struct run *u, const char *path)
{
    struct tr_ckpt_state s;
    struct tr_ckpt_what w = what(u);
    struct err e = {0};

    tr_require_all(&u->team, tr_ckpt_load(&s, path, &w, &u->team, &e), &e);
    resumed(u, &s, path);
}

/* From the newest whole one; a fresh start where there has never been one. */
static void resume(struct run *u)
{
    struct tr_ckpt_state s;
    struct tr_ckpt_what w = what(u);
    struct err e = {0};
    AUTO_FREE char *path = NULL, *aside = NULL;
    int r = tr_ckpt_resume(&s, &path, &aside, u->c->checkpoint.dir, &w, &u->team, &e);

    if (r == -ENOENT)
        return;
    tr_require_all(&u->team, r, &e);
    if (aside)
        tr_event_warning(u->events, "damaged-checkpoint", aside);
    resumed(u, &s, path);
}

void tr_run_weights(struct run *u)
{
    const struct tr_config *c = u->c;
    struct tr_ckpt_what w = what(u);
    struct err e = {0};

    tr_params_init(&u->r.params, &c->model, (uint64_t)c->train.seed);
    if (c->checkpoint.load)
        load_checkpoint(u, c->checkpoint.load);
    else if (c->checkpoint.resume && c->checkpoint.dir)
        resume(u);
    if (u->step == 0 && c->init) /* the masters, too, in their own precision */
        tr_require_all(&u->team, tr_hf_load(c->init, &w, &u->team, &e), &e);
}

/* A save begins, of this rank's BYTES or so by every rank. */
static void at_save(const struct run *u)
{
    double bytes = 0;

    for (size_t i = 0; i < u->nparts; i++)
        if (u->part[i].save)
            bytes += 4.0 * (double)u->part[i].count;
    tr_stop_finish(SAVE_S + bytes * u->c->layout.world / SAVE_BYTES_S);
}

void tr_run_save(struct run *u)
{
    const struct tr_config *c = u->c;
    struct tr_ckpt_what w = what(u);
    struct tr_ckpt_state s = {.step = u->step,
                              .seed = c->train.seed,
                              .loss = u->loss_last,
                              .samples = u->samples,
                              .lr_decay_steps = u->optim.decay_steps};
    AUTO_FREE char *path = NULL;
    double bytes = 0;
    uint64_t t = clock_mono_ns();
    struct err e = {0};

    tr_optim_settle(&u->r);
    at_save(u);
    memcpy(s.data, c->workload.data, sizeof(s.data) - 1);
    tr_require_all(&u->team,
                   writing(tr_ckpt_save(&path, &bytes, c->checkpoint.dir, c->checkpoint.keep, &w,
                                        &s, &u->team, &e)),
                   &e);
    tr_event_checkpoint(u->events, u->step, path, bytes, (double)(clock_mono_ns() - t) * 1e-6);
    tr_watch_checkpoint(u->watch, u->step);
}

void tr_run_save_hf(struct run *u)
{
    struct tr_ckpt_what w = what(u);
    struct err e = {0};

    if (!u->c->save_hf)
        return;
    tr_optim_settle(&u->r);
    at_save(u);
    tr_require_all(&u->team, writing(tr_hf_save(u->c->save_hf, TR_F32, &w, &u->team, &e)), &e);
}
