/*
 * The one table of partune-train's settings: a row is an option of the command line and, where it
 * has a section, a key of the configuration file. Private to config.c, config_merge.c, options.c,
 * settings.c and their tests.
 */
#ifndef TRAINER_OPTIONS_H
#define TRAINER_OPTIONS_H

#include "base/opt.h"
#include "trainer/config.h"

/* A text of the command line that files have as an array. */
struct tr_form {
    /* KEY of OBJECT as that text; *RET stays where there is none. It lives as long as OPTIONS. */
    int (*read)(const char **ret, struct tr_options *options, const json_t *object, const char *key,
                struct err *error);
    json_t *(*json)(const char *text); /* of a checked text; new reference */
};

struct tr_setting {
    const char *option;  /* "lr-warmup" */
    const char *section; /* "train", or NULL: only an option */
    const char *key;     /* "warmup_steps" */
    enum opt_type type;
    size_t offset; /* in struct tr_config */
    double min, max;
    const char *standard, *env, *metavar, *help;
    const struct tr_form *form; /* NULL: the same in files */
};

extern const struct tr_setting tr_settings[];
extern const size_t tr_settings_count;

extern const struct opt_manual tr_manual;

/* The parsed command line: the settings, then a text for each layout key, then what needs its own
 * code. */
struct tr_options {
    struct opt_set set;
    struct opt *table;
    union tr_value {
        bool b;
        int i;
        double d;
        uint64_t u;
        const char *s;
    } * value;
    char **owned; /* texts that the table and the configuration point at */
    size_t nowned, owned_cap;
};

struct tr_options *tr_options_new(void);
struct tr_options *tr_options_free(struct tr_options *options);

/* The value of an option that is not a setting ("model", "tp", "config"), or NULL where it was not
 * given. */
const char *tr_options_text(const struct tr_options *options, const char *name);
bool tr_options_flag(const struct tr_options *options, const char *name);
/* Said on the command line or in the environment, not a default. */
bool tr_options_given(const struct tr_options *options, const char *name);
/* Copy of TEXT that lives as long as OPTIONS. */
const char *tr_options_keep(struct tr_options *options, const char *text);

/* Copy setting INDEX of the command line, or its default, into CONFIG. */
void tr_options_store(const struct tr_options *options, size_t index, struct tr_config *config);

#endif
