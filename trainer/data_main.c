/* partune-data: makes, checks and lists data sets. */
#include "base/base.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainer/prepare.h"

struct values {
    const char *name, *out, *data, *ids, *json_key, *tokenizer, *eod;
    int vocab, seed;
    double validation;
    uint64_t max_bytes;
    bool by_document, force, help, manual, version;
};

#define AT(field) offsetof(struct values, field)

static const struct opt options[] = {
    {"name", 'n', OPT_STR, AT(name), 0, 0, NULL, NULL, "NAME", "name of the data set"},
    {"out", 'o', OPT_STR, AT(out), 0, 0, NULL, NULL, "DIR",
     "write to DIR/NAME instead of datasets/NAME"},
    {"data", 0, OPT_STR, AT(data), 0, 0, NULL, "PARTUNE_DATA", "DIR",
     "data directory that holds datasets/"},
    {"tokenizer", 't', OPT_STR, AT(tokenizer), 0, 0, NULL, NULL, "FILE|FOLDER",
     "tokenizer.json of Hugging Face or .model of SentencePiece, or a folder with one; without it "
     "text stays bytes"},
    {"eod", 0, OPT_STR, AT(eod), 0, 0, NULL, NULL, "TOKEN",
     "token of --tokenizer that ends documents (default: its eos_token)"},
    {"ids", 0, OPT_STR, AT(ids), 0, 0, NULL, NULL, "u16|u32",
     "input files are raw token ids, not text"},
    {"vocab", 0, OPT_INT, AT(vocab), 0, 1 << 30, "0", NULL, "N", "vocabulary size of --ids"},
    {"json-key", 0, OPT_STR, AT(json_key), 0, 0, NULL, NULL, "KEY",
     "key of the text in JSON lines: .jsonl and .ndjson files (default text), and .json where KEY "
     "is "
     "given"},
    {"validation", 0, OPT_F64, AT(validation), 0, 0.9, "0.05", NULL, "SHARE",
     "share of the tokens for validation"},
    {"by-document", 0, OPT_FLAG, AT(by_document), 0, 0, "false", NULL, NULL,
     "choose whole documents for validation, not runs of 4096 tokens"},
    {"seed", 0, OPT_INT, AT(seed), 0, INT32_MAX, "1", NULL, "N", "seed of the validation split"},
    {"max-bytes", 0, OPT_BYTES, AT(max_bytes), 0, 0, "0", NULL, "SIZE",
     "stop after about SIZE of input; 0: all"},
    {"force", 'f', OPT_FLAG, AT(force), 0, 0, "false", NULL, NULL,
     "replace a data set of that name"},
    {"help", 'h', OPT_FLAG, AT(help), 0, 0, "false", NULL, NULL, "print this help and exit"},
    {"manual", 0, OPT_FLAG, AT(manual), 0, 0, "false", NULL, NULL,
     "print the manual page in roff and exit"},
    {"version", 0, OPT_FLAG, AT(version), 0, 0, "false", NULL, NULL, "print the version and exit"},
};

static const char usage[] = "partune-data prepare --name NAME [options] FILE|FOLDER...\n"
                            "       partune-data verify NAME|FOLDER...\n"
                            "       partune-data ls";

static const struct opt_manual manual = {
    .section = 1,
    .summary = "prepare, verify and list data sets for partune-train",
    .description =
        ".B prepare\nreads text files (plain or gzip), directories of them, or raw token ids, and "
        "writes a data set, atomically.\n.B verify\nchecks every byte of data sets against their "
        "checksums.\n.B ls\nlists the data sets.",
    .more = ".SH EXIT STATUS\n0 success; 2 wrong usage; 68 a data set is damaged, or input cannot "
            "be used; 70 a file or directory could not be read or written.\n"
            ".SH SEE ALSO\n.BR partune\\-train (1),\n.BR partuned (8)\n",
};

/* Exit codes as the trainer's. */
enum { USAGE = 2, DATA = 68, IO = 70 };

static int code_of(const struct err *error)
{
    switch (error->code) {
    case -EINVAL:
    case -EEXIST:
    case -ENOTSUP:
        return USAGE;
    case -EBADMSG:
    case -ERANGE:
    case -ENODATA:
    case -EFBIG:
    case -E2BIG:
        return DATA;
    default:
        return IO;
    }
}

static int fail(const struct err *error)
{
    log_error("%s", error->text);
    return code_of(error);
}

static char *datasets(const struct values *values)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");

    if (values->out)
        return mem_strdup(values->out);
    if (values->data)
        return mem_printf("%s/datasets", values->data);
    if (state && *state)
        return mem_printf("%s/partune/datasets", state);
    return mem_printf("%s/.local/state/partune/datasets", home ? home : "");
}

