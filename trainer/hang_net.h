/*
 * What the ranks of a host do, told to other hosts: hang.h's datagrams, for hang*.c only.
 *
 * Twice a second the speaker of a site sends the pages of its ranks to each rank of the first
 * TR_HANG_SITES sites, the only ones that judge; so one of them may be stopped as a whole. A
 * datagram is the job's token and up to 16 ranks, in the layout of this build, as all ranks run it.
 * One with another token or size, or with numbers outside their bounds, is dropped.
 */
#ifndef TRAINER_HANG_NET_H
#define TRAINER_HANG_NET_H

#include "trainer/hang_state.h"

enum { TR_HANG_SITES = 4 };

/* A socket for this rank and the IPv4 addresses (TR_HANG_ADDRESSES) of its host, in network order.
 * -1: none. */
int tr_hang_socket(uint16_t *ret_port, uint32_t *ret_address);

/* The rank speaks for its site: RANKS (world) holds those of it, of which only those are sent. */
void tr_hang_send(struct tr_hang *hang, const struct tr_hang_rank *ranks, bool reported);
/* Take what has come, into the views of other sites' ranks. */
void tr_hang_receive(struct tr_hang *hang, uint64_t now_ns);

#endif
