/*
 * Runs a fuzz target without libFuzzer: over each file of a corpus folder, every truncation of it,
 * and deterministic mutations (flipped bits, bytes of interest, runs removed or doubled). With
 * --enable-fuzz and clang the target is linked with libFuzzer instead. Prints TAP.
 *
 *     replay FOLDER
 */
#include <dirent.h>

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MUTATIONS = 400, TRUNCATIONS = 300, FILE_MAX = 1 << 20 };

static void mutate(struct rng *r, uint8_t *p, size_t *n)
{
    static const uint8_t interesting[] = {0,   1,   0x7f, 0x80, 0xff, '"', '{',
                                          '}', '[', ']',  ',',  '-',  '9', 'e'};
    size_t at = (size_t)rng_below(r, *n), len;

    switch (rng_below(r, 4)) {
    case 0:
        p[at] ^= (uint8_t)(1u << rng_below(r, 8));
        break;
    case 1:
        p[at] = interesting[rng_below(r, sizeof(interesting))];
        break;
    case 2: /* remove a run */
        len = (size_t)rng_below(r, *n - at) + 1;
        memmove(p + at, p + at + len, *n - at - len);
        *n -= len;
        break;
    default: /* copy a run over another place */
        len = (size_t)rng_below(r, (*n - at)) / 4 + 1;
        memmove(p + (size_t)rng_below(r, *n - len + 1), p + at, len);
        break;
    }
}

static void replay(const char *text, size_t n, uint64_t seed)
{
    AUTO_FREE uint8_t *p = mem_alloc(n + 1);
    struct rng r;

    LLVMFuzzerTestOneInput((const uint8_t *)text, n);
    for (size_t i = 0; i < TRUNCATIONS && n; i++) {
        size_t cut = n <= TRUNCATIONS ? i : i * n / TRUNCATIONS;

        if (cut < n)
            LLVMFuzzerTestOneInput((const uint8_t *)text, cut);
    }
    rng_seed(&r, seed);
    for (int i = 0; i < MUTATIONS && n; i++) {
        size_t size = n;

        memcpy(p, text, n);
        for (uint64_t k = rng_below(&r, 4) + 1; k && size; k--)
            mutate(&r, p, &size);
        LLVMFuzzerTestOneInput(p, size);
    }
}

static int not_hidden(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

int main(int argc, char **argv)
{
    struct dirent **list;
    int n = argc == 2 ? scandir(argv[1], &list, not_hidden, alphasort) : -1;

    if (n <= 0) {
        printf("Bail out! no corpus in %s\n", argc == 2 ? argv[1] : "(nothing)");
        return 99;
    }
    printf("1..%d\n", n);
    for (int i = 0; i < n; i++) {
        AUTO_FREE char *path = mem_printf("%s/%s", argv[1], list[i]->d_name);
        AUTO_FREE char *text = NULL;
        struct err e = {0};
        size_t size;

        if (file_read_all(&text, &size, path, FILE_MAX, &e) < 0) {
            printf("not ok %d - %s # %s\n", i + 1, list[i]->d_name, e.text);
        } else {
            replay(text, size, str_hash(list[i]->d_name, strlen(list[i]->d_name), 0));
            printf("ok %d - %s and what is near it\n", i + 1, list[i]->d_name);
        }
        free(list[i]);
    }
    free(list);
    return 0;
}
