/* Which layers of a config.json have windows, no rotation, or experts. */
#include "plan/hf_reader.h"

#include <string.h>

#include "base/base.h"

/* The n of layers n, 2n, ... that layer_types calls full attention and no other; 0: none is, 1: all
 * are, -1: it is another pattern. */
static int full_every(const json_t *types)
{
    int every = 0, many = (int)json_array_size(types);

    for (int i = 0; i < many; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        bool full = type && !strcmp(type, "full_attention");

        if (!full && (!type || strcmp(type, "sliding_attention") != 0))
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
    int every = types ? full_every(types) : -2;
    /* one that no sequence is longer than, unless its layers rotate otherwise */
    bool idle = window && !json_object_get(reader->out, "rope_theta_local") &&
                !(reader->flags & PL_HF_GLOBAL_NO_ROPE) &&
                json_integer_value(window) >= pl_hf_number(reader->out, "seq");
    bool chosen = reader->flags & PL_HF_CHOSEN_WINDOWS;
    json_t *late =
        reader->flags & PL_HF_LATE_WINDOWS ? pl_hf_take(reader, "max_window_layers") : NULL;

    if (types && json_array_size(types) !=
                     (size_t)json_integer_value(json_object_get(reader->out, "layers")))
        return pl_hf_refuse(error, "layer_types", "must have one entry for each layer");
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

int pl_hf_take_layers(struct pl_hf_reader *reader, struct err *error)
{
    int r = take_windows(reader, error);

    if (r == 0)
        r = take_no_rope(reader, error);
    if (r == 0)
        r = check_attention_types(reader, error);
    return r == 0 ? take_expert_layers(reader, error) : r;
}
