/* The trainer's events (docs/reference/protocol.md): whole lines of a growing file, and what they decide. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tuner/internal.h"

const char *const tn_phase_names[TN_PHASES + 1] = {
    "forward", "backward", "tp", "ep", "pp_wait", "dp", "optimizer", "other", NULL,
};

/* ---- lines ---- */

void tn_reader_init(struct tn_reader *r)
{
    *r = (struct tn_reader){.fd = -1};
}

void tn_reader_done(struct tn_reader *r)
{
    if (r->fd >= 0)
        close(r->fd);
    free(r->buf);
    tn_reader_init(r);
}

char *tn_file_piece(size_t *ret_n, const char *path, size_t max, bool last)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    char *text = NULL;
    struct stat st;
    ssize_t n = -1;

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
static char *end_of_line(const struct tn_reader *r, size_t from)
{
    char *nl = memchr(r->buf + from, '\n', r->len - from);
    char *cr = r->returns ? memchr(r->buf + from, '\r',
                                   nl ? (size_t)(nl - (r->buf + from)) : r->len - from)
                          : NULL;

    return cr ? cr : nl;
}

/* Hand out the whole lines of the buffer and keep the torn rest. */
static void hand_out(struct tn_reader *r,
                     void (*line)(void *ctx, const char *text, size_t n, int64_t end), void *ctx)
{
    size_t from = 0;
    char *nl;

    while ((nl = end_of_line(r, from))) {
        size_t n = (size_t)(nl - (r->buf + from));

        *nl = '\0';
        r->offset += (int64_t)n + 1;
        if (!r->skipping)
            line(ctx, r->buf + from, n, r->offset);
        r->skipping = false;
        from += n + 1;
    }
    r->len -= from;
    memmove(r->buf, r->buf + from, r->len);
    if (r->len > TN_MAX_LINE || r->skipping) {
        r->skipping = true;
        r->offset += (int64_t)r->len;
        r->len = 0;
    }
}

bool tn_reader_poll(struct tn_reader *r, const char *path, size_t budget,
                    void (*line)(void *ctx, const char *text, size_t n, int64_t end), void *ctx)
{
    if (r->fd < 0) {
        struct stat st;
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

        if (fd < 0)
            return false;
        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
            close(fd);
            return false;
        }
        r->fd = fd;
        if (r->offset > 0)
            lseek(r->fd, r->offset, SEEK_SET);
    }
    for (size_t done = 0; done < budget;) {
        ssize_t n;

        if (r->cap - r->len < 32768) {
            r->cap = r->len + 65536;
            r->buf = mem_realloc(r->buf, r->cap);
        }
        n = read(r->fd, r->buf + r->len, r->cap - r->len);
        if (n <= 0)
            return n < 0 && errno == EINTR;
        r->len += (size_t)n;
        done += (size_t)n;
        hand_out(r, line, ctx);
    }
    return true;
}

/* ---- events ---- */

