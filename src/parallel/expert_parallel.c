/* expert_parallel.c -- tokens on the way to their experts and back (moe.h).
 *
 *   dispatch  x [B, T, C] -> rows [R, C]      combine  rows [R, C], w [B, T, k] -> y [B, T, C]
 *
 *                    with one rank                with several, which divide the experts
 *   dispatch         copies of rows               the same, then all_to_all_v; before it an all_to_all of counts
 *   its backward     sums over k                  all_to_all_v, then the same
 *   combine          sums over k                  all_to_all_v, then the same; what came back stays for backward
 *   its backward     copies times w               the same, then all_to_all_v
 *
 * Rows are sent by expert and by token, so that those for a rank are in one piece.
 */
#include <string.h>

#include "base/compiler.h"
#include "lockstep/group.h"
#include "lockstep/place.h"
#include "tensor/collective.h"
#include "tensor/element.h"
#include "tensor/share.h"
#include "tensor/tape.h"

#define CHUNK 512 /* columns that are added up in float at a time */

/* --- loops over tokens ----------------------------------------------------------------------- */

typedef struct loop {
    const ls_routing *r;
    ls_dtype dtype;
    int64_t C;
    const void *x;    /* [B T, C] of tokens: read */
    void *y;          /* written; with add, added to */
    const void *rows; /* [.., C] by place: read */
    void *to;         /* written */
    const float *w;   /* NULL: 1 */
    float *dw;        /* NULL: not wanted */
    bool add, add_w;
} loop;

/* to[place] = x, times w. */
static LS_ALWAYS_INLINE void spread_loop(const loop *l, int64_t first, int64_t end, bool bf16)
{
    const int64_t k = l->r->k, C = l->C;
    for (int64_t i = first * k; i < end * k; i++) {
        const int64_t place = l->r->place[i], from = i / k * C;
        if (place < 0) continue;
        if (!l->w) {
            memcpy(ls_at(l->to, place * C, bf16), ls_at_const(l->x, from, bf16), (size_t)C * (bf16 ? 2 : 4));
            continue;
        }
        const float w = l->w[i];
        LS_INDEPENDENT
        for (int64_t c = 0; c < C; c++) ls_put(l->to, place * C + c, w * ls_get(l->x, from + c, bf16), bf16);
    }
}

LS_KERNEL static void spread(const void *call, int64_t first, int64_t count)
{
    const loop *l = call;
    LS_BY_DTYPE(l->dtype, spread_loop, l, first, first + count);
}

/* y = the sum over a token's places of rows, times w. */
static LS_ALWAYS_INLINE void collect_loop(const loop *l, int64_t first, int64_t end, bool bf16)
{
    const int64_t k = l->r->k, C = l->C;
    float sum[CHUNK];
    for (int64_t i = first; i < end; i++)
        for (int64_t c0 = 0; c0 < C; c0 += CHUNK) {
            const int64_t n = C - c0 < CHUNK ? C - c0 : CHUNK, at = i * C + c0;
            for (int64_t c = 0; c < n; c++) sum[c] = l->add ? ls_get(l->y, at + c, bf16) : 0.0f;
            for (int64_t j = i * k; j < (i + 1) * k; j++) {
                if (l->r->place[j] < 0) continue;
                const float w = l->w ? l->w[j] : 1.0f;
                const int64_t from = l->r->place[j] * C + c0;
                for (int64_t c = 0; c < n; c++) sum[c] += w * ls_get(l->rows, from + c, bf16);
            }
            LS_INDEPENDENT
            for (int64_t c = 0; c < n; c++) ls_put(l->y, at + c, sum[c], bf16);
        }
}

LS_KERNEL static void collect(const void *call, int64_t first, int64_t count)
{
    const loop *l = call;
    LS_BY_DTYPE(l->dtype, collect_loop, l, first, first + count);
}

/* dw = the product of a token's x (the gradient of its result) with each of its rows. */
static LS_ALWAYS_INLINE void weigh_loop(const loop *l, int64_t first, int64_t end, bool bf16)
{
    const int64_t k = l->r->k, C = l->C;
    for (int64_t i = first * k; i < end * k; i++) {
        const int64_t place = l->r->place[i], at = i / k * C;
        float part[16] = { 0 };
        double sum = 0;
        for (int64_t c = 0; place >= 0 && c < C; c += 16)
            for (int64_t v = 0; v < 16 && c + v < C; v++)
                part[v] += ls_get(l->x, at + c + v, bf16) * ls_get(l->rows, place * C + c + v, bf16);
        for (int v = 0; v < 16; v++) sum += (double)part[v];
        l->dw[i] = (float)sum + (l->add_w ? l->dw[i] : 0.0f);
    }
}

