/* The token file of a former run: taken over only if it is a token; otherwise a new one replaces
 * it. */
#include <fcntl.h>
#include <unistd.h>

#include "base/base.h"
#include "web/web.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Without the sync of file_write_atomic(): nobody loses power here, and there are many rounds. */
static void put(const char *path, const uint8_t *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (fd < 0 || file_write_fd(fd, data, size) < 0)
        abort();
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct web_route none[] = {
        {NULL, NULL, NULL, 0, WEB_PUBLIC, NULL, NULL, NULL, NULL, 0, false}};
    struct web_config config = {.routes = none, .title = "t", .version = "1"};
    struct web_server *s = NULL;
    uv_loop_t loop;
    struct err e = {0};
    char path[64];
    char *token = NULL;

    log_setup("fuzz", LOG_ERROR);
    snprintf(path, sizeof(path), "fuzz-token.%d", (int)getpid());
    uv_loop_init(&loop);
    put(path, data, size);
    if (web_server_new(&s, &loop, &config, &e) < 0 ||
        web_server_token_file(&token, s, path, &e) < 0)
        abort();
    if (strlen(token) < 20 || !str_starts(token, "pt_") || strpbrk(token, "\r\n "))
        abort();
    free(token);
    web_server_free(s);
    uv_loop_close(&loop);
    unlink(path);
    return 0;
}
