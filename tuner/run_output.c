#include "tuner/run_output.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int run_output_open(struct run_output *o, const char *folder, const char *name, uint64_t limit,
                    int *ret_write_end)
{
    AUTO_FREE char *path = mem_printf("%s/%s", folder, name);
    int fds[2];

    o->file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (o->file < 0 || pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    o->pipe = fds[0];
    o->limit = limit;
    *ret_write_end = fds[1];
    return 0;
}

/* A full disk must not stop the trial: what cannot be written is lost. */
static void put(const struct run_output *o, const char *bytes, size_t n)
{
    (void)!file_write_fd(o->file, bytes, n);
}

static void keep(struct run_output *o, const char *bytes, size_t n)
{
    size_t room = o->written < o->limit ? (size_t)(o->limit - o->written) : 0;
    size_t head = n < room ? n : room;

    put(o, bytes, head);
    o->written += n;
    if (head == n)
        return;
    if (!o->tail)
        o->tail = mem_alloc(RUN_TAIL);
    for (size_t i = head; i < n; i++) /* byte i of the output lies at i % RUN_TAIL */
        o->tail[(o->written - n + i) % RUN_TAIL] = bytes[i];
}

void run_output_pump(struct run_output *o)
{
    char buf[65536];

    while (o->pipe >= 0) {
        ssize_t n = read(o->pipe, buf, sizeof(buf));

        if (n > 0) {
            keep(o, buf, (size_t)n);
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            close(o->pipe);
            o->pipe = -1;
        } else if (errno == EAGAIN) {
            return;
        }
    }
}

void run_output_close(struct run_output *o)
{
    uint64_t over = o->written > o->limit ? o->written - o->limit : 0;
    uint64_t kept = over < RUN_TAIL ? over : RUN_TAIL;
    AUTO_FREE char *note = NULL;

    if (o->tail) {
        if (over > kept) {
            note = mem_printf("\n[partune-run: %llu bytes over the limit are left out here]\n",
                              (unsigned long long)(over - kept));
            put(o, note, strlen(note));
        }
        for (uint64_t i = o->written - kept, n; i < o->written; i += n) {
            n = RUN_TAIL - i % RUN_TAIL;
            if (n > o->written - i)
                n = o->written - i;
            put(o, o->tail + i % RUN_TAIL, (size_t)n);
        }
    }
    free(o->tail);
    o->tail = NULL;
    if (o->file >= 0)
        close(o->file);
    o->file = -1;
}
