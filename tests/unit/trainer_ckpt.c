/* Checkpoints: written under one layout and read under another; what is refused, and how it is
 * named. */
#include "tests/unit/trainer_world.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <sys/stat.h>

#include "trainer/hf.h"

static const char MOE[] = "{'experts':4,'top_k':2,'expert_ffn':20}";

/* Latents, a dense layer, and experts with a bias that balances. */
static const char LATENTS[] =
    "{'name':'l','layers':4,'hidden':24,'heads':4,'ffn':40,'vocab':61,'seq':16,'mla':{"
    "'q_lora_rank':9,'kv_lora_rank':11,'qk_nope_head_dim':6,'qk_rope_head_dim':4,'v_head_dim':5},"
    "'moe':{'router':'sigmoid','balance_bias':true,'dense_layers':1,'experts':4,'top_k':2,"
    "'expert_ffn':20}}";

enum kind { DENSE, EXPERTS, TIED, LATENT };

static const struct {
    const char *what;
    enum kind kind;
    int world;
    const char *keys;
} layouts[] = {
    {"one rank", DENSE, 1, ""},
    {"tp 2", DENSE, 2, "'tp':2"},
    {"pp 4", DENSE, 4, "'pp':4"},
    {"dp 2 zero 1", DENSE, 2, "'zero':1"},
    {"tp 2 pp 2 dp 2 zero 1", DENSE, 8, "'tp':2,'pp':2,'zero':1"},
    {"dp 2 zero 1 bf16", DENSE, 2, "'zero':1,'precision':'bf16'"},
    {"tp 2 dp 4 zero 3", DENSE, 8, "'tp':2,'zero':3"},
    {"dp 4 zero 3 shard 2 bf16", DENSE, 4, "'zero':3,'shard':2,'precision':'bf16'"},
    {"one rank with experts", EXPERTS, 1, ""},
    {"ep 4", EXPERTS, 4, "'ep':4"},
    {"tp 2 sp ep 2", EXPERTS, 4, "'tp':2,'sp':1,'ep':2"},
    {"tp 2 sp ep 2 etp 2 zero 1", EXPERTS, 8, "'tp':2,'sp':1,'ep':2,'etp':2,'zero':1"},
    {"ep 2 dp 4 zero 1 plain", EXPERTS, 4, "'ep':2,'zero':1,'zero_scope':'plain'"},
    {"ep 2 pp 2 zero 1", EXPERTS, 8, "'ep':2,'pp':2,'zero':1"},
    {"ep 2 zero 1 bf16", EXPERTS, 4, "'ep':2,'zero':1,'precision':'bf16'"},
    {"ep 2 dp 4 zero 3", EXPERTS, 4, "'ep':2,'zero':3"},
    {"ep 2 dp 4 zero 3 plain bf16", EXPERTS, 4,
     "'ep':2,'zero':3,'zero_scope':'plain','precision':'bf16'"},
    {"ep 2 dp 8 zero 1 shard 4", EXPERTS, 8, "'ep':2,'zero':1,'shard':4"},
    {"one rank, tied", TIED, 1, ""},
    {"pp 4, tied", TIED, 4, "'pp':4"},
    {"pp 2 dp 2 zero 3, tied", TIED, 4, "'pp':2,'zero':3"},
    {"tp 2 pp 2 dp 2 zero 1 bf16, tied", TIED, 8, "'tp':2,'pp':2,'zero':1,'precision':'bf16'"},
    {"one rank with latents", LATENT, 1, ""},
    {"tp 2 sp ep 2 zero 3 with latents", LATENT, 4, "'tp':2,'sp':1,'ep':2,'zero':3"},
    {"tp 4 sp with latents", LATENT, 4, "'tp':4,'sp':1"},
    {"pp 2 dp 2 zero 1 bf16 with latents", LATENT, 4, "'pp':2,'zero':1,'precision':'bf16'"},
};

static struct job job_of(size_t i, const char *dir, int stamp)
{
    struct job j = {.model = layouts[i].kind == LATENT
                                 ? world_parse(LATENTS)
                                 : world_model(layouts[i].kind == EXPERTS ? MOE : NULL),
                    .dir = dir,
                    .stamp = stamp};

    j.model.tied = layouts[i].kind == TIED;
    j.layout = world_layout(&j.model, layouts[i].world, layouts[i].keys);
    return j;
}

