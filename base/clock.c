#include "base/base.h"

uint64_t clock_mono_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double clock_wall_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int64_t clock_wall_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

char *clock_format(char buf[CLOCK_TEXT], int64_t wall_ms)
{
    time_t s = (time_t)(wall_ms / 1000);
    struct tm tm;
    size_t n;

    gmtime_r(&s, &tm);
    n = strftime(buf, CLOCK_TEXT, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(buf + n, CLOCK_TEXT - n, ".%03dZ", (int)(wall_ms % 1000));
    return buf;
}
