/* What the stages of a pipeline and the devices of a step wait for. */
#include "plan/cost_parts.h"

#include <math.h>

#include "base/base.h"

double pl_message_far_s(const struct pl_op_ctx *op, const struct pl_layout *layout, int stride)
{
    struct pl_group g;
    double bytes = (double)op->problem.workload->seq / layout->cp * layout->micro_batch *
                   op->problem.model->hidden * op->rates->element;
    double host = op->constants->message_us * 1e-6;

    if (layout->pp == 1)
        return 0;
    pl_group_of(&g, op, 2, stride);
    /* each tp rank sends its share (SC21's scatter/gather, or sp), and gathers it inside the node
     */
    if (layout->tp > 1 && !layout->sp) {
        struct pl_group tp;

        pl_group_of(&tp, op, layout->tp, 1);
        return host + pl_send_s(&g, bytes / layout->tp) + pl_gather_s(&tp, bytes);
    }
    return host + pl_send_s(&g, bytes / layout->tp);
}

double pl_message_s(const struct pl_op_ctx *op, const struct pl_layout *layout)
{
    return pl_message_far_s(op, layout, pl_axis_stride(layout, PL_PP));
}

/* All wait for the slowest of world devices: the expected largest of so many normal deviates. */
double pl_slowest_share(const struct pl_op_ctx *op, const struct pl_layout *layout)
{
    return op->rates->cpu ? 0 : op->constants->jitter * sqrt(2 * log(layout->world));
}

/* Each step of a pipeline waits for the rare long pause of a host or a link. More devices have more
 * of them, and in nanotron's runs they came with the cube: 0.8 s on 512 devices in nearly all, on
 * 256 in half of them, on 128 in few. */
double pl_stall_s(const struct pl_op_ctx *op, const struct pl_layout *layout, double micro)
{
    double many = layout->world / 64.0;

    return layout->pp == 1
               ? 0
               : (micro + layout->pp - 1) * op->constants->stall_us * 1e-6 * many * many * many;
}
