/* The table of data parallel strategies, by a strategy that is not the library's: a rank keeps the sums of its own rows
 * only, as in ZeRO's second stage, and lends memory for gradients unit by unit. It uses what ddp and fsdp leave alone:
 * buckets cut at units, memory that comes and goes, arrivals, a reduction in every backward. */
#include "harness_replica.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep/parallel.h"
#include "parallel/shard.h"

#define STEPS    6
#define SLOTS    2
#define MOST     64 /* buckets */

static const int64_t dims[] = { 20, 17, 12, 3 }; /* of 4 ranks and 5 one has no row of the last matrix, or two */
static const int64_t deep[] = { 32, 32, 32, 32, 32, 32, 32, 32, 4 };
static const ls_ddp_config large = { .zero_stage = 1 };
static const ls_ddp_config late = { .zero_stage = 1, .no_overlap = true };
static const ls_ddp_config small = { .first_bucket = 512, .bucket_cap = 700, .zero_stage = 1 };

/* --- the strategy -------------------------------------------------------------------------------------- */

typedef struct lender {
    float *slot[SLOTS];
    int holds[SLOTS]; /* a bucket, or -1 */
    int arrived[2 * MOST], narrived;
} lender;

static ls_status take_own_rows(ls_group *g, ls_params *ps, const ls_shard_plan *l, ls_dtype dtype, ls_arena *own)
{
    (void)g, (void)l, (void)dtype;
    for (int i = 0; i < ps->n; i++) {
        ls_param *p = &ps->item[i];
        void *sums;
        p->grad.data = NULL;
        LS_TRY(ls_arena_alloc(own, p->own.count * sizeof(float), LS_MEM_GRAD, &sums));
        p->dmaster = sums;
    }
    return LS_OK;
}

/* One place for all values of a parameter: it holds one at a time. */
static ls_status lend_a_slot(ls_ddp *d, const ls_param *p, float **out)
{
    lender *l = d->mine;
    LS_EXPECT(l->holds[0] < 0, "%s: a bucket is in the way", p->name);
    *out = l->slot[0];
    return LS_OK;
}

static const ls_shard_how how = { .at_units = true, .lends = true, .grads = take_own_rows, .lend = lend_a_slot };

static ls_status bind_lent(ls_group *g, ls_params *ps, const ls_ddp_config *c, ls_dtype dtype, ls_arena *own)
{
    return ls_shard_bind(&how, g, ps, c, dtype, own);
}

static ls_status zeros(ls_ddp *d, size_t count, float **out)
{
    void *p;
    LS_TRY(ls_alloc(ls_group_world(d->g), count * sizeof **out, LS_MEM_GRAD, &p));
    memset(p, 0, count * sizeof **out);
    *out = p;
    return LS_OK;
}

static ls_status place_lent(ls_ddp *d)
{
    size_t most = 0;
    lender *l = d->mine = calloc(1, sizeof *l);
    if (!l) return ls_fail(LS_NO_MEMORY, "a lender");
    LS_TRY(ls_shard_place(&how, d));
    d->lends = true;
    d->every_backward = true;
    for (int k = 0; k < d->nbuckets; k++) {
        if (d->b[k].count > most) most = d->b[k].count;
        ls_buckets_put(d, k, NULL);
    }
    for (int s = 0; s < SLOTS; s++) {
        LS_TRY(zeros(d, most, &l->slot[s]));
        l->holds[s] = -1;
    }
    return LS_OK;
}

static ls_status lend(ls_ddp *d, int k)
{
    lender *l = d->mine;
    for (;;) {
        for (int s = 0; s < SLOTS; s++) {
            if (l->holds[s] >= 0) continue;
            l->holds[s] = k;
            ls_buckets_put(d, k, l->slot[s]);
            return LS_OK;
        }
        LS_EXPECT(d->waited < d->next, "bucket %d: no slot, and nothing is in flight", k);
        LS_TRY(ls_buckets_wait_one(d));
    }
}

static ls_status on_unit(void *arg, const ls_unit *u, ls_unit_when when)
{
    ls_ddp *d = arg;
    LS_EXPECT(!d->c.no_overlap || d->waited == d->next, "bucket %d is in flight without overlap", d->waited);
    for (int i = u->first; when == LS_UNIT_ENTER_BACKWARD && i < u->first + u->nparams; i++) {
        const int k = d->bucket_of[i];
        if (!d->b[k].data) LS_TRY(lend(d, k));
    }
    return LS_OK;
}

