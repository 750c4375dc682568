/*
 * The host file: which hosts the local launcher may use, how many ranks fit on each, and which of
 * them a trial gets.
 *
 * A trial sees the hosts as the cluster describes its nodes: `devices_per_node` ranks on each host
 * but the last. One that fits on a single host takes the fullest that has room, so that whole hosts
 * stay free for those that span several; these get hosts that nothing else uses, since what runs
 * beside them would share their links.
 */
#include <errno.h>

#include "tuner/internal.h"

enum { MAX_FILE = 1 << 20 };

/* As in Hydra's host files: HOST or HOST:CORES. */
static int add_host(struct tn_hosts *h, char *word, const char *path, int line, struct err *e)
{
    char *colon = strrchr(word, ':');
    int64_t slots = 1;
    struct tn_host *new;

    if (colon) {
        *colon = '\0';
        if (str_to_i64(&slots, colon + 1, 1, TN_MAX_CORES) < 0)
            return err_set(e, -EINVAL, "%s:%d: after the colon is the number of cores, 1 to %d",
                           path, line, TN_MAX_CORES);
    }
    if (!*word || *word == '-' || word[strcspn(word, ",:/")])
        return err_set(e, -EINVAL, "%s:%d: \"%s\" is no name of a host", path, line, word);
    for (int i = 0; i < h->count; i++)
        if (!strcmp(h->host[i].name, word))
            return err_set(e, -EINVAL, "%s:%d: \"%s\" is there twice", path, line, word);
    if (h->slots + slots > TN_MAX_CORES)
        return err_set(e, -EINVAL, "%s:%d: more than %d cores in all", path, line, TN_MAX_CORES);
    h->host = mem_realloc(h->host, sizeof(*h->host) * (size_t)(h->count + 1));
    new = &h->host[h->count++];
    *new = (struct tn_host){mem_strdup(word), h->slots, (int)slots};
    h->slots += (int)slots;
    return 0;
}

static int add_line(struct tn_hosts *h, char *text, const char *path, int line, struct err *e)
{
    char *save = NULL, *word, *more;

    text[strcspn(text, "#\r")] = '\0';
    word = strtok_r(text, " \t", &save);
    if (!word)
        return 0;
    more = strtok_r(NULL, " \t", &save);
    if (more)
        return err_set(e, -EINVAL, "%s:%d: \"%s\": a line is HOST or HOST:CORES", path, line, more);
    return add_host(h, word, path, line, e);
}

int tn_hosts_read(struct tn_hosts **ret, const char *path, struct err *e)
{
    struct tn_hosts *h = mem_alloc(sizeof(*h));
    AUTO_FREE char *text = NULL;
    int r = file_read_all(&text, NULL, path, MAX_FILE, e), line = 0;

    for (char *p = text, *next; r == 0 && p; p = next) {
        next = strchr(p, '\n');
        if (next)
            *next++ = '\0';
        r = add_line(h, p, path, ++line, e);
    }
    if (r == 0 && h->count == 0)
        r = err_set(e, -EINVAL, "%s names no host", path);
    if (r < 0) {
        tn_hosts_free(h);
        return r;
    }
    *ret = h;
    return 0;
}

void tn_hosts_free(struct tn_hosts *h)
{
    if (!h)
        return;
    for (int i = 0; i < h->count; i++)
        free(h->host[i].name);
    free(h->host);
    free(h);
}

void tn_hosts_slots(const struct tn_hosts *h, struct tn_slots *s)
{
    memset(s, 0, sizeof(*s));
    for (s->count = 0; s->count < h->slots; s->count++)
        s->core[s->count] = s->count;
    s->free = s->count;
}

/* May a host of ROOM slots hold a share of RANKS? */
static bool suits(int room, int ranks, bool oversubscribe)
{
    return room >= ranks || oversubscribe;
}

int tn_hosts_suiting(const struct tn_hosts *h, int ranks, bool oversubscribe)
{
    int n = 0;

    for (int i = 0; i < h->count; i++)
        n += suits(h->host[i].slots, ranks, oversubscribe);
    return n;
}

static int free_on(const struct tn_host *host, const struct tn_slots *s)
{
    int n = 0;

    for (int i = 0; i < host->slots; i++)
        n += !s->taken[host->first + i];
    return n;
}

/* WANT free slots of HOST, not taken yet, at the end of CPUS. */
static int append(int *cpus, int n, const struct tn_host *host, const struct tn_slots *s, int want)
{
    for (int i = 0; i < host->slots && want > 0; i++)
        if (!s->taken[host->first + i]) {
            cpus[n++] = host->first + i;
            want--;
        }
    return n;
}

static int min(int a, int b)
{
    return a < b ? a : b;
}

/* The fullest host that still has room for all of them. */
static int list_one(int *cpus, const struct tn_hosts *h, const struct tn_slots *s,
                    const struct tn_shape *t)
{
    const struct tn_host *best = NULL;
    int best_free = 0, want = t->ranks * t->threads;

    for (int i = 0; i < h->count; i++) {
        const struct tn_host *host = &h->host[i];
        int room = free_on(host, s);

        if (suits(host->slots, t->ranks, t->oversubscribe) && room >= min(want, host->slots) &&
            (!best || room < best_free)) {
            best = host;
            best_free = room;
        }
    }
    return best ? append(cpus, 0, best, s, want) : 0;
}

/* As many idle hosts as it spans. */
static int list_many(int *cpus, const struct tn_hosts *h, const struct tn_slots *s,
                     const struct tn_shape *t)
{
    int left = t->ranks, n = 0;

    for (int i = 0; i < h->count && left > 0; i++) {
        const struct tn_host *host = &h->host[i];
        int here = min(left, t->per_host);

        if (!suits(host->slots, t->per_host, t->oversubscribe) || free_on(host, s) < host->slots)
            continue;
        n = append(cpus, n, host, s, here * t->threads);
        left -= here;
    }
    return left > 0 ? 0 : n;
}

int tn_hosts_take(const struct tn_hosts *h, struct tn_slots *s, int *cpus, const struct tn_shape *t)
{
    int n = t->ranks <= t->per_host ? list_one(cpus, h, s, t) : list_many(cpus, h, s, t);

    tn_slots_take_list(s, cpus, n);
    return n;
}

static const struct tn_host *host_of(const struct tn_hosts *h, int slot)
{
    for (int i = 0; i < h->count; i++)
        if (slot >= h->host[i].first && slot < h->host[i].first + h->host[i].slots)
            return &h->host[i];
    return NULL;
}

void tn_hosts_text(struct str *ret, const struct tn_hosts *h, const int *cpus, int n,
                   const struct tn_shape *t)
{
    const struct tn_host *last = NULL;
    int left = t->ranks;

    for (int i = 0; i < n; i++) {
        const struct tn_host *host = host_of(h, cpus[i]);
        int here = min(left, t->per_host);

        if (host == last || !host)
            continue;
        str_addf(ret, "%s%s:%d", last ? "," : "", host->name, here);
        left -= here;
        last = host;
    }
}
