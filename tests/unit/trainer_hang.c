/* Who is missing in a job that makes no progress, from what its ranks say of themselves. */
#include "tests/unit/unit.h"

#include "trainer/hang_find.h"

enum { WORLD = 8 };

/* Eight ranks, tp 2 x dp 2 x pp 2, tp fastest and pp slowest. */
struct job {
    struct tr_hang_rank rank[WORLD];
    bool missing[WORLD];
    enum tr_verdict verdict;
};

static void job_init(struct job *job)
{
    *job = (struct job){.verdict = TR_HANG_LOST};
    for (int i = 0; i < WORLD; i++) {
        struct tr_hang_rank *r = &job->rank[i];

        r->known = true;
        r->seconds = 12.25;
        r->host = i < WORLD / 2 ? "node-a" : "node-b";
        r->at = (struct tr_at){.section = TR_AT_STEP,
                               .step = 3,
                               .pass = TR_PASS_FORWARD,
                               .mb = 1,
                               .layer = 5,
                               .phase = TR_PHASE_FORWARD,
                               .peer = -1};
        for (int k = 0; k < TR_KINDS; k++)
            r->leader[k] = i;
        r->leader[TR_IN_WORLD] = 0;
        r->leader[TR_IN_TP] = i / 2 * 2;
        r->leader[TR_IN_DP] = i / 4 * 4 + i % 2;
    }
}

/* RANK waits in operation SEQ of its group. */
static void waits(struct job *job, int rank, enum tr_op_name name, enum tr_kind kind, uint32_t seq)
{
    struct tr_at *at = &job->rank[rank].at;

    at->op = (int32_t)name;
    at->kind = (int32_t)kind;
    at->phase = kind == TR_IN_TP ? TR_PHASE_TP : TR_PHASE_DP;
    at->seq[kind] = seq;
}

static void waits_for(struct job *job, int rank, enum tr_op_name name, int peer)
{
    waits(job, rank, name, TR_IN_PP, 0);
    job->rank[rank].at.peer = peer;
    job->rank[rank].at.phase = TR_PHASE_PP_WAIT;
}

/* The second stage waits for the first, ranks 0 to 2 for each other and so for 3. */
static void all_wait_but_rank_3(struct job *job)
{
    job_init(job);
    for (int i = 4; i < WORLD; i++)
        waits_for(job, i, TR_OP_RECV, i - 4);
    waits(job, 0, TR_OP_REDUCE_SCATTER, TR_IN_DP, 7);
    waits(job, 2, TR_OP_ALL_REDUCE, TR_IN_TP, 40);
    waits(job, 1, TR_OP_REDUCE_SCATTER, TR_IN_DP, 7);
    job->rank[3].at.seq[TR_IN_TP] = 39;
    job->rank[3].at.seq[TR_IN_DP] = 6;
}

static void find(struct job *job)
{
    job->verdict = tr_hang_find(job->missing, job->rank, WORLD);
}

static void assert_missing(const struct job *job, const char *want)
{
    char got[WORLD + 1] = "";

    for (int i = 0, n = 0; i < WORLD; i++)
        if (job->missing[i])
            got[n++] = (char)('0' + i);
    assert_string_equal(got, want);
}

static void a_rank_that_does_not_wait_is_missing(void **state)
{
    struct job job;

    (void)state;
    all_wait_but_rank_3(&job);
    find(&job);
    assert_int_equal(job.verdict, TR_HANG_BUSY);
    assert_missing(&job, "3");
    assert_true(tr_hang_awaits(job.rank, 2, 3) && tr_hang_awaits(job.rank, 1, 3));
    assert_true(tr_hang_awaits(job.rank, 6, 2) && !tr_hang_awaits(job.rank, 6, 3));
    assert_false(tr_hang_awaits(job.rank, 3, 2));
}

/* It was stopped in a wait, so what it published looks like that of the others. */
static void a_stopped_rank_is_missing_wherever_it_was(void **state)
{
    struct job job;

    (void)state;
    all_wait_but_rank_3(&job);
    waits(&job, 3, TR_OP_ALL_REDUCE, TR_IN_TP, 40);
    job.rank[3].life = TR_LIFE_STOPPED;
    find(&job);
    assert_int_equal(job.verdict, TR_HANG_STOPPED);
    assert_missing(&job, "3");
    job.rank[6].life = TR_LIFE_GONE;
    find(&job);
    assert_missing(&job, "36");
}

