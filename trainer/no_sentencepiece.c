/* Where the build has no SentencePiece. */
#include "trainer/sentencepiece.h"

#include <errno.h>

int tr_sentencepiece_new(struct tr_tokenizer **ret, const char *model, size_t len, const char *eod,
                         struct err *error)
{
    (void)ret, (void)model, (void)len, (void)eod;
    return err_set(
        error, -ENOTSUP,
        "not a tokenizer.json, and this build has no SentencePiece, which a .model needs "
        "(install libsentencepiece-dev, or --with-sentencepiece=DIR, and build again)");
}
