/* op_attention_cached.c -- attention of new tokens to themselves and to all that came before: a step of generation.
 *
 *   q   [B, T, Hq, D], k and v [B, T, Hkv, D], or packed: qkv [B, T, 3 C], C = Hq D
 *   kv  keys and values of the n tokens before, [B, Hkv, capacity, D] a layer
 *   y   as q, or [B, T, C]
 *
 * k and v are copied behind the n that are there, each head's tokens together: so a step reads them in one go. Then y
 * is causal attention (attention.c) of T queries to n + T keys, 4 D flops for each pair of them that see each other.
 *
 * No gradient goes through it.
 */
#include <string.h>

#include "tensor/attention.h"
#include "tensor/tape.h"

static const ls_tape_op cached = { .name = "attention_cached" };

/* New tokens [B, T, H, D], laid out by `by`, become tokens [n, n + T) of the layer. */
static void append(float *layer, const ls_kv *kv, const float *x, ls_strides by, int64_t T)
{
    for (int64_t b = 0; b < kv->B; b++)
        for (int64_t h = 0; h < kv->Hkv; h++) {
            float *to = layer + ((b * kv->Hkv + h) * kv->capacity + kv->n) * kv->D;
            const float *from = x + b * by.batch + h * by.head;
            for (int64_t t = 0; t < T; t++) memcpy(to + t * kv->D, from + t * by.token, (size_t)kv->D * sizeof *to);
        }
}

static ls_status check(const ls_tape *t, const ls_attention_call *c, const ls_kv *kv, int64_t layer, bool wanted)
{
    if (layer < 0 || layer >= kv->layers || kv->B != c->B || kv->Hkv != c->Hkv || kv->D != c->D)
        return ls_fail(LS_SHAPE, "attention_cached: layer %lld of B = %lld, Hkv = %lld, D = %lld; the cache has %lld layers "
                       "of %lld, %lld, %lld", (long long)layer, (long long)c->B, (long long)c->Hkv, (long long)c->D,
                       (long long)kv->layers, (long long)kv->B, (long long)kv->Hkv, (long long)kv->D);
    if (c->Hq % c->Hkv != 0)
        return ls_fail(LS_SHAPE, "attention_cached: %lld heads of queries, not a multiple of the %lld of keys",
                       (long long)c->Hq, (long long)c->Hkv);
    if (kv->n < 0 || c->Tq > kv->capacity - kv->n)
        return ls_fail(LS_SHAPE, "attention_cached: %lld more tokens after %lld; the cache holds %lld",
                       (long long)c->Tq, (long long)kv->n, (long long)kv->capacity);
    if (c->D > LS_ATTENTION_MOST_D)
        return ls_fail(LS_UNSUPPORTED, "attention_cached: heads of %lld: at most %d are supported", (long long)c->D,
                       LS_ATTENTION_MOST_D);
    if (ls_tape_grad(t) && wanted)
        return ls_fail(LS_UNSUPPORTED, "attention_cached: no gradient goes through it; call ls_tape_set_grad(tape, false)");
    if (!ls_tape_dry(t) && (!kv->k || !kv->v)) return ls_fail(LS_INVALID, "attention_cached: the cache has no memory");
    return LS_OK;
}

/* c has the new tokens; y [..] is as its queries. */
static ls_tensor *apply(ls_tape *t, ls_attention_call *c, ls_kv *kv, int64_t layer, const struct ls_node *in, int ndim,
                        const int64_t *dim)
{
    bool wanted = false;
    for (int i = 0; i < LS_OP_INPUTS; i++) wanted |= ls_grad_wanted(in->in[i]);
    const ls_status st = check(t, c, kv, layer, wanted);
    if (st < 0) return ls_op_fail(t, st);
    ls_tensor *y = ls_op_output(t, LS_F32, ndim, dim);
    if (!y) return NULL;
    c->Tk = kv->n + c->Tq;
    c->causal = true;
    c->out = y->data;
    c->out_by = ls_strides_dense(c->Tq, c->Hq, c->D);
    if (!ls_tape_dry(t)) {
        const int64_t at = layer * kv->B * kv->Hkv * kv->capacity * kv->D;
        append(kv->k + at, kv, c->k, c->k_by, c->Tq);
        append(kv->v + at, kv, c->v, c->v_by, c->Tq);
        c->k = kv->k + at;
        c->v = kv->v + at;
        const int64_t head = kv->capacity * kv->D;
        c->k_by = c->v_by = (ls_strides){ .batch = kv->Hkv * head, .token = kv->D, .head = head };
        ls_attention_forward(c);
    }
    struct ls_node n = *in;
    n.op = &cached;
    n.label_a = (uint32_t)c->Tk;
    n.label_b = (uint32_t)c->D;
    n.flops = ls_attention_flops(c);
    return ls_op_end(t, y, &n);
}

