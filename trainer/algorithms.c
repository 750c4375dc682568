#include "trainer/algorithms.h"

#include <errno.h>
#include <mpi.h>

#include "trainer/backend.h"
#include "trainer/start.h"

enum { FILE_MAX = 4 << 20, HEX = 16 * KN_ALGO_WORDS };

static int used;

int tr_algorithms_used(void)
{
    return used;
}

/* ---- to the profile ------------------------------------------------------- */

static const char *const types[] = {"fp32", "bf16", NULL}; /* enum kn_type */

static json_t *product_json(const struct tr_product *product)
{
    const struct kn_product *p = &product->algo.product;
    char op[] = {p->ta ? 'T' : 'N', p->tb ? 'T' : 'N', '\0'}, words[HEX + 1];

    for (int i = 0; i < KN_ALGO_WORDS; i++)
        snprintf(words + (ptrdiff_t)16 * i, sizeof(words) - 16 * (size_t)i, "%016llx",
                 (unsigned long long)product->algo.word[i]);
    return json_pack("{s:[I, I, I], s:[I, I, I], s:s, s:b, s:[s, s, s], s:s, s:i, s:i, s:f, s:f}",
                     "mnk", (json_int_t)p->m, (json_int_t)p->n, (json_int_t)p->k, "ld",
                     (json_int_t)p->lda, (json_int_t)p->ldb, (json_int_t)p->ldc, "op", op, "add",
                     (int)p->add, "types", types[p->at], types[p->bt], types[p->ct], "words", words,
                     "number", product->algo_number, "tried", product->tried, "tflops",
                     product->algo_flops * 1e-12, "heuristic_tflops", product->first_flops * 1e-12);
}

json_t *tr_algorithms_json(const struct tr_gpu_rates *rates)
{
    json_t *list = json_array();

    for (int i = 0; i < rates->products; i++)
        if (rates->product[i].tried)
            json_array_append_new(list, product_json(&rates->product[i]));
    if (json_array_size(list))
        return json_pack("{s:s, s:o}", "library", kn_gemm_library(), "products", list);
    json_decref(list);
    return NULL;
}

/* ---- and back -------------------------------------------------------------- */

static int sizes(uint64_t ret[3], const json_t *json, const char *key, struct err *error)
{
    const json_t *list = json_object_get(json, key);

    for (size_t i = 0; i < 3; i++) {
        json_int_t n = json_integer_value(json_array_get(list, i));

        if (n < 1)
            return err_at(error, -EINVAL, key, "\"%s\" must be three positive numbers", key);
        ret[i] = (uint64_t)n;
    }
    return 0;
}

static int type_at(uint8_t *ret, const json_t *json, size_t index, struct err *error)
{
    const char *word = json_string_value(json_array_get(json_object_get(json, "types"), index));

    for (uint8_t i = 0; types[i]; i++)
        if (str_eq(word, types[i])) {
            *ret = i;
            return 0;
        }
    return err_at(error, -EINVAL, "types", "\"types\" must be three of fp32 and bf16");
}

static int words(uint64_t ret[KN_ALGO_WORDS], const json_t *json, struct err *error)
{
    const char *text = json_string_value(json_object_get(json, "words"));

    if (!text || strlen(text) != HEX || strspn(text, "0123456789abcdef") != HEX)
        return err_at(error, -EINVAL, "words", "\"words\" must be %d hexadecimal digits", HEX);
    for (int i = 0; i < KN_ALGO_WORDS; i++) {
        char one[17] = "";

        memcpy(one, text + (ptrdiff_t)16 * i, 16);
        ret[i] = strtoull(one, NULL, 16);
    }
    return 0;
}

static int read_product(struct kn_algo *ret, const json_t *json, struct err *error)
{
    const char *op = json_string_value(json_object_get(json, "op"));
    struct kn_product *p = &ret->product;
    uint64_t mnk[3], ld[3];
    int r;

    memset(ret, 0, sizeof(*ret)); /* products are compared byte by byte */
    if ((r = sizes(mnk, json, "mnk", error)) < 0 || (r = sizes(ld, json, "ld", error)) < 0 ||
        (r = type_at(&p->at, json, 0, error)) < 0 || (r = type_at(&p->bt, json, 1, error)) < 0 ||
        (r = type_at(&p->ct, json, 2, error)) < 0 || (r = words(ret->word, json, error)) < 0)
        return r;
    if (!op || strlen(op) != 2 || strspn(op, "NT") != 2)
        return err_at(error, -EINVAL, "op", "\"op\" must be NN, NT, TN or TT");
    p->m = mnk[0];
    p->n = mnk[1];
    p->k = mnk[2];
    p->lda = ld[0];
    p->ldb = ld[1];
    p->ldc = ld[2];
    p->ta = op[0] == 'T';
    p->tb = op[1] == 'T';
    p->add = json_is_true(json_object_get(json, "add"));
    return 0;
}

