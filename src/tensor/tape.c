/* tape.c -- records a forward pass and plays it backwards.
 *
 * Everything that a pass makes (tensors, nodes, activations, gradients of
 * activations) lives in one slab that only grows until ls_tape_reset: no
 * malloc in a step, and the same addresses in every step of the same shape.
 */
#include "tensor/tape_impl.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "tensor/amx.h"
#include "tensor/element.h"

#define DRY_NODE_BYTES ((size_t)16 << 20) /* nodes of a dry tape: about 50,000 ops; untouched pages cost nothing */

/* --- life ------------------------------------------------------------------------ */

static ls_status create(ls_tape **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return ls_fail(LS_NO_MEMORY, "tape");
    (*out)->grad = true;
    (*out)->amx = ls_amx_ready();
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
    t->slab.size = (slab_bytes + LS_SLAB_ALIGN - 1) / LS_SLAB_ALIGN * LS_SLAB_ALIGN;
    if ((st = ls_gemm_create(&t->gemm)) < 0) goto done;
    if ((st = ls_arena_create(t->slab.size, false, ledger, &t->arena)) < 0) goto done;
    if ((st = ls_arena_alloc(t->arena, t->slab.size, LS_MEM_ACT, &base)) < 0) goto done;
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
    t->slab.size = SIZE_MAX / 2;
    t->base = aligned_alloc(LS_SLAB_ALIGN, DRY_NODE_BYTES);
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
    free(t->packing.item);
    free(t->labels);
    free(t->leaves);
    free(t);
}

