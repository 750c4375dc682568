/*
 * `partune watch`: a campaign while it runs.
 *
 * On a terminal it has the whole screen, drawn anew at most five times a second from the last state
 * that the event stream brought, and leaves the terminal as it was; in a pipe each trial that ends
 * is one line; with --json each event is one. The stream resumes by itself when the daemon
 * restarts, and what happened meanwhile is asked for.
 */
#include "tuner/client/client.h"

#include <math.h>
#include <signal.h>
#include <unistd.h>

#include "db/db.h"

struct watch {
    struct cl *c;
    const char *id;
    json_t *campaign; /* last state, owned */
    json_t *trials;   /* array by arrival, owned; a trial is replaced in place */
    json_t *step;     /* last step event, owned */
    json_t *news;     /* array of trials that ended and have no line yet, owned */
    size_t up;        /* trials that were scrolled back */
    bool screen, past, dirty, ended, left, lost;
    bool every; /* all events are printed: it has ended when its last one says so */
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
    (void)sig;
    interrupted = 1;
}

static bool is_over(const json_t *campaign)
{
    static const char *const over[] = {"done", "cancelled", "failed", "paused"};

    for (size_t i = 0; i < ARRAY_LEN(over); i++)
        if (str_eq(cl_string(campaign, "state"), over[i]))
            return true;
    return false;
}

static bool is_settled(const json_t *trial)
{
    return !db_trial_live(cl_string(trial, "state"));
}

static void progress_line(const struct watch *watch, char *buf, size_t size)
{
    char left[24], total[32] = "";
    double eta = cl_number(watch->campaign, "progress.eta_s"),
           budget = cl_number(watch->campaign, "progress.budget");

    if (isfinite(budget))
        snprintf(total, sizeof(total), " of %.0f", budget);
    snprintf(buf, size, "trial %.0f%s%s%s%s", cl_number(watch->campaign, "progress.trials"), total,
             eta > 0 ? ", about " : "", eta > 0 ? str_human_seconds(left, eta) : "",
             eta > 0 ? " left" : "");
}

/* ---- a line a trial ------------------------------------------------------ */

static void print_plain(const struct watch *watch, const json_t *trial)
{
    char rate[32], best[32], progress[96], ran[160];
    double ratio = cl_number(watch->campaign, "best.ratio");

    progress_line(watch, progress, sizeof(progress));
    printf("trial %3.0f  %-8s %-34s %-9s", cl_number(trial, "n"), cl_string(trial, "kind"),
           cl_string(trial, "text"), cl_string(trial, "state"));
    if (isfinite(cl_number(trial, "tokens_per_s")))
        printf(" %10s %stokens/s", cl_rate(rate, cl_number(trial, "tokens_per_s")),
               cl_simulated_word(trial));
    else if (*cl_string(trial, "failure.detail"))
        printf(" %s", cl_string(trial, "failure.detail"));
    else if (cl_is_smaller(trial))
        printf(" ran %s", cl_what_ran(ran, trial));
    else if (*cl_string(trial, "warning"))
        printf(" warning: %s", cl_string(trial, "warning"));
    if (isfinite(cl_number(watch->campaign, "best.tokens_per_s")))
        printf("  best %s", cl_rate(best, cl_number(watch->campaign, "best.tokens_per_s")));
    if (isfinite(ratio))
        printf(" (%.2f x baseline)", ratio);
    printf("  %s\n", progress);
    fflush(stdout);
}

/* What the campaign says after a trial knows of it: the line waits for that. */
static void print_news(struct watch *watch)
{
    size_t i;
    json_t *t;

    json_array_foreach(watch->news, i, t)
        print_plain(watch, t);
    json_array_clear(watch->news);
}

/* ---- the screen ---------------------------------------------------------- */

/* The rows of the table that there is room for: the newest, or those scrolled back to. */
static void draw_trials(struct watch *watch, FILE *out, int room)
{
    struct cl_column columns[CL_TRIAL_COLUMNS];
    struct cl_table t = cl_trial_table(columns, json_array_get(watch->trials, 0));
    size_t n = json_array_size(watch->trials), rows = room > 1 ? (size_t)room - 1 : 0, to, from;

    if (watch->up > (n > rows ? n - rows : 0))
        watch->up = n > rows ? n - rows : 0;
    to = n - watch->up;
    from = to > rows ? to - rows : 0;
    for (size_t i = from; i < to; i++)
        cl_trial_row(&t, json_array_get(watch->trials, i));
    if (t.rows)
        cl_table_print(watch->c, &t, out);
    else if (room > 0)
        fputs("no trial yet\n", out);
    cl_table_done(&t);
}

