/*
 * Short programs that are run for their answer, beside the loop: squeue and its like.
 *
 * Each has a time limit and answers once, from the loop; a service that closes forgets what is
 * still on its way, and no callback comes then.
 */
#include <assert.h>
#include <errno.h>
#include <signal.h>

#include "tuner/machine/command.h"

enum { MAX_ANSWER = 4 << 20 };

struct stream {
    uv_pipe_t pipe;
    struct str text;
    struct tn_command *command;
};

struct tn_command {
    struct tn_command *next;
    struct tn_commands *commands;
    uv_process_t process;
    uv_timer_t limit;
    struct stream out[2];
    int handles; /* that are not closed yet */
    int open;    /* of the process and its two streams: what the answer waits for */
    int status;
    bool forgotten;
    tn_command_fn *fn;
    void *arg;
};

static void unlink_command(struct tn_command *command)
{
    struct tn_command **at = &command->commands->first;

    while (*at && *at != command)
        at = &(*at)->next;
    if (*at)
        *at = command->next;
}

static void on_closed(uv_handle_t *handle)
{
    struct tn_command *c = handle->data;

    assert(c->handles > 0);
    if (--c->handles > 0)
        return;
    unlink_command(c);
    if (!c->forgotten && !c->commands->forgotten)
        c->fn(c->arg, c->status, str_text(&c->out[0].text), str_text(&c->out[1].text));
    str_done(&c->out[0].text);
    str_done(&c->out[1].text);
    free(c);
}

static void close_one(uv_handle_t *handle)
{
    if (!uv_is_closing(handle))
        uv_close(handle, on_closed);
}

/* The answer is whole when the process has ended and both its streams have. */
static void part_done(struct tn_command *command, uv_handle_t *handle)
{
    if (uv_is_closing(handle))
        return;
    assert(command->open > 0);
    close_one(handle);
    if (--command->open == 0)
        close_one((uv_handle_t *)&command->limit);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)handle;
    *buf = uv_buf_init(mem_alloc(suggested), (unsigned)suggested);
}

static void on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *buf)
{
    struct tn_command *c = stream->data;
    struct str *text = &c->out[stream == (uv_stream_t *)&c->out[1].pipe].text;

    if (got > 0 && text->len < MAX_ANSWER)
        str_addn(text, buf->base, (size_t)got);
    free(buf->base);
    if (got < 0)
        part_done(c, (uv_handle_t *)stream);
}

static void on_exit_of(uv_process_t *process, int64_t status, int sig)
{
    struct tn_command *c = process->data;

    if (c->status == 0)
        c->status = sig ? 128 + sig : (int)status;
    part_done(c, (uv_handle_t *)process);
}

/* Streams that a grandchild holds open must not keep us waiting either. */
static void on_limit(uv_timer_t *timer)
{
    struct tn_command *c = timer->data;

    c->status = -ETIMEDOUT;
    uv_process_kill(&c->process, SIGKILL);
    part_done(c, (uv_handle_t *)&c->out[0].pipe);
    part_done(c, (uv_handle_t *)&c->out[1].pipe);
}

static void start_reading(struct tn_command *command)
{
    for (int i = 0; i < 2; i++)
        uv_read_start((uv_stream_t *)&command->out[i].pipe, on_alloc, on_read);
}

static void give_up(struct tn_command *command)
{
    close_one((uv_handle_t *)&command->process);
    close_one((uv_handle_t *)&command->out[0].pipe);
    close_one((uv_handle_t *)&command->out[1].pipe);
    close_one((uv_handle_t *)&command->limit);
}

void tn_command_run(struct tn_commands *commands, const struct tn_argv *argv,
                    const struct tn_argv *env, int timeout_ms, tn_command_fn *fn, void *arg)
{
    struct tn_command *c = mem_alloc(sizeof(*c));
    uv_stdio_container_t io[3] = {{.flags = UV_IGNORE}};
    uv_process_options_t o = {.exit_cb = on_exit_of,
                              .file = argv->v[0],
                              .args = argv->v,
                              .env = env ? env->v : NULL,
                              .stdio = io,
                              .stdio_count = 3};

    assert(argv->n > 0 && !argv->v[argv->n]);
    assert(timeout_ms > 0);
    *c = (struct tn_command){.next = commands->first, .commands = commands, .fn = fn, .arg = arg};
    commands->first = c;
    for (int i = 0; i < 2; i++) {
        uv_pipe_init(commands->loop, &c->out[i].pipe, 0);
        c->out[i].pipe.data = c;
        io[1 + i].flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE;
        io[1 + i].data.stream = (uv_stream_t *)&c->out[i].pipe;
    }
    uv_timer_init(commands->loop, &c->limit);
    c->process.data = c->limit.data = c;
    c->handles = 4;
    c->open = 3;
    c->status = uv_spawn(commands->loop, &c->process, &o);
    if (c->status < 0) {
        str_addf(&c->out[1].text, "cannot start %s: %s", argv->v[0], uv_strerror(c->status));
        give_up(c);
        return;
    }
    start_reading(c);
    uv_timer_start(&c->limit, on_limit, (uint64_t)timeout_ms, 0);
}

void tn_command_forget_all(struct tn_commands *commands)
{
    commands->forgotten = true;
    for (struct tn_command *c = commands->first; c; c = c->next) {
        c->forgotten = true;
        give_up(c);
    }
}
