#include "tests/export/files.h"

#include <stdio.h>
#include <stdlib.h>

static void write_text(const char *dir, int number, const char *what, const char *text)
{
    AUTO_FREE char *path = mem_printf("%s/%04d.%s", dir, number, what);
    FILE *f = fopen(path, "w"); /* thousands of files: none of them has to reach the disk */

    if (!f || fputs(text, f) < 0 || fclose(f) != 0) {
        perror(path);
        exit(1);
    }
}

static json_t *settings(const struct tn_findings *lost)
{
    json_t *names = json_array();

    for (int i = 0; i < lost->count; i++)
        json_array_append_new(names, json_string(lost->v[i].setting));
    return names;
}

/* [[layers of each chunk] of each stage] */
static json_t *stages(const struct tn_export_in *in)
{
    json_t *all = json_array();

    for (int stage = 0; stage < in->layout->pp; stage++) {
        json_t *chunks = json_array();

        for (int chunk = 0; chunk < pl_chunks(in->layout); chunk++)
            json_array_append_new(chunks, json_integer(pl_stage_layers(
                                              NULL, in->layout, in->model->layers, stage, chunk)));
        json_array_append_new(all, chunks);
    }
    return all;
}

static void write_facts(const char *dir, int number, const struct tn_export_in *in, json_t *lost)
{
    AUTO_JSON *v = json_pack("{s:o, s:o, s:o, s:o, s:O}", "model", pl_model_json(in->model),
                             "workload", pl_workload_json(in->workload), "layout",
                             pl_layout_json(in->layout), "stages", stages(in), "lost", lost);
    AUTO_FREE char *text = jx_dump(v);

    write_text(dir, number, "facts", text);
}

int files_write(const char *dir, int number, const struct tn_export_in *in, bool jobs)
{
    static const char *const wrappers[] = {"", "slurm+", "pbs+", "mpijob+"};
    AUTO_JSON *lost = json_object();
    int written = 0;

    for (const struct tn_exporter *const *x = tn_exporters(); *x; x++) {
        for (size_t w = 0; w < (jobs ? ARRAY_LEN(wrappers) : 1); w++) {
            AUTO_FREE char *target = mem_printf("%s%s", wrappers[w], (*x)->name);
            AUTO_FREE char *text = NULL;
            struct tn_findings found;
            const char *type;
            struct err e = {0};

            if (tn_export(&text, &type, &found, target, in, true, &e) < 0)
                continue;
            write_text(dir, number, target, text);
            json_object_set_new(lost, target, settings(&found));
            written++;
        }
    }
    write_facts(dir, number, in, lost);
    return written;
}
