/* /v1/campaigns/{id}/trials: trials, their steps and their files. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tuner/api/api.h"

enum { LOG_LIMIT = 64 << 10, LOG_MAX = 1 << 20, TIMELINE_MAX = 64 << 20 };

/* The trial's number; false where it is none: that was answered. */
static bool number(int64_t *ret, struct web_request *rq)
{
    struct err e;

    if (web_param_i64(ret, rq, "n", 1, INT64_MAX, &e) == 0)
        return true;
    web_reply_error(rq, &e);
    return false;
}

void tn_api_trial_list(struct web_request *rq)
{
    static const char *const sorts[] = {"n",    "tokens_per_s", "state", "memory",
                                        "kind", "seconds",      NULL};
    const char *states[DB_STATES + 1];
    struct db_filter f;
    struct err e;
    AUTO_STR items = {0};
    const char *next;
    int64_t total;

    db_trial_state_names(states);
    if (!tn_api_filter(&f, rq, sorts, states))
        return;
    if (tn_trial_list(&items, &next, &total, tn_api_svc(rq), web_param(rq, "id"), web_arena(rq), &f,
                      &e) < 0)
        web_reply_error(rq, &e);
    else
        web_reply_rows(rq, items.text, total, next);
}

void tn_api_trial_show(struct web_request *rq)
{
    struct err e;
    json_t *v = NULL;
    int64_t n;
    int r;

    if (!number(&n, rq))
        return;
    r = tn_trial_get(&v, tn_api_svc(rq), web_param(rq, "id"), n, &e);
    tn_api_answer(rq, r, 200, v, &e);
}

void tn_api_trial_steps(struct web_request *rq)
{
    struct web_page page;
    struct err e;
    json_t *items;
    int64_t n, total;

    if (!number(&n, rq))
        return;
    if (web_page_get(&page, rq, &e) < 0)
        tn_api_bad_query(rq, &e);
    else if (tn_step_list(&items, &total, tn_api_svc(rq), web_param(rq, "id"), n, page.offset,
                          page.size, &e) < 0)
        web_reply_error(rq, &e);
    else
        web_reply_list(rq, &page, items, total);
}

/* Bytes [OFFSET, OFFSET + LIMIT) of PATH into *RET. A trial may have written there: no link is
 * followed, and nobody is waited for. */
static int read_part(char **ret, size_t *ret_n, int64_t *ret_size, const char *path, int64_t offset,
                     int64_t limit, struct err *error)
{
    struct stat st;
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0)
        return errno == ENOENT
                   ? err_set(error, -ENOENT, "it was never written, or has been deleted")
                   : err_set(error, -EIO, "%s: %m", path);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return err_set(error, -EIO, "%s: not a file", path);
    }
    if (limit > st.st_size - offset)
        limit = st.st_size > offset ? st.st_size - offset : 0;
    *ret = mem_alloc((size_t)limit + 1);
    n = pread(fd, *ret, (size_t)limit, offset);
    close(fd);
    if (n < 0) {
        free(*ret);
        return err_set(error, -EIO, "%s: %m", path);
    }
    *ret_n = (size_t)n;
    *ret_size = st.st_size;
    return 0;
}

void tn_api_trial_log(struct web_request *rq)
{
    static const char *const streams[] = {"stdout", "stderr", "events", NULL};
    AUTO_FREE char *path = NULL, *text = NULL;
    int64_t n, offset = 0, limit = LOG_LIMIT, size = 0;
    size_t got = 0;
    struct err e;
    int stream = TN_LOG_STDOUT;

    if (!number(&n, rq))
        return;
    if (web_query_enum(&stream, rq, "stream", streams, &e) < 0 ||
        web_query_i64(&offset, rq, "offset", 0, INT64_MAX / 2, &e) < 0 ||
        web_query_i64(&limit, rq, "limit", 1, LOG_MAX, &e) < 0) {
        tn_api_bad_query(rq, &e);
        return;
    }
    if (tn_trial_file(&path, tn_api_svc(rq), web_param(rq, "id"), n, (enum tn_log)stream, &e) < 0 ||
        read_part(&text, &got, &size, path, offset, limit, &e) < 0) {
        web_reply_error(rq, &e);
        return;
    }
    web_reply_header(rq, "X-Log-Size", arena_printf(web_arena(rq), "%lld", (long long)size));
    web_reply_bytes(rq, 200, "text/plain; charset=utf-8", text, got);
}

void tn_api_trial_timeline(struct web_request *rq)
{
    AUTO_FREE char *path = NULL, *text = NULL;
    struct err e;
    int64_t n;
    int64_t whole;
    size_t size;
    int r;

    if (!number(&n, rq))
        return;
    r = tn_trial_file(&path, tn_api_svc(rq), web_param(rq, "id"), n, TN_LOG_TIMELINE, &e);
    if (r == 0 && !file_exists(path))
        r = err_set(&e, -ENOENT, "trial %lld has no timeline", (long long)n);
    if (r == 0)
        r = read_part(&text, &size, &whole, path, 0, TIMELINE_MAX, &e);
    if (r < 0)
        web_reply_error(rq, &e);
    else
        web_reply_json_text(rq, 200, text, size);
}

/* ---- why: computed on another thread ------------------------------------- */

struct why {
    struct tn_service *svc;
    const char *id;
    int64_t n, against;
    json_t *answer;
    struct err e;
    int r;
};

static void compare(struct web_request *rq, void *arg)
{
    struct why *why = arg;

    (void)rq;
    why->r = tn_why(&why->answer, why->svc, why->id, why->n, why->against, &why->e);
}

static void compared(struct web_request *rq, void *arg)
{
    struct why *why = arg;

    tn_api_answer(rq, why->r, 200, why->answer, &why->e);
}

void tn_api_trial_why(struct web_request *rq)
{
    struct why *why = arena_alloc(web_arena(rq), sizeof(*why));
    const char *against = web_query(rq, "against");
    struct err e;

    *why = (struct why){.svc = tn_api_svc(rq), .id = web_param(rq, "id")};
    if (!number(&why->n, rq))
        return;
    if (against && strcmp(against, "baseline") != 0 &&
        str_to_i64(&why->against, against, 1, INT64_MAX) < 0) {
        err_set(&e, -EINVAL, "against must be `baseline` or the number of a trial, not \"%.40s\"",
                against);
        tn_api_bad_query(rq, &e);
        return;
    }
    why->r = tn_api_unwanted(&why->e);
    web_offload(rq, compare, compared, why);
}
