/* apply.c -- ls_tape_apply: an op of op.h as the tape records and plays it.
 *
 * An applied op is recorded as a node with a record of its inputs and attributes behind it. Its halves of backward get
 * memory for the gradients that are wanted, and call the device's kernel once. Where a tensor is an input twice, they
 * call it once for each of both, because the second has to add to what the first has written.
 *
 * The first time that a tape runs a kernel, prove.c looks at what it writes.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "tensor/tape_impl.h"

typedef struct applied {
    ls_tape_op kind; /* what the tape plays */
    const ls_op *op;
    const ls_kernels *kernels;
    int n;
    ls_tensor *in[LS_OP_MOST_INPUTS];
    const void *attributes;
    void *saved;
} applied;

ls_status ls_product_run(const ls_op_call *c, const ls_product *p)
{
    return ls_gemm_run(ls_tape_gemm(c->tape), &(ls_gemm_call){
        .m = p->m, .n = p->n, .k = p->k, .trans_a = p->trans_a, .trans_b = p->trans_b, .add = p->add, .in = p->in,
        .out = p->out, .a = p->a, .b = p->b, .c = p->c,
    });
}

/* --- for shapes -------------------------------------------------------------------------- */

ls_status ls_op_like(ls_tensor *out, const ls_tensor *x)
{
    out->dtype = x->dtype;
    out->ndim = x->ndim;
    memcpy(out->dim, x->dim, sizeof out->dim);
    return LS_OK;
}

ls_status ls_op_inputs_alike(const ls_op_call *c, bool bf16_too)
{
    const ls_dtype d = c->in[0]->dtype;
    if (d != LS_F32 && !(bf16_too && d == LS_BF16))
        return ls_fail(LS_UNSUPPORTED, "%s: an input is %s; expected float%s", c->op->name, ls_dtype_name(d),
                       bf16_too ? " or bfloat16" : "");
    for (int i = 1; i < c->n; i++)
        if (c->in[i]->dtype != d)
            return ls_fail(LS_UNSUPPORTED, "%s: inputs are %s and %s, expected the same", c->op->name, ls_dtype_name(d),
                           ls_dtype_name(c->in[i]->dtype));
    return LS_OK;
}

/* --- the first run of a kernel -------------------------------------------------------------- */

/* What has been shown of op. */
static ls_status find_proved(ls_tape *t, const ls_op *op, unsigned **shown)
{
    int i = 0;
    while (i < t->nproved && t->proved[i].op != op) i++;
    if (LS_UNLIKELY(i == t->nproved)) {
        struct proved_op *more = realloc(t->proved, (size_t)(i + 1) * sizeof *more);
        if (!more) return ls_fail(LS_NO_MEMORY, "list of %d ops", i + 1);
        t->proved = more;
        t->proved[t->nproved++] = (struct proved_op){ op, 0 };
    }
    *shown = &t->proved[i].shown;
    return LS_OK;
}

/* What a run of a kernel shows: that it fills a result, or the gradient of an input, or adds to that. */
static unsigned shown_by(const ls_op_call *c, bool forward)
{
    unsigned shown = forward;
    for (int i = 0; i < c->n && !forward; i++)
        if (c->grad[i].data) shown |= 1u << (1 + i + (c->grad[i].add ? LS_OP_MOST_INPUTS : 0));
    return shown;
}

/* --- playing it -------------------------------------------------------------------------------- */

static ls_op_call call_of(ls_tape *t, const applied *a, const ls_tensor *out)
{
    ls_op_call c = { .op = a->op, .n = a->n, .attributes = a->attributes, .out = out, .saved = a->saved, .tape = t };
    for (int i = 0; i < a->n; i++) c.in[i] = a->in[i];
    return c;
}

/* Calls a kernel with its scratch memory. half: of backward; NULL: forward. */
static ls_status run(ls_tape *t, const applied *a, ls_op_call *c, ls_kernel kernel, const char *half)
{
    const size_t mark = ls_op_mark(t), scratch = a->op->scratch_bytes ? a->op->scratch_bytes(c, half != NULL) : 0;
    if (scratch > 0) c->scratch = ls_op_alloc(t, scratch);
    if (t->status < 0) return t->status;
    if (!t->dry) {
        unsigned *shown = NULL;
        const unsigned shows = shown_by(c, !half);
        LS_TRY(find_proved(t, a->op, &shown));
        if (LS_UNLIKELY(shows & ~*shown)) LS_TRY(ls_op_prove(t->device, kernel, half, c));
        else LS_TRY(kernel(c));
        *shown |= shows;
    }
    if (scratch > 0) ls_op_release(t, mark);
    return LS_OK;
}

