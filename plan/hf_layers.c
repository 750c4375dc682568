/* Which layers of a config.json have windows, no rotation, or experts. */
#include "plan/hf_reader.h"

#include <string.h>

#include "base/base.h"

/* The n of layers n, 2n, ... that layer_types calls full attention, and no other, which are all
 * OTHER; 0: none is, 1: all are, -1: it is another pattern. */
static int full_every(const json_t *types, const char *other)
{
    int every = 0, many = (int)json_array_size(types);

    for (int i = 0; i < many; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        bool full = type && !strcmp(type, "full_attention");

        if (!full && !str_eq(type, other))
            return -1;
        if (full && !every)
            every = i + 1;
        if (every && full != ((i + 1) % every == 0))
            return -1;
    }
    return every;
}

/* The n of sliding_window_pattern, which is a number or, as "LLLG", its layers up to the first that
 * is global; -1: another pattern. */
static int pattern_every(const json_t *pattern)
{
    const char *text = json_string_value(pattern);
    size_t locals = text ? strspn(text, "L") : 0;

    if (!text)
        return (int)json_integer_value(pattern);
    return str_eq(text + locals, "G") ? (int)locals + 1 : -1;
}

static int take_windows(struct pl_hf_reader *reader, struct err *error)
{
    json_t *window = pl_hf_take(reader, "sliding_window"),
           *use = pl_hf_take(reader, "use_sliding_window"),
           *types = pl_hf_take(reader, "layer_types"),
           *pattern = pl_hf_take(reader, "sliding_window_pattern");
    json_t *other = pl_hf_take(reader, "_sliding_window_pattern");
    int every = types ? full_every(types, "sliding_attention") : -2;
    /* one that no sequence is longer than, unless its layers rotate otherwise */
    bool idle = window && !json_object_get(reader->out, "rope_theta_local") &&
                !(reader->flags & PL_HF_GLOBAL_NO_ROPE) &&
                json_integer_value(window) >= pl_hf_number(reader->out, "seq");
    bool chosen = reader->flags & PL_HF_CHOSEN_WINDOWS;
    json_t *late =
        reader->flags & PL_HF_LATE_WINDOWS ? pl_hf_take(reader, "max_window_layers") : NULL;

    if (every == -1)
        return pl_hf_refuse(error, "layer_types",
                            "must be sliding windows, with every n-th layer global");
    if (pattern && pattern_every(pattern) < 0)
        return pl_hf_refuse(error, "sliding_window_pattern", "must be a number, or as \"LLLG\"");
    if (every == 1 && window && reader->flags & PL_HF_GLOBAL_NO_ROPE)
        return pl_hf_refuse(error, "layer_types",
                            "of full attention alone, with sliding_window, leaves no layer that "
                            "knows positions");
    if (!window && reader->flags & PL_HF_NEEDS_WINDOWS)
        return pl_hf_refuse(error, "sliding_window",
                            "of none leaves no layer that knows positions");
    if (every < -1 && chosen && json_is_true(use))
        return pl_hf_refuse(error, "use_sliding_window", "needs layer_types to say which layers");
    if (every < -1 && late && window && !idle) {
        if (pl_hf_number(reader->out, "layers") > json_number_value(late))
            return pl_hf_refuse(error, "max_window_layers",
                                "of fewer than all layers needs layer_types to say which layers");
        idle = true;
    }
    if (!window || !json_integer_value(window) || every == 1 || idle ||
        (chosen && !json_is_true(use))) {
        json_object_del(reader->out, "global_every");
        json_object_del(reader->out, "rope_theta_local");
        return every > 1 && !window ? pl_hf_refuse(error, "layer_types", "needs sliding_window")
                                    : 0;
    }
    pl_hf_put(reader, "sliding_window", json_deep_copy(window));
    if (every >= 0)
        pl_hf_put(reader, "global_every", json_integer(every));
    else if (pattern || other)
        pl_hf_put(reader, "global_every", json_integer(pattern_every(pattern ? pattern : other)));
    return 0;
}

/* The n of layers n, 2n, ... of MANY for which LIST has 0, where all others have 1; 0: none has,
 * -1: it is another pattern. */
