/*
 * Collectives over groups that are spread over hosts, on 8 ranks that pretend to be on several.
 *
 * Sums of small whole numbers are exact in fp32 and bf16 whatever the order, so every result is
 * compared bit for bit with the closed form. Real numbers come out alike on every member.
 */
#include "base/base.h"
#include "trainer/coll.h"

/* More pieces than are under way at once, of 64 Ki elements from each of so many. */
enum { RANKS = 8, MOST = (PL_COLL_AHEAD + 2) * RANKS * (1 << 16) + 13 };

static int rank, number, failures;

static void die(const char *why)
{
    fprintf(stderr, "rank %d: %s\n", rank, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void all_ok(bool mine, const char *what)
{
    int good = mine, all;

    MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    number++;
    failures += !all;
    if (rank == 0)
        printf("%sok %d - %s\n", all ? "" : "not ", number, what);
}

/* ---- places -------------------------------------------------------------- */

struct spread {
    const char *name;
    int tp;          /* the group is that of dp = 8 / tp */
    int host[RANKS]; /* of each rank */
    int hosts, each; /* as the group should see it */
};

static const struct spread spreads[] = {
    {"one host", 1, {0, 0, 0, 0, 0, 0, 0, 0}, 1, 0},
    {"8 hosts", 1, {0, 1, 2, 3, 4, 5, 6, 7}, 1, 0},
    {"2 hosts of 4", 1, {0, 0, 0, 0, 1, 1, 1, 1}, 2, 4},
    {"4 hosts of 2", 1, {0, 0, 1, 1, 2, 2, 3, 3}, 4, 2},
    {"2 hosts in turns", 1, {5, 3, 5, 3, 5, 3, 5, 3}, 2, 4},
    {"4 hosts in disorder", 1, {2, 7, 1, 1, 7, 2, 9, 9}, 4, 2},
    {"3 and 5", 1, {0, 0, 0, 1, 1, 1, 1, 1}, 1, 0},
    {"tp 2 on 2 hosts of 4", 2, {0, 0, 0, 0, 1, 1, 1, 1}, 2, 2},
    {"tp 2, one of its groups even", 2, {0, 0, 0, 0, 1, 0, 1, 1}, 1, 0},
    {"tp 2, both even, not alike", 2, {0, 0, 0, 1, 1, 0, 1, 1}, 1, 0},
    {"tp 2 with a host each", 2, {0, 1, 0, 1, 0, 1, 0, 1}, 1, 0},
};

static void open_group(struct tr_comms *c, const struct spread *s)
{
    struct pl_layout l = {.world = RANKS,
                          .tp = s->tp,
                          .cp = 1,
                          .pp = 1,
                          .vp = 1,
                          .ep = 1,
                          .etp = s->tp,
                          .dp = RANKS / s->tp,
                          .edp = RANKS / s->tp,
                          .micro_batch = 1,
                          .threads = 1};
    uint64_t host[RANKS];

    tr_comms_init(c, MPI_COMM_WORLD, &l, NULL, die);
    for (int i = 0; i < RANKS; i++)
        host[i] = (uint64_t)s->host[i];
    tr_comms_place(c, host);
    c->copy[0].scratch = mem_alloc(pl_coll_scratch(c->copy[0].size) * sizeof(float));
}

static void close_group(struct tr_comms *c)
{
    free(c->copy[0].scratch);
    tr_comms_done(c);
}

/* ---- what is held -------------------------------------------------------- */

/* Whole numbers below 16: sums of 8 of them are exact in bf16. */
static float given(int member, uint64_t i)
{
    return (float)((i * 7 + i / 4096 + (uint64_t)member * 3) % 16);
}

/* A bf16 is the upper half of an fp32, and these numbers have nothing in the lower one. */
static void put(enum kn_type t, char *buf, uint64_t i, float x)
{
    uint32_t bits;
    kn_bf16 half;

    memcpy(&bits, &x, sizeof(bits));
    half = (kn_bf16)(bits >> 16);
    if (t == KN_F32)
        memcpy(buf + i * sizeof(x), &x, sizeof(x));
    else
        memcpy(buf + i * sizeof(half), &half, sizeof(half));
}

static float get(enum kn_type t, const char *buf, uint64_t i)
{
    uint32_t bits;
    kn_bf16 half;
    float x;

    memcpy(&half, buf + i * sizeof(half), sizeof(half));
    bits = (uint32_t)half << 16;
    memcpy(&x, t == KN_F32 ? (const void *)(buf + i * sizeof(x)) : &bits, sizeof(x));
    return x;
}

static bool summed(const struct tr_group *g, enum kn_type t, const char *buf, uint64_t from,
                   uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        float want = 0;

        for (int m = 0; m < g->size; m++)
            want += given(m, i);
        if (get(t, buf, i) != want)
            return false;
    }
    return true;
}

static bool one_size(struct tr_group *g, enum kn_type t, char *buf, uint64_t n)
{
    uint64_t lo = tr_block(n, g->size, g->rank), hi = tr_block(n, g->size, g->rank + 1);
    bool good;

    for (uint64_t i = 0; i < n; i++)
        put(t, buf, i, given(g->rank, i));
    tr_reduce_scatter(g, t, buf, n);
    good = summed(g, t, buf, lo, hi);
    for (uint64_t i = 0; i < n; i++)
        if (i < lo || i >= hi)
            put(t, buf, i, -1);
    tr_all_gather(g, t, buf, n);
    good = good && summed(g, t, buf, 0, n);
    for (uint64_t i = 0; i < n; i++)
        put(t, buf, i, given(g->rank, i));
    tr_all_reduce(g, t, buf, n);
    return good && summed(g, t, buf, 0, n);
}

/* Sums of real numbers have the same bits on every member. */
static bool alike(struct tr_group *g, float *buf, uint64_t n)
{
    uint64_t h = 0, *all = mem_alloc(sizeof(*all) * RANKS);
    bool good = true;

    for (uint64_t i = 0; i < n; i++)
        buf[i] = (float)rng_normal_at((uint64_t)g->rank + 1, i);
    tr_all_reduce(g, KN_F32, buf, n);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &buf[i], sizeof(bits));
        h = rng_mix(h ^ bits);
    }
    MPI_Allgather(&h, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, MPI_COMM_WORLD);
    for (int m = 0; m < g->size; m++)
        good = good && all[g->member[m]] == h;
    free(all);
    return good;
}