/* A name is a folder's name and a word in requests. */
static bool good_name(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");

    return n > 0 && n < 64 && !name[n] && name[0] != '.' && name[0] != '-' &&
           !str_eq(name, "synthetic");
}

static int open_tokenizer(struct tr_tokenizer **ret, const struct values *values, struct err *error)
{
    if (values->eod && !values->tokenizer)
        return err_set(error, -EINVAL,
                       "--eod needs --tokenizer: documents of bytes end with the id 0");
    if (values->tokenizer && (values->ids || values->vocab))
        return err_set(error, -EINVAL, "--tokenizer (text) and %s (token ids) exclude each other",
                       values->ids ? "--ids" : "--vocab");
    return values->tokenizer ? tr_tokenizer_open(ret, values->tokenizer, values->eod, error) : 0;
}

static int kind_of_ids(struct tr_prepare *prepare, const struct values *values, struct err *error)
{
    prepare->id = TR_ID_U8;
    prepare->vocab = 256;
    prepare->json_key = values->json_key ? values->json_key : "text";
    prepare->any_json = values->json_key != NULL;
    if (values->ids && values->json_key)
        return err_set(error, -EINVAL,
                       "--json-key (text) and --ids (token ids) exclude each other");
    if (prepare->tokenizer) {
        prepare->vocab = prepare->tokenizer->vocab;
        prepare->id = prepare->vocab > 65536 ? TR_ID_U32 : TR_ID_U16;
        return 0;
    }
    if (!values->ids) {
        if (values->vocab)
            return err_set(error, -EINVAL,
                           "--vocab needs --ids: the vocabulary of text is its 256 bytes");
        return 0;
    }
    if (str_eq(values->ids, "u16"))
        prepare->id = TR_ID_U16;
    else if (str_eq(values->ids, "u32"))
        prepare->id = TR_ID_U32;
    else
        return err_set(error, -EINVAL, "--ids is u16 or u32, not `%.40s`", values->ids);
    if (values->vocab == 0)
        return err_set(error, -EINVAL, "--ids needs --vocab N, the number of different ids");
    if (prepare->id == TR_ID_U16 && values->vocab > 65536)
        return err_set(error, -EINVAL, "--vocab %d does not fit into u16", values->vocab);
    prepare->vocab = values->vocab;
    return 0;
}

static void report(const struct tr_prepare *prepare, const struct tr_prepared *done)
{
    printf("%s: %" PRIu64 " tokens to train on, %" PRIu64 " to validate, from %" PRId64
           " files (%" PRId64 " skipped as not text), %" PRId64 " documents\n",
           prepare->folder, done->tokens[TR_SPLIT_TRAIN], done->tokens[TR_SPLIT_VALIDATION],
           done->files, done->skipped, done->documents);
    if (prepare->tokenizer)
        printf("tokenizer %s: vocabulary %d, eod %d\n", prepare->tokenizer->id.name, prepare->vocab,
               prepare->tokenizer->id.eod);
    if (done->json_as_text)
        log_warn("%" PRId64 " .json files were taken as text with their syntax; --json-key KEY "
                 "reads .json files as JSON lines",
                 done->json_as_text);
    if (done->dropped)
        log_warn("%" PRIu64 " characters are not in the vocabulary and have no id", done->dropped);
}

static int prepare(const struct values *values, const char *const *path, int count)
{
    AUTO_FREE char *parent = datasets(values), *folder = NULL;
    AUTO(tr_tokenizer) *tokenizer = NULL;
    struct tr_prepare p = {.name = values->name,
                           .path = path,
                           .npaths = count,
                           .validation = values->validation,
                           .by_document = values->by_document,
                           .seed = (uint64_t)values->seed,
                           .max_bytes = values->max_bytes,
                           .replace = values->force};
    struct tr_prepared done;
    struct err e = {0};
    int r;

    if (!values->name || !good_name(values->name)) {
        err_set(&e, -EINVAL, "--name must be letters, digits, `.`, `_`, `-`, and not `synthetic`");
        return fail(&e);
    }
    if (count == 0) {
        err_set(&e, -EINVAL, "no files: partune-data prepare --name %s FILE|FOLDER...",
                values->name);
        return fail(&e);
    }
    folder = mem_printf("%s/%s", parent, values->name);
    p.folder = folder;
    r = open_tokenizer(&tokenizer, values, &e);
    p.tokenizer = tokenizer;
    if (r == 0)
        r = kind_of_ids(&p, values, &e);
    if (r == 0)
        r = file_mkdirs(parent, 0755, &e);
    if (r == 0)
        r = tr_prepare(&done, &p, &e);
    if (r < 0)
        return fail(&e);
    report(&p, &done);
    return 0;
}