static void any_layout_reads_what_any_layout_wrote(void **state)
{
    char *dir = unit_folder("ckpt");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(layouts); i++) {
        AUTO_FREE char *own = mem_printf("%s/%zu", dir, i);
        struct job from = job_of(i, own, (int)i + 1);

        from.split_bytes = i % 2 ? 4096 : 0; /* many files every second time */
        if (world_run(layouts[i].world, job_save, &from))
            fail_msg("save under %s", layouts[i].what);
        for (size_t k = 0; k < ARRAY_LEN(layouts); k++) {
            struct job to = job_of(k, own, (int)i + 1);

            if (layouts[k].kind == layouts[i].kind && world_run(layouts[k].world, job_load, &to))
                fail_msg("written under %s, read under %s", layouts[i].what, layouts[k].what);
        }
    }
    file_remove_tree(dir, NULL);
    free(dir);
}

/* Elements that RANK of the layout KEYS of four ranks saves. */
static int64_t saved_of(const struct pl_model *model, const char *keys, int rank)
{
    struct pl_layout layout = world_layout(model, 4, keys);
    AUTO_FREE struct tr_part *part = NULL;
    struct tr_params t;
    size_t count;
    int64_t n = 0;

    params_make(&t, model, &layout, rank);
    part = tr_parts(&count, &t, &layout, true);
    for (size_t i = 0; i < count; i++)
        if (part[i].save)
            n += part[i].count;
    params_done(&t);
    return n;
}

/* But for the padding at the end of a bucket. */
static void replicas_share_the_work_of_a_save(void **state)
{
    static const char *const keys[] = {"'zero':1", "'zero':2,'precision':'bf16'", "'zero':3"};
    struct pl_model model = world_model(NULL);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        int64_t least = INT64_MAX, most = 0;

        for (int rank = 0; rank < 4; rank++) {
            int64_t n = saved_of(&model, keys[i], rank);

            least = n < least ? n : least;
            most = n > most ? n : most;
        }
        if (least < most - most / 10)
            fail_msg("%s: one rank saves %" PRId64 ", another %" PRId64, keys[i], most, least);
    }
}

/* ---- one rank from here on ----------------------------------------------- */

struct one {
    struct job job;
    struct tr_params t;
    struct tr_part *part;
    struct tr_ckpt_what what;
    char *dir;
};

static void one_begin(struct one *o, const char *moe)
{
    *o = (struct one){.dir = unit_folder("one")};
    o->job.model = world_model(moe);
    o->job.layout = world_layout(&o->job.model, 1, "");
    params_make(&o->t, &o->job.model, &o->job.layout, 0);
    o->what = (struct tr_ckpt_what){.model = &o->job.model, .state = true};
    o->what.part = o->part = tr_parts(&o->what.count, &o->t, &o->job.layout, true);
}

static void one_end(struct one *o)
{
    file_remove_tree(o->dir, NULL);
    free(o->dir);
    free(o->part);
    params_done(&o->t);
}

static char *one_save(struct one *o, int step, int keep)
{
    struct tr_ckpt_state state = {.step = step, .data = "licences", .loss = NAN};
    struct err e = {0};
    char *path = NULL;

    params_fill(&o->t, step);
    if (tr_ckpt_save(&path, NULL, o->dir, keep, &o->what, &state, &tr_team_alone, &e) < 0)
        fail_msg("%s", e.text);
    return path;
}

static int one_load(struct one *o, const char *path, struct err *e)
{
    struct tr_ckpt_state state;

    return tr_ckpt_load(&state, path, &o->what, &tr_team_alone, e);
}

static void newest_is_found_and_old_ones_are_retired(void **state)
{
    struct one o;
    struct err e = {0};

    (void)state;
    one_begin(&o, NULL);
    assert_int_equal(tr_ckpt_latest(&(char *){NULL}, o.dir, &e), -ENOENT);
    for (int step = 1; step <= 5; step++)
        free(one_save(&o, step * 10, 2));
    AUTO_FREE char *latest = NULL;
    AUTO_FREE char *kept = mem_printf("%s/step-00000040", o.dir),
                   *gone = mem_printf("%s/step-00000030", o.dir);
    assert_int_equal(tr_ckpt_latest(&latest, o.dir, &e), 0);
    assert_true(str_ends(latest, "/step-00000050"));
    assert_true(file_exists(kept));
    assert_false(file_exists(gone));
    one_end(&o);
}

static void a_step_may_be_saved_again(void **state)
{
    struct one o;
    struct err e = {0};
    AUTO_FREE char *first = NULL, *second = NULL;

    (void)state;
    one_begin(&o, NULL);
    first = one_save(&o, 3, 0);
    second = one_save(&o, 3, 0);
    assert_string_equal(first, second);
    params_fill(&o.t, 99);
    assert_int_equal(one_load(&o, second, &e), 0);
    assert_int_equal(params_wrong(&o.t, 3, true), 0);
    one_end(&o);
}