/* Were the algorithms of STAMP chosen for this library on this kind of GPU? */
static int check_origin(const json_t *stamp, struct err *error)
{
    const char *gpu = json_string_value(json_object_get(stamp, "gpu"));
    const char *library =
        json_string_value(json_object_get(json_object_get(stamp, "algorithms"), "library"));

    if (!str_eq(gpu, tr_backend_device()))
        return err_set(error, -ESTALE, "they are of the GPU \"%.95s\", this is \"%s\"",
                       gpu ? gpu : "?", tr_backend_device());
    if (!str_eq(library, kn_gemm_library()))
        return err_set(error, -ESTALE, "they are of %.60s, this is %s", library ? library : "?",
                       kn_gemm_library());
    return 0;
}

/* All of them or none; COUNT products, in ALGO. */
static int read_all(struct kn_algo *algo, const json_t *products, struct err *error)
{
    json_t *one;
    size_t i;
    int r;

    json_array_foreach(products, i, one)
        if ((r = read_product(&algo[i], one, error)) < 0)
            return err_wrap(error, "product %zu", i);
    return 0;
}

static int use_all(const struct kn_algo *algo, size_t count, struct err *error)
{
    for (size_t i = 0; i < count; i++)
        if (!kn_gemm_use(&algo[i]))
            return err_set(error, -ESTALE, "%s refuses the one of product %zu", kn_gemm_library(),
                           i);
    return 0;
}

/* TEXT, the same on all ranks, is a stamp; ERROR is alike, too. */
static int take(const char *text, struct err *error)
{
    AUTO_JSON *stamp = NULL;
    AUTO_FREE struct kn_algo *algo = NULL;
    const json_t *products;
    size_t count;
    int r = jx_parse(&stamp, text, strlen(text), error);

    if (r == 0)
        r = check_origin(stamp, error);
    products = json_object_get(json_object_get(stamp, "algorithms"), "products");
    count = json_array_size(products);
    algo = mem_alloc(sizeof(*algo) * (count + 1));
    if (r == 0 && count > KN_ALGOS)
        r = err_set(error, -E2BIG, "more than %d products", KN_ALGOS);
    if (r == 0)
        r = read_all(algo, products, error);
    /* What every rank understands, every rank uses: an algorithm is refused by all alike, since
     * library and GPU are the same. */
    if (tr_start_together(r < 0, error) == 0)
        used = (r = use_all(algo, count, error)) == 0 ? (int)count : 0;
    else
        r = -ESTALE;
    return r;
}

/* The parts of profiles/local.json that are needed, as text; NULL: there are none. */
static char *stamp_text(const char *data_dir)
{
    static const char *const keys[] = {"gpu", "algorithms"};
    AUTO_FREE char *path = mem_printf("%s/profiles/local.json", data_dir);
    AUTO_JSON *v = NULL, *part = json_object();
    const json_t *stamp;

    if (!file_exists(path) || jx_load(&v, path, FILE_MAX, NULL) < 0)
        return NULL;
    stamp = json_object_get(v, "stamp");
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (json_object_get(stamp, keys[i]))
            json_object_set(part, keys[i], json_object_get(stamp, keys[i]));
    return json_object_get(part, "algorithms") ? json_dumps(part, JSON_COMPACT) : NULL;
}

void tr_algorithms_use(char *ret_why, size_t size, const char *data_dir)
{
    AUTO_FREE char *text = NULL;
    struct err error = {0};
    uint64_t bytes = 0;
    int rank;

    *ret_why = '\0';
    if (!*kn_gemm_library())
        return;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0 && (text = stamp_text(data_dir)))
        bytes = strlen(text);
    tr_start_broadcast(&bytes, sizeof(bytes));
    if (!bytes)
        return;
    if (rank != 0)
        text = mem_alloc(bytes + 1);
    tr_start_broadcast(text, bytes);
    if (take(text, &error) < 0)
        snprintf(ret_why, size,
                 "the algorithms of matrix products in %s/profiles/local.json are not used: %s; "
                 "%s's heuristic chooses (partune-train --calibrate measures anew)",
                 data_dir, error.text, kn_gemm_library());
}
