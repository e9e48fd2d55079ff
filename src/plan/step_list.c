/* step_list.c -- listening to a dry step. */
#include "plan/step_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep/pipe.h"
#include "lockstep/tensor.h"
#include "tensor/tape.h"
#include "train/measure.h"

typedef struct writer {
    const ls_step_dry *s;
    const ls_step_rates *rates;
    const ls_measured *measured; /* of the stage; NULL: none */
    bool uneven;   /* places along ep differ */
    const ls_train_dry *d;
    ls_step_list *to;
    int rank;      /* along pp */
    int seen;      /* calls of the record that are written down */
    int begun;     /* BEGINs so far, */
    int waited;    /* and those that were waited for */
    int *wanted;   /* owned: [units]: the BEGIN that gathers a unit's values, counted from 1; 0: none */
    int nunits;
    ls_step_phase phase; /* that calls are for */
    ls_status st;
} writer;

/* --- items ---------------------------------------------------------------------------------------------- */

static ls_step_item *put(writer *w, ls_item_kind kind, const char *label)
{
    ls_step_list *l = w->to;
    if (w->st < 0) return NULL;
    if (l->n == l->cap) {
        const int cap = l->cap ? 2 * l->cap : 256;
        ls_step_item *more = realloc(l->item, (size_t)cap * sizeof *more);
        if (!more) {
            w->st = ls_fail(LS_NO_MEMORY, "a list of %d items", cap);
            return NULL;
        }
        l->item = more;
        l->cap = cap;
    }
    ls_step_item *out = &l->item[l->n++];
    *out = (ls_step_item){ .kind = kind, .phase = w->phase };
    snprintf(out->label, sizeof out->label, "%s", label);
    return out;
}

/* The row of an operation in this phase. */
static ls_step_op *op_row(writer *w, const char *name)
{
    ls_step_list *l = w->to;
    if (w->st < 0) return NULL;
    for (int i = 0; i < l->nops; i++)
        if (l->op[i].phase == w->phase && strncmp(l->op[i].name, name, LS_STEP_OP_NAME - 1) == 0) return &l->op[i];
    if (l->nops == l->opcap) {
        const int cap = l->opcap ? 2 * l->opcap : 64;
        ls_step_op *more = realloc(l->op, (size_t)cap * sizeof *more);
        if (!more) {
            w->st = ls_fail(LS_NO_MEMORY, "a list of %d operations", cap);
            return NULL;
        }
        l->op = more;
        l->opcap = cap;
    }
    ls_step_op *out = &l->op[l->nops++];
    *out = (ls_step_op){ .phase = w->phase };
    snprintf(out->name, sizeof out->name, "%s", name);
    return out;
}

static void wait_for(writer *w, int count)
{
    if (count <= w->waited) return;
    ls_step_item *i = put(w, LS_ITEM_WAIT, "wait");
    if (i) i->count = count;
    w->waited = count;
}

static ls_pipe_config pipe_of(const writer *w)
{
    const ls_plan *p = &w->s->plan;
    return (ls_pipe_config){ .schedule = p->schedule, .chunks = p->chunks, .micro_batches = p->micro_batches };
}

static int rank_of(const writer *w, int stage)
{
    const ls_pipe_config pipe = pipe_of(w);
    return ls_pipe_rank_of(&pipe, w->s->plan.size[LS_AXIS_PP], stage);
}

/* "send 2-3": across the edge before stage 3. Which way follows from whose stages they are. */
static void put_send(writer *w, const ls_recorded *r)
{
    char *end;
    const int before = (int)strtol(r->label + 5, &end, 10);
    if (*end != '-') {
        w->st = ls_fail(LS_INTERNAL, "a message that is called '%s': expected its stages", r->label);
        return;
    }
    ls_step_item *i = put(w, LS_ITEM_SEND, r->label);
    if (!i) return;
    i->bytes = (double)r->bytes;
    i->edge = before + 1;
    i->forward = rank_of(w, before) == w->rank;
}

