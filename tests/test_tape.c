/* The tape: what is recorded, what flows back, who is told, what is kept.
 *
 * Two ops are defined here, so that graphs of any form can be made and every
 * number is a small integer: exact in float. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "lockstep/nn.h"
#include "tensor/tape.h"

/* --- y = a + b, and y = k x --------------------------------------------------------- */

static ls_status give(ls_tape *t, const struct ls_node *n, ls_tensor *x, float factor)
{
    bool add;
    void *out;
    if (!ls_grad_wanted(x)) return LS_OK;
    LS_TRY(ls_grad_begin(t, x, &add, &out));
    float *d = out;
    const float *dy = n->out->grad->data;
    for (int64_t i = 0; i < ls_tensor_count(x); i++) d[i] = (add ? d[i] : 0.0f) + factor * dy[i];
    return ls_grad_end(t, x);
}

static ls_status sum_backward(ls_tape *t, struct ls_node *n)
{
    LS_TRY(give(t, n, n->in[0], 1.0f));
    return give(t, n, n->in[1], 1.0f);
}

static ls_status times_backward(ls_tape *t, struct ls_node *n)
{
    return give(t, n, n->in[0], *(const float *)n->saved);
}

static const ls_tape_op sum_op = { .name = "sum", .napplied = 2, .backward_input = sum_backward };
static const ls_tape_op times_op = { .name = "times", .napplied = 1, .backward_input = times_backward };

static ls_tensor *sum(ls_tape *t, ls_tensor *a, ls_tensor *b)
{
    if (!ls_op_begin(t, "sum", a && b)) return NULL;
    ls_tensor *y = ls_op_output(t, LS_F32, a->ndim, a->dim);
    if (!y) return NULL;
    for (int64_t i = 0; i < ls_tensor_count(a); i++)
        ((float *)y->data)[i] = ((float *)a->data)[i] + ((float *)b->data)[i];
    return ls_op_end(t, y, &(struct ls_node){ .op = &sum_op, .in = { a, b }, .flops = 1.0, .flops_input = 2.0 });
}

static ls_tensor *times(ls_tape *t, float k, ls_tensor *x)
{
    if (!ls_op_begin(t, "times", x != NULL)) return NULL;
    ls_tensor *y = ls_op_output(t, LS_F32, x->ndim, x->dim);
    float *kept = ls_op_alloc(t, sizeof *kept);
    if (!y || !kept) return NULL;
    *kept = k;
    for (int64_t i = 0; i < ls_tensor_count(x); i++) ((float *)y->data)[i] = k * ((float *)x->data)[i];
    return ls_op_end(t, y, &(struct ls_node){ .op = &times_op, .in = { x }, .saved = kept });
}

/* --- leaves and witnesses ------------------------------------------------------------------- */

/* A scalar parameter. */
typedef struct scalar {
    ls_tensor t, grad;
    float value, slope;
} scalar;

static ls_tensor *leaf(scalar *s, float value)
{
    *s = (scalar){ .value = value, .slope = -99.0f };
    s->t = (ls_tensor){ .dtype = LS_F32, .data = &s->value, .grad = &s->grad };
    s->grad = (ls_tensor){ .dtype = LS_F32, .data = &s->slope };
    return &s->t;
}

typedef struct witness {
    const ls_tensor *seen[16];
    float slope[16]; /* of the first element, when told */
    int n, pokes, fail_at;
} witness;

static ls_status told(void *arg, ls_tensor *p)
{
    witness *w = arg;
    assert_in_range(w->n, 0, 15);
    w->slope[w->n] = *(float *)p->grad->data;
    w->seen[w->n++] = p;
    return w->n == w->fail_at ? ls_fail(LS_RANK_DIED, "the witness stops at %d", w->n) : LS_OK;
}

static ls_status poked(void *arg)
{
    ((witness *)arg)->pokes++;
    return LS_OK;
}

static ls_status poked_badly(void *arg)
{
    ((witness *)arg)->pokes++;
    return ls_fail(LS_RANK_HUNG, "rank 1 is silent");
}

static ls_tape *tape(size_t bytes)
{
    ls_tape *t;
    assert_int_equal(ls_tape_create(bytes, NULL, NULL, &t), LS_OK);
    return t;
}

