/* tape.c -- records a forward pass; backward.c plays it backwards, listen.c tells who listens.
 *
 * Everything that a pass makes (tensors, nodes, activations, gradients of
 * activations) lives in one slab that only grows until ls_tape_reset: no
 * malloc in a step, and the same addresses in every step of the same shape.
 */
#include "tensor/tape_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "tensor/amx.h"
#include "tensor/conv.h"

/* --- life ------------------------------------------------------------------------ */

static ls_status create(ls_tape **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return ls_fail(LS_NO_MEMORY, "tape");
    (*out)->grad = true;
    (*out)->device = &ls_device_cpu;
    (*out)->room = (*out)->work = &(*out)->own;
    (*out)->amx = ls_amx_ready();
    return LS_OK;
}

static const ls_kernels *cpu_kernels(const ls_device *d, const ls_op *op)
{
    (void)d;
    return op->cpu.forward ? &op->cpu : NULL;
}

const ls_device ls_device_cpu = { .name = "cpu", .kernels = cpu_kernels };

ls_status ls_tape_create(size_t slab_bytes, ls_ledger *ledger, ls_tracer *tracer, ls_tape **out)
{
    return ls_tape_create_on(&ls_device_cpu, slab_bytes, ledger, tracer, out);
}

static ls_status open_scratch(ls_tape *t, bool dry)
{
    t->owns_scratch = true;
    t->scratch = calloc(1, sizeof *t->scratch);
    if (!t->scratch) return ls_fail(LS_NO_MEMORY, "tape");
    return dry ? LS_OK : ls_gemm_create(&t->scratch->gemm);
}

ls_status ls_tape_create_on(const ls_device *d, size_t slab_bytes, ls_ledger *ledger, ls_tracer *tracer, ls_tape **out)
{
    ls_tape *t = NULL;
    *out = NULL;
    LS_TRY(create(&t));
    t->tracer = tracer;
    t->watched = tracer != NULL;
    t->device = d;
    ls_status st = open_scratch(t, false);
    if (st >= 0) st = ls_room_open(&t->own, d, slab_bytes, ledger);
    if (st < 0) ls_tape_destroy(t);
    else *out = t;
    return st;
}

ls_status ls_tape_create_dry(ls_tape **out)
{
    ls_tape *t = NULL;
    *out = NULL;
    LS_TRY(create(&t));
    t->dry = true;
    ls_status st = open_scratch(t, true);
    if (st >= 0) st = ls_room_open_dry(&t->own);
    if (st < 0) ls_tape_destroy(t);
    else *out = t;
    return st;
}

ls_status ls_tape_create_shared(ls_tape_scratch *s, size_t slab_bytes, ls_ledger *ledger, ls_tracer *tracer,
                                ls_tape **out)
{
    ls_tape *t = NULL;
    *out = NULL;
    LS_TRY(create(&t));
    t->dry = s->room.dry;
    t->device = s->room.device;
    t->scratch = s;
    t->work = &s->room;
    t->tracer = t->dry ? NULL : tracer;
    t->watched = t->tracer != NULL;
    const ls_status st = t->dry ? ls_room_open_dry(&t->own) : ls_room_open(&t->own, t->device, slab_bytes, ledger);
    if (st < 0) ls_tape_destroy(t);
    else *out = t;
    return st;
}

void ls_tape_scratch_destroy(ls_tape_scratch *s)
{
    if (!s) return;
    ls_room_close(&s->room);
    ls_gemm_destroy(s->gemm);
    ls_conv_library_close(s->convolutions);
    free(s->packing.item);
    free(s);
}

ls_status ls_tape_scratch_create(size_t nbytes, ls_ledger *ledger, ls_tape_scratch **out)
{
    return ls_tape_scratch_create_on(&ls_device_cpu, nbytes, ledger, out);
}

ls_status ls_tape_scratch_create_on(const ls_device *d, size_t nbytes, ls_ledger *ledger, ls_tape_scratch **out)
{
    ls_tape_scratch *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return ls_fail(LS_NO_MEMORY, "scratch of tapes");
    ls_status st = ls_gemm_create(&s->gemm);
    if (st >= 0) st = ls_room_open(&s->room, d, nbytes, ledger);
    if (st < 0) ls_tape_scratch_destroy(s);
    else *out = s;
    return st;
}

ls_status ls_tape_scratch_create_dry(ls_tape_scratch **out)
{
    ls_tape_scratch *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return ls_fail(LS_NO_MEMORY, "scratch of tapes");
    s->room.device = &ls_device_cpu;
    const ls_status st = ls_room_open_dry(&s->room);
    if (st < 0) ls_tape_scratch_destroy(s);
    else *out = s;
    return st;
}

