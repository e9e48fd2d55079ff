/* cp_ulysses.c -- ranks exchange tokens for heads: each has all tokens of some heads, as in a run without context
 * parallelism, and gives the results back (Jacobs et al. 2023).
 *
 *   forward    all_to_all of q, k and v; attention; all_to_all of out
 *   backward   all_to_all of dout; attention; all_to_all of dq, dk and dv
 *
 * With a ring (LS_CP_ULYSSES_RING; Fang and Zhao 2024) U neighbours exchange, and have the tokens of U ranks then: as a
 * rank of cp / U has them, in the same pieces. So the attention between the two exchanges is that of cp_ring.c among
 * cp / U ranks, for 1 / U of the heads. In all functions but the last ones c->place.cp are the ranks that exchange, and
 * c->T the tokens that they have together.
 *
 * kept: q, k, v and out of this rank's heads, of these tokens, and lse.
 */
#include <string.h>

#include "parallel/cp_attention.h"

/* Tensors whose heads are exchanged together: [B, T / cp, heads, D] each. */
typedef struct part {
    void *x;
    ls_strides by;
    int64_t heads; /* on each rank */
    bool add;
} part;

enum { MOST_PARTS = 3 };

/* Whether U ranks can exchange them. */
static ls_status check_heads(const ls_cp_call *c, int U)
{
    if (c->Hq % U == 0 && c->Hkv % U == 0) return LS_OK;
    return ls_fail(LS_BAD_CONFIG,
                   "ulysses: %lld heads of queries and %lld of keys for %d ranks: expected multiples of %d; ring and "
                   "gather divide tokens alone",
                   (long long)c->Hq, (long long)c->Hkv, U, U);
}

static ls_status check(const ls_cp_call *c) { return check_heads(c, c->place.cp.size); }

/* Elements of a token's row: q, k and v of this rank's heads, and out. */
static int64_t row_qkv(const ls_cp_call *c) { return (c->Hq + 2 * c->Hkv) / c->place.cp.size * c->D; }
static int64_t row_out(const ls_cp_call *c) { return c->Hq / c->place.cp.size * c->D; }
static size_t bytes_of(const ls_cp_call *c, int64_t row)
{
    return ((size_t)(c->B * c->T * row) * ls_cp_size(c) + 63) / 64 * 64;
}
static size_t lse_bytes(const ls_cp_call *c)
{
    return (size_t)(c->B * c->Hq / c->place.cp.size * c->T) * sizeof(float);
}

static size_t kept_bytes(const ls_cp_call *c)
{
    return bytes_of(c, row_qkv(c)) + bytes_of(c, row_out(c)) + lse_bytes(c);
}

/* --- the exchange --------------------------------------------------------------------------------------------- */

static int parts_of(ls_cp_call *c, bool slopes, part out[MOST_PARTS])
{
    const int P = c->place.cp.size;
    out[0] = (part){ slopes ? c->dq : (void *)(uintptr_t)c->q, c->q_by, c->Hq / P, c->add_q };
    out[1] = (part){ slopes ? c->dk : (void *)(uintptr_t)c->k, c->k_by, c->Hkv / P, c->add_k };
    out[2] = (part){ slopes ? c->dv : (void *)(uintptr_t)c->v, c->v_by, c->Hkv / P, c->add_v };
    return MOST_PARTS;
}

/* Block r of `to`: [B, T / cp] rows with the heads of rank r. `back`: from there to the parts. */
static void by_heads(const ls_cp_call *c, const part *p, int n, void *blocks, bool back)
{
    char *at = blocks;
    for (int r = 0; r < c->place.cp.size; r++)
        for (int64_t b = 0; b < c->B; b++)
            for (int64_t t = 0; t < c->Tl; t++)
                for (int k = 0; k < n; k++) {
                    const int64_t some = p[k].heads * c->D;
                    const size_t nbytes = (size_t)some * ls_cp_size(c);
                    void *x = ls_cp_at(c, p[k].x, b * p[k].by.batch + t * p[k].by.token + r * some);
                    if (!back)
                        memcpy(at, x, nbytes);
                    else if (x && p[k].add)
                        ls_grad_add(c->dtype, x, at, some);
                    else if (x)
                        memcpy(x, at, nbytes);
                    at += nbytes;
                }
}

/* Block r of `blocks`: [B, T / cp] rows of the tokens of rank r, which stand apart in `whole` [B, T]. */
static void by_tokens(const ls_cp_call *c, void *whole, int64_t row, void *blocks, bool back)
{
    const size_t nbytes = (size_t)row * ls_cp_size(c);
    char *at = blocks;
    for (int r = 0; r < c->place.cp.size; r++) {
        ls_places s;
        ls_cp_tokens_of(&c->place, r, c->T, &s);
        for (int64_t b = 0; b < c->B; b++)
            for (int k = 0; k < s.n; k++) {
                char *x = (char *)whole + (size_t)(b * c->T + s.first[k]) * nbytes;
                const size_t some = (size_t)s.count[k] * nbytes;
                if (back)
                    memcpy(at, x, some);
                else
                    memcpy(x, at, some);
                at += some;
            }
    }
}

