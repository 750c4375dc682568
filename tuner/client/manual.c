/* The manual page and the completion script, printed from the tables that the program parses by. */
#include "tuner/client/client.h"

#include "db/db.h"
#include "plan/plan.h"

static bool listed(const char *names, const char *name)
{
    char word[40];

    snprintf(word, sizeof(word), " %s ", name);
    return strstr(names, word) != NULL;
}

static void bash_words(const struct cl_tables *tables, const struct cl_command *cmd)
{
    for (const struct opt *o = tables->options; o->name; o++)
        if (listed(tables->common, o->name) || (cmd && listed(cmd->options, o->name)))
            printf(" --%s", o->name);
}

static void trial_states(void)
{
    const char *names[DB_STATES + 1];
    int n = db_trial_state_names(names);

    for (int i = 0; i < n; i++)
        printf(" %s", names[i]);
}

static void trainers(void)
{
    for (const char *const *name = pl_trainer_names(); *name; name++)
        printf(" %s", *name);
}

/* What may stand behind an option, or as an operand: words, or a command that prints them. */
static const struct {
    const char *name; /* of the option, or of the operand as the usage line has it */
    const char *words, *command;
    void (*more)(void); /* prints further words, each behind a blank */
} completed[] = {
    {"stream", "stdout stderr events", NULL, NULL},
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
    {"bash", "bash", NULL, NULL},
    {"TARGET", NULL, "exporters 2>/dev/null | cut -d' ' -f1", NULL},
};

/* Words that may take the place of NAME are added to `words`. */
static void bash_values(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(completed); i++) {
        if (strcmp(completed[i].name, name) != 0)
            continue;
        printf("words+=' %s", completed[i].words ? completed[i].words : "");
        if (completed[i].more)
            completed[i].more();
        putchar('\'');
        if (completed[i].command)
            printf("; words+=\" $(\"${COMP_WORDS[0]}\" %s)\"", completed[i].command);
        printf(" ;;\n");
    }
}

/* The cases of an option's value; those of a file are left to the shell. */
static void bash_option_values(const struct cl_tables *tables)
{
    puts("    case $before in");
    for (const struct opt *o = tables->options; o->name; o++) {
        if (o->type == OPT_FLAG)
            continue;
        printf("    --%s", o->name);
        if (o->letter)
            printf("|-%c", o->letter);
        if (o->metavar && (!strcmp(o->metavar, "FILE") || !strcmp(o->metavar, "PROGRAM"))) {
            puts(") COMPREPLY=($(compgen -f -- \"$word\")); return ;;");
        } else if (o->metavar && !strcmp(o->metavar, "DIR")) {
            puts(") COMPREPLY=($(compgen -d -- \"$word\")); return ;;");
        } else {
            bool known = false;

            for (size_t i = 0; i < ARRAY_LEN(completed); i++)
                known |= !strcmp(completed[i].name, o->name);
            printf(") ");
            if (known)
                bash_values(o->name);
            else
                puts(";;");
        }
    }
    puts("    *) before= ;;\n    esac\n"
         "    [[ $before ]] && { COMPREPLY=($(compgen -W \"$words\" -- \"$word\")); return; }");
}

/* Operands by the first word of the usage: an ID, a choice, or a file. */
static void bash_operands(const struct cl_tables *tables)
{
    puts("    [[ $word == -* ]] || case $command in");
    for (const struct cl_command *cmd = tables->commands; cmd->name; cmd++) {
        char first[32];
        const char *s = cmd->operands + (*cmd->operands == '[');

        snprintf(first, sizeof(first), "%.*s", (int)strcspn(s, " ]"), s);
        if (!strcmp(first, "A"))
            snprintf(first, sizeof(first), "ID");
        for (size_t i = 0; i < ARRAY_LEN(completed); i++) {
            if (strcmp(completed[i].name, first) != 0)
                continue;
            printf("    %s) ", cmd->name);
            bash_values(first);
        }
    }
    puts("    esac\n    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))");
    printf("    [[ $word == -* ]] || case $command in\n    ");
    for (const struct cl_command *cmd = tables->commands; cmd->name; cmd++)
        if (strstr(cmd->operands, "FILE"))
            printf("%s|", cmd->name);
    puts("-) COMPREPLY+=($(compgen -f -- \"$word\")) ;;\n    esac");
}

