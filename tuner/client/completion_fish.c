/* Completion for fish: one `complete` for each command, option and kind of operand. */
#include "tuner/client/completion.h"

static void quoted(const char *text, FILE *out)
{
    fputc('\'', out);
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\')
            fputc('\\', out);
        fputc(*text, out);
    }
    fputc('\'', out);
}

/* The words that NAME may be, as fish asks for them: "-xa '(partune ls)'". */
static void values(const struct cl_completed *row, bool files, FILE *out)
{
    fprintf(out, " %s \"", files ? "-Fa" : "-xa");
    if (row->words)
        fputs(row->words, out);
    if (row->more)
        row->more(out);
    if (row->command) {
        fputs(" (partune ", out);
        for (const char *at = row->command; *at; at++) {
            if (strchr("$\"\\", *at)) /* inside of double quotes */
                fputc('\\', out);
            fputc(*at, out);
        }
        fputc(')', out);
    }
    fputc('"', out);
}

static void option(const struct cl_tables *tables, const struct opt *opt, FILE *out)
{
    const struct cl_completed *row = cl_completed_find(opt->name);
    bool common = cl_takes(tables, NULL, opt);

    fputs("complete -c partune", out);
    if (!common) {
        fputs(" -n '__fish_seen_subcommand_from", out);
        for (const struct cl_command *cmd = tables->commands; cmd->name; cmd++)
            if (cl_takes(tables, cmd, opt))
                fprintf(out, " %s", cmd->name);
        fputc('\'', out);
    }
    fprintf(out, " -l %s", opt->name);
    if (opt->letter)
        fprintf(out, " -s %c", opt->letter);
    if (opt->type != OPT_FLAG && row)
        values(row, false, out);
    else if (opt->type != OPT_FLAG)
        fputs(cl_is_file(opt) || str_eq(opt->metavar, "DIR") ? " -rF" : " -x", out);
    fputs(" -d ", out);
    quoted(opt->help, out);
    fputc('\n', out);
}

void cl_complete_fish(const struct cl_tables *tables, FILE *out)
{
    fputs("# fish completion of partune; made by `partune completion fish`\n"
          "complete -c partune -f\n",
          out);
    for (const struct cl_command *cmd = tables->commands; cmd->name; cmd++) {
        fprintf(out, "complete -c partune -n __fish_use_subcommand -a %s -d ", cmd->name);
        quoted(cmd->help, out);
        fputc('\n', out);
    }
    for (const struct opt *o = tables->options; o->name; o++)
        option(tables, o, out);
    for (const struct cl_command *cmd = tables->commands; cmd->name; cmd++) {
        bool files = strstr(cmd->operands, "FILE") != NULL;
        const struct cl_completed *row;
        char first[32];

        cl_first_operand(first, cmd);
        row = cl_completed_find(first);
        if (!row && !files)
            continue;
        fprintf(out, "complete -c partune -n '__fish_seen_subcommand_from %s'", cmd->name);
        if (row)
            values(row, files, out);
        else
            fputs(" -F", out);
        fputc('\n', out);
    }
}
