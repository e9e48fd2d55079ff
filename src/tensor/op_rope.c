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
#include "tensor/element.h"
#include "tensor/share.h"
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

/* The n pairs of each of H heads that begin at element `at`. */
static LS_ALWAYS_INLINE void heads_loop(const turn *a, const ls_rope_call *r, int64_t at, bool bf16)
{
    void *const y = r->y;
    const void *const x = r->x;
    const float *const c = a->c, *const s = a->s;
    const int64_t D = r->D, half = D / 2;
    for (int64_t h = 0; h < r->H; h++, at += D) {
        if (r->add)
            LS_INDEPENDENT
            for (int i = 0; i < a->n; i++) {
                const float low = ls_get(x, at + i, bf16), high = ls_get(x, at + half + i, bf16);
                ls_put(y, at + i, ls_get(y, at + i, bf16) + (low * c[i] - high * s[i]), bf16);
                ls_put(y, at + half + i, ls_get(y, at + half + i, bf16) + (high * c[i] + low * s[i]), bf16);
            }
        else
            LS_INDEPENDENT
            for (int i = 0; i < a->n; i++) {
                const float low = ls_get(x, at + i, bf16), high = ls_get(x, at + half + i, bf16);
                ls_put(y, at + i, low * c[i] - high * s[i], bf16);
                ls_put(y, at + half + i, high * c[i] + low * s[i], bf16);
            }
    }
}

LS_KERNEL static void turn_heads(const turn *a, const ls_rope_call *r, int64_t at)
{
    LS_BY_DTYPE(r->dtype, heads_loop, a, r, at);
}

/* Work is counted in stretches of AFRESH positions of one sequence, those of all B sequences together: their angles are
 * made once. */
static void turn_stretches(const void *call, int64_t first, int64_t count)
{
    const ls_rope_call *r = call;
    turn a;
    for (int64_t pair = 0; pair < r->D / 2; pair += PAIRS) {
        a.n = (int)(r->D / 2 - pair < PAIRS ? r->D / 2 - pair : PAIRS);
        for (int64_t at = first, next; at < first + count; at = next) {
            const int64_t stretch = at / r->B, b0 = at % r->B, t0 = stretch * AFRESH;
            const int64_t b1 = first + count - at < r->B - b0 ? b0 + (first + count - at) : r->B;
            next = at + (b1 - b0);
            for (int64_t t = t0; t < r->count && t < t0 + AFRESH; t++) {
                if (t == t0) turn_to(&a, r, pair, t);
                else turn_on(&a);
                for (int i = 0; i < a.n; i++) {
                    a.c[i] = (float)a.cos[i];
                    a.s[i] = (float)a.sin[i];
                }
                for (int64_t b = b0; b < b1; b++) turn_heads(&a, r, (b * r->T + r->from + t) * r->H * r->D + pair);
            }
        }
    }
}

void ls_rope_turn(const ls_rope_call *c)
{
    ls_rope_call all = *c;
    if (all.count == 0) all.count = all.T;
    const ls_rope_call *r = &all;
    const int64_t stretches = (r->count + AFRESH - 1) / AFRESH * r->B;
    const int64_t bytes = 2 * r->B * r->count * r->H * r->D * (int64_t)ls_dtype_size(r->dtype);
    ls_parallel_for(turn_stretches, r, stretches, 1, bytes);
}

typedef struct kept {
    ls_rope_call call;
    ls_places tokens;
} kept;

static void turn_runs(ls_rope_call *r, const ls_places *s)
{
    r->from = 0;
    for (int k = 0; k < s->n; r->from += s->count[k++]) {
        r->count = s->count[k];
        r->first_position = s->first[k];
        ls_rope_turn(r);
    }
}

static ls_status backward_input(ls_tape *t, struct ls_node *n)
{
    bool add;
    void *dx;
    LS_TRY(ls_grad_begin_in_place(t, n, n->in[0], &add, &dx));
    if (!ls_tape_dry(t)) {
        const kept *k = n->saved;
        ls_rope_call r = k->call;
        r.inverse = true;
        r.add = add;
        r.x = n->out->grad->data;
        r.y = dx;
        turn_runs(&r, &k->tokens);
    }
    return ls_grad_end(t, n->in[0]);
}

static const ls_tape_op rope = { .name = "rope", .napplied = 1, .backward_input = backward_input };

static ls_status check(const ls_tape *t, const ls_tensor *x, double theta, const ls_places *s)
{
    char shape[96];
    int64_t T = 0, first_position = 0;
    for (int k = 0; k < s->n; k++) {
        T += s->count[k];
        if (s->first[k] < 0) first_position = s->first[k];
    }
    if (x->ndim != 4 || x->dim[3] % 2 != 0)
        return ls_fail(LS_SHAPE, "rope: input %s: expected [B, T, H, D] with an even D",
                       ls_tensor_shape(x, shape, sizeof shape));
    LS_TRY(ls_op_check_activation(t, "rope", "input", x));
    if (!(theta > 0.0) || isinf(theta) || first_position < 0)
        return ls_fail(LS_INVALID, "rope: theta %g, first position %lld: expected more than 0, and at least 0", theta,
                       (long long)first_position);
    if (T == x->dim[1]) return LS_OK;
    return ls_fail(LS_SHAPE, "rope: input %s, and places of %lld tokens", ls_tensor_shape(x, shape, sizeof shape), (long long)T);
}

ls_tensor *ls_rope(ls_tape *t, ls_tensor *x, double theta, int64_t first_position)
{
    const int64_t T = x && x->ndim == 4 ? x->dim[1] : 0;
    return ls_rope_at(t, x, theta, &(ls_places){ .of = T, .n = 1, .first = { first_position }, .count = { T } });
}

ls_tensor *ls_rope_at(ls_tape *t, ls_tensor *x, double theta, const ls_places *tokens)
{
    if (!ls_op_begin(t, rope.name, x != NULL)) return NULL;
    const ls_status st = check(t, x, theta, tokens);
    if (st < 0) return ls_op_fail(t, st);
    ls_tensor *y = ls_op_output(t, x->dtype, 4, x->dim);
    kept *k = y ? ls_op_alloc(t, sizeof *k) : NULL;
    if (ls_tape_status(t) < 0) return NULL;
    if (!ls_tape_dry(t)) {
        *k = (kept){ .tokens = *tokens,
                     .call = { .B = x->dim[0], .T = x->dim[1], .H = x->dim[2], .D = x->dim[3], .theta = theta,
                               .dtype = x->dtype, .x = x->data, .y = y->data } };
        turn_runs(&k->call, tokens);
    }
    const double flops = FLOPS * (double)ls_tensor_count(x);
    return ls_op_end(t, y, &(struct ls_node){
        .op = &rope, .in = { x }, .saved = k, .flops = flops, .flops_input = flops,
        .label_a = (uint32_t)x->dim[1], .label_b = (uint32_t)x->dim[3],
    });
}
