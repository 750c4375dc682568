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

/* Anybody may ask for these files, so a request costs no memory: who does not take gzip gets a copy
 * that was unpacked for the first of them. */
static const void *unpacked(struct web_server *server, const struct web_asset *asset)
{
    size_t at = (size_t)(asset - web_assets), count = at;
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)asset->bytes,
                  .avail_in = (uInt)asset->size};
    void *plain;

    while (web_assets[count].path)
        count++;
    if (!server->unpacked)
        server->unpacked = mem_alloc((count + 1) * sizeof(*server->unpacked));
    if (server->unpacked[at])
        return server->unpacked[at];
    plain = mem_alloc(asset->plain_size + 1);
    z.next_out = plain;
    z.avail_out = (uInt)asset->plain_size;
    if (inflateInit2(&z, 15 + 16) != Z_OK || inflate(&z, Z_FINISH) != Z_STREAM_END)
        abort(); /* made by our own build */
    inflateEnd(&z);
    return server->unpacked[at] = plain;
}

void web_assets_done(struct web_server *server)
{
    for (size_t i = 0; server->unpacked && web_assets[i].path; i++)
        free(server->unpacked[i]);
    free(server->unpacked);
}

static void reply_embedded(struct web_request *rq, const struct web_asset *asset)
{
    add_headers(rq, asset->etag);
    if (rq->accepts_gzip) {
        web_reply_header(rq, "Content-Encoding", "gzip");
        web_reply_static(rq, asset->type, asset->bytes, asset->size);
    } else {
        web_reply_static(rq, asset->type, unpacked(rq->server, asset), asset->plain_size);
    }
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