/* Gradients of in[first .. end) that are wanted. */
static ls_status play(ls_tape *t, struct ls_node *n, int first, int end)
{
    const applied *a = n->saved;
    const bool weight = first >= a->op->applied;
    ls_op_call c = call_of(t, a, n->out);
    for (int i = first; i < end; i++) {
        if (!ls_grad_wanted(a->in[i])) continue;
        LS_TRY(a->op->in_place ? ls_grad_begin_in_place(t, n, a->in[i], &c.grad[i].add, &c.grad[i].data)
                               : ls_grad_begin(t, a->in[i], &c.grad[i].add, &c.grad[i].data));
        if (t->dry) c.grad[i].data = NULL;
    }
    c.dy = n->out->grad->data;
    LS_TRY(run(t, a, &c, weight ? a->kernels->backward_weight : a->kernels->backward_input,
               weight ? "backward_weight" : "backward_input"));
    for (int i = end - 1; i >= first; i--) /* a bias before its weight */
        if (ls_grad_wanted(a->in[i])) LS_TRY(ls_grad_end(t, a->in[i]));
    return LS_OK;
}

static bool twice(const applied *a, int first, int end)
{
    for (int i = first; i < end; i++)
        for (int k = first; k < i; k++)
            if (a->in[i] == a->in[k]) return true;
    return false;
}

static ls_status play_all(ls_tape *t, struct ls_node *n, int first, int end)
{
    if (!twice(n->saved, first, end)) return play(t, n, first, end);
    const applied *a = n->saved;
    for (int i = first; i < end; i++)
        if (ls_grad_wanted(a->in[i])) LS_TRY(play(t, n, i, i + 1));
    return LS_OK;
}

static ls_status backward_weight(ls_tape *t, struct ls_node *n)
{
    const applied *a = n->saved;
    return play_all(t, n, a->kind.napplied, a->n);
}

static ls_status backward_input(ls_tape *t, struct ls_node *n)
{
    const applied *a = n->saved;
    return play_all(t, n, 0, a->kind.napplied);
}

static ls_status again(ls_tape *t, struct ls_node *n)
{
    const applied *a = n->saved;
    ls_op_call c = call_of(t, a, n->out);
    return run(t, a, &c, a->kernels->forward, NULL);
}

static ls_status keep_applied(ls_tape *t, struct ls_node *n)
{
    const applied *a = n->saved;
    const size_t bytes = a->op->attribute_bytes;
    const bool goes = ls_room_holds(t->work, a);
    ls_op_call c = call_of(t, a, n->out);
    const size_t saved = a->op->saved_bytes ? a->op->saved_bytes(&c) : 0;
    applied *copy = ls_tape_take_node(t, sizeof *copy);
    void *attributes = bytes > 0 ? ls_tape_take_node(t, bytes) : NULL;
    void *kept = goes && saved > 0 ? ls_op_alloc(t, saved) : a->saved;
    if (t->status < 0) return t->status;
    *copy = *a;
    if (bytes > 0) memcpy(attributes, a->attributes, bytes);
    if (goes && saved > 0 && !t->dry) memcpy(kept, a->saved, saved);
    for (int i = 0; i < a->kind.napplied; i++) copy->in[i] = ls_tape_kept(t, a->in[i]);
    copy->attributes = attributes;
    copy->saved = kept;
    n->saved = copy;
    n->op = &copy->kind;
    return t->status;
}

static int inputs_of(const struct ls_node *n, ls_tensor *const **in)
{
    const applied *a = n->saved;
    *in = a->in;
    return a->n;
}

/* --- applying it --------------------------------------------------------------------------------- */

static const char *name_of(const ls_tensor *x) { return x->name ? x->name : "not a parameter"; }

static ls_status check_inputs(const ls_tape *t, const applied *a)
{
    const ls_op *op = a->op;
    for (int i = 0; i < a->n; i++) {
        const bool weight = i >= op->applied;
        if (!t->dry && !a->in[i]->data)
            return ls_fail(LS_INVALID, "%s: input %d (%s) has no memory yet; call ls_params_bind first", op->name, i,
                           name_of(a->in[i]));
        if (t->grad && ls_grad_wanted(a->in[i]) && !(weight ? a->kernels->backward_weight : a->kernels->backward_input))
            return ls_fail(LS_UNSUPPORTED, "%s: a gradient of input %d (%s) is wanted, and the op has no %s on device %s; "
                           "give it one, or pass a tensor without a gradient", op->name, i, name_of(a->in[i]),
                           weight ? "backward_weight" : "backward_input", t->device->name);
    }
    return LS_OK;
}

static ls_status check_op(const ls_tape *t, const ls_op *op, int n, const void *attributes, const ls_kernels *k)
{
    if (!op->shapes || op->least < 1 || op->least > op->most || op->most > LS_OP_MOST_INPUTS || op->applied < 0 ||
        op->applied > op->most)
        return ls_fail(LS_INVALID, "%s: an op has `shapes`, takes least to most inputs, of 1 to %d, and is applied to none "
                       "or some of them; this one says %d to %d, applied to %d%s", op->name, LS_OP_MOST_INPUTS, op->least,
                       op->most, op->applied, op->shapes ? "" : ", and has no `shapes`");
    if (n < op->least || n > op->most)
        return ls_fail(LS_INVALID, "%s: %d inputs, expected %d to %d", op->name, n, op->least, op->most);
    if (op->attribute_bytes > 0 && !attributes)
        return ls_fail(LS_INVALID, "%s: no attributes, expected %zu bytes of them", op->name, op->attribute_bytes);
    if (!k || !k->forward)
        return ls_fail(LS_UNSUPPORTED, "%s: device %s has no kernel for it", op->name, t->device->name);
    return LS_OK;
}