static void a_lost_pointer_does_not_lose_the_checkpoint(void **state)
{
    struct one o;
    struct err e = {0};
    AUTO_FREE char *path = NULL, *found = NULL, *pointer = NULL;

    (void)state;
    one_begin(&o, NULL);
    path = one_save(&o, 8, 0);
    pointer = mem_printf("%s/latest", o.dir);
    unlink(pointer);
    assert_int_equal(tr_ckpt_latest(&found, o.dir, &e), 0);
    assert_string_equal(found, path);
    one_end(&o);
}

static void flip(const char *path, off_t at)
{
    int fd = open(path, O_RDWR);
    unsigned char c;

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &c, 1, at), 1);
    c ^= 0x10;
    assert_int_equal(pwrite(fd, &c, 1, at), 1);
    close(fd);
}

static void a_flipped_bit_names_its_tensor(void **state)
{
    static const char *const names[] = {"model.embed_tokens.weight",
                                        "model.layers.2.self_attn.o_proj.weight",
                                        "model.layers.3.block_sparse_moe.experts.3.w2.weight"};
    struct one o;
    AUTO_FREE char *path = NULL;

    (void)state;
    one_begin(&o, MOE);
    path = one_save(&o, 1, 0);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        AUTO_FREE char *file = mem_printf("%s/model.safetensors", path);
        struct tr_st *s;
        struct err e = {0};
        off_t at;

        assert_int_equal(tr_st_open(&s, file, &e), 0);
        at = (off_t)(s->data_at + tr_st_find(s, names[i])->end - 1);
        tr_st_free(s);
        flip(file, at);
        assert_int_equal(one_load(&o, path, &e), -EBADMSG);
        if (!strstr(e.text, names[i]))
            fail_msg("%s is not named: %s", names[i], e.text);
        flip(file, at);
        assert_int_equal(one_load(&o, path, &e), 0);
    }
    one_end(&o);
}

static void damage_anywhere_is_refused(void **state)
{
    static const char *const files[] = {"model-00001-of-00002.safetensors",
                                        "optimizer-00002-of-00003.safetensors", "checksums.bin",
                                        "config.json", "model.safetensors.index.json"};
    struct one o;
    struct rng r;
    AUTO_FREE char *path = NULL;

    (void)state;
    rng_seed(&r, 11);
    one_begin(&o, NULL);
    o.what.split_bytes = 64 << 10;
    path = one_save(&o, 1, 0);
    for (size_t i = 0; i < ARRAY_LEN(files) * 40; i++) {
        AUTO_FREE char *file = mem_printf("%s/%s", path, files[i % ARRAY_LEN(files)]);
        struct stat st;
        struct err e = {0};
        off_t at;

        assert_int_equal(stat(file, &st), 0);
        at = (off_t)rng_below(&r, (uint64_t)st.st_size);
        flip(file, at);
        if (one_load(&o, path, &e) == 0)
            fail_msg("%s with a wrong byte %ld was accepted", file, (long)at);
        flip(file, at);
    }
    one_end(&o);
}

static void truncated_files_are_refused_by_name(void **state)
{
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors",
                                        "checksums.bin", "trainer.json"};
    struct one o;

    (void)state;
    one_begin(&o, NULL);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        AUTO_FREE char *path = one_save(&o, 1, 0), *file = mem_printf("%s/%s", path, files[i]);
        struct stat st;
        struct err e = {0};

        assert_int_equal(stat(file, &st), 0);
        assert_int_equal(truncate(file, st.st_size / 2), 0);
        assert_true(one_load(&o, path, &e) < 0);
        if (!strstr(e.text, files[i]))
            fail_msg("%s is not named: %s", files[i], e.text);
        unlink(file);
        assert_true(one_load(&o, path, &e) < 0);
    }
    one_end(&o);
}

/* ---- trainer.json -------------------------------------------------------- */

