/* cp_pieces.c -- attention of some of a rank's queries and some keys, and rows of keys and values as they travel. */
#include "parallel/cp_attention.h"

#include <string.h>

/* --- rows of keys and values ------------------------------------------------------------------------ */

void ls_cp_pack(const ls_cp_call *c, void *to, int64_t rows, const ls_places *at)
{
    const int64_t row = ls_cp_row(c);
    const size_t half = (size_t)(c->Hkv * c->D) * ls_cp_size(c);
    if (ls_tape_dry(c->t)) return;
    for (int64_t b = 0; b < c->B; b++)
        for (int64_t k = 0, t = 0; k < at->n; k++)
            for (int64_t i = 0; i < at->count[k]; i++, t++) {
                char *r = ls_cp_at(c, to, (b * rows + at->first[k] + i) * row);
                memcpy(r, ls_cp_at(c, c->k, b * c->k_by.batch + t * c->k_by.token), half);
                memcpy(r + half, ls_cp_at(c, c->v, b * c->v_by.batch + t * c->v_by.token), half);
            }
}

static void put(const ls_cp_call *c, void *to, const void *from, bool add)
{
    const int64_t n = c->Hkv * c->D;
    if (add) ls_grad_add(c->dtype, to, from, n);
    else memcpy(to, from, (size_t)n * ls_cp_size(c));
}

void ls_cp_unpack(const ls_cp_call *c, const void *from)
{
    const int64_t row = ls_cp_row(c);
    if (ls_tape_dry(c->t)) return;
    for (int64_t b = 0; b < c->B; b++)
        for (int64_t t = 0; t < c->Tl; t++) {
            const int64_t at = (b * c->Tl + t) * row;
            if (c->dk)
                put(c, ls_cp_at(c, c->dk, b * c->k_by.batch + t * c->k_by.token), ls_cp_at(c, from, at), c->add_k);
            if (c->dv)
                put(c, ls_cp_at(c, c->dv, b * c->v_by.batch + t * c->v_by.token), ls_cp_at(c, from, at + row / 2),
                    c->add_v);
        }
}

/* --- pieces of attention -------------------------------------------------------------------------------- */

static ls_attention_call piece(const ls_cp_call *c, const ls_cp_pair *p)
{
    const int64_t row = ls_cp_row(c);
    const ls_strides kv_by = { .batch = p->rows * row, .token = row, .head = c->D };
    ls_attention_call a = {
        .B = c->B, .Tq = p->queries, .Tk = p->keys, .Hq = c->Hq, .Hkv = c->Hkv, .D = c->D, .scale = c->scale,
        .causal = p->causal, .dtype = c->dtype, .q = ls_cp_at(c, c->q, p->query * c->q_by.token), .k = p->kv,
        .v = ls_cp_at(c, p->kv, row / 2), .q_by = c->q_by, .k_by = kv_by, .v_by = kv_by, .drop = c->drop,
        .amx = ls_tape_amx(c->t) && c->dtype == LS_BF16 && p->keys >= LS_ATTENTION_AMX_KEYS,
    };
    a.drop.first_query = p->first_query;
    a.drop.first_key = p->first_key;
    return a;
}

void ls_cp_count(ls_cp_call *c, int64_t heads, int64_t queries, int64_t keys, bool causal)
{
    const double all = (double)queries * (double)keys, unseen = (double)queries * (double)(queries - 1) / 2.0;
    c->met += (double)(c->B * heads) * (causal ? all - unseen : all);
}

ls_status ls_cp_forward(ls_cp_call *c, const ls_cp_pair *p, void *out, ls_strides out_by, float *lse)
{
    ls_attention_call a = piece(c, p);
    ls_cp_count(c, c->Hq, p->queries, p->keys, p->causal);
    const size_t mark = ls_op_mark(c->t);
    a.scratch = ls_op_alloc(c->t, (size_t)ls_attention_scratch(&a, false) * sizeof *a.scratch);
    LS_TRY(ls_tape_status(c->t));
    a.out = out;
    a.out_by = out_by;
    a.lse = lse;
    if (!ls_tape_dry(c->t)) ls_attention_forward(&a);
    ls_op_release(c->t, mark);
    return LS_OK;
}

ls_status ls_cp_backward(ls_cp_call *c, const ls_cp_pair *p, const float *lse, void *dkv, bool add)
{
    ls_attention_call a = piece(c, p);
    const size_t mark = ls_op_mark(c->t);
    a.scratch = ls_op_alloc(c->t, (size_t)ls_attention_scratch(&a, true) * sizeof *a.scratch);
    LS_TRY(ls_tape_status(c->t));
    const int64_t at = p->query * c->out_by.token;
    a.out = ls_cp_at(c, c->out, at);
    a.out_by = c->out_by;
    a.lse = (float *)(uintptr_t)lse;
    a.dout = ls_cp_at(c, c->dout, at);
    a.dq = ls_cp_at(c, c->dq, p->query * c->q_by.token);
    a.dk = dkv;
    a.dv = ls_cp_at(c, dkv, ls_cp_row(c) / 2);
    a.add_q = add;
    a.add_k = a.add_v = true;
    if (!ls_tape_dry(c->t)) ls_attention_backward(&a);
    ls_op_release(c->t, mark);
    return LS_OK;
}
