#include <sys/random.h>

#include "tuner/results/trace.h"

/* Where the fields of a traceparent begin, and how long it is in version 00. */
enum { TRACE_AT = 3, SPAN_AT = 36, FLAGS_AT = 53, LENGTH = 55 };

/* COUNT lower-case hexadecimal digits at TEXT, which are not all 0 unless ZERO is allowed. */
static bool digits(const char *text, size_t count, bool zero)
{
    return strspn(text, "0123456789abcdef") >= count && (zero || strspn(text, "0") < count);
}

/* https://www.w3.org/TR/trace-context/#traceparent-header: a later version may have more fields. */
static bool valid(const char *header)
{
    if (strlen(header) < LENGTH || !digits(header, 2, true) || str_starts(header, "ff"))
        return false;
    return header[TRACE_AT - 1] == '-' && digits(header + TRACE_AT, 32, false) &&
           header[SPAN_AT - 1] == '-' && digits(header + SPAN_AT, 16, false) &&
           header[FLAGS_AT - 1] == '-' && digits(header + FLAGS_AT, 2, true) &&
           (header[LENGTH] == '\0' || (header[LENGTH] == '-' && !str_starts(header, "00")));
}

void tn_trace_new(char ret[TN_TRACEPARENT_TEXT], const char *header)
{
    uint64_t word[3];

    if (header && valid(header)) {
        snprintf(ret, TN_TRACEPARENT_TEXT, "00%.53s", header + 2);
        return;
    }
    if (getrandom(word, sizeof(word), 0) != (ssize_t)sizeof(word))
        abort();
    /* An id of zeros is invalid. */
    snprintf(ret, TN_TRACEPARENT_TEXT, "00-%016llx%016llx-%016llx-01", (unsigned long long)word[0],
             (unsigned long long)(word[1] | 1), (unsigned long long)(word[2] | 1));
}

const char *tn_trace_id(char ret[TN_TRACE_TEXT], const char *traceparent)
{
    snprintf(ret, TN_TRACE_TEXT, "%.32s", traceparent + TRACE_AT);
    return ret;
}

const char *tn_trace_span(char ret[TN_SPAN_TEXT], const char *traceparent, int64_t n,
                          int64_t attempt)
{
    char text[TN_TRACEPARENT_TEXT + 48];
    int size =
        snprintf(text, sizeof(text), "%s/%lld/%lld", traceparent, (long long)n, (long long)attempt);

    snprintf(ret, TN_SPAN_TEXT, "%016llx",
             (unsigned long long)(str_hash(text, (size_t)size, 0) | 1));
    return ret;
}

const char *tn_trace_child(char ret[TN_TRACEPARENT_TEXT], const char *traceparent, int64_t n,
                           int64_t attempt)
{
    char span[TN_SPAN_TEXT];

    snprintf(ret, TN_TRACEPARENT_TEXT, "%.36s%s%.3s", traceparent,
             tn_trace_span(span, traceparent, n, attempt), traceparent + FLAGS_AT - 1);
    return ret;
}
