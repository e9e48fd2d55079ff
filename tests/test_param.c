/* Parameters: their list, their memory, their digest, their initial values. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/hash.h"
#include "lockstep/nn.h"

/* A Linear(in, out), bound to an arena. */
static void linear(ls_params *ps, ls_arena **a, int64_t in, int64_t out)
{
    *ps = (ls_params){ 0 };
    assert_int_equal(ls_params_add(ps, "weight", 2, (int64_t[]){ out, in }), LS_OK);
    assert_int_equal(ls_params_add(ps, "bias", 1, &out), LS_OK);
    assert_int_equal(ls_arena_create(1 << 16, false, NULL, a), LS_OK);
    assert_int_equal(ls_params_bind(ps, *a, *a), LS_OK);
}

static void parameters_are_found_counted_and_bound(void **state)
{
    (void)state;
    ls_params ps;
    ls_arena *a;
    linear(&ps, &a, 4, 3);
    assert_int_equal(ls_params_count(&ps), 15);
    assert_int_equal(ls_params_nbytes(&ps), 60);
    ls_param *w = ls_params_find(&ps, "weight");
    assert_ptr_equal(w, &ps.item[0]);
    assert_null(ls_params_find(&ps, "weigh"));
    assert_ptr_equal(w->t.grad, &w->grad);
    assert_int_equal((uintptr_t)w->t.data % 64, 0);
    assert_true(ls_arena_holds(a, w->t.data, 48) && ls_arena_holds(a, w->grad.data, 48));
    assert_ptr_not_equal(w->t.data, w->grad.data);
    w->t.grad_ready = true;
    ls_params_zero_grad(&ps);
    assert_false(w->t.grad_ready);
    ls_params_free(&ps);
    ls_arena_destroy(a);
}

static void names_the_parameter_that_does_not_fit(void **state)
{
    (void)state;
    ls_params ps = { 0 };
    ls_arena *a;
    assert_int_equal(ls_params_add(&ps, "fc.bias", 1, (int64_t[]){ 16 }), LS_OK);
    assert_int_equal(ls_params_add(&ps, "fc.weight", 2, (int64_t[]){ 64, 16 }), LS_OK);
    const struct { size_t room; const char *says; } row[] = {
        { 2048, "while allocating parameter fc.weight: 4096 bytes (param) do not fit" },
        { 6144, "while allocating parameter fc.weight: 4096 bytes (grad) do not fit" },
        { 64, "while allocating parameter fc.weight: 2048 bytes (param) do not fit" }, /* the copy in bf16 */
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        void *p;
        assert_int_equal(ls_arena_create(8192, false, NULL, &a), LS_OK);
        assert_int_equal(ls_arena_alloc(a, 8192 - row[i].room, LS_MEM_COMM, &p), LS_OK);
        assert_int_equal(i < 2 ? ls_params_bind(&ps, a, a) : ls_params_bind_bf16(&ps, a), LS_NO_MEMORY);
        if (!strstr(ls_last_error(), row[i].says)) fail_msg("'%s' does not say '%s'", ls_last_error(), row[i].says);
        ls_arena_destroy(a);
    }
    ls_params_free(&ps);
}

static void many_parameters_keep_their_order(void **state)
{
    (void)state;
    ls_params ps = { 0 };
    char name[LS_NAME_BYTES];
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "%d.weight", i);
        assert_int_equal(ls_params_add(&ps, name, 1, (int64_t[]){ i + 1 }), LS_OK);
    }
    for (int i = 0; i < 100; i++) assert_int_equal(ps.item[i].t.dim[0], i + 1);
    assert_int_equal(ls_params_count(&ps), 5050);
    ls_params_free(&ps);
}

