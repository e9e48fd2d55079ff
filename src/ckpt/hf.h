/* hf.h -- the index of a sharded model, as bytes in memory; which models have files. */
#ifndef LS_CKPT_HF_H
#define LS_CKPT_HF_H
#include <stddef.h>
#include <stdint.h>
#include "ckpt/save.h"
#include "lockstep/hf.h"

/* "weight_map" of model.safetensors.index.json. */
typedef struct ls_hf_index {
    char **shard;           /* owned: the files' names, in the order in which they are first named */
    int nshards;
    struct ls_hf_place {
        char *name;         /* owned */
        int shard;
    } *place;               /* owned: tensors, names ascending */
    size_t nplaces;
} ls_hf_index;

/* Parses an index, n bytes. LS_BAD_FILE: not JSON, beyond base/limits.h, a tensor twice, or a shard
 * whose name is not plain: letters, digits, '.', '_', '-', no dot in front, ".safetensors" behind.
 * So none leads out of the folder, and pickles are refused by their names. */
ls_status ls_hf_index_parse(const char *what, const void *text, size_t n, ls_hf_index *out);
void ls_hf_index_free(ls_hf_index *ix); /* zeroed is fine */
/* NULL if absent. */
const struct ls_hf_place *ls_hf_index_find(const ls_hf_index *ix, const char *name);

/* The class of a model that Hugging Face has files for; NULL: there is none of that name. */
const ls_model_class *ls_hf_class(const char *model);

/* Writes parameters into one safetensors file, in F32, with metadata, as ls_ckpt_save_of does, but as transformers has
 * them: of experts (lm->n_experts of them) a tensor for each (hf_experts.h). Of a model without, lm may be all zeros.
 * Every rank of `values` calls it; path NULL writes nothing. *sums (NULL: not wanted) is the caller's to free. */
ls_status ls_hf_write_model(const char *path, const ls_lm_config *lm, const ls_params *ps, const ls_values *values,
                            const char *const *meta, ls_ckpt_sums *sums);

/* LS_BAD_FILE when the name ends as pickles do, with what to do instead; `what` is what is shown. */
ls_status ls_hf_refuse_pickle(const char *what, const char *name);

#endif
