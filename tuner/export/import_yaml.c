/*
 * MODEL_ARGS of a YAML file, as Megatron-LM's own tests keep their arguments:
 *
 *     MODEL_ARGS:
 *       --tensor-model-parallel-size: 2
 *       --bf16: true
 *       --moe-layer-freq: ([0]*1+[1]*3)
 *
 * `true` is a flag without a value, a list in brackets several values; the rest is the value.
 */
#include "tuner/export/internal.h"

#include <ctype.h>
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

/* LEN letters of a value without blanks around it, a comment behind it and quotes. */
static char *scalar(const char *from, size_t len)
{
    AUTO_FREE char *text = mem_printf("%.*s", (int)len, from);
    char *at = text + strspn(text, " \t"), *end;
    char quote = *at == '"' || *at == '\'' ? *at : 0;

    end = quote ? strchr(at + 1, quote) : NULL;
    if (end)
        return mem_printf("%.*s", (int)(end - at - 1), at + 1);
    end = strstr(at, " #");
    len = end ? (size_t)(end - at) : strlen(at);
    while (len && isspace((unsigned char)at[len - 1]))
        len--;
    return mem_printf("%.*s", (int)len, at);
}

static void add_argument(struct str *out, const char *flag, size_t size, const char *value)
{
    size_t len = strlen(value);

    str_addf(out, "%.*s", (int)size, flag);
    if (*value == '[' && len > 1 && value[len - 1] == ']') {
        str_addf(out, " %.*s", (int)(len - 2), value + 1);
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

/* One line below MODEL_ARGS. */
static int argument(struct str *out, const char *line, size_t len, struct err *error)
{
    const char *colon;

    if (str_starts(line, "<<"))
        return err_set(error, -EINVAL,
                       "MODEL_ARGS takes over another list (`<<:`): write its arguments out");
    colon = memchr(line, ':', len);
    if (!str_starts(line, "--") || !colon)
        return err_set(error, -EINVAL, "MODEL_ARGS: expected `--argument: value`, found `%.*s`",
                       len < 64 ? (int)len : 64, line);
    AUTO_FREE char *value = scalar(colon + 1, (size_t)(line + len - colon - 1));

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
    for (; *line && r == 0; line = next_line(line)) {
        size_t n = strcspn(line, "\r\n"), blanks = strspn(line, " ");

        if (blanks >= n || line[blanks] == '#')
            continue;
        if (!blanks) /* the next key of the file */
            break;
        r = argument(&out, line + blanks, n - blanks, error);
    }
    if (r == 0)
        *ret = mem_strdup(str_text(&out));
    return r;
}
