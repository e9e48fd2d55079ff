/* hf_experts.c -- names of experts in Hugging Face's files. */
#include "ckpt/hf_experts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPERTS ".experts."

/* Behind ".experts."; NULL: the name is not an expert's. */
static const char *behind(const char *name)
{
    const char *at = strstr(name, EXPERTS);
    return at ? at + strlen(EXPERTS) : NULL;
}

int64_t ls_hf_tensors(const ls_lm_config *c, const char *name)
{
    return behind(name) && c->n_experts > 0 ? c->n_experts : 1;
}

const char *ls_hf_tensor_name(const char *name, int64_t e, char out[LS_HF_NAME_BYTES])
{
    const char *at = behind(name);
    if (!at) return name;
    snprintf(out, LS_HF_NAME_BYTES, "%.*s%lld.%s", (int)(at - name), name, (long long)e, at);
    return out;
}

int64_t ls_hf_expert_of(const char *tensor)
{
    const char *at = behind(tensor);
    const size_t digits = at ? strspn(at, "0123456789") : 0;
    if (digits == 0 || digits > 9 || (*at == '0' && digits > 1) || at[digits] != '.') return -1;
    return strlen(tensor) < LS_HF_NAME_BYTES ? strtoll(at, NULL, 10) : -1;
}

const char *ls_hf_param_name(const char *tensor, char out[LS_HF_NAME_BYTES])
{
    if (ls_hf_expert_of(tensor) < 0) return tensor;
    const char *at = behind(tensor);
    snprintf(out, LS_HF_NAME_BYTES, "%.*s%s", (int)(at - tensor), tensor, at + strspn(at, "0123456789") + 1);
    return out;
}

bool ls_hf_expert_transposed(const char *name)
{
    const char *at = behind(name);
    return at && (strcmp(at, "w2.weight") == 0 || strcmp(at, "down_proj.weight") == 0);
}

ls_hf_experts ls_hf_experts_of(const ls_param *p, int64_t E)
{
    const ls_part *part = &p->part;
    if (ls_part_is_all(part)) return (ls_hf_experts){ 0, E, p->t.dim[0] / E, p->t.dim[1], 0, p->t.dim[0] / E };
    const int64_t first = part->first_run;
    return (ls_hf_experts){ first, first + part->runs, part->of, p->t.dim[1], part->first, part->count };
}
