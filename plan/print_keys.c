/*
 * print-keys js|md: the rows of keys.def for people, at build time. "js" is the dashboard's module
 * lib/layout-keys.js, "md" the table of keys in docs/reference/layout.md.
 */
#include "plan/plan.h"

#include <stdio.h>

#include "base/base.h"
#include "base/print.h"

/* A text as a literal of JavaScript. */
static void print_literal(const char *text)
{
    AUTO_JSON *box = json_string(text);
    AUTO_FREE char *literal = json_dumps(box, JSON_ENCODE_ANY);

    fputs(literal, stdout);
}

static void print_js(void)
{
    puts("// Made by plan/print-keys from plan/keys.def: do not edit.\n\n"
         "/** What the keys of a layout mean, in the order in which a page shows them. */\n"
         "export const LAYOUT_KEYS = {");
    for (const struct pl_layout_key *k = pl_layout_keys; k->name; k++) {
        printf("    %s: ", k->name);
        print_literal(k->means);
        puts(",");
    }
    puts("};\n\n"
         "/** Values of the keys that hold words, in the order in which they are shown. */\n"
         "export const WORD_ORDER = {");
    for (const struct pl_layout_key *k = pl_layout_keys; k->name; k++) {
        const char *const *words = k->text ? pl_stages_words : k->names;

        if (!words)
            continue;
        printf("    %s: [", k->name);
        for (size_t i = 0; words[i]; i++) {
            fputs(i ? ", " : "", stdout);
            print_literal(words[i]);
        }
        puts("],");
    }
    puts("};");
}

/* A key of few values: they are listed. */
static bool is_listed(enum pl_key key)
{
    return pl_layout_keys[key].max < 8;
}

/* Of a layout without sharding JSON says nothing. */
static bool is_written(enum pl_key key, int value)
{
    return key != PL_KEY_ZERO_SCOPE || value != PL_SCOPE_NONE;
}

/* Those that TRAINER takes, or all if it is NULL. Returns how many. */
static int add_values(struct str *out, enum pl_key key, const struct pl_trainer *trainer)
{
    const struct pl_layout_key *row = &pl_layout_keys[key];
    int n = 0;

    for (int i = row->min; is_listed(key) && i <= row->max; i++) {
        if (!is_written(key, i) || (trainer && !pl_trainer_takes(trainer, key, i)))
            continue;
        str_add(out, n++ ? " " : "");
        if (row->names)
            str_addf(out, "`%s`", row->names[i]);
        else
            str_addf(out, "%d", i);
    }
    return n;
}

static void print_standard(const struct pl_layout_key *key)
{
    char digits[16];

    if (key->standard == PL_NO_STANDARD)
        return;
    if (key->names || key->text)
        printf("`%s`", pl_layout_value_text(digits, key, key->standard));
    else
        printf("%d", key->standard);
}

/* Those that take more than one value, with the values where they do not take all. */
static void print_trainers(enum pl_key key)
{
    AUTO_STR every = {0};
    AUTO_STR out = {0};
    int values = add_values(&every, key, NULL);
    bool all = true;

    for (const char *const *name = pl_trainer_names(); *name; name++) {
        const struct pl_trainer *trainer = pl_trainer_find(*name);
        AUTO_STR some = {0};
        int n = add_values(&some, key, trainer);
        bool more = is_listed(key) ? n > 1
                                   : pl_trainer_takes(trainer, key, 2) ||
                                         pl_trainer_takes(trainer, key, pl_layout_keys[key].max);

        if (str_eq(*name, "any")) /* takes what one of them does */
            continue;
        all &= more && n == values;
        if (more)
            str_addf(&out, "%s%s", out.len ? ", " : "", *name);
        if (more && n < values)
            str_addf(&out, " (%s)", str_text(&some));
    }
    fputs(all ? "all" : str_text(&out), stdout);
}

static void print_md(void)
{
    puts("key | means | values | default | trainers\n---|---|---|---|---");
    for (enum pl_key key = 0; key < PL_LAYOUT_KEYS; key++) {
        AUTO_STR values = {0};

        printf("`%s` | %s | ", pl_layout_keys[key].name, pl_layout_keys[key].means);
        add_values(&values, key, NULL);
        fputs(str_text(&values), stdout);
        fputs(" | ", stdout);
        print_standard(&pl_layout_keys[key]);
        fputs(" | ", stdout);
        print_trainers(key);
        puts("");
    }
}

int main(int argc, char **argv)
{
    return print_main(argc, argv, "print-keys", print_js, print_md);
}
