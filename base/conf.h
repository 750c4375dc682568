/*
 * Configuration files in git's dialect of INI.
 *
 *     # comment            ; comment
 *     [section]            [section "name"]
 *     key = value          key = "quoted \" \\ \n \t"
 *     key = value \
 *           continued
 *
 * Sections and keys are case-insensitive and stored in lower case; names in quotes keep their case.
 * A key may be given several times: the last one wins for conf_get(), conf_each() visits all.
 */
#ifndef BASE_CONF_H
#define BASE_CONF_H

#include <stdbool.h>

#include "base/err.h"
#include "base/mem.h"

struct conf_entry {
    char *section; /* "trainer" */
    char *name;    /* "megatron" of [trainer "megatron"], else "" */
    char *key;
    char *value;
    int line;
};

struct conf {
    struct conf_entry *entry;
    size_t count, cap;
    char *path; /* for messages */
};

int conf_parse(struct conf **ret, const char *text, const char *path, struct err *error);
int conf_load(struct conf **ret, const char *path, struct err *error);
struct conf *conf_free(struct conf *conf);

/* Last value of the key, or NULL. NAME is "" for a plain section. */
const char *conf_get(const struct conf *conf, const char *section, const char *name,
                     const char *key);

/* Is there a section of that name with at least one key? */
bool conf_has(const struct conf *conf, const char *section);

/* What a program reads of a file: one row a section; two neighbors for one that is read with and
 * without a name, each with its keys. */
struct conf_key {
    const char *name;
    const char *const *words; /* the values it may have, ends with NULL; NULL: any */
    double min, max;          /* a number within; max 0: any text */
};
struct conf_section {
    const char *name;
    bool named;                 /* [name "..."], else [name] */
    const struct conf_key *key; /* ends with a NULL name; NULL: its reader checks the keys */
};

/* Is everything in CONF known? KNOWN ends with a NULL name. -EINVAL names file, line and the
 * nearest known name: a mistyped section would otherwise count as absent. */
int conf_check(const struct conf *conf, const struct conf_section *known, struct err *error);

AUTO_DEFINE(conf)

#endif
