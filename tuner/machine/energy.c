#include "tuner/machine/energy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* The first bytes of ZONE's file NAME, as text; false where it cannot be read. */
static bool read_some(char *buf, size_t size, const char *zone, const char *name)
{
    AUTO_FREE char *path = mem_printf("%s/%s", zone, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);

    if (fd >= 0)
        close(fd);
    buf[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* Count PATH if it is a package. -EACCES if its counter cannot be read. */
static int check_zone(int *packages, const char *zone, struct err *error)
{
    char name[16], energy[32];

    if (!read_some(name, sizeof(name), zone, "name") || !str_starts(name, "package"))
        return 0;
    ++*packages;
    return read_some(energy, sizeof(energy), zone, "energy_uj")
               ? 0
               : err_set(error, -EACCES, "%s/energy_uj cannot be read", zone);
}

int tn_energy_ready(struct err *error)
{
    const char *given = getenv("PARTUNE_POWERCAP"), *root = given ? given : "/sys/class/powercap";
    DIR *folder = opendir(root);
    int packages = 0, r = 0;

    for (struct dirent *entry; folder && r == 0 && (entry = readdir(folder));) {
        AUTO_FREE char *zone = mem_printf("%s/%s", root, entry->d_name);

        if (str_starts(entry->d_name, "intel-rapl:"))
            r = check_zone(&packages, zone, error);
    }
    if (folder)
        closedir(folder);
    return r < 0 || packages > 0 ? r : err_set(error, -ENOENT, "no CPU package in %s", root);
}
