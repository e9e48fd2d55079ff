/* mlp.c -- fully connected layers with an activation between them.
 *
 *   x [N, dims[0]] -> linear -> act -> ... -> linear -> logits [N, dims[n-1]]
 *
 * Parameters are named as torch.nn.Sequential(Linear, ReLU, Linear, ...) does:
 * layer l is child 2 l ("0.weight", "0.bias", "2.weight" ...), because the
 * activations count as children too.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep/model.h"

typedef ls_tensor *(*activation)(ls_tape *t, ls_tensor *x);

typedef struct mlp {
    int nlayers;
    activation act;
} mlp;

static ls_status create(const ls_model_config *c, ls_model *m)
{
    const char *act = c->activation ? c->activation : "relu";
    activation fn = NULL;
    if (strcmp(act, "relu") == 0) fn = ls_relu;
    else if (strcmp(act, "gelu") == 0) fn = ls_gelu;
    else return ls_fail(LS_BAD_CONFIG, "model.activation: '%s'; expected relu or gelu", act);
    if (!c->dims || c->ndims < 2)
        return ls_fail(LS_BAD_CONFIG, "model.dims: %d sizes; an mlp needs at least 2, [in, hidden..., classes]",
                       c->ndims);
    for (int i = 0; i < c->ndims; i++)
        if (c->dims[i] < 1 || c->dims[i] > INT_MAX)
            return ls_fail(LS_BAD_CONFIG, "model.dims: size %d is %lld; expected 1 to %d", i, (long long)c->dims[i],
                           INT_MAX);

    mlp *s = calloc(1, sizeof *s);
    if (!s) return ls_fail(LS_NO_MEMORY, "mlp");
    m->state = s;
    s->nlayers = c->ndims - 1;
    s->act = fn;
    for (int l = 0; l < s->nlayers; l++) {
        char name[LS_NAME_BYTES];
        snprintf(name, sizeof name, "%d.weight", 2 * l);
        LS_TRY(ls_params_add(&m->params, name, 2, (int64_t[]){ c->dims[l + 1], c->dims[l] }));
        snprintf(name, sizeof name, "%d.bias", 2 * l);
        LS_TRY(ls_params_add(&m->params, name, 1, &c->dims[l + 1]));
    }
    return LS_OK;
}

static ls_status init(ls_model *m, const ls_model_config *c)
{
    const mlp *s = m->state;
    ls_mt19937 torch;
    ls_mt19937_seed(&torch, c->seed);
    for (int l = 0; l < s->nlayers; l++)
        LS_TRY(ls_init_linear(c->init, &torch, c->seed, 2 * l, &m->params.item[2 * l], &m->params.item[2 * l + 1]));
    return LS_OK;
}

static void input(const ls_model *m, int64_t batch, int64_t tokens, ls_model_input *in)
{
    (void)tokens;
    *in = (ls_model_input){ .dtype = LS_F32, .ndim = 2, .dim = { batch, m->params.item[0].t.dim[1] },
                            .label_ndim = 1, .label_dim = { batch } };
}

static ls_tensor *forward(ls_model *m, ls_tape *t, ls_tensor *x)
{
    const mlp *s = m->state;
    for (int l = 0; l < s->nlayers; l++) {
        if (l > 0) x = s->act(t, x);
        x = ls_linear(t, x, &m->params.item[2 * l].t, &m->params.item[2 * l + 1].t);
    }
    return x;
}

static void destroy(ls_model *m) { free(m->state); }

extern const ls_model_class ls_model_mlp; /* listed in registry.c */

const ls_model_class ls_model_mlp = {
    .name = "mlp", .summary = "fully connected layers, ReLU or GELU between them",
    .create = create, .init = init, .input = input, .forward = forward, .destroy = destroy,
};
