/* tensor_parallel.c -- the two ends of a part of a layer that several ranks divide (place.h). */
#include <string.h>

#include "base/compiler.h"
#include "lockstep/place.h"
#include "lockstep/shard.h"
#include "tensor/collective.h"
#include "tensor/element.h"
#include "tensor/tape.h"

/* What an op at one of the ends keeps. */
typedef struct end {
    ls_along tp;
    ls_matrix_span *span; /* [B] the sequences of the whole vector; NULL: nothing is divided along the sequence */
    int nspans;
    int pieces;        /* of enter: its gradient is summed in so many, */
    ls_flight *flight; /* which are on their way; NULL: 1 piece */
} end;

/* --- without sequence parallelism ---------------------------------------------------------------- */

static ls_coll_args sum_of(const ls_tensor *x, void *data, const char *label)
{
    return (ls_coll_args){ .coll = LS_ALL_REDUCE,
                           .dtype = x->dtype,
                           .op = LS_SUM,
                           .out = data,
                           .count = (size_t)ls_tensor_count(x),
                           .label = label };
}

/* Starts the sum of some rows of x, in place. */
static ls_status start_rows(ls_flight *f, ls_tape *t, ls_group *g, const ls_tensor *x, ls_range rows, const char *label)
{
    const size_t row = (size_t)x->dim[x->ndim - 1];
    ls_coll_args a = sum_of(x, x->data, label);
    if (!ls_tape_dry(t)) a.out = (char *)x->data + rows.first * row * ls_dtype_size(x->dtype);
    a.count = rows.count * row;
    return ls_flight_start(f, t, g, &a, true);
}

static int enter_pieces(const struct ls_node *n) { return ((const end *)n->saved)->pieces; }

static ls_status enter_piece(ls_tape *t, struct ls_node *n, ls_range rows)
{
    const end *e = n->saved;
    return start_rows(e->flight, t, e->tp.ranks, n->out->grad, rows, "enter backward");
}

static void enter_settle(const struct ls_node *n)
{
    const end *e = n->saved;
    if (e->flight) (void)ls_flight_wait(e->flight); /* what failed first is known */
}

/* dx = the sum of the ranks' dy. */
static ls_status enter_backward(ls_tape *t, struct ls_node *n)
{
    const end *e = n->saved;
    ls_tensor *x = n->in[0];
    const ls_tensor *dy = n->out->grad;
    const size_t mark = ls_op_mark(t);
    bool add;
    void *dx;
    if (e->flight && e->flight->n > 0) { /* dy is the sum already */
        LS_TRY(ls_flight_wait(e->flight));
        return ls_grad_pass(t, n, x);
    }
    LS_TRY(ls_grad_begin_in_place(t, n, x, &add, &dx));
    void *sum = add ? ls_op_alloc(t, ls_tensor_nbytes(x)) : dx;
    LS_TRY(ls_tape_status(t));
    if (!ls_tape_dry(t) && sum != dy->data) memcpy(sum, dy->data, ls_tensor_nbytes(x));
    const ls_coll_args a = sum_of(x, sum, "enter backward");
    LS_TRY(ls_op_collective(t, e->tp.ranks, &a, true));
    if (add && !ls_tape_dry(t)) ls_grad_add(x->dtype, dx, sum, ls_tensor_count(x));
    if (add) ls_op_release(t, mark);
    return ls_grad_end(t, x);
}

static ls_status leave_backward(ls_tape *t, struct ls_node *n) { return ls_grad_pass(t, n, n->in[0]); }

/* Both give x's memory another name: it has a product's result, or what a norm may compute again. */
static ls_status share_again(ls_tape *t, struct ls_node *n)
{
    (void)t;
    n->out->data = n->in[0]->data;
    return LS_OK;
}

static const ls_tape_op enter_op = {
    .name = "tp_enter",
    .napplied = 1,
    .backward_input = enter_backward,
    .again = share_again,
    .pieces = enter_pieces,
    .piece = enter_piece,
    .settle = enter_settle,
};
static const ls_tape_op leave_op = { .name = "tp_leave", .napplied = 1, .backward_input = leave_backward };

