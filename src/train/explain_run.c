/* explain_run.c -- four answers about a run: what is replicated, what is sharded, what is on the critical path, and
 * how the optimizer's semantics stay what they are on one rank. */
#include "train/explain_run.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "train/metrics_file.h"

#define MEMORY_MOST ((size_t)1 << 24) /* bytes of memory.json */
#define PATH_BYTES  600

/* --- what a run counted ---------------------------------------------------------------------------------- */

/* A step without an evaluation. */
typedef struct counted {
    int64_t step;
    uint64_t bytes;
    double seconds, exposed_s;
} counted;

typedef struct reading {
    counted *item; /* owned */
    size_t n, cap;
    int world_size;
} reading;

static ls_status read_line(void *arg, int64_t step, const json_t *j)
{
    reading *r = arg;
    const double ranks = ls_metrics_number(j, "world_size"), bytes = ls_metrics_number(j, "comm/bytes");
    const int size = ranks >= 1 && ranks <= 65536 ? (int)ranks : 0;
    if (size != r->world_size) r->n = 0; /* it went on with other ranks */
    r->world_size = size;
    if (json_object_get(j, "eval/loss") || !(bytes >= 0 && bytes < 9e15)) return LS_OK;
    if (r->n == r->cap) {
        const size_t cap = r->cap ? 2 * r->cap : 256;
        counted *more = realloc(r->item, cap * sizeof *more);
        if (!more) return ls_fail(LS_NO_MEMORY, "%zu steps of a run", cap);
        r->item = more;
        r->cap = cap;
    }
    r->item[r->n++] = (counted){ step, (uint64_t)bytes, ls_metrics_number(j, "time_metrics/end_to_end(s)"),
                                 ls_metrics_number(j, "comm/exposed(s)") };
    return LS_OK;
}

static int by_bytes(const void *a, const void *b)
{
    const counted *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return (x->step > y->step) - (x->step < y->step);
}

/* Most steps move the same bytes. The first two differ, since buckets are rebuilt, and so do the last of an epoch. */
static void find_steady(reading *r, ls_run_counters *out)
{
    qsort(r->item, r->n, sizeof *r->item, by_bytes);
    for (size_t i = 0, end; i < r->n; i = end) {
        double seconds = 0, exposed = 0;
        for (end = i; end < r->n && r->item[end].bytes == r->item[i].bytes; end++) {
            seconds += r->item[end].seconds;
            exposed += r->item[end].exposed_s;
        }
        const size_t n = end - i;
        if (n < out->steady || (n == out->steady && r->item[end - 1].step < out->last)) continue;
        out->steady = n;
        out->first = r->item[i].step;
        out->last = r->item[end - 1].step;
        out->bytes = r->item[i].bytes;
        out->seconds = seconds / (double)n;
        out->exposed_s = exposed / (double)n;
    }
}

ls_status ls_run_counters_read(const char *folder, ls_run_counters *out)
{
    reading r = { 0 };
    *out = (ls_run_counters){ 0 };
    ls_status st = ls_metrics_read(folder, read_line, &r);
    if (st == LS_OK && r.n == 0)
        st = ls_fail(LS_BAD_FILE, "%s/metrics.jsonl has no step without an evaluation, which has traffic of its own", folder);
    if (st == LS_OK) {
        out->world_size = r.world_size;
        out->steps = r.n;
        find_steady(&r, out);
    }
    free(r.item);
    return st;
}

/* --- is it the plan? ------------------------------------------------------------------------------------- */

/* All bytes that rank 0 moves in a step: those of the model's gradients and values, and the others. */
static uint64_t moved(const ls_zero_rank *r)
{
    uint64_t sum = r->others;
    for (int k = 0; k < LS_ZERO_TRAVELS; k++) sum += r->counted[k];
    return sum;
}

static ls_status check_bytes(const char *folder, int size, const ls_zero_rank *r, const ls_run_counters *k)
{
    if (moved(r) == k->bytes) return LS_OK;
    return ls_fail(LS_BAD_FILE, "%s: in %zu of %zu steps rank 0 moved %llu bytes, but the plan of its config.yaml for %d ranks on one "
                   "node has %llu: is config.yaml the run's own, was it written by this version, and were all ranks on one node?",
                   folder, k->steady, k->steps, (unsigned long long)k->bytes, size, (unsigned long long)moved(r));
}

