/* Operations of one's own: what ls_tape_apply does for an op, what it says about one that is wrong; a second device. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "lockstep/nn.h" /* before the harness, which has a global p */
#include "lockstep/op.h"

#include "harness_op.h"

/* --- y = w x^3, of a parameter w []: as short as an op can be ----------------------------------- */

static ls_status cube_shapes(const ls_op_call *c, ls_tensor *out) { return ls_op_like(out, c->in[0]); }

static ls_status cube_forward(const ls_op_call *c)
{
    const float *x = c->in[0]->data, *w = c->in[1]->data;
    float *y = c->out->data;
    for (int64_t i = 0; i < ls_tensor_count(c->out); i++) y[i] = w[0] * x[i] * x[i] * x[i];
    return LS_OK;
}

static ls_status cube_input(const ls_op_call *c)
{
    const float *x = c->in[0]->data, *w = c->in[1]->data, *dy = c->dy;
    float *dx = c->grad[0].data;
    for (int64_t i = 0; i < ls_tensor_count(c->out); i++)
        dx[i] = (c->grad[0].add ? dx[i] : 0.0f) + 3.0f * w[0] * x[i] * x[i] * dy[i];
    return LS_OK;
}

static ls_status cube_weight(const ls_op_call *c)
{
    const float *x = c->in[0]->data, *dy = c->dy;
    float *dw = c->grad[1].data, sum = 0.0f;
    for (int64_t i = 0; i < ls_tensor_count(c->out); i++) sum += x[i] * x[i] * x[i] * dy[i];
    dw[0] = (c->grad[1].add ? dw[0] : 0.0f) + sum;
    return LS_OK;
}

static const ls_op cube = {
    .name = "cube", .least = 2, .most = 2, .applied = 1, .shapes = cube_shapes,
    .cpu = { .forward = cube_forward, .backward_weight = cube_weight, .backward_input = cube_input },
};

static void cube_formula(void)
{
    for (int64_t i = 0; i < p.count; i++) p.y[i] = p.w.d[0] * p.x.d[i] * p.x.d[i] * p.x.d[i];
}

static ls_tensor *apply_cube(ls_tape *t, ls_tensor *x)
{
    return ls_tape_apply(t, &cube, (ls_tensor *[]){ x, &p.w.t }, 2, NULL);
}

static void an_op_of_one_s_own_is_played_like_the_library_s(void **state)
{
    (void)state;
    const part parts[PARTS] = { { &p.x, 128 * ULP, "dx", ACTIVATION }, { &p.w, sum_tolerance(40), "dw", PARAMETER } };
    fill(&p.x, 2.0f, 2, 4, 10, 0);
    fill(&p.w, 2.0f, 0, 0, 0, 0);
    roll(40, cube_formula);
    assert_op_in(LS_F32, apply_cube, 64 * ULP, parts);
    assert_same_in_place_in(LS_F32, apply_cube, parts);

    ls_tape *t = tape();
    assert_int_equal(ls_backward_from(t, apply_cube(t, &p.x.t), p.r), LS_OK);
    assert_true(ls_tape_flops(t) == 40.0 + 2.0 * 41.0); /* nobody said more */
    ls_tape_set_grad(t, false);
    ls_tape_reset(t);
    const ls_tensor *y = apply_cube(t, &p.x.t);
    assert_non_null(y);
    assert_null(y->node);
    ls_tape_destroy(t);
}

/* --- what an op keeps, drops and asks for ---------------------------------------------------------------- */

typedef struct power {
    int n;
} power;

static int forwards; /* how often it was computed */

static ls_status power_forward(const ls_op_call *c)
{
    const power *a = c->attributes;
    const float *x = c->in[0]->data;
    float *y = c->out->data, *below = c->saved, *scratch = c->scratch; /* below: x^(n - 1) */
    forwards++;
    for (int64_t i = 0; i < ls_tensor_count(c->out); i++) {
        scratch[i] = 1.0f;
        for (int k = 1; k < a->n; k++) scratch[i] *= x[i];
        below[i] = scratch[i];
        y[i] = below[i] * x[i];
    }
    return LS_OK;
}

