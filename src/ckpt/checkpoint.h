/* checkpoint.h -- an open checkpoint from the inside: its files, and where each box of each tensor is.
 *
 *   checkpoint.c         opens and closes one           checkpoint_read.c    reads boxes, and checks what it reads
 *   checkpoint_index.c   tensors, by name, of boxes     checkpoint_values.c  parameters' values into a model
 *   checkpoint_newest.c  the newest whole one     torch_names.c        names in files of PyTorch's
 */
#ifndef LS_CKPT_CHECKPOINT_H
#define LS_CKPT_CHECKPOINT_H
#include "ckpt/format.h"
#include "ckpt/manifest.h"
#include "lockstep/state.h"

/* One rank's file. */
typedef struct ls_checkpoint_file {
    char *path;              /* owned */
    const ls_ckpt_sums *sums; /* borrowed from the manifest; NULL: there is none */
    uint64_t bytes;
    ls_ckpt_header header;
} ls_checkpoint_file;

/* A box of a tensor, as it is in a file. */
typedef struct ls_checkpoint_chunk {
    const ls_ckpt_tensor *in;        /* borrowed from the file's header: name, type, shape of the box, bytes */
    int file;
    int64_t first[LS_CKPT_MAX_DIMS]; /* where the box begins in the whole tensor */
} ls_checkpoint_chunk;

/* Blocks that were read and checked, of which more may be wanted: small tensors share them, and those of several
 * ranks' files are read by turns. */
#define LS_CHECKPOINT_KEPT 16
typedef struct ls_checkpoint_block {
    int file;
    size_t block;
    uint64_t used; /* the number of the read that wanted it last; 0: there is none */
} ls_checkpoint_block;

struct ls_checkpoint {
    char *folder;            /* owned, as all here */
    bool has_manifest;
    bool flat;               /* the ranks' files are in the folder itself, not in sharded/ */
    ls_manifest manifest;
    ls_checkpoint_file *file;     /* [nfiles] */
    int nfiles;
    ls_checkpoint_chunk *chunk;   /* [nchunks], tensor by tensor */
    size_t nchunks;
    ls_checkpoint_tensor *tensor; /* [ntensors], names ascending */
    int ntensors;
    int open_file, fd;       /* one file is open at a time; -1: none */
    char *buffer;            /* [LS_CKPT_BLOCK]: of who checks all bytes */
    ls_checkpoint_block kept[LS_CHECKPOINT_KEPT];
    char *blocks;            /* [LS_CHECKPOINT_KEPT * LS_CKPT_BLOCK]; NULL: none was read yet */
    uint64_t reads;          /* of kept ones */
};

/* checkpoint_index.c: fills chunk and tensor from the files' headers. */
ls_status ls_checkpoint_index(ls_checkpoint *s);
/* torch_names.c: gives the tensors of another program's files the names that Lockstep's have, after the offsets in the
 * files' metadata were read, which have the original ones. */
void ls_checkpoint_translate(ls_checkpoint *s);
/* Whether `path` is a folder that ls_checkpoint_open is made for. */
bool ls_checkpoint_is_folder(const char *path);
/* checkpoint_read.c: whether file i of a manifest is in the folder with every byte as it was saved. LS_CKPT_CORRUPT. */
ls_status ls_checkpoint_check_file(const char *folder, const ls_manifest *m, size_t i);
/* checkpoint_read.c: makes `file` the open one. */
ls_status ls_checkpoint_use(ls_checkpoint *s, int file);

#endif