LS_KERNEL static void weigh(const void *call, int64_t first, int64_t count)
{
    const loop *l = call;
    LS_BY_DTYPE(l->dtype, weigh_loop, l, first, first + count);
}

static void over_tokens(ls_loop f, const loop *l)
{
    const int64_t N = l->r->B * l->r->T;
    ls_parallel_for(f, l, N, 16, N * (l->r->k + 1) * l->C * (int64_t)ls_dtype_size(l->dtype));
}

/* --- between ranks ----------------------------------------------------------------------------- */

static bool travels(const ls_routing *r) { return r->ep > 1; }

/* Most rows that leave here. */
static int64_t most_sent(const ls_routing *r)
{
    const int64_t by_choice = r->T * r->k, by_place = r->E * r->capacity;
    return r->B * (by_choice < by_place ? by_choice : by_place);
}

/* Rows from `in` to `out`: out of here (to the experts), or back. Elements per rank are written to the ends of out_rows
 * and in_rows. */
static ls_status exchange(ls_tape *t, const ls_routing *r, ls_dtype dtype, int64_t C, const void *in, void *out,
                          bool back, const char *label)
{
    const int n = r->ep;
    size_t *go = r->out_rows + n, *come = r->in_rows + n;
    const int64_t most_out = most_sent(r) / n, most_in = r->most / n;
    for (int i = 0; i < n; i++) {
        go[i] = (size_t)(ls_tape_dry(t) ? most_out : (int64_t)r->out_rows[i]) * (size_t)C;
        come[i] = (size_t)(ls_tape_dry(t) ? most_in : (int64_t)r->in_rows[i]) * (size_t)C;
    }
    const ls_coll_args a = { .coll = LS_ALL_TO_ALL,
                             .dtype = dtype,
                             .in = in,
                             .out = out,
                             .counts = back ? come : go,
                             .recv_counts = back ? go : come,
                             .label = label };
    return ls_op_collective(t, r->ranks, &a, false);
}

/* In a mirror no other rank answers. */
static void others_route_alike(const ls_routing *r)
{
    const int64_t *mine = r->count + ls_group_rank(r->ranks) * r->here;
    for (int s = 0; s < r->ep; s++) memcpy(r->theirs + s * r->here, mine, (size_t)r->here * sizeof *mine);
}

/* How many rows come from each rank for each expert here, and so which rows they will be. */
static ls_status tell_counts(ls_tape *t, ls_routing *r)
{
    int64_t *const theirs = r->theirs;
    const ls_coll_args a = { .coll = LS_ALL_TO_ALL,
                             .dtype = LS_I64,
                             .in = r->count,
                             .out = theirs,
                             .count = (size_t)r->E,
                             .label = "counts of rows" };
    if (travels(r)) LS_TRY(ls_op_collective(t, r->ranks, &a, false));
    r->rows = ls_tape_is_even(t) && most_sent(r) < r->most ? most_sent(r) : r->most; /* as many come as leave */
    if (ls_tape_dry(t)) return LS_OK;
    if (!travels(r)) memcpy(theirs, r->count, (size_t)r->E * sizeof *theirs);
    else if (r->alike && ls_world_is_alone(ls_group_world(r->ranks))) others_route_alike(r);
    r->rows = 0;
    for (int s = 0; s < r->ep; s++) {
        r->out_rows[s] = r->in_rows[s] = 0;
        for (int64_t e = 0; e < r->here; e++) {
            const int64_t i = s * r->here + e;
            r->piece[i] = (ls_moe_piece){ e, r->rows, theirs[i] };
            r->rows += theirs[i];
            r->in_rows[s] += (size_t)theirs[i];
            r->out_rows[s] += (size_t)r->count[i];
        }
    }
    return LS_OK;
}

/* --- dispatch ------------------------------------------------------------------------------------ */

static ls_status dispatch_backward(ls_tape *t, struct ls_node *n)
{
    const ls_routing *r = n->saved;
    ls_tensor *x = n->in[0];
    const ls_tensor *drows = n->out->grad;
    const int64_t C = x->dim[2];
    bool add;
    void *dx;
    LS_TRY(ls_grad_begin(t, x, &add, &dx));
    const size_t mark = ls_op_mark(t);
    const void *rows = drows->data;
    if (travels(r)) {
        void *back = ls_op_alloc(t, (size_t)(most_sent(r) * C) * ls_dtype_size(x->dtype));
        LS_TRY(ls_tape_status(t));
        LS_TRY(exchange(t, r, x->dtype, C, rows, back, true, "dispatch backward"));
        rows = back;
    }
    if (!ls_tape_dry(t))
        over_tokens(collect, &(loop){ .r = r, .dtype = x->dtype, .C = C, .rows = rows, .y = dx, .add = add });
    ls_op_release(t, mark);
    return ls_grad_end(t, x);
}