static int unrotated_every(const json_t *list, int many)
{
    int every = 0;

    for (int i = 0; i < many; i++) {
        const json_t *rotated = json_array_get(list, (size_t)i);
        bool no_rope = json_is_integer(rotated) && !json_integer_value(rotated);

        if (!no_rope && json_integer_value(rotated) != 1)
            return -1;
        if (no_rope && !every)
            every = i + 1;
        if (every && no_rope != ((i + 1) % every == 0))
            return -1;
    }
    return every;
}

/* Layers without rotation: those that no_rope_layers or an interval names, or all without a window
 * where some have one. */
static int take_no_rope(struct pl_hf_reader *reader, struct err *error)
{
    json_t *list = pl_hf_take(reader, "no_rope_layers"),
           *interval = pl_hf_take(reader, "no_rope_layer_interval");
    json_t *global = json_object_get(reader->out, "global_every");
    int layers = (int)pl_hf_number(reader->out, "layers"),
        apart = (int)json_integer_value(interval), every = 0;

    if (json_is_array(list) && !json_array_size(list)) /* which is none for transformers, too */
        list = NULL;
    if (reader->flags & PL_HF_GLOBAL_NO_ROPE)
        every = (int)json_integer_value(global);
    else if (list)
        every = unrotated_every(list, layers);
    if (!every && (!list || apart > layers)) /* which the list cannot show */
        every = apart;
    if (every < 0)
        return pl_hf_refuse(error, "no_rope_layers",
                            "must be 0 for every n-th layer and 1 for all others");
    if (every)
        pl_hf_put(reader, "no_rope_freq", json_integer(every));
    return 0;
}

/* Chunks of the layers that layer_types names, or else of those that rotate. */
static int take_chunks(struct pl_hf_reader *reader, struct err *error)
{
    json_t *size = pl_hf_take(reader, "attention_chunk_size"),
           *types = pl_hf_take(reader, "layer_types");
    int every = types ? full_every(types, "chunked_attention")
                      : (int)pl_hf_number(reader->out, "no_rope_freq");

    if (types && every < 0)
        return pl_hf_refuse(error, "layer_types",
                            "must be chunked_attention, with every n-th layer of full_attention");
    if (!size || every == 1)
        return 0;
    pl_hf_put(reader, "attention_chunk_size", json_deep_copy(size));
    if (every)
        pl_hf_put(reader, "global_every", json_integer(every));
    return 0;
}

/* Of layers that do not rotate, where there are any; older files have a number for true. */
static void take_temperature(struct pl_hf_reader *reader)
{
    json_t *tuning = pl_hf_take(reader, "attn_temperature_tuning");

    if ((json_is_true(tuning) || json_integer_value(tuning)) &&
        json_object_get(reader->out, "no_rope_freq"))
        pl_hf_put(reader, "attn_temperature_tuning", json_true());
}

/* Linear attention in all layers but every n-th, by layer_types or an interval. */
static int take_linear(struct pl_hf_reader *reader, struct err *error)
{
    json_t *types = pl_hf_take(reader, "layer_types"),
           *interval = pl_hf_take(reader, "full_attention_interval");
    int every = types ? full_every(types, "linear_attention") : (int)json_integer_value(interval);
    double layers = pl_hf_number(reader->out, "layers");

    if (types && every < 0)
        return pl_hf_refuse(error, "layer_types",
                            "must be linear_attention, with every n-th layer of full_attention");
    if (every == 1) {
        json_object_del(reader->out, "linear_attention");
        return 0;
    }
    if (types && !every) /* no layer is the n-th */
        every = layers < 4096 ? (int)layers + 1 : 4096;
    pl_hf_put(reader, "linear_attention_freq", json_integer(every));
    return 0;
}

/* An indexer of each layer's own. */
static int check_sparse(struct pl_hf_reader *reader, struct err *error)
{
    static const struct {
        const char *key, *only;
    } lists[] = {{"layer_types", "deepseek_sparse_attention"}, {"indexer_types", "full"}};

    for (size_t k = 0; k < ARRAY_LEN(lists); k++) {
        json_t *types = pl_hf_take(reader, lists[k].key), *type;
        size_t i;

        json_array_foreach(types, i, type)
            if (!str_eq(json_string_value(type), lists[k].only))
                return pl_hf_refuse(error, lists[k].key, "has layers of another kind than %s",
                                    lists[k].only);
    }
    return 0;
}

