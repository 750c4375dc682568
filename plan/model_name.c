#include "plan/model_name.h"

#include <ctype.h>

#include "base/base.h"
#include "plan/plan.h"

struct known {
    const char *name; /* as it is offered */
    char spelled[64]; /* as it is compared */
};

/* The first part of a name such as 70b, 8x7b or 1.4B; NULL: it has none. */
static const char *size_in(size_t *ret_len, const char *name)
{
    for (const char *part = name; *part; part += *part != '\0') {
        size_t len = strcspn(part, "-_/"), digits = strspn(part, "0123456789.x");

        if (isdigit((unsigned char)*part) && digits + 1 == len &&
            tolower((unsigned char)part[digits]) == 'b') {
            *ret_len = len;
            return part;
        }
        part += len;
    }
    return NULL;
}

static bool same_size(const char *left, const char *right)
{
    size_t n, m;
    const char *l = size_in(&n, left), *r = size_in(&m, right);

    return l && r && n == m && !strncasecmp(l, r, n);
}

static void spell(char ret[64], const char *name)
{
    size_t n = 0;

    for (; name[n] && n < 63; n++)
        ret[n] = (char)tolower((unsigned char)name[n]);
    ret[n] = '\0';
}

static size_t add(struct known *ret, size_t n, const char *const *names, bool owners)
{
    for (; *names; names++) {
        const char *slash = owners ? NULL : strchr(*names, '/');

        ret[n].name = *names;
        spell(ret[n++].spelled, slash ? slash + 1 : *names);
    }
    return n;
}

static size_t count(const char *const *names)
{
    size_t n = 0;

    while (names[n])
        n++;
    return n;
}

static const char *nearest(const char *name, const struct known *known, size_t count, bool sized)
{
    AUTO_FREE const char **spelled = mem_alloc((count + 1) * sizeof(*spelled));
    const char *found;
    size_t n = 0;

    for (size_t i = 0; i < count; i++)
        if (!sized || same_size(name, known[i].spelled))
            spelled[n++] = known[i].spelled;
    found = str_nearest(name, spelled);
    for (size_t i = 0; found && i < count; i++)
        if (found == known[i].spelled)
            return known[i].name;
    return NULL;
}

const char *pl_model_like(const char *name)
{
    const char *const *presets = pl_model_presets(), *const *repositories = pl_model_repositories();
    size_t n = 0, all = count(presets) + count(repositories);
    AUTO_FREE struct known *known = mem_alloc(all * sizeof(*known));
    bool owner = strchr(name, '/') != NULL;
    char spelled[64];
    const char *found;

    spell(spelled, name);
    if (!owner)
        n = add(known, n, presets, owner);
    n = add(known, n, repositories, owner);
    found = nearest(spelled, known, n, true);
    return found ? found : nearest(spelled, known, n, false);
}