/* --- what flows back ---------------------------------------------------------------------------- */

static void a_leaf_used_twice_gets_both_contributions_and_is_ready_once(void **state)
{
    (void)state;
    ls_tape *t = tape(1 << 16);
    scalar a, b;
    witness w = { 0 };
    assert_int_equal(ls_tape_listen(t, &(ls_tape_events){ .grad_ready = told }, &w), LS_OK);
    leaf(&a, 5.0f);
    leaf(&b, 7.0f);
    /* 3 a + (2 a + b) */
    ls_tensor *y = sum(t, times(t, 3.0f, &a.t), sum(t, times(t, 2.0f, &a.t), &b.t));
    assert_true(*(float *)y->data == 32.0f);
    assert_int_equal(ls_backward(t, y), LS_OK);
    assert_true(a.slope == 5.0f && b.slope == 1.0f);
    assert_int_equal(w.n, 2);
    assert_ptr_equal(w.seen[0], &b.t);
    assert_ptr_equal(w.seen[1], &a.t);
    assert_true(w.slope[1] == 5.0f); /* complete when told */
    ls_tape_destroy(t);
}

static void the_same_leaf_as_both_inputs_counts_twice(void **state)
{
    (void)state;
    ls_tape *t = tape(1 << 16);
    scalar a;
    witness w = { 0 };
    assert_int_equal(ls_tape_listen(t, &(ls_tape_events){ .grad_ready = told }, &w), LS_OK);
    leaf(&a, 5.0f);
    assert_int_equal(ls_backward(t, sum(t, &a.t, &a.t)), LS_OK);
    assert_true(a.slope == 2.0f);
    assert_int_equal(w.n, 1);
    ls_tape_destroy(t);
}

static void a_diamond_adds_its_two_sides(void **state)
{
    (void)state;
    ls_tape *t = tape(1 << 16);
    scalar a;
    leaf(&a, 1.0f);
    ls_tensor *top = times(t, 2.0f, &a.t);
    ls_tensor *left = times(t, 3.0f, top), *right = times(t, 5.0f, top);
    ls_tensor *y = sum(t, sum(t, left, right), left);
    assert_true(*(float *)y->data == 22.0f);
    assert_int_equal(ls_backward(t, y), LS_OK);
    assert_true(a.slope == 22.0f);
    ls_tape_destroy(t);
}

static void relu_in_place_leaves_a_diamonds_other_side_alone(void **state)
{
    (void)state;
    ls_tape *t = tape(1 << 16);
    scalar a;
    leaf(&a, 1.0f);
    /* relu may hand its output's gradient on to its input; both orders of the other use */
    ls_tensor *h = times(t, 2.0f, &a.t);
    ls_tensor *y = sum(t, ls_relu(t, h), times(t, 3.0f, h));
    assert_int_equal(ls_backward(t, y), LS_OK);
    assert_true(a.slope == 8.0f);
    ls_tape_reset(t);
    leaf(&a, 1.0f);
    h = times(t, 2.0f, &a.t);
    ls_tensor *three = times(t, 3.0f, h), *r = ls_relu(t, h);
    assert_int_equal(ls_backward(t, sum(t, r, three)), LS_OK);
    assert_true(a.slope == 8.0f);
    ls_tape_destroy(t);
}

static void two_backwards_add_until_the_gradient_is_zeroed(void **state)
{
    (void)state;
    ls_tape *t = tape(1 << 16);
    scalar a;
    leaf(&a, 1.0f);
    for (int micro_batch = 0; micro_batch < 3; micro_batch++) {
        ls_tape_reset(t);
        assert_int_equal(ls_backward(t, times(t, 4.0f, &a.t)), LS_OK);
        assert_true(a.slope == 4.0f * (float)(micro_batch + 1));
    }
    a.t.grad_ready = false; /* what ls_params_zero_grad does */
    ls_tape_reset(t);
    assert_int_equal(ls_backward(t, times(t, 4.0f, &a.t)), LS_OK);
    assert_true(a.slope == 4.0f);
    ls_tape_destroy(t);
}

