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
    const struct tr_ckpt_entry *x = left, *y = right;

    if (x->step != y->step)
        return x->step < y->step ? 1 : -1;
    return strcmp(x->name, y->name);
}

static void listing_add(struct tr_ckpt_list *list, const char *name)
{
    int step = step_of(name);

    if (str_starts(name, "step-") && strstr(name, TR_CKPT_DAMAGED))
        snprintf(list->aside, sizeof(list->aside), "%.63s", name);
    if (step < 0)
        return;
    list->entry = mem_realloc(list->entry, (list->n + 1) * sizeof(*list->entry));
    list->entry[list->n].step = step;
    snprintf(list->entry[list->n].name, TR_CKPT_NAME, "%.63s", name);
    list->n++;
}

int tr_ckpt_list(struct tr_ckpt_list *ret, const char *dir, struct err *error)
{
    DIR *d = opendir(dir);
    struct dirent *it;
    int r = 0;

    *ret = (struct tr_ckpt_list){0};
    if (!d)
        return errno == ENOENT ? 0
                               : err_set(error, -errno, "read folder %s: %s", dir, strerror(errno));
    errno = 0;
    while ((it = readdir(d))) {
        listing_add(ret, it->d_name);
        errno = 0;
    }
    if (errno)
        r = err_set(error, -errno, "read folder %s: %s", dir, strerror(errno));
    closedir(d);
    if (ret->n)
        qsort(ret->entry, ret->n, sizeof(*ret->entry), newer_first);
    if (r < 0) {
        free(ret->entry);
        *ret = (struct tr_ckpt_list){0};
    }
    return r;
}

void tr_ckpt_prefer_latest(struct tr_ckpt_list *list, const char *dir)
{
    AUTO_FREE char *link = mem_printf("%s/latest", dir);
    AUTO_FREE char *text = NULL;

    if (file_read_all(&text, NULL, link, TR_CKPT_NAME - 1, NULL) < 0)
        return;
    text[strcspn(text, "\n")] = '\0';
    for (size_t i = 0; i < list->n; i++)
        if (str_eq(list->entry[i].name, text)) {
            struct tr_ckpt_entry first = list->entry[i];

            memmove(list->entry + 1, list->entry, i * sizeof(*list->entry));
            list->entry[0] = first;
            return;
        }
}

int tr_ckpt_latest(char **ret, const char *dir, struct err *error)
{
    struct tr_ckpt_list l;
    int r = tr_ckpt_list(&l, dir, error);

    if (r < 0)
        return r;
    tr_ckpt_prefer_latest(&l, dir);
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
    struct tr_ckpt_list l;
    int kept = 0, last = -1;

    assert(keep > 0);
    if (tr_ckpt_list(&l, dir, NULL) < 0)
        return;
    for (size_t i = 0; i < l.n; i++) {
        const struct tr_ckpt_entry *it = &l.entry[i];
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
