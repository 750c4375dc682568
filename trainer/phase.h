/*
 * Where a step's time goes. One phase is current at any moment and time is charged to it, so the
 * phases of a rank add up to its step exactly; time that no phase claims is TR_PHASE_OTHER's.
 *
 * On the CPU the time is the host's: a phase lasts from its switch to the next one.
 *
 * Where operations are asynchronous the host runs ahead of the device, and the time is the
 * device's. Each switch puts a stamp on the stream of the rank's pool, and a phase lasts from its
 * stamp to the next one. Between the two the device computes what the host launched in that phase,
 * or it has run out of work while the host is still in that phase. So
 *
 *   - operations are charged to the phase that launched them, however late they run;
 *   - while the stream is empty, time is charged to the phase that the host is in, such as a wait
 *     for a message;
 *   - while the stream computes, a wait of the host is hidden and costs nothing;
 *   - a collective on the stream is charged to its phase; one on another stream is exposed for as
 *     long as this stream waits for it (kn_follow).
 *
 * Waits for other ranks are stamped, too, and `wait_ns` is what was exposed of them.
 *
 * A step begins and ends when the stream is empty, on the host's clock. Stamps in between are
 * placed on that clock by the device's times, each no earlier than the host made it and no later
 * than the host saw it reached. So neither the drift between the two clocks nor the delay of a
 * stamp adds up, and the sum stays exact. Nothing waits for a stamp.
 */
#ifndef TRAINER_PHASE_H
#define TRAINER_PHASE_H

#include <stdint.h>

#include "trainer/events.h"
#include "trainer/now.h"

struct kn_pool;
struct tr_marks;

struct tr_span {
    uint64_t begin_ns, end_ns;
    int phase;
};

struct tr_clock {
    uint64_t since_ns, ns[TR_PHASES];
    uint64_t wait_ns; /* of all phases: spent in waiting for others */
    enum tr_phase now;
    struct tr_now *page;    /* the phase is published here; NULL: nowhere */
    struct tr_span *span;   /* (span_cap) stretches noted for a timeline; NULL: none are */
    struct tr_marks *marks; /* on the way to the device; NULL: the time is the host's */
    int spans, span_cap;
};

/* A clock of what POOL computes, reset. A zeroed clock, after a reset, is the host's. */
void tr_clock_init(struct tr_clock *clock, struct kn_pool *pool);
void tr_clock_done(struct tr_clock *clock);

/* Zero the counts and make OTHER current; notes for a timeline start again. The pool's operations
 * are done (kn_wait). */
void tr_clock_reset(struct tr_clock *clock);

/* Switch, and charge the time since the last switch to the current phase: at once, or as the device
 * gets there. Returns the phase left. */
enum tr_phase tr_phase(struct tr_clock *clock, enum tr_phase next);

/* Switch to OTHER and charge all time until now (`since_ns`): counts and notes are complete, until
 * a reset. The pool's operations are done. */
void tr_clock_end(struct tr_clock *clock);

/* In the current phase, the rank waits for others from tr_clock_waits(), which returns the host's
 * time, to tr_clock_waited(), which takes it. CLOCK may be NULL. */
uint64_t tr_clock_waits(struct tr_clock *clock);
void tr_clock_waited(struct tr_clock *clock, uint64_t since_ns);

#endif