static void keep_sums(ls_param *p)
{
    const float *sum = (const float *)p->grad.data + p->own.first;
    for (size_t k = 0; k < p->own.count; k++) p->dmaster[k] = p->dmaster_ready ? p->dmaster[k] + sum[k] : sum[k];
    p->dmaster_ready = true;
    p->t.grad_ready = false; /* the next backward writes to other memory */
}

static ls_status arrived(ls_ddp *d, int k)
{
    lender *l = d->mine;
    l->arrived[l->narrived++ % (2 * MOST)] = k;
    for (int i = 0; i < d->b[k].nparams; i++) keep_sums(&d->ps->item[d->b[k].param[i]]);
    ls_buckets_put(d, k, NULL);
    for (int s = 0; s < SLOTS; s++)
        if (l->holds[s] == k) l->holds[s] = -1;
    return LS_OK;
}

static ls_status begin_forward(ls_ddp *d)
{
    if (d->state != LS_DP_REDUCED || !d->last) return LS_OK;
    return ls_fail(LS_INVALID, "ls_ddp_after_step was forgotten");
}

static ls_status whole(ls_ddp *d, const ls_param *p, const float **out) { return ls_shard_whole(&how, d, p, out); }

static void drop(ls_ddp *d) { free(d->mine); }

static const ls_dp_strategy lending = {
    .name = "lending", .first_stage = 1, .last_stage = 1, .shards = true, .order = "unit by unit",
    .bind = bind_lent, .place = place_lent, .begin_forward = begin_forward, .arrived = arrived,
    .after_step = ls_buckets_gather,
    .whole = whole, .destroy = drop,
    .events = { .unit = on_unit, .grad_ready = ls_buckets_grad_ready, .progress = ls_buckets_progress,
                .done = ls_buckets_done },
};

/* --- what it comes to ------------------------------------------------------------------------------------ */

static const ls_dp_strategy *const brought[] = { &lending, NULL };

typedef struct run {
    const ls_ddp_config *ddp;
    int parts; /* micro-batches */
} run;

static ls_replica_config config_of(const ls_ddp_config *ddp, const ls_dp_strategy *s, bool bf16)
{
    return (ls_replica_config){ .dims = dims, .ndims = COUNT(dims), .seed = 4, .ddp = ddp, .strategy = s, .bf16 = bf16,
                                .optim = "adamw", .lr = 0.02, .rows = ROWS };
}

/* Every bucket arrives once per backward that is reduced, in order; then no parameter has memory for a gradient. */
static ls_status check_arrivals(const ls_replica *r, int backwards)
{
    lender *l = r->ddp->mine;
    LS_EXPECT(l->narrived == backwards * r->ddp->nbuckets, "%d arrivals of %d buckets", l->narrived, r->ddp->nbuckets);
    for (int i = 0; i < l->narrived; i++) LS_EXPECT(l->arrived[i] == i % r->ddp->nbuckets, "arrival %d is %d", i, l->arrived[i]);
    l->narrived = 0;
    for (int i = 0; i < r->model->params.n; i++) {
        const ls_param *p = &r->model->params.item[i];
        LS_EXPECT(p->grad.data == NULL, "%s: memory of its gradient", p->name);
        LS_EXPECT(ls_param_has_gradient(p) && p->t.grad_reduced, "%s: no sum", p->name);
    }
    return LS_OK;
}

static ls_status step(ls_world *w, ls_replica *r, uint64_t n, int parts, double *norm)
{
    const int64_t each = ROWS / parts;
    ls_params_zero_grad(&r->model->params);
    for (int m = 0; m < parts; m++)
        LS_TRY(ls_replica_pass(r, n, (ls_world_rank(w) * parts + m) * each, each, m + 1 == parts, 1.0f / (float)parts,
                               NULL));
    if (r->ddp->strategy->arrived == arrived) LS_TRY(check_arrivals(r, parts));
    LS_TRY(ls_grad_norm_shared(ls_world_group(w), &r->model->params, norm, NULL));
    LS_TRY(ls_optim_step_scaled(r->optim, ls_clip_scale(*norm, 0.3)));
    return ls_ddp_after_step(r->ddp);
}

