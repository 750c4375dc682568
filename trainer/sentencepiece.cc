// No exception leaves this file: its callers are C.
extern "C" {
#include "trainer/sentencepiece.h"
}

#include <cerrno>
#include <exception>
#include <string>
#include <vector>

#include <sentencepiece_processor.h>

namespace
{

struct Tokenizer {
    tr_tokenizer base; // first: a pointer to it is one to this
    sentencepiece::SentencePieceProcessor processor;
};

Tokenizer *of(tr_tokenizer *base)
{
    return reinterpret_cast<Tokenizer *>(base);
}

void release(tr_tokenizer *base)
{
    delete of(base);
}

int encode(tr_tokenizer *base, const char *text, size_t len, tr_ids_fn *ids, void *arg, err *error)
{
    std::vector<uint32_t> found;

    try {
        std::vector<int> pieces;
        const auto status = of(base)->processor.Encode(absl::string_view(text, len), &pieces);

        if (!status.ok())
            return err_set(error, -EINVAL, "SentencePiece: %s", status.ToString().c_str());
        found.assign(pieces.begin(), pieces.end());
    } catch (const std::exception &reason) {
        return err_set(error, -ENOMEM, "SentencePiece: %s", reason.what());
    }
    return ids(arg, found.data(), found.size(), error);
}

int find_eod(int *ret, const sentencepiece::SentencePieceProcessor &processor, const char *eod,
             err *error)
{
    const int id = eod ? processor.PieceToId(eod) : processor.eos_id();

    if (id < 0)
        return err_set(error, -EINVAL,
                       "the model has no eos: give the piece that ends documents as --eod TOKEN");
    if (eod && processor.IdToPiece(id) != eod)
        return err_set(error, -EINVAL, "the end-of-document token \"%.60s\" is no piece of it",
                       eod);
    *ret = id;
    return 0;
}

int make(tr_tokenizer **ret, const char *model, size_t len, const char *eod, err *error)
{
    Tokenizer *made = new Tokenizer();
    const auto status = made->processor.LoadFromSerializedProto(absl::string_view(model, len));
    int r = status.ok()
                ? 0
                : err_set(error, -EINVAL, "neither a tokenizer.json nor a SentencePiece model: %s",
                          status.ToString().c_str());

    if (r == 0)
        r = find_eod(&made->base.id.eod, made->processor, eod, error);
    if (r < 0) {
        delete made;
        return r;
    }
    made->base.vocab = made->processor.GetPieceSize();
    made->base.encode = encode;
    made->base.release = release;
    *ret = &made->base;
    return 0;
}

} // namespace

int tr_sentencepiece_new(tr_tokenizer **ret, const char *model, size_t len, const char *eod,
                         err *error)
{
    try {
        return make(ret, model, len, eod, error);
    } catch (const std::exception &reason) {
        return err_set(error, -ENOMEM, "SentencePiece: %s", reason.what());
    }
}