/* --- with it --------------------------------------------------------------------------------------- */

static ls_coll_args of_spans(const end *e, const ls_tensor *whole, ls_coll coll, const char *label)
{
    return (ls_coll_args){ .coll = coll,
                           .dtype = whole->dtype,
                           .op = LS_SUM,
                           .count = (size_t)ls_tensor_count(whole),
                           .span = e->span,
                           .nspans = e->nspans,
                           .label = label };
}

/* whole [B, T, C] from the ranks' part [B, T / tp, C]. */
static ls_status gather(ls_tape *t, const end *e, const ls_tensor *whole, void *to, const void *part, const char *label)
{
    ls_coll_args a = of_spans(e, whole, LS_ALL_GATHER, label);
    a.out = to;
    const size_t row = e->span->row * ls_dtype_size(whole->dtype), rows = e->span->rows / (size_t)e->tp.size;
    const size_t first = rows * (size_t)e->tp.rank;
    for (int b = 0; b < e->nspans && !ls_tape_dry(t); b++)
        memcpy((char *)to + ((size_t)b * e->span->rows + first) * row, (const char *)part + (size_t)b * rows * row,
               rows * row);
    return ls_op_collective(t, e->tp.ranks, &a, true);
}

/* This rank's part of the sum of the ranks' `whole`. */
static ls_status scatter(ls_tape *t, const end *e, const ls_tensor *whole, const void *from, void *part,
                         const char *label)
{
    ls_coll_args a = of_spans(e, whole, LS_REDUCE_SCATTER, label);
    a.in = from;
    a.out = part;
    return ls_op_collective(t, e->tp.ranks, &a, false);
}

static ls_status gathered_backward(ls_tape *t, struct ls_node *n)
{
    ls_tensor *x = n->in[0];
    const size_t mark = ls_op_mark(t);
    bool add;
    void *dx;
    LS_TRY(ls_grad_begin(t, x, &add, &dx));
    void *part = add ? ls_op_alloc(t, ls_tensor_nbytes(x)) : dx;
    LS_TRY(ls_tape_status(t));
    LS_TRY(scatter(t, n->saved, n->out, n->out->grad->data, part, "enter backward"));
    if (add && !ls_tape_dry(t)) ls_grad_add(x->dtype, dx, part, ls_tensor_count(x));
    if (add) ls_op_release(t, mark);
    return ls_grad_end(t, x);
}

static ls_status gathered_again(ls_tape *t, struct ls_node *n)
{
    return gather(t, n->saved, n->out, n->out->data, n->in[0]->data, "enter again");
}

static ls_status scattered_backward(ls_tape *t, struct ls_node *n)
{
    ls_tensor *x = n->in[0];
    const size_t mark = ls_op_mark(t);
    bool add;
    void *dx;
    LS_TRY(ls_grad_begin(t, x, &add, &dx));
    void *whole = add ? ls_op_alloc(t, ls_tensor_nbytes(x)) : dx;
    LS_TRY(ls_tape_status(t));
    LS_TRY(gather(t, n->saved, x, whole, n->out->grad->data, "leave backward"));
    if (add && !ls_tape_dry(t)) ls_grad_add(x->dtype, dx, whole, ls_tensor_count(x));
    if (add) ls_op_release(t, mark);
    return ls_grad_end(t, x);
}

static const ls_tape_op gathered_op = {
    .name = "tp_enter",
    .napplied = 1,
    .backward_input = gathered_backward,
    .again = gathered_again,
    .transient = true,
};
static const ls_tape_op scattered_op = { .name = "tp_leave", .napplied = 1, .backward_input = scattered_backward };

/* --- what all ranks compute alike --------------------------------------------------------------------- */

static ls_status same_backward(ls_tape *t, struct ls_node *n)
{
    const end *e = n->saved;
    ls_tensor *x = n->in[0];
    const ls_tensor *dy = n->out->grad;
    const bool bf16 = x->dtype == LS_BF16;
    bool add;
    void *dx;
    LS_TRY(ls_grad_begin_in_place(t, n, x, &add, &dx));
    for (int64_t i = 0; !ls_tape_dry(t) && i < ls_tensor_count(x); i++)
        ls_put(dx, i, ls_get(dy->data, i, bf16) / (float)e->tp.size + (add ? ls_get(dx, i, bf16) : 0.0f), bf16);
    return ls_grad_end(t, x);
}

