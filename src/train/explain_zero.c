/* explain_zero.c -- the formulas of parallel/zero_formula.h for a model, and beside them a dry world. */
#include "train/explain_zero.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep/transport.h"
#include "parallel/slots.h"
#include "train/memory_units.h"

/* --- what a formula depends on ---------------------------------------------------------------------------- */

/* Several sets of shards whose ranks do not all map each other's memory: sums are complete within a set first. */
static bool in_two_steps(const ls_parallel *p) { return p->copies && !ls_group_is_mapped(p->mesh.replicas); }

/* Levels of a binary tree over so many micro-batches: partial sums that wait for others (parallel/partial.h). */
static size_t levels_of(const ls_ddp_config *d, int micro_batches)
{
    size_t n = 0;
    while (d->tree && (micro_batches - 1) >> n > 0) n++;
    return n;
}

/* --- a model's elements and units ---------------------------------------------------------------------- */

static bool copied(const ls_params *ps, const ls_param *p)
{
    return ps->bound == LS_BF16 && ls_param_bf16_nbytes(p) > 0;
}

static void count(const ls_params *ps, ls_zero_elements *all, ls_zero_elements *own)
{
    *all = *own = (ls_zero_elements){ 0 };
    for (int i = 0; i < ps->n; i++) {
        const ls_param *p = &ps->item[i];
        const size_t n = (size_t)ls_tensor_count(&p->t);
        all->p += n;
        own->p += p->own.count;
        all->m += copied(ps, p) ? n : 0;
        own->m += copied(ps, p) ? p->own.count : 0;
    }
}

/* Bytes of parameters [first, first + n): of the values that operations read, or of gradients. */
static size_t bytes_of(const ls_params *ps, int first, int n, bool gradients)
{
    size_t bytes = 0;
    for (const ls_param *p = ps->item + first; p < ps->item + first + n; p++)
        bytes += (size_t)ls_tensor_count(&p->t) * (!gradients && copied(ps, p) ? 2 : 4);
    return bytes;
}

/* Most bytes of `many` neighbours among the units that have parameters; *last is what the last of them has. */
static size_t neighbours(const ls_model *m, int many, bool gradients, size_t *last)
{
    const ls_units *us = &m->units;
    size_t most = 0;
    *last = 0;
    for (int from = 0; from < us->n; from++) {
        size_t sum = 0;
        if (us->item[from].nparams == 0) continue;
        *last = bytes_of(&m->params, us->item[from].first, us->item[from].nparams, gradients);
        for (int i = from, left = many; i < us->n && left > 0; i++) {
            sum += bytes_of(&m->params, us->item[i].first, us->item[i].nparams, gradients);
            left -= us->item[i].nparams > 0;
        }
        if (sum > most) most = sum;
    }
    return most;
}

static size_t root_of(const ls_model *m, bool gradients) { return bytes_of(&m->params, 0, m->units.nroot, gradients); }

/* --- memory ---------------------------------------------------------------------------------------------- */

static ls_status differ(const char *what, size_t ledger, size_t want)
{
    return ls_fail(LS_INTERNAL, "%s: the ledger has %zu bytes of a rank's units, and formula and rows are %zu", what,
                   ledger, want);
}

/* Of `rest` bytes in no unit the first are for `other` purposes: the others are alignment. */
static ls_status align(const char *what, size_t rest, size_t other, ls_zero_held *h)
{
    if (rest < other)
        return ls_fail(LS_INTERNAL, "%s: the ledger has %zu bytes of no unit, and %zu are in use", what, rest, other);
    h->alignment = rest - other;
    return LS_OK;
}

static ls_status in_use(const char *what, size_t taken, size_t want, ls_zero_in_use *out)
{
    if (taken < want) return ls_fail(LS_INTERNAL, "%s: units use %zu bytes, and the formula is %zu", what, taken, want);
    *out = (ls_zero_in_use){ want, taken - want };
    return LS_OK;
}

