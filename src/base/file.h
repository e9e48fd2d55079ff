/* file.h -- a whole file into memory. */
#ifndef LS_BASE_FILE_H
#define LS_BASE_FILE_H
#include <stddef.h>
#include "lockstep/status.h"

/* Reads the regular file `path` of at most `limit` bytes. *data is malloc'd for the caller and has
 * a zero byte after its *n bytes. LS_IO: it cannot be read (and why); LS_BAD_FILE: it is longer
 * than limit. */
ls_status ls_file_read(const char *path, size_t limit, char **data, size_t *n);

#endif