static void members_in_one_operation_do_not_await_each_other(void **state)
{
    struct job job;

    (void)state;
    job_init(&job);
    for (int i = 0; i < WORLD; i++)
        waits(&job, i, TR_OP_ALL_REDUCE, TR_IN_WORLD, 12);
    find(&job);
    assert_int_equal(job.verdict, TR_HANG_LOST);
    assert_missing(&job, "");
    /* A member that has gone past it is not awaited, one that has not come to it is. */
    waits(&job, 5, TR_OP_ALL_GATHER, TR_IN_WORLD, 13);
    assert_false(tr_hang_awaits(job.rank, 0, 5));
    assert_true(tr_hang_awaits(job.rank, 5, 0));
}

static void members_in_different_operations_are_a_circle(void **state)
{
    struct job job;

    (void)state;
    job_init(&job);
    for (int i = 0; i < WORLD; i++)
        waits(&job, i, TR_OP_ALL_REDUCE, TR_IN_WORLD, 12);
    waits(&job, 2, TR_OP_ALL_REDUCE, TR_IN_TP, 40);
    waits(&job, 3, TR_OP_REDUCE_SCATTER, TR_IN_TP, 40);
    find(&job);
    assert_int_equal(job.verdict, TR_HANG_CIRCLE);
    assert_missing(&job, "23");
}

static void a_silent_host_is_missing_only_if_nobody_else_is(void **state)
{
    struct job job;

    (void)state;
    job_init(&job);
    for (int i = 0; i < 4; i++)
        waits_for(&job, i, TR_OP_RECV, i + 4);
    for (int i = 4; i < WORLD; i++)
        job.rank[i].life = TR_LIFE_SILENT;
    find(&job);
    assert_int_equal(job.verdict, TR_HANG_SILENT);
    assert_missing(&job, "4567");
    job.rank[1].at.op = TR_OP_NONE;
    waits(&job, 0, TR_OP_ALL_REDUCE, TR_IN_TP, 2);
    find(&job);
    assert_int_equal(job.verdict, TR_HANG_BUSY);
    assert_missing(&job, "1");
}

/* All but WHO wait for their GPUs, in which NCCL has as many operations to do as SEQ of tp. */
static void all_wait_for_gpus_but(struct job *job, int who, uint32_t seq)
{
    job_init(job);
    for (int i = 0; i < WORLD; i++) {
        if (i == who)
            continue;
        waits(job, i, TR_OP_GPU, TR_IN_WORLD, 0);
        job->rank[i].at.seq[TR_IN_TP] = seq;
    }
}

static void a_rank_that_waits_for_its_gpu_is_not_missing(void **state)
{
    struct job job;
    AUTO_STR out = {0};

    (void)state;
    all_wait_for_gpus_but(&job, 6, 5);
    find(&job);
    assert_int_equal(job.verdict, TR_HANG_BUSY);
    assert_missing(&job, "6");
    tr_hang_line(&out, job.rank, WORLD, job.verdict, job.missing, 5);
    assert_non_null(strstr(out.text, "; 7 other ranks wait"));
}

static void a_gpu_that_was_given_fewer_operations_is_awaited(void **state)
{
    struct job job;
    AUTO_STR out = {0};

    (void)state;
    all_wait_for_gpus_but(&job, WORLD, 5);
    job.rank[3].at.seq[TR_IN_TP] = 4;
    find(&job);
    assert_int_equal(job.verdict, TR_HANG_CIRCLE);
    assert_missing(&job, "3");
    job.rank[3].at.seq[TR_IN_TP] = 5;
    find(&job);
    assert_int_equal(job.verdict, TR_HANG_LOST);
    assert_missing(&job, "");
    tr_hang_line(&out, job.rank, WORLD, job.verdict, job.missing, 5);
    assert_string_equal(out.text,
                        "no progress for 5.0 s: all ranks wait for their GPUs, which have "
                        "the same operations to do; one does not end");
}

