#include "trainer/hf_tokenizer.h"

#include "base/base.h"
#include "trainer/added.h"
#include "trainer/bpe.h"
#include "trainer/normal.h"
#include "trainer/splits.h"

#include <assert.h>
#include <errno.h>

struct tokenizer {
    struct tr_tokenizer base;
    struct tr_added *raw, *normalized; /* looked for before and after the normalizer */
    struct tr_normal *normal;
    struct tr_splits *splits;
    struct tr_bpe *bpe;
};

static void release(struct tr_tokenizer *base)
{
    struct tokenizer *tokenizer = (struct tokenizer *)base;

    tr_added_free(tokenizer->raw);
    tr_added_free(tokenizer->normalized);
    tr_normal_free(tokenizer->normal);
    tr_splits_free(tokenizer->splits);
    tr_bpe_free(tokenizer->bpe);
    free(tokenizer);
}

/* ---- encoding ------------------------------------------------------------ */

struct encoding {
    struct tokenizer *tokenizer;
    tr_ids_fn *ids;
    void *arg;
};

static int on_token(void *arg, uint32_t id, struct err *error)
{
    struct encoding *encoding = arg;

    return encoding->ids(encoding->arg, &id, 1, error);
}

static int on_word(void *arg, const char *text, size_t len, struct err *error)
{
    struct encoding *encoding = arg;

    return tr_bpe_encode(encoding->tokenizer->bpe, text, len, encoding->ids, encoding->arg, error);
}

static int on_normalized(void *arg, const char *text, size_t len, struct err *error)
{
    struct encoding *encoding = arg;

    return tr_splits_cut(encoding->tokenizer->splits, text, len, on_word, arg, error);
}

static int on_piece(void *arg, const char *text, size_t len, struct err *error)
{
    struct encoding *encoding = arg;
    int r = tr_normal_apply(&text, &len, encoding->tokenizer->normal, text, len, error);

    return r < 0 ? r
                 : tr_added_cut(encoding->tokenizer->normalized, text, len, on_normalized, on_token,
                                arg, error);
}

static int encode(struct tr_tokenizer *base, const char *text, size_t len, tr_ids_fn *ids,
                  void *arg, struct err *error)
{
    struct encoding encoding = {(struct tokenizer *)base, ids, arg};
    int r = tr_added_cut(encoding.tokenizer->raw, text, len, on_piece, on_token, &encoding, error);

    base->dropped = tr_bpe_dropped(encoding.tokenizer->bpe);
    return r;
}

/* ---- added tokens -------------------------------------------------------- */

struct adding {
    struct tokenizer *tokenizer;
    const json_t *vocab;
    json_int_t next; /* the id of the next token that is not in the vocabulary */
    json_int_t last; /* the largest id so far */
    const char *eod;
    json_int_t eod_id; /* -1: not found yet */
};

/* A token of the vocabulary keeps its id, others get the ids behind it: `tokenizers` counts so, and
 * ignores the id in the file. */
static int check_id(struct adding *adding, const char *content, json_int_t id, struct err *error)
{
    const json_t *known = json_object_get(adding->vocab, content);
    json_int_t right = known ? json_integer_value(known) : adding->next;

    if (!known && right <= adding->last)
        right = -1;
    if (right < 0)
        return err_at(error, -EINVAL, "/id",
                      "\"vocab\" has no id to spare for \"%.60s\": its %zu tokens have ids up to "
                      "%" JSON_INTEGER_FORMAT,
                      content, json_object_size(adding->vocab), adding->last);
    if (id != right)
        return err_at(error, -EINVAL, "/id",
                      "\"id\" of \"%.60s\" is %" JSON_INTEGER_FORMAT
                      ", but by its place it is %" JSON_INTEGER_FORMAT,
                      content, id, right);
    if (!known) {
        adding->last = id;
        adding->next = id + 1;
    }
    return 0;
}

struct flags {
    bool single_word, lstrip, rstrip, normalized, special;
};

static int read_flags(struct flags *ret, const json_t *json, struct err *error)
{
    static const char *const keys[] = {"id",     "content",    "single_word", "lstrip",
                                       "rstrip", "normalized", "special",     NULL};
    int r = jx_keys(json, keys, error);

    if (r == 0)
        r = jx_get_bool(&ret->single_word, json, "single_word", error);
    if (r == 0)
        r = jx_get_bool(&ret->lstrip, json, "lstrip", error);
    if (r == 0)
        r = jx_get_bool(&ret->rstrip, json, "rstrip", error);
    if (r == 0)
        r = jx_get_bool(&ret->normalized, json, "normalized", error);
    if (r == 0)
        r = jx_get_bool(&ret->special, json, "special", error);
    if (r == 0 && ret->single_word)
        r = err_at(error, -EINVAL, "/single_word", "\"single_word\" is not supported");
    return r;
}

