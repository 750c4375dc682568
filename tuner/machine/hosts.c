/*
 * The host file: which hosts the local launcher may use, how many ranks fit on each, and which of
 * them a trial gets.
 *
 * A trial sees the hosts as the cluster describes its nodes: `devices_per_node` ranks on each host
 * but the last. One that fits on a single host takes the fullest that has room, so that whole hosts
 * stay free for those that span several; these get hosts that nothing else uses, since what runs
 * next to them would share their links.
 */
#include <assert.h>
#include <errno.h>

#include "tuner/machine/hosts.h"
#include "tuner/machine/slots.h"

enum { MAX_FILE = 1 << 20 };

/* As in Hydra's host files: HOST or HOST:CORES. */
static int add_host(struct tn_hosts *hosts, char *word, const char *path, int line,
                    struct err *error)
{
    char *colon = strrchr(word, ':');
    int64_t slots = 1;
    struct tn_host *new;

    if (colon) {
        *colon = '\0';
        if (str_to_i64(&slots, colon + 1, 1, TN_MAX_CORES) < 0)
            return err_set(error, -EINVAL,
                           "%s:%d: the number of cores after the colon must be 1 to %d", path, line,
                           TN_MAX_CORES);
    }
    if (!*word || *word == '-' || word[strcspn(word, ",:/")])
        return err_set(error, -EINVAL, "%s:%d: \"%s\" is not a valid host name", path, line, word);
    for (int i = 0; i < hosts->count; i++)
        if (!strcmp(hosts->host[i].name, word))
            return err_set(error, -EINVAL, "%s:%d: \"%s\" is listed twice", path, line, word);
    if (hosts->slots + slots > TN_MAX_CORES)
        return err_set(error, -EINVAL, "%s:%d: more than %d cores in all", path, line,
                       TN_MAX_CORES);
    hosts->host = mem_realloc(hosts->host, sizeof(*hosts->host) * (size_t)(hosts->count + 1));
    new = &hosts->host[hosts->count++];
    *new = (struct tn_host){mem_strdup(word), hosts->slots, (int)slots};
    hosts->slots += (int)slots;
    assert(hosts->slots <= TN_MAX_CORES);
    return 0;
}

static int add_line(struct tn_hosts *hosts, char *text, const char *path, int line,
                    struct err *error)
{
    char *save = NULL, *word, *more;

    text[strcspn(text, "#\r")] = '\0';
    word = strtok_r(text, " \t", &save);
    if (!word)
        return 0;
    more = strtok_r(NULL, " \t", &save);
    if (more)
        return err_set(error, -EINVAL, "%s:%d: \"%s\" must be HOST or HOST:CORES", path, line,
                       more);
    return add_host(hosts, word, path, line, error);
}

int tn_hosts_read(struct tn_hosts **ret, const char *path, struct err *error)
{
    struct tn_hosts *h = mem_alloc(sizeof(*h));
    AUTO_FREE char *text = NULL;
    int r = file_read_all(&text, NULL, path, MAX_FILE, error), line = 0;

    for (char *p = text, *next; r == 0 && p; p = next) {
        next = strchr(p, '\n');
        if (next)
            *next++ = '\0';
        r = add_line(h, p, path, ++line, error);
    }
    if (r == 0 && h->count == 0)
        r = err_set(error, -EINVAL, "%s names no host", path);
    if (r < 0) {
        tn_hosts_free(h);
        return r;
    }
    *ret = h;
    return 0;
}

void tn_hosts_free(struct tn_hosts *hosts)
{
    if (!hosts)
        return;
    for (int i = 0; i < hosts->count; i++)
        free(hosts->host[i].name);
    free(hosts->host);
    free(hosts);
}

void tn_hosts_slots(struct tn_slots *ret, const struct tn_hosts *hosts)
{
    assert(hosts->slots <= TN_MAX_CORES);
    memset(ret, 0, sizeof(*ret));
    for (ret->count = 0; ret->count < hosts->slots; ret->count++)
        ret->core[ret->count] = ret->count;
    ret->free = ret->count;
}

