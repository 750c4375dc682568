/*
 * The model is the one it says: logits, losses and every gradient of tiny models of each family, of
 * Mixtral under every load-balancing loss, and of samples of several documents, against PyTorch in
 * fp64 (tests/golden/make_golden.py), with weights read from a Hugging Face folder.
 *
 * Tolerance. The golden file carries for each tensor how far it moves when every weight changes by
 * at most one unit in its last place. A backward-stable evaluation in fp32 is the exact result of
 * weights that are off by some such units: one for each rounding on the way from a weight to the
 * output. The chains here are at most about 40 operations deep, with errors of random sign, so
 * sqrt(40) units; allowed are 8, and one unit in the last place of the largest element for the
 * rounding of the result itself. A wrong formula is off by a thousand times more; that the
 * tolerance stays below 1e-4 of the largest element is checked too.
 */
#include <math.h>

#include "base/base.h"
#include "trainer/hf.h"
#include "trainer/hf_names.h"
#include "trainer/parts.h"
#include "trainer/safetensors.h"
#include "trainer/step.h"

enum { FACTOR = 8 };

static int number, failures;

static void say(bool good, const char *name, const char *what, const char *detail)
{
    number++;
    failures += !good;
    printf("%sok %d - %s: %s%s%s\n", good ? "" : "not ", number, name, what, *detail ? " # " : "",
           detail);
    fflush(stdout);
}

static void die(const char *why)
{
    printf("Bail out! %s\n", why);
    exit(99);
}

/* A tensor of the golden file. Caller frees. */
static float *read_tensor(const struct tr_st *g, const char *name, size_t *ret_n)
{
    const struct tr_st_tensor *t = tr_st_find(g, name);
    struct err e = {0};
    float *x;

    if (!t)
        die(name);
    *ret_n = (size_t)tr_st_elements(t);
    x = mem_alloc(*ret_n * sizeof(*x));
    if (tr_st_read(x, g, t, 0, *ret_n, &e) < 0)
        die(e.text);
    return x;
}

static double largest_of(const float *x, size_t n)
{
    double largest = 0;

    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)x[i]));
    return largest;
}

/* The N numbers GOT against WANT, of a tensor whose largest is LARGEST and which moves by NOISE;
 * returns the worst error as a share of what is allowed. */
static double judge(const float *want, double largest, float noise, const float *got, size_t n)
{
    double worst = 0, allowed;

    allowed = FACTOR * (double)noise + largest * 0x1p-23;
    for (size_t i = 0; i < n; i++) {
        double error = fabs((double)got[i] - (double)want[i]);

        if (!(error <= worst))
            worst = error; /* NaN is worst, and stays */
    }
    if (!(allowed <= 1e-4 * largest))
        return INFINITY;
    return isnan(worst) ? INFINITY : worst / allowed;
}

/* The same against tensor NAME. */
static double compare(const struct tr_st *g, const char *name, const float *got, size_t n)
{
    AUTO_FREE char *noise_name = mem_printf("noise.%s", name);
    size_t want_n, one;
    AUTO_FREE float *want = read_tensor(g, name, &want_n),
                    *noise = read_tensor(g, noise_name, &one);

    if (want_n != n)
        die(name);
    return judge(want, largest_of(want, n), *noise, got, n);
}

/* The gradient GOT of P, which a run on one rank has whole, against the folder's tensor. */
static double compare_gradient(const struct tr_rank *r, const struct tr_st *g,
                               const struct pl_param *p, const float *got)
{
    enum tr_hf_family family;
    struct tr_hf_place place;
    struct err e = {0};

    if (tr_hf_family_of(&family, &r->model, &e) < 0)
        die(e.text);
    tr_hf_place(&place, family, &r->model, p);

    AUTO_FREE char *name = mem_printf("grad.%s", place.name),
                   *noise_name = mem_printf("noise.%s", name);
    size_t n, one;
    AUTO_FREE float *all = read_tensor(g, name, &n), *noise = read_tensor(g, noise_name, &one),
                    *want = mem_alloc(p->count * sizeof(*want));

    for (uint64_t i = 0; i < p->count; i++) {
        uint64_t row = i / p->shape[1], column = i % p->shape[1];

        row = tr_hf_place_row(&place, row);
        want[i] = all[place.transposed ? (place.across + column) * place.shape[1] + row
                                       : row * place.shape[1] + column];
    }
    return judge(want, largest_of(all, n), *noise, got, p->count);
}

