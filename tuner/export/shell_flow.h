/*
 * Which commands of a shell script run, and what they do: the second part of shell.h.
 */
#ifndef TUNER_EXPORT_SHELL_FLOW_H
#define TUNER_EXPORT_SHELL_FLOW_H

#include "tuner/export/shell.h"

/* ---- shell_commands.c ---------------------------------------------------- */

/* Reads the commands of TEXT, which LEVEL texts of commands hold. */
void tn_sh_commands(struct tn_sh *shell, const char *text, int level);

/* ---- shell_documents.c --------------------------------------------------- */

/* POS is behind <<: notes the here-document that begins on the next line. Returns behind its end's
 * word. */
const char *tn_sh_here(struct tn_sh *shell, const char *pos);

/* POS is at the beginning of a line: past the here-documents that the line before has opened. */
const char *tn_sh_heres(struct tn_sh *shell, const char *pos);
void tn_sh_heres_done(struct tn_sh_heres *heres);

/* The command's output goes to FILE. */
void tn_sh_output(struct tn_sh *shell, const char *file, bool append);

/* COMMAND is whole: what it writes is noted. */
void tn_sh_written(struct tn_sh *shell, const struct tn_sh_list *command);
/* Does the script write the file NAME? Its text, borrowed until the next is written, to RET; NULL:
 * only a shell could tell. */
bool tn_sh_written_file(const char **ret, struct tn_sh *shell, const char *name);
void tn_sh_files_done(struct tn_sh_files *files);

/* ---- shell_keywords.c ---------------------------------------------------- */

/* NAME=…, NAME+=…, NAME=(…) at POS: behind it, or POS where there is none. */
const char *tn_sh_assignment(struct tn_sh *shell, const char *pos);

/* A word of the shell's own at the beginning of a command: behind it, or POS. */
const char *tn_sh_keyword(struct tn_sh *shell, const char *pos);

/* ---- shell_builtins.c ---------------------------------------------------- */

/* export NAME, local NAME: without values. */
void tn_sh_declare(struct tn_sh *shell, const struct tn_sh_list *command);

/* Commands of the shell's own that change what it knows; false where COMMAND is another. */
bool tn_sh_builtin(struct tn_sh *shell, const struct tn_sh_list *command);

/* Whether COMMAND, which is no function, succeeds; what let sets is set. */
enum tn_sh_truth tn_sh_status_of(struct tn_sh *shell, const struct tn_sh_list *command);

/* ---- shell_call.c -------------------------------------------------------- */

/* What the #SBATCH lines of TEXT set. */
void tn_sh_slurm(struct tn_sh *shell, const char *text);

/* The variables that TEXT sets are its own: what does not set them before leaves them empty. */
void tn_sh_own(struct tn_sh *shell, const char *text);

/* What the command line CALL gives the script that it starts. */
void tn_sh_call(struct tn_sh *shell, const char *call);

/* ---- shell_programs.c ---------------------------------------------------- */

/* Which of CMD is the program that is started, or its size. A launcher may be a program, too. */
size_t tn_sh_program_of(const struct tn_sh_list *cmd);

/* CMD starts its word AT: that and its arguments are kept if it trains rather than the one before;
 * `twice` says where both may. */
void tn_sh_take_program(struct tn_sh *shell, const struct tn_sh_list *cmd, size_t at);

/* A word of CMD that is a command line itself, as after sh -c; or NULL. */
const char *tn_sh_command_within(const struct tn_sh_list *cmd);

/* ---- shell_tests.c ------------------------------------------------------- */

/* Whether COMMAND succeeds, where it is a test, true or false; else unsure. */
enum tn_sh_truth tn_sh_test(struct tn_sh *shell, const struct tn_sh_list *command);

/* ---- shell_asides.c ------------------------------------------------------ */

/* The command that is read sets NAME before its first word: what others see is put aside. */
void tn_sh_aside(struct tn_sh *shell, const char *name);

/* Its words come: they are made of what the others see. */
void tn_sh_asides_words(struct tn_sh *shell);

/* It runs, with the variables as it sets them. End by tn_sh_asides_end(), ALONE if it sets
 * variables only, which then stay set. */
struct tn_sh_asides tn_sh_asides_run(struct tn_sh *shell);
void tn_sh_asides_end(struct tn_sh *shell, struct tn_sh_asides *asides, bool alone);
void tn_sh_asides_done(struct tn_sh_asides *asides);

/* ---- shell_state.c ------------------------------------------------------- */

void tn_sh_keep(struct tn_sh_state *ret, struct tn_sh *shell);
void tn_sh_restore(struct tn_sh *shell, struct tn_sh_state *state);
void tn_sh_level_done(struct tn_sh_level *level);

/* ---- shell_keys.c -------------------------------------------------------- */

/* NAME is an array by keys; VALUES, words [KEY]=VALUE which it takes, are its elements, or more of
 * them. */
void tn_sh_declare_keyed(struct tn_sh *shell, const char *name);
void tn_sh_assign_keyed(struct tn_sh *shell, const char *name, struct tn_sh_list *values,
                        bool append);

/* NAME[KEY]=VALUE, or += if APPEND; unset NAME[KEY]. */
void tn_sh_assign_element(struct tn_sh *shell, const char *name, const char *key, const char *value,
                          bool append);
