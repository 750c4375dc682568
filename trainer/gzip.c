#include "trainer/gzip.h"

#include "base/base.h"

#include <errno.h>

int tr_gzip_open(struct tr_gzip *ret, const char *path, struct err *error)
{
    *ret = (struct tr_gzip){.file = gzopen(path, "rbe"), .path = path};
    if (!ret->file)
        return err_set(error, errno ? -errno : -ENOMEM, "open %s: %s", path, strerror(errno));
    return 0;
}

void tr_gzip_close(struct tr_gzip *gzip)
{
    gzclose(gzip->file);
}

int tr_gzip_read(void *ret, struct tr_gzip *gzip, unsigned size, struct err *error)
{
    int got = gzread(gzip->file, ret, size), code;
    const char *why = gzerror(gzip->file, &code);

    if (got < 0 || (got == 0 && !gzeof(gzip->file)))
        return err_set(error, -EIO, "read %s: %s", gzip->path, why);
    if (code == Z_BUF_ERROR) /* zlib 1.3.2 has forgotten it after the next read */
        gzip->truncated = true;
    return got;
}

int tr_gzip_check_end(const struct tr_gzip *gzip, struct err *error)
{
    if (!gzip->truncated)
        return 0;
    return err_set(error, -EIO, "%s is truncated: its gzip data are incomplete", gzip->path);
}
