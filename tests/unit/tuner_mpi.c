/* Which MPI starts the ranks: what programs say of themselves, and the command lines for them. */
#include "tests/unit/unit.h"
#include "tuner/machine/mpi.h"

#include <errno.h>
#include <sys/stat.h>

/* A program in DIR that prints TEXT. */
static char *program(const char *dir, const char *name, const char *text)
{
    char *path = mem_printf("%s/%s", dir, name);
    AUTO_FREE char *script = mem_printf("#!/bin/sh\n/bin/cat <<'END'\n%s\nEND\n", text);
    struct err e;

    assert_int_equal(file_write_atomic(path, script, strlen(script), 0700, &e), 0);
    return path;
}

/* The first lines that each version prints. */
static void an_mpi_is_known_by_what_it_prints(void **state)
{
    static const struct {
        const char *text;
        enum tn_mpi_kind kind;
        const char *name;
    } cases[] = {
        {"HYDRA build details:\n    Version:                                 4.0.2\n", TN_MPI_HYDRA,
         "MPICH 4.0.2"},
        {"mpiexec.openmpi (OpenRTE) 4.1.4\n\nReport bugs to ...", TN_MPI_OPEN, "Open MPI 4.1.4"},
        {"mpirun (Open MPI) 5.0.3\n", TN_MPI_OPEN, "Open MPI 5.0.3"},
        {"Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307", TN_MPI_HYDRA,
         "Intel MPI 2021.9"},
        {"partune-train 0.1.0, with Open MPI 4.1.4", TN_MPI_OPEN, "Open MPI 4.1.4"},
        {"partune-train 0.1.0, with MPICH 4.0.2", TN_MPI_HYDRA, "MPICH 4.0.2"},
        {"partune-train 0.1.0", TN_MPI_OTHER, ""},
        {"mpiexec version 1.2.12", TN_MPI_OTHER, ""},
    };
    AUTO_FREE char *dir = unit_folder("mpi");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_FREE char *path = program(dir, "mpiexec", cases[i].text);
        struct tn_mpi mpi = {0};

        tn_mpi_find(&mpi, path, path);
        assert_int_equal(mpi.mpiexec.kind, cases[i].kind);
        assert_string_equal(mpi.mpiexec.name, cases[i].name);
        tn_mpi_done(&mpi);
    }
    file_remove_tree(dir, NULL);
}

static void the_mpiexec_of_the_trainers_mpi_is_taken(void **state)
{
    AUTO_FREE char *dir = unit_folder("mpi");
    AUTO_FREE char *train = program(dir, "train", "partune-train 1, with Open MPI 4.1.4");
    AUTO_FREE char *mpich = program(dir, "mpiexec", "HYDRA build details:\n Version: 4.0.2");
    AUTO_FREE char *open = NULL;
    AUTO_FREE char *before = mem_strdup(getenv("PATH"));
    struct tn_mpi mpi = {0};
    struct err e;

    (void)state;
    setenv("PATH", dir, 1);
    tn_mpi_find(&mpi, NULL, train);
    assert_string_equal(mpi.mpiexec.path, mpich); /* better than none: other trainers may use it */
    assert_int_equal(tn_mpi_ready(&mpi, &e), 0);
    assert_int_equal(tn_mpi_suits(&mpi, &e), -EINVAL);
    assert_non_null(strstr(e.text, "is from MPICH 4.0.2, but "));
    assert_non_null(strstr(e.text, "is linked with Open MPI 4.1.4: each rank would run alone"));
    tn_mpi_done(&mpi);
    open = program(dir, "mpiexec.openmpi", "mpiexec.openmpi (OpenRTE) 4.1.4");
    tn_mpi_find(&mpi, NULL, train);
    assert_string_equal(mpi.mpiexec.path, open);
    assert_int_equal(tn_mpi_suits(&mpi, &e), 0);
    free(program(dir, "train", "partune-train 1, now again with MPICH")); /* it is built anew */
    tn_mpi_find(&mpi, NULL, train);
    assert_string_equal(mpi.mpiexec.path, mpich);
    tn_mpi_done(&mpi);
    tn_mpi_find(&mpi, "/nonexistent/mpiexec", train);
    assert_int_equal(tn_mpi_ready(&mpi, &e), -ENOENT);
    tn_mpi_done(&mpi);
    setenv("PATH", before, 1);
    file_remove_tree(dir, NULL);
}

