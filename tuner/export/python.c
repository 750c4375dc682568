/*
 * Python, as far as functions that return a configuration go: every setting as one call with its
 * dotted path, as tn_toml_read() does for TOML. Read are attributes that are assigned
 * ("config.training.steps = 10", also through a name for "config.training") and the arguments of
 * calls ("Trainer.Config(training=TrainingConfig(steps=10))"). Nothing is run: a value is a literal
 * or a name of one, anything else is handed on as its text. A configuration that begins as what
 * another function returns has that function's settings first, if the text has it; else its name is
 * the value of an empty path.
 */
#include "tuner/export/internal.h"

#include <ctype.h>
#include <errno.h>

enum { MAX_NAMES = 64, MAX_NAME = 64, MAX_DEPTH = 16 };

struct python {
    const char *p;
    int line, depth;
    int indent, under; /* of this line; of the condition that it may stand under, -1: none */
    struct {
        char name[MAX_NAME], means[2 * MAX_NAME];
        bool path; /* of the configuration; else a literal */
    } names[MAX_NAMES];
    int count;
    struct {
        char name[MAX_NAME], callee[MAX_NAME]; /* NAME = CALLEE(…) in this function */
    } made[MAX_NAMES];
    int made_count;
    const char *text;
    char function[MAX_NAME], speaker[MAX_NAME]; /* this one; the one that has set something */
    bool spoken;
    tn_toml_fn *set;
    void *arg;
    struct err *e;
};

static int syntax(struct python *t, const char *what)
{
    return err_set(t->e, -EINVAL, "line %d: %s", t->line, what);
}

/* Over blanks and comments; over ends of lines only within brackets. */
static void skip(struct python *t, bool lines)
{
    for (;; t->p++) {
        if (*t->p == '#')
            t->p += strcspn(t->p, "\n");
        if (*t->p == '\\' && t->p[1] == '\n') {
            t->p++;
            t->line++;
        } else if (*t->p == '\n' && lines) {
            t->line++;
        } else if (*t->p == '\n' || !isspace((unsigned char)*t->p)) {
            return;
        }
    }
}

static size_t dotted(const char *p)
{
    size_t n = 0;

    if (!isalpha((unsigned char)*p) && *p != '_')
        return 0;
    while (isalnum((unsigned char)p[n]) || p[n] == '_' ||
           (p[n] == '.' && (isalpha((unsigned char)p[n + 1]) || p[n + 1] == '_')))
        n++;
    return n;
}

/* A string in one or three quotes; RET may be NULL. */
static int string(struct python *t, struct str *ret)
{
    char quote = *t->p;
    size_t n = t->p[1] == quote && t->p[2] == quote ? 3 : 1;

    for (t->p += n; *t->p; t->p++) {
        size_t closed = 0;

        while (closed < n && t->p[closed] == quote)
            closed++;
        if (closed == n) {
            t->p += n;
            return 0;
        }
        if (*t->p == '\n' && n == 1)
            break;
        t->line += *t->p == '\n';
        if (*t->p == '\\' && t->p[1])
            t->line += *++t->p == '\n';
        if (ret)
            str_addc(ret, *t->p);
    }
    return syntax(t, "a string does not end");
}

/* To the end of a value: a comma or a bracket that it did not open, or the end of the line. */
static int skip_value(struct python *t, bool in_call)
{
    int depth = 0, r;

    for (;;) {
        skip(t, in_call || depth);
        if (!*t->p)
            return depth ? syntax(t, "a bracket does not close") : 0;
        if (!depth && (in_call ? strchr(",)]}", *t->p) != NULL : *t->p == '\n' || *t->p == ';'))
            return 0;
        if (*t->p == '"' || *t->p == '\'') {
            r = string(t, NULL);
            if (r < 0)
                return r;
            continue;
        }
        if (strchr("([{", *t->p))
            depth++;
        else if (strchr(")]}", *t->p) && depth)
            depth--;
        t->p++;
    }
}

static int find_name(const struct python *t, const char *name, size_t n)
{
    for (int i = 0; i < t->count; i++)
        if (strlen(t->names[i].name) == n && !memcmp(t->names[i].name, name, n))
            return i;
    return -1;
}

