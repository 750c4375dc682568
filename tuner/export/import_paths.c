/* All paths through a job script: see paths.h. */
#include "tuner/export/paths.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <string.h>

enum { MAX_PATHS = 256, MAX_ROUNDS = 8 };

void tn_paths_doubt(struct tn_paths *paths, const char *name)
{
    for (size_t i = 0; i < paths->ndoubts; i++)
        if (str_eq(paths->doubts[i], name))
            return;
    if (paths->ndoubts < TN_PATH_DOUBTS)
        snprintf(paths->doubts[paths->ndoubts++], sizeof(paths->doubts[0]), "%s", name);
}

void tn_paths_doubt_word(struct tn_paths *paths, const struct tn_word *word)
{
    const char *name = word->unknown ? word->unknown + strspn(word->unknown, "${") : "";
    char copy[64];
    size_t n = 0;

    if (word->why != TN_WORD_MAYBE)
        return;
    while (isalnum((unsigned char)name[n]) || name[n] == '_')
        n++;
    snprintf(copy, sizeof(copy), "%.*s", (int)n, name);
    tn_paths_doubt(paths, n && n < sizeof(copy) ? copy : TN_PATH_ANY);
}

static bool is_doubted(const struct tn_paths *paths, const char *name)
{
    for (size_t i = 0; i < paths->ndoubts; i++)
        if (str_eq(paths->doubts[i], name) || str_eq(paths->doubts[i], TN_PATH_ANY))
            return true;
    return false;
}

/* Forks the conditions that decide what is doubted; false where all of them are. */
static bool fork_doubts(struct tn_paths *paths)
{
    size_t before = paths->nforked;

    for (size_t i = 0; i < paths->neffects; i++) {
        size_t k = 0;

        while (k < paths->nforked && paths->forked[k] != paths->effects[i].condition)
            k++;
        if (k == paths->nforked && k < TN_PATH_FORKS && is_doubted(paths, paths->effects[i].name))
            paths->forked[paths->nforked++] = paths->effects[i].condition;
    }
    paths->ndoubts = 0;
    return paths->nforked > before;
}

/* The next path in order; false behind the last. */
static bool next_path(struct tn_paths *paths)
{
    assert(paths->at >= paths->chosen);
    paths->chosen = paths->at;
    while (paths->chosen && !paths->taken[paths->chosen - 1])
        paths->chosen--;
    if (!paths->chosen)
        return false;
    paths->taken[paths->chosen - 1] = false;
    return true;
}

bool tn_paths_same(const struct tn_imported *left, const struct tn_imported *right)
{
    return pl_layout_equal(&left->layout, &right->layout) &&
           left->global_batch == right->global_batch && left->seq == right->seq;
}

/* All paths through what is forked, each from START on; an error where they differ. */
static int read_all(struct tn_imported *out, const struct tn_imported *start,
                    struct tn_paths *paths, tn_paths_read *read, const struct tn_job *job,
                    const struct pl_model *model)
{
    int count = 0, started = 0;

    paths->chosen = 0;
    do {
        struct tn_imported one = *start;
        struct err error = {0};
        int r;

        paths->at = 0;
        paths->unstarted = false;
        r = read(&one, paths, job, model, &error);
        if (++count > MAX_PATHS || (r < 0 && !paths->unstarted) ||
            (r == 0 && started && !tn_paths_same(out, &one)))
            return -EINVAL;
        if (r == 0 && !started++)
            *out = one;
    } while (next_path(paths));
    if (started)
        tn_finding_add(&out->ignored, "conditions",
                       "%d ways through what is not known here start a program: all by this layout",
                       started);
    return started ? 0 : -EINVAL;
}

static int import_once(struct tn_imported *out, struct tn_paths *paths, tn_paths_read *read,
                       const struct tn_job *job, const struct pl_model *model, struct err *error)
{
    const struct tn_imported start = *out;
    int r = read(out, paths, job, model, error);

    for (int round = 0; r < 0 && round < MAX_ROUNDS && fork_doubts(paths); round++) {
        struct tn_imported all = start;

        if (read_all(&all, &start, paths, read, job, model) == 0) {
            *out = all;
            *error = (struct err){0};
            r = 0;
        }
    }
    return r;
}

/* Nothing says how JOB is started: as if by its name alone. Where its layout follows from that, as
 * from the defaults of its options, it is read, and said to be. */
static int import_assumed(struct tn_imported *out, tn_paths_read *read, const struct tn_job *job,
                          const struct pl_model *model)
{
    struct tn_job named = *job;
    struct tn_paths *paths = mem_alloc(sizeof(*paths));
    struct err error = {0};
    int r;

    named.call = "bash job.sh";
    paths->assumed = out->assumed = true;
    tn_finding_add(&out->ignored, "call",
                   "read as called without arguments, with none of its variables in the "
                   "environment: --call says others");
    r = import_once(out, paths, read, &named, model, &error);
    free(paths);
    return r;
}

int tn_paths_import(struct tn_imported *out, tn_paths_read *read, const struct tn_job *job,
                    const struct pl_model *model, struct err *error)
{
    struct tn_imported assumed = *out;
    struct tn_paths *paths = mem_alloc(sizeof(*paths));
    int r = import_once(out, paths, read, job, model, error);

    free(paths);
    if (r < 0 && !job->call && import_assumed(&assumed, read, job, model) == 0) {
        *out = assumed;
        *error = (struct err){0};
        r = 0;
    }
    return r;
}
