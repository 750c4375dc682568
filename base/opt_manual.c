/* The manual page of a program, from the table that it parses its command line by. */
#include "base/base.h"

/* The character at POS, of well-formed UTF-8 and not ASCII, by its number; how many bytes it
 * took. */
static int roff_character(const char *pos, FILE *out)
{
    const unsigned char *b = (const unsigned char *)pos;
    int n = b[0] >= 0xf0 ? 4 : b[0] >= 0xe0 ? 3 : 2;
    unsigned u = b[0] & (0x7fu >> n);

    for (int i = 1; i < n; i++)
        u = u << 6 | (b[i] & 0x3fu);
    fprintf(out, "\\[u%04X]", u);
    return n;
}

void opt_roff(const char *text, FILE *out)
{
    for (const char *p = text; *p; p++) {
        if (*p & 0x80) {
            p += roff_character(p, out) - 1;
            continue;
        }
        if (*p == '\\') {
            fputs("\\e", out);
            continue;
        }
        if (*p == '-')
            fputc('\\', out);
        if ((*p == '.' || *p == '\'') && (p == text || p[-1] == '\n'))
            fputs("\\&", out);
        fputc(*p, out);
    }
}

void opt_roff_option(const struct opt *option, FILE *out)
{
    fputs(".TP\n.B ", out);
    if (option->letter)
        fprintf(out, "\\-%c, ", option->letter);
    fputs("\\-\\-", out);
    opt_roff(option->name, out);
    if (option->type != OPT_FLAG) {
        fputs(" \\fI", out);
        opt_roff(option->metavar ? option->metavar : "N", out);
        fputs("\\fR", out);
    }
    fputc('\n', out);
    opt_roff(option->help, out);
    if (option->standard && *option->standard && option->type != OPT_FLAG) {
        fputs(" (default ", out);
        opt_roff(option->standard, out);
        fputc(')', out);
    }
    if (option->env)
        fprintf(out, "; environment variable %s", option->env);
    fputs(".\n", out);
}

void opt_manual(const struct opt_set *set, const struct opt_manual *manual, FILE *out)
{
    fputs(".TH ", out);
    for (const char *p = set->program; *p; p++)
        fputc(*p >= 'a' && *p <= 'z' ? *p - 'a' + 'A' : *p, out);
    fprintf(out, " %d \"\" \"partune %s\" \"%s\"\n.SH NAME\n", manual->section, PACKAGE_VERSION,
            manual->section == 8 ? "System administration" : "User commands");
    opt_roff(set->program, out);
    fputs(" \\- ", out);
    opt_roff(manual->summary, out);
    fputs("\n.SH SYNOPSIS\n.nf\n", out);
    for (const char *p = set->usage; *p; p += strcspn(p, "\n"), p += strspn(p, "\n ")) {
        AUTO_FREE char *line = mem_printf("%.*s", (int)strcspn(p, "\n"), p);

        opt_roff(line, out);
        fputc('\n', out);
    }
    fprintf(out, ".fi\n.SH DESCRIPTION\n%s\n.SH OPTIONS\n", manual->description);
    for (size_t i = 0; i < set->count; i++)
        opt_roff_option(&set->table[i], out);
    fputs(manual->more, out);
}