static void command_lines_are_in_the_words_of_the_mpi(void **state)
{
    static const struct {
        enum tn_mpi_kind kind;
        struct tn_mpi_job job;
        const char *line; /* NULL: refused */
    } cases[] = {
        {TN_MPI_HYDRA,
         {.ranks = 2, .cpus = "0+1,2+3", .grace_s = 3},
         "mpiexec -bind-to user:0+1,2+3 -n 2"},
        {TN_MPI_HYDRA, {.ranks = 8, .hosts = "a:4,b:4"}, "mpiexec -hosts a:4,b:4 -n 8"},
        {TN_MPI_HYDRA, {.ranks = 8, .per_node = 4, .as_root = true}, "mpiexec -ppn 4 -n 8"},
        {TN_MPI_OPEN,
         {.ranks = 2, .cpus = "0,1", .supervisor = "/x/partune-run", .grace_s = 3},
         "mpiexec --map-by slot:OVERSUBSCRIBE --bind-to none --mca odls_base_sigkill_timeout 3 "
         "-n 2 /x/partune-run --bind 0,1 --"},
        {TN_MPI_OPEN,
         {.ranks = 8, .per_node = 4, .grace_s = 3, .as_root = true},
         "mpiexec --allow-run-as-root --map-by ppr:4:node:OVERSUBSCRIBE --bind-to none --mca "
         "odls_base_sigkill_timeout 3 -x PATH -x LD_LIBRARY_PATH -n 8"},
        {TN_MPI_OPEN,
         {.ranks = 8, .hosts = "a:4,b:4", .grace_s = 3},
         "mpiexec --map-by slot:OVERSUBSCRIBE --bind-to none --mca odls_base_sigkill_timeout 3 "
         "--host a:4,b:4 -x PATH -x LD_LIBRARY_PATH -n 8"},
        {TN_MPI_OTHER,
         {.ranks = 2, .cpus = "0,1", .supervisor = "/x/partune-run"},
         "mpiexec -n 2 /x/partune-run --bind 0,1 --"},
        {TN_MPI_OTHER, {.ranks = 2, .hosts = "a:1,b:1"}, NULL},
    };
    struct tn_argv env = {0};

    (void)state;
    tn_argv_add(&env, "PATH=/bin");
    tn_argv_add(&env, "OMPI_MCA_btl=self,vader");
    tn_argv_add(&env, "LD_LIBRARY_PATH=/lib");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tn_mpi mpi = {.mpiexec = {.path = mem_strdup("mpiexec"), .kind = cases[i].kind}};
        struct tn_mpi_job job = cases[i].job;
        struct tn_argv argv = {0};
        AUTO_STR line = {0};
        struct err e = {0};
        int r;

        job.env = &env;
        r = tn_mpi_argv(&argv, &mpi, &job, &e);
        for (int k = 0; k < argv.n; k++)
            str_addf(&line, "%s%s", k ? " " : "", argv.v[k]);
        if (cases[i].line)
            assert_string_equal(line.text, cases[i].line);
        else
            assert_non_null(strstr(e.text, "neither MPICH nor Open MPI"));
        assert_int_equal(r, cases[i].line ? 0 : -EINVAL);
        tn_argv_done(&argv);
        tn_mpi_done(&mpi);
    }
    tn_argv_done(&env);
}

static void a_program_that_does_not_answer_is_ended(void **state)
{
    static const char *const sleeps[] = {"/bin/sleep", "60", NULL};
    static const char *const none[] = {"/nonexistent/program", NULL};
    char out[16];

    (void)state;
    assert_int_equal(tn_ask(out, sizeof(out), sleeps, 50), -ETIMEDOUT);
    assert_true(tn_ask(out, sizeof(out), none, 50) < 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_mpi_is_known_by_what_it_prints),
    cmocka_unit_test(the_mpiexec_of_the_trainers_mpi_is_taken),
    cmocka_unit_test(command_lines_are_in_the_words_of_the_mpi),
    cmocka_unit_test(a_program_that_does_not_answer_is_ended),
};

UNIT_MAIN(tests)
