/* The header of a safetensors file: refused with a reason, or tensors that tile the data. */
#include "base/base.h"
#include "trainer/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(tr_st) *s = NULL;
    struct err e = {0};
    uint64_t at = 0, bytes = 0;

    if (size < 2)
        return 0;
    bytes = (uint64_t)data[0] | (uint64_t)data[1] << 8; /* what follows the header */
    if (tr_st_parse(&s, (const char *)data + 2, size - 2, bytes, "x", &e) < 0) {
        if (!e.text[0])
            abort();
        return 0;
    }
    for (size_t i = 0; i < s->count; i++) {
        const struct tr_st_tensor *t = &s->tensor[i];

        if (t->begin != at || t->end < t->begin || t->ndim > TR_ST_DIMS ||
            (uint64_t)tr_st_elements(t) * tr_dtype_bytes(t->dtype) != t->end - t->begin)
            abort();
        at = t->end;
    }
    if (at != bytes)
        abort();
    return 0;
}
