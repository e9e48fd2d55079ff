/* bytes.h -- opening and reading the files of checkpoints, and digits in them. */
#ifndef LS_CKPT_BYTES_H
#define LS_CKPT_BYTES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lockstep/status.h"

/* *fd of a regular file to read; < 0 after a failure. LS_UNSAFE_PATH: a link, or no regular file. LS_INVALID: a folder.
 * LS_IO. */
ls_status ls_ckpt_open_read(const char *path, int *fd);
/* Exactly n bytes from offset on. LS_CKPT_CORRUPT: the file ends before. LS_IO. */
ls_status ls_ckpt_read_at(const char *path, int fd, void *dst, size_t n, uint64_t offset);
/* Exactly 16 lower-case hex digits at s; what follows them is not looked at. */
bool ls_ckpt_read_hex(const char *s, uint64_t *out);

#endif
