/* op_attention.c -- attention on the tape: shapes, what is kept, who gets
 * which gradient. The computing is in attention.c.
 *
 *   q [B, Tq, Hq, D]    k, v [B, Tk, Hkv, D]    out [B, Tq, Hq, D]    lse [B, Hq, Tq], kept
 *   or packed: qkv [B, T, 3 C], out [B, T, C], C = H D
 *
 * forward          out = softmax(scale q k^T) v             4 D flops for each query and key that it sees
 * backward, input  dq, dk, dv, with the scores made again   10 D
 *
 * All are float, or all are bfloat16.
 */
#include <math.h>
#include <string.h>

#include "tensor/attention.h"
#include "tensor/element.h"
#include "tensor/tape.h"

/* Fewer keys fill too little of a tile (bench_attention). */
static bool by_amx(const ls_tape *t, ls_dtype dtype, int64_t Tk)
{
    return ls_tape_amx(t) && dtype == LS_BF16 && Tk >= LS_ATTENTION_AMX_KEYS;
}

/* Computes out and records the op; where c's data comes from is the caller's business. */
static ls_tensor *apply(ls_tape *t, const ls_tape_op *op, ls_attention_call *c, ls_tensor *out,
                        const struct ls_node *in)
{
    bool wanted = false;
    for (int i = 0; i < LS_OP_INPUTS; i++) wanted |= ls_grad_wanted(in->in[i]);
    ls_attention_call *saved = NULL;
    if (wanted && ls_tape_grad(t)) {
        c->lse = ls_op_alloc(t, (size_t)(c->B * c->Hq * c->Tq) * sizeof *c->lse);
        saved = ls_op_alloc(t, sizeof *saved);
        if (ls_tape_status(t) < 0) return NULL;
    }
    c->out = out->data;
    c->amx = by_amx(t, c->dtype, c->Tk);
    const size_t mark = ls_op_mark(t);
    c->scratch = ls_op_alloc(t, (size_t)ls_attention_scratch(c, false) * sizeof *c->scratch);
    if (ls_tape_status(t) < 0) return NULL;
    if (!ls_tape_dry(t)) {
        ls_attention_forward(c);
        if (saved) *saved = *c;
    }
    ls_op_release(t, mark);
    const double flops = ls_attention_flops(c);
    struct ls_node n = *in;
    n.op = op;
    n.saved = saved;
    n.label_a = (uint32_t)c->Tk;
    n.label_b = (uint32_t)c->D;
    n.flops = flops;
    n.flops_input = 2.5 * flops;
    return ls_op_end(t, out, &n);
}

/* Backward with the memory that it wants for itself; what changes from call to call is in `c`. */
static ls_status play(ls_tape *t, const struct ls_node *n, ls_attention_call *c)
{
    const ls_dtype dtype = n->out->dtype;
    const ls_attention_call sizes = {
        .dtype = dtype, .Tk = n->label_a, .D = n->label_b, .amx = by_amx(t, dtype, n->label_a),
    };
    const size_t mark = ls_op_mark(t);
    c->scratch = ls_op_alloc(t, (size_t)ls_attention_scratch(&sizes, true) * sizeof *c->scratch);
    LS_TRY(ls_tape_status(t));
    if (!ls_tape_dry(t)) ls_attention_backward(c);
    ls_op_release(t, mark);
    return LS_OK;
}

/* Whether this can be done; dropout's part of it is filled in. */
static ls_status check_call(const char *name, ls_attention_call *c, const ls_attention_dropout *dropout)
{
    if (c->D > LS_ATTENTION_MOST_D)
        return ls_fail(LS_UNSUPPORTED, "%s: heads of %lld: at most %d are supported", name, (long long)c->D,
                       LS_ATTENTION_MOST_D);
    if (c->causal && c->Tq > c->Tk)
        return ls_fail(LS_SHAPE, "%s: %lld queries and %lld keys: a causal mask needs as many keys as queries, or more",
                       name, (long long)c->Tq, (long long)c->Tk);
    if (!dropout) return LS_OK;
    const double p = (double)dropout->p;
    if (!(p >= 0.0 && p < 1.0))
        return ls_fail(LS_INVALID, "%s: a dropout of %g, expected 0 or more and less than 1", name, p);
    c->drop = (ls_attention_drop){
        .seed = dropout->seed, .stream = dropout->stream, .first = dropout->first,
        .least = (uint32_t)ceil(p * 0x1p24), .scale = (float)(1.0 / (1.0 - p)),
        .heads = dropout->heads, .first_head = dropout->first_head,
    };
    return LS_OK;
}