/* What its units use one after another, beside what the largest neighbours take. */
static ls_status use(const ls_train_dry *d, const ls_ddp_config *dc, ls_zero_rank *out)
{
    const ls_model *m = d->par.model;
    const ls_ddp_in_use taken = ls_ddp_units_in_use(d->par.ddp);
    const int at_once = dc->reshard == LS_RESHARD_NEVER ? m->units.n : dc->prefetch + 1;
    size_t last, values = 0, grads = 0;
    if (ls_zero_gathers(dc)) values = neighbours(m, at_once, false, &last) + root_of(m, false);
    if (ls_zero_shards_sums(dc)) grads = neighbours(m, LS_SLOTS, true, &last) + root_of(m, true);
    LS_TRY(in_use("values", taken.values, values, &out->values));
    return in_use("gradients", taken.gradients, grads, &out->grads);
}

/* The ledger's rows have no padding, so they must be what the formula and whole rows say. The rest is in no row. */
static ls_status hold(const ls_train_config *c, const ls_train_dry *d, const ls_zero_costs *z, ls_zero_column *col,
                      ls_zero_rank *out)
{
    const ls_ledger *l = ls_world_ledger(d->w);
    const ls_memory_units rows = { l->row, l->nrows };
    const ls_ddp_config dc = ls_train_ddp(c);
    ls_zero_elements all, own;
    const ls_zero_how how = { .apart = in_two_steps(&d->par), .bf16 = z->dtype == LS_BF16, .nstates = z->nstates,
                              .levels = levels_of(&dc, z->micro_batches) };
    size_t want[LS_ZERO_CLASSES], rest[LS_MEM_KINDS], row[LS_MEM_KINDS];
    count(&d->par.model->params, &all, &own);
    for (ls_zero_class k = 0; k < LS_ZERO_CLASSES; k++) {
        const ls_zero_formula f = ls_zero_formula_of(k, &dc, &how);
        ls_zero_formula_text(&f, z->sets > 1, col->held[k]);
        out->held[k] = ls_zero_held_by(&f, &all, &own, ls_zero_shards(z, dc.zero_stage));
        want[k] = ls_zero_planned(&out->held[k]);
    }
    for (ls_mem_kind k = 0; k < LS_MEM_KINDS; k++) {
        rest[k] = ls_memory_no_unit(&rows, k, out->plan.bytes[k]);
        row[k] = out->plan.bytes[k] - rest[k];
    }
    const size_t values = want[LS_ZERO_VALUES] + want[LS_ZERO_COPIES];
    if (row[LS_MEM_PARAM] != values) return differ("parameters", row[LS_MEM_PARAM], values);
    if (row[LS_MEM_GRAD] != want[LS_ZERO_GRADS]) return differ("gradients", row[LS_MEM_GRAD], want[LS_ZERO_GRADS]);
    if (row[LS_MEM_OPTIM] != want[LS_ZERO_STATE]) return differ("optimizer", row[LS_MEM_OPTIM], want[LS_ZERO_STATE]);
    LS_TRY(use(d, &dc, out));
    out->packed = (out->plan.packed + LS_MEMORY_UNIT - 1) / LS_MEMORY_UNIT * LS_MEMORY_UNIT;
    out->samples = ls_memory_samples(c, &d->par);
    const ls_ddp_in_use taken = ls_ddp_units_in_use(d->par.ddp);
    const size_t values_in_use = taken.values + out->packed + out->samples;
    LS_TRY(align("parameters", rest[LS_MEM_PARAM], values_in_use, &out->held[LS_ZERO_VALUES]));
    LS_TRY(align("gradients", rest[LS_MEM_GRAD], taken.gradients, &out->held[LS_ZERO_GRADS]));
    return align("optimizer", rest[LS_MEM_OPTIM], 0, &out->held[LS_ZERO_STATE]);
}

/* --- traffic --------------------------------------------------------------------------------------------- */

/* What the collectives of a step carry: vectors of so many bytes together, of which a rank moves `part`/`of`. */
typedef struct travel {
    uint64_t bytes, part, of;
    char text[LS_ZERO_FORMULA];
} travel;

/* What a recorded collective is for; -1: it has no label, as those of the step itself have none, such as the norm's. */
static int purpose(const ls_parallel *p, const ls_recorded *had)
{
    if (!*had->label) return -1;
    if (had->coll == LS_ALL_GATHER) return LS_ZERO_NEW;
    return !p->copies ? LS_ZERO_SUMS : had->group == p->copies ? LS_ZERO_SUMS_SETS
           : had->group == p->shards ? LS_ZERO_SUMS_SET : LS_ZERO_SUMS;
}