static void without_a_gradient_arena_none_is_wanted(void **state)
{
    (void)state;
    ls_params ps = { 0 };
    ls_arena *a;
    assert_int_equal(ls_params_add(&ps, "w", 1, (int64_t[]){ 5 }), LS_OK);
    assert_int_equal(ls_arena_create(4096, false, NULL, &a), LS_OK);
    assert_int_equal(ls_params_bind(&ps, a, NULL), LS_OK);
    assert_null(ps.item[0].t.grad);
    ls_params_free(&ps);
    ls_arena_destroy(a);
}

static void matrices_get_copies_in_bf16_beside_their_values(void **state)
{
    (void)state;
    ls_params ps = { 0 };
    ls_ledger ledger = { 0 };
    ls_arena *a;
    assert_int_equal(ls_params_add(&ps, "w", 2, (int64_t[]){ 700, 301 }), LS_OK); /* enough for threads to share */
    assert_int_equal(ls_params_add(&ps, "b", 1, (int64_t[]){ 700 }), LS_OK);
    assert_int_equal(ls_params_add(&ps, "k", 3, (int64_t[]){ 3, 1, 7 }), LS_OK);
    assert_int_equal(ls_arena_create((size_t)4 << 20, false, &ledger, &a), LS_OK);
    assert_int_equal(ls_params_bind(&ps, a, NULL), LS_OK);
    ls_params_round(&ps); /* none yet */
    const size_t before = ledger.now[LS_MEM_PARAM];
    assert_int_equal(ls_params_bind_bf16(&ps, a), LS_OK);
    assert_in_range(ledger.now[LS_MEM_PARAM] - before, 2 * (700 * 301 + 21), 2 * (700 * 301 + 21) + 128);
    assert_null(ps.item[1].bf16);
    assert_null(ps.item[1].t.bf16);
    for (int i = 0; i < 3; i += 2) {
        const ls_param *p = &ps.item[i];
        const int64_t n = ls_tensor_count(&p->t);
        float *v = p->t.data;
        assert_ptr_equal(p->bf16, p->t.bf16);
        for (int64_t k = 0; k < n; k++) v[k] = k % 997 == 5 ? NAN : (float)(k - 400) * 1.0009766f; /* ties, too */
    }
    ls_params_round(&ps);
    for (int i = 0; i < 3; i += 2) {
        const ls_param *p = &ps.item[i];
        const uint16_t *copy = p->t.bf16;
        for (int64_t k = 0; k < ls_tensor_count(&p->t); k++)
            assert_int_equal(copy[k], ls_f32_to_bf16(((const float *)p->t.data)[k]));
    }
    ls_params_free(&ps);
    ls_arena_destroy(a);
}

static void bad_registrations_are_named(void **state)
{
    (void)state;
    char longest[LS_NAME_BYTES + 1];
    memset(longest, 'x', LS_NAME_BYTES);
    longest[LS_NAME_BYTES] = '\0';
    const struct { const char *name; int ndim; int64_t dim[5]; ls_status st; const char *says; } row[] = {
        { "w", 2, { 4, 0 }, LS_SHAPE, "'w': dimension 1 is 0" },
        { "w", 0, { 0 }, LS_SHAPE, "0 dimensions" },
        { "w", 5, { 1, 1, 1, 1, 1 }, LS_SHAPE, "5 dimensions" },
        { "", 1, { 1 }, LS_INVALID, "1 to 63 bytes" },
        { longest, 1, { 1 }, LS_INVALID, "1 to 63 bytes" },
        { "twice", 1, { 1 }, LS_INVALID, "'twice' is registered twice" },
    };
    ls_params ps = { 0 };
    assert_int_equal(ls_params_add(&ps, "twice", 1, (int64_t[]){ 1 }), LS_OK);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        assert_int_equal(ls_params_add(&ps, row[i].name, row[i].ndim, row[i].dim), row[i].st);
        if (!strstr(ls_last_error(), row[i].says)) fail_msg("'%s' does not say '%s'", ls_last_error(), row[i].says);
    }
    assert_int_equal(ps.n, 1);
    ls_params_free(&ps);
}

/* --- initial values ---------------------------------------------------------------- */

