/*
 * What the administrator's file may hold, section by section. A word that nobody reads is refused
 * when the daemon starts: a mistyped limit would otherwise be no limit.
 */
#include "tuner/service/webhooks.h"
#include "tuner/tuner.h"

static const char *const modes[] = {"steps", "jobs", "inside", NULL};
static const char *const task_launchers[] = {"srun", "mpiexec", NULL};
static const char *const launches[] = {"direct", "mpiexec", NULL};
static const char *const logs[] = {"stdout", "stderr", "events", NULL};
static const char *const parsers[] = {"megatron", "torchtitan", "deepspeed", "jsonl", NULL};

static const char *const rules[] = {"partune", "megatron", "torchtitan", "deepspeed", "any", NULL};

static const char *const reductions[] = {"replicas", "stage_layers", "micro_batches", NULL};

static const struct conf_key http[] = {
    {.name = "prefix"}, {.name = "allow-host"}, {.name = "allow-origin"}, {0}};

static const struct conf_key dataset[] = {{.name = "path"}, {0}};

static const struct conf_key trainer[] = {{.name = "command"},
                                          {.name = "parser", .words = parsers},
                                          {.name = "log", .words = logs},
                                          {.name = "launch", .words = launches},
                                          {.name = "dir"},
                                          {.name = "env"},
                                          {.name = "rules", .words = rules},
                                          {.name = "reduces"},
                                          {0}};

/* What a [slurm "CLUSTER"] may say otherwise than [slurm]. */
/* clang-format off */
#define SLURM_OF_CLUSTER                                                                           \
    {.name = "nodes", .min = 1, .max = 1e6}, {.name = "mpi"}, {.name = "partition"},               \
    {.name = "account"}, {.name = "qos"}, {.name = "time"}, {.name = "gres"},                      \
    {.name = "cpus-per-device"}, {.name = "extra"}, {.name = "step-extra"}
/* clang-format on */

static const struct conf_key slurm[] = {{.name = "mode", .words = modes},
                                        {.name = "launch", .words = task_launchers},
                                        {.name = "bin"},
                                        SLURM_OF_CLUSTER,
                                        {.name = "poll", .min = 0.05, .max = 3600},
                                        {.name = "idle", .min = 0, .max = 864000},
                                        {0}};
static const struct conf_key slurm_cluster[] = {SLURM_OF_CLUSTER, {0}};

/* Their values are read, and judged, by webhook.c. */
static const struct conf_key webhook[] = {
    {.name = "url"},         {.name = "events"},        {.name = "secret"},
    {.name = "secret-file"}, {.name = "ca-file"},       {.name = "retry"},
    {.name = "attempts"},    {.name = "allow-private"}, {0}};

static const struct conf_section sections[] = {
    {"partuned", false, NULL}, /* the options of the command line: opt_from_conf() */
    {"http", false, http},
    {"dataset", true, dataset},
    {"trainer", true, trainer},
    {"slurm", false, slurm},
    {"slurm", true, slurm_cluster},
    {"webhook", true, webhook},
    {0}};

/* Does TEXT hold none but WORDS, with blanks between? */
static bool only_words(const char *text, const char *const *words)
{
    size_t n = 0;
    int found = 0;

    for (text += strspn(text, " "); *text; text += n + strspn(text + n, " ")) {
        bool known = false;

        n = strcspn(text, " ");
        for (size_t i = 0; words[i]; i++)
            known |= strlen(words[i]) == n && !strncmp(words[i], text, n);
        if (!known)
            return false;
        found++;
    }
    return found > 0;
}

static int check_trainers(const struct conf *conf, struct err *error)
{
    for (size_t i = 0; i < conf->count; i++) {
        const struct conf_entry *it = &conf->entry[i];
        const char *command;

        if (strcmp(it->section, "trainer") != 0)
            continue;
        command = conf_get(conf, "trainer", it->name, "command");
        if (!command || !*command)
            return err_set(error, -EINVAL, "%s:%d: [trainer \"%.60s\"] has no command", conf->path,
                           it->line, it->name);
        if (!strcmp(it->key, "env") && (*it->value == '=' || !strchr(it->value, '=')))
            return err_set(error, -EINVAL, "%s:%d: env must be KEY=VALUE, not `%.80s`", conf->path,
                           it->line, it->value);
        if (!strcmp(it->key, "reduces") && !only_words(it->value, reductions))
            return err_set(error, -EINVAL,
                           "%s:%d: reduces must be words of replicas, stage_layers and "
                           "micro_batches, not `%.80s`",
                           conf->path, it->line, it->value);
    }
    return 0;
}

int tn_settings_check(const struct conf *conf, struct err *error)
{
    int r = conf_check(conf, sections, error);

    if (r == 0)
        r = check_trainers(conf, error);
    return r < 0 ? r : tn_webhooks_check(conf, error);
}