void ls_tape_reset(ls_tape *t)
{
    t->slab.floor = 0;
    ls_slab_release(&t->slab, 0);
    t->dry_used = 0;
    t->in_block = t->again = t->pending = false;
    t->last = NULL;
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
size_t ls_tape_peak(const ls_tape *t) { return t->slab.peak; }
bool ls_tape_dry(const ls_tape *t) { return t->dry; }
bool ls_tape_amx(const ls_tape *t) { return t->amx; }
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

void ls_tape_on_progress(ls_tape *t, ls_progress_fn fn, void *arg)
{
    t->progress = fn;
    t->progress_arg = arg;
}

void ls_tape_on_output(ls_tape *t, ls_output_fn fn, void *arg)
{
    t->output = fn;
    t->output_arg = arg;
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

static LS_COLD void no_room(ls_tape *t, size_t nbytes)
{
    keep_failure(t, ls_fail(LS_NO_MEMORY, "tape: %zu bytes do not fit: %zu of its %zu bytes are in use", nbytes,
                            t->slab.used, t->slab.size));
}

/* Memory at `at`, for n bytes of nodes or tensors: what a dry tape has, too. */
static void *node_memory(ls_tape *t, size_t at, size_t nbytes)
{
    const size_t n = (nbytes + LS_SLAB_ALIGN - 1) / LS_SLAB_ALIGN * LS_SLAB_ALIGN;
    if (!t->dry) return t->base + at;
    if (n > DRY_NODE_BYTES - t->dry_used) {
        keep_failure(t, ls_fail(LS_NO_MEMORY, "dry tape: more than %zu bytes of nodes", DRY_NODE_BYTES));
        return NULL;
    }
    t->dry_used += n;
    return t->base + t->dry_used - n;
}

void *ls_tape_take_node(ls_tape *t, size_t nbytes)
{
    const size_t at = ls_slab_push(&t->slab, nbytes);
    if (LS_LIKELY(at != LS_SLAB_FULL)) return node_memory(t, at, nbytes);
    no_room(t, nbytes);
    return NULL;
}

void *ls_op_alloc(ls_tape *t, size_t nbytes)
{
    const size_t at = ls_slab_push(&t->slab, nbytes);
    if (LS_UNLIKELY(at == LS_SLAB_FULL)) {
        no_room(t, nbytes);
        return NULL;
    }
    return t->dry ? NULL : t->base + at;
}

size_t ls_op_mark(const ls_tape *t) { return t->slab.used; }
void ls_op_release(ls_tape *t, size_t mark) { ls_slab_release(&t->slab, mark); }

static ls_tensor *header(ls_tape *t, ls_dtype dtype, int ndim, const int64_t *dim)
{
    ls_tensor *x = ls_tape_take_node(t, sizeof *x);
    if (!x) return NULL;
    *x = (ls_tensor){ .dtype = dtype, .ndim = ndim };
    for (int i = 0; i < ndim; i++) x->dim[i] = dim[i];
    return x;
}

ls_tensor *ls_op_output(ls_tape *t, ls_dtype dtype, int ndim, const int64_t *dim)
{
    ls_tensor *x = header(t, dtype, ndim, dim);
    if (!x) return NULL;
    x->data = ls_op_alloc(t, ls_tensor_nbytes(x));
    return t->status == LS_OK ? x : NULL;
}

ls_tensor *ls_op_output_again(ls_tape *t, ls_dtype dtype, int ndim, const int64_t *dim)
{
    ls_tensor *x = header(t, dtype, ndim, dim);
    if (!x) return NULL;
    t->out_bytes = ls_tensor_nbytes(x);
    const bool leaves_holes = t->in_block && t->grad && t->recompute == LS_RECOMPUTE_SELECTIVE;
    t->out_at = leaves_holes ? ls_slab_take(&t->slab, t->out_bytes) : ls_slab_push(&t->slab, t->out_bytes);
    if (LS_UNLIKELY(t->out_at == LS_SLAB_FULL)) {
        no_room(t, t->out_bytes);
        return NULL;
    }
    x->data = t->dry ? NULL : t->base + t->out_at;
    return x;
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

bool ls_grad_wanted(const ls_tensor *x) { return x && (x->node || x->grad); }

static void write_label(const struct ls_node *n, const char *more, char *text, size_t room)
{
    if (n->label_b) snprintf(text, room, "%s %ux%u%s", n->op->name, n->label_a, n->label_b, more);
    else if (n->label_a) snprintf(text, room, "%s %u%s", n->op->name, n->label_a, more);
    else snprintf(text, room, "%s%s", n->op->name, more);
}

static LS_COLD void show_output(const ls_tape *t, const struct ls_node *n, const ls_tensor *out)
{
    char text[LS_BLACKBOX_STRING_BYTES];
    write_label(n, "", text, sizeof text);
    t->output(t->output_arg, text, out);
}

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
    write_label(n, t->again ? " again" : "", text, sizeof text);
    struct op_label *l = &t->labels[index];
    if (l->name != n->op->name || l->a != n->label_a || l->b != n->label_b)
        *l = (struct op_label){ n->op->name, n->label_a, n->label_b, { 0, 0 } };
    return l->label[t->again] = ls_tracer_label(t->tracer, text);
}

LS_COLD void ls_tape_trace(ls_tape *t, const struct ls_node *n, uint32_t index, double flops, bool backward)
{
    const uint64_t t1 = ls_tracer_now(t->tracer);
    const struct op_label *l = index < t->nlabels ? &t->labels[index] : NULL;
    const bool known =
        l && l->name == n->op->name && l->a == n->label_a && l->b == n->label_b && l->label[t->again];
    const uint64_t ns = t1 > t->op_t0_ns ? t1 - t->op_t0_ns : 1;
    ls_tracer_add(t->tracer, &(ls_event){
        .t0_ns = t->op_t0_ns, .t1_ns = t1, .gflops = (float)(flops / (double)ns), .peer = -1, .kind = LS_EV_OP,
        .label = known ? l->label[t->again] : make_label(t, n, index), .dtype = (uint8_t)t->dtype, .backward = backward,
    });
}

ls_tensor *ls_op_end(ls_tape *t, ls_tensor *out, const struct ls_node *what)
{
    const uint32_t index = t->nops++;
    *(t->again ? &t->flops_again : &t->flops) += what->flops;
    if (LS_UNLIKELY(t->tracer != NULL)) ls_tape_trace(t, what, index, what->flops, false);
    if (LS_UNLIKELY(t->output != NULL) && out && !t->dry && !t->again) show_output(t, what, out);
    if (t->again && t->progress) { /* in backward: collectives in flight */
        const ls_status st = t->progress(t->progress_arg);
        if (st < 0) return ls_op_fail(t, st);
    }
    bool wanted = false;
    for (int i = 0; i < LS_OP_INPUTS; i++) wanted |= ls_grad_wanted(what->in[i]);
    if (!wanted || !t->grad) return out;

    struct ls_node *n = ls_tape_take_node(t, sizeof *n);
    if (!n) return NULL;
    *n = *what;
    n->prev = t->last;
    n->out = out;
    n->index = index;
    n->live = n->borrowed = n->given_back = n->made_again = false;
    n->out_at = t->out_at;
    n->out_bytes = t->out_bytes;
    out->node = n;
    t->last = n;
    t->pending = true;
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

/* The gradient of something that the tape made: header and values in one piece of the slab. */
typedef struct gradient {
    ls_tensor t;
    size_t at, nbytes; /* the piece */
} gradient;

#define GRADIENT_BYTES ((sizeof(gradient) + LS_SLAB_ALIGN - 1) / LS_SLAB_ALIGN * LS_SLAB_ALIGN)

static ls_tensor *new_gradient(ls_tape *t, const ls_tensor *x, size_t value_bytes)
{
    const size_t nbytes = GRADIENT_BYTES + value_bytes, at = ls_slab_take(&t->slab, nbytes);
    if (LS_UNLIKELY(at == LS_SLAB_FULL)) {
        no_room(t, nbytes);
        return NULL;
    }
    gradient *g = node_memory(t, at, sizeof *g);
    if (!g) return NULL;
    *g = (gradient){ .t = { .dtype = x->dtype, .ndim = x->ndim }, .at = at, .nbytes = nbytes };
    memcpy(g->t.dim, x->dim, sizeof g->t.dim);
    g->t.data = t->dry ? NULL : (char *)g + GRADIENT_BYTES;
    return &g->t;
}

/* One that holds it does not need it any more. */
static void let_go(ls_tape *t, ls_tensor *grad)
{
    const gradient *g = (const gradient *)grad;
    if (grad->uses > 0) grad->uses--;
    else ls_slab_give(&t->slab, g->at, g->nbytes);
}

ls_status ls_tape_end_above(ls_tape *t, ls_tape_mark mark, ls_tensor *x)
{
    gradient *g = x->node ? (gradient *)x->grad : NULL;
    if (!g || g->at < mark.used) {
        ls_tape_release(t, mark);
        return LS_OK;
    }
    gradient copy = *g;
    ls_tape_release(t, mark);
    copy.at = ls_slab_take(&t->slab, copy.nbytes); /* fits: there is more room than before */
    if (!t->dry) memmove(t->base + copy.at, g, copy.nbytes);
    if (!(g = node_memory(t, copy.at, sizeof *g))) return t->status;
    copy.t.data = t->dry ? NULL : (char *)g + GRADIENT_BYTES;
    *g = copy;
    x->grad = &g->t;
    return LS_OK;
}

ls_status ls_grad_begin(ls_tape *t, ls_tensor *x, bool *add, void **out)
{
    ls_tensor *const held = x->grad;
    if (x->node && (!held || held->uses > 0)) {
        x->grad = new_gradient(t, x, ls_tensor_nbytes(x));
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
    x->grad_reduced = false;
    x->uses--;
    if (x->uses == 0 && !x->node && t->ready) return t->ready(t->ready_arg, x);
    return LS_OK;
}

/* What an op or a block takes from outside; of a block only what wants a gradient. */
static int inputs_of(const struct ls_node *n, ls_tensor *const **in)
{
    if (n->op == &ls_block_op) return ls_block_leaves(n, in);
    *in = n->in;
    return LS_OP_INPUTS;
}

void ls_tape_count_uses(struct ls_node *root, uint32_t first)
{
    ls_tensor *const *in;
    for (struct ls_node *n = root; n; n = n->prev)
        for (int i = inputs_of(n, &in) - 1; i >= 0; i--)
            if (ls_tape_made_since(in[i], first)) in[i]->uses = 0;
    for (struct ls_node *n = root; n; n = n->prev) { /* every user of n->out comes later on the tape: seen before */
        n->live = n == root || n->out->uses > 0;
        for (int i = inputs_of(n, &in) - 1; n->live && i >= 0; i--)
            if (ls_grad_wanted(in[i]) && ls_tape_made_since(in[i], first)) in[i]->uses++;
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
    if (LS_UNLIKELY(t->tracer != NULL)) ls_tape_trace(t, n, n->index, flops, true);
    return t->progress ? t->progress(t->progress_arg) : LS_OK;
}

static ls_status play_node(ls_tape *t, struct ls_node *n)
{
    if (n->op == &ls_block_op) return ls_block_play(t, n);
    LS_TRY(ls_tape_make_inputs(t, n));
    /* Parameters first: their collective can start while the rest is computed. */
    LS_TRY(play_half(t, n, true));
    LS_TRY(play_half(t, n, false));
    if (n->made_again) ls_tape_give_back(t, n);
    return LS_OK;
}

ls_status ls_tape_play(ls_tape *t, ls_tensor *root, ls_tensor *grad, bool borrowed, uint32_t first)
{
    ls_status st = LS_OK;
    root->grad = grad;
    root->grad_ready = true;
    root->node->borrowed = borrowed;
    ls_tape_count_uses(root->node, first);
    for (struct ls_node *n = root->node; n; n = n->prev) {
        if (!n->live) continue;
        if (st >= 0) st = play_node(t, n);
        if (n->out->grad) let_go(t, n->out->grad);
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
    const ls_tape_mark mark = ls_tape_mark_now(t);
    ls_status st = LS_OK;
    t->slab.floor = t->slab.used;
    /* Of a loss the same memory in both cases: a dry run gives none. */
    ls_tensor *grad = new_gradient(t, out, ls_tensor_count(out) == 1 ? ls_tensor_nbytes(out) : 0);
    if (!grad) return t->status;
    if (given) memcpy(&grad->data, &given, sizeof given); /* read only: `borrowed` */
    else if (!t->dry) ls_put(grad->data, 0, 1.0f, out->dtype == LS_BF16);
    st = ls_tape_play(t, out, grad, given != NULL, 0);
    if (st >= 0 && t->done) st = t->done(t->done_arg);
    t->slab.floor = 0;
    t->pending = false;
    ls_tape_release(t, mark); /* gradients of activations end here */
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
