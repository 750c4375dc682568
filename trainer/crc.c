#include "trainer/crc.h"

#ifdef HAVE_DEFLATE
#include <libdeflate.h>
#endif
#include <zlib.h>

uint32_t tr_crc32(uint32_t crc, const void *in, size_t size)
{
#ifdef HAVE_DEFLATE
    return libdeflate_crc32(crc, in, size);
#else
    return (uint32_t)crc32_z(crc, in, size);
#endif
}

uint32_t tr_crc32_combine(uint32_t a, uint32_t b, uint64_t size)
{
    return (uint32_t)crc32_combine(a, b, (z_off_t)size);
}
