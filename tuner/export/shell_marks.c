/*
 * Words as others see them, the marks of what is not known gone.
 */
#include "tuner/export/shell.h"

struct tn_word tn_sh_unmarked(const char *text)
{
    struct tn_word w = {.text = mem_alloc(strlen(text) + 1)};
    char *to = w.text;

    for (const char *p = text; *p; p++) {
        if (*p == MARK) {
            const char *end = strchr(p, ENDMARK);

            if (end && (!w.why || w.why == TN_WORD_MAYBE)) {
                w.why = (enum tn_word_why)p[1];
                free(w.unknown);
                w.unknown = tn_sh_copy(p + 2, (size_t)(end - p - 2));
            }
            p++;
        } else if (*p != ENDMARK) {
            *to++ = *p;
        }
    }
    *to = '\0';
    return w;
}

void tn_sh_word_done(struct tn_word *word)
{
    free(word->text);
    free(word->unknown);
}

/* SOURCE of LENGTH letters within a JSON string. */
static void add_plain(struct str *out, const char *source, size_t length)
{
    for (size_t i = 0; i < length; i++)
        str_addc(out, strchr("\"\\\n\t\r", source[i]) ? ' ' : source[i]);
}

char *tn_sh_json(const char *text)
{
    AUTO_STR out = {0};
    bool string = false;

    for (const char *end; *text; text++) {
        if (*text != MARK || (end = strchr(text, ENDMARK)) == NULL) {
            string ^= *text == '"';
            str_addc(&out, *text);
            continue;
        }
        if (!string)
            str_addc(&out, '"');
        add_plain(&out, text + 2, (size_t)(end - text) - 2);
        if (!string)
            str_addc(&out, '"');
        text = end;
    }
    return str_take(&out);
}