static const ls_tape_op dispatch = { .name = "dispatch", .napplied = 1, .backward_input = dispatch_backward };

static ls_status check_dispatch(const ls_tape *t, const ls_tensor *x, const ls_routing *r, int ep)
{
    char shape[96];
    if (x->ndim != 3 || x->dim[0] != r->B || x->dim[1] != r->T)
        return ls_fail(LS_SHAPE, "dispatch: tokens %s, and %lld x %lld of them were routed: expected [B, T, C]",
                       ls_tensor_shape(x, shape, sizeof shape), (long long)r->B, (long long)r->T);
    if (r->E % ep != 0)
        return ls_fail(LS_SHAPE, "dispatch: %lld experts cannot be divided among %d ranks: ep must divide their number",
                       (long long)r->E, ep);
    return ls_op_check_activation(t, "dispatch", "tokens", x);
}

/* What the way of rows needs besides. */
static bool describe(ls_tape *t, ls_routing *r, const ls_along *ep)
{
    const int n = ls_divides(ep) ? ep->size : 1;
    r->ranks = ep->ranks;
    r->ep = n;
    r->here = r->E / n;
    r->npieces = n * (int)r->here;
    r->most = ls_moe_most_rows(r->B, r->T, r->E, r->k, r->capacity, n);
    r->theirs = ls_tape_take_node(t, (size_t)r->E * sizeof *r->theirs);
    r->piece = ls_tape_take_node(t, (size_t)r->npieces * sizeof *r->piece);
    r->out_rows = ls_tape_take_node(t, 2 * (size_t)n * sizeof *r->out_rows); /* rows, then elements */
    r->in_rows = ls_tape_take_node(t, 2 * (size_t)n * sizeof *r->in_rows);
    if (ls_tape_status(t) < 0) return false;
    memset(r->piece, 0, (size_t)r->npieces * sizeof *r->piece);
    return true;
}

static ls_status send(ls_tape *t, const ls_routing *r, const ls_tensor *x, void *rows)
{
    const int64_t C = x->dim[2];
    const size_t mark = ls_op_mark(t);
    void *out = travels(r) ? ls_op_alloc(t, (size_t)(most_sent(r) * C) * ls_dtype_size(x->dtype)) : rows;
    LS_TRY(ls_tape_status(t));
    if (!ls_tape_dry(t)) over_tokens(spread, &(loop){ .r = r, .dtype = x->dtype, .C = C, .x = x->data, .to = out });
    if (travels(r)) LS_TRY(exchange(t, r, x->dtype, C, out, rows, false, "dispatch"));
    ls_op_release(t, mark);
    return LS_OK;
}

ls_tensor *ls_dispatch(ls_tape *t, ls_tensor *x, ls_routing *r, const ls_along *ep)
{
    if (!ls_op_begin(t, dispatch.name, x && r)) return NULL;
    ls_status st = check_dispatch(t, x, r, ls_divides(ep) ? ep->size : 1);
    if (st < 0) return ls_op_fail(t, st);
    if (!describe(t, r, ep)) return NULL;
    if ((st = tell_counts(t, r)) < 0) return ls_op_fail(t, st);
    const int64_t rows = r->rows > 0 ? r->rows : 1;
    ls_tape_rows(t, rows, r->most);
    ls_tensor *y = ls_op_output(t, x->dtype, 2, (int64_t[]){ rows, x->dim[2] });
    if (!y) return NULL;
    if (!ls_tape_dry(t) && r->rows == 0) memset(y->data, 0, ls_tensor_nbytes(y));
    if ((st = send(t, r, x, y->data)) < 0) return ls_op_fail(t, st);
    return ls_op_end(
        t, y,
        &(struct ls_node){
            .op = &dispatch, .in = { x }, .saved = r, .label_a = (uint32_t)r->E, .label_b = (uint32_t)r->k });
}

/* --- combine ---------------------------------------------------------------------------------------- */

/* ls_node.saved */
typedef struct returned {
    const ls_routing *r;
    void *rows; /* that came back; NULL: the experts' own */
} returned;