static void torch_init_equals_pytorchs_linear(void **state)
{
    (void)state;
    ls_params ps;
    ls_arena *a;
    ls_mt19937 g;
    linear(&ps, &a, 4, 3);
    ls_mt19937_seed(&g, 0);
    assert_int_equal(ls_init_linear(LS_INIT_TORCH, &g, 0, &ps.item[0], &ps.item[1]), LS_OK);
    const float *w = ps.item[0].t.data, *b = ps.item[1].t.data;
    /* nn.Linear(4, 3) after torch.manual_seed(0), ten digits: floats are told apart by nine */
    assert_true(w[0] == -0.0037434101f && w[1] == 0.2682217956f);
    assert_true(b[0] == -0.4776742458f && b[1] == -0.3311410546f && b[2] == -0.2061115503f);
    ls_params_free(&ps);
    ls_arena_destroy(a);
}

static void philox_init_depends_on_seed_and_id_only(void **state)
{
    (void)state;
    ls_params ps[2];
    ls_arena *a[2];
    for (int i = 0; i < 2; i++) linear(&ps[i], &a[i], 64, 33);
    static const struct { uint64_t seed; uint32_t id; int same; } row[] = { { 7, 0, 1 }, { 8, 0, 0 }, { 7, 4, 0 } };
    assert_int_equal(ls_init_linear(LS_INIT_PHILOX, NULL, 7, &ps[0].item[0], &ps[0].item[1]), LS_OK);
    for (size_t i = 0; i < 3; i++) {
        for (int k = 0; k < 2; k++) ps[1].item[k].id = row[i].id + (uint32_t)k;
        assert_int_equal(ls_init_linear(LS_INIT_PHILOX, NULL, row[i].seed, &ps[1].item[0], &ps[1].item[1]), LS_OK);
        assert_int_equal(memcmp(ps[0].item[0].t.data, ps[1].item[0].t.data, 64 * 33 * 4) == 0, row[i].same);
        assert_int_equal(memcmp(ps[0].item[1].t.data, ps[1].item[1].t.data, 33 * 4) == 0, row[i].same);
    }
    assert_int_not_equal(memcmp(ps[0].item[0].t.data, ps[0].item[1].t.data, 33 * 4), 0); /* a stream each */
    const float *w = ps[0].item[0].t.data;
    double sum = 0.0, squares = 0.0;
    for (int i = 0; i < 64 * 33; i++) {
        assert_true(w[i] >= -0.125f && w[i] < 0.125f); /* 1 / sqrt(64) */
        sum += (double)w[i];
        squares += (double)w[i] * (double)w[i];
    }
    /* uniform: variance 1/192; five standard deviations of the mean and of the variance */
    const double n = 64 * 33, variance = 0.25 * 0.25 / 12.0;
    assert_true(fabs(sum / n) < 5.0 * sqrt(variance / n));
    assert_true(fabs(squares / n - variance) < 5.0 * variance * sqrt(0.8 / n));
    for (int i = 0; i < 2; i++) {
        ls_params_free(&ps[i]);
        ls_arena_destroy(a[i]);
    }
}

static void init_names_what_is_missing(void **state)
{
    (void)state;
    ls_params ps;
    ls_arena *a;
    linear(&ps, &a, 4, 3);
    assert_int_equal(ls_init_linear(LS_INIT_TORCH, NULL, 0, &ps.item[0], NULL), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "no generator"));
    assert_int_equal(ls_init_linear(LS_INIT_PHILOX, NULL, 0, &ps.item[1], NULL), LS_SHAPE);
    ps.item[0].t.data = NULL;
    assert_int_equal(ls_init_linear(LS_INIT_PHILOX, NULL, 0, &ps.item[0], NULL), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "ls_params_bind"));
    assert_int_equal(ls_init_part(&ps.item[0], 0, (ls_dist){ LS_DIST_CONSTANT, 1, 0 }), LS_INVALID);
    ls_params_free(&ps);
    ls_arena_destroy(a);
}

