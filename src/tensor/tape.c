/* tape.c -- records a forward pass and plays it backwards.
 *
 * Everything that a pass makes (tensors, nodes, activations, gradients of
 * activations) lives in one slab that only grows until ls_tape_reset: no
 * malloc in a step, and the same addresses in every step of the same shape.
 */
#include "tensor/tape.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "tensor/element.h"

#define ALIGN 64u
#define DRY_NODE_BYTES ((size_t)16 << 20) /* nodes of a dry tape: about 50,000 ops; untouched pages cost nothing */

struct ls_tape {
    ls_arena *arena;        /* owned; NULL on a dry tape */
    char *base;             /* the slab: in the arena; on a dry tape owned, for nodes and tensors only */
    size_t size, used, peak;
    size_t dry_used;        /* of base, on a dry tape */
    bool dry, grad;
    ls_dtype dtype;         /* of activations */
    struct ls_node *last;   /* most recently recorded */
    uint32_t nops;          /* since the reset, recorded or not */
    double flops;
    ls_gemm *gemm;          /* owned */
    ls_status status;       /* first failure, and its sentence */
    char error[496];
    ls_grad_ready_fn ready; /* both NULL: nobody asked */
    ls_poke_fn poke;
    ls_done_fn done;
    void *ready_arg, *poke_arg, *done_arg;
    ls_tracer *tracer;      /* borrowed, may be NULL */
    uint64_t op_t0_ns;
    struct op_label {       /* by index of op: the same in every step, so the text is made once */
        const char *name;
        uint32_t a, b;
        uint16_t label;
    } *labels;              /* owned */
    uint32_t nlabels;
};

/* --- life ------------------------------------------------------------------------ */

static ls_status create(ls_tape **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return ls_fail(LS_NO_MEMORY, "tape");
    (*out)->grad = true;
    return LS_OK;
}

ls_status ls_tape_create(size_t slab_bytes, ls_ledger *ledger, ls_tracer *tracer, ls_tape **out)
{
    ls_status st = LS_OK;
    ls_tape *t = NULL;
    void *base = NULL;

    *out = NULL;
    if ((st = create(&t)) < 0) goto done;
    t->tracer = tracer;
    t->size = (slab_bytes + ALIGN - 1) / ALIGN * ALIGN;
    if ((st = ls_gemm_create(&t->gemm)) < 0) goto done;
    if ((st = ls_arena_create(t->size, false, ledger, &t->arena)) < 0) goto done;
    if ((st = ls_arena_alloc(t->arena, t->size, LS_MEM_ACT, &base)) < 0) goto done;
    t->base = base;
    *out = t;
    t = NULL;
done:
    ls_tape_destroy(t);
    return st;
}

ls_status ls_tape_create_dry(ls_tape **out)
{
    *out = NULL;
    ls_tape *t = NULL;
    LS_TRY(create(&t));
    t->dry = true;
    t->size = SIZE_MAX / 2;
    t->base = aligned_alloc(ALIGN, DRY_NODE_BYTES);
    if (!t->base) {
        ls_tape_destroy(t);
        return ls_fail(LS_NO_MEMORY, "nodes of a dry tape");
    }
    *out = t;
    return LS_OK;
}

void ls_tape_destroy(ls_tape *t)
{
    if (!t) return;
    if (t->dry) free(t->base);
    ls_arena_destroy(t->arena);
    ls_gemm_destroy(t->gemm);
    free(t->labels);
    free(t);
}

void ls_tape_reset(ls_tape *t)
{
    t->used = t->dry_used = 0;
    t->last = NULL;
    t->nops = 0;
    t->flops = 0.0;
    t->status = LS_OK;
}

void ls_tape_set_grad(ls_tape *t, bool on) { t->grad = on; }
bool ls_tape_grad(const ls_tape *t) { return t->grad; }
ls_dtype ls_tape_dtype(const ls_tape *t) { return t->dtype; }
double ls_tape_flops(const ls_tape *t) { return t->flops; }
size_t ls_tape_peak(const ls_tape *t) { return t->peak; }
bool ls_tape_dry(const ls_tape *t) { return t->dry; }
ls_gemm *ls_tape_gemm(const ls_tape *t) { return t->gemm; }

ls_status ls_tape_set_dtype(ls_tape *t, ls_dtype dtype)
{
    if (dtype != LS_F32 && dtype != LS_BF16)
        return ls_fail(LS_UNSUPPORTED, "tape: activations in %s; expected float or bfloat16", ls_dtype_name(dtype));
    t->dtype = dtype;
    return LS_OK;
}