static void check(const struct tr_st *g, const char *name, const char *what, const float *got,
                  size_t n)
{
    double worst = compare(g, what, got, n);
    char text[64];

    snprintf(text, sizeof(text), "%.2f of what is allowed", worst);
    say(worst <= 1, name, what, text);
}

static void put_samples(struct tr_rank *r, const float *ids)
{
    int T = r->workload.seq;

    for (int mb = 0; mb < r->d.microbatches; mb++)
        for (int k = 0; k < r->layout.micro_batch; k++) {
            uint64_t s = tr_sample_index(r, mb, k);

            for (int i = 0; i <= T; i++)
                r->work.sample[i] = (int32_t)ids[s * (uint64_t)(T + 1) + (uint64_t)i];
            tr_sample_put(r, mb, k, r->work.sample);
        }
}

static void check_logits(struct tr_rank *r, const struct tr_st *g, const char *name)
{
    size_t rows = (size_t)r->layout.micro_batch * (size_t)r->workload.seq,
           V = (size_t)r->model.vocab;
    AUTO_FREE float *logits = mem_alloc((size_t)r->d.microbatches * rows * V * sizeof(float));

    for (int mb = 0; mb < r->d.microbatches; mb++)
        tr_step_logits(logits + (size_t)mb * rows * V, r, mb);
    check(g, name, "logits", logits, (size_t)r->d.microbatches * rows * V);
}

static void check_gradients(struct tr_rank *r, const struct tr_st *g, const char *name)
{
    double worst = 0;
    char text[200] = "";

    for (int i = 0; i < r->params.table.n; i++) {
        const struct pl_param *p = &r->params.table.p[i];
        double x = compare_gradient(r, g, p, tr_param_grad(&r->params, i));

        if (!(x <= worst)) {
            worst = x;
            snprintf(text, sizeof(text), "worst of %d is %s: %.2f of what is allowed",
                     r->params.table.n, p->name, x);
        }
    }
    say(worst <= 1, name, "every gradient", text);
}

static void load_weights(struct tr_rank *r, const char *folder)
{
    struct tr_ckpt_what what = {.model = &r->model};
    AUTO_FREE struct tr_part *part = NULL;
    struct err e = {0};

    what.part = part = tr_parts(&what.count, &r->params, &r->layout, false);
    if (tr_hf_load(folder, &what, &tr_team_alone, &e) < 0)
        die(e.text);
}

static void read_documents(struct pl_workload *workload, const struct tr_st *g)
{
    AUTO_FREE float *how = NULL;
    size_t n;

    if (!tr_st_find(g, "documents"))
        return;
    how = read_tensor(g, "documents", &n);
    if (n != 4)
        die("documents");
    workload->eod = (int)how[0];
    workload->reset_attention_mask = how[1] > 0;
    workload->reset_position_ids = how[2] > 0;
    workload->eod_mask_loss = how[3] > 0;
}

/* One rank that has the model of FOLDER with load-balancing loss AUX, its samples set, in one
 * micro-batch where AUX pools that; G is the golden file with them. */
static void begin(struct tr_rank *r, const struct tr_st *g, const char *folder,
                  enum pl_aux_loss aux, const char *recompute)
{
    AUTO_FREE float *ids = NULL;
    AUTO_JSON *layout = NULL;
    struct pl_workload w = {.data = "synthetic"};
    struct pl_model m;
    struct pl_layout l;
    struct pl_cluster c;
    struct pl_problem problem = {&m, &c, &w, pl_trainer_find("partune")};
    enum pl_mem_class cls;
    struct err e = {0};
    double asked;
    size_t n;

