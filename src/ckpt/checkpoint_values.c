/* checkpoint_values.c -- parameters' values out of a checkpoint that ranks have saved. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/checkpoint.h"
#include "ckpt/state.h"

static const char *shape_text(const int64_t *dim, int ndim, ls_text *out)
{
    ls_text_add(out, "[");
    for (int d = 0; d < ndim; d++) ls_text_add(out, "%s%" PRId64, d ? ", " : "", dim[d]);
    ls_text_add(out, "]");
    return ls_text_str(out);
}

ls_status ls_checkpoint_check(const ls_checkpoint *s, const char *name, ls_dtype dtype, int ndim, const int64_t *dim)
{
    const ls_checkpoint_tensor *t = ls_checkpoint_find(s, name);
    ls_text want = { 0 }, found = { 0 };
    if (!t)
        return ls_fail(LS_SHAPE, "%s: has no tensor '%s', which the program needs: the checkpoint is of another model "
                       "or optimizer (`lockstep ckpt ls` shows what it holds)", s->folder, name);
    bool same = t->ndim == ndim;
    for (int d = 0; same && d < ndim; d++) same = t->dim[d] == dim[d];
    ls_status st = LS_OK;
    if (!same)
        st = ls_fail(LS_SHAPE, "%s: tensor '%s' has shape %s, the program's has %s: build the model with the "
                     "checkpoint's sizes, or load another checkpoint", s->folder, name, shape_text(t->dim, t->ndim, &found),
                         shape_text(dim, ndim, &want));
    else if (t->dtype != dtype)
        st = ls_fail(LS_SHAPE, "%s: tensor '%s' has elements of type %s, the program's are %s", s->folder, name,
                     t->dtype_name,
                     ls_ckpt_dtype_name(dtype));
    ls_text_free(&want);
    ls_text_free(&found);
    return st;
}

ls_status ls_checkpoint_updates(ls_checkpoint *s, const char *name, int64_t *out)
{
    static const int64_t one[] = { 1 };
    const ls_checkpoint_tensor *t = ls_checkpoint_find(s, name);
    float x = 0;
    if (!t || !ls_checkpoint_is_foreign(s) || t->dtype != LS_F32 || t->ndim > 1 || (t->ndim == 1 && t->dim[0] != 1)) {
        LS_TRY(ls_checkpoint_check(s, name, LS_I64, 1, one));
        return ls_checkpoint_read(s, t, NULL, NULL, out);
    }
    LS_TRY(ls_checkpoint_read(s, t, NULL, NULL, &x));
    if (!(x >= 0 && x < 0x1p62f) || floorf(x) < x)
        return ls_fail(LS_SHAPE, "%s: tensor '%s' is %g, expected a number of updates", s->folder, name, (double)x);
    *out = (int64_t)x;
    return LS_OK;
}

static bool has_state(const ls_checkpoint *s, const char *name)
{
    const size_t n = strlen(name);
    for (int i = 0; i < s->ntensors; i++) {
        const char *other = s->tensor[i].name;
        const size_t k = strlen(other);
        if (strncmp(other, LS_STATE_OPTIM, sizeof LS_STATE_OPTIM - 1) == 0 && k > n && other[k - n - 1] == '.' &&
            strcmp(other + k - n, name) == 0) return true;
    }
    return false;
}

static ls_status equal(ls_checkpoint *s, const ls_checkpoint_tensor *a, const ls_checkpoint_tensor *b, bool *same)
{
    const size_t n = (size_t)ls_checkpoint_nbytes(s, a);
    char *p = malloc(n + 1), *q = malloc(n + 1);
    ls_status st = p && q ? LS_OK : ls_fail(LS_NO_MEMORY, "tensor '%s': twice %zu bytes", a->name, n);
    if (st == LS_OK) st = ls_checkpoint_read(s, a, NULL, NULL, p);
    if (st == LS_OK) st = ls_checkpoint_read(s, b, NULL, NULL, q);
    *same = st == LS_OK && memcmp(p, q, n) == 0;
    free(p);
    free(q);
    return st;
}

/* A tensor that the model does not know: another name of a parameter's values, or too much. */
static ls_status check_unknown(ls_checkpoint *s, const ls_params *ps, const ls_checkpoint_tensor *t)
{
    bool tied = false;
    for (int i = 0; i < ls_params_total(ps) && !tied && ls_checkpoint_is_foreign(s) && !has_state(s, t->name); i++) {
        const ls_checkpoint_tensor *u = ls_checkpoint_find(s, ls_params_at(ps, i)->name);
        bool alike = u && u->dtype == t->dtype && u->ndim == t->ndim;
        for (int d = 0; alike && d < t->ndim; d++) alike = u->dim[d] == t->dim[d];
        if (alike) LS_TRY(equal(s, t, u, &tied));
    }
    return tied ? LS_OK
                : ls_fail(LS_SHAPE, "%s: has a tensor '%s', which the model does not know: the checkpoint is of another model",
                          s->folder, t->name);
}

/* Every tensor of the checkpoint that is no optimizer's or program's is one of the model. */
static ls_status check_all(ls_checkpoint *s, const ls_params *ps)
{
    for (int i = 0; i < ps->n; i++) {
        const ls_param *p = &ps->item[i];
        int64_t dim[LS_MAX_DIMS];
        ls_piece_shape(p, dim);
        LS_TRY(ls_part_check(p->name, &p->part, &p->t));
        LS_TRY(ls_checkpoint_check(s, p->name, p->t.dtype, p->t.ndim, dim));
        if (!ls_param_takes_values(p))
            return ls_fail(LS_INVALID, "parameter '%s' has no memory for values, or has its first values already: call "
                           "ls_checkpoint_values before ls_ddp_create", p->name);
    }
    for (int i = 0; i < s->ntensors; i++) {
        const char *name = s->tensor[i].name;
        const bool other = strncmp(name, LS_STATE_OPTIM, sizeof LS_STATE_OPTIM - 1) == 0 ||
                           strncmp(name, LS_STATE_OWN, sizeof LS_STATE_OWN - 1) == 0;
        if (!other && !ls_params_find_any(ps, name)) LS_TRY(check_unknown(s, ps, &s->tensor[i]));
    }
    return LS_OK;
}

static ls_status load_one(ls_checkpoint *s, ls_param *p)
{
    float *to;
    LS_TRY(ls_param_open(p, &to));
    const ls_range all = { 0, (size_t)ls_tensor_count(&p->t) };
    if (to) LS_TRY(ls_piece_read(s, p->name, p, all, to));
    return ls_param_close(p);
}

ls_status ls_checkpoint_values(ls_checkpoint *s, ls_params *ps)
{
    LS_TRY(check_all(s, ps));
    for (int i = 0; i < ps->n; i++) LS_TRY(load_one(s, &ps->item[i]));
    return LS_OK;
}

ls_status ls_checkpoint_first_values(void *checkpoint, ls_model *m)
{
    return ls_checkpoint_values(checkpoint, &m->params);
}