void ls_tape_on_grad_ready(ls_tape *t, ls_grad_ready_fn fn, void *arg)
{
    t->ready = fn;
    t->ready_arg = arg;
}

void ls_tape_on_done(ls_tape *t, ls_done_fn fn, void *arg)
{
    t->done = fn;
    t->done_arg = arg;
}

void ls_tape_on_poke(ls_tape *t, ls_poke_fn fn, void *arg)
{
    t->poke = fn;
    t->poke_arg = arg;
}

/* --- failures --------------------------------------------------------------------- */

ls_status ls_tape_status(const ls_tape *t) { return t->status == LS_OK ? LS_OK : ls_fail(t->status, "%s", t->error); }

static LS_COLD ls_status keep_failure(ls_tape *t, ls_status st)
{
    if (t->status == LS_OK) {
        t->status = st;
        snprintf(t->error, sizeof t->error, "%s", ls_last_error());
    }
    return st;
}

ls_tensor *ls_op_fail(ls_tape *t, ls_status st)
{
    keep_failure(t, st);
    return NULL;
}

/* --- the slab ----------------------------------------------------------------------- */

/* `data`: contents that a dry tape does not have. */
static void *take(ls_tape *t, size_t nbytes, bool data)
{
    const size_t n = (nbytes + ALIGN - 1) / ALIGN * ALIGN;
    if (LS_UNLIKELY(n > t->size - t->used || n < nbytes)) {
        keep_failure(t, ls_fail(LS_NO_MEMORY, "tape: %zu bytes do not fit: %zu of its %zu bytes are in use", nbytes,
                                t->used, t->size));
        return NULL;
    }
    char *p = t->base + t->used;
    t->used += n;
    if (t->used > t->peak) t->peak = t->used;
    if (LS_LIKELY(!t->dry)) return p;
    if (data) return NULL;
    if (n > DRY_NODE_BYTES - t->dry_used) {
        keep_failure(t, ls_fail(LS_NO_MEMORY, "dry tape: more than %zu bytes of nodes", DRY_NODE_BYTES));
        return NULL;
    }
    p = t->base + t->dry_used;
    t->dry_used += n;
    return p;
}

void *ls_op_alloc(ls_tape *t, size_t nbytes) { return take(t, nbytes, true); }
size_t ls_op_mark(const ls_tape *t) { return t->used; }
void ls_op_release(ls_tape *t, size_t mark) { t->used = mark; }

static ls_tensor *header(ls_tape *t, ls_dtype dtype, int ndim, const int64_t *dim)
{
    ls_tensor *x = take(t, sizeof *x, false);
    if (!x) return NULL;
    *x = (ls_tensor){ .dtype = dtype, .ndim = ndim };
    for (int i = 0; i < ndim; i++) x->dim[i] = dim[i];
    return x;
}