/* --- the digest ------------------------------------------------------------------------ */

static void the_digest_is_over_sorted_names_and_values(void **state)
{
    (void)state;
    ls_params ps;
    ls_arena *a;
    linear(&ps, &a, 2, 1);
    float *w = ps.item[0].t.data, *b = ps.item[1].t.data;
    w[0] = 1.0f;
    w[1] = -2.5f;
    b[0] = 0.5f;
    static const unsigned char bytes[] =
        "bias\0\x00\x00\x00\x3fweight\0\x00\x00\x80\x3f\x00\x00\x20\xc0"; /* little-endian */
    ls_digest *d = ls_digest_create();
    char want[33], got[33];
    assert_non_null(d);
    ls_digest_add(d, bytes, sizeof bytes - 1);
    ls_digest_hex(d, want);
    ls_digest_destroy(d);
    assert_int_equal(ls_params_digest(&ps, got), LS_OK);
    assert_string_equal(got, want);
    assert_int_equal(strlen(got), 32);
    b[0] = nextafterf(0.5f, 1.0f); /* one bit */
    assert_int_equal(ls_params_digest(&ps, got), LS_OK);
    assert_string_not_equal(got, want);
    ps.item[0].t.data = NULL;
    assert_int_equal(ls_params_digest(&ps, got), LS_INVALID);
    ls_params_free(&ps);
    ls_arena_destroy(a);
}

/* A matrix [2, 3] that files have as [3, 2], and one of many columns. */
static void the_digest_of_a_turned_matrix_is_that_of_the_file(void **state)
{
    (void)state;
    static const int64_t size[][2] = { { 2, 3 }, { 5, 37 }, { 1, 16 } };
    for (size_t k = 0; k < 3; k++) {
        ls_params as_is = { 0 }, as_file = { 0 };
        ls_arena *a;
        char want[33], got[33];
        const int64_t O = size[k][0], I = size[k][1];
        assert_int_equal(ls_params_add(&as_is, "w", 2, (int64_t[]){ O, I }), LS_OK);
        assert_int_equal(ls_params_add(&as_file, "w", 2, (int64_t[]){ I, O }), LS_OK);
        assert_int_equal(ls_arena_create(1 << 16, false, NULL, &a), LS_OK);
        assert_int_equal(ls_params_bind(&as_is, a, NULL), LS_OK);
        assert_int_equal(ls_params_bind(&as_file, a, NULL), LS_OK);
        for (int64_t i = 0; i < O * I; i++) {
            ((float *)as_is.item[0].t.data)[i] = (float)i;
            ((float *)as_file.item[0].t.data)[i % I * O + i / I] = (float)i;
        }
        as_is.item[0].transposed = true;
        assert_int_equal(ls_params_digest(&as_is, got), LS_OK);
        assert_int_equal(ls_params_digest(&as_file, want), LS_OK);
        assert_string_equal(got, want);
        ls_params_free(&as_is);
        ls_params_free(&as_file);
        ls_arena_destroy(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_found_counted_and_bound),
        cmocka_unit_test(names_the_parameter_that_does_not_fit),
        cmocka_unit_test(many_parameters_keep_their_order),
        cmocka_unit_test(without_a_gradient_arena_none_is_wanted),
        cmocka_unit_test(matrices_get_copies_in_bf16_beside_their_values),
        cmocka_unit_test(bad_registrations_are_named),
        cmocka_unit_test(torch_init_equals_pytorchs_linear),
        cmocka_unit_test(philox_init_depends_on_seed_and_id_only),
        cmocka_unit_test(init_names_what_is_missing),
        cmocka_unit_test(the_digest_is_over_sorted_names_and_values),
        cmocka_unit_test(the_digest_of_a_turned_matrix_is_that_of_the_file),
    };
    return cmocka_run_group_tests_name("param", tests, NULL, NULL);
}
