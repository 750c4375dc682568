/* Media types by suffix; also for the program that embeds the files. */
#include "web/internal.h"

static const struct {
    const char *suffix, *type;
} types[] = {
    {".html", "text/html; charset=utf-8"},
    {".js", "text/javascript; charset=utf-8"},
    {".css", "text/css; charset=utf-8"},
    {".svg", "image/svg+xml"},
    {".json", "application/json"},
    {".png", "image/png"},
    {".ico", "image/x-icon"},
    {".woff2", "font/woff2"},
    {".txt", "text/plain; charset=utf-8"},
    {".webmanifest", "application/manifest+json"},
};

const char *web_asset_type(const char *path)
{
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (str_ends(path, types[i].suffix))
            return types[i].type;
    return "application/octet-stream";
}
