/* cp_ring.c -- the keys and values of each rank go round in a ring, from rank to rank (Liu, Zaharia and Abbeel 2023).
 *
 * In P rounds every rank's queries meet the keys of every rank; of round s rank r has those of rank r - s. A tile of
 * scores has its own softmax, and results are joined by their log-sum-exp:
 *
 *   out = out e^(lse - m) + out' e^(lse' - m), by the sum of both factors;  m the larger of lse and lse'
 *
 *   forward    P - 1 times: k and v to the next rank, while the round before is computed
 *   backward   the same; and P times dk and dv of a rank's keys, to which every rank that they come to adds
 *
 * kept: lse. While an op runs: forward two ranks' keys and values, and what one run of queries adds; backward two
 * ranks' keys and values, and three times their gradients.
 */
#include <math.h>
#include <string.h>

#include "parallel/cp_attention.h"
#include "tensor/element.h"

static size_t kept_bytes(const ls_cp_call *c) { return ls_cp_lse_bytes(c); }

static size_t block_bytes(const ls_cp_call *c) { return (size_t)(c->B * c->Tl * ls_cp_row(c)) * ls_cp_size(c); }

/* A block on its way to the next rank, and one from the rank before. */
typedef struct hop {
    ls_work *sent, *came;
} hop;

static ls_status start(ls_cp_call *c, void *to_next, void *from_before, const char *label, hop *out)
{
    const ls_along *cp = &c->place.cp;
    const int next = (cp->rank + 1) % cp->size, before = (cp->rank + cp->size - 1) % cp->size;
    *out = (hop){ 0 };
    LS_TRY(ls_op_message(c->t, cp->ranks, true, next, to_next, block_bytes(c), label, &out->sent));
    return ls_op_message(c->t, cp->ranks, false, before, from_before, block_bytes(c), label, &out->came);
}

static ls_status finish(hop *h)
{
    const ls_status sent = ls_work_wait(h->sent), came = ls_work_wait(h->came);
    *h = (hop){ 0 };
    return sent < 0 ? sent : came;
}

/* Whose keys round s has. */
static int owner_of(const ls_cp_call *c, int s) { return (c->place.cp.rank + c->place.cp.size - s) % c->place.cp.size; }

/* Run i of the queries and run j of the keys of rank `owner`; false: a query sees none of them. */
static bool pair_of(const ls_cp_call *c, int owner, int i, int j, const void *kv, ls_cp_pair *out)
{
    ls_places q, k;
    ls_cp_tokens_of(&c->place, c->place.cp.rank, c->T, &q);
    ls_cp_tokens_of(&c->place, owner, c->T, &k);
    if (c->causal && k.first[j] > q.first[i]) return false;
    const int64_t key = j ? k.count[0] : 0;
    *out = (ls_cp_pair){ .query = i ? q.count[0] : 0,
                         .queries = q.count[i],
                         .first_query = q.first[i],
                         .kv = ls_cp_at(c, kv, key * ls_cp_row(c)),
                         .rows = c->Tl,
                         .keys = k.count[j],
                         .first_key = k.first[j],
                         .causal = c->causal && k.first[j] == q.first[i] };
    return true;
}

static int runs_of(const ls_cp_call *c)
{
    ls_places q;
    ls_cp_tokens_of(&c->place, c->place.cp.rank, c->T, &q);
    return q.n;
}

/* --- forward ------------------------------------------------------------------------------------------- */

/* What further keys add. */
typedef struct more {
    void *out;               /* [B, queries, Hq, D] */
    float *lse;              /* [B, Hq, queries] */
    bool had[LS_TOKEN_RUNS]; /* the run of queries has met keys before */
} more;

static LS_ALWAYS_INLINE void join_row(void *out, const void *other, int64_t at, int64_t from, int64_t D, float a,
                                      float b, bool bf16)
{
    for (int64_t d = 0; d < D; d++)
        ls_put(out, at + d, ls_get(out, at + d, bf16) * a + ls_get(other, from + d, bf16) * b, bf16);
}

static void join(const ls_cp_call *c, const ls_cp_pair *p, float *lse, const more *m)
{
    const bool bf16 = c->dtype == LS_BF16;
    for (int64_t b = 0; b < c->B; b++)
        for (int64_t h = 0; h < c->Hq; h++)
            for (int64_t i = 0; i < p->queries; i++) {
                const int64_t row = (b * c->Hq + h) * p->queries + i;
                const float l = lse[row], o = m->lse[row], most = l > o ? l : o;
                const float a = expf(l - most), e = expf(o - most), sum = a + e;
                const int64_t at = b * c->out_by.batch + (p->query + i) * c->out_by.token + h * c->out_by.head;
                join_row(c->out, m->out, at, ((b * p->queries + i) * c->Hq + h) * c->D, c->D, a / sum, e / sum, bf16);
                lse[row] = most + logf(sum);
            }
}

