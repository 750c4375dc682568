/*
 * Numerics on arrays: everything that a training step computes, and nothing else.
 *
 * No function here allocates (except kn_pool_new), logs or fails: arguments outside the stated
 * domain are programming errors and assert. All matrices are row-major; a leading dimension
 * ("ld...") is the distance between rows in elements and may exceed the width. Each pointer has its
 * shape next to it; in a backward pass, arrays of the forward pass have the shapes that they had
 * there. Sizes may be 0. Pointers need the alignment of their element only. Outputs do not overlap
 * inputs unless a comment says so.
 *
 * Types. Activations, weights and activation gradients are fp32 or bf16 (an enum kn_type comes with
 * their `void *`); weight gradients, statistics, router values and optimizer state are always fp32.
 * With bf16 storage all arithmetic is fp32 and each result is rounded once, to nearest even.
 *
 * Instruction sets. Each operation has a plain C reference (double accumulation, reads like the
 * formula) and faster versions. The first call selects the fastest that the CPU supports, or the
 * one that the environment variable PARTUNE_ISA names (ref, avx2, avx512) if the CPU supports it.
 *
 * Devices. A pool is a stream of a backend: the CPU backend of this folder unless kn_backend_use
 * (backend.h) selects another. Operations on a pool may be asynchronous: call kn_wait before
 * anything else reads their results or changes their inputs. Operations without a pool run on the
 * host and are done when they return.
 *
 * Threads. Operations that are worth splitting take a pool. NULL is a built-in pool of the calling
 * thread alone; concurrent callers with NULL wait for each other. A pool serves one caller at a
 * time. Results are bit for bit reproducible for a given number of threads and blocking.
 */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/gpu.h"

typedef uint16_t kn_bf16; /* the upper half of an fp32 */

enum kn_type { KN_F32, KN_BF16 };

static inline size_t kn_type_size(enum kn_type type)
{
    return type == KN_F32 ? 4 : 2;
}

/* ---- instruction sets and threads ---------------------------------------- */

enum kn_isa { KN_REF, KN_AVX2, KN_AVX512, KN_ISA_COUNT };

enum kn_isa kn_isa_best(void); /* the best one that this CPU and this build support */
enum kn_isa kn_isa(void);      /* the one in use */
const char *kn_isa_name(enum kn_isa isa);
bool kn_isa_parse(enum kn_isa *ret, const char *name);
/* Use ISA from now on; false, without a change, if the CPU lacks it. Not while operations run. */
bool kn_isa_set(enum kn_isa isa);

struct kn_pool;

/* Memory that a pool holds for each of its threads (packed blocks of GEMM and attention). */
enum { KN_SCRATCH_BYTES = 6 << 20 };

/* A pool of THREADS threads, of which the caller is one. NULL if out of memory or threads. 0: a
 * stream alone, without scratch memory, for a library of the device: no operation of this header
 * but marks, waits and copies. */
struct kn_pool *kn_pool_new(int threads);
/* The same on the host, whatever the current backend: for the host's own work next to a device. */
struct kn_pool *kn_pool_new_host(int threads);
struct kn_pool *kn_pool_free(struct kn_pool *pool); /* accepts NULL; returns NULL */
int kn_pool_threads(const struct kn_pool *pool);
size_t kn_pool_bytes(int threads); /* what kn_pool_new allocates */

/* How long an idle worker spins before it sleeps. 0 where ranks and threads outnumber the cores. */
void kn_pool_set_spin(struct kn_pool *pool, unsigned microseconds);

/* The calling thread calls FN(ARG) inside long operations (about every 50 us of GEMM or attention,
 * every few rows of a pass over memory) and at the end of each, so that communication overlaps with
 * computation. FN may call only operations without a pool. NULL switches polling off. */
void kn_pool_set_poll(struct kn_pool *pool, void (*fn)(void *arg), void *arg);

/* Run FN(ARG, i, n) on each thread i of n at once; returns when all are done. */
void kn_pool_run(struct kn_pool *pool, void (*fn)(void *arg, int thread, int threads), void *arg);

/* Memory of the current backend that the host reaches, too: zeroed; NULL if out of memory. Free it
 * under the same backend. */
void *kn_alloc(size_t bytes);
void kn_free(void *memory, size_t bytes);
/* The same where the host need not reach it: the memory in which operations are fast. */
void *kn_alloc_own(size_t bytes);
void kn_free_own(void *memory, size_t bytes);
/* Bytes of that memory which nobody uses now; 0: the backend does not know, or has none. */
size_t kn_unused_own(void);
/* Is what kn_alloc_own gives out of the host's reach, under the backend of POOL? */
bool kn_apart(const struct kn_pool *pool);
/* TO = FROM, in the order of POOL's operations; either side is memory of the backend or of the
 * host. */
void kn_copy(struct kn_pool *pool, void *to, const void *from, size_t bytes);
/* Block until all operations on POOL are done. */
void kn_wait(struct kn_pool *pool);
/* While the calling thread waits for the device, there or in an operation that returns a value, it
 * calls FN(ARG) again and again, which may pause, and need not return. NULL: it waits at once. */
void kn_pool_set_idle(struct kn_pool *pool, void (*fn)(void *arg), void *arg);

