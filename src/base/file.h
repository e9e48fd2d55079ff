/* file.h -- a whole file into memory, and out of it. */
#ifndef LS_BASE_FILE_H
#define LS_BASE_FILE_H
#include <stdbool.h>
#include <stddef.h>
#include "lockstep/status.h"

/* Reads the regular file `path` of at most `limit` bytes. *data is malloc'd for the caller and has
 * a zero byte after its *n bytes. LS_IO: it cannot be read (and why); LS_BAD_FILE: it is longer
 * than limit. */
ls_status ls_file_read(const char *path, size_t limit, char **data, size_t *n);

/* Writes a whole file at once: under its name it is complete or not there (commit.h). LS_IO. */
ls_status ls_file_write(const char *path, const void *p, size_t n);

/* Whether two regular files have the same bytes; *same is false when one is not there. LS_IO: one cannot be read. */
ls_status ls_file_same(const char *a, const char *b, bool *same);

/* Makes a folder and its parents; one that exists is fine. LS_IO, LS_BAD_CONFIG: the name is too long. */
ls_status ls_mkdirs(const char *path);
/* Removes a folder, the files in it and folders of files in it, as far as it can. Links are removed, not followed. */
void ls_remove_folder(const char *path);
/* The same with folders in one another, as a run folder has them. */
void ls_remove_tree(const char *path);

/* Where a measurement of this machine, or what was fetched for its user, is saved: the file that the environment's
 * `variable` names (NULL: no variable does), else lockstep/<name> in $XDG_CACHE_HOME or ~/.cache. False where there is
 * no such place, or the variable says `none`. */
bool ls_file_cached(const char *variable, const char *name, char *path, size_t n);

#endif
