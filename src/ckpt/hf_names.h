/* hf_names.h -- names of files, tensors and metadata that reading and writing agree on. */
#ifndef LS_CKPT_HF_NAMES_H
#define LS_CKPT_HF_NAMES_H

#define HF_WHOLE "model.safetensors"
#define HF_INDEX "model.safetensors.index.json"
#define HF_CONFIG_KEY "lockstep.config" /* in the metadata of a checkpoint of Lockstep's: the text of config.json */

#endif