/* --- q, k and v apart ---------------------------------------------------------------- */

static ls_status backward_apart(ls_tape *t, struct ls_node *n)
{
    void *grad[3] = { NULL };
    bool add[3] = { false };
    for (int i = 0; i < 3; i++)
        if (ls_grad_wanted(n->in[i])) LS_TRY(ls_grad_begin(t, n->in[i], &add[i], &grad[i]));
    ls_attention_call c = { 0 };
    if (!ls_tape_dry(t)) {
        for (int i = 0; i < 3; i++) /* one tensor in two places: all of them add */
            if (grad[i] && !add[i] && (grad[i] == grad[(i + 1) % 3] || grad[i] == grad[(i + 2) % 3])) {
                memset(grad[i], 0, ls_tensor_nbytes(n->in[i]));
                add[i] = true;
            }
        c = *(const ls_attention_call *)n->saved;
        c.q = n->in[0]->data; /* they may have been made again, elsewhere */
        c.k = n->in[1]->data;
        c.v = n->in[2]->data;
        c.dout = n->out->grad->data;
        c.dq = grad[0];
        c.dk = grad[1];
        c.dv = grad[2];
        c.add_q = add[0];
        c.add_k = add[1];
        c.add_v = add[2];
    }
    LS_TRY(play(t, n, &c));
    for (int i = 0; i < 3; i++)
        if (ls_grad_wanted(n->in[i])) LS_TRY(ls_grad_end(t, n->in[i]));
    return LS_OK;
}

static const ls_tape_op attention = { .name = "attention", .napplied = 3, .backward_input = backward_apart };

static ls_status check_apart(const ls_tensor *q, const ls_tensor *k, const ls_tensor *v)
{
    char qs[96], ks[96], vs[96];
    const bool shapes = q->ndim == 4 && k->ndim == 4 && v->ndim == 4 && q->dim[0] == k->dim[0] &&
                        q->dim[3] == k->dim[3] && q->dim[2] % k->dim[2] == 0 &&
                        memcmp(k->dim, v->dim, sizeof k->dim) == 0;
    if (!shapes)
        return ls_fail(LS_SHAPE, "attention: queries %s, keys %s and values %s: expected [B, Tq, Hq, D] and twice "
                       "[B, Tk, Hkv, D], Hq a multiple of Hkv", ls_tensor_shape(q, qs, sizeof qs),
                       ls_tensor_shape(k, ks, sizeof ks), ls_tensor_shape(v, vs, sizeof vs));
    if ((q->dtype != LS_F32 && q->dtype != LS_BF16) || k->dtype != q->dtype || v->dtype != q->dtype)
        return ls_fail(LS_UNSUPPORTED, "attention: queries are %s, keys %s, values %s: expected float, or all bfloat16",
                       ls_dtype_name(q->dtype), ls_dtype_name(k->dtype), ls_dtype_name(v->dtype));
    return LS_OK;
}

ls_tensor *ls_attention(ls_tape *t, ls_tensor *q, ls_tensor *k, ls_tensor *v, float scale, bool causal)
{
    return ls_attention_dropped(t, q, k, v, scale, causal, NULL);
}

