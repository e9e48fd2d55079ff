/* listen.c -- who is told what a tape does: listeners, and the tracer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "tensor/tape_impl.h"

/* --- listeners ------------------------------------------------------------------------ */

static unsigned hears(const ls_tape_events *on)
{
    return (on->unit ? LS_HEARS_UNIT : 0u) | (on->grad_ready ? LS_HEARS_GRAD_READY : 0u) |
           (on->progress ? LS_HEARS_PROGRESS : 0u) | (on->done ? LS_HEARS_DONE : 0u) |
           (on->output ? LS_HEARS_OUTPUT : 0u) | (on->op ? LS_HEARS_OP : 0u);
}

static void count_heard(ls_tape *t)
{
    t->heard = 0;
    for (int i = 0; i < LS_TAPE_LISTENERS; i++)
        if (t->listener[i].here) t->heard |= hears(&t->listener[i].on);
    t->watched = t->tracer || (t->heard & (LS_HEARS_OP | LS_HEARS_OUTPUT)) != 0;
}

void ls_tape_set_tracer(ls_tape *t, ls_tracer *tracer)
{
    t->tracer = tracer;
    count_heard(t);
}

static ls_listener *find(ls_tape *t, const void *arg)
{
    for (int i = 0; i < LS_TAPE_LISTENERS; i++)
        if (t->listener[i].here && t->listener[i].arg == arg) return &t->listener[i];
    return NULL;
}

ls_status ls_tape_listen(ls_tape *t, const ls_tape_events *events, void *arg)
{
    ls_listener *l = find(t, arg);
    for (int i = 0; i < LS_TAPE_LISTENERS && !l; i++)
        if (!t->listener[i].here) l = &t->listener[i];
    if (!l)
        return ls_fail(LS_INVALID, "tape: %d listeners already; call ls_tape_unlisten for one of them first",
                       LS_TAPE_LISTENERS);
    *l = (ls_listener){ true, *events, arg };
    count_heard(t);
    return LS_OK;
}

void ls_tape_unlisten(ls_tape *t, const void *arg)
{
    ls_listener *l = find(t, arg);
    if (l) l->here = false;
    count_heard(t);
}

/* Calls EVENT of every listener that has it, until one fails. */
#define TELL(EVENT, ARGUMENTS)                                    \
    ls_status st = LS_OK;                                         \
    for (int i = 0; i < LS_TAPE_LISTENERS && st >= 0; i++) {      \
        const ls_listener *l = &t->listener[i];                   \
        if (l->here && l->on.EVENT) st = l->on.EVENT ARGUMENTS;   \
    }                                                             \
    return st

ls_status ls_tape_tell_grad_ready(ls_tape *t, ls_tensor *x) { TELL(grad_ready, (l->arg, x)); }
ls_status ls_tape_tell_progress(ls_tape *t) { TELL(progress, (l->arg)); }
ls_status ls_tape_tell_done(ls_tape *t) { TELL(done, (l->arg)); }

void ls_tape_tell_end(ls_tape *t)
{
    for (int i = 0; i < LS_TAPE_LISTENERS; i++)
        if (t->listener[i].here && t->listener[i].on.end) t->listener[i].on.end(t->listener[i].arg, t);
}

/* --- units ---------------------------------------------------------------------------- */

ls_status ls_tape_tell_unit(ls_tape *t, const struct ls_unit *unit, ls_unit_when when)
{
    TELL(unit, (l->arg, unit, when));
}

ls_status ls_tape_play_unit(ls_tape *t, const struct ls_unit *unit)
{
    const struct ls_unit *before = t->played_unit;
    t->played_unit = unit;
    if (!ls_tape_heard(t, LS_HEARS_UNIT)) return LS_OK;
    if (before) LS_TRY(ls_tape_tell_unit(t, before, LS_UNIT_LEAVE_BACKWARD));
    return unit ? ls_tape_tell_unit(t, unit, LS_UNIT_ENTER_BACKWARD) : LS_OK;
}

/* --- ops ------------------------------------------------------------------------------- */

static void write_label(const struct ls_node *n, const char *more, char *text, size_t room)
{
    if (n->label_b) snprintf(text, room, "%s %ux%u%s", n->op->name, n->label_a, n->label_b, more);
    else if (n->label_a) snprintf(text, room, "%s %u%s", n->op->name, n->label_a, more);
    else snprintf(text, room, "%s%s", n->op->name, more);
}

