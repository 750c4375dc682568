#include "trainer/energy.h"

#include "base/base.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

/* The counter or bound in FD. */
static bool read_uj(uint64_t *ret, int fd)
{
    char text[32];
    ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);
    int64_t value;

    if (n <= 0)
        return false;
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' '))
        n--;
    text[n] = '\0';
    if (str_to_i64(&value, text, 0, INT64_MAX) < 0)
        return false;
    *ret = (uint64_t)value;
    return true;
}

static int open_file(const char *zone, const char *name)
{
    AUTO_FREE char *path = mem_printf("%s/%s", zone, name);

    return open(path, O_RDONLY | O_CLOEXEC);
}

/* Zones of packages only: those below them (cores, memory) are parts of them. */
static bool is_package(const char *zone)
{
    char name[8] = "";
    int fd = open_file(zone, "name");
    bool is = fd >= 0 && read(fd, name, strlen("package")) > 0 && str_eq(name, "package");

    if (fd >= 0)
        close(fd);
    return is;
}

static void add_zone(struct tr_energy *energy, const char *path)
{
    struct tr_energy_zone zone = {.fd = open_file(path, "energy_uj")};
    int range = open_file(path, "max_energy_range_uj");

    if (!read_uj(&zone.last_uj, zone.fd) || !read_uj(&zone.range_uj, range))
        energy->joules = NAN;
    if (range >= 0)
        close(range);
    energy->zone = mem_realloc(energy->zone, sizeof(zone) * (size_t)(energy->count + 1));
    energy->zone[energy->count++] = zone;
}

void tr_energy_open(struct tr_energy *energy, const char *root)
{
    const char *given = root ? root : getenv("PARTUNE_POWERCAP");
    const char *from = given ? given : "/sys/class/powercap";
    DIR *folder = opendir(from);
    struct dirent *entry;

    *energy = (struct tr_energy){0};
    while (folder && (entry = readdir(folder))) {
        AUTO_FREE char *path = mem_printf("%s/%s", from, entry->d_name);

        if (str_starts(entry->d_name, "intel-rapl:") && is_package(path))
            add_zone(energy, path);
    }
    if (folder)
        closedir(folder);
    if (energy->count == 0)
        energy->joules = NAN;
}

void tr_energy_read(struct tr_energy *energy, bool counts)
{
    for (int i = 0; i < energy->count && !isnan(energy->joules); i++) {
        struct tr_energy_zone *zone = &energy->zone[i];
        uint64_t now, grown;

        if (!read_uj(&now, zone->fd) || (now < zone->last_uj && zone->last_uj > zone->range_uj)) {
            energy->joules = NAN;
            return;
        }
        grown = now >= zone->last_uj ? now - zone->last_uj : zone->range_uj - zone->last_uj + now;
        zone->last_uj = now;
        if (counts)
            energy->joules += (double)grown * 1e-6;
    }
}

void tr_energy_close(struct tr_energy *energy)
{
    for (int i = 0; i < energy->count; i++)
        if (energy->zone[i].fd >= 0)
            close(energy->zone[i].fd);
    free(energy->zone);
    *energy = (struct tr_energy){0};
}