static const ls_tape_op same_op = { .name = "tp_same", .napplied = 1, .backward_input = same_backward, .again = share_again };

ls_tensor *ls_tp_same(ls_tape *t, ls_tensor *x, const ls_place *p)
{
    if (!ls_divides(&p->tp) || !p->sequence_parallel) return x;
    if (!ls_op_begin(t, same_op.name, x != NULL)) return NULL;
    end *e = ls_tape_take_node(t, sizeof *e);
    ls_tensor *y = e ? ls_tape_input(t, x->dtype, x->ndim, x->dim, x->data) : NULL;
    if (!y) return NULL;
    *e = (end){ .tp = p->tp };
    return ls_op_end(t, y, &(struct ls_node){ .op = &same_op, .in = { x }, .saved = e });
}

ls_tensor *ls_tp_sum_gradient(ls_tape *t, ls_tensor *x, const ls_place *p)
{
    ls_place whole = *p;
    whole.sequence_parallel = false;
    return ls_tp_enter(t, x, &whole);
}

/* --- calls --------------------------------------------------------------------------------------- */

/* B sequences of T rows of C. */
static end *describe(ls_tape *t, const ls_place *p, int64_t B, int64_t T, int64_t C)
{
    end *e = ls_tape_take_node(t, sizeof *e);
    ls_matrix_span *span = p->sequence_parallel ? ls_tape_take_node(t, (size_t)B * sizeof *span) : NULL;
    if (ls_tape_status(t) < 0) return NULL;
    *e = (end){ .tp = p->tp, .span = span, .nspans = span ? (int)B : 0, .pieces = 1 };
    for (int64_t b = 0; span && b < B; b++)
        span[b] = (ls_matrix_span){ .first = (size_t)(b * T * C), .rows = (size_t)T, .row = (size_t)C };
    return e;
}

static ls_status check(const ls_tape *t, const char *name, const ls_tensor *x)
{
    char shape[96];
    if (x->ndim != 3)
        return ls_fail(LS_SHAPE, "%s: input %s: expected [B, T, C]", name, ls_tensor_shape(x, shape, sizeof shape));
    return ls_op_check_activation(t, name, "input", x);
}

static size_t rows_of(const ls_tensor *x) { return (size_t)(ls_tensor_count(x) / x->dim[x->ndim - 1]); }

/* The gradient of x, which enters, may come in pieces. */
static ls_status expect_pieces(ls_tape *t, end *e, const ls_place *p, const ls_tensor *x)
{
    e->pieces = ls_tp_pieces(p, (int64_t)rows_of(x), ls_tensor_nbytes(x));
    if (e->pieces < 2) return LS_OK;
    e->flight = ls_tape_take_node(t, sizeof *e->flight);
    LS_TRY(ls_tape_status(t));
    *e->flight = (ls_flight){ 0 };
    return LS_OK;
}

ls_tensor *ls_tp_enter(ls_tape *t, ls_tensor *x, const ls_place *p)
{
    if (!ls_divides(&p->tp)) return x;
    if (!ls_op_begin(t, enter_op.name, x != NULL)) return NULL;
    ls_status st = check(t, enter_op.name, x);
    if (st < 0) return ls_op_fail(t, st);
    const int64_t B = x->dim[0], C = x->dim[2], T = x->dim[1] * (p->sequence_parallel ? p->tp.size : 1);
    end *e = describe(t, p, B, T, C);
    if (!e) return NULL;
    const bool gathers = p->sequence_parallel;
    if (!gathers && (st = expect_pieces(t, e, p, x)) < 0) return ls_op_fail(t, st);
    ls_tensor *y = gathers ? ls_op_output_transient(t, x->dtype, 3, (int64_t[]){ B, T, C })
                           : ls_tape_input(t, x->dtype, 3, x->dim, x->data);
    if (!y) return NULL;
    if (gathers && (st = gather(t, e, y, y->data, x->data, "enter")) < 0) return ls_op_fail(t, st);
    return ls_op_end(t, y, &(struct ls_node){ .op = gathers ? &gathered_op : &enter_op, .in = { x }, .saved = e });
}

