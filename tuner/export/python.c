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
    char config[MAX_NAME]; /* what this function calls the configuration that it makes, or "" */
    bool spoken;
    tn_toml_fn *set;
    void *arg;
    struct err *e;
};

static int syntax(struct python *parser, const char *what)
{
    return err_set(parser->e, -EINVAL, "line %d: %s", parser->line, what);
}

/* Over blanks and comments; over ends of lines only within brackets. */
static void skip(struct python *parser, bool lines)
{
    for (;; parser->p++) {
        if (*parser->p == '#')
            parser->p += strcspn(parser->p, "\n");
        if (*parser->p == '\\' && parser->p[1] == '\n') {
            parser->p++;
            parser->line++;
        } else if (*parser->p == '\n' && lines) {
            parser->line++;
        } else if (*parser->p == '\n' || !isspace((unsigned char)*parser->p)) {
            return;
        }
    }
}

static size_t dotted(const char *pos)
{
    size_t n = 0;

    if (!isalpha((unsigned char)*pos) && *pos != '_')
        return 0;
    while (isalnum((unsigned char)pos[n]) || pos[n] == '_' ||
           (pos[n] == '.' && (isalpha((unsigned char)pos[n + 1]) || pos[n + 1] == '_')))
        n++;
    return n;
}

/* A string in one or three quotes; RET may be NULL. */
static int string(struct str *ret, struct python *parser)
{
    char quote = *parser->p;
    size_t n = parser->p[1] == quote && parser->p[2] == quote ? 3 : 1;

    for (parser->p += n; *parser->p; parser->p++) {
        size_t closed = 0;

        while (closed < n && parser->p[closed] == quote)
            closed++;
        if (closed == n) {
            parser->p += n;
            return 0;
        }
        if (*parser->p == '\n' && n == 1)
            break;
        parser->line += *parser->p == '\n';
        if (*parser->p == '\\' && parser->p[1])
            parser->line += *++parser->p == '\n';
        if (ret)
            str_addc(ret, *parser->p);
    }
    return syntax(parser, "unterminated string");
}

/* To the end of a value: a comma or a bracket that it did not open, or the end of the line. */
static int skip_value(struct python *parser, bool in_call)
{
    int depth = 0, r;

    for (;;) {
        skip(parser, in_call || depth);
        if (!*parser->p)
            return depth ? syntax(parser, "unclosed bracket") : 0;
        if (!depth && (in_call ? strchr(",)]}", *parser->p) != NULL
                               : *parser->p == '\n' || *parser->p == ';'))
            return 0;
        if (*parser->p == '"' || *parser->p == '\'') {
            r = string(NULL, parser);
            if (r < 0)
                return r;
            continue;
        }
        if (strchr("([{", *parser->p))
            depth++;
        else if (strchr(")]}", *parser->p) && depth)
            depth--;
        parser->p++;
    }
}

static int find_name(const struct python *parser, const char *name, size_t len)
{
    for (int i = 0; i < parser->count; i++)
        if (strlen(parser->names[i].name) == len && !memcmp(parser->names[i].name, name, len))
            return i;
    return -1;
}

static void keep_name(struct python *parser, const char *name, const char *means, bool path)
{
    int i = find_name(parser, name, strlen(name));

    if (i < 0 && parser->count == MAX_NAMES)
        return;
    i = i < 0 ? parser->count++ : i;
    snprintf(parser->names[i].name, MAX_NAME, "%s", name);
    snprintf(parser->names[i].means, 2 * MAX_NAME, "%s", means);
    parser->names[i].path = path;
}

static bool speaks(const char *path)
{
    return str_starts(path, "training.") || str_starts(path, "parallelism.") ||
           str_starts(path, "activation_checkpoint.");
}

/* A part of the configuration that holds settings of the layout. */
static bool is_section(const char *path)
{
    return str_eq(path, "parallelism") || str_eq(path, "training");
}

static int unknown_part(struct python *parser, const char *what, const char *from, size_t len)
{
    size_t line = strcspn(from, "\r\n");

    len = len < line ? len : line;
    return err_set(parser->e, -EINVAL,
                   "line %d: the value that %s takes from `%.*s` is unknown here: write it out",
                   parser->line, what, len < 64 ? (int)len : 64, from);
}

static int say(struct python *parser, const char *path, const char *value)
{
    if (speaks(path) && parser->under >= 0)
        return err_set(parser->e, -EINVAL, "line %d: %s is under a condition", parser->line, path);
    if (speaks(path) && parser->spoken && !str_eq(parser->speaker, parser->function))
        return err_set(parser->e, -EINVAL, "both %s and %s set %s: keep the one for your job",
                       *parser->speaker ? parser->speaker : "the module",
                       *parser->function ? parser->function : "the module", path);
    if (speaks(path) && !parser->spoken) {
        parser->spoken = true;
        snprintf(parser->speaker, MAX_NAME, "%s", parser->function);
    }
    return parser->set(parser->arg, path, value, parser->line, parser->e);
}

