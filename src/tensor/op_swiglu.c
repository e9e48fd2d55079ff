/* op_swiglu.c -- y = silu(gate) up, equal shapes: the middle of Llama's feed-forward layer. Shazeer 2020.
 *
 * With s = 1 / (1 + e^-gate), silu(gate) = gate s:
 *
 * forward          y     = gate s up                        about 17 flops, 2 loads, a store an element
 * backward, input  dgate = dy up s (1 + gate (1 - s))       about 23 flops, 3 loads, 2 stores
 *                  dup   = dy gate s
 */
#include "base/compiler.h"
#include "tensor/ahead.h"
#include "tensor/element.h"
#include "tensor/share.h"
#include "tensor/tape.h"
#include "tensor/vecmath.h"

#define FLOPS_FORWARD 17.0
#define FLOPS_BACKWARD 23.0
#define AHEAD 512  /* elements */
#define CHUNK 1024 /* elements that pass through scratch at once where a gradient is added to */

typedef struct glu {
    ls_dtype dtype;
    const void *gate, *up, *dy;
    void *y;
    void *slope[2]; /* dgate, dup: either may be dy, or missing */
    bool add[2];
    bool same;      /* gate is up: slope[0] gets both */
} glu;

static LS_ALWAYS_INLINE void forward_some(const glu *g, int64_t first, int64_t end, bool bf16)
{
    void *const y = g->y;
    const void *const gate = g->gate, *const up = g->up;
    LS_INDEPENDENT
    for (int64_t i = first; i < end; i++) {
        const float v = ls_get(gate, i, bf16);
        ls_put(y, i, v * ls_sigmoidf(v) * ls_get(up, i, bf16), bf16);
    }
}

static LS_ALWAYS_INLINE void forward_loop(const glu *g, int64_t first, int64_t end, bool bf16)
{
    int64_t i = first;
    for (; i + AHEAD + LS_STRIP <= end; i += LS_STRIP) {
        ls_ask_strip(g->gate, i + AHEAD, bf16, false);
        ls_ask_strip(g->up, i + AHEAD, bf16, false);
        ls_ask_strip(g->y, i + AHEAD, bf16, true);
        forward_some(g, i, i + LS_STRIP, bf16);
    }
    forward_some(g, i, end, bf16);
}

LS_KERNEL_CHOOSING static void forward(const void *call, int64_t first, int64_t count)
{
    const glu *g = call;
    LS_BY_DTYPE(g->dtype, forward_loop, g, first, first + count);
}

/* Element i of dgate and dup. */
static LS_ALWAYS_INLINE void slopes(const glu *g, int64_t i, bool bf16, float *dgate, float *dup)
{
    const float d = ls_get(g->dy, i, bf16), v = ls_get(g->gate, i, bf16), u = ls_get(g->up, i, bf16);
    const float s = ls_sigmoidf(v);
    *dgate = d * u * (s * (1.0f + v * (1.0f - s)));
    *dup = d * (v * s);
}

static LS_ALWAYS_INLINE void write_some(const glu *whole, int64_t first, int64_t end, bool bf16)
{
    const glu g = *whole;
    LS_INDEPENDENT
    for (int64_t i = first; i < end; i++) {
        float dgate, dup;
        slopes(&g, i, bf16, &dgate, &dup);
        ls_put(g.slope[0], i, dgate, bf16);
        ls_put(g.slope[1], i, dup, bf16);
    }
}

static LS_ALWAYS_INLINE void write_loop(const glu *g, int64_t first, int64_t end, bool bf16)
{
    int64_t i = first;
    for (; i + AHEAD + LS_STRIP <= end; i += LS_STRIP) {
        const void *const stream[] = { g->dy, g->gate, g->up, g->slope[0], g->slope[1] };
        for (int k = 0; k < 5; k++)
            if (k < 3 || stream[k] != g->dy) /* a gradient may be written over dy */
                ls_ask_strip(stream[k], i + AHEAD, bf16, k > 2);
        write_some(g, i, i + LS_STRIP, bf16);
    }
    write_some(g, i, end, bf16);
}