static void put_call(writer *w, const ls_recorded *r)
{
    ls_step_span span;
    const bool bucket = strncmp(r->label, "bucket", 6) == 0 || strcmp(r->label, "PowerSGD") == 0;
    const bool values = strncmp(r->label, "values of ", 10) == 0;
    if (r->coll == LS_SENDRECV && (strncmp(r->label, "send ", 5) == 0 || strncmp(r->label, "recv ", 5) == 0)) {
        if (r->label[0] == 's') put_send(w, r); /* what is received is waited for later: on_action */
        return;
    }
    const ls_status st = ls_step_span_of(r->group, w->s->plan.size, w->s->plan.order, &span);
    if (st < 0) w->st = st;
    if (!span.axes || (r->coll == LS_SENDRECV && r->moved == 0)) return; /* one end counts a message */
    const bool beside = w->s->c.ddp.overlap && (bucket || values);
    const ls_step_phase phase = w->phase;
    if (bucket) w->phase = LS_STEP_BACKWARD; /* the last ones, too */
    ls_step_item *i = put(w, beside ? LS_ITEM_BEGIN : LS_ITEM_COLL, *r->label ? r->label : ls_coll_name(r->coll));
    w->phase = phase;
    if (!i) return;
    i->coll = r->coll;
    i->span = span;
    i->bytes = ls_step_vector_bytes(r);
    i->vector = (ls_step_vector){ .spans = r->spans, .rows = (double)r->rows, .counts = r->counts && r->spans == 0,
                                  .apart = r->apart };
    if (!beside) return;
    w->begun++;
    if (!values) return;
    const bool of_unit = strncmp(r->label, "values of unit ", 15) == 0;
    const long unit = of_unit ? strtol(r->label + 15, NULL, 10) : -1;
    if (unit >= 0 && unit < w->nunits) w->wanted[unit] = w->begun;
    else wait_for(w, w->begun); /* of the root: read at once */
}

/* What was called since. */
static void catch_up(writer *w)
{
    const ls_recorded *had;
    const int n = ls_world_recorded(w->d->w, &had);
    while (w->seen < n && w->st == LS_OK) put_call(w, &had[w->seen++]);
}

/* A forward of a stage waits for the stage before, a backward for the one after, if another rank has it. */
static void on_action(void *arg, const ls_pipe_action *a)
{
    writer *w = arg;
    const ls_pipe_config pipe = pipe_of(w);
    const int ranks = w->s->plan.size[LS_AXIS_PP], stages = ranks * ls_pipe_chunks(&pipe, ranks);
    const bool forward = a->what == LS_PIPE_FORWARD;
    const int from = forward ? a->stage - 1 : a->stage + 1;
    catch_up(w); /* of the action before */
    w->phase = forward ? LS_STEP_FORWARD : LS_STEP_BACKWARD;
    if (a->what == LS_PIPE_BACKWARD_WEIGHT || from < 0 || from >= stages || rank_of(w, from) == w->rank) return;
    ls_step_item *i = put(w, LS_ITEM_RECV, "wait for a stage");
    if (!i) return;
    i->edge = forward ? a->stage : from;
    i->forward = forward;
}

static ls_measured_time time_of(const writer *w, const ls_op_event *e)
{
    const ls_step_rates *r = w->rates;
    if (w->measured) return ls_measured_op(w->measured, e);
    const double compute = e->flops / r->flops_per_s;
    const double memory = r->memory_bytes_per_s > 0 ? e->bytes / r->memory_bytes_per_s : 0;
    return (ls_measured_time){ compute > memory ? compute : memory, 0 };
}

/* Products of rows that a router sent to the rank's experts, and other ranks have more or less of them. */
static bool is_routed(const writer *w, const ls_op_event *e)
{
    const ls_measured *m = w->rates->measured;
    bool uneven = false;
    if (!w->uneven || !e->unit || e->unit->number >= m->layers) return false;
    for (int p = 0; p < m->eps; p++) uneven |= m->uneven[e->unit->number * m->eps + p] < 1;
    if (!uneven) return false;
    const bool shared = w->d->par.model->lm.shared_expert > 0; /* it has a swiglu of all tokens */
    return strncmp(e->name, "experts ", 8) == 0 || (!shared && strncmp(e->name, "swiglu ", 7) == 0);
}

static void on_op(void *arg, const ls_op_event *e)
{
    writer *w = arg;
    const bool backward = e->phase == LS_PHASE_BACKWARD_WEIGHT || e->phase == LS_PHASE_BACKWARD_INPUT;
    const char *name = e->unit ? e->unit->name : "root";
    const ls_units *units = &w->d->par.model->units;
    const ls_measured_time takes = time_of(w, e);
    const double compute = w->rates->flops_per_s > 0 ? e->flops / w->rates->flops_per_s : 0;
    const double memory = w->rates->memory_bytes_per_s > 0 ? e->bytes / w->rates->memory_bytes_per_s : 0;
    /* What was called since is for this operation; backward recomputes. */
    w->phase = backward || e->phase == LS_PHASE_AGAIN ? LS_STEP_BACKWARD : LS_STEP_FORWARD;
    catch_up(w);
    char of[LS_STEP_OP_NAME];
    snprintf(of, sizeof of, "%.48s%s", e->name, e->phase == LS_PHASE_AGAIN ? LS_STEP_AGAIN : "");
    ls_step_op *op = op_row(w, of);
    if (op) {
        op->calls++;
        op->flops += e->flops;
        op->bytes += e->bytes;
        op->busy_s += takes.busy_s;
        *(compute > memory ? &op->compute_s : &op->memory_s) += compute > memory ? compute : memory;
    }
    if (e->unit >= units->item && e->unit < units->item + units->n) wait_for(w, w->wanted[e->unit - units->item]);
    ls_step_item *last = w->to->n > 0 ? &w->to->item[w->to->n - 1] : NULL;
    if (!last || last->kind != LS_ITEM_WORK || last->backward != backward || strcmp(last->label, name) != 0)
        last = put(w, LS_ITEM_WORK, name);
    if (!last) return;
    last->backward = backward;
    last->flops += e->flops;
    last->bytes += e->bytes;
    last->seconds += takes.busy_s;
    last->asleep += takes.asleep_s;
    if (!is_routed(w, e)) return;
    last->routed += takes.busy_s;
    last->layer = e->unit->number;
}