ls_tensor *ls_tp_leave(ls_tape *t, ls_tensor *x, const ls_place *p)
{
    const int size = p->tp.size;
    if (!ls_divides(&p->tp)) return x;
    if (!ls_op_begin(t, leave_op.name, x != NULL)) return NULL;
    ls_status st = check(t, leave_op.name, x);
    if (st < 0) return ls_op_fail(t, st);
    const bool scatters = p->sequence_parallel;
    const int64_t B = x->dim[0], T = x->dim[1], C = x->dim[2];
    if (scatters && T % size != 0)
        return ls_op_fail(t, ls_fail(LS_SHAPE,
                                     "tp_leave: a sequence of %lld tokens cannot be divided among %d ranks: with "
                                     "sequence parallelism its length is a multiple of tp",
                                     (long long)T, size));
    end *e = describe(t, p, B, T, C);
    if (!e) return NULL;
    ls_tensor *y = scatters ? ls_op_output(t, x->dtype, 3, (int64_t[]){ B, T / size, C })
                            : ls_tape_input(t, x->dtype, 3, x->dim, x->data);
    if (!y) return NULL;
    const ls_coll_args a = sum_of(y, y->data, "leave");
    st = scatters ? scatter(t, e, x, x->data, y->data, "leave") : ls_op_collective(t, p->tp.ranks, &a, true);
    if (st < 0) return ls_op_fail(t, st);
    return ls_op_end(t, y, &(struct ls_node){ .op = scatters ? &scattered_op : &leave_op, .in = { x }, .saved = e });
}

/* Sums of a product's pieces on their way. */
typedef struct sums {
    ls_group *ranks;
    ls_flight flight;
} sums;

static ls_status start_sum(void *arg, ls_tape *t, ls_tensor *y, ls_range rows)
{
    sums *s = arg;
    return start_rows(&s->flight, t, s->ranks, y, rows, "leave");
}

static ls_status wait_for_sums(void *arg) { return ls_flight_wait(&((sums *)arg)->flight); }

/* The sum over the ranks of x w^T, which leaves piece by piece. */
static ls_tensor *rows_in_pieces(ls_tape *t, ls_tensor *x, ls_tensor *w, const ls_place *p, int pieces)
{
    sums s = { .ranks = p->tp.ranks };
    const ls_row_pieces to = { .n = pieces, .piece = start_sum, .end = wait_for_sums, .arg = &s };
    return ls_linear_in_pieces(t, x, w, &to);
}

ls_tensor *ls_tp_rows(ls_tape *t, ls_tensor *x, ls_tensor *w, ls_tensor *b, const ls_place *p)
{
    if (!ls_divides(&p->tp)) return ls_linear(t, x, w, b);
    if (!x || !w) return NULL;
    const size_t nbytes = rows_of(x) * (size_t)w->dim[0] * ls_dtype_size(x->dtype);
    const int pieces = ls_tp_pieces(p, (int64_t)rows_of(x), nbytes);
    if (pieces > 1) {
        ls_tensor *sum = rows_in_pieces(t, x, w, p, pieces);
        return b ? ls_add_bias(t, sum, b) : sum;
    }
    const bool whole = p->sequence_parallel; /* [B, T, O], of which this rank goes on with a part */
    ls_tensor *product = whole ? ls_linear_transient(t, x, w) : ls_linear(t, x, w, NULL);
    ls_tensor *y = ls_tp_leave(t, product, p);
    if (y && whole) ls_tape_drop(t, product);
    return b ? ls_add_bias(t, y, b) : y;
}

ls_vocab_part ls_tp_vocab(const ls_place *p, int64_t of)
{
    if (!ls_divides(&p->tp)) return (ls_vocab_part){ .of = of };
    const ls_range r = ls_shard_of((size_t)of, p->tp.rank, p->tp.size);
    return (ls_vocab_part){ .ranks = p->tp.ranks, .size = p->tp.size, .first = (int64_t)r.first, .of = of };
}