static void two_backwards_over_one_recording_add_too(void **state)
{
    (void)state;
    ls_tape *t = tape(1 << 16);
    scalar a;
    leaf(&a, 1.0f);
    ls_tensor *y = times(t, 2.0f, times(t, 2.0f, &a.t));
    assert_int_equal(ls_backward(t, y), LS_OK);
    assert_int_equal(ls_backward(t, y), LS_OK);
    assert_true(a.slope == 8.0f);
    ls_tape_destroy(t);
}

static void what_does_not_lead_to_the_loss_stays_untouched(void **state)
{
    (void)state;
    ls_tape *t = tape(1 << 16);
    scalar a, b, c;
    witness w = { 0 };
    assert_int_equal(ls_tape_listen(t, &(ls_tape_events){ .grad_ready = told }, &w), LS_OK);
    leaf(&a, 1.0f);
    leaf(&b, 1.0f);
    leaf(&c, 1.0f);
    c.t.grad = NULL; /* frozen */
    ls_tensor *side = times(t, 9.0f, &b.t);
    ls_tensor *y = sum(t, times(t, 2.0f, &a.t), &c.t);
    (void)times(t, 7.0f, sum(t, side, y)); /* after the loss */
    assert_int_equal(ls_backward(t, y), LS_OK);
    assert_true(a.slope == 2.0f && b.slope == -99.0f && c.slope == -99.0f);
    assert_false(b.t.grad_ready);
    assert_int_equal(w.n, 1);
    ls_tape_destroy(t);
}

static void a_given_gradient_is_used_and_not_written(void **state)
{
    (void)state;
    ls_tape *t = tape(1 << 16);
    float in[3] = { 1.0f, -1.0f, 2.0f }, din[3] = { 0 };
    const float dy[3] = { 5.0f, 6.0f, 7.0f };
    ls_tensor grad = { .dtype = LS_F32, .ndim = 1, .dim = { 3 }, .data = din };
    witness w = { 0 };
    assert_int_equal(ls_tape_listen(t, &(ls_tape_events){ .grad_ready = told }, &w), LS_OK);
    ls_tensor *x = ls_tape_input(t, LS_F32, 1, (int64_t[]){ 3 }, in);
    x->grad = &grad; /* the boundary of a stage: its owner wants the gradient */
    assert_int_equal(ls_backward_from(t, ls_relu(t, times(t, 2.0f, x)), dy), LS_OK);
    assert_true(din[0] == 10.0f && din[1] == 0.0f && din[2] == 14.0f);
    assert_true(dy[0] == 5.0f && dy[1] == 6.0f && dy[2] == 7.0f);
    assert_int_equal(w.n, 1);
    ls_tape_destroy(t);
}

/* --- who is told ----------------------------------------------------------------------------------- */

static void parameters_are_ready_last_layer_first_and_bias_before_weight(void **state)
{
    (void)state;
    ls_params ps = { 0 };
    ls_arena *a;
    ls_tape *t = tape(1 << 16);
    witness w = { 0 };
    assert_int_equal(ls_arena_create(1 << 16, false, NULL, &a), LS_OK);
    assert_int_equal(ls_params_add(&ps, "0.weight", 2, (int64_t[]){ 4, 3 }), LS_OK);
    assert_int_equal(ls_params_add(&ps, "0.bias", 1, (int64_t[]){ 4 }), LS_OK);
    assert_int_equal(ls_params_add(&ps, "2.weight", 2, (int64_t[]){ 2, 4 }), LS_OK);
    assert_int_equal(ls_params_add(&ps, "2.bias", 1, (int64_t[]){ 2 }), LS_OK);
    assert_int_equal(ls_params_bind(&ps, a, a), LS_OK);
    assert_int_equal(ls_tape_listen(t, &(ls_tape_events){ .grad_ready = told, .progress = poked }, &w), LS_OK);

    float x[6] = { 1.0f, 2.0f, 3.0f };
    int64_t y[2] = { 0, 1 };
    ls_tensor *h = ls_linear(t, ls_tape_input(t, LS_F32, 2, (int64_t[]){ 2, 3 }, x), &ps.item[0].t, &ps.item[1].t);
    ls_tensor *logits = ls_linear(t, ls_relu(t, h), &ps.item[2].t, &ps.item[3].t);
    ls_tensor *labels = ls_tape_input(t, LS_I64, 1, (int64_t[]){ 2 }, y);
    ls_tensor *loss = ls_softmax_cross_entropy(t, logits, labels, NULL, NULL);
    assert_int_equal(w.pokes, 4); /* once an op */
    assert_int_equal(ls_backward(t, loss), LS_OK);
    const int want[] = { 3, 2, 1, 0 };
    assert_int_equal(w.n, 4);
    for (int i = 0; i < 4; i++) assert_ptr_equal(w.seen[i], &ps.item[want[i]].t);
    assert_true(w.pokes >= 8); /* at least once an op */
    ls_params_free(&ps);
    ls_arena_destroy(a);
    ls_tape_destroy(t);
}

