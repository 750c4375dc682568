/*
 * dump DIR: many layouts of several models through every target and job script, loss allowed, one
 * file each: DIR/<number>.<target>, and DIR/<number>.facts with what they were made from. parse.py
 * reads them with real parsers and holds them against the targets' rules. What a target refuses is
 * left out.
 */
#include <stdio.h>

#include "tests/export/files.h"

static const struct {
    const char *model, *cluster;
    int nodes, global_batch;
} cases[] = {
    {"gpt-22B", "dgx-a100", 8, 256},
    {"llama-8b", "dgx-h100", 4, 128},
    {"mixtral-8x7b", "dgx-h100", 8, 256},
    {"deepseek-v3-like", "dgx-h100", 32, 1024},
    {"deepseek-v3", "dgx-h100", 64, 1024},
    {"{\"name\":\"latent\",\"layers\":12,\"hidden\":768,\"heads\":12,\"ffn\":1920,\"vocab\":1000,"
     "\"seq\":512,\"mla\":{\"kv_lora_rank\":128,\"qk_nope_head_dim\":64,\"qk_rope_head_dim\":32,"
     "\"v_head_dim\":64},\"rope_scaling\":{\"kind\":\"yarn\",\"factor\":40,\"original_seq\":4096,"
     "\"mscale\":1,\"mscale_all_dim\":1}}",
     "dgx-h100", 2, 64},
    {"gpt-oss-20b", "dgx-h100", 4, 128},
    {"qwen3-30b-a3b", "dgx-h100", 4, 128},
    /* of ten layers the fourth and the eighth are not rotated */
    {"{\"name\":\"unrotated\",\"layers\":10,\"hidden\":768,\"heads\":12,\"ffn\":1920,\"vocab\":"
     "1000,"
     "\"seq\":512,\"no_rope_freq\":4}",
     "dgx-h100", 2, 64},
    {"{\"name\":\"linear\",\"layers\":12,\"hidden\":512,\"heads\":8,\"kv_heads\":4,\"ffn\":1536,"
     "\"vocab\":1000,\"seq\":96,\"qk_norm\":\"head\",\"zero_centered_norm\":true,"
     "\"attention_output_gate\":true,\"linear_attention_freq\":4,\"linear_attention\":{"
     "\"num_key_heads\":8,\"num_value_heads\":16,\"key_head_dim\":32,\"value_head_dim\":48},"
     "\"moe\":{\"experts\":16,\"top_k\":3,\"expert_ffn\":384,\"shared_ffn\":384,"
     "\"shared_gate\":true}}",
     "dgx-h100", 2, 64},
    {"{\"name\":\"sparse\",\"layers\":12,\"hidden\":768,\"heads\":12,\"ffn\":1920,\"vocab\":1000,"
     "\"seq\":512,\"mla\":{\"q_lora_rank\":256,\"kv_lora_rank\":128,\"qk_nope_head_dim\":64,"
     "\"qk_rope_head_dim\":32,\"v_head_dim\":64},\"dsa\":{\"index_n_heads\":8,"
     "\"index_head_dim\":64,\"index_topk\":128},\"rope_scaling\":{\"kind\":\"yarn\","
     "\"factor\":40,\"original_seq\":4096,\"mscale\":1,\"mscale_all_dim\":1}}",
     "dgx-h100", 2, 64},
    /* nothing is a power of two, and layers do not divide */
    {"{\"name\":\"odd\",\"layers\":10,\"hidden\":720,\"heads\":12,\"kv_heads\":6,\"ffn\":1920,"
     "\"vocab\":1000,\"seq\":240,\"moe\":{\"experts\":12,\"top_k\":3,\"expert_ffn\":360,"
     "\"shared_ffn\":720,\"every\":2,\"aux_loss\":\"huggingface\",\"z_loss_coef\":0.001}}",
     "aurora-pvc", 2, 72},
    {"{\"name\":\"dense\",\"layers\":9,\"hidden\":384,\"heads\":6,\"kv_heads\":2,\"ffn\":1536,"
     "\"vocab\":1000,\"seq\":96,\"mlp\":\"gelu\",\"norm\":\"layernorm\",\"positions\":\"learned\","
     "\"tied\":true}",
     "dgx-a100", 3, 48},
};

