/* Files and folders: whole reads, atomic writes, paths, locks. Errors name the path. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Whole file, NUL-terminated; *RET_SIZE without the NUL (may be NULL). -EFBIG over MAX_BYTES.
 * Caller frees. */
int file_read_all(char **ret, size_t *ret_size, const char *path, size_t max_bytes,
                  struct err *error);

/* Replace PATH so that a reader, also after a crash, sees the old or the new content and nothing
 * between: temporary file in the same folder, fsync, rename, fsync of the folder. */
int file_write_atomic(const char *path, const void *bytes, size_t size, unsigned mode,
                      struct err *error);

/* write() until all is written or it fails; negative errno. */
int file_write_fd(int fd, const void *bytes, size_t size);

/* Create folder PATH and its parents, as mkdir -p. */
int file_mkdirs(const char *path, unsigned mode, struct err *error);

/* Remove a file or a folder with all it holds; absent is success. Symbolic links are not followed.
 */
int file_remove_tree(const char *path, struct err *error);

/* What the folder and all that it holds take on the disk; 0 if it is absent. */
int64_t file_tree_bytes(const char *path);

/* fsync the folder that holds PATH, so that a rename into it lasts. */
int file_sync_parent(const char *path);

bool file_exists(const char *path);

/* Take an exclusive lock on PATH (created if absent), held until the descriptor is closed.
 * -EBUSY if another process holds it. */
int file_lock(int *ret_fd, const char *path, struct err *error);

/* Name of the file system of PATH if it is a network one on which SQLite's WAL fails ("nfs",
 * "lustre", "gpfs", "cifs"…), else NULL. */
const char *file_network_fs(const char *path);

#endif