static void keep_name(struct python *t, const char *name, const char *means, bool path)
{
    int i = find_name(t, name, strlen(name));

    if (i < 0 && t->count == MAX_NAMES)
        return;
    i = i < 0 ? t->count++ : i;
    snprintf(t->names[i].name, MAX_NAME, "%s", name);
    snprintf(t->names[i].means, 2 * MAX_NAME, "%s", means);
    t->names[i].path = path;
}

static bool speaks(const char *path)
{
    return str_starts(path, "training.") || str_starts(path, "parallelism.") ||
           str_starts(path, "activation_checkpoint.");
}

static int say(struct python *t, const char *path, const char *value)
{
    if (speaks(path) && t->under >= 0)
        return err_set(t->e, -EINVAL, "line %d: %s stands under a condition", t->line, path);
    if (speaks(path) && t->spoken && !str_eq(t->speaker, t->function))
        return err_set(t->e, -EINVAL, "both %s and %s set %s: leave the one of your job",
                       *t->speaker ? t->speaker : "the module",
                       *t->function ? t->function : "the module", path);
    if (speaks(path) && !t->spoken) {
        t->spoken = true;
        snprintf(t->speaker, MAX_NAME, "%s", t->function);
    }
    return t->set(t->arg, path, value, t->line, t->e);
}

/* Where the text defines FUNCTION, or NULL. */
static const char *definition(const struct python *t, const char *function)
{
    size_t n = strlen(function);

    for (const char *at = t->text; (at = strstr(at, "def ")); at += 4) {
        const char *name = at + 4 + strspn(at + 4, " ");

        if ((at == t->text || isspace((unsigned char)at[-1])) && !strncmp(name, function, n) &&
            name[n + strspn(name + n, " ")] == '(')
            return at;
    }
    return NULL;
}

/* The configuration begins as what CALLEE returns. What it sets was read where it stands above, and
 * this function may change it. */
static int built_on(struct python *t, const char *callee)
{
    const char *at = definition(t, callee);

    if (!at)
        return t->set(t->arg, "", callee, t->line, t->e);
    if (at > t->p)
        return err_set(t->e, -EINVAL, "line %d: %s() is defined below: put it first", t->line,
                       callee);
    if (t->spoken && str_eq(t->speaker, callee))
        snprintf(t->speaker, MAX_NAME, "%s", t->function);
    return 0;
}

/* NAME is used as the configuration. */
static int use_made(struct python *t, const char *name, size_t n)
{
    for (int i = 0; i < t->made_count; i++)
        if (strlen(t->made[i].name) == n && !memcmp(t->made[i].name, name, n)) {
            AUTO_FREE char *callee = mem_strdup(t->made[i].callee);

            t->made[i].name[0] = '\0'; /* once */
            return built_on(t, callee);
        }
    return 0;
}

static int value(struct python *t, const char *path, bool in_call);

/* The arguments of a call, P behind its bracket. */
static int call(struct python *t, const char *path)
{
    int r = 0;

    if (++t->depth > MAX_DEPTH)
        return syntax(t, "calls are nested too deeply");
    while (r == 0) {
        size_t n;
        const char *name;

        skip(t, true);
        if (*t->p == ')')
            break;
        if (!*t->p)
            return syntax(t, "a bracket does not close");
        if (*t->p == ',') {
            t->p++;
            continue;
        }
        name = t->p;
        n = dotted(name);
        t->p += n;
        skip(t, true);
        if (n && n < MAX_NAME && *t->p == '=' && t->p[1] != '=') {
            AUTO_FREE char *inner = mem_printf("%s%s%.*s", path, *path ? "." : "", (int)n, name);

            t->p++;
            skip(t, true);
            r = strlen(inner) < 2 * MAX_NAME ? value(t, inner, true) : skip_value(t, true);
        } else {
            t->p = name;
            r = skip_value(t, true);
            if (r == 0 && t->p == name)
                r = syntax(t, "expected an argument");
        }
    }
    t->depth--;
    t->p += r == 0;
    return r;
}

/* FullAC.Config() and the like say by their name what the earlier form says by its mode. */
static int checkpointing(struct python *t, const char *path, const char *callee)
{
    static const struct {
        const char *callee, *mode;
    } rows[] = {
        {"FullAC", "full"}, {"SelectiveAC", "selective"}, {"MemoryBudgetAC", "memory_budget"}};

    if (!str_eq(path, "activation_checkpoint"))
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (strstr(callee, rows[i].callee))
            return say(t, "activation_checkpoint.mode", rows[i].mode);
    return 0;
}

