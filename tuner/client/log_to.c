/*
 * `partune log-to`: the trials of a campaign for tools that people have open already, a run for
 * each trial: its layout as parameters, its steps as metrics, its result at the end.
 *
 * tensorboard: an event file in DIR/<campaign>/trial-<n>/, see tensorboard.c. Logging again writes
 * the same files anew. mlflow: REST calls of its tracking server; a trial that the experiment has
 * already, by its tag, is left alone.
 */
#include "tuner/client/log_to.h"

#include <errno.h>
#include <math.h>

#include "db/db.h"

/* Every step of TRIAL, new reference: pages of a thousand. */
static int read_steps(json_t **ret, struct cl *client, const char *id, const json_t *trial)
{
    AUTO_FREE char *head = mem_printf("/trials/%.0f/steps?page_size=1000", cl_number(trial, "n"));
    AUTO_FREE char *token = NULL;
    json_t *all = json_array();
    int code;

    do {
        AUTO_FREE char *tail =
            token ? mem_printf("%s&page_token=%s", head, token) : mem_strdup(head);
        AUTO_JSON *page = NULL;

        code = cl_get_campaign(&page, client, id, tail);
        json_array_extend(all, json_object_get(page, "items"));
        free(token);
        token = *cl_string(page, "next_page_token")
                    ? cl_path("", cl_string(page, "next_page_token"), "")
                    : NULL;
    } while (code == CL_OK && token);
    *ret = all;
    return code;
}

/* Log each settled trial by ONE; how many is printed. */
static int log_trials(struct cl *client, const json_t *campaign, log_to_fn *one, void *ctx)
{
    const char *id = cl_string(campaign, "id");
    AUTO_JSON *trials = NULL;
    int logged = 0, code = cl_all_trials(&trials, client, id);
    json_t *trial;
    size_t i;

    json_array_foreach(trials, i, trial) {
        AUTO_JSON *steps = NULL;
        bool fresh = true;

        if (db_trial_live(cl_string(trial, "state")))
            continue;
        code = read_steps(&steps, client, id, trial);
        if (code == CL_OK)
            code = one(&fresh, ctx, campaign, trial, steps);
        if (code != CL_OK)
            break;
        logged += fresh;
    }
    if (code != CL_OK)
        return code;
    if (client->args.json) {
        AUTO_JSON *v = json_pack("{s:s, s:i, s:i}", "campaign", id, "logged", logged, "left",
                                 (int)json_array_size(trials) - logged);

        cl_print_json(v);
    } else {
        printf("logged %d of %zu trials of campaign %s to %s%s\n", logged, json_array_size(trials),
               id, client->operand[1], cl_simulated_mark(campaign));
    }
    return CL_OK;
}

int cl_log_to(struct cl *client)
{
    const char *kind = client->operand[0], *where = client->operand[1], *id = client->operand[2];
    AUTO_JSON *campaign = NULL;
    int code;

    if (strcmp(kind, "tensorboard") != 0 && strcmp(kind, "mlflow") != 0) {
        fprintf(stderr, "partune: log-to takes tensorboard or mlflow, not `%s`\n", kind);
        return CL_USAGE;
    }
    code = cl_get_campaign(&campaign, client, id, "");
    if (code != CL_OK)
        return code;
    if (str_eq(kind, "tensorboard"))
        return log_trials(client, campaign, log_to_tensorboard, (void *)(uintptr_t)where);
    return log_to_mlflow_open(client, campaign, where, log_trials);
}
