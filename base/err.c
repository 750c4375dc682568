#include "base/base.h"

#include <errno.h>
#include <stdarg.h>

int err_set(struct err *e, int code, const char *fmt, ...)
{
    va_list ap;

    if (!e)
        return code;
    e->code = code;
    e->pointer[0] = '\0';
    va_start(ap, fmt);
    vsnprintf(e->text, sizeof(e->text), fmt, ap);
    va_end(ap);
    return code;
}

int err_at(struct err *e, int code, const char *pointer, const char *fmt, ...)
{
    va_list ap;

    if (!e)
        return code;
    e->code = code;
    snprintf(e->pointer, sizeof(e->pointer), "%s", pointer);
    va_start(ap, fmt);
    vsnprintf(e->text, sizeof(e->text), fmt, ap);
    va_end(ap);
    return code;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
    char cause[sizeof(e->text)];
    char prefix[sizeof(e->text)];
    va_list ap;

    if (!e)
        return -EINVAL;
    va_start(ap, fmt);
    vsnprintf(prefix, sizeof(prefix), fmt, ap);
    va_end(ap);
    snprintf(cause, sizeof(cause), "%s", e->text);
    if ((size_t)snprintf(e->text, sizeof(e->text), "%s: %s", prefix, cause) >= sizeof(e->text))
        e->text[sizeof(e->text) - 1] = '\0';
    return e->code;
}

int err_under(struct err *e, const char *prefix)
{
    char tail[sizeof(e->pointer)];

    if (!e)
        return -EINVAL;
    snprintf(tail, sizeof(tail), "%s", e->pointer);
    if ((size_t)snprintf(e->pointer, sizeof(e->pointer), "%s%s", prefix, tail) >=
        sizeof(e->pointer))
        e->pointer[sizeof(e->pointer) - 1] = '\0';
    return e->code;
}
