#include "tests/mpi/reorder.h"

#include "base/base.h"

#include <math.h>

enum units { FIXED, HIDDEN, HEADS, KV_HEADS, FFN, TWO_HIDDEN };

/* What the rows and the columns of a tensor count. */
static void units_of(enum pl_tensor t, enum units *rows, enum units *columns)
{
    static const enum units of[][2] = {
        [PL_T_EMBED] = {FIXED, HIDDEN},      [PL_T_HEAD] = {FIXED, HIDDEN},
        [PL_T_NORM1] = {HIDDEN, FIXED},      [PL_T_NORM2] = {HIDDEN, FIXED},
        [PL_T_FINAL_NORM] = {HIDDEN, FIXED}, [PL_T_ROUTER] = {FIXED, HIDDEN},
        [PL_T_Q] = {HEADS, HIDDEN},          [PL_T_O] = {HIDDEN, HEADS},
        [PL_T_K] = {KV_HEADS, HIDDEN},       [PL_T_V] = {KV_HEADS, HIDDEN},
        [PL_T_GATE] = {FFN, HIDDEN},         [PL_T_EXPERT_GATE] = {FFN, HIDDEN},
        [PL_T_UP] = {FFN, HIDDEN},           [PL_T_EXPERT_UP] = {FFN, HIDDEN},
        [PL_T_DOWN] = {HIDDEN, FFN},         [PL_T_EXPERT_DOWN] = {HIDDEN, FFN},
        [PL_T_POSITIONS] = {FIXED, HIDDEN},  [PL_T_FINAL_NORM_BIAS] = {HIDDEN, FIXED},
        [PL_T_NORM1_BIAS] = {HIDDEN, FIXED}, [PL_T_NORM2_BIAS] = {HIDDEN, FIXED},
        [PL_T_Q_BIAS] = {HEADS, FIXED},      [PL_T_K_BIAS] = {KV_HEADS, FIXED},
        [PL_T_V_BIAS] = {KV_HEADS, FIXED},   [PL_T_O_BIAS] = {HIDDEN, FIXED},
        [PL_T_GATE_BIAS] = {FFN, FIXED},     [PL_T_UP_BIAS] = {FFN, FIXED},
        [PL_T_DOWN_BIAS] = {HIDDEN, FIXED},  [PL_T_Q_NORM] = {HEADS, FIXED},
        [PL_T_K_NORM] = {KV_HEADS, FIXED},   [PL_T_SHARED_GATE] = {FIXED, HIDDEN},
        [PL_T_Q_DOWN] = {FIXED, HIDDEN},     [PL_T_KV_DOWN] = {FIXED, HIDDEN},
        [PL_T_Q_UP] = {HEADS, FIXED},        [PL_T_K_UP] = {KV_HEADS, FIXED},
        [PL_T_V_UP] = {KV_HEADS, FIXED},     [PL_T_Q_DOWN_BIAS] = {FIXED, FIXED},
        [PL_T_Q_LATENT] = {FIXED, FIXED},    [PL_T_KV_DOWN_BIAS] = {FIXED, FIXED},
        [PL_T_KV_LATENT] = {FIXED, FIXED},   [PL_T_MTP_PROJ] = {HIDDEN, TWO_HIDDEN},
        [PL_T_MTP_ENORM] = {HIDDEN, FIXED},  [PL_T_MTP_HNORM] = {HIDDEN, FIXED},
        [PL_T_MTP_NORM] = {HIDDEN, FIXED},   [PL_T_POST_NORM1] = {HIDDEN, FIXED},
        [PL_T_POST_NORM2] = {HIDDEN, FIXED}, [PL_T_EXPERT_GATE_BIAS] = {FFN, FIXED},
        [PL_T_SINKS] = {HEADS, FIXED},       [PL_T_EXPERT_UP_BIAS] = {FFN, FIXED},
        [PL_T_ROUTER_BIAS] = {FIXED, FIXED}, [PL_T_EXPERT_DOWN_BIAS] = {HIDDEN, FIXED},
    };

    *rows = of[t][0];
    *columns = of[t][1];
}

/* Which of N old indices stands at each new one, the same for every tensor. Heads, whatever their
 * width there, move in groups that share keys and values, and whole: rotation pairs the elements of
 * a head. */
static uint64_t *order(enum units u, uint64_t n, const struct pl_model *m, uint64_t seed)
{
    uint64_t *at = mem_alloc(n * sizeof(*at));
    uint64_t run = u == HEADS || u == KV_HEADS ? n / (uint64_t)m->kv_heads : 1;
    struct rng r;

    rng_seed(&r, rng_mix(seed) ^ (u == KV_HEADS ? HEADS : u));
    for (uint64_t i = 0; i < n; i++)
        at[i] = i;
    for (uint64_t i = n / run; u != FIXED && i-- > 1;) {
        uint64_t k = rng_below(&r, i + 1);

        for (uint64_t j = 0; j < run; j++) {
            uint64_t swap = at[i * run + j];

            at[i * run + j] = at[k * run + j];
            at[k * run + j] = swap;
        }
    }
    return at;
}

/* That of one tensor's rows or columns; of two hidden rows next to each other, the same in both. */
static uint64_t *order_of(enum units u, uint64_t n, const struct pl_model *m, uint64_t seed)
{
    uint64_t *half, *at;

    if (u != TWO_HIDDEN)
        return order(u, n, m, seed);
    half = order(HIDDEN, n / 2, m, seed);
    at = mem_alloc(n * sizeof(*at));
    for (uint64_t i = 0; i < n; i++)
        at[i] = half[i % (n / 2)] + (i < n / 2 ? 0 : n / 2);
    free(half);
    return at;
}

void reorder_units(struct tr_params *t, const struct pl_model *m, uint64_t seed)
{
    size_t size = kn_type_size(t->type);

    for (int i = 0; i < t->table.n; i++) {
        const struct pl_param *p = &t->table.p[i];
        char *w = tr_param_weight(t, i), *old = mem_alloc(p->count * size);
        uint64_t *row, *column;
        enum units rows, columns;

        units_of(p->tensor, &rows, &columns);
        if (m->qk_norm == PL_QK_HEAD && (rows == HEADS || rows == KV_HEADS) && p->dims == 1 &&
            p->split < 0)
            rows = FIXED; /* a norm that heads share */
        row = order_of(rows, p->local[0], m, seed);
        column = order_of(columns, p->local[1], m, seed);
        memcpy(old, w, p->count * size);
        for (uint64_t a = 0; a < p->local[0]; a++)
            for (uint64_t b = 0; b < p->local[1]; b++)
                memcpy(w + (a * p->local[1] + b) * size,
                       old + (row[a] * p->local[1] + column[b]) * size, size);
        free(row);
        free(column);
        free(old);
    }
    tr_params_sync_master(t);
}

double reorder_roundings(struct tr_params *params, uint64_t seed)
{
    double sum = 0;

    for (int p = 0; p < params->table.n; p++) {
        uint16_t *g = tr_param_grad(params, p);

        for (uint64_t i = 0; i < params->table.p[p].count; i++) {
            uint64_t draw = rng_mix(seed * 131071 + (uint64_t)p * 8191 + i) % 24;
            uint32_t bits;
            float x;

            if (g[i] << 1 & 0xffff && draw < 2)
                g[i] = (uint16_t)(g[i] + 2 * draw - 1);
            bits = (uint32_t)g[i] << 16;
            memcpy(&x, &bits, sizeof(x));
            sum += (double)x * (double)x;
        }
    }
    return sqrt(sum);
}
