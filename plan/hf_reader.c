#include "plan/hf_reader.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "base/base.h"

int pl_hf_refuse(struct err *error, const char *key, const char *fmt, ...)
{
    AUTO_FREE char *at = mem_printf("/%.100s", key);
    char why[200];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    return err_at(error, -ENOTSUP, at, "%.100s %s", key, why);
}

json_t *pl_hf_take(struct pl_hf_reader *reader, const char *key)
{
    json_t *value = json_object_get(reader->config, key);

    if (value)
        json_object_set_new(reader->taken, key, json_true());
    else
        value = json_object_get(reader->usual, key);
    return value && !json_is_null(value) ? value : NULL;
}

void pl_hf_put(struct pl_hf_reader *reader, const char *ours, json_t *value)
{
    const char *dot = strchr(ours, '.');
    AUTO_FREE char *object = dot ? mem_printf("%.*s", (int)(dot - ours), ours) : NULL;

    if (dot && !json_object_get(reader->out, object))
        json_object_set_new(reader->out, object, json_object());
    json_object_set_new(dot ? json_object_get(reader->out, object) : reader->out,
                        dot ? dot + 1 : ours, value);
}

double pl_hf_number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}
