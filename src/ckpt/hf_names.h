/* hf_names.h -- names of files and tensors that reading and writing agree on. */
#ifndef LS_CKPT_HF_NAMES_H
#define LS_CKPT_HF_NAMES_H
#include <stdbool.h>
#include <string.h>

#define HF_WHOLE "model.safetensors"
#define HF_INDEX "model.safetensors.index.json"
#define HF_HEAD "lm_head.weight"

/* Whether gpt2's parameter of this name is a Conv1D in the files: [in, out], where memory has [out, in]. */
static inline bool ls_hf_is_turned(const char *name)
{
    static const char *const conv1d[] = { ".c_attn.weight", ".c_proj.weight", ".c_fc.weight" };
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof conv1d / sizeof *conv1d; i++)
        if (n >= strlen(conv1d[i]) && strcmp(name + n - strlen(conv1d[i]), conv1d[i]) == 0) return true;
    return false;
}

#endif
