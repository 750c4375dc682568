/* Which instruction sets this CPU has, and the table that follows from it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "kernels/ops.h"

static const char *const isa_names[KN_ISA_COUNT] = {"ref", "avx2", "avx512"};

static struct {
    pthread_once_t once;
    enum kn_isa isa;
    struct kn_ops ops;
} state = {.once = PTHREAD_ONCE_INIT};

enum kn_isa kn_isa_best(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return KN_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return KN_AVX2;
#endif
    return KN_REF;
}

/* Start from the reference; each level overwrites what it has. */
static void fill(enum kn_isa isa)
{
    static void (*const level[KN_ISA_COUNT])(struct kn_ops *) = {
        [KN_REF] = kn_ops_ref,
        [KN_AVX2] = kn_ops_avx2,
        [KN_AVX512] = kn_ops_avx512,
    };

    assert(isa <= kn_isa_best());
    for (int i = KN_REF; i <= (int)isa; i++)
        level[i](&state.ops);
    state.isa = isa;
}

static void init(void)
{
    const char *name = getenv("PARTUNE_ISA");
    enum kn_isa isa;

    if (!name || !kn_isa_parse(&isa, name) || isa > kn_isa_best())
        isa = kn_isa_best();
    fill(isa);
}

const struct kn_ops *kn_ops(void)
{
    pthread_once(&state.once, init);
    return &state.ops;
}

enum kn_isa kn_isa(void)
{
    kn_ops();
    return state.isa;
}

const char *kn_isa_name(enum kn_isa isa)
{
    return isa_names[isa];
}

bool kn_isa_parse(enum kn_isa *ret, const char *name)
{
    for (int i = 0; i < KN_ISA_COUNT; i++) {
        if (!strcmp(name, isa_names[i])) {
            *ret = (enum kn_isa)i;
            return true;
        }
    }
    return false;
}

bool kn_isa_set(enum kn_isa isa)
{
    kn_ops();
    if (isa > kn_isa_best())
        return false;
    fill(isa);
    return true;
}

double kn_fma_loop(size_t rounds)
{
    return kn_ops()->fma_loop(rounds);
}
