/* save.h -- writing tensors as one safetensors file: any names, types and orientation. */
#ifndef LS_CKPT_SAVE_H
#define LS_CKPT_SAVE_H
#include "lockstep/ckpt.h"

/* A tensor in memory, and how it is to stand in the file. All borrowed. */
typedef struct ls_ckpt_item {
    const char *name;      /* in the file */
    const ls_tensor *from; /* its values */
    ls_dtype dtype;        /* in the file: from's, or BF16 or F16 of an F32, rounded to nearest even */
    bool turned;           /* from is a matrix [O, I] of F32, the file gets [I, O] */
} ls_ckpt_item;

/* Bytes of the item's data in the file. */
size_t ls_ckpt_item_nbytes(const ls_ckpt_item *it);
/* Writes the n items in their order, whole or not at all, with the metadata and digests of
 * ls_ckpt_save and its failures. */
ls_status ls_ckpt_write(const char *path, const ls_ckpt_item *item, int n, const char *const *meta);

#endif
