/* Between the files of this folder: the targets, the wrappers, and what several targets need. */
#ifndef TUNER_EXPORT_INTERNAL_H
#define TUNER_EXPORT_INTERNAL_H

#include "tuner/export/export.h"
#include "tuner/export/words.h"

#define EXPORTER(name) extern const struct tn_exporter tn_export_##name;
#include "tuner/export/exporters.def"

/* The target's file in the job, each a word of its shell. */
struct tn_place {
    const char *file;   /* its path */
    const char *folder; /* that Python has to search for it */
    const char *module; /* its name there: letters, digits, _ */
    const char *mpi;    /* what starts the bundled trainer's ranks */
    bool remote;        /* rank 0 has another disk than this script */
};

/* A job script around the file of a target. */
struct tn_wrapper {
    const char *name, *title, *media_type, *extension;
    /* BODY is the target's file. */
    void (*write)(struct str *out, const struct tn_export_in *in, const struct tn_exporter *target,
                  const char *body);
};

extern const struct tn_wrapper *const tn_wrappers[]; /* NULL-terminated */

/* Provenance as {"generator", "campaign", "trial", "tokens_per_s", …, "lost": […]}. New reference.
 */
json_t *tn_export_provenance(const struct tn_export_in *in, const struct tn_findings *lost);

/* The same as comments behind EXPORTER's mark, with what is LOST. */
void tn_export_comments(struct str *out, const struct tn_exporter *exporter,
                        const struct tn_export_in *in, const struct tn_findings *lost);

/* A text from outside inside a comment: nothing in it ends the line, in any of the formats. */
void tn_add_clean(struct str *out, const char *text);

/* Microbatches of a step on one data-parallel replica. */
int tn_microbatches(const struct tn_export_in *in);

/* Processes a node of the cluster for this layout, at most world, and nodes; the last node may hold
 * fewer. A cluster that takes more ranks than it has devices gets no more nodes for them. */
int tn_ranks_per_node(const struct tn_export_in *in);
int tn_nodes(const struct tn_export_in *in);
/* Do the ranks of a node find as many cores as they have threads? */
bool tn_cores_suffice(const struct tn_export_in *in);

/* For line(): torchrun with all that a node's processes need; NODE_RANK and MASTER_ADDR come from
 * the job around it. */
void tn_torchrun(struct str *out, const struct tn_export_in *in);

/* For Megatron-LM and Megatron-Bridge. Do the layers divide into equal stages? */
bool tn_megatron_even(const struct tn_export_in *in);
/* Do they with the embedding, the loss or both counted as layers? The results say which. */
bool tn_megatron_counts(bool *ret_embedding, bool *ret_loss, const struct tn_export_in *in);
/* What is switched on of the layout's overlap, where Megatron takes it; is zero 2 or 3 FSDP's? */
bool tn_megatron_gathers(const struct pl_layout *layout);
bool tn_megatron_overlaps_experts(const struct pl_layout *layout);
bool tn_megatron_overlaps_p2p(const struct pl_layout *layout);
bool tn_megatron_fsdp(const struct pl_layout *layout);
const char *tn_megatron_recompute_method(const struct pl_layout *layout); /* static */
const char *tn_megatron_cp_comm(const struct pl_layout *layout); /* as both spell it; static */
int tn_cp_inner(const struct tn_export_in *in);                  /* pl_cp_inner */
void tn_megatron_rules(struct tn_findings *findings, const struct tn_export_in *in);
/* Keys of what the rule trainer-supports says that these rules have, NULL-terminated. */
const char *const *tn_megatron_raises(const struct pl_model *model);
/* The modules that LAYOUT computes again with recompute selective, between SEPARATOR, each with
 * QUOTE around it. */
void tn_megatron_modules(struct str *out, const struct pl_layout *layout, const char *separator,
                         const char *quote);
/* Notes a list of them, between blanks, in LAYOUT; *RET is the first that has no key, or NULL, a
 * part of LIST. */
void tn_megatron_read_modules(const char **ret, struct pl_layout *layout, const char *list);
/* It needs CUDA_DEVICE_MAX_CONNECTIONS=1 before Blackwell with tp or cp above 1; with FSDP it
 * refuses it. */
bool tn_megatron_one_connection(const struct tn_export_in *in);
/* What both call the load-balancing loss of MODEL, whose coefficient is then
 * pl_aux_loss_coef(model, PL_AUX_MEGATRON). Static. */
