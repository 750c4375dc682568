/* Between the files of this folder: the targets, the wrappers, and what several targets need. */
#ifndef TUNER_EXPORT_INTERNAL_H
#define TUNER_EXPORT_INTERNAL_H

#include "tuner/export/export.h"

extern const struct tn_exporter tn_export_accelerate;
extern const struct tn_exporter tn_export_bridge;
extern const struct tn_exporter tn_export_deepspeed;
extern const struct tn_exporter tn_export_hyperpod;
extern const struct tn_exporter tn_export_megatron;
extern const struct tn_exporter tn_export_megatron_script;
extern const struct tn_exporter tn_export_partune;
extern const struct tn_exporter tn_export_smp;
extern const struct tn_exporter tn_export_torchtitan;
extern const struct tn_exporter tn_export_torchtitan_toml;

/* A job script around the file of a target. */
struct tn_wrapper {
    const char *name, *title, *media_type, *extension;
    /* BODY is the target's file, FILE its name in the job's folder, LAUNCH the command line that
     * reads it. */
    void (*write)(struct str *out, const struct tn_export_in *in, const struct tn_exporter *target,
                  const char *body);
};

extern const struct tn_wrapper *const tn_wrappers[]; /* NULL-terminated */

/* Provenance as {"generator", "campaign", "trial", "tokens_per_s", …, "lost": […]}. New reference.
 */
json_t *tn_export_provenance(const struct tn_export_in *in, const struct tn_findings *lost);

/* Microbatches of a step on one data-parallel replica. */
int tn_microbatches(const struct tn_export_in *in);

/* Processes a node of the cluster for this layout: at most world. */
int tn_ranks_per_node(const struct tn_export_in *in);
int tn_nodes(const struct tn_export_in *in);

/* Gaps that several targets share: each adds a finding where the layout or model uses the feature.
 */
void tn_gap_schedule(struct tn_findings *f, const struct tn_export_in *in, bool gpipe,
                     bool zero_bubble);
void tn_gap_threads(struct tn_findings *f, const struct tn_export_in *in);
void tn_gap_scope(struct tn_findings *f, const struct tn_export_in *in);
void tn_gap_flag(struct tn_findings *f, const struct tn_export_in *in, const char *key, int value,
                 const char *target);

#endif
