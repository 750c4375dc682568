/*
 * A folder of checkpoints:
 *
 *     step-00000100            a checkpoint (ckpt.h)
 *     step-00000100.old        a former one of that step, for an instant, where a file system
 *                              cannot exchange two names
 *     step-00000100.damaged    one that was found damaged when a run resumed; .damaged.2, ...
 *                              where that name was taken
 *     latest                   name of the newest
 *     .saving.xxxxxxxx         one that is being written
 *     .lock                    who writes here (lock.h)
 *
 * Only rank 0 looks at names. It shares its decision, so a host with an outdated view of the folder
 * cannot choose another step than the others.
 */
#include "trainer/ckpt_dir.h"

#include "base/base.h"
#include "trainer/ckpt.h"
#include "trainer/folder.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <unistd.h>

enum { NAME = 64 };

static const char DAMAGED[] = ".damaged";

struct entry {
    int step;
    char name[NAME];
};

struct listing {
    struct entry *entry; /* newest step first, each step before its .old */
    size_t n;
    char aside[NAME]; /* one that was set aside, "" if there is none */
};

/* Step of "step-00000012" or "step-00000012.old"; -1: another name. */
static int step_of(const char *name)
{
    char digits[32] = "";
    int64_t n;

    if (!str_starts(name, "step-") || strlen(name) >= sizeof(digits))
        return -1;
    snprintf(digits, sizeof(digits), "%s", name + 5);
    if (str_ends(digits, ".old"))
        digits[strlen(digits) - 4] = '\0';
    return str_to_i64(&n, digits, 0, INT32_MAX) < 0 ? -1 : (int)n;
}

static bool complete(const char *dir, const char *name)
{
    AUTO_FREE char *state = mem_printf("%s/%s/trainer.json", dir, name);

    return file_exists(state);
}

static int newer_first(const void *left, const void *right)
{
    const struct entry *x = left, *y = right;

    if (x->step != y->step)
        return x->step < y->step ? 1 : -1;
    return strcmp(x->name, y->name);
}

static void listing_add(struct listing *listing, const char *name)
{
    int step = step_of(name);

    if (str_starts(name, "step-") && strstr(name, DAMAGED))
        snprintf(listing->aside, sizeof(listing->aside), "%.63s", name);
    if (step < 0)
        return;
    listing->entry = mem_realloc(listing->entry, (listing->n + 1) * sizeof(*listing->entry));
    listing->entry[listing->n].step = step;
    snprintf(listing->entry[listing->n].name, NAME, "%.63s", name);
    listing->n++;
}

/* A folder that is not there is an empty one. */
static int list(struct listing *listing, const char *dir, struct err *error)
{
    DIR *d = opendir(dir);
    struct dirent *it;
    int r = 0;

    *listing = (struct listing){0};
    if (!d)
        return errno == ENOENT ? 0
                               : err_set(error, -errno, "read folder %s: %s", dir, strerror(errno));
    errno = 0;
    while ((it = readdir(d))) {
        listing_add(listing, it->d_name);
        errno = 0;
    }
    if (errno)
        r = err_set(error, -errno, "read folder %s: %s", dir, strerror(errno));
    closedir(d);
    if (listing->n)
        qsort(listing->entry, listing->n, sizeof(*listing->entry), newer_first);
    if (r < 0) {
        free(listing->entry);
        *listing = (struct listing){0};
    }
    return r;
}

/* Put the one that the pointer names before the others. */
static void prefer_latest(struct listing *listing, const char *dir)
{
    AUTO_FREE char *link = mem_printf("%s/latest", dir);
    AUTO_FREE char *text = NULL;

    if (file_read_all(&text, NULL, link, NAME - 1, NULL) < 0)
        return;
    text[strcspn(text, "\n")] = '\0';
    for (size_t i = 0; i < listing->n; i++)
        if (str_eq(listing->entry[i].name, text)) {
            struct entry first = listing->entry[i];

            memmove(listing->entry + 1, listing->entry, i * sizeof(*listing->entry));
            listing->entry[0] = first;
            return;
        }
}

int tr_ckpt_latest(char **ret, const char *dir, struct err *error)
{
    struct listing l;
    int r = list(&l, dir, error);

    if (r < 0)
        return r;
    prefer_latest(&l, dir);
    r = -ENOENT;
    for (size_t i = 0; i < l.n && r < 0; i++)
        if (complete(dir, l.entry[i].name)) {
            *ret = mem_printf("%s/%s", dir, l.entry[i].name);
            r = 0;
        }
    free(l.entry);
    return r < 0 ? err_set(error, r, "no checkpoint in %s", dir) : 0;
}

void tr_ckpt_retire(const char *dir, int keep, int newest)
{
    struct listing l;
    int kept = 0, last = -1;

    assert(keep > 0);
    if (list(&l, dir, NULL) < 0)
        return;
    for (size_t i = 0; i < l.n; i++) {
        const struct entry *it = &l.entry[i];
        AUTO_FREE char *from = mem_printf("%s/%s", dir, it->name);
        AUTO_FREE char *to = mem_printf("%s/.removing", dir);

        if (it->step > newest || it->step == last || !complete(dir, it->name))
            continue;
        last = it->step;
        if (kept++ < keep)
            continue;
        file_remove_tree(to, NULL);
        if (rename(from, to) < 0)
            break;
        file_remove_tree(to, NULL);
    }
    free(l.entry);
}

/* ---- resume -------------------------------------------------------------- */

/* Rank 0's next choice, for all. */
struct choice {
    bool none;
    char name[NAME];
};

/* A resume under way. The list and what was set aside are rank 0's. */
struct resume {
    const char *dir;
    struct listing list;
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
        memcpy(ret->name, resume->list.entry[resume->next++].name, NAME);
    }
    team->share(team->ctx, ret, sizeof(*ret));
    return ret->none ? -ENOENT : 0;
}

/* Rename NAME to the first free NAME.damaged, NAME.damaged.2, ... */
static int set_aside(struct resume *resume, const char *name, struct err *error)
{
    AUTO_FREE char *from = mem_printf("%s/%s", resume->dir, name);
    AUTO_FREE char *to = mem_printf("%s%s", from, DAMAGED);

    for (int i = 2; file_exists(to); i++) {
        free(to);
        to = mem_printf("%s%s.%d", from, DAMAGED, i);
    }
    if (rename(from, to) < 0)
        return err_set(error, -EIO, "rename the damaged checkpoint %s to %s: %s", from, to,
                       strerror(errno));
    str_addf(&resume->aside, "%s%s is kept as %s", resume->aside.len ? "; " : "", name,
             strrchr(to, '/') + 1);
    return 0;
}

/* Set all damaged ones aside, and let the pointer name the one that is whole.
 */
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
        r = list(&u.list, dir, error);
        prefer_latest(&u.list, dir);
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