/* --- a stage ------------------------------------------------------------------------------------------- */

/* Micro-batches that a dry step leaves out compute like the first one, and call nothing. */
static void repeat_work(writer *w, int first, int last, int times)
{
    for (int k = 0; k < times; k++)
        for (int i = first; i < last; i++)
            if (w->to->item[i].kind == LS_ITEM_WORK) {
                const ls_step_item had = w->to->item[i];
                ls_step_item *more = put(w, LS_ITEM_WORK, had.label);
                if (more) *more = had;
            }
    for (int i = 0; i < w->to->nops; i++) {
        ls_step_op *op = &w->to->op[i];
        double *of_all[] = { &op->calls, &op->flops, &op->bytes, &op->compute_s, &op->memory_s, &op->busy_s };
        for (size_t k = 0; k < sizeof of_all / sizeof *of_all; k++)
            if (op->phase != LS_STEP_UPDATE) *of_all[k] *= times + 1;
    }
}

/* Moves what was put from `at` on to the front. */
static ls_status to_front(ls_step_list *l, int at)
{
    const size_t n = (size_t)(l->n - at), all = (size_t)l->n;
    ls_step_item *copy = malloc((all + 1) * sizeof *copy);
    if (!copy) return ls_fail(LS_NO_MEMORY, "a list of %zu items", all);
    memcpy(copy, l->item + at, n * sizeof *copy);
    memcpy(copy + n, l->item, (size_t)at * sizeof *copy);
    memcpy(l->item, copy, all * sizeof *copy);
    free(copy);
    return LS_OK;
}

/* Bucket reductions are waited for before what is called after the last operation. */
static ls_status wait_at_the_end(writer *w)
{
    ls_step_list *l = w->to;
    int at = l->n, later = 0;
    for (int i = 0; i < l->n; i++)
        if (l->item[i].kind == LS_ITEM_WORK) at = i + 1;
    while (at < l->n && l->item[at].kind != LS_ITEM_COLL) at++;
    for (int i = at; i < l->n; i++) later += l->item[i].kind == LS_ITEM_BEGIN;
    if (w->begun - later <= w->waited) return LS_OK;
    wait_for(w, w->begun - later);
    if (w->st < 0) return w->st;
    const ls_step_item wait = l->item[l->n - 1];
    memmove(l->item + at + 1, l->item + at, (size_t)(l->n - 1 - at) * sizeof *l->item);
    l->item[at] = wait;
    return LS_OK;
}

/* Elements that this rank updates. */
static double elements_of(const ls_train_dry *d)
{
    const ls_params *ps = &d->par.model->params;
    double n = 0;
    for (int i = 0; i < ps->n; i++) n += (double)ps->item[i].own.count;
    return n;
}

/* An optimizer reads and writes state and weights of the elements that are its own, and reads their gradients: AdamW's
 * two moments make 28 bytes per element. */
static void update(writer *w)
{
    ls_step_item *i = put(w, LS_ITEM_WORK, "optimizer");
    const double state = (double)ls_world_ledger(w->d->w)->now[LS_MEM_OPTIM];
    const double own = elements_of(w->d);
    ls_step_op *op = op_row(w, "optimizer");
    if (!i || !op) return;
    i->part = LS_PART_OPTIMIZER;
    i->bytes = 2 * state + 3 * sizeof(float) * own;
    i->flops = ls_optim_flops(w->d->optim);
    const double compute = w->rates->flops_per_s > 0 ? i->flops / w->rates->flops_per_s : 0;
    const double memory = w->rates->memory_bytes_per_s > 0 ? i->bytes / w->rates->memory_bytes_per_s : 0;
    i->seconds = compute > memory ? compute : memory;
    if (w->measured) i->seconds = ls_measured_update(w->measured, own);
    op->calls = 1;
    op->flops = i->flops;
    op->bytes = i->bytes;
    op->busy_s = i->seconds;
    *(compute > memory && !w->measured ? &op->compute_s : &op->memory_s) = i->seconds;
}