ls_tensor *ls_attention_dropped(ls_tape *t, ls_tensor *q, ls_tensor *k, ls_tensor *v, float scale, bool causal,
                                const ls_attention_dropout *dropout)
{
    if (!ls_op_begin(t, attention.name, q && k && v)) return NULL;
    ls_status st = check_apart(q, k, v);
    if (st < 0) return ls_op_fail(t, st);
    ls_attention_call c = {
        .B = q->dim[0], .Tq = q->dim[1], .Hq = q->dim[2], .D = q->dim[3], .Tk = k->dim[1], .Hkv = k->dim[2],
        .scale = scale, .causal = causal, .dtype = q->dtype, .q = q->data, .k = k->data, .v = v->data,
    };
    if ((st = check_call(attention.name, &c, dropout)) < 0) return ls_op_fail(t, st);
    c.q_by = c.out_by = ls_strides_dense(c.Tq, c.Hq, c.D);
    c.k_by = c.v_by = ls_strides_dense(c.Tk, c.Hkv, c.D);
    ls_tensor *out = ls_op_output(t, q->dtype, 4, q->dim);
    return out ? apply(t, &attention, &c, out, &(struct ls_node){ .in = { q, k, v } }) : NULL;
}

/* --- packed ----------------------------------------------------------------------------- */

static ls_status backward_packed(ls_tape *t, struct ls_node *n)
{
    bool add;
    void *grad;
    LS_TRY(ls_grad_begin(t, n->in[0], &add, &grad));
    ls_attention_call c = { 0 };
    if (!ls_tape_dry(t)) {
        c = *(const ls_attention_call *)n->saved;
        const int64_t C = c.Hq * c.D;
        const bool bf16 = c.dtype == LS_BF16;
        c.q = n->in[0]->data; /* it may have been made again, elsewhere */
        c.k = ls_at_const(c.q, C, bf16);
        c.v = ls_at_const(c.q, 2 * C, bf16);
        c.dout = n->out->grad->data;
        c.dq = grad;
        c.dk = ls_at(grad, C, bf16);
        c.dv = ls_at(grad, 2 * C, bf16);
        c.add_q = c.add_k = c.add_v = add;
    }
    LS_TRY(play(t, n, &c));
    return ls_grad_end(t, n->in[0]);
}

static const ls_tape_op attention_packed = {
    .name = "attention", .napplied = 1, .backward_input = backward_packed,
};

ls_tensor *ls_attention_packed(ls_tape *t, ls_tensor *qkv, int64_t heads, float scale, bool causal)
{
    return ls_attention_packed_dropped(t, qkv, heads, scale, causal, NULL);
}

ls_tensor *ls_attention_packed_dropped(ls_tape *t, ls_tensor *qkv, int64_t heads, float scale, bool causal,
                                       const ls_attention_dropout *dropout)
{
    if (!ls_op_begin(t, attention_packed.name, qkv != NULL)) return NULL;
    char shape[96];
    if (qkv->ndim != 3 || heads < 1 || qkv->dim[2] % (3 * heads) != 0)
        return ls_op_fail(t, ls_fail(LS_SHAPE, "attention: packed %s for %lld heads: expected [B, T, 3 C], C a "
                                     "multiple of the heads", ls_tensor_shape(qkv, shape, sizeof shape),
                                     (long long)heads));
    if (qkv->dtype != LS_F32 && qkv->dtype != LS_BF16)
        return ls_op_fail(t, ls_fail(LS_UNSUPPORTED, "attention: packed input is %s: expected float or bfloat16",
                                     ls_dtype_name(qkv->dtype)));
    const int64_t B = qkv->dim[0], T = qkv->dim[1], C = qkv->dim[2] / 3, D = C / heads;
    const ls_strides by = { .batch = T * 3 * C, .token = 3 * C, .head = D };
    const void *q = qkv->data;
    const bool bf16 = qkv->dtype == LS_BF16;
    ls_attention_call c = {
        .B = B, .Tq = T, .Tk = T, .Hq = heads, .Hkv = heads, .D = D, .scale = scale, .causal = causal,
        .dtype = qkv->dtype, .q = q, .k = q ? ls_at_const(q, C, bf16) : NULL,
        .v = q ? ls_at_const(q, 2 * C, bf16) : NULL,
        .q_by = by, .k_by = by, .v_by = by, .out_by = ls_strides_dense(T, heads, D),
    };
    const ls_status st = check_call(attention_packed.name, &c, dropout);
    if (st < 0) return ls_op_fail(t, st);
    ls_tensor *out = ls_op_output(t, qkv->dtype, 3, (int64_t[]){ B, T, C });
    return out ? apply(t, &attention_packed, &c, out, &(struct ls_node){ .in = { qkv } }) : NULL;
}