static uint16_t make_label(ls_tape *t, const struct ls_node *n, uint32_t index, bool again)
{
    if (index >= t->nlabels) {
        const uint32_t cap = index < 64 ? 64 : 2 * index;
        struct op_label *more = realloc(t->labels, cap * sizeof *more);
        if (!more) return 0; /* the event goes without a name */
        memset(more + t->nlabels, 0, (cap - t->nlabels) * sizeof *more);
        t->labels = more;
        t->nlabels = cap;
    }
    char text[LS_BLACKBOX_STRING_BYTES];
    write_label(n, again ? " again" : "", text, sizeof text);
    struct op_label *l = &t->labels[index];
    if (l->name != n->op->name || l->a != n->label_a || l->b != n->label_b)
        *l = (struct op_label){ n->op->name, n->label_a, n->label_b, { 0, 0 } };
    return l->label[again] = ls_tracer_label(t->tracer, text);
}

static void trace(ls_tape *t, const struct ls_node *n, uint32_t index, double flops, ls_tape_phase phase)
{
    const uint64_t t1 = ls_tracer_now(t->tracer);
    const bool again = phase == LS_PHASE_AGAIN;
    const struct op_label *l = index < t->nlabels ? &t->labels[index] : NULL;
    const bool known = l && l->name == n->op->name && l->a == n->label_a && l->b == n->label_b && l->label[again];
    const uint64_t ns = t1 > t->op_t0_ns ? t1 - t->op_t0_ns : 1;
    ls_tracer_add(t->tracer, &(ls_event){
        .t0_ns = t->op_t0_ns, .t1_ns = t1, .gflops = (float)(flops / (double)ns), .peer = -1, .kind = LS_EV_OP,
        .label = known ? l->label[again] : make_label(t, n, index, again), .dtype = (uint8_t)t->dtype,
        .backward = phase == LS_PHASE_BACKWARD_INPUT || phase == LS_PHASE_BACKWARD_WEIGHT,
    });
}

/* A matrix of parameters is read from its copy in bf16 where activations are bf16. */
static double read_bytes(const ls_tensor *x, const ls_tensor *out)
{
    if (!x) return 0.0;
    const bool copy = !x->node && x->ndim >= 2 && x->dtype == LS_F32 && out->dtype == LS_BF16;
    return (double)ls_tensor_nbytes(x) / (copy ? 2.0 : 1.0);
}

static double bytes_of(const struct ls_node *n, const ls_tensor *out, ls_tape_phase phase)
{
    if (n->op->bytes) return n->op->bytes(n, out, phase);
    double bytes = (double)ls_tensor_nbytes(out); /* y, or dy */
    const bool weight = phase == LS_PHASE_BACKWARD_WEIGHT, backward = weight || phase == LS_PHASE_BACKWARD_INPUT;
    ls_tensor *const *in;
    const int count = ls_tape_inputs(n, &in);
    for (int i = 0; i < count; i++) {
        bytes += read_bytes(in[i], out);
        if (backward && ls_grad_wanted(in[i]) && weight == (i >= n->op->napplied))
            bytes += (double)ls_tensor_nbytes(in[i]);
    }
    return bytes;
}

LS_COLD void ls_tape_tell_op(ls_tape *t, const struct ls_node *n, const ls_tensor *out, uint32_t index,
                             ls_tape_phase phase)
{
    const bool input = phase == LS_PHASE_BACKWARD_INPUT, weight = phase == LS_PHASE_BACKWARD_WEIGHT;
    const double flops = input ? n->flops_input : weight ? n->flops_weight : n->flops;
    if (t->tracer) trace(t, n, index, flops, phase);
    if (!out || !ls_tape_heard(t, LS_HEARS_OP | LS_HEARS_OUTPUT)) return;
    char text[LS_BLACKBOX_STRING_BYTES];
    write_label(n, "", text, sizeof text);
    const ls_op_event e = {
        .name = text, .phase = phase, .flops = flops, .unit = t->unit ? t->unit : t->played_unit,
        .out = out,
        .bytes = ls_tape_heard(t, LS_HEARS_OP) ? bytes_of(n, out, phase) : 0.0,
    };
    for (int i = 0; i < LS_TAPE_LISTENERS; i++) {
        const ls_listener *l = &t->listener[i];
        if (!l->here) continue;
        if (l->on.op) l->on.op(l->arg, &e);
        if (l->on.output && phase == LS_PHASE_FORWARD && !t->dry) l->on.output(l->arg, text, out);
    }
}
