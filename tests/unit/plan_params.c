/*
 * The parameter table, for many layouts: the slices of all ranks tile every tensor, buckets tile
 * the flat numbers, the optimizer's shards tile the buckets, each element as often as the
 * replication says, and what is held tiles the buffers.
 */
#include "plan/plan.h"
#include "tests/unit/unit.h"

enum { EACH = 10080 }; /* a multiple of every number of copies there is */

static const char dense[] = "{'name':'d','layers':4,'hidden':16,'heads':4,'kv_heads':4,'ffn':24,"
                            "'vocab':37,'seq':8}";
static const char experts[] = "{'name':'m','layers':4,'hidden':16,'heads':4,'kv_heads':4,'ffn':24,"
                              "'vocab':37,'seq':8,'moe':{'experts':4,'top_k':2,'expert_ffn':12,"
                              "'shared_ffn':8,'every':2}}";

static const char tied[] = "{'name':'t','layers':4,'hidden':16,'heads':4,'kv_heads':4,'ffn':24,"
                           "'vocab':37,'seq':8,'tied':true}";

static const char latents[] =
    "{'name':'l','layers':4,'hidden':16,'heads':4,'ffn':24,'vocab':37,'seq':8,'qkv_bias':true,"
    "'mla':{'q_lora_rank':6,'kv_lora_rank':5,'qk_nope_head_dim':3,'qk_rope_head_dim':4,"
    "'v_head_dim':2},'moe':{'experts':4,'top_k':2,'expert_ffn':12,'shared_ffn':8,'every':2}}";

static const char further[] =
    "{'name':'f','layers':4,'hidden':16,'heads':4,'kv_heads':4,'ffn':24,'vocab':37,'seq':8,'mtp':2,"
    "'moe':{'experts':4,'top_k':2,'expert_ffn':12,'shared_ffn':8,'every':2}}";

static const char biased[] =
    "{'name':'b','layers':4,'hidden':18,'heads':4,'kv_heads':4,'head_dim':4,'ffn':24,'vocab':37,"
    "'seq':8,'mlp':'swiglu-clamped','mlp_bias':true,'qkv_bias':true,'attn_sinks':true,'moe':{"
    "'experts':4,'top_k':2,'expert_ffn':12,'every':2,'router_bias':true}}";

static const char normed[] =
    "{'name':'n','layers':4,'hidden':16,'heads':4,'kv_heads':4,'ffn':24,'vocab':37,'seq':8,"
    "'qk_norm':'full','attn_sinks':true}";

/* Divisions of the four layers with ends that hold none. */
static const char *const lists[] = {"0,4", "4,0", "1,3", "0,3,1,0", "2,1,1,0"};

/* FN of the layout of these degrees, if it is legal, with even stages and with each list. */
static bool one_layout(const struct pl_problem *problem, struct pl_layout l,
                       void (*fn)(const struct pl_model *, const struct pl_layout *))
{
    l.world = l.tp * l.cp * l.pp * l.dp;
    l.sp = l.tp > 1;
    if (!pl_layout_derive(&l) || !pl_layout_check(NULL, problem, &l))
        return false;
    fn(problem->model, &l);
    for (size_t i = 0; i < ARRAY_LEN(lists) && l.pp > 1; i++) {
        assert_int_equal(pl_stages_read(&l.stages, lists[i], NULL), 0);
        if (pl_layout_check(NULL, problem, &l))
            fn(problem->model, &l);
    }
    return true;
}

/* Every level of zero, in SCOPE, over all replicas and over pairs of them; returns how many are
 * legal. */
static int each_zero(const struct pl_problem *problem, struct pl_layout l, int scope,
                     void (*fn)(const struct pl_model *, const struct pl_layout *))
{
    int seen = 0;

    l.zero_scope = scope;
    for (l.zero = scope ? 1 : 0; l.zero <= (scope ? 3 : 0); l.zero++)
        for (l.shard = 0; l.shard <= (scope == PL_SCOPE_EP_AWARE ? 2 : 0); l.shard += 2) {
            l.overlap_param_gather = l.zero && l.shard == 0;
            l.overlap_grad_reduce = l.zero && l.shard == 0;
            seen += one_layout(problem, l, fn);
        }
    return seen;
}