static ls_status power_backward(const ls_op_call *c)
{
    const power *a = c->attributes;
    const float *below = c->saved, *dy = c->dy;
    float *dx = c->grad[0].data;
    assert_null(c->scratch);
    for (int64_t i = 0; i < ls_tensor_count(c->out); i++)
        dx[i] = (c->grad[0].add ? dx[i] : 0.0f) + (float)a->n * below[i] * dy[i];
    return LS_OK;
}

static size_t power_bytes(const ls_op_call *c) { return ls_tensor_nbytes(c->out); }
static size_t power_scratch(const ls_op_call *c, bool backward) { return backward ? 0 : ls_tensor_nbytes(c->out); }

static const ls_op power_op = {
    .name = "power", .least = 1, .most = 1, .applied = 1, .attribute_bytes = sizeof(power), .shapes = cube_shapes,
    .saved_bytes = power_bytes, .scratch_bytes = power_scratch, .in_place = true, .recompute = true,
    .cpu = { .forward = power_forward, .backward_input = power_backward },
};

static ls_tensor *apply_power(ls_tape *t, ls_tensor *x, int n)
{
    power a = { n }; /* gone when backward reads it: it is copied */
    ls_tensor *y = ls_tape_apply(t, &power_op, &x, 1, &a);
    a.n = -1;
    return y;
}

static ls_tensor *powers(ls_tape *t, ls_tensor *x, const void *unused)
{
    (void)unused;
    return apply_power(t, apply_power(t, apply_power(t, x, 2), 3), 1);
}

static void saved_and_scratch_memory_attributes_and_recompute_work_together(void **state)
{
    (void)state;
    static float want[16];
    fill(&p.x, 1.0f, 1, 16, 0, 0);
    roll(16, NULL);
    size_t peak[3];
    for (int how = LS_RECOMPUTE_NONE; how <= LS_RECOMPUTE_FULL; how++)
        for (int dry = 0; dry < 2; dry++) {
            ls_tape *t = NULL;
            if (dry) assert_int_equal(ls_tape_create_dry(&t), LS_OK);
            else t = tape();
            ls_tape_set_recompute(t, (ls_recompute)how);
            clear(&p.x);
            forwards = 0;
            ls_tensor *y = ls_block(t, &p.x.t, powers, NULL, 0);
            assert_int_equal(ls_backward_from(t, ls_silu(t, y), p.r), LS_OK);
            assert_int_equal(forwards, dry ? 0 : how == LS_RECOMPUTE_NONE ? 3 : how == LS_RECOMPUTE_FULL ? 6 : 5);
            if (how == LS_RECOMPUTE_NONE && !dry) memcpy(want, p.x.slope, sizeof want);
            if (!dry) assert_memory_equal(p.x.slope, want, sizeof want);
            if (!dry) peak[how] = ls_tape_peak(t);
            else assert_int_equal(peak[how], ls_tape_peak(t));
            ls_tape_destroy(t);
        }
    for (int i = 0; i < 16; i++) assert_true(isfinite(want[i]));
}

/* --- an op that is wrong ------------------------------------------------------------------------------------ */

static ls_status longer(const ls_op_call *c, ls_tensor *out)
{
    LS_TRY(ls_op_like(out, c->in[0]));
    out->dim[out->ndim - 1] += 1;
    return LS_OK;
}

static ls_status shorter(const ls_op_call *c, ls_tensor *out)
{
    LS_TRY(ls_op_like(out, c->in[0]));
    out->dim[out->ndim - 1] -= 1;
    return LS_OK;
}

static ls_status a_row_less(const ls_op_call *c, ls_tensor *out) /* whole cache lines less: tensors follow at once */
{
    LS_TRY(ls_op_like(out, c->in[0]));
    out->dim[0] -= 16;
    return LS_OK;
}

static ls_status five_dims(const ls_op_call *c, ls_tensor *out)
{
    (void)c;
    out->ndim = 5;
    return LS_OK;
}

static ls_status no_elements(const ls_op_call *c, ls_tensor *out)
{
    LS_TRY(ls_op_like(out, c->in[0]));
    out->dim[1] = 0;
    return LS_OK;
}

