/* Dropout of attention: forward and backward against the formula with the mask written out, float and bfloat16. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness_attention.h"

static void dropout_equals_its_formula_and_its_slopes(void **state)
{
    (void)state;
    static const struct { int64_t B, Tq, Tk, Hq, Hkv, D, every; bool causal; float p; } row[] = {
        { 1, 1, 1, 1, 1, 4, 1, true, 0.5f },     { 2, 9, 9, 4, 2, 8, 5, true, 0.3f },
        { 1, 9, 11, 2, 1, 8, 1, true, 0.1f },    { 2, 65, 65, 2, 1, 8, 173, true, 0.2f },
        { 1, 130, 130, 2, 2, 8, 311, true, 0.3f }, { 1, 67, 70, 2, 2, 8, 311, false, 0.9f },
    };
    ls_tape *t = tape(SLAB);
    for (size_t k = 0; k < sizeof row / sizeof *row; k++)
        for (int half = 0; half < 2; half++) {
            problem p = make(row[k].B, row[k].Tq, row[k].Tk, row[k].Hq, row[k].Hkv, row[k].D, row[k].causal);
            const ls_attention_dropout d = { .p = row[k].p, .seed = 5 + k, .stream = 1000 + k, .first = 13 * k };
            halves h = halve(&p);
            mask_by(&p, &d);
            solve(&p);
            as_tensors(&p);
            halves_as_tensors(&p, &h);
            ls_tape_reset(t);
            ls_tensor *x = half ? h.t : p.t, *out = ls_attention_dropped(t, x + Q, x + K, x + V, p.scale, p.causal, &d);
            if (!out) fail_msg("%s", ls_last_error());
            if (ls_backward_from(t, out, half ? (void *)h.x[R] : p.x[R]) < 0) fail_msg("%s", ls_last_error());
            if (half) {
                assert_halves(&p, out->data, &h, 1, goes_by_pairs(&p));
            } else {
                assert_output(&p, out->data);
                assert_gradients(&p, 1.0);
                for (int i = Q; i <= V; i++)
                    for (int64_t j = 0; j < p.n[i]; j += row[k].every) {
                        const double step = 1e-4, at = p.d[i][j];
                        const int64_t head = j / p.D % (i == Q ? p.Hq : p.Hkv), b = j / (p.n[i] / p.B);
                        const int64_t hkv = i == Q ? head / (p.Hq / p.Hkv) : head;
                        p.d[i][j] = at + step;
                        const double up = loss(&p, b, hkv);
                        p.d[i][j] = at - step;
                        const double slope = (up - loss(&p, b, hkv)) / (2.0 * step);
                        p.d[i][j] = at;
                        assert_near((double)p.grad[i][j], slope, p.tolerance[i] + 1e-6, &p, name_of[i], j);
                    }
            }
            drop_halves(&h);
            drop(&p);
        }
    ls_tape_destroy(t);
}

/* No mask for p = 0; and a micro-batch drops what the whole batch does. */
static void dropout_goes_by_the_global_index(void **state)
{
    (void)state;
    ls_tape *t = tape(SLAB);
    problem p = make(2, 70, 70, 2, 2, 16, true);
    as_tensors(&p);
    const size_t nbytes = (size_t)p.n[Q] * sizeof(float);
    ls_attention_dropout d = { .p = 0.0f, .seed = 2, .stream = 3, .first = 100 };
    const void *plain = ls_attention(t, &p.t[Q], &p.t[K], &p.t[V], p.scale, true)->data;
    assert_memory_equal(ls_attention_dropped(t, &p.t[Q], &p.t[K], &p.t[V], p.scale, true, &d)->data, plain, nbytes);
    d.p = 0.4f;
    const char *whole = ls_attention_dropped(t, &p.t[Q], &p.t[K], &p.t[V], p.scale, true, &d)->data;
    assert_memory_not_equal(whole, plain, nbytes);
    for (int i = Q; i <= V; i++) {
        p.t[i].dim[0] = 1;
        p.t[i].data = p.x[i] + p.n[i] / 2;
    }
    d.first += (uint64_t)(p.Hq * p.Tq * p.Tk);
    const void *part = ls_attention_dropped(t, &p.t[Q], &p.t[K], &p.t[V], p.scale, true, &d)->data;
    assert_memory_equal(part, whole + nbytes / 2, nbytes / 2);
    const float wrong[] = { -0.1f, 1.0f, NAN };
    for (size_t i = 0; i < 3; i++) {
        ls_tape_reset(t);
        d.p = wrong[i];
        assert_null(ls_attention_dropped(t, &p.t[Q], &p.t[K], &p.t[V], p.scale, true, &d));
        assert_int_equal(ls_tape_status(t), LS_INVALID);
    }
    drop(&p);
    ls_tape_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dropout_equals_its_formula_and_its_slopes),
        cmocka_unit_test(dropout_goes_by_the_global_index),
    };
    return cmocka_run_group_tests_name("attention_dropout", tests, NULL, NULL);
}
