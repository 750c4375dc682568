/*
 * The functions behind the rows of commands in main.c: each takes the client with its options and
 * operands, prints, and returns an exit code. A part of client.h.
 */
#ifndef TUNER_CLIENT_COMMANDS_H
#define TUNER_CLIENT_COMMANDS_H

#include <jansson.h>
#include <stdbool.h>

struct cl;

int cl_submit(struct cl *client);
int cl_ls(struct cl *client);
int cl_show(struct cl *client);
int cl_trials(struct cl *client);
int cl_results(struct cl *client);
int cl_report(struct cl *client);
int cl_log_to(struct cl *client);
int cl_trial(struct cl *client);
int cl_log(struct cl *client);
int cl_watch(struct cl *client);
/* What happened before, too? CL_WATCH_PAST: in a pipe, a line for each trial that has ended;
 * CL_WATCH_ALL, of a campaign that is new: with --json also all its events. */
enum cl_watch_from { CL_WATCH_NOW, CL_WATCH_PAST, CL_WATCH_ALL };

/* Follow campaign ID until it is over. */
int cl_watch_campaign(struct cl *client, const char *id, enum cl_watch_from from);
int cl_wait(struct cl *client);
/* Wait until campaign ID has ended, as long as --timeout lets us: the exit code of its outcome, and
 * *RET its last state, new reference; NULL where it cannot be read, which was printed. */
int cl_wait_campaign(json_t **ret, struct cl *client, const char *id);
/* pin.c: write --pin from a verified CAMPAIGN; run that of --against again. */
int cl_pin(struct cl *client, const json_t *campaign);
int cl_verify_against(struct cl *client);
int cl_best(struct cl *client);
int cl_baseline(struct cl *client);
int cl_steps(struct cl *client);
int cl_timeline(struct cl *client);
int cl_pareto(struct cl *client);
int cl_predictions(struct cl *client);
int cl_surface(struct cl *client);
int cl_diagnosis(struct cl *client);
int cl_compare(struct cl *client);
int cl_import(struct cl *client);
int cl_tokens(struct cl *client);
int cl_token_add(struct cl *client);
int cl_token_rm(struct cl *client);
int cl_events(struct cl *client);
int cl_get(struct cl *client);
int cl_importance(struct cl *client);
int cl_export(struct cl *client);
int cl_check(struct cl *client);
int cl_plan(struct cl *client);
int cl_cancel(struct cl *client);
int cl_pause(struct cl *client);
int cl_resume(struct cl *client);
int cl_clone(struct cl *client);
int cl_verify(struct cl *client);
int cl_why(struct cl *client);
int cl_worker(struct cl *client);
int cl_workers(struct cl *client);
int cl_edit(struct cl *client);
int cl_rm(struct cl *client);
int cl_new(struct cl *client);
int cl_presets(struct cl *client);
int cl_project(struct cl *client);
int cl_size(struct cl *client);
int cl_datasets(struct cl *client);
int cl_exporters(struct cl *client);
int cl_calibrate_stack(struct cl *client);
int cl_doctor(struct cl *client);
int cl_mcp(struct cl *client);
int cl_completion(struct cl *client);
int cl_manual(struct cl *client);

#endif