static void each_layout(const char *text,
                        void (*fn)(const struct pl_model *, const struct pl_layout *))
{
    json_t *v = unit_json(text);
    struct pl_workload w = {.global_batch = 16, .seq = 8, .data = "synthetic"};
    struct pl_cluster c;
    struct pl_model m;
    struct pl_problem problem = {&m, &c, &w, pl_trainer_find("partune")};
    struct err e;
    struct pl_layout l;
    int seen = 0;

    pl_layout_default(&l, &w);
    assert_int_equal(pl_model_parse(&m, v, &e), 0);
    json_decref(v);
    pl_cluster_here(&c);
    c.oversubscribe = true;
    for (l.tp = 1; l.tp <= 4; l.tp *= 2)
        for (l.cp = 1; l.cp <= 2; l.cp *= 2)
            for (l.pp = 1; l.pp <= 4; l.pp *= 2)
                for (int dp = 1; dp <= 4; dp *= 2)
                    for (l.ep = 1; l.ep <= 4; l.ep *= 2)
                        for (int etp = 0; etp <= 1; etp++)
                            for (int scope = 0; scope <= PL_SCOPE_PLAIN; scope++) {
                                l.dp = dp;
                                l.etp = etp ? l.tp : 1;
                                seen += each_zero(&problem, l, scope, fn);
                            }
    assert_true(seen > 20);
}

/* How many ranks hold one element of P in layout L. */
static int copies(const struct pl_model *m, const struct pl_layout *l, const struct pl_param *p)
{
    bool twice = pl_embeds_twice(m, l) && p->tensor == PL_T_EMBED;

    if (p->expert >= 0)
        return l->edp;
    return (p->split < 0 ? l->tp : 1) * l->dp * l->cp * (twice ? 2 : 1);
}

static void check_tiling(const struct pl_model *m, const struct pl_layout *l)
{
    uint64_t held = 0, whole = 0;

    for (int rank = 0; rank < l->world; rank++) {
        struct pl_params t;

        pl_params_build(&t, m, l, rank);
        for (int i = 0; i < t.n; i++) {
            const struct pl_param *p = &t.p[i];
            uint64_t real = 0;
            int64_t last = -1;

            for (uint64_t k = 0; k < p->count; k++) {
                int64_t g = pl_param_global(p, k);

                if (g < 0)
                    continue;
                assert_true(g > last); /* ascending, so no element comes twice */
                assert_true((uint64_t)g < p->shape[0] * p->shape[1]);
                last = g;
                real++;
            }
            held += real * EACH / (uint64_t)copies(m, l, p);
            assert_true(p->offset + p->count <= t.count);
        }
        pl_params_done(&t);
    }
    whole = pl_model_params(m) * EACH;
    assert_int_equal(held, whole);
}

static void slices_of_all_ranks_tile_every_tensor(void **state)
{
    (void)state;
    each_layout(dense, check_tiling);
    each_layout(experts, check_tiling);
    each_layout(latents, check_tiling);
    each_layout(tied, check_tiling);
    each_layout(further, check_tiling);
    each_layout(biased, check_tiling);
}

static void check_buckets(const struct pl_model *m, const struct pl_layout *l)
{
    for (int rank = 0; rank < l->world; rank++) {
        struct pl_params t;
        uint64_t at = 0, state = 0;

        pl_params_build(&t, m, l, rank);
        for (int i = 0; i < t.nbuckets; i++) {
            const struct pl_bucket *b = &t.bucket[i];

            assert_true(b->count > 0 && b->layer >= -1);
            assert_true(b->layer <
                        pl_chunk_layers(&(int){0}, l, m, pl_axis_coord(l, PL_PP, rank), b->chunk));
            assert_int_equal(b->first, at);
            assert_int_equal(b->state_first, state);
            assert_int_equal(b->count % ((uint64_t)b->shards * 16), 0);
            assert_int_equal(b->shard_count * (uint64_t)b->shards, b->count);
            assert_int_equal(b->shard_first, b->first + (uint64_t)b->shard * b->shard_count);
            at += b->count;
            state += b->shard_count;
        }
        assert_int_equal(at, t.count);
        assert_int_equal(state, t.state_count);
        for (int i = 0; i < t.n; i++) {
            const struct pl_bucket *b = &t.bucket[t.p[i].bucket];

            assert_true(t.p[i].offset >= b->first);
            assert_true(t.p[i].offset + t.p[i].count <= b->first + b->count);
            assert_int_equal(b->kind == PL_BUCKET_EXPERT, t.p[i].expert >= 0);
        }
        pl_params_done(&t);
    }
}

