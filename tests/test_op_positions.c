/* Tokens and where they stand: embedding, add_rows, rope. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness_op.h"

/* --- embedding ---------------------------------------------------------------------------------------- */

static void embedding_formula(void)
{
    for (int64_t i = 0; i < p.count; i++) p.y[i] = p.w.d[p.id[i / p.C] * p.C + i % p.C];
}

static ls_tensor *embedding(ls_tape *t, ls_tensor *unused)
{
    (void)unused;
    return ls_embedding(t, &p.ids, &p.w.t);
}

static void make_ids(int64_t B, int64_t T, int64_t V)
{
    p.ids = (ls_tensor){ .dtype = LS_I64, .ndim = B ? 2 : 1, .dim = { B ? B : T, B ? T : 0 }, .data = p.id };
    for (int64_t i = 0; i < (B ? B : 1) * T; i++) p.id[i] = (i * i * 7 + i) % V;
}

/* A row of w is used at most N times: a sum of that many numbers below 1. */
static void embedding_equals_its_formula_and_its_slopes(void **state)
{
    (void)state;
    static const struct { int64_t B, T, V, C; } row[] = { /* B = 0: one dimension */
        { 0, 1, 1, 1 }, { 0, 9, 3, 7 }, { 2, 5, 11, 17 }, { 3, 4, 100, 16 }, { 4, 16, 2, 33 },
    };
    for (size_t k = 0; k < COUNT(row); k++) {
        const int64_t N = (row[k].B ? row[k].B : 1) * row[k].T;
        p.C = row[k].C;
        make_ids(row[k].B, row[k].T, row[k].V);
        fill(&p.w, 2.0f, 2, row[k].V, p.C, 0);
        roll(N * p.C, embedding_formula);
        const part parts[PARTS] = { { &p.w, (double)(N * (N + 1)) * ULP, "dw", TABLE } };
        assert_op(embedding, 0.0, parts);
    }
}

static void embedding_adds_rows_in_ascending_place(void **state)
{
    (void)state;
    ls_tape *t = tape();
    fill(&p.w, 1.0f, 2, 4, 3, 0);
    make_ids(2, 50, 3);
    roll(300, embedding_formula);
    assert_int_equal(ls_backward_from(t, ls_embedding(t, &p.ids, &p.w.t), p.r), LS_OK);
    for (int64_t v = 0; v < 4; v++)
        for (int64_t c = 0; c < 3; c++) {
            float sum = 0.0f;
            for (int64_t n = 0; n < 100; n++)
                if (p.id[n] == v) sum += p.r[n * 3 + c];
            assert_true(p.w.slope[v * 3 + c] == sum); /* row 3 is not used: 0 */
        }
    ls_tape_destroy(t);
}

static void embedding_names_the_id_its_place_and_the_table(void **state)
{
    (void)state;
    ls_tape *t = tape();
    fill(&p.w, 1.0f, 2, 100, 3, 0);
    make_ids(4, 16, 100);
    p.id[1 * 16 + 3] = 100;
    p.id[2 * 16] = -5;
    assert_refused(t, ls_embedding(t, &p.ids, &p.w.t), LS_INVALID,
                   "embedding: id 100 at [1, 3]: expected 0 to 99, the table has 100 rows");
    p.id[1 * 16 + 3] = INT64_MIN;
    assert_refused(t, ls_embedding(t, &p.ids, &p.w.t), LS_INVALID, "id -9223372036854775808 at [1, 3]");
    p.id[1 * 16 + 3] = 0;
    assert_refused(t, ls_embedding(t, &p.ids, &p.w.t), LS_INVALID, "id -5 at [2, 0]");
    p.ids.ndim = 4;
    p.ids.dim[2] = p.ids.dim[3] = 1;
    assert_refused(t, ls_embedding(t, &p.ids, &p.w.t), LS_SHAPE, "ids [4, 16, 1, 1] and table [100, 3]");
    make_ids(4, 16, 100);
    p.ids.dtype = LS_I32;
    assert_refused(t, ls_embedding(t, &p.ids, &p.w.t), LS_UNSUPPORTED, "ids are int32, expected int64");
    p.ids.dtype = LS_I64;
    p.w.t.ndim = 1;
    assert_refused(t, ls_embedding(t, &p.ids, &p.w.t), LS_SHAPE, "table [100]");
    p.w.t.ndim = 2;
    assert_int_equal(ls_tape_set_dtype(t, LS_BF16), LS_OK);
    assert_refused(t, ls_embedding(t, &p.ids, &p.w.t), LS_UNSUPPORTED,
                   "embedding: activations are bfloat16 and the table has no copy in it; call ls_params_bind_bf16");
    assert_int_equal(ls_tape_set_dtype(t, LS_F32), LS_OK);
    p.w.t.data = NULL;
    assert_refused(t, ls_embedding(t, &p.ids, &p.w.t), LS_INVALID, "embedding: table has no memory yet");
    ls_tape_destroy(t);
}

