/*
 * Exporters: 200 legal layouts of each of six models through every target. What comes out obeys the
 * target's rules, as this file reads them from the text itself; what cannot be said is refused by
 * name; what can be said comes back by import. Golden files in tests/data/export hold a dozen
 * exports to the letter (PT_UPDATE=1 rewrites them).
 */
#include "tests/unit/problem.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <math.h>

#include "tests/unit/import_text.h"
#include "tuner/export/export.h"

enum { SAMPLE = 200 };

struct world {
    struct pl_model m;
    struct pl_cluster c;
    struct pl_workload w;
    struct pl_layout layout[SAMPLE];
    size_t n;
};

static const struct {
    const char *model, *cluster;
    int nodes, global_batch;
} cases[] = {
    {"gpt-22B", "dgx-a100", 8, 256},        {"llama-8b", "dgx-h100", 4, 128},
    {"llama-70b", "dgx-h100", 16, 512},     {"mixtral-8x7b", "dgx-h100", 8, 256},
    {"mula-20b-a2b", "aurora-pvc", 4, 384}, {"deepseek-v3-like", "dgx-h100", 32, 1024},
};

/* Keep every k-th layout so that about 200 stay, spread over the space. */
struct sample {
    struct world *w;
    size_t seen, every;
};

static bool count_one(void *arg, const struct pl_layout *l)
{
    struct sample *s = arg;

    (void)l;
    return ++s->seen < 2000000;
}

static bool keep_some(void *arg, const struct pl_layout *l)
{
    struct sample *s = arg;

    if (s->seen++ % s->every == 0 && s->w->n < SAMPLE)
        s->w->layout[s->w->n++] = *l;
    return s->w->n < SAMPLE;
}

/* Without layouts. */
static void open_case(struct world *w, size_t i)
{
    AUTO_JSON *model = json_string(cases[i].model);
    AUTO_JSON *cluster =
        json_pack("{s:s, s:i}", "profile", cases[i].cluster, "nodes", cases[i].nodes);
    AUTO_JSON *workload = json_pack("{s:i}", "global_batch", cases[i].global_batch);
    struct err e = {0};

    *w = (struct world){0};
    if (pl_model_parse(&w->m, model, &e) < 0 || pl_cluster_parse(&w->c, cluster, NULL, &e) < 0 ||
        pl_workload_parse(&w->w, workload, &w->m, pl_trainer_find("any"), &e) < 0)
        fail_msg("%s: %s %s", cases[i].model, e.pointer, e.text);
}

/* With 200 layouts of its space; they are looked for once. */
static const struct world *sampled_world(size_t i)
{
    static struct world worlds[ARRAY_LEN(cases)];
    struct world *w = &worlds[i];
    AUTO_JSON *space = unit_json("{'zero': [0,1,2,3], 'precision': ['fp32','bf16','fp8']}");
    struct pl_space space_of;
    struct pl_problem p = *problem_with(w, pl_trainer_find("any"));
    struct sample s = {.w = w};
    struct err e = {0};

    if (w->n)
        return w;
    open_case(w, i);
    if (pl_space_parse(&space_of, space, &p, &e) < 0)
        fail_msg("%s: %s %s", cases[i].model, e.pointer, e.text);
    pl_space_enumerate(&space_of, &p, count_one, &s);
    s.every = s.seen / SAMPLE | 1;
    s.seen = 0;
    pl_space_enumerate(&space_of, &p, keep_some, &s);
    assert_int_equal(w->n, SAMPLE);
    return w;
}

static struct tn_export_in input(const struct world *w, const struct pl_layout *l)
{
    return (struct tn_export_in){
        .model = &w->m,
        .cluster = &w->c,
        .layout = l,
        .workload = &w->w,
        .campaign = "k3v9qw2m",
        .campaign_name = "night run",
        .trial = 7,
        .tokens_per_s = 41000,
        .lo = 40700,
        .hi = 41300,
        .verdict = "holds",
        .ratio = 1.25,
        .ratio_lo = 1.22,
        .ratio_hi = 1.28,
        .data = "/data/books",
        .date = "2026-03-01T09:30:00.000Z",
    };
}

/* ---- the targets' rules, read from the text ------------------------------ */

/* Value of "--flag N" in Megatron arguments; FALLBACK when the flag is absent. */
static int argument(const char *text, const char *flag, int fallback)
{
    AUTO_FREE char *line = mem_printf("\n%s ", flag);
    const char *p = strstr(text, line);

    return p ? (int)strtol(p + strlen(line), NULL, 10) : fallback;
}

static bool has(const char *text, const char *flag)
{
    AUTO_FREE char *line = mem_printf("\n%s\n", flag);

    return strstr(text, line) != NULL;
}

static void megatron_is_legal(const char *t, const struct tn_export_in *in)
{
    int tp = argument(t, "--tensor-model-parallel-size", 1),
        pp = argument(t, "--pipeline-model-parallel-size", 1);
    int cp = argument(t, "--context-parallel-size", 1),
        ep = argument(t, "--expert-model-parallel-size", 1);
    int etp = argument(t, "--expert-tensor-parallel-size", tp),
        mb = argument(t, "--micro-batch-size", 0);
    int gb = argument(t, "--global-batch-size", 0), layers = argument(t, "--num-layers", 0);
    int per = argument(t, "--num-layers-per-virtual-pipeline-stage", 0);
    int world = in->layout->world, dp = world / (tp * pp * cp);
    bool whole = strstr(t, "\n--pipeline-model-parallel-layout ") != NULL;

    assert_int_equal(world % (tp * pp * cp), 0);
    assert_int_equal(world % (etp * ep * pp), 0);
    assert_int_equal(gb % (mb * dp), 0);
    assert_int_equal(argument(t, "--num-attention-heads", 0) % tp, 0);
    assert_true(whole || layers % pp == 0);
    assert_false(whole && per);
    if (per) {
        assert_int_equal((layers / pp) % per, 0);
        assert_int_equal((gb / (mb * dp)) % pp, 0);
        assert_true(pp > 1);
    }
    if (argument(t, "--num-experts", 0)) {
        assert_int_equal(argument(t, "--num-experts", 0) % ep, 0);
        assert_non_null(strstr(t, "\n--expert-tensor-parallel-size "));
        assert_true(tp == 1 || ep == 1 || has(t, "--sequence-parallel"));
    }
    assert_false(tp == 1 && has(t, "--sequence-parallel"));
    assert_false(has(t, "--overlap-param-gather") && !has(t, "--overlap-grad-reduce"));
    assert_false(strstr(t, "--recompute-granularity selective") && strstr(t, "--recompute-method"));
    assert_false(strstr(t, "--recompute-granularity full") && !strstr(t, "--recompute-num-layers"));
}

