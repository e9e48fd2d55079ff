/* explain_run.c -- four answers about a plan, or a run: what is replicated, what is sharded, what is on the critical
 * path, and how the optimizer's semantics stay what they are on one rank.
 */
#include "train/explain_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/explain_time.h"

/* --- the answers ----------------------------------------------------------------------------------------- */

typedef struct answer {
    const ls_train_config *c;
    const ls_explained *e;
    const ls_explain_layout *l;
    const char *folder;
    const ls_run_counters *k;
    bool memory; /* memory.json was compared */
    char too_large[500]; /* why a configuration does not fit memory.limit; "": it fits, or there is no limit */
    ls_step_split split; /* of a run */
    /* where ranks have different samples, and nothing else divides the model, on one node; NULL elsewhere */
    const ls_zero_costs *z;
    const ls_zero_column *col;
    const ls_zero_rank *r; /* rank 0 */
} answer;

/* Ranks that divide layers, sequences or experts. */
static bool divides(const ls_explain_layout *l) { return l->plan.size[LS_AXIS_DP] != l->size; }

static const char *const class_name[LS_ZERO_CLASSES] = { "parameters", "bf16 copies", "gradients", "optimizer state" };

/* A formula says it: each of its terms is divided by the number of shards, or not. */
static const char *where_of(const answer *a, int k)
{
    const char *f = a->col->held[k], *plus = strchr(f, '+'), *over = strchr(f, '/');
    if (a->z->size == 1) return "whole";
    if (!over) return "replicated";
    return plus && over > plus ? "sharded in part" : "sharded";
}

static bool holds(const answer *a, int k) { return ls_zero_planned(&a->r->held[k]) > 0; }

static const char *coll_of(const answer *a, int k)
{
    if (k == LS_ZERO_NEW) return "all_gather";
    if (k == LS_ZERO_SUMS_SETS) return "all_reduce";
    return k == LS_ZERO_SUMS && (a->col->stage == 0 || a->z->sets > 1) ? "all_reduce" : "reduce_scatter";
}

/* Which part of the bytes that its formula names a rank moves. */
static const char *part_of(const answer *a, int k)
{
    if (k == LS_ZERO_SUMS_SETS) return "(C-1)/C";
    return (k == LS_ZERO_SUMS || a->z->sets == 1) ? "(W-1)/W" : "(S-1)/S";
}

static const char *what_of(int k)
{
    static const char *const what[LS_ZERO_TRAVELS] = { "gradients", "gradients in a set of shards", "gradients between sets",
                                                       "new values" };
    return what[k];
}

/* When it moves, and what it can hide behind. */
static const char *when_of(const answer *a, int k)
{
    if (k == LS_ZERO_SUMS_SETS) return "in the last backward of a step, after the sums in the set";
    if (k != LS_ZERO_NEW && !a->c->ddp.overlap) return "after backward: exposed (ddp.overlap is false)";
    if (k != LS_ZERO_NEW) return "in backward, bucket by bucket: the last bucket is exposed";
    if (a->col->stage < 3) return "after the optimizer's step: exposed";
    return a->c->zero.prefetch > 0 ? "before each unit computes, ahead of it: the first unit's is exposed"
                                   : "before each unit computes: exposed (zero.prefetch is 0)";
}

/* What ranks that divide a model add to it. */
static int semantics_of_axes(const ls_explain_layout *l, const char *out[4])
{
    const int *size = l->plan.size;
    int n = 0;
    if (size[LS_AXIS_TP] > 1)
        out[n++] = l->plan.sequence_parallel
                       ? "ranks of tp update different parts of a matrix; gradients of what all of them have, norms and biases, are summed "
                         "over their parts of the sequence first"
                       : "ranks of tp update different parts of a matrix; what all of them have, norms and biases, gets the same gradient on "
                         "each";
    if (size[LS_AXIS_PP] > 1)
        out[n++] = "stages of pp update different layers; a tied embedding is on the first and the last one, which sum its gradient "
                   "first";
    if (size[LS_AXIS_CP] > 1)
        out[n++] = "each token's loss is computed on one rank of cp: its gradients are summed over cp with those of other samples";
    if (size[LS_AXIS_EP] > 1)
        out[n++] = "an expert is on one rank of ep: its gradient is the sum over the tokens of all ranks that were sent to it, divided by the "
                   "same number as every other gradient";
    return n;
}

#define WHY_MOST 10

