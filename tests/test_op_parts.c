/* Parts of what is larger: rows of a vocabulary, tokens of longer sequences, biases after a sum, heads of a layer. */
#include <stdlib.h>

#include "harness_op.h"
#include "lockstep/group.h"
#include "lockstep/rng.h"
#include "lockstep/world.h"

/* --- a part of a vocabulary ------------------------------------------------------------------------ */

static ls_vocab_part rows_here;

static void part_formula(void)
{
    for (int64_t i = 0; i < p.count; i++) {
        const int64_t at = p.id[i / p.C] - rows_here.first;
        p.y[i] = at >= 0 && at < p.P ? p.w.d[at * p.C + i % p.C] : 0.0;
    }
}

static ls_tensor *embedding_part(ls_tape *t, ls_tensor *unused)
{
    (void)unused;
    return ls_embedding_part(t, &p.ids, &p.w.t, &rows_here);
}

static void make_ids(int64_t B, int64_t T, int64_t V)
{
    p.ids = (ls_tensor){ .dtype = LS_I64, .ndim = 2, .dim = { B, T }, .data = p.id };
    for (int64_t i = 0; i < B * T; i++) p.id[i] = (i * i * 7 + i) % V;
}

static void rows_of_others_are_zeros(void **state)
{
    (void)state;
    static const struct {
        int64_t first, rows, V, C;
    } row[] = { { 0, 4, 9, 7 }, { 4, 5, 9, 7 }, { 8, 1, 9, 16 }, { 3, 2, 100, 5 } };
    for (size_t k = 0; k < COUNT(row); k++) {
        p.C = row[k].C;
        p.P = row[k].rows;
        rows_here = (ls_vocab_part){ .size = 2, .first = row[k].first, .of = row[k].V };
        make_ids(3, 8, row[k].V);
        fill(&p.w, 2.0f, 2, p.P, p.C, 0);
        roll(24 * p.C, part_formula);
        const part parts[PARTS] = { { &p.w, 24 * 25 * ULP, "dw", TABLE } };
        assert_op(embedding_part, 0.0, parts);
    }
    ls_tape *t = tape();
    rows_here = (ls_vocab_part){ .size = 2, .first = 8, .of = 9 };
    fill(&p.w, 1.0f, 2, 2, 3, 0);
    assert_refused(t, embedding_part(t, NULL), LS_SHAPE, "embedding: table [2, 3] as rows from 8 on of a table of 9");
    rows_here.first = 7;
    make_ids(3, 8, 9);
    p.id[5] = 9;
    assert_refused(t, embedding_part(t, NULL), LS_INVALID,
                   "embedding: id 9 at [0, 5]: expected 0 to 8, the table has 9 rows");
    ls_tape_destroy(t);
}

/* --- tokens of longer sequences ---------------------------------------------------------------------- */

static const ls_places some = { .of = 12, .n = 2, .first = { 2, 9 }, .count = { 3, 2 } };
static const int64_t place[] = { 2, 3, 4, 9, 10 };
enum { B = 3, T = 5, WHOLE = 12 };

static void rows_formula(void)
{
    for (int64_t i = 0; i < p.count; i++) p.y[i] = p.x.d[i] + p.w.d[place[i / p.C % T] * p.C + i % p.C];
}

static ls_tensor *add_rows(ls_tape *t, ls_tensor *x) { return ls_add_rows_at(t, x, &p.w.t, &some); }

static void positions_are_those_of_the_tokens(void **state)
{
    (void)state;
    for (p.C = 1; p.C < 40; p.C += 19) {
        fill(&p.x, 2.0f, 3, B, T, p.C);
        fill(&p.w, 2.0f, 2, WHOLE + 1, p.C, 0);
        roll(B * T * p.C, rows_formula);
        const part parts[PARTS] = { { &p.x, 0.0, "dx", ACTIVATION }, { &p.w, B * 4 * ULP, "dw", PARAMETER } };
        assert_op(add_rows, 4 * ULP, parts);
    }
    ls_tape *t = tape();
    fill(&p.w, 1.0f, 2, 10, p.C, 0);
    fill(&p.x, 1.0f, 3, B, T, p.C);
    assert_refused(t, add_rows(t, &p.x.t), LS_SHAPE, "add_rows: T = 5 of input");
    ls_tape_destroy(t);
}

/* x of whole sequences, and the tokens of it that are `some`. */
static float whole[B * WHOLE * 64], picked[B * T * 64];

static void pick(const float *from, float *to, int64_t row)
{
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < T; t++)
            memcpy(to + (b * T + t) * row, from + (b * WHOLE + place[t]) * row, (size_t)row * sizeof *to);
}

typedef ls_tensor *(*of_tokens)(ls_tape *t, ls_tensor *x, const ls_places *places);

