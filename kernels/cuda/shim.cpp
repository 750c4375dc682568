/* Fibers, barriers, exchanges and matrix instructions of shim.cuh. */
#include "kernels/cuda/device.cuh"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

enum { MAX_THREADS = 1024, LANES = 32, STACK = 256 << 10, MAX_SHARED = 227 << 10 };
enum { FREE_SHARED = 48 << 10, MAX_ALLOWED = 64 };
enum state { READY, WAITING, ENDED };

struct warp {
    shim_deck deck[2];    /* of this exchange and the one before, in turn */
    unsigned shown, done; /* lanes that have shown their card; exchanges so far */
    enum shim_exchange what;
};

/* A thread of a block; the last one is the scheduler, on the caller's stack. */
struct fiber {
    ucontext_t context;
    jmp_buf resume;
    bool started;
    const void *stack;
    size_t stack_bytes;
    void *fake; /* the address sanitizer's */
    enum state state;
    unsigned index;
};

dim3 shim_grid, shim_block, shim_block_at, shim_thread_at;

static struct {
    fiber thread[MAX_THREADS], home;
    struct warp warp[MAX_THREADS / LANES];
    fiber *self;
    unsigned threads, at_barrier, ended;
    void (*body)(const void *arg);
    const void *arg;
    const char *name;
    void *shared;
    bool reverse;
} shim;

void shim_reverse(bool reverse)
{
    shim.reverse = reverse;
}

void *shim_shared(void)
{
    return shim.shared;
}

[[noreturn]] static void broken(const char *why)
{
    fprintf(stderr, "%s: thread %u of block (%u, %u, %u): %s\n", shim.name ? shim.name : "the host",
            shim.self ? shim.self->index : 0, shim_block_at.x, shim_block_at.y, shim_block_at.z,
            why);
    abort();
}

/* ---- the device's own memory --------------------------------------------- */

enum { MAX_OWN = 64 };

static struct {
    void *at;
    size_t bytes;
} own[MAX_OWN];

void *shim_own(size_t bytes)
{
    for (auto &o : own) {
        void *at;

        if (o.at)
            continue;
        at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED)
            return NULL;
        o = {at, bytes};
        return at;
    }
    return NULL;
}

void shim_own_free(void *memory, size_t bytes)
{
    for (auto &o : own) {
        if (!memory || o.at != memory)
            continue;
        if (o.bytes != bytes)
            broken("memory is freed with another size than it has");
        o = {};
        munmap(memory, bytes);
        return;
    }
    broken("what is freed is no memory of the device, or was freed before");
}

void shim_own_open(bool open)
{
    for (const auto &o : own)
        if (o.at && mprotect(o.at, o.bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE))
            abort();
}

/* ---- fibers -------------------------------------------------------------- */

#ifdef __SANITIZE_ADDRESS__

/* swapcontext enters the kernel, but this is what the sanitizer can follow. */
static void change(fiber *from, fiber *to)
{
    shim.self = to;
    __sanitizer_start_switch_fiber(&from->fake, to->stack, to->stack_bytes);
    swapcontext(&from->context, &to->context);
    __sanitizer_finish_switch_fiber(from->fake, NULL, NULL);
}

static void arrived(void)
{
    __sanitizer_finish_switch_fiber(NULL, &shim.home.stack, &shim.home.stack_bytes);
}

#else

static void change(fiber *from, fiber *to)
{
    shim.self = to;
    if (_setjmp(from->resume))
        return;
    if (to->started)
        _longjmp(to->resume, 1);
    to->started = true;
    setcontext(&to->context);
}

static void arrived(void)
{
}

#endif

static void place(unsigned index)
{
    shim_thread_at.x = index % shim_block.x;
    shim_thread_at.y = index / shim_block.x % shim_block.y;
    shim_thread_at.z = index / shim_block.x / shim_block.y;
}

/* The thread after INDEX that can run, or the scheduler. */
static fiber *next(unsigned index)
{
    for (unsigned i = 1; i <= shim.threads; i++) {
        unsigned at = (shim.reverse ? index + shim.threads - i : index + i) % shim.threads;

        if (shim.thread[at].state == READY) {
            place(at);
            return &shim.thread[at];
        }
    }
    return &shim.home;
}

static void live(void)
{
    fiber *me = shim.self;

    arrived();
    for (;;) {
        shim.body(shim.arg);
        me->state = ENDED;
        shim.ended++;
        change(me, next(me->index));
    }
}

static void make(fiber *thread, unsigned index)
{
    void *stack;

    thread->index = index;
    if (thread->stack)
        return;
    stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                 -1, 0);
    if (stack == MAP_FAILED)
        broken("no memory for its stack");
    thread->stack = stack;
    thread->stack_bytes = STACK;
    getcontext(&thread->context);
    thread->context.uc_stack.ss_sp = stack;
    thread->context.uc_stack.ss_size = STACK;
    thread->context.uc_link = NULL;
    makecontext(&thread->context, live, 0);
}

static void wait(void)
{
    fiber *me = shim.self;

    me->state = WAITING;
    change(me, next(me->index));
}

void __syncthreads(void)
{
    if (++shim.at_barrier < shim.threads) {
        wait();
        return;
    }
    shim.at_barrier = 0;
    for (unsigned i = 0; i < shim.threads; i++)
        shim.thread[i].state = READY;
}

