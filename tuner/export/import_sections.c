/*
 * YAML files that have Megatron-LM's settings in sections, as its arguments: the run_config.yaml
 * that Megatron-Bridge writes of every run (the whole configuration, whatever its recipe was built
 * from), and the `overrides` of AMD's Primus.
 *
 * Of hundreds of settings those are taken that say the layout, or sizes of the model.
 */
#include "tuner/export/switches.h"

#include <errno.h>

/* Settings that are named like the argument, in what section of Megatron-Bridge. */
static const struct {
    const char *section, *names;
} known[] = {
    {"model", "tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size "
              "expert_model_parallel_size expert_tensor_parallel_size "
              "cp_comm_type pipeline_model_parallel_layout account_for_embedding_in_pipeline_split "
              "account_for_loss_in_pipeline_split recompute_granularity recompute_method "
              "recompute_num_layers recompute_modules moe_token_dispatcher_type "
              "moe_flex_dispatcher_backend overlap_moe_expert_parallel_comm "
              "cuda_graph_impl seq_length num_layers hidden_size ffn_hidden_size "
              "num_attention_heads num_query_groups moe_router_topk moe_ffn_hidden_size "
              "moe_shared_expert_intermediate_size mtp_num_layers q_lora_rank kv_lora_rank "
              "experimental_attention_variant linear_attention_freq "
              "dsa_indexer_n_heads dsa_indexer_head_dim dsa_indexer_topk linear_num_key_heads "
              "linear_num_value_heads linear_key_head_dim linear_value_head_dim "
              "fine_grained_activation_offloading"},
    {"train", "micro_batch_size global_batch_size"},
    {"ddp",
     "use_distributed_optimizer overlap_param_gather "
     "num_distributed_optimizer_instances use_megatron_fsdp data_parallel_sharding_strategy"},
    {"dist", "use_megatron_fsdp use_torch_fsdp2"},
    {"comm_overlap", "tp_comm_overlap overlap_moe_expert_parallel_comm"},
    {"optimizer", "optimizer_cpu_offload overlap_cpu_optimizer_d2h_h2d"},
    {"mixed_precision", "bf16 fp8_recipe fp8_param_gather"},
};

/* Settings that have another name as an argument. */
static const struct {
    const char *section, *name, *flag;
} renamed[] = {
    {"model", "virtual_pipeline_model_parallel_size", "--num-virtual-stages-per-pipeline-rank"},
    {"model", "num_layers_in_first_pipeline_stage", "--decoder-first-pipeline-num-layers"},
    {"model", "num_layers_in_last_pipeline_stage", "--decoder-last-pipeline-num-layers"},
    {"model", "num_moe_experts", "--num-experts"},
    {"mixed_precision", "fp8", "--fp8-format"},
    {"mixed_precision", "fp4", "--fp4-format"},
};

/* Numbers of Megatron-Bridge that count while a switch is on only. */
static const struct {
    const char *section, *on, *name, *flag;
} switched[] = {
    {"model", "cpu_offloading", "cpu_offloading_num_layers", "--cpu-offloading-num-layers"},
    {"optimizer", "optimizer_cpu_offload", "optimizer_offload_fraction",
     "--optimizer-offload-fraction"},
};

/* Names of mixed_precision, where it is one. */
static const struct {
    const char *part, *arguments;
} precisions[] = {
    {"nvfp4", "--fp4-format e2m1"},
    {"mxfp8", "--fp8-format e4m3 --fp8-recipe mxfp8"},
    {"current_scaling", "--fp8-format hybrid --fp8-recipe tensorwise"},
    {"subchannel_scaling", "--fp8-format hybrid --fp8-recipe blockwise"},
    {"delayed_scaling", "--fp8-format hybrid --fp8-recipe delayed"},
};

struct sections {
    struct str out;
    char virtual[16];                     /* stages a rank; "": not said */
    char number[ARRAY_LEN(switched)][16]; /* of those; "": not said */
    bool on[ARRAY_LEN(switched)];
    bool layout;
    bool primus, precision_said, sharding_said;
    bool half_ddp, half_mixed; /* grad_reduce_in_fp32 is false in the section */
    bool mixed_said;           /* mixed_precision, which takes precedence over ddp */
    int others;                /* settings that are not taken */
};