static void check(const struct spread *s)
{
    static const uint64_t size[] = {1, 5, RANKS, 4095, 4097, 100003, MOST};
    struct tr_comms c;
    struct tr_coll k;
    char name[160], *buf = mem_alloc(MOST * sizeof(float));
    bool good;

    open_group(&c, s);
    good = c.copy[0].hosts == s->hosts && c.copy[0].each == s->each;
    snprintf(name, sizeof(name), "%s: %d hosts with %d members", s->name, s->hosts, s->each);
    all_ok(good, name);
    memset(buf, 0, MOST * sizeof(float));
    tr_reduce_scatter_start(&k, &c.copy[0], KN_F32, buf, MOST);
    good = k.passes == (s->hosts > 1 ? s->hosts + 1 : 1);
    tr_coll_wait(&k);
    snprintf(name, sizeof(name), "%s: much data goes %s", s->name,
             s->hosts > 1 ? "by hosts" : "straight");
    all_ok(good, name);
    for (size_t i = 0; i < ARRAY_LEN(size); i++) {
        snprintf(name, sizeof(name), "%s: sums of %lu, fp32 and bf16", s->name,
                 (unsigned long)size[i]);
        good = one_size(&c.copy[0], KN_F32, buf, size[i]);
        all_ok(one_size(&c.copy[0], KN_BF16, buf, size[i]) && good, name);
    }
    snprintf(name, sizeof(name), "%s: real sums have the same bits everywhere", s->name);
    all_ok(alike(&c.copy[0], (float *)(void *)buf, 300007), name);
    close_group(&c);
    free(buf);
}

int main(int argc, char **argv)
{
    int size;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != RANKS)
        die("start it with 8 ranks");
    for (size_t i = 0; i < ARRAY_LEN(spreads); i++)
        check(&spreads[i]);
    if (rank == 0)
        printf("1..%d\n", number);
    MPI_Finalize();
    return failures != 0;
}