static ls_status of_integers(const ls_op_call *c, ls_tensor *out)
{
    LS_TRY(ls_op_like(out, c->in[0]));
    out->dtype = LS_I64;
    return LS_OK;
}

static ls_status as_many_as_in(const ls_op_call *c) /* as if the result had x's shape */
{
    memcpy(c->out->data, c->in[0]->data, ls_tensor_nbytes(c->in[0]));
    return LS_OK;
}

static ls_status half_a_slope(const ls_op_call *c)
{
    memset(c->grad[0].data, 0, 4 * sizeof(float));
    return LS_OK;
}

static ls_status past_a_slope(const ls_op_call *c) /* of the parameter: as if it were as long as x */
{
    memset(c->grad[1].data, 0, ls_tensor_nbytes(c->in[0]));
    return LS_OK;
}

static bool wrong_when_adding;

static ls_status cube_weight_all(const ls_op_call *c)
{
    if (!c->grad[1].add) memset(c->grad[1].data, 0, ls_tensor_nbytes(c->in[1]));
    return c->grad[1].add && wrong_when_adding ? past_a_slope(c) : LS_OK;
}

static ls_status past_saved(const ls_op_call *c)
{
    memset(c->saved, 0, 65);
    return as_many_as_in(c);
}

static ls_status past_scratch(const ls_op_call *c)
{
    ((char *)c->scratch)[64] = 0;
    return as_many_as_in(c);
}

static size_t saves_64(const ls_op_call *c)
{
    (void)c;
    return 64;
}

static size_t takes_64(const ls_op_call *c, bool backward)
{
    (void)backward;
    return saves_64(c);
}

static ls_op_work work_of_nan(const ls_op_call *c)
{
    (void)c;
    return (ls_op_work){ .forward = NAN };
}

static ls_op_work work_below_zero(const ls_op_call *c)
{
    (void)c;
    return (ls_op_work){ .forward = 1.0, .backward_input = -2.0 };
}

static ls_status refusing(const ls_op_call *c) { return ls_fail(LS_INVALID, "%s: not on a Sunday", c->op->name); }

static void an_op_that_is_wrong_is_named_with_what_is_wrong_about_it(void **state)
{
    (void)state;
    static const struct { ls_op op; ls_status st; const char *says; } row[] = {
        { { .shapes = longer, .cpu = { .forward = as_many_as_in } }, LS_SHAPE,
          "wrong: forward leaves element 128 of its result [32, 5] unwritten" },
        { { .shapes = shorter, .cpu = { .forward = as_many_as_in } }, LS_SHAPE,
          "wrong: forward writes past the end of its result [32, 3]" },
        { { .shapes = a_row_less, .cpu = { .forward = as_many_as_in } }, LS_SHAPE,
          "wrong: forward writes past the end of its result [16, 4]: `shapes` promises less than forward fills" },
        { { .shapes = cube_shapes, .saved_bytes = saves_64, .cpu = { .forward = past_saved } }, LS_SHAPE,
          "wrong: forward writes past the end of its saved memory of 64 bytes" },
        { { .shapes = cube_shapes, .scratch_bytes = takes_64, .cpu = { .forward = past_scratch } }, LS_SHAPE,
          "wrong: forward writes past the end of its scratch memory of 64 bytes" },
        { { .shapes = five_dims, .cpu = { .forward = as_many_as_in } }, LS_SHAPE,
          "wrong: `shapes` says that the result has 5 dimensions; expected 0 to 4" },
        { { .shapes = no_elements, .cpu = { .forward = as_many_as_in } }, LS_SHAPE,
          "wrong: `shapes` says that dimension 1 of the result is 0; expected at least 1" },
        { { .shapes = of_integers, .cpu = { .forward = as_many_as_in } }, LS_UNSUPPORTED,
          "wrong: `shapes` says that the result is int64; expected float or bfloat16" },
        { { .shapes = cube_shapes, .work = work_of_nan, .cpu = { .forward = as_many_as_in } }, LS_INVALID,
          "wrong: `work` says nan, 0 and 0 operations" },
        { { .shapes = cube_shapes, .work = work_below_zero, .cpu = { .forward = as_many_as_in } }, LS_INVALID,
          "wrong: `work` says 1, 0 and -2 operations" },
        { { .shapes = cube_shapes }, LS_UNSUPPORTED, "wrong: device cpu has no kernel for it" },
        { { .cpu = { .forward = as_many_as_in } }, LS_INVALID, "applied to 1, and has no `shapes`" },
        { { .shapes = cube_shapes, .attribute_bytes = 8, .cpu = { .forward = as_many_as_in } }, LS_INVALID,
          "wrong: no attributes, expected 8 bytes of them" },
        { { .shapes = cube_shapes, .cpu = { .forward = refusing } }, LS_INVALID, "wrong: not on a Sunday" },
    };
    ls_tape *t = tape();
    ls_tensor *x = fill(&p.x, 1.0f, 2, 32, 4, 0);
    x->grad = NULL;
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_op op = row[i].op;
        op.name = "wrong";
        op.least = op.most = op.applied = 1;
        assert_refused(t, ls_tape_apply(t, &op, &x, 1, NULL), row[i].st, row[i].says);
        assert_refused(t, ls_tape_apply(t, &op, &x, 1, NULL), row[i].st, row[i].says);
    }
    ls_op many = cube;
    many.most = 9;
    assert_refused(t, ls_tape_apply(t, &many, &x, 1, NULL), LS_INVALID, "this one says 2 to 9, applied to 1");
    assert_refused(t, ls_tape_apply(t, &cube, &x, 1, NULL), LS_INVALID, "cube: 1 inputs, expected 2 to 2");

    x = fill(&p.x, 1.0f, 2, 3, 3, 0);
    const ls_op lies = { .name = "lies", .least = 1, .most = 1, .applied = 1, .shapes = cube_shapes,
                         .cpu = { .forward = as_many_as_in, .backward_input = half_a_slope } };
    assert_int_equal(ls_backward_from(t, ls_tape_apply(t, &lies, &x, 1, NULL), p.r), LS_SHAPE);
    assert_non_null(strstr(ls_last_error(), "lies: backward_input leaves element 4 of the gradient of input 0 (not a parameter), "
                                            "[3, 3] unwritten"));
    ls_tape_destroy(t);
}

