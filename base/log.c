#include "base/base.h"

#include <errno.h>
#include <stdarg.h>
#include <unistd.h>

static const char *const names[] = {"error", "warn", "info", "debug"};

static const char *component = "partune";
static enum log_level highest = LOG_INFO;

void log_setup(const char *name, enum log_level level)
{
    component = name;
    highest = level;
}

int log_level_parse(enum log_level *ret, const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (str_eq(name, names[i])) {
            *ret = (enum log_level)i;
            return 0;
        }
    }
    return -EINVAL;
}

void log_at(enum log_level level, const char *fmt, ...)
{
    char line[2048], when[CLOCK_TEXT];
    va_list ap;
    int saved = errno, head, n;

    if (level > highest)
        return;
    clock_format(when, clock_wall_ms());
    head = snprintf(line, sizeof(line), "%s %s %s ", names[level], when, component);
    errno = saved;
    va_start(ap, fmt);
    n = vsnprintf(line + head, sizeof(line) - (size_t)head, fmt, ap);
    va_end(ap);
    n = head + (n > 0 ? n : 0);
    if ((size_t)n > sizeof(line) - 2)
        n = (int)sizeof(line) - 2;
    for (int i = head; i < n; i++)
        if ((unsigned char)line[i] < ' ')
            line[i] = ' '; /* outside text must not forge a line */
    line[n++] = '\n';
    if (write(STDERR_FILENO, line, (size_t)n) < 0)
        errno = saved; /* nowhere left to say it */
    errno = saved;
}