/* --- add_rows ---------------------------------------------------------------------------------------- */

static void add_rows_formula(void)
{
    const int64_t TC = p.x.t.dim[p.x.t.ndim - 2] * p.C;
    for (int64_t i = 0; i < p.count; i++) p.y[i] = p.x.d[i] + p.w.d[i % TC];
}

static ls_tensor *add_rows(ls_tape *t, ls_tensor *x) { return ls_add_rows(t, x, &p.w.t); }

static void add_rows_equals_its_formula_and_its_slopes(void **state)
{
    (void)state;
    static const struct { int64_t B, T, C, P; } row[] = { /* B = 0: two dimensions */
        { 0, 1, 1, 1 }, { 0, 3, 7, 5 }, { 1, 3, 7, 3 }, { 4, 5, 17, 9 }, { 9, 2, 16, 2 },
    };
    for (size_t k = 0; k < COUNT(row); k++) {
        const int64_t B = row[k].B ? row[k].B : 1, T = row[k].T, C = p.C = row[k].C;
        if (row[k].B) fill(&p.x, 2.0f, 3, B, T, C);
        else fill(&p.x, 2.0f, 2, T, C, 0);
        fill(&p.w, 2.0f, 2, row[k].P, C, 0);
        roll(B * T * C, add_rows_formula);
        const part parts[PARTS] = { { &p.x, 0.0, "dx", ACTIVATION }, { &p.w, (double)(B * (B + 1)) * ULP, "dw", PARAMETER } };
        assert_op(add_rows, 2.0 * ULP, parts);
        assert_same_in_place(add_rows, parts);
        for (int64_t i = T * C; i < row[k].P * C; i++) assert_true(p.w.slope[i] == 0.0f); /* positions not used */
    }
}

/* --- rope --------------------------------------------------------------------------------------------- */

static struct {
    int64_t H, D, T, first;
    double theta;
} turned;

static void rope_formula(void)
{
    const int64_t D = turned.D, half = D / 2;
    for (int64_t j = 0; j < p.count; j++) {
        const int64_t i = j % D, at = turned.first + j / (turned.H * D) % turned.T;
        const double a = pow(turned.theta, -2.0 * (double)(i % half) / (double)D) * (double)at;
        p.y[j] = i < half ? p.x.d[j] * cos(a) - p.x.d[j + half] * sin(a) : p.x.d[j] * cos(a) + p.x.d[j - half] * sin(a);
    }
}

static ls_tensor *rope(ls_tape *t, ls_tensor *x) { return ls_rope(t, x, turned.theta, turned.first); }

/* Two products of at most 2, rounded, with a sine and a cosine rounded to float: 12 roundings. */
static void rope_equals_its_formula_and_its_slopes(void **state)
{
    (void)state;
    static const struct { int64_t B, T, H, D, first; double theta; } row[] = {
        { 1, 1, 1, 2, 0, 1e4 },     { 2, 5, 3, 8, 0, 1e4 },      { 1, 130, 1, 6, 7, 1e4 }, { 2, 7, 2, 64, 100000, 5e5 },
        { 1, 3, 1, 160, 5, 1e4 },   { 2, 3, 2, 132, 131071, 5e5 },
    };
    const part parts[PARTS] = { { &p.x, 12.0 * ULP, "dx", ACTIVATION } };
    for (size_t k = 0; k < COUNT(row); k++) {
        turned.H = row[k].H;
        turned.D = row[k].D;
        turned.T = row[k].T;
        turned.first = row[k].first;
        turned.theta = row[k].theta;
        fill(&p.x, 2.0f, 1, row[k].B * row[k].T * row[k].H * row[k].D, 0, 0);
        const int64_t dim[4] = { row[k].B, row[k].T, row[k].H, row[k].D };
        p.x.t.ndim = p.x.grad.ndim = 4;
        memcpy(p.x.t.dim, dim, sizeof dim);
        memcpy(p.x.grad.dim, dim, sizeof dim);
        roll(ls_tensor_count(&p.x.t), rope_formula);
        assert_op(rope, 12.0 * ULP, parts);
        assert_same_in_place(rope, parts);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedding_equals_its_formula_and_its_slopes),
        cmocka_unit_test(embedding_adds_rows_in_ascending_place),
        cmocka_unit_test(embedding_names_the_id_its_place_and_the_table),
        cmocka_unit_test(add_rows_equals_its_formula_and_its_slopes),
        cmocka_unit_test(rope_equals_its_formula_and_its_slopes),
    };
    return cmocka_run_group_tests_name("op_positions", tests, NULL, NULL);
}