/* Kernels are looked at the first time that they fill a gradient, and the first time that they add to it. */
static void a_gradient_that_is_too_long_is_found_before_it_harms_the_next(void **state)
{
    (void)state;
    for (int add = 0; add < 2; add++) {
        ls_tape *t = tape();
        ls_op op = cube;
        ls_tensor *x = fill(&p.x, 1.0f, 1, 32, 0, 0), *w = fill(&p.w, 1.0f, 1, 16, 0, 0);
        x->grad = NULL;
        w->name = "conv1.weight";
        w->grad_ready = false;
        roll(32, NULL);
        op.cpu.backward_weight = add ? cube_weight_all : past_a_slope;
        for (int i = 0; i < 32; i++) p.w.slope[i] = 7.0f;
        if (add) {
            assert_int_equal(ls_backward_from(t, ls_tape_apply(t, &op, (ls_tensor *[]){ x, w }, 2, NULL), p.r), LS_OK);
            assert_true(p.w.slope[15] == 0.0f);
            ls_tape_reset(t);
            wrong_when_adding = true;
        }
        assert_int_equal(ls_backward_from(t, ls_tape_apply(t, &op, (ls_tensor *[]){ x, w }, 2, NULL), p.r), LS_SHAPE);
        wrong_when_adding = false;
        assert_non_null(strstr(ls_last_error(), "cube: backward_weight writes past the end of the gradient of input 1 "
                                                "(conv1.weight), [16]: it has the shape of the input"));
        assert_true(p.w.slope[16] == 7.0f);
        w->name = NULL;
        ls_tape_destroy(t);
    }
}

