/* mlp.c -- fully connected layers with an activation between them.
 *
 *   x [N, dims[0]] -> linear -> act -> ... -> linear -> logits [N, dims[n-1]]
 *
 * Parameters are named as torch.nn.Sequential(Linear, ReLU, Linear, ...) does:
 * layer l is child 2 l ("0.weight", "0.bias", "2.weight" ...), because the
 * activations count as children too. A unit is a layer and the activation before it.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "lockstep/model.h"

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

static ls_status resolve(const ls_model_config *c, ls_model_config *out)
{
    *out = *c;
    if (!out->activation) out->activation = activations[0].name;
    if (!find_activation(out->activation))
        return ls_fail(LS_BAD_CONFIG, "model.activation: '%s'; expected relu or gelu", out->activation);
    if (!c->dims || c->ndims < 2)
        return ls_fail(LS_BAD_CONFIG, "model.dims: %d sizes; an mlp needs at least 2, [in, hidden..., classes]",
                       c->ndims);
    for (int i = 0; i < c->ndims; i++)
        if (c->dims[i] < 1 || c->dims[i] > INT_MAX)
            return ls_fail(LS_BAD_CONFIG, "model.dims: size %d is %lld; expected 1 to %d", i, (long long)c->dims[i],
                           INT_MAX);
    return LS_OK;
}

static int64_t count(const ls_model_config *c)
{
    int64_t n = 0;
    for (int l = 1; l < c->ndims; l++) n += c->dims[l] * (c->dims[l - 1] + 1);
    return n;
}

/* Every parameter is part of a product; a bias, too, by PaLM's count. */
static void flops(const ls_model_config *c, ls_model_flops *out)
{
    (void)c;
    *out = (ls_model_flops){ 0 };
}

/* --- units ---------------------------------------------------------------------------------- */

enum { WEIGHT, BIAS, IN_LAYER }; /* positions of parameters */

/* Layer 0 gets x itself, a later one what its activation makes of it. */
static ls_tensor *layer(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass)
{
    const activation *act = u->arg;
    if (u->number > 0) x = act->op(t, x);
    return ls_linear(t, x, &ls_unit_param(u, pass, WEIGHT)->t, &ls_unit_param(u, pass, BIAS)->t);
}

static ls_tensor *output(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass)
{
    ls_tensor *logits = layer(u, t, x, pass);
    if (pass->output != LS_OUTPUT_LOSS) return logits;
    ls_loss_sums *sums = pass->sums;
    if (sums && pass->labels) sums->counted = ls_tensor_count(pass->labels);
    return ls_softmax_cross_entropy(t, logits, pass->labels, sums ? &sums->sum : NULL, sums ? &sums->correct : NULL);
}

static const ls_unit_class hidden_layer = { layer, IN_LAYER, false }, output_layer = { output, IN_LAYER, false };

static ls_status create(const ls_model_config *c, ls_model *m)
{
    const int layers = c->ndims - 1;
    for (int l = 0; l < layers; l++) {
        char name[LS_UNIT_NAME];
        snprintf(name, sizeof name, "layers.%d", l);
        const ls_unit_class *cls = l == layers - 1 ? &output_layer : &hidden_layer;
        LS_TRY(ls_units_begin(&m->units, name, l, cls, find_activation(c->activation)));
        snprintf(name, sizeof name, "%d.weight", 2 * l);
        LS_TRY(ls_units_add(&m->units, &m->params, name, 2, (int64_t[]){ c->dims[l + 1], c->dims[l] }));
        snprintf(name, sizeof name, "%d.bias", 2 * l);
        LS_TRY(ls_units_add(&m->units, &m->params, name, 1, &c->dims[l + 1]));
    }
    return LS_OK;
}

static ls_status init(ls_model *m, const ls_model_config *c)
{
    ls_mt19937 torch;
    ls_mt19937_seed(&torch, c->seed);
    for (int l = 0; l < m->units.n; l++) {
        const int *at = m->units.item[l].position;
        ls_param *p = m->params.item;
        LS_TRY(ls_init_linear(c->init, &torch, c->seed, &p[at[WEIGHT]], &p[at[BIAS]]));
    }
    return LS_OK;
}

static void input(const ls_model *m, int64_t batch, int64_t tokens, ls_model_input *in)
{
    (void)tokens;
    const int64_t width = m->params.item[m->units.item[0].position[WEIGHT]].t.dim[1];
    *in = (ls_model_input){ .dtype = LS_F32, .ndim = 2, .dim = { batch, width },
                            .label_ndim = 1, .label_dim = { batch } };
}

extern const ls_model_class ls_model_mlp; /* listed in registry.c */

const ls_model_class ls_model_mlp = {
    .name = "mlp", .summary = "fully connected layers, ReLU or GELU between them",
    .keys = (const char *const[]){ "model.dims", "model.activation", "data.drop_last", "data.workers", NULL },
    .resolve = resolve, .count = count, .flops = flops, .create = create, .init = init, .input = input,
};