/* Where one is added to, or missing, or both are one: all of a chunk first, in float. */
static LS_ALWAYS_INLINE void add_loop(const glu *whole, int64_t first, int64_t end, bool bf16)
{
    const glu g = *whole;
    float slope[2][CHUNK];
    for (int64_t at = first, n; at < end; at += n) {
        n = end - at < CHUNK ? end - at : CHUNK;
        LS_INDEPENDENT
        for (int64_t i = 0; i < n; i++) slopes(&g, at + i, bf16, &slope[0][i], &slope[1][i]);
        for (int64_t i = 0; i < n && g.same; i++) slope[0][i] += slope[1][i];
        for (int k = 0; k < 2; k++) {
            void *const to = g.slope[k];
            const float *const from = slope[k];
            if (!to) continue;
            if (g.add[k])
                LS_INDEPENDENT
                for (int64_t i = 0; i < n; i++) ls_put(to, at + i, ls_get(to, at + i, bf16) + from[i], bf16);
            else
                LS_INDEPENDENT
                for (int64_t i = 0; i < n; i++) ls_put(to, at + i, from[i], bf16);
        }
    }
}

LS_KERNEL_CHOOSING static void backward(const void *call, int64_t first, int64_t count)
{
    const glu *g = call;
    if (g->slope[0] && g->slope[1] && !g->add[0] && !g->add[1])
        LS_BY_DTYPE(g->dtype, write_loop, g, first, first + count);
    else
        LS_BY_DTYPE(g->dtype, add_loop, g, first, first + count);
}

static void run_forward(const ls_tensor *gate, const ls_tensor *up, ls_tensor *y)
{
    ls_parallel_for(forward, &(glu){ .dtype = y->dtype, .gate = gate->data, .up = up->data, .y = y->data },
             ls_tensor_count(y), LS_SHARE_LINE, 3 * (int64_t)ls_tensor_nbytes(y));
}

static ls_status again(ls_tape *t, struct ls_node *n)
{
    if (!ls_tape_dry(t)) run_forward(n->in[0], n->in[1], n->out);
    return LS_OK;
}

static ls_status backward_input(ls_tape *t, struct ls_node *n)
{
    ls_tensor *const *x = n->in; /* gate, up */
    glu g = { .dtype = x[0]->dtype, .gate = x[0]->data, .up = x[1]->data, .same = x[1] == x[0] };
    for (int k = 0; k < 2; k++) {
        if (ls_grad_wanted(x[k]) && !(k == 1 && g.same))
            LS_TRY(ls_grad_begin_in_place(t, n, x[k], &g.add[k], &g.slope[k]));
    }
    g.dy = n->out->grad->data;
    if (!ls_tape_dry(t))
        ls_parallel_for(backward, &g, ls_tensor_count(x[0]), LS_SHARE_LINE, 5 * (int64_t)ls_tensor_nbytes(x[0]));
    for (int k = 0; k < 2; k++)
        if (ls_grad_wanted(x[k])) LS_TRY(ls_grad_end(t, x[k]));
    return LS_OK;
}

static const ls_tape_op swiglu = { .name = "swiglu", .napplied = 2, .backward_input = backward_input, .again = again };

static ls_status check(const ls_tape *t, const ls_tensor *gate, const ls_tensor *up)
{
    char gs[96], us[96];
    if (!ls_tensor_same_shape(gate, up))
        return ls_fail(LS_SHAPE, "swiglu: gate %s and up %s: expected equal shapes",
                       ls_tensor_shape(gate, gs, sizeof gs), ls_tensor_shape(up, us, sizeof us));
    LS_TRY(ls_op_check_activation(t, "swiglu", "gate", gate));
    LS_TRY(ls_op_check_activation(t, "swiglu", "up", up));
    return ls_op_check_alike("swiglu", gate, up);
}

ls_tensor *ls_swiglu(ls_tape *t, ls_tensor *gate, ls_tensor *up)
{
    if (!ls_op_begin(t, swiglu.name, gate && up)) return NULL;
    const ls_status st = check(t, gate, up);
    if (st < 0) return ls_op_fail(t, st);
    ls_tensor *y = ls_op_output_again(t, gate->dtype, gate->ndim, gate->dim);
    if (!y) return NULL;
    const int64_t n = ls_tensor_count(gate);
    if (!ls_tape_dry(t)) run_forward(gate, up, y);
    return ls_op_end(t, y, &(struct ls_node){
        .op = &swiglu, .in = { gate, up }, .flops = FLOPS_FORWARD * (double)n,
        .flops_input = FLOPS_BACKWARD * (double)n, .label_a = (uint32_t)n,
    });
}
