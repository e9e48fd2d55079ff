/* unit_costs.c -- what each unit of a model costs for a micro-batch: a dry run of the whole model. */
#include <stdlib.h>

#include "lockstep/model.h"

/* Operations in the time that a byte takes: of a core that multiplies 107 GFLOP/s in f32 and moves 8 GB/s in norms,
 * activations and sums, which are bound by their bytes. With it the head of GPT-2 124M costs 5.23 times as much as a
 * layer, where bench_gpt measures 5.10 (64 tokens, an Intel Xeon with AMX). */
#define BYTE_OPERATIONS 13.0

typedef struct listener {
    const ls_model *m;
    ls_unit_cost *cost;
} listener;

static void on_op(void *arg, const ls_op_event *e)
{
    const listener *to = arg;
    const bool later = e->flops == 0.0 && ls_tensor_count(e->out) == 1; /* a head that has its logits in backward */
    const double moved = later ? 0.0 : BYTE_OPERATIONS * e->bytes;
    if (!e->unit) return;
    ls_unit_cost *c = &to->cost[e->unit - to->m->units.item];
    double *const part = e->phase == LS_PHASE_FORWARD           ? &c->forward
                         : e->phase == LS_PHASE_BACKWARD_WEIGHT ? &c->weight
                                                                : &c->input;
    *part += e->flops > moved ? e->flops : moved;
}

static double elements_of(const ls_model *m, const ls_unit *u)
{
    double n = 0.0;
    for (int i = u->first; i < u->first + u->nparams; i++) n += (double)ls_tensor_count(&m->params.item[i].t);
    return n;
}

static ls_status run(const ls_model *m, ls_tape *t, const ls_unit_costs_of *of, ls_unit_cost *out)
{
    listener e = { m, out };
    ls_model_input in;
    LS_TRY(ls_tape_set_dtype(t, of->dtype));
    ls_tape_set_recompute(t, of->recompute);
    ls_tape_logits_in_forward(t, of->logits_in_forward);
    LS_TRY(ls_tape_defer_weights(t, of->halves));
    LS_TRY(ls_tape_listen(t, &(ls_tape_events){ .op = on_op }, &e));
    for (int i = 0; i < m->units.n; i++) out[i] = (ls_unit_cost){ .elements = elements_of(m, &m->units.item[i]) };
    m->cls->input(m, of->batch, of->tokens, &in);
    ls_tensor *x = ls_tape_input(t, in.dtype, in.ndim, in.dim, NULL);
    ls_tensor *labels = ls_tape_input(t, LS_I64, in.label_ndim, in.label_dim, NULL);
    ls_tensor *loss = ls_model_loss(m, t, x, labels, NULL);
    ls_status st = loss ? ls_backward(t, loss) : ls_tape_status(t);
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
