/*
 * Whose files are read, and what is said of a file that says that it is another's.
 */
#include "tuner/export/internal.h"

#include <errno.h>

static const char *const names[] = {"megatron", "deepspeed", "torchtitan", NULL};

const char *const *tn_importers(void)
{
    return names;
}

int tn_other_framework(const char *framework, int line, struct err *error)
{
    for (int i = 0; names[i]; i++)
        if (str_eq(names[i], framework))
            return err_set(error, -EINVAL,
                           "line %d: this is a file for %s: import it as that (--from)", line,
                           framework);
    return err_set(error, -EINVAL, "line %d: no importer reads files for %.40s", line, framework);
}

int tn_import_uncalled(struct err *error)
{
    return err_set(error, -EINVAL, "this is no job script, which alone can be called");
}
