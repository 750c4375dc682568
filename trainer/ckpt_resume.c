/*
 * Resuming: the newest checkpoint of a folder that is whole. Rank 0 chooses and shares its choice;
 * all ranks load it, or agree that it is damaged and look at the next one.
 */
#include "trainer/ckpt_dir.h"

#include "base/base.h"
#include "trainer/ckpt.h"

#include <assert.h>
#include <errno.h>

/* Rank 0's next choice, for all. */
struct choice {
    bool none;
    char name[TR_CKPT_NAME];
};

/* A resume under way. The list and what was set aside are rank 0's. */
struct resume {
    const char *dir;
    struct tr_ckpt_list list;
    size_t next;      /* in the list */
    struct str aside; /* what is said of the damaged ones */
    size_t damaged;   /* entries [0, damaged) of the list */
    struct err first; /* the newest one's damage */
};

static int choose(struct choice *ret, struct resume *resume, const struct tr_team *team)
{
    *ret = (struct choice){.none = true};
    if (tr_team_is_root(team) && resume->next < resume->list.n) {
        ret->none = false;
        memcpy(ret->name, resume->list.entry[resume->next++].name, TR_CKPT_NAME);
    }
    team->share(team->ctx, ret, sizeof(*ret));
    return ret->none ? -ENOENT : 0;
}

/* Rename NAME to the first free NAME.damaged, NAME.damaged.2, ... */
static int set_aside(struct resume *resume, const char *name, struct err *error)
{
    AUTO_FREE char *from = mem_printf("%s/%s", resume->dir, name);
    AUTO_FREE char *to = mem_printf("%s%s", from, TR_CKPT_DAMAGED);

    for (int i = 2; file_exists(to); i++) {
        free(to);
        to = mem_printf("%s%s.%d", from, TR_CKPT_DAMAGED, i);
    }
    if (rename(from, to) < 0)
        return err_set(error, -EIO, "rename the damaged checkpoint %s to %s: %s", from, to,
                       strerror(errno));
    str_addf(&resume->aside, "%s%s is kept as %s", resume->aside.len ? "; " : "", name,
             strrchr(to, '/') + 1);
    return 0;
}

/* Set all damaged ones aside, and let the pointer name the one that is whole. */
static int set_all_aside(struct resume *resume, const char *whole, struct err *error)
{
    AUTO_FREE char *pointer = mem_printf("%s/latest", resume->dir);

    assert(resume->damaged < resume->next && resume->next <= resume->list.n);
    for (size_t i = 0; i < resume->damaged; i++) {
        int r = set_aside(resume, resume->list.entry[i].name, error);

        if (r < 0)
            return r;
    }
    str_addf(&resume->aside, "; the run resumes from %s: %s", whole, resume->first.text);
    return file_write_atomic(pointer, whole, strlen(whole), 0644, error);
}

static int none_whole(const struct resume *resume, const struct tr_team *team, struct err *error)
{
    int r = -ENOENT;

    if (resume->first.code)
        r = err_set(error, -EBADMSG, "no checkpoint in %s is whole: %s", resume->dir,
                    resume->first.text);
    else if (tr_team_is_root(team) && resume->list.aside[0])
        r = err_set(
            error, -EBADMSG,
            "no checkpoint in %s is whole: %s is damaged; move it away to start from the beginning",
            resume->dir, resume->list.aside);
    return tr_team_agree(team, r, error);
}

/* The first of the list that is whole is loaded; collective, as each step of it. */
static int first_whole(struct tr_ckpt_state *ret, char **ret_path, struct resume *resume,
                       const struct tr_ckpt_what *what, const struct tr_team *team,
                       struct err *error)
{
    struct choice c;

    while (choose(&c, resume, team) == 0) {
        AUTO_FREE char *path = mem_printf("%s/%s", resume->dir, c.name);
        int r = tr_ckpt_load(ret, path, what, team, error);

        if (r == -EBADMSG) {
            if (!resume->damaged++)
                resume->first = *error;
            continue;
        }
        if (r == 0 && resume->damaged)
            r = tr_team_agree(
                team, tr_team_is_root(team) ? set_all_aside(resume, c.name, error) : 0, error);
        if (r == 0)
            *ret_path = TAKE(path);
        return r;
    }
    return none_whole(resume, team, error);
}

int tr_ckpt_resume(struct tr_ckpt_state *ret, char **ret_path, char **ret_aside, const char *dir,
                   const struct tr_ckpt_what *what, const struct tr_team *team, struct err *error)
{
    struct resume u = {.dir = dir};
    struct err own = {0};
    int r = 0;

    error = error ? error : &own;
    if (tr_team_is_root(team)) {
        r = tr_ckpt_list(&u.list, dir, error);
        tr_ckpt_prefer_latest(&u.list, dir);
    }
    r = tr_team_agree(team, r, error);
    if (r == 0)
        r = first_whole(ret, ret_path, &u, what, team, error);
    if (r == 0)
        *ret_aside = u.aside.len ? str_take(&u.aside) : NULL;
    str_done(&u.aside);
    free(u.list.entry);
    return r;
}