static void buckets_tile_the_flat_buffers_and_shards_the_buckets(void **state)
{
    (void)state;
    each_layout(dense, check_buckets);
    each_layout(experts, check_buckets);
    each_layout(latents, check_buckets);
    each_layout(tied, check_buckets);
    each_layout(further, check_buckets);
    each_layout(biased, check_buckets);
}

/* The table of RANK's embedding, or NULL. */
static const struct pl_param *embedding(const struct pl_params *t)
{
    for (int i = 0; i < t->n; i++)
        if (t->p[i].tensor == PL_T_EMBED)
            return &t->p[i];
    return NULL;
}

/* Where the output or modules of multi-token prediction share the embedding, the first stage and
 * the last hold the same slice, in a bucket of the same size and shard; with the output, nobody has
 * a projection. */
static void check_tied(const struct pl_model *m, const struct pl_layout *l)
{
    for (int rank = 0; rank < l->world; rank++) {
        struct pl_params mine, first;
        const struct pl_param *p, *q;
        int stage = pl_axis_coord(l, PL_PP, rank);

        pl_params_build(&mine, m, l, rank);
        pl_params_build(&first, m, l, pl_axis_peer(l, PL_PP, rank, 0));
        for (int i = 0; i < mine.n; i++)
            assert_true(mine.p[i].tensor != PL_T_HEAD || !m->tied);
        p = embedding(&mine);
        q = embedding(&first);
        assert_int_equal(p != NULL, stage == 0 || stage == l->pp - 1);
        if (p) {
            const struct pl_bucket *a = &mine.bucket[p->bucket], *b = &first.bucket[q->bucket];

            assert_string_equal(p->name, q->name);
            assert_int_equal(a->kind, l->pp > 1 ? PL_BUCKET_TIED : PL_BUCKET_DENSE);
            assert_true(p->first == q->first && p->count == q->count && a->count == b->count &&
                        a->shards == b->shards && a->shard == b->shard);
            assert_true(a->first == p->offset);
        }
        pl_params_done(&mine);
        pl_params_done(&first);
    }
}

static void a_tied_embedding_is_alike_on_the_stages_that_hold_it(void **state)
{
    (void)state;
    each_layout(tied, check_tied);
    each_layout(further, check_tied);
}

/* AT to AT + COUNT of a buffer are used by nothing else. */
static void take(unsigned char *used, uint64_t size, uint64_t at, uint64_t count)
{
    assert_true(at + count <= size);
    for (uint64_t i = at; i < at + count; i++)
        assert_int_equal(used[i]++, 0);
}

static void check_store(const struct pl_params *t, const struct pl_store *store, bool weights,
                        bool windows)
{
    AUTO_FREE unsigned char *used = mem_alloc(store->count + 1);

    for (int kind = 0; kind < 2; kind++)
        take(used, store->count, store->window_at[kind],
             (uint64_t)store->windows[kind] * store->window_count[kind]);
    for (int i = 0; i < t->nbuckets; i++) {
        const struct pl_bucket *b = &t->bucket[i];
        const struct pl_place *p = weights ? &b->weight : &b->grad;
        int kind = b->kind == PL_BUCKET_EXPERT;

        assert_int_equal(p->window >= 0, windows && b->layers && b->shards > 1);
        if (p->window < 0) {
            take(used, store->count, p->at, b->count);
            assert_int_equal(p->shard_at - p->at, b->shard_first - b->first);
            continue;
        }
        take(used, store->count, p->shard_at, b->shard_count);
        assert_true(p->window < store->windows[kind] && b->count <= store->window_count[kind]);
        assert_int_equal(p->at,
                         store->window_at[kind] + (uint64_t)p->window * store->window_count[kind]);
    }
    for (uint64_t i = 0; i < store->count; i++)
        assert_int_equal(used[i], 1);
}

/* What zero 2 and 3 keep whole, as shards and as windows tiles the buffers; neighbors have
 * different windows where there are two. */
static void check_places(const struct pl_model *m, const struct pl_layout *l)
{
    for (int rank = 0; rank < l->world; rank++) {
        const struct pl_bucket *last = NULL;
        struct pl_params t;

        pl_params_build(&t, m, l, rank);
        check_store(&t, &t.weight, true, l->zero == 3);
        check_store(&t, &t.grad, false, l->zero >= 2);
        for (int i = 0; i < t.nbuckets; i++) {
            const struct pl_bucket *b = &t.bucket[i];

            if (b->grad.window < 0 || b->kind == PL_BUCKET_EXPERT)
                continue;
            if (last && l->overlap_grad_reduce)
                assert_true(b->grad.window != last->grad.window);
            last = b;
        }
        pl_params_done(&t);
    }
}