static void a_callbacks_failure_ends_backward_and_is_kept(void **state)
{
    (void)state;
    ls_tape *t = tape(1 << 16);
    scalar a, b;
    witness w = { .fail_at = 1 };
    leaf(&a, 1.0f);
    leaf(&b, 1.0f);
    assert_int_equal(ls_tape_listen(t, &(ls_tape_events){ .grad_ready = told }, &w), LS_OK);
    ls_tensor *y = sum(t, times(t, 2.0f, &a.t), &b.t);
    assert_int_equal(ls_backward(t, y), LS_RANK_DIED);
    assert_int_equal(w.n, 1);
    ls_fail(LS_INVALID, "something else");
    assert_int_equal(ls_tape_status(t), LS_RANK_DIED);
    assert_string_equal(ls_last_error(), "the witness stops at 1");

    ls_tape_reset(t);
    w = (witness){ 0 };
    assert_int_equal(ls_tape_listen(t, &(ls_tape_events){ .grad_ready = told, .progress = poked_badly }, &w), LS_OK);
    assert_int_equal(ls_backward(t, times(t, 2.0f, times(t, 2.0f, &a.t))), LS_RANK_HUNG);
    assert_int_equal(w.pokes, 1);
    assert_int_equal(w.n, 0);
    ls_tape_destroy(t);
}

/* --- what is kept --------------------------------------------------------------------------------------- */

static void with_grad_off_nothing_is_recorded(void **state)
{
    (void)state;
    ls_tape *t = tape(1 << 16);
    scalar a;
    leaf(&a, 3.0f);
    assert_true(ls_tape_grad(t));
    ls_tape_set_grad(t, false);
    assert_false(ls_tape_grad(t));
    ls_tensor *y = times(t, 2.0f, &a.t);
    assert_true(*(float *)y->data == 6.0f);
    assert_null(y->node);
    assert_false(ls_tape_pending(t));
    assert_int_equal(ls_backward(t, y), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "grad off"));
    assert_true(a.slope == -99.0f);
    ls_tape_destroy(t);
}

static void a_forward_is_pending_until_its_backward_or_a_reset(void **state)
{
    (void)state;
    ls_tape *t = tape(1 << 16);
    scalar a;
    leaf(&a, 3.0f);
    assert_false(ls_tape_pending(t));
    for (int i = 0; i < 2; i++) {
        ls_tensor *y = times(t, 2.0f, &a.t);
        assert_true(ls_tape_pending(t));
        assert_int_equal(ls_backward(t, y), LS_OK);
        assert_false(ls_tape_pending(t));
    }
    (void)times(t, 2.0f, &a.t);
    assert_true(ls_tape_pending(t));
    ls_tape_reset(t);
    assert_false(ls_tape_pending(t));
    ls_tape_destroy(t);
}

/* Whoever has averaged a gradient says so, and that holds until something is added. */
static void a_contribution_makes_a_gradient_local_again(void **state)
{
    (void)state;
    ls_tape *t = tape(1 << 16);
    scalar a, b;
    leaf(&a, 3.0f);
    leaf(&b, 3.0f);
    a.t.grad_reduced = b.t.grad_reduced = true;
    assert_int_equal(ls_backward(t, times(t, 2.0f, &a.t)), LS_OK);
    assert_true(a.t.grad_ready && !a.t.grad_reduced);
    assert_true(b.t.grad_reduced);
    ls_tape_destroy(t);
}

