/* The trainer's events (docs/reference/protocol.md): whole lines of a growing file, and what they
 * decide. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tuner/output/observe.h"
#include "tuner/tuner.h"

const char *const tn_phase_names[TN_PHASES + 1] = {
    "forward", "backward", "tp", "cp", "ep", "pp_wait", "dp", "optimizer", "other", NULL,
};

/* ---- lines --------------------------------------------------------------- */

void tn_reader_init(struct tn_reader *reader)
{
    *reader = (struct tn_reader){.fd = -1};
}

void tn_reader_done(struct tn_reader *reader)
{
    if (reader->fd >= 0)
        close(reader->fd);
    free(reader->buf);
    tn_reader_init(reader);
}

char *tn_file_piece(size_t *ret_n, const char *path, size_t max, bool last)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    char *text = NULL;
    struct stat st;
    ssize_t n = -1;

    assert(max > 0);
    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        text = mem_alloc(max + 1);
        n = pread(fd, text, max, last && st.st_size > (off_t)max ? st.st_size - (off_t)max : 0);
    }
    close(fd);
    if (n < 0) {
        free(text);
        return NULL;
    }
    text[n] = '\0';
    *ret_n = (size_t)n;
    return text;
}

/* Where the line that begins at byte FROM of the buffer ends; NULL: not yet. */
static char *end_of_line(const struct tn_reader *reader, size_t from)
{
    char *nl = memchr(reader->buf + from, '\n', reader->len - from);
    char *cr = reader->returns
                   ? memchr(reader->buf + from, '\r',
                            nl ? (size_t)(nl - (reader->buf + from)) : reader->len - from)
                   : NULL;

    return cr ? cr : nl;
}

/* Hand out the whole lines of the buffer and keep the torn rest. */
static void hand_out(struct tn_reader *reader,
                     void (*line)(void *ctx, const char *text, size_t len, int64_t end), void *ctx)
{
    size_t from = 0;
    char *nl;

    while ((nl = end_of_line(reader, from))) {
        size_t n = (size_t)(nl - (reader->buf + from));

        *nl = '\0';
        reader->offset += (int64_t)n + 1;
        if (!reader->skipping)
            line(ctx, reader->buf + from, n, reader->offset);
        reader->skipping = false;
        from += n + 1;
    }
    reader->len -= from;
    memmove(reader->buf, reader->buf + from, reader->len);
    if (reader->len > TN_MAX_LINE || reader->skipping) {
        reader->skipping = true;
        reader->offset += (int64_t)reader->len;
        reader->len = 0;
    }
}

bool tn_reader_poll(struct tn_reader *reader, const char *path, size_t budget,
                    void (*line)(void *ctx, const char *text, size_t len, int64_t end), void *ctx)
{
    assert(budget > 0 && reader->len <= reader->cap);
    if (reader->fd < 0) {
        struct stat st;
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

        if (fd < 0)
            return false;
        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
            close(fd);
            return false;
        }
        reader->fd = fd;
        if (reader->offset > 0)
            lseek(reader->fd, reader->offset, SEEK_SET);
    }
    for (size_t done = 0; done < budget;) {
        ssize_t n;

        if (reader->cap - reader->len < 32768) {
            reader->cap = reader->len + 65536;
            reader->buf = mem_realloc(reader->buf, reader->cap);
        }
        n = read(reader->fd, reader->buf + reader->len, reader->cap - reader->len);
        if (n <= 0)
            return n < 0 && errno == EINTR;
        reader->len += (size_t)n;
        done += (size_t)n;
        hand_out(reader, line, ctx);
    }
    return true;
}

/* ---- events -------------------------------------------------------------- */

void tn_seen_init(struct tn_seen *seen)
{
    *seen = (struct tn_seen){.loss_first = NAN,
                             .loss_last = NAN,
                             .joules_per_step = NAN,
                             .imbalance = NAN,
                             .tokens_least = NAN,
                             .tokens_most = NAN,
                             .tokens_per_s = NAN,
                             .tokens_per_s_se = NAN,
                             .ms_median = NAN,
                             .ms_p10 = NAN,
                             .ms_p90 = NAN,
                             .ms_ci95 = NAN,
                             .error_rank = -1};
}

void tn_seen_done(struct tn_seen *seen)
{
    json_decref(seen->planned);
    json_decref(seen->reached);
    seen->planned = seen->reached = NULL;
}

/* A number that may be absent, null or no number: NAN then. */
static double number(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);

    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static void keep_object(json_t **keep, json_t *value)
{
    if (!json_is_object(value))
        return;
    json_decref(*keep);
    *keep = json_incref(value);
}

void tn_seen_step(struct tn_seen *seen, double ms, double loss, bool warmup)
{
    assert(seen->measured <= seen->steps);
    seen->steps++;
    if (isnan(seen->loss_first))
        seen->loss_first = loss;
    seen->loss_last = loss;
    if (warmup)
        return;
    seen->recent[seen->measured % TN_RECENT] = ms;
    seen->measured++;
    seen->sum += ms;
    seen->sum2 += ms * ms;
}

