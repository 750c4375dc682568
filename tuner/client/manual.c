/* The manual page, printed from the tables that the program parses by. */
#include "tuner/client/client.h"

const struct cl_exit_row cl_exit_rows[] = {
#define EXIT(NAME, code, word, meaning) {code, word, meaning},
#include "tuner/client/exits.def"
    {0, NULL, NULL},
};

bool cl_listed(const char *names, const char *name)
{
    char word[40];

    snprintf(word, sizeof(word), " %s ", name);
    return strstr(names, word) != NULL;
}

/* ---- the manual ---------------------------------------------------------- */

static json_t *option_json(const struct opt *option)
{
    json_t *v = json_pack("{s:s, s:s, s:b}", "name", option->name, "help", option->help, "flag",
                          option->type == OPT_FLAG);

    if (option->letter)
        json_object_set_new(v, "letter", json_stringn(&option->letter, 1));
    if (option->metavar)
        json_object_set_new(v, "value", json_string(option->metavar));
    if (option->standard)
        json_object_set_new(v, "default", json_string(option->standard));
    if (option->env)
        json_object_set_new(v, "environment", json_string(option->env));
    return v;
}

static json_t *command_json(const struct cl_tables *tables, const struct cl_command *command)
{
    json_t *options = json_array();

    for (const struct opt *o = tables->options; o->name; o++)
        if (cl_listed(command->options, o->name))
            json_array_append_new(options, json_string(o->name));
    return json_pack("{s:s, s:s, s:s, s:o}", "name", command->name, "operands", command->operands,
                     "help", command->help, "options", options);
}

/* The tables for programs: commands with their own options, all options, exit codes. */
static int manual_json(const struct cl_tables *tables)
{
    json_t *commands = json_array(), *options = json_array(), *common = json_array(),
           *exits = json_array();
    AUTO_JSON *v = NULL;

    for (const struct cl_command *cmd = tables->commands; cmd->name; cmd++)
        json_array_append_new(commands, command_json(tables, cmd));
    for (const struct opt *o = tables->options; o->name; o++) {
        json_array_append_new(options, option_json(o));
        if (cl_listed(tables->common, o->name))
            json_array_append_new(common, json_string(o->name));
    }
    for (const struct cl_exit_row *row = cl_exit_rows; row->word; row++)
        json_array_append_new(exits, json_pack("{s:i, s:s, s:s}", "code", row->code, "word",
                                               row->word, "meaning", row->meaning));
    v = json_pack("{s:s, s:o, s:o, s:o, s:o}", "version", PACKAGE_VERSION, "commands", commands,
                  "options", options, "common", common, "exit_status", exits);
    cl_print_json(v);
    return CL_OK;
}

/* "Options: --force, --model." */
static void print_options_of(const struct cl_command *command, const struct opt *options)
{
    const char *before = "Options: ";

    for (const struct opt *o = options; o->name; o++)
        if (cl_listed(command->options, o->name)) {
            printf("%s\\-\\-%s", before, o->name);
            before = ", ";
        }
    if (*before == ',')
        puts(".");
}

int cl_manual(struct cl *client)
{
    const struct cl_tables *tables = client->tables;

    if (client->args.json)
        return manual_json(tables);
    printf(".TH PARTUNE 1 \"\" \"partune %s\" \"User commands\"\n", PACKAGE_VERSION);
    puts(".SH NAME\npartune \\- submit, watch and export tuning campaigns");
    puts(".SH SYNOPSIS\n.B partune\n[options] COMMAND [operands]");
    puts(".SH DESCRIPTION\nThe client of\n.BR partuned (8):\n"
         "it submits campaigns that look for the fastest parallel layout of a training job, shows "
         "them while they run, and\n"
         "exports the winner. `last` in place of an ID is the newest campaign. With \\-\\-json, "
         "every command prints the daemon's response.");
    puts(".SH COMMANDS");
    for (const struct cl_command *cmd = tables->commands; cmd->name; cmd++) {
        printf(".TP\n.B %s ", cmd->name);
        opt_roff(cmd->operands, stdout);
        putchar('\n');
        opt_roff(cmd->help, stdout);
        puts(".");
        print_options_of(cmd, tables->options);
    }
    puts(".SH OPTIONS");
    for (const struct opt *o = tables->options; o->name; o++)
        opt_roff_option(o, stdout);
    puts(".SH EXIT STATUS");
    for (const struct cl_exit_row *row = cl_exit_rows; row->word; row++) {
        printf(".TP\n.B %d\n", row->code);
        opt_roff(row->meaning, stdout);
        puts(".");
    }
    puts(".PP\nCtrl\\-C ends a command by its signal (status 130 in a shell); in watch and events "
         "it only leaves the view.");
    puts(".SH FILES\n.TP\n.I $XDG_CONFIG_HOME/partune/config\nOptions in a section [client], one a "
         "line: server = URL.");
    puts(".SH SEE ALSO\n.BR partuned (8)");
    return CL_OK;
}
