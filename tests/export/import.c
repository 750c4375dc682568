/*
 * import SOURCE MODEL WORLD FILE [CALL]: the layout, global batch and sequence length that an
 * import reads, on one line; an error is on stderr, with exit code 1.
 */
#include <stdio.h>

#include "tuner/export/export.h"

int main(int argc, char **argv)
{
    AUTO_JSON *name = json_string(argc >= 5 ? argv[2] : "");
    AUTO_FREE char *text = NULL;
    struct tn_imported out;
    struct tn_job job = {0};
    struct pl_model model;
    char layout[160];
    int64_t world = 0;
    struct err e = {0};

    if (argc < 5 || argc > 6 || str_to_i64(&world, argv[3], 1, 1 << 20) < 0)
        return 2;
    job = (struct tn_job){.source = argv[1], .call = argv[5], .world = (int)world};
    if (pl_model_parse(&model, name, &e) < 0 ||
        file_read_all(&text, NULL, argv[4], 1 << 20, &e) < 0 ||
        (job.text = text, tn_import(&out, &job, &model, &e)) < 0) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    pl_layout_text(layout, &out.layout);
    printf("%s global_batch %d seq %d\n", layout, out.global_batch, out.seq);
    return 0;
}