/* The gradient of the experts' rows: what each of this rank's tokens gives, sent where its rows were computed. */
static ls_status combine_rows(ls_tape *t, const ls_routing *r, const loop *l, void *drows)
{
    const size_t mark = ls_op_mark(t);
    loop s = *l;
    s.to = travels(r) ? ls_op_alloc(t, (size_t)(most_sent(r) * l->C) * ls_dtype_size(l->dtype)) : drows;
    LS_TRY(ls_tape_status(t));
    if (!ls_tape_dry(t)) over_tokens(spread, &s);
    if (travels(r)) LS_TRY(exchange(t, r, l->dtype, l->C, s.to, drows, false, "combine backward"));
    ls_op_release(t, mark);
    return LS_OK;
}

static ls_status combine_backward(ls_tape *t, struct ls_node *n)
{
    const returned *s = n->saved;
    ls_tensor *rows = n->in[0], *w = n->in[1];
    loop l = { .r = s->r,
               .dtype = rows->dtype,
               .C = rows->dim[1],
               .x = n->out->grad->data,
               .rows = s->rows ? s->rows : rows->data,
               .w = w->data };
    bool add;
    void *out;
    if (ls_grad_wanted(w)) {
        LS_TRY(ls_grad_begin(t, w, &l.add_w, &out));
        l.dw = out;
        if (!ls_tape_dry(t)) over_tokens(weigh, &l);
        LS_TRY(ls_grad_end(t, w));
    }
    if (!ls_grad_wanted(rows)) return LS_OK;
    LS_TRY(ls_grad_begin(t, rows, &add, &out));
    const size_t mark = ls_op_mark(t);
    void *drows = add ? ls_op_alloc(t, ls_tensor_room(rows)) : out;
    LS_TRY(ls_tape_status(t));
    if (!ls_tape_dry(t) && s->r->rows == 0) memset(drows, 0, ls_tensor_nbytes(rows)); /* the row that stands for none */
    LS_TRY(combine_rows(t, s->r, &l, drows));
    if (add && !ls_tape_dry(t)) ls_grad_add(rows->dtype, out, drows, ls_tensor_count(rows));
    ls_op_release(t, mark);
    return ls_grad_end(t, rows);
}

static const ls_tape_op combine = { .name = "combine", .napplied = 2, .backward_input = combine_backward };

static ls_status check_combine(const ls_tape *t, const ls_tensor *rows, const ls_tensor *w, const ls_routing *r)
{
    char a[96], b[96];
    if (rows->ndim != 2 || w->ndim != 3 || w->dim[0] != r->B || w->dim[1] != r->T || w->dim[2] != r->k ||
        rows->dim[0] != (r->rows > 0 ? r->rows : 1))
        return ls_fail(
            LS_SHAPE, "combine: rows %s and weights %s: expected [%lld, C] and [%lld, %lld, %lld], as they were routed",
            ls_tensor_shape(rows, a, sizeof a), ls_tensor_shape(w, b, sizeof b), (long long)r->rows, (long long)r->B,
            (long long)r->T, (long long)r->k);
    LS_TRY(ls_op_check(t, "combine", "weights", w));
    return ls_op_check_activation(t, "combine", "rows", rows);
}

ls_tensor *ls_combine(ls_tape *t, ls_tensor *rows, ls_tensor *weights, const ls_routing *r)
{
    if (!ls_op_begin(t, combine.name, rows && weights && r)) return NULL;
    ls_status st = check_combine(t, rows, weights, r);
    if (st < 0) return ls_op_fail(t, st);
    const int64_t C = rows->dim[1];
    ls_tape_rows(t, 0, 0);
    ls_tensor *y = ls_op_output(t, rows->dtype, 3, (int64_t[]){ r->B, r->T, C });
    returned *s = y ? ls_tape_take_node(t, sizeof *s) : NULL;
    void *back = s && travels(r) ? ls_op_alloc(t, (size_t)(most_sent(r) * C) * ls_dtype_size(rows->dtype)) : NULL;
    if (ls_tape_status(t) < 0) return NULL;
    *s = (returned){ r, back };
    if (travels(r) && (st = exchange(t, r, rows->dtype, C, rows->data, back, true, "combine")) < 0)
        return ls_op_fail(t, st);
    if (!ls_tape_dry(t))
        over_tokens(collect, &(loop){ .r = r,
                                      .dtype = rows->dtype,
                                      .C = C,
                                      .rows = back ? back : rows->data,
                                      .y = y->data,
                                      .w = weights->data });
    const double flops = 2.0 * (double)(r->B * r->T * r->k * C);
    return ls_op_end(t, y,
                     &(struct ls_node){ .op = &combine,
                                        .in = { rows, weights },
                                        .saved = s,
                                        .label_a = (uint32_t)r->E,
                                        .label_b = (uint32_t)r->k,
                                        .flops = flops,
                                        .flops_input = 2 * flops });
}