/* Between two pools of one backend. Point N < KN_MARKS of POOL is after its operations so far; what
 * is launched on FOLLOWER from now on begins when POOL's last point N is reached, at once if there
 * is none. No call waits. */
enum { KN_MARKS = 64 };
void kn_mark(struct kn_pool *pool, unsigned n);
void kn_follow(struct kn_pool *follower, struct kn_pool *pool, unsigned n);
/* POOL's last point N is reached, or there is none. */
bool kn_reached(struct kn_pool *pool, unsigned n);
/* Times of a pool whose operations are asynchronous. Stamp N < KN_STAMPS of POOL is the moment at
 * which its operations so far are done. kn_stamped: nanoseconds between two stamps, of which TO was
 * made later; false until TO is reached. No call waits. */
enum { KN_STAMPS = 2048 };
void kn_stamp(struct kn_pool *pool, unsigned n);
bool kn_stamped(uint64_t *ret_ns, struct kn_pool *pool, unsigned from, unsigned to);
/* False: operations are done when they return, and there are no stamps. */
bool kn_stamps(const struct kn_pool *pool);
/* The stream of POOL as libraries of its device take it (a cudaStream_t); NULL: there are none. */
void *kn_native(const struct kn_pool *pool);

struct kn_backend; /* backend.h */
/* New pools and memory are BACKEND's from now on; NULL, and until the first call: the host's. Call
 * it at the start of a program or between runs: a pool and the memory it is used with have one
 * backend. */
void kn_backend_use(const struct kn_backend *backend);

/* ---- matrix multiplication ----------------------------------------------- */

/*
 * C = beta C + op(A) op(B), with op(A) (m, k), op(B) (k, n), C (m, n). beta is 0 or 1; C is not
 * read when it is 0. Hugging Face stores a linear layer's weight W as (out, in), so with x
 * (tokens, in):
 *
 *   forward  y  = x W^T       a = x, b = W, tb = true
 *   dgrad    dx = dy W        a = dy, b = W
 *   wgrad    dW += dy^T x     a = dy, b = x, ta = true, beta = 1, ct = KN_F32
 */
struct kn_gemm {
    size_t m, n, k;
    const void *a; /* (m, k), or (k, m) with ta */
    const void *b; /* (k, n), or (n, k) with tb */
    void *c;       /* (m, n) */
    size_t lda, ldb, ldc;
    bool ta, tb;
    float beta;
    enum kn_type at, bt, ct; /* zeroed: fp32 */
};

void kn_gemm(struct kn_pool *pool, const struct kn_gemm *gemm);

static inline void kn_gemm_f32(struct kn_pool *pool, bool ta, bool tb, size_t m, size_t n, size_t k,
                               const float *a, size_t lda, const float *b, size_t ldb, float beta,
                               float *c, size_t ldc)
{
    struct kn_gemm g = {.m = m,
                        .n = n,
                        .k = k,
                        .a = a,
                        .b = b,
                        .c = c,
                        .lda = lda,
                        .ldb = ldb,
                        .ldc = ldc,
                        .ta = ta,
                        .tb = tb,
                        .beta = beta};

    kn_gemm(pool, &g);
}

/*
 * One GEMM for each expert e over the rows offsets[e] .. offsets[e + 1] - 1 of the activations;
 * weights of consecutive experts are WSTRIDE elements apart. Any group may be empty.
 *
 *   ta = false  forward, dgrad; m is ignored. A and C are row blocks, B is the expert's weight:
 *               C_e (rows_e, n) = beta C_e + A_e (rows_e, k) op(B + e WSTRIDE)
 *   ta = true   wgrad; k is ignored, tb is false. A and B are row blocks, C is the expert's
 *               weight gradient:
 *               C_e (m, n) = beta C_e + A_e (rows_e, m)^T B_e (rows_e, n)
 */
void kn_gemm_grouped(struct kn_pool *pool, const struct kn_gemm *gemm, size_t groups,
                     const int32_t *offsets /* (groups + 1) */, size_t wstride);

/*
 * The cache blocking of the GEMM is data: rows of A packed at once, and the depth (kc) and columns
 * (nc) of B that stay in the second-level cache. Calibration measures the candidates and keeps the
 * best for this machine; it is set at start-up. Not while operations run; false if out of bounds.
 */
struct kn_blocking {
    uint32_t rows, kc, nc;
};

struct kn_blocking kn_blocking_get(void);
bool kn_blocking_set(const struct kn_blocking *sizes);
size_t kn_blocking_candidates(const struct kn_blocking **ret); /* how many */

/* ROUNDS rounds of independent multiply-adds in registers; returns the FLOPs done. Timed, it is the
 * machine's peak. */
double kn_fma_loop(size_t rounds);

/* ---- RMSNorm ------------------------------------------------------------- */

/* y = x rrms (w + offset), rrms = 1 / sqrt(mean(x^2) + eps); rrms is kept for the backward pass.
 * offset is 0, or 1 where w is the scale's distance from 1 (Gemma). y may be x. */
void kn_rmsnorm_fwd(struct kn_pool *pool, enum kn_type type, void *y /* (rows, dim) */,
                    float *rrms /* (rows) */, const void *x /* (rows, dim) */,
                    const void *w /* (dim) */, size_t rows, size_t dim, float eps, float offset);

