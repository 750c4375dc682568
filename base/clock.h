/* Time: monotonic for intervals, wall clock for records, RFC 3339 UTC as text. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

enum { CLOCK_TEXT = 32 };

uint64_t clock_mono_ns(void);
int64_t clock_wall_ms(void); /* milliseconds since the Unix epoch */
double clock_wall_s(void);

/* "2026-03-01T09:30:00.123Z" into a caller's buffer; returns BUF. */
char *clock_format(char buf[CLOCK_TEXT], int64_t wall_ms);

#endif
