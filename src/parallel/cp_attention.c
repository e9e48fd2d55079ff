/* cp_attention.c -- attention over sequences that several ranks have parts of: the op on the tape.
 *
 *   q [B, T / cp, Hq, D]    k, v [B, T / cp, Hkv, D]    out as q; or packed: qkv [B, T / cp, 3 C], out [B, T / cp, C]
 *
 * What is kept for backward, and what travels, is the way's business.
 */
#include "parallel/cp_attention.h"

#include <math.h>
#include <string.h>

#include "tensor/element.h"

static const ls_cp_way *const ways[] = {
    [LS_CP_RING] = &ls_cp_ring,
    [LS_CP_GATHER] = &ls_cp_gather,
    [LS_CP_ULYSSES] = &ls_cp_ulysses,
    [LS_CP_ULYSSES_RING] = &ls_cp_ulysses_ring,
};

static const ls_cp_way *way_of(const ls_cp_call *c) { return ways[c->place.context]; }

/* --- the op ------------------------------------------------------------------------------------------------ */

static ls_tensor *apply(ls_cp_call *c, const ls_tape_op *op, ls_tensor *out, const struct ls_node *in)
{
    ls_tape *t = c->t;
    bool wanted = false;
    for (int i = 0; i < LS_OP_INPUTS; i++) wanted |= ls_grad_wanted(in->in[i]);
    ls_cp_call *saved = NULL;
    if (wanted && ls_tape_grad(t)) {
        c->keeps = true;
        c->kept = ls_op_alloc(t, way_of(c)->kept_bytes(c));
        saved = ls_tape_take_node(t, sizeof *saved);
        if (ls_tape_status(t) < 0) return NULL;
    }
    c->out = out->data;
    if (saved) *saved = *c;
    const size_t mark = ls_op_mark(t);
    const ls_status st = way_of(c)->forward(c);
    if (st < 0) return ls_op_fail(t, st);
    ls_op_release(t, mark);
    struct ls_node n = *in;
    n.op = op;
    n.saved = saved;
    n.label_a = (uint32_t)c->T;
    n.label_b = (uint32_t)c->D;
    n.flops = 4.0 * (double)c->D * c->met; /* of this rank: others may have more, or less */
    n.flops_input = 2.5 * n.flops;
    return ls_op_end(t, out, &n);
}

static ls_status play(ls_tape *t, const struct ls_node *n, ls_cp_call *c)
{
    const size_t mark = ls_op_mark(t);
    c->t = t;
    c->out = n->out->data;
    c->dout = n->out->grad->data;
    LS_TRY(way_of(c)->backward(c));
    ls_op_release(t, mark);
    return LS_OK;
}

static ls_status check(ls_cp_call *c, const char *name, const ls_attention_dropout *dropout)
{
    ls_places here;
    if (c->D > LS_ATTENTION_MOST_D)
        return ls_fail(LS_UNSUPPORTED, "%s: heads of %lld: at most %d are supported", name, (long long)c->D,
                       LS_ATTENTION_MOST_D);
    if (c->dtype != LS_F32 && c->dtype != LS_BF16)
        return ls_fail(LS_UNSUPPORTED, "%s: inputs are %s: expected float or bfloat16", name, ls_dtype_name(c->dtype));
    c->T = c->Tl * c->place.cp.size;
    LS_TRY(ls_cp_tokens(&c->place, c->T, &here));
    if (way_of(c)->check) LS_TRY(way_of(c)->check(c));
    if (!dropout) return LS_OK;
    const double p = (double)dropout->p;
    c->drop = (ls_attention_drop){
        .seed = dropout->seed,
        .stream = dropout->stream,
        .first = dropout->first,
        .least = (uint32_t)ceil(p * 0x1p24),
        .scale = (float)(1.0 / (1.0 - p)),
        .heads = dropout->heads > 0 ? dropout->heads : c->Hq,
        .first_head = dropout->first_head,
        .T = c->T,
    };
    return LS_OK;
}

/* --- q, k and v apart ------------------------------------------------------------------------------------ */

static ls_status backward_apart(ls_tape *t, struct ls_node *n)
{
    ls_cp_call c = *(const ls_cp_call *)n->saved;
    void **const grad[3] = { &c.dq, &c.dk, &c.dv };
    bool *const add[3] = { &c.add_q, &c.add_k, &c.add_v };
    const void **const x[3] = { &c.q, &c.k, &c.v };
    for (int i = 0; i < 3; i++) {
        *x[i] = n->in[i]->data; /* they may have been made again, elsewhere */
        LS_TRY(ls_grad_begin(t, n->in[i], add[i], grad[i]));
    }
    LS_TRY(play(t, n, &c));
    for (int i = 0; i < 3; i++) LS_TRY(ls_grad_end(t, n->in[i]));
    return LS_OK;
}

static const ls_tape_op op_apart = { .name = LS_CP_ATTENTION, .napplied = 3, .backward_input = backward_apart };

