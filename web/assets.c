/*
 * The dashboard's files: from inside the program, compressed at build time, or (--ui-dir) from a
 * folder while somebody works on them.
 */
#include "web/internal.h"

#include <errno.h>
#include <zlib.h>

enum { MAX_FILE = 8 << 20 };

/* Nothing from elsewhere, nothing inline, no frames. */
static void add_headers(struct web_request *rq, const char *etag)
{
    static const char csp[] =
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: "
        "blob:; connect-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'";

    web_reply_header(rq, "Content-Security-Policy", csp);
    web_reply_header(rq, "Referrer-Policy", "no-referrer");
    web_reply_header(rq, "X-Frame-Options", "DENY");
    web_reply_header(rq, "Cross-Origin-Opener-Policy", "same-origin");
    web_reply_header(rq, "Cross-Origin-Resource-Policy", "same-origin");
    web_reply_header(rq, "Permissions-Policy", "camera=(), microphone=(), geolocation=()");
    if (etag)
        web_reply_header(rq, "ETag", etag);
    web_reply_header(rq, "Cache-Control", "no-cache");
}

static bool inflate_whole(void *out, size_t size, const struct web_asset *a)
{
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)a->bytes,
                  .avail_in = (uInt)a->size,
                  .next_out = out,
                  .avail_out = (uInt)size};
    bool ok = inflateInit2(&z, 15 + 16) == Z_OK && inflate(&z, Z_FINISH) == Z_STREAM_END;

    inflateEnd(&z);
    return ok;
}

static void reply_embedded(struct web_request *rq, const struct web_asset *a)
{
    void *plain;

    add_headers(rq, a->etag);
    if (rq->accepts_gzip) {
        web_reply_header(rq, "Content-Encoding", "gzip");
        web_reply_bytes(rq, 200, a->type, a->bytes, a->size);
        return;
    }
    plain = mem_alloc(a->plain_size + 1);
    if (!inflate_whole(plain, a->plain_size, a))
        abort(); /* made by our own build */
    web_reply_bytes(rq, 200, a->type, plain, a->plain_size);
    free(plain);
}

/* PATH below the folder, found without leaving it: its segments are known to be no dot segments. */
static bool reply_file(struct web_request *rq, const char *dir, const char *path)
{
    AUTO_FREE char *text = NULL;
    AUTO_FREE char *full = mem_printf("%s/%s", dir, path);
    size_t n;

    for (int i = 0; i < rq->target.nsegments; i++)
        if (rq->target.segment[i][0] == '.' || strchr(rq->target.segment[i], '/'))
            return false;
    if (file_read_all(&text, &n, full, MAX_FILE, NULL) < 0)
        return false;
    add_headers(rq, NULL);
    web_reply_bytes(rq, 200, web_asset_type(path), text, n);
    return true;
}

bool web_asset_reply(struct web_request *rq)
{
    const char *path = rq->target.path + (*rq->target.path == '/');
    bool get = !strcmp(rq->method, "GET") || !strcmp(rq->method, "HEAD");
    const char *dir = rq->server->config.ui_dir;

    if (!*path)
        path = "index.html";
    if (!get)
        return false;
    rq->principal = "";
    if (dir)
        return reply_file(rq, dir, path);
    for (const struct web_asset *a = web_assets; a->path; a++) {
        if (!strcmp(a->path, path)) {
            reply_embedded(rq, a);
            return true;
        }
    }
    return false;
}