/* Where the text defines FUNCTION, or NULL. */
static const char *definition(const struct python *parser, const char *function)
{
    size_t n = strlen(function);

    for (const char *at = parser->text; (at = strstr(at, "def ")); at += 4) {
        const char *name = at + 4 + strspn(at + 4, " ");

        if ((at == parser->text || isspace((unsigned char)at[-1])) && !strncmp(name, function, n) &&
            name[n + strspn(name + n, " ")] == '(')
            return at;
    }
    return NULL;
}

/* The configuration begins as what CALLEE returns. What it sets was read further up, and
 * this function may change it. */
static int built_on(struct python *parser, const char *callee)
{
    const char *at = definition(parser, callee);

    if (!at)
        return parser->set(parser->arg, "", callee, parser->line, parser->e);
    if (at > parser->p)
        return err_set(parser->e, -EINVAL, "line %d: %s() is defined below: put it first",
                       parser->line, callee);
    if (parser->spoken && str_eq(parser->speaker, callee))
        snprintf(parser->speaker, MAX_NAME, "%s", parser->function);
    return 0;
}

/* NAME is used as the configuration. */
static int use_made(struct python *parser, const char *name, size_t len)
{
    for (int i = 0; i < parser->made_count; i++)
        if (strlen(parser->made[i].name) == len && !memcmp(parser->made[i].name, name, len)) {
            AUTO_FREE char *callee = mem_strdup(parser->made[i].callee);

            parser->made[i].name[0] = '\0'; /* once */
            return built_on(parser, callee);
        }
    return 0;
}

static int value(struct python *parser, const char *path, bool in_call);

/* The arguments of a call, P behind its bracket; WHOLE: it makes the configuration or a section. */
static int call(struct python *parser, const char *path, bool whole)
{
    int r = 0;

    if (++parser->depth > MAX_DEPTH)
        return syntax(parser, "calls are nested too deeply");
    while (r == 0) {
        size_t n;
        const char *name;

        skip(parser, true);
        if (*parser->p == ')')
            break;
        if (!*parser->p)
            return syntax(parser, "unclosed bracket");
        if (*parser->p == ',') {
            parser->p++;
            continue;
        }
        name = parser->p;
        n = dotted(name);
        parser->p += n;
        skip(parser, true);
        if (n && n < MAX_NAME && *parser->p == '=' && parser->p[1] != '=') {
            AUTO_FREE char *inner = mem_printf("%s%s%.*s", path, *path ? "." : "", (int)n, name);

            parser->p++;
            skip(parser, true);
            r = strlen(inner) < 2 * MAX_NAME ? value(parser, inner, true)
                                             : skip_value(parser, true);
        } else {
            parser->p = name;
            r = skip_value(parser, true);
            if (r == 0 && parser->p == name)
                r = syntax(parser, "expected an argument");
            if (r == 0 && whole) /* **more, or by its place */
                r = unknown_part(parser, *path ? path : "the configuration", name,
                                 (size_t)(parser->p - name));
        }
    }
    parser->depth--;
    parser->p += r == 0;
    return r;
}

/* FullAC.Config() and the like say by their name what the earlier form says by its mode. */
static int checkpointing(struct python *parser, const char *path, const char *callee)
{
    static const struct {
        const char *callee, *mode;
    } rows[] = {
        {"FullAC", "full"}, {"SelectiveAC", "selective"}, {"MemoryBudgetAC", "memory_budget"}};

    if (!str_eq(path, "activation_checkpoint"))
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (strstr(callee, rows[i].callee))
            return say(parser, "activation_checkpoint.mode", rows[i].mode);
    return strstr(callee, "Config") ? 0 : say(parser, "activation_checkpoint.mode", callee);
}

