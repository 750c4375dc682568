#include "base/base.h"
#include "trainer/phase.h"

#include <assert.h>

void tr_clock_reset(struct tr_clock *clock)
{
    *clock = (struct tr_clock){.since_ns = clock_mono_ns(),
                               .now = TR_PHASE_OTHER,
                               .page = clock->page,
                               .span = clock->span,
                               .span_cap = clock->span_cap};
}

enum tr_phase tr_phase(struct tr_clock *clock, enum tr_phase next)
{
    uint64_t t = clock_mono_ns();
    enum tr_phase left = clock->now;

    assert(t >= clock->since_ns && (clock->span || clock->span_cap == 0));
    clock->ns[left] += t - clock->since_ns;
    if (clock->spans < clock->span_cap)
        clock->span[clock->spans++] = (struct tr_span){clock->since_ns, t, (int)left};
    clock->since_ns = t;
    clock->now = next;
    tr_now_phase(clock->page, (int)next);
    return left;
}
