/* Single values of a resource as JSON. */
#include <math.h>

#include "tuner/results/view.h"

json_t *tn_number(double number)
{
    return isfinite(number) ? json_real(number) : json_null();
}

json_t *tn_time(int64_t ms)
{
    char buf[CLOCK_TEXT];

    return ms == DB_NULL ? json_null() : json_string(clock_format(buf, ms));
}