/* Why each weight gets the update that one rank with the whole batch would make. */
static int semantics(const answer *a, const char *out[WHY_MOST])
{
    const int *size = a->l->plan.size;
    const bool alone = a->l->size == 1, replicas = a->l->size / size[LS_AXIS_TP] / size[LS_AXIS_PP] > 1;
    int n = 0;
    out[n++] = "all ranks start from the same values: rank 0's, or a checkpoint's";
    out[n++] = alone ? "one rank has the whole batch"
               : strcmp(a->c->ddp.hook, "none") != 0
                   ? "all ranks get the same bits of the mean gradient, as the communication hook rounds it"
                   : "each element's update uses the mean gradient of the whole batch: losses are scaled by the step's "
                     "count, so any division over ranks sums to the same";
    n += semantics_of_axes(a->l, out + n);
    if (a->c->zero.stage == 0 && (replicas || alone))
        out[n++] = divides(a->l) ? "replicas make the same update of the same weights from the same bits: they stay equal without being sent"
                                 : "every rank makes the same update of all weights from the same bits: weights stay equal without "
                                   "being sent";
    if (a->c->zero.stage > 0)
        out[n++] = "one rank per set owns an element, with its state: it alone updates it, as a single rank would, and the others get "
                   "the new value before they read it";
    if (a->c->optim.clip > 0)
        out[n++] = "the norm for clipping is of all ranks' elements, each counted once, before the update";
    if (a->c->ddp.guard && a->c->zero.stage == 0 && replicas && size[LS_AXIS_EP] == 1)
        out[n++] = "the replica guard compares a hash of all weights after each step (ddp.guard)";
    return n;
}

static uint64_t moved(const answer *a)
{
    bool most;
    return ls_explain_moved(a->l, 0, &most);
}

static uint64_t formula_of(const ls_zero_rank *r)
{
    uint64_t sum = 0;
    for (int k = 0; k < LS_ZERO_TRAVELS; k++) sum += r->formula[k];
    return sum;
}

/* --- state, of ranks that divide more than samples ---------------------------------------------------------- */

typedef struct state_row {
    const char *what;
    ls_mem_kind kind;
    int stage; /* of ZeRO that shards it over replicas; 0: none does */
} state_row;

static const state_row states[] = {
    { "parameters", LS_MEM_PARAM, 3 }, { "gradients", LS_MEM_GRAD, 2 }, { "optimizer state", LS_MEM_OPTIM, 1 },
    { "activations", LS_MEM_ACT, 0 },
};
#define NSTATES (sizeof states / sizeof *states)

static void add_axis(char *buf, size_t n, const char *name)
{
    const size_t at = strlen(buf);
    snprintf(buf + at, n - at, "%s%s", at ? ", " : "", name);
}

/* Over which axes the ranks have different parts of it, and over which the same. */
static void divide(const ls_explain_layout *l, const state_row *s, char parted[64], char same[64])
{
    static const char *const sp[] = { "tp (with sp all of them)", "tp (inside layers)" };
    const int sets = l->plan.hsdp > 1 ? l->plan.hsdp : 1;
    char copies[32];
    snprintf(copies, sizeof copies, "%d sets of shards", sets);
    parted[0] = same[0] = 0;
    for (int a = 0; a < LS_AXES; a++) {
        if (l->plan.size[a] < 2) continue;
        const bool layers = a == LS_AXIS_TP || a == LS_AXIS_PP, act = s->kind == LS_MEM_ACT;
        const bool zero = !act && l->plan.ddp.zero_stage >= s->stage, experts = a == LS_AXIS_EP && !act;
        if (act && a == LS_AXIS_TP) add_axis(parted, 64, sp[!l->plan.sequence_parallel]);
        else if (act || layers || zero) add_axis(parted, 64, ls_axis_name((ls_axis)a));
        else if (experts) add_axis(parted, 64, "ep (experts)"), add_axis(same, 64, "ep (the rest)");
        else add_axis(same, 64, ls_axis_name((ls_axis)a));
    }
    if (s->stage > 0 && l->plan.ddp.zero_stage >= s->stage && sets > 1) add_axis(same, 64, copies);
}

/* --- as text --------------------------------------------------------------------------------------------- */

static void add_parts(const answer *a, ls_text *out)
{
    char parted[64], same[64];
    ls_text_add(out, "\nstate of rank 0              bytes  different over                  the same over\n");
    for (size_t i = 0; i < NSTATES; i++) {
        divide(a->l, &states[i], parted, same);
        ls_text_add(out, "  %-16s %15zu  %-30s  %s\n", states[i].what, a->l->rank[0].plan.bytes[states[i].kind],
                    *parted ? parted : "-", *same ? same : "-");
    }
    const ls_explain_elements *d = &a->l->rank[0].dense, *x = &a->l->rank[0].experts;
    ls_text_add(out, "  of %llu parameters rank 0 reads %llu and updates %llu\n", (unsigned long long)a->l->parameters,
                (unsigned long long)(d->here + x->here), (unsigned long long)(d->own + x->own));
    if (a->memory) ls_text_add(out, "  memory.json has these bytes of parameters, gradients and optimizer, as the peak of the run\n");
}

