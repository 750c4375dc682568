/* Energy by powercap's counters, in a written tree: no machine that these tests have run on has the
 * real ones, or lets us read them. */
#include "tests/unit/unit.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "trainer/energy.h"

static void put(const char *root, const char *zone, const char *name, const char *text)
{
    AUTO_FREE char *folder = mem_printf("%s/%s", root, zone);
    AUTO_FREE char *path = mem_printf("%s/%s", folder, name);
    FILE *f;

    (void)mkdir(folder, 0700);
    f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "%s\n", text);
    fclose(f);
}

static void zone(const char *root, const char *folder, const char *name, const char *uj)
{
    put(root, folder, "name", name);
    put(root, folder, "energy_uj", uj);
    put(root, folder, "max_energy_range_uj", "999999999");
}

static void packages_are_added_up_and_their_parts_are_not(void **state)
{
    AUTO_FREE char *root = unit_folder("energy");
    struct tr_energy e;

    (void)state;
    zone(root, "intel-rapl:0", "package-0", "1000000");
    zone(root, "intel-rapl:1", "package-1-die-0", "5000000");
    zone(root, "intel-rapl:0:0", "core", "1000000");
    zone(root, "intel-rapl:2", "psys", "1000000");
    zone(root, "intel-rapl-mmio:0", "package-0", "1000000");
    tr_energy_open(&e, root);
    assert_int_equal(e.count, 2);
    for (int i = 0; i < 2; i++)
        tr_energy_read(&e, true);
    assert_true(e.joules == 0);
    put(root, "intel-rapl:0", "energy_uj", "4000000");
    put(root, "intel-rapl:0:0", "energy_uj", "4000000");
    put(root, "intel-rapl:2", "energy_uj", "9000000");
    put(root, "intel-rapl-mmio:0", "energy_uj", "4000000");
    put(root, "intel-rapl:1", "energy_uj", "5500000");
    tr_energy_read(&e, true);
    assert_float_equal(e.joules, 3.5, 1e-9);
    tr_energy_close(&e);
    file_remove_tree(root, NULL);
}

static void what_does_not_count_is_left_out(void **state)
{
    AUTO_FREE char *root = unit_folder("energy");
    struct tr_energy e;

    (void)state;
    zone(root, "intel-rapl:0", "package-0", "0");
    tr_energy_open(&e, root);
    put(root, "intel-rapl:0", "energy_uj", "7000000");
    tr_energy_read(&e, false);
    put(root, "intel-rapl:0", "energy_uj", "9000000");
    tr_energy_read(&e, true);
    assert_float_equal(e.joules, 2, 1e-9);
    tr_energy_close(&e);
    file_remove_tree(root, NULL);
}

static void a_counter_that_starts_again_loses_nothing(void **state)
{
    AUTO_FREE char *root = unit_folder("energy");
    struct tr_energy e;

    (void)state;
    zone(root, "intel-rapl:0", "package-0", "998999999");
    tr_energy_open(&e, root);
    put(root, "intel-rapl:0", "energy_uj", "2000000");
    tr_energy_read(&e, true);
    assert_float_equal(e.joules, 3, 1e-9);
    /* Above its own bound a counter is broken. */
    put(root, "intel-rapl:0", "energy_uj", "1000000000");
    tr_energy_read(&e, true);
    put(root, "intel-rapl:0", "energy_uj", "5");
    tr_energy_read(&e, true);
    assert_true(isnan(e.joules));
    tr_energy_close(&e);
    file_remove_tree(root, NULL);
}

static void what_cannot_be_read_is_unknown(void **state)
{
    AUTO_FREE char *root = unit_folder("energy");
    AUTO_FREE char *counter = mem_printf("%s/intel-rapl:1/energy_uj", root);
    struct tr_energy e;

    (void)state;
    tr_energy_open(&e, root);
    assert_true(isnan(e.joules)); /* no package */
    tr_energy_close(&e);
    zone(root, "intel-rapl:0", "package-0", "0");
    zone(root, "intel-rapl:1", "package-1", "0");
    tr_energy_open(&e, root);
    put(root, "intel-rapl:1", "energy_uj", "none");
    tr_energy_read(&e, true);
    assert_true(isnan(e.joules)); /* the sum of one package would be taken for that of both */
    tr_energy_close(&e);
    assert_int_equal(unlink(counter), 0);
    tr_energy_open(&e, root);
    assert_true(isnan(e.joules));
    tr_energy_read(&e, true);
    assert_true(isnan(e.joules));
    tr_energy_close(&e);
    file_remove_tree(root, NULL);
}

static void the_root_may_come_from_the_environment(void **state)
{
    AUTO_FREE char *root = unit_folder("energy");
    struct tr_energy e;

    (void)state;
    zone(root, "intel-rapl:0", "package-0", "0");
    setenv("PARTUNE_POWERCAP", root, 1);
    tr_energy_open(&e, NULL);
    unsetenv("PARTUNE_POWERCAP");
    put(root, "intel-rapl:0", "energy_uj", "1500000");
    tr_energy_read(&e, true);
    assert_float_equal(e.joules, 1.5, 1e-9);
    tr_energy_close(&e);
    file_remove_tree(root, NULL);
}

static void a_rank_that_does_not_read_has_0(void **state)
{
    struct tr_energy e = {0};

    (void)state;
    tr_energy_read(&e, true);
    assert_true(e.joules == 0);
    tr_energy_close(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packages_are_added_up_and_their_parts_are_not),
        cmocka_unit_test(what_does_not_count_is_left_out),
        cmocka_unit_test(a_counter_that_starts_again_loses_nothing),
        cmocka_unit_test(what_cannot_be_read_is_unknown),
        cmocka_unit_test(the_root_may_come_from_the_environment),
        cmocka_unit_test(a_rank_that_does_not_read_has_0),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
