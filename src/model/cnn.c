/* cnn.c -- a small convolutional net for square images of one channel.
 *
 *   x [N, dims[0]] -> image [N, 1, side, side] -> (conv 3x3, act, max-pool 2) ... -> linear -> logits [N, dims[n-1]]
 *
 * dims is [pixels, channels..., classes]; the channels are those of one convolution each, which keeps the side, and a
 * pool halves it. Parameters are named as torch.nn.Sequential(Conv2d, ReLU, MaxPool2d, ..., Flatten, Linear) does:
 * convolution l is child 3 l, the last layer child 3 L + 1. A unit is a layer with what follows it.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "lockstep/model.h"

#define KERNEL 3
#define POOL 2

/* --- sizes ------------------------------------------------------------------------------ */

typedef struct activation {
    const char *name;
    ls_tensor *(*op)(ls_tape *t, ls_tensor *x);
} activation;

static const activation activations[] = { { "relu", ls_relu }, { "gelu", ls_gelu } };
#define ACTIVATIONS (sizeof activations / sizeof *activations)

static const activation *find_activation(const char *name)
{
    for (size_t i = 0; i < ACTIVATIONS; i++)
        if (strcmp(activations[i].name, name) == 0) return &activations[i];
    return NULL;
}

static int convolutions(const ls_model_config *c) { return c->ndims - 2; }

static int64_t side_of(int64_t pixels)
{
    int64_t side = 1;
    while (side * side < pixels) side++;
    return side;
}

/* Of the image that the last pool gives. */
static int64_t last_side(const ls_model_config *c) { return side_of(c->dims[0]) >> convolutions(c); }

static ls_status resolve(const ls_model_config *c, ls_model_config *out)
{
    *out = *c;
    if (!out->activation) out->activation = activations[0].name;
    if (!find_activation(out->activation))
        return ls_fail(LS_BAD_CONFIG, "model.activation: '%s'; expected relu or gelu", out->activation);
    if (!c->dims || c->ndims < 3)
        return ls_fail(LS_BAD_CONFIG, "model.dims: %d sizes; a cnn needs at least 3, [pixels, channels..., classes]",
                       c->ndims);
    for (int i = 0; i < c->ndims; i++)
        if (c->dims[i] < 1 || c->dims[i] > (i == 0 ? 1 << 24 : INT_MAX / 16))
            return ls_fail(LS_BAD_CONFIG, "model.dims: size %d is %lld; expected 1 to %d", i, (long long)c->dims[i],
                           i == 0 ? 1 << 24 : INT_MAX / 16);
    const int64_t side = side_of(c->dims[0]);
    if (side * side != c->dims[0])
        return ls_fail(LS_BAD_CONFIG, "model.dims: %lld pixels are no square; the nearest is %lld x %lld = %lld",
                       (long long)c->dims[0], (long long)side, (long long)side, (long long)(side * side));
    if (convolutions(c) > 12 || side % ((int64_t)1 << convolutions(c)) != 0)
        return ls_fail(LS_BAD_CONFIG, "model.dims: %d convolutions, each with a pool that halves the side of %lld pixels; "
                       "expected a side that can be halved so often", convolutions(c), (long long)side);
    return LS_OK;
}

static int64_t channels_before(const ls_model_config *c, int l) { return l == 0 ? 1 : c->dims[l]; }

static int64_t count(const ls_model_config *c)
{
    const int L = convolutions(c);
    int64_t n = c->dims[L + 1] * (c->dims[L] * last_side(c) * last_side(c) + 1);
    for (int l = 0; l < L; l++) n += c->dims[l + 1] * (channels_before(c, l) * KERNEL * KERNEL + 1);
    return n;
}

/* By PaLM's count, which takes each parameter once per sample: a convolution reads its own at every pixel. */
static void flops(const ls_model_config *c, ls_model_flops *out)
{
    (void)c;
    *out = (ls_model_flops){ 0 };
}

/* --- units ---------------------------------------------------------------------------------- */

enum { WEIGHT, BIAS, IN_LAYER }; /* positions of parameters */