static void deepspeed_is_legal(const char *text, const struct tn_export_in *in)
{
    AUTO_JSON *v = NULL;
    struct err e;
    json_int_t batch, micro, accumulation, tp;

    assert_int_equal(jx_parse(&v, text, strlen(text), &e), 0);
    batch = json_integer_value(json_object_get(v, "train_batch_size"));
    micro = json_integer_value(json_object_get(v, "train_micro_batch_size_per_gpu"));
    accumulation = json_integer_value(json_object_get(v, "gradient_accumulation_steps"));
    tp = json_integer_value(json_object_get(json_object_get(v, "tensor_parallel"), "autotp_size"));
    tp = tp ? tp : 1;
    assert_int_equal(in->workload->global_batch,
                     micro * accumulation * (in->layout->world / (tp * in->layout->pp)));
    /* DeepSpeed multiplies by all ranks, those of tensor parallelism among them, and stops where
     * that is not what the file says: it says nothing there. */
    assert_int_equal(batch, tp > 1 ? 0 : in->workload->global_batch);
    assert_non_null(json_object_get(v, "_partune"));
}

static int toml_int(const char *text, const char *key)
{
    AUTO_FREE char *line = mem_printf("\n%s = ", key);
    const char *p = strstr(text, line);

    if (!p)
        fail_msg("no %s in:\n%s", key, text);
    return (int)strtol(p + strlen(line), NULL, 10);
}

static void torchtitan_is_legal(const char *t, const struct tn_export_in *in)
{
    int replicate = toml_int(t, "data_parallel_replicate_degree"),
        shard = toml_int(t, "data_parallel_shard_degree");
    int tp = toml_int(t, "tensor_parallel_degree"), cp = toml_int(t, "context_parallel_degree");
    int pp = toml_int(t, "pipeline_parallel_degree"), ep = toml_int(t, "expert_parallel_degree");

    assert_int_equal(replicate * shard * tp * cp * pp, in->layout->world);
    assert_int_equal((shard * cp * tp) % (ep * toml_int(t, "expert_tensor_parallel_degree")), 0);
    assert_int_equal(toml_int(t, "seq_len") % (2 * tp * cp), 0);
    assert_int_equal(toml_int(t, "global_batch_size") %
                         (toml_int(t, "local_batch_size") * replicate * shard),
                     0);
    if (pp > 1)
        assert_int_equal(
            toml_int(t, "local_batch_size") % toml_int(t, "pipeline_parallel_microbatch_size"), 0);
}

static void smp_is_legal(const char *text, const struct tn_export_in *in)
{
    AUTO_JSON *v = NULL;
    struct err e;
    json_int_t tp, ep, cp, shard;

    assert_int_equal(jx_parse(&v, text, strlen(text), &e), 0);
    tp = json_integer_value(json_object_get(v, "tensor_parallel_degree"));
    ep = json_integer_value(json_object_get(v, "expert_parallel_degree"));
    cp = json_integer_value(json_object_get(v, "context_parallel_degree"));
    shard = json_integer_value(json_object_get(v, "hybrid_shard_degree"));
    assert_false(tp > 1 && ep > 1);
    assert_int_equal(in->layout->world % ((shard ? shard : 1) * tp * ep), 0);
    assert_true(cp == 1 || cp <= shard);
}

static void check_text(const struct tn_exporter *x, const char *text, const struct tn_export_in *in)
{
    if (!strcmp(x->name, "megatron"))
        megatron_is_legal(text, in);
    else if (!strcmp(x->name, "deepspeed"))
        deepspeed_is_legal(text, in);
    else if (!strcmp(x->name, "torchtitan-toml"))
        torchtitan_is_legal(text, in);
    else if (!strcmp(x->name, "smp"))
        smp_is_legal(text, in);
    assert_non_null(strstr(text, "k3v9qw2m")); /* where it comes from */
    assert_non_null(strstr(text, "41000"));
}

static void every_layout_is_exported_legally_or_refused_by_name(void **state)
{
    int written = 0, refused = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct world *w = sampled_world(i);

        for (size_t k = 0; k < w->n; k++) {
            struct tn_export_in in = input(w, &w->layout[k]);

            for (const struct tn_exporter *const *x = tn_exporters(); *x; x++) {
                AUTO_FREE char *strict = NULL;
                AUTO_FREE char *loose = NULL;
                struct tn_findings f;
                const char *type;
                struct err e = {0};
                int r = tn_export(&strict, &type, &f, (*x)->name, &in, false, &e);

                if (r == 0) {
                    written++;
                    assert_int_equal(f.count, 0);
                    check_text(*x, strict, &in);
                    continue;
                }
                refused++;
                assert_int_equal(r, -EINVAL);
                assert_true(f.count > 0);
                for (int g = 0; g < f.count; g++) {
                    if (!pl_layout_key_find(f.v[g].setting) && !strchr(f.v[g].setting, '.'))
                        fail_msg("%s", f.v[g].setting);
                    assert_non_null(strstr(e.text, f.v[0].setting));
                }
                if (tn_export(&loose, &type, &f, (*x)->name, &in, true, &e) == 0) {
                    check_text(*x, loose, &in);
                    for (int g = 0; g < f.count; g++)
                        assert_non_null(
                            strstr(loose, f.v[g].detail)); /* what is lost is in the file */
                }
            }
        }
    }
    print_message("# %d exports written, %d refused by name\n", written, refused);
    assert_true(written > 500);
    assert_true(refused > 500);
}