static void add_time(const answer *a, ls_text *out)
{
    if (!a->k) return;
    ls_text_add(out, "  %-43s %10llu  in %zu of %zu steps (%lld to %lld)\n", "counted by the run", (unsigned long long)a->k->bytes,
                a->k->steady, a->k->steps, (long long)a->k->first, (long long)a->k->last);
    ls_text_add(out, "  such a step took %.3g ms, in %.3g ms of which rank 0 waited for collectives (%.1f%%)\n",
                1e3 * a->k->seconds, 1e3 * a->k->exposed_s, 100.0 * a->k->exposed_s / a->k->seconds);
}

static void add_state(const answer *a, ls_text *out)
{
    ls_text_add(out, "\nreplicated or sharded                bytes on rank 0\n");
    for (int k = 0; k < LS_ZERO_CLASSES; k++)
        if (holds(a, k))
            ls_text_add(out, "  %-18s %-16s %15zu  %s\n", class_name[k], where_of(a, k), ls_zero_planned(&a->r->held[k]),
                        a->col->held[k]);
    ls_text_add(out, "  %-18s %-16s %15zu  of this rank's own samples\n", "activations", a->z->size == 1 ? "whole" : "sharded",
                a->r->plan.bytes[LS_MEM_ACT]);
    ls_text_add(out, "  %-18s %-16s                  %lld of %lld per rank and step\n", "samples", a->z->size == 1 ? "whole" : "sharded",
                (long long)(a->c->train.global_batch / a->z->size), (long long)a->c->train.global_batch);
    if (a->memory) ls_text_add(out, "  memory.json has these bytes of parameters, gradients and optimizer, as the peak of the run\n");
}

static void add_path(const answer *a, ls_text *out)
{
    const ls_zero_rank *r = a->r;
    ls_text_add(out, "\ncritical path of a step               bytes of rank 0, by %s\n",
                *a->c->comm.transport ? a->c->comm.transport : a->z->size > 1 ? "shm" : "self");
    for (int k = 0; k < LS_ZERO_TRAVELS; k++) {
        if (r->counted[k] == 0) continue;
        ls_text_add(out, "  %-14s %-28s %10llu  %s of %s, %s\n", coll_of(a, k), what_of(k), (unsigned long long)r->formula[k],
                    part_of(a, k), a->col->travels[k], when_of(a, k));
        if (r->counted[k] != r->formula[k])
            ls_text_add(out, "  %-43s %10lld  rows are whole, and buckets end at cache lines\n", "  padding",
                        (long long)r->counted[k] - (long long)r->formula[k]);
    }
    ls_text_add(out, "  %-43s %10llu  after backward: exposed\n", "norm, losses, signals", (unsigned long long)r->others);
    ls_text_add(out, "  %-43s %10llu\n", "all of it", (unsigned long long)moved(a));
    add_time(a, out);
}

static void add_title(const answer *a, ls_text *out)
{
    char axes[96];
    ls_text_add(out, "%s%s%s, %s, %s: %llu parameters, %d rank%s", a->folder ? a->folder : "", a->folder ? ": " : "", a->c->model.name,
                a->c->train.dtype, a->c->optim.name, (unsigned long long)a->l->parameters, a->l->size, a->l->size == 1 ? "" : "s");
    if (divides(a->l)) ls_text_add(out, " = %s", ls_explain_axes(a->l, axes, sizeof axes));
    if (a->l->nnodes > 1) ls_text_add(out, " on %d nodes", a->l->nnodes);
    ls_text_add(out, ", zero.stage %lld", (long long)a->c->zero.stage);
    if (a->c->zero.stage == 3) ls_text_add(out, ", zero.copy %s", a->c->zero.copy);
    if (a->c->zero.stage == 3 && strcmp(a->c->zero.copy, "rank") == 0) ls_text_add(out, ", zero.reshard %s", a->c->zero.reshard);
    ls_text_add(out, "\n");
}

