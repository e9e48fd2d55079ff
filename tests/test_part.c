/* Parts of a global tensor: closed forms first, then every part of small tensors against a loop over all elements; and
 * first values, which are those of the global tensor wherever an element lies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "lockstep/nn.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define MOST 1024 /* elements of a global tensor here */

typedef struct example {
    int ndim;
    int64_t global[LS_MAX_DIMS];
    ls_part part;
    int64_t here[LS_MAX_DIMS];
} example;

static ls_tensor here_of(const example *e)
{
    ls_tensor t = { .dtype = LS_F32, .ndim = e->ndim };
    memcpy(t.dim, e->here, sizeof t.dim);
    return t;
}

/* Rows, columns, a packed matrix of three, a middle dimension, a slice of a vector. */
static const example examples[] = {
    { 2, { 32, 5 }, { 0, 1, 32, 0, 32, 0, 0 }, { 32, 5 } }, { 2, { 32, 5 }, { 0, 1, 32, 8, 8, 0, 0 }, { 8, 5 } },
    { 2, { 32, 5 }, { 1, 1, 5, 2, 2, 0, 0 }, { 32, 2 } },   { 2, { 24, 3 }, { 0, 3, 8, 4, 4, 0, 0 }, { 12, 3 } },
    { 2, { 2, 12 }, { 1, 2, 6, 5, 1, 0, 0 }, { 2, 2 } },    { 3, { 4, 6, 5 }, { 1, 1, 6, 1, 4, 0, 0 }, { 4, 4, 5 } },
    { 3, { 4, 6, 5 }, { 1, 2, 3, 1, 2, 0, 0 }, { 4, 4, 5 } }, { 1, { 30 }, { 0, 3, 10, 7, 3, 0, 0 }, { 9 } },
    { 2, { 24, 3 }, { 0, 2, 6, 1, 4, 1, 4 }, { 8, 3 } },
};

static void indices_are_those_of_closed_forms(void **state)
{
    (void)state;
    static const struct { int example; int64_t i, index, next; } row[] = {
        { 0, 0, 0, 160 },   { 0, 159, 159, 160 },
        { 1, 0, 40, 40 },   { 1, 39, 79, 40 },                           /* 8 rows before */
        { 2, 0, 2, 2 },     { 2, 1, 3, 2 },     { 2, 2, 7, 4 },          /* a row of 5 further */
        { 3, 0, 12, 12 },   { 3, 11, 23, 12 },  { 3, 12, 36, 24 },       /* rows 4 to 7, then 12 to 15 */
        { 4, 0, 5, 1 },     { 4, 1, 11, 2 },    { 4, 3, 23, 4 },
        { 5, 0, 5, 20 },    { 5, 20, 35, 40 },
        { 8, 0, 21, 12 },   { 8, 12, 39, 24 },  { 8, 23, 50, 24 },      /* runs 1 and 2 of four */
        { 7, 0, 7, 3 },     { 7, 3, 17, 6 },    { 7, 8, 29, 9 },
    };
    for (size_t k = 0; k < COUNT(row); k++) {
        const example *e = &examples[row[k].example];
        const ls_tensor t = here_of(e);
        int64_t next;
        const int64_t index = ls_part_index(&e->part, &t, row[k].i, &next);
        if (index != row[k].index || next != row[k].next)
            fail_msg("example %d, element %lld: %lld, next %lld; expected %lld and %lld", row[k].example,
                     (long long)row[k].i, (long long)index, (long long)next, (long long)row[k].index,
                     (long long)row[k].next);
    }
}

/* Whether the element of the global tensor with these coordinates is in the part, looked up the slow way. */
static bool holds(const ls_part *p, const int64_t at[LS_MAX_DIMS])
{
    const int64_t in_run = at[p->dim] % p->of, run = at[p->dim] / p->of;
    const bool here = p->of_runs == 0 || (run >= p->first_run && run < p->first_run + p->runs);
    return here && in_run >= p->first && in_run < p->first + p->count;
}

static void coordinates(const example *e, int64_t index, int64_t at[LS_MAX_DIMS])
{
    for (int d = e->ndim - 1; d >= 0; d--) {
        at[d] = index % e->global[d];
        index /= e->global[d];
    }
}

