/* Trials, their steps and files, for the handlers; the small tables of launchers and trainers. */
#include <errno.h>

#include "tuner/core/internal.h"

int tn_trial_get(json_t **ret, struct tn_service *svc, const char *id, int64_t trial,
                 struct err *error)
{
    struct arena a = {0};
    struct db_trial t;
    bool simulated;
    int r = db_trial_get(svc->db, &a, &t, id, trial, error);

    if (r == 0)
        r = tn_simulated(&simulated, svc->db, id, error);
    if (r == 0)
        *ret = tn_trial_view(&t, simulated);
    arena_done(&a);
    return r;
}

/* An unknown campaign is an error, an empty one is not. */
static int known(struct tn_service *svc, const char *id, struct err *error)
{
    int64_t rev;

    return db_campaign_rev(svc->db, id, &rev, error);
}

int tn_trial_list(struct str *ret_items, const char **ret_next, int64_t *ret_total,
                  struct tn_service *svc, const char *id, struct arena *arena,
                  const struct db_filter *filter, struct err *error)
{
    struct db_filter more = *filter; /* one row more, to know whether there is one */
    struct db_trial *t = NULL;
    bool simulated;
    int n = 0;
    int r = known(svc, id, error);

    more.limit++;
    if (r == 0)
        r = tn_simulated(&simulated, svc->db, id, error);
    if (r == 0)
        r = db_trial_list(svc->db, arena, &t, &n, ret_total, id, &more, error);
    if (r < 0)
        return r;
    *ret_next = n > filter->limit ? db_trial_position(arena, filter, &t[--n - 1]) : NULL;
    for (int i = 0; i < n; i++) {
        str_addc(ret_items, i ? ',' : '[');
        tn_trial_text(ret_items, &t[i], simulated);
    }
    str_add(ret_items, n ? "]" : "[]");
    return 0;
}

static int known_trial(struct tn_service *svc, struct db_trial *row, struct arena *arena,
                       const char *id, int64_t trial, struct err *error)
{
    int r = known(svc, id, error);

    return r < 0 ? r : db_trial_get(svc->db, arena, row, id, trial, error);
}

int tn_step_list(json_t **ret_items, int64_t *ret_total, struct tn_service *svc, const char *id,
                 int64_t trial, int64_t offset, int64_t limit, struct err *error)
{
    struct arena a = {0};
    struct db_trial t;
    struct db_step *s = NULL;
    bool simulated;
    int count = 0;
    int r = known_trial(svc, &t, &a, id, trial, error);

    if (r == 0)
        r = tn_simulated(&simulated, svc->db, id, error);
    if (r == 0)
        r = db_step_list(svc->db, &a, &s, &count, ret_total, id, trial, offset, limit, error);
    if (r == 0) {
        *ret_items = json_array();
        for (int i = 0; i < count; i++) {
            json_t *v = json_loads(s[i].data, 0, NULL);

            if (!v)
                continue;
            json_object_set_new(v, "simulated", json_boolean(simulated));
            json_array_append_new(*ret_items, v);
        }
    }
    arena_done(&a);
    return r;
}

int tn_trial_file(char **ret, struct tn_service *svc, const char *id, int64_t trial,
                  enum tn_log which, struct err *error)
{
    static const char *const names[] = {"stdout", "stderr", "events", TN_TIMELINE_FILE};
    struct arena a = {0};
    struct db_trial t;
    int r = known_trial(svc, &t, &a, id, trial, error);

    if (r == 0 && t.attempts < 1)
        r = err_set(error, -ENOENT, "trial %lld has not been started", (long long)trial);
    if (r == 0) /* ID is one of the database: no path leads out of the data directory */
        *ret = mem_printf("%s/campaigns/%s/trials/%lld/%lld/%s", svc->data_dir, id,
                          (long long)trial, (long long)t.attempts, names[which]);
    arena_done(&a);
    return r;
}

/* ---- command lines ---- */

void tn_argv_add(struct tn_argv *argv, const char *text)
{
    if (argv->n + 1 >= argv->cap) {
        argv->cap = argv->cap ? 2 * argv->cap : 32;
        argv->v = mem_realloc(argv->v, (size_t)argv->cap * sizeof(argv->v[0]));
    }
    argv->v[argv->n++] = mem_strdup(text);
    argv->v[argv->n] = NULL;
}

void tn_argv_addf(struct tn_argv *argv, const char *fmt, ...)
{
    AUTO_STR s = {0};
    va_list ap;

    va_start(ap, fmt);
    str_vaddf(&s, fmt, ap);
    va_end(ap);
    tn_argv_add(argv, str_text(&s));
}

void tn_argv_done(struct tn_argv *argv)
{
    for (int i = 0; i < argv->n; i++)
        free(argv->v[i]);
    free(argv->v);
    *argv = (struct tn_argv){0};
}

/* ---- which launcher, which trainer ---- */

static const struct tn_launcher *const launchers[] = {&tn_launcher_local, &tn_launcher_simulated,
                                                      &tn_launcher_remote, &tn_launcher_slurm};

const struct tn_launcher *tn_launcher_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(launchers); i++)
        if (!strcmp(launchers[i]->name, name))
            return launchers[i];
    return NULL;
}

const struct tn_trainer *tn_trainer_find(const struct tn_service *svc, const char *name)
{
    return !strcmp(name, tn_trainer_partune.name) ? &tn_trainer_partune
                                                  : tn_trainer_external(svc, name);
}

bool tn_trainer_known(const struct tn_service *svc, const char *name)
{
    return tn_trainer_find(svc, name) != NULL;
}
