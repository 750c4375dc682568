/* The tokens that a server accepts, and the file with its own. */
#include "web/internal.h"

#include <errno.h>
#include <sys/stat.h>

int web_server_add_token(struct web_server *server, const char *name, const char *hash,
                         enum web_scope scope, struct err *error)
{
    uint8_t bytes[32];
    struct web_token *t;

    if (web_unhex(bytes, sizeof(bytes), hash) < 0)
        return err_set(error, -EINVAL, "token %s: its hash is not 64 hexadecimal digits", name);
    web_server_drop_token(server, hash);
    t = mem_alloc(sizeof(*t));
    memcpy(t->hash, bytes, sizeof(bytes));
    t->name = mem_strdup(name);
    t->scope = scope;
    t->next = server->auth.tokens;
    server->auth.tokens = t;
    return 0;
}

void web_server_drop_token(struct web_server *server, const char *hash)
{
    uint8_t bytes[32];
    struct web_token **p = &server->auth.tokens;

    if (web_unhex(bytes, sizeof(bytes), hash) < 0)
        return;
    while (*p) {
        struct web_token *t = *p;

        if (memcmp(t->hash, bytes, sizeof(bytes))) {
            p = &t->next;
            continue;
        }
        *p = t->next;
        web_streams_end_of(server, t);
        free(t->name);
        free(t);
    }
}

/* The token that an earlier run left in PATH, if nobody else could have read or planted it. */
static bool read_token_file(char token[WEB_TOKEN_TEXT], const char *path)
{
    struct stat st;
    AUTO_FREE char *text = NULL;
    size_t n;

    if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode) || (st.st_mode & 077) ||
        st.st_uid != geteuid() || file_read_all(&text, &n, path, 256, NULL) < 0)
        return false;
    n = strcspn(text, "\r\n");
    if (n < 20 || n >= WEB_TOKEN_TEXT || !str_starts(text, "pt_"))
        return false;
    memcpy(token, text, n);
    token[n] = '\0';
    return true;
}

int web_server_token_file(char **ret_token, struct web_server *server, const char *path,
                          struct err *error)
{
    char token[WEB_TOKEN_TEXT], hash[WEB_HASH_HEX];
    int r = 0;

    if (read_token_file(token, path)) {
        web_token_hash(hash, token);
    } else {
        AUTO_STR line = {0};

        r = web_token_make(token, hash, error);
        if (r < 0)
            return r;
        str_addf(&line, "%s\n", token);
        r = file_write_atomic(path, line.text, line.len, 0600, error);
    }
    if (r == 0)
        r = web_server_add_token(server, "local", hash, WEB_ADMIN, error);
    if (r < 0)
        return r;
    server->auth.tokens->local = true; /* the newest is first */
    if (ret_token)
        *ret_token = mem_strdup(token);
    return 0;
}
