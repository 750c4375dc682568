/* The sections of a configuration file, read into a configuration and written from one. */
#include "trainer/settings.h"

#include "base/base.h"
#include "trainer/options.h"

#include <assert.h>

static const char *const sections[] = {"trial", "train", "checkpoint", "expected", "run"};

static int read_setting(struct tr_config *config, const struct tr_setting *setting,
                        const json_t *object, struct err *error)
{
    char *at = (char *)config + setting->offset;
    const char *text = NULL;
    int64_t n = -1;
    int r;

    if (setting->form)
        return setting->form->read((const char **)at, config->options, object, setting->key, error);
    switch (setting->type) {
    case OPT_FLAG:
        return jx_get_bool((bool *)at, object, setting->key, error);
    case OPT_INT:
        return jx_get_int((int *)at, object, setting->key, (int)setting->min, (int)setting->max,
                          error);
    case OPT_F64:
    case OPT_COUNT:
        return jx_get_f64((double *)at, object, setting->key, setting->min, setting->max, error);
    case OPT_BYTES:
        r = jx_get_i64(&n, object, setting->key, 0, INT64_MAX, error);
        if (r == 0 && n >= 0)
            *(uint64_t *)at = (uint64_t)n;
        return r;
    case OPT_STR:
        r = jx_get_str(&text, object, setting->key, 4000, error);
        if (r == 0 && text)
            *(const char **)at = tr_options_keep(config->options, text);
        return r;
    }
    return 0;
}

/* Settings of one section: keys checked as a whole, then each value where the command line said
 * none. */
static int read_section(struct tr_config *config, const char *name, const json_t *root,
                        struct err *error)
{
    const json_t *o = json_object_get(root, name);
    const char *keys[32] = {NULL};
    size_t n = 0;
    int r = 0;

    if (!o || json_is_null(o))
        return 0;
    for (size_t i = 0; i < tr_settings_count; i++)
        if (str_eq(tr_settings[i].section, name)) {
            assert(n + 1 < ARRAY_LEN(keys));
            keys[n++] = tr_settings[i].key;
        }
    r = jx_keys(o, keys, error);
    for (size_t i = 0; i < tr_settings_count && r == 0; i++)
        if (str_eq(tr_settings[i].section, name) &&
            !tr_options_given(config->options, tr_settings[i].option))
            r = read_setting(config, &tr_settings[i], o, error);
    if (r < 0) {
        AUTO_FREE char *at = mem_printf("/%s", name);

        return err_under(error, at);
    }
    return 0;
}

int tr_settings_read(struct tr_config *config, const json_t *root, struct err *error)
{
    int r = 0;

    for (size_t i = 0; i < tr_settings_count; i++)
        tr_options_store(config->options, i, config);
    for (size_t i = 0; i < ARRAY_LEN(sections) && r == 0; i++)
        r = read_section(config, sections[i], root, error);
    return r;
}

static json_t *setting_json(const struct tr_config *config, const struct tr_setting *setting)
{
    const char *at = (const char *)config + setting->offset, *text;

    switch (setting->type) {
    case OPT_FLAG:
        return json_boolean(*(const bool *)at);
    case OPT_INT:
        return json_integer(*(const int *)at);
    case OPT_F64:
    case OPT_COUNT:
        return json_real(*(const double *)at);
    case OPT_BYTES:
        return json_integer((json_int_t) * (const uint64_t *)at);
    case OPT_STR:
        text = *(const char *const *)at;
        if (!text)
            return NULL;
        return setting->form ? setting->form->json(text) : json_string(text);
    }
    return NULL;
}

void tr_settings_put(json_t *root, const struct tr_config *config)
{
    for (size_t i = 0; i < tr_settings_count; i++) {
        const struct tr_setting *s = &tr_settings[i];
        json_t *v = s->section ? setting_json(config, s) : NULL;
        json_t *o;

        if (!v || (str_eq(s->section, "trial") && config->mode != TR_MODE_TRIAL)) {
            json_decref(v);
            continue;
        }
        o = json_object_get(root, s->section);
        if (!o) {
            o = json_object();
            json_object_set_new(root, s->section, o);
        }
        json_object_set_new(o, s->key, v);
    }
}
