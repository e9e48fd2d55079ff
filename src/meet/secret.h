/* secret.h -- what the processes of one job know and nobody else: 32 random bytes.
 *
 * On one host the launcher makes them and hands them down in a memory file. For several hosts they stand in a file
 * that its owner alone can read, as 64 hex digits. They are never an argument, in the environment or in a log.
 */
#ifndef LS_MEET_SECRET_H
#define LS_MEET_SECRET_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lockstep/status.h"

#define LS_SECRET_BYTES 32

/* LS_UNSAFE_PATH: not a regular file; LS_UNSAFE_MODE: not ours, or others may look into it; LS_BAD_FILE: not 64 hex
 * digits; LS_IO. */
ls_status ls_secret_read(const char *path, uint8_t secret[LS_SECRET_BYTES]);
/* From a memory file. LS_AUTH_FAILED. */
ls_status ls_secret_read_fd(int fd, uint8_t secret[LS_SECRET_BYTES]);
/* Makes a new one in a new file with mode 0600. LS_IO: it exists already, or cannot be made. */
ls_status ls_secret_new(const char *path);
void ls_secret_wipe(void *p, size_t n);

#endif