static ls_status all_to_all(ls_cp_call *c, const void *in, void *out, int64_t row, const char *label)
{
    const ls_coll_args a = { .coll = LS_ALL_TO_ALL,
                             .dtype = c->dtype,
                             .in = in,
                             .out = out,
                             .count = (size_t)(c->B * c->T * row),
                             .label = label };
    return ls_op_collective(c->t, c->place.cp.ranks, &a, false);
}

/* Tokens here of all heads become all tokens of the heads here. */
static ls_status to_heads(ls_cp_call *c, const part *p, int n, void *whole, int64_t row, const char *label)
{
    const size_t mark = ls_op_mark(c->t), nbytes = bytes_of(c, row);
    void *out = ls_op_alloc(c->t, nbytes), *in = ls_op_alloc(c->t, nbytes);
    LS_TRY(ls_tape_status(c->t));
    if (!ls_tape_dry(c->t)) by_heads(c, p, n, out, false);
    LS_TRY(all_to_all(c, out, in, row, label));
    if (!ls_tape_dry(c->t)) by_tokens(c, whole, row, in, false);
    ls_op_release(c->t, mark);
    return LS_OK;
}

static ls_status to_tokens(ls_cp_call *c, void *whole, int64_t row, const part *p, int n, const char *label)
{
    const size_t mark = ls_op_mark(c->t), nbytes = bytes_of(c, row);
    void *out = ls_op_alloc(c->t, nbytes), *in = ls_op_alloc(c->t, nbytes);
    LS_TRY(ls_tape_status(c->t));
    if (!ls_tape_dry(c->t)) by_tokens(c, whole, row, out, true);
    LS_TRY(all_to_all(c, out, in, row, label));
    if (!ls_tape_dry(c->t)) by_heads(c, p, n, in, true);
    ls_op_release(c->t, mark);
    return LS_OK;
}

/* --- attention over the tokens that came, of this rank's heads --------------------------------------------------- */

static ls_attention_call attention_of(ls_cp_call *c, void *qkv, void *out, float *lse)
{
    const int64_t P = c->place.cp.size, Hq = c->Hq / P, Hkv = c->Hkv / P, row = row_qkv(c);
    const ls_strides by = { .batch = c->T * row, .token = row, .head = c->D };
    ls_attention_call a = {
        .B = c->B,
        .Tq = c->T,
        .Tk = c->T,
        .Hq = Hq,
        .Hkv = Hkv,
        .D = c->D,
        .scale = c->scale,
        .causal = c->causal,
        .dtype = c->dtype,
        .q = qkv,
        .k = ls_cp_at(c, qkv, Hq * c->D),
        .v = ls_cp_at(c, qkv, (Hq + Hkv) * c->D),
        .q_by = by,
        .k_by = by,
        .v_by = by,
        .out = out,
        .out_by = ls_strides_dense(c->T, Hq, c->D),
        .lse = lse,
        .drop = c->drop,
        .amx = ls_tape_amx(c->t) && c->dtype == LS_BF16 && c->T >= LS_ATTENTION_AMX_KEYS,
    };
    a.drop.first_head += c->place.cp.rank * Hq;
    return a;
}

/* Where they lie in what is kept. */
static void split(const ls_cp_call *c, char *kept, void **qkv, void **out, float **lse)
{
    *qkv = kept;
    *out = kept ? kept + bytes_of(c, row_qkv(c)) : NULL;
    *lse = kept ? (float *)(void *)(kept + bytes_of(c, row_qkv(c)) + bytes_of(c, row_out(c))) : NULL;
}

/* Attention of its heads where a ring goes on from here. lse [B, Hq / U, T] is what the ring keeps. */
static ls_cp_call in_ring(const ls_cp_call *c, void *qkv, void *out, float *lse)
{
    const int64_t U = c->place.cp.size, Hq = c->Hq / U, Hkv = c->Hkv / U, row = row_qkv(c);
    ls_cp_call in = *c;
    in.place.cp = c->place.ring;
    in.T = c->T * in.place.cp.size;
    in.Tl = c->T;
    in.Hq = Hq;
    in.Hkv = Hkv;
    in.q_by = in.k_by = in.v_by = (ls_strides){ .batch = c->T * row, .token = row, .head = c->D };
    in.out_by = ls_strides_dense(c->T, Hq, c->D);
    in.q = qkv;
    in.k = ls_cp_at(c, qkv, Hq * c->D);
    in.v = ls_cp_at(c, qkv, (Hq + Hkv) * c->D);
    in.out = out;
    in.keeps = true;
    in.kept = lse;
    in.drop.first_head += c->place.cp.rank * Hq;
    return in;
}

static bool has_ring(const ls_cp_call *c) { return c->place.context == LS_CP_ULYSSES_RING; }

