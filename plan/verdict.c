/* What a check found: broken rules, and their text. */
#include "plan/legal.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/base.h"

void pl_breaks(struct pl_check *check, const char *key, const char *fmt, ...)
{
    struct pl_violation *v;
    va_list ap;

    check->broken = true;
    if (!check->verdict || check->verdict->count == PL_MAX_VIOLATIONS)
        return;
    v = &check->verdict->v[check->verdict->count++];
    v->rule = check->rule;
    v->key = key;
    va_start(ap, fmt);
    vsnprintf(v->text, sizeof(v->text), fmt, ap);
    va_end(ap);
}

char *pl_verdict_text(char *buf, size_t size, const struct pl_verdict *verdict)
{
    AUTO_STR s = {0};

    for (int i = 0; i < verdict->count; i++)
        str_addf(&s, "%s%s: %s", i ? "; " : "", verdict->v[i].rule, verdict->v[i].text);
    snprintf(buf, size, "%s", str_text(&s));
    return buf;
}
