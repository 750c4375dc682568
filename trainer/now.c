#include "trainer/now.h"

const char *const tr_op_names[TR_OPS] = {
    [TR_OP_NONE] = "nothing",
    [TR_OP_SEND] = "send",
    [TR_OP_RECV] = "recv",
    [TR_OP_SEND_RECV] = "send-recv",
    [TR_OP_ALL_REDUCE] = "all-reduce",
    [TR_OP_REDUCE_SCATTER] = "reduce-scatter",
    [TR_OP_ALL_GATHER] = "all-gather",
    [TR_OP_ALL_TO_ALL] = "all-to-all",
    [TR_OP_GATHER] = "gather",
    [TR_OP_BROADCAST] = "broadcast",
    [TR_OP_GPU] = "its GPU",
};

const char *const tr_kind_names[TR_KINDS] = {
    [TR_IN_WORLD] = "world",
    [TR_IN_TP] = "tp",
    [TR_IN_CP] = "cp",
    [TR_IN_PP] = "pp",
    [TR_IN_EP] = "ep",
    [TR_IN_TIED] = "embedding",
    [TR_IN_DP_SHARD] = "dp-shard",
    [TR_IN_DP] = "dp",
    [TR_IN_EDP_SHARD] = "edp-shard",
    [TR_IN_EDP] = "edp",
};

const char *const tr_section_names[TR_SECTIONS] = {
    [TR_AT_START] = "start",           [TR_AT_SAMPLES] = "read samples",  [TR_AT_STEP] = "train",
    [TR_AT_VALIDATION] = "validation", [TR_AT_CHECKPOINT] = "checkpoint",
};

const char *const tr_pass_names[TR_PASSES] = {
    [TR_PASS_NONE] = "",
    [TR_PASS_FORWARD] = "forward",
    [TR_PASS_BACKWARD] = "backward",
    [TR_PASS_WEIGHTS] = "backward of weights",
};

void tr_now_copy(struct tr_at *ret, const struct tr_now *now)
{
    enum { TRIES = 3 };
    uint64_t moves;

    for (int i = 0; i < TRIES; i++) {
        moves = atomic_load_explicit(&now->moves, memory_order_acquire);
        *ret = (struct tr_at){.section = TR_NOW_GET(now, section),
                              .step = TR_NOW_GET(now, step),
                              .pass = TR_NOW_GET(now, pass),
                              .mb = TR_NOW_GET(now, mb),
                              .chunk = TR_NOW_GET(now, chunk),
                              .layer = TR_NOW_GET(now, layer),
                              .phase = TR_NOW_GET(now, phase),
                              .op = TR_NOW_GET(now, op),
                              .kind = TR_NOW_GET(now, kind),
                              .peer = TR_NOW_GET(now, peer)};
        for (int k = 0; k < TR_KINDS; k++)
            ret->seq[k] = TR_NOW_GET(now, seq[k]);
        atomic_thread_fence(memory_order_acquire);
        if (TR_NOW_GET(now, moves) == moves)
            return;
    }
}