/* With s = w + offset:
 *   dx = [dx +] rrms (dy s - x rrms^2 mean(dy s x));  dw += sum over rows of dy x rrms
 * ADD: dx holds a gradient (that of the residual branch) to which this one is added. dx may be dy.
 * dw may be NULL. */
void kn_rmsnorm_bwd(struct kn_pool *pool, enum kn_type type, void *dx /* (rows, dim) */,
                    float *dw /* (dim) */, const void *dy /* (rows, dim) */,
                    const void *x /* (rows, dim) */, const void *w /* (dim) */,
                    const float *rrms /* (rows) */, size_t rows, size_t dim, bool add,
                    float offset);

/* The same for each of HEADS heads of a row, which follow each other and share w (Henry et al.,
 * "Query-key normalization for transformers", 2020; with RMSNorm as in Qwen 3). y may be x. */
void kn_headnorm_fwd(struct kn_pool *pool, enum kn_type type, void *y /* (rows, ldy) */, size_t ldy,
                     float *rrms /* (rows, heads) */, const void *x /* (rows, ldx) */, size_t ldx,
                     const void *w /* (dim) */, size_t rows, size_t heads, size_t dim, float eps,
                     float offset);
/* dx = the gradient of x; dw is added to. dx may be dy, with the same ld. */
void kn_headnorm_bwd(struct kn_pool *pool, enum kn_type type, void *dx /* (rows, lddx) */,
                     size_t lddx, float *dw /* (dim) */, const void *dy /* (rows, lddy) */,
                     size_t lddy, const void *x /* (rows, ldx) */, size_t ldx,
                     const void *w /* (dim) */, const float *rrms /* (rows, heads) */, size_t rows,
                     size_t heads, size_t dim, float offset);

/*
 * RMSNorm of rows that are divided over ranks: queries and keys under tensor parallelism where one
 * norm spans all heads, as in OLMoE and OLMo 2. DIM of WHOLE elements of each row are here. The
 * caller adds up SUMS over the ranks:
 *
 *   part_sums  sums = x^2, added up over DIM
 *   part_fwd   rrms, which holds the sums over WHOLE, becomes 1 / sqrt(sums / whole + eps);
 *              y = x rrms (w + offset). y may be x, with the same ld
 *   part_dots  sums = dy (w + offset) x, added up over DIM
 *   part_bwd   of the sums over WHOLE: dx = rrms (dy (w + offset) - x rrms^2 sums / whole);
 *              dw += sum over rows of dy x rrms. dx may be dy, with the same ld
 */
void kn_rmsnorm_part_sums(struct kn_pool *pool, enum kn_type type, float *sums /* (rows) */,
                          const void *x /* (rows, ldx) */, size_t ldx, size_t rows, size_t dim);
void kn_rmsnorm_part_fwd(struct kn_pool *pool, enum kn_type type, void *y /* (rows, ldy) */,
                         size_t ldy, float *rrms /* (rows) */, const void *x /* (rows, ldx) */,
                         size_t ldx, const void *w /* (dim) */, size_t rows, size_t dim,
                         size_t whole, float eps, float offset);
void kn_rmsnorm_part_dots(struct kn_pool *pool, enum kn_type type, float *sums /* (rows) */,
                          const void *dy /* (rows, lddy) */, size_t lddy,
                          const void *x /* (rows, ldx) */, size_t ldx, const void *w /* (dim) */,
                          size_t rows, size_t dim, float offset);
void kn_rmsnorm_part_bwd(struct kn_pool *pool, enum kn_type type, void *dx /* (rows, lddx) */,
                         size_t lddx, float *dw /* (dim) */, const void *dy /* (rows, lddy) */,
                         size_t lddy, const void *x /* (rows, ldx) */, size_t ldx,
                         const void *w /* (dim) */, const float *rrms /* (rows) */,
                         const float *sums /* (rows) */, size_t rows, size_t dim, size_t whole,
                         float offset);

/* ---- LayerNorm ----------------------------------------------------------- */

/* y = (x - mean) rstd (w + offset) + b, rstd = 1 / sqrt(mean((x - mean)^2) + eps); mean and rstd of
 * each row are kept in STATS, for backward. OFFSET as in kn_rmsnorm_fwd. y may be x, b NULL (0). */
void kn_layernorm_fwd(struct kn_pool *pool, enum kn_type type, void *y /* (rows, dim) */,
                      float *stats /* (rows, 2) */, const void *x /* (rows, dim) */,
                      const void *w /* (dim) */, const void *b /* (dim) */, size_t rows, size_t dim,
                      float eps, float offset);

/* With n = (x - mean) rstd and g = dy (w + offset):
 *   dx = [dx +] rstd (g - mean(g) - n mean(g n));  dw += sum of dy n;  db += sum of dy
 * ADD as in kn_rmsnorm_bwd. dx may be dy, and db NULL. */
void kn_layernorm_bwd(struct kn_pool *pool, enum kn_type type, void *dx /* (rows, dim) */,
                      float *dw /* (dim) */, float *db /* (dim) */,
                      const void *dy /* (rows, dim) */, const void *x /* (rows, dim) */,
                      const void *w /* (dim) */, const float *stats /* (rows, 2) */, size_t rows,
                      size_t dim, bool add, float offset);

/* ---- rotary positions ---------------------------------------------------- */