/* Replace FROM by TO in trainer.json of checkpoint PATH; returns the former text. */
static char *edit_state(const char *path, const char *from, const char *to)
{
    AUTO_FREE char *file = mem_printf("%s/trainer.json", path), *now = NULL;
    char *text = NULL, *at;
    struct err e = {0};

    assert_int_equal(file_read_all(&text, NULL, file, 1 << 20, &e), 0);
    at = strstr(text, from);
    if (!at)
        fail_msg("%s is not in %s", from, text);
    now = mem_printf("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    assert_int_equal(file_write_atomic(file, now, strlen(now), 0644, &e), 0);
    return text;
}

static void restore_state(const char *path, char *text)
{
    AUTO_FREE char *file = mem_printf("%s/trainer.json", path);
    struct err e = {0};

    assert_int_equal(file_write_atomic(file, text, strlen(text), 0644, &e), 0);
    free(text);
}

static void a_changed_key_of_the_state_is_named(void **state)
{
    static const struct {
        const char *from, *to, *key;
    } cases[] = {
        {"\"samples\": 12", "\"samples\": 52", "samples"},
        {"\"samples\": 12,", "", "samples"},
        {"\"samples\": 12", "\"sbmples\": 12", "samples"},
        {"\"step\": 3", "\"step\": 0", "step"},
        {"\"step\": 3", "\"step\": 3.0", "step"},
        {"\"seed\": 0", "\"seed\": 7", "seed"},
        {"\"lr_decay_steps\": 60", "\"lr_decay_steps\": 6", "lr_decay_steps"},
        {"\"lr_decay_style\": \"cosine\"", "\"lr_decay_style\": \"linear\"", "lr_decay_style"},
        {"\"data\": \"licences\"", "\"data\": \"synthetic\"", "data"},
        {"\"loss\": 2.", "\"loss\": 3.", "loss"},
        {"\"layers\": 4", "\"layers\": 5", "model"},
        {"\"model.safetensors\"", "\"model.safetensorz\"", "files"},
        {"\"v\": 2", "\"v\": 1", "v"},
        {"\"v\": 2", "\"v\": 9", "v"},
        {"\"step\": 3", "\"more\": 1, \"step\": 3", "more"},
        {"\"checksums_crc\":", "\"checksums_crd\":", "checksums_crc"},
    };
    struct one o;
    AUTO_FREE char *path = NULL;
    struct tr_ckpt_state s = {
        .step = 3, .samples = 12, .data = "licences", .loss = 2.25, .lr_decay_steps = 60};
    struct err e = {0};

    (void)state;
    one_begin(&o, NULL);
    params_fill(&o.t, 3);
    assert_int_equal(tr_ckpt_save(&path, NULL, o.dir, 0, &o.what, &s, &tr_team_alone, &e), 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *former = edit_state(path, cases[i].from, cases[i].to);
        AUTO_FREE char *named = mem_printf("key \"%s\"", cases[i].key);
        int r = one_load(&o, path, &e);

        if (r != -EBADMSG || !strstr(e.text, named) || !strstr(e.text, "trainer.json"))
            fail_msg("%s for %s: %d %s", cases[i].to, cases[i].from, r, e.text);
        restore_state(path, former);
        assert_int_equal(one_load(&o, path, &e), 0);
    }
    assert_int_equal(tr_ckpt_peek(&s, path, &o.job.model, PL_ADAMW, &e), 0);
    assert_int_equal(s.lr_decay_steps, 60);
    one_end(&o);
}

/* The window of skipped steps, to the last bit, and sealed; a checkpoint without one has none. */
static void the_window_of_losses_is_part_of_the_state(void **state)
{
    struct one o;
    AUTO_FREE char *path = NULL, *plain = NULL;
    static struct tr_ckpt_state s = {
        .step = 90, .data = "licences", .skip = {.sigma = 6, .interval = 64}};
    struct err e = {0};
    char *former;

    (void)state;
    one_begin(&o, NULL);
    params_fill(&o.t, 90);
    for (uint64_t i = 0; i < 80; i++)
        tr_skip_step(&s.skip, 3 + 1e-17 * (double)rng_mix(i), 1.0 / (1 + (double)i));
    assert_int_equal(s.skip.count, 65);
    s.skip.skipped = 2;
    assert_int_equal(tr_ckpt_save(&path, NULL, o.dir, 0, &o.what, &s, &tr_team_alone, &e), 0);
    static struct tr_ckpt_state got;
    assert_int_equal(tr_ckpt_peek(&got, path, &o.job.model, PL_ADAMW, &e), 0);
    assert_int_equal(got.skip.skipped, 2);
    assert_int_equal(got.skip.count, 65);
    assert_memory_equal(got.skip.loss, s.skip.loss, 65 * sizeof(double));
    assert_memory_equal(got.skip.norm, s.skip.norm, 65 * sizeof(double));
    former = edit_state(path, "\"skipped\": 2", "\"skipped\": 1");
    assert_int_equal(one_load(&o, path, &e), -EBADMSG);
    assert_non_null(strstr(e.text, "key \"skip_step\""));
    restore_state(path, former);
    plain = one_save(&o, 91, 0);
    assert_int_equal(tr_ckpt_peek(&got, plain, &o.job.model, PL_ADAMW, &e), 0);
    assert_true(got.skip.count == 0 && got.skip.skipped == 0);
    one_end(&o);
}

/* Any digit or letter of it: the seal covers its own sums, too. */
static void any_changed_character_of_the_state_is_noticed(void **state)
{
    struct one o;
    AUTO_FREE char *path = NULL, *file = NULL, *text = NULL;
    struct err e = {0};
    size_t n;

    (void)state;
    one_begin(&o, NULL);
    path = one_save(&o, 5, 0);
    file = mem_printf("%s/trainer.json", path);
    assert_int_equal(file_read_all(&text, &n, file, 1 << 20, &e), 0);
    for (size_t at = 0; at < n; at++) {
        char was = text[at];
        struct tr_ckpt_state s;

        if (was == ' ' || was == '\n')
            continue;
        text[at] = was == '1' ? '2' : was == '9' ? '8' : was >= '0' && was < '9' ? was + 1 : '_';
        if (text[at] == was)
            continue;
        assert_int_equal(file_write_atomic(file, text, n, 0644, &e), 0);
        if (tr_ckpt_peek(&s, path, &o.job.model, PL_ADAMW, &e) != -EBADMSG)
            fail_msg("character %zu, %c for %c, was not noticed: %s", at, text[at], was, e.text);
        text[at] = was;
    }
    one_end(&o);
}

/* As format 1 was: no seal, no sums of the small files. */
static void the_former_format_is_read_and_known(void **state)
{
    struct one o;
    AUTO_FREE char *path = NULL, *file = NULL;
    AUTO_JSON *v = NULL;
    struct tr_ckpt_state s = {.format = 0};
    struct err e = {0};

    (void)state;
    one_begin(&o, NULL);
    path = one_save(&o, 5, 0);
    file = mem_printf("%s/trainer.json", path);
    assert_int_equal(tr_ckpt_peek(&s, path, &o.job.model, PL_ADAMW, &e), 0);
    assert_int_equal(s.format, 2);
    assert_int_equal(jx_load(&v, file, 1 << 20, &e), 0);
    json_object_del(v, "sums");
    json_object_del(v, "sums_crc");
    AUTO_FREE char *unsealed = jx_dump(v);
    assert_int_equal(file_write_atomic(file, unsealed, strlen(unsealed), 0644, &e), 0);
    assert_int_equal(one_load(&o, path, &e), -EBADMSG);
    assert_non_null(strstr(e.text, "sums"));
    json_object_set_new(v, "v", json_integer(1));
    json_object_del(v, "small_files");
    json_object_del(v, "lr_decay_steps");
    AUTO_FREE char *former = jx_dump(v);
    assert_int_equal(file_write_atomic(file, former, strlen(former), 0644, &e), 0);
    assert_int_equal(tr_ckpt_load(&s, path, &o.what, &tr_team_alone, &e), 0);
    assert_int_equal(s.format, 1);
    assert_int_equal(s.step, 5);
    assert_int_equal(s.lr_decay_steps, 0);
    json_object_del(v, "samples"); /* it was always there */
    AUTO_FREE char *cut = jx_dump(v);
    assert_int_equal(file_write_atomic(file, cut, strlen(cut), 0644, &e), 0);
    assert_int_equal(one_load(&o, path, &e), -EBADMSG);
    assert_non_null(strstr(e.text, "samples"));
    one_end(&o);
}

static void another_model_is_refused_by_its_first_difference(void **state)
{
    struct one o;
    struct err e = {0};
    AUTO_FREE char *path = NULL;

    (void)state;
    one_begin(&o, NULL);
    path = one_save(&o, 1, 0);
    o.job.model.ffn = 48;
    assert_int_equal(one_load(&o, path, &e), -EINVAL);
    assert_non_null(strstr(e.text, "ffn 40"));
    assert_non_null(strstr(e.text, "48"));
    one_end(&o);
}

/* ---- Hugging Face folders ------------------------------------------------ */

static void hf_folder_round_trips(const char *moe, enum tr_dtype dtype, uint64_t split)
{
    struct one o;
    struct err e = {0};
    struct pl_model m;
    AUTO_FREE char *folder = NULL;

    one_begin(&o, moe);
    folder = mem_printf("%s/a folder", o.dir);
    o.what.split_bytes = split;
    params_fill(&o.t, 5);
    if (tr_hf_save(folder, dtype, &o.what, &tr_team_alone, &e) < 0)
        fail_msg("%s", e.text);
    if (tr_hf_model_load(&m, folder, &e) < 0)
        fail_msg("%s", e.text);
    /* The file has Hugging Face's load-balancing loss, at the coefficient that presses as hard. */
    o.job.model.moe.aux_loss_coef = pl_aux_loss_coef(&o.job.model, PL_AUX_HUGGINGFACE);
    o.job.model.moe.aux_loss = PL_AUX_HUGGINGFACE;
    AUTO_JSON *a = pl_model_json(&m), *b = pl_model_json(&o.job.model);
    json_object_del(a, "name");
    json_object_del(b, "name");
    if (moe) { /* Mixtral has one width; a dense ffn means nothing in a model of experts only */
        json_object_del(a, "ffn");
        json_object_del(b, "ffn");
    }
    AUTO_FREE char *at = jx_dump(a), *bt = jx_dump(b);
    assert_string_equal(at, bt);
    params_fill(&o.t, 6);
    if (tr_hf_load(folder, &o.what, &tr_team_alone, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(params_wrong(&o.t, 5, false), 0);
    one_end(&o);
}

static void hf_folders_round_trip(void **state)
{
    (void)state;
    hf_folder_round_trips(NULL, TR_F32, 0);
    hf_folder_round_trips(NULL, TR_BF16, 2000);
    hf_folder_round_trips(NULL, TR_F16, 0);
    hf_folder_round_trips(MOE, TR_F32, 3000);
    hf_folder_round_trips(MOE, TR_BF16, 0);
}

/* Hugging Face leaves the output projection out of a folder that shares the embedding; older files
 * have a copy of it, which is not read. */
static void a_tied_folder_has_no_output_projection(void **state)
{
    struct one o;
    struct err e = {0};
    struct pl_model m;
    struct tr_st *s;
    AUTO_FREE char *folder = NULL, *file = NULL, *config = NULL, *text = NULL;

    (void)state;
    one_begin(&o, NULL);
    folder = mem_printf("%s/tied", o.dir);
    file = mem_printf("%s/model.safetensors", folder);
    config = mem_printf("%s/config.json", folder);
    params_fill(&o.t, 5);
    assert_int_equal(tr_hf_save(folder, TR_F32, &o.what, &tr_team_alone, &e), 0);
    assert_int_equal(file_read_all(&text, NULL, config, 1 << 16, &e), 0);
    AUTO_JSON *v = unit_json(text);
    json_object_set_new(v, "tie_word_embeddings", json_true());
    AUTO_FREE char *now = jx_dump(v);
    assert_int_equal(file_write_atomic(config, now, strlen(now), 0600, &e), 0);
    assert_int_equal(tr_hf_model_load(&m, folder, &e), 0);
    assert_true(m.tied);
    free(o.part);
    params_done(&o.t);
    o.job.model.tied = true;
    params_make(&o.t, &o.job.model, &o.job.layout, 0);
    o.what.part = o.part = tr_parts(&o.what.count, &o.t, &o.job.layout, true);
    if (tr_hf_load(folder, &o.what, &tr_team_alone, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(params_wrong(&o.t, 5, false), 0);
    assert_int_equal(tr_hf_save(folder, TR_F32, &o.what, &tr_team_alone, &e), 0);
    assert_int_equal(tr_st_open(&s, file, &e), 0);
    assert_null(tr_st_find(s, "lm_head.weight"));
    assert_non_null(tr_st_find(s, "model.embed_tokens.weight"));
    tr_st_free(s);
    one_end(&o);
}

static void a_model_without_a_class_is_refused_by_key(void **state)
{
    static const struct {
        const char *moe, *key;
    } cases[] = {
        {"{'experts':4,'top_k':2,'expert_ffn':20,'shared_ffn':8}", "shared_ffn"},
        {"{'experts':4,'top_k':2,'expert_ffn':20,'every':2}", "every"},
        {"{'experts':4,'top_k':2,'expert_ffn':20,'dense_layers':1}", "dense_layers"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct one o;
        struct err e = {0};
        AUTO_FREE char *folder = NULL;

        one_begin(&o, cases[i].moe);
        folder = mem_printf("%s/hf", o.dir);
        assert_int_equal(tr_hf_save(folder, TR_F32, &o.what, &tr_team_alone, &e), -ENOTSUP);
        assert_non_null(strstr(e.text, cases[i].key));
        assert_false(file_exists(folder));
        one_end(&o);
    }
}

#define SHAPE                                                                                      \
    "'hidden_size':64,'num_hidden_layers':2,'num_attention_heads':4,'intermediate_size':8,"        \
    "'num_key_value_heads':2,'vocab_size':50"

static void other_peoples_configurations(void **state)
{
    static const struct {
        const char *config, *wrong; /* NULL: accepted */
    } cases[] = {
        {"{'model_type':'llama','hidden_size':64,'num_hidden_layers':2,'num_attention_heads':4,'"
         "intermediate_size':9,"
         "'vocab_size':50,'rope_parameters':{'rope_theta':5e5,'rope_type':'default'},'bos_token_id'"
         ":1}",
         NULL},
        {"{'model_type':'glm4_moe'," SHAPE ",'num_experts':4}", "model_type"},
        {"{'model_type':'gpt_neox','hidden_act':'silu'," SHAPE "}", "hidden_act"},
        {"{'model_type':'gpt-2'}", "model_type"},
        {"{'hidden_size':64}", "model_type"},
        {"{'model_type':'llama'," SHAPE ",'hidden_act':'gelu'}", "mlp"},
        {"{'model_type':'llama'," SHAPE ",'rope_scaling':{'type':'yarn','factor':2,"
         "'original_max_position_embeddings':64,'truncate':3}}",
         "rope_scaling/truncate"},
        {"{'model_type':'llama'," SHAPE ",'rope_parameters':{'rope_type':'dynamic'}}",
         "rope_parameters"},
        {"{'model_type':'llama'," SHAPE ",'residual_multiplier':2}", "residual_multiplier"},
        {"{'model_type':'qwen2'," SHAPE ",'use_sliding_window':true,'sliding_window':128,"
         "'max_position_embeddings':4096,'layer_types':['full_attention','sliding_attention']}",
         "layer_types"},
        {"{'model_type':'llama','hidden_size':64,'num_hidden_layers':2,'num_attention_heads':4,"
         "'intermediate_size':9}",
         "vocab"},
        {"[]", "object"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_JSON *v = unit_json(cases[i].config);
        struct pl_model m = {.layers = 0};
        struct err e = {0};
        int r = tr_hf_model(&m, v, &e);

        if (!cases[i].wrong) {
            assert_int_equal(r, 0);
            assert_true(m.rope_theta == 5e5 && m.norm_eps == 1e-6 && m.kv_heads == 4 &&
                        m.seq == 2048);
        } else if (r == 0 ||
                   (!strstr(e.text, cases[i].wrong) && !strstr(e.pointer, cases[i].wrong))) {
            fail_msg("%s: %d %s %s", cases[i].config, r, e.pointer, e.text);
        }
    }
}

/* Megatron's 0.006 in 3 layers with top_k 2 is Hugging Face's 0.009. */
static void a_folders_coefficient_is_hugging_faces(void **state)
{
    static const struct {
        const char *aux_loss;
        double want;
    } rows[] = {{"sequence", 0.006}, {"huggingface", 0.006}, {"megatron", 0.009}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO_JSON *v =
            unit_json("{'layers':3,'hidden':8,'vocab':9,'seq':8,'heads':2,'moe':{'experts':4,"
                      "'top_k':2,'expert_ffn':8,'aux_loss_coef':0.006}}");
        AUTO_JSON *config = NULL;
        struct pl_model m, back;
        struct err e = {0};

        json_object_set_new(json_object_get(v, "moe"), "aux_loss", json_string(rows[i].aux_loss));
        assert_int_equal(pl_model_parse(&m, v, &e), 0);
        assert_int_equal(tr_hf_config(&config, &m, &e), 0);
        assert_float_equal(json_number_value(json_object_get(config, "router_aux_loss_coef")),
                           rows[i].want, 1e-12);
        assert_int_equal(tr_hf_model(&back, config, &e), 0);
        assert_int_equal(back.moe.aux_loss, PL_AUX_HUGGINGFACE);
        assert_float_equal(pl_aux_loss_coef(&back, m.moe.aux_loss), 0.006, 1e-12);
    }
}

static void a_foreign_folder_is_not_replaced(void **state)
{
    struct one o;
    struct err e = {0};

    (void)state;
    one_begin(&o, NULL);
    assert_int_equal(tr_hf_save(o.dir, TR_F32, &o.what, &tr_team_alone, &e), -EEXIST);
    assert_int_equal(tr_hf_check_dir(o.dir, &e), -EEXIST);
    one_end(&o);
}

/* A checkpoint is a Hugging Face directory, too, and a model's directory may hold checkpoints. */
static void weights_do_not_replace_checkpoints(void **state)
{
    struct one o;
    struct err e = {0};
    AUTO_FREE char *model = NULL, *inside = NULL, *step = NULL;

    (void)state;
    one_begin(&o, NULL);
    model = mem_printf("%s/model", o.dir);
    inside = mem_printf("%s/model/checkpoints", o.dir);
    step = one_save(&o, 4, 0);
    assert_int_equal(tr_hf_check_dir(step, &e), -EEXIST);
    assert_non_null(strstr(e.text, "is a checkpoint"));
    assert_int_equal(tr_hf_save(step, TR_F32, &o.what, &tr_team_alone, &e), -EEXIST);
    assert_int_equal(one_load(&o, step, &e), 0);

    assert_int_equal(tr_hf_save(model, TR_F32, &o.what, &tr_team_alone, &e), 0);
    assert_int_equal(file_mkdirs(inside, 0755, &e), 0);
    assert_int_equal(tr_hf_check_dir(model, &e), -EEXIST);
    assert_non_null(strstr(e.text, "checkpoints, which would be lost"));
    assert_int_equal(tr_hf_save(model, TR_F32, &o.what, &tr_team_alone, &e), -EEXIST);
    assert_true(file_exists(inside));
    one_end(&o);
}

/* As a shell completes the name of a folder. */
static void a_slash_at_the_end_is_the_same_folder(void **state)
{
    struct one o;
    struct err e = {0};
    AUTO_FREE char *folder = NULL, *file = NULL, *inside = NULL;

    (void)state;
    one_begin(&o, NULL);
    folder = mem_printf("%s/model//", o.dir);
    file = mem_printf("%s/model/model.safetensors", o.dir);
    inside = mem_printf("%s/model/.saving", o.dir);
    for (int i = 0; i < 2; i++) {
        params_fill(&o.t, 5 + i);
        assert_int_equal(tr_hf_check_dir(folder, &e), 0);
        if (tr_hf_save(folder, TR_F32, &o.what, &tr_team_alone, &e) < 0)
            fail_msg("%s", e.text);
        assert_true(file_exists(file));
        assert_false(file_exists(inside));
    }
    params_fill(&o.t, 9);
    assert_int_equal(tr_hf_load(folder, &o.what, &tr_team_alone, &e), 0);
    assert_int_equal(params_wrong(&o.t, 6, false), 0);
    one_end(&o);
}

static void an_unwritable_folder_is_known_before_training(void **state)
{
    struct one o;
    struct err e = {0};
    AUTO_FREE char *file = NULL, *below = NULL, *deep = NULL;

    (void)state;
    one_begin(&o, NULL);
    file = mem_printf("%s/file", o.dir);
    below = mem_printf("%s/file/x", o.dir);
    deep = mem_printf("%s/a/b/c", o.dir);
    assert_int_equal(file_write_atomic(file, "", 0, 0600, &e), 0);
    assert_true(tr_ckpt_check_dir(file, &e) < 0);
    assert_true(tr_ckpt_check_dir(below, &e) < 0);
    assert_true(tr_hf_check_dir(below, &e) < 0);
    assert_non_null(strstr(e.text, file));
    assert_int_equal(tr_hf_check_dir(deep, &e), 0);
    assert_false(file_exists(deep)); /* the folder itself appears with its contents */
    assert_int_equal(tr_ckpt_check_dir(deep, &e), 0);
    assert_true(file_exists(deep));
    one_end(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_layout_reads_what_any_layout_wrote),
        cmocka_unit_test(replicas_share_the_work_of_a_save),
        cmocka_unit_test(newest_is_found_and_old_ones_are_retired),
        cmocka_unit_test(a_step_may_be_saved_again),
        cmocka_unit_test(a_lost_pointer_does_not_lose_the_checkpoint),
        cmocka_unit_test(a_flipped_bit_names_its_tensor),
        cmocka_unit_test(damage_anywhere_is_refused),
        cmocka_unit_test(truncated_files_are_refused_by_name),
        cmocka_unit_test(a_changed_key_of_the_state_is_named),
        cmocka_unit_test(the_window_of_losses_is_part_of_the_state),
        cmocka_unit_test(any_changed_character_of_the_state_is_noticed),
        cmocka_unit_test(the_former_format_is_read_and_known),
        cmocka_unit_test(another_model_is_refused_by_its_first_difference),
        cmocka_unit_test(hf_folders_round_trip),
        cmocka_unit_test(a_tied_folder_has_no_output_projection),
        cmocka_unit_test(a_model_without_a_class_is_refused_by_key),
        cmocka_unit_test(other_peoples_configurations),
        cmocka_unit_test(a_folders_coefficient_is_hugging_faces),
        cmocka_unit_test(a_foreign_folder_is_not_replaced),
        cmocka_unit_test(weights_do_not_replace_checkpoints),
        cmocka_unit_test(a_slash_at_the_end_is_the_same_folder),
        cmocka_unit_test(an_unwritable_folder_is_known_before_training),
    };

    return cmocka_run_group_tests_name("checkpoint", tests, NULL, NULL);
}