static ls_status check_kinds(const char *path, const json_t *j, const ls_memory_plan *p)
{
    static const ls_mem_kind kinds[] = { LS_MEM_PARAM, LS_MEM_GRAD, LS_MEM_OPTIM };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const char *name = ls_mem_kind_name(kinds[i]);
        const json_t *peak = json_object_get(json_object_get(j, name), "peak");
        if (!json_is_integer(peak)) return ls_fail(LS_BAD_FILE, "%s: has no number %s.peak", path, name);
        if ((size_t)json_integer_value(peak) != p->bytes[kinds[i]])
            return ls_fail(LS_BAD_FILE, "%s: %s.peak is %lld bytes, but the plan of config.yaml has %zu", path, name,
                           (long long)json_integer_value(peak), p->bytes[kinds[i]]);
    }
    return LS_OK;
}

/* *there: the run has ended, and has memory.json. */
static ls_status check_memory(const char *folder, const ls_memory_plan *p, bool *there)
{
    char path[PATH_BYTES], *text = NULL;
    size_t n = 0;
    json_error_t e;
    snprintf(path, sizeof path, "%.500s/memory.json", folder);
    *there = ls_file_read(path, MEMORY_MOST, &text, &n) == LS_OK;
    if (!*there) return LS_OK; /* a run that was killed has none */
    json_t *j = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    const ls_status st = j ? check_kinds(path, j, p) : ls_fail(LS_BAD_FILE, "%s: line %d: %s", path, e.line, e.text);
    json_decref(j);
    free(text);
    return st;
}

/* --- the answers ----------------------------------------------------------------------------------------- */

typedef struct answer {
    const ls_train_config *c;
    const ls_zero_costs *z;
    const ls_zero_column *col;
    const ls_zero_rank *r; /* rank 0 */
    const char *folder;
    const ls_run_counters *k;
    bool memory; /* memory.json was compared */
} answer;

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

/* Why each weight gets the update that one rank with the whole batch would make. */
static int semantics(const answer *a, const char *out[5])
{
    int n = 0;
    out[n++] = "all ranks start from the same values: rank 0's, or a checkpoint's";
    out[n++] = a->z->size == 1 ? "one rank has the whole batch"
               : strcmp(a->c->ddp.hook, "none") != 0
                   ? "all ranks get the same bits of the mean gradient, as the communication hook rounds it"
                   : "each element's update uses the mean gradient of the whole batch: losses are scaled by the step's "
                     "count, so any division over ranks sums to the same";
    if (a->col->stage == 0)
        out[n++] = "every rank makes the same update of all weights from the same bits: weights stay equal without being sent";
    else
        out[n++] = "one rank per set owns an element, with its state: it alone updates it, as a single rank would, and the others get "
                   "the new value before they read it";
    if (a->c->optim.clip > 0)
        out[n++] = "the norm for clipping is of all ranks' elements, each counted once, before the update";
    if (a->c->ddp.guard && a->col->stage == 0 && a->z->size > 1)
        out[n++] = "the replica guard compares a hash of all weights after each step (ddp.guard)";
    return n;
}

static uint64_t formula_of(const ls_zero_rank *r)
{
    uint64_t sum = 0;
    for (int k = 0; k < LS_ZERO_TRAVELS; k++) sum += r->formula[k];
    return sum;
}

/* --- as text --------------------------------------------------------------------------------------------- */

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
    ls_text_add(out, "  %-43s %10llu\n", "all of it", (unsigned long long)moved(r));
    if (!a->k) return;
    ls_text_add(out, "  %-43s %10llu  in %zu of %zu steps (%lld to %lld)\n", "counted by the run", (unsigned long long)a->k->bytes,
                a->k->steady, a->k->steps, (long long)a->k->first, (long long)a->k->last);
    ls_text_add(out, "  such a step took %.3g ms, in %.3g ms of which rank 0 waited for collectives (%.1f%%)\n",
                1e3 * a->k->seconds, 1e3 * a->k->exposed_s, 100.0 * a->k->exposed_s / a->k->seconds);
}

