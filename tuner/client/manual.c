/* The manual page and the completion script, printed from the tables that the program parses by. */
#include "tuner/client/client.h"

static bool listed(const char *names, const char *name)
{
    char word[40];

    snprintf(word, sizeof(word), " %s ", name);
    return strstr(names, word) != NULL;
}

static void bash_words(const struct cl_command *cmd)
{
    for (const struct opt *o = cl_options; o->name; o++)
        if (listed(cl_common_options, o->name) || (cmd && listed(cmd->options, o->name)))
            printf(" --%s", o->name);
}

int cl_completion(struct cl *c)
{
    if (strcmp(c->operand[0], "bash")) {
        fprintf(stderr, "partune: there is a completion for bash, none for `%s`\n", c->operand[0]);
        return CL_USAGE;
    }
    puts("# bash completion of partune; made by `partune completion bash`\n"
         "_partune()\n{\n"
         "    local word=${COMP_WORDS[COMP_CWORD]} command= i words\n"
         "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
         "        [[ ${COMP_WORDS[i]} != -* ]] && { command=${COMP_WORDS[i]}; break; }\n"
         "    done\n"
         "    case $command in");
    for (const struct cl_command *cmd = cl_commands; cmd->name; cmd++) {
        printf("    %s) words='", cmd->name);
        bash_words(cmd);
        puts("' ;;");
    }
    printf("    *) words='");
    for (const struct cl_command *cmd = cl_commands; cmd->name; cmd++)
        printf("%s ", cmd->name);
    bash_words(NULL);
    puts("' ;;\n    esac\n"
         "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
         "    [[ $word != -* && -n $command ]] && COMPREPLY+=($(compgen -f -- \"$word\"))\n"
         "}\n"
         "complete -F _partune partune");
    return CL_OK;
}

/* TEXT with what roff would take for itself escaped. */
static void roff(const char *text)
{
    for (; *text; text++) {
        if (*text == '\\' || *text == '-')
            putchar('\\');
        putchar(*text);
    }
}

static void roff_option(const struct opt *o)
{
    printf(".TP\n.B ");
    if (o->letter)
        printf("\\-%c, ", o->letter);
    printf("\\-\\-");
    roff(o->name);
    if (o->type != OPT_FLAG)
        printf(" \\fI%s\\fR", o->metavar ? o->metavar : "N");
    putchar('\n');
    roff(o->help);
    if (o->standard && o->type != OPT_FLAG) {
        printf(" (default ");
        roff(o->standard);
        putchar(')');
    }
    if (o->env)
        printf("; environment variable %s", o->env);
    puts(".");
}

int cl_manual(struct cl *c)
{
    (void)c;
    printf(".TH PARTUNE 1 \"\" \"partune %s\" \"User commands\"\n", PACKAGE_VERSION);
    puts(".SH NAME\npartune \\- submit, watch and export tuning campaigns");
    puts(".SH SYNOPSIS\n.B partune\n[options] COMMAND [operands]");
    puts(".SH DESCRIPTION\nThe client of\n.BR partuned (8):\n"
         "it submits campaigns that look for the fastest parallel layout of a training job, shows "
         "them while they run, and\n"
         "exports the winner. `last` in place of an ID is the newest campaign. With \\-\\-json "
         "every command prints the server's own answer.");
    puts(".SH COMMANDS");
    for (const struct cl_command *cmd = cl_commands; cmd->name; cmd++) {
        printf(".TP\n.B %s ", cmd->name);
        roff(cmd->operands);
        putchar('\n');
        roff(cmd->help);
        puts(".");
        for (const struct opt *o = cl_options; o->name; o++)
            if (listed(cmd->options, o->name))
                printf("Takes \\-\\-%s.\n", o->name);
    }
    puts(".SH OPTIONS");
    for (const struct opt *o = cl_options; o->name; o++)
        roff_option(o);
    puts(".SH EXIT STATUS\n0 done, 1 refused by the server, 2 wrong usage, 3 no daemon answers, 4 "
         "not found, 5 no access,\n"
         "6 the campaign that was watched or verified did not end well, or a local file failed. "
         "Ctrl\\-C ends by its signal (130 to a shell), but for watch and events, where it only "
         "leaves the view.");
    puts(".SH FILES\n.TP\n.I $XDG_CONFIG_HOME/partune/config\nOptions in a section [client], one a "
         "line: server = URL.");
    puts(".SH SEE ALSO\n.BR partuned (8)");
    return CL_OK;
}
