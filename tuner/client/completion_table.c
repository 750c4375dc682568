/* What the completions of all shells share: values of options and operands. */
#include "tuner/client/completion.h"

#include "db/db.h"
#include "plan/plan.h"

static void trial_states(FILE *out)
{
    const char *names[DB_STATES + 1];
    int n = db_trial_state_names(names);

    for (int i = 0; i < n; i++)
        fprintf(out, " %s", names[i]);
}

static void trainers(FILE *out)
{
    for (const char *const *name = pl_trainer_names(); *name; name++)
        fprintf(out, " %s", *name);
}

const struct cl_completed cl_completed[] = {
    {"stream", "stdout stderr events", NULL, NULL},
    {"format", "csv jsonl", NULL, NULL},
    {"scope", "read submit admin", NULL, NULL},
    {"kind", "baseline search repeat verify", NULL, NULL},
    {"state", "paused verifying done failed", NULL, trial_states},
    {"scaling", "strong weak", NULL, NULL},
    {"layouts", "winner best", NULL, NULL},
    {"to", NULL, "exporters 2>/dev/null | cut -d' ' -f1", NULL},
    {"model", NULL, "presets models 2>/dev/null", NULL},
    {"on", NULL, "presets clusters 2>/dev/null", NULL},
    {"cluster", NULL, "presets clusters 2>/dev/null", NULL},
    {"trainer", NULL, NULL, trainers},
    {"launcher",
#define LAUNCHER(name, ...) " " #name
#include "tuner/launch/launchers.def"
     , NULL, NULL},
    {"ID", "last", "ls --limit 50 2>/dev/null | awk 'NR > 1 && NF > 2 { print $1 }'", NULL},
    {"models|clusters|stacks", "models clusters stacks", NULL, NULL},
    {"bash|zsh|fish", "bash zsh fish", NULL, NULL},
    {"tensorboard|mlflow", "tensorboard mlflow", NULL, NULL},
    {"TARGET", NULL, "exporters 2>/dev/null | cut -d' ' -f1", NULL},
    {NULL, NULL, NULL, NULL},
};

const struct cl_completed *cl_completed_find(const char *name)
{
    for (const struct cl_completed *row = cl_completed; row->name; row++)
        if (str_eq(row->name, name))
            return row;
    return NULL;
}

void cl_first_operand(char ret_name[32], const struct cl_command *command)
{
    const char *text = command->operands + (*command->operands == '[');

    snprintf(ret_name, 32, "%.*s", (int)strcspn(text, " ]"), text);
    if (str_eq(ret_name, "A"))
        snprintf(ret_name, 32, "ID");
}

bool cl_is_file(const struct opt *option)
{
    const char *metavar = option->metavar;

    return metavar && (str_starts(metavar, "FILE") || str_eq(metavar, "PROGRAM"));
}

bool cl_takes(const struct cl_tables *tables, const struct cl_command *command,
              const struct opt *option)
{
    return cl_listed(tables->common, option->name) ||
           (command && cl_listed(command->options, option->name));
}
