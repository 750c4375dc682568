/* What ranks of one host tell those of another, over real sockets. */
#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <unistd.h>

#include "trainer/hang_net.h"

/* Two ranks on two sites, whose sockets are on this host. */
struct sites {
    struct tr_hang hang[2];
    struct tr_hang_peer peer[2];
    struct tr_hang_view view[2][2];
    struct tr_now page[2];
    int32_t site[2];
};

static void sites_open(struct sites *all)
{
    uint32_t none[TR_HANG_ADDRESSES] = {0};

    *all = (struct sites){.site = {0, 1}};
    for (int i = 0; i < 2; i++) {
        all->peer[i].token = 7;
        all->peer[i].address[0] = htonl(INADDR_LOOPBACK);
        all->view[i][i].page = &all->page[i];
        all->hang[i] = (struct tr_hang){.rank = i,
                                        .world = 2,
                                        .peer = all->peer,
                                        .view = all->view[i],
                                        .site = all->site,
                                        .socket = tr_hang_socket(&all->peer[i].port, none)};
        assert_true(all->hang[i].socket >= 0);
    }
}

/* Rank 1, which had made MOVES, the last SECONDS ago, says so, and it is heard at NOW_NS: when it
 * moved last, in rank 0's view. */
static uint64_t moved_ns(struct sites *all, uint64_t moves, double seconds, uint64_t now_ns)
{
    struct tr_hang_rank ranks[2] = {{.known = true}, {.known = true, .seconds = seconds}};
    struct tr_hang_view *view = &all->view[0][1];

    all->view[1][1].moves = moves;
    tr_hang_send(&all->hang[1], ranks, false);
    view->heard_ns = 0;
    for (int i = 0; i < 1000 && !view->heard_ns; i++) {
        tr_hang_receive(&all->hang[0], now_ns);
        usleep(view->heard_ns ? 0 : 1000);
    }
    assert_int_equal(view->heard_ns, now_ns);
    return view->moved_ns;
}

/* Else a hang that was reported would be over, and the next look report it again. */
static void what_is_heard_late_is_no_move(void **state)
{
    const uint64_t second = 1000000000;
    struct sites all;

    (void)state;
    sites_open(&all);
    assert_int_equal(moved_ns(&all, 40, 1, 100 * second), 99 * second);
    assert_int_equal(moved_ns(&all, 40, 2, 101 * second + 700000), 99 * second);
    assert_int_equal(moved_ns(&all, 40, 3, 102 * second - 500), 99 * second - 500);
    assert_int_equal(moved_ns(&all, 41, 0.5, 103 * second), 103 * second - second / 2);
    for (int i = 0; i < 2; i++)
        close(all.hang[i].socket);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_heard_late_is_no_move)};

    return cmocka_run_group_tests_name("hang_net", tests, NULL, NULL);
}
