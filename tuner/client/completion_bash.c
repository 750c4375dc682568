/* Completion for bash. */
#include "tuner/client/completion.h"

static void bash_words(const struct cl_tables *tables, const struct cl_command *cmd, FILE *out)
{
    for (const struct opt *o = tables->options; o->name; o++)
        if (cl_listed(tables->common, o->name) || (cmd && cl_listed(cmd->options, o->name)))
            fprintf(out, " --%s", o->name);
}

/* Words that may take the place of NAME are added to `words`. */
static void bash_values(const char *name, FILE *out)
{
    for (size_t i = 0; cl_completed[i].name; i++) {
        if (strcmp(cl_completed[i].name, name) != 0)
            continue;
        fprintf(out, "words+=' %s", cl_completed[i].words ? cl_completed[i].words : "");
        if (cl_completed[i].more)
            cl_completed[i].more(out);
        fputc('\'', out);
        if (cl_completed[i].command)
            fprintf(out, "; words+=\" $(\"${COMP_WORDS[0]}\" %s)\"", cl_completed[i].command);
        fprintf(out, " ;;\n");
    }
}

/* The cases of an option's value; those of a file are left to the shell. */
static void bash_option_values(const struct cl_tables *tables, FILE *out)
{
    fputs("    case $before in\n", out);
    for (const struct opt *o = tables->options; o->name; o++) {
        if (o->type == OPT_FLAG)
            continue;
        fprintf(out, "    --%s", o->name);
        if (o->letter)
            fprintf(out, "|-%c", o->letter);
        if (cl_is_file(o)) {
            fputs(") COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n", out);
        } else if (o->metavar && !strcmp(o->metavar, "DIR")) {
            fputs(") COMPREPLY=($(compgen -d -- \"$word\")); return ;;\n", out);
        } else {
            bool known = false;

            for (size_t i = 0; cl_completed[i].name; i++)
                known |= !strcmp(cl_completed[i].name, o->name);
            fprintf(out, ") ");
            if (known)
                bash_values(o->name, out);
            else
                fputs(";;\n", out);
        }
    }
    fputs("    *) before= ;;\n    esac\n"
          "    [[ $before ]] && { COMPREPLY=($(compgen -W \"$words\" -- \"$word\")); return; }\n",
          out);
}

/* Operands by the first word of the usage: an ID, a choice, or a file. */
static void bash_operands(const struct cl_tables *tables, FILE *out)
{
    fputs("    [[ $word == -* ]] || case $command in\n", out);
    for (const struct cl_command *cmd = tables->commands; cmd->name; cmd++) {
        char first[32];
        const char *s = cmd->operands + (*cmd->operands == '[');

        snprintf(first, sizeof(first), "%.*s", (int)strcspn(s, " ]"), s);
        if (!strcmp(first, "A"))
            snprintf(first, sizeof(first), "ID");
        for (size_t i = 0; cl_completed[i].name; i++) {
            if (strcmp(cl_completed[i].name, first) != 0)
                continue;
            fprintf(out, "    %s) ", cmd->name);
            bash_values(first, out);
        }
    }
    fputs("    esac\n    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n", out);
    fprintf(out, "    [[ $word == -* ]] || case $command in\n    ");
    for (const struct cl_command *cmd = tables->commands; cmd->name; cmd++)
        if (strstr(cmd->operands, "FILE"))
            fprintf(out, "%s|", cmd->name);
    fputs("-) COMPREPLY+=($(compgen -f -- \"$word\")) ;;\n    esac\n", out);
}

/* Options whose value is the next word, and the first word that is a command. */
static void bash_find_command(const struct cl_tables *tables, FILE *out)
{
    fprintf(out, "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
                 "        case ${COMP_WORDS[i]} in\n        ");
    for (const struct opt *o = tables->options; o->name; o++) {
        if (o->type == OPT_FLAG)
            continue;
        fprintf(out, "--%s|", o->name);
        if (o->letter)
            fprintf(out, "-%c|", o->letter);
    }
    fprintf(out, "--) i=$((i + 1)) ;;\n        ");
    for (const struct cl_command *cmd = tables->commands; cmd->name; cmd++)
        fprintf(out, "%s%s", cmd->name, cmd[1].name ? "|" : "");
    fputs(") command=${COMP_WORDS[i]}; break ;;\n"
          "        esac\n"
          "    done\n",
          out);
}

void cl_complete_bash(const struct cl_tables *tables, FILE *out)
{
    fputs("# bash completion of partune; made by `partune completion bash`\n"
          "_partune()\n{\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
          "    local command= i words=\n",
          out);
    bash_option_values(tables, out);
    bash_find_command(tables, out);
    fputs("    case $command in\n", out);
    for (const struct cl_command *cmd = tables->commands; cmd->name; cmd++) {
        fprintf(out, "    %s) words='", cmd->name);
        bash_words(tables, cmd, out);
        fputs("' ;;\n", out);
    }
    fprintf(out, "    *) words='");
    for (const struct cl_command *cmd = tables->commands; cmd->name; cmd++)
        fprintf(out, "%s ", cmd->name);
    bash_words(tables, NULL, out);
    fputs("' ;;\n    esac\n", out);
    bash_operands(tables, out);
    fputs("}\n"
          "complete -F _partune partune\n",
          out);
}