static ls_status add_up(ls_world *w, const ls_parallel *p, ls_zero_rank *out)
{
    const ls_recorded *had;
    const int n = ls_world_recorded(w, &had);
    for (int i = 0; i < n; i++) {
        const int k = purpose(p, &had[i]);
        uint64_t moved;
        LS_TRY(ls_recorded_traffic(&had[i], &moved, NULL));
        if (k < 0) out->others += moved;
        else out->counted[k] += moved;
    }
    return LS_OK;
}

/* The bucket of a collective; a hook's has no number, but buckets start in order. */
static int bucket_of(const ls_recorded *had, int nth)
{
    static const char word[] = "bucket ";
    const char *const number = strncmp(had->label, word, sizeof word - 1) == 0 ? had->label + sizeof word - 1 : "";
    return *number >= '0' && *number <= '9' ? (int)strtol(number, NULL, 10) : nth;
}

/* Elements of the buckets whose sums travel as bf16, for each purpose. Later reductions of a step repeat the first. */
static void count_rounded(ls_world *w, const ls_parallel *p, ls_zero_rank *out)
{
    const ls_recorded *had;
    const int n = ls_world_recorded(w, &had), nbuckets = ls_ddp_buckets(p->ddp);
    int nth[LS_ZERO_TRAVELS] = { 0 };
    for (int i = 0; i < n; i++) {
        const int k = purpose(p, &had[i]);
        if (k < 0 || k == LS_ZERO_NEW || nth[k]++ >= nbuckets || !had[i].rounded) continue;
        out->rounded[k] += ls_ddp_bucket(p->ddp, bucket_of(&had[i], nth[k] - 1)).nbytes / sizeof(float);
    }
}

/* `times` whole vectors of gradients; `over` is a divisor that the text has: "/S". `may_round`: N has a meaning. */
static void add_sums(const ls_train_config *c, const ls_zero_costs *z, uint64_t times, bool may_round, uint64_t rounded,
                     const char *over, travel *t)
{
    const bool half = strcmp(c->ddp.hook, "f16") == 0 || strcmp(c->ddp.hook, "bf16") == 0;
    const int bytes = half ? 2 : 4;
    const char *const less = may_round && !half ? " - 2 N" : "";
    t->bytes = times * ((uint64_t)bytes * z->elements - 2 * rounded);
    if (times == 1 && !*over) snprintf(t->text, sizeof t->text, "%d P%s", bytes, less);
    else snprintf(t->text, sizeof t->text, "%d (%d P%s)%s", (int)times, bytes, less, over);
}

/* What travels of gradients. Several sets whose ranks all map each other's memory all_reduce over all ranks. */
static void sums(const ls_train_config *c, const ls_train_dry *d, const ls_zero_costs *z, const ls_zero_rank *r,
                 travel t[LS_ZERO_TRAVELS])
{
    const ls_parallel *p = &d->par;
    const uint64_t w = (uint64_t)z->size, s = (uint64_t)ls_zero_shards(z, (int)c->zero.stage);
    const uint64_t times = (uint64_t)ls_ddp_reductions(p->ddp, z->micro_batches);
    const bool wire = z->wire_bf16 && !ls_group_is_mapped(p->mesh.replicas);
    if (!in_two_steps(p)) {
        const uint64_t passes = c->zero.stage == 0 || p->copies ? 2 : 1; /* an all_reduce has both */
        t[LS_ZERO_SUMS] = (travel){ .part = w - 1, .of = w };
        add_sums(c, z, passes * times, wire, r->rounded[LS_ZERO_SUMS], "", &t[LS_ZERO_SUMS]);
        return;
    }
    t[LS_ZERO_SUMS_SET] = (travel){ .part = s - 1, .of = s };
    add_sums(c, z, times, wire, r->rounded[LS_ZERO_SUMS_SET], "", &t[LS_ZERO_SUMS_SET]);
    t[LS_ZERO_SUMS_SETS] = (travel){ .part = w / s - 1, .of = w };
    add_sums(c, z, 2, wire, r->rounded[LS_ZERO_SUMS_SETS], "/S", &t[LS_ZERO_SUMS_SETS]);
}