/* With one micro-batch the sums are DDP's, to the bit; with more they round in another order. */
static ls_status trains(ls_world *w, void *arg)
{
    const run *h = arg;
    ls_ddp_config plain = *h->ddp;
    plain.zero_stage = 0;
    const ls_replica_config of_ddp = config_of(&plain, NULL, false), of_lending = config_of(h->ddp, &lending, false);
    ls_replica a, b;
    LS_TRY(ls_replica_create(w, &of_ddp, &a));
    LS_TRY(ls_replica_create(w, &of_lending, &b));
    LS_EXPECT(ls_ddp_reductions(a.ddp, h->parts) == 1 && ls_ddp_reductions(b.ddp, h->parts) == h->parts, "reductions");
    const size_t n = (size_t)ls_params_count(&a.model->params);
    for (uint64_t s = 0; s < STEPS; s++) {
        double na, nb, most = 0;
        LS_TRY(step(w, &a, s, h->parts, &na));
        LS_TRY(step(w, &b, s, h->parts, &nb));
        float *va = ls_replica_values(&a), *vb = ls_replica_values(&b);
        for (size_t k = 0; k < n; k++) most = fmax(most, fabs((double)va[k] - (double)vb[k]));
        free(va);
        free(vb);
        LS_EXPECT(most <= (h->parts > 1 ? 1e-4 : 0.0), "step %d: values differ by %g", (int)s, most);
        LS_EXPECT(fabs(na - nb) <= (h->parts > 1 ? 1e-5 : 1e-12) * na, "step %d: norm %.17g, expected %.17g", (int)s, nb, na);
    }
    ls_replica_destroy(&a);
    ls_replica_destroy(&b);
    LS_EXPECT(!b.ddp, "destroyed");
    return LS_OK;
}

static void a_strategy_from_outside_trains_as_ddp_does(void **state)
{
    (void)state;
    static const run row[] = {
        { &large, 1 }, { &small, 1 }, { &small, 2 }, { &large, 4 }, { &late, 1 }, { &late, 2 },
    };
    for (int size = 1; size <= 5; size++)
        for (size_t i = 0; i < COUNT(row); i++)
            expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, trains, (void *)(uintptr_t)&row[i]));
    expect(ls_test_ranks(LS_TEST_PROCESSES, 3, NULL, trains, (void *)(uintptr_t)&row[0]));
}

static ls_status cuts_at_units(ls_world *w, void *arg)
{
    (void)arg;
    const ls_replica_config c = config_of(&large, &lending, false);
    ls_replica r;
    LS_TRY(ls_replica_create(w, &c, &r));
    LS_EXPECT(ls_ddp_buckets(r.ddp) == (int)COUNT(dims) - 1, "%d buckets", ls_ddp_buckets(r.ddp));
    for (int k = 0; k < ls_ddp_buckets(r.ddp); k++) {
        const ls_ddp_bucket_info b = ls_ddp_bucket(r.ddp, k);
        for (int i = 0; i < b.nparams; i++) {
            const int unit = r.model->params.item[b.param[i]].unit, want = (int)COUNT(dims) - 2 - k;
            LS_EXPECT(unit == want, "bucket %d has a parameter of unit %d, expected %d", k, unit, want);
        }
    }
    LS_EXPECT(strcmp(ls_ddp_bucket_order(r.ddp), "unit by unit") == 0, "'%s'", ls_ddp_bucket_order(r.ddp));
    ls_replica_destroy(&r);
    return LS_OK;
}

static void buckets_can_be_cut_at_units(void **state)
{
    (void)state;
    expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, cuts_at_units, NULL));
}

/* Units that are alike: the gradients of two of them have memory, however many there are. */
static ls_status takes_little(ls_world *w, void *arg)
{
    (void)arg;
    ls_replica r;
    ls_replica_config c = config_of(&large, &lending, false);
    c.dims = deep;
    c.ndims = COUNT(deep);
    const size_t before = ls_world_ledger(w)->now[LS_MEM_GRAD];
    LS_TRY(ls_replica_create(w, &c, &r));
    const size_t got = ls_world_ledger(w)->now[LS_MEM_GRAD] - before;
    const size_t want = SLOTS * (32 * 32 + 32) * sizeof(float);
    LS_EXPECT(got == want, "%zu bytes for gradients, expected %zu", got, want);
    double norm;
    for (uint64_t s = 0; s < 3; s++) LS_TRY(step(w, &r, s, 1, &norm));
    ls_replica_destroy(&r);
    return LS_OK;
}

