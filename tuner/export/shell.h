/*
 * Between the files that read a shell script, each of which calls only those below it:
 *
 *   import_shell.c     takes the arguments of the program that a script starts
 *   shell_call.c       what the script is given when it is started
 *   shell_commands.c   reads its commands
 *   shell_keywords.c   for, if, case, NAME=… and the like
 *   shell_keys.c       arrays by keys, and elements
 *   shell_builtins.c   export, read, set and the like
 *   shell_documents.c  here-documents, and files that it writes
 *   shell_asides.c     NAME=value before a command
 *   shell_functions.c  its functions and groups
 *   shell_loops.c      its loops
 *   shell_programs.c   finds the one that trains
 *   shell_words.c      makes words of its text: quotes, expansion
 *   shell_substitutes.c $(basename …), $(echo … | cut …) and the like
 *   shell_refs.c       what a dollar names: $NAME, ${NAME[KEY]}
 *   shell_filters.c    tr, sed, seq, printf
 *   shell_ranges.c     {1..4}
 *   shell_braces.c     ${X#…}, ${X/…/…}, ${X:1:2}, ${X,,}
 *   shell_arith.c      $((...))
 *   shell_tests.c      [ ... ] and [[ ... ]]
 *   shell_branches.c   which branches run
 *   shell_state.c      what they held before
 *   shell_variables.c  what its variables hold
 *   shell_paths.c      whether what is read runs, on a path through what is not known
 *   shell_marks.c      words without their marks
 *
 * A function that fails sets r and the error of SHELL; the next ones then do nothing.
 */
#ifndef TUNER_EXPORT_SHELL_H
#define TUNER_EXPORT_SHELL_H

#include "tuner/export/shell_types.h"

static inline char *tn_sh_copy(const char *pos, size_t len)
{
    char *text = mem_alloc(len + 1);

    memcpy(text, pos, len);
    return text;
}

static inline void tn_sh_list_done(struct tn_sh_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->v[i]);
    free(list->v);
    *list = (struct tn_sh_list){0};
}

static inline void tn_sh_list_add(struct tn_sh_list *list, char *taken)
{
    if (list->n == list->room) {
        list->room = list->room ? 2 * list->room : 8;
        list->v = mem_realloc(list->v, list->room * sizeof(*list->v));
    }
    list->v[list->n++] = taken;
}

/* The words of FROM from FIRST on. */
static inline void tn_sh_take_words(struct tn_sh_list *to, const struct tn_sh_list *from,
                                    size_t first)
{
    for (size_t i = first; i < from->n; i++)
        tn_sh_list_add(to, mem_strdup(from->v[i]));
}

/* The first LEN characters of WORD, which may end before. */
static inline bool tn_sh_one_of(const char *word, size_t len, const char *const *words)
{
    for (int i = 0; words[i]; i++)
        if (strlen(words[i]) == len && !strncmp(words[i], word, len))
            return true;
    return false;
}

/* Is WORD what the first LENGTH letters at POS are? */
static inline bool tn_sh_is_word(const char *pos, size_t length, const char *word)
{
    return strlen(word) == length && !strncmp(word, pos, length);
}

/* ---- shell_marks.c ------------------------------------------------------- */

/* A word of the list as others see it: the marks gone. Free by tn_sh_word_done(). */
struct tn_word tn_sh_unmarked(const char *text);
void tn_sh_word_done(struct tn_word *word);

/* TEXT, which is JSON but for its marks, with a string in the place of each value that is not
 * known: what the script has there. To be freed. */
char *tn_sh_json(const char *text);

/* ---- shell_variables.c --------------------------------------------------- */

/* Words go to OUT as they end. */
struct tn_sh_sink {
    struct tn_sh_list *out;
    struct str cur;
    bool open, split;
    bool none; /* the open quotes hold a list without words so far: no word, not an empty one */
};

void tn_sh_put(struct tn_sh *shell, struct tn_sh_sink *sink, char ch);
/* IFS is set, and TEXT becomes other words by it than by blanks. */
bool tn_sh_splits_otherwise(struct tn_sh *shell, const char *text);
/* TEXT with its marks. WHOLE: no white space of it splits words. */
void tn_sh_put_value(struct tn_sh *shell, struct tn_sh_sink *sink, const char *text, bool whole);
void tn_sh_end_word(struct tn_sh *shell, struct tn_sh_sink *sink);

/* NULL where the script does not set NAME. Valid until the next assignment. */
struct tn_sh_variable *tn_sh_find(struct tn_sh *shell, const char *name);

/* What NAME holds, its first word where it is a list; NULL where the script does not set it. */
const char *tn_sh_value(struct tn_sh *shell, const char *name);

/* Sets NAME to VALUES, which it takes, as SHELL's conditions allow. */
void tn_sh_assign(struct tn_sh *shell, const char *name, struct tn_sh_list *values, bool append,
                  bool array);

/* Only a shell could tell what NAME holds from here on, if it held anything. */
void tn_sh_forget(struct tn_sh *shell, const char *name);

/* Letters of the variable's name at POS, special ones among them; 0 where there is none. */
size_t tn_sh_name_length(const char *pos);

/* Does it begin with an argument, itself maybe said? */
bool tn_sh_argument_first(const char *text);

/* NAME as it is now. */
struct tn_sh_aside tn_sh_aside_of(struct tn_sh *shell, const char *name);
/* The variable and ASIDE, of the same name, change places. */
void tn_sh_exchange(struct tn_sh *shell, struct tn_sh_aside *aside);

