/* commit.h -- the one way a whole file, or a folder of files, comes into being.
 *
 * The bytes go to a temporary name in the same folder, are flushed to the disk,
 * and only then take the final name; the folder is flushed last. So a file
 * under its final name is whole, an older one of that name stays until then,
 * and a failure leaves nothing behind.
 *
 *     LS_TRY(ls_commit_create(path, &c));      (ls_file_write of file.h does these lines for one block)
 *     st = ls_commit_write(c, p, n);
 *     if (st == LS_OK) st = ls_commit_finish(c);
 *     ls_commit_destroy(c);
 */
#ifndef LS_BASE_COMMIT_H
#define LS_BASE_COMMIT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lockstep/status.h"

typedef struct ls_commit ls_commit;

/* Opens the temporary file, "<folder>/.<name>.<16 hex digits>.tmp", mode 0666 less the umask. The first 8 digits are
 * random, the last 8 are our process's number. LS_IO names path and reason, as in the two functions below. */
ls_status ls_commit_create(const char *path, ls_commit **out);
/* Before the first write: so many bytes will come. A large file goes past the system's cache where the file system can
 * do that: its bytes are copied once in place of twice, the cache keeps what it holds, and the flush has little left to
 * do. Never fails: without memory or support, writes go through the cache. */
void ls_commit_expect(ls_commit *c, uint64_t nbytes);
/* Appends n bytes. */
ls_status ls_commit_write(ls_commit *c, const void *p, size_t n);
/* Writes over n bytes at `offset` that have been written before: a header that is only known at the end. */
ls_status ls_commit_rewrite(ls_commit *c, uint64_t offset, const void *p, size_t n);
/* Flush, rename, flush the folder. Call once, after the last write. A failure of the last step
 * leaves the new file under its name, but a power cut may still undo it. */
ls_status ls_commit_finish(ls_commit *c);
/* Removes the temporary file unless finished. NULL is fine. */
void ls_commit_destroy(ls_commit *c);

/* A folder of files in the same way: they are written into a temporary folder beside it, each by one of the functions
 * above, and the folder takes its name when all of them are on the disk.
 *
 *     LS_TRY(ls_commit_folder_create(path, &c));
 *     ... write files into ls_commit_folder_path(c) ...
 *     if (st == LS_OK) st = ls_commit_folder_finish(c, true);
 *     ls_commit_folder_destroy(c);
 */
typedef struct ls_commit_folder ls_commit_folder;

/* Makes the temporary folder, named as a temporary file is, and the parents it lacks. LS_IO, LS_NO_MEMORY. */
ls_status ls_commit_folder_create(const char *path, ls_commit_folder **out);
const char *ls_commit_folder_path(const ls_commit_folder *c); /* of the temporary folder */
/* Flushes the folder, renames it, flushes its parent. An empty folder of that name is replaced; another one only with
 * `replace`, where the two change places at once if the file system can do that. LS_IO. */
ls_status ls_commit_folder_finish(ls_commit_folder *c, bool replace);
/* Removes the temporary folder and the files in it unless finished. NULL is fine. */
void ls_commit_folder_destroy(ls_commit_folder *c);

/* Removes a folder as ls_remove_folder does. It loses its name first, so that no reader finds half of it. */
void ls_commit_folder_remove(const char *path);
/* Removes the temporary files and folders in `folder` that process `pid` left there when it was killed. Returns their
 * number. */
int ls_commit_sweep(const char *folder, int pid);

/* For the functions above: path and a temporary name beside it into out[ls_commit_temporary_bytes(path)]. */
size_t ls_commit_temporary_bytes(const char *path);
void ls_commit_temporary(const char *path, char *out);
/* The folder that `path` is in, "." or "/" included, into out[strlen(path) + 2]. */
void ls_commit_parent(const char *path, char *out);

#endif
