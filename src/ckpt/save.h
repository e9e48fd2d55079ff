/* save.h -- writing tensors as one safetensors file: any names, types and orientation. */
#ifndef LS_CKPT_SAVE_H
#define LS_CKPT_SAVE_H
#include "lockstep/ckpt.h"

/* A tensor in memory, and how it is to stand in the file. All borrowed. */
typedef struct ls_ckpt_item {
    const char *name;      /* in the file */
    const ls_tensor *from; /* its values; its shape alone where `values` has them: */
    const ls_values *values; /* asked for those of `param` twice: for a digest, and to write. NULL: from->data */
    const ls_param *param;
    ls_dtype dtype;        /* in the file: from's, or BF16 or F16 of an F32, rounded to nearest even */
    bool transposed;       /* from is a matrix [O, I] of F32, the file gets [I, O] */
} ls_ckpt_item;

/* A parameter as it stands in a file, under `name`; *shape, which it keeps, gets that of the global tensor. */
ls_ckpt_item ls_ckpt_item_of(const ls_param *p, const char *name, const ls_values *values, ls_tensor *shape);
/* Asks for every value of ps[0 .. n) when the rank does that writes them by ls_ckpt_write: for the digests, and for the
 * file. */
ls_status ls_ckpt_attend(const ls_param *p, int n, const ls_values *values);
/* Bytes of the item's data in the file. */
size_t ls_ckpt_item_nbytes(const ls_ckpt_item *it);
/* Writes the n items in their order, whole or not at all, with the metadata and digests of
 * ls_ckpt_save and its failures. */
ls_status ls_ckpt_write(const char *path, const ls_ckpt_item *item, int n, const char *const *meta);

#endif