/* Nothing is in NAME from here on; UNKNOWN: only a shell could tell what. */
void tn_sh_unset(struct tn_sh *shell, const char *name, bool unknown);

/* Is NAME set by the shell, by a login or by what starts jobs, whatever the call says? */
bool tn_sh_is_set_outside(const char *name);

/* Nothing is in NAME, as no call says that there is; what else may have set such variables has run,
 * as a file that the script sources. */
void tn_sh_presume(struct tn_sh *shell, const char *name);
void tn_sh_doubt(struct tn_sh *shell);

/* NAME, which holds what is not known, for the reason WHY. */
struct tn_sh_variable *tn_sh_unknown(struct tn_sh *shell, const char *name, enum tn_word_why why);

/* What NAME is set to from here on is a sum. */
void tn_sh_integer(struct tn_sh *shell, const char *name);

/* NAME is set to what only a shell could tell. */
void tn_sh_computed(struct tn_sh *shell, const char *name);

/* The same of each name that is set between FROM and END, the inside of ((…)). */
void tn_sh_sets(struct tn_sh *shell, const char *from, const char *end);

/* Is NAME a function that the script defines? */
bool tn_sh_is_function(const struct tn_sh *shell, const char *name);

/* The script's or function's own arguments, NULL where how many there are is not known. */
struct tn_sh_variable *tn_sh_given(struct tn_sh *shell);

/* ---- shell_arith.c ------------------------------------------------------- */

/* The value of TEXT, the inside of $((…)) with its dollars put in, to RET, and what it sets is set;
 * or why there is none: an operator or a name that is not known here, a name that is not set
 * (*RET_UNSET, to be freed, else NULL), a division by zero, or a value that does not fit. What it
 * sets may be set to a part then: call tn_sh_sets(). */
enum tn_sh_sum { TN_SH_SUM, TN_SH_UNKNOWN, TN_SH_UNSET, TN_SH_WRONG };
enum tn_sh_sum tn_sh_arithmetic(int64_t *ret, char **ret_unset, struct tn_sh *shell,
                                const char *text);

/* ---- shell_refs.c -------------------------------------------------------- */

/* $NAME, ${NAME[@]} … */
struct tn_sh_ref {
    char name[MAX_NAME];
    bool all, star;
    size_t index;    /* of the value among the variable's */
    const char *key; /* between brackets, KEY_LENGTH letters; NULL: there are none */
    size_t key_length;
};

/* LEN letters at SOURCE are not known, by WHY; or for the reason of TEXT's first mark. */
void tn_sh_mark(struct tn_sh *shell, struct tn_sh_sink *sink, enum tn_word_why why,
                const char *source, size_t len);
void tn_sh_mark_of(struct tn_sh *shell, struct tn_sh_sink *sink, const char *text,
                   const char *source, size_t len);

/* Returns behind the name and its subscript; NULL where it is none that we read. */
const char *tn_sh_ref_read(struct tn_sh_ref *ret, const char *pos);

/* The variable of REF, where it is known which; $1 is the first word of $@. */
struct tn_sh_variable *tn_sh_ref_variable(struct tn_sh *shell, struct tn_sh_ref *ref);

/* What VARIABLE holds at REF to SINK; or a variable that the script does not set, LEN letters at
 * SOURCE, QUOTED or not. */
void tn_sh_ref_put(struct tn_sh *shell, struct tn_sh_sink *sink, struct tn_sh_variable *variable,
                   const struct tn_sh_ref *ref, bool quoted);
void tn_sh_ref_unset(struct tn_sh *shell, struct tn_sh_sink *sink, const struct tn_sh_ref *ref,
                     const char *source, size_t len, bool quoted);

/* Under set -u, VARIABLE holds something at REF, or it is an error of SHELL. */
void tn_sh_ref_bound(struct tn_sh *shell, const struct tn_sh_variable *variable,
                     const struct tn_sh_ref *ref);

/* Is VALUE nothing but what is not known, which may be nothing, or what is maybe not said? */
bool tn_sh_may_be_empty(const char *value);

/* POS is at an opening bracket: behind the one that closes it, quotes and nesting left alone. */
const char *tn_sh_closing(struct tn_sh *shell, const char *pos);

/* ---- shell_words.c ------------------------------------------------------- */

/* The word at POS to OUT, as many words as it becomes if SPLIT. IN_ARRAY: a bracket that it did not
 * open ends it. Returns behind it. */
const char *tn_sh_word(struct tn_sh *shell, struct tn_sh_list *out, const char *pos, bool split,
                       bool in_array);

/* KEY between the brackets of NAME[KEY], its quotes gone and its dollars put in; to be freed. */
char *tn_sh_key(struct tn_sh *shell, const char *key);

/* TEXT of a here-document with what its dollars stand for, to be freed. */
char *tn_sh_expanded(struct tn_sh *shell, const char *text);

/* Whether ((TEXT)) succeeds, as far as it is known; what it sets is set. */
enum tn_sh_truth tn_sh_sum_truth(struct tn_sh *shell, const char *text);

/* The words of what the VARIABLE holds to OUT. */
void tn_sh_words_of(struct tn_sh *shell, struct tn_sh_list *out,
                    const struct tn_sh_variable *variable);

/* Past blanks, continued lines and, if LINES, the ends of lines and comments. */
const char *tn_sh_skip(const char *pos, bool lines);

/* A backslash at the end of a line, whichever system's. */
bool tn_sh_continues(const char *pos);

#endif
