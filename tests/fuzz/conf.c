/* Configuration files: refused with the line, or a list whose every entry is complete. */
#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_FREE char *text = mem_alloc(size + 1);
    struct conf *c = NULL;
    struct err e = {0};

    memcpy(text, data, size);
    if (conf_parse(&c, text, "fuzz.conf", &e) < 0) {
        if (!e.text[0])
            abort();
        return 0;
    }
    for (size_t i = 0; i < c->count; i++) {
        if (!c->entry[i].section[0] || !c->entry[i].key[0] || !c->entry[i].value)
            abort();
        if (!conf_get(c, c->entry[i].section, c->entry[i].name, c->entry[i].key))
            abort();
    }
    conf_free(c);
    return 0;
}