/* Forward and backward of the tokens alone are those of whole sequences. */
static void assert_part_of_whole(of_tokens op, int ndim, int64_t H, int64_t D)
{
    const ls_places all = { .of = WHOLE, .n = 1, .count = { WHOLE } };
    const int64_t row = H * D;
    float r[B * WHOLE * 64], r_some[B * T * 64], d_whole[B * WHOLE * 64], d_some[B * T * 64], want[B * T * 64];
    ls_tape *t = tape();
    for (int64_t i = 0; i < B * WHOLE * row; i++) whole[i] = fraction(1.0f), r[i] = fraction(1.0f);
    pick(whole, picked, row);
    pick(r, r_some, row);
    for (int k = 0; k < 2; k++) {
        ls_tensor grad = { .dtype = LS_F32,
                           .ndim = ndim,
                           .dim = { B, k ? T : WHOLE, H, ndim == 4 ? D : 0 },
                           .data = k ? d_some : d_whole };
        if (ndim == 3) grad.dim[2] = row;
        ls_tensor x = grad;
        x.data = k ? picked : whole;
        x.grad = &grad;
        ls_tensor *y = op(t, &x, k ? &some : &all);
        if (!y) fail_msg("%s", ls_last_error());
        assert_int_equal(ls_backward_from(t, y, k ? r_some : r), LS_OK);
        if (k)
            assert_memory_equal(y->data, want, (size_t)(B * T * row) * sizeof(float));
        else
            pick(y->data, want, row);
        ls_tape_reset(t);
    }
    pick(d_whole, want, row);
    assert_memory_equal(d_some, want, (size_t)(B * T * row) * sizeof(float));
    ls_tape_destroy(t);
}

static ls_tensor *rope(ls_tape *t, ls_tensor *x, const ls_places *at) { return ls_rope_at(t, x, 100.0, at); }
static ls_tensor *dropout(ls_tape *t, ls_tensor *x, const ls_places *at)
{
    return ls_dropout_at(t, x, 0.4f, 7, ls_stream(LS_STREAM_DROPOUT, 3), 1001, at);
}

static void angles_and_dropped_elements_are_those_of_the_tokens(void **state)
{
    (void)state;
    assert_part_of_whole(dropout, 3, 1, 1);
    assert_part_of_whole(dropout, 3, 3, 5);
    assert_part_of_whole(dropout, 3, 1, 64);
    /* rope turns on from the first token of a run, whose angle is made afresh: equal to rounding, so for one run of 64
     */
    ls_tape *t = tape();
    const ls_places late = { .of = WHOLE, .n = 1, .first = { 4 }, .count = { 3 } };
    ls_tensor x = { .dtype = LS_F32, .ndim = 4, .dim = { 1, WHOLE, 2, 8 }, .data = whole }, y = x;
    for (int i = 0; i < WHOLE * 16; i++) whole[i] = fraction(1.0f);
    y.dim[1] = 3;
    y.data = whole + 4 * 16;
    const ls_places all = { .of = WHOLE, .n = 1, .count = { WHOLE } };
    const float *a = rope(t, &x, &all)->data, *b = rope(t, &y, &late)->data;
    for (int i = 0; i < 48; i++) assert_near((double)b[i], (double)a[64 + i], 2e-7, "turned", i);
    assert_refused(t, rope(t, &y, &all), LS_SHAPE, "rope: input [1, 3, 2, 8], and places of 12 tokens");
    ls_tape_destroy(t);
}

/* --- a bias after a sum ---------------------------------------------------------------------------------- */

static void bias_formula(void)
{
    for (int64_t i = 0; i < p.count; i++) p.y[i] = p.x.d[i] + p.b.d[i % p.C];
}

/* It is added where x lies, so x is a result. */
static ls_tensor *add_bias(ls_tape *t, ls_tensor *x) { return ls_add_bias(t, ls_scale(t, x, 1.0f), &p.b.t); }

static void a_bias_is_added_to_every_row(void **state)
{
    (void)state;
    static const struct {
        int64_t N, C;
    } row[] = { { 1, 1 }, { 5, 17 }, { 16, 64 }, { 3, 100 } };
    for (size_t k = 0; k < COUNT(row); k++) {
        p.C = row[k].C;
        fill(&p.x, 2.0f, 2, row[k].N, p.C, 0);
        fill(&p.b, 2.0f, 1, p.C, 0, 0);
        roll(row[k].N * p.C, bias_formula);
        const double sum = (double)(row[k].N * (row[k].N + 1)) * ULP;
        const part parts[PARTS] = { { &p.x, 0.0, "dx", ACTIVATION }, { &p.b, sum, "db", PARAMETER } };
        assert_op_in(LS_F32, add_bias, 4 * ULP, parts);
    }
    ls_tape *t = tape();
    fill(&p.b, 1.0f, 1, 99, 0, 0);
    assert_refused(t, add_bias(t, &p.x.t), LS_SHAPE,
                   "add_bias: input [3, 100] and bias [99]: expected [.., O] and [O]");
    ls_tape_destroy(t);
}

