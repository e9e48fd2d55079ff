/* param.c -- the list of a model's parameters. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "lockstep/nn.h"
#include "tensor/share.h"

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
    for (int i = 0; i < ps->n; i++) ps->item[i].t.name = ps->item[i].name; /* where the list is now */
    ls_param *p = &ps->item[ps->n++];
    *p = (ls_param){ .t = { .dtype = LS_F32, .ndim = ndim }, .grad = { .dtype = LS_F32, .ndim = ndim } };
    snprintf(p->name, sizeof p->name, "%s", name);
    p->t.name = p->name;
    for (int i = 0; i < ndim; i++) p->t.dim[i] = p->grad.dim[i] = dim[i];
    p->id = (uint32_t)ps->n - 1;
    p->unit = -1;
    p->part = ls_part_all(&p->t);
    p->own = p->keeps = (ls_range){ 0, (size_t)ls_tensor_count(&p->t) };
    return LS_OK;
}

static ls_status bind(ls_arena *a, const ls_param *p, size_t nbytes, ls_mem_kind kind, void **out)
{
    ls_status st = ls_arena_alloc(a, nbytes, kind, out);
    if (st >= 0) st = ls_arena_assign(a, *out, nbytes, p->unit);
    return st < 0 ? ls_while(st, "allocating parameter %s", p->name) : LS_OK;
}

ls_status ls_params_bind(ls_params *ps, ls_arena *values, ls_arena *grads)
{
    ls_params_take_sink(ps, NULL);
    ps->layout = 0;
    for (int i = 0; i < ps->n; i++) {
        ls_param *p = &ps->item[i];
        LS_TRY(bind(values, p, ls_tensor_nbytes(&p->t), LS_MEM_PARAM, &p->t.data));
    }
    for (int i = 0; i < ps->n; i++) {
        ls_param *p = &ps->item[i];
        p->t.grad = NULL;
        p->t.grad_ready = p->dmaster_ready = p->settled = false;
        if (!grads) continue;
        LS_TRY(bind(grads, p, ls_tensor_nbytes(&p->grad), LS_MEM_GRAD, &p->grad.data));
        p->t.grad = &p->grad;
    }
    return LS_OK;
}

/* --- copies in bf16 ------------------------------------------------------------------ */

size_t ls_param_bf16_nbytes(const ls_param *p)
{
    return p->t.ndim >= 2 && !p->f32 ? (size_t)ls_tensor_count(&p->t) * sizeof(uint16_t) : 0;
}

ls_status ls_params_bind_bf16(ls_params *ps, ls_arena *values)
{
    for (int i = 0; i < ps->n; i++) {
        ls_param *p = &ps->item[i];
        const size_t nbytes = ls_param_bf16_nbytes(p);
        if (nbytes == 0) continue;
        LS_TRY(bind(values, p, nbytes, LS_MEM_PARAM, &p->bf16));
        p->t.bf16 = p->bf16;
    }
    return LS_OK;
}

LS_KERNEL static void round_values(const void *call, int64_t first, int64_t count)
{
    const ls_param *p = call;
    const float *restrict from = p->t.data;
    uint16_t *restrict to = p->bf16;
    for (int64_t i = first; i < first + count; i++) to[i] = ls_to_bf16(from[i]);
}

void ls_param_round(const ls_param *p)
{
    const int64_t n = ls_tensor_count(&p->t);
    if (p->bf16 && p->t.data) ls_parallel_for(round_values, p, n, LS_SHARE_LINE, 6 * n);
}

void ls_params_round(ls_params *ps)
{
    for (int i = 0; i < ps->n; i++) ls_param_round(&ps->item[i]);
}

/* --- all of them ---------------------------------------------------------------------- */

void ls_params_take_sink(ls_params *ps, ls_sink *sink)
{
    if (ps->sink) ps->sink->destroy(ps->sink);
    ps->sink = sink;
    for (int i = 0; i < ps->n; i++) ps->item[i].sink = NULL;
}

void ls_params_free(ls_params *ps)
{
    if (ps->sink) ps->sink->destroy(ps->sink);
    if (ps->elsewhere) ls_params_free(ps->elsewhere);
    free(ps->elsewhere);
    free(ps->whole);
    free(ps->item);
    *ps = (ls_params){ 0 };
}

ls_param *ls_params_find(const ls_params *ps, const char *name)
{
    for (int i = 0; i < ps->n; i++)
        if (strcmp(ps->item[i].name, name) == 0) return &ps->item[i];
    return NULL;
}

ls_param *ls_params_find_any(const ls_params *ps, const char *name)
{
    ls_param *p = ls_params_find(ps, name);
    return p || !ps->elsewhere ? p : ls_params_find(ps->elsewhere, name);
}

const ls_param *ls_params_largest(const ls_params *ps)
{
    const ls_param *most = NULL;
    for (int i = 0; i < ps->n; i++)
        if (!most || ls_tensor_count(&ps->item[i].t) > ls_tensor_count(&most->t)) most = &ps->item[i];
    return most;
}

int64_t ls_params_count_whole(const ls_params *ps)
{
    int64_t n = 0;
    for (int i = 0; i < ls_params_total(ps); i++) {
        const ls_param *p = ls_params_at(ps, i);
        ls_tensor whole = p->t;
        ls_part_shape(&p->part, &p->t, whole.dim);
        n += ls_tensor_count(&whole);
    }
    return n;
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
    for (int i = 0; i < ps->n; i++)
        ps->item[i].t.grad_ready = ps->item[i].t.grad_reduced = ps->item[i].dmaster_ready = false;
}

void ls_params_decay_matrices(ls_params *ps)
{
    for (int i = 0; i < ps->n; i++) ps->item[i].no_decay = ps->item[i].t.ndim < 2;
}
