#include "base/base.h"

#include <ctype.h>
#include <errno.h>

static void *slot(const struct opt_set *set, const struct opt *option)
{
    return (char *)set->values + option->offset;
}

static const struct opt *find(const struct opt_set *set, const char *name)
{
    for (size_t i = 0; i < set->count; i++)
        if (!strcmp(set->table[i].name, name))
            return &set->table[i];
    return NULL;
}

static const char *keep(struct opt_set *set, const char *value)
{
    MEM_GROW(set->owned, set->nowned, set->owned_cap);
    return set->owned[set->nowned++] = mem_strdup(value);
}

static int parse_flag(bool *ret, const char *text)
{
    if (str_eq(text, "true") || str_eq(text, "yes") || str_eq(text, "on") || str_eq(text, "1"))
        *ret = true;
    else if (str_eq(text, "false") || str_eq(text, "no") || str_eq(text, "off") ||
             str_eq(text, "0"))
        *ret = false;
    else
        return -EINVAL;
    return 0;
}

static int to_count(double *ret, const char *text)
{
    static const char units[] = "KMBT";
    size_t n = strlen(text);
    const char *unit = n ? strchr(units, toupper((unsigned char)text[n - 1])) : NULL;
    char number[64];

    if (!unit)
        return str_to_f64(ret, text);
    if (n > sizeof(number))
        return -EINVAL;
    snprintf(number, sizeof(number), "%.*s", (int)n - 1, text);
    if (str_to_f64(ret, number) < 0)
        return -EINVAL;
    for (const char *p = units; p <= unit; p++)
        *ret *= 1000;
    return 0;
}

static int set_value(struct opt_set *set, const struct opt *option, const char *text,
                     const char *origin, struct err *error)
{
    int64_t i;
    double d;

    switch (option->type) {
    case OPT_FLAG:
        if (parse_flag(slot(set, option), text) < 0)
            return err_set(error, -EINVAL, "%s must be true or false, not `%.80s`", option->name,
                           text);
        break;
    case OPT_INT:
        if (str_to_i64(&i, text, (int64_t)option->min, (int64_t)option->max) < 0)
            return err_set(error, -EINVAL, "%s must be an integer in %.0f..%.0f, not `%.80s`",
                           option->name, option->min, option->max, text);
        *(int *)slot(set, option) = (int)i;
        break;
    case OPT_F64:
    case OPT_COUNT:
        if ((option->type == OPT_F64 ? str_to_f64(&d, text) : to_count(&d, text)) < 0 ||
            d < option->min || d > option->max)
            return err_set(error, -EINVAL, "%s must be a number in %g..%g, not `%.80s`",
                           option->name, option->min, option->max, text);
        *(double *)slot(set, option) = d;
        break;
    case OPT_BYTES:
        if (str_to_bytes(slot(set, option), text) < 0)
            return err_set(error, -EINVAL, "%s must be a size such as 512M or 2GiB, not `%.80s`",
                           option->name, text);
        break;
    case OPT_STR:
        *(const char **)slot(set, option) = keep(set, text);
        break;
    }
    set->origin[option - set->table] = origin;
    return 0;
}

void opt_init(struct opt_set *set)
{
    set->origin = mem_alloc(set->count * sizeof(*set->origin));
    for (size_t i = 0; i < set->count; i++) {
        set->origin[i] = "default";
        if (set->table[i].standard &&
            set_value(set, &set->table[i], set->table[i].standard, "default", NULL))
            abort(); /* the table's own default is out of its bounds */
    }
}

void opt_done(struct opt_set *set)
{
    for (size_t i = 0; i < set->nowned; i++)
        free(set->owned[i]);
    free(set->owned);
    free(set->origin);
    set->owned = NULL;
    set->origin = NULL;
    set->nowned = set->owned_cap = 0;
}

static int unknown(const struct opt_set *set, const char *what, const char *name, struct err *error)
{
    AUTO_FREE const char **names = mem_alloc((set->count + 1) * sizeof(*names));
    const char *near;

    for (size_t i = 0; i < set->count; i++)
        names[i] = set->table[i].name;
    near = str_nearest(name, names);
    if (near)
        return err_set(error, -ENOENT, "unknown %s `%.80s`; did you mean `%s`?", what, name, near);
    return err_set(error, -ENOENT, "unknown %s `%.80s`", what, name);
}

int opt_from_conf(struct opt_set *set, const struct conf *conf, struct err *error)
{
    for (size_t i = 0; i < conf->count; i++) {
        const struct conf_entry *it = &conf->entry[i];
        const struct opt *o;
        int r;

        if (strcmp(it->section, set->section) || *it->name)
            continue;
        o = find(set, it->key);
        r = o ? set_value(set, o, it->value, "file", error) : unknown(set, "key", it->key, error);
        if (r < 0)
            return err_wrap(error, "%s:%d", conf->path, it->line);
    }
    return 0;
}

