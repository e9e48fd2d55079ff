/* llm_config.h -- the sizes of a language model from Hugging Face's config.json.
 *
 * Unlike ls_hf_config (lockstep/hf.h), which reads what the runtime can train, this knows sizes alone, of any of these
 * architectures (model_type): gpt2, llama, mistral, qwen2, qwen3, mixtral, qwen2_moe, qwen3_moe, deepseek_v2,
 * deepseek_v3.
 */
#ifndef LS_PLAN_LLM_CONFIG_H
#define LS_PLAN_LLM_CONFIG_H
#include "lockstep/plan.h"

/* n bytes of config.json; `name` stands for the file in messages, and is the model's name. seq is the longest that the
 * file states. LS_BAD_FILE names file and line: no JSON, no object, a size that is missing or no whole number.
 * LS_UNSUPPORTED: another architecture. LS_BAD_CONFIG: sizes that do not fit together. */
ls_status ls_llm_config_parse(const char *name, const char *text, size_t n, ls_llm *out);
/* The file, or config.json of this folder. LS_IO. `out->name` is `path`. */
ls_status ls_llm_config_read(const char *path, ls_llm *out);

#endif
