/* Megatron-LM's names of the modules that selective recomputation may name, as keys of a layout. */
#include "tuner/export/internal.h"

static const struct {
    const char *module;
    enum pl_key key;
} modules[] = {
    {"core_attn", PL_KEY_RE_CORE},
    {"mlp", PL_KEY_RE_MLP},
    {"moe", PL_KEY_RE_MOE},
    {"moe_act", PL_KEY_RE_MOE_ACT},
    {"layernorm", PL_KEY_RE_NORM},
    {"mla_up_proj", PL_KEY_RE_MLA},
    {"shared_experts", PL_KEY_RE_SHARED},
};

void tn_megatron_modules(struct str *out, const struct pl_layout *layout, const char *separator,
                         const char *quote)
{
    size_t before = out->len;

    for (size_t i = 0; i < ARRAY_LEN(modules); i++)
        if (pl_layout_get(layout, &pl_layout_keys[modules[i].key]))
            str_addf(out, "%s%s%s%s", out->len > before ? separator : "", quote, modules[i].module,
                     quote);
    if (out->len == before) /* what selective means by itself */
        str_addf(out, "%score_attn%s", quote, quote);
}

static bool is_word(const char *text, size_t len, const char *word)
{
    return strlen(word) == len && !memcmp(text, word, len);
}

void tn_megatron_read_modules(const char **ret, struct pl_layout *layout, const char *list)
{
    bool others = false;

    *ret = NULL;
    for (const char *at = list; *at; at += strspn(at, " ")) {
        size_t len = strcspn(at, " "), i = 0;

        while (i < ARRAY_LEN(modules) && !is_word(at, len, modules[i].module))
            i++;
        if (i < ARRAY_LEN(modules)) {
            pl_layout_set(layout, &pl_layout_keys[modules[i].key], 1);
            others |= i > 0;
        } else if (!*ret) {
            *ret = at;
        }
        at += len;
    }
    if (!others)
        layout->recompute_core_attn = 0;
}
