#include "tuner/programs/run_output.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int run_output_open(int *ret_write_end, struct run_output *output, const char *folder,
                    const char *name, uint64_t limit)
{
    AUTO_FREE char *path = mem_printf("%s/%s", folder, name);
    int fds[2];

    output->file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (output->file < 0 || pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    output->pipe = fds[0];
    output->limit = limit;
    *ret_write_end = fds[1];
    return 0;
}

/* A full disk must not stop the trial: what cannot be written is lost. */
static void put(const struct run_output *output, const char *bytes, size_t size)
{
    (void)!file_write_fd(output->file, bytes, size);
}

static void keep(struct run_output *output, const char *bytes, size_t size)
{
    size_t room = output->written < output->limit ? (size_t)(output->limit - output->written) : 0;
    size_t head = size < room ? size : room;

    put(output, bytes, head);
    output->written += size;
    if (head == size)
        return;
    if (!output->tail)
        output->tail = mem_alloc(RUN_TAIL);
    for (size_t i = head; i < size; i++) /* byte i of the output lies at i % RUN_TAIL */
        output->tail[(output->written - size + i) % RUN_TAIL] = bytes[i];
}

void run_output_pump(struct run_output *output)
{
    char buf[65536];

    while (output->pipe >= 0) {
        ssize_t n = read(output->pipe, buf, sizeof(buf));

        if (n > 0) {
            keep(output, buf, (size_t)n);
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            close(output->pipe);
            output->pipe = -1;
        } else if (errno == EAGAIN) {
            return;
        }
    }
}

void run_output_close(struct run_output *output)
{
    uint64_t over = output->written > output->limit ? output->written - output->limit : 0;
    uint64_t kept = over < RUN_TAIL ? over : RUN_TAIL;
    AUTO_FREE char *note = NULL;

    if (output->tail) {
        if (over > kept) {
            note = mem_printf("\n[partune-run: %llu bytes over the limit are omitted here]\n",
                              (unsigned long long)(over - kept));
            put(output, note, strlen(note));
        }
        for (uint64_t i = output->written - kept, n; i < output->written; i += n) {
            n = RUN_TAIL - i % RUN_TAIL;
            if (n > output->written - i)
                n = output->written - i;
            put(output, output->tail + i % RUN_TAIL, (size_t)n);
        }
    }
    free(output->tail);
    output->tail = NULL;
    if (output->file >= 0)
        close(output->file);
    output->file = -1;
}
