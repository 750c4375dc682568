/*
 * Models by a path: a folder or config.json of Hugging Face. The client reads the file and sends
 * the object; the daemon reads no file that a request names, and has no path of the client's.
 */
#include "tuner/client/client.h"

#include "plan/plan.h"

#include <errno.h>
#include <sys/stat.h>

/* PATH, or config.json in it; relative to the folder of the file FROM where that is not NULL. */
static char *config_path(const char *path, const char *from)
{
    const char *slash = from && path[0] != '/' ? strrchr(from, '/') : NULL;
    char *whole = slash ? mem_printf("%.*s/%s", (int)(slash - from), from, path) : mem_strdup(path),
         *inside;
    struct stat st;

    if (stat(whole, &st) < 0 || !S_ISDIR(st.st_mode))
        return whole;
    inside = mem_printf("%s/config.json", whole);
    free(whole);
    return inside;
}

int cl_model_of(json_t **ret, const char *name, const char *from, struct err *error)
{
    AUTO_FREE char *path = config_path(name, from);
    AUTO_JSON *config = NULL;
    struct pl_model model;
    int r;

    if (!pl_model_preset(name) && !file_exists(path) &&
        (strchr("./", *name) || str_ends(name, ".json")))
        return err_set(error, -ENOENT, "%s does not exist", path);
    if (pl_model_preset(name) || !file_exists(path)) {
        *ret = json_string(name);
        return *ret ? 0 : err_set(error, -EINVAL, "the model's name is not UTF-8");
    }
    r = jx_load(&config, path, 1 << 20, error);
    if (r == 0 && !json_is_object(config))
        r = err_set(error, -EINVAL, "not an object");
    if (r == 0)
        r = pl_model_parse(&model, config, error);
    if (r < 0)
        return err_wrap(error, "%s", path);
    *ret = pl_model_json(&model);
    return 0;
}

int cl_model_in(json_t *body, const char *from, struct err *error)
{
    const char *name = json_string_value(json_object_get(body, "model"));
    json_t *model;
    int r = name ? cl_model_of(&model, name, from, error) : 0;

    if (r == 0 && name)
        json_object_set_new(body, "model", model);
    return r;
}

int cl_model_option(const struct cl *client, json_t *body)
{
    json_t *model;
    struct err e = {0};

    if (!client->args.model)
        return CL_OK;
    if (cl_model_of(&model, client->args.model, NULL, &e) < 0) {
        fprintf(stderr, "partune: --model: %s\n", e.text);
        return CL_FAILED;
    }
    json_object_set_new(body, "model", model);
    return CL_OK;
}