void tn_sh_unset_element(struct tn_sh *shell, const char *name, const char *key);

/* Where VARIABLE has KEY among its values, to RET: not below their number if it has none. False
 * where only a shell could tell. */
bool tn_sh_element(size_t *ret, struct tn_sh *shell, const struct tn_sh_variable *variable,
                   const char *key);

/* ---- shell_paths.c ------------------------------------------------------- */

/* Whether what is read now runs. */
enum tn_sh_truth tn_sh_runs(const struct tn_sh *shell);

/* TRUTH of CONDITION, or the way that this path takes at it. */
enum tn_sh_truth tn_sh_decided(struct tn_sh *shell, uint64_t condition, enum tn_sh_truth truth);

/* What is read may run: the conditions that decide it decide what NAME holds. */
void tn_sh_effect(struct tn_sh *shell, const char *name);

/* The place of TEXT's beginning; those behind it count on. */
uint64_t tn_sh_place_of(const char *text);

/* ---- shell_branches.c ---------------------------------------------------- */

/* A list of commands begins; a command of it has ended with STATUS; && ('&') or || ('|'). */
void tn_sh_list_begin(struct tn_sh *shell);
void tn_sh_status(struct tn_sh *shell, enum tn_sh_truth status);
void tn_sh_join(struct tn_sh *shell, char joined);

/* A level that may run; the end of any level. */
void tn_sh_open(struct tn_sh *shell, enum tn_sh_kind kind);
void tn_sh_close(struct tn_sh *shell, enum tn_sh_kind kind);
void tn_sh_levels_done(struct tn_sh *shell); /* all of them */

/* The innermost level if it is of KIND; the innermost one of KIND. NULL: there is none. */
struct tn_sh_level *tn_sh_inside(struct tn_sh *shell, enum tn_sh_kind kind);
struct tn_sh_level *tn_sh_unclosed(struct tn_sh *shell, enum tn_sh_kind kind);

/* The words of if. What is read before `then` is its condition. */
void tn_sh_if(struct tn_sh *shell);
void tn_sh_then(struct tn_sh *shell);
void tn_sh_elif(struct tn_sh *shell);
void tn_sh_else(struct tn_sh *shell);

/* case WORD in (NULL: not known); whether a pattern comes next; the pattern at POS, returns behind
 * it; the end of a branch, which FALLS into the next or does not. */
void tn_sh_case(struct tn_sh *shell, const char *word);
bool tn_sh_at_pattern(const struct tn_sh *shell);
const char *tn_sh_pattern(struct tn_sh *shell, const char *pos);
void tn_sh_case_end(struct tn_sh *shell, bool falls);

/* ---- shell_loops.c ------------------------------------------------------- */

/* Behind the words of `for`, POS at its variable; what is read after `while`, `do` and `done`, POS
 * behind the word. */
const char *tn_sh_for(struct tn_sh *shell, const char *pos, bool select);
void tn_sh_while(struct tn_sh *shell, const char *pos, bool until);
const char *tn_sh_do(struct tn_sh *shell, const char *pos);
const char *tn_sh_done(struct tn_sh *shell, const char *pos);

/* Is what ends at POS one side of a pipe, or left to run: a shell of its own? */
bool tn_sh_in_own_shell(const char *pos);

/* break N and continue N: the N innermost loops end, the last of them for this round only if NEXT.
 * N 0: only a shell could tell. */
void tn_sh_leave_loops(struct tn_sh *shell, size_t n, bool next);

/* ---- shell_functions.c --------------------------------------------------- */

/* Does a bracket that the next words do not open end a group? */
bool tn_sh_in_brackets(const struct tn_sh *shell);

/* { and (; their ends, where the text goes on at POS. A function is one, too. */
void tn_sh_group(struct tn_sh *shell, enum tn_sh_kind kind);
void tn_sh_group_end(struct tn_sh *shell, enum tn_sh_kind kind, const char *pos);

/* exit, of the script or of a shell within it; under set -e, a command that fails, unless it is
 * within a condition. */
void tn_sh_exit(struct tn_sh *shell);
void tn_sh_failed(struct tn_sh *shell);

/* break, continue and return; false where COMMAND is another. */
bool tn_sh_leave(struct tn_sh *shell, const struct tn_sh_list *command);

/* The beginning of a function at POS, or POS. Its name and body are kept. */
const char *tn_sh_function_at(struct tn_sh *shell, const char *pos);
void tn_sh_functions_done(struct tn_sh *shell);

/* NAME is the function's own from here on. */
void tn_sh_local(struct tn_sh *shell, const char *name);

/* Reads the function that COMMAND calls; false where it is none. */
bool tn_sh_call_function(struct tn_sh *shell, const struct tn_sh_list *command, int level);

/* shift; whether it succeeds. */
void tn_sh_shift(struct tn_sh *shell, const struct tn_sh_list *command);
enum tn_sh_truth tn_sh_shifts(struct tn_sh *shell, const struct tn_sh_list *command);

/* getopts LETTERS NAME; whether it succeeds. */
void tn_sh_getopts(struct tn_sh *shell, const struct tn_sh_list *command);
enum tn_sh_truth tn_sh_has_option(struct tn_sh *shell, const struct tn_sh_list *command);

#endif
