/*
 * flood PORT CONNECTIONS [TEXT] - a hostile client of 127.0.0.1:PORT.
 *
 * Keeps so many connections open, and opens a new one for each that is cut. On each it sends TEXT
 * and then one more byte a second, and it reads nothing. Once all of them have been tried it says
 * so on stdout; on TERM it prints how many were open at most, and how many were cut.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static struct sockaddr_in server = {.sin_family = AF_INET};
static const char *text = "";
static int queue;
static long wanted, held, most, cut;
static bool *open_now; /* by descriptor: connected */
static volatile sig_atomic_t over;

static void on_term(int sig)
{
    (void)sig;
    over = 1;
}

static void begin(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct epoll_event ev = {.events = EPOLLOUT | EPOLLRDHUP, .data.fd = fd};

    if (fd < 0 ||
        (connect(fd, (struct sockaddr *)&server, sizeof(server)) < 0 && errno != EINPROGRESS) ||
        epoll_ctl(queue, EPOLL_CTL_ADD, fd, &ev) < 0) {
        perror("flood");
        exit(1);
    }
}

static void end(int fd)
{
    if (open_now[fd])
        held--;
    open_now[fd] = false;
    cut++;
    close(fd);
    begin();
}

/* Connected: say the text, and from then on wait only for its being cut. */
static void greet(int fd)
{
    struct epoll_event ev = {.events = EPOLLRDHUP, .data.fd = fd};

    open_now[fd] = true;
    if (++held > most)
        most = held;
    epoll_ctl(queue, EPOLL_CTL_MOD, fd, &ev);
    if (*text && send(fd, text, strlen(text), MSG_NOSIGNAL) < 0)
        end(fd);
}

static void drip(int limit)
{
    for (int fd = 0; fd < limit; fd++)
        if (open_now[fd])
            (void)!send(fd, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

int main(int argc, char **argv)
{
    struct epoll_event ev[256];
    struct rlimit files;
    time_t last = time(NULL);
    bool said = false;

    if (argc < 3 || getrlimit(RLIMIT_NOFILE, &files) < 0)
        return 2;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    wanted = atol(argv[2]);
    text = argc > 3 ? argv[3] : "";
    if ((long)files.rlim_cur < wanted + 32) {
        printf("too few open files are allowed: %ld\n", (long)files.rlim_cur);
        return 77;
    }
    server.sin_port = htons((uint16_t)atoi(argv[1]));
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    open_now = calloc((size_t)wanted + 64, sizeof(*open_now));
    queue = epoll_create1(0);
    signal(SIGTERM, on_term);
    for (long i = 0; i < wanted; i++)
        begin();
    while (!over) {
        int n = epoll_wait(queue, ev, 256, 100);

        for (int i = 0; i < n; i++) {
            if (ev[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
                end(ev[i].data.fd);
            else if (ev[i].events & EPOLLOUT)
                greet(ev[i].data.fd);
        }
        if (!said && most >= wanted / 4) {
            said = true;
            printf("flooding\n");
            fflush(stdout);
        }
        if (time(NULL) != last && *text) {
            last = time(NULL);
            drip((int)wanted + 64);
        }
    }
    printf("most %ld cut %ld\n", most, cut);
    return 0;
}