static bool has_word(const char *words, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = words; n && (at = strstr(at, word)) != NULL; at += n)
        if ((at == words || at[-1] == ' ') && (!at[n] || at[n] == ' '))
            return true;
    return false;
}

/* "[embedding decoder|decoder loss]" as "Et|tL". */
static void add_layout(struct str *out, const char *value)
{
    static const struct {
        const char *word;
        char letter;
    } layers[] = {{"embedding", 'E'}, {"decoder", 't'}, {"mtp", 'm'}, {"loss", 'L'}};

    for (const char *at = value; *at;) {
        size_t n = strcspn(at, "[]| ,");

        for (size_t i = 0; i < ARRAY_LEN(layers); i++)
            if (n == strlen(layers[i].word) && !strncmp(at, layers[i].word, n))
                str_addc(out, layers[i].letter);
        at += n;
        if (*at == '|')
            str_addc(out, '|');
        at += *at != '\0';
    }
}

/* VALUE without what means something to a shell within quotes. */
static void add_plain(struct str *out, const char *value)
{
    for (; *value; value++)
        if (!strchr("\"`$\\", *value))
            str_addc(out, *value);
}

static void add(struct sections *sections, const char *flag, const char *value)
{
    bool on = str_eq(value, "true") ||
              (str_eq(flag, "--sequence-parallel") && str_eq(value, "1")); /* of Primus */

    if (!*value || str_eq(value, "false") || str_eq(value, "none"))
        return;
    if (str_eq(flag, "--num-virtual-stages-per-pipeline-rank")) {
        snprintf(sections->virtual, sizeof(sections->virtual), "%s", value);
        return;
    }
    str_addf(&sections->out, "%s%s", flag, on ? "\n" : " ");
    if (on)
        return;
    if (str_eq(flag, "--pipeline-model-parallel-layout")) {
        sections->layout = true;
        str_addc(&sections->out, '"');
        if (*value == '[')
            add_layout(&sections->out, value);
        else
            add_plain(&sections->out, value);
        str_addc(&sections->out, '"');
    } else {
        size_t from = sections->out.len;

        add_plain(&sections->out, value);
        for (char *at = sections->out.text + from; *at; at++)
            *at = strchr("[],|;&<>", *at) ? ' ' : *at;
    }
    str_addc(&sections->out, '\n');
}

static void add_precision(struct sections *sections, const char *name)
{
    str_add(&sections->out, strstr(name, "fp16") ? "--fp16\n" : "--bf16\n");
    sections->mixed_said = true;
    for (size_t i = 0; i < ARRAY_LEN(precisions); i++)
        if (strstr(name, precisions[i].part)) {
            str_addf(&sections->out, "%s\n", precisions[i].arguments);
            return;
        }
}

/* Is PATH one of the types of gradients? Notes its VALUE. A type of PyTorch is an object
 * ({"_target_": "torch.float32"}). */
static bool note_grads(struct sections *sections, const char *path, const char *value)
{
    static const struct {
        const char *path, *flag;
    } types[] = {
        {"ddp.megatron_fsdp_main_grads_dtype._target_", "--megatron-fsdp-main-grads-dtype"},
        {"ddp.megatron_fsdp_grad_comm_dtype._target_", "--megatron-fsdp-grad-comm-dtype"},
    };

    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (str_eq(types[i].path, path)) {
            add(sections, types[i].flag,
                strstr(value, "bfloat16")  ? "bf16"
                : strstr(value, "float16") ? "fp16"
                                           : "fp32");
            return true;
        }
    if (str_eq(path, "ddp.grad_reduce_in_fp32")) {
        sections->half_ddp = str_eq(value, "false");
        return true;
    }
    if (!str_eq(path, "mixed_precision.grad_reduce_in_fp32"))
        return false;
    sections->half_mixed = str_eq(value, "false");
    sections->mixed_said = true;
    return true;
}

/* Is PATH in SECTION, of the length LEN, or among the OVERRIDES of a file without sections? */
static bool within(const char *path, size_t len, const char *section, const char *overrides)
{
    return overrides || (strlen(section) == len && !strncmp(path, section, len));
}

