/* save.h -- writing tensors as one safetensors file: any names, types and orientation. */
#ifndef LS_CKPT_SAVE_H
#define LS_CKPT_SAVE_H
#include "lockstep/ckpt.h"

#define LS_CKPT_BLOCK ((size_t)1 << 20) /* bytes of the data section that have one checksum in a manifest */

/* Checksums of a file, as a manifest has them (manifest.h): XXH3-64 of its prefix and header, and of each block of its
 * data section, the last of which may be shorter. */
typedef struct ls_ckpt_sums {
    uint64_t bytes;        /* of the file */
    uint64_t header_bytes; /* of prefix and header; 0: the data section is all of the file */
    uint64_t header;       /* checksum of these */
    uint64_t *block;       /* owned: [nblocks] */
    size_t nblocks;
} ls_ckpt_sums;
void ls_ckpt_sums_free(ls_ckpt_sums *s); /* zeroed is fine */

/* A tensor in memory, and how it is to stand in the file. All borrowed. */
typedef struct ls_ckpt_item {
    const char *name;      /* in the file */
    const ls_tensor *from; /* its values; its shape alone where `values` has them: */
    const ls_values *values; /* asked for those of `param` when they are written. NULL: from->data */
    const ls_param *param;   /* items one after another that are of the same one are asked for once */
    size_t skip;           /* the values begin after so many elements */
    ls_dtype dtype;        /* in the file: from's, or BF16 or F16 of an F32, rounded to nearest even */
    bool transposed;       /* from is a matrix [O, I] of F32, the file gets [I, O] */
} ls_ckpt_item;

/* A parameter as it stands in a file, under `name`; *shape, which it keeps, gets that of the global tensor. */
ls_ckpt_item ls_ckpt_item_of(const ls_param *p, const char *name, const ls_values *values, ls_tensor *shape);
/* Asks for every value of the n items when the rank does that writes them by ls_ckpt_write. */
ls_status ls_ckpt_attend_items(const ls_ckpt_item *item, int n, const ls_values *values);
/* Bytes of the item's data in the file. */
size_t ls_ckpt_item_nbytes(const ls_ckpt_item *it);
/* Writes the n items in their order, whole or not at all, with the metadata and digests of
 * ls_ckpt_save and its failures. */
ls_status ls_ckpt_write(const char *path, const ls_ckpt_item *item, int n, const char *const *meta);
/* The same; *sums gets the file's checksums, which the caller frees. */
ls_status ls_ckpt_write_summed(const char *path, const ls_ckpt_item *item, int n, const char *const *meta,
                               ls_ckpt_sums *sums);

#endif
