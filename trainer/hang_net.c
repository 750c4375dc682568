#include "trainer/hang_net.h"

#include "base/base.h"

#include <errno.h>
#include <ifaddrs.h>
#include <math.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BATCH = 16, BURST = 4096 /* datagrams that one look takes at most */ };

struct item {
    int32_t rank, life, known;
    char state, place[32];
    double seconds, patience_s;
    uint64_t moves;
    struct tr_at at;
};

struct datagram {
    uint64_t token;
    int32_t count, reported;
    struct item item[BATCH];
};

static void addresses(uint32_t *ret)
{
    struct ifaddrs *all = NULL;
    int n = 0;

    if (getifaddrs(&all) < 0)
        return;
    for (struct ifaddrs *i = all; i && n < TR_HANG_ADDRESSES; i = i->ifa_next) {
        struct sockaddr_in in;

        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP) ||
            (i->ifa_flags & IFF_LOOPBACK))
            continue;
        memcpy(&in, i->ifa_addr, sizeof(in));
        ret[n++] = in.sin_addr.s_addr;
    }
    freeifaddrs(all);
}

int tr_hang_socket(uint16_t *ret_port, uint32_t *ret_address)
{
    struct sockaddr_in any = {.sin_family = AF_INET};
    socklen_t size = sizeof(any);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;
    if (bind(fd, (struct sockaddr *)&any, sizeof(any)) < 0 ||
        getsockname(fd, (struct sockaddr *)&any, &size) < 0) {
        close(fd);
        return -1;
    }
    *ret_port = any.sin_port;
    addresses(ret_address);
    return fd;
}

/* ---- send ---------------------------------------------------------------- */

static void send_to(const struct tr_hang *hang, const struct datagram *datagram)
{
    size_t size =
        offsetof(struct datagram, item) + sizeof(datagram->item[0]) * (size_t)datagram->count;
    int sites = 0;

    for (int i = 0; i < hang->world; i++) {
        const struct tr_hang_peer *p = &hang->peer[i];

        if (hang->site[i] == i && ++sites > TR_HANG_SITES)
            return;
        for (int k = 0; hang->site[i] != hang->site[hang->rank] && p->port &&
                        k < TR_HANG_ADDRESSES && p->address[k];
             k++) {
            struct sockaddr_in to = {
                .sin_family = AF_INET, .sin_port = p->port, .sin_addr.s_addr = p->address[k]};

            (void)!sendto(hang->socket, datagram, size, 0, (struct sockaddr *)&to, sizeof(to));
        }
    }
}

void tr_hang_send(struct tr_hang *hang, const struct tr_hang_rank *ranks, bool reported)
{
    struct datagram d;

    memset(&d, 0, sizeof(d));
    d.token = hang->peer[0].token;
    d.reported = reported;
    for (int i = 0; i < hang->world; i++) {
        if (hang->view[i].page) {
            struct item *item = &d.item[d.count++];

            *item = (struct item){.rank = i,
                                  .life = (int32_t)ranks[i].life,
                                  .known = ranks[i].known,
                                  .state = ranks[i].state,
                                  .seconds = ranks[i].seconds,
                                  .patience_s =
                                      (double)TR_NOW_GET(hang->view[i].page, patience_ns) * 1e-9,
                                  .moves = hang->view[i].moves,
                                  .at = ranks[i].at};
            memcpy(item->place, ranks[i].place, sizeof(item->place));
        }
        if (d.count == BATCH || (i + 1 == hang->world && d.count > 0)) {
            send_to(hang, &d);
            d.count = 0;
        }
    }
}

/* ---- receive ------------------------------------------------------------- */

static bool within(int32_t value, int32_t count)
{
    return value >= 0 && value < count;
}

static bool is_valid(const struct tr_hang *hang, const struct item *item)
{
    const struct tr_at *at = &item->at;

    return within(item->rank, hang->world) && !hang->view[item->rank].page &&
           within(item->life, TR_LIFE_SILENT) && within(at->section, TR_SECTIONS) &&
           within(at->pass, TR_PASSES) && within(at->phase, TR_PHASES) && within(at->op, TR_OPS) &&
           within(at->kind, TR_KINDS) && at->peer >= -1 && at->peer < hang->world &&
           item->seconds >= 0 && item->seconds < 1e9 && item->patience_s >= 0 &&
           item->patience_s < 1e9;
}

/* A datagram that travels for longer makes no later move: of several that tell of the same one, the
 * earliest moment is the nearest to it. */
static void see_move(struct tr_hang_view *view, uint64_t moves, uint64_t moved_ns)
{
    if (!view->moved_ns || view->moves != moves || moved_ns < view->moved_ns)
        view->moved_ns = moved_ns;
    view->moves = moves;
}

static void take(struct tr_hang *hang, const struct item *item, bool reported, uint64_t now_ns)
{
    struct tr_hang_view *v = &hang->view[item->rank];
    uint64_t ago = (uint64_t)(item->seconds * 1e9);

    v->far.at = item->at;
    v->far.life = (enum tr_life)item->life;
    v->far.known = item->known != 0;
    v->far.state = item->state;
    memcpy(v->far.place, item->place, sizeof(v->far.place));
    v->far.place[sizeof(v->far.place) - 1] = '\0';
    see_move(v, item->moves, now_ns > ago ? now_ns - ago : 1);
    v->heard_ns = now_ns;
    v->patience_ns = (uint64_t)(item->patience_s * 1e9);
    v->far_reported = reported;
}

void tr_hang_receive(struct tr_hang *hang, uint64_t now_ns)
{
    struct datagram d;
    ssize_t size;

    for (int n = 0; n < BURST; n++) {
        size = recv(hang->socket, &d, sizeof(d), 0);
        if (size < 0)
            return;
        if (size < (ssize_t)offsetof(struct datagram, item) || d.token != hang->peer[0].token ||
            d.count < 0 || d.count > BATCH ||
            (size_t)size != offsetof(struct datagram, item) + sizeof(d.item[0]) * (size_t)d.count)
            continue;
        for (int i = 0; i < d.count; i++)
            if (is_valid(hang, &d.item[i]))
                take(hang, &d.item[i], d.reported != 0, now_ns);
    }
}
