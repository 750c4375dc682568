/* The file that a calibration writes: where it comes from, and what of it a later run uses. */
#include "trainer/calibrate.h"

#include "kernels/kernels.h"

/* "model name" of the first processor. */
void tr_cpu_name(char buf[128])
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[256];

    snprintf(buf, 128, "unknown");
    while (f && fgets(line, sizeof(line), f)) {
        char *colon = strchr(line, ':');

        if (!str_starts(line, "model name") || !colon)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(buf, 128, "%.120s", colon + 1 + (colon[1] == ' '));
        break;
    }
    if (f)
        fclose(f);
}

void tr_build_name(char buf[128], const char *kernels)
{
    snprintf(buf, 128, "partune %s, compiler %.60s, %s", PACKAGE_VERSION, __VERSION__, kernels);
}

int tr_profile_write(const char *path, json_t *profile, struct err *error)
{
    AUTO_FREE char *folder = mem_strdup(path), *text = NULL;
    char *slash = strrchr(folder, '/');
    AUTO_JSON *v = profile;
    int r = 0;

    if (slash && slash != folder) {
        *slash = '\0';
        r = file_mkdirs(folder, 0755, error);
    }
    text = json_dumps(v, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    if (r == 0)
        r = file_write_atomic(path, text, strlen(text), 0644, error);
    return r;
}

void tr_calibrate_use(const char *data_dir)
{
    AUTO_FREE char *path = mem_printf("%s/profiles/local.json", data_dir);
    AUTO_JSON *v = NULL;
    char cpu[128], build[128];
    const json_t *stamp, *b;
    struct kn_blocking bl;

    if (!file_exists(path) || jx_load(&v, path, 1 << 20, NULL) < 0)
        return;
    stamp = json_object_get(v, "stamp");
    b = json_object_get(stamp, "blocking");
    tr_cpu_name(cpu);
    tr_build_name(build, kn_isa_name(kn_isa()));
    if (!str_eq(json_string_value(json_object_get(stamp, "cpu")), cpu) ||
        !str_eq(json_string_value(json_object_get(stamp, "build")), build))
        return;
    bl = (struct kn_blocking){.rows = (uint32_t)json_integer_value(json_object_get(b, "rows")),
                              .kc = (uint32_t)json_integer_value(json_object_get(b, "kc")),
                              .nc = (uint32_t)json_integer_value(json_object_get(b, "nc"))};
    kn_blocking_set(&bl); /* refuses what is out of bounds */
}