enum { EACH = 12 };

struct taken {
    struct pl_layout at[EACH];
    size_t seen, every;
    int n;
};

static bool count(void *arg, const struct pl_layout *l)
{
    struct taken *t = arg;

    (void)l;
    return ++t->seen < 1000000;
}

static bool take(void *arg, const struct pl_layout *l)
{
    struct taken *t = arg;

    if (t->seen++ % t->every == 0)
        t->at[t->n++] = *l;
    return t->n < EACH;
}

int main(int argc, char **argv)
{
    int number = 0, written = 0;

    if (argc != 2)
        return 2;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_JSON *model = *cases[i].model == '{' ? json_loads(cases[i].model, 0, NULL)
                                                  : json_string(cases[i].model);
        AUTO_JSON *cluster =
            json_pack("{s:s, s:i}", "profile", cases[i].cluster, "nodes", cases[i].nodes);
        AUTO_JSON *workload = json_pack("{s:i}", "global_batch", cases[i].global_batch);
        AUTO_JSON *space = json_pack(
            "{s:[i,i,i,i], s:[s,s,s,s,s,s,s], s:[i,i], s:[i,i], s:[i,i], s:[i,i,i], s:[i,i,i,i], "
            "s:[s,s,s,s], s:[s,s], s:[i,i], s:[i,i], "
            "s:[s,s,s,s], s:[s,s,s], s:[i,i,i], s:[i,i], s:[i,i], s:[s,s]}",
            "zero", 0, 1, 2, 3, "precision", "fp32", "bf16", "fp8", "fp8-current", "fp8-blockwise",
            "mxfp8", "nvfp4", "fp8_param_gather", 0, 1, "recompute_mlp", 0, 1,
            "recompute_core_attn", 0, 1, "cp", 1, 2, 3, "shard", 0, 2, 3, 8, "cp_comm", "p2p",
            "all-gather", "a2a", "a2a+p2p", "recompute_method", "uniform", "block",
            "recompute_num_layers", 1, 3, "tp_overlap", 0, 1, "moe_dispatch", "alltoall",
            "allgather", "deepep", "hybridep", "cuda_graphs", "none", "modules", "iteration",
            "offload_optimizer", 0, 50, 100, "offload_params", 0, 1, "offload_activations", 0, 1,
            "grad_dtype", "fp32", "bf16");
        const struct pl_trainer *trainer = pl_trainer_find("any");
        struct pl_model m;
        struct pl_cluster c;
        struct pl_workload w;
        struct pl_space s;
        struct pl_problem p = {&m, &c, &w, trainer};
        struct taken t = {0};
        struct err e = {0};

        if (pl_model_parse(&m, model, &e) < 0 || pl_cluster_parse(&c, cluster, NULL, &e) < 0 ||
            pl_workload_parse(&w, workload, &m, trainer, &e) < 0 ||
            pl_space_parse(&s, space, &p, &e) < 0) {
            fprintf(stderr, "%s: %s\n", cases[i].model, e.text);
            return 1;
        }
        pl_space_enumerate(&s, &p, count, &t);
        t.every = t.seen / EACH | 1;
        t.seen = 0;
        pl_space_enumerate(&s, &p, take, &t);
        for (int k = 0; k < t.n; k++) {
            /* A name that would end a comment, a string and a shell word. */
            struct tn_export_in in = {.model = &m,
                                      .cluster = &c,
                                      .layout = &t.at[k],
                                      .workload = &w,
                                      .campaign = "k3v9qw2m",
                                      .campaign_name = "it's \"one\": #2 `x`\n$(y)",
                                      .trial = 7,
                                      .tokens_per_s = 41000,
                                      .lo = 40700,
                                      .hi = 41300,
                                      .date = "2026-03-01T09:30:00.000Z"};

            written += files_write(argv[1], number++, &in, true);
        }
    }
    printf("%d\n", written);
    return 0;
}
