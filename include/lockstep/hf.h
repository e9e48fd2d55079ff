/* hf.h -- language models in Hugging Face's files.
 *
 * A model is a folder:
 *
 *   config.json                        sizes of a language model of the library (ls_model_class.lm)
 *   model.safetensors                  the parameters in one file, or
 *   model-00001-of-00003.safetensors   in several (shards), and
 *   model.safetensors.index.json       which tensor is in which
 *   generation_config.json             special tokens of generate(); written, not read
 *
 * Parameters have the names of transformers' GPT2LMHeadModel and LlamaForCausalLM. What is
 * written is read by transformers' from_pretrained; what its save_pretrained writes is read here.
 */
#ifndef LS_HF_H
#define LS_HF_H
#include "lockstep/ckpt.h"
#include "lockstep/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What config.json says, as far as it matters to a model here. */
typedef struct ls_hf_config {
    const char *model; /* "gpt2", "llama" ...: for ls_model_config.name, and model_type; static */
    ls_lm_config lm;   /* resolved */
    int64_t bos, eos;  /* token ids; -1: none. Of several the first */
    ls_dtype dtype;    /* of the parameters in the files: F32, BF16 or F16 */
} ls_hf_config;

/* The sizes of a model built from `c`, without special tokens, in f32. LS_BAD_CONFIG as in ls_model_resolve. */
ls_status ls_hf_config_of(const ls_model_config *c, ls_hf_config *out);
/* Parses config.json, n bytes. Keys that no model here depends on are skipped; one that would
 * change the model's formula is LS_UNSUPPORTED (an activation, scaled rotary positions, biases in
 * llama ...). LS_BAD_FILE: not JSON, larger than 1 MiB, a size missing or of the wrong type.
 * LS_BAD_CONFIG: sizes that do not fit together. `what` names the file in the message. */
ls_status ls_hf_config_parse(const char *what, const void *text, size_t n, ls_hf_config *out);
/* The same of `dir`/config.json; LS_IO when it cannot be read. */
ls_status ls_hf_config_read(const char *dir, ls_hf_config *out);
/* The text of config.json, malloc'd for the caller; parsing it gives c again. */
ls_status ls_hf_config_text(const ls_hf_config *c, char **out);
/* The text of generation_config.json, malloc'd for the caller: the ids that begin, end and pad what transformers'
 * generate() writes, as far as c has them. A text ends with the id that pads it. */
ls_status ls_hf_generation_text(const ls_hf_config *c, char **out);

/* Reads the parameters of folder `dir` into ps, which a model of that config.json has registered:
 * F32, BF16 and F16 become f32. Files may lack the prefix "transformer." or "model." of their
 * names, and may hold buffers that are no parameters (attention masks, rotary frequencies). A
 * tied head may be absent, or must equal the embedding. Of a parameter that is a part of a tensor
 * (ls_param.part) that part alone is kept: a tensor with a digest is read whole, piece by piece, to check it.
 *
 * LS_SHAPE: tensors missing (all of them are named, by the log where the message is too short),
 * tensors that the model does not know, or another shape, with both shapes. LS_BAD_FILE: not
 * safetensors, an index that is not JSON or names what is not there, a shard outside the folder,
 * a pickle (*.bin, *.pt, *.pth), which is never opened. LS_CKPT_CORRUPT: cut short, or digests
 * differ. LS_IO. All of that is known before the first value of ps changes, but for digests,
 * read errors and an unequal head, after which the values are of no use. */
ls_status ls_hf_load(const char *dir, const ls_hf_config *c, ls_params *ps);

/* Writes config.json, generation_config.json and the parameters, in `dtype`, into the existing and empty
 * folder `dir`: one file, or shards of at most max_shard bytes of parameters each (a tensor that is larger is
 * alone in its shard) and the index. config.json comes last: a folder that has it is complete.
 * LS_INVALID: the folder is not empty, or dtype is not F32, BF16 or F16; LS_CKPT_FAILED, LS_IO. */
ls_status ls_hf_save(const char *dir, const ls_hf_config *c, const ls_params *ps, ls_dtype dtype, size_t max_shard);
/* The same of values that ranks put together (ls_ddp_values, ls_kept_values): each of them calls it; dir NULL writes
 * nothing. */
ls_status ls_hf_save_of(const char *dir, const ls_hf_config *c, const ls_params *ps, const ls_values *values,
                        ls_dtype dtype, size_t max_shard);

/* A language model with its values, from a folder of Hugging Face's files, a checkpoint of Lockstep's, or the
 * folder that has that as model.safetensors. *model and *arena, which has the values, are the caller's to destroy;
 * NULL after a failure. Fails as ls_hf_load and ls_ckpt_load; LS_UNSUPPORTED: a checkpoint of another kind of model. */
ls_status ls_hf_open(const char *path, ls_hf_config *c, ls_model **model, ls_arena **arena);
/* A Lockstep checkpoint of a language model becomes a folder, as by ls_hf_save. LS_UNSUPPORTED: the
 * checkpoint is of a model that Hugging Face has no files for, such as mlp. */
ls_status ls_hf_export(const char *checkpoint, const char *dir, ls_dtype dtype, size_t max_shard);
/* A folder becomes a checkpoint in f32, with the metadata of step 0. */
ls_status ls_hf_import(const char *dir, const char *checkpoint);

#ifdef __cplusplus
}
#endif
#endif
