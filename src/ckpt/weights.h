/* weights.h -- a model's values and what is said of them, in whichever form Lockstep has saved them: one safetensors
 * file, or a checkpoint of all ranks, which is a folder. Its tensors are parameters as a model has them here: where a
 * file has a matrix for each expert (hf_experts.h), they are one tensor. */
#ifndef LS_CKPT_WEIGHTS_H
#define LS_CKPT_WEIGHTS_H
#include "lockstep/ckpt.h"
#include "lockstep/state.h"

/* A whole tensor of it. */
typedef struct ls_weights_tensor {
    const char *name, *dtype_name; /* borrowed, as `dim` */
    ls_dtype dtype;
    int ndim;
    const int64_t *dim;
    uint64_t nbytes;
    bool is_state;   /* of an optimizer or a program, not of the model */
    int64_t experts; /* matrices in the file that it is put together from; 0: it is one tensor there */
} ls_weights_tensor;

struct ls_weights_stacked;
typedef struct ls_weights {
    ls_ckpt *file;         /* owned: one of the two, */
    ls_checkpoint *folder; /* and the other is NULL */
    ls_weights_tensor *tensor;          /* owned: [n] of the file */
    struct ls_weights_stacked *stacked; /* owned: names and shapes of those that are put together */
    int n;
} ls_weights;

/* Whether `path` is a checkpoint of all ranks without the whole model in one file. */
bool ls_weights_are_sharded(const char *path);
/* LS_BAD_FILE, LS_CKPT_CORRUPT, LS_IO as in ls_ckpt_open and ls_checkpoint_open. */
ls_status ls_weights_open(const char *path, ls_weights *out);
const char *ls_weights_meta(const ls_weights *w, const char *key); /* NULL if absent */
void ls_weights_close(ls_weights *w);

int ls_weights_count(const ls_weights *w);
/* All of them, names ascending, malloc'd for the caller; NULL: out of memory. */
ls_weights_tensor *ls_weights_list(const ls_weights *w);
/* False if absent. */
bool ls_weights_find(const ls_weights *w, const char *name, ls_weights_tensor *out);
/* nbytes into dst, checked. */
ls_status ls_weights_read(ls_weights *w, const ls_weights_tensor *t, void *dst);
/* What is here of p, which is, or is a part of, tensor t of the file, in t's type and order, as ls_ckpt_read_param.
 * LS_SHAPE: p has another number of experts. */
ls_status ls_weights_read_param(ls_weights *w, const ls_weights_tensor *t, const ls_param *p, void *dst);

#endif
