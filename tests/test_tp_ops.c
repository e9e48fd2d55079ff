/* The ends of a layer that ranks divide (place.h), in float and bfloat16, against what they mean: results, gradients
 * that are written and then added to, and lengths that cannot be divided (R113, R132). Numbers are small integers, so
 * sums are exact. */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep/group.h"
#include "lockstep/place.h"
#include "lockstep/world.h"
#include "tensor/element.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
enum { B = 2, T = 6, C = 3, ALL = B * T * C };

typedef enum end { ENTER, LEAVE, SAME, SUM_GRADIENT } end;

typedef struct problem {
    end what;
    bool sp, bf16;
} problem;

/* Element i of a rank's input, or of the gradient that comes to it. */
static float x_of(int rank, int i) { return (float)((i * 5 + rank * 3) % 7 - 3); }
static float dy_of(int rank, int i) { return 2.0f * (float)((i * 3 + rank * 5) % 8 - 4); }

/* Which rank has element i of [B, T, C] where ranks divide T, and as which of its own. */
static int part_of(int i, int size, int *mine)
{
    const int b = i / (T * C), t = i / C % T, c = i % C, each = T / size;
    *mine = (b * each + t % each) * C + c;
    return t / each;
}

typedef float (*values)(int rank, int i);

/* Sum over the ranks of their whole vectors; element i of the whole that they have parts of. */
static float summed(values v, int size, int i)
{
    float sum = 0.0f;
    for (int r = 0; r < size; r++) sum += v(r, i);
    return sum;
}

static float gathered(values v, int size, int i)
{
    int mine;
    const int owner = part_of(i, size, &mine);
    return v(owner, mine);
}

/* The element of the whole that is a rank's own i-th. */
static int whole_of(int rank, int size, int i)
{
    const int each = T / size, b = i / (each * C), t = i / C % each, c = i % C;
    return (b * T + rank * each + t) * C + c;
}

static ls_tensor *apply(ls_tape *t, ls_tensor *x, end what, const ls_place *p)
{
    switch (what) {
    case ENTER: return ls_tp_enter(t, x, p);
    case LEAVE: return ls_tp_leave(t, x, p);
    case SAME: return ls_tp_same(t, x, p);
    default: return ls_tp_sum_gradient(t, x, p);
    }
}

static float want_y(const problem *p, int rank, int size, int i)
{
    if (p->what == ENTER && p->sp) return gathered(x_of, size, i);
    if (p->what == LEAVE) return summed(x_of, size, p->sp ? whole_of(rank, size, i) : i);
    return x_of(rank, i);
}

static float want_dx(const problem *p, int rank, int size, int i)
{
    if (p->what == ENTER) return summed(dy_of, size, p->sp ? whole_of(rank, size, i) : i);
    if (p->what == SUM_GRADIENT) return summed(dy_of, size, i);
    if (p->what == LEAVE) return p->sp ? gathered(dy_of, size, i) : dy_of(rank, i);
    return dy_of(rank, i) / (p->sp ? (float)size : 1.0f);
}

static ls_status take(const ls_device *d, size_t n, void **out) { return ls_alloc(d->state, n, LS_MEM_ACT, out); }
static void leave(const ls_device *d, void *p, size_t n) { (void)d, (void)p, (void)n; }

static ls_status compare(const char *what, const problem *p, const void *got, float want, int i)
{
    const float had = ls_get(got, i, p->bf16);
    if (had == want) return LS_OK;
    return ls_fail(LS_INTERNAL, "end %d%s%s: %s[%d] is %g, expected %g", (int)p->what, p->sp ? ", sp" : "",
                   p->bf16 ? ", bf16" : "", what, i, (double)had, (double)want);
}