static void draw_step(const struct watch *watch, FILE *out)
{
    double ms = cl_number(watch->step, "step.ms");
    char rate[32], loss[32] = "";

    if (!watch->step || is_over(watch->campaign)) {
        fputc('\n', out);
        return;
    }
    if (isfinite(cl_number(watch->step, "step.loss")))
        snprintf(loss, sizeof(loss), ", loss %.4f", cl_number(watch->step, "step.loss"));
    fprintf(out, "%-10s trial %.0f, step %.0f: %.1f ms, %s %stokens/s%s\n", "now",
            cl_number(watch->step, "n"), cl_number(watch->step, "step.n"), ms,
            cl_rate(rate, 1e3 * cl_number(watch->step, "step.tokens") / ms),
            cl_simulated_word(watch->step), loss);
}

static void draw(struct watch *watch)
{
    enum { AROUND = 8 }; /* lines above and below the table */
    const char *state = cl_string(watch->campaign, "state"),
               *reason = cl_string(watch->campaign, "reason");
    const char *paint = cl_paint(watch->c, state);
    char progress[96], *text = NULL;
    size_t size = 0;
    int lines = 24;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return;
    cl_terminal_size(&watch->c->width, &lines);
    progress_line(watch, progress, sizeof(progress));
    fprintf(out, "%s%s%s  %s%s  %s%s%s%s%s\n", watch->c->color ? "\033[1m" : "",
            cl_string(watch->campaign, "name"), watch->c->color ? "\033[0m" : "", watch->id,
            cl_simulated_mark(watch->campaign), paint, state, *paint ? "\033[0m" : "",
            *reason ? ": " : "", reason);
    fprintf(out, "%s%s\n\n", progress,
            watch->lost ? " - the daemon does not answer, retrying" : "");
    draw_trials(watch, out, lines - AROUND);
    fputc('\n', out);
    cl_print_result(out, "best", json_object_get(watch->campaign, "best"));
    cl_print_result(out, "baseline", json_object_get(watch->campaign, "baseline"));
    draw_step(watch, out);
    fputs("q: leave (the campaign keeps running); up, down: scroll", out);
    fclose(out);
    cl_screen_show(text, watch->c->width, lines);
    free(text);
    watch->dirty = false;
}

/* Arrows come as ESC [ A; letters for those who have none. */
static void on_key(struct watch *watch, int key)
{
    switch (key) {
    case 'q':
    case 'Q':
        watch->left = true;
        break;
    case 'A':
    case 'k':
        watch->up++;
        break;
    case 'B':
    case 'j':
        watch->up -= watch->up > 0;
        break;
    default:
        return;
    }
    watch->dirty = true;
}

/* ---- events -------------------------------------------------------------- */

/* What was asked for may be newer than the events that are still on their way: a trial that has
 * settled lives again only in another attempt. */
static bool is_stale(const json_t *known, const json_t *trial)
{
    return is_settled(known) && !is_settled(trial) &&
           !(cl_number(trial, "attempts") > cl_number(known, "attempts"));
}

static void keep_trial(struct watch *watch, const json_t *trial)
{
    double n = cl_number(trial, "n");
    bool plain = !watch->screen && !watch->c->args.json, was = false;
    size_t i;
    json_t *it;

    json_array_foreach(watch->trials, i, it) {
        if (cl_number(it, "n") != n)
            continue;
        if (is_stale(it, trial))
            return;
        was = is_settled(it);
        json_array_set(watch->trials, i, (json_t *)(uintptr_t)trial);
        break;
    }
    if (i == json_array_size(watch->trials))
        json_array_append(watch->trials, (json_t *)(uintptr_t)trial);
    if (plain && !was && is_settled(trial))
        json_array_append(watch->news, (json_t *)(uintptr_t)trial);
}

/* A trial may have ended after the campaign was read: read its best and its progress again. Whether
 * it is over stays as it was, since then trials that are not in the list may have ended, too. */
static int know_of_news(struct watch *watch, const char *path)
{
    AUTO_JSON *campaign = NULL;
    int code = cl_call(&campaign, watch->c, "GET", path, NULL);

    if (code == CL_OK) {
        json_decref(watch->campaign);
        watch->campaign = TAKE(campaign);
    }
    return code;
}

/* Without a screen, which shows it always: why the campaign is in its state, when that is new. */
static void print_reason(const struct watch *watch, const json_t *data)
{
    const char *reason = cl_string(data, "reason");

    if (watch->screen || watch->c->args.json || is_over(data) || !*reason ||
        str_eq(reason, cl_string(watch->campaign, "reason")))
        return;
    printf("%s: %s\n", cl_string(data, "state"), reason);
    fflush(stdout);
}

