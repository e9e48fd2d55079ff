/* reshape: the same memory forward, the same memory backward, and a sum where x is used elsewhere too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "lockstep/tensor.h"

static ls_tape *tape(void)
{
    ls_tape *t;
    assert_int_equal(ls_tape_create(1 << 16, NULL, NULL, &t), LS_OK);
    return t;
}

static void shares_the_memory_of_its_input(void **state)
{
    (void)state;
    float v[24];
    for (int i = 0; i < 24; i++) v[i] = (float)i;
    ls_tape *t = tape();
    ls_tensor *x = ls_tape_input(t, LS_F32, 3, (int64_t[]){ 2, 3, 4 }, v);
    ls_tensor *y = ls_reshape(t, x, 4, (int64_t[]){ 2, 3, 2, 2 });
    assert_non_null(y);
    assert_ptr_equal(y->data, v);
    assert_int_equal(y->ndim, 4);
    assert_int_equal(y->dim[2], 2);
    assert_true(ls_tape_flops(t) == 0.0);
    ls_tape_destroy(t);
}

/* z = gelu(reshape(relu(x))) and relu(x) again: dx = (dgelu * gz reshaped back + gy) where x > 0. With x large, gelu's
 * slope is 1 to the last bit. */
static void hands_its_gradient_back(void **state)
{
    (void)state;
    for (int both = 0; both < 2; both++) {
        float v[6] = { 30, -1, 20, 25, 40, -2 }, dv[6] = { 0 }, g[6] = { 1, 2, 3, 4, 5, 6 };
        ls_tensor grad = { .dtype = LS_F32, .ndim = 2, .dim = { 2, 3 }, .data = dv };
        ls_tensor leaf = { .dtype = LS_F32, .ndim = 2, .dim = { 2, 3 }, .data = v, .grad = &grad };
        ls_tape *t = tape();
        ls_tensor *r = ls_relu(t, &leaf);
        ls_tensor *y = ls_reshape(t, r, 1, (int64_t[]){ 6 });
        if (both) y = ls_add(t, y, ls_reshape(t, r, 1, (int64_t[]){ 6 }));
        ls_tensor *z = ls_reshape(t, ls_gelu(t, y), 2, (int64_t[]){ 3, 2 });
        assert_int_equal(ls_tape_status(t), LS_OK);
        assert_int_equal(ls_backward_from(t, z, g), LS_OK);
        for (int i = 0; i < 6; i++) {
            const float want = v[i] > 0 ? (float)(both + 1) * g[i] : 0.0f;
            assert_memory_equal(&dv[i], &want, sizeof want);
        }
        ls_tape_destroy(t);
    }
}

static void refuses_another_number_of_elements(void **state)
{
    (void)state;
    float v[6] = { 0 };
    ls_tape *t = tape();
    ls_tensor *x = ls_tape_input(t, LS_F32, 2, (int64_t[]){ 2, 3 }, v);
    assert_null(ls_reshape(t, x, 2, (int64_t[]){ 2, 4 }));
    assert_int_equal(ls_tape_status(t), LS_SHAPE);
    assert_non_null(strstr(ls_last_error(), "[2, 3] to [2, 4]"));
    ls_tape_reset(t);
    assert_null(ls_reshape(t, NULL, 2, (int64_t[]){ 2, 4 }));
    assert_int_equal(ls_tape_status(t), LS_INVALID);
    ls_tape_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_the_memory_of_its_input),
        cmocka_unit_test(hands_its_gradient_back),
        cmocka_unit_test(refuses_another_number_of_elements),
    };
    return cmocka_run_group_tests_name("reshape", tests, NULL, NULL);
}
