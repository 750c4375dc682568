/*
 * The terminal as a screen: the other buffer, keys as they come, everything as it was afterwards.
 *
 * What was changed is put back by cl_screen_close(), which is also called at exit, and by the
 * handlers of the signals that end the program; the signal then has its usual effect.
 */
#include "tuner/client/client.h"

#include <errno.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static struct termios before;
static volatile sig_atomic_t is_open, keys_changed, resized;

static const char enter[] = "\033[?1049h\033[?25l\033[2J";
static const char leave[] = "\033[0m\033[?25h\033[?1049l";

static void put(const char *text, size_t size)
{
    while (size) {
        ssize_t k = write(STDOUT_FILENO, text, size);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return; /* the terminal is gone */
        text += k;
        size -= (size_t)k;
    }
}

void cl_screen_close(void)
{
    if (!is_open)
        return;
    is_open = 0;
    put(leave, sizeof(leave) - 1);
    if (keys_changed)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

static void on_fatal(int sig)
{
    cl_screen_close();
    signal(sig, SIG_DFL);
    raise(sig);
}

static void on_resize(int sig)
{
    (void)sig;
    resized = 1;
}

/* Ctrl-Z: the shell gets its terminal back, and we ours when we are continued. */
static void on_suspend(int sig)
{
    int kept = errno;

    cl_screen_close();
    signal(sig, SIG_DFL);
    raise(sig);
    errno = kept;
}

static void begin(void)
{
    struct termios raw;

    keys_changed = tcgetattr(STDIN_FILENO, &before) == 0;
    if (keys_changed) {
        raw = before;
        raw.c_lflag &= (tcflag_t) ~(ICANON | ECHO); /* Ctrl-C and Ctrl-Z stay signals */
        raw.c_cc[VMIN] = 0;
        raw.c_cc[VTIME] = 0;
        keys_changed = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
    }
    is_open = 1;
    put(enter, sizeof(enter) - 1);
}

static void on_continue(int sig)
{
    int kept = errno;

    (void)sig;
    signal(SIGTSTP, on_suspend);
    if (!is_open)
        begin();
    resized = 1;
    errno = kept;
}

void cl_screen_open(struct cl *client)
{
    static const int fatal[] = {SIGTERM, SIGHUP, SIGQUIT};

    fflush(stdout);
    begin();
    client->key_fd = isatty(STDIN_FILENO) ? STDIN_FILENO : -1;
    atexit(cl_screen_close);
    for (size_t i = 0; i < ARRAY_LEN(fatal); i++)
        signal(fatal[i], on_fatal);
    signal(SIGTSTP, on_suspend);
    signal(SIGCONT, on_continue);
    signal(SIGWINCH, on_resize);
}

int cl_screen_key(const struct cl *client)
{
    unsigned char key;

    return client->key_fd >= 0 && read(client->key_fd, &key, 1) == 1 ? key : -1;
}

bool cl_screen_resized(void)
{
    bool was = resized;

    resized = 0;
    return was;
}

void cl_terminal_size(int *ret_columns, int *ret_lines)
{
    struct winsize size;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0)
        return;
    if (size.ws_col)
        *ret_columns = size.ws_col;
    if (size.ws_row)
        *ret_lines = size.ws_row;
}

/* LINE cut at COLUMNS; colors take no room. */
static void add_line(struct str *out, const char *line, int columns)
{
    bool painted = false;

    while (*line) {
        size_t n = strcspn(line, "\033");
        AUTO_FREE char *plain = mem_printf("%.*s", (int)n, line);
        size_t fits = cl_fitting(plain, columns);

        str_addn(out, line, fits);
        columns -= cl_columns(plain);
        line += n;
        if (*line) {
            n = strcspn(line, "m");
            n += line[n] == 'm';
            str_addn(out, line, n);
            painted = true;
            line += n;
        }
        if (columns <= 0)
            break;
    }
    if (painted)
        str_add(out, "\033[0m");
    str_add(out, "\033[K");
}

void cl_screen_show(const char *text, int columns, int lines)
{
    AUTO_STR out = {0};

    str_add(&out, "\033[H");
    for (int i = 0; i < lines && *text; i++) {
        size_t n = strcspn(text, "\n");
        AUTO_FREE char *line = mem_printf("%.*s", (int)n, text);

        if (i)
            str_add(&out, "\r\n");
        add_line(&out, line, columns);
        text += n + (text[n] == '\n');
    }
    str_add(&out, "\033[J");
    put(out.text, out.len);
}