static ls_status check_result(const ls_op *op, const ls_tensor *y)
{
    if (y->dtype != LS_F32 && y->dtype != LS_BF16)
        return ls_fail(LS_UNSUPPORTED, "%s: `shapes` says that the result is %s; expected float or bfloat16", op->name,
                       ls_dtype_name(y->dtype));
    if (y->ndim < 0 || y->ndim > LS_MAX_DIMS)
        return ls_fail(LS_SHAPE, "%s: `shapes` says that the result has %d dimensions; expected 0 to %d", op->name, y->ndim,
                       LS_MAX_DIMS);
    for (int i = 0; i < y->ndim; i++)
        if (y->dim[i] < 1)
            return ls_fail(LS_SHAPE, "%s: `shapes` says that dimension %d of the result is %lld; expected at least 1",
                           op->name, i, (long long)y->dim[i]);
    return LS_OK;
}

static ls_status work_of(const ls_op_call *c, ls_op_work *out)
{
    double inputs = 0.0;
    for (int i = 0; i < c->n; i++) inputs += (double)ls_tensor_count(c->in[i]);
    *out = (ls_op_work){ (double)ls_tensor_count(c->out), inputs, inputs };
    if (!c->op->work) return LS_OK;
    *out = c->op->work(c);
    const double sum = out->forward + out->backward_weight + out->backward_input;
    if (isfinite(sum) && out->forward >= 0.0 && out->backward_weight >= 0.0 && out->backward_input >= 0.0) return LS_OK;
    return ls_fail(LS_INVALID, "%s: `work` says %g, %g and %g operations; expected finite numbers, 0 or more", c->op->name,
                   out->forward, out->backward_weight, out->backward_input);
}

/* What is recorded, or what stands for it while nothing is. */
static applied *keep(ls_tape *t, const applied *what, bool wanted, applied *here)
{
    const size_t bytes = what->op->attribute_bytes;
    *here = *what;
    if (!wanted) return here;
    applied *a = ls_tape_take_node(t, sizeof *a);
    void *attributes = bytes > 0 ? ls_tape_take_node(t, bytes) : NULL;
    if (t->status < 0) return NULL;
    *a = *what;
    if (bytes > 0) memcpy(attributes, what->attributes, bytes);
    a->attributes = attributes;
    return a;
}

static ls_status begin(ls_tape *t, const ls_op *op, ls_tensor *const *in, int n, const void *attributes, applied *a,
                       ls_tensor *shape, ls_op_work *work)
{
    const ls_kernels *k = t->device->kernels(t->device, op);
    LS_TRY(check_op(t, op, n, attributes, k));
    *a = (applied){
        .kind = { .name = op->name, .napplied = n < op->applied ? n : op->applied, .backward_weight = backward_weight,
                  .backward_input = backward_input, .again = op->recompute ? again : NULL, .inputs = inputs_of,
                  .keep = keep_applied },
        .op = op, .kernels = k, .n = n, .attributes = attributes,
    };
    memcpy(a->in, in, (size_t)n * sizeof *in);
    LS_TRY(check_inputs(t, a));
    ls_op_call c = call_of(t, a, NULL);
    *shape = (ls_tensor){ 0 };
    LS_TRY(op->shapes(&c, shape));
    LS_TRY(check_result(op, shape));
    c.out = shape;
    return work_of(&c, work);
}

ls_tensor *ls_tape_apply(ls_tape *t, const ls_op *op, ls_tensor *const *in, int n, const void *attributes)
{
    bool given = true, wanted = false;
    for (int i = 0; i < n && i < LS_OP_MOST_INPUTS; i++) given &= in[i] != NULL;
    if (!ls_op_begin(t, op->name, given)) return NULL;
    applied what, here;
    ls_tensor shape;
    ls_op_work work;
    ls_status st = begin(t, op, in, n, attributes, &what, &shape, &work);
    if (st < 0) return ls_op_fail(t, st);

    ls_tensor *y = op->recompute ? ls_op_output_again(t, shape.dtype, shape.ndim, shape.dim)
                                 : ls_op_output(t, shape.dtype, shape.ndim, shape.dim);
    for (int i = 0; i < n; i++) wanted |= t->grad && ls_grad_wanted(in[i]);
    applied *a = y ? keep(t, &what, wanted, &here) : NULL;
    if (!a) return NULL;
    ls_op_call c = call_of(t, a, y);
    const size_t saved = op->saved_bytes ? op->saved_bytes(&c) : 0;
    if (saved > 0) c.saved = a->saved = ls_op_alloc(t, saved);
    if (t->status < 0) return NULL;
    st = run(t, a, &c, a->kernels->forward, NULL);
    if (st < 0) return ls_op_fail(t, st);
    return ls_op_end(t, y, &(struct ls_node){
        .op = &a->kind, .saved = a, .label_a = (uint32_t)ls_tensor_count(y), .flops = work.forward,
        .flops_weight = work.backward_weight, .flops_input = work.backward_input,
    });
}
