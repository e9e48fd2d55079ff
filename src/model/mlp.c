/* mlp.c -- fully connected layers with an activation between them.
 *
 *   x [N, dims[0]] -> linear -> act -> ... -> linear -> logits [N, dims[n-1]]
 *
 * Parameters are named as torch.nn.Sequential(Linear, ReLU, Linear, ...) does:
 * layer l is child 2 l ("0.weight", "0.bias", "2.weight" ...), because the
 * activations count as children too. A unit is a layer and the activation before it.
 *
 * `timed` is the same model, whose layers sleep as long as their configuration says. So it is known how long each
 * layer takes, whatever else the cores do: for lessons and tests of overlap and of waiting.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "lockstep/model.h"
#include "lockstep/op.h"

/* --- sizes ------------------------------------------------------------------------------ */

typedef struct activation {
    const char *name;
    ls_tensor *(*op)(ls_tape *t, ls_tensor *x);
} activation;

static const activation activations[] = { { "relu", ls_relu }, { "gelu", ls_gelu } };
#define ACTIVATIONS (sizeof activations / sizeof *activations)
#define MOST_MS 1000.0 /* a layer sleeps; so that every training ends */

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

static ls_status check_times(const char *key, const double *ms, int n, int layers)
{
    if (n > 1 && n != layers)
        return ls_fail(LS_BAD_CONFIG, "%s has %d times: expected one, or %d, one for each layer of model.dims", key, n, layers);
    for (int i = 0; i < n; i++)
        if (!(ms[i] >= 0.0 && ms[i] <= MOST_MS))
            return ls_fail(LS_BAD_CONFIG, "%s: time %d is %g ms; expected 0 to %g", key, i, ms[i], MOST_MS);
    return LS_OK;
}

static ls_status resolve_timed(const ls_model_config *c, ls_model_config *out)
{
    LS_TRY(resolve(c, out));
    LS_TRY(check_times("model.forward_ms", c->forward_ms, c->nforward_ms, c->ndims - 1));
    return check_times("model.backward_ms", c->backward_ms, c->nbackward_ms, c->ndims - 1);
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

/* --- sleeping ------------------------------------------------------------------------------- */

typedef struct layer_time {
    uint64_t forward_ns, backward_ns;
} layer_time;

static void sleep_for(uint64_t ns)
{
    const ls_env *env = ls_env_get();
    for (uint64_t until = env->mono_ns() + ns; env->mono_ns() < until;) env->wait(NULL, 0, NULL, 0, until);
}

static ls_status shapes_of_sleep(const ls_op_call *c, ls_tensor *out)
{
    LS_TRY(ls_op_inputs_alike(c, false));
    return ls_op_like(out, c->in[0]);
}

static ls_status forward_sleep(const ls_op_call *c)
{
    memcpy(c->out->data, c->in[0]->data, ls_tensor_nbytes(c->out));
    sleep_for(((const layer_time *)c->attributes)->forward_ns);
    return LS_OK;
}

static ls_status backward_sleep(const ls_op_call *c)
{
    float *dx = c->grad[0].data;
    const float *dy = c->dy;
    const int64_t n = ls_tensor_count(c->out);
    sleep_for(((const layer_time *)c->attributes)->backward_ns);
    for (int64_t i = 0; i < n; i++) dx[i] = c->grad[0].add ? dx[i] + dy[i] : dy[i];
    return LS_OK;
}

/* y = x, after a while. */
static const ls_op op_sleep = { .name = "sleep", .least = 1, .most = 1, .applied = 1, .attribute_bytes = sizeof(layer_time),
                                .shapes = shapes_of_sleep, .in_place = true,
                                .cpu = { .forward = forward_sleep, .backward_input = backward_sleep } };

/* --- units ---------------------------------------------------------------------------------- */

/* What the units of a model share. */
typedef struct layers {
    const activation *act;
    bool timed;
    layer_time time[]; /* of a timed model, by number of the layer */
} layers;

enum { WEIGHT, BIAS, IN_LAYER }; /* positions of parameters */

/* Layer 0 gets x itself, a later one what its activation makes of it. A timed layer sleeps after its product: in
 * backward before its gradients are ready. */
static ls_tensor *layer(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass)
{
    const layers *all = u->arg;
    if (u->number > 0) x = all->act->op(t, x);
    x = ls_linear(t, x, &ls_unit_param(u, pass, WEIGHT)->t, &ls_unit_param(u, pass, BIAS)->t);
    return all->timed ? ls_tape_apply(t, &op_sleep, &x, 1, &all->time[u->number]) : x;
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

static uint64_t ns_of(const double *ms, int n, int l) { return n > 0 ? (uint64_t)(1e6 * ms[n > 1 ? l : 0]) : 0; }

static ls_status create_layers(const ls_model_config *c, ls_model *m, bool timed)
{
    const int n = c->ndims - 1;
    layers *all = m->own = calloc(1, sizeof *all + (size_t)n * sizeof *all->time);
    if (!all) return ls_fail(LS_NO_MEMORY, "%d layers", n);
    all->act = find_activation(c->activation);
    all->timed = timed;
    for (int l = 0; l < n; l++) {
        char name[LS_UNIT_NAME];
        all->time[l].forward_ns = ns_of(c->forward_ms, c->nforward_ms, l);
        all->time[l].backward_ns = ns_of(c->backward_ms, c->nbackward_ms, l);
        snprintf(name, sizeof name, "layers.%d", l);
        const ls_unit_class *cls = l == n - 1 ? &output_layer : &hidden_layer;
        LS_TRY(ls_units_begin(&m->units, name, l, cls, all));
        snprintf(name, sizeof name, "%d.weight", 2 * l);
        LS_TRY(ls_units_add(&m->units, &m->params, name, 2, (int64_t[]){ c->dims[l + 1], c->dims[l] }));
        snprintf(name, sizeof name, "%d.bias", 2 * l);
        LS_TRY(ls_units_add(&m->units, &m->params, name, 1, &c->dims[l + 1]));
    }
    return LS_OK;
}

static ls_status create(const ls_model_config *c, ls_model *m) { return create_layers(c, m, false); }
static ls_status create_timed(const ls_model_config *c, ls_model *m) { return create_layers(c, m, true); }

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
    const int64_t width = ls_units_param(&m->params, &m->units.item[0], WEIGHT)->t.dim[1];
    *in = (ls_model_input){ .dtype = LS_F32, .ndim = 2, .dim = { batch, width },
                            .label_ndim = 1, .label_dim = { batch } };
}

extern const ls_model_class ls_model_mlp, ls_model_timed; /* listed in registry.c */

const ls_model_class ls_model_mlp = {
    .name = "mlp", .summary = "fully connected layers, ReLU or GELU between them",
    .keys = (const char *const[]){ "model.dims", "model.activation", "data.drop_last", "data.workers", NULL },
    .resolve = resolve, .count = count, .flops = flops, .create = create, .init = init, .input = input,
};

const ls_model_class ls_model_timed = {
    .name = "timed", .summary = "an mlp whose layers sleep as long as model.forward_ms and model.backward_ms say",
    .keys = (const char *const[]){ "model.dims", "model.activation", "model.forward_ms", "model.backward_ms", "data.drop_last",
                                   "data.workers", NULL },
    .resolve = resolve_timed, .count = count, .flops = flops, .create = create_timed, .init = init, .input = input,
};