/* Twice: the second time gradients are added to those of the first. */
static ls_status once_and_again(ls_tape *t, ls_tensor *x, void *dy, const problem *p, const ls_place *at)
{
    const int size = at->tp.size, rank = at->tp.rank, n = (int)ls_tensor_count(x);
    for (int k = 1; k <= 2; k++) {
        ls_tape_reset(t);
        ls_tensor *y = apply(t, x, p->what, at);
        if (!y) return ls_tape_status(t);
        if (y == x) return LS_OK; /* nothing is divided */
        for (int i = 0; i < (int)ls_tensor_count(y); i++) {
            LS_TRY(compare("y", p, y->data, want_y(p, rank, size, i), i));
            ls_put(dy, i, dy_of(rank, i), p->bf16);
        }
        LS_TRY(ls_backward_from(t, y, dy));
        for (int i = 0; i < n; i++) {
            LS_TRY(compare("dx", p, x->grad->data, (float)k * want_dx(p, rank, size, i), i));
            if (p->what == LEAVE && !p->sp) continue; /* the sum took x's place */
            LS_TRY(compare("x", p, x->data, x_of(rank, i), i));
        }
        for (int i = 0; i < n; i++) ls_put(x->data, i, x_of(rank, i), p->bf16);
        LS_TRY(ls_barrier(at->tp.ranks));
    }
    return LS_OK;
}

static ls_status on_rank(ls_world *w, void *arg)
{
    const problem *p = arg;
    const int size = ls_world_size(w), rank = ls_world_rank(w);
    const ls_place at = { .tp = { ls_world_group(w), size, rank }, .sequence_parallel = p->sp };
    const bool part = p->what == ENTER && p->sp;
    ls_device device = ls_device_cpu;
    ls_tape *t;
    void *room;
    device.state = w, device.alloc = take, device.release = leave;
    LS_TRY(ls_alloc(w, sizeof(float) * 3 * ALL, LS_MEM_ACT, &room));
    ls_tensor grad = { .dtype = p->bf16 ? LS_BF16 : LS_F32, .ndim = 3, .dim = { B, part ? T / size : T, C },
                       .data = (float *)room + ALL };
    ls_tensor x = grad;
    x.data = room;
    x.grad = &grad;
    for (int i = 0; i < (int)ls_tensor_count(&x); i++) ls_put(x.data, i, x_of(rank, i), p->bf16);
    LS_TRY(ls_tape_create_on(&device, 1 << 16, NULL, NULL, &t));
    ls_status st = ls_tape_set_dtype(t, x.dtype);
    if (st == LS_OK) st = once_and_again(t, &x, (float *)room + 2 * ALL, p, &at);
    ls_tape_destroy(t);
    return st;
}

static void ends_do_what_they_mean(void **state)
{
    (void)state;
    for (end what = ENTER; what <= SUM_GRADIENT; what++)
        for (unsigned bits = 0; bits < 4; bits++)
            for (int ranks = 2; ranks <= 3; ranks++) {
                problem p = { .what = what, .sp = bits & 1, .bf16 = bits & 2 };
                if (what == SAME && ranks == 3) continue; /* thirds are not exact */
                if (ls_world_threads(ranks, NULL, on_rank, &p) < 0) fail_msg("%d ranks: %s", ranks, ls_last_error());
            }
}

static void lengths_that_ranks_cannot_divide_are_named(void **state)
{
    (void)state;
    const ls_place four = { .tp = { .size = 4 }, .sequence_parallel = true };
    ls_tensor x = { .dtype = LS_F32, .ndim = 3, .dim = { B, T, C } };
    ls_tape *t;
    assert_int_equal(ls_tape_create_dry(&t), LS_OK);
    assert_null(ls_tp_leave(t, &x, &four));
    assert_int_equal(ls_tape_status(t), LS_SHAPE);
    assert_non_null(strstr(ls_last_error(), "a sequence of 6 tokens cannot be divided among 4 ranks"));
    ls_tape_reset(t);
    x.ndim = 2;
    assert_null(ls_tp_enter(t, &x, &four));
    assert_non_null(strstr(ls_last_error(), "expected [B, T, C]"));
    ls_tape_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_do_what_they_mean),
        cmocka_unit_test(lengths_that_ranks_cannot_divide_are_named),
    };
    return cmocka_run_group_tests_name("ends of divided layers", tests, NULL, NULL);
}
