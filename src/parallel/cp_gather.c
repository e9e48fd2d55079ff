/* cp_gather.c -- every rank gathers the keys and values of all ranks, and its queries see those before them.
 *
 *   forward    all_gather of k and v; softmax(q k^T) v of each run of queries
 *   backward   all_gather again; dq; dk and dv of all tokens, reduce_scatter of them
 *
 * kept: lse. While an op runs: all keys and values, and in backward as much for their gradients.
 */
#include <string.h>

#include "parallel/cp_attention.h"

static size_t kept_bytes(const ls_cp_call *c) { return ls_cp_lse_bytes(c); }

/* The sequences as matrices, whose rows the ranks have as ls_cp_tokens_of says. Two pieces of a sequence are two. */
static ls_matrix_span *spans_of(const ls_cp_call *c, int *n)
{
    const int P = c->place.cp.size;
    ls_places some;
    ls_cp_tokens_of(&c->place, 0, c->T, &some);
    const int pieces = some.n;
    const int64_t rows = c->T / pieces, row = ls_cp_row(c);
    *n = (int)c->B * pieces;
    ls_matrix_span *span = ls_tape_take_node(c->t, (size_t)*n * sizeof *span);
    ls_range *part = ls_tape_take_node(c->t, (size_t)(pieces * P) * sizeof *part);
    if (ls_tape_status(c->t) < 0) return NULL;
    for (int r = 0; r < P; r++) {
        ls_cp_tokens_of(&c->place, r, c->T, &some);
        for (int k = 0; k < pieces; k++)
            part[k * P + r] = (ls_range){ (size_t)(some.first[k] - k * rows), (size_t)some.count[k] };
    }
    for (int i = 0; i < *n; i++)
        span[i] = (ls_matrix_span){
            .first = (size_t)(i * rows * row), .rows = (size_t)rows, .row = (size_t)row, .part = part + i % pieces * P
        };
    return span;
}

static ls_coll_args args(const ls_cp_call *c, ls_coll coll, const ls_matrix_span *span, int nspans, const char *label)
{
    return (ls_coll_args){ .coll = coll,
                           .dtype = c->dtype,
                           .op = LS_SUM,
                           .count = (size_t)(c->B * c->T * ls_cp_row(c)),
                           .span = span,
                           .nspans = nspans,
                           .label = label };
}

static ls_status gather(ls_cp_call *c, const ls_matrix_span *span, int nspans, void *kv)
{
    ls_places here;
    ls_cp_tokens_of(&c->place, c->place.cp.rank, c->T, &here);
    ls_cp_pack(c, kv, c->T, &here);
    ls_coll_args a = args(c, LS_ALL_GATHER, span, nspans, "keys and values");
    a.out = kv;
    return ls_op_collective(c->t, c->place.cp.ranks, &a, true);
}

/* Run k of the queries, and all keys that it may see. */
static ls_cp_pair pair_of(const ls_cp_call *c, const ls_places *here, int k, const void *kv)
{
    const int64_t end = here->first[k] + here->count[k];
    return (ls_cp_pair){ .query = k ? here->count[0] : 0,
                         .queries = here->count[k],
                         .first_query = here->first[k],
                         .kv = kv,
                         .rows = c->T,
                         .keys = c->causal ? end : c->T,
                         .causal = c->causal };
}

static float *lse_of(const ls_cp_call *c, float *lse, const ls_cp_pair *p)
{
    return lse ? lse + c->B * c->Hq * p->query : NULL;
}

static ls_status forward(ls_cp_call *c)
{
    int nspans;
    ls_places here;
    const ls_matrix_span *span = spans_of(c, &nspans);
    void *kv = ls_op_alloc(c->t, (size_t)(c->B * c->T * ls_cp_row(c)) * ls_cp_size(c));
    float *lse = c->keeps ? c->kept : ls_op_alloc(c->t, ls_cp_lse_bytes(c));
    LS_TRY(ls_tape_status(c->t));
    LS_TRY(gather(c, span, nspans, kv));
    ls_cp_tokens_of(&c->place, c->place.cp.rank, c->T, &here);
    for (int k = 0; k < here.n; k++) {
        const ls_cp_pair p = pair_of(c, &here, k, kv);
        LS_TRY(ls_cp_forward(c, &p, ls_cp_at(c, c->out, p.query * c->out_by.token), c->out_by, lse_of(c, lse, &p)));
    }
    return LS_OK;
}

static ls_status backward(ls_cp_call *c)
{
    int nspans;
    ls_places here;
    const size_t all = (size_t)(c->B * c->T * ls_cp_row(c)) * ls_cp_size(c);
    const ls_matrix_span *span = spans_of(c, &nspans);
    void *kv = ls_op_alloc(c->t, all), *dkv = ls_op_alloc(c->t, all),
         *mine = ls_op_alloc(c->t, all / (size_t)c->place.cp.size);
    LS_TRY(ls_tape_status(c->t));
    LS_TRY(gather(c, span, nspans, kv));
    if (!ls_tape_dry(c->t)) memset(dkv, 0, all);
    ls_cp_tokens_of(&c->place, c->place.cp.rank, c->T, &here);
    for (int k = 0; k < here.n; k++) {
        const ls_cp_pair p = pair_of(c, &here, k, kv);
        LS_TRY(ls_cp_backward(c, &p, lse_of(c, c->kept, &p), dkv, c->add_q));
    }
    ls_coll_args a = args(c, LS_REDUCE_SCATTER, span, nspans, "gradients of keys and values");
    a.in = dkv;
    a.out = mine;
    LS_TRY(ls_op_collective(c->t, c->place.cp.ranks, &a, false));
    ls_cp_unpack(c, mine);
    return LS_OK;
}

const ls_cp_way ls_cp_gather = { .kept_bytes = kept_bytes, .forward = forward, .backward = backward };