static void add_text(const answer *a, ls_text *out)
{
    const char *why[WHY_MOST];
    const int n = semantics(a, why);
    if (a->e->failure) ls_run_failure_text(a->e->failure, a->l, out);
    if (*a->too_large) ls_text_add(out, "cause: out of memory: %s\n", a->too_large);
    if (a->k) ls_step_split_cause(&a->split, out);
    add_title(a, out);
    if (a->r) add_state(a, out);
    else add_parts(a, out);
    if (a->r) add_path(a, out);
    ls_explain_layout_text(a->l, a->e->rank, out);
    if (!a->r) ls_explain_path_text(a->l, a->e->rank, out);
    if (!a->r && a->k) ls_text_add(out, "\n");
    if (!a->r) add_time(a, out);
    if (a->k) ls_step_split_text(&a->split, out);
    ls_text_add(out, "\nwhy the optimizer does what it does on one rank\n");
    for (int i = 0; i < n; i++) ls_text_add(out, "  %s\n", why[i]);
    if (a->r)
        ls_text_add(out, "\nP parameters, M of them read in bf16 and V in f32, U bytes of units, W ranks, S shards: see `lockstep explain "
                         "zero`\n");
}

/* --- as JSON --------------------------------------------------------------------------------------------- */

static void add_string(ls_text *out, const char *key, const char *s)
{
    ls_text_add(out, "\"%s\": ", key);
    if (s) ls_json_string(out, s);
    else ls_text_add(out, "null");
}

static void json_formulas(const answer *a, ls_text *out)
{
    const char *comma = "";
    ls_text_add(out, "\"state\": [");
    for (int k = 0; k < LS_ZERO_CLASSES; k++) {
        if (!holds(a, k)) continue;
        ls_text_add(out, "%s\n  {\"what\": \"%s\", \"where\": \"%s\", \"bytes\": %zu, ", comma, class_name[k], where_of(a, k),
                    ls_zero_planned(&a->r->held[k]));
        add_string(out, "formula", a->col->held[k]);
        ls_text_add(out, "}");
        comma = ",";
    }
    ls_text_add(out, "],\n \"critical_path\": [");
    comma = "";
    for (int k = 0; k < LS_ZERO_TRAVELS; k++) {
        if (a->r->counted[k] == 0) continue;
        ls_text_add(out, "%s\n  {\"coll\": \"%s\", \"what\": \"%s\", \"formula\": %llu, \"bytes\": %llu, ", comma, coll_of(a, k),
                    what_of(k), (unsigned long long)a->r->formula[k], (unsigned long long)a->r->counted[k]);
        add_string(out, "part", part_of(a, k));
        ls_text_add(out, ", ");
        add_string(out, "of", a->col->travels[k]);
        ls_text_add(out, ", ");
        add_string(out, "when", when_of(a, k));
        ls_text_add(out, "}");
        comma = ",";
    }
    ls_text_add(out, "],\n \"bytes\": {\"formula\": %llu, \"padding\": %lld, \"others\": %llu, ", (unsigned long long)formula_of(a->r),
                (long long)(moved(a) - a->r->others) - (long long)formula_of(a->r), (unsigned long long)a->r->others);
}

/* The keys of json_formulas, where there are none. */
static void json_parts(const answer *a, ls_text *out)
{
    char parted[64], same[64];
    ls_text_add(out, "\"state\": [");
    for (size_t i = 0; i < NSTATES; i++) {
        divide(a->l, &states[i], parted, same);
        ls_text_add(out, "%s\n  {\"what\": \"%s\", \"different_over\": \"%s\", \"same_over\": \"%s\", \"bytes\": %zu}", i ? "," : "",
                    states[i].what, parted, same, a->l->rank[0].plan.bytes[states[i].kind]);
    }
    ls_text_add(out, "],\n \"bytes\": {");
}

