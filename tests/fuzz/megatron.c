/* Megatron's index: refused with a reason, or sequences that follow each other. */
#include "base/base.h"
#include "trainer/megatron.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tr_megatron_index x;
    struct err e = {0};

    if (tr_megatron_index(&x, data, size, 0.05, "x.idx", &e) < 0) {
        if (!e.text[0])
            abort();
        return 0;
    }
    if (x.cut > x.tokens || x.id >= TR_IDS || size != 34 + 12 * x.sequences + 8 * x.documents)
        abort();
    return 0;
}
