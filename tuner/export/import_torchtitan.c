/*
 * A torchtitan job file (TOML, up to v0.2.2) as a layout. What the file does not say has
 * torchtitan's defaults: 8 sequences a rank, bf16, selective checkpointing, sharding over all.
 */
#include "tuner/export/internal.h"

#include <ctype.h>
#include <errno.h>

struct titan {
    struct tn_imported *out;
    int local_batch, pp_microbatch, layers_per_stage, replicate, shard;
    char reshard[16], schedule[32];
};

static int titan_word(struct titan *s, const char *path, const char *value, bool *ret_known)
{
    struct pl_layout *l = &s->out->layout;

    *ret_known = true;
    if (!strcmp(path, "parallelism.pipeline_parallel_schedule"))
        snprintf(s->schedule, sizeof(s->schedule), "%s", value);
    else if (!strcmp(path, "parallelism.fsdp_reshard_after_forward"))
        snprintf(s->reshard, sizeof(s->reshard), "%s", value);
    else if (!strcmp(path, "training.mixed_precision_param"))
        l->precision = str_eq(value, "bfloat16") ? PL_BF16 : PL_FP32;
    else if (!strcmp(path, "activation_checkpoint.mode") && str_eq(value, "memory_budget"))
        tn_finding_add(&s->out->ignored, path, "a memory budget has no word here");
    else if (!strcmp(path, "activation_checkpoint.mode"))
        l->recompute = str_eq(value, "full")        ? PL_RECOMPUTE_FULL
                       : str_eq(value, "selective") ? PL_RECOMPUTE_SELECTIVE
                                                    : PL_RECOMPUTE_NONE;
    else
        *ret_known = false;
    return 0;
}

static int *titan_number(struct titan *s, const char *path)
{
    struct pl_layout *l = &s->out->layout;
    const struct {
        const char *path;
        int *field;
    } rows[] = {
        {"training.local_batch_size", &s->local_batch},
        {"training.global_batch_size", &s->out->global_batch},
        {"training.seq_len", &s->out->seq},
        {"parallelism.data_parallel_replicate_degree", &s->replicate},
        {"parallelism.data_parallel_shard_degree", &s->shard},
        {"parallelism.tensor_parallel_degree", &l->tp},
        {"parallelism.context_parallel_degree", &l->cp},
        {"parallelism.expert_parallel_degree", &l->ep},
        {"parallelism.expert_tensor_parallel_degree", &l->etp},
        {"parallelism.pipeline_parallel_degree", &l->pp},
        {"parallelism.pipeline_parallel_microbatch_size", &s->pp_microbatch},
        {"parallelism.pipeline_parallel_layers_per_stage", &s->layers_per_stage},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (!strcmp(rows[i].path, path))
            return rows[i].field;
    return NULL;
}

static int titan_finish(struct titan *s, const struct pl_model *m, struct err *e)
{
    struct pl_layout *l = &s->out->layout;
    int r = tn_import_degrees(l, e), dp;

    if (r < 0)
        return r;
    dp = l->world / (l->tp * l->cp * l->pp);
    if (s->shard == -1)
        s->shard = dp / (s->replicate ? s->replicate : 1);
    if (s->replicate > 1 && s->shard > 1)
        tn_finding_add(&s->out->ignored, "parallelism.data_parallel_replicate_degree",
                       "hybrid sharding has no word here: taken as full sharding");
    l->zero =
        s->shard > 1
            ? (str_eq(s->reshard, "never") || (l->pp > 1 && !str_eq(s->reshard, "always")) ? 2 : 3)
            : 0;
    l->overlap_grad_reduce = dp > 1;
    l->overlap_param_gather = l->zero >= 2;
    l->sp = l->tp > 1;
    l->micro_batch = l->pp > 1 ? (s->pp_microbatch ? s->pp_microbatch : 1) : s->local_batch;
    if (s->out->global_batch <= 0)
        s->out->global_batch = s->local_batch * dp;
    if (l->pp == 1)
        return 0;
    if (str_eq(s->schedule, "GPipe"))
        l->schedule = PL_GPIPE;
    else if (str_eq(s->schedule, "Interleaved1F1B"))
        l->schedule = PL_INTERLEAVED;
    else if (s->schedule[0] && !str_eq(s->schedule, "1F1B"))
        return err_set(e, -EINVAL, "pipeline_parallel_schedule \"%s\" has no word here",
                       s->schedule);
    if (l->schedule == PL_INTERLEAVED) {
        if (!s->layers_per_stage || m->layers % ((int64_t)l->pp * s->layers_per_stage))
            return err_set(e, -EINVAL,
                           "Interleaved1F1B needs pipeline_parallel_layers_per_stage that divides "
                           "%d layers over pp %d",
                           m->layers, l->pp);
        l->vp = m->layers / (l->pp * s->layers_per_stage);
    }
    return 0;
}

/* One line of the TOML subset that job files use: [table], key = scalar. */
static int titan_line(struct titan *s, char table[64], char *line, int number, struct err *e)
{
    AUTO_FREE char *path = NULL;
    char *value, *end;
    int *field;
    bool known;
    int64_t v;

    line += strspn(line, " \t\r");
    if (!*line || *line == '#')
        return 0;
    if (*line == '[') {
        snprintf(table, 64, "%.*s", (int)strcspn(line + 1, "]"), line + 1);
        return 0;
    }
    value = strchr(line, '=');
    if (!value)
        return err_set(e, -EINVAL, "line %d: expected key = value", number);
    for (end = value; end > line && isspace((unsigned char)end[-1]); end--)
        continue;
    *end = '\0';
    value += 1 + strspn(value + 1, " \t");
    if (*value == '"') {
        value++;
        value[strcspn(value, "\"")] = '\0';
    } else {
        value[strcspn(value, " \t\r#")] = '\0';
    }
    path = mem_printf("%s.%s", table, line);
    field = titan_number(s, path);
    if (field) {
        /* -1 means "what is left" of the devices, or "one local batch of every rank". */
        bool rest = field == &s->shard || field == &s->out->global_batch;

        if (str_to_i64(&v, value, -1, 1 << 24) < 0 || (v < 1 && !(rest && v == -1)))
            return err_set(e, -EINVAL, "line %d: %s must be a positive integer, not `%.40s`",
                           number, path, value);
        *field = (int)v;
        return 0;
    }
    titan_word(s, path, value, &known);
    if (!known && strcmp(path, "activation_checkpoint.selective_ac_option") &&
        !strstr(path, "_stage_less_layers"))
        tn_finding_add(&s->out->ignored, path, "not a setting of the layout");
    return 0;
}

int tn_import_torchtitan(struct tn_imported *out, const char *text, const struct pl_model *m,
                         struct err *e)
{
    AUTO_FREE char *copy = mem_strdup(text);
    struct titan s = {.out = out, .local_batch = 8, .replicate = 1, .shard = -1}; /* its defaults */
    char table[64] = "", *rest = copy, *line;
    int r = 0;

    out->layout.precision = PL_BF16;
    out->layout.recompute = PL_RECOMPUTE_SELECTIVE;
    for (int number = 1; r == 0 && (line = strsep(&rest, "\n")); number++)
        r = titan_line(&s, table, line, number, e);
    return r < 0 ? r : titan_finish(&s, m, e);
}