/* A literal product ("16 * 8192") as its value: how token counts are written. */
static bool product(char buf[32], const char *text)
{
    int64_t all = 1;

    for (const char *p = text;; p++) {
        char digits[24];
        size_t n = 0;
        int64_t v;

        p += strspn(p, " \t\n");
        for (; isdigit((unsigned char)*p) || (*p == '_' && n); p++)
            if (*p != '_' && n < sizeof(digits) - 1)
                digits[n++] = *p;
        digits[n] = '\0';
        if (str_to_i64(&v, digits, 1, (int64_t)1 << 40) < 0 || __builtin_mul_overflow(all, v, &all))
            return false;
        p += strspn(p, " \t\n");
        if (!*p) {
            snprintf(buf, 32, "%lld", (long long)all);
            return true;
        }
        if (*p != '*')
            return false;
    }
}

/* What stands between FROM and the end of the value, as the setting PATH. */
static int say_text(struct python *t, const char *path, const char *from)
{
    size_t n = (size_t)(t->p - from);
    AUTO_STR text = {0};
    char buf[32];
    int known;

    while (n && isspace((unsigned char)from[n - 1]))
        n--;
    known = find_name(t, from, n);
    str_addn(&text, from, n);
    if (str_eq(str_text(&text), "None"))
        return str_eq(path, "activation_checkpoint") ? say(t, "activation_checkpoint.mode", "none")
                                                     : 0;
    if (known >= 0 && !t->names[known].path)
        return say(t, path, t->names[known].means);
    if (known >= 0 || !*path || str_eq(path, str_text(&text)))
        return 0;
    return say(t, path, product(buf, str_text(&text)) ? buf : str_text(&text));
}

static int value(struct python *t, const char *path, bool in_call)
{
    const char *from = t->p, *end;
    size_t n = dotted(from);
    int r;

    if (*from == '"' || *from == '\'') {
        AUTO_STR text = {0};

        r = string(t, &text);
        end = t->p;
        if (r == 0)
            r = skip_value(t, in_call);
        if (r < 0)
            return r;
        while (end < t->p && isspace((unsigned char)*end))
            end++;
        return end == t->p ? say(t, path, str_text(&text)) : say_text(t, path, from);
    }
    t->p += n;
    skip(t, in_call);
    if (n && *t->p == '(') {
        AUTO_FREE char *callee = mem_printf("%.*s", (int)n, from);

        t->p++;
        r = checkpointing(t, path, callee);
        if (r == 0 && !*path && !strstr(callee, "Config") && !definition(t, callee))
            r = say(t, callee, "");
        if (r == 0)
            r = call(t, path);
        return r == 0 ? skip_value(t, in_call) : r;
    }
    t->p = from;
    r = skip_value(t, in_call);
    return r == 0 ? say_text(t, path, from) : r;
}

/* NAME = value: another name for a part of the configuration, a literal, or a configuration. */
static int local(struct python *t, const char *name)
{
    const char *from = t->p;
    size_t n = dotted(from);
    int r;

    if (n && from[n] == '(' && n < MAX_NAME && t->made_count < MAX_NAMES &&
        !(strstr(from, "Config") && strstr(from, "Config") < from + n)) {
        snprintf(t->made[t->made_count].name, MAX_NAME, "%s", name);
        snprintf(t->made[t->made_count++].callee, MAX_NAME, "%.*s", (int)n, from);
    }
    if (n && from[n] == '(')
        return value(t,
                     str_eq(name, "training") || str_eq(name, "parallelism") ||
                             str_eq(name, "activation_checkpoint")
                         ? name
                         : "",
                     false);
    r = skip_value(t, false);
    if (r < 0)
        return r;
    if (n && from + n == t->p && memchr(from, '.', n)) {
        AUTO_FREE char *path = mem_printf("%.*s", (int)n, from);

        keep_name(t, name, strchr(path, '.') + 1, true);
        r = use_made(t, path, strcspn(path, "."));
    } else {
        AUTO_FREE char *text = mem_printf("%.*s", (int)(t->p - from), from);
        size_t len = strlen(text);
        char buf[32];

        while (len && isspace((unsigned char)text[len - 1]))
            text[--len] = '\0';
        if (len > 1 && (*text == '"' || *text == '\'') && text[len - 1] == *text) {
            text[len - 1] = '\0';
            keep_name(t, name, text + 1, false);
        } else {
            keep_name(t, name, product(buf, text) ? buf : text, false);
        }
    }
    return r;
}