void tn_seen_init(struct tn_seen *s)
{
    *s = (struct tn_seen){.loss_first = NAN,
                          .loss_last = NAN,
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

void tn_seen_done(struct tn_seen *s)
{
    json_decref(s->planned);
    json_decref(s->reached);
    s->planned = s->reached = NULL;
}

/* A number that may be absent, null or no number: NAN then. */
static double number(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);

    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static void keep_object(json_t **keep, json_t *v)
{
    if (!json_is_object(v))
        return;
    json_decref(*keep);
    *keep = json_incref(v);
}

void tn_seen_step(struct tn_seen *s, double ms, double loss, bool warmup)
{
    s->steps++;
    if (isnan(s->loss_first))
        s->loss_first = loss;
    s->loss_last = loss;
    if (warmup)
        return;
    s->recent[s->measured % TN_RECENT] = ms;
    s->measured++;
    s->sum += ms;
    s->sum2 += ms * ms;
}

static bool see_step(struct tn_seen *s, const json_t *v, int64_t *ret_n, double *ret_ms)
{
    const json_t *phases = json_object_get(v, "phases");
    double n = number(v, "n"), ms = number(v, "ms"), loss = number(v, "loss");
    double tokens = number(v, "tokens");

    if (!(n >= 0 && n < 1e15) || !(ms >= 0))
        return false;
    *ret_n = (int64_t)n;
    *ret_ms = ms;
    tn_seen_step(s, ms, loss, json_is_true(json_object_get(v, "warmup")));
    s->tokens_least = fmin(s->tokens_least, tokens); /* of a number and NAN, the number */
    s->tokens_most = fmax(s->tokens_most, tokens);
    if (json_is_true(json_object_get(v, "warmup")))
        return true;
    for (int i = 0; i < TN_PHASES; i++) {
        double p = number(phases, tn_phase_names[i]);

        s->phase_ms[i] += isnan(p) ? 0 : p;
    }
    return true;
}

static void see_summary(struct tn_seen *s, const json_t *v)
{
    const json_t *ms = json_object_get(v, "step_ms"), *memory = json_object_get(v, "memory");
    double rate = number(v, "tokens_per_s"), loss = number(v, "loss_first");

    if (!(rate > 0) || isinf(rate))
        return;
    s->summary = true;
    s->tokens_per_s = rate;
    s->tokens_per_s_se = number(v, "tokens_per_s_se");
    s->ms_median = number(ms, "median");
    s->ms_p10 = number(ms, "p10");
    s->ms_p90 = number(ms, "p90");
    s->ms_ci95 = number(ms, "ci95");
    keep_object(&s->planned, json_object_get(memory, "planned"));
    keep_object(&s->reached, json_object_get(memory, "measured"));
    if (!isnan(loss))
        s->loss_first = loss;
    loss = number(v, "loss_last");
    if (!isnan(loss))
        s->loss_last = loss;
}

static void see_error(struct tn_seen *s, const json_t *v)
{
    const char *cls = json_string_value(json_object_get(v, "class"));
    const char *detail = json_string_value(json_object_get(v, "detail"));
    double rank = number(v, "rank");

    /* The first error is the cause; what follows is its consequence on other ranks. */
    if (s->error || !cls)
        return;
    s->error = true;
    s->error_rank = rank >= 0 && rank < 1e9 ? (int)rank : -1;
    snprintf(s->error_class, sizeof(s->error_class), "%s", cls);
    snprintf(s->detail, sizeof(s->detail), "%s", detail ? detail : "");
}

enum tn_line tn_observe(struct tn_seen *s, const char *line, size_t n, int64_t *ret_n,
                        double *ret_ms)
{
    AUTO_JSON *v = NULL;
    const char *event;

    if (n == 0 || line[0] != '{' || jx_parse(&v, line, n, NULL) < 0)
        return TN_LINE_NOTHING;
    event = json_string_value(json_object_get(v, "event"));
    if (!event || json_integer_value(json_object_get(v, "v")) != 1)
        return TN_LINE_NOTHING;
    if (!strcmp(event, "step"))
        return see_step(s, v, ret_n, ret_ms) ? TN_LINE_STEP : TN_LINE_NOTHING;
    if (!strcmp(event, "hello"))
        s->hello = true;
    else if (!strcmp(event, "memory"))
        keep_object(&s->planned, json_object_get(v, "planned"));
    else if (!strcmp(event, "summary"))
        see_summary(s, v);
    else if (!strcmp(event, "error"))
        see_error(s, v);
    else if (!strcmp(event, "stopped"))
        s->stopped = true;
    return TN_LINE_OTHER;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double tn_seen_median_ms(const struct tn_seen *s)
{
    double sorted[TN_RECENT];
    int n = s->measured < TN_RECENT ? s->measured : TN_RECENT;

    if (n == 0)
        return (double)NAN;
    memcpy(sorted, s->recent, (size_t)n * sizeof(sorted[0]));
    qsort(sorted, (size_t)n, sizeof(sorted[0]), by_value);
    return n % 2 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]);
}
