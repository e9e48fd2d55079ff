/* saving.h -- a save from the inside: a checkpoint of all ranks, each of which writes its files, and rank 0 makes them
 * a checkpoint.
 *
 *   1. rank 0   a temporary folder beside the final one, its name to all ranks     ls_save_begin
 *   2. each     its boxes of all tensors into its own files, flushed to the disk   ls_save_list, ls_save_write
 *   3. all      has every rank written? Checksums to rank 0                        ls_save_gather
 *   4. rank 0   other files, the manifest, flush, rename, flush of the parent      ls_save_commit
 *   5. all      is it durable?                                                     ls_save_end
 *
 * saving.c has the parts. state_save.c does one after another. state_async.c copies the boxes after 1; a thread of each
 * rank does 2 with the copy and a thread of rank 0 does 4, while the program goes on, which does 3 and 5 when no thread
 * is busy any more.
 *
 * A crash before the rename leaves a temporary folder, which ls_commit_sweep removes, and the older checkpoints.
 */
#ifndef LS_CKPT_SAVING_H
#define LS_CKPT_SAVING_H
#include "base/commit.h"
#include "ckpt/manifest.h"
#include "ckpt/shards.h"

#define LS_SAVE_PATH_BYTES 1024

/* What rank 0 tells all ranks of a save. */
typedef struct ls_save_beginning {
    char path[LS_SAVE_PATH_BYTES]; /* of the temporary folder */
    char save[40];                 /* 32 hex digits */
    int64_t step;                  /* of rank 0, to compare */
} ls_save_beginning;

typedef struct ls_saving {
    ls_save_beginning b;
    int64_t step, generation;
    int world_size;
    ls_shards mine;           /* owned, as all here: what this rank writes */
    ls_commit_folder *commit; /* rank 0's, as the next one */
    ls_manifest manifest;
    bool anew;                /* a checkpoint of that name is not replaced */
    bool everywhere;          /* every rank gets the checksums of all files, not rank 0 alone */
} ls_saving;

/* For one program alone that writes the files of all ranks (reshard.c): the temporary folder. Then the caller fills in
 * step, generation and world_size, and adds the files that it has written to the manifest; ls_save_commit, ls_save_end.
 */
ls_status ls_save_folder(ls_saving *v, const char *folder, int64_t step);

/* The temporary folder alone: of who tells the others himself (snapshot.c). */
ls_status ls_save_folder_make(const char *folder, int64_t step, ls_commit_folder **out, ls_save_beginning *b);

/* Every rank of the state's group calls it. A failure is agreed, and *culprit the rank whose it was. */
ls_status ls_save_begin(ls_saving *v, const ls_state *s, const char *folder, int64_t step, int *culprit);
ls_status ls_save_list(ls_saving *v, const ls_state *s);
/* On any thread. */
ls_status ls_save_write(ls_saving *v);
/* Every rank of g calls it. */
ls_status ls_save_gather(ls_saving *v, ls_group *g);
/* Rank 0 alone, on any thread. */
ls_status ls_save_commit(ls_saving *v);
/* Releases all of it, and removes the temporary folder if it is there. Returns st, with a message that names the save.
 */
ls_status ls_save_end(ls_saving *v, ls_status st, const char *folder);

#endif