/* Float8LinearConverter.Config() and the like, wherever they are made: a converter of the model. */
static int converter(struct python *parser, const char *callee)
{
    return strstr(callee, "Converter") ? say(parser, "model.converters", callee) : 0;
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

/* What is between FROM and the end of the value, as the setting PATH. */
static int say_text(struct python *parser, const char *path, const char *from)
{
    size_t n = (size_t)(parser->p - from);
    AUTO_STR text = {0};
    char buf[32];
    int known;

    while (n && isspace((unsigned char)from[n - 1]))
        n--;
    known = find_name(parser, from, n);
    str_addn(&text, from, n);
    if (known >= 0 && parser->names[known].path)
        return 0;
    if (is_section(path))
        return unknown_part(parser, path, from, n);
    if (str_eq(path, "activation_checkpoint"))
        return say(parser, "activation_checkpoint.mode",
                   str_eq(str_text(&text), "None") ? "none" : str_text(&text));
    if (str_eq(str_text(&text), "None"))
        return 0;
    if (known >= 0)
        return say(parser, path, parser->names[known].means);
    if (!*path || str_eq(path, str_text(&text)))
        return 0;
    return say(parser, path, product(buf, str_text(&text)) ? buf : str_text(&text));
}

/* What CALLEE returns, P at its bracket and FROM at its name, is the setting or part PATH. */
static int call_value(struct python *parser, const char *path, const char *callee, const char *from,
                      bool in_call)
{
    bool makes = strstr(callee, "Config") != NULL, section = is_section(path);
    int r;

    if (!makes && speaks(path)) { /* computed */
        r = skip_value(parser, in_call);
        return r == 0 ? say_text(parser, path, from) : r;
    }
    if (!makes && section)
        return unknown_part(parser, path, from, strlen(callee) + 2);
    parser->p++;
    r = checkpointing(parser, path, callee);
    if (r == 0)
        r = converter(parser, callee);
    if (r == 0 && !*path && !makes && !definition(parser, callee))
        r = say(parser, callee, "");
    if (r == 0)
        r = call(parser, path, makes && (section || (!*path && strstr(callee, "Trainer"))));
    return r == 0 ? skip_value(parser, in_call) : r;
}

static int value(struct python *parser, const char *path, bool in_call)
{
    const char *from = parser->p, *end;
    size_t n = dotted(from);
    int r;

    if (*from == '"' || *from == '\'') {
        AUTO_STR text = {0};

        r = string(&text, parser);
        end = parser->p;
        if (r == 0)
            r = skip_value(parser, in_call);
        if (r < 0)
            return r;
        while (end < parser->p && isspace((unsigned char)*end))
            end++;
        return end == parser->p ? say(parser, path, str_text(&text)) : say_text(parser, path, from);
    }
    parser->p += n;
    skip(parser, in_call);
    if (n && *parser->p == '(') {
        AUTO_FREE char *callee = mem_printf("%.*s", (int)n, from);

        return call_value(parser, path, callee, from, in_call);
    }
    parser->p = from;
    r = skip_value(parser, in_call);
    return r == 0 ? say_text(parser, path, from) : r;
}

/* NAME = value: another name for a part of the configuration, a literal, or a configuration. */
static int local(struct python *parser, const char *name)
{
    const char *from = parser->p;
    size_t n = dotted(from);
    int r;

    if (n && from[n] == '(' && n < MAX_NAME && parser->made_count < MAX_NAMES &&
        !(strstr(from, "Config") && strstr(from, "Config") < from + n)) {
        snprintf(parser->made[parser->made_count].name, MAX_NAME, "%s", name);
        snprintf(parser->made[parser->made_count++].callee, MAX_NAME, "%.*s", (int)n, from);
    }
    if (n && from[n] == '(' && memmem(from, n, "Trainer", 7) && memmem(from, n, "Config", 6))
        snprintf(parser->config, MAX_NAME, "%s", name);
    if (n && from[n] == '(' && (is_section(name) || str_eq(name, "activation_checkpoint"))) {
        keep_name(parser, name, name, true);
        return value(parser, name, false);
    }
    if (n && from[n] == '(')
        return value(parser, "", false);
    r = skip_value(parser, false);
    if (r < 0)
        return r;
    if (n && from + n == parser->p && memchr(from, '.', n)) {
        AUTO_FREE char *path = mem_printf("%.*s", (int)n, from);

        keep_name(parser, name, strchr(path, '.') + 1, true);
        r = use_made(parser, path, strcspn(path, "."));
    } else {
        AUTO_FREE char *text = mem_printf("%.*s", (int)(parser->p - from), from);
        size_t len = strlen(text);
        char buf[32];

        while (len && isspace((unsigned char)text[len - 1]))
            text[--len] = '\0';
        if (len > 1 && (*text == '"' || *text == '\'') && text[len - 1] == *text) {
            text[len - 1] = '\0';
            keep_name(parser, name, text + 1, false);
        } else {
            keep_name(parser, name, product(buf, text) ? buf : text, false);
        }
    }
    return r;
}

/* a.b.c: the path behind the configuration's own name, or behind what another name means. */
static char *target_path(const struct python *parser, const char *name)
{
    const char *dot = strchr(name, '.');
    int known = find_name(parser, name, (size_t)(dot - name));

    if (known >= 0 && parser->names[known].path)
        return mem_printf("%s.%s", parser->names[known].means, dot + 1);
    return mem_strdup(dot + 1);
}

static bool is_word(const char *pos, const char *word)
{
    size_t n = strlen(word);

    return !strncmp(pos, word, n) && !isalnum((unsigned char)pos[n]) && pos[n] != '_';
}

static bool conditional(const char *pos)
{
    static const char *const words[] = {"if",  "elif",   "else",    "for",   "while", "with",
                                        "try", "except", "finally", "match", NULL};

    for (int i = 0; words[i]; i++)
        if (is_word(pos, words[i]))
            return true;
    return false;
}

/* A function begins: its names are its own. Its head ends with a colon. */
static int function(struct python *parser)
{
    parser->p += 3;
    if (parser->indent > 0 && *parser->function) /* within another one, of which it is a part */
        return skip_value(parser, false);
    skip(parser, false);
    parser->made_count = 0;
    parser->config[0] = '\0';
    snprintf(parser->function, MAX_NAME, "%.*s", (int)dotted(parser->p), parser->p);
    return skip_value(parser, false);
}

/* Any other statement from FROM on, of which only what could change the layout counts: a class of
 * settings, "x.parallelism.tp *= 2", setattr(x.parallelism, …), change(x). */
static int other(struct python *parser, const char *from)
{
    static const char *const harmless[] = {"import", "from",   "assert", "raise",
                                           "print",  "return", NULL};
    static const char *const words[] = {"parallelism", "ParallelismConfig", "TrainingConfig",
                                        ".training",   "parallel_degree",   NULL};
    size_t length, config = strlen(parser->config);
    int r;

    parser->p = from;
    r = skip_value(parser, false);
    length = (size_t)(parser->p - from);
    if (*from == '"' || *from == '\'' || from[strcspn(from, ".(=\n")] == '=') /* own names only */
        return r;
    for (int i = 0; harmless[i]; i++)
        if (is_word(from, harmless[i]))
            return r;
    for (int i = 0; r == 0 && words[i]; i++)
        if (memmem(from, length, words[i], strlen(words[i])))
            return unknown_part(parser, "the layout", from, length);
    for (const char *at = from + dotted(from);
         r == 0 && config && *at == '(' && at < from + length;) {
        at += 1 + strspn(at + 1, " \n"); /* the first argument */
        if (is_word(at, parser->config) && at[config] != '.')
            return unknown_part(parser, "the layout", from, length);
    }
    return r;
}

static int statement(struct python *parser)
{
    size_t n;
    const char *name = parser->p;

    if (parser->under >= 0 && parser->indent <= parser->under)
        parser->under = -1;
    if (is_word(parser->p, "def"))
        return function(parser);
    if (is_word(parser->p, "class")) {
        parser->function[0] = '\0';
        return other(parser, name);
    }
    if (conditional(parser->p)) {
        if (parser->under < 0)
            parser->under = parser->indent;
        return skip_value(parser, false);
    }
    if (is_word(parser->p, "return")) {
        parser->p += 6;
        skip(parser, false);
        n = dotted(parser->p);
        if (n && n < MAX_NAME && parser->p[n] == '(' && !memmem(parser->p, n, "Config", 6)) {
            AUTO_FREE char *callee = mem_printf("%.*s", (int)n, parser->p);
            int r = built_on(parser, callee);

            if (r < 0)
                return r;
        } else if (n && use_made(parser, parser->p, n) < 0) {
            return -EINVAL;
        }
        return dotted(parser->p) ? value(parser, "", false) : skip_value(parser, false);
    }
    n = dotted(parser->p);
    parser->p += n;
    skip(parser, false);
    if (*parser->p == ':') /* NAME: type = value */
        parser->p += strcspn(parser->p, "=\n");
    if (n && n < 2 * MAX_NAME && *parser->p == '=' && parser->p[1] != '=') {
        AUTO_FREE char *target = mem_printf("%.*s", (int)n, name);

        parser->p++;
        skip(parser, false);
        if (strchr(target, '.')) {
            AUTO_FREE char *path = target_path(parser, target);
            bool whole = is_section(path);
            int r = speaks(path) || whole ? use_made(parser, target, strcspn(target, ".")) : 0;

            if (r == 0 && whole && parser->spoken)
                r = err_set(parser->e, -EINVAL,
                            "line %d: %s replaces settings above: keep those that apply",
                            parser->line, path);

            return r < 0 ? r : value(parser, path, false);
        }
        return n < MAX_NAME ? local(parser, target) : skip_value(parser, false);
    }
    return other(parser, name);
}

int tn_python_read(const char *text, tn_toml_fn *set, void *arg, struct err *error)
{
    struct python t = {
        .p = text, .text = text, .line = 1, .under = -1, .set = set, .arg = arg, .e = error};
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