/* In the global tensor's order the elements that are in the part are those of the local one, in its order. */
static void expect_order(const example *e)
{
    const ls_tensor t = here_of(e);
    int64_t dim[LS_MAX_DIMS] = { 0 }, all = 1, i = 0, at[LS_MAX_DIMS] = { 0 };
    assert_int_equal(ls_part_check("w", &e->part, &t), LS_OK);
    ls_part_shape(&e->part, &t, dim);
    for (int d = 0; d < e->ndim; d++) {
        assert_int_equal(dim[d], e->global[d]);
        all *= e->global[d];
    }
    assert_int_equal(ls_part_is_all(&e->part), all == ls_tensor_count(&t));
    for (int64_t index = 0; index < all; index++) {
        coordinates(e, index, at);
        if (!holds(&e->part, at)) continue;
        int64_t next;
        assert_int_equal(ls_part_index(&e->part, &t, i, &next), index);
        assert_true(next > i && next <= ls_tensor_count(&t));
        for (int64_t k = i; k < next; k++) assert_int_equal(ls_part_index(&e->part, &t, k, NULL), index + k - i);
        i++;
    }
    assert_int_equal(i, ls_tensor_count(&t));
}

/* The boxes of some rows hold the indices of those rows' elements, each once. */
static void expect_boxes(const example *e)
{
    const ls_tensor t = here_of(e);
    const int64_t row = ls_tensor_count(&t) / t.dim[0];
    ls_box box[8];
    for (int64_t first = 0; first <= t.dim[0]; first++)
        for (int64_t count = 0; first + count <= t.dim[0]; count++) {
            char want[MOST] = { 0 }, got[MOST] = { 0 };
            for (int64_t i = first * row; i < (first + count) * row; i++) want[ls_part_index(&e->part, &t, i, NULL)]++;
            const int n = ls_part_boxes(&e->part, &t, (ls_range){ (size_t)first, (size_t)count }, box);
            assert_in_range(n, 0, e->part.runs);
            for (int b = 0; b < n; b++)
                for (int d = 0; d < e->ndim; d++) assert_true(box[b].count[d] > 0);
            int64_t all = 1, at[LS_MAX_DIMS] = { 0 };
            for (int d = 0; d < e->ndim; d++) all *= e->global[d];
            for (int64_t index = 0; index < all; index++) {
                coordinates(e, index, at);
                for (int b = 0; b < n; b++) {
                    bool in = true;
                    for (int d = 0; d < e->ndim; d++)
                        in &= at[d] >= box[b].first[d] && at[d] < box[b].first[d] + box[b].count[d];
                    got[index] = (char)(got[index] + in);
                }
            }
            assert_memory_equal(got, want, MOST);
        }
}

static void agrees_with_a_loop_over_all_elements(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT(examples); k++) {
        expect_order(&examples[k]);
        expect_boxes(&examples[k]);
    }
    for (int dim = 0; dim < 3; dim++) /* every part of a small tensor */
        for (int runs = 1; runs <= 3; runs++)
            for (int64_t first = 0; first < 4; first++)
                for (int64_t count = 1; first + count <= 4; count++) {
                    example e = { 3, { 3, 2, 5 }, { dim, runs, 4, first, count, 0, 0 }, { 3, 2, 5 } };
                    e.global[dim] = runs * 4;
                    e.here[dim] = runs * count;
                    expect_order(&e);
                    expect_boxes(&e);
                }
}

static void names_the_parameter_whose_part_is_none(void **state)
{
    (void)state;
    static const struct { ls_part part; const char *says; } row[] = {
        { { 2, 1, 8, 0, 8, 0, 0 }, "along dimension 2, expected 0 to 1" },
        { { 0, 1, 8, 4, 8, 0, 0 }, "elements 4 to 11 of each of 1 runs of 8" },
        { { 0, 0, 8, 1, 7, 0, 0 }, "0 runs" },
        { { 0, 2, 4, 0, 4, 1, 2 }, "runs 1 to 2 of 2: they are not in it" },
        { { 0, 2, 8, 0, 8, 0, 0 }, "dimension 0 is 8 here, and 8 of each of 2 runs are 16" },
    };
    const ls_tensor t = { .dtype = LS_F32, .ndim = 2, .dim = { 8, 3 } };
    int64_t shape[LS_MAX_DIMS];
    ls_part_shape(&(ls_part){ 0 }, &t, shape); /* of a program that knows nothing of parts */
    assert_true(shape[0] == 8 && shape[1] == 3 && ls_part_is_all(&(ls_part){ 0 }));
    assert_int_equal(ls_part_index(&(ls_part){ 0 }, &t, 7, NULL), 7);
    assert_int_equal(ls_part_check("w", &(ls_part){ 0 }, &t), LS_OK);
    for (size_t i = 0; i < COUNT(row); i++) {
        assert_int_equal(ls_part_check("h.0.w", &row[i].part, &t), LS_SHAPE);
        if (!strstr(ls_last_error(), row[i].says) || !strstr(ls_last_error(), "'h.0.w' [8, 3]"))
            fail_msg("'%s' does not say '%s'", ls_last_error(), row[i].says);
    }
}