static void the_first_failure_is_kept_and_the_rest_does_nothing(void **state)
{
    (void)state;
    ls_tape *t = tape(1 << 16);
    scalar a;
    float x[6] = { 0 }, w[20] = { 0 };
    ls_tensor weight = { .dtype = LS_F32, .ndim = 2, .dim = { 5, 4 }, .data = w };
    leaf(&a, 1.0f);
    ls_tensor *in = ls_tape_input(t, LS_F32, 2, (int64_t[]){ 2, 3 }, x);
    ls_tensor *h = ls_linear(t, in, &weight, NULL);
    assert_null(h);
    assert_null(ls_relu(t, h));
    assert_null(ls_gelu(t, in));
    assert_null(ls_tape_input(t, LS_F32, 2, (int64_t[]){ 2, 3 }, x));
    assert_null(ls_softmax_cross_entropy(t, h, NULL, NULL, NULL));
    ls_fail(LS_INVALID, "something else");
    assert_int_equal(ls_tape_status(t), LS_SHAPE);
    assert_non_null(strstr(ls_last_error(), "[2, 3]"));
    assert_non_null(strstr(ls_last_error(), "[5, 4]"));
    assert_int_equal(ls_backward(t, h), LS_SHAPE);

    ls_tape_reset(t);
    assert_int_equal(ls_tape_status(t), LS_OK);
    assert_non_null(times(t, 1.0f, &a.t));
    ls_tape_destroy(t);
}

static void misuse_is_named(void **state)
{
    (void)state;
    static const struct { int what; ls_status st; const char *says; } row[] = {
        { 0, LS_INVALID, "relu: an input is NULL" },
        { 1, LS_INVALID, "0 to 4" },
        { 2, LS_SHAPE, "dimension 1 is 0" },
        { 3, LS_INVALID, "no data" },
        { 4, LS_INVALID, "backward: the tensor is NULL" },
        { 5, LS_SHAPE, "the loss has shape [3]" },
        { 6, LS_INVALID, "depends on nothing" },
        { 7, LS_INVALID, "no gradient given" },
        { 8, LS_NO_MEMORY, "4000000 bytes do not fit" },
    };
    ls_tape *t = tape(4096);
    float x[3] = { 0 };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_tape_reset(t);
        scalar a;
        leaf(&a, 1.0f);
        ls_tensor *in = ls_tape_input(t, LS_F32, 1, (int64_t[]){ 3 }, x);
        in->grad = row[i].what == 5 ? in : NULL;
        switch (row[i].what) {
        case 0: assert_null(ls_relu(t, NULL)); break;
        case 1: assert_null(ls_tape_input(t, LS_F32, 5, (int64_t[]){ 1, 1, 1, 1, 1 }, x)); break;
        case 2: assert_null(ls_tape_input(t, LS_F32, 2, (int64_t[]){ 1, 0 }, x)); break;
        case 3: assert_null(ls_tape_input(t, LS_F32, 1, (int64_t[]){ 3 }, NULL)); break;
        case 4: assert_int_equal(ls_backward(t, NULL), LS_INVALID); break;
        case 5: assert_int_equal(ls_backward(t, times(t, 1.0f, in)), LS_SHAPE); break;
        case 6: assert_int_equal(ls_backward_from(t, times(t, 1.0f, in), x), LS_INVALID); break;
        case 7: assert_int_equal(ls_backward_from(t, times(t, 1.0f, &a.t), NULL), LS_INVALID); break;
        default: assert_null(ls_op_output(t, LS_F32, 1, (int64_t[]){ 1000000 })); break;
        }
        assert_int_equal(ls_tape_status(t), row[i].st);
        if (!strstr(ls_last_error(), row[i].says)) fail_msg("'%s' does not say '%s'", ls_last_error(), row[i].says);
    }
    ls_tape_destroy(t);
    ls_tape_destroy(NULL);
}

