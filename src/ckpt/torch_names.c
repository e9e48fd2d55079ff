/* torch_names.c -- names of tensors in checkpoints that PyTorch's DCP wrote, in Lockstep's form. */
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "ckpt/checkpoint.h"
#include "ckpt/state.h"

/* dcp.save({"model": model_state, "optim": optimizer_state}) joins the keys with dots. */
#define MODEL "model."
static const char *const optims[] = { "optim.", "optimizer.", "" };
#define STATE "state."
#define LLAMA "model.embed_tokens.weight" /* a model whose own names begin with "model." */

static bool begins(const char *s, const char *with) { return strncmp(s, with, strlen(with)) == 0; }

/* "0.weight.exp_avg" of "optim.state.0.weight.exp_avg"; NULL: the name is not of an optimizer's state. */
static const char *in_state(const char *name)
{
    for (size_t i = 0; i < sizeof optims / sizeof *optims; i++) {
        const size_t n = strlen(optims[i]);
        if (begins(name, optims[i]) && begins(name + n, STATE) && strchr(name + n + sizeof STATE - 1, '.'))
            return name + n + sizeof STATE - 1;
    }
    return NULL;
}

static bool of_optim(const char *name)
{
    return in_state(name) || begins(name, "optim.") || begins(name, "optimizer.");
}

static bool has(const ls_checkpoint *s, const char *prefix, const char *name, size_t n)
{
    char whole[LS_NAME_BYTES + 64];
    const int k = snprintf(whole, sizeof whole, "%s%.*s", prefix, (int)n, name);
    for (int f = 0; k > 0 && (size_t)k < sizeof whole && f < s->nfiles; f++)
        if (ls_ckpt_header_find(&s->file[f].header, whole)) return true;
    return false;
}

/* Whether "model." is the key that the program saved its model under, and not a part of the parameters' names, which
 * the optimizer's state has, too. */
static bool model_is_a_key(const ls_checkpoint *s)
{
    for (int f = 0; f < s->nfiles; f++)
        for (size_t i = 0; i < s->file[f].header.ntensors; i++) {
            const char *name = s->file[f].header.tensor[i].name, *param = in_state(name);
            if (param) {
                const size_t n = (size_t)(strrchr(param, '.') - param);
                return !has(s, "", param, n) && has(s, MODEL, param, n);
            }
            if (!of_optim(name) && !begins(name, MODEL)) return false;
        }
    return !has(s, "", LLAMA, sizeof LLAMA - 1);
}

/* "optim.state.<parameter>.<state>" -> "optim.<state>.<parameter>", which is no longer. */
static void exchange(char *name, const char *param)
{
    char whole[LS_CKPT_MAX_NAME + 1];
    const char *state = strrchr(param, '.');
    const int n = snprintf(whole, sizeof whole, LS_STATE_OPTIM "%s.%.*s", state + 1, (int)(state - param), param);
    if (n > 0 && (size_t)n <= strlen(name)) memcpy(name, whole, (size_t)n + 1);
}

bool ls_checkpoint_is_foreign(const ls_checkpoint *s)
{
    for (int i = 0; i < s->nfiles; i++)
        if (ls_ckpt_header_meta(&s->file[i].header, "lockstep.save")) return false;
    return !s->has_manifest;
}

void ls_checkpoint_translate(ls_checkpoint *s)
{
    const bool wrapped = model_is_a_key(s);
    for (int f = 0; f < s->nfiles; f++)
        for (size_t i = 0; i < s->file[f].header.ntensors; i++) {
            char *name = s->file[f].header.tensor[i].name;
            const char *param = in_state(name);
            if (param) exchange(name, param);
            else if (wrapped && begins(name, MODEL))
                memmove(name, name + sizeof MODEL - 1, strlen(name) - sizeof MODEL + 2);
        }
}
