/*
 * print-states js|md: the rows of states.def for people, at build time. "js" is the dashboard's
 * module lib/trial-states.js, "md" the table of outcomes in docs/reference/protocol.md.
 */
#include "db/db.h"

#include <stdio.h>

#include "base/print.h"

enum learns { OK, OOM, INFEASIBLE, CENSORED, CRASHED, DISCARD };

static const char *const learned[] = {
    [OK] = "throughput, standard error, worst rank's memory",
    [OOM] = "does not fit",
    [INFEASIBLE] = "infeasible",
    [CENSORED] = "throughput at most the bound",
    [CRASHED] = "crashed",
    [DISCARD] = "nothing",
};

/* What a row says to people. */
static const struct words {
    enum learns learns;
    const char *sign, *label, *recognized, *note;
} words[DB_STATES] = {
#define STATE(NAME, name, life, tries, pauses, learns, code, report, sign, tone, ...)              \
    {learns, sign, __VA_ARGS__},
#include "db/states.def"
};

static bool is_failure(enum db_life life)
{
    return life == DB_FAILURE;
}

static bool is_live(enum db_life life)
{
    return life == DB_LIVE;
}

static bool is_bound(enum db_life life)
{
    return life == DB_BOUND;
}

static void print_set(const char *comment, const char *name, bool (*wanted)(enum db_life life))
{
    printf("%sexport const %s = new Set([\n", comment, name);
    for (int i = 0; i < DB_STATES; i++)
        if (wanted(db_states[i].life))
            printf("    \"%s\",\n", db_states[i].name);
    puts("]);");
}

static void print_js(void)
{
    puts("// Made by db/print-states from db/states.def: do not edit.\n\n"
         "/** Sign, tone and meaning of each state of a trial. */\n"
         "export const TRIAL_STATES = {");
    for (int i = 0; i < DB_STATES; i++)
        if (db_states[i].life != DB_ATTEMPT)
            printf("    %s: [\"%s\", \"%s\", \"%s\"],\n", db_states[i].name, words[i].sign,
                   db_states[i].tone, words[i].label);
    puts("};\n");
    print_set("", "LIVE_TRIAL", is_live);
    print_set("", "FAILED_TRIAL", is_failure);
    print_set("// It ran, but too slowly to be worth its time: a result about its speed, not a "
              "failure.\n",
              "STOPPED_TRIAL", is_bound);
}

static void print_next(const struct db_state_row *row)
{
    if (row->pauses == DB_AT_ONCE)
        printf("the campaign pauses; `resume` tries the trial again");
    else if (row->tries == 0)
        printf("tried again, however often");
    else if (row->life == DB_ATTEMPT)
        printf("up to %d attempts, the next one is `ok`", row->tries);
    else if (row->tries == 1)
        printf("settled");
    else if (row->tries == 2)
        printf("one more attempt, then settled");
    else
        printf("up to %d attempts", row->tries);
}

static void print_md(void)
{
    puts("outcome | recognized by | then | the search learns\n---|---|---|---");
    for (int i = 0; i < DB_STATES; i++) {
        if (!words[i].recognized)
            continue;
        printf("`%s` | %s | ", db_states[i].name, words[i].recognized);
        print_next(&db_states[i]);
        printf("%s | %s\n", words[i].note, learned[words[i].learns]);
    }
}

int main(int argc, char **argv)
{
    return print_main(argc, argv, "print-states", print_js, print_md);
}