static void gradients_take_what_the_strategy_takes(void **state)
{
    (void)state;
    expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, takes_little, NULL));
}

/* Backwards that do not complete the gradients may follow one another; a step needs after_step. */
static ls_status forgets_after_step(ls_world *w, void *arg)
{
    (void)arg;
    const ls_replica_config c = config_of(&large, &lending, false);
    ls_replica r;
    LS_TRY(ls_replica_create(w, &c, &r));
    ls_status st = LS_OK;
    for (int i = 0; st == LS_OK && i < 3; i++)
        st = ls_replica_pass(&r, 0, ls_world_rank(w) * ROWS, ROWS, i == 2, 1, NULL);
    LS_TRY(st);
    LS_TRY(ls_optim_step(r.optim));
    st = ls_replica_pass(&r, 1, ls_world_rank(w) * ROWS, ROWS, true, 1, NULL);
    LS_EXPECT(st == LS_INVALID && strstr(ls_last_error(), "ls_ddp_after_step was forgotten"), "%s", ls_last_error());
    ls_replica_destroy(&r);
    return LS_OK;
}

static void a_strategy_knows_which_backward_is_the_last(void **state)
{
    (void)state;
    expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, forgets_after_step, NULL));
}

/* First values in bf16 (an mlp does not train in it): they have memory for a while, and nothing of it stays. */
static ls_status has_first_values(ls_world *w, void *arg)
{
    (void)arg;
    const ls_replica_config of_ddp = config_of(&large, NULL, false), of_lending = config_of(&large, &lending, true);
    ls_replica a, b;
    LS_TRY(ls_replica_create(w, &of_ddp, &a));
    const ls_ledger *l = ls_world_ledger(w);
    const size_t before = l->now[LS_MEM_ACT];
    LS_TRY(ls_replica_create(w, &of_lending, &b));
    const size_t largest = ls_bucket_param_bytes(ls_params_largest(&b.model->params));
    LS_EXPECT(l->now[LS_MEM_ACT] == before && l->peak[LS_MEM_ACT] == before + largest, "%zu bytes, at most %zu",
              l->now[LS_MEM_ACT], l->peak[LS_MEM_ACT]);
    const ls_values from = ls_ddp_values(a.ddp), to = ls_ddp_values(b.ddp);
    for (int i = 0; i < a.model->params.n; i++) {
        const ls_param *pa = &a.model->params.item[i], *pb = &b.model->params.item[i];
        const float *va, *vb;
        LS_TRY(from.whole(from.arg, pa, &va));
        LS_TRY(to.whole(to.arg, pb, &vb));
        LS_EXPECT(memcmp(va, vb, ls_tensor_nbytes(&pa->t)) == 0, "%s: other values", pa->name);
        LS_EXPECT(pb->t.ndim == 1 || (!pb->t.data && pb->bf16), "%s: floats stay", pb->name);
    }
    ls_replica_destroy(&a);
    ls_replica_destroy(&b);
    return LS_OK;
}

static void first_values_have_memory_for_a_while(void **state)
{
    (void)state;
    for (int size = 1; size <= 3; size++) expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, has_first_values, NULL));
}

/* One that was bound and never wrapped gives it back, too. */
static ls_status is_bound_alone(ls_world *w, void *arg)
{
    (void)arg;
    const ls_model_config mc = { .name = "mlp", .dims = dims, .ndims = COUNT(dims) };
    ls_model *m;
    ls_arena *own;
    const size_t before = ls_world_ledger(w)->now[LS_MEM_ACT];
    LS_TRY(ls_model_create(&mc, &m));
    LS_TRY(ls_arena_create((size_t)1 << 20, false, NULL, &own));
    for (int i = 0; i < 2; i++) LS_TRY(lending.bind(ls_world_group(w), &m->params, &large, LS_BF16, own));
    LS_EXPECT(ls_world_ledger(w)->now[LS_MEM_ACT] > before, "no memory for them");
    ls_model_destroy(m);
    ls_arena_destroy(own);
    LS_EXPECT(ls_world_ledger(w)->now[LS_MEM_ACT] == before, "it stays");
    return LS_OK;
}

static void a_model_that_is_not_wrapped_gives_it_back(void **state)
{
    (void)state;
    expect(ls_test_ranks(LS_TEST_THREADS, 1, NULL, is_bound_alone, NULL));
}

