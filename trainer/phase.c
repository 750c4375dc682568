#include "base/base.h"
#include "kernels/kernels.h"
#include "trainer/phase.h"

#include <assert.h>
#include <limits.h>

/* A stamp, and the stretch that begins there. */
struct mark {
    uint64_t host_ns; /* when the host made it */
    enum tr_phase phase;
    bool waits; /* for other ranks */
};

/* Marks in the order of the stream, number i at stamp i of the pool, which are used in turn. The
 * stretch of the oldest, from BEGUN_NS on, is the first that is not charged. */
struct tr_marks {
    struct kn_pool *pool;
    unsigned first, count;
    uint64_t begun_ns;
    struct mark at[KN_STAMPS];
};

static void charge(struct tr_clock *clock, enum tr_phase phase, uint64_t begin_ns, uint64_t end_ns)
{
    assert(end_ns >= begin_ns && (clock->span || clock->span_cap == 0));
    clock->ns[phase] += end_ns - begin_ns;
    if (clock->spans < clock->span_cap)
        clock->span[clock->spans++] = (struct tr_span){begin_ns, end_ns, (int)phase};
}

static const struct mark *second(const struct tr_marks *marks)
{
    assert(marks->count > 1);
    return &marks->at[(marks->first + 1) % KN_STAMPS];
}

/* The oldest mark's stretch ends. */
static void end_stretch(struct tr_clock *clock, uint64_t end_ns)
{
    struct tr_marks *m = clock->marks;
    const struct mark *mark = &m->at[m->first];

    charge(clock, mark->phase, m->begun_ns, end_ns);
    if (mark->waits)
        clock->wait_ns += end_ns - m->begun_ns;
    m->begun_ns = end_ns;
    m->first = (m->first + 1) % KN_STAMPS;
    m->count--;
}

static uint64_t at_least(uint64_t ns, uint64_t bound)
{
    return ns > bound ? ns : bound;
}

/* End up to MOST stretches, as far as the device has got by SEEN_NS. */
static void collect(struct tr_clock *clock, unsigned most, uint64_t seen_ns)
{
    struct tr_marks *m = clock->marks;

    for (; most > 0 && m->count > 1; most--) {
        uint64_t ns, end;

        if (!kn_stamped(&ns, m->pool, m->first, (m->first + 1) % KN_STAMPS))
            return;
        end = at_least(m->begun_ns + ns, second(m)->host_ns);
        end_stretch(clock, end < seen_ns ? end : seen_ns);
    }
}

/* Two stretches for each new mark, so that few are left for the end of the step, when the device
 * would wait for the host. Without a free stamp the switch is left out: its time is charged to the
 * phase before. To wait for the device instead would be exact, but a synchronization inside the
 * step. */
static void mark(struct tr_clock *clock, uint64_t host_ns, bool waits)
{
    struct tr_marks *m = clock->marks;
    unsigned i = (m->first + m->count) % KN_STAMPS;

    collect(clock, 2, host_ns);
    if (m->count == KN_STAMPS)
        return;
    m->at[i] = (struct mark){host_ns, clock->now, waits};
    m->count++;
    kn_stamp(m->pool, i);
}

void tr_clock_init(struct tr_clock *clock, struct kn_pool *pool)
{
    *clock = (struct tr_clock){0};
    if (kn_stamps(pool)) {
        clock->marks = mem_alloc(sizeof(*clock->marks));
        clock->marks->pool = pool;
    }
    tr_clock_reset(clock);
}

void tr_clock_done(struct tr_clock *clock)
{
    free(clock->marks);
    clock->marks = NULL;
}

void tr_clock_reset(struct tr_clock *clock)
{
    *clock = (struct tr_clock){.since_ns = clock_mono_ns(),
                               .now = TR_PHASE_OTHER,
                               .page = clock->page,
                               .span = clock->span,
                               .marks = clock->marks,
                               .span_cap = clock->span_cap};
    if (!clock->marks)
        return;
    clock->marks->count = 0;
    clock->marks->begun_ns = clock->since_ns;
    mark(clock, clock->since_ns, false);
}

enum tr_phase tr_phase(struct tr_clock *clock, enum tr_phase next)
{
    uint64_t t = clock_mono_ns();
    enum tr_phase left = clock->now;

    clock->now = next;
    if (clock->marks)
        mark(clock, t, false);
    else
        charge(clock, left, clock->since_ns, t);
    clock->since_ns = t;
    tr_now_phase(clock->page, (int)next);
    return left;
}

/* A mark that the device is not known to have reached was made after the wait, on an empty stream:
 * it was there at once. */
void tr_clock_end(struct tr_clock *clock)
{
    struct tr_marks *m = clock->marks;

    tr_phase(clock, TR_PHASE_OTHER);
    if (!m)
        return;
    collect(clock, UINT_MAX, clock->since_ns);
    while (m->count > 1)
        end_stretch(clock, at_least(m->begun_ns, second(m)->host_ns));
    end_stretch(clock, clock->since_ns);
}

uint64_t tr_clock_waits(struct tr_clock *clock)
{
    uint64_t t = clock_mono_ns();

    if (clock && clock->marks)
        mark(clock, t, true);
    return t;
}

void tr_clock_waited(struct tr_clock *clock, uint64_t since_ns)
{
    uint64_t t = clock_mono_ns();

    if (!clock)
        return;
    if (clock->marks)
        mark(clock, t, false);
    else
        clock->wait_ns += t - since_ns;
}
