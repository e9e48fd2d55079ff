/* commit.h -- the one way a whole file comes into being.
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
#include <stddef.h>
#include <stdint.h>
#include "lockstep/status.h"

typedef struct ls_commit ls_commit;

/* Opens the temporary file, "<folder>/.<name>.<16 random hex digits>.tmp", mode 0600 less the umask.
 * LS_IO names path and reason, as in the two functions below. */
ls_status ls_commit_create(const char *path, ls_commit **out);
/* Appends n bytes. */
ls_status ls_commit_write(ls_commit *c, const void *p, size_t n);
/* Writes over n bytes at `offset` that have been written before: a header that is only known at the end. */
ls_status ls_commit_rewrite(ls_commit *c, uint64_t offset, const void *p, size_t n);
/* Flush, rename, flush the folder. Call once, after the last write. A failure of the last step
 * leaves the new file under its name, but a power cut may still undo it. */
ls_status ls_commit_finish(ls_commit *c);
/* Removes the temporary file unless finished. NULL is fine. */
void ls_commit_destroy(ls_commit *c);

#endif