/* Fill the tables for positions FIRST, FIRST + 1, ...: cosine and sine, times AMPLITUDE (1 as a
 * rule), of pos frequency[i], computed in double. */
void kn_rope_tables(float *cos_t /* (positions, dim / 2) */,
                    float *sin_t /* (positions, dim / 2) */, size_t first, size_t positions,
                    size_t dim, const double *frequency /* (dim / 2) */, double amplitude);

/*
 * Rotate in place the first TURNED elements (even) of each of the first HEADS heads of each row of
 * x, each of width dim: rotate-half as in Hugging Face's Llama, (x1, x2) -> (x1 cos - x2 sin, x2
 * cos + x1 sin) with the halves x1, x2 of what is rotated. Row r is at position pos[r], or r % seq
 * when pos is NULL. BACKWARD rotates by the negative angle, which is the gradient. Nothing behind
 * the last rotated element of a row is touched, so x may begin within the heads.
 */
void kn_rope(struct kn_pool *pool, enum kn_type type, void *x /* (rows, ldx) */, size_t ldx,
             size_t rows, size_t heads, size_t dim, size_t turned,
             const float *cos_t /* (positions, turned / 2) */,
             const float *sin_t /* (positions, turned / 2) */,
             const int32_t *pos /* (rows) or NULL */, size_t seq, bool backward);

/* ---- keys with a shared part --------------------------------------------- */

/* Keys of multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", 2024, section 2.1): each of
 * HEADS heads of a row of k is OWN elements of its own, then SHARED ones that all heads have. */
void kn_keys_join(struct kn_pool *pool, enum kn_type type,
                  void *k /* (rows, heads (own + shared)) */, const void *x /* (rows, heads own) */,
                  const void *y /* (rows, ldy) */, size_t ldy, size_t rows, size_t heads,
                  size_t own, size_t shared);
/* The way back: dx is the heads' own part of dk, dy, of type YT, the sum over heads of the shared
 * part. */
void kn_keys_split(struct kn_pool *pool, enum kn_type type, void *dx /* (rows, lddx) */,
                   size_t lddx, enum kn_type yt, void *dy /* (rows, lddy) */, size_t lddy,
                   const void *dk /* (rows, heads (own + shared)) */, size_t rows, size_t heads,
                   size_t own, size_t shared);

/* ---- attention ----------------------------------------------------------- */

enum { KN_MAX_HEAD_DIM = 256 };

/*
 * Causal attention with grouped queries: heads % kv_heads == 0, head h reads key/value head
 * h / (heads / kv_heads). Row b seq + t of q, k, v is token t of sample b, head h starts at column
 * h d, of values and outputs at h dv; q, k and v may lie in one buffer with ldq = ldk = ldv. No
 * matrix of seq x seq is ever stored. With a window (Beltagy et al., "Longformer", 2020) a query
 * sees the last `window` keys up to its own; blocks outside of it are skipped.
 */
struct kn_attn {
    size_t batch, seq, heads, kv_heads;
    size_t d, dv; /* of a query and a key, of a value; each <= KN_MAX_HEAD_DIM */
    float scale;  /* > 0; 1 / sqrt(d) as a rule */
    float cap;    /* scores x become cap tanh(x / cap), as in kn_softcap; 0: they stay */
    enum kn_type type;
    const void *q, *k, *v; /* (batch seq, ld.) */
    size_t ldq, ldk, ldv;
    size_t window;      /* keys that a query sees, its own included; 0: all */
    const int32_t *age; /* (batch seq), or NULL: how many tokens of its document precede a query;
                         * it sees these and itself. age[t + 1] <= age[t] + 1 within a sample. */
};

/* out = softmax(capped scale q k^T, causal) v; lse = log of the row's sum of exponentials. */
void kn_attn_fwd(struct kn_pool *pool, const struct kn_attn *attn, void *out /* (batch seq, ldo) */,
                 size_t ldo, float *lse /* (batch, heads, seq) */);

/* Gradients of q, k and v, overwritten, in the type of the struct kn_attn. */
struct kn_attn_grad {
    const void *o, *d_o; /* (batch seq, ldo), (batch seq, lddo) */
    size_t ldo, lddo;
    const float *lse;   /* (batch, heads, seq) of the forward pass */
    void *dq, *dk, *dv; /* (batch seq, ldd.) */
    size_t lddq, lddk, lddv;
};

/* Bytes of workspace of kn_attn_bwd: batch seq heads floats; with bf16 storage, batch seq
 * (heads + kv_heads (d + dv)). The forward pass needs no workspace. */
size_t kn_attn_bwd_bytes(const struct kn_attn *attn);
void kn_attn_bwd(struct kn_pool *pool, const struct kn_attn *attn, const struct kn_attn_grad *grad,
                 void *workspace);

/*
 * A part of the same: queries against some of the keys that they see, as ring attention meets them.
 * Results are fp32, and the parts in any order make the whole. `seq` of struct kn_attn counts the
 * queries of a sample, `keys` its keys; with `causal` query t sees keys 0 to t (keys is seq), else
 * every query sees every key. A sample may be a piece of a longer one: sample b begins at row
 * b q_rows of q and of whatever has a row for each query, and at row b k_rows of k, v, dk and dv;
 * lse is (batch, heads, q_rows). With a window or ages query t is `lead` + t positions after key
 * 0: with `causal` lead is 0, else at least `keys`. Of a query that sees no key of the part, out
 * and lse stay with `merge`, else become 0 and minus infinity.
 */