    if (tr_hf_model_load(&m, folder, &e) < 0)
        die(e.text);
    m.moe.aux_loss = aux;
    ids = read_tensor(g, "input_ids", &n);
    w.seq = (int)tr_st_find(g, "input_ids")->shape[1] - 1;
    w.global_batch = (int)tr_st_find(g, "input_ids")->shape[0];
    read_documents(&w, g);
    pl_cluster_here(&c);
    layout = json_pack("{s:i, s:s, s:i}", "world", 1, "recompute", recompute, "micro_batch",
                       aux == PL_AUX_SEQUENCE ? 1 : w.global_batch);
    if (pl_layout_parse(&l, layout, &problem, &e) < 0 ||
        tr_rank_init(&cls, &asked, r, MPI_COMM_SELF, &m, &l, &w, UINT64_MAX, die, &e) < 0)
        die(e.text);
    put_samples(r, ids);
}

/* KIND: "" or ".megatron". */
static struct tr_st *open_golden(const char *folder, const char *kind)
{
    AUTO_FREE char *file = mem_printf("%s/golden%s.safetensors", folder, kind);
    struct tr_st *g = NULL;
    struct err e = {0};

    if (tr_st_open(&g, file, &e) < 0)
        die(e.text);
    return g;
}

static void run(const char *name, const char *recompute)
{
    AUTO_FREE char *folder = mem_printf("%s/tests/data/golden/%s", getenv("PT_SRC"), name);
    AUTO_FREE char *label = mem_printf("%s, recompute %s", name, recompute);
    AUTO(tr_st) *g = open_golden(folder, "");
    struct tr_rank r;
    struct tr_result t;
    float x;

    begin(&r, g, folder, PL_AUX_SEQUENCE, recompute);
    load_weights(&r, folder);
    tr_step_grads(&t, &r, 0);
    x = (float)t.loss;
    check(g, label, "loss", &x, 1);
    if (pl_model_is_moe(&r.model)) {
        x = (float)t.aux;
        check(g, label, "aux_loss", &x, 1);
    }
    if (r.model.mtp) {
        x = (float)t.mtp;
        check(g, label, "mtp_loss", &x, 1);
    }
    check_gradients(&r, g, label);
    check_logits(&r, g, label);
    tr_rank_done(&r);
}

/* The load-balancing losses of others. */
static void run_aux(const char *name, enum pl_aux_loss aux, const char *recompute)
{
    AUTO_FREE char *folder = mem_printf("%s/tests/data/golden/%s", getenv("PT_SRC"), name);
    AUTO_FREE char *label =
        mem_printf("%s as %s, recompute %s", name, pl_aux_loss_names[aux], recompute);
    AUTO_FREE char *kind = mem_printf(".%s", pl_aux_loss_names[aux]);
    AUTO(tr_st) *samples = open_golden(folder, "");
    AUTO(tr_st) *g = open_golden(folder, kind);
    struct tr_rank r;
    struct tr_result t;
    float x;

    begin(&r, samples, folder, aux, recompute);
    load_weights(&r, folder);
    tr_step_grads(&t, &r, 0);
    x = (float)t.loss;
    check(g, label, "loss", &x, 1);
    x = (float)t.aux;
    check(g, label, "aux_loss", &x, 1);
    check_gradients(&r, g, label);
    tr_rank_done(&r);
}

/* The z-losses of the output and of routers, with the coefficients of make_golden.py. */
static void run_z(const char *name, const char *recompute)
{
    AUTO_FREE char *folder = mem_printf("%s/tests/data/golden/%s", getenv("PT_SRC"), name);
    AUTO_FREE char *label = mem_printf("%s with z-losses, recompute %s", name, recompute);
    AUTO(tr_st) *samples = open_golden(folder, "");
    AUTO(tr_st) *g = open_golden(folder, ".z");
    struct tr_rank r;
    struct tr_result t;
    float x;

    begin(&r, samples, folder, PL_AUX_SEQUENCE, recompute);
    r.z_loss_coef = 0.125;
    r.model.moe.z_loss_coef = 0.25;
    load_weights(&r, folder);
    tr_step_grads(&t, &r, 0);
    x = (float)t.loss;
    check(g, label, "loss", &x, 1);
    x = (float)t.z;
    check(g, label, "z_loss", &x, 1);
    if (pl_model_is_moe(&r.model)) {
        x = (float)t.moe_z;
        check(g, label, "moe_z_loss", &x, 1);
    }
    check_gradients(&r, g, label);
    tr_rank_done(&r);
}

/* FOLDER/logits.safetensors: the samples, our logits of them, and the loss of multi-token
 * prediction. */