/* --- first values ------------------------------------------------------------------------------ */

/* A parameter on its own, with memory. */
static ls_param param_of(const example *e, float *values)
{
    ls_param p = { .name = "w", .id = 11, .part = e->part, .t = here_of(e) };
    p.t.data = values;
    return p;
}

static void first_values_are_the_global_tensor_s(void **state)
{
    (void)state;
    static const ls_dist from[] = { { LS_DIST_UNIFORM, -1, 2 },
                                    { LS_DIST_NORMAL, 0.02f, 0 },
                                    { LS_DIST_CONSTANT, 3, 0 } };
    for (size_t k = 0; k < COUNT(examples); k++)
        for (size_t f = 0; f < COUNT(from); f++) {
            float all[MOST], here[MOST];
            example global = examples[k];
            memcpy(global.here, global.global, sizeof global.here);
            ls_param whole = param_of(&global, all), part = param_of(&examples[k], here);
            whole.part = ls_part_all(&whole.t);
            assert_int_equal(ls_init_part(&whole, 5, from[f]), LS_OK);
            assert_int_equal(ls_init_part(&part, 5, from[f]), LS_OK);
            for (int64_t i = 0; i < ls_tensor_count(&part.t); i++)
                assert_true(here[i] == all[ls_part_index(&part.part, &part.t, i, NULL)]);
            part.id++;
            assert_int_equal(ls_init_part(&part, 5, from[f]), LS_OK);
            const int64_t at = ls_part_index(&part.part, &part.t, 0, NULL);
            assert_int_equal(here[0] == all[at], from[f].kind == LS_DIST_CONSTANT);
        }
}

/* The second example's rows and the third's columns of one Linear(5, 32): bounds by the whole fan-in. */
static void a_part_of_a_linear_has_the_values_of_all_of_it(void **state)
{
    (void)state;
    static const ls_init how[] = { LS_INIT_PHILOX, LS_INIT_TORCH };
    for (int h = 0; h < 2; h++)
        for (int k = 1; k <= 2; k++) {
            float all[MOST], here[MOST], all_bias[32], bias[32];
            ls_mt19937 a, b;
            ls_mt19937_seed(&a, 9);
            ls_mt19937_seed(&b, 9);
            ls_param whole = param_of(&examples[0], all), part = param_of(&examples[k], here);
            ls_param whole_bias = { .name = "b", .id = 12, .part = { .runs = 1, .of = 32, .count = 32 },
                                    .t = { .dtype = LS_F32, .ndim = 1, .dim = { 32 }, .data = all_bias } };
            ls_param part_bias = whole_bias;
            part_bias.t.data = bias;
            if (k == 1) {
                part_bias.part = examples[1].part;
                part_bias.t.dim[0] = 8;
            }
            assert_int_equal(ls_init_linear(how[h], &a, 3, &whole, &whole_bias), LS_OK);
            assert_int_equal(ls_init_linear(how[h], &b, 3, &part, &part_bias), LS_OK);
            for (int64_t i = 0; i < ls_tensor_count(&part.t); i++)
                assert_true(here[i] == all[ls_part_index(&part.part, &part.t, i, NULL)]);
            for (int64_t i = 0; i < part_bias.t.dim[0]; i++)
                assert_true(bias[i] == all_bias[ls_part_index(&part_bias.part, &part_bias.t, i, NULL)]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(indices_are_those_of_closed_forms),
        cmocka_unit_test(agrees_with_a_loop_over_all_elements),
        cmocka_unit_test(names_the_parameter_whose_part_is_none),
        cmocka_unit_test(first_values_are_the_global_tensor_s),
        cmocka_unit_test(a_part_of_a_linear_has_the_values_of_all_of_it),
    };
    return cmocka_run_group_tests_name("part", tests, NULL, NULL);
}