static void a_gradient_that_no_kernel_makes_is_refused_with_the_parameter_s_name(void **state)
{
    (void)state;
    ls_params ps = { 0 };
    ls_arena *a;
    ls_tape *t = tape();
    assert_int_equal(ls_arena_create(1 << 16, false, NULL, &a), LS_OK);
    for (int i = 0; i < 12; i++) { /* the list grows, and names with it */
        char name[32];
        snprintf(name, sizeof name, "conv%d.weight", i);
        assert_int_equal(ls_params_add(&ps, name, 1, (int64_t[]){ 1 }), LS_OK);
    }
    ls_tensor *x = fill(&p.x, 1.0f, 1, 4, 0, 0);
    ls_op blind = cube;
    blind.cpu.backward_weight = NULL;
    assert_refused(t, ls_tape_apply(t, &blind, (ls_tensor *[]){ x, &ps.item[3].t }, 2, NULL), LS_INVALID,
                   "cube: input 1 (conv3.weight) has no memory yet");
    assert_int_equal(ls_params_bind(&ps, a, a), LS_OK);
    assert_refused(t, ls_tape_apply(t, &blind, (ls_tensor *[]){ x, &ps.item[0].t }, 2, NULL), LS_UNSUPPORTED,
                   "cube: a gradient of input 1 (conv0.weight) is wanted, and the op has no backward_weight on device cpu");
    ls_tape_set_grad(t, false); /* an evaluation wants none */
    assert_non_null(ls_tape_apply(t, &blind, (ls_tensor *[]){ x, &ps.item[0].t }, 2, NULL));
    ls_tape_set_grad(t, true);
    blind = cube;
    blind.cpu.backward_input = NULL;
    assert_refused(t, ls_tape_apply(t, &blind, (ls_tensor *[]){ x, &ps.item[11].t }, 2, NULL), LS_UNSUPPORTED,
                   "input 0 (not a parameter) is wanted, and the op has no backward_input");
    x->grad = NULL;
    assert_non_null(ls_tape_apply(t, &blind, (ls_tensor *[]){ x, &ps.item[11].t }, 2, NULL));
    ls_params_free(&ps);
    ls_arena_destroy(a);
    ls_tape_destroy(t);
}

/* --- a second device ---------------------------------------------------------------------------------------------
 *
 * `checked`: its memory is mapped, and its kernels are the CPU's, on copies of the operands that end at a page which
 * nobody may touch; what they have to fill is NaN before. */

#define PAGE ((size_t)4096)

typedef struct guarded {
    char *map, *at;
    size_t bytes;
} guarded;

static guarded guard(size_t nbytes)
{
    const size_t pages = (nbytes + PAGE - 1) / PAGE;
    guarded g = { .bytes = (pages + 1) * PAGE };
    g.map = mmap(NULL, g.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.map != MAP_FAILED);
    assert_int_equal(mprotect(g.map + pages * PAGE, PAGE, PROT_NONE), 0);
    g.at = g.map + pages * PAGE - nbytes; /* ends there; floats are aligned */
    memset(g.map, 0xff, pages * PAGE);    /* NaN in every type */
    return g;
}

typedef struct counts {
    int forward, weight, input, unknown;
    size_t bytes;
} counts;

enum { MOST_GUARDED = 2 * LS_OP_MOST_INPUTS + 4 };

/* A call of the CPU's kernel with guarded operands. */
static ls_status checked_call(const ls_op_call *c, ls_kernel kernel, bool backward)
{
    guarded g[MOST_GUARDED];
    ls_tensor in[LS_OP_MOST_INPUTS], out = *c->out;
    ls_op_call with = *c;
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        in[i] = *c->in[i];
        g[n] = guard(ls_tensor_nbytes(&in[i]));
        memcpy(g[n].at, in[i].data, ls_tensor_nbytes(&in[i]));
        in[i].data = g[n++].at;
        with.in[i] = &in[i];
    }
    const int y = n++;
    g[y] = guard(ls_tensor_nbytes(&out));
    if (backward) memcpy(g[y].at, out.data, ls_tensor_nbytes(&out));
    out.data = g[y].at;
    with.out = &out;
    if (backward) {
        g[n] = guard(ls_tensor_nbytes(&out));
        memcpy(g[n].at, c->dy, ls_tensor_nbytes(&out));
        with.dy = g[n++].at;
    }
    int first = n;
    for (int i = 0; i < c->n; i++) {
        if (!c->grad[i].data) continue;
        g[n] = guard(ls_tensor_nbytes(&in[i]));
        if (c->grad[i].add) memcpy(g[n].at, c->grad[i].data, ls_tensor_nbytes(&in[i]));
        with.grad[i].data = g[n++].at;
    }
    const ls_status st = kernel(&with);
    if (st >= 0 && !backward) {
        assert_true(ls_tensor_finite(&out)); /* every element is filled */
        memcpy(c->out->data, out.data, ls_tensor_nbytes(&out));
    }
    for (int i = 0; i < c->n && st >= 0; i++) {
        if (!c->grad[i].data) continue;
        ls_tensor grad = in[i];
        grad.data = g[first++].at;
        assert_true(ls_tensor_finite(&grad));
        memcpy(c->grad[i].data, grad.data, ls_tensor_nbytes(&grad));
    }
    for (int i = 0; i < n; i++) assert_int_equal(munmap(g[i].map, g[i].bytes), 0);
    return st;
}