static travel new_values(const ls_ddp_config *d, const ls_zero_costs *z)
{
    const uint64_t s = (uint64_t)ls_zero_shards(z, d->zero_stage);
    travel t = { .part = s - 1, .of = s };
    const int m = z->micro_batches, often = d->reshard == LS_RESHARD_NEVER ? 1 : 2 * m;
    const int less = d->reshard == LS_RESHARD_DEFAULT ? m : 0;
    size_t n = 0;
    if (d->zero_stage == 1 || d->zero_stage == 2) {
        t.bytes = z->units + z->root;
        snprintf(t.text, sizeof t.text, z->dtype == LS_BF16 ? "2 M + 4 V" : "4 P");
    } else if (ls_zero_gathers(d)) {
        t.bytes = (uint64_t)often * z->units - (uint64_t)less * z->last + z->root;
        if (often > 1) n += (size_t)snprintf(t.text, sizeof t.text, "%d ", often);
        n += (size_t)snprintf(t.text + n, sizeof t.text - n, "U");
        if (less > 1) n += (size_t)snprintf(t.text + n, sizeof t.text - n, " - %d L", less);
        if (less == 1) n += (size_t)snprintf(t.text + n, sizeof t.text - n, " - L");
        if (z->root > 0) snprintf(t.text + n, sizeof t.text - n, " + R");
    }
    return t;
}

static ls_status move(const ls_train_config *c, ls_train_dry *d, const ls_zero_costs *z, ls_zero_column *col,
                      ls_zero_rank *out)
{
    const ls_ddp_config dc = ls_train_ddp(c);
    travel t[LS_ZERO_TRAVELS] = { [LS_ZERO_NEW] = new_values(&dc, z) };
    ls_world_record_clear(d->w);
    LS_TRY(ls_train_dry_step(c, d, 1));
    LS_TRY(add_up(d->w, &d->par, out));
    count_rounded(d->w, &d->par, out);
    sums(c, d, z, out, t);
    for (int k = 0; k < LS_ZERO_TRAVELS; k++) {
        const uint64_t bytes = t[k].bytes, part = t[k].part, of = t[k].of;
        memcpy(col->travels[k], t[k].text, sizeof col->travels[k]);
        if (of > 0) out->formula[k] = bytes / of * part + bytes % of * part / of;
    }
    return LS_OK;
}

/* --- columns ----------------------------------------------------------------------------------------------- */

/* What does not depend on rank and stage. */
static void describe(const ls_train_dry *d, ls_zero_costs *z)
{
    const ls_model *m = d->par.model;
    ls_zero_elements all, own;
    count(&m->params, &all, &own);
    z->elements = all.p;
    z->copied = all.m;
    z->nstates = ls_optim_nstates(d->optim);
    z->micro_batches = d->micro_batches;
    z->root = root_of(m, false);
    z->units = bytes_of(&m->params, 0, m->params.n, false) - z->root;
    (void)neighbours(m, 1, false, &z->last);
}

static ls_status make_rank(const ls_train_config *c, const ls_model_config *mc, int rank, ls_zero_costs *z,
                           ls_zero_column *col)
{
    const ls_world_opts o = ls_train_dry_opts(c);
    ls_zero_rank *out = &col->rank[rank];
    ls_train_dry d;
    ls_status st = ls_train_dry_open(c, mc, rank, z->size, NULL, &o, &d);
    if (st == LS_OK) st = ls_memory_plan_of(c, &d, &out->plan);
    if (st == LS_OK) describe(&d, z);
    if (st == LS_OK) st = hold(c, &d, z, col, out);
    if (st == LS_OK) st = move(c, &d, z, col, out);
    ls_train_dry_close(&d);
    return st < 0 ? ls_while(st, "planning zero.stage %d for rank %d of %d", col->stage, rank, z->size) : LS_OK;
}

