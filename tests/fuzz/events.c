/* The event file of a trial: whole lines in order, whatever a trainer writes into it. */
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tuner/output/observe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct run {
    struct tn_seen seen;
    int64_t end;
};

static void line(void *ctx, const char *text, size_t n, int64_t end)
{
    struct run *r = ctx;
    int64_t step = 0;
    double ms = 0;

    if (end <= r->end || n > TN_MAX_LINE + 65536)
        abort();
    r->end = end;
    tn_observe(&step, &ms, &r->seen, text, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct run r = {.end = 0};
    struct tn_reader reader;
    char path[64];
    int fd = memfd_create("events", MFD_CLOEXEC);

    if (fd < 0 || file_write_fd(fd, data, size) < 0)
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    tn_seen_init(&r.seen);
    tn_reader_init(&reader);
    while (tn_reader_poll(&reader, path, 1 << 16, line, &r))
        ;
    if (r.seen.summary && !(r.seen.tokens_per_s > 0 && isfinite(r.seen.tokens_per_s)))
        abort();
    tn_seen_median_ms(&r.seen);
    tn_seen_done(&r.seen);
    tn_reader_done(&reader);
    close(fd);
    return 0;
}