struct kn_attn_part {
    size_t keys, q_rows, k_rows;
    size_t lead; /* unused without a window and ages */
    bool causal;
    bool merge; /* out and lse hold the attention over other keys, to be merged; else overwritten */
};

void kn_attn_part_fwd(struct kn_pool *pool, const struct kn_attn *attn,
                      const struct kn_attn_part *part, float *out /* (batch q_rows, ldo) */,
                      size_t ldo, float *lse /* (batch, heads, q_rows) */);
/* dq, dk and dv are fp32 and added to; lse is that of the whole attention, and so is o, in the type
 * of the struct kn_attn. WORKSPACE: batch heads seq floats. */
void kn_attn_part_bwd(struct kn_pool *pool, const struct kn_attn *attn,
                      const struct kn_attn_part *part, const struct kn_attn_grad *grad,
                      void *workspace);

/*
 * A learned logit per head in the softmax's sum, as of one more key whose value is 0 (GPT-OSS;
 * Miller, "Attention is off by one", 2023, has the logit 0). It enters once, after all keys: with
 * l = log(exp(lse) + exp(sink)), out = out exp(lse - l) and lse = l, in place. kn_attn_bwd and
 * kn_attn_part_bwd of that out and lse give the gradients of q, k and v.
 */
void kn_attn_sink_fwd(struct kn_pool *pool, enum kn_type type, void *out /* (batch seq, ldo) */,
                      size_t ldo, float *lse /* (batch, heads, seq) */,
                      const void *sink /* (heads) */, size_t batch, size_t seq, size_t heads,
                      size_t dim /* of a value */);
/* dsink -= sum over queries of exp(sink - lse) (o . d_o), of the out and lse that include it. */
void kn_attn_sink_bwd(struct kn_pool *pool, enum kn_type type, float *dsink /* (heads) */,
                      const void *o /* (batch seq, ldo) */, size_t ldo,
                      const void *d_o /* (batch seq, lddo) */, size_t lddo,
                      const float *lse /* (batch, heads, seq) */, const void *sink /* (heads) */,
                      size_t batch, size_t seq, size_t heads, size_t dim);

/* ---- embedding and loss -------------------------------------------------- */

enum { KN_IGNORE = -1 }; /* a target without loss */

/* y[r] = scale table[ids[r] - v0], or zeros where ids[r] is outside [v0, v0 + vocab), this rank's
 * shard of a vocabulary-parallel table. */
void kn_embed_fwd(struct kn_pool *pool, enum kn_type type, void *y /* (rows, dim) */,
                  const void *table /* (vocab, dim) */, const int32_t *ids /* (rows) */,
                  size_t rows, size_t dim, size_t v0, size_t vocab, float scale);
enum { KN_EMBED_ROWS = 1 << 18 };

/* dtable[ids[r] - v0] += scale dy[r]. A bf16 table is rounded once for all rows of an id; where
 * there are more rows than KN_EMBED_ROWS, it may be rounded once for each so many. */
void kn_embed_bwd(struct kn_pool *pool, enum kn_type type, enum kn_type tt /* of DTABLE */,
                  void *dtable /* (vocab, dim) */, const void *dy /* (rows, dim) */,
                  const int32_t *ids /* (rows) */, size_t rows, size_t dim, size_t v0, size_t vocab,
                  float scale);

/* Soft capping in place, x = cap tanh(x / cap), cap > 0: Bello et al., "Neural combinatorial
 * optimization with reinforcement learning", 2016, section 5; Gemma 2's logits and scores. */
void kn_softcap(struct kn_pool *pool, enum kn_type type, void *x /* (rows, ld) */, size_t ld,
                size_t rows, size_t cols, float cap);

/*
 * Softmax cross-entropy over a vocabulary that is split between ranks. This rank holds columns
 * [v0, v0 + cols) as the first COLS columns of logits; columns cols .. padded - 1 are padding that
 * is never read and gets zero gradient. The steps, and what ranks exchange between them:
 *
 *   kn_xent_max   max[r] over this rank's columns, -inf without any  -> all-reduce max
 *   kn_xent_sum   sum[r] of exp(l - max), target logit or 0          -> all-reduce sum, of both
 *   kn_xent_loss  loss[r] = log(sum) + max - target
 *   kn_xent_z     (log Z[r])^2, log Z = log(sum) + max
 *   kn_xent_grad  l = (exp(l - max) / sum (1 + 2 z log Z) - [column is target]) scale, in place:
 *                 the gradient of scale (loss + z (log Z)^2); with cap > 0 times 1 - (l / cap)^2,
 *                 so it is that of what kn_softcap made l of
 *
 * z is the coefficient of the z-loss, Chowdhery et al., "PaLM", 2022, section 5; 0: none. A target
 * of KN_IGNORE (any negative number) has loss and z-loss 0 and a zero row of gradient.
 */
void kn_xent_max(struct kn_pool *pool, enum kn_type type, float *max /* (rows) */,
                 const void *logits /* (rows, ld) */, size_t ld, size_t rows, size_t cols);
