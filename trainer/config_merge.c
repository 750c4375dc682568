/* Options put over the JSON of a configuration file. */
#include "trainer/config_merge.h"

#include "base/base.h"
#include "trainer/options.h"

#include <errno.h>

enum { GLOBAL_BATCH = 16 };

static bool is_path(const char *name)
{
    return strchr(name, '/') || str_ends(name, ".json");
}

/* Member KEY of OBJECT, made an empty object where it is absent. */
static int section(json_t **ret, json_t *object, const char *key, struct err *error)
{
    AUTO_FREE char *at = mem_printf("/%s", key);
    json_t *v = json_object_get(object, key);

    if (!v || json_is_null(v)) {
        v = json_object();
        json_object_set_new(object, key, v);
    }
    if (!json_is_object(v))
        return err_at(error, -EINVAL, at, "%s is not an object", key);
    *ret = v;
    return 0;
}

int tr_config_resolve(json_t *root, const char *key, const char *option, struct err *error)
{
    const char *name = option ? option : json_string_value(json_object_get(root, key));
    json_t *v = NULL;
    int r = 0;

    if (!name)
        return 0;
    if (is_path(name))
        r = jx_load(&v, name, TR_CONFIG_FILE_MAX, error);
    else
        v = json_string(name);
    if (r < 0)
        return err_wrap(error, "%s", key);
    json_object_set_new(root, key, v);
    return 0;
}

/* Text of an option as JSON: a number if it is one. */
static json_t *option_json(const char *text)
{
    int64_t n;

    return str_to_i64(&n, text, INT64_MIN, INT64_MAX) == 0 ? json_integer(n) : json_string(text);
}

static void put_option(json_t *object, const struct tr_options *options, const char *option,
                       const char *key)
{
    const char *text = tr_options_text(options, option);

    if (text)
        json_object_set_new(object, key, option_json(text));
}

static void put_flag(json_t *object, const struct tr_options *options, const char *option,
                     const char *key)
{
    if (tr_options_flag(options, option))
        json_object_set_new(object, key, json_true());
}

int tr_config_put_workload(json_t *root, const struct tr_config *config, struct err *error)
{
    json_t *w;
    int r = section(&w, root, "workload", error);

    if (r < 0)
        return r;
    put_option(w, config->options, "global-batch", "global_batch");
    put_option(w, config->options, "seq", "seq");
    put_option(w, config->options, "optimizer", "optimizer");
    put_option(w, config->options, "eod", "eod");
    put_flag(w, config->options, "reset-attention-mask", "reset_attention_mask");
    put_flag(w, config->options, "reset-position-ids", "reset_position_ids");
    put_flag(w, config->options, "eod-mask-loss", "eod_mask_loss");
    if (config->sources.count) {
        char name[sizeof(config->workload.data)];

        tr_sources_name(name, sizeof(name), &config->sources);
        json_object_set_new(w, "data", json_string(name));
    }
    if (!json_object_get(w, "global_batch"))
        json_object_set_new(w, "global_batch", json_integer(GLOBAL_BATCH));
    return 0;
}

int tr_config_put_layout(json_t *root, const struct tr_options *options, struct err *error)
{
    json_t *l;
    int r = section(&l, root, "layout", error);

    if (r < 0)
        return r;
    for (const struct pl_layout_key *k = pl_layout_keys; k->name; k++) {
        AUTO_FREE char *option = mem_strdup(k->name);

        if (k == &pl_layout_keys[PL_KEY_GLOBAL_BATCH]) /* it is the workload's */
            continue;
        for (char *p = option; *p; p++)
            if (*p == '_')
                *p = '-';
        put_option(l, options, option, k->name);
    }
    return 0;
}
