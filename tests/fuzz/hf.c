/* Other people's config.json: refused with a reason, or a model; of the families whose weights we
 * read, one that can be written back. */
#include "base/base.h"
#include "trainer/hf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_JSON *v = NULL, *back = NULL;
    struct pl_model m;
    struct err e = {0};

    if (jx_parse(&v, (const char *)data, size, &e) < 0)
        return 0;
    if (pl_hf_is_config(v) && pl_model_parse(&m, v, &e) < 0 && !e.text[0])
        abort();
    if (tr_hf_model(&m, v, &e) < 0) {
        if (!e.text[0])
            abort();
        return 0;
    }
    if (m.layers < 1 || m.hidden < 1 || m.heads < 1 || m.head_dim < 1 ||
        tr_hf_config(&back, &m, &e) < 0)
        abort();
    return 0;
}
