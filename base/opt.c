#include "base/base.h"

#include <errno.h>

static void *slot(const struct opt_set *s, const struct opt *o)
{
    return (char *)s->values + o->offset;
}

static const struct opt *find(const struct opt_set *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++)
        if (!strcmp(s->table[i].name, name))
            return &s->table[i];
    return NULL;
}

static const char *keep(struct opt_set *s, const char *value)
{
    MEM_GROW(s->owned, s->nowned, s->owned_cap);
    return s->owned[s->nowned++] = mem_strdup(value);
}

static int parse_flag(bool *ret, const char *v)
{
    if (str_eq(v, "true") || str_eq(v, "yes") || str_eq(v, "on") || str_eq(v, "1"))
        *ret = true;
    else if (str_eq(v, "false") || str_eq(v, "no") || str_eq(v, "off") || str_eq(v, "0"))
        *ret = false;
    else
        return -EINVAL;
    return 0;
}

static int set_value(struct opt_set *s, const struct opt *o, const char *v, const char *origin,
                     struct err *e)
{
    int64_t i;
    double d;

    switch (o->type) {
    case OPT_FLAG:
        if (parse_flag(slot(s, o), v) < 0)
            return err_set(e, -EINVAL, "%s must be true or false, not `%.80s`", o->name, v);
        break;
    case OPT_INT:
        if (str_to_i64(&i, v, (int64_t)o->min, (int64_t)o->max) < 0)
            return err_set(e, -EINVAL, "%s must be an integer in %.0f..%.0f, not `%.80s`", o->name,
                           o->min, o->max, v);
        *(int *)slot(s, o) = (int)i;
        break;
    case OPT_F64:
        if (str_to_f64(&d, v) < 0 || d < o->min || d > o->max)
            return err_set(e, -EINVAL, "%s must be a number in %g..%g, not `%.80s`", o->name,
                           o->min, o->max, v);
        *(double *)slot(s, o) = d;
        break;
    case OPT_BYTES:
        if (str_to_bytes(slot(s, o), v) < 0)
            return err_set(e, -EINVAL, "%s must be a size such as 512M or 2GiB, not `%.80s`",
                           o->name, v);
        break;
    case OPT_STR:
        *(const char **)slot(s, o) = keep(s, v);
        break;
    }
    s->origin[o - s->table] = origin;
    return 0;
}

void opt_init(struct opt_set *s)
{
    s->origin = mem_alloc(s->count * sizeof(*s->origin));
    for (size_t i = 0; i < s->count; i++) {
        s->origin[i] = "default";
        if (s->table[i].standard &&
            set_value(s, &s->table[i], s->table[i].standard, "default", NULL))
            abort(); /* the table's own default is out of its bounds */
    }
}

void opt_done(struct opt_set *s)
{
    for (size_t i = 0; i < s->nowned; i++)
        free(s->owned[i]);
    free(s->owned);
    free(s->origin);
    s->owned = NULL;
    s->origin = NULL;
    s->nowned = s->owned_cap = 0;
}

static int unknown(const struct opt_set *s, const char *what, const char *name, struct err *e)
{
    AUTO_FREE const char **names = mem_alloc((s->count + 1) * sizeof(*names));
    const char *near;

    for (size_t i = 0; i < s->count; i++)
        names[i] = s->table[i].name;
    near = str_nearest(name, names);
    if (near)
        return err_set(e, -ENOENT, "unknown %s `%.80s`; did you mean `%s`?", what, name, near);
    return err_set(e, -ENOENT, "unknown %s `%.80s`", what, name);
}

int opt_assign(struct opt_set *s, const char *name, const char *value, const char *origin,
               struct err *e)
{
    const struct opt *o = find(s, name);

    return o ? set_value(s, o, value, origin, e) : unknown(s, "option", name, e);
}

int opt_from_conf(struct opt_set *s, const struct conf *c, struct err *e)
{
    for (size_t i = 0; i < c->count; i++) {
        const struct conf_entry *it = &c->entry[i];
        const struct opt *o;
        int r;

        if (strcmp(it->section, s->section) || *it->name)
            continue;
        o = find(s, it->key);
        r = o ? set_value(s, o, it->value, "file", e) : unknown(s, "key", it->key, e);
        if (r < 0)
            return err_wrap(e, "%s:%d", c->path, it->line);
    }
    return 0;
}