static bool see_step(int64_t *ret_n, double *ret_ms, struct tn_seen *seen, const json_t *event)
{
    const json_t *phases = json_object_get(event, "phases");
    double n = number(event, "n"), ms = number(event, "ms"), loss = number(event, "loss");
    double tokens = number(event, "tokens");

    if (!(n >= 0 && n < 1e15) || !(ms >= 0))
        return false;
    *ret_n = (int64_t)n;
    *ret_ms = ms;
    tn_seen_step(seen, ms, loss, json_is_true(json_object_get(event, "warmup")));
    seen->tokens_least = fmin(seen->tokens_least, tokens); /* of a number and NAN, the number */
    seen->tokens_most = fmax(seen->tokens_most, tokens);
    if (json_is_true(json_object_get(event, "warmup")))
        return true;
    for (int i = 0; i < TN_PHASES; i++) {
        double p = number(phases, tn_phase_names[i]);

        seen->phase_ms[i] += isnan(p) ? 0 : p;
    }
    return true;
}

static void see_hello(struct tn_seen *seen, const json_t *event)
{
    seen->hello = true;
    seen->ends_itself = json_is_true(json_object_get(event, "ends_itself"));
    seen->on_cpu = str_eq(json_string_value(json_object_get(event, "device")), "cpu");
}

/* Joules of a measured step: energy cannot be 0, and without steps it is of nothing. */
static double joules_per_step(const json_t *summary)
{
    double joules = number(summary, "joules") / number(summary, "steps");

    return joules > 0 && isfinite(joules) ? joules : (double)NAN;
}

static void see_summary(struct tn_seen *seen, const json_t *event)
{
    const json_t *ms = json_object_get(event, "step_ms"),
                 *memory = json_object_get(event, "memory");
    const char *disturbed = json_string_value(json_object_get(event, "disturbed"));
    double rate = number(event, "tokens_per_s"), loss = number(event, "loss_first");

    if (!(rate > 0) || isinf(rate))
        return;
    seen->summary = true;
    seen->tokens_per_s = rate;
    seen->tokens_per_s_se = number(event, "tokens_per_s_se");
    seen->ms_median = number(ms, "median");
    seen->ms_p10 = number(ms, "p10");
    seen->ms_p90 = number(ms, "p90");
    seen->ms_ci95 = number(ms, "ci95");
    seen->joules_per_step = joules_per_step(event);
    snprintf(seen->disturbed, sizeof(seen->disturbed), "%s", disturbed ? disturbed : "");
    seen->imbalance = number(json_object_get(event, "experts"), "imbalance");
    keep_object(&seen->planned, json_object_get(memory, "planned"));
    keep_object(&seen->reached, json_object_get(memory, "measured"));
    if (!isnan(loss))
        seen->loss_first = loss;
    loss = number(event, "loss_last");
    if (!isnan(loss))
        seen->loss_last = loss;
}

static void see_error(struct tn_seen *seen, const json_t *event)
{
    const char *cls = json_string_value(json_object_get(event, "class"));
    const char *detail = json_string_value(json_object_get(event, "detail"));
    double rank = number(event, "rank");

    /* The first error is the cause; what follows is its consequence on other ranks. */
    if (seen->error || !cls)
        return;
    seen->error = true;
    seen->error_rank = rank >= 0 && rank < 1e9 ? (int)rank : -1;
    snprintf(seen->error_class, sizeof(seen->error_class), "%s", cls);
    snprintf(seen->detail, sizeof(seen->detail), "%s", detail ? detail : "");
}

static enum tn_line see_hang(struct tn_seen *seen, const json_t *event)
{
    const char *detail = json_string_value(json_object_get(event, "detail"));

    snprintf(seen->hang, sizeof(seen->hang), "%s", detail ? detail : "no progress");
    return TN_LINE_NOTHING;
}

enum tn_line tn_observe(int64_t *ret_n, double *ret_ms, struct tn_seen *seen, const char *line,
                        size_t len)
{
    AUTO_JSON *v = NULL;
    const char *event;

    if (len == 0 || line[0] != '{' || jx_parse(&v, line, len, NULL) < 0)
        return TN_LINE_NOTHING;
    event = json_string_value(json_object_get(v, "event"));
    if (!event || json_integer_value(json_object_get(v, "v")) != 1)
        return TN_LINE_NOTHING;
    if (!strcmp(event, "hang"))
        return see_hang(seen, v);
    seen->hang[0] = '\0';
    if (!strcmp(event, "step"))
        return see_step(ret_n, ret_ms, seen, v) ? TN_LINE_STEP : TN_LINE_NOTHING;
    if (!strcmp(event, "hello"))
        see_hello(seen, v);
    else if (!strcmp(event, "memory"))
        keep_object(&seen->planned, json_object_get(v, "planned"));
    else if (!strcmp(event, "summary"))
        see_summary(seen, v);
    else if (!strcmp(event, "error"))
        see_error(seen, v);
    else if (!strcmp(event, "stopped"))
        seen->stopped = true;
    return TN_LINE_OTHER;
}

static int by_value(const void *left, const void *right)
{
    double x = *(const double *)left, y = *(const double *)right;

    return (x > y) - (x < y);
}

double tn_seen_median_ms(const struct tn_seen *seen)
{
    double sorted[TN_RECENT];
    int n = seen->measured < TN_RECENT ? seen->measured : TN_RECENT;

    if (n == 0)
        return (double)NAN;
    memcpy(sorted, seen->recent, (size_t)n * sizeof(sorted[0]));
    qsort(sorted, (size_t)n, sizeof(sorted[0]), by_value);
    return n % 2 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]);
}