static void every_step_uses_the_same_memory(void **state)
{
    (void)state;
    ls_tape *t = tape(1 << 16);
    scalar a;
    leaf(&a, 1.0f);
    const void *first = NULL;
    size_t peak = 0;
    for (int step = 0; step < 3; step++) {
        ls_tape_reset(t);
        ls_tensor *y = times(t, 2.0f, &a.t);
        if (step == 0) first = y->data;
        assert_ptr_equal(y->data, first);
        assert_int_equal((uintptr_t)y->data % 64, 0);
        assert_int_equal(ls_backward(t, y), LS_OK);
        if (step == 0) peak = ls_tape_peak(t);
        assert_int_equal(ls_tape_peak(t), peak);
    }
    assert_true(peak > 0 && peak < 1024);
    ls_tape_destroy(t);
}

static void flops_are_those_of_the_ops_played(void **state)
{
    (void)state;
    ls_tape *t = tape(1 << 16);
    scalar a, b;
    leaf(&a, 1.0f);
    leaf(&b, 1.0f);
    ls_tensor *y = sum(t, &a.t, &b.t);
    assert_true(ls_tape_flops(t) == 1.0);
    assert_int_equal(ls_backward(t, y), LS_OK);
    assert_true(ls_tape_flops(t) == 3.0);
    ls_tape_reset(t);
    assert_true(ls_tape_flops(t) == 0.0);
    ls_tape_destroy(t);
}

static void a_dry_tape_counts_without_data(void **state)
{
    (void)state;
    ls_tape *t;
    assert_int_equal(ls_tape_create_dry(&t), LS_OK);
    ls_tensor w = { .dtype = LS_F32, .ndim = 2, .dim = { 100000, 50000 } }, dw = w;
    w.grad = &dw;
    ls_tensor *x = ls_tape_input(t, LS_F32, 2, (int64_t[]){ 1000000, 50000 }, NULL);
    ls_tensor *y = ls_relu(t, ls_linear(t, x, &w, NULL));
    ls_tensor *labels = ls_tape_input(t, LS_I64, 1, (int64_t[]){ 1000000 }, NULL);
    assert_int_equal(ls_backward(t, ls_softmax_cross_entropy(t, y, labels, NULL, NULL)), LS_OK);
    /* Two activations, the kept softmax and one gradient: relu's is handed on. */
    const size_t data = (size_t)1000000 * 100000 * sizeof(float);
    assert_in_range(ls_tape_peak(t), 4 * data, 4 * data + 8000000);
    assert_true(ls_tape_flops(t) > 4.0 * 1e6 * 5e4 * 1e5);
    ls_tape_destroy(t);
}

/* --- activations in bf16 ----------------------------------------------------------------------------------- */

/* What a stage boundary is: a leaf of three bf16 numbers whose owner wants the gradient. */
typedef struct narrow {
    uint16_t value[3], slope[3];
    ls_tensor grad;
} narrow;

static ls_tensor *narrow_leaf(ls_tape *t, narrow *x)
{
    *x = (narrow){ .grad = { .dtype = LS_BF16, .ndim = 1, .dim = { 3 }, .data = x->slope } };
    ls_tensor *in = ls_tape_input(t, LS_BF16, 1, (int64_t[]){ 3 }, x->value);
    in->grad = &x->grad;
    return in;
}

static void narrow_numbers(uint16_t out[3], float a, float b, float c)
{
    const float v[3] = { a, b, c };
    for (int i = 0; i < 3; i++) out[i] = ls_f32_to_bf16(v[i]);
}

static ls_tensor *flat(ls_tape *t, ls_tensor *x) { return ls_reshape(t, x, 1, (int64_t[]){ 3 }); }

/* 8 bits of significand: 257 lies between 256 and 258 and goes to the even one, 259 to 260. */
static void gradients_of_bf16_tensors_are_bf16_added_in_float_and_rounded_once(void **state)
{
    (void)state;
    ls_tape *t = tape(1 << 16);
    narrow x;
    uint16_t dy[3], more[3], want[3];
    narrow_numbers(dy, 256.0f, 256.0f, 1.0f);
    narrow_numbers(more, 1.0f, 3.0f, -1.0f);
    narrow_numbers(want, 256.0f, 260.0f, 0.0f);
    ls_tensor *in = narrow_leaf(t, &x);
    assert_int_equal(ls_backward_from(t, flat(t, in), dy), LS_OK);
    assert_memory_equal(x.slope, dy, sizeof dy);
    assert_int_equal(ls_backward_from(t, flat(t, in), more), LS_OK);
    assert_memory_equal(x.slope, want, sizeof want);
    ls_tape_destroy(t);
}

