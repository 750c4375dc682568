/*
 * Checksums of pieces (archive.h) that several ranks write, from the memory that they write.
 *
 * CRC-32 is linear over GF(2): let L be the CRC that begins with 0 and is not inverted at the end.
 * Then L(x ^ y) = L(x) ^ L(y) for x and y of one length, zeros before a message leave L as it is,
 * and n zero bytes behind it multiply L by x^(8 n) (zlib's crc32_combine). A piece is the sum of
 * what each rank writes of it with zeros elsewhere, so
 *
 *     crc(piece) = crc(as many zeros) ^ L(what rank 0 writes) ^ L(what rank 1 writes) ^ ...
 *
 * where the terms are the ranks' shares. Each leaves its own in a file of the folder that is being
 * filled; when all have, one rank adds them up and removes the files.
 *
 * Nothing is read back, so a sum is of the bytes as they were in memory: what is damaged between
 * there and the disk differs from it when it is read. Every byte of a tensor has to be written by
 * exactly one rank, once.
 */
#ifndef TRAINER_SHARES_H
#define TRAINER_SHARES_H

#include "trainer/archive.h"

/* Of one rank, of an archive that is described; nothing is written yet. */
struct tr_shares *tr_shares_new(const struct tr_archive *archive);
struct tr_shares *tr_shares_free(struct tr_shares *shares);

AUTO_DEFINE(tr_shares)

/* This rank writes the headers of ARCHIVE, whose files are created or attached. */
void tr_shares_headers(struct tr_shares *shares, const struct tr_archive *archive);

/* This rank writes SIZE bytes IN at byte AT of a tensor of BYTES bytes whose first piece is
 * FIRST. Cheapest in ascending order. */
void tr_shares_add(struct tr_shares *shares, size_t first, uint64_t bytes, uint64_t at,
                   const void *in, size_t size);

/* Leave them in FOLDER, as those of RANK: closed, so that other hosts see them, and not synced,
 * since a folder is made anew after a crash. */
int tr_shares_leave(struct tr_shares *shares, const char *folder, int rank, struct err *error);

/* SUMS, of all pieces, of what ranks 0 to SIZE - 1 have left in FOLDER; their files are removed.
 * -EBADMSG: one is damaged. */
int tr_shares_collect(uint32_t *sums, const struct tr_archive *archive, const char *folder,
                      int size, struct err *error);

#endif