static void add_text(const answer *a, ls_text *out)
{
    const char *why[5];
    const int n = semantics(a, why);
    ls_text_add(out, "%s%s%s, %s, %s: %zu parameters, %d rank%s, zero.stage %d", a->folder ? a->folder : "",
                a->folder ? ": " : "", a->c->model.name, a->c->train.dtype, a->c->optim.name, a->z->elements, a->z->size,
                a->z->size == 1 ? "" : "s", a->col->stage);
    if (a->col->copy) ls_text_add(out, ", zero.copy %s", a->col->copy);
    if (a->col->reshard) ls_text_add(out, ", zero.reshard %s", a->col->reshard);
    ls_text_add(out, "\n");
    add_state(a, out);
    add_path(a, out);
    ls_text_add(out, "\nwhy the optimizer does what it does on one rank\n");
    for (int i = 0; i < n; i++) ls_text_add(out, "  %s\n", why[i]);
    ls_text_add(out, "\nP parameters, M of them read in bf16 and V in f32, U bytes of units, W ranks, S shards: see `lockstep explain zero`\n");
}

/* --- as JSON --------------------------------------------------------------------------------------------- */

static void add_string(ls_text *out, const char *key, const char *s)
{
    ls_text_add(out, "\"%s\": ", key);
    if (s) ls_json_string(out, s);
    else ls_text_add(out, "null");
}

static void add_json(const answer *a, ls_text *out)
{
    const char *why[5], *comma = "";
    const int n = semantics(a, why);
    ls_text_add(out, "{");
    add_string(out, "run", a->folder);
    ls_text_add(out, ", ");
    add_string(out, "model", a->c->model.name);
    ls_text_add(out, ", \"parameters\": %zu, \"world_size\": %d, \"stage\": %d, ", a->z->elements, a->z->size, a->col->stage);
    add_string(out, "copy", a->col->copy);
    ls_text_add(out, ", ");
    add_string(out, "reshard", a->col->reshard);
    ls_text_add(out, ",\n \"state\": [");
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
    ls_text_add(out, "],\n \"bytes\": {\"formula\": %llu, \"padding\": %lld, \"others\": %llu, \"total\": %llu",
                (unsigned long long)formula_of(a->r),
                (long long)(moved(a->r) - a->r->others) - (long long)formula_of(a->r), (unsigned long long)a->r->others,
                (unsigned long long)moved(a->r));
    if (a->k)
        ls_text_add(out, ", \"counted\": %llu, \"steady_steps\": %zu, \"steps\": %zu", (unsigned long long)a->k->bytes,
                    a->k->steady, a->k->steps);
    ls_text_add(out, "},\n \"memory_compared\": %s, \"seconds\": ", a->memory ? "true" : "false");
    ls_json_number(out, a->k ? a->k->seconds : (double)NAN);
    ls_text_add(out, ", \"exposed_seconds\": ");
    ls_json_number(out, a->k ? a->k->exposed_s : (double)NAN);
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

static ls_status explain(answer *a, bool json, ls_text *out)
{
    if (!a->col || *a->col->refused)
        return ls_fail(LS_UNSUPPORTED, "zero.stage %lld is not explained%s%s", (long long)a->c->zero.stage, a->col ? ": " : "",
                       a->col ? a->col->refused : "");
    a->r = &a->col->rank[0];
    if (a->folder) LS_TRY(check_bytes(a->folder, a->z->size, a->r, a->k));
    if (a->folder) LS_TRY(check_memory(a->folder, &a->r->plan, &a->memory));
    if (json) add_json(a, out);
    else add_text(a, out);
    return LS_OK;
}

ls_status ls_explain_run(const ls_train_config *c, const ls_model_config *mc, int size, const char *folder,
                         const ls_run_counters *k, bool json, ls_text *out)
{
    ls_zero_costs z;
    bool stages[LS_ZERO_STAGES] = { false };
    stages[c->zero.stage] = true;
    ls_status st = ls_zero_costs_make(c, mc, size, stages, false, &z);
    answer a = { .c = c, .z = &z, .col = chosen(&z), .folder = folder, .k = k };
    if (st == LS_OK) st = explain(&a, json, out);
    ls_zero_costs_free(&z);
    return st;
}
