/* hf_open.c -- a language model from whichever files it is in: Hugging Face's folder, or a checkpoint of Lockstep's,
 * whose metadata has the text of config.json. */
#include <string.h>

#include "base/env.h"
#include "base/text.h"
#include "ckpt/hf.h"
#include "ckpt/hf_names.h"
#include "ckpt/weights.h"

/* What a checkpoint says of its model. */
static ls_status config_of(const char *path, ls_hf_config *out)
{
    ls_weights w;
    LS_TRY(ls_hf_refuse_pickle(path, path));
    LS_TRY(ls_weights_open(path, &w));
    const char *config = ls_weights_meta(&w, HF_CONFIG_KEY), *model = ls_weights_meta(&w, "lockstep.model");
    char names[128];
    ls_model_names(LS_LM_KEY, names, sizeof names);
    ls_status st;
    if (config) st = ls_hf_config_parse(path, config, strlen(config), out);
    else if (model)
        st = ls_fail(LS_UNSUPPORTED, "%s: is of a model '%.40s', which Hugging Face has no form for: %s have. The "
                     "file itself is safetensors, which any program reads", path, model, names);
    else st = ls_fail(LS_BAD_FILE, "%s: its metadata has no " HF_CONFIG_KEY ": it is not a checkpoint of Lockstep's %s", path, names);
    ls_weights_close(&w);
    return st;
}

/* Whether Lockstep wrote the file. Where it cannot be opened, who reads it as something else will say why. */
static ls_status is_checkpoint(const char *path, bool *ours)
{
    ls_ckpt *c;
    ls_file_info info;
    *ours = false;
    if (ls_env_get()->info(path, &info) < 0 || info.type != LS_FILE_REGULAR) return LS_OK;
    const ls_status st = ls_ckpt_open(path, &c);
    if (st < 0) return st == LS_NO_MEMORY ? st : LS_OK;
    *ours = ls_ckpt_meta(c, HF_CONFIG_KEY) != NULL;
    ls_ckpt_close(c);
    return LS_OK;
}

/* Where a folder has one, it is the model's, as it is to transformers. */
static ls_status has_config(const char *dir, bool *there)
{
    ls_text path = { 0 };
    ls_file_info info;
    ls_text_add(&path, "%s/config.json", dir);
    const ls_status st = ls_text_status(&path);
    *there = st == LS_OK && ls_env_get()->info(path.p, &info) == 0 && info.type != LS_FILE_NONE;
    ls_text_free(&path);
    return st;
}

/* Whether the model's config is the one that Lockstep wrote into `inside`, the safetensors file of the folder. */
static ls_status folder_is_ours(const char *dir, const char *inside, bool *ours)
{
    bool config;
    *ours = false;
    LS_TRY(has_config(dir, &config));
    return config ? LS_OK : is_checkpoint(inside, ours);
}

/* A model of that config with memory for its values, not set. */
static ls_status build(const ls_hf_config *c, ls_model **model, ls_arena **arena)
{
    const ls_model_config mc = { .name = c->model, .lm = c->lm, .init = LS_INIT_PHILOX };
    LS_TRY(ls_model_create(&mc, model));
    const ls_params *ps = &(*model)->params;
    LS_TRY(ls_arena_create(ls_params_nbytes(ps) + (size_t)ps->n * 64, false, NULL, arena));
    return ls_params_bind(&(*model)->params, *arena, NULL);
}

ls_status ls_hf_open(const char *path, ls_hf_config *c, ls_model **model, ls_arena **arena)
{
    ls_file_info info = { 0 };
    ls_text inside = { 0 };
    *model = NULL;
    *arena = NULL;
    ls_text_add(&inside, "%s/" HF_WHOLE, path);
    ls_status st = ls_text_status(&inside);
    const bool folder = ls_env_get()->info(path, &info) == 0 && info.type == LS_FILE_DIR;
    const bool sharded = folder && ls_weights_are_sharded(path);
    bool ours = true;
    if (st == LS_OK && folder && !sharded) st = folder_is_ours(path, inside.p, &ours);
    const char *file = folder && !sharded ? inside.p : path;
    if (st == LS_OK) st = ours ? config_of(file, c) : ls_hf_config_read(path, c);
    if (st == LS_OK) st = build(c, model, arena);
    if (st == LS_OK) st = ours ? ls_ckpt_load(file, &(*model)->params, true) : ls_hf_load(path, c, &(*model)->params);
    if (st < 0) {
        ls_model_destroy(*model);
        ls_arena_destroy(*arena);
        *model = NULL;
        *arena = NULL;
    }
    ls_text_free(&inside);
    return st;
}