/* --- a loss over a vocabulary that ranks divide -------------------------------------------------------------- */

enum { N = 33, C = 12, V = 97, MOST_RANKS = 3 };
typedef struct head {
    float x[N * C], w[V * C], dx[MOST_RANKS][N * C], dw[V * C];
    int64_t label[N], counted;
    double sum[MOST_RANKS], scale;
    float loss[MOST_RANKS];
} head;

static ls_status loss_of(head *h, ls_group *g, int rank, int size)
{
    const ls_range rows = ls_shard_of(V, rank, size);
    const ls_vocab_part here = { .ranks = g, .size = size, .first = (int64_t)rows.first, .of = V };
    ls_tensor dx = { .dtype = LS_F32, .ndim = 2, .dim = { N, C }, .data = h->dx[rank] }, x = dx;
    ls_tensor dw = { .dtype = LS_F32, .ndim = 2, .dim = { (int64_t)rows.count, C }, .data = h->dw + rows.first * C },
              w = dw;
    ls_tensor labels = { .dtype = LS_I64, .ndim = 1, .dim = { N }, .data = h->label };
    ls_tape *t;
    int64_t counted;
    x.data = h->x;
    x.grad = &dx;
    w.data = h->w + rows.first * C;
    w.grad = &dw;
    LS_TRY(ls_tape_create(1 << 20, NULL, NULL, &t));
    ls_tensor *loss =
        ls_linear_cross_entropy_part(t, &x, &w, &labels, h->scale, &h->sum[rank], &counted, size > 1 ? &here : NULL);
    ls_status st = loss ? ls_backward(t, loss) : ls_tape_status(t);
    if (st == LS_OK) h->loss[rank] = *(const float *)loss->data;
    if (rank == 0) h->counted = counted;
    ls_tape_set_grad(t, false);
    double again;
    if (st == LS_OK)
        loss = ls_linear_cross_entropy_part(t, &x, &w, &labels, h->scale, &again, NULL, size > 1 ? &here : NULL);
    if (st == LS_OK) st = ls_tape_status(t);
    if (st == LS_OK && !(fabs(again - h->sum[rank]) < 1e-12 * fabs(again)))
        st = ls_fail(LS_INTERNAL, "evaluation: %.17g", again);
    ls_tape_destroy(t);
    return st;
}

static ls_status on_rank(ls_world *w, void *arg)
{
    return loss_of(arg, ls_world_group(w), ls_world_rank(w), ls_world_size(w));
}

static void a_loss_is_that_of_the_whole_vocabulary(void **state)
{
    (void)state;
    head *h = calloc(2, sizeof *h);
    assert_non_null(h);
    h->scale = 1.0 / N;
    for (int i = 0; i < N * C; i++) h->x[i] = fraction(2.0f);
    for (int i = 0; i < V * C; i++) h->w[i] = fraction(2.0f);
    for (int i = 0; i < N; i++) h->label[i] = i % 7 == 3 ? LS_IGNORE_INDEX : (i * 31 + 5) % V;
    h[1] = h[0];
    assert_int_equal(loss_of(&h[0], NULL, 0, 1), LS_OK);
    for (int ranks = 2; ranks <= MOST_RANKS; ranks++) {
        if (ls_world_threads(ranks, NULL, on_rank, &h[1]) < 0) fail_msg("%s", ls_last_error());
        assert_int_equal(h[1].counted, h[0].counted);
        for (int r = 0; r < ranks; r++) {
            assert_near(h[1].sum[r], h[0].sum[0], 1e-6 * fabs(h[0].sum[0]), "sum", r);
            assert_true(h[1].sum[r] == h[1].sum[0]); /* ranks agree to the bit */
            assert_near((double)h[1].loss[r], (double)h[0].loss[0], 1e-6, "loss", r);
        }
        for (int i = 0; i < V * C; i++) assert_near((double)h[1].dw[i], (double)h[0].dw[i], 1e-7, "dw", i);
        for (int i = 0; i < N * C; i++) {
            double sum = 0.0;
            for (int r = 0; r < ranks; r++) sum += (double)h[1].dx[r][i];
            assert_near(sum, (double)h[0].dx[0][i], 1e-7, "dx", i);
        }
    }
    free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_others_are_zeros),
        cmocka_unit_test(positions_are_those_of_the_tokens),
        cmocka_unit_test(angles_and_dropped_elements_are_those_of_the_tokens),
        cmocka_unit_test(a_bias_is_added_to_every_row),
        cmocka_unit_test(a_loss_is_that_of_the_whole_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
