#include "trainer/tokenizer.h"

#include "base/base.h"
#include "trainer/crc.h"
#include "trainer/hf_tokenizer.h"
#include "trainer/sentencepiece.h"

#include <errno.h>
#include <sys/stat.h>

enum { FILE_MAX = 512 << 20, CONFIG_MAX = 16 << 20 };

static bool is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The folder of PATH, and the file there. New memory. */
static int find_file(char **ret_folder, char **ret_file, const char *path, struct err *error)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.model", "spiece.model"};
    const char *slash = strrchr(path, '/');

    if (!is_folder(path)) {
        *ret_folder = slash ? mem_printf("%.*s", (int)(slash - path + 1), path) : mem_strdup(".");
        *ret_file = mem_strdup(path);
        return 0;
    }
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        AUTO_FREE char *file = mem_printf("%s/%s", path, names[i]);

        if (file_exists(file)) {
            *ret_folder = mem_strdup(path);
            *ret_file = TAKE(file);
            return 0;
        }
    }
    return err_set(error, -ENOENT, "%s has neither tokenizer.json nor tokenizer.model", path);
}

/* The folder's name, where the file is called as everywhere, else the file's. */
static void name_of(char ret[64], const char *folder, const char *file)
{
    AUTO_FREE char *real = realpath(folder, NULL);
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
    const char *last = real ? strrchr(real, '/') : NULL;

    if (last && last[1] && (str_starts(name, "tokenizer.") || str_starts(name, "spiece.")))
        name = last + 1;
    snprintf(ret, 64, "%s", name);
    while (*ret && !str_is_utf8(ret, strlen(ret))) /* a character that was cut */
        ret[strlen(ret) - 1] = '\0';
}

/* The eos_token of FOLDER/tokenizer_config.json, a text or an object with "content"; NULL: none.
 * New memory. transformers writes 10^30 as its model_max_length, so integers are read as reals. */
static int read_eos(char **ret, const char *folder, struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/tokenizer_config.json", folder);
    AUTO_FREE char *text = NULL;
    AUTO_JSON *config = NULL;
    const json_t *eos;
    json_error_t why;
    size_t len;
    int r;

    *ret = NULL;
    if (!file_exists(path))
        return 0;
    r = file_read_all(&text, &len, path, CONFIG_MAX, error);
    if (r < 0)
        return r;
    config = json_loadb(text, len, JSON_DECODE_INT_AS_REAL, &why);
    if (!config)
        return err_set(error, -EINVAL, "%s is not JSON: line %d: %s", path, why.line, why.text);
    eos = json_object_get(config, "eos_token");
    if (json_is_object(eos))
        eos = json_object_get(eos, "content");
    *ret = mem_strdup(json_string_value(eos));
    return 0;
}

static int open_json(struct tr_tokenizer **ret, const char *text, size_t len, const char *folder,
                     const char *eod, struct err *error)
{
    AUTO_FREE char *eos = NULL;
    int r = eod ? 0 : read_eos(&eos, folder, error);

    if (r == 0 && !eod && !eos)
        return err_set(error, -EINVAL,
                       "no tokenizer_config.json next to it has an eos_token: give the token that "
                       "ends documents as --eod TOKEN");
    return r < 0 ? r : tr_hf_tokenizer_new(ret, text, len, eod ? eod : eos, error);
}

int tr_tokenizer_open(struct tr_tokenizer **ret, const char *path, const char *eod,
                      struct err *error)
{
    AUTO_FREE char *folder = NULL, *file = NULL, *bytes = NULL;
    size_t len;
    int r = find_file(&folder, &file, path, error);

    if (r == 0)
        r = file_read_all(&bytes, &len, file, FILE_MAX, error);
    if (r < 0)
        return r;
    if (bytes[strspn(bytes, " \t\r\n")] == '{')
        r = open_json(ret, bytes, len, folder, eod, error);
    else
        r = tr_sentencepiece_new(ret, bytes, len, eod, error);
    if (r < 0)
        return error && *error->pointer ? err_wrap(error, "%s: %s", file, error->pointer)
                                        : err_wrap(error, "%s", file);
    name_of((*ret)->id.name, folder, file);
    (*ret)->id.crc32 = tr_crc32(0, bytes, len);
    return 0;
}
