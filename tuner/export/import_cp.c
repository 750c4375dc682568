/* --cp-comm-type of Megatron-LM: one word for all layers, or one for each. */
#include "tuner/export/internal.h"

#include <errno.h>

int tn_import_cp_comm(struct tn_imported *out, const char *value, struct err *error)
{
    /* "allgather" is in its help, "all_gather" what Transformer Engine is given. */
    static const struct {
        const char *word;
        enum pl_cp_comm comm;
    } words[] = {{"p2p", PL_CP_P2P},
                 {"all_gather", PL_CP_ALL_GATHER},
                 {"allgather", PL_CP_ALL_GATHER},
                 {"a2a+p2p", PL_CP_A2A_P2P},
                 {"a2a", PL_CP_A2A}};
    const char *all = value ? value : "", *at = all;
    size_t length = strcspn(all, " "), i = 0;

    while (i < ARRAY_LEN(words) &&
           (strlen(words[i].word) != length || strncmp(all, words[i].word, length) != 0))
        i++;
    if (i == ARRAY_LEN(words))
        return err_set(error, -EINVAL,
                       "--cp-comm-type must be `p2p`, `all_gather`, `a2a` or `a2a+p2p`, not "
                       "`%.40s`",
                       all);
    out->layout.cp_comm = words[i].comm;
    for (; *at; at += strcspn(at, " "), at += strspn(at, " "))
        if (strcspn(at, " ") != length || strncmp(at, all, length) != 0) {
            tn_finding_add(&out->ignored, "--cp-comm-type",
                           "all layers have the same cp_comm here: taken as %s", words[i].word);
            break;
        }
    return 0;
}
