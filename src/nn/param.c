/* param.c -- the list of a model's parameters. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep/nn.h"

ls_status ls_params_add(ls_params *ps, const char *name, int ndim, const int64_t *dim)
{
    if (!name || !*name || strlen(name) >= LS_NAME_BYTES)
        return ls_fail(LS_INVALID, "parameter name '%s': expected 1 to %d bytes", name ? name : "", LS_NAME_BYTES - 1);
    if (ls_params_find(ps, name)) return ls_fail(LS_INVALID, "parameter '%s' is registered twice", name);
    if (ndim < 1 || ndim > LS_MAX_DIMS)
        return ls_fail(LS_SHAPE, "parameter '%s': %d dimensions, expected 1 to %d", name, ndim, LS_MAX_DIMS);
    for (int i = 0; i < ndim; i++)
        if (dim[i] < 1)
            return ls_fail(LS_SHAPE, "parameter '%s': dimension %d is %lld, expected at least 1", name, i,
                           (long long)dim[i]);
    if (ps->n == ps->cap) {
        const int cap = ps->cap ? 2 * ps->cap : 8;
        ls_param *more = realloc(ps->item, (size_t)cap * sizeof *more);
        if (!more) return ls_fail(LS_NO_MEMORY, "list of %d parameters", cap);
        ps->item = more;
        ps->cap = cap;
    }
    ls_param *p = &ps->item[ps->n++];
    *p = (ls_param){ .t = { .dtype = LS_F32, .ndim = ndim }, .grad = { .dtype = LS_F32, .ndim = ndim } };
    snprintf(p->name, sizeof p->name, "%s", name);
    for (int i = 0; i < ndim; i++) p->t.dim[i] = p->grad.dim[i] = dim[i];
    return LS_OK;
}

ls_status ls_params_bind(ls_params *ps, ls_arena *values, ls_arena *grads)
{
    for (int i = 0; i < ps->n; i++)
        LS_TRY(ls_arena_alloc(values, ls_tensor_nbytes(&ps->item[i].t), LS_MEM_PARAM, &ps->item[i].t.data));
    for (int i = 0; i < ps->n; i++) {
        ls_param *p = &ps->item[i];
        p->t.grad = NULL;
        p->t.grad_ready = false;
        if (!grads) continue;
        LS_TRY(ls_arena_alloc(grads, ls_tensor_nbytes(&p->grad), LS_MEM_GRAD, &p->grad.data));
        p->t.grad = &p->grad;
    }
    return LS_OK;
}

void ls_params_free(ls_params *ps)
{
    free(ps->item);
    *ps = (ls_params){ 0 };
}

ls_param *ls_params_find(const ls_params *ps, const char *name)
{
    for (int i = 0; i < ps->n; i++)
        if (strcmp(ps->item[i].name, name) == 0) return &ps->item[i];
    return NULL;
}

int64_t ls_params_count(const ls_params *ps)
{
    int64_t n = 0;
    for (int i = 0; i < ps->n; i++) n += ls_tensor_count(&ps->item[i].t);
    return n;
}

size_t ls_params_nbytes(const ls_params *ps)
{
    size_t n = 0;
    for (int i = 0; i < ps->n; i++) n += ls_tensor_nbytes(&ps->item[i].t);
    return n;
}

void ls_params_zero_grad(ls_params *ps)
{
    for (int i = 0; i < ps->n; i++) ps->item[i].t.grad_ready = false;
}

void ls_params_decay_matrices(ls_params *ps)
{
    for (int i = 0; i < ps->n; i++) ps->item[i].no_decay = ps->item[i].t.ndim < 2;
}
