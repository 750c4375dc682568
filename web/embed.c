/*
 * embed OUT SRC BUILD STRIP FILE... : write OUT, a C file with web_assets[].
 *
 * Runs at build time. Each FILE is looked for below BUILD, then below SRC; it is stored as gzip
 * under its path without the prefix STRIP. The output depends on the files alone, so builds are
 * reproducible.
 */
#include "web/internal.h"

#include <zlib.h>

enum { MAX_ASSET = 8 << 20, PER_LINE = 24 };

static int read_file(char **ret, size_t *ret_n, const char *src, const char *build,
                     const char *file, struct err *error)
{
    AUTO_FREE char *made = mem_printf("%s/%s", build, file);
    AUTO_FREE char *given = mem_printf("%s/%s", src, file);

    return file_read_all(ret, ret_n, file_exists(made) ? made : given, MAX_ASSET, error);
}

static unsigned char *compress_best(size_t *ret_size, const char *text, size_t len)
{
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)text, .avail_in = (uInt)len};
    size_t room;
    unsigned char *out;

    if (deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) != Z_OK)
        abort();
    room = deflateBound(&z, len) + 32;
    out = mem_alloc(room);
    z.next_out = out;
    z.avail_out = (uInt)room;
    if (deflate(&z, Z_FINISH) != Z_STREAM_END)
        abort();
    *ret_size = room - z.avail_out;
    deflateEnd(&z);
    return out;
}

static void print_bytes(FILE *out, int index, const unsigned char *bytes, size_t len)
{
    fprintf(out, "static const unsigned char asset_%d[] = {", index);
    for (size_t k = 0; k < len; k++)
        fprintf(out, "%s%u,", k % PER_LINE ? "" : "\n", bytes[k]);
    fprintf(out, "\n};\n\n");
}

/* Prints the bytes of one file and adds its row to TABLE. */
static int embed(FILE *out, struct str *table, int index, char **argv, const char *file,
                 struct err *error)
{
    AUTO_FREE char *text = NULL;
    unsigned char *gz;
    size_t n, ngz, strip = strlen(argv[4]);
    const char *name = str_starts(file, argv[4]) ? file + strip : file;
    int r = read_file(&text, &n, argv[2], argv[3], file, error);

    if (r < 0)
        return r;
    gz = compress_best(&ngz, text, n);
    print_bytes(out, index, gz, ngz);
    free(gz);
    str_addf(table, "    { \"%s\", \"%s\", \"\\\"%016llx\\\"\", asset_%d, %zu, %zu },\n", name,
             web_asset_type(name), (unsigned long long)str_hash(text, n, 0), index, ngz, n);
    return 0;
}

int main(int argc, char **argv)
{
    AUTO_STR table = {0};
    struct err e;
    FILE *out;

    if (argc < 5) {
        fprintf(stderr, "usage: embed OUT SRC BUILD STRIP FILE...\n");
        return 2;
    }
    out = fopen(argv[1], "w");
    if (!out) {
        perror(argv[1]);
        return 1;
    }
    fprintf(out,
            "/* Made by embed from the dashboard's files. */\n#include \"web/internal.h\"\n\n");
    for (int i = 5; i < argc; i++) {
        if (embed(out, &table, i, argv, argv[i], &e) < 0) {
            fprintf(stderr, "embed: %s\n", e.text);
            fclose(out);
            remove(argv[1]);
            return 1;
        }
    }
    fprintf(
        out,
        "const struct web_asset web_assets[] = {\n%s    { NULL, NULL, NULL, NULL, 0, 0 },\n};\n",
        str_text(&table));
    return fclose(out) == 0 ? 0 : 1;
}
