/* weights.c -- one file or a folder of all ranks' files. */
#include "ckpt/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "ckpt/checkpoint.h"
#include "ckpt/format.h"
#include "ckpt/hf_experts.h"
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

const char *ls_weights_meta(const ls_weights *w, const char *key)
{
    return w->file ? ls_ckpt_meta(w->file, key) : ls_checkpoint_meta(w->folder, key);
}

void ls_weights_close(ls_weights *w)
{
    ls_ckpt_close(w->file);
    ls_checkpoint_close(w->folder);
    free(w->tensor);
    free(w->stacked);
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
                                is_state(t->name), 0 };
}

/* What a parameter of experts is called and its sizes [E F, C]. */
struct ls_weights_stacked {
    char name[LS_HF_NAME_BYTES];
    int64_t dim[2];
};

/* The tensor of expert e of a parameter; NULL: the file has none. */
static const ls_ckpt_tensor *expert(const ls_ckpt *c, const char *param, int64_t e)
{
    char name[LS_HF_NAME_BYTES];
    return ls_ckpt_find(c, ls_hf_tensor_name(param, e, name));
}

/* Matrices of the same sizes and type, of whole bytes per element. */
static bool alike(const ls_ckpt_tensor *a, const ls_ckpt_tensor *b)
{
    return a->ndim == 2 && b->ndim == 2 && a->dim[0] == b->dim[0] && a->dim[1] == b->dim[1] && a->end > a->begin &&
           ls_dtype_size(a->dtype) > 0 && a->dtype == b->dtype;
}

/* How many matrices alike, of experts 0, 1, 2 ..., are this parameter; 0: the file has it as one tensor, too, or not
 * so. */
static int64_t count_experts(const ls_ckpt *c, const char *param)
{
    const ls_ckpt_tensor *first = expert(c, param, 0), *next;
    int64_t E = 0;
    if (ls_ckpt_find(c, param)) return 0;
    while (E < ls_ckpt_count(c) && (next = expert(c, param, E)) && alike(first, next)) E++;
    return E;
}

static ls_weights_tensor stack(const ls_ckpt_tensor *t, int64_t E, struct ls_weights_stacked *s)
{
    const bool transposed = ls_hf_expert_transposed(s->name);
    s->dim[0] = E * t->dim[transposed];
    s->dim[1] = t->dim[!transposed];
    return (ls_weights_tensor){ s->name, t->dtype_name, t->dtype, 2, s->dim, (uint64_t)E * (t->end - t->begin),
                                is_state(s->name), E };
}

/* Whether this is a matrix of one of the n parameters that are put together. */
static bool is_stacked(const ls_weights *w, int n, const char *name)
{
    char buf[LS_HF_NAME_BYTES];
    const int64_t e = ls_hf_expert_of(name);
    const char *param = ls_hf_param_name(name, buf);
    for (int i = 0; e >= 0 && i < n; i++)
        if (strcmp(w->stacked[i].name, param) == 0) return e < w->tensor[i].experts;
    return false;
}

static ls_status list_file(ls_weights *w)
{
    const int n = ls_ckpt_count(w->file);
    int experts = 0;
    for (int i = 0; i < n; i++) experts += ls_hf_expert_of(ls_ckpt_at(w->file, i)->name) == 0;
    w->tensor = calloc((size_t)n + 1, sizeof *w->tensor);
    w->stacked = calloc((size_t)experts + 1, sizeof *w->stacked);
    if (!w->tensor || !w->stacked) return ls_fail(LS_NO_MEMORY, "a list of %d tensors", n);
    for (int i = 0; i < n; i++) {
        const ls_ckpt_tensor *t = ls_ckpt_at(w->file, i);
        struct ls_weights_stacked *s = &w->stacked[w->n];
        if (ls_hf_expert_of(t->name) != 0) continue;
        const int64_t E = count_experts(w->file, ls_hf_param_name(t->name, s->name));
        if (E > 0) w->tensor[w->n++] = stack(t, E, s);
    }
    const int stacked = w->n;
    for (int i = 0; i < n; i++)
        if (!is_stacked(w, stacked, ls_ckpt_at(w->file, i)->name)) w->tensor[w->n++] = of_file(ls_ckpt_at(w->file, i));
    return LS_OK;
}

ls_status ls_weights_open(const char *path, ls_weights *out)
{
    *out = (ls_weights){ 0 };
    if (ls_checkpoint_is_folder(path)) return ls_checkpoint_open(path, &out->folder);
    ls_status st = ls_ckpt_open(path, &out->file);
    if (st == LS_OK) st = list_file(out);
    if (st < 0) ls_weights_close(out);
    return st;
}

int ls_weights_count(const ls_weights *w) { return w->file ? w->n : ls_checkpoint_count(w->folder); }

static ls_weights_tensor at(const ls_weights *w, int i)
{
    if (w->file) return w->tensor[i];
    const ls_checkpoint_tensor *t = ls_checkpoint_at(w->folder, i);
    return (ls_weights_tensor){ t->name, t->dtype_name, t->dtype, t->ndim, t->dim,
                                ls_checkpoint_nbytes(w->folder, t), is_state(t->name), 0 };
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

/* Rows that are here of an expert's matrix; `raw` has it as the file does, in elements of so many bytes. */
static char *take_rows(const ls_hf_experts *h, bool transposed, const char *raw, size_t size, char *out)
{
    for (int64_t i = h->first; i < h->first + h->rows; i++)
        for (int64_t k = 0; k < h->C; k++, out += size)
            memcpy(out, raw + (size_t)(transposed ? k * h->F + i : i * h->C + k) * size, size);
    return out;
}

static ls_status read_experts(ls_weights *w, const ls_weights_tensor *t, const ls_hf_experts *h, char *dst)
{
    const size_t nbytes = t->nbytes / (size_t)t->experts;
    char *raw = malloc(nbytes + 1);
    ls_status st = raw ? LS_OK : ls_fail(LS_NO_MEMORY, "tensor '%s': %zu bytes to read an expert", t->name, nbytes);
    for (int64_t e = h->begin; st == LS_OK && e < h->end; e++) {
        st = ls_ckpt_read(w->file, expert(w->file, t->name, e), raw);
        if (st == LS_OK)
            dst = take_rows(h, ls_hf_expert_transposed(t->name), raw, nbytes / (size_t)(h->F * h->C), dst);
    }
    free(raw);
    return st;
}

ls_status ls_weights_read(ls_weights *w, const ls_weights_tensor *t, void *dst)
{
    if (w->folder) return ls_checkpoint_read(w->folder, ls_checkpoint_find(w->folder, t->name), NULL, NULL, dst);
    if (!t->experts) return ls_ckpt_read(w->file, ls_ckpt_find(w->file, t->name), dst);
    const int64_t F = t->dim[0] / t->experts;
    return read_experts(w, t, &(ls_hf_experts){ 0, t->experts, F, t->dim[1], 0, F }, dst);
}

ls_status ls_weights_read_param(ls_weights *w, const ls_weights_tensor *t, const ls_param *p, void *dst)
{
    if (!t->experts) return ls_ckpt_read_param(w->file, ls_ckpt_find(w->file, t->name), p, dst);
    const ls_hf_experts h = ls_hf_experts_of(p, t->experts);
    if (h.F != t->dim[0] / t->experts || h.end > t->experts)
        return ls_fail(LS_SHAPE, "tensor '%s' is of %lld experts, the model's is not", t->name, (long long)t->experts);
    return read_experts(w, t, &h, dst);
}
