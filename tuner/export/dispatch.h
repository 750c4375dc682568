/* Private to tuner/export/: how Megatron-LM and Megatron-Bridge name the dispatch of tokens to
 * experts, and CUDA graphs. */
#ifndef TUNER_EXPORT_DISPATCH_H
#define TUNER_EXPORT_DISPATCH_H

#include "tuner/export/internal.h"

/* Megatron-LM's arguments about dispatch and graphs, as far as they were read. */
struct tn_dispatch {
    int type;         /* --moe-token-dispatcher-type: alltoall, allgather, flex */
    int backend;      /* of flex: deepep, hybridep, ncclep */
    int graphs;       /* an enum pl_cuda_graphs */
    char modules[96]; /* --cuda-graph-modules between blanks */
};

int tn_megatron_dispatch(bool *ret_known, struct tn_dispatch *dispatch, const char *flag,
                         const char *value, struct err *error);
/* Into the layout of RET, whose ep is known. */
void tn_megatron_dispatched(struct tn_imported *ret, const struct tn_dispatch *dispatch,
                            const struct pl_model *model);

/* Type of the token dispatcher, and *RET_BACKEND of the flexible one, else NULL; static. */
const char *tn_megatron_dispatcher(const char **ret_backend, const struct pl_layout *layout);
/* The layout's cuda_graphs, or none where they would not start, which is a gap. */
int tn_megatron_graphed(const struct tn_export_in *in);
/* The modules that CUDA graphs cover, of those that the model and the layout allow; nothing where
 * there are no such graphs. */
void tn_megatron_graphs(struct str *out, const struct tn_export_in *in, const char *separator,
                        const char *quote);

#endif
