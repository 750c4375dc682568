/*
 * What is read from Slurm's commands, by recorded answers: those that a Slurm without accounting,
 * without cgroups and with two nodes on loopback cannot be made to give. tests/launch/slurm.t runs
 * the rest for real.
 */
#include "tests/unit/unit.h"

#include "tuner/launch/slurm/slurm.h"
#include "tuner/machine/argv.h"
#include "tuner/machine/machine.h"
#include "tuner/state/service.h"
#include "tuner/tuner.h"

static void lines_of_squeue_are_read(void **state)
{
    static const char answer[] = "17|RUNNING|partune-a-b|None|n[1-2]\n"
                                 "slurm_load_jobs error: something\n"
                                 "18|PENDING|partune-a-c|Resources|\n"
                                 "19|CANCELLED by 1000|x|None|n1\n"
                                 "20|COMPLETING|y|None|n2";
    static const char *const ids[] = {"17", "18", "19", "20"};
    static const enum tn_slurm_phase phases[] = {SLURM_RUNNING, SLURM_PENDING, SLURM_ENDED,
                                                 SLURM_ENDING};
    const char *p = answer;
    struct tn_slurm_job j;

    (void)state;
    for (int i = 0; i < 4; i++) {
        assert_true(tn_slurm_line(&j, &p));
        assert_string_equal(j.id, ids[i]);
        assert_int_equal(j.phase, phases[i]);
    }
    assert_string_equal(j.nodes, "n2");
    assert_false(tn_slurm_line(&j, &p));
}

static void shown_jobs_are_read(void **state)
{
    static const char answer[] =
        "JobId=42 JobName=partune-0f-x UserId=root(0) GroupId=root(0) MCS_label=N/A Requeue=0 "
        "Restarts=0 JobState=OUT_OF_MEMORY Reason=OutOfMemory Dependency=(null) ExitCode=0:125 "
        "ReqNodeList=(null) ExcNodeList=(null) NodeList=n[001-128] BatchHost=n001\n";
    struct tn_slurm_job j;

    (void)state;
    assert_true(tn_slurm_shown(&j, answer));
    assert_string_equal(j.id, "42");
    assert_string_equal(j.name, "partune-0f-x");
    assert_string_equal(j.state, "OUT_OF_MEMORY");
    assert_string_equal(j.nodes, "n[001-128]"); /* not the required ones */
    assert_int_equal(j.phase, SLURM_ENDED);
    assert_false(tn_slurm_shown(&j, ""));
    assert_false(tn_slurm_shown(&j, "slurm_load_jobs error: Invalid job id specified"));
}

static void accounting_gives_the_last_run_of_a_job(void **state)
{
    static const char answer[] = "42|REQUEUED\n142|FAILED\n42|NODE_FAIL\n42.batch|CANCELLED\n";
    struct tn_slurm_job j;

    (void)state;
    assert_true(tn_slurm_accounted(&j, answer, "42"));
    assert_string_equal(j.state, "NODE_FAIL");
    assert_false(tn_slurm_accounted(&j, answer, "43"));
    assert_false(tn_slurm_accounted(&j, "", "42"));
}

