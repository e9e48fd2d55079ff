/* gunzip.h -- a whole gzip file, unpacked in memory. */
#ifndef LS_DATA_GUNZIP_H
#define LS_DATA_GUNZIP_H
#include <stddef.h>
#include "lockstep/status.h"

/* Unpacks all members of a gzip file of n bytes, one after another: `cat a.gz b.gz` is a gzip file, too. *out is
 * malloc'd for the caller and has a zero byte after its *nout bytes. `name` stands for the file in messages.
 * LS_BAD_FILE: it is not gzip, damaged or cut off, other bytes follow, or it holds more than `limit` bytes; with the
 * byte of the file. LS_NO_MEMORY. */
ls_status ls_gunzip(const char *name, const void *file, size_t n, size_t limit, char **out, size_t *nout);

#endif
