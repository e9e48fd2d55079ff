/* shards.h -- the files of one rank in a checkpoint: which boxes of which tensors are in them, and writing them.
 *
 * A file has one box of each tensor, so a rank whose part of a tensor is several boxes writes several files. The data
 * of a list are in the program's memory until ls_shards_copy has moved the list to a copy.
 */
#ifndef LS_CKPT_SHARDS_H
#define LS_CKPT_SHARDS_H
#include "ckpt/state.h"

typedef struct ls_shards {
    struct ls_shard *file; /* owned, as all here: [n] */
    ls_ckpt_sums *sums;    /* [n]: of each file, once it was written; a file without tensors is not written, and has no
                              bytes */
    int n;                 /* the same on all ranks */
    int number;            /* of the rank */
    char save[40], step[32], rank[16];
    const char **meta;     /* pairs of every file, without those that depend on the file; the program's are borrowed,
                              and others are in this struct, which therefore stays where it is */
} ls_shards;

/* Lists what this rank saves, where it is in memory now; numbers are copied. `save` names the save in each file. To be
 * freed also after a failure. LS_INVALID, LS_UNSUPPORTED, LS_NO_MEMORY. */
ls_status ls_shards_list(const ls_state *s, const char *save, int64_t step, ls_shards *out);
void ls_shards_free(ls_shards *f); /* zeroed is fine */

#define LS_SHARD_NAME (LS_NAME_BYTES + 64) /* bytes of a tensor's name, with its end */
#define LS_SHARD_META 27                   /* pairs of metadata that a program can add */

/* The same for who has the tensors without a state: a list of `files` empty files of rank `number`, of at most `most`
 * tensors each; boxes; and the pairs of metadata (NULL: none), which end the list. */
ls_status ls_shards_begin(ls_shards *out, const char *save, int64_t step, int number, int files, int most);
/* Into file k: a tensor's box that begins at first[], of these sizes in the file; `transposed`: files have its first
 * two exchanged. `data` is borrowed until the file is written. */
void ls_shards_put(ls_shards *f, int k, const char *name, ls_dtype dtype, int ndim, const int64_t *first,
                   const int64_t *count, bool transposed, const void *data);
ls_status ls_shards_end(ls_shards *f, const char *const *meta);

/* Bytes that ls_shards_copy needs for what this rank saves. */
size_t ls_shards_copy_bytes(const ls_state *s);
/* Copies all data to `to`, by all threads of the rank's team; the list's data are there from now on. LS_INTERNAL: more
 * than `nbytes` are needed. */
ls_status ls_shards_copy(ls_shards *f, void *to, size_t nbytes);

/* Writes the files into the folder, flushed to the disk, and notes their checksums. LS_IO ... as ls_ckpt_write_summed.
 */
ls_status ls_shards_write(ls_shards *f, const char *folder);
/* The name of file k of `files` of a rank, in a checkpoint's folder. */
void ls_shards_name(char *out, size_t n, int rank, int k, int files);

#endif
