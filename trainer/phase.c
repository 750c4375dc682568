#include "base/base.h"
#include "trainer/phase.h"

void tr_clock_reset(struct tr_clock *c)
{
    *c = (struct tr_clock){.since_ns = clock_mono_ns(),
                           .now = TR_PHASE_OTHER,
                           .span = c->span,
                           .span_cap = c->span_cap};
}

enum tr_phase tr_phase(struct tr_clock *c, enum tr_phase next)
{
    uint64_t t = clock_mono_ns();
    enum tr_phase left = c->now;

    c->ns[left] += t - c->since_ns;
    if (c->spans < c->span_cap)
        c->span[c->spans++] = (struct tr_span){c->since_ns, t, (int)left};
    c->since_ns = t;
    c->now = next;
    return left;
}