const char *tn_megatron_aux_loss(const struct pl_model *model);
/* Arguments of a model's biases, attention, rotation, router and prediction modules. */
void tn_megatron_model(struct str *out, const struct pl_model *model);

/* What the trainer that a target is for cannot run: its rule trainer-supports (plan/supports.c), so
 * that a trainer's space and what its exporter writes are one. Not the keys BUT (NULL-terminated,
 * or NULL), of which the target can say more. */
void tn_gap_trainer(struct tn_findings *findings, const struct tn_export_in *in,
                    const char *trainer, const char *const *but);
/* The same of the keys ONLY, with which the target would not start: its rules. */
void tn_rule_trainer(struct tn_findings *findings, const struct tn_export_in *in,
                     const char *trainer, const char *const *only);

/* Every key with a value other than the default that EXPORTER does not carry and FINDINGS do not
 * name yet. Asked for every target, after its own gaps. */
void tn_gap_uncarried(struct tn_findings *findings, const struct tn_export_in *in,
                      const struct tn_exporter *exporter);

/* Gaps that several targets share: each adds a finding where the layout or model uses the feature.
 */
void tn_gap_schedule(struct tn_findings *findings, const struct tn_export_in *in, bool gpipe,
                     bool v);
void tn_gap_threads(struct tn_findings *findings, const struct tn_export_in *in);
void tn_gap_scope(struct tn_findings *findings, const struct tn_export_in *in);
void tn_gap_precision(struct tn_findings *findings, const struct tn_export_in *in);
/* Without expert parallelism TARGET splits experts by tp like all else. */
void tn_gap_split_experts(struct tn_findings *findings, const struct tn_export_in *in,
                          const char *target);
/* FSDP always reduces gradients and gathers parameters behind the computation. */
void tn_gap_fsdp_overlap(struct tn_findings *findings, const struct tn_export_in *in,
                         const char *target);
/* The target has no global batch, and one micro-batch of all replicas is not it. */
void tn_gap_global_batch(struct tn_findings *findings, const struct tn_export_in *in);
void tn_gap_flag(struct tn_findings *findings, const struct tn_export_in *in, const char *key,
                 int value, const char *target);
int tn_import_uncalled(struct err *error); /* of a call of something else than a script */

/* How TEXT, a configuration of DeepSpeed's, shards: zero and what goes with it in OUT's layout.
 * What else it has is listed. */
int tn_deepspeed_sharding(struct tn_imported *out, const char *text, struct err *error);

/* Do the degrees divide the world, on both meshes? Called before anything multiplies them, for they
 * come from outside; -EINVAL with the numbers. */
int tn_import_degrees(const struct pl_layout *layout, struct err *error);

/* MICRO sequences of every one of REPLICAS, where the source says no global batch; -EINVAL where
 * that is absurd. */
int tn_import_global_batch(struct tn_imported *out, int micro, int replicas, struct err *error);

/* Megatron's --cp-comm-type; -EINVAL where VALUE is no word of it. */
int tn_import_cp_comm(struct tn_imported *out, const char *value, struct err *error);

/* Where experts are not placed by expert parallelism, the source's tp splits them: etp says so. */
void tn_import_split_experts(struct pl_layout *layout, const struct pl_model *model);

/* DeepSpeed's sequence parallelism as cp. */
#define TN_ULYSSES "taken as cp: sequences are split alike, heads are exchanged there"

/* Does the setting NAME, which no source knows, with VALUE read like the degree of a parallelism
 * that is on? Ignoring one would import another layout than the one that runs. */
bool tn_import_is_degree(const char *name, const char *value);

/* As Python reads an int: 1_024 is 1024. 0, or a negative errno. */
int tn_import_whole(int64_t *ret, const char *value, int64_t min, int64_t max);

/* import_model.c. The size of MODEL that FLAG of Megatron-LM says, or NULL; and a note where VALUE,
 * which may be NULL, is not HAVE. */
const int *tn_megatron_size(const struct pl_model *model, const char *flag);
void tn_megatron_compare(struct tn_imported *out, const struct pl_model *model, const char *flag,
                         const char *value, int have);
/* Is FLAG about the kind of attention? A note where MODEL has another than VALUE. */
bool tn_megatron_attention(struct tn_imported *out, const struct pl_model *model, const char *flag,
                           const char *value);