ls_tensor *ls_attention_cached(ls_tape *t, ls_tensor *q, ls_tensor *k, ls_tensor *v, float scale, ls_kv *kv,
                               int64_t layer)
{
    if (!ls_op_begin(t, cached.name, q && k && v && kv)) return NULL;
    char qs[96], ks[96], vs[96];
    if (q->ndim != 4 || k->ndim != 4 || v->ndim != 4 || q->dim[0] != k->dim[0] || q->dim[1] != k->dim[1] ||
        q->dim[3] != k->dim[3] || memcmp(k->dim, v->dim, sizeof k->dim) != 0)
        return ls_op_fail(t, ls_fail(LS_SHAPE, "attention_cached: queries %s, keys %s and values %s: expected [B, T, Hq, D] "
                                     "and twice [B, T, Hkv, D]", ls_tensor_shape(q, qs, sizeof qs),
                                     ls_tensor_shape(k, ks, sizeof ks), ls_tensor_shape(v, vs, sizeof vs)));
    ls_status st = ls_op_check(t, cached.name, "query", q);
    if (st == LS_OK) st = ls_op_check(t, cached.name, "key", k);
    if (st == LS_OK) st = ls_op_check(t, cached.name, "value", v);
    if (st < 0) return ls_op_fail(t, st);
    ls_attention_call c = {
        .B = q->dim[0], .Tq = q->dim[1], .Hq = q->dim[2], .D = q->dim[3], .Hkv = k->dim[2], .scale = scale,
        .q = q->data, .k = k->data, .v = v->data,
    };
    c.q_by = ls_strides_dense(c.Tq, c.Hq, c.D);
    c.k_by = c.v_by = ls_strides_dense(c.Tq, c.Hkv, c.D);
    return apply(t, &c, kv, layer, &(struct ls_node){ .in = { q, k, v } }, 4, q->dim);
}

ls_tensor *ls_attention_packed_cached(ls_tape *t, ls_tensor *qkv, int64_t heads, float scale, ls_kv *kv, int64_t layer)
{
    if (!ls_op_begin(t, cached.name, qkv && kv)) return NULL;
    char shape[96];
    if (qkv->ndim != 3 || heads < 1 || qkv->dim[2] % (3 * heads) != 0)
        return ls_op_fail(t, ls_fail(LS_SHAPE, "attention_cached: packed %s for %lld heads: expected [B, T, 3 C], C a "
                                     "multiple of the heads", ls_tensor_shape(qkv, shape, sizeof shape),
                                     (long long)heads));
    const ls_status st = ls_op_check(t, cached.name, "packed input", qkv);
    if (st < 0) return ls_op_fail(t, st);
    const int64_t B = qkv->dim[0], T = qkv->dim[1], C = qkv->dim[2] / 3, D = C / heads;
    const ls_strides by = { .batch = T * 3 * C, .token = 3 * C, .head = D };
    const float *q = qkv->data;
    ls_attention_call c = {
        .B = B, .Tq = T, .Hq = heads, .Hkv = heads, .D = D, .scale = scale,
        .q = q, .k = q ? q + C : NULL, .v = q ? q + 2 * C : NULL, .q_by = by, .k_by = by, .v_by = by,
    };
    return apply(t, &c, kv, layer, &(struct ls_node){ .in = { qkv } }, 3, (const int64_t[]){ B, T, C });
}
