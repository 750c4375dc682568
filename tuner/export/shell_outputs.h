/*
 * What commands print and braces make of text that is known: the third part of shell.h.
 */
#ifndef TUNER_EXPORT_SHELL_OUTPUTS_H
#define TUNER_EXPORT_SHELL_OUTPUTS_H

#include "tuner/export/shell.h"

/* ---- shell_substitutes.c ------------------------------------------------- */

/* May $(TEXT) be one of these? What COMMAND, its words, then prints without the end of its line, to
 * be freed; NULL where only a shell could tell. INPUT is what the command before it in a pipe has
 * printed, NULL for the first. */
bool tn_sh_is_substituted(const char *text);
char *tn_sh_substituted(struct tn_sh *shell, const struct tn_sh_list *command, const char *input);

/* ---- shell_filters.c ----------------------------------------------------- */

/* What COMMAND prints of LINE, or without input; to be freed, NULL where only a shell could tell or
 * it is another command. */
char *tn_sh_filtered(const struct tn_sh_list *command, const char *line);
char *tn_sh_generated(const struct tn_sh_list *command);

/* ---- shell_ranges.c ------------------------------------------------------ */

/* The words that braces make of WORD, LENGTH letters of a script: a RANGE of numbers is added to
 * OUT, other words only a shell could tell. */
enum tn_sh_braced { TN_SH_NO_BRACES, TN_SH_RANGE, TN_SH_BRACED };
enum tn_sh_braced tn_sh_braced(struct tn_sh_list *out, const char *word, size_t length);

/* ---- shell_braces.c ------------------------------------------------------ */

/* What ${NAME OPERATION} makes of VALUE, to be freed; NULL where that is not known here. */
char *tn_sh_changed(const char *value, const char *operation);

#endif