static int load_state(struct watch *watch)
{
    AUTO_FREE char *path = mem_printf("/v1/campaigns/%s", watch->id);
    /* The newest thousand are as many as anybody scrolls through. */
    AUTO_FREE char *trials = mem_printf("%s/trials?page_size=1000&sort=-n", path);
    AUTO_JSON *v = NULL, *campaign = NULL;
    json_t *items;
    int code = cl_call(&campaign, watch->c, "GET", path, NULL);

    if (code == CL_OK)
        code = cl_call(&v, watch->c, "GET", trials, NULL);
    if (code != CL_OK)
        return code;
    print_reason(watch, campaign);
    json_decref(watch->campaign);
    watch->campaign = TAKE(campaign);
    watch->ended = !watch->every && is_over(watch->campaign);
    items = json_object_get(v, "items");
    for (size_t i = json_array_size(items); i-- > 0;) {
        json_t *t = json_array_get(items, i);

        if (watch->past)
            keep_trial(watch, t);
        else
            json_array_append(watch->trials, t);
    }
    watch->past = true; /* what ends while we are cut off is news */
    if (json_array_size(watch->news) && !watch->ended)
        code = know_of_news(watch, path);
    print_news(watch);
    watch->dirty = true;
    return code;
}

static void on_campaign(struct watch *watch, const json_t *data)
{
    print_reason(watch, data);
    json_decref(watch->campaign);
    watch->campaign = json_incref((json_t *)(uintptr_t)data);
    watch->ended = is_over(data);
    print_news(watch);
}

static bool on_event(void *user, enum cl_signal what, const char *event, const json_t *data)
{
    struct watch *w = user;
    int key;

    if (what == CL_OPENED || what == CL_LOST) {
        w->lost = what == CL_LOST;
        w->dirty = true;
        if (what == CL_OPENED)
            load_state(w);
    } else if (what == CL_EVENT) {
        if (w->c->args.json)
            cl_print_event(event, data);
        if (!strcmp(event, "campaign"))
            on_campaign(w, data);
        else if (!strcmp(event, "trial"))
            keep_trial(w, data);
        else if (!strcmp(event, "step")) {
            json_decref(w->step);
            w->step = json_incref((json_t *)(uintptr_t)data);
        }
        w->dirty = true;
    } else {
        while (w->screen && (key = cl_screen_key(w->c)) >= 0)
            on_key(w, key);
        if (w->screen && (cl_screen_resized() || w->dirty))
            draw(w);
    }
    return !w->ended && !w->left && !interrupted;
}

/* Once the screen is given back: what should stay visible. */
static void print_end(const struct watch *watch)
{
    const char *reason = cl_string(watch->campaign, "reason");

    if (watch->c->args.json)
        return;
    printf("campaign %s: %s%s%s%s\n", watch->id, cl_string(watch->campaign, "state"),
           *reason ? ": " : "", reason, cl_simulated_mark(watch->campaign));
    cl_print_result(stdout, "best", json_object_get(watch->campaign, "best"));
    cl_print_result(stdout, "baseline", json_object_get(watch->campaign, "baseline"));
    cl_print_shares(watch->c, watch->campaign);
}

static int verdict(const struct watch *watch)
{
    const char *state = cl_string(watch->campaign, "state");

    return str_eq(state, "failed") || str_eq(state, "cancelled") ? CL_FAILED : CL_OK;
}

int cl_watch_campaign(struct cl *client, const char *id, enum cl_watch_from from)
{
    bool every = from == CL_WATCH_ALL && client->args.json;
    AUTO_FREE char *path =
        mem_printf("/v1/campaigns/%s/events%s", id, every ? "?last_event_id=0" : "");
    struct watch w = {.c = client,
                      .id = id,
                      .past = from != CL_WATCH_NOW,
                      .every = every,
                      .trials = json_array(),
                      .news = json_array()};
    int code;

    signal(SIGINT, on_interrupt);
    code = load_state(&w);
    if (code == CL_OK && client->tty && !client->args.json && !w.ended) {
        w.screen = true;
        cl_screen_open(client);
        draw(&w);
    }
    if (code == CL_OK && !w.ended)
        code = cl_stream(client, path, on_event, &w);
    if (w.screen)
        cl_screen_close();
    print_news(&w);
    if (code == CL_OK) {
        print_end(&w);
        code = verdict(&w);
    } else {
        cl_say_trouble(client);
    }
    json_decref(w.campaign);
    json_decref(w.trials);
    json_decref(w.step);
    json_decref(w.news);
    return code;
}

int cl_watch(struct cl *client)
{
    return cl_watch_campaign(client, client->operand[0], CL_WATCH_PAST);
}
