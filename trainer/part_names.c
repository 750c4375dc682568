/* The parts of a checkpoint: names, and which an optimizer has. */
#include "trainer/ckpt.h"

const char *const tr_part_suffix[TR_PART_KINDS] = {"", ".exp_avg", ".exp_avg_sq",
                                                   ".momentum_buffer"};

bool tr_part_exists(enum tr_part_kind kind, enum pl_optimizer optimizer, enum pl_tensor tensor)
{
    bool momentum = optimizer == PL_SGD || (optimizer == PL_MUON && pl_tensor_is_hidden(tensor));

    return kind == TR_PART_WEIGHT || (kind == TR_PART_MOMENTUM) == momentum;
}
