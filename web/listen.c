/*
 * Sockets to listen on. An address is "HOST:PORT", "[V6]:PORT" or "unix:PATH"; a Unix socket is
 * made with mode 0600, so that opening it is proof of being the user who runs the server.
 */
#include "web/internal.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    BACKLOG = 4096,
    SEND_BUFFER = 256 << 10, /* the kernel's share of an answer that nobody takes; left to itself it
                                grows to megabytes a connection */
};

static int open_unix(struct listener *listener, const char *path, struct err *error)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct stat st;
    mode_t mask;
    int fd, r;

    if (strlen(path) >= sizeof(a.sun_path) || !*path)
        return err_set(error, -ENAMETOOLONG, "socket path %s is longer than %zu bytes", path,
                       sizeof(a.sun_path) - 1);
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set(error, -errno, "socket: %m");
    r = connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 ? 0 : -errno;
    close(fd);
    if (r == 0 || r == -EAGAIN) /* EAGAIN: its backlog is full */
        return err_set(error, -EADDRINUSE, "another server listens on %s", path);
    /* Left by a server that was killed; what is no socket refuses a connection, too, and is not
     * ours to remove. */
    if (r == -ECONNREFUSED && lstat(path, &st) == 0 && S_ISSOCK(st.st_mode))
        unlink(path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set(error, -errno, "socket: %m");
    mask = umask(0177);
    r = 0;
    if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, BACKLOG) < 0)
        r = err_set(error, -errno, "listen on %s: %m", path);
    umask(mask);
    if (r < 0) {
        close(fd);
        return r;
    }
    listener->fd = fd;
    listener->trusted = true;
    listener->path = mem_strdup(path);
    return 0;
}

static int open_tcp(struct listener *listener, const struct addrinfo *ai, const char *address,
                    struct err *error)
{
    struct sockaddr_storage bound;
    socklen_t n = sizeof(bound);
    int one = 1, buffer = SEND_BUFFER, r;
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return err_set(error, -errno, "socket for %s: %m", address);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer)); /* its connections inherit it */
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0 ||
        getsockname(fd, (struct sockaddr *)&bound, &n) < 0) {
        r = err_set(error, -errno, "listen on %s: %m", address);
        close(fd);
        return r;
    }
    listener->fd = fd;
    listener->tcp = true;
    listener->port = ntohs(bound.ss_family == AF_INET ? ((struct sockaddr_in *)&bound)->sin_port
                                                      : ((struct sockaddr_in6 *)&bound)->sin6_port);
    return 0;
}

int web_listen_open(struct listener *listener, const char *address, struct err *error)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    struct addrinfo *ai;
    const char *colon = strrchr(address, ':'), *host;
    char name[256];
    int64_t port;
    size_t n;
    int r;

    listener->fd = -1;
    if (str_starts(address, "unix:"))
        return open_unix(listener, address + 5, error);
    if (!colon || web_host_name(name, sizeof(name), address) < 0 ||
        str_to_i64(&port, colon + 1, 0, 65535) < 0)
        return err_set(error, -EINVAL, "\"%s\" is not HOST:PORT, [V6]:PORT or unix:PATH", address);
    listener->public = !web_address_is_loopback(name);
    n = strlen(name);
    host = name;
    if (name[0] == '[') {
        name[n - 1] = '\0';
        host = name + 1;
    } else if (!strcmp(name, "localhost")) {
        host = "127.0.0.1";
    }
    r = getaddrinfo(host, colon + 1, &hints, &ai);
    if (r)
        return err_set(error, -EINVAL, "\"%s\": %s is not an address", address, host);
    r = open_tcp(listener, ai, address, error);
    freeaddrinfo(ai);
    return r;
}
