/* unit_costs.c -- what each unit of a model computes for a micro-batch: a dry run of the whole model. */
#include <stdlib.h>

#include "lockstep/model.h"

/* Counts into the cost of the unit that is played back. */
typedef struct ear {
    const ls_model *m;
    const ls_tape *t;
    ls_unit_cost *cost;
    double before; /* operations when the unit was entered */
    bool weights;  /* ls_backward_weights is running */
} ear;

static double operations(const ls_tape *t) { return ls_tape_flops(t) + ls_tape_flops_again(t); }

static ls_status on_unit(void *arg, const ls_unit *u, ls_unit_when when)
{
    ear *e = arg;
    if (when == LS_UNIT_ENTER_BACKWARD) e->before = operations(e->t);
    if (when != LS_UNIT_LEAVE_BACKWARD) return LS_OK;
    ls_unit_cost *c = &e->cost[u - e->m->units.item];
    *(e->weights ? &c->weight : &c->input) += operations(e->t) - e->before;
    return LS_OK;
}

static double elements_of(const ls_model *m, const ls_unit *u)
{
    double n = 0.0;
    for (int i = u->first; i < u->first + u->nparams; i++) n += (double)ls_tensor_count(&m->params.item[i].t);
    return n;
}

/* Forward of all units, one after another; NULL after a failure. */
static ls_tensor *forward(const ls_model *m, ls_tape *t, const ls_unit_costs_of *of, ls_unit_cost *out)
{
    ls_model_input in;
    ls_pass pass = ls_model_pass(m);
    m->cls->input(m, of->batch, of->tokens, &in);
    ls_tensor *x = ls_tape_input(t, in.dtype, in.ndim, in.dim, NULL);
    pass.labels = ls_tape_input(t, LS_I64, in.label_ndim, in.label_dim, NULL);
    pass.output = LS_OUTPUT_LOSS;
    for (int i = 0; i < m->units.n && ls_tape_status(t) == LS_OK; i++) {
        const double before = ls_tape_flops(t);
        x = ls_units_forward(&m->units, i, 1, t, x, &pass);
        out[i] = (ls_unit_cost){ .forward = ls_tape_flops(t) - before, .elements = elements_of(m, &m->units.item[i]) };
    }
    return ls_tape_status(t) == LS_OK ? x : NULL;
}

static ls_status run(const ls_model *m, ls_tape *t, const ls_unit_costs_of *of, ls_unit_cost *out)
{
    ear e = { .m = m, .t = t, .cost = out };
    LS_TRY(ls_tape_set_dtype(t, of->dtype));
    ls_tape_set_recompute(t, of->recompute);
    ls_tape_logits_in_forward(t, of->logits_in_forward);
    LS_TRY(ls_tape_defer_weights(t, of->halves));
    LS_TRY(ls_tape_listen(t, &(ls_tape_events){ .unit = on_unit }, &e));
    ls_tensor *loss = forward(m, t, of, out);
    ls_status st = loss ? ls_backward(t, loss) : ls_tape_status(t);
    e.weights = true;
    if (st == LS_OK) st = ls_backward_weights(t);
    ls_tape_unlisten(t, &e);
    return st;
}

ls_status ls_model_unit_costs(const ls_model *m, const ls_unit_costs_of *of, ls_unit_cost *out)
{
    ls_model alone = *m; /* with parameters that want gradients */
    ls_tape_scratch *scratch = NULL;
    ls_tape *t = NULL;
    alone.place = ls_place_alone(&m->place);
    alone.params.item = malloc((size_t)m->params.n * sizeof *alone.params.item);
    if (!alone.params.item) return ls_fail(LS_NO_MEMORY, "copy of %d parameters", m->params.n);
    for (int i = 0; i < m->params.n; i++) {
        alone.params.item[i] = m->params.item[i];
        alone.params.item[i].t.grad = &alone.params.item[i].grad;
    }
    ls_status st = ls_tape_scratch_create_dry(&scratch);
    if (st == LS_OK) st = ls_tape_create_shared(scratch, 0, NULL, NULL, &t);
    if (st == LS_OK) st = run(&alone, t, of, out);
    ls_tape_destroy(t);
    ls_tape_scratch_destroy(scratch);
    free(alone.params.item);
    return st;
}
