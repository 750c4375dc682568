/*
 * Where our tensors lie in a folder of Hugging Face's. Private to the files of folders and their
 * tests.
 *
 * The names of the parameter table are those of Llama, Mistral, Mixtral, Qwen 2 and 3, Gemma 2 and
 * 3, Nemotron, OLMo 2 and 3, Granite and Cohere. Mistral is a Llama with a window. Qwen 2 and 3
 * with experts and OLMoE have others, and so have families that fuse matrices:
 *
 *   GPT-2     matrices are stored (in, out); c_attn (hidden, 3 hidden) has the columns of q, then
 *             of k, then of v
 *   GPT-NeoX  query_key_value (3 hidden, hidden) has for each head its rows of q, of k, of v
 *   DeepSeek  kv_b_proj has for each head its rows of k, of v. What is rotated comes in pairs of
 *             neighbors (rope_interleave), where ours are half of it apart. V3 repeats embedding
 *             and output projection in each module of multi-token prediction
 *   Cohere    what is rotated, all of a head, comes in pairs of neighbors, as in DeepSeek
 *   Granite   with experts: input_linear (experts, 2 ffn, hidden) has for each expert its rows of
 *             gate, then of up; output_linear (experts, hidden, ffn) is the matrices one by one
 *   GPT-OSS   matrices of a layer's experts are stored (in, out) in one tensor; gate_up_proj has
 *             columns of gate and up in turn. Their biases are rows of one matrix
 */
#ifndef TRAINER_HF_NAMES_H
#define TRAINER_HF_NAMES_H

#include "trainer/hf_family.h"

/* One of our tensors in a tensor of the folder: row r of ours is row base + r / block * group + r %
 * block of the folder's, or that column where it is transposed, and then column c of ours is the
 * folder's row across + c. A tensor of three dimensions is a stack of so many matrices, whose rows
 * SHAPE counts together. Of the last `turned` rows of a
 * block, i and i + turned / 2 are the folder's neighbors 2 i and 2 i + 1 there. */
struct tr_hf_place {
    char name[96]; /* as long as that of a parameter */
    int dims;
    uint64_t shape[2]; /* of the folder's tensor; shape[1] is 1 for a vector */
    bool transposed;
    uint64_t base, block, group, turned;
    uint64_t across, stack;
};

/* The folder's row of ROW of ours. */
static inline uint64_t tr_hf_place_row(const struct tr_hf_place *place, uint64_t row)
{
    uint64_t in = row % place->block, still = place->block - place->turned,
             half = place->turned / 2;

    if (in >= still)
        in = in - still < half ? still + 2 * (in - still) : still + 2 * (in - still - half) + 1;
    return place->base + row / place->block * place->group + in;
}

/* Its elements and those of another of our tensors are neighbors, one by one. */
static inline bool tr_hf_place_interleaves(const struct tr_hf_place *place)
{
    return place->transposed && place->block == 1 && place->group == 2;
}

/* Of two that interleave, the first is written over the places of the second, which follows when
 * all of the first is there; this is the second. */
static inline bool tr_hf_place_is_second(const struct tr_hf_place *place)
{
    return tr_hf_place_interleaves(place) && place->base > 0;
}

/* WHOLE is a row of the table of a run on one rank. */
void tr_hf_place(struct tr_hf_place *ret, enum tr_hf_family family, const struct pl_model *model,
                 const struct pl_param *whole);
/* Our tensor is the folder's, element for element. */
bool tr_hf_place_is_plain(const struct tr_hf_place *place, const struct pl_param *whole);

/* Name PLACE, which is that of our TENSOR, as the folder's copy INDEX of it, from 0; false: it has
 * no more. */
bool tr_hf_copy(struct tr_hf_place *place, const struct pl_model *model, enum pl_tensor tensor,
                int index);

/* A table whose rows are the folder's tensors: name, dims and shape alone mean something, and of a
 * stack of matrices `expert`, how many they are. */
void tr_hf_tensors(struct pl_params *ret, enum tr_hf_family family, const struct pl_model *model);

/* A tensor of the folder that is no parameter and may be left out: masks, tables of rotation. */
bool tr_hf_ignorable(enum tr_hf_family family, const char *name, bool tied);

#endif
