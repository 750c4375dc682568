/*
 * CRC-32 as zlib and gzip have it, of many bytes: by libdeflate where the build has it, which uses
 * the processor's carry-less products (five times as fast as Debian 12's zlib), else by zlib.
 */
#ifndef TRAINER_CRC_H
#define TRAINER_CRC_H

#include <stddef.h>
#include <stdint.h>

/* CRC of the SIZE bytes IN behind those that CRC is of (0: none). */
uint32_t tr_crc32(uint32_t crc, const void *in, size_t size);
/* CRC of the bytes that A is of and, behind them, the SIZE that B is of. */
uint32_t tr_crc32_combine(uint32_t a, uint32_t b, uint64_t size);

#endif