static void places_tile_the_buffers(void **state)
{
    (void)state;
    each_layout(dense, check_places);
    each_layout(experts, check_places);
    each_layout(latents, check_places);
    each_layout(tied, check_places);
    each_layout(further, check_places);
    each_layout(biased, check_places);
}

/* Ranks that share a dense bucket's state: with the ep-aware scope all dp x cp ranks, with the
 * plain one those of the same expert coordinate; together their shards are the bucket, as often as
 * there are copies. */
static void check_scope(const struct pl_model *m, const struct pl_layout *l)
{
    int seen[64] = {0}, shards = 0;
    unsigned copies = 0;

    if (l->zero == 0)
        return;
    for (int rank = 0; rank < l->world; rank++) {
        struct pl_params t;

        if (pl_axis_coord(l, PL_TP, rank) || pl_axis_coord(l, PL_PP, rank))
            continue;
        if (l->zero_scope == PL_SCOPE_PLAIN &&
            pl_axis_coord(l, PL_EP, rank) != pl_axis_coord(l, PL_EP, 0))
            continue;
        pl_params_build(&t, m, l, rank);
        shards = t.bucket[0].shards;
        seen[t.bucket[0].shard]++;
        copies |= 1u << t.bucket[0].copy;
        pl_params_done(&t);
    }
    for (int i = 0; i < shards; i++)
        assert_int_equal(seen[i], pl_shard_copies(l));
    if (l->zero_scope == PL_SCOPE_EP_AWARE)
        assert_int_equal(copies, (1u << pl_shard_copies(l)) - 1);
}

static void each_scope_shares_state_among_its_ranks(void **state)
{
    (void)state;
    each_layout(dense, check_scope);
    each_layout(experts, check_scope);
    each_layout(latents, check_scope);
}

/* A split backward pass makes these in its first half, which may be a step of another micro-batch
 * than the one whose gradients are in the window. */
static void check_early(const struct pl_model *m, const struct pl_layout *l)
{
    struct pl_params t;

    for (int rank = 0; rank < l->world; rank++) {
        pl_params_build(&t, m, l, rank);
        for (int i = 0; i < t.n; i++) {
            enum pl_tensor tensor = t.p[i].tensor;

            if (tensor == PL_T_SINKS || tensor == PL_T_Q_NORM || tensor == PL_T_K_NORM)
                assert_int_equal(t.bucket[t.p[i].bucket].grad.window, -1);
        }
        pl_params_done(&t);
    }
}

static void sinks_and_norms_of_heads_have_no_window(void **state)
{
    (void)state;
    each_layout(biased, check_early);
    each_layout(normed, check_early);
}

static void check_count(const struct pl_model *m, const struct pl_layout *l)
{
    for (int rank = 0; rank < l->world; rank++) {
        struct pl_param_sizes sizes;
        struct pl_params t;

        pl_params_build(&t, m, l, rank);
        pl_params_count(&sizes, m, l, pl_axis_coord(l, PL_PP, rank));
        assert_int_equal(sizes.weight, t.weight.count);
        assert_int_equal(sizes.grad, t.grad.count);
        assert_int_equal(sizes.state, t.state_count);
        pl_params_done(&t);
    }
}

static void a_count_without_the_table_is_the_table_s(void **state)
{
    (void)state;
    each_layout(dense, check_count);
    each_layout(experts, check_count);
    each_layout(latents, check_count);
    each_layout(tied, check_count);
    each_layout(further, check_count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_of_all_ranks_tile_every_tensor),
        cmocka_unit_test(buckets_tile_the_flat_buffers_and_shards_the_buckets),
        cmocka_unit_test(a_tied_embedding_is_alike_on_the_stages_that_hold_it),
        cmocka_unit_test(places_tile_the_buffers),
        cmocka_unit_test(each_scope_shares_state_among_its_ranks),
        cmocka_unit_test(sinks_and_norms_of_heads_have_no_window),
        cmocka_unit_test(a_count_without_the_table_is_the_table_s),
    };

    return cmocka_run_group_tests_name("parameter table", tests, NULL, NULL);
}