void kn_xent_sum(struct kn_pool *pool, enum kn_type type, float *sum /* (rows) */,
                 float *target /* (rows) */, const void *logits /* (rows, ld) */, size_t ld,
                 size_t rows, size_t cols, const float *max /* (rows) */,
                 const int32_t *targets /* (rows) */, size_t v0);
/* Returns the sum of the losses; *RET_COUNT is the number of rows that are not ignored. loss may be
 * NULL. */
double kn_xent_loss(float *ret_loss /* (rows) or NULL */, size_t *ret_count,
                    const float *max /* (rows) */, const float *sum /* (rows) */,
                    const float *target /* (rows) */, const int32_t *targets /* (rows) */,
                    size_t rows);
/* Returns the sum of the z-losses, without a coefficient. */
double kn_xent_z(const float *max /* (rows) */, const float *sum /* (rows) */,
                 const int32_t *targets /* (rows) */, size_t rows);
void kn_xent_grad(struct kn_pool *pool, enum kn_type type, void *logits /* (rows, ld) */, size_t ld,
                  size_t rows, size_t cols, size_t padded, const float *max /* (rows) */,
                  const float *sum /* (rows) */, const int32_t *targets /* (rows) */, size_t v0,
                  float scale, float z, float cap);

/* ---- SwiGLU, GeGLU, the clamped SwiGLU ------------------------------------------------------- */

/* y = silu(gate) up, silu(x) = x / (1 + exp(-x)). In one fused buffer, up = gate + ffn and
 * ldg = ldu = 2 ffn. */
void kn_swiglu_fwd(struct kn_pool *pool, enum kn_type type, void *y /* (rows, ldy) */, size_t ldy,
                   const void *gate /* (rows, ldg) */, size_t ldg, const void *up /* (rows, ldu) */,
                   size_t ldu, size_t rows, size_t ffn);
/* dgate and dup are overwritten. dgate may be gate and dup may be up, with the same ld. */
void kn_swiglu_bwd(struct kn_pool *pool, enum kn_type type, void *dgate /* (rows, lddg) */,
                   size_t lddg, void *dup /* (rows, lddu) */, size_t lddu,
                   const void *dy /* (rows, lddy) */, size_t lddy, const void *gate, size_t ldg,
                   const void *up, size_t ldu, size_t rows, size_t ffn);

/* The same with gelu(gate), by tanh, in place of silu(gate): "geglu" of Gemma. */
void kn_geglu_fwd(struct kn_pool *pool, enum kn_type type, void *y /* (rows, ldy) */, size_t ldy,
                  const void *gate /* (rows, ldg) */, size_t ldg, const void *up /* (rows, ldu) */,
                  size_t ldu, size_t rows, size_t ffn);
void kn_geglu_bwd(struct kn_pool *pool, enum kn_type type, void *dgate /* (rows, lddg) */,
                  size_t lddg, void *dup /* (rows, lddu) */, size_t lddu,
                  const void *dy /* (rows, lddy) */, size_t lddy, const void *gate, size_t ldg,
                  const void *up, size_t ldu, size_t rows, size_t ffn);

/* GPT-OSS's: y = (u + 1) g / (1 + exp(-1.702 g)) with g = min(gate, 7) and u = up between -7 and 7.
 * What is cut off has no gradient (modeling_gpt_oss.py of transformers: GptOssExperts). */
#define KN_CLAMP_ALPHA 1.702f
#define KN_CLAMP_LIMIT 7.0f
void kn_swiglu_clamped_fwd(struct kn_pool *pool, enum kn_type type, void *y /* (rows, ldy) */,
                           size_t ldy, const void *gate /* (rows, ldg) */, size_t ldg,
                           const void *up /* (rows, ldu) */, size_t ldu, size_t rows, size_t ffn);
void kn_swiglu_clamped_bwd(struct kn_pool *pool, enum kn_type type, void *dgate /* (rows, lddg) */,
                           size_t lddg, void *dup /* (rows, lddu) */, size_t lddu,
                           const void *dy /* (rows, lddy) */, size_t lddy, const void *gate,
                           size_t ldg, const void *up, size_t ldu, size_t rows, size_t ffn);

/* ---- activations without a gate, and biases ------------------------------ */

/*
 * GELU is of Hendrycks and Gimpel, "Gaussian error linear units", 2016, with P the normal
 * distribution; squared ReLU of So et al., "Primer", 2021:
 *
 *   KN_GELU_ERF   x P(x), P by the error function. Hugging Face's "gelu": GPT-NeoX
 *   KN_GELU_TANH  x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, the approximation in the same
 *                 paper. Hugging Face's "gelu_new" and "gelu_pytorch_tanh": GPT-2
 *   KN_RELU2      max(x, 0)^2. Hugging Face's "relu2": Nemotron
 */
enum kn_act { KN_GELU_ERF, KN_GELU_TANH, KN_RELU2 };

/* y = act(x + bias); bias NULL: none. y may be x, with the same ld. */
void kn_act_fwd(struct kn_pool *pool, enum kn_type type, void *y /* (rows, ldy) */, size_t ldy,
                const void *x /* (rows, ldx) */, size_t ldx, const void *bias /* (ffn) or NULL */,
                size_t rows, size_t ffn, enum kn_act form);