static int verify(const struct values *values, const char *const *name, int count)
{
    AUTO_FREE char *parent = datasets(values);
    int worst = 0;

    if (count == 0) {
        struct err e = {0};

        err_set(&e, -EINVAL, "no data set given: partune-data verify NAME|FOLDER...");
        return fail(&e);
    }
    for (int i = 0; i < count; i++) {
        AUTO_FREE char *folder =
            strchr(name[i], '/') ? mem_strdup(name[i]) : mem_printf("%s/%s", parent, name[i]);
        struct tr_dataset d;
        struct err e = {0};
        int r = tr_dataset_open(&d, folder, &e);

        if (r == 0) {
            r = tr_dataset_verify(&d, &e);
            tr_dataset_done(&d);
        }
        if (r < 0)
            worst = fail(&e);
        else
            printf("%s: whole\n", folder);
    }
    return worst;
}

static void print_row(const char *name, const struct tr_dataset *dataset)
{
    const struct tr_tokenizer_id *tokenizer = &dataset->tokenizer;
    bool bytes = dataset->split[TR_SPLIT_TRAIN].id == TR_ID_U8, made = *tokenizer->name != '\0';
    char eod[16] = "-";

    if (made || bytes)
        snprintf(eod, sizeof(eod), "%d", tokenizer->eod);
    printf("%-24s %14" PRIu64 " %14" PRIu64 " %8d %10" PRId64 " %8s %s\n", name,
           dataset->split[TR_SPLIT_TRAIN].tokens, dataset->split[TR_SPLIT_VALIDATION].tokens,
           dataset->vocab, dataset->documents, eod,
           made    ? tokenizer->name
           : bytes ? "bytes"
                   : "-");
}

static int list(const struct values *values)
{
    AUTO_FREE char *parent = datasets(values);
    struct dirent **it;
    int n = scandir(parent, &it, NULL, alphasort);

    printf("%-24s %14s %14s %8s %10s %8s %s\n", "name", "train", "validation", "vocab", "documents",
           "eod", "tokenizer");
    printf("%-24s %14s %14s %8s %10s %8s %s\n", "synthetic", "endless", "endless", "any", "-", "-",
           "-");
    for (int i = 0; i < n; i++) {
        AUTO_FREE char *folder = mem_printf("%s/%s", parent, it[i]->d_name);
        struct tr_dataset d;
        struct err e = {0};

        if (it[i]->d_name[0] != '.' && tr_dataset_open(&d, folder, &e) == 0) {
            print_row(it[i]->d_name, &d);
            tr_dataset_done(&d);
        } else if (it[i]->d_name[0] != '.') {
            printf("%-24s damaged: %s\n", it[i]->d_name, e.text);
        }
        free(it[i]);
    }
    if (n >= 0)
        free(it);
    return 0;
}

static int run(struct opt_set *set, const struct values *values, int argc, char **argv)
{
    const char *const *operand = (const char *const *)argv + 2;
    struct err e = {0};
    int n = 0, r = opt_from_env(set, &e);

    if (r == 0)
        r = opt_from_argv(&n, set, argc, argv, 0, &e);
    if (r < 0) {
        log_error("%s", e.text);
        return USAGE;
    }
    if (values->help)
        opt_help(set, stdout);
    else if (values->manual)
        opt_manual(set, &manual, stdout);
    else if (values->version)
        printf("partune-data %s\n", PACKAGE_VERSION);
    else if (n >= 1 && str_eq(argv[1], "prepare"))
        return prepare(values, operand, n - 1);
    else if (n >= 1 && str_eq(argv[1], "verify"))
        return verify(values, operand, n - 1);
    else if (n == 1 && str_eq(argv[1], "ls"))
        return list(values);
    else {
        if (n >= 1)
            log_error("unknown command \"%.60s\" (prepare, verify, ls)", argv[1]);
        else
            log_error("usage: %s", usage);
        return USAGE;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct values v = {0};
    struct opt_set s = {.program = "partune-data",
                        .usage = usage,
                        .section = "data",
                        .table = options,
                        .count = ARRAY_LEN(options),
                        .values = &v};
    int code;

    log_setup("partune-data", LOG_INFO);
    opt_init(&s);
    code = run(&s, &v, argc, argv);
    opt_done(&s);
    return code;
}
