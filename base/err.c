#include "base/base.h"

#include <errno.h>
#include <stdarg.h>

int err_set(struct err *error, int code, const char *fmt, ...)
{
    va_list ap;

    if (!error)
        return code;
    error->code = code;
    error->pointer[0] = '\0';
    va_start(ap, fmt);
    vsnprintf(error->text, sizeof(error->text), fmt, ap);
    va_end(ap);
    return code;
}

int err_at(struct err *error, int code, const char *pointer, const char *fmt, ...)
{
    va_list ap;

    if (!error)
        return code;
    error->code = code;
    snprintf(error->pointer, sizeof(error->pointer), "%s", pointer);
    va_start(ap, fmt);
    vsnprintf(error->text, sizeof(error->text), fmt, ap);
    va_end(ap);
    return code;
}

int err_wrap(struct err *error, const char *fmt, ...)
{
    char cause[sizeof(error->text)];
    char prefix[sizeof(error->text)];
    va_list ap;

    if (!error)
        return -EINVAL;
    va_start(ap, fmt);
    vsnprintf(prefix, sizeof(prefix), fmt, ap);
    va_end(ap);
    snprintf(cause, sizeof(cause), "%s", error->text);
    if ((size_t)snprintf(error->text, sizeof(error->text), "%s: %s", prefix, cause) >=
        sizeof(error->text))
        error->text[sizeof(error->text) - 1] = '\0';
    return error->code;
}

int err_under(struct err *error, const char *prefix)
{
    char tail[sizeof(error->pointer)];

    if (!error)
        return -EINVAL;
    snprintf(tail, sizeof(tail), "%s", error->pointer);
    if ((size_t)snprintf(error->pointer, sizeof(error->pointer), "%s%s", prefix, tail) >=
        sizeof(error->pointer))
        error->pointer[sizeof(error->pointer) - 1] = '\0';
    return error->code;
}