/* dx = dy act'(x + bias);  dbias, unless NULL, += sum over rows of dx, before it is rounded. dx
 * may be x or dy, with the same ld. */
void kn_act_bwd(struct kn_pool *pool, enum kn_type type, void *dx /* (rows, lddx) */, size_t lddx,
                float *dbias /* (ffn) or NULL */, const void *dy /* (rows, lddy) */, size_t lddy,
                const void *x /* (rows, ldx) */, size_t ldx, const void *bias /* (ffn) or NULL */,
                size_t rows, size_t ffn, enum kn_act form);

/* y = x + bias in every row; y may be x. */
void kn_bias_fwd(struct kn_pool *pool, enum kn_type type, void *y /* (rows, dim) */,
                 const void *x /* (rows, dim) */, const void *bias /* (dim) */, size_t rows,
                 size_t dim);
/* dbias += sum over rows of dy. */
void kn_bias_bwd(struct kn_pool *pool, enum kn_type type, float *dbias /* (dim) */,
                 const void *dy /* (rows, dim) */, size_t rows, size_t dim);

/* ---- router -------------------------------------------------------------- */

/* How a router scores experts: by a softmax over all, or each by a sigmoid (DeepSeek-V3). */
enum kn_score { KN_SOFTMAX, KN_SIGMOID };

enum { KN_MAX_GROUPS = 64 };

/*
 * The router of a layer: probs = the scores of logits; idx = the K largest of probs + BIAS in each
 * row, in descending order, the lower expert first among equals, NaN smallest; w = SCALE x their
 * probs, divided by their sum if RENORM (of sigmoids, and 1e-20).
 *
 * With GROUPS > 1, which divides the experts and is at most KN_MAX_GROUPS, only the experts of MET
 * groups are chosen from: those with the largest sums of their best K / MET (at least one) of
 * probs + BIAS (DeepSeek-AI, "DeepSeek-V3", 2024, section 2.1.2; Megatron-LM's group_limited_topk()
 * in megatron/core/transformer/moe/moe_utils.py).
 */
struct kn_router {
    size_t experts, k;
    enum kn_score score;
    bool renorm;
    bool dealt; /* idx is given, and not chosen */
    float scale;
    size_t groups, met; /* 1 and 1 without groups; k <= experts / groups x met */
    const float *bias;  /* (experts), or NULL: zeros */
};

void kn_router_fwd(struct kn_pool *pool, const struct kn_router *router,
                   float *probs /* (rows, experts) */, int32_t *idx /* (rows, k) */,
                   float *w /* (rows, k) */, const float *logits /* (rows, experts) */,
                   size_t rows);
/* dlogits from dw, the gradient of w, and dshare, that of probs divided by their sum, which for a
 * softmax is probs itself (auxiliary loss). */
void kn_router_bwd(struct kn_pool *pool, const struct kn_router *router,
                   float *dlogits /* (rows, experts) */, const float *dw /* (rows, k) */,
                   const float *dshare /* (rows, experts) or NULL */, const float *probs,
                   const int32_t *idx, const float *w, size_t rows);

/*
 * The z-loss of a router, Zoph et al., "ST-MoE", 2022, equation 5: (log Z)^2 of each row, log Z =
 * log sum_e exp(logits[e]), whatever the scores are; z_loss_func() of Megatron-LM's
 * megatron/core/transformer/moe/moe_utils.py.
 */
void kn_router_z_fwd(struct kn_pool *pool, float *log_z /* (rows) */,
                     const float *logits /* (rows, experts) */, size_t rows, size_t experts);
/* dlogits += scale 2 log Z softmax(logits), the gradient of scale (log Z)^2. */
void kn_router_z_bwd(struct kn_pool *pool, float *dlogits /* (rows, experts) */,
                     const float *logits /* (rows, experts) */, size_t rows, size_t experts,
                     float scale);

/* ---- permutation of tokens ----------------------------------------------- */

/*
 * Stable counting sort of COUNT = rows k choices by key (0 <= key < groups): offsets[g] is where
 * group g starts, src[i] the choice at sorted place i, place[c] the sorted place of choice c (the
 * inverse of src). Choice c belongs to row c / k. A negative key drops the choice: its place is -1
 * and no group counts it.
 */
void kn_sort_by_key(int32_t *offsets /* (groups + 1) */, int32_t *src /* (count) or NULL */,
                    int32_t *place /* (count) */, const int32_t *key /* (count) */, size_t count,
                    size_t groups);

/* y[i] = x[src[i] / k], i < count. */
void kn_permute(struct kn_pool *pool, enum kn_type type, void *y /* (count, dim) */,
                const void *x /* (count / k, dim) */, const int32_t *src /* (count) */,
                size_t count, size_t k, size_t dim);
/* y[r] = [y[r] +] sum over j < k of w[r, j] x[place[r, j]]; w NULL: ones, which is
 * the gradient of kn_permute. Negative places are skipped. */
void kn_unpermute(struct kn_pool *pool, enum kn_type type, void *y /* (rows, dim) */,
                  const void *x /* (n, dim) */, const int32_t *place /* (rows, k) */,
                  const float *w /* (rows, k) or NULL */, size_t rows, size_t k, size_t dim,
                  bool add);
