/* weights.c -- one file or a folder of all ranks' files. */
#include "ckpt/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "ckpt/checkpoint.h"
#include "ckpt/state.h"

static bool has(const char *folder, const char *name)
{
    ls_file_info info;
    char path[4096]; /* no path that can be opened is longer */
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && (size_t)n < sizeof path && ls_env_get()->info(path, &info) == 0 && info.type != LS_FILE_NONE;
}

bool ls_weights_are_sharded(const char *path)
{
    return ls_checkpoint_is_folder(path) && !has(path, "model.safetensors") && !has(path, "model.safetensors.index.json");
}

ls_status ls_weights_open(const char *path, ls_weights *out)
{
    *out = (ls_weights){ 0 };
    return ls_checkpoint_is_folder(path) ? ls_checkpoint_open(path, &out->folder) : ls_ckpt_open(path, &out->file);
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

/* --- tensors ------------------------------------------------------------------------------------------- */

static bool is_state(const char *name)
{
    return strncmp(name, LS_STATE_OPTIM, sizeof LS_STATE_OPTIM - 1) == 0 ||
           strncmp(name, LS_STATE_OWN, sizeof LS_STATE_OWN - 1) == 0;
}

static ls_weights_tensor of_file(const ls_ckpt_tensor *t)
{
    return (ls_weights_tensor){ t->name, t->dtype_name, t->dtype, t->ndim, t->dim, t->end - t->begin,
                                is_state(t->name) };
}

int ls_weights_count(const ls_weights *w) { return w->file ? ls_ckpt_count(w->file) : ls_checkpoint_count(w->folder); }

static ls_weights_tensor at(const ls_weights *w, int i)
{
    if (w->file) return of_file(ls_ckpt_at(w->file, i));
    const ls_checkpoint_tensor *t = ls_checkpoint_at(w->folder, i);
    return (ls_weights_tensor){ t->name, t->dtype_name, t->dtype, t->ndim, t->dim,
                                ls_checkpoint_nbytes(w->folder, t), is_state(t->name) };
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const ls_weights_tensor *)a)->name, ((const ls_weights_tensor *)b)->name);
}

ls_weights_tensor *ls_weights_list(const ls_weights *w)
{
    const int n = ls_weights_count(w);
    ls_weights_tensor *list = calloc((size_t)n + 1, sizeof *list);
    for (int i = 0; list && i < n; i++) list[i] = at(w, i);
    if (list && n > 0) qsort(list, (size_t)n, sizeof *list, by_name);
    return list;
}

bool ls_weights_find(const ls_weights *w, const char *name, ls_weights_tensor *out)
{
    for (int i = 0; i < ls_weights_count(w); i++) {
        *out = at(w, i);
        if (strcmp(out->name, name) == 0) return true;
    }
    return false;
}

ls_status ls_weights_read(ls_weights *w, const ls_weights_tensor *t, void *dst)
{
    if (w->file) return ls_ckpt_read(w->file, ls_ckpt_find(w->file, t->name), dst);
    return ls_checkpoint_read(w->folder, ls_checkpoint_find(w->folder, t->name), NULL, NULL, dst);
}