static void what_a_target_carries_comes_back(void **state)
{
    static const struct {
        const char *target, *source;
    } pairs[] = {{"megatron", "megatron"},
                 {"megatron-script", "megatron"},
                 {"deepspeed", "deepspeed"},
                 {"torchtitan-toml", "torchtitan"},
                 {"torchtitan", "torchtitan"}};

    (void)state;
    for (size_t p = 0; p < ARRAY_LEN(pairs); p++) {
        const struct tn_wrapper *wrapper;
        const struct tn_exporter *x = tn_exporter_find(&wrapper, pairs[p].target);
        int came_back = 0;

        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
            const struct world *w = sampled_world(i);

            for (size_t k = 0; k < w->n; k++) {
                struct tn_export_in in = input(w, &w->layout[k]);
                AUTO_FREE char *text = NULL;
                struct tn_imported back;
                struct tn_findings f;
                const char *type;
                struct err e = {0};

                if (tn_export(&text, &type, &f, x->name, &in, false, &e) < 0)
                    continue;
                if (import_text(&back, pairs[p].source, text, w->layout[k].world, &w->m, &e) < 0)
                    fail_msg("%s: %s\n%s", pairs[p].source, e.text, text);
                assert_int_equal(back.global_batch, w->w.global_batch);
                if (pl_stages_are_even(&back.layout, w->m.layers)) /* longer first: a list there */
                    back.layout.stages = PL_STAGES_EVEN;
                for (const struct pl_layout_key *key = pl_layout_keys; key->name; key++) {
                    int want = pl_layout_get(&w->layout[k], key),
                        got = pl_layout_get(&back.layout, key);

                    /* a target without a recipe of its own writes bf16 */
                    bool narrow = str_eq(key->name, "precision") && want >= PL_FP8;

                    if (tn_exporter_carries(x, key) && want != got && !narrow)
                        fail_msg("%s of %s came back as %d, not %d\n%s", key->name, x->name, got,
                                 want, text);
                }
                came_back++;
            }
        }
        print_message("# %s: %d layouts came back\n", x->name, came_back);
        assert_true(came_back > 5);
    }
}

/* ---- refusals and golden files ------------------------------------------- */

static void parse_layout(struct pl_layout *l, const struct world *w, const char *text)
{
    AUTO_JSON *v = unit_json(text);
    struct err e = {0};

    if (pl_layout_parse(l, v, problem_with(w, pl_trainer_find("any")), &e) < 0)
        fail_msg("%s: %s", text, e.text);
    pl_layout_canonical(l, &w->m);
}