static counts count;

static ls_status checked_forward(const ls_op_call *c)
{
    count.forward++;
    return checked_call(c, c->op->cpu.forward, false);
}

static ls_status checked_weight(const ls_op_call *c)
{
    count.weight++;
    return checked_call(c, c->op->cpu.backward_weight, true);
}

static ls_status checked_input(const ls_op_call *c)
{
    count.input++;
    return checked_call(c, c->op->cpu.backward_input, true);
}

static const ls_kernels *checked_kernels(const ls_device *d, const ls_op *op)
{
    static const char *const known[] = { "conv2d", "tanh", "max_pool2d", "matmul", "softmax", "mul", "sub", "scale",
                                         "sigmoid", "sum", "mean", "transpose", "slice", "concat", "mse_loss", "bce_loss" };
    static const ls_kernels all = { checked_forward, checked_weight, checked_input };
    assert_ptr_equal(d->state, &count);
    for (size_t i = 0; i < COUNT(known); i++)
        if (strcmp(op->name, known[i]) == 0) return &all;
    ((counts *)d->state)->unknown++;
    return NULL;
}

static ls_status checked_alloc(const ls_device *d, size_t nbytes, void **out)
{
    ((counts *)d->state)->bytes += nbytes;
    *out = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return *out == MAP_FAILED ? ls_fail(LS_NO_MEMORY, "checked: %zu bytes", nbytes) : LS_OK;
}

static void checked_release(const ls_device *d, void *at, size_t nbytes)
{
    ((counts *)d->state)->bytes -= nbytes;
    assert_int_equal(munmap(at, nbytes), 0);
}

static const ls_device checked = { .name = "checked", .state = &count, .alloc = checked_alloc, .release = checked_release,
                                   .kernels = checked_kernels };

static ls_tensor *net(ls_tape *t, ls_tensor *x)
{
    ls_tensor *y = ls_max_pool2d(t, ls_tanh(t, ls_conv2d(t, x, &p.w.t, &p.b.t, 1, 1)), 2, 2);
    y = ls_transpose(t, ls_sigmoid(t, ls_scale(t, y, 2.0f)), 1, 3);
    y = ls_concat(t, (ls_tensor *[]){ y, ls_slice_of(t, y, 1, 0, 2), y }, 3, 1);
    y = ls_matmul(t, ls_softmax(t, y), ls_transpose(t, y, 2, 3));
    ls_tensor *zero = ls_sub(t, y, y), *half = ls_sigmoid(t, zero);
    ls_tensor *loss = ls_mse_loss(t, ls_mul(t, y, y), ls_silu(t, y)); /* silu is no ls_op */
    ls_tensor *more = ls_bce_loss(t, half, ls_tape_input(t, LS_F32, y ? y->ndim : 0, y ? y->dim : NULL, p.x.value));
    return ls_sub(t, ls_add(t, loss, ls_mean(t, y, LS_ALL_DIMS)), ls_mul(t, more, ls_sum(t, y, LS_ALL_DIMS)));
}