/* Between micro-batches the sums are not complete, and no optimizer may use them. */
static ls_status steps_too_early(ls_world *w, void *arg)
{
    (void)arg;
    const ls_replica_config c = config_of(&large, &lending, false);
    ls_replica r;
    LS_TRY(ls_replica_create(w, &c, &r));
    LS_TRY(ls_replica_pass(&r, 0, ls_world_rank(w) * ROWS, ROWS, false, 1, NULL));
    ls_status st = ls_optim_step(r.optim);
    LS_EXPECT(st == LS_INVALID && strstr(ls_last_error(), "the gradient of 0.weight is this rank's own"), "a step: %s", ls_last_error());
    LS_TRY(ls_replica_pass(&r, 0, ls_world_rank(w) * ROWS, ROWS, true, 1, NULL));
    LS_TRY(ls_optim_step(r.optim));
    LS_TRY(ls_ddp_after_step(r.ddp));
    ls_replica_destroy(&r);
    return LS_OK;
}

static void a_step_waits_for_the_last_backward(void **state)
{
    (void)state;
    expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, steps_too_early, NULL));
}

/* A backward that nobody announced finds no memory. */
static ls_status is_not_announced(ls_world *w, void *arg)
{
    (void)arg;
    const ls_replica_config c = config_of(&large, &lending, false);
    ls_replica r;
    ls_model_input in;
    LS_TRY(ls_replica_create(w, &c, &r));
    r.model->cls->input(r.model, 2, 0, &in);
    memset(r.x, 0, 2 * (size_t)r.features * sizeof *r.x);
    memset(r.label, 0, 2 * sizeof *r.label);
    ls_tensor *x = ls_tape_input(r.tape, in.dtype, in.ndim, in.dim, r.x);
    ls_tensor *labels = ls_tape_input(r.tape, LS_I64, in.label_ndim, in.label_dim, r.label);
    ls_tensor *loss = ls_model_loss(r.model, r.tape, x, labels, NULL);
    LS_TRY(ls_tape_status(r.tape));
    const ls_status st = ls_backward(r.tape, loss);
    LS_EXPECT(st == LS_INVALID && strstr(ls_last_error(), "has no memory now"), "backward: %s", ls_last_error());
    ls_replica_destroy(&r);
    return LS_OK;
}

static void a_backward_that_nobody_announced_is_refused(void **state)
{
    (void)state;
    expect(ls_test_ranks(LS_TEST_THREADS, 1, NULL, is_not_announced, NULL));
}

static ls_status place_forgetfully(ls_ddp *d)
{
    LS_TRY(place_lent(d));
    d->lends = false;
    return LS_OK;
}

/* What it says of its memory is what it does. */
static ls_status forgets_that_it_lends(ls_world *w, void *arg)
{
    (void)arg;
    ls_dp_strategy forgetful = lending;
    forgetful.place = place_forgetfully;
    const ls_replica_config c = config_of(&late, &forgetful, false);
    ls_replica r;
    const ls_status st = ls_replica_create(w, &c, &r);
    LS_EXPECT(st == LS_INTERNAL && strstr(ls_last_error(), "strategy lending does not lend memory, and bucket 0 has none"),
              "%s", st < 0 ? ls_last_error() : "no failure");
    return LS_OK;
}

static void a_strategy_says_that_it_lends_memory(void **state)
{
    (void)state;
    expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, forgets_that_it_lends, NULL));
}

/* --- chosen by name ---------------------------------------------------------------------------------------- */

static ls_plan plan_of(int ranks, const char *dp, int stage)
{
    return (ls_plan){ .size = { 1, ranks, 1, 1, 1 }, .micro_batch = ROWS, .micro_batches = 1, .dp = dp,
                      .own_dp = brought, .ddp = { .zero_stage = stage } };
}

static void a_name_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    static const struct { const char *dp; int stage; const ls_dp_strategy *const *own; const char *says; } row[] = {
        { "lending", 1, brought, NULL },
        { "fsdp", 1, brought, NULL },
        { "ddp", 0, brought, NULL },
        { NULL, 1, brought, NULL },
        { "lending", 1, NULL, "no data parallel strategy 'lending': expected one of ddp, fsdp" },
        { "lent", 1, brought, "no data parallel strategy 'lent': expected one of ddp, fsdp, lending" },
        { "lending", 0, brought, "plan: dp is 'lending', but zero_stage is 0: expected zero_stage 1, or another dp" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_plan p = plan_of(2, row[i].dp, row[i].stage);
        p.own_dp = row[i].own;
        const ls_status st = ls_plan_supported(&p, 2);
        if (st != (row[i].says ? LS_BAD_CONFIG : LS_OK)) fail_msg("row %zu: %s", i, st < 0 ? ls_last_error() : "passed");
        if (row[i].says && !strstr(ls_last_error(), row[i].says)) fail_msg("row %zu: '%s'", i, ls_last_error());
    }
}