static void refusals_name_the_setting(void **state)
{
    static const struct {
        size_t world;
        const char *target, *layout, *want;
    } rows[] = {
        {0, "megatron", "{'tp':8,'pp':4,'schedule':'zero-bubble','micro_batch':1}",
         "schedule (trainer megatron does not support schedule zero-bubble"},
        {0, "deepspeed", "{'tp':1,'pp':4,'micro_batch':1}",
         "pp (trainer deepspeed does not support pp > 1)"},
        {0, "deepspeed", "{'tp':8,'pp':4,'micro_batch':1}", "AutoTP does not work with pipeline"},
        {0, "smp", "{'tp':1,'pp':2,'micro_batch':1}",
         "pp (the target has no pipeline parallelism)"},
        {3, "smp", "{'tp':2,'sp':1,'ep':2,'micro_batch':1}",
         "expert parallelism does not work with tensor"},
        {3, "torchtitan", "{'tp':2,'sp':1,'ep':2,'etp':2,'zero':2,'micro_batch':1}",
         "etp (trainer torchtitan does not support etp 2 with ep 2 and tp 2: it uses 1"},
        {1, "torchtitan-toml", "{'tp':1,'zero':1,'micro_batch':1}",
         "zero (FSDP shards gradients too"},
        {1, "megatron", "{'tp':1,'threads':2,'micro_batch':1}", "threads"},
        {1, "torchtitan", "{'zero':3,'micro_batch':1,'overlap_param_gather':1}",
         "overlap_grad_reduce (trainer torchtitan does not support overlap_grad_reduce 0: FSDP"},
        {1, "deepspeed", "{'zero':3,'micro_batch':1,'overlap_param_gather':1}",
         "at zero 3 one switch sets both"},
        {0, "deepspeed", "{'tp':1,'pp':4,'zero':2,'micro_batch':1}", "works up to ZeRO 1"},
        {1, "hyperpod", "{'zero':3,'micro_batch':1,'precision':'bf16'}",
         "workload.global_batch (the file has no global batch"},
        {1, "accelerate", "{'zero':3,'micro_batch':2,'precision':'fp8'}", "precision (fp8 needs"},
        {1, "hyperpod", "{'world':12,'tp':1,'micro_batch':1}", "do not fill nodes of 8 evenly"},
        {1, "accelerate", "{'micro_batch':1,'recompute':'full','precision':'bf16'}",
         "recompute (without sharding, the script must enable"},
        {1, "torchtitan", "{'cp':2,'micro_batch':1,'precision':'bf16'}",
         "zero (trainer torchtitan does not support zero 0 with cp 2: FSDP shards over cp"},
        {3, "torchtitan-toml",
         "{'tp':4,'sp':1,'ep':2,'etp':4,'pp':4,'zero':0,'micro_batch':1,'precision':'bf16'}",
         "ep (dp_shard x cp x tp = 4 is not a multiple of ep 2 x etp 4"},
        {1, "slurm+megatron", "{'world':12,'tp':1,'micro_batch':1}",
         "do not fill nodes of 8 evenly"},
        {3, "torchtitan-toml", "{'tp':2,'sp':1,'zero':2,'micro_batch':1,'precision':'bf16'}",
         "etp (without expert parallelism, torchtitan splits experts by tp"},
        {3, "torchtitan", "{'tp':2,'sp':1,'zero':2,'micro_batch':1,'precision':'bf16'}",
         "etp (trainer torchtitan does not support etp 1 with ep 1 and tp 2: it uses 2"},
        {3, "deepspeed", "{'tp':2,'sp':1,'zero':1,'micro_batch':1,'precision':'bf16'}",
         "etp (trainer deepspeed does not support etp 1 with ep 1 and tp 2: it uses 2"},
        {3, "smp", "{'world':8,'ep':8,'zero':3,'micro_batch':1,'precision':'bf16'}",
         "zero (ep 8 of dp x cp 8 ranks leaves nothing to shard over"},
        {5, "smp", "{'ep':8,'zero':3,'micro_batch':1,'precision':'bf16'}",
         "ep (experts are supported only in models like Mixtral"},
        {1, "smp", "{'zero':2,'micro_batch':1,'precision':'bf16'}",
         "zero (hybrid_shard_degree above 1 shards parameters and gradients too: zero 3"},
        {1, "torchtitan-toml", "{'tp':4,'micro_batch':1,'zero':3,'overlap_grad_reduce':1,'dp':1}",
         "zero (sharding follows the data-parallel size"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO_FREE char *text = NULL;
        struct world w;
        struct pl_layout l;
        struct tn_findings f;
        const char *type;
        struct tn_export_in in;
        struct err e = {0};

        open_case(&w, rows[i].world);
        parse_layout(&l, &w, rows[i].layout);
        in = input(&w, &l);
        assert_int_equal(tn_export(&text, &type, &f, rows[i].target, &in, false, &e), -EINVAL);
        if (!strstr(e.text, rows[i].want))
            fail_msg("%s %s: `%s` lacks `%s`", rows[i].target, rows[i].layout, e.text,
                     rows[i].want);
    }
}

/* Each refuses it, by name where ZeRO's stage is not what its own rules refuse first. */
static void no_target_runs_dualpipe(void **state)
{
    struct world w;
    struct pl_layout l;
    struct tn_export_in in;

    (void)state;
    open_case(&w, 1);
    parse_layout(&l, &w, "{'pp':4,'schedule':'dualpipe','micro_batch':1,'precision':'bf16'}");
    assert_int_equal(l.schedule, PL_DUALPIPE);
    in = input(&w, &l);
    for (const struct tn_exporter *const *x = tn_exporters(); *x; x++) {
        bool named = false;

        for (l.zero = 0; l.zero <= 3; l.zero++) {
            AUTO_FREE char *text = NULL;
            struct tn_findings f;
            const char *type;
            struct err e = {0};

            assert_int_equal(tn_export(&text, &type, &f, (*x)->name, &in, false, &e), -EINVAL);
            for (int i = 0; i < f.count; i++)
                named |= str_eq(f.v[i].setting, "schedule") && strstr(f.v[i].detail, "dualpipe");
        }
        if (!named)
            fail_msg("%s does not name the schedule", (*x)->name);
    }
}

/* One export of a layout of CASES[WORLD], after CHANGE had its hands on what it is made from. */
static char *export_changed(size_t world, const char *target, const char *layout, bool loss,
                            void (*change)(struct world *w, struct tn_export_in *in), struct err *e)
{
    struct tn_findings f;
    struct tn_export_in in;
    struct pl_layout l;
    struct world w;
    const char *type;
    char *text = NULL;

    open_case(&w, world);
    parse_layout(&l, &w, layout);
    in = input(&w, &l);
    change(&w, &in);
    tn_export(&text, &type, &f, target, &in, loss, e);
    return text;
}

static void half_a_theta(struct world *w, struct tn_export_in *in)
{
    (void)in;
    w->m.rope_theta = 500000.5;
}

static void with_documents(struct world *w, struct tn_export_in *in)
{
    (void)in;
    w->w.reset_attention_mask = w->w.eod_mask_loss = true;
    w->w.eod = 11;
}

static void by_lamb(struct world *w, struct tn_export_in *in)
{
    (void)in;
    w->w.optimizer = PL_LAMB;
}

static void short_sequences(struct world *w, struct tn_export_in *in)
{
    (void)in;
    w->w.seq = 12;
}

static void odd_sequences(struct world *w, struct tn_export_in *in)
{
    (void)in;
    w->w.seq = 6;
}

static void nothing(struct world *w, struct tn_export_in *in)
{
    (void)w;
    (void)in;
}

/* What depends on the model or the workload, not on the layout. */
static void models_that_a_target_has_no_words_for(void **state)
{
    static const char dense[] = "{'tp':4,'sp':1,'zero':1,'micro_batch':1,'precision':'bf16'}";
    static const char sharded[] = "{'tp':4,'sp':1,'zero':3,'micro_batch':1,'precision':'bf16',"
                                  "'overlap_grad_reduce':1,'overlap_param_gather':1}";
    struct err e = {0};
    AUTO_FREE char *theta = export_changed(1, "megatron", dense, false, half_a_theta, &e);
    AUTO_FREE char *shorter = export_changed(1, "megatron", dense, false, short_sequences, &e);
    AUTO_FREE char *fp32 = export_changed(
        3, "megatron", "{'ep':8,'micro_batch':1,'precision':'fp32'}", false, nothing, &e);
    AUTO_FREE char *bf16 = export_changed(
        3, "megatron", "{'ep':8,'micro_batch':1,'precision':'bf16'}", false, nothing, &e);
    AUTO_FREE char *titan = NULL;

    (void)state;
    assert_null(theta);
    /* Learned positions are weights, and a mask over fewer of them is another model. */
    assert_non_null(strstr(shorter, "\n--seq-length 12\n"));
    assert_non_null(strstr(shorter, "\n--max-position-embeddings 8192\n"));
    assert_null(strstr(fp32, "--moe-grouped-gemm"));
    assert_non_null(strstr(bf16, "\n--moe-grouped-gemm\n"));

    e = (struct err){0};
    export_changed(1, "megatron", dense, false, half_a_theta, &e);
    assert_non_null(
        strstr(e.text, "model.rope_theta (trainer megatron does not support rope_theta 500000.5"));
    assert_null(export_changed(1, "megatron", dense, false, by_lamb, &e));
    assert_non_null(strstr(e.text, "workload.optimizer (lamb is not written"));
    assert_null(export_changed(1, "megatron", dense, false, with_documents, &e));
    assert_non_null(
        strstr(e.text, "workload.reset_attention_mask (document boundaries (eod 11) are not"));
    assert_non_null(strstr(e.text, "workload.eod_mask_loss ("));
    assert_null(strstr(e.text, "workload.reset_position_ids"));
    titan = export_changed(1, "torchtitan", sharded, true, odd_sequences, &e);
    assert_null(titan);
    assert_non_null(strstr(e.text, "tp (trainer torchtitan does not support 6 tokens"));
}

/* Sharding and reduction lie over dp x cp, so they are there with dp 1, too. */
static void layouts_with_context_parallelism_come_back(void **state)
{
    static const char *const layouts[] = {
        "{'cp':32,'zero':2,'overlap_grad_reduce':1,'overlap_param_gather':1,'precision':'bf16'}",
        "{'cp':32,'zero':3,'overlap_grad_reduce':1,'overlap_param_gather':1,'precision':'bf16'}",
        "{'cp':4,'zero':3,'overlap_grad_reduce':1,'overlap_param_gather':1,'precision':'bf16'}",
        ("{'cp':4,'zero':3,'shard':8,'overlap_grad_reduce':1,'overlap_param_gather':1,"
         "'precision':'bf16'}"),
        ("{'tp':2,'sp':1,'cp':4,'pp':4,'zero':2,'overlap_grad_reduce':1,'overlap_param_gather':1,"
         "'precision':'bf16'}"),
    };
    static const char *const targets[][2] = {{"megatron", "megatron"},
                                             {"torchtitan-toml", "torchtitan"}};
    struct world w;

    (void)state;
    open_case(&w, 1);
    for (size_t i = 0; i < ARRAY_LEN(layouts) * 2; i++) {
        const char *target = targets[i % 2][0], *source = targets[i % 2][1], *type;
        AUTO_FREE char *text = NULL;
        struct pl_layout l;
        struct tn_imported back;
        struct tn_findings f;
        struct tn_export_in in;
        struct err e = {0};

        parse_layout(&l, &w, layouts[i / 2]);
        if (l.pp > 1 && str_eq(source, "megatron")) /* Megatron-FSDP has no pipeline */
            continue;
        in = input(&w, &l);
        if (tn_export(&text, &type, &f, target, &in, false, &e) < 0)
            fail_msg("%s %s: %s", target, layouts[i / 2], e.text);
        if (import_text(&back, source, text, l.world, &w.m, &e) < 0)
            fail_msg("%s: %s\n%s", source, e.text, text);
        if (!pl_layout_equal(&l, &back.layout)) {
            char want[160], got[160];

            fail_msg("%s gave %s, not %s\n%s", target, pl_layout_text(got, &back.layout),
                     pl_layout_text(want, &l), text);
        }
    }
}

static void names_made_to_break_out(struct world *w, struct tn_export_in *in)
{
    snprintf(w->m.name, sizeof(w->m.name),
             "x\nevil=1\xc2\x85"
             "evil=2");
    snprintf(w->c.name, sizeof(w->c.name), "y\revil: 1");
    in->campaign_name = "a\nevil: 1\xc2\x85"
                        "evil: 2\xe2\x80\xa8"
                        "evil: 3\xc2\x81\xef\xbf\xbf";
    in->fingerprint = "z\xe2\x80\xa9"
                      "evil: 4";
    in->lo = in->hi = NAN;
}

/* A line ends where any of the formats' parsers sees an end: within a job of Kubernetes that of
 * YAML sees the text of every target. */
static void names_stay_where_they_are_written(void **state)
{
    static const char *const ends[] = {"\nevil",       "\revil",   "\xc2\x85",     "\xe2\x80\xa8",
                                       "\xe2\x80\xa9", "\xc2\x81", "\xef\xbf\xbf", " nan"};
    static const char *const around[] = {"", "mpijob+"};

    (void)state;
    for (const struct tn_exporter *const *x = tn_exporters(); *x; x++) {
        for (size_t k = 0; k < ARRAY_LEN(around); k++) {
            AUTO_FREE char *target = mem_printf("%s%s", around[k], (*x)->name);
            struct err e = {0};
            AUTO_FREE char *text =
                export_changed(1, target, "{'zero':1,'micro_batch':1,'precision':'bf16'}", true,
                               names_made_to_break_out, &e);

            if (!text)
                fail_msg("%s: %s", target, e.text);
            for (size_t i = 0; i < ARRAY_LEN(ends); i++)
                if (strstr(text, ends[i]))
                    fail_msg("%s has `%s`: %.100s", target, ends[i], strstr(text, ends[i]));
        }
    }
}

static void two_cores(struct world *w, struct tn_export_in *in)
{
    (void)in;
    w->c.nodes = 1;
    w->c.devices_per_node = 2;
    w->c.oversubscribe = true;
}

static void ranks_moved(struct world *w, struct tn_export_in *in)
{
    (void)w;
    in->binding = "";
}

/* A rack of 18 hosts of four that NVLink joins. */
static void nvl72(struct world *w, struct tn_export_in *in)
{
    (void)in;
    w->c.nodes = 64;
    w->c.devices_per_node = 4;
    w->c.link[0].span = 72;
}

/* Groups of ranks lie inside a domain only if Slurm places them so. */
static void slurm_jobs_are_placed_in_segments_of_a_domain(void **state)
{
    static const struct {
        const char *layout;
        void (*change)(struct world *w, struct tn_export_in *in);
        const char *segment;
    } rows[] = {
        {"{'world':128,'micro_batch':1}", nvl72, "#SBATCH --segment=16\n"},
        {"{'world':64,'micro_batch':1}", nvl72, "#SBATCH --segment=16\n"},
        {"{'world':8,'micro_batch':1}", nvl72, "#SBATCH --segment=2\n"},
        {"{'world':16,'micro_batch':1}", nothing, NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err e = {0};
        AUTO_FREE char *text =
            export_changed(1, "slurm+megatron", rows[i].layout, true, rows[i].change, &e);

        if (!text)
            fail_msg("%s: %s", rows[i].layout, e.text);
        if (!strstr(text, rows[i].segment ? rows[i].segment : "#SBATCH") ||
            (!rows[i].segment && strstr(text, "--segment")))
            fail_msg("%s: %.400s", rows[i].layout, text);
    }
}

static void by_open_mpi(struct world *w, struct tn_export_in *in)
{
    (void)w;
    in->open_mpi = true;
}

/* A production run is bound as the trial was: each rank to as many cores as it has threads. */
static void jobs_bind_the_bundled_trainers_ranks(void **state)
{
    static const struct {
        const char *target, *layout;
        void (*change)(struct world *w, struct tn_export_in *in);
        const char *has, *lacks;
    } rows[] = {
        {"pbs+partune", "{'world':16}", nothing, "mpi=(mpiexec -bind-to core -n 16 -ppn 8) ;;",
         NULL},
        {"pbs+partune", "{'world':16}", nothing,
         "mpi=(mpiexec --map-by ppr:8:node --bind-to core --mca", NULL},
        {"pbs+partune", "{'world':16}", nothing,
         "\n    \"${mpi[@]}\" \"${inside[@]}\" partune-train", NULL},
        {"pbs+partune", "{'world':4,'threads':2}", nothing,
         "mpi=(mpiexec -bind-to core:2 -n 4 -ppn 4) ;;", NULL},
        {"pbs+partune", "{'world':4,'threads':2}", nothing,
         "mpi=(mpiexec --map-by ppr:4:node:PE=2 --bind-to core --mca", NULL},
        {"mpijob+partune", "{'world':4,'threads':2}", nothing,
         "mpi=(mpirun -bind-to core:2 -n 4 -ppn 4) ;;", NULL},
        {"mpijob+partune", "{'world':4}", nothing, "mpiImplementation: MPICH #", NULL},
        {"mpijob+partune", "{'world':4}", by_open_mpi, "mpiImplementation: OpenMPI #", NULL},
        {"slurm+partune", "{'world':4,'threads':2}", nothing,
         "srun --kill-on-bad-exit=1 --mpi=\"$pmi\" --cpus-per-task=2 --cpu-bind=cores "
         "\"${pyxis[@]}\" "
         "\"${inside[@]}\" partune-train",
         NULL},
        {"pbs+partune", "{'world':16}", ranks_moved, "(mpiexec -n 16 -ppn 8)", " -bind-to"},
        {"pbs+partune", "{'world':16}", ranks_moved, "--bind-to none", "--bind-to core"},
        {"mpijob+partune", "{'world':16}", ranks_moved, "(mpirun -n 16 -ppn 8)", " -bind-to"},
        {"slurm+partune", "{'world':16}", ranks_moved,
         "=1 --mpi=\"$pmi\" --cpus-per-task=1 \"${pyxis[@]}\"", "--cpu-bind"},
        {"pbs+partune", "{'world':4}", two_cores, "select=1:ncpus=2:mpiprocs=4", " -bind-to"},
        {"pbs+partune", "{'world':4}", two_cores, "ppr:4:node:OVERSUBSCRIBE --bind-to none", NULL},
        {"mpijob+partune", "{'world':4}", two_cores, "cpu: 2\n", " -bind-to"},
        {"slurm+partune", "{'world':4}", two_cores,
         "=1 --mpi=\"$pmi\" --overcommit \"${pyxis[@]}\"", "--cpu-bind"},
        {"slurm+partune", "{'world':4}", two_cores, "#SBATCH --nodes=1\n", "--cpus-per-task"},
        {"pbs+megatron", "{'world':16}", nothing, "(mpiexec -n 2 -ppn 1) ;;", " -bind-to"},
        {"pbs+megatron", "{'world':16}", nothing, "ppr:1:node --bind-to none", "--bind-to core"},
        {"slurm+megatron", "{'world':16}", nothing,
         "srun --kill-on-bad-exit=1 \"${pyxis[@]}\" \"${inside[@]}\" bash", "--cpu-bind"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err e = {0};
        AUTO_FREE char *text =
            export_changed(1, rows[i].target, rows[i].layout, true, rows[i].change, &e);

        if (!text)
            fail_msg("%s: %s", rows[i].target, e.text);
        if (!strstr(text, rows[i].has))
            fail_msg("%s %s lacks `%s`:\n%s", rows[i].target, rows[i].layout, rows[i].has, text);
        if (rows[i].lacks && strstr(text, rows[i].lacks))
            fail_msg("%s has `%s`:\n%s", rows[i].target, rows[i].lacks, text);
    }
}

static void unknown_targets_are_not_found(void **state)
{
    static const char *const bad[] = {"",          "megatro",           "slurm+",
                                      "+megatron", "pbs+slurm+partune", "lsf+megatron"};
    struct world w;
    struct pl_layout l;
    struct tn_findings f;
    const char *type;
    char *text = NULL;

    (void)state;
    open_case(&w, 1);
    parse_layout(&l, &w, "{'micro_batch':1}");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct tn_export_in in = input(&w, &l);
        struct err e = {0};

        assert_int_equal(tn_export(&text, &type, &f, bad[i], &in, true, &e), -ENOENT);
    }
}

static void golden_files_match_to_the_letter(void **state)
{
    static const struct {
        size_t world;
        const char *target, *layout, *file;
    } rows[] = {
        {0, "megatron",
         "{'tp':8,'sp':1,'pp':2,'vp':4,'zero':1,'micro_batch':2,'overlap_p2p':1,'recompute':'"
         "selective','precision'"
         ":'bf16'}",
         "gpt-22B.megatron.txt"},
        {2, "megatron-script",
         "{'tp':8,'sp':1,'pp':4,'zero':1,'micro_batch':1,'recompute':'full','precision':'bf16'}",
         "llama-70b.megatron.sh"},
        {3, "megatron",
         "{'tp':2,'sp':1,'pp':2,'ep':8,'etp':1,'zero':1,'micro_batch':1,'precision':'bf16'}",
         "mixtral-8x7b.megatron.txt"},
        {3, "megatron-bridge",
         "{'tp':2,'sp':1,'pp':2,'ep':8,'etp':1,'zero':1,'micro_batch':1,'precision':'bf16'}",
         "mixtral-8x7b.bridge.py"},
        {3, "deepspeed", "{'ep':8,'zero':2,'micro_batch':2,'precision':'bf16'}",
         "mixtral-8x7b.deepspeed.json"},
        {1, "torchtitan-toml", "{'tp':4,'sp':1,'pp':2,'zero':2,'micro_batch':2,'precision':'bf16'}",
         "llama-8b.torchtitan.toml"},
        {1, "torchtitan",
         "{'tp':4,'sp':1,'pp':2,'zero':3,'micro_batch':2,'recompute':'full','precision':'bf16'}",
         "llama-8b.torchtitan.py"},
        {3, "smp", "{'ep':8,'zero':3,'micro_batch':2,'precision':'bf16'}", "mixtral-8x7b.smp.json"},
        {3, "hyperpod", "{'ep':8,'zero':3,'micro_batch':2,'precision':'bf16','recompute':'full'}",
         "mixtral-8x7b.hyperpod.yaml"},
        {1, "accelerate", "{'tp':4,'sp':1,'pp':2,'zero':1,'micro_batch':2,'precision':'bf16'}",
         "llama-8b.accelerate.yaml"},
        {1, "slurm+partune", "{'tp':4,'sp':1,'zero':1,'micro_batch':2,'precision':'fp32'}",
         "llama-8b.partune.sbatch"},
        {2, "pbs+megatron", "{'tp':8,'sp':1,'pp':4,'zero':1,'micro_batch':1,'precision':'bf16'}",
         "llama-70b.megatron.pbs"},
        {1, "mpijob+partune", "{'tp':4,'sp':1,'zero':1,'micro_batch':2,'precision':'fp32'}",
         "llama-8b.partune.mpijob.yaml"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO_FREE char *path =
            mem_printf("%s/tests/data/export/%s", getenv("PT_SRC"), rows[i].file);
        AUTO_FREE char *text = NULL;
        AUTO_FREE char *want = NULL;
        struct world w;
        struct pl_layout l;
        struct tn_findings f;
        struct tn_export_in in;
        const char *type;
        struct err e = {0};

        open_case(&w, rows[i].world);
        parse_layout(&l, &w, rows[i].layout);
        in = input(&w, &l);
        if (tn_export(&text, &type, &f, rows[i].target, &in, true, &e) < 0)
            fail_msg("%s %s: %s", rows[i].target, rows[i].layout, e.text);
        if (getenv("PT_UPDATE") && file_write_atomic(path, text, strlen(text), 0644, &e) < 0)
            fail_msg("%s", e.text);
        if (file_read_all(&want, NULL, path, 1 << 20, &e) < 0)
            fail_msg("%s", e.text);
        if (strcmp(text, want))
            fail_msg("%s differs; now it is:\n%s", rows[i].file, text);
    }
}

/* Megatron divides by top_k and adds the layers up: mixtral-8x7b has 32 with experts, top_k 2. */
static void the_load_balancing_loss_has_the_same_gradient_there(void **state)
{
    static const struct {
        enum pl_aux_loss aux_loss;
        const char *want;
    } rows[] = {
        {PL_AUX_SEQUENCE,
         "--moe-router-load-balancing-type seq_aux_loss\n--moe-aux-loss-coeff 0.00125\n"},
        {PL_AUX_HUGGINGFACE,
         "--moe-router-load-balancing-type aux_loss\n--moe-aux-loss-coeff 0.00125\n"},
        {PL_AUX_MEGATRON, "--moe-router-load-balancing-type aux_loss\n--moe-aux-loss-coeff 0.02\n"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO_FREE char *text = NULL;
        struct world w;
        struct pl_layout l;
        struct tn_findings f;
        struct tn_imported back;
        struct tn_export_in in;
        const char *type;
        struct err e = {0};

        open_case(&w, 3);
        parse_layout(&l, &w,
                     "{'tp':2,'sp':1,'pp':2,'ep':8,'etp':1,'micro_batch':1,'precision':'bf16'}");
        w.m.moe.aux_loss = rows[i].aux_loss;
        in = input(&w, &l);
        if (tn_export(&text, &type, &f, "megatron", &in, false, &e) < 0)
            fail_msg("%s", e.text);
        if (!strstr(text, rows[i].want))
            fail_msg("%s lacks %s:\n%s", pl_aux_loss_names[rows[i].aux_loss], rows[i].want, text);
        if (rows[i].aux_loss == PL_AUX_HUGGINGFACE)
            continue; /* Megatron has no such loss: read back it is Megatron's */
        if (import_text(&back, "megatron", text, l.world, &w.m, &e) < 0)
            fail_msg("%s", e.text);
        for (int k = 0; k < back.ignored.count; k++)
            if (strstr(back.ignored.v[k].setting, "aux-loss") ||
                strstr(back.ignored.v[k].setting, "load-balancing"))
                fail_msg("%s: %s", back.ignored.v[k].setting, back.ignored.v[k].detail);
    }
}

/* Its z-loss is ours: what is written reads back as the same model's. */
static void the_z_loss_of_routers_is_written_or_lost(void **state)
{
    static const char *const targets[] = {"megatron", "megatron-bridge"};
    static const char *const want[] = {"--moe-z-loss-coeff 0.001\n", "moe_z_loss_coeff=0.001,\n"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(targets); i++) {
        AUTO_FREE char *text = NULL;
        struct world w;
        struct pl_layout l;
        struct tn_findings f;
        struct tn_imported back;
        struct tn_export_in in;
        const char *type;
        struct err e = {0};

        open_case(&w, 3);
        parse_layout(&l, &w,
                     "{'tp':2,'sp':1,'pp':2,'ep':8,'etp':1,'micro_batch':1,'precision':'bf16'}");
        w.m.moe.z_loss_coef = 1e-3;
        in = input(&w, &l);
        if (tn_export(&text, &type, &f, targets[i], &in, false, &e) < 0)
            fail_msg("%s", e.text);
        if (!strstr(text, want[i]))
            fail_msg("%s lacks %s:\n%s", targets[i], want[i], text);
        if (i == 0 && import_text(&back, "megatron", text, l.world, &w.m, &e) < 0)
            fail_msg("%s", e.text);
        for (int k = 0; i == 0 && k < back.ignored.count; k++)
            if (strstr(back.ignored.v[k].setting, "z-loss"))
                fail_msg("%s: %s", back.ignored.v[k].setting, back.ignored.v[k].detail);
        parse_layout(&l, &w, "{'ep':8,'etp':1,'zero':1,'micro_batch':1,'precision':'bf16'}");
        in = input(&w, &l);
        assert_true(tn_export(&text, &type, &f, "deepspeed", &in, false, &e) < 0);
        if (!strstr(e.text, "z_loss_coef"))
            fail_msg("%s", e.text);
    }
}

static void the_bundled_file_is_a_whole_run(void **state)
{
    struct world w;
    struct pl_layout l;
    struct tn_findings f;
    AUTO_JSON *v = NULL;
    AUTO_FREE char *text = NULL;
    struct tn_export_in in;
    const char *type;
    struct err e = {0};

    (void)state;
    open_case(&w, 3);
    parse_layout(&l, &w, "{'tp':1,'ep':2,'micro_batch':1}");
    in = input(&w, &l);
    assert_int_equal(tn_export(&text, &type, &f, "partune", &in, false, &e), 0);
    assert_int_equal(jx_parse(&v, text, strlen(text), &e), 0);
    assert_string_equal(json_string_value(json_object_get(json_object_get(v, "run"), "data")),
                        "/data/books");
    assert_string_equal(json_string_value(json_object_get(json_object_get(v, "checkpoint"), "dir")),
                        "k3v9qw2m-trial7");
    assert_true(json_is_true(json_object_get(json_object_get(v, "checkpoint"), "resume")));
    assert_true(json_integer_value(json_object_get(json_object_get(v, "checkpoint"), "every")) > 0);
    assert_true(json_number_value(json_object_get(json_object_get(v, "expected"), "lo")) == 40700);
}

/* An unverified winner says so, in every format. */
static void an_unverified_export_says_so(void **state)
{
    struct world w;
    struct pl_layout l;

    (void)state;
    open_case(&w, 1);
    parse_layout(&l, &w, "{'tp':1,'micro_batch':1,'precision':'bf16'}");
    for (const struct tn_exporter *const *x = tn_exporters(); *x; x++) {
        struct tn_export_in in = input(&w, &l);
        AUTO_FREE char *text = NULL;
        struct tn_findings f;
        const char *type;
        struct err e = {0};

        in.verdict = NULL;
        if (tn_export(&text, &type, &f, (*x)->name, &in, true, &e) < 0)
            continue; /* refused whatever is lost */
        assert_true(strstr(text, "verified: no (") || strstr(text, "\"verified\": \"no\""));
        assert_null(strstr(text, "1.25"));
    }
}

static void a_baseline_that_won_has_no_ratio(void **state)
{
    struct world w;
    struct pl_layout l;
    int seen = 0;

    (void)state;
    open_case(&w, 1);
    parse_layout(&l, &w, "{'tp':1,'micro_batch':1,'precision':'bf16'}");
    for (const struct tn_exporter *const *x = tn_exporters(); *x; x++) {
        struct tn_export_in in = input(&w, &l);
        AUTO_FREE char *text = NULL;
        struct tn_findings f;
        const char *type;
        struct err e = {0};

        in.verdict = "same";
        in.ratio = in.ratio_lo = in.ratio_hi = NAN;
        if (tn_export(&text, &type, &f, (*x)->name, &in, true, &e) < 0)
            continue; /* refused whatever is lost */
        assert_true(strstr(text, "verified: same (this layout is the baseline)\n") ||
                    strstr(text, "\"verified\": \"same\""));
        assert_null(strstr(text, "times the baseline"));
        assert_null(strstr(text, "ratio_to_baseline"));
        seen++;
    }
    assert_true(seen > 3);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_layout_is_exported_legally_or_refused_by_name),
    cmocka_unit_test(what_a_target_carries_comes_back),
    cmocka_unit_test(refusals_name_the_setting),
    cmocka_unit_test(no_target_runs_dualpipe),
    cmocka_unit_test(models_that_a_target_has_no_words_for),
    cmocka_unit_test(layouts_with_context_parallelism_come_back),
    cmocka_unit_test(names_stay_where_they_are_written),
    cmocka_unit_test(jobs_bind_the_bundled_trainers_ranks),
    cmocka_unit_test(slurm_jobs_are_placed_in_segments_of_a_domain),
    cmocka_unit_test(unknown_targets_are_not_found),
    cmocka_unit_test(golden_files_match_to_the_letter),
    cmocka_unit_test(the_load_balancing_loss_has_the_same_gradient_there),
    cmocka_unit_test(the_z_loss_of_routers_is_written_or_lost),
    cmocka_unit_test(the_bundled_file_is_a_whole_run),
    cmocka_unit_test(an_unverified_export_says_so),
    cmocka_unit_test(a_baseline_that_won_has_no_ratio),
};

UNIT_MAIN(tests)
