/*
 * Host and Origin: which names a browser may reach this server by, and whose pages may call it.
 *
 * Loopback is no boundary against a web page: by DNS rebinding, evil.example can resolve to
 * 127.0.0.1, so a Host that is not one of ours is refused. A page of another origin is refused as
 * well, unless it is listed (CORS). The port of Host is not compared: a forwarded port
 * (ssh -L 9000:localhost:8417) is an honest use.
 */
#include "web/internal.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>

int web_host_name(char *buf, size_t size, const char *authority)
{
    size_t n;
    const char *rest;

    if (*authority == '[') {
        n = strcspn(authority, "]");
        if (!authority[n])
            return -EINVAL;
        n++;
    } else {
        n = strcspn(authority, ":");
    }
    rest = authority + n;
    if (n == 0 || n >= size)
        return -EINVAL;
    if (*rest) {
        int64_t port;

        if (*rest != ':' || str_to_i64(&port, rest + 1, 0, 65535) < 0)
            return -EINVAL;
    }
    for (size_t i = 0; i < n; i++) {
        if (!isalnum((unsigned char)authority[i]) && !strchr(".-_[]:", authority[i]))
            return -EINVAL;
        buf[i] = (char)tolower((unsigned char)authority[i]);
    }
    buf[n] = '\0';
    return 0;
}

bool web_address_is_loopback(const char *address)
{
    struct in_addr v4;

    if (!strcmp(address, "localhost") || !strcmp(address, "::1") || !strcmp(address, "[::1]"))
        return true;
    return inet_pton(AF_INET, address, &v4) == 1 && (ntohl(v4.s_addr) >> 24) == 127;
}

bool web_host_allowed(const char *authority, const char *const *extra)
{
    char name[256];

    if (web_host_name(name, sizeof(name), authority) < 0)
        return false;
    if (web_address_is_loopback(name))
        return true;
    for (; extra && *extra; extra++)
        if (!strcasecmp(name, *extra))
            return true;
    return false;
}

bool web_origin_allowed(bool *ret_foreign, const char *origin, const char *host,
                        const char *const *listed)
{
    const char *authority = strstr(origin, "://");

    *ret_foreign = false;
    if (authority && host && !strcasecmp(authority + 3, host) &&
        (str_starts(origin, "http:") || str_starts(origin, "https:")))
        return true;
    *ret_foreign = true;
    for (; listed && *listed; listed++)
        if (!strcasecmp(origin, *listed))
            return true;
    return false;
}

/* "gzip;q=0" says no: do the parameters at POS, up to the next comma, have a weight of zero? */
static bool weighs_nothing(const char *pos)
{
    while (pos += strspn(pos, "; \t"), *pos && *pos != ',') {
        size_t n = strcspn(pos, "; \t,");

        if (n > 2 && !strncasecmp(pos, "q=0", 3))
            return strspn(pos + 2, "0.") == n - 2;
        pos += n;
    }
    return false;
}

bool web_list_has(const char *list, const char *word)
{
    size_t n = strlen(word);

    while (list && *list) {
        size_t len;

        list += strspn(list, ", \t");
        len = strcspn(list, ",; \t");
        if (len == n && !strncasecmp(list, word, n))
            return !weighs_nothing(list + len);
        list += strcspn(list, ",");
    }
    return false;
}
