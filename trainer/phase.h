/*
 * Where a step's time goes. One phase is current at any moment and time is charged to it, so the
 * phases of a rank add up to its step exactly; time that no phase claims is TR_PHASE_OTHER's.
 */
#ifndef TRAINER_PHASE_H
#define TRAINER_PHASE_H

#include <stdint.h>

#include "trainer/events.h"
#include "trainer/now.h"

struct tr_span {
    uint64_t begin_ns, end_ns;
    int phase;
};

struct tr_clock {
    uint64_t since_ns, ns[TR_PHASES];
    uint64_t wait_ns; /* of all phases: spent in waiting for others */
    enum tr_phase now;
    struct tr_now *page;  /* the phase is published here; NULL: nowhere */
    struct tr_span *span; /* (span_cap) stretches noted for a timeline; NULL: none are */
    int spans, span_cap;
};

/* Zero the counts and make OTHER current; notes for a timeline start again. */
void tr_clock_reset(struct tr_clock *clock);

/* Charge the time since the last switch to the current phase, and switch. Returns the phase left.
 */
enum tr_phase tr_phase(struct tr_clock *clock, enum tr_phase next);

#endif
