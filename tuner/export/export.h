/*
 * export - the layout of a trial as another program's configuration, and back.
 *
 * Every target is one file with one row in the table of table.c. A target says what of a layout, a
 * model or a workload it cannot express (its gaps) and which of its own rules a layout breaks. An
 * export with gaps is refused by name unless loss is allowed, and then lists what is lost in the
 * file itself; a broken rule is always refused, because the target would not start.
 *
 * The version that each target is written for is in its row. The keys come from the targets'
 * own sources.
 */
#ifndef TUNER_EXPORT_EXPORT_H
#define TUNER_EXPORT_EXPORT_H

#include <jansson.h>
#include <stdbool.h>

#include "base/base.h"
#include "plan/plan.h"

/* What an export is made from. All pointers are borrowed. */
struct tn_export_in {
    const struct pl_model *model;
    const struct pl_cluster *cluster;
    const struct pl_layout *layout;     /* canonical and legal, derived values set */
    const struct pl_workload *workload; /* of the layout's batch (pl_batch_settle) */

    /* Where it comes from; written into the file as a comment or a metadata key. */
    const char *campaign, *campaign_name;
    int trial;
    bool simulated; /* no training job ran: every number is the simulator's, and the file says so */
    double tokens_per_s, lo, hi; /* what to expect, with a 95 % interval; NAN where unknown */
    enum tn_basis {
        TN_MEASURED, /* what the search measured, and how well it knows that */
        TN_ESTIMATE, /* of one more run, by all trials of the search together */
        TN_VERIFIED, /* of one more run, by those of the verification */
    } basis;
    double measured;     /* with TN_ESTIMATE: what the search measured of the layout */
    const char *verdict; /* of the verification: "holds" …, NULL: this trial was never verified */
    double ratio, ratio_lo, ratio_hi; /* winner / baseline there, with its 95 % interval; used with
                                         a verdict only */
    const char *fingerprint;          /* software that measured it, or NULL */
    const char
        *binding;     /* CPUs of the trial's ranks, "0+1,2+3"; "" where ranks were not bound; NULL:
                            not known, or not of this machine */
    bool open_mpi;    /* that trial's MPI was Open MPI */
    const char *date; /* RFC 3339 */
    const char *data; /* folder of the data set for the bundled trainer; NULL: synthetic */
};

enum { TN_MAX_FINDINGS = 96 };

/* Both are UTF-8 whatever was cut off to fit. */
struct tn_finding {
    char setting[72]; /* "schedule", "model.mlp": its place in the layout, or model./workload. Of an
                         import: the name that the source has for it */
    char detail[200];
};

/* The last of a full list says how many more there are. */
struct tn_findings {
    int count, more;
    struct tn_finding v[TN_MAX_FINDINGS];
};

void tn_finding_add(struct tn_findings *findings, const char *setting, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

struct tn_place; /* where a job has the target's file */

struct tn_exporter {
    const char *name;    /* "megatron": {target} of the route */
    const char *title;   /* for people */
    const char *version; /* of the target that the keys are taken from */
    const char *media_type, *extension;
    const char *comment; /* "#", "//", or NULL where the format has none: then the writer places the
                            metadata */
    const char *trainer; /* of plan/: its rules say what is written without loss; NULL: none do */
    /* Layout keys that it expresses, NULL-terminated: any other with a value that is not the
     * default is a gap. NULL: those of the trainer (plan/keys.def). */
    const char *const *carries;
    /* Arguments that make the target read the file, as export.EXTENSION in a folder of its search
     * path; NULL: it takes the file's path. */
    const char *words;
    /* The file alone says how many layers the model has, and the global batch: not where a recipe
     * or a script has them, too. */
    bool says_layers, says_batch;
    bool even_nodes; /* its launcher starts the same number of processes on every node */
    /* Add what the target has no word for, of the keys that it carries, the model and the workload,
     * and what can be said better of other keys than that they are not carried. May be NULL. */
    void (*gaps)(struct tn_findings *ret, const struct tn_export_in *in);
    /* Add the target's own rules that the layout breaks. May be NULL. */
    void (*rules)(struct tn_findings *ret, const struct tn_export_in *in);
    /* Append the body. LOST are the gaps, for formats that carry metadata as a key. */
    void (*write)(struct str *out, const struct tn_export_in *in, const struct tn_findings *lost);
    /* What a job script runs. BEFORE is said once in a job, and may be NULL; LINE is the command of
     * a node, within single quotes, which starts the node's ranks; with BY_RANK that of the whole
     * job, as it is, around what starts each rank. */
    bool by_rank;
    void (*before)(struct str *out, const struct tn_place *at);
    void (*line)(struct str *out, const struct tn_export_in *in, const struct tn_place *at);
};

/* FILE, which tn_export() wrote for TARGET from IN, with a reason behind each line: the layout key
 * or the fact of the job that it depends on, and the BASELINE's value (NULL: none) where that
 * differs. TRAINER's rules say which other jobs may be tried. *RET: caller frees. -ENOENT. */
int tn_export_explain(char **ret, const char *target, const struct tn_export_in *in,
                      const struct pl_trainer *trainer, const struct pl_layout *baseline,
                      const char *file, struct err *error);

bool tn_exporter_carries(const struct tn_exporter *exporter, const struct pl_layout_key *key);

/* NULL-terminated table. */
const struct tn_exporter *const *tn_exporters(void);

/* A target by name, or WRAPPER+NAME ("slurm+megatron"); NULL if there is none. *RET_WRAPPER is NULL
 * without one. */
struct tn_wrapper;
const struct tn_exporter *tn_exporter_find(const struct tn_wrapper **ret_wrapper, const char *name);
/* -ENOENT: NAME is none of those, which are listed. */
int tn_exporter_unknown(const char *name, struct err *error);
const char *tn_wrapper_extension(const struct tn_wrapper *wrapper);

/* {"name","title","version","carries":[…],"media_type","wrappers":[…]} of each target. New
 * reference. */
json_t *tn_exporters_json(void);

/*
 * Write the file for TARGET into *RET (caller frees). -ENOENT for an unknown target; -EINVAL when
 * the target cannot express the layout (unless ALLOW_LOSS) or one of its rules is broken:
 * *RET_FINDINGS then says which, and ERROR has them on one line. *RET_MEDIA_TYPE is static.
 */
int tn_export(char **ret, const char **ret_media_type, struct tn_findings *ret_findings,
              const char *target, const struct tn_export_in *in, bool allow_loss,
              struct err *error);

/* ---- importers ----------------------------------------------------------- */

/*
 * Today's production configuration: TEXT of SOURCE, which is "megatron" (a job script or
 * arguments), "deepspeed" (JSON) or "torchtitan" (TOML or Python), on WORLD devices. CALL: the
 * command line that starts the job script, which gives its variables and arguments, as in "TP=4
 * sbatch job.sh 8b"; NULL: both are unknown, and a script that is refused for that is read as
 * called by its name alone.
 */
struct tn_job {
    const char *source, *text, *call;
    int world;
};

/* The same as a layout. Settings that have no word here are listed in `ignored`. The result is
 * canonical where the model allows it; legality is the caller's question. */
struct tn_imported {
    struct pl_layout layout;
    int global_batch; /* 0 where the source does not say */
    int seq;
    bool assumed; /* read as called by its name alone, which `ignored` says first */
    struct tn_findings ignored;
};
int tn_import(struct tn_imported *ret, const struct tn_job *job, const struct pl_model *model,
              struct err *error);
const char *const *tn_importers(void); /* NULL-terminated names */

#endif