int opt_from_env(struct opt_set *s, struct err *e)
{
    for (size_t i = 0; i < s->count; i++) {
        const struct opt *o = &s->table[i];
        const char *v = o->env ? getenv(o->env) : NULL;
        int r;

        if (!v || !*v)
            continue;
        r = set_value(s, o, v, "environment", e);
        if (r < 0)
            return err_wrap(e, "environment variable %s", o->env);
    }
    return 0;
}

static int long_option(struct opt_set *s, char ***arg, char **end, struct err *e)
{
    AUTO_FREE char *name = mem_strdup(**arg + 2);
    char *value = strchr(name, '=');
    const struct opt *o;
    bool negated = false;

    if (value)
        *value++ = '\0';
    o = find(s, name);
    if (!o && str_starts(name, "no-")) {
        o = find(s, name + 3);
        negated = o && o->type == OPT_FLAG;
        if (!negated)
            o = NULL;
    }
    if (!o)
        return unknown(s, "option", name, e);
    if (o->type == OPT_FLAG && (negated || !value)) {
        if (value)
            return err_set(e, -EINVAL, "--no-%s takes no value", o->name);
        return set_value(s, o, negated ? "false" : "true", "command line", e);
    }
    if (!value) {
        if (*arg + 1 >= end)
            return err_set(e, -EINVAL, "--%s needs a value", o->name);
        value = *++*arg;
    }
    return set_value(s, o, value, "command line", e);
}

static int short_option(struct opt_set *s, char ***arg, char **end, struct err *e)
{
    const char *p = **arg + 1;

    for (size_t i = 0; i < s->count; i++) {
        const struct opt *o = &s->table[i];

        if (o->letter != *p)
            continue;
        if (o->type == OPT_FLAG) {
            if (p[1])
                return err_set(e, -EINVAL, "-%c takes no value", *p);
            return set_value(s, o, "true", "command line", e);
        }
        if (p[1])
            return set_value(s, o, p + 1, "command line", e);
        if (*arg + 1 >= end)
            return err_set(e, -EINVAL, "-%c needs a value", *p);
        return set_value(s, o, *++*arg, "command line", e);
    }
    return err_set(e, -ENOENT, "unknown option `%.80s`", **arg);
}

int opt_from_argv(struct opt_set *s, int *ret_operands, int argc, char **argv, int stop_at_operand,
                  struct err *e)
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
            r = long_option(s, &arg, end, e);
        } else {
            r = short_option(s, &arg, end, e);
        }
    }
    if (r < 0)
        return r;
    while (arg < end)
        *out++ = *arg++;
    *ret_operands = (int)(out - argv - 1);
    return 0;
}

void opt_help(const struct opt_set *s, FILE *out)
{
    fprintf(out, "usage: %s\n\noptions:\n", s->usage);
    for (size_t i = 0; i < s->count; i++) {
        const struct opt *o = &s->table[i];
        char left[64];
        int n = o->letter ? snprintf(left, sizeof(left), "-%c, --%s", o->letter, o->name)
                          : snprintf(left, sizeof(left), "    --%s", o->name);

        if (o->type != OPT_FLAG)
            snprintf(left + n, sizeof(left) - (size_t)n, " %s", o->metavar ? o->metavar : "N");
        fprintf(out, "  %-30s %s", left, o->help);
        if (o->standard && *o->standard && o->type != OPT_FLAG)
            fprintf(out, " (default %s)", o->standard);
        if (o->env)
            fprintf(out, " [$%s]", o->env);
        fputc('\n', out);
    }
}

static void print_value(const struct opt_set *s, const struct opt *o, FILE *out)
{
    switch (o->type) {
    case OPT_FLAG:
        fputs(*(bool *)slot(s, o) ? "true" : "false", out);
        break;
    case OPT_INT:
        fprintf(out, "%d", *(int *)slot(s, o));
        break;
    case OPT_F64:
        fprintf(out, "%g", *(double *)slot(s, o));
        break;
    case OPT_BYTES:
        fprintf(out, "%llu", (unsigned long long)*(uint64_t *)slot(s, o));
        break;
    case OPT_STR:
        fprintf(out, "\"%s\"", *(const char **)slot(s, o) ? *(const char **)slot(s, o) : "");
        break;
    }
}

void opt_dump(const struct opt_set *s, FILE *out)
{
    fprintf(out, "[%s]\n", s->section);
    for (size_t i = 0; i < s->count; i++) {
        fprintf(out, "\t%s = ", s->table[i].name);
        print_value(s, &s->table[i], out);
        fprintf(out, " ; %s\n", s->origin[i]);
    }
}