static void a_second_device_gives_the_same_bits_behind_guard_pages(void **state)
{
    (void)state;
    float want[3][MOST];
    leaf *const l[3] = { &p.x, &p.w, &p.b };
    float loss[2];
    for (int i = 0; i < 2; i++) {
        ls_tape *t;
        count = (counts){ 0 };
        assert_int_equal(ls_tape_create_on(i ? &checked : &ls_device_cpu, 1 << 20, NULL, NULL, &t), LS_OK);
        assert_int_equal(count.bytes, i ? 1 << 20 : 0);
        dice = 5;
        ls_tensor *x = fill(&p.x, 1.0f, 3, 2, 3, 8 * 6), *w = fill(&p.w, 1.0f, 3, 4, 3, 9);
        x->ndim = p.x.grad.ndim = w->ndim = p.w.grad.ndim = 4;
        x->dim[2] = p.x.grad.dim[2] = 8, x->dim[3] = p.x.grad.dim[3] = 6;
        for (int d = 2; d < 4; d++) w->dim[d] = p.w.grad.dim[d] = 3;
        fill(&p.b, 1.0f, 1, 4, 0, 0);
        for (int pass = 0; pass < 2; pass++) { /* written, and added to */
            ls_tape_reset(t);
            ls_tensor *y = net(t, x);
            if (!y) fail_msg("%s", ls_last_error());
            loss[i] = *(float *)y->data;
            assert_int_equal(ls_backward(t, y), LS_OK);
        }
        for (int k = 0; k < 3 && i == 0; k++) memcpy(want[k], l[k]->slope, ls_tensor_nbytes(&l[k]->t));
        for (int k = 0; k < 3; k++) assert_memory_equal(want[k], l[k]->slope, ls_tensor_nbytes(&l[k]->t));
        if (i == 1) {
            assert_true(count.forward == 2 * 20 && count.weight == 2 && count.input > 2 * 19);
            assert_refused(t, ls_tape_apply(t, &power_op, &x, 1, &(power){ 2 }), LS_UNSUPPORTED,
                           "power: device checked has no kernel for it");
            assert_int_equal(count.unknown, 1);
        }
        ls_tape_destroy(t);
        assert_int_equal(count.bytes, 0);
    }
    assert_true(loss[0] == loss[1]);
}

/* Of an arena: what is taken stays. */
static ls_status kept_alloc(const ls_device *d, size_t nbytes, void **out)
{
    *(size_t *)d->state += nbytes;
    *out = aligned_alloc(64, nbytes);
    return *out ? LS_OK : ls_fail(LS_NO_MEMORY, "kept: %zu bytes", nbytes);
}

static void kept_release(const ls_device *d, void *at, size_t nbytes)
{
    (void)d, (void)nbytes;
    free(at);
}

/* A tape that ranks share (src/train/parallelize.c) takes what was planned for it and not a byte more, though each op's
 * first runs are proved. */
static void a_proof_takes_no_memory_of_a_tape_that_ranks_share(void **state)
{
    (void)state;
    const size_t planned = 1 << 20;
    size_t taken = 0;
    ls_device shared = ls_device_cpu;
    shared.state = &taken, shared.alloc = kept_alloc, shared.release = kept_release;
    ls_tape *t;
    assert_int_equal(ls_tape_create_on(&shared, planned, NULL, NULL, &t), LS_OK);
    dice = 5;
    ls_tensor *x = fill(&p.x, 1.0f, 2, 4, 6, 0);
    for (int pass = 0; pass < 2; pass++) {
        ls_tape_reset(t);
        ls_tensor *y = ls_mean(t, ls_mul(t, ls_tanh(t, x), x), LS_ALL_DIMS);
        if (!y) fail_msg("%s", ls_last_error());
        assert_int_equal(ls_backward(t, y), LS_OK);
        assert_int_equal(taken, planned);
    }
    ls_tape_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_op_of_one_s_own_is_played_like_the_library_s),
        cmocka_unit_test(saved_and_scratch_memory_attributes_and_recompute_work_together),
        cmocka_unit_test(an_op_that_is_wrong_is_named_with_what_is_wrong_about_it),
        cmocka_unit_test(a_gradient_that_is_too_long_is_found_before_it_harms_the_next),
        cmocka_unit_test(a_gradient_that_no_kernel_makes_is_refused_with_the_parameter_s_name),
        cmocka_unit_test(a_second_device_gives_the_same_bits_behind_guard_pages),
        cmocka_unit_test(a_proof_takes_no_memory_of_a_tape_that_ranks_share),
    };
    return cmocka_run_group_tests_name("apply", tests, NULL, NULL);
}
