/* A request target, and the headers that name hosts and origins: refused, or clean in every part.
 */
#include <microhttpd.h>

#include "web/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *part)
{
    if (!str_is_utf8(part, strlen(part)))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const origins[] = {"https://ui.example", NULL};
    AUTO_FREE char *text = mem_alloc(size + 1);
    struct arena a = {0};
    struct web_target t;
    struct err e = {0};
    char host[256];
    bool foreign;

    memcpy(text, data, size);
    if (web_target_parse(&t, text, "/x", &a, &e) < 0) {
        if (!e.text[0])
            abort();
    } else {
        for (int i = 0; i < t.nsegments; i++) {
            check(t.segment[i]);
            if (!strcmp(t.segment[i], "..") || !strcmp(t.segment[i], "."))
                abort();
        }
        for (int i = 0; i < t.nquery; i++) {
            check(t.query[i].name);
            check(t.query[i].value);
        }
    }
    if (web_host_name(host, sizeof(host), text) == 0 && strlen(host) >= sizeof(host))
        abort();
    web_host_allowed(text, NULL);
    web_origin_allowed(&foreign, text, "localhost:80", origins);
    web_list_has(text, "gzip");
    arena_done(&a);
    return 0;
}
