/* How long work over a space of layouts may take: by the clock, and as long as it is wanted. */
#include <math.h>

#include "tuner/tuner.h"

static double spent(void *arg)
{
    const struct tn_patience *x = arg;

    if (x->unwanted && atomic_load_explicit(x->unwanted, memory_order_relaxed))
        return INFINITY;
    return x->seconds > 0 ? (double)(clock_mono_ns() - x->from_ns) / 1e9 / x->seconds : 0;
}

void tn_patience_start(struct tn_patience *ret, double seconds, const atomic_bool *unwanted)
{
    *ret = (struct tn_patience){
        .plan = {spent, ret}, .from_ns = clock_mono_ns(), .seconds = seconds, .unwanted = unwanted};
}
