/* Production configurations of other programs; the first byte chooses which. */
#include "tuner/export/export.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *const *names = tn_importers();
    struct tn_imported in = {0};
    struct tn_job job;
    AUTO_FREE char *text = mem_alloc(size + 1);
    AUTO_JSON *name = json_string("tiny-moe");
    struct pl_model m;
    struct err e = {0};
    size_t count = 0;

    while (names[count])
        count++;
    if (size < 1)
        return 0;
    if (pl_model_parse(&m, name, &e) < 0)
        abort();
    memcpy(text, data + 1, size - 1);
    job = (struct tn_job){.source = names[data[0] % count], .text = text, .world = 8};
    if (tn_import(&in, &job, &m, &e) < 0 && !e.text[0])
        abort();
    return 0;
}
