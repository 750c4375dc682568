#include "trainer/start.h"

#include "base/base.h"
#include "trainer/events.h"

#include <errno.h>
#include <mpi.h>
#include <unistd.h>

/* There is no group of ranks yet, and so no tr_wait(); this leaves the core to ranks that come
 * later. */
static void finish(MPI_Request *req)
{
    int done = 0;

    while (MPI_Test(req, &done, MPI_STATUS_IGNORE), !done)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static void broadcast(void *bytes, size_t size, int from)
{
    MPI_Request req;

    MPI_Ibcast(bytes, (int)size, MPI_BYTE, from, MPI_COMM_WORLD, &req);
    finish(&req);
}

void tr_start_gather(const void *mine, size_t size, void *all)
{
    MPI_Request req;

    MPI_Iallgather(mine, (int)size, MPI_BYTE, all, (int)size, MPI_BYTE, MPI_COMM_WORLD, &req);
    finish(&req);
}

void tr_start_broadcast(void *bytes, size_t size)
{
    broadcast(bytes, size, 0);
}

static void name_rank(int rank, struct err *error)
{
    char host[128] = "";

    (void)gethostname(host, sizeof(host) - 1);
    err_wrap(error, "rank %d on host %s", rank, host);
}

int tr_start_together(int code, struct err *error)
{
    struct {
        int ready, rank;
    } mine = {code == 0, 0}, first;
    struct {
        int code;
        char text[sizeof(error->text)];
    } said = {.code = code};
    MPI_Request req;

    MPI_Comm_rank(MPI_COMM_WORLD, &mine.rank);
    MPI_Iallreduce(&mine, &first, 1, MPI_2INT, MPI_MINLOC, MPI_COMM_WORLD, &req);
    finish(&req);
    if (first.ready)
        return 0;
    if (first.rank == mine.rank) {
        if (mine.rank != 0)
            name_rank(mine.rank, error);
        memcpy(said.text, error->text, sizeof(said.text));
    }
    broadcast(&said, sizeof(said), first.rank);
    if (first.rank != mine.rank)
        err_set(error, -ECANCELED, "%s", said.text);
    return said.code;
}

/* Of each of these only whether it is given: it may be elsewhere on each host. */
static const struct {
    const char *section, *key;
} places[] = {
    {"checkpoint", "dir"}, {"checkpoint", "load"}, {"run", "init"},
    {"run", "save_hf"},    {"run", "timeline"},
};

/* What must be alike: what is trained and how, and whether there are steps that all ranks take. */
static json_t *alike(const struct tr_config *config)
{
    static const char *const sections[] = {"model", "workload", "layout",
                                           "trial", "train",    "checkpoint"};
    AUTO_JSON *all = tr_config_json(config);
    json_t *o = json_object();

    for (size_t i = 0; i < ARRAY_LEN(sections); i++)
        if (json_object_get(all, sections[i]))
            json_object_set(o, sections[i], json_object_get(all, sections[i]));
    if (!json_object_get(o, "checkpoint"))
        json_object_set_new(o, "checkpoint", json_object());
    json_object_set_new(o, "run", json_object());
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        json_t *v = json_object_get(json_object_get(all, places[i].section), places[i].key);

        json_object_set_new(json_object_get(o, places[i].section), places[i].key,
                            json_boolean(json_is_string(v)));
    }
    return o;
}

/* The first key in which OURS differs from rank 0's, as -EINVAL. */
static int compare(const json_t *theirs, json_t *ours, struct err *error)
{
    json_t *section, *v;
    const char *name, *key;

    json_object_foreach(ours, name, section) {
        const json_t *other = json_object_get(theirs, name);

        json_object_foreach(section, key, v) {
            const json_t *w = json_object_get(other, key);
            AUTO_FREE char *a = jx_canonical(v), *b = w ? jx_canonical(w) : mem_strdup("absent");

            if (!str_eq(a, b))
                return err_set(
                    error, -EINVAL,
                    "the configuration differs from rank 0's: /%s/%s is %.80s, not %.80s", name,
                    key, a, b);
        }
        if (json_object_size(other) != json_object_size(section))
            return err_set(error, -EINVAL,
                           "the configuration differs from rank 0's: a key of /%s is missing",
                           name);
    }
    return json_object_size(theirs) == json_object_size(ours)
               ? 0
               : err_set(error, -EINVAL,
                         "the configuration differs from rank 0's: a section is missing");
}

int tr_start_same(const struct tr_config *config, struct err *error)
{
    AUTO_JSON *ours = alike(config), *theirs = NULL;
    AUTO_FREE char *text = jx_canonical(ours), *first = NULL;
    size_t n = strlen(text);
    int r;

    broadcast(&n, sizeof(n), 0);
    first = mem_alloc(n + 1);
    memcpy(first, text, strlen(text) < n ? strlen(text) : n);
    broadcast(first, n, 0);
    r = jx_parse(&theirs, first, n, error);
    if (r == 0)
        r = compare(theirs, ours, error);
    return tr_start_together(r < 0 ? TR_EXIT_USAGE : 0, error);
}