static void ends_are_told_apart(void **state)
{
    static const struct {
        const char *slurm, *alone, *shared;
    } ends[] = {
        {"TIMEOUT", "timeout", "preempted"},
        {"DEADLINE", "timeout", "preempted"},
        {"PREEMPTED", "preempted", "preempted"},
        {"CANCELLED", "preempted", "preempted"},
        {"REVOKED", "preempted", "preempted"},
        {"NODE_FAIL", "node_fail", "node_fail"},
        {"BOOT_FAIL", "node_fail", "node_fail"},
        {"OUT_OF_MEMORY", "oom", "oom"},
        {"COMPLETED", NULL, NULL},
        {"FAILED", NULL, NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        const char *alone = tn_slurm_verdict(ends[i].slurm, false),
                   *shared = tn_slurm_verdict(ends[i].slurm, true);

        assert_int_equal(tn_slurm_phase(ends[i].slurm), SLURM_ENDED);
        assert_true((!alone && !ends[i].alone) || str_eq(alone, ends[i].alone));
        assert_true((!shared && !ends[i].shared) || str_eq(shared, ends[i].shared));
    }
    assert_int_equal(tn_slurm_phase("REQUEUE_HOLD"), SLURM_PENDING);
    assert_int_equal(tn_slurm_phase("SOMETHING_NEW"), SLURM_RUNNING); /* wait for one we know */
}

static void words_of_slurmstepd_are_understood(void **state)
{
    static const struct {
        const char *text, *verdict;
    } said[] = {
        {"slurmstepd: error: Detected 1 oom_kill event in StepId=12.3. Some of the step tasks have "
         "been OOM Killed.\n",
         "oom"},
        {"slurmstepd: error: Detected 2 oom-kill event(s) in step 12.3 cgroup.", "oom"},
        {"slurmstepd-n1: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION "
         "***",
         "preempted"},
        {"srun: error: Node failure on n017", "node_fail"},
        {"srun: error: Unable to create step for job 21: Job/step already completing or completed",
         "preempted"},
        {"srun: error: n1: tasks 0-1: Exited with exit code 1", NULL},
        {"slurmstepd-n1: error: *** STEP 1.3 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***", NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(said); i++) {
        const char *v = tn_slurm_said(said[i].text);

        assert_true((!v && !said[i].verdict) || str_eq(v, said[i].verdict));
    }
}

static void a_transient_failure_is_no_refusal(void **state)
{
    (void)state;
    assert_true(tn_slurm_transient("sbatch: error: Batch job submission failed: Unable to contact "
                                   "slurm controller (connect failure)"));
    assert_true(tn_slurm_transient("Socket timed out on send/recv operation"));
    assert_false(tn_slurm_transient("sbatch: error: Batch job submission failed: Invalid account "
                                    "or account/partition combination specified"));
    assert_true(tn_slurm_unknown("slurm_load_jobs error: Invalid job id specified"));
    assert_false(tn_slurm_unknown("slurm_load_jobs error: Unable to contact slurm controller"));
}

static bool has_word(const struct tn_argv *v, const char *word)
{
    for (int i = 0; i < v->n; i++)
        if (!strcmp(v->v[i], word))
            return true;
    return false;
}

static void the_configuration_becomes_arguments(void **state)
{
    static const char text[] = "[slurm]\nmode = jobs\nbin = /opt/slurm/bin\npartition = p\n"
                               "account = a b\nextra = --exclusive\nextra = --constraint=x\n"
                               "gres = gpu\ncpus-per-device = 8\nstep-extra = --mem=0\n";
    static const char *const wanted[] = {"--partition=p",  "--account=a b",  "--exclusive",
                                         "--constraint=x", "--gres=gpu:4",   "--nodes=2",
                                         "--ntasks=8",     "--time=1:00:00", "--cpus-per-task=8"};
    struct tn_slurm_shape s = {2, 8, 4, 1, false};
    struct conf *conf = NULL;
    struct tn_argv v = {0};
    struct tn_service *svc = mem_alloc(sizeof(*svc));
    struct tn_machine machine = {.mpi.train.kind = TN_MPI_HYDRA};
    struct err e = {0};

    (void)state;
    svc->machine = &machine;
    assert_int_equal(conf_parse(&conf, text, "test.conf", &e), 0);
    svc->config.conf = conf;
    assert_int_equal(tn_settings_check(conf, &e), 0);
    tn_slurm_sbatch(&v, svc, "any", &s, "name", "1:00:00");
    assert_string_equal(v.v[0], "/opt/slurm/bin/sbatch");
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
        assert_true(has_word(&v, wanted[i]));
    tn_argv_done(&v);
    tn_slurm_srun(&v, svc, "any", &s, "name", "17", 3);
    assert_true(has_word(&v, "--jobid=17") && has_word(&v, "--relative=3") &&
                has_word(&v, "--exact") && has_word(&v, "--mpi=pmi2") && has_word(&v, "--mem=0") &&
                has_word(&v, "--kill-on-bad-exit=1"));
    tn_argv_done(&v);
    machine.mpi.train.kind = TN_MPI_OPEN;
    tn_slurm_srun(&v, svc, "any", &s, "name", "17", 3);
    assert_true(has_word(&v, "--mpi=pmix"));
    tn_argv_done(&v);
    conf_free(conf);
    conf = NULL;
    assert_int_equal(conf_parse(&conf, "[slurm]\nmode = sometimes\n", "test.conf", &e), 0);
    assert_int_equal(tn_settings_check(conf, &e), -EINVAL);
    assert_non_null(strstr(e.text, "test.conf:2: mode is steps or jobs or inside"));
    conf_free(conf);
    conf = NULL;
    assert_int_equal(conf_parse(&conf, "[slurm]\npartitoin = p\n", "test.conf", &e), 0);
    assert_int_equal(tn_settings_check(conf, &e), -EINVAL);
    assert_non_null(strstr(e.text, "did you mean partition"));
    conf_free(conf);
    free(svc);
}

static void a_section_of_a_cluster_replaces_what_it_names(void **state)
{
    static const char text[] = "[slurm]\npartition = p\naccount = a\nextra = --x\nextra = --y\n"
                               "[slurm \"h100\"]\npartition = h\nextra = --z\nnodes = 2\n";
    struct tn_slurm_shape s = {2, 8, 4, 1, false};
    struct conf *conf = NULL;
    struct tn_argv v = {0};
    struct tn_service *svc = mem_alloc(sizeof(*svc));
    struct err e = {0};

    (void)state;
    assert_int_equal(conf_parse(&conf, text, "test.conf", &e), 0);
    svc->config.conf = conf;
    assert_int_equal(tn_settings_check(conf, &e), 0);
    tn_slurm_sbatch(&v, svc, "h100", &s, "name", NULL);
    assert_true(has_word(&v, "--partition=h") && has_word(&v, "--account=a") &&
                has_word(&v, "--z") && !has_word(&v, "--x"));
    tn_argv_done(&v);
    tn_slurm_sbatch(&v, svc, "a100", &s, "name", NULL);
    assert_true(has_word(&v, "--partition=p") && has_word(&v, "--x") && has_word(&v, "--y") &&
                !has_word(&v, "--z"));
    tn_argv_done(&v);
    conf_free(conf);
    free(svc);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(lines_of_squeue_are_read),
    cmocka_unit_test(shown_jobs_are_read),
    cmocka_unit_test(accounting_gives_the_last_run_of_a_job),
    cmocka_unit_test(ends_are_told_apart),
    cmocka_unit_test(words_of_slurmstepd_are_understood),
    cmocka_unit_test(a_transient_failure_is_no_refusal),
    cmocka_unit_test(the_configuration_becomes_arguments),
    cmocka_unit_test(a_section_of_a_cluster_replaces_what_it_names),
};

UNIT_MAIN(tests)