/* dx[place[r, j]] = w[r, j] dy[r];  dw[r, j] = dy[r] . x[place[r, j]], 0 for a dropped choice. */
void kn_unpermute_bwd(struct kn_pool *pool, enum kn_type type, void *dx /* (n, dim) */,
                      float *dw /* (rows, k) or NULL */, const void *dy /* (rows, dim) */,
                      const void *x /* (n, dim); unused when dw is NULL */,
                      const int32_t *place /* (rows, k) */, const float *w /* (rows, k) or NULL */,
                      size_t rows, size_t k, size_t dim);

/* ---- flat arrays --------------------------------------------------------- */

/* Arrays of COUNT elements, unless they say otherwise. */
void kn_zero(struct kn_pool *pool, void *to /* (bytes) */, size_t bytes);
/* y = x with conversion, round to nearest even. Equal types copy. */
void kn_convert(struct kn_pool *pool, enum kn_type yt, void *y, enum kn_type xt, const void *x,
                size_t count);
/* The same for COLS columns of a matrix. */
void kn_convert_rows(struct kn_pool *pool, enum kn_type yt, void *y /* (rows, ldy) */, size_t ldy,
                     enum kn_type xt, const void *x /* (rows, ldx) */, size_t ldx, size_t rows,
                     size_t cols);
/* y = a + b; y may be a or b. */
void kn_add(struct kn_pool *pool, enum kn_type type, void *y, const void *a, const void *b,
            size_t count);
/* y = a + scale b, or scale b where A is NULL; y may be a or b. */
void kn_add_scaled(struct kn_pool *pool, enum kn_type type, void *y, const void *a, float scale,
                   const void *b, size_t count);
/* Sum of x^2, accumulated in double. */
double kn_sumsq(struct kn_pool *pool, enum kn_type type, const void *x, size_t count);

/* ---- optimizer ----------------------------------------------------------- */

/* AdamW, Loshchilov and Hutter, decoupled weight decay; STEP counts from 1. g' = grad_scale g:
 *   m = b1 m + (1 - b1) g'        v = b2 v + (1 - b2) g'^2
 *   w = w (1 - lr wd) - lr / (1 - b1^step) m / (sqrt(v / (1 - b2^step)) + eps) */
struct kn_adamw {
    float lr, beta1, beta2, eps, weight_decay, grad_scale;
    uint64_t step;
};

/* W is fp32 (master) weights; LOW, if not NULL, receives them rounded to bf16. All are (count). */
void kn_adamw(struct kn_pool *pool, const struct kn_adamw *hyper, float *w, kn_bf16 *low, float *m,
              float *v, const float *g, size_t count);

/* LAMB's direction, You et al. 2019: m and v as kn_adamw, and G, which becomes
 *   m / (1 - b1^step) / (sqrt(v / (1 - b2^step)) + eps) + wd w
 * lr is not used. All are (count). */
void kn_lamb(struct kn_pool *pool, const struct kn_adamw *hyper, const float *w, float *m, float *v,
             float *g, size_t count);

/* Momentum as PyTorch's SGD has it, without dampening. g' = grad_scale g + wd w:
 *   m = mu m + g'        g = nesterov ? g' + mu m : m */
struct kn_momentum {
    float mu, weight_decay, grad_scale;
    bool nesterov;
};

/* All are (count). */
void kn_momentum(struct kn_pool *pool, const struct kn_momentum *hyper, const float *w, float *m,
                 float *g, size_t count);

/* y = a x + b z, and LOW, if not NULL, receives it rounded to bf16; y may be x or z. */
void kn_combine(struct kn_pool *pool, float *y, kn_bf16 *low, float a, const float *x, float b,
                const float *z, size_t count);

/* ---- all of them --------------------------------------------------------- */

/*
 * The operations on a pool: what a backend provides (backend.h), and what kncheck has a check for.
 * calls.awk makes their functions from the prototypes above.
 */
/* clang-format off */
#define KN_BACKEND_OPS(X)                                                                          \
    X(gemm) X(gemm_grouped) X(rmsnorm_fwd) X(rmsnorm_bwd) X(rope) X(attn_fwd) X(attn_bwd)          \
    X(attn_part_fwd) X(attn_part_bwd) X(convert_rows)                                              \
    X(embed_fwd) X(embed_bwd) X(xent_max) X(xent_sum) X(xent_grad) X(swiglu_fwd)                   \
    X(swiglu_bwd) X(router_fwd) X(router_bwd) X(router_z_fwd) X(router_z_bwd)                      \
    X(permute) X(unpermute) X(unpermute_bwd)                                                       \
    X(zero) X(convert) X(add) X(sumsq) X(adamw) X(lamb) X(momentum) X(combine) X(headnorm_fwd)     \
    X(headnorm_bwd) X(layernorm_fwd) X(layernorm_bwd) X(act_fwd) X(act_bwd)   X(bias_fwd)          \
    X(bias_bwd) X(keys_join) X(keys_split) X(geglu_fwd) X(geglu_bwd) X(softcap)            \
    X(swiglu_clamped_fwd) X(swiglu_clamped_bwd) X(attn_sink_fwd) X(attn_sink_bwd)            \
    X(rmsnorm_part_sums) X(rmsnorm_part_fwd) X(rmsnorm_part_dots) X(rmsnorm_part_bwd)         \
    X(add_scaled)
/* clang-format on */

#endif