/* Samples are read before the first operation; where in the step does not matter to its length. */
static void read_data(writer *w)
{
    if (!w->measured) return;
    ls_step_item *i = put(w, LS_ITEM_WORK, "data");
    if (!i) return;
    i->part = LS_PART_DATA;
    i->seconds = w->measured->data_s * w->d->micro_batches / w->measured->micro_batches;
    i = put(w, LS_ITEM_WORK, "between operations");
    if (i) i->seconds = w->measured->rest_s;
}

static ls_status write_stage(writer *w, ls_train_dry *d)
{
    static const ls_tape_events events = { .op = on_op };
    LS_TRY(ls_step_dry_steps(w->s, d, LS_STEP_SETTLED - 1));
    w->nunits = d->par.model->units.n;
    w->wanted = calloc((size_t)w->nunits + 1, sizeof *w->wanted);
    if (!w->wanted) return ls_fail(LS_NO_MEMORY, "%d units", w->nunits);
    for (int i = 0; i < d->par.ntapes; i++) {
        LS_TRY(ls_tape_listen(d->par.tape[i], &events, w));
        ls_tape_assume_even(d->par.tape[i]);
    }
    d->on_action = on_action;
    d->arg = w;
    const ls_status st = ls_step_dry_steps(w->s, d, 1);
    for (int i = 0; i < d->par.ntapes; i++) ls_tape_unlisten(d->par.tape[i], w);
    LS_TRY(st);
    w->phase = LS_STEP_UPDATE;
    catch_up(w);
    LS_TRY(w->st);
    LS_TRY(wait_at_the_end(w));
    update(w);
    const bool all = ls_parallel_staged(&d->par) || ls_parallel_forwards_meet(&d->par);
    const int ran = all ? d->micro_batches : ls_ddp_reductions(d->par.ddp, d->micro_batches), n = w->to->n;
    if (ran < d->micro_batches && ran > 0) {
        repeat_work(w, 0, n - 1, (d->micro_batches - ran) / ran);
        LS_TRY(w->st);
    }
    read_data(w);
    LS_TRY(w->st);
    return w->to->n > n ? to_front(w->to, n) : LS_OK;
}

static ls_status copy_uneven(const ls_measured *m, ls_step_lists *out)
{
    if (!m || !m->uneven || m->eps != out->size[LS_AXIS_EP]) return LS_OK;
    const size_t n = (size_t)m->layers * (size_t)out->size[LS_AXIS_EP];
    out->uneven = malloc(n * sizeof *out->uneven);
    if (!out->uneven) return ls_fail(LS_NO_MEMORY, "the loads of experts of %d ranks", out->size[LS_AXIS_EP]);
    memcpy(out->uneven, m->uneven, n * sizeof *out->uneven);
    return LS_OK;
}

ls_status ls_step_lists_create(const ls_train_config *c, int ranks, int local, const ls_step_rates *rates,
                               ls_step_lists *out)
{
    ls_step_dry s;
    *out = (ls_step_lists){ .ranks = ranks, .local = local };
    ls_status st = ls_step_dry_begin(c, ranks, local, true, &s);
    if (st == LS_OK) {
        memcpy(out->size, s.plan.size, sizeof out->size);
        memcpy(out->order, s.plan.order, sizeof out->order);
        out->stages = s.plan.size[LS_AXIS_PP];
        out->schedule = s.plan.schedule ? s.plan.schedule : "1f1b";
        out->micro_batches = s.plan.micro_batches;
        const ls_pipe_config pipe = { .schedule = s.plan.schedule, .chunks = s.plan.chunks,
                                      .micro_batches = s.plan.micro_batches };
        out->chunks = ls_pipe_chunks(&pipe, out->stages);
        ls_step_dry_work(&s, &out->flops, &out->tokens, &out->what);
        st = copy_uneven(rates->measured, out);
    }
    for (int k = 0; st == LS_OK && k < out->stages; k++) {
        ls_train_dry d = { 0 };
        const ls_measured *m = rates->measured ? &rates->measured[rates->by_stage ? k : 0] : NULL;
        writer w = { .s = &s, .rates = rates, .measured = m, .d = &d, .to = &out->of[k], .rank = k,
                     .uneven = out->uneven != NULL };
        st = ls_step_dry_open(&s, k, &d);
        if (st == LS_OK) st = write_stage(&w, &d);
        free(w.wanted);
        ls_train_dry_close(&d);
    }
    ls_step_dry_end(&s);
    if (st < 0) ls_step_lists_free(out);
    return st;
}

void ls_step_lists_free(ls_step_lists *l)
{
    for (int k = 0; k < LS_STEP_STAGES; k++) {
        free(l->of[k].item);
        free(l->of[k].op);
    }
    free(l->uneven);
    *l = (ls_step_lists){ 0 };
}