int cl_completion(struct cl *client)
{
    const struct cl_tables *tables = client->tables;

    if (strcmp(client->operand[0], "bash")) {
        fprintf(stderr, "partune: there is a completion for bash, none for `%s`\n",
                client->operand[0]);
        return CL_USAGE;
    }
    puts("# bash completion of partune; made by `partune completion bash`\n"
         "_partune()\n{\n"
         "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
         "    local command= i words=");
    bash_option_values(tables);
    printf("    for ((i = 1; i < COMP_CWORD; i++)); do\n"
           "        case ${COMP_WORDS[i]} in\n        ");
    for (const struct opt *o = tables->options; o->name; o++) {
        if (o->type == OPT_FLAG)
            continue;
        printf("--%s|", o->name);
        if (o->letter)
            printf("-%c|", o->letter);
    }
    printf("--) i=$((i + 1)) ;;\n        ");
    for (const struct cl_command *cmd = tables->commands; cmd->name; cmd++)
        printf("%s%s", cmd->name, cmd[1].name ? "|" : "");
    puts(") command=${COMP_WORDS[i]}; break ;;\n"
         "        esac\n"
         "    done\n"
         "    case $command in");
    for (const struct cl_command *cmd = tables->commands; cmd->name; cmd++) {
        printf("    %s) words='", cmd->name);
        bash_words(tables, cmd);
        puts("' ;;");
    }
    printf("    *) words='");
    for (const struct cl_command *cmd = tables->commands; cmd->name; cmd++)
        printf("%s ", cmd->name);
    bash_words(tables, NULL);
    puts("' ;;\n    esac");
    bash_operands(tables);
    puts("}\n"
         "complete -F _partune partune");
    return CL_OK;
}

int cl_manual(struct cl *client)
{
    const struct cl_tables *tables = client->tables;

    printf(".TH PARTUNE 1 \"\" \"partune %s\" \"User commands\"\n", PACKAGE_VERSION);
    puts(".SH NAME\npartune \\- submit, watch and export tuning campaigns");
    puts(".SH SYNOPSIS\n.B partune\n[options] COMMAND [operands]");
    puts(".SH DESCRIPTION\nThe client of\n.BR partuned (8):\n"
         "it submits campaigns that look for the fastest parallel layout of a training job, shows "
         "them while they run, and\n"
         "exports the winner. `last` in place of an ID is the newest campaign. With \\-\\-json "
         "every command prints the daemon's answer.");
    puts(".SH COMMANDS");
    for (const struct cl_command *cmd = tables->commands; cmd->name; cmd++) {
        printf(".TP\n.B %s ", cmd->name);
        opt_roff(cmd->operands, stdout);
        putchar('\n');
        opt_roff(cmd->help, stdout);
        puts(".");
        for (const struct opt *o = tables->options; o->name; o++)
            if (listed(cmd->options, o->name))
                printf("Takes \\-\\-%s.\n", o->name);
    }
    puts(".SH OPTIONS");
    for (const struct opt *o = tables->options; o->name; o++)
        opt_roff_option(o, stdout);
    puts(".SH EXIT STATUS\n0 done, 1 refused by the server, 2 wrong usage, 3 no daemon answers, 4 "
         "not found, 5 no access,\n"
         "6 the watched or verified campaign failed, or a local file could not be read or written. "
         "Ctrl\\-C ends it by its signal (130 in a shell), except watch and events, where it only "
         "leaves the view.");
    puts(".SH FILES\n.TP\n.I $XDG_CONFIG_HOME/partune/config\nOptions in a section [client], one a "
         "line: server = URL.");
    puts(".SH SEE ALSO\n.BR partuned (8)");
    return CL_OK;
}
