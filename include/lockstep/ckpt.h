/* ckpt.h -- checkpoints as safetensors files.
 *
 * Written atomically (temporary name, fsync, rename, fsync of the directory):
 * a file with its final name is whole. Every tensor carries an XXH3-64 of its
 * bytes in the header's metadata and every load checks it.
 */
#ifndef LS_CKPT_H
#define LS_CKPT_H
#include <stdbool.h>
#include "lockstep/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Dimensions that a tensor in a file may have. */
#define LS_CKPT_MAX_DIMS 8

/* One named tensor of a file. */
typedef struct ls_ckpt_tensor {
    char *name;
    const char *dtype_name; /* as in the file: "F32", "BF16", "I8" ... */
    ls_dtype dtype;         /* LS_DTYPES for those that Lockstep does not compute with */
    int ndim;
    int64_t dim[LS_CKPT_MAX_DIMS];
    uint64_t begin, end;    /* bytes in the data section */
    uint64_t checksum;      /* XXH3-64 of the bytes, when has_checksum */
    bool has_checksum;      /* true in files that Lockstep wrote, false in others' */
} ls_ckpt_tensor;

/* An open file: header read and checked, data not yet. */
typedef struct ls_ckpt ls_ckpt;
ls_status ls_ckpt_open(const char *path, ls_ckpt **out);
void ls_ckpt_close(ls_ckpt *c);
int ls_ckpt_count(const ls_ckpt *c);
const ls_ckpt_tensor *ls_ckpt_at(const ls_ckpt *c, int i);            /* in file order */
const ls_ckpt_tensor *ls_ckpt_find(const ls_ckpt *c, const char *name); /* NULL if absent */
/* A __metadata__ value; NULL if absent. */
const char *ls_ckpt_meta(const ls_ckpt *c, const char *key);
/* The pairs of __metadata__, keys in byte order. */
int ls_ckpt_nmeta(const ls_ckpt *c);
const char *ls_ckpt_meta_key(const ls_ckpt *c, int i);
/* Whether Lockstep wrote the file: header and every tensor carry a digest. */
bool ls_ckpt_has_digests(const ls_ckpt *c);
/* Reads one tensor's bytes into dst (end - begin) and checks them: LS_CKPT_CORRUPT
 * names file, tensor, expected and found digest. */
ls_status ls_ckpt_read(ls_ckpt *c, const ls_ckpt_tensor *t, void *dst);
/* Reads every byte of every tensor and checks all. */
ls_status ls_ckpt_verify(ls_ckpt *c);

/* NULL-ended "key", "value" pairs for __metadata__; may be NULL. Every parameter becomes the tensor that it is; for the
 * tensors of transformers, one for each expert, see ls_hf_save. */
ls_status ls_ckpt_save(const char *path, const ls_params *ps, const char *const *meta);
/* The same with `prefix` before each name: "net." makes the file of an mlp one that loads into a PyTorch module whose
 * layers are self.net = nn.Sequential(...). The metadata key lockstep.prefix says so, and ls_ckpt_load takes the prefix
 * off: the parameters of the model, and so its digest, keep their names. */
ls_status ls_ckpt_save_prefixed(const char *path, const ls_params *ps, const char *prefix, const char *const *meta);
/* The same of values that ranks put together (ls_ddp_values): each of them calls it; path NULL writes nothing. */
ls_status ls_ckpt_save_of(const char *path, const ls_params *ps, const ls_values *values, const char *const *meta);
/* Such values where each rank of a group has a part of a tensor (ls_param.part), and of that keeps some elements
 * (ls_param.keeps), so that every element is kept by one rank. LS_INVALID names a parameter of which that is not so. */
typedef struct ls_kept ls_kept;
ls_status ls_kept_create(struct ls_group *g, ls_kept **out); /* g is borrowed */
ls_values ls_kept_values(ls_kept *k);
void ls_kept_destroy(ls_kept *k); /* NULL is fine */
/* Every parameter by name, one of experts also from a tensor for each, from a file, or from the folder of a
 * checkpoint of all ranks (state.h). LS_SHAPE names the tensor, both shapes and what to do; a missing or extra tensor
 * is LS_SHAPE too; names that all start with "module." fail with the hint to strip it unless strip_module. Nothing is
 * changed on failure.
 *
 * Of a parameter that is a part of a tensor (ls_param.part) the load keeps that part alone. A digest is of a whole
 * tensor: if the tensor has one, all its bytes are read, at most 1 MiB at a time, and LS_CKPT_CORRUPT names it if any
 * of them was changed, within the part or not. If it has none, the bytes of the part alone are read. The load allocates
 * as many bytes as the parameters have here, and that 1 MiB. */
ls_status ls_ckpt_load(const char *path, ls_params *ps, bool strip_module);

#ifdef __cplusplus
}
#endif
#endif
