/*
 * MODEL_ARGS of a YAML file, as Megatron-LM's own tests keep their arguments:
 *
 *     MODEL_ARGS:
 *       --tensor-model-parallel-size: 2
 *       --bf16: true
 *       --moe-layer-freq: ([0]*1+[1]*3)
 *
 * `true` is a flag without a value, a list several values; the rest is the value, which may begin
 * on the next line.
 */
#include "tuner/export/internal.h"

#include <errno.h>

static const char *next_line(const char *line)
{
    line += strcspn(line, "\n");
    return *line ? line + 1 : line;
}

/* The line behind "MODEL_ARGS:"; NULL where there is none. */
static const char *section(const char *text)
{
    static const char name[] = "MODEL_ARGS:";

    for (const char *line = text; *line; line = next_line(line))
        if (str_starts(line, name) &&
            strchr("\r\n#", line[sizeof(name) - 1 + strspn(line + sizeof(name) - 1, " ")]))
            return next_line(line);
    return NULL;
}

static void add_argument(struct str *out, const char *flag, size_t size, const char *value)
{
    size_t len = strlen(value);

    str_addf(out, "%.*s", (int)size, flag);
    if (*value == '[' && len > 1 && value[len - 1] == ']') {
        str_addc(out, ' ');
        for (size_t i = 1; i + 1 < len; i++)
            str_addc(out, value[i] == ',' ? ' ' : value[i]);
    } else if (strcmp(value, "true") != 0 && *value) {
        str_add(out, " \"");
        for (; *value; value++) {
            if (strchr("\"\\`", *value))
                str_addc(out, '\\');
            str_addc(out, *value);
        }
        str_addc(out, '"');
    }
    str_addc(out, '\n');
}

/* What the lines from *AT on hold that are deeper than DEPTH: a value, or the items of a list, in
 * brackets. *AT is left at the line behind them. */
static char *below(const char **at, size_t depth)
{
    AUTO_STR text = {0};
    bool list = false;

    for (; **at; *at = next_line(*at)) {
        const char *line = *at;
        size_t n = strcspn(line, "\r\n"), blanks = strspn(line, " ");
        bool item = str_starts(line + blanks, "- ");

        if (blanks >= n || line[blanks] == '#')
            continue;
        if (blanks < depth || (blanks == depth && !item))
            break;
        blanks += item ? 2 : 0;
        AUTO_FREE char *value = tn_yaml_scalar(line + blanks, n - blanks);

        str_addf(&text, "%s%s", text.len ? " " : "", value);
        list |= item;
    }
    return list ? mem_printf("[%s]", str_text(&text)) : mem_strdup(str_text(&text));
}

/* One line below MODEL_ARGS, DEPTH blanks before it; NEXT is the line behind it, or behind its
 * value. */
static int argument(struct str *out, const char *line, size_t len, const char **next, size_t depth,
                    struct err *error)
{
    const char *colon;

    if (str_starts(line, "<<"))
        return err_set(error, -EINVAL,
                       "MODEL_ARGS merges another list (`<<:`): write its arguments out");
    colon = memchr(line, ':', len);
    if (!str_starts(line, "--") || !colon)
        return err_set(error, -EINVAL, "MODEL_ARGS: expected `--argument: value`, found `%.*s`",
                       len < 64 ? (int)len : 64, line);
    AUTO_FREE char *value = tn_yaml_scalar(colon + 1, (size_t)(line + len - colon - 1));

    if (!*value) {
        free(value);
        value = below(next, depth);
    }
    add_argument(out, line, (size_t)(colon - line), value);
    return 0;
}

int tn_yaml_arguments(char **ret, const char *text, struct err *error)
{
    const char *line = section(text);
    AUTO_STR out = {0};
    int r = 0;

    *ret = NULL;
    if (!line)
        return 0;
    for (const char *next; *line && r == 0; line = next) {
        size_t n = strcspn(line, "\r\n"), blanks = strspn(line, " ");

        next = next_line(line);
        if (blanks >= n || line[blanks] == '#')
            continue;
        if (!blanks) /* the next key of the file */
            break;
        r = argument(&out, line + blanks, n - blanks, &next, blanks, error);
    }
    if (r == 0)
        *ret = mem_strdup(str_text(&out));
    return r;
}