size_t ls_tape_scratch_peak(const ls_tape_scratch *s) { return s->room.slab.peak; }

void ls_tape_destroy(ls_tape *t)
{
    if (!t) return;
    ls_tape_tell_end(t);
    ls_room_close(&t->own);
    if (t->owns_scratch) ls_tape_scratch_destroy(t->scratch);
    free(t->labels);
    free(t->leaves);
    free(t->proved);
    free(t);
}

static void forget(ls_room *r)
{
    r->slab.floor = 0;
    ls_slab_release(&r->slab, 0);
    r->dry_used = 0;
}

void ls_tape_reset(ls_tape *t)
{
    t->rows = t->rows_room = 0;
    if (t->room != &t->own) forget(t->room); /* a failure ended a block, or backward */
    forget(t->room = &t->own);
    t->in_block = t->again = t->pending = false;
    t->deferred = t->newest = NULL;
    t->last = NULL;
    t->unit = t->played_unit = NULL;
    t->nops = 0;
    t->flops = t->flops_again = 0.0;
    t->status = LS_OK;
}

void ls_tape_set_grad(ls_tape *t, bool on) { t->grad = on; }
bool ls_tape_grad(const ls_tape *t) { return t->grad; }
bool ls_tape_pending(const ls_tape *t) { return t->pending; }
ls_dtype ls_tape_dtype(const ls_tape *t) { return t->dtype; }
double ls_tape_flops(const ls_tape *t) { return t->flops; }
double ls_tape_flops_again(const ls_tape *t) { return t->flops_again; }
size_t ls_tape_peak(const ls_tape *t) { return t->own.slab.peak; }
size_t ls_tape_in_use(const ls_tape *t) { return ls_slab_live(&t->own.slab); }
bool ls_tape_dry(const ls_tape *t) { return t->dry; }
void ls_tape_assume_even(ls_tape *t) { t->even = true; }
bool ls_tape_is_even(const ls_tape *t) { return t->even; }
bool ls_tape_amx(const ls_tape *t) { return t->amx; }
ls_gemm *ls_tape_gemm(const ls_tape *t) { return t->scratch->gemm; }
struct ls_conv_library **ls_tape_convolutions(const ls_tape *t) { return &t->scratch->convolutions; }

ls_status ls_tape_set_dtype(ls_tape *t, ls_dtype dtype)
{
    if (dtype != LS_F32 && dtype != LS_BF16)
        return ls_fail(LS_UNSUPPORTED, "tape: activations in %s; expected float or bfloat16", ls_dtype_name(dtype));
    t->dtype = dtype;
    return LS_OK;
}

/* --- failures --------------------------------------------------------------------- */

ls_status ls_tape_status(const ls_tape *t) { return t->status == LS_OK ? LS_OK : ls_fail(t->status, "%s", t->error); }

LS_COLD ls_status ls_tape_keep_failure(ls_tape *t, ls_status st)
{
    if (t->status == LS_OK) {
        t->status = st;
        snprintf(t->error, sizeof t->error, "%s", ls_last_error());
    }
    return st;
}

ls_tensor *ls_op_fail(ls_tape *t, ls_status st)
{
    ls_tape_keep_failure(t, st);
    return NULL;
}

/* --- the slab ----------------------------------------------------------------------- */

LS_COLD void ls_tape_no_room(ls_tape *t, size_t nbytes)
{
    ls_tape_keep_failure(t, ls_fail(LS_NO_MEMORY, "tape: %zu bytes do not fit: %zu of its %zu bytes are in use", nbytes,
                            t->room->slab.used, t->room->slab.size));
}

void *ls_tape_node_memory(ls_tape *t, size_t at, size_t nbytes)
{
    const size_t n = (nbytes + LS_SLAB_ALIGN - 1) / LS_SLAB_ALIGN * LS_SLAB_ALIGN;
    if (!t->dry) return t->room->base + at;
    if (n > LS_DRY_NODE_BYTES - t->room->dry_used) {
        ls_tape_keep_failure(t, ls_fail(LS_NO_MEMORY, "dry tape: more than %zu bytes of nodes", LS_DRY_NODE_BYTES));
        return NULL;
    }
    t->room->dry_used += n;
    return t->room->base + t->room->dry_used - n;
}

