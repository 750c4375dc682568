/* Samples as the trainer reads them, for a comparison with another reader:
 * print_samples DATA_DIR SOURCES VOCAB SEQ SEED SPLIT FIRST COUNT prints how many a validation has,
 * and a line for each. */
#include <inttypes.h>
#include <stdio.h>

#include "base/base.h"
#include "trainer/tokens.h"

enum { VOCAB, SEQ, SEED, SPLIT, FIRST, COUNT, NUMBERS };

static int open_sources(struct tr_tokens **ret, char **argv, const int64_t *number, struct err *e)
{
    struct tr_sources sources;
    int r = tr_sources_text(&sources, argv[2], e);

    if (r < 0)
        return r;
    r = tr_tokens_open(ret, argv[1], &sources, (int)number[VOCAB], (int)number[SEQ],
                       (uint64_t)number[SEED], e);
    tr_sources_done(&sources);
    return r;
}

int main(int argc, char **argv)
{
    AUTO(tr_tokens) *tokens = NULL;
    AUTO_FREE int32_t *ids = NULL;
    int64_t number[NUMBERS];
    struct err e = {0};
    int r;

    if (argc != 3 + NUMBERS)
        return 2;
    for (int i = 0; i < NUMBERS; i++)
        if (str_to_i64(&number[i], argv[3 + i], i < SEED, INT64_MAX) < 0)
            return 2;
    ids = mem_alloc(((size_t)number[SEQ] + 1) * sizeof(*ids));
    r = open_sources(&tokens, argv, number, &e);
    if (r == 0)
        printf("validation %" PRIu64 "\n", tr_tokens_samples(tokens, TR_SPLIT_VALIDATION));
    for (int64_t i = 0; r == 0 && i < number[COUNT]; i++) {
        r = tr_tokens_sample(ids, tokens, number[SPLIT] ? TR_SPLIT_VALIDATION : TR_SPLIT_TRAIN,
                             (uint64_t)(number[FIRST] + i), &e);
        for (int64_t k = 0; r == 0 && k <= number[SEQ]; k++)
            printf("%" PRId32 "%c", ids[k], k < number[SEQ] ? ' ' : '\n');
    }
    if (r < 0)
        fprintf(stderr, "%s\n", e.text);
    return r < 0;
}