static ls_status check_apart(const ls_tensor *q, const ls_tensor *k, const ls_tensor *v)
{
    char qs[96], ks[96], vs[96];
    const bool fit = q->ndim == 4 && k->ndim == 4 && v->ndim == 4 && q->dim[0] == k->dim[0] && q->dim[1] == k->dim[1] &&
                     q->dim[3] == k->dim[3] && q->dim[2] % k->dim[2] == 0 &&
                     memcmp(k->dim, v->dim, sizeof k->dim) == 0 && k->dtype == q->dtype && v->dtype == q->dtype &&
                     q != k && q != v && k != v;
    if (fit) return LS_OK;
    return ls_fail(
        LS_SHAPE,
        "cp_attention: queries %s, keys %s and values %s: expected [B, T, Hq, D] and twice [B, T, Hkv, D], Hq a "
        "multiple of Hkv, of one dtype",
        ls_tensor_shape(q, qs, sizeof qs), ls_tensor_shape(k, ks, sizeof ks), ls_tensor_shape(v, vs, sizeof vs));
}

ls_tensor *ls_cp_attention(ls_tape *t, ls_tensor *q, ls_tensor *k, ls_tensor *v, float scale, bool causal,
                           const ls_attention_dropout *dropout, const ls_place *p)
{
    if (!ls_divides(&p->cp)) return ls_attention_dropped(t, q, k, v, scale, causal, dropout);
    if (!ls_op_begin(t, op_apart.name, q && k && v)) return NULL;
    ls_status st = check_apart(q, k, v);
    if (st < 0) return ls_op_fail(t, st);
    ls_cp_call c = {
        .t = t,
        .place = *p,
        .B = q->dim[0],
        .Tl = q->dim[1],
        .Hq = q->dim[2],
        .Hkv = k->dim[2],
        .D = q->dim[3],
        .scale = scale,
        .causal = causal,
        .dtype = q->dtype,
        .q = q->data,
        .k = k->data,
        .v = v->data,
    };
    c.q_by = c.out_by = ls_strides_dense(c.Tl, c.Hq, c.D);
    c.k_by = c.v_by = ls_strides_dense(c.Tl, c.Hkv, c.D);
    if ((st = check(&c, op_apart.name, dropout)) < 0) return ls_op_fail(t, st);
    ls_tensor *out = ls_op_output(t, q->dtype, 4, q->dim);
    return out ? apply(&c, &op_apart, out, &(struct ls_node){ .in = { q, k, v } }) : NULL;
}

/* --- packed ------------------------------------------------------------------------------------------------ */

static void point(ls_cp_call *c, const void *qkv)
{
    c->q = qkv;
    c->k = ls_cp_at(c, qkv, c->Hq * c->D);
    c->v = ls_cp_at(c, qkv, 2 * c->Hq * c->D);
}

static ls_status backward_packed(ls_tape *t, struct ls_node *n)
{
    ls_cp_call c = *(const ls_cp_call *)n->saved;
    void *grad;
    LS_TRY(ls_grad_begin(t, n->in[0], &c.add_q, &grad));
    point(&c, n->in[0]->data);
    c.add_k = c.add_v = c.add_q;
    c.dq = grad;
    c.dk = ls_cp_at(&c, grad, c.Hq * c.D);
    c.dv = ls_cp_at(&c, grad, 2 * c.Hq * c.D);
    LS_TRY(play(t, n, &c));
    return ls_grad_end(t, n->in[0]);
}

static const ls_tape_op op_packed = { .name = LS_CP_ATTENTION, .napplied = 1, .backward_input = backward_packed };

ls_tensor *ls_cp_attention_packed(ls_tape *t, ls_tensor *qkv, int64_t heads, float scale, bool causal,
                                  const ls_attention_dropout *dropout, const ls_place *p)
{
    char shape[96];
    if (!ls_divides(&p->cp)) return ls_attention_packed_dropped(t, qkv, heads, scale, causal, dropout);
    if (!ls_op_begin(t, op_packed.name, qkv != NULL)) return NULL;
    if (qkv->ndim != 3 || heads < 1 || qkv->dim[2] % (3 * heads) != 0)
        return ls_op_fail(t,
                          ls_fail(LS_SHAPE,
                                  "cp_attention: packed %s for %lld heads: expected [B, T, 3 C], C a multiple of the "
                                  "heads",
                                  ls_tensor_shape(qkv, shape, sizeof shape), (long long)heads));
    const int64_t B = qkv->dim[0], Tl = qkv->dim[1], C = qkv->dim[2] / 3, D = C / heads;
    const ls_strides by = { .batch = Tl * 3 * C, .token = 3 * C, .head = D };
    ls_cp_call c = { .t = t,
                     .place = *p,
                     .B = B,
                     .Tl = Tl,
                     .Hq = heads,
                     .Hkv = heads,
                     .D = D,
                     .scale = scale,
                     .causal = causal,
                     .dtype = qkv->dtype,
                     .q_by = by,
                     .k_by = by,
                     .v_by = by,
                     .out_by = ls_strides_dense(Tl, heads, D) };
    point(&c, qkv->data);
    const ls_status st = check(&c, op_packed.name, dropout);
    if (st < 0) return ls_op_fail(t, st);
    ls_tensor *out = ls_op_output(t, qkv->dtype, 3, (int64_t[]){ B, Tl, C });
    return out ? apply(&c, &op_packed, out, &(struct ls_node){ .in = { qkv } }) : NULL;
}