static ls_tensor *convolution(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass)
{
    const activation *act = u->arg;
    const int64_t side = u->number == 0 && x ? side_of(x->dim[1]) : 0;
    if (u->number == 0 && x) x = ls_reshape(t, x, 4, (int64_t[]){ x->dim[0], 1, side, side });
    x = ls_conv2d(t, x, &ls_unit_param(u, pass, WEIGHT)->t, &ls_unit_param(u, pass, BIAS)->t, 1, KERNEL / 2);
    return ls_max_pool2d(t, act->op(t, x), POOL, POOL);
}

static ls_tensor *output(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass)
{
    if (x) x = ls_reshape(t, x, 2, (int64_t[]){ x->dim[0], x->dim[1] * x->dim[2] * x->dim[3] });
    ls_tensor *logits = ls_linear(t, x, &ls_unit_param(u, pass, WEIGHT)->t, &ls_unit_param(u, pass, BIAS)->t);
    if (pass->output != LS_OUTPUT_LOSS) return logits;
    ls_loss_sums *sums = pass->sums;
    if (sums && pass->labels) sums->counted = ls_tensor_count(pass->labels);
    return ls_softmax_cross_entropy(t, logits, pass->labels, sums ? &sums->sum : NULL, sums ? &sums->correct : NULL);
}

static const ls_unit_class convolution_layer = { convolution, IN_LAYER, false },
                           output_layer = { output, IN_LAYER, false };

static ls_status add_layer(ls_model *m, const ls_model_config *c, int l)
{
    char name[LS_UNIT_NAME];
    const int L = convolutions(c), child = l < L ? 3 * l : 3 * L + 1;
    snprintf(name, sizeof name, "layers.%d", l);
    const ls_unit_class *cls = l < L ? &convolution_layer : &output_layer;
    LS_TRY(ls_units_begin(&m->units, name, l, cls, find_activation(c->activation)));
    snprintf(name, sizeof name, "%d.weight", child);
    if (l < L)
        LS_TRY(ls_units_add(&m->units, &m->params, name, 4,
                            (int64_t[]){ c->dims[l + 1], channels_before(c, l), KERNEL, KERNEL }));
    else
        LS_TRY(ls_units_add(&m->units, &m->params, name, 2,
                            (int64_t[]){ c->dims[l + 1], c->dims[l] * last_side(c) * last_side(c) }));
    snprintf(name, sizeof name, "%d.bias", child);
    return ls_units_add(&m->units, &m->params, name, 1, &c->dims[l + 1]);
}

static ls_status create(const ls_model_config *c, ls_model *m)
{
    for (int l = 0; l <= convolutions(c); l++) LS_TRY(add_layer(m, c, l));
    return LS_OK;
}

static ls_status init(ls_model *m, const ls_model_config *c)
{
    ls_mt19937 torch;
    ls_mt19937_seed(&torch, c->seed);
    for (int l = 0; l < m->units.n; l++) {
        const ls_unit *u = &m->units.item[l];
        LS_TRY(ls_init_linear(c->init, &torch, c->seed, ls_units_param(&m->params, u, WEIGHT),
                              ls_units_param(&m->params, u, BIAS)));
    }
    return LS_OK;
}

static void input(const ls_model *m, int64_t batch, int64_t tokens, ls_model_input *in)
{
    (void)tokens;
    /* The last layer reads channels x pixels; each convolution before it has halved the side. */
    const ls_unit *last = &m->units.item[m->units.n - 1], *before = last - 1;
    const int64_t width = ls_units_param(&m->params, last, WEIGHT)->t.dim[1];
    const int64_t channels = ls_units_param(&m->params, before, WEIGHT)->t.dim[0];
    const int64_t side = side_of(width / channels) << (m->units.n - 1);
    *in = (ls_model_input){ .dtype = LS_F32, .ndim = 2, .dim = { batch, side * side },
                            .label_ndim = 1, .label_dim = { batch } };
}

extern const ls_model_class ls_model_cnn; /* listed in registry.c */

const ls_model_class ls_model_cnn = {
    .name = "cnn", .summary = "convolutions with pools between them, for square images",
    .keys = (const char *const[]){ "model.dims", "model.activation", "data.drop_last", "data.workers", NULL },
    .resolve = resolve, .count = count, .flops = flops, .create = create, .init = init, .input = input,
};
