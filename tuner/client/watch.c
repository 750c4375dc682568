/*
 * `partune watch`: a campaign while it runs.
 *
 * On a terminal the screen is drawn anew at most four times a second from the last state that the
 * event stream brought; in a pipe each trial that ends is one line. The stream resumes by itself
 * when the daemon restarts.
 */
#include "tuner/client/client.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <unistd.h>

struct watch {
    struct cl *c;
    json_t *campaign; /* last state, owned */
    json_t *trials;   /* array by arrival, owned; a trial is replaced in place */
    json_t *step;     /* last step event, owned */
    bool dirty, ended;
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
    const char *s = cl_string(trial, "state");

    return strcmp(s, "queued") && strcmp(s, "starting") && strcmp(s, "running");
}

static void progress_line(const struct watch *w, char *buf, size_t size)
{
    char left[24];
    double eta = cl_number(w->campaign, "progress.eta_s"),
           budget = cl_number(w->campaign, "progress.budget");
    char total[32];

    total[0] = '\0';
    if (isfinite(budget))
        snprintf(total, sizeof(total), " of %.0f", budget);
    snprintf(buf, size, "trial %.0f%s%s%s", cl_number(w->campaign, "progress.trials"), total,
             isfinite(eta) ? ", about " : "", isfinite(eta) ? str_human_seconds(left, eta) : "");
    if (isfinite(eta))
        snprintf(buf + strlen(buf), size - strlen(buf), " left");
}

static void print_plain(const struct watch *w, const json_t *t)
{
    char rate[32], best[32], progress[96];
    double ratio = cl_number(w->campaign, "best.ratio");

    progress_line(w, progress, sizeof(progress));
    printf("trial %3.0f  %-8s %-34s %-9s", cl_number(t, "n"), cl_string(t, "kind"),
           cl_string(t, "text"), cl_string(t, "state"));
    if (isfinite(cl_number(t, "tokens_per_s")))
        printf(" %10s tokens/s", cl_rate(rate, cl_number(t, "tokens_per_s")));
    else if (*cl_string(t, "failure.detail"))
        printf(" %s", cl_string(t, "failure.detail"));
    if (isfinite(cl_number(w->campaign, "best.tokens_per_s")))
        printf("  best %s", cl_rate(best, cl_number(w->campaign, "best.tokens_per_s")));
    if (isfinite(ratio))
        printf(" (%.2f x baseline)", ratio);
    printf("  %s\n", progress);
    fflush(stdout);
}

static void draw(struct watch *w)
{
    struct cl_table t = {cl_trial_columns, CL_TRIAL_COLUMNS, NULL, 0, 0};
    char progress[96], rate[32];
    size_t n = json_array_size(w->trials), from = n > 18 ? n - 18 : 0;

    progress_line(w, progress, sizeof(progress));
    fputs("\033[H\033[J", stdout);
    printf("%s  %s  %s%s%s\n", cl_string(w->campaign, "name"), cl_string(w->campaign, "id"),
           cl_string(w->campaign, "state"), *cl_string(w->campaign, "reason") ? ": " : "",
           cl_string(w->campaign, "reason"));
    printf("%s\n\n", progress);
    for (size_t i = from; i < n; i++)
        cl_trial_row(&t, json_array_get(w->trials, i));
    if (t.rows)
        cl_table_print(w->c, &t, stdout);
    cl_table_done(&t);
    putchar('\n');
    cl_print_result(w->c, "best", json_object_get(w->campaign, "best"));
    cl_print_result(w->c, "baseline", json_object_get(w->campaign, "baseline"));
    if (w->step && !is_over(w->campaign))
        printf(
            "%-10s trial %.0f, step %.0f: %.1f ms, %s tokens/s, loss %.4f\n", "now",
            cl_number(w->step, "n"), cl_number(w->step, "step.n"), cl_number(w->step, "step.ms"),
            cl_rate(rate, 1e3 * cl_number(w->step, "step.tokens") / cl_number(w->step, "step.ms")),
            cl_number(w->step, "step.loss"));
    puts("\nCtrl-C leaves the view; the campaign goes on.");
    fflush(stdout);
    w->dirty = false;
}

static void keep_trial(struct watch *w, const json_t *t)
{
    double n = cl_number(t, "n");
    size_t i;
    json_t *it;

    json_array_foreach(w->trials, i, it) {
        if (cl_number(it, "n") == n) {
            bool was = is_settled(it);

            json_array_set(w->trials, i, (json_t *)(uintptr_t)t);
            if (!was && is_settled(t) && !w->c->tty)
                print_plain(w, t);
            return;
        }
    }
    json_array_append(w->trials, (json_t *)(uintptr_t)t);
    if (is_settled(t) && !w->c->tty)
        print_plain(w, t);
}

static bool on_event(void *user, const char *event, const json_t *data)
{
    struct watch *w = user;

    if (interrupted)
        return false;
    if (!event) {
        if (w->dirty && w->c->tty)
            draw(w);
        return true;
    }
    if (!strcmp(event, "campaign")) {
        json_decref(w->campaign);
        w->campaign = json_incref((json_t *)(uintptr_t)data);
        w->ended = is_over(data);
    } else if (!strcmp(event, "trial")) {
        keep_trial(w, data);
    } else if (!strcmp(event, "step")) {
        json_decref(w->step);
        w->step = json_incref((json_t *)(uintptr_t)data);
    }
    w->dirty = true;
    return !w->ended;
}

static int load_state(struct watch *w, const char *id)
{
    AUTO_FREE char *path = mem_printf("/v1/campaigns/%s", id);
    AUTO_FREE char *trials = mem_printf("/v1/campaigns/%s/trials?page_size=1000", id);
    AUTO_JSON *v = NULL;
    int code = cl_call(w->c, "GET", trials, NULL, &v);

    if (code != CL_OK)
        return code;
    w->trials = json_incref(json_object_get(v, "items"));
    code = cl_call(w->c, "GET", path, NULL, &w->campaign);
    w->ended = code == CL_OK && is_over(w->campaign);
    return code;
}

int cl_watch_campaign(struct cl *c, const char *id, bool past)
{
    AUTO_FREE char *path = mem_printf("/v1/campaigns/%s/events", id);
    struct watch w = {.c = c, .dirty = true};
    json_t *t;
    size_t i;
    int code = load_state(&w, id);

    signal(SIGINT, on_interrupt);
    if (code == CL_OK && !c->tty && past)
        json_array_foreach(w.trials, i, t)
            if (is_settled(t))
                print_plain(&w, t);
    if (code == CL_OK && !w.ended)
        code = cl_stream(c, path, on_event, &w);
    if (code == CL_OK && c->tty)
        draw(&w);
    if (code == CL_OK && !c->tty && !interrupted)
        printf("campaign %s: %s%s%s\n", id, cl_string(w.campaign, "state"),
               *cl_string(w.campaign, "reason") ? ": " : "", cl_string(w.campaign, "reason"));
    if (code == CL_OK && (str_eq(cl_string(w.campaign, "state"), "failed") ||
                          str_eq(cl_string(w.campaign, "state"), "cancelled")))
        code = CL_FAILED;
    json_decref(w.campaign);
    json_decref(w.trials);
    json_decref(w.step);
    return code;
}

int cl_watch(struct cl *c)
{
    return cl_watch_campaign(c, c->operand[0], true);
}
