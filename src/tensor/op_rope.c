/* op_rope.c -- rotary positions (Su et al. 2021), in Llama's form.
 *
 *   x, y  [B, T, H, D], D even; a pair is (x[i], x[i + D/2]), i < D/2
 *
 * With the angle a = theta^(-2i/D) (first_position + t):
 *
 *   y[i]       = x[i] cos a - x[i + D/2] sin a
 *   y[i + D/2] = x[i + D/2] cos a + x[i] sin a
 *
 * forward          the rotation      3 flops an element
 * backward, input  its inverse       3 flops an element
 *
 * Angles, cosines and sines are made in double. From a position to the next
 * they are turned by one step, and every 64 positions made afresh: an error of
 * at most 64 roundings of a double.
 */
#include <math.h>

#include "base/compiler.h"
#include "tensor/attention.h"
#include "tensor/tape.h"

#define PAIRS 64 /* of a head at a time */
#define AFRESH 64
#define FLOPS 3.0

/* Cosines and sines of n pairs at one position. */
typedef struct turn {
    double step_cos[PAIRS], step_sin[PAIRS], cos[PAIRS], sin[PAIRS];
    float c[PAIRS], s[PAIRS];
    int n;
} turn;

static void turn_to(turn *a, const ls_rope_call *r, int64_t first_pair, int64_t t)
{
    const double way = r->inverse ? -1.0 : 1.0;
    for (int i = 0; i < a->n; i++) {
        const double speed = way * pow(r->theta, -2.0 * (double)(first_pair + i) / (double)r->D);
        const double angle = speed * (double)(r->first_position + t);
        a->step_cos[i] = cos(speed);
        a->step_sin[i] = sin(speed);
        a->cos[i] = cos(angle);
        a->sin[i] = sin(angle);
    }
}

LS_KERNEL static void turn_on(turn *a)
{
    for (int i = 0; i < a->n; i++) {
        const double c = a->cos[i], s = a->sin[i];
        a->cos[i] = c * a->step_cos[i] - s * a->step_sin[i];
        a->sin[i] = s * a->step_cos[i] + c * a->step_sin[i];
    }
}

/* The n pairs (low[i], high[i]) of each of H heads. */
LS_KERNEL static void write_heads(const turn *restrict a, float *restrict y, const float *restrict x, int64_t H,
                                  int64_t D)
{
    for (int64_t h = 0; h < H; h++, x += D, y += D)
        for (int i = 0; i < a->n; i++) {
            const float low = x[i], high = x[i + D / 2];
            y[i] = low * a->c[i] - high * a->s[i];
            y[i + D / 2] = high * a->c[i] + low * a->s[i];
        }
}

LS_KERNEL static void add_heads(const turn *restrict a, float *restrict y, const float *restrict x, int64_t H,
                                int64_t D)
{
    for (int64_t h = 0; h < H; h++, x += D, y += D)
        for (int i = 0; i < a->n; i++) {
            const float low = x[i], high = x[i + D / 2];
            y[i] += low * a->c[i] - high * a->s[i];
            y[i + D / 2] += high * a->c[i] + low * a->s[i];
        }
}

LS_KERNEL static void turn_heads(const turn *restrict a, float *x, int64_t H, int64_t D)
{
    for (int64_t h = 0; h < H; h++) {
        float *restrict low = x + h * D, *restrict high = x + h * D + D / 2;
        for (int i = 0; i < a->n; i++) {
            const float l = low[i], g = high[i];
            low[i] = l * a->c[i] - g * a->s[i];
            high[i] = g * a->c[i] + l * a->s[i];
        }
    }
}

void ls_rope_turn(const ls_rope_call *r)
{
    turn a;
    for (int64_t first = 0; first < r->D / 2; first += PAIRS) {
        a.n = (int)(r->D / 2 - first < PAIRS ? r->D / 2 - first : PAIRS);
        for (int64_t t = 0; t < r->T; t++) {
            if (t % AFRESH == 0) turn_to(&a, r, first, t);
            else turn_on(&a);
            for (int i = 0; i < a.n; i++) {
                a.c[i] = (float)a.cos[i];
                a.s[i] = (float)a.sin[i];
            }
            for (int64_t b = 0; b < r->B; b++) {
                const int64_t at = (b * r->T + t) * r->H * r->D + first;
                if (r->add) add_heads(&a, r->y + at, r->x + at, r->H, r->D);
                else if (r->x == r->y) turn_heads(&a, r->y + at, r->H, r->D);
                else write_heads(&a, r->y + at, r->x + at, r->H, r->D);
            }
        }
    }
}

static ls_status backward_input(ls_tape *t, struct ls_node *n)
{
    bool add;
    void *dx;
    LS_TRY(ls_grad_begin_in_place(t, n, n->in[0], &add, &dx));
    if (!ls_tape_dry(t)) {
        ls_rope_call r = *(const ls_rope_call *)n->saved;
        r.inverse = true;
        r.add = add;
        r.x = n->out->grad->data;
        r.y = dx;
        ls_rope_turn(&r);
    }
    return ls_grad_end(t, n->in[0]);
}

static const ls_op rope = { .name = "rope", .napplied = 1, .backward_input = backward_input };

static ls_status check(const ls_tensor *x, double theta, int64_t first_position)
{
    char shape[96];
    if (x->ndim != 4 || x->dim[3] % 2 != 0)
        return ls_fail(LS_SHAPE, "rope: input %s: expected [B, T, H, D] with an even D",
                       ls_tensor_shape(x, shape, sizeof shape));
    if (x->dtype != LS_F32)
        return ls_fail(LS_UNSUPPORTED, "rope: input is %s; only float is supported", ls_dtype_name(x->dtype));
    if (!(theta > 0.0) || isinf(theta) || first_position < 0)
        return ls_fail(LS_INVALID, "rope: theta %g, first position %lld: expected more than 0, and at least 0", theta,
                       (long long)first_position);
    return LS_OK;
}

ls_tensor *ls_rope(ls_tape *t, ls_tensor *x, double theta, int64_t first_position)
{
    if (!ls_op_begin(t, rope.name, x != NULL)) return NULL;
    const ls_status st = check(x, theta, first_position);
    if (st < 0) return ls_op_fail(t, st);
    ls_tensor *y = ls_op_output(t, LS_F32, 4, x->dim);
    ls_rope_call *saved = y ? ls_op_alloc(t, sizeof *saved) : NULL;
    if (ls_tape_status(t) < 0) return NULL;
    if (!ls_tape_dry(t)) {
        *saved = (ls_rope_call){
            .B = x->dim[0], .T = x->dim[1], .H = x->dim[2], .D = x->dim[3],
            .first_position = first_position, .theta = theta, .x = x->data, .y = y->data,
        };
        ls_rope_turn(saved);
    }
    const double flops = FLOPS * (double)ls_tensor_count(x);
    return ls_op_end(t, y, &(struct ls_node){
        .op = &rope, .in = { x }, .saved = saved, .flops = flops, .flops_input = flops,
        .label_a = (uint32_t)x->dim[1], .label_b = (uint32_t)x->dim[3],
    });
}