/* In the slab the first one of two is copied: others hold the first gradient. */
static void a_diamond_of_bf16_takes_two_bytes_an_element(void **state)
{
    (void)state;
    ls_tape *t = tape(1 << 16);
    narrow x;
    uint16_t dy[3], twice[3];
    narrow_numbers(dy, 3.0f, -5.0f, 0.5f);
    narrow_numbers(twice, 6.0f, -10.0f, 1.0f);
    ls_tensor *h = flat(t, narrow_leaf(t, &x));
    const size_t before = ls_tape_peak(t);
    void *h_grad;
    bool add;
    assert_int_equal(ls_grad_begin(t, h, &add, &h_grad), LS_OK);
    assert_false(add);
    assert_int_equal(h->grad->dtype, LS_BF16);
    assert_int_equal(ls_tensor_nbytes(h->grad), 6);
    assert_true(ls_tape_peak(t) - before < 512);
    h->grad = NULL;

    ls_tensor *left = flat(t, h), *right = flat(t, h);
    assert_non_null(right);
    struct ls_node n = *right->node; /* y = left + right, written as an op that passes its gradient to both */
    n.in[0] = left;
    n.in[1] = right;
    static const ls_tape_op both = { .name = "both", .napplied = 2 };
    n.op = &both;
    ls_tensor *y = ls_op_end(t, ls_op_output(t, LS_BF16, 1, (int64_t[]){ 3 }), &n);
    ls_tensor grad = { .dtype = LS_BF16, .ndim = 1, .dim = { 3 }, .data = dy };
    y->grad = &grad;
    left->uses = right->uses = 1;
    assert_int_equal(ls_grad_pass(t, y->node, left), LS_OK);
    assert_int_equal(ls_grad_pass(t, y->node, right), LS_OK);
    assert_int_equal(ls_grad_pass(t, left->node, h), LS_OK);
    assert_int_equal(ls_grad_pass(t, right->node, h), LS_OK);
    assert_memory_equal(h->grad->data, twice, sizeof twice);
    assert_int_equal(dy[0], ls_f32_to_bf16(3.0f)); /* held by both sides: not written */
    ls_tape_destroy(t);
}

static void a_bf16_loss_starts_from_one(void **state)
{
    (void)state;
    ls_tape *t = tape(1 << 16);
    narrow x;
    ls_tensor *in = narrow_leaf(t, &x);
    in->ndim = x.grad.ndim = 0;
    assert_int_equal(ls_backward(t, ls_reshape(t, in, 0, NULL)), LS_OK);
    assert_true(ls_bf16_to_f32(x.slope[0]) == 1.0f);
    ls_tape_destroy(t);
}

static void a_gradient_of_another_type_is_refused(void **state)
{
    (void)state;
    ls_tape *t = tape(1 << 16);
    narrow x;
    ls_tensor *in = narrow_leaf(t, &x);
    x.grad.dtype = LS_F32;
    assert_int_equal(ls_backward_from(t, flat(t, in), x.value), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "a tensor of bfloat16 is float, expected the same"));
    ls_tape_destroy(t);
}

static void a_tape_s_type_is_float_or_bf16_and_stays(void **state)
{
    (void)state;
    ls_tape *t = tape(1 << 16);
    assert_int_equal(ls_tape_dtype(t), LS_F32);
    assert_int_equal(ls_tape_set_dtype(t, LS_BF16), LS_OK);
    ls_tape_reset(t);
    assert_int_equal(ls_tape_dtype(t), LS_BF16);
    assert_int_equal(ls_tape_set_dtype(t, LS_F16), LS_UNSUPPORTED);
    assert_non_null(strstr(ls_last_error(), "activations in half; expected float or bfloat16"));
    assert_int_equal(ls_tape_dtype(t), LS_BF16);
    ls_tape_destroy(t);
}

/* --- the trace -------------------------------------------------------------------------------------------- */