void *ls_tape_take_node(ls_tape *t, size_t nbytes)
{
    const size_t at = ls_slab_push(&t->room->slab, nbytes);
    if (LS_LIKELY(at != LS_SLAB_FULL)) return ls_tape_node_memory(t, at, nbytes);
    ls_tape_no_room(t, nbytes);
    return NULL;
}

void *ls_op_alloc(ls_tape *t, size_t nbytes)
{
    const size_t at = ls_slab_push(&t->room->slab, nbytes);
    if (LS_UNLIKELY(at == LS_SLAB_FULL)) {
        ls_tape_no_room(t, nbytes);
        return NULL;
    }
    return t->dry ? NULL : t->room->base + at;
}

size_t ls_op_mark(const ls_tape *t) { return t->room->slab.used; }
void ls_op_release(ls_tape *t, size_t mark) { ls_slab_release(&t->room->slab, mark); }

static ls_tensor *header(ls_tape *t, ls_dtype dtype, int ndim, const int64_t *dim)
{
    ls_tensor *x = ls_tape_take_node(t, sizeof *x);
    if (!x) return NULL;
    *x = (ls_tensor){ .dtype = dtype, .ndim = ndim };
    for (int i = 0; i < ndim; i++) x->dim[i] = dim[i];
    if (t->rows_room > 0 && ndim == 2 && dim[0] == t->rows) x->padded_rows = t->rows_room;
    return x;
}

void ls_tape_rows(ls_tape *t, int64_t rows, int64_t most)
{
    t->rows = rows;
    t->rows_room = most;
}

size_t ls_tensor_room(const ls_tensor *x)
{
    const size_t nbytes = ls_tensor_nbytes(x);
    return x->padded_rows > x->dim[0] ? nbytes / (size_t)x->dim[0] * (size_t)x->padded_rows : nbytes;
}

ls_tensor *ls_op_output(ls_tape *t, ls_dtype dtype, int ndim, const int64_t *dim)
{
    ls_tensor *x = header(t, dtype, ndim, dim);
    if (!x) return NULL;
    x->data = ls_op_alloc(t, ls_tensor_room(x));
    return t->status == LS_OK ? x : NULL;
}

/* `leaves_hole`: the memory will be given back. */
static ls_tensor *output_in_slab(ls_tape *t, ls_dtype dtype, int ndim, const int64_t *dim, bool leaves_hole)
{
    ls_tensor *x = header(t, dtype, ndim, dim);
    if (!x) return NULL;
    t->out_bytes = ls_tensor_room(x);
    t->out_at = leaves_hole ? ls_slab_take(&t->room->slab, t->out_bytes) : ls_slab_push(&t->room->slab, t->out_bytes);
    if (LS_UNLIKELY(t->out_at == LS_SLAB_FULL)) {
        ls_tape_no_room(t, t->out_bytes);
        return NULL;
    }
    x->data = t->dry ? NULL : t->room->base + t->out_at;
    return x;
}

ls_tensor *ls_op_output_again(ls_tape *t, ls_dtype dtype, int ndim, const int64_t *dim)
{
    return output_in_slab(t, dtype, ndim, dim, ls_tape_leaves_holes(t) && t->recompute == LS_RECOMPUTE_SELECTIVE);
}

ls_tensor *ls_op_output_transient(ls_tape *t, ls_dtype dtype, int ndim, const int64_t *dim)
{
    return output_in_slab(t, dtype, ndim, dim, ls_tape_leaves_holes(t));
}

ls_tensor *ls_tape_input(ls_tape *t, ls_dtype dtype, int ndim, const int64_t *dim, void *data)
{
    if (t->status != LS_OK) return NULL;
    if (ndim < 0 || ndim > LS_MAX_DIMS)
        return ls_op_fail(t, ls_fail(LS_INVALID, "input of %d dimensions: expected 0 to %d", ndim, LS_MAX_DIMS));
    for (int i = 0; i < ndim; i++)
        if (dim[i] < 1)
            return ls_op_fail(
                t, ls_fail(LS_SHAPE, "input: dimension %d is %lld, expected at least 1", i, (long long)dim[i]));
    if (!data && !t->dry) return ls_op_fail(t, ls_fail(LS_INVALID, "input: no data"));
    ls_tensor *x = header(t, dtype, ndim, dim);
    if (x) x->data = data;
    return x;
}

ls_tensor *ls_tape_input_wanted(ls_tape *t, ls_dtype dtype, int ndim, const int64_t *dim, void *data, void *grad)
{
    ls_tensor *x = ls_tape_input(t, dtype, ndim, dim, data);
    ls_tensor *g = x ? header(t, dtype, ndim, dim) : NULL;
    if (!g) return NULL;
    g->data = grad;
    x->grad = g;
    return x;
}

