/* Megatron-LM's arguments about products in fp8 and fp4 as a precision. */
#include "tuner/export/internal.h"

#include <errno.h>
#include <string.h>

int tn_megatron_narrow(bool *ret_known, struct tn_narrow *narrow, const char *flag,
                       const char *value, struct err *error)
{
    *ret_known = true;
    if (!strcmp(flag, "--fp8-format")) {
        narrow->fp8 = true;
    } else if (!strcmp(flag, "--fp4-format")) {
        narrow->fp4 = true;
    } else if (!strcmp(flag, "--fp8-recipe")) {
        if (!value)
            return err_set(error, -EINVAL, "%s needs a value", flag);
        snprintf(narrow->recipe, sizeof(narrow->recipe), "%s", value);
    } else {
        *ret_known = !strcmp(flag, "--fp4-recipe"); /* there is one */
    }
    return 0;
}

int tn_megatron_precision(struct pl_layout *layout, const struct tn_narrow *narrow,
                          struct err *error)
{
    static const struct {
        const char *recipe;
        enum pl_precision precision;
    } known[] = {
        {"", PL_FP8},
        {"delayed", PL_FP8},
        {"tensorwise", PL_FP8_CURRENT},
        {"blockwise", PL_FP8_BLOCKWISE},
        {"mxfp8", PL_MXFP8},
    };

    if (narrow->fp4 && narrow->fp8)
        return err_set(error, -EINVAL, "--fp4-format and --fp8-format exclude each other");
    if (narrow->fp4)
        layout->precision = PL_NVFP4;
    if (!narrow->fp8)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (str_eq(known[i].recipe, narrow->recipe)) {
            layout->precision = (int)known[i].precision;
            return 0;
        }
    return err_set(error, -EINVAL,
                   "unknown --fp8-recipe `%s` (delayed, tensorwise, blockwise, mxfp8)",
                   narrow->recipe);
}