static int add_token(struct adding *adding, const json_t *json, struct err *error)
{
    const char *content = json_string_value(json_object_get(json, "content")), *text = content;
    const json_t *id = json_object_get(json, "id");
    struct flags flags = {.normalized = !json_is_true(json_object_get(json, "special"))};
    size_t len = content ? strlen(content) : 0;
    int r = read_flags(&flags, json, error);

    if (r == 0 && len == 0)
        r = err_at(error, -EINVAL, "/content", "\"content\" is not a text");
    if (r == 0 && !json_is_integer(id))
        r = err_at(error, -EINVAL, "/id", "\"id\" is not a number");
    if (r == 0)
        r = check_id(adding, content, json_integer_value(id), error);
    if (r == 0 && flags.normalized)
        r = tr_normal_apply(&text, &len, adding->tokenizer->normal, content, len, error);
    if (r == 0 && len == 0)
        r = err_at(error, -EINVAL, "/content", "\"content\" is normalized to nothing");
    if (r < 0)
        return r;
    if (str_eq(content, adding->eod))
        adding->eod_id = json_integer_value(id);
    tr_added_put(flags.normalized ? adding->tokenizer->normalized : adding->tokenizer->raw, text,
                 len, (uint32_t)json_integer_value(id), flags.lstrip, flags.rstrip);
    return 0;
}

static int add_tokens(struct adding *adding, const json_t *list, struct err *error)
{
    int r = 0;

    if (list && !json_is_null(list) && !json_is_array(list))
        return err_at(error, -EINVAL, "/added_tokens", "\"added_tokens\" is not an array");
    if (json_array_size(list) >= TR_BPE_IDS_MAX)
        return err_at(error, -EINVAL, "/added_tokens", "%zu tokens are too many",
                      json_array_size(list));
    for (size_t i = 0; r == 0 && i < json_array_size(list); i++) {
        AUTO_FREE char *at = mem_printf("/added_tokens/%zu", i);

        r = add_token(adding, json_array_get(list, i), error);
        if (r < 0)
            err_under(error, at);
    }
    if (r == 0)
        r = tr_added_finish(adding->tokenizer->raw, error);
    return r < 0 ? r : tr_added_finish(adding->tokenizer->normalized, error);
}

/* ---- the file ------------------------------------------------------------ */

/* Added tokens, number of ids and eod, of a file whose other parts are read. */
static int read_tokens(struct tokenizer *tokenizer, const json_t *json, const char *eod,
                       struct err *error)
{
    struct adding adding = {.tokenizer = tokenizer,
                            .vocab = json_object_get(json_object_get(json, "model"), "vocab"),
                            .eod = eod,
                            .eod_id = -1};
    const json_t *known = json_object_get(adding.vocab, eod);
    const char *token;
    json_t *id;
    int r;

    json_object_foreach((json_t *)adding.vocab, token, id)
        if (json_integer_value(id) > adding.last)
            adding.last = json_integer_value(id);
    adding.next = (json_int_t)json_object_size(adding.vocab);
    if (known)
        adding.eod_id = json_integer_value(known);
    r = add_tokens(&adding, json_object_get(json, "added_tokens"), error);
    if (r == 0 && adding.eod_id < 0)
        r = err_set(error, -EINVAL,
                    "the end-of-document token \"%.60s\" is neither in added_tokens nor in vocab",
                    eod);
    assert(r < 0 || adding.eod_id <= adding.last);
    tokenizer->base.vocab = (int)adding.last + 1;
    tokenizer->base.id.eod = (int)adding.eod_id;
    return r;
}

int tr_hf_tokenizer_new(struct tr_tokenizer **ret, const char *json, size_t len, const char *eod,
                        struct err *error)
{
    static const char *const keys[] = {
        "version",       "truncation",     "padding", "added_tokens", "normalizer",
        "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
    struct tokenizer *tokenizer = mem_alloc(sizeof(*tokenizer));
    AUTO(tr_tokenizer) *owner = &tokenizer->base;
    AUTO_JSON *file = NULL;
    json_t *model = NULL;
    int r;

    tokenizer->base = (struct tr_tokenizer){.encode = encode, .release = release};
    tokenizer->raw = tr_added_new();
    tokenizer->normalized = tr_added_new();
    r = jx_parse(&file, json, len, error);
    if (r == 0)
        r = jx_keys(file, keys, error);
    if (r == 0 && (r = jx_need(file, "model", error)) == 0)
        r = jx_get_object(&model, file, "model", error);
    if (r == 0)
        r = tr_normal_new(&tokenizer->normal, json_object_get(file, "normalizer"), error);
    if (r == 0)
        r = tr_splits_new(&tokenizer->splits, json_object_get(file, "pre_tokenizer"), error);
    if (r == 0)
        r = tr_bpe_new(&tokenizer->bpe, model, tr_splits_bytes(tokenizer->splits), error);
    if (r == 0)
        r = read_tokens(tokenizer, file, eod, error);
    if (r < 0)
        return r;
    *ret = TAKE(owner);
    return 0;
}