/* May a host of ROOM slots hold a share of RANKS? */
static bool suits(int room, int ranks, bool oversubscribe)
{
    return room >= ranks || oversubscribe;
}

int tn_hosts_suiting(const struct tn_hosts *hosts, int ranks, bool oversubscribe)
{
    int n = 0;

    for (int i = 0; i < hosts->count; i++)
        n += suits(hosts->host[i].slots, ranks, oversubscribe);
    return n;
}

static int free_on(const struct tn_host *host, const struct tn_slots *slots)
{
    int n = 0;

    assert(host->first >= 0 && host->first + host->slots <= slots->count);
    for (int i = 0; i < host->slots; i++)
        n += !slots->taken[host->first + i];
    return n;
}

/* WANT free slots of HOST, not taken yet, at the end of CPUS. */
static int append(int *cpus, int count, const struct tn_host *host, const struct tn_slots *slots,
                  int want)
{
    for (int i = 0; i < host->slots && want > 0; i++)
        if (!slots->taken[host->first + i]) {
            cpus[count++] = host->first + i;
            want--;
        }
    assert(count <= TN_MAX_CORES);
    return count;
}

static int min(int left, int right)
{
    return left < right ? left : right;
}

/* The fullest host that still has room for all of them. */
static int list_one(int *cpus, const struct tn_hosts *hosts, const struct tn_slots *slots,
                    const struct tn_shape *shape)
{
    const struct tn_host *best = NULL;
    int best_free = 0, want = shape->ranks * shape->threads;

    for (int i = 0; i < hosts->count; i++) {
        const struct tn_host *host = &hosts->host[i];
        int room = free_on(host, slots);

        if (suits(host->slots, shape->ranks, shape->oversubscribe) &&
            room >= min(want, host->slots) && (!best || room < best_free)) {
            best = host;
            best_free = room;
        }
    }
    return best ? append(cpus, 0, best, slots, want) : 0;
}

/* As many idle hosts as it spans. */
static int list_many(int *cpus, const struct tn_hosts *hosts, const struct tn_slots *slots,
                     const struct tn_shape *shape)
{
    int left = shape->ranks, n = 0;

    for (int i = 0; i < hosts->count && left > 0; i++) {
        const struct tn_host *host = &hosts->host[i];
        int here = min(left, shape->per_host);

        if (!suits(host->slots, shape->per_host, shape->oversubscribe) ||
            free_on(host, slots) < host->slots)
            continue;
        n = append(cpus, n, host, slots, here * shape->threads);
        left -= here;
    }
    return left > 0 ? 0 : n;
}

int tn_hosts_take(int *ret_cpus, const struct tn_hosts *hosts, struct tn_slots *slots,
                  const struct tn_shape *shape)
{
    int n = shape->ranks <= shape->per_host ? list_one(ret_cpus, hosts, slots, shape)
                                            : list_many(ret_cpus, hosts, slots, shape);

    assert(n >= 0 && n <= slots->free);
    tn_slots_take_list(slots, ret_cpus, n);
    return n;
}

static const struct tn_host *host_of(const struct tn_hosts *hosts, int slot)
{
    for (int i = 0; i < hosts->count; i++)
        if (slot >= hosts->host[i].first && slot < hosts->host[i].first + hosts->host[i].slots)
            return &hosts->host[i];
    return NULL;
}

void tn_hosts_text(struct str *ret, const struct tn_hosts *hosts, const int *cpus, int count,
                   const struct tn_shape *shape)
{
    const struct tn_host *last = NULL;
    int left = shape->ranks;

    for (int i = 0; i < count; i++) {
        const struct tn_host *host = host_of(hosts, cpus[i]);
        int here = min(left, shape->per_host);

        if (host == last || !host)
            continue;
        str_addf(ret, "%s%s:%d", last ? "," : "", host->name, here);
        left -= here;
        last = host;
    }
}
