/*
 * client - the program `partune`: what a person at a terminal does with a daemon.
 *
 * A command is one row of a table (main.c) and one function (the other files) that speaks HTTP
 * through cl_call() and prints through the helpers below. With --json the answer of the server is
 * printed as it came.
 */
#ifndef TUNER_CLIENT_CLIENT_H
#define TUNER_CLIENT_CLIENT_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/base.h"
#include "plan/plan.h"
#include "tuner/client/commands.h"
#include "tuner/client/terminal.h"

/* Exit codes; exits.def says what each means. */
enum cl_exit {
#define EXIT(NAME, code, ...) CL_##NAME = code,
#include "tuner/client/exits.def"
};

struct cl_exit_row {
    int code;
    const char *word, *meaning;
};
extern const struct cl_exit_row cl_exit_rows[]; /* by code; ends with a NULL word */

enum { CL_LEAST_WIDTH = 20 }; /* narrower tables say nothing */

struct cl_args {
    const char *server, *cacert, *token, *data, *config;
    bool json, help, version, no_color;
    /* options of single commands */
    bool dry_run, watch, follow, allow_submit, explain, allow_loss, allow_simulated, wait, force,
        unfold;
    const char *to, *output, *format, *state, *sort, *stream, *notes, *tags, *name, *example,
        *objective;
    const char *kind, *tag, *with, *scope, *model, *folder, *exec, *mpiexec;
    const char *cluster, *trainer, *launcher;
    int pairs, steps, top, limit, trial, expires, world, devices, patience, nodes, timeout;
    const char *pin, *against, *sizes, *scaling, *layouts, *on, *priority;
    const char *baseline, *from, *call;
    double tokens, days, price;
};

enum { CL_OPERANDS = 6 };

struct cl {
    struct cl_args args;
    const struct cl_tables *tables;
    char *token; /* NULL: none was given or found */
    bool tty, color;
    int width;         /* $COLUMNS, else columns of the terminal, 200 where there is none */
    int key_fd;        /* keys wake a stream; -1: there are none */
    char trouble[256]; /* why a stream ended, for cl_say_trouble() */
    const char *operand[CL_OPERANDS];
    int noperands;
};

/* ---- http.c -------------------------------------------------------------- */

/* One request. *RET is the parsed answer (NULL for an empty one), owned by the caller. BODY is
 * borrowed, may be NULL. Every failure has been printed already; the result is an exit code. */
int cl_call(json_t **ret, struct cl *client, const char *method, const char *path,
            const json_t *body);
/* The same, but prints nothing: the status, 0 when nobody answered. For a caller that retries. */
long cl_try(json_t **ret, struct cl *client, const char *method, const char *path,
            const json_t *body);
/* One exchange, whatever its status, without a word. RET->text is freed by the caller in any case.
 * CL_NO_SERVER: no answer, for the reason RET->why, or UNWANTED (may be NULL) was set meanwhile.
 * Any thread. */
struct cl_answer {
    struct str text;
    long status;
    char type[64], why[128];
    bool connected; /* there was somebody to send the request to */
};
int cl_exchange(struct cl_answer *ret, const struct cl *client, const char *method,
                const char *path, const json_t *body, const atomic_bool *unwanted);
/* The same as cl_call() where the answer is text; *RET is freed by the caller. */
int cl_call_text(char **ret, size_t *ret_size, struct cl *client, const char *path);

enum cl_signal {
    CL_OPENED, /* the stream is open, for the first time or again: ask for what was missed */
    CL_EVENT,  /* with its name and data, which are borrowed */
    CL_LOST,   /* it broke; it is tried again */
    CL_TICK,   /* every 200 ms or so, and when a key was pressed */
};

/* What a stream of Server-Sent Events calls; return false to end it. */
typedef bool (*cl_event_fn)(void *user, enum cl_signal what, const char *event, const json_t *data);
/* Follow a stream until FN returns false; reconnects with Last-Event-ID when it breaks. Gives up
 * after 30 s without an answer. Prints nothing, since FN may own the screen: cl_say_trouble() does.
 */
int cl_stream(struct cl *client, const char *path, cl_event_fn fn, void *user);
void cl_say_trouble(const struct cl *client);

/* ---- print.c ------------------------------------------------------------- */

/* Outside text must not steer the terminal: what is no character to be seen becomes a `?`. */
void cl_make_safe(json_t *json);
void cl_make_text_safe(char *text); /* the same, but lines and tabs stay */

/* Text of a JSON value at a path "progress.trials" inside JSON, for people; "-" where it is null or
 * absent. */
char *cl_text(char buf[64], const json_t *json, const char *path);
/* The text at PATH, or its number (into BUF). */
const char *cl_value(char buf[64], const json_t *json, const char *path);
/* Names of CAMPAIGN's clusters, with commas between. */
void cl_clusters(struct str *ret, const json_t *campaign);
const char *cl_string(const json_t *json, const char *path); /* "" where absent */
double cl_number(const json_t *json, const char *path);      /* NAN where absent */
char *cl_rate(char buf[32], double rate);                    /* "41,000" */
void cl_print_json(const json_t *json);
/* {"event": EVENT, "data": DATA} on a line of its own. */
void cl_print_event(const char *event, const json_t *data);
/* Layout, throughput and ratio of a best or baseline object, on a line. */
void cl_print_result(FILE *out, const char *title, const json_t *json);
/* What CAMPAIGN compares layouts by, and the value of RESULT (a trial, best or baseline), whose
 * tokens/s are its member RATE; NAN: unknown. */
enum pl_objective cl_objective(const json_t *campaign);
double cl_worth(const json_t *campaign, const json_t *result, const char *rate);
/* The best of each batch size and of each world size, where JSON, a campaign or a plan, has
 * several. */
