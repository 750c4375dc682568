/*
 * partuned token add NAME [SCOPE] | list | drop ID: tokens by the administrator's hand. They are
 * rows of the database, so a daemon that serves the directory takes them up within seconds.
 */
#include <errno.h>

#include "tuner/api/api.h"

static int add(struct db *writer, const char *name, const char *scope, struct err *error)
{
    char token[WEB_TOKEN_TEXT], hash[WEB_HASH_HEX], id[13];
    int known = WEB_READ, r;

    while (web_scope_names[known] && strcmp(web_scope_names[known], scope))
        known++;
    if (!web_scope_names[known])
        return err_set(error, -EINVAL, "a token's scope must be read, submit or admin, not %s",
                       scope);
    r = web_token_make(token, hash, error);
    if (r < 0)
        return r;
    snprintf(id, sizeof(id), "%.12s", hash);
    r = db_token_put(writer,
                     &(struct db_token){.id = id,
                                        .name = name,
                                        .scope = scope,
                                        .hash = hash,
                                        .created = clock_wall_ms(),
                                        .expires = DB_NULL,
                                        .used = DB_NULL},
                     error);
    if (r == 0)
        printf("%s\n", token); /* the only time that it is seen */
    return r;
}

static int list(struct db *db, struct err *error)
{
    struct arena a = {0};
    struct db_token *t = NULL;
    char created[CLOCK_TEXT];
    int n = 0, r = db_token_list(&t, &n, db, &a, error);

    for (int i = 0; r == 0 && i < n; i++)
        printf("%-12s  %-6s  %s  %s\n", t[i].id, t[i].scope, clock_format(created, t[i].created),
               t[i].name);
    arena_done(&a);
    return r;
}

int tn_token_command(const char *data_dir, int argc, char **argv, struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/partune.db", data_dir);
    AUTO_DB *w = NULL;
    bool adds = argc >= 2 && argc <= 3 && str_eq(argv[0], "add");
    bool lists = argc == 1 && str_eq(argv[0], "list"), drops = argc == 2 && str_eq(argv[0], "drop");
    int r;

    if (!adds && !lists && !drops)
        return err_set(error, -EINVAL,
                       "usage: token add NAME [read|submit|admin], token list, token drop ID");
    r = file_mkdirs(data_dir, 0700, error);
    if (r == 0)
        r = db_open(&w, path, DB_WRITE, error);
    if (r < 0)
        return r;
    if (adds)
        return add(w, argv[1], argc == 3 ? argv[2] : "submit", error);
    return lists ? list(w, error) : db_token_delete(w, argv[1], error);
}