/* a.b.c: the path behind the configuration's own name, or behind what another name means. */
static char *target_path(const struct python *t, const char *name)
{
    const char *dot = strchr(name, '.');
    int known = find_name(t, name, (size_t)(dot - name));

    if (known >= 0 && t->names[known].path)
        return mem_printf("%s.%s", t->names[known].means, dot + 1);
    return mem_strdup(dot + 1);
}

static bool is_word(const char *p, const char *word)
{
    size_t n = strlen(word);

    return !strncmp(p, word, n) && !isalnum((unsigned char)p[n]) && p[n] != '_';
}

static bool conditional(const char *p)
{
    static const char *const words[] = {"if",  "elif",   "else",    "for",   "while", "with",
                                        "try", "except", "finally", "match", NULL};

    for (int i = 0; words[i]; i++)
        if (is_word(p, words[i]))
            return true;
    return false;
}

/* A function begins: its names are its own. Its head ends with a colon. */
static int function(struct python *t)
{
    t->p += 3;
    if (t->indent > 0 && *t->function) /* within another one, of which it is a part */
        return skip_value(t, false);
    skip(t, false);
    t->made_count = 0;
    snprintf(t->function, MAX_NAME, "%.*s", (int)dotted(t->p), t->p);
    return skip_value(t, false);
}

static int statement(struct python *t)
{
    size_t n;
    const char *name = t->p;

    if (t->under >= 0 && t->indent <= t->under)
        t->under = -1;
    if (is_word(t->p, "def"))
        return function(t);
    if (is_word(t->p, "class"))
        t->function[0] = '\0';
    if (conditional(t->p)) {
        if (t->under < 0)
            t->under = t->indent;
        return skip_value(t, false);
    }
    if (is_word(t->p, "return")) {
        t->p += 6;
        skip(t, false);
        n = dotted(t->p);
        if (n && n < MAX_NAME && t->p[n] == '(' && !memmem(t->p, n, "Config", 6)) {
            AUTO_FREE char *callee = mem_printf("%.*s", (int)n, t->p);
            int r = built_on(t, callee);

            if (r < 0)
                return r;
        } else if (n && use_made(t, t->p, n) < 0) {
            return -EINVAL;
        }
        return dotted(t->p) ? value(t, "", false) : skip_value(t, false);
    }
    n = dotted(t->p);
    t->p += n;
    skip(t, false);
    if (*t->p == ':') /* NAME: type = value */
        t->p += strcspn(t->p, "=\n");
    if (n && n < 2 * MAX_NAME && *t->p == '=' && t->p[1] != '=') {
        AUTO_FREE char *target = mem_printf("%.*s", (int)n, name);

        t->p++;
        skip(t, false);
        if (strchr(target, '.')) {
            AUTO_FREE char *path = target_path(t, target);
            bool whole = str_eq(path, "parallelism") || str_eq(path, "training");
            int r = speaks(path) || whole ? use_made(t, target, strcspn(target, ".")) : 0;

            if (r == 0 && whole && t->spoken)
                r = err_set(t->e, -EINVAL,
                            "line %d: %s replaces settings that stand above: leave those that hold",
                            t->line, path);

            return r < 0 ? r : value(t, path, false);
        }
        return n < MAX_NAME ? local(t, target) : skip_value(t, false);
    }
    t->p = name;
    return skip_value(t, false);
}

int tn_python_read(const char *text, tn_toml_fn *set, void *arg, struct err *e)
{
    struct python t = {
        .p = text, .text = text, .line = 1, .under = -1, .set = set, .arg = arg, .e = e};
    int r = 0;

    while (*t.p && r == 0) {
        const char *begin = t.p;

        skip(&t, false);
        t.indent = (int)(t.p - begin);
        if (*t.p && *t.p != '\n')
            r = statement(&t);
        if (r == 0 && (*t.p == '\n' || *t.p == ';'))
            t.line += *t.p++ == '\n';
    }
    return r;
}

bool tn_python_is(const char *text)
{
    static const char *const words[] = {"def", "from", "import", "return", "class", NULL};

    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
        for (int i = 0; words[i]; i++)
            if (is_word(line, words[i]) && line[strlen(words[i])] == ' ')
                return true;
    return strstr(text, "Trainer.Config(") != NULL;
}
