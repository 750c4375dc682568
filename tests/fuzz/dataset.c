/* meta.json of a data set: refused with a reason, or numbers within their bounds. */
#include "base/base.h"
#include "trainer/dataset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tr_dataset d;
    enum tr_id id;
    uint32_t crc[TR_SPLITS];
    struct err e = {0};

    if (tr_dataset_meta(&d, &id, crc, (const char *)data, size, &e) < 0) {
        if (!e.text[0])
            abort();
        return 0;
    }
    if (d.vocab < 1 || id >= TR_IDS || d.documents < 0)
        abort();
    tr_dataset_done(&d);
    return 0;
}
