/*
 * Completion for zsh: one _arguments for the command, one for what each command takes. Values that
 * the tables know are functions of their own, since a name such as `models|clusters` is none.
 */
#include "tuner/client/completion.h"

/* TEXT in an _arguments specification inside of single quotes. */
static void quoted(const char *text, FILE *out)
{
    for (; *text; text++) {
        if (*text == '\'') {
            fputs("'\\''", out);
            continue;
        }
        if (strchr("[]:\\", *text))
            fputc('\\', out);
        fputc(*text, out);
    }
}

static void value_functions(FILE *out)
{
    for (const struct cl_completed *row = cl_completed; row->name; row++) {
        fprintf(out, "_partune_value_%d()\n{\n    compadd \"$@\" --", (int)(row - cl_completed));
        if (row->words)
            fprintf(out, " %s", row->words);
        if (row->more)
            row->more(out);
        if (row->command)
            fprintf(out, " $(partune %s)", row->command);
        fputs("\n}\n", out);
    }
}

static void action(const char *name, bool file, bool folder, FILE *out)
{
    const struct cl_completed *row = cl_completed_find(name);

    if (row)
        fprintf(out, "_partune_value_%d", (int)(row - cl_completed));
    else
        fputs(file ? "_files" : folder ? "_files -/" : " ", out);
}

static void option(const struct opt *opt, FILE *out)
{
    for (int form = 0; form < 1 + (opt->letter != 0); form++) {
        fputs("        '", out);
        if (form)
            fprintf(out, "-%c", opt->letter);
        else
            fprintf(out, "--%s%s", opt->name, opt->type == OPT_FLAG ? "" : "=");
        fputc('[', out);
        quoted(opt->help, out);
        fputc(']', out);
        if (opt->type != OPT_FLAG) {
            fprintf(out, ":%s:", opt->metavar ? opt->metavar : "N");
            action(opt->name, cl_is_file(opt), str_eq(opt->metavar, "DIR"), out);
        }
        fputs("' \\\n", out);
    }
}

static void operands(const struct cl_command *command, FILE *out)
{
    char first[32];

    cl_first_operand(first, command);
    if (command->max == 0)
        return;
    fprintf(out, "        '%s:%s:", str_eq(first, "ID") && command->max > 2 ? "*" : "1", first);
    action(first, str_eq(first, "FILE"), false, out);
    fputs("' \\\n", out);
    if (strstr(command->operands, " FILE")) /* import TARGET FILE */
        fputs("        '2:FILE:_files' \\\n", out);
}

void cl_complete_zsh(const struct cl_tables *tables, FILE *out)
{
    fputs("#compdef partune\n# zsh completion of partune; made by `partune completion zsh`\n", out);
    value_functions(out);
    fputs("_partune()\n{\n    local curcontext=$curcontext state line\n"
          "    local -a commands=(\n",
          out);
    for (const struct cl_command *cmd = tables->commands; cmd->name; cmd++) {
        fprintf(out, "        '%s:", cmd->name);
        quoted(cmd->help, out);
        fputs("'\n", out);
    }
    fputs("    )\n    _arguments -C \\\n", out);
    for (const struct opt *o = tables->options; o->name; o++)
        if (cl_takes(tables, NULL, o))
            option(o, out);
    fputs("        '1: :->command' '*:: :->rest'\n"
          "    case $state in\n"
          "    command) _describe command commands; return ;;\n"
          "    esac\n"
          "    case $words[1] in\n",
          out);
    for (const struct cl_command *cmd = tables->commands; cmd->name; cmd++) {
        fprintf(out, "    %s) _arguments \\\n", cmd->name);
        for (const struct opt *o = tables->options; o->name; o++)
            if (cl_takes(tables, cmd, o))
                option(o, out);
        operands(cmd, out);
        fputs("        && return ;;\n", out);
    }
    fputs("    esac\n}\n"
          "if [[ $funcstack[1] = _partune ]]; then _partune \"$@\"; else compdef _partune "
          "partune; fi\n",
          out);
}