static void write_logits(struct tr_rank *r, const struct tr_st *g, const char *folder, float mtp)
{
    AUTO_FREE char *path = mem_printf("%s/logits.safetensors", folder);
    AUTO(tr_st) *out = tr_st_new(path, NULL);
    int64_t N = r->workload.global_batch, T = r->workload.seq, V = r->model.vocab;
    size_t n, each = (size_t)r->layout.micro_batch * (size_t)T * (size_t)V;
    AUTO_FREE float *ids = read_tensor(g, "input_ids", &n),
                    *logits = mem_alloc(each * sizeof(float));
    struct err e = {0};

    tr_st_add(out, "input_ids", TR_F32, 2, (int64_t[]){N, T + 1});
    tr_st_add(out, "logits", TR_F32, 3, (int64_t[]){N, T, V});
    tr_st_add(out, "mtp_loss", TR_F32, 1, (int64_t[]){1});
    if (tr_st_create(out, &e) < 0 || tr_st_write(out, &out->tensor[0], 0, n, ids, &e) < 0 ||
        tr_st_write(out, &out->tensor[2], 0, 1, &mtp, &e) < 0)
        die(e.text);
    for (int mb = 0; mb < r->d.microbatches; mb++) {
        tr_step_logits(logits, r, mb);
        if (tr_st_write(out, &out->tensor[1], (uint64_t)mb * each, each, logits, &e) < 0)
            die(e.text);
    }
}

/* Save fresh weights as a Hugging Face folder with our logits, for read_hf.py. */
static void save(const char *name, const char *parent)
{
    AUTO_FREE char *source = mem_printf("%s/tests/data/golden/%s", getenv("PT_SRC"), name);
    AUTO_FREE char *folder = mem_printf("%s/%s", parent, name);
    AUTO(tr_st) *g = open_golden(source, "");
    AUTO_FREE struct tr_part *part = NULL;
    struct tr_ckpt_what what = {.split_bytes = 20000};
    struct tr_rank r;
    struct tr_result t;
    struct err e = {0};

    begin(&r, g, source, PL_AUX_SEQUENCE, "none");
    tr_params_init(&r.params, &r.model, 77);
    tr_step_grads(&t, &r, 0);
    what.model = &r.model;
    what.part = part = tr_parts(&what.count, &r.params, &r.layout, false);
    if (tr_hf_save(folder, TR_F32, &what, &tr_team_alone, &e) < 0)
        die(e.text);
    write_logits(&r, g, folder, (float)t.mtp);
    tr_rank_done(&r);
}

int main(int argc, char **argv)
{
    static const char *const cases[] = {
        "llama",           "llama-mha",   "llama-tied",    "llama-3.1",      "mistral",
        "mixtral",         "mixtral-one", "qwen2-moe",     "qwen3-moe",      "qwen2",
        "qwen2-window",    "qwen2-yarn",  "deepseek-v2",   "deepseek-v3",    "qwen3",
        "qwen3-linear",    "gpt2",        "neox",          "neox-yarn",      "neox-serial",
        "gemma2",          "gemma3",      "llama-packed",  "mistral-packed", "gpt2-packed",
        "deepseek-v3-mtp", "nemotron",    "nemotron-tied", "olmoe",          "gpt-oss",
        "olmo2",           "olmo3",       "smollm3",       "exaone4",        "granite",
        "granite-moe",     "cohere",      "cohere2"};

    MPI_Init(&argc, &argv);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        if (argc == 3 && str_eq(argv[1], "--save")) {
            if (!str_ends(cases[i], "-packed")) /* which readers of folders do not know */
                save(cases[i], argv[2]);
            continue;
        }
        run(cases[i], "none");
        run(cases[i], "full");
        if (str_eq(cases[i], "llama-packed"))
            run_z(cases[i], "none");
        if (!str_eq(cases[i], "mixtral"))
            continue;
        run_z(cases[i], "full");
        run_aux(cases[i], PL_AUX_HUGGINGFACE, "none");
        run_aux(cases[i], PL_AUX_MEGATRON, "full");
    }
    if (number)
        printf("1..%d\n", number);
    MPI_Finalize();
    return failures != 0;
}