/* tokens/s per device of the best of SLICE, an item of "clusters"; NAN while there is none. */
double cl_per_device(const json_t *slice);
/* Does every item of LIST, "clusters", that has a best know what its tokens cost? */
bool cl_are_priced(const json_t *list);
void cl_print_shares(const struct cl *client, const json_t *json);
/* Goes before a unit or behind a name where JSON says that it is simulated; else "". */
const char *cl_simulated_word(const json_t *json); /* "simulated " */
const char *cl_simulated_mark(const json_t *json); /* " (simulated)" */
/* An empty table of trials, as watch and trials print them; FIRST is one of them, or NULL. COLUMNS
 * must live as long as the table. */
enum { CL_TRIAL_COLUMNS = 8 };
struct cl_table cl_trial_table(struct cl_column columns[CL_TRIAL_COLUMNS], const json_t *first);
void cl_trial_row(struct cl_table *table, const json_t *trial); /* one line of it */
/* Did TRIAL run a smaller problem? And what has its measurements: that run, or the trial. */
bool cl_is_smaller(const json_t *trial);
const json_t *cl_run_of(const json_t *trial);
/* Tokens/s of the layout: "41,000", "~41,000 ± 300" with the 95 % interval where they are inferred,
 * or "-". */
char *cl_trial_rate(char buf[72], const json_t *trial);
char *cl_what_ran(char buf[160], const json_t *trial); /* of a smaller one, for people */
/* What the ~ means, if one of TRIALS is a smaller one. */
void cl_print_inferred(FILE *out, const json_t *trials);

/* ---- shared.c: what commands share --------------------------------------- */

/* HEAD + NAME + TAIL with NAME percent-encoded; caller frees. */
char *cl_path(const char *head, const char *name, const char *tail);
/* "KEY=VALUE", escaped, with "&" where one is due; nothing for a VALUE of NULL. */
void cl_add_query(struct str *out, const char *key, const char *value);
/* GET "/v1/campaigns/ID" + TAIL. */
int cl_get_campaign(json_t **ret, struct cl *client, const char *id, const char *tail);
/* Every trial of campaign ID, by number, as a new array; as the daemon says them, not made safe. */
int cl_all_trials(json_t **ret, struct cl *client, const char *id);
/* What a campaign would be: legal layouts, trials, time. */
void cl_print_dry_run(const json_t *reply);
/* "deleted ID", or {"deleted": "ID"}; CL_OK. */
int cl_say_done(const struct cl *client, const char *done, const char *what);
/* TEXT, which is changed, to --output, or to standard output. */
int cl_deliver(const struct cl *client, char *text, size_t size);
/* Foreign text to standard output; on a terminal without what steers it. TEXT is changed. */
void cl_write_text(const struct cl *client, char *text, size_t len);

/* ---- why.c --------------------------------------------------------------- */

void cl_print_why(const struct cl *client, const json_t *why); /* "Why" of the API */

/* ---- main.c has the tables, for usage, completion and the manual --------- */

struct cl_command {
    const char *name, *operands;
    int min, max;
    const char *options; /* besides the common ones, with blanks around */
    int (*run)(struct cl *client);
    const char *help;
};

struct cl_tables {
    const struct cl_command *commands; /* ends with a NULL name */
    const struct opt *options;         /* ends with a NULL name */
    const char *common;                /* names of the options that every command takes */
};

bool cl_listed(const char *names, const char *name); /* is NAME one of NAMES, as above? */

/* Read a campaign or layout file, "-" for standard input. Lines that begin with // are comments; a
 * model that is a path is replaced by what is there. */
int cl_load(json_t **ret, const char *path);
/* Blank out lines of TEXT whose first mark is //, so that positions in messages stay true. */
void cl_strip_comments(char *text);

/* ---- model.c ------------------------------------------------------------- */

/* What a request says of the model NAME, new reference: a preset or repository stays a name, a
 * folder or config.json of Hugging Face becomes a model. Paths are relative to the folder of the
 * file FROM; NULL: to the working directory. */
int cl_model_of(json_t **ret, const char *name, const char *from, struct err *error);
/* The same for "model" of BODY. */
int cl_model_in(json_t *body, const char *from, struct err *error);
/* The campaign that `partune new` would write from the options, without asking, but of a cluster
 * that may have parts; an exit code. */
int cl_new_campaign(json_t **ret, const struct cl *client);
/* Puts the option --model, if there is one, into BODY; an exit code. */
int cl_model_option(const struct cl *client, json_t *body);

/* ---- cluster.c ----------------------------------------------------------- */

/* Is the cluster NAME a path: no profile, but with a slash, ending in .json, or an existing
 * file? */
bool cl_cluster_is_file(const char *name);
/* The cluster of the file PATH as written there, new reference, and how many devices it has. The
 * cluster may be one of parts if TAKES_PARTS. An error names the file and the field. */
int cl_cluster_load(json_t **ret, int *ret_devices, const char *path, bool takes_parts,
                    struct err *error);

/* ---- plan.c, project.c --------------------------------------------------- */

/* A job to be planned, new reference: a campaign file's, less what only campaigns have, or of the
 * options --model, --cluster, --nodes and --trainer. NEEDS is said where there is neither; an exit
 * code. */
int cl_job_body(json_t **ret, const struct cl *client, const char *needs);
/* Append the whole numbers of "64,128" to LIST; false where TEXT is no list of them. */
bool cl_devices(json_t *list, const char *text);

/* ---- baseline.c ---------------------------------------------------------- */

/* Puts the text of the file --baseline, if there is one, into BODY; an exit code. */
int cl_baseline_option(const struct cl *client, json_t *body);

#endif
