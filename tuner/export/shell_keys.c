/*
 * Arrays by keys (declare -A), and elements of arrays. A keyed array's list of values has each key
 * before its value. Several elements come in an order that only a shell could tell.
 */
#include "tuner/export/shell_flow.h"

#include <assert.h>

/* Where the value of KEY is in VALUES; their number: nowhere. */
static size_t find_key(const struct tn_sh_list *values, const char *key)
{
    size_t i = 1;

    assert(values->n % 2 == 0);
    while (i < values->n && strcmp(values->v[i - 1], key) != 0)
        i += 2;
    return i < values->n ? i : values->n;
}

static void put_key(struct tn_sh_list *values, const char *key, const char *value, bool append)
{
    size_t at = find_key(values, key);

    if (at == values->n) {
        tn_sh_list_add(values, mem_strdup(key));
        tn_sh_list_add(values, mem_strdup(value));
    } else {
        char *whole = mem_printf("%s%s", append ? values->v[at] : "", value);

        free(values->v[at]);
        values->v[at] = whole;
    }
}

/* The keyed array NAME, which is one from here on; NULL where it does not run. */
static struct tn_sh_variable *keyed(struct tn_sh *shell, const char *name)
{
    struct tn_sh_list none = {0};
    struct tn_sh_variable *v = tn_sh_find(shell, name);

    if (v && v->keyed)
        return v;
    tn_sh_assign(shell, name, &none, false, true);
    v = tn_sh_find(shell, name);
    if (v && tn_sh_runs(shell) != TN_SH_FALSE)
        v->keyed = true;
    return v && v->keyed ? v : NULL;
}

/* Under a condition, only a shell could tell what NAME holds. */
static bool is_unsure(struct tn_sh *shell, const char *name)
{
    if (tn_sh_runs(shell) != TN_SH_UNSURE)
        return false;
    tn_sh_effect(shell, name);
    tn_sh_unknown(shell, name, TN_WORD_MAYBE);
    return true;
}

void tn_sh_declare_keyed(struct tn_sh *shell, const char *name)
{
    if (!is_unsure(shell, name))
        keyed(shell, name);
}

void tn_sh_assign_keyed(struct tn_sh *shell, const char *name, struct tn_sh_list *values,
                        bool append)
{
    struct tn_sh_variable *v;

    if (tn_sh_runs(shell) == TN_SH_FALSE || is_unsure(shell, name)) {
        tn_sh_list_done(values);
        return;
    }
    v = keyed(shell, name);
    if (v && !append)
        tn_sh_list_done(&v->values);
    for (size_t i = 0; v && i < values->n; i++) {
        char *equals = strstr(values->v[i], "]="), *key = values->v[i];

        if (!equals || *key != '[' || equals == key + 1 ||
            memchr(key, MARK, (size_t)(equals - key))) {
            v = NULL;
            tn_sh_computed(shell, name);
            break;
        }
        *equals = '\0';
        put_key(&v->values, key + 1, equals + 2, false);
    }
    if (v)
        v->used = false;
    tn_sh_list_done(values);
}

/* TEXT as an index into VARIABLE's values, SIZE_MAX where it is before all of them; false where it
 * is none that is known, as behind a value that is not known, which may be several words. */
static bool index_of(size_t *ret, struct tn_sh *shell, const struct tn_sh_variable *variable,
                     const char *text)
{
    int64_t n = (int64_t)variable->values.n, value = 0, before;
    AUTO_FREE char *unset = NULL;

    if (strchr(text, '=') || strstr(text, "++") || strstr(text, "--")) {
        tn_sh_sets(shell, text, text + strlen(text)); /* where it is read is not whether it runs */
        return false;
    }
    if (tn_sh_arithmetic(&value, &unset, shell, text) != TN_SH_SUM)
        return false;
    before = value < 0 || value > n ? n : value;
    for (int64_t i = 0; i < before; i++)
        if (strchr(variable->values.v[i], MARK))
            return false;
    *ret = value < -n ? SIZE_MAX : (size_t)(value < 0 ? value + n : value);
    return true;
}

void tn_sh_assign_element(struct tn_sh *shell, const char *name, const char *key, const char *value,
                          bool append)
{
    struct tn_sh_variable *v = tn_sh_find(shell, name);
    size_t at;

    if (tn_sh_runs(shell) == TN_SH_FALSE || is_unsure(shell, name))
        return;
    if (v && v->keyed && *key && !strchr(key, MARK)) {
        put_key(&v->values, key, value, append);
        v->used = false;
    } else if (v && !v->keyed && v->array && !append && !strchr(key, MARK) &&
               index_of(&at, shell, v, key) && at <= v->values.n) {
        if (at == v->values.n)
            tn_sh_list_add(&v->values, NULL);
        free(v->values.v[at]);
        v->values.v[at] = mem_strdup(value);
    } else {
        tn_sh_sets(shell, key, key + strlen(key));
        tn_sh_computed(shell, name);
    }
}

bool tn_sh_element(size_t *ret, struct tn_sh *shell, const struct tn_sh_variable *variable,
                   const char *key)
{
    if (!*key || strchr(key, MARK)) /* bash refuses an empty one */
        return false;
    if (variable->keyed) {
        *ret = find_key(&variable->values, key);
        return true;
    }
    return index_of(ret, shell, variable, key);
}

void tn_sh_unset_element(struct tn_sh *shell, const char *name, const char *key)
{
    struct tn_sh_variable *v = tn_sh_find(shell, name);
    size_t at;

    if (!v || tn_sh_runs(shell) == TN_SH_FALSE || is_unsure(shell, name))
        return;
    if (!v->keyed || strchr(key, MARK)) {
        tn_sh_computed(shell, name);
        return;
    }
    at = find_key(&v->values, key);
    if (at == v->values.n)
        return;
    free(v->values.v[at - 1]);
    free(v->values.v[at]);
    memmove(v->values.v + at - 1, v->values.v + at + 1, (v->values.n - at - 1) * sizeof(char *));
    v->values.n -= 2;
}
