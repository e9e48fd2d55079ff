/* load.h -- the model that model.load names: what it says of itself before a run, and its values in one. */
#ifndef LS_TRAIN_LOAD_H
#define LS_TRAIN_LOAD_H
#include "lockstep/hf.h"
#include "train/config.h"

/* Sets the model's keys from model.load: from config.json of a folder that has one (Hugging Face's, a checkpoint's),
 * else from the metadata of the safetensors file, a run folder's newest or a lone one. A file that says nothing of
 * its model leaves all keys as they are.
 *
 * A key that was given stays, and must agree, but for the dropouts, which are a choice of the training: one that
 * is given wins. 0 in model.n_kv_head, d_ff and vocab_size gives nothing. LS_BAD_CONFIG: a given key contradicts, with
 * both values. LS_UNSUPPORTED: a model that Lockstep does not compute. LS_IO, LS_BAD_FILE: it cannot be read. */
ls_status ls_train_load_config(ls_opts *o, const ls_train_config *c);

/* Special tokens of a loaded model; -1: none, or unknown. */
typedef struct ls_train_special {
    int64_t bos, eos;
} ls_train_special;

/* The values of model.load into ps, whose model was made by that configuration. */
ls_status ls_train_load(const ls_train_config *c, ls_params *ps, ls_train_special *special);

#endif