/* The n of layers n, 2n, ... of all LAYERS, whose numbers from 0 LIST has; -1: another list. */
static int numbered_every(const json_t *list, int layers)
{
    json_int_t first = json_integer_value(json_array_get(list, 0));
    int many = (int)json_array_size(list), every;

    if (!many || first < 0 || first >= layers)
        return -1;
    every = (int)first + 1;
    if (many != layers / every)
        return -1;
    for (int i = 0; i < many; i++)
        if (json_integer_value(json_array_get(list, (size_t)i)) != (json_int_t)every * (i + 1) - 1)
            return -1;
    return every;
}

/* moe_layers takes precedence over an interval. */
static int take_numbered_experts(struct pl_hf_reader *reader, struct err *error)
{
    json_t *list = pl_hf_take(reader, "moe_layers");
    int layers = (int)json_integer_value(json_object_get(reader->out, "layers")),
        every = list ? numbered_every(list, layers) : 0;

    if (every < 0)
        return pl_hf_refuse(error, "moe_layers", "must be the numbers of every n-th layer");
    if (every)
        pl_hf_put(reader, "moe.every", json_integer(every));
    return 0;
}

/* Which layers have experts: mlp_layer_types names the first ones dense, and moe_layer_end_index
 * is the last of all layers. */
static int take_expert_layers(struct pl_hf_reader *reader, struct err *error)
{
    json_t *types = pl_hf_take(reader, "mlp_layer_types"),
           *end = pl_hf_take(reader, "moe_layer_end_index");
    double layers = pl_hf_number(reader->out, "layers"), last = json_number_value(end);
    size_t dense = 0, many = json_array_size(types);

    if (end && last != -1 && last != layers - 1)
        return pl_hf_refuse(error, "moe_layer_end_index", "before the last layer is not supported");
    if (!types)
        return 0;
    if ((double)many != layers)
        return pl_hf_refuse(error, "mlp_layer_types", "must have one entry for each layer");
    while (dense < many && str_eq(json_string_value(json_array_get(types, dense)), "dense"))
        dense++;
    for (size_t i = dense; i < many; i++)
        if (!str_eq(json_string_value(json_array_get(types, i)), "sparse"))
            return pl_hf_refuse(error, "mlp_layer_types", "must be dense first, then sparse");
    pl_hf_put(reader, "moe.dense_layers", json_integer((json_int_t)dense));
    return 0;
}

/* attn_type_list of an older release: 1 is full attention. */
static int check_attention_types(struct pl_hf_reader *reader, struct err *error)
{
    json_t *types = pl_hf_take(reader, "attn_type_list"), *type;
    size_t i;

    json_array_foreach(types, i, type)
        if (json_integer_value(type) != 1)
            return pl_hf_refuse(error, "attn_type_list",
                                "has layers of another kind than 1, full attention");
    return 0;
}

/* What a query sees in each layer, and which layers rotate. */
static int take_attention(struct pl_hf_reader *reader, struct err *error)
{
    int r;

    if (reader->flags & PL_HF_LINEAR)
        return take_linear(reader, error);
    if (reader->flags & PL_HF_SPARSE)
        return check_sparse(reader, error);
    if (!(reader->flags & PL_HF_CHUNKS) && (r = take_windows(reader, error)) < 0)
        return r;
    if ((r = take_no_rope(reader, error)) < 0)
        return r;
    if (!(reader->flags & PL_HF_CHUNKS))
        return 0;
    take_temperature(reader);
    return take_chunks(reader, error);
}

int pl_hf_take_layers(struct pl_hf_reader *reader, struct err *error)
{
    const json_t *types = json_object_get(reader->config, "layer_types");
    int r;

    if (json_is_array(types) &&
        json_array_size(types) !=
            (size_t)json_integer_value(json_object_get(reader->out, "layers")))
        return pl_hf_refuse(error, "layer_types", "must have one entry for each layer");
    if ((r = take_attention(reader, error)) < 0 || (r = check_attention_types(reader, error)) < 0 ||
        (r = take_numbered_experts(reader, error)) < 0)
        return r;
    return take_expert_layers(reader, error);
}