/* import_unknown.c: the argument FLAG of Megatron-LM that is not read, with VALUE or NULL, goes to
 * OUT's list; -EINVAL where it may be a part of the layout. */
int tn_megatron_unknown(struct tn_imported *out, const char *flag, const char *value,
                        struct err *error);
/* Would FLAG be a degree if its value were a number? */
bool tn_megatron_may_be_degree(const char *flag);

/* What arguments of Megatron-LM say of narrow products, as far as they were read. */
struct tn_narrow {
    bool fp8, fp4;   /* a format is given */
    char recipe[24]; /* of fp8; empty: the default */
};
/* Is FLAG one of them, with VALUE or NULL? Notes what it says. */
int tn_megatron_narrow(bool *ret_known, struct tn_narrow *narrow, const char *flag,
                       const char *value, struct err *error);
/* All of them together as LAYOUT's precision, once all were read. */
int tn_megatron_precision(struct pl_layout *layout, const struct tn_narrow *narrow,
                          struct err *error);

/* Every key = value of a TOML text in its order, PATH dotted: "training.seq_len". The first
 * negative answer ends the reading and is its result, as is -EINVAL with the line where the text is
 * no TOML.
 */
typedef int tn_toml_fn(void *arg, const char *path, const char *value, int line, struct err *error);
int tn_toml_read(const char *text, tn_toml_fn *set, void *arg, struct err *error);

/* The arguments below MODEL_ARGS of a YAML file as a command line, to be freed; *RET is NULL where
 * TEXT has no such key. -EINVAL names the line that is no argument. */
int tn_yaml_arguments(char **ret, const char *text, struct err *error);

/* The settings of a YAML file in sections (Megatron-Bridge, Primus) as such a command line; what is
 * not of the layout is counted in IGNORED. */
int tn_section_arguments(char **ret, struct tn_findings *ignored, const char *text,
                         struct err *error);

/* What tn_toml_read() does, of YAML in block style. */
int tn_yaml_read(const char *text, tn_toml_fn *set, void *arg, struct err *error);
bool tn_yaml_is(const char *text); /* with sections, as those files have */
/* LEN letters of a value without blanks around it, a comment behind it and quotes; to be freed. */
char *tn_yaml_scalar(const char *from, size_t len);

/* What tn_toml_read() does, of a Python text: what it sets of a configuration, expressions as their
 * text. */
int tn_python_read(const char *text, tn_toml_fn *set, void *arg, struct err *error);
bool tn_python_is(const char *text); /* rather than TOML */

/* What Megatron-LM's arguments say of a pipeline; 0: not said. */
struct tn_megatron_stages {
    struct str whole; /* --pipeline-model-parallel-layout, written out; empty without one */
    int layers_per_virtual, virtual_stages;
    int first, last;      /* layers of the stages at the ends */
    bool embedding, loss; /* counts as a layer */
};

/* VALUE of --pipeline-model-parallel-layout, its repetitions written out. */
int tn_megatron_layout(struct str *ret, const char *value, struct err *error);
/* Set vp and stages of OUT, whose pp is set. */
int tn_import_megatron_stages(struct tn_imported *out, const struct tn_megatron_stages *said,
                              const struct pl_model *model, struct err *error);
/* The same from the layers of RUNS virtual stages, by SETTING; of another number of layers than
 * MODEL's in all, this is listed as ignored. */
int tn_import_stages(struct tn_imported *out, const char *setting, const struct pl_model *model,
                     const int *layers, int runs, struct err *error);
/* The same where the embedding counts as FIRST layers and the loss as LAST (torchtitan). */
int tn_import_weighed_stages(struct tn_imported *out, const char *setting,
                             const struct pl_model *model, int runs, int first, int last,
                             struct err *error);

/* One source each; see tn_import(). OUT has the defaults and the world. */
int tn_import_deepspeed(struct tn_imported *out, const char *text, const struct pl_model *model,
                        struct err *error);
/* The error of a file that says on LINE that it is for another FRAMEWORK: what to import it as, if
 * anything does. */
int tn_other_framework(const char *framework, int line, struct err *error);
int tn_import_megatron(struct tn_imported *out, const struct tn_job *job,
                       const struct pl_model *model, struct err *error);
int tn_import_torchtitan(struct tn_imported *out, const char *text, const struct pl_model *model,
                         struct err *error);

#endif
