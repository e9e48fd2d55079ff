/* weights.c -- one file or a folder of all ranks' files. */
#include "ckpt/weights.h"

#include <stdio.h>

#include "base/env.h"
#include "ckpt/manifest.h"

static bool has(const char *folder, const char *name)
{
    ls_file_info info;
    ls_text path = { 0 };
    ls_text_add(&path, "%s/%s", folder, name);
    const bool there = ls_text_status(&path) == LS_OK && ls_env_get()->info(path.p, &info) == 0 &&
        info.type != LS_FILE_NONE;
    ls_text_free(&path);
    return there;
}

bool ls_weights_are_sharded(const char *path)
{
    return has(path, LS_MANIFEST_NAME) && !has(path, "model.safetensors") && !has(path, "model.safetensors.index.json");
}

ls_status ls_weights_open(const char *path, ls_weights *out)
{
    *out = (ls_weights){ 0 };
    return has(path, LS_MANIFEST_NAME) ? ls_checkpoint_open(path, &out->folder) : ls_ckpt_open(path, &out->file);
}

const char *ls_weights_meta(const ls_weights *w, const char *key)
{
    return w->file ? ls_ckpt_meta(w->file, key) : ls_checkpoint_meta(w->folder, key);
}

void ls_weights_close(ls_weights *w)
{
    ls_ckpt_close(w->file);
    ls_checkpoint_close(w->folder);
    *w = (ls_weights){ 0 };
}