/* One plan names it, one leaves the choice to the stage; the plan decides who keeps the replicas in step. */
static ls_status trains_by_plan(ls_world *w, const ls_model_config *mc, const char *dp, const char *want,
                                ls_replica *beside)
{
    const ls_plan p = plan_of(ls_world_size(w), dp, 1);
    ls_arena *arena;
    ls_parallel here;
    ls_optim_config oc;
    LS_TRY(ls_arena_create((size_t)1 << 20, false, NULL, &arena));
    LS_TRY(ls_parallelize(w, &p, mc, &(ls_parallel_opts){ .own = arena, .tape_bytes = (size_t)1 << 20 }, &here));
    LS_EXPECT(strcmp(here.ddp->strategy->name, want) == 0, "strategy %s, expected %s", here.ddp->strategy->name, want);
    LS_TRY(ls_optim_defaults("adamw", &oc));
    oc.lr = 0.02;
    float x[ROWS * 20];
    int64_t label[ROWS];
    ls_replica r = { .model = here.model, .arena = arena, .ddp = here.ddp, .tape = here.tape[0], .x = x, .label = label,
                     .features = dims[0], .classes = dims[COUNT(dims) - 1], .rows = ROWS };
    LS_TRY(ls_optim_create(&oc, &here.model->params, arena, &r.optim));
    for (uint64_t s = 0; s < STEPS; s++) {
        double mine, other;
        LS_TRY(step(w, &r, s, 1, &mine));
        LS_TRY(step(w, beside, s, 1, &other));
    }
    for (int i = 0; i < here.model->params.n; i++) {
        const ls_param *a = &here.model->params.item[i], *b = &beside->model->params.item[i];
        LS_EXPECT(memcmp(a->t.data, b->t.data, ls_tensor_nbytes(&a->t)) == 0, "%s: other values than DDP's", a->name);
    }
    ls_optim_destroy(r.optim);
    ls_parallel_destroy(&here);
    ls_arena_destroy(arena);
    return LS_OK;
}

static ls_status chosen_by_name(ls_world *w, void *arg)
{
    (void)arg;
    static const char *const row[][2] = { { "lending", "lending" }, { NULL, "fsdp" } };
    const ls_model_config mc = { .name = "mlp", .dims = dims, .ndims = COUNT(dims), .init = LS_INIT_PHILOX, .seed = 4 };
    const ls_ddp_config plain = { 0 };
    const ls_replica_config of_ddp = config_of(&plain, NULL, false);
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_replica ddp;
        LS_TRY(ls_replica_create(w, &of_ddp, &ddp));
        LS_TRY(trains_by_plan(w, &mc, row[i][0], row[i][1], &ddp));
        ls_replica_destroy(&ddp);
    }
    return LS_OK;
}

static void a_plan_names_a_strategy_from_outside(void **state)
{
    (void)state;
    for (int size = 1; size <= 3; size++) expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, chosen_by_name, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_strategy_from_outside_trains_as_ddp_does),
        cmocka_unit_test(buckets_can_be_cut_at_units),
        cmocka_unit_test(gradients_take_what_the_strategy_takes),
        cmocka_unit_test(a_strategy_knows_which_backward_is_the_last),
        cmocka_unit_test(first_values_have_memory_for_a_while),
        cmocka_unit_test(a_model_that_is_not_wrapped_gives_it_back),
        cmocka_unit_test(a_step_waits_for_the_last_backward),
        cmocka_unit_test(a_backward_that_nobody_announced_is_refused),
        cmocka_unit_test(a_strategy_says_that_it_lends_memory),
        cmocka_unit_test(a_name_that_does_not_fit_is_refused),
        cmocka_unit_test(a_plan_names_a_strategy_from_outside),
    };
    return cmocka_run_group_tests_name("strategy", tests, NULL, NULL);
}
