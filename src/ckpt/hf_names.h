/* hf_names.h -- names of files and tensors that reading and writing agree on. */
#ifndef LS_CKPT_HF_NAMES_H
#define LS_CKPT_HF_NAMES_H

#define HF_WHOLE "model.safetensors"
#define HF_INDEX "model.safetensors.index.json"
#define HF_HEAD "lm_head.weight"

#endif