/* --- recording ------------------------------------------------------------------------ */

bool ls_op_begin(ls_tape *t, const char *name, bool inputs_given)
{
    if (LS_UNLIKELY(t->status != LS_OK)) return false;
    if (LS_UNLIKELY(!inputs_given)) {
        ls_tape_keep_failure(t, ls_fail(LS_INVALID, "%s: an input is NULL, and nothing failed before", name));
        return false;
    }
    if (LS_UNLIKELY(t->tracer != NULL)) t->op_t0_ns = ls_tracer_now(t->tracer);
    t->out_at = t->out_bytes = 0;
    return true;
}

static ls_status check_memory(const ls_tape *t, const char *op, const char *what, const ls_tensor *x)
{
    if (!t->dry && !x->data)
        return ls_fail(LS_INVALID, "%s: %s has no memory yet; call ls_params_bind first", op, what);
    return LS_OK;
}

ls_status ls_op_check(const ls_tape *t, const char *op, const char *what, const ls_tensor *x)
{
    if (x->dtype != LS_F32)
        return ls_fail(LS_UNSUPPORTED, "%s: %s is %s; only float is supported", op, what, ls_dtype_name(x->dtype));
    return check_memory(t, op, what, x);
}

ls_status ls_op_check_activation(const ls_tape *t, const char *op, const char *what, const ls_tensor *x)
{
    if (x->dtype != LS_F32 && x->dtype != LS_BF16)
        return ls_fail(LS_UNSUPPORTED, "%s: %s is %s; expected float or bfloat16", op, what, ls_dtype_name(x->dtype));
    return check_memory(t, op, what, x);
}

ls_status ls_op_check_alike(const char *op, const ls_tensor *a, const ls_tensor *b)
{
    if (a->dtype != b->dtype)
        return ls_fail(LS_UNSUPPORTED, "%s: inputs are %s and %s, expected the same", op, ls_dtype_name(a->dtype),
                       ls_dtype_name(b->dtype));
    return LS_OK;
}

void ls_tape_unit_begin(ls_tape *t, const struct ls_unit *unit)
{
    if (t->status != LS_OK) return;
    if (t->unit && !t->again) {
        ls_tape_keep_failure(t, ls_fail(LS_INVALID, "tape: a unit begins before ls_tape_unit_end of the one before"));
        return;
    }
    t->unit = unit;
    if (t->again || !ls_tape_heard(t, LS_HEARS_UNIT)) return; /* again: backward has entered it */
    const ls_status st = ls_tape_tell_unit(t, unit, LS_UNIT_ENTER);
    if (st < 0) ls_tape_keep_failure(t, st);
}

void ls_tape_unit_end(ls_tape *t)
{
    const struct ls_unit *unit = t->unit;
    if (t->status != LS_OK || !unit) return;
    if (t->again) return; /* the rest of the block is of the unit, too */
    t->unit = NULL;
    if (!ls_tape_heard(t, LS_HEARS_UNIT)) return;
    const ls_status st = ls_tape_tell_unit(t, unit, LS_UNIT_LEAVE);
    if (st < 0) ls_tape_keep_failure(t, st);
}

ls_tensor *ls_op_end(ls_tape *t, ls_tensor *out, const struct ls_node *what)
{
    const uint32_t index = t->nops++;
    *(t->again ? &t->flops_again : &t->flops) += what->flops;
    if (LS_UNLIKELY(t->watched)) ls_tape_tell_op(t, what, out, index, t->again ? LS_PHASE_AGAIN : LS_PHASE_FORWARD);
    if (ls_tape_heard(t, LS_HEARS_PROGRESS)) { /* collectives in flight: values of the next unit, or gradients */
        const ls_status st = ls_tape_tell_progress(t);
        if (st < 0) return ls_op_fail(t, st);
    }
    bool wanted = false;
    ls_tensor *const *in;
    for (int i = ls_tape_inputs(what, &in) - 1; i >= 0; i--) wanted |= ls_grad_wanted(in[i]);
    if (!wanted || !t->grad) return out;

    struct ls_node *n = ls_tape_take_node(t, sizeof *n);
    if (!n) return NULL;
    *n = *what;
    n->prev = t->last;
    n->out = out;
    n->index = index;
    n->unit = t->unit;
    n->live = n->borrowed = n->given_back = n->made_again = false;
    n->out_at = t->out_at;
    n->out_bytes = t->out_bytes;
    out->node = n;
    t->last = n;
    t->pending = true;
    return out;
}
