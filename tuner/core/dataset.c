/* Data sets: folders below datasets/, those of the administrator's [dataset "NAME"], and
 * `synthetic`. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "tuner/state/state.h"
#include "tuner/tuner.h"

/* A name is one path component of plain characters, so that no request leads out of the directory.
 */
static bool is_name(const char *name)
{
    if (!name[0] || name[0] == '.' || strlen(name) > 63)
        return false;
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && !strchr("._-", *name))
            return false;
    return true;
}

static const char *configured(const struct tn_service *svc, const char *name)
{
    const struct tn_config *settings = tn_settings(svc);

    return settings->conf ? conf_get(settings->conf, "dataset", name, "path") : NULL;
}

static void add_names(struct str *out, const struct tn_service *svc)
{
    AUTO_FREE char *path = mem_printf("%s/datasets", tn_data_dir(svc));
    DIR *d = opendir(path);
    struct dirent *entry;

    while (d && (entry = readdir(d)))
        if (is_name(entry->d_name))
            str_addf(out, ", %s", entry->d_name);
    if (d)
        closedir(d);
}

int tn_dataset_path(char **ret, const struct tn_service *svc, const char *name, struct err *error)
{
    AUTO_STR have = {0};
    const char *path = configured(svc, name);
    char *found;

    if (str_eq(name, "synthetic")) {
        *ret = NULL;
        return 0;
    }
    found = path ? mem_strdup(path) : mem_printf("%s/datasets/%s", tn_data_dir(svc), name);
    if ((path || is_name(name)) && file_exists(found)) {
        *ret = found;
        return 0;
    }
    free(found);
    str_add(&have, "synthetic");
    add_names(&have, svc);
    return err_set(
        error, -ENOENT,
        "unknown data set \"%.60s\" (known: %.200s); partune-data prepare --name NAME creates one",
        name, have.text);
}

static double folder_bytes(const char *path)
{
    DIR *d = opendir(path);
    struct dirent *entry;
    struct stat st;
    double sum = 0;

    while (d && (entry = readdir(d)))
        if (fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            sum += (double)st.st_size;
    if (d)
        closedir(d);
    return sum;
}

/* What partune-data wrote about it, with the name and the size on disk. */
static json_t *describe(const char *name, const char *path)
{
    static const char *const files[] = {"dataset.json", "meta.json"};
    json_t *v = NULL;

    for (size_t i = 0; i < ARRAY_LEN(files) && !v; i++) {
        AUTO_FREE char *file = mem_printf("%s/%s", path, files[i]);

        if (file_exists(file) && jx_load(&v, file, 1 << 20, NULL) == 0 && !json_is_object(v)) {
            json_decref(v);
            v = NULL;
        }
    }
    if (!v)
        v = json_object();
    json_object_set_new(v, "name", json_string(name));
    json_object_set_new(v, "synthetic", json_false());
    json_object_set_new(v, "size_bytes", json_real(folder_bytes(path)));
    return v;
}

json_t *tn_datasets_json(struct tn_service *svc)
{
    const struct tn_config *settings = tn_settings(svc);
    AUTO_FREE char *path = mem_printf("%s/datasets", tn_data_dir(svc));
    json_t *items = json_array();
    DIR *d = opendir(path);
    struct dirent *entry;

    json_array_append_new(
        items, json_pack("{s:s, s:b, s:i}", "name", "synthetic", "synthetic", 1, "size_bytes", 0));
    while (d && (entry = readdir(d)))
        if (is_name(entry->d_name)) {
            AUTO_FREE char *folder = mem_printf("%s/%s", path, entry->d_name);

            json_array_append_new(items, describe(entry->d_name, folder));
        }
    if (d)
        closedir(d);
    for (size_t i = 0; settings->conf && i < settings->conf->count; i++) {
        const struct conf_entry *c = &settings->conf->entry[i];

        if (!strcmp(c->section, "dataset") && !strcmp(c->key, "path"))
            json_array_append_new(items, describe(c->name, c->value));
    }
    return items;
}