static ls_status attend(ls_cp_call *c, void *qkv, void *out, float *lse)
{
    if (has_ring(c)) {
        ls_cp_call in = in_ring(c, qkv, out, lse);
        const ls_status st = ls_cp_ring.forward(&in);
        c->met = in.met;
        return st;
    }
    ls_attention_call a = attention_of(c, qkv, out, lse);
    a.scratch = ls_op_alloc(c->t, (size_t)ls_attention_scratch(&a, false) * sizeof *a.scratch);
    LS_TRY(ls_tape_status(c->t));
    if (!ls_tape_dry(c->t)) ls_attention_forward(&a);
    ls_cp_count(c, a.Hq, a.Tq, a.Tk, a.causal);
    return LS_OK;
}

/* Writes dqkv, the gradients of qkv. */
static ls_status slopes(ls_cp_call *c, void *qkv, void *out, float *lse, const void *dout, void *dqkv)
{
    void *const dk = ls_cp_at(c, dqkv, row_out(c)),
         *const dv = ls_cp_at(c, dqkv, row_out(c) + c->Hkv / c->place.cp.size * c->D);
    if (has_ring(c)) {
        ls_cp_call in = in_ring(c, qkv, out, lse);
        in.dout = dout;
        in.dq = dqkv;
        in.dk = dk;
        in.dv = dv;
        in.add_q = in.add_k = in.add_v = false;
        return ls_cp_ring.backward(&in);
    }
    ls_attention_call a = attention_of(c, qkv, out, lse);
    a.scratch = ls_op_alloc(c->t, (size_t)ls_attention_scratch(&a, true) * sizeof *a.scratch);
    LS_TRY(ls_tape_status(c->t));
    a.dout = dout;
    a.dq = dqkv;
    a.dk = dk;
    a.dv = dv;
    if (!ls_tape_dry(c->t)) ls_attention_backward(&a);
    return LS_OK;
}

static part out_part(const ls_cp_call *c, const void *x)
{
    return (part){ .x = (void *)(uintptr_t)x, .by = c->out_by, .heads = c->Hq / c->place.cp.size };
}

static ls_status forward(ls_cp_call *c)
{
    void *qkv, *out;
    float *lse;
    part p[MOST_PARTS];
    const int n = parts_of(c, false, p);
    char *kept = c->keeps ? c->kept : ls_op_alloc(c->t, kept_bytes(c));
    LS_TRY(ls_tape_status(c->t));
    split(c, kept, &qkv, &out, &lse);
    LS_TRY(to_heads(c, p, n, qkv, row_qkv(c), "queries, keys and values"));
    const size_t mark = ls_op_mark(c->t);
    LS_TRY(attend(c, qkv, out, lse));
    ls_op_release(c->t, mark);
    const part o = out_part(c, c->out);
    return to_tokens(c, out, row_out(c), &o, 1, "results of attention");
}

static ls_status backward(ls_cp_call *c)
{
    void *qkv, *out;
    float *lse;
    part p[MOST_PARTS];
    const int n = parts_of(c, true, p);
    void *dout = ls_op_alloc(c->t, bytes_of(c, row_out(c))), *dqkv = ls_op_alloc(c->t, bytes_of(c, row_qkv(c)));
    LS_TRY(ls_tape_status(c->t));
    split(c, c->kept, &qkv, &out, &lse);
    const part o = out_part(c, c->dout);
    LS_TRY(to_heads(c, &o, 1, dout, row_out(c), "gradients of results"));
    const size_t mark = ls_op_mark(c->t);
    LS_TRY(slopes(c, qkv, out, lse, dout, dqkv));
    ls_op_release(c->t, mark);
    return to_tokens(c, dqkv, row_qkv(c), p, n, "gradients of queries, keys and values");
}

const ls_cp_way ls_cp_ulysses = { .check = check, .kept_bytes = kept_bytes, .forward = forward, .backward = backward };

/* --- with a ring ------------------------------------------------------------------------------------------------- */

/* The same call as one among the ranks that exchange. */
static ls_cp_call among_neighbours(const ls_cp_call *c)
{
    ls_cp_call few = *c;
    few.place.cp = c->place.exchange;
    few.T = c->Tl * few.place.cp.size;
    return few;
}

static ls_status check_ring(const ls_cp_call *c)
{
    const ls_place *p = &c->place;
    if (p->exchange.size < 2 || p->ring.size < 2 || p->exchange.size * p->ring.size != p->cp.size)
        return ls_fail(LS_BAD_CONFIG, "ulysses-ring: %d ranks that exchange heads in rings of %d: expected at least 2 of both, and their "
                       "product to be cp, which is %d", p->exchange.size, p->ring.size, p->cp.size);
    return check_heads(c, p->exchange.size);
}

static size_t ring_kept_bytes(const ls_cp_call *c)
{
    const ls_cp_call few = among_neighbours(c);
    return kept_bytes(&few);
}

static ls_status ring_forward(ls_cp_call *c)
{
    ls_cp_call few = among_neighbours(c);
    const ls_status st = forward(&few);
    c->met = few.met;
    return st;
}

static ls_status ring_backward(ls_cp_call *c)
{
    ls_cp_call few = among_neighbours(c);
    return backward(&few);
}

const ls_cp_way ls_cp_ulysses_ring = {
    .check = check_ring, .kept_bytes = ring_kept_bytes, .forward = ring_forward, .backward = ring_backward
};