/* Sections of Megatron-Bridge have hundreds of settings, of which those of the layout are taken; a
 * file of Primus has few, all arguments. */
static bool is_taken(const char *path, size_t section, const char *name, const char *overrides)
{
    bool taken = overrides || tn_bridge_switch(path, section, name);

    for (size_t i = 0; i < ARRAY_LEN(known) && !taken; i++)
        taken = within(path, section, known[i].section, NULL) && has_word(known[i].names, name);
    return taken;
}

/* Is NAME in SECTION one of those? Notes its VALUE; a switch may be a setting itself. */
static bool note_switched(struct sections *sections, const char *path, size_t section,
                          const char *name, const char *value)
{
    for (size_t i = 0; i < ARRAY_LEN(switched); i++) {
        if (!within(path, section, switched[i].section, NULL))
            continue;
        if (str_eq(name, switched[i].on))
            sections->on[i] = str_eq(value, "true");
        if (str_eq(name, switched[i].name)) {
            snprintf(sections->number[i], sizeof(sections->number[i]), "%s", value);
            return true;
        }
    }
    return false;
}

static int take(void *arg, const char *path, const char *value, int line, struct err *error)
{
    struct sections *sections = arg;
    const char *overrides = strstr(path, "overrides."), *name = strrchr(path, '.');
    size_t section = strcspn(path, ".");

    name = overrides ? overrides + strlen("overrides.") : name ? name + 1 : path;
    if (str_eq(name, "framework") && *value && strcmp(value, "megatron") != 0)
        return tn_other_framework(value, line, error);
    if (str_eq(path, "mixed_precision") && *value) {
        add_precision(sections, value);
        return 0;
    }
    if (note_grads(sections, path, value))
        return 0;
    if (!overrides && path[section] && strchr(path + section + 1, '.'))
        return 0; /* of a part of a section */
    sections->primus |= overrides != NULL;
    sections->precision_said |= str_eq(name, "bf16") || str_eq(name, "fp16");
    sections->sharding_said |= str_eq(name, "use_distributed_optimizer");
    if (!overrides && note_switched(sections, path, section, name, value))
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(renamed); i++)
        if (within(path, section, renamed[i].section, overrides) && str_eq(renamed[i].name, name)) {
            add(sections, renamed[i].flag, value);
            return 0;
        }
    if (is_taken(path, section, name, overrides)) {
        AUTO_FREE char *flag = mem_printf("--%s", name);

        for (char *at = flag; *at; at++)
            *at = *at == '_' || *at == '.' ? '-' : *at;
        add(sections, flag, value);
    } else {
        sections->others++;
    }
    return 0;
}

int tn_section_arguments(char **ret, struct tn_findings *ignored, const char *text,
                         struct err *error)
{
    struct sections sections = {0};
    int r;

    *ret = NULL;
    if (!tn_yaml_is(text))
        return 0;
    r = tn_yaml_read(text, take, &sections, error);
    if (r == 0 && !sections.primus && !strstr(str_text(&sections.out), "-parallel-size"))
        r = err_set(error, -EINVAL,
                    "this YAML file has no tensor_model_parallel_size: for Megatron-Bridge, import "
                    "the run_config.yaml of a run");
    if (r == 0 && *sections.virtual && !sections.layout)
        str_addf(&sections.out, "--num-virtual-stages-per-pipeline-rank %s\n", sections.virtual);
    for (size_t i = 0; i < ARRAY_LEN(switched); i++)
        if (r == 0 && sections.on[i] && *sections.number[i])
            add(&sections, switched[i].flag, sections.number[i]);
    if (sections.primus && !sections.precision_said) /* primus/configs/modules/megatron */
        str_add(&sections.out, "--bf16\n");
    if (sections.primus && !sections.sharding_said)
        str_add(&sections.out, "--use-distributed-optimizer\n");
    if (sections.mixed_said ? sections.half_mixed : sections.half_ddp)
        str_add(&sections.out, "--grad-reduce-in-bf16\n");
    if (r == 0 && sections.others)
        tn_finding_add(ignored, "others", "%d settings of the file that are not of the layout",
                       sections.others);
    if (r == 0)
        *ret = mem_strdup(str_text(&sections.out));
    str_done(&sections.out);
    return r;
}
