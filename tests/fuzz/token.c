/* The token file of a former run: taken over only if it is a token; otherwise a new one replaces
 * it. */
#include <unistd.h>

#include "base/base.h"
#include "web/web.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct web_route none[] = {
        {NULL, NULL, NULL, 0, WEB_PUBLIC, NULL, NULL, NULL, NULL, 0}};
    struct web_config config = {.routes = none, .title = "t", .version = "1"};
    struct web_server *s = NULL;
    uv_loop_t loop;
    struct err e = {0};
    char path[64];
    char *token = NULL;

    log_setup("fuzz", LOG_ERROR);
    snprintf(path, sizeof(path), "fuzz-token.%d", (int)getpid());
    uv_loop_init(&loop);
    if (file_write_atomic(path, data, size, 0600, &e) < 0 ||
        web_server_new(&s, &loop, &config, &e) < 0 ||
        web_server_token_file(s, path, &token, &e) < 0)
        abort();
    if (strlen(token) < 20 || !str_starts(token, "pt_") || strpbrk(token, "\r\n "))
        abort();
    free(token);
    web_server_free(s);
    uv_loop_close(&loop);
    unlink(path);
    return 0;
}