static void add_json(const answer *a, ls_text *out)
{
    const char *why[WHY_MOST];
    const int n = semantics(a, why);
    bool most;
    const bool copies = a->c->zero.stage == 3, gathers = copies && strcmp(a->c->zero.copy, "rank") == 0;
    ls_text_add(out, "{");
    add_string(out, "run", a->folder);
    ls_text_add(out, ", ");
    add_string(out, "model", a->c->model.name);
    ls_text_add(out, ", \"parameters\": %llu, \"world_size\": %d, \"stage\": %lld, ", (unsigned long long)a->l->parameters, a->l->size,
                (long long)a->c->zero.stage);
    add_string(out, "copy", copies ? a->c->zero.copy : NULL);
    ls_text_add(out, ", ");
    add_string(out, "reshard", gathers ? a->c->zero.reshard : NULL);
    ls_text_add(out, ",\n ");
    if (a->r) json_formulas(a, out);
    else json_parts(a, out);
    ls_text_add(out, "\"total\": %llu", (unsigned long long)ls_explain_moved(a->l, 0, &most));
    ls_text_add(out, ", \"at_most\": %s", most ? "true" : "false");
    if (a->k)
        ls_text_add(out, ", \"counted\": %llu, \"steady_steps\": %zu, \"steps\": %zu", (unsigned long long)a->k->bytes,
                    a->k->steady, a->k->steps);
    ls_text_add(out, "},\n \"memory_compared\": %s, \"seconds\": ", a->memory ? "true" : "false");
    ls_json_number(out, a->k ? a->k->seconds : (double)NAN);
    ls_text_add(out, ", \"exposed_seconds\": ");
    ls_json_number(out, a->k ? a->k->exposed_s : (double)NAN);
    ls_text_add(out, ",\n ");
    ls_explain_layout_json(a->l, out);
    ls_text_add(out, ",\n \"time\": ");
    if (a->k) ls_step_split_json(&a->split, out);
    else ls_text_add(out, "null");
    ls_text_add(out, ",\n \"failure\": ");
    if (a->e->failure) ls_run_failure_json(a->e->failure, a->l, out);
    else ls_text_add(out, "null");
    ls_text_add(out, ", ");
    add_string(out, "out_of_memory", *a->too_large ? a->too_large : NULL);
    ls_text_add(out, ",\n \"semantics\": [");
    for (int i = 0; i < n; i++) {
        ls_text_add(out, "%s\n  ", i ? "," : "");
        ls_json_string(out, why[i]);
    }
    ls_text_add(out, "]}\n");
}

/* --- both ------------------------------------------------------------------------------------------------- */

static const ls_zero_column *chosen(const ls_zero_costs *z)
{
    for (int i = 0; i < z->n; i++)
        if (z->column[i].chosen) return &z->column[i];
    return NULL;
}

/* The formulas of data parallelism, where nothing else divides the model. */
static ls_status find_formulas(answer *a, const ls_model_config *mc, ls_zero_costs *z)
{
    bool stages[LS_ZERO_STAGES] = { false };
    if (divides(a->l) || a->l->nnodes > 1) return LS_OK;
    stages[a->c->zero.stage] = true;
    LS_TRY(ls_zero_costs_check(a->c, a->l->size));
    LS_TRY(ls_zero_costs_make(a->c, mc, a->l->size, stages, false, z));
    a->z = z;
    a->col = chosen(z);
    if (!a->col || *a->col->refused)
        return ls_fail(LS_UNSUPPORTED, "zero.stage %lld is not explained%s%s", (long long)a->c->zero.stage, a->col ? ": " : "",
                       a->col ? a->col->refused : "");
    a->r = &a->col->rank[0];
    return LS_OK;
}

/* Whether a configuration fits memory.limit, by its largest rank. */
static ls_status compare_memory(answer *a, const ls_model_config *mc)
{
    const ls_explain_layout *l = a->l;
    int most = 0, here = 0;
    if (a->folder || !a->c->memory.limit) return LS_OK;
    for (int r = 1; r < l->size; r++)
        if (l->rank[r].plan.total > l->rank[most].plan.total) most = r;
    for (int r = 0; r < l->size; r++) here += l->node[r] == l->node[most];
    const ls_memory_ranks ranks = { .size = l->size, .here = here, .rank = most, .node = l->node };
    const ls_status st = ls_memory_check(a->c, mc, &ranks, &l->rank[most].plan);
    if (st == LS_NO_MEMORY) snprintf(a->too_large, sizeof a->too_large, "%s", ls_last_error());
    return st == LS_NO_MEMORY ? LS_OK : st;
}

static ls_status explain(answer *a, ls_explain_layout *l, bool json, ls_text *out)
{
    if (a->e->rank < 0 || a->e->rank >= l->size)
        return ls_fail(LS_USAGE, "--rank: there are ranks 0 to %d, found %d", l->size - 1, a->e->rank);
    if (a->k) LS_TRY(ls_explain_check(a->folder, a->k, l, &a->memory));
    LS_TRY(compare_memory(a, a->e->mc));
    if (a->k) LS_TRY(ls_step_split_of(a->e, l, &a->split));
    if (json) add_json(a, out);
    else add_text(a, out);
    return LS_OK;
}

ls_status ls_explain_run(const ls_explained *e, bool json, ls_text *out)
{
    ls_explain_layout l;
    ls_zero_costs z = { 0 };
    answer a = { .c = e->c, .e = e, .l = &l, .folder = e->folder, .k = e->k };
    ls_status st = ls_explain_layout_make(e->c, e->mc, e->size, e->nodes, e->node, &l);
    if (st == LS_OK) st = find_formulas(&a, e->mc, &z);
    if (st == LS_OK) st = explain(&a, &l, json, out);
    ls_zero_costs_free(&z);
    ls_explain_layout_free(&l);
    return st;
}