int opt_from_env(struct opt_set *set, struct err *error)
{
    for (size_t i = 0; i < set->count; i++) {
        const struct opt *o = &set->table[i];
        const char *v = o->env ? getenv(o->env) : NULL;
        int r;

        if (!v || !*v)
            continue;
        r = set_value(set, o, v, "environment", error);
        if (r < 0)
            return err_wrap(error, "environment variable %s", o->env);
    }
    return 0;
}

static int long_option(struct opt_set *set, char ***arg, char **end, struct err *error)
{
    AUTO_FREE char *name = mem_strdup(**arg + 2);
    char *value = strchr(name, '=');
    const struct opt *o;
    bool negated = false;

    if (value)
        *value++ = '\0';
    o = find(set, name);
    if (!o && str_starts(name, "no-")) {
        o = find(set, name + 3);
        negated = o && o->type == OPT_FLAG;
        if (!negated)
            o = NULL;
    }
    if (!o)
        return unknown(set, "option", name, error);
    if (o->type == OPT_FLAG && (negated || !value)) {
        if (value)
            return err_set(error, -EINVAL, "--no-%s takes no value", o->name);
        return set_value(set, o, negated ? "false" : "true", "command line", error);
    }
    if (!value) {
        if (*arg + 1 >= end)
            return err_set(error, -EINVAL, "--%s needs a value", o->name);
        value = *++*arg;
    }
    return set_value(set, o, value, "command line", error);
}

static int short_option(struct opt_set *set, char ***arg, char **end, struct err *error)
{
    const char *p = **arg + 1;

    for (size_t i = 0; i < set->count; i++) {
        const struct opt *o = &set->table[i];

        if (o->letter != *p)
            continue;
        if (o->type == OPT_FLAG) {
            if (p[1])
                return err_set(error, -EINVAL, "-%c takes no value", *p);
            return set_value(set, o, "true", "command line", error);
        }
        if (p[1])
            return set_value(set, o, p + 1, "command line", error);
        if (*arg + 1 >= end)
            return err_set(error, -EINVAL, "-%c needs a value", *p);
        return set_value(set, o, *++*arg, "command line", error);
    }
    return err_set(error, -ENOENT, "unknown option `%.80s`", **arg);
}

int opt_from_argv(int *ret_operands, struct opt_set *set, int argc, char **argv,
                  int stop_at_operand, struct err *error)
{
    char **end = argv + argc, **out = argv + 1, **arg;
    int r = 0;

    for (arg = argv + 1; arg < end && r == 0; arg++) {
        if (!strcmp(*arg, "--")) {
            arg++;
            break;
        }
        if ((*arg)[0] != '-' || !(*arg)[1]) {
            if (stop_at_operand)
                break;
            *out++ = *arg;
        } else if ((*arg)[1] == '-') {
            r = long_option(set, &arg, end, error);
        } else {
            r = short_option(set, &arg, end, error);
        }
    }
    if (r < 0)
        return r;
    while (arg < end)
        *out++ = *arg++;
    *ret_operands = (int)(out - argv - 1);
    return 0;
}

enum { LEFT_COLUMN = 30, HELP_WIDTH = 100 };

void opt_columns(const char *left, const char *right, FILE *out)
{
    int column = fprintf(out, "  %-*s", LEFT_COLUMN, left);

    if (column > 2 + LEFT_COLUMN)
        column = HELP_WIDTH; /* no word has room */
    while (*right) {
        int word = (int)strcspn(right, " ");

        if (column + 1 + word > HELP_WIDTH)
            column = fprintf(out, "\n  %*s", LEFT_COLUMN, "") - 1;
        column += fprintf(out, " %.*s", word, right);
        right += word + (int)strspn(right + word, " ");
    }
    fputc('\n', out);
}

static void help_row(const struct opt *option, FILE *out)
{
    AUTO_STR left = {0}, right = {0};

    if (option->letter)
        str_addf(&left, "-%c, --%s", option->letter, option->name);
    else
        str_addf(&left, "    --%s", option->name);
    if (option->type != OPT_FLAG)
        str_addf(&left, " %s", option->metavar ? option->metavar : "N");
    str_add(&right, option->help);
    if (option->standard && *option->standard && option->type != OPT_FLAG)
        str_addf(&right, " (default %s)", option->standard);
    if (option->env)
        str_addf(&right, " [$%s]", option->env);
    opt_columns(str_text(&left), str_text(&right), out);
}

void opt_help(const struct opt_set *set, FILE *out)
{
    size_t apart = set->count - set->last;

    fprintf(out, "usage: %s\n", set->usage);
    if (set->about)
        fprintf(out, "\n%c%s.\n", toupper((unsigned char)*set->about), set->about + 1);
    for (size_t i = 0; i < set->count; i++) {
        if (i == apart)
            fprintf(out, "\n%s:\n", set->last_title);
        else if (i == 0)
            fputs("\noptions:\n", out);
        help_row(&set->table[i], out);
    }
}
