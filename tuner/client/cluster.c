/*
 * Clusters by a path, as for models (model.c): the client reads the file and sends the object; the
 * daemon reads no file that a request names.
 */
#include "tuner/client/client.h"

#include "plan/plan.h"

#include <errno.h>
#include <sys/stat.h>

bool cl_cluster_is_file(const char *name)
{
    struct stat st;

    if (str_eq(name, "local") || pl_cluster_preset(name))
        return false;
    return strchr(name, '/') || str_ends(name, ".json") ||
           (stat(name, &st) == 0 && !S_ISDIR(st.st_mode));
}

static int devices_of(int *ret, const json_t *json, bool takes_parts, struct err *error)
{
    struct pl_cluster cluster;
    struct pl_parts parts;
    int r;

    if (json_is_string(json) || json_is_null(json))
        return err_set(error, -EINVAL, "not an object");
    r = takes_parts && pl_parts_are_in(json) ? pl_parts_parse(&cluster, &parts, json, NULL, error)
                                             : pl_cluster_parse(&cluster, json, NULL, error);
    if (r == 0)
        *ret = pl_cluster_devices(&cluster);
    return r;
}

int cl_cluster_load(json_t **ret, int *ret_devices, const char *path, bool takes_parts,
                    struct err *error)
{
    AUTO_FREE char *text = NULL;
    AUTO_JSON *json = NULL;
    size_t n;
    int r = file_read_all(&text, &n, path, 1 << 20, error);

    if (r < 0)
        return r;
    cl_strip_comments(text);
    r = jx_parse(&json, text, n, error);
    if (r == 0)
        r = devices_of(ret_devices, json, takes_parts, error);
    if (r < 0)
        return err_wrap(error, *error->pointer ? "%s: %s" : "%s%s", path, error->pointer);
    *ret = json_incref(json);
    return 0;
}