ls_tensor *ls_op_output(ls_tape *t, ls_dtype dtype, int ndim, const int64_t *dim)
{
    ls_tensor *x = header(t, dtype, ndim, dim);
    if (!x) return NULL;
    x->data = take(t, ls_tensor_nbytes(x), true);
    return t->status == LS_OK ? x : NULL;
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

/* --- recording ------------------------------------------------------------------------ */

bool ls_op_begin(ls_tape *t, const char *name, bool inputs_given)
{
    if (LS_UNLIKELY(t->status != LS_OK)) return false;
    if (LS_UNLIKELY(!inputs_given)) {
        keep_failure(t, ls_fail(LS_INVALID, "%s: an input is NULL, and nothing failed before", name));
        return false;
    }
    if (LS_UNLIKELY(t->tracer != NULL)) t->op_t0_ns = ls_tracer_now(t->tracer);
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

bool ls_grad_wanted(const ls_tensor *x) { return x && (x->node || x->grad); }

static LS_COLD uint16_t make_label(ls_tape *t, const struct ls_node *n, uint32_t index)
{
    if (index >= t->nlabels) {
        const uint32_t cap = index < 64 ? 64 : 2 * index;
        struct op_label *more = realloc(t->labels, cap * sizeof *more);
        if (!more) return 0; /* the event goes without a name */
        memset(more + t->nlabels, 0, (cap - t->nlabels) * sizeof *more);
        t->labels = more;
        t->nlabels = cap;
    }
    char text[LS_BLACKBOX_STRING_BYTES];
    if (n->label_b) snprintf(text, sizeof text, "%s %ux%u", n->op->name, n->label_a, n->label_b);
    else if (n->label_a) snprintf(text, sizeof text, "%s %u", n->op->name, n->label_a);
    else snprintf(text, sizeof text, "%s", n->op->name);
    t->labels[index] = (struct op_label){ n->op->name, n->label_a, n->label_b, ls_tracer_label(t->tracer, text) };
    return t->labels[index].label;
}

static LS_COLD void trace(ls_tape *t, const struct ls_node *n, uint32_t index, double flops, bool backward)
{
    const uint64_t t1 = ls_tracer_now(t->tracer);
    const struct op_label *l = index < t->nlabels ? &t->labels[index] : NULL;
    const bool known = l && l->name == n->op->name && l->a == n->label_a && l->b == n->label_b;
    const uint64_t ns = t1 > t->op_t0_ns ? t1 - t->op_t0_ns : 1;
    ls_tracer_add(t->tracer, &(ls_event){
        .t0_ns = t->op_t0_ns, .t1_ns = t1, .gflops = (float)(flops / (double)ns), .peer = -1, .kind = LS_EV_OP,
        .label = known ? l->label : make_label(t, n, index), .dtype = (uint8_t)t->dtype, .backward = backward,
    });
}

ls_tensor *ls_op_end(ls_tape *t, ls_tensor *out, const struct ls_node *what)
{
    const uint32_t index = t->nops++;
    t->flops += what->flops;
    if (LS_UNLIKELY(t->tracer != NULL)) trace(t, what, index, what->flops, false);
    bool wanted = false;
    for (int i = 0; i < LS_OP_INPUTS; i++) wanted |= ls_grad_wanted(what->in[i]);
    if (!wanted || !t->grad) return out;

    struct ls_node *n = take(t, sizeof *n, false);
    if (!n) return NULL;
    *n = *what;
    n->prev = t->last;
    n->out = out;
    n->index = index;
    n->live = n->borrowed = false;
    out->node = n;
    t->last = n;
    return out;
}

/* --- playing back ------------------------------------------------------------------------ */

static LS_ALWAYS_INLINE void add_values(void *restrict to, const void *restrict from, int64_t n, bool bf16)
{
    for (int64_t i = 0; i < n; i++) ls_put(to, i, ls_get(to, i, bf16) + ls_get(from, i, bf16), bf16);
}

LS_KERNEL void ls_grad_add(ls_dtype dtype, void *restrict to, const void *restrict from, int64_t n)
{
    LS_BY_DTYPE(dtype, add_values, to, from, n);
}

static ls_status unlike(const ls_tensor *x)
{
    return ls_fail(LS_INVALID, "backward: the gradient of a tensor of %s is %s, expected the same",
                   ls_dtype_name(x->dtype), ls_dtype_name(x->grad->dtype));
}

ls_status ls_grad_begin(ls_tape *t, ls_tensor *x, bool *add, void **out)
{
    ls_tensor *const held = x->grad;
    if (x->node && (!held || held->uses > 0)) {
        x->grad = ls_op_output(t, x->dtype, x->ndim, x->dim);
        if (!x->grad) return t->status;
        if (held) { /* others hold it too, and it must not change for them */
            held->uses--;
            if (!t->dry) memcpy(x->grad->data, held->data, ls_tensor_nbytes(held));
        }
    }
    if (LS_UNLIKELY(x->grad->dtype != x->dtype)) return unlike(x);
    *add = x->grad_ready;
    *out = x->grad->data;
    return LS_OK;
}

/* Lets x, which has no gradient yet, hold that of n->out, unless more than `others` do. */
static bool hold(const struct ls_node *n, ls_tensor *x, int others)
{
    if (!x->node || x->grad || n->borrowed || n->out->grad->uses > others) return false;
    x->grad = n->out->grad;
    x->grad->uses++;
    return true;
}

ls_status ls_grad_begin_in_place(ls_tape *t, struct ls_node *n, ls_tensor *x, bool *add, void **out)
{
    if (!hold(n, x, 0)) return ls_grad_begin(t, x, add, out);
    *add = false;
    *out = x->grad->data;
    return LS_OK;
}

ls_status ls_grad_pass(ls_tape *t, struct ls_node *n, ls_tensor *x)
{
    if (!hold(n, x, INT_MAX)) {
        const ls_tensor *from = n->out->grad;
        bool add;
        void *out;
        LS_TRY(ls_grad_begin(t, x, &add, &out));
        if (!t->dry && add) ls_grad_add(x->dtype, out, from->data, ls_tensor_count(from));
        if (!t->dry && !add) memcpy(out, from->data, ls_tensor_nbytes(from));
    }
    return ls_grad_end(t, x);
}

ls_status ls_grad_end(ls_tape *t, ls_tensor *x)
{
    x->grad_ready = true;
    x->uses--;
    if (x->uses == 0 && !x->node && t->ready) return t->ready(t->ready_arg, x);
    return LS_OK;
}

/* Finds out which ops lead to `root`, and how often each tensor is used by them. */
static void count_uses(struct ls_node *root)
{
    for (struct ls_node *n = root; n; n = n->prev)
        for (int i = 0; i < LS_OP_INPUTS; i++)
            if (n->in[i]) n->in[i]->uses = 0;
    for (struct ls_node *n = root; n; n = n->prev) { /* every user of n->out comes later on the tape: seen before */
        n->live = n == root || n->out->uses > 0;
        for (int i = 0; n->live && i < LS_OP_INPUTS; i++)
            if (ls_grad_wanted(n->in[i])) n->in[i]->uses++;
    }
}

/* One half of an op's backward, if any input of it wants a gradient. */
static ls_status play_half(ls_tape *t, struct ls_node *n, bool weight)
{
    ls_status (*const half)(ls_tape *, struct ls_node *) = weight ? n->op->backward_weight : n->op->backward_input;
    const int first = weight ? n->op->napplied : 0, end = weight ? LS_OP_INPUTS : n->op->napplied;
    const double flops = weight ? n->flops_weight : n->flops_input;
    bool wanted = false;
    for (int i = first; i < end; i++) wanted |= ls_grad_wanted(n->in[i]);
    if (!half || !wanted) return LS_OK;

    if (LS_UNLIKELY(t->tracer != NULL)) t->op_t0_ns = ls_tracer_now(t->tracer);
    LS_TRY(half(t, n));
    t->flops += flops;
    if (LS_UNLIKELY(t->tracer != NULL)) trace(t, n, n->index, flops, true);
    return t->poke ? t->poke(t->poke_arg) : LS_OK;
}

static ls_status play(ls_tape *t, ls_tensor *root, ls_tensor *grad, bool borrowed)
{
    ls_status st = LS_OK;
    root->grad = grad;
    root->grad_ready = true;
    root->node->borrowed = borrowed;
    count_uses(root->node);
    for (struct ls_node *n = root->node; n; n = n->prev) {
        if (!n->live) continue;
        /* Parameters first: their collective can start while the rest is computed. */
        if (st >= 0) st = play_half(t, n, true);
        if (st >= 0) st = play_half(t, n, false);
        if (n->out->grad && n->out->grad->uses > 0) n->out->grad->uses--;
        n->out->grad = NULL; /* this op reads it no more */
        n->out->grad_ready = false;
    }
    return st;
}

static ls_status backward(ls_tape *t, ls_tensor *out, const void *given)
{
    LS_TRY(ls_tape_status(t));
    if (!out || !out->node)
        return keep_failure(t, ls_fail(LS_INVALID, "backward: the tensor %s",
                                       out ? "depends on nothing that wants a gradient "
                                             "(recorded with grad off, or no parameter has one)"
                                           : "is NULL"));
    const size_t mark = t->used, dry_mark = t->dry_used;
    ls_status st = LS_OK;
    ls_tensor *grad = header(t, out->dtype, out->ndim, out->dim);
    if (!grad) return t->status;
    if (given) {
        memcpy(&grad->data, &given, sizeof given); /* read only: `borrowed` */
    } else {
        grad->data = take(t, sizeof(float), true);
        if (t->status != LS_OK) return t->status;
        if (!t->dry) ls_put(grad->data, 0, 1.0f, out->dtype == LS_BF16);
    }
    st = play(t, out, grad, given != NULL);
    if (st >= 0 && t->done) st = t->done(t->done_arg);
    t->used = mark; /* gradients of activations end here */
    t->dry_used = dry_mark;
    return st < 0 ? keep_failure(t, st) : LS_OK;
}

ls_status ls_backward(ls_tape *t, ls_tensor *loss)
{
    LS_TRY(ls_tape_status(t));
    if (loss && ls_tensor_count(loss) != 1) {
        char shape[96];
        return keep_failure(t, ls_fail(LS_SHAPE, "backward: the loss has shape %s, expected one element (or use "
                                       "ls_backward_from)", ls_tensor_shape(loss, shape, sizeof shape)));
    }
    return backward(t, loss, NULL);
}

ls_status ls_backward_from(ls_tape *t, ls_tensor *out, const void *grad)
{
    if (!grad && t->status == LS_OK) return keep_failure(t, ls_fail(LS_INVALID, "backward: no gradient given"));
    return backward(t, out, grad);
}