static void ops_leave_events_with_a_label(void **state)
{
    (void)state;
    ls_blackbox *box = calloc(1, sizeof *box);
    ls_tracer *tracer = NULL;
    ls_tape *t = NULL;
    assert_non_null(box);
    assert_int_equal(ls_tracer_create(box, &tracer), LS_OK);
    assert_int_equal(ls_tape_create(1 << 16, NULL, tracer, &t), LS_OK);
    float x[6] = { 0 }, w[15] = { 0 }, dw[15];
    ls_tensor grad = { .dtype = LS_F32, .ndim = 2, .dim = { 5, 3 }, .data = dw };
    ls_tensor weight = { .dtype = LS_F32, .ndim = 2, .dim = { 5, 3 }, .data = w, .grad = &grad };
    int64_t y[2] = { 0, 4 };
    for (int step = 0; step < 2; step++) {
        ls_tape_reset(t);
        ls_tensor *logits = ls_linear(t, ls_tape_input(t, LS_F32, 2, (int64_t[]){ 2, 3 }, x), &weight, NULL);
        ls_tensor *labels = ls_tape_input(t, LS_I64, 1, (int64_t[]){ 2 }, y);
        assert_int_equal(ls_backward(t, ls_softmax_cross_entropy(t, logits, labels, NULL, NULL)), LS_OK);
    }
    static const struct { const char *label; int backward; } want[] = {
        { "linear 3x5", 0 }, { "cross_entropy 2x5", 0 }, { "cross_entropy 2x5", 1 }, { "linear 3x5", 1 },
    };
    assert_int_equal(box->count, 2 * 4);
    for (uint64_t i = 0; i < box->count; i++) {
        const ls_event *e = &box->ev[i];
        assert_int_equal(e->kind, LS_EV_OP);
        assert_string_equal(box->string[e->label], want[i % 4].label);
        assert_int_equal(e->backward, want[i % 4].backward);
        assert_true(e->t1_ns >= e->t0_ns && e->t0_ns > 0 && e->gflops > 0.0f);
    }
    ls_tape_destroy(t);
    ls_tracer_destroy(tracer);
    free(box);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_leaf_used_twice_gets_both_contributions_and_is_ready_once),
        cmocka_unit_test(the_same_leaf_as_both_inputs_counts_twice),
        cmocka_unit_test(a_diamond_adds_its_two_sides),
        cmocka_unit_test(relu_in_place_leaves_a_diamonds_other_side_alone),
        cmocka_unit_test(two_backwards_add_until_the_gradient_is_zeroed),
        cmocka_unit_test(two_backwards_over_one_recording_add_too),
        cmocka_unit_test(what_does_not_lead_to_the_loss_stays_untouched),
        cmocka_unit_test(a_given_gradient_is_used_and_not_written),
        cmocka_unit_test(parameters_are_ready_last_layer_first_and_bias_before_weight),
        cmocka_unit_test(a_callbacks_failure_ends_backward_and_is_kept),
        cmocka_unit_test(with_grad_off_nothing_is_recorded),
        cmocka_unit_test(a_forward_is_pending_until_its_backward_or_a_reset),
        cmocka_unit_test(a_contribution_makes_a_gradient_local_again),
        cmocka_unit_test(the_first_failure_is_kept_and_the_rest_does_nothing),
        cmocka_unit_test(misuse_is_named),
        cmocka_unit_test(every_step_uses_the_same_memory),
        cmocka_unit_test(flops_are_those_of_the_ops_played),
        cmocka_unit_test(a_dry_tape_counts_without_data),
        cmocka_unit_test(gradients_of_bf16_tensors_are_bf16_added_in_float_and_rounded_once),
        cmocka_unit_test(a_diamond_of_bf16_takes_two_bytes_an_element),
        cmocka_unit_test(a_bf16_loss_starts_from_one),
        cmocka_unit_test(a_gradient_of_another_type_is_refused),
        cmocka_unit_test(a_tape_s_type_is_float_or_bf16_and_stays),
        cmocka_unit_test(ops_leave_events_with_a_label),
    };
    return cmocka_run_group_tests_name("tape", tests, NULL, NULL);
}