shim_deck *shim_show(enum shim_exchange what, const shim_card *card)
{
    unsigned index = shim.self->index;
    struct warp *warp = &shim.warp[index / LANES];
    shim_deck *deck = &warp->deck[warp->done % 2];

    if (warp->shown == 0) {
        warp->what = what;
        deck->summed = false;
    } else if (warp->what != what) {
        broken("lanes of its warp are in different exchanges");
    }
    deck->card[index % LANES] = *card;
    if (++warp->shown < LANES) {
        wait();
        return deck;
    }
    warp->shown = 0;
    warp->done++;
    for (unsigned i = index / LANES * LANES; i < index / LANES * LANES + LANES; i++)
        shim.thread[i].state = READY;
    return deck;
}

/* ---- matrix instructions ------------------------------------------------- */

static float half_of(uint32_t pair, unsigned which)
{
    return __uint_as_float(which ? pair & 0xffff0000u : pair << 16);
}

/* Element (row, k) of A and (k, col) of B from the registers of the lane that has it. */
static float element_a(const shim_card *cards, unsigned row, unsigned k)
{
    return half_of(cards[row % 8 * 4 + k % 8 / 2].frag[row / 8 + k / 8 * 2], k % 2);
}

static float element_b(const shim_card *cards, unsigned k, unsigned col)
{
    return half_of(cards[col * 4 + k % 8 / 2].frag[4 + k / 8], k % 2);
}

void shim_mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    shim_card card = {};
    const shim_card *cards;
    unsigned lane = threadIdx.x % LANES;

    memcpy(card.frag, a, sizeof(a));
    card.frag[4] = b0;
    card.frag[5] = b1;
    cards = shim_show(SHIM_MMA, &card)->card;
    for (unsigned i = 0; i < 4; i++)
        for (unsigned k = 0; k < 16; k++)
            d[i] += element_a(cards, lane / 4 + i / 2 * 8, k) *
                    element_b(cards, k, lane % 4 * 2 + i % 2);
}

void shim_ldmatrix(uint32_t (&y)[4], const bf16 *row, bool transposed)
{
    shim_card card = {};
    const shim_card *cards;
    unsigned g = threadIdx.x % LANES / 4, t = threadIdx.x % 4;

    if ((uintptr_t)row % 16)
        broken("a row of a matrix is not on a multiple of 16 bytes");
    card.row = row;
    cards = shim_show(SHIM_LDMATRIX, &card)->card;
    for (unsigned j = 0; j < 4; j++) {
        uint32_t pair = 0;

        for (unsigned i = 0; i < 2; i++) {
            unsigned r = transposed ? 2 * t + i : g, c = transposed ? g : 2 * t + i;

            pair |= (uint32_t)((const bf16 *)cards[8 * j + r].row)[c].bits << 16 * i;
        }
        y[j] = pair;
    }
    __syncwarp(); /* nobody overwrites what another lane still reads: the instruction is one */
}

/* ---- launches ------------------------------------------------------------ */

static struct {
    const void *kernel;
    size_t bytes;
} allowed[MAX_ALLOWED];

void shim_allow(const void *kernel, size_t bytes)
{
    for (auto &a : allowed)
        if (!a.kernel || a.kernel == kernel) {
            a = {kernel, bytes};
            return;
        }
    abort();
}

static size_t allowed_shared(const void *kernel)
{
    for (const auto &a : allowed)
        if (a.kernel == kernel)
            return a.bytes;
    return FREE_SHARED;
}

static void run_block(size_t shared)
{
    shim.ended = 0;
    memset(shim.warp, 0, sizeof(shim.warp));
    memset(shim.shared, 0xff, shared); /* NaN in every type */
    for (unsigned i = 0; i < shim.threads; i++)
        shim.thread[i].state = READY;
    change(&shim.home, next(shim.reverse ? 0 : shim.threads - 1));
    if (shim.ended < shim.threads)
        broken("others wait for a thread that has ended or waits elsewhere");
}

void shim_run(const char *name, const void *kernel, dim3 grid, dim3 block, size_t shared,
              void (*body)(const void *arg), const void *arg)
{
    size_t blocks = (size_t)grid.x * grid.y * grid.z;

    shim.name = name;
    shim.threads = block.x * block.y * block.z;
    shim_grid = grid;
    shim_block = block;
    if (blocks == 0 || shim.threads == 0 || shim.threads > MAX_THREADS || shim.threads % LANES ||
        grid.y > 65535 || grid.z > 65535 || shared > MAX_SHARED)
        broken("not a launch that a GPU would take");
    if (shared > FREE_SHARED && shared > allowed_shared(kernel))
        broken("more shared memory than it was allowed");
    shim.home.started = true; /* it runs now */
    shim.body = body;
    shim.arg = arg;
    shim.shared = aligned_alloc(16, (shared + 15) / 16 * 16);
    for (unsigned i = 0; i < shim.threads; i++)
        make(&shim.thread[i], i);
    shim_own_open(true);
    for (size_t b = 0; b < blocks; b++) {
        size_t at = shim.reverse ? blocks - 1 - b : b;

        shim_block_at = dim3((unsigned)(at % grid.x), (unsigned)(at / grid.x % grid.y),
                             (unsigned)(at / grid.x / grid.y));
        run_block(shared);
    }
    shim_own_open(false);
    free(shim.shared);
}
