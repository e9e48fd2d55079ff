/* load_values.c -- the values of a model's parameters out of one safetensors file. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "ckpt/load.h"
#include "ckpt/weights.h"

#define MODULE "module." /* what PyTorch's DDP wrapper puts before every name */

static const char *shape_text(const ls_weights_tensor *t, char *buf, size_t n)
{
    size_t at = (size_t)snprintf(buf, n, "[");
    for (int d = 0; d < t->ndim && at < n; d++)
        at += (size_t)snprintf(buf + at, n - at, "%s%" PRId64, d ? ", " : "", t->dim[d]);
    if (at < n) snprintf(buf + at, n - at, "]");
    return buf;
}

/* Every name in the file begins with `front`, and no name of the model does. */
static bool is_in_front(const ls_ckpt *c, const ls_params *ps, const char *front)
{
    const size_t n = strlen(front);
    for (size_t i = 0; i < c->header.ntensors; i++)
        if (strncmp(c->header.tensor[i].name, front, n) != 0) return false;
    for (int i = 0; i < ls_params_total(ps); i++)
        if (strncmp(ls_params_at(ps, i)->name, front, n) == 0) return false;
    return c->header.ntensors > 0;
}

static bool find_param(const ls_weights *w, const ls_param *p, const char *front, ls_weights_tensor *out)
{
    char name[LS_CKPT_MAX_NAME + 1];
    const int n = snprintf(name, sizeof name, "%s%s", front, p->name);
    return n > 0 && (size_t)n < sizeof name && ls_weights_find(w, name, out);
}

/* The tensor that a parameter is, or is a part of, in a file. */
static ls_tensor file_tensor(const ls_param *p)
{
    ls_tensor t = p->t;
    ls_part_shape(&p->part, &p->t, t.dim);
    if (p->transposed) {
        const int64_t rows = t.dim[0];
        t.dim[0] = t.dim[1];
        t.dim[1] = rows;
    }
    return t;
}

static ls_status check_fit(const ls_ckpt *c, const ls_param *p, const ls_weights_tensor *t)
{
    char want[128], found[256];
    const ls_tensor in_file = file_tensor(p);
    if (!t)
        return ls_fail(LS_SHAPE, "%s: has no tensor '%s', which the model needs: the file is of another model "
                       "(`lockstep ckpt ls` shows what it holds)", c->path, p->name);
    LS_TRY(ls_part_check(p->name, &p->part, &p->t));
    bool same = t->ndim == p->t.ndim;
    for (int d = 0; same && d < t->ndim; d++) same = t->dim[d] == in_file.dim[d];
    if (!same)
        return ls_fail(LS_SHAPE, "%s: tensor '%s' has shape %s, the model's has %s: build the model with the file's "
                       "dimensions, or load another file", c->path, t->name, shape_text(t, found, sizeof found),
                       ls_tensor_shape(&in_file, want, sizeof want));
    if (t->dtype != p->t.dtype)
        return ls_fail(LS_SHAPE, "%s: tensor '%s' has elements of type %s, the model's are %s: convert the file first",
                       c->path, t->name, t->dtype_name, ls_ckpt_dtype_name(p->t.dtype));
    return ls_param_takes_values(p) ? LS_OK : ls_fail(LS_INVALID, "parameter '%s' has no memory: bind the parameters first", p->name);
}

/* Values as they stand in the file. */
static ls_status put(ls_param *p, const char *from)
{
    const ls_tensor *t = &p->t;
    float *to;
    LS_TRY(ls_param_open(p, &to));
    if (to && p->transposed) ls_ckpt_transpose(from, t->dtype, t->dim[0], t->dim[1], to);
    else if (to) memcpy(to, from, ls_tensor_nbytes(t));
    return ls_param_close(p);
}

/* What is here of all parameters is read into a copy first, so that a failure halfway leaves the model as it was. */
static ls_status load_all(ls_weights *w, ls_params *ps, const char *front)
{
    ls_weights_tensor t;
    size_t all = 1;
    for (int i = 0; i < ps->n; i++) all += ls_tensor_nbytes(&ps->item[i].t);
    char *copy = malloc(all), *at = copy;
    ls_status st = copy ? LS_OK : ls_fail(LS_NO_MEMORY, "%s: %zu bytes to load it do not fit in memory", w->file->path, all);
    for (int i = 0; st == LS_OK && i < ps->n; at += ls_tensor_nbytes(&ps->item[i].t), i++) {
        (void)find_param(w, &ps->item[i], front, &t);
        st = ls_weights_read_param(w, &t, &ps->item[i], at);
    }
    at = copy;
    for (int i = 0; st == LS_OK && i < ps->n; at += ls_tensor_nbytes(&ps->item[i].t), i++) st = put(&ps->item[i], at);
    free(copy);
    return st;
}

/* The file's tensors and the model's parameters match one to one. */
static ls_status check_all(const ls_weights *w, const ls_params *ps, const char *front)
{
    const ls_ckpt *c = w->file;
    ls_weights_tensor t;
    for (int i = 0; i < ps->n; i++)
        LS_TRY(check_fit(c, &ps->item[i], find_param(w, &ps->item[i], front, &t) ? &t : NULL));
    for (int i = 0; i < w->n; i++) {
        const char *name = w->tensor[i].name;
        if (!ls_params_find_any(ps, name + strlen(front)))
            return ls_fail(LS_SHAPE, "%s: has a tensor '%s', which the model does not know: the file is of another model",
                           c->path, name);
    }
    return LS_OK;
}

ls_status ls_ckpt_load(const char *path, ls_params *ps, bool strip_module)
{
    ls_weights w;
    LS_TRY(ls_weights_open(path, &w));
    ls_ckpt *c = w.file;
    ls_status st = LS_OK;
    if (w.folder) {
        st = ls_checkpoint_values(w.folder, ps);
        ls_weights_close(&w);
        return st;
    }
    const char *prefix = ls_ckpt_meta(c, LS_CKPT_PREFIX_KEY), *front = "";
    if (is_in_front(c, ps, MODULE)) {
        front = MODULE;
        if (!strip_module)
            st = ls_fail(LS_SHAPE, "%s: every name begins with '" MODULE "': it was saved from inside PyTorch's DDP wrapper. "
                         "Load it with the prefix stripped", path);
    } else if (prefix && is_in_front(c, ps, prefix)) {
        front = prefix;
    }
    if (st == LS_OK) st = check_all(&w, ps, front);
    if (st == LS_OK) st = load_all(&w, ps, front);
    ls_weights_close(&w);
    return st;
}
