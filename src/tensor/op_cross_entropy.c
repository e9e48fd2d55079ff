/* op_cross_entropy.c -- softmax and negative log likelihood in one op.
 *
 *   logits  [N, C]    label [N] (I64, in [0, C))
 *   loss    []        mean over n of log(sum_c e^logits[n, c]) - logits[n, label[n]]
 *
 * The largest logit of a row is subtracted first, so nothing overflows. Sums
 * over c and over n are in double, in ascending order.
 *
 * forward          p = e^(logits - max) / sum, kept    about 15 flops an element
 * backward, input  dlogits = (p - [c = label]) g / N   2 flops an element
 */
#include <math.h>

#include "base/compiler.h"
#include "tensor/tape.h"
#include "tensor/vecmath.h"

#define FLOPS_FORWARD 15.0
#define FLOPS_BACKWARD 2.0

/* p = logits - largest of the row, picked[n] = p[n, label[n]]; returns how many
 * rows have their (first) largest logit at the label. */
static int64_t subtract_largest(float *restrict p, float *restrict picked, const float *restrict logits,
                                const int64_t *restrict label, int64_t N, int64_t C)
{
    int64_t correct = 0;
    for (int64_t n = 0; n < N; n++) {
        const float *x = logits + n * C;
        int64_t best = 0;
        for (int64_t c = 1; c < C; c++) best = x[c] > x[best] ? c : best;
        for (int64_t c = 0; c < C; c++) p[n * C + c] = x[c] - x[best];
        picked[n] = x[label[n]] - x[best];
        correct += best == label[n];
    }
    return correct;
}

/* All rows at once: a row of 10 would leave most of a vector empty. */
LS_KERNEL_CHOOSING static void exponentials(float *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++) p[i] = ls_expf(p[i]);
}

/* Divides each row by its sum; returns the sum of the losses. */
static double normalise(float *restrict p, const float *restrict picked, int64_t N, int64_t C)
{
    double loss = 0.0;
    for (int64_t n = 0; n < N; n++) {
        float *row = p + n * C;
        double sum = 0.0;
        for (int64_t c = 0; c < C; c++) sum += (double)row[c];
        const float scale = (float)(1.0 / sum);
        for (int64_t c = 0; c < C; c++) row[c] *= scale;
        loss += log(sum) - (double)picked[n];
    }
    return loss;
}

LS_KERNEL static void scale_write(float *restrict d, const float *restrict p, float scale, int64_t n)
{
    for (int64_t i = 0; i < n; i++) d[i] = p[i] * scale;
}

LS_KERNEL static void scale_add(float *restrict d, const float *restrict p, float scale, int64_t n)
{
    for (int64_t i = 0; i < n; i++) d[i] += p[i] * scale;
}

static ls_status backward_input(ls_tape *t, struct ls_node *n)
{
    ls_tensor *logits = n->in[0];
    const int64_t N = logits->dim[0], C = logits->dim[1];
    bool add;
    void *out;
    LS_TRY(ls_grad_begin(t, logits, &add, &out));
    if (!ls_tape_dry(t)) {
        float *d = out;
        const float *p = n->saved, scale = *(const float *)n->out->grad->data / (float)N;
        const int64_t *label = n->in[1]->data;
        if (add) scale_add(d, p, scale, N * C);
        else scale_write(d, p, scale, N * C);
        for (int64_t i = 0; i < N; i++) { /* p - 1 first: p may be close to 1 */
            const int64_t at = i * C + label[i];
            if (add) d[at] -= scale;
            else d[at] = (p[at] - 1.0f) * scale;
        }
    }
    return ls_grad_end(t, logits);
}

static const ls_tape_op cross_entropy = { .name = "cross_entropy", .napplied = 2, .backward_input = backward_input };

static ls_status check(const ls_tape *t, const ls_tensor *logits, const ls_tensor *labels)
{
    char a[96], b[96];
    if (logits->ndim != 2 || labels->ndim != 1 || labels->dim[0] != logits->dim[0])
        return ls_fail(LS_SHAPE, "cross_entropy: logits %s and labels %s: expected [N, C] and [N]",
                       ls_tensor_shape(logits, a, sizeof a), ls_tensor_shape(labels, b, sizeof b));
    if (logits->dtype != LS_F32 || labels->dtype != LS_I64)
        return ls_fail(LS_UNSUPPORTED, "cross_entropy: logits are %s and labels %s: expected float and int64",
                       ls_dtype_name(logits->dtype), ls_dtype_name(labels->dtype));
    if (ls_tape_dry(t)) return LS_OK;
    const int64_t *label = labels->data, C = logits->dim[1];
    for (int64_t n = 0; n < labels->dim[0]; n++)
        if (label[n] < 0 || label[n] >= C)
            return ls_fail(LS_INVALID, "cross_entropy: label %lld of row %lld: expected 0 to %lld", (long long)label[n],
                           (long long)n, (long long)C - 1);
    return LS_OK;
}

ls_tensor *ls_softmax_cross_entropy(ls_tape *t, ls_tensor *logits, ls_tensor *labels, double *sum_out,
                                    int64_t *correct_out)
{
    if (!ls_op_begin(t, cross_entropy.name, logits && labels)) return NULL;
    const ls_status st = check(t, logits, labels);
    if (st < 0) return ls_op_fail(t, st);

    const int64_t N = logits->dim[0], C = logits->dim[1];
    ls_tensor *loss = ls_op_output(t, LS_F32, 0, NULL);
    float *p = loss ? ls_op_alloc(t, (size_t)(N * C + N) * sizeof *p) : NULL;
    if (ls_tape_status(t) < 0) return NULL;
    if (!ls_tape_dry(t)) {
        float *picked = p + N * C;
        const int64_t correct = subtract_largest(p, picked, logits->data, labels->data, N, C);
        exponentials(p, N * C);
        const double sum = normalise(p, picked, N, C);
        *(float *)loss->data = (float)(sum / (double)N);
        if (sum_out) *sum_out = sum;
        if (correct_out) *correct_out = correct;
    }
    return ls_op_end(t, loss, &(struct ls_node){
        .op = &cross_entropy, .in = { logits, labels }, .saved = p, .label_a = (uint32_t)N, .label_b = (uint32_t)C,
        .flops = FLOPS_FORWARD * (double)(N * C), .flops_input = FLOPS_BACKWARD * (double)(N * C),
    });
}
