/*
 * `partune wait`: nothing is printed until the campaign has ended; the exit code is its outcome.
 * Restarts of the daemon are waited out as `watch` does.
 */
#include "tuner/client/client.h"

#include <math.h>

struct wait {
    struct cl *client;
    const char *path;
    json_t *campaign;  /* last state that was read, owned */
    uint64_t until_ns; /* 0: as long as it takes */
    int code;          /* of reading it; -1: it goes on */
};

/* The code of a state that ends the waiting, or -1. */
static int outcome(const json_t *campaign)
{
    const char *state = cl_string(campaign, "state");

    if (str_eq(state, "done"))
        return json_is_object(json_object_get(campaign, "best")) ? CL_OK : CL_FAILED;
    if (str_eq(state, "failed"))
        return CL_FAILED;
    if (str_eq(state, "cancelled"))
        return CL_CANCELLED;
    return str_eq(state, "paused") ? CL_PAUSED : -1;
}

static void read_campaign(struct wait *wait)
{
    json_t *campaign;
    int code = cl_call(&campaign, wait->client, "GET", wait->path, NULL);

    if (code != CL_OK) {
        json_decref(wait->campaign); /* what is known of it is no longer so */
        wait->campaign = NULL;
        wait->code = code;
        return;
    }
    json_decref(wait->campaign);
    wait->campaign = campaign;
    wait->code = outcome(campaign);
}

static bool on_event(void *user, enum cl_signal what, const char *event, const json_t *data)
{
    struct wait *wait = user;

    /* The end may have come before the stream was there, or while it was cut. */
    if (what == CL_OPENED || (what == CL_EVENT && str_eq(event, "campaign") && outcome(data) >= 0))
        read_campaign(wait);
    if (wait->code < 0 && wait->until_ns && clock_mono_ns() >= wait->until_ns)
        wait->code = CL_TIMEOUT;
    return wait->code < 0;
}

static void print_outcome(const json_t *campaign, int code)
{
    const char *reason = cl_string(campaign, "reason");

    printf("campaign %s: %s%s%s%s\n", cl_string(campaign, "id"), cl_string(campaign, "state"),
           *reason ? ": " : "", reason, cl_simulated_mark(campaign));
    if (code == CL_OK)
        cl_print_result(stdout, "best", json_object_get(campaign, "best"));
}

int cl_wait_campaign(json_t **ret, struct cl *client, const char *id)
{
    AUTO_FREE char *path = cl_path("/v1/campaigns/", id, "");
    AUTO_FREE char *events = mem_printf("%s/events", path);
    struct wait wait = {.client = client, .path = path, .code = -1};
    int code = CL_OK;

    *ret = NULL;
    if (client->args.timeout)
        wait.until_ns = clock_mono_ns() + (uint64_t)client->args.timeout * UINT64_C(1000000000);
    read_campaign(&wait);
    if (wait.code < 0)
        code = cl_stream(client, events, on_event, &wait);
    if (code != CL_OK) {
        cl_say_trouble(client);
        json_decref(wait.campaign);
        return code;
    }
    *ret = wait.campaign;
    return wait.code;
}

int cl_wait(struct cl *client)
{
    AUTO_JSON *campaign = NULL;
    int code = cl_wait_campaign(&campaign, client, client->operand[0]);

    if (campaign && client->args.json)
        cl_print_json(campaign);
    else if (campaign)
        print_outcome(campaign, code);
    return code;
}
