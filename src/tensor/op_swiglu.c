/* op_swiglu.c -- y = silu(gate) up, equal shapes: the middle of Llama's feed-forward layer. Shazeer 2020.
 *
 * With s = 1 / (1 + e^-gate), silu(gate) = gate s:
 *
 * forward          y     = gate s up                        about 17 flops and 12 bytes an element
 * backward, input  dgate = dy up s (1 + gate (1 - s))       about 23 flops and 20 bytes
 *                  dup   = dy gate s
 */
#include "base/compiler.h"
#include "tensor/tape.h"
#include "tensor/vecmath.h"

#define FLOPS_FORWARD 17.0
#define FLOPS_BACKWARD 23.0
#define CHUNK 1024 /* elements that pass through scratch at once where a gradient is added to */

LS_KERNEL_CHOOSING static void forward(float *restrict y, const float *gate, const float *up, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = gate[i] * ls_sigmoidf(gate[i]) * up[i];
}

/* dy may be dgate or dup. */
LS_KERNEL_CHOOSING static void slopes(float *dgate, float *dup, const float *dy, const float *gate, const float *up,
                                      int64_t n)
{
    LS_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        const float d = dy[i], g = gate[i], u = up[i], s = ls_sigmoidf(g);
        dgate[i] = d * u * (s * (1.0f + g * (1.0f - s)));
        dup[i] = d * (g * s);
    }
}

static void backward(float *const out[2], const bool add[2], const float *dy, const float *gate, const float *up,
                     int64_t n)
{
    float scratch[2][CHUNK];
    for (int64_t i = 0; i < n; i += CHUNK) {
        const int64_t m = n - i < CHUNK ? n - i : CHUNK;
        float *to[2];
        for (int k = 0; k < 2; k++) to[k] = out[k] && !add[k] ? out[k] + i : scratch[k];
        slopes(to[0], to[1], dy + i, gate + i, up + i, m);
        for (int k = 0; k < 2; k++)
            if (out[k] && add[k]) ls_grad_add(LS_F32, out[k] + i, scratch[k], m);
    }
}

static ls_status backward_input(ls_tape *t, struct ls_node *n)
{
    ls_tensor *const *x = n->in; /* gate, up */
    bool add[2] = { false, false };
    float *out[2] = { NULL, NULL };
    for (int k = 0; k < 2; k++) {
        if (k == 1 && x[1] == x[0]) { /* the second contribution to the same gradient */
            out[1] = out[0];
            add[1] = true;
        } else if (ls_grad_wanted(x[k])) {
            void *to;
            LS_TRY(ls_grad_begin_in_place(t, n, x[k], &add[k], &to));
            out[k] = to;
        }
    }
    if (!ls_tape_dry(t)) backward(out, add, n->out->grad->data, x[0]->data, x[1]->data, ls_tensor_count(x[0]));
    for (int k = 0; k < 2; k++)
        if (ls_grad_wanted(x[k])) LS_TRY(ls_grad_end(t, x[k]));
    return LS_OK;
}

static ls_status again(ls_tape *t, struct ls_node *n)
{
    (void)t;
    forward(n->out->data, n->in[0]->data, n->in[1]->data, ls_tensor_count(n->out));
    return LS_OK;
}

static const ls_op swiglu = { .name = "swiglu", .napplied = 2, .backward_input = backward_input, .again = again };

static ls_status check(const ls_tape *t, const ls_tensor *gate, const ls_tensor *up)
{
    char gs[96], us[96];
    if (!ls_tensor_same_shape(gate, up))
        return ls_fail(LS_SHAPE, "swiglu: gate %s and up %s: expected equal shapes",
                       ls_tensor_shape(gate, gs, sizeof gs), ls_tensor_shape(up, us, sizeof us));
    LS_TRY(ls_op_check(t, "swiglu", "gate", gate));
    return ls_op_check(t, "swiglu", "up", up);
}

ls_tensor *ls_swiglu(ls_tape *t, ls_tensor *gate, ls_tensor *up)
{
    if (!ls_op_begin(t, swiglu.name, gate && up)) return NULL;
    const ls_status st = check(t, gate, up);
    if (st < 0) return ls_op_fail(t, st);
    ls_tensor *y = ls_op_output_again(t, LS_F32, gate->ndim, gate->dim);
    if (!y) return NULL;
    const int64_t n = ls_tensor_count(gate);
    if (!ls_tape_dry(t)) forward(y->data, gate->data, up->data, n);
    return ls_op_end(t, y, &(struct ls_node){
        .op = &swiglu, .in = { gate, up }, .flops = FLOPS_FORWARD * (double)n,
        .flops_input = FLOPS_BACKWARD * (double)n, .label_a = (uint32_t)n,
    });
}