/* The configuration of a column. Keys that its stage does not read have their defaults. */
static ls_train_config config_of(const ls_train_config *c, const ls_zero_column *col)
{
    ls_train_config k = *c;
    k.parallel.dp_strategy = "auto";
    k.zero.stage = col->stage;
    k.zero.copy = col->copy ? col->copy : "host";
    k.zero.reshard = col->reshard ? col->reshard : "default";
    if (col->stage < 2) k.zero.reduce = "every";
    if (col->stage == 0) k.zero.hsdp = 1;
    return k;
}

static bool same(const char *a, const char *b) { return !a || strcmp(a, b) == 0; }

static ls_status make_column(const ls_train_config *c, const ls_model_config *mc, bool strict, ls_zero_costs *z,
                             ls_zero_column *col)
{
    const ls_train_config k = config_of(c, col);
    col->chosen = col->stage == c->zero.stage && same(col->copy, c->zero.copy) && same(col->reshard, c->zero.reshard);
    ls_status st = ls_train_config_check(&k, z->size);
    if (st == LS_OK && !(col->rank = calloc((size_t)z->size, sizeof *col->rank)))
        return ls_fail(LS_NO_MEMORY, "what %d ranks hold", z->size);
    for (int r = 0; st == LS_OK && r < z->size; r++) st = make_rank(&k, mc, r, z, col);
    if (st < 0 && (strict || (st != LS_UNSUPPORTED && st != LS_BAD_CONFIG))) return st;
    if (st < 0) snprintf(col->refused, sizeof col->refused, "%s", ls_last_error());
    return LS_OK;
}

ls_status ls_traffic_is_known(const ls_train_config *c, int size)
{
    if (strcmp(ls_train_backend(c), "sched") != 0)
        return ls_fail(LS_UNSUPPORTED, "comm.backend %s: the bytes that another library moves are not known: leave it out",
                       c->comm.backend);
    if (strcmp(c->comm.wire, "bf16") == 0 && size > 1)
        LS_TRY(ls_transport_check_wire(*c->comm.transport ? c->comm.transport : "shm"));
    return LS_OK;
}

ls_status ls_zero_costs_check(const ls_train_config *c, int size)
{
    const ls_train_config plain = config_of(c, &(ls_zero_column){ .stage = 0 });
    LS_TRY(ls_train_check_whole(c, "explain zero"));
    if (strcmp(c->parallel.dp_strategy, "auto") != 0) LS_TRY(ls_train_config_check(c, size)); /* it may not fit the stage */
    LS_TRY(ls_traffic_is_known(c, size));
    if (strcmp(c->ddp.hook, "powersgd") == 0)
        return ls_fail(LS_UNSUPPORTED, "ddp.hook powersgd: its bytes change after ddp.powersgd_start steps, and there is no "
                       "formula for them: leave it out");
    return ls_train_config_check(&plain, size);
}

ls_status ls_zero_costs_make(const ls_train_config *c, const ls_model_config *mc, int size,
                             const bool stages[LS_ZERO_STAGES], bool strict, ls_zero_costs *out)
{
    static const struct { int stage; const char *copy, *reshard; } way[LS_ZERO_COLUMNS] = {
        { 0, NULL, NULL },        { 1, NULL, NULL },         { 2, NULL, NULL },      { 3, "host", NULL },
        { 3, "rank", "always" },  { 3, "rank", "default" },  { 3, "rank", "never" },
    };
    *out = (ls_zero_costs){ .size = size, .sets = c->zero.hsdp > 1 ? (int)c->zero.hsdp : 1, .dtype = ls_train_dtype(c),
                            .wire_bf16 = strcmp(c->comm.wire, "bf16") == 0 };
    for (int i = 0; i < LS_ZERO_COLUMNS; i++) {
        if (!stages[way[i].stage]) continue;
        ls_zero_column *col = &out->column[out->n++];
        *col = (ls_zero_column){ .stage = way[i].stage, .copy = way[i].copy, .reshard = way[i].reshard };
        LS_TRY(make_column(c, mc, strict, out, col));
    }
    return LS_OK;
}

void ls_zero_costs_free(ls_zero_costs *z)
{
    for (int i = 0; i < z->n; i++) free(z->column[i].rank);
    *z = (ls_zero_costs){ 0 };
}
