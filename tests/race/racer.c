/* Children that search; see racer.h. */
#include "tests/race/racer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_ANSWER = 1 << 20 };

/* The child: its pipes, a group of its own, and the shell, which appends the two files. */
static void become(const char *command, const char *campaign, const char *layouts, int in, int out)
{
    setpgid(0, 0);
    if (dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0)
        execl("/bin/sh", "sh", "-c", command, "sh", "--layouts", layouts, campaign, (char *)NULL);
    _exit(127);
}

int racer_start(struct racer *racer, const char *campaign, const char *layouts, struct err *error)
{
    AUTO_FREE char *command = mem_printf("exec %s \"$@\"", racer->command);
    int to[2], from[2];

    if (pipe2(to, O_CLOEXEC) < 0)
        return err_set(error, -errno, "pipe: %s", strerror(errno));
    if (pipe2(from, O_CLOEXEC) < 0) {
        int r = -errno;

        close(to[0]);
        close(to[1]);
        return err_set(error, r, "pipe: %s", strerror(-r));
    }
    racer->pid = fork();
    if (racer->pid == 0)
        become(command, campaign, layouts, to[0], from[1]);
    close(to[0]);
    close(from[1]);
    racer->to = to[1];
    racer->from = from[0];
    str_trunc(&racer->pending, 0);
    return racer->pid < 0 ? err_set(error, -EAGAIN, "%s could not be started", racer->name) : 0;
}

void racer_end(struct racer *racer)
{
    bool ended = false;

    close(racer->to);
    for (int i = 0; i < 50 && !ended; i++) {
        ended = waitpid(racer->pid, NULL, WNOHANG) == racer->pid;
        if (!ended)
            poll(NULL, 0, 10);
    }
    close(racer->from);
    if (!ended) {
        kill(-racer->pid, SIGKILL);
        waitpid(racer->pid, NULL, 0);
    }
    str_done(&racer->pending);
}

static int send_line(struct racer *racer, json_t *owned_request, struct err *error)
{
    AUTO_FREE char *text = jx_dump(owned_request);
    AUTO_FREE char *line = mem_printf("%s\n", text);
    int r = file_write_fd(racer->to, line, strlen(line));

    json_decref(owned_request);
    return r < 0 ? err_set(error, -EPIPE, "%s has ended", racer->name) : 0;
}

/* More of its output, within the time that is left. */
static int read_more(struct racer *racer, uint64_t until_ns, struct err *error)
{
    struct pollfd wait = {.fd = racer->from, .events = POLLIN};
    uint64_t now = clock_mono_ns();
    char part[4096];
    ssize_t n;

    if (now >= until_ns || poll(&wait, 1, (int)((until_ns - now) / 1000000 + 1)) == 0)
        return err_set(error, -ETIMEDOUT, "%s did not answer within %g s", racer->name,
                       racer->patience_s);
    n = read(racer->from, part, sizeof(part));
    if (n <= 0)
        return err_set(error, -EPIPE, "%s has ended", racer->name);
    if (racer->pending.len + (size_t)n > MAX_ANSWER)
        return err_set(error, -EINVAL, "%s answered a line of more than %d bytes", racer->name,
                       MAX_ANSWER);
    str_addn(&racer->pending, part, (size_t)n);
    return 0;
}

int racer_ask(json_t **ret, struct racer *racer, json_t *owned_request, struct err *error)
{
    uint64_t until_ns = clock_mono_ns() + (uint64_t)(racer->patience_s * 1e9);
    int r = send_line(racer, owned_request, error);
    const char *end = NULL;
    size_t size;

    while (
        r == 0 &&
        !(end = racer->pending.len ? memchr(racer->pending.text, '\n', racer->pending.len) : NULL))
        r = read_more(racer, until_ns, error);
    if (r < 0)
        return r;
    size = (size_t)(end - racer->pending.text);
    r = jx_parse(ret, racer->pending.text, size, error);
    if (r == 0 && !json_is_object(*ret)) {
        json_decref(*ret);
        r = err_set(error, -EINVAL, "an answer is an object");
    }
    if (r < 0)
        return err_wrap(error, "%s answered \"%.*s\"", racer->name, (int)(size < 80 ? size : 80),
                        racer->pending.text);
    memmove(racer->pending.text, end + 1, racer->pending.len - size);
    racer->pending.len -= size + 1;
    return 0;
}