static ls_status meet(ls_cp_call *c, int owner, const void *kv, float *lse, more *m)
{
    const int runs = runs_of(c);
    for (int i = 0; i < runs; i++)
        for (int j = 0; j < runs; j++) {
            ls_cp_pair p;
            if (!pair_of(c, owner, i, j, kv, &p)) continue;
            float *const mine = lse ? lse + c->B * c->Hq * p.query : NULL;
            if (!m->had[i]) {
                LS_TRY(ls_cp_forward(c, &p, ls_cp_at(c, c->out, p.query * c->out_by.token), c->out_by, mine));
            } else {
                LS_TRY(ls_cp_forward(c, &p, m->out, ls_strides_dense(p.queries, c->Hq, c->D), m->lse));
                if (!ls_tape_dry(c->t)) join(c, &p, mine, m);
            }
            m->had[i] = true;
        }
    return LS_OK;
}

static ls_status forward(ls_cp_call *c)
{
    const int P = c->place.cp.size;
    const ls_places all = { .of = c->Tl, .n = 1, .count = { c->Tl } };
    const int64_t queries = c->B * c->Tl / runs_of(c) * c->Hq;
    void *kv[2] = { ls_op_alloc(c->t, block_bytes(c)), ls_op_alloc(c->t, block_bytes(c)) };
    more m = { .out = ls_op_alloc(c->t, (size_t)(queries * c->D) * ls_cp_size(c)) };
    m.lse = ls_op_alloc(c->t, (size_t)queries * sizeof *m.lse);
    float *lse = c->keeps ? c->kept : ls_op_alloc(c->t, ls_cp_lse_bytes(c));
    LS_TRY(ls_tape_status(c->t));
    ls_cp_pack(c, kv[0], c->Tl, &all);
    ls_status st = LS_OK;
    for (int s = 0; s < P && st == LS_OK; s++) {
        hop h = { 0 };
        if (s + 1 < P) st = start(c, kv[s % 2], kv[(s + 1) % 2], "keys and values", &h);
        if (st == LS_OK) st = meet(c, owner_of(c, s), kv[s % 2], lse, &m);
        const ls_status moved = finish(&h);
        if (st == LS_OK) st = moved;
    }
    return st;
}

/* --- backward -------------------------------------------------------------------------------------------- */

static ls_status slopes(ls_cp_call *c, int owner, const void *kv, const float *lse, void *dkv, bool had[LS_TOKEN_RUNS])
{
    const int runs = runs_of(c);
    for (int i = 0; i < runs; i++)
        for (int j = 0; j < runs; j++) {
            ls_cp_pair p;
            if (!pair_of(c, owner, i, j, kv, &p)) continue;
            const ls_places all = { .count = { c->Tl / runs } };
            void *const to = ls_cp_at(c, dkv, (j ? all.count[0] : 0) * ls_cp_row(c));
            LS_TRY(ls_cp_backward(c, &p, lse ? lse + c->B * c->Hq * p.query : NULL, to, had[i] || c->add_q));
            had[i] = true;
        }
    return LS_OK;
}

static ls_status backward(ls_cp_call *c)
{
    const int P = c->place.cp.size;
    const ls_places all = { .of = c->Tl, .n = 1, .count = { c->Tl } };
    void *kv[2] = { ls_op_alloc(c->t, block_bytes(c)), ls_op_alloc(c->t, block_bytes(c)) };
    void *made[2] = { ls_op_alloc(c->t, block_bytes(c)),
                      ls_op_alloc(c->t, block_bytes(c)) }; /* by turns: one travels */
    void *came = ls_op_alloc(c->t, block_bytes(c));
    bool had[LS_TOKEN_RUNS] = { false };
    hop slope = { 0 };
    LS_TRY(ls_tape_status(c->t));
    const bool dry = ls_tape_dry(c->t);
    ls_cp_pack(c, kv[0], c->Tl, &all);
    ls_status st = LS_OK;
    for (int s = 0; s < P && st == LS_OK; s++) {
        hop h = { 0 };
        if (s + 1 < P) st = start(c, kv[s % 2], kv[(s + 1) % 2], "keys and values", &h);
        if (!dry) memset(made[s % 2], 0, block_bytes(c));
        if (st == LS_OK) st = slopes(c, owner_of(c, s), kv[s % 2], c->kept, made[s % 2], had);
        const ls_status came_in = finish(&slope), moved = finish(&h);
        if (st == LS_OK) st = came_in < 0 ? came_in : moved;
        if (st == LS_OK && s > 0 && !dry) ls_grad_add(c->dtype, made[s % 2], came, c->B * c->Tl * ls_cp_row(c));
        if (st == LS_OK) st = start(c, made[s % 2], came, "gradients of keys and values", &slope);
    }
    const ls_status last = finish(&slope);
    if (st == LS_OK) st = last;
    if (st == LS_OK) ls_cp_unpack(c, came); /* of this rank's keys, from all */
    return st;
}

const ls_cp_way ls_cp_ring = { .kept_bytes = kept_bytes, .forward = forward, .backward = backward };