static void where_nobody_waits_all_are_missing(void **state)
{
    struct job job;

    (void)state;
    job_init(&job);
    find(&job);
    assert_int_equal(job.verdict, TR_HANG_BUSY);
    assert_missing(&job, "01234567");
}

static void the_page_has_each_place_once_missing_ranks_first(void **state)
{
    static const char want[] =
        "# no progress for 12.2 s: rank 3 on node-a computing in step 3 > train > forward > "
        "micro-batch 1 > layer 5; 7 other ranks wait\n"
        "#   rank 3 on node-a computing in step 3 > train > forward > micro-batch 1 > layer 5 for "
        "12.2 s\n"
        "#   rank 0 on node-a waiting in step 3 > train > forward > micro-batch 1 > layer 5 > dp > "
        "reduce-scatter 7 of dp (ranks 0, 2) for 12.2 s\n"
        "#   rank 1 on node-a waiting in step 3 > train > forward > micro-batch 1 > layer 5 > dp > "
        "reduce-scatter 7 of dp (ranks 1, 3) for 12.2 s\n"
        "#   rank 2 on node-a waiting in step 3 > train > forward > micro-batch 1 > layer 5 > tp > "
        "all-reduce 40 of tp (ranks 2, 3) for 12.2 s\n"
        "#   ranks 4-7 on node-b waiting in step 3 > train > forward > micro-batch 1 > layer 5 > "
        "all-reduce 2 of world for 12.2 s\n";
    struct job job;
    AUTO_STR out = {0};

    (void)state;
    all_wait_but_rank_3(&job);
    for (int i = 4; i < WORLD; i++) {
        waits(&job, i, TR_OP_ALL_REDUCE, TR_IN_WORLD, 2);
        job.rank[i].at.peer = -1;
        job.rank[i].at.phase = TR_PHASE_OTHER;
    }
    find(&job);
    tr_hang_page(&out, "# ", job.rank, WORLD, job.verdict, job.missing, 12.25);
    assert_string_equal(out.text, want);
}

static void the_line_names_operation_and_process(void **state)
{
    struct job job;
    AUTO_STR out = {0};

    (void)state;
    all_wait_but_rank_3(&job);
    job.rank[3].state = 'S';
    snprintf(job.rank[3].place, sizeof(job.rank[3].place), "pipe_read");
    job.rank[3].at.section = TR_AT_SAMPLES;
    find(&job);
    tr_hang_line(&out, job.rank, WORLD, job.verdict, job.missing, 61);
    assert_string_equal(out.text, "no progress for 61.0 s: rank 3 on node-a in a system call "
                                  "(pipe_read) in step 3 > read samples; 7 other ranks wait");
    str_trunc(&out, 0);
    waits_for(&job, 3, TR_OP_SEND, 7);
    job.rank[3].at.section = TR_AT_STEP;
    job.rank[3].life = TR_LIFE_STOPPED;
    job.rank[3].state = 'T';
    find(&job);
    tr_hang_line(&out, job.rank, WORLD, job.verdict, job.missing, 10);
    assert_string_equal(out.text,
                        "no progress for 10.0 s: rank 3 on node-a stopped by a signal in step 3 "
                        "> train > forward > micro-batch 1 > layer 5 > pp_wait > send to rank 7 "
                        "(pp); 7 other ranks wait");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_does_not_wait_is_missing),
        cmocka_unit_test(a_stopped_rank_is_missing_wherever_it_was),
        cmocka_unit_test(members_in_one_operation_do_not_await_each_other),
        cmocka_unit_test(members_in_different_operations_are_a_circle),
        cmocka_unit_test(a_silent_host_is_missing_only_if_nobody_else_is),
        cmocka_unit_test(a_rank_that_waits_for_its_gpu_is_not_missing),
        cmocka_unit_test(a_gpu_that_was_given_fewer_operations_is_awaited),
        cmocka_unit_test(where_nobody_waits_all_are_missing),
        cmocka_unit_test(the_page_has_each_place_once_missing_ranks_first),
        cmocka_unit_test(the_line_names_operation_and_process),
    };

    return cmocka_run_group_tests_name("hang", tests, NULL, NULL);
}
