/*
 * A baseline by a path: today's job script, or another trainer's configuration. The client reads
 * the file and sends its text, which the daemon imports.
 */
#include "tuner/client/client.h"

/* The importer of files that end like PATH; scripts and arguments have any ending. */
static const char *importer_of(const char *path)
{
    static const char *const endings[][2] = {
        {".json", "deepspeed"}, {".toml", "torchtitan"}, {".py", "torchtitan"}};

    for (size_t i = 0; i < ARRAY_LEN(endings); i++)
        if (str_ends(path, endings[i][0]))
            return endings[i][1];
    return "megatron";
}

int cl_baseline_option(const struct cl *client, json_t *body)
{
    AUTO_FREE char *text = NULL;
    const char *path = client->args.baseline;
    struct err e = {0};
    json_t *baseline;
    size_t n;

    if (!path) {
        if (client->args.from || client->args.world || client->args.call) {
            fprintf(stderr, "partune: --from, --world and --call need --baseline\n");
            return CL_USAGE;
        }
        return CL_OK;
    }
    if (file_read_all(&text, &n, path, 1 << 20, &e) < 0) {
        fprintf(stderr, "partune: --baseline: %s\n", e.text);
        return CL_FAILED;
    }
    baseline = json_pack("{s:s, s:s}", "import",
                         client->args.from ? client->args.from : importer_of(path), "text", text);
    if (!baseline) {
        fprintf(stderr, "partune: --baseline: %s is not text\n", path);
        return CL_FAILED;
    }
    if (client->args.world)
        json_object_set_new(baseline, "world", json_integer(client->args.world));
    if (client->args.call)
        json_object_set_new(baseline, "call", json_string(client->args.call));
    json_object_set_new(body, "baseline", baseline);
    return CL_OK;
}
