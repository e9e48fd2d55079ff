/* DDP: what happens when during backward, read from the events that every rank keeps. */
#include "harness_replica.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "group/group.h"
#include "net/world.h"

#define FIRST_STEP 3 /* buckets are rebuilt in step 2 */
#define LAST_STEP 12
#define MOST 256

/* Bucket 0 is layer 4 and layer 2, bucket 1 layer 0. */
static const int64_t dims[] = { 784, 256, 128, 10 };
static const ls_ddp_config two_buckets = { .first_bucket = 64 << 10, .bucket_cap = 256 << 10 };
static const ls_world_opts roomy = { .arena_bytes = 8 << 20 }, threaded = { .progress = LS_PROGRESS_THREAD };

/* The events of one step and kind on this rank, in the order of their start. */
static int events(ls_world *w, uint32_t step, ls_ev_kind kind, const char *prefix, ls_event *out)
{
    const ls_blackbox *box = &w->page->rank[ls_world_local_rank(w)].box;
    int n = 0;
    for (uint64_t i = box->count > LS_BLACKBOX_EVENTS ? box->count - LS_BLACKBOX_EVENTS : 0; i < box->count; i++) {
        const ls_event *e = &box->ev[i % LS_BLACKBOX_EVENTS];
        const char *label = box->string[e->label];
        if (e->step != step || e->kind != kind || strncmp(label, prefix, strlen(prefix)) != 0 || n == MOST) continue;
        int at = n++;
        for (; at > 0 && out[at - 1].t0_ns > e->t0_ns; at--) out[at] = out[at - 1];
        out[at] = *e;
    }
    return n;
}

/* Rank 1 starts its forward only when rank 0 has computed the last operation of its backward, that of layer 0. So no
 * bucket of rank 0 is complete before, whichever of both runs faster. */
typedef struct lead {
    _Atomic uint32_t computed; /* the last step whose backward rank 0 has computed, all but the buckets' ends */
    uint32_t step;
} lead;

static ls_status give_way(lead *l, uint32_t step)
{
    const ls_env *env = ls_env_get();
    for (uint64_t end = env->mono_ns() + 60000000000u; env->mono_ns() < end; env->yield())
        if (atomic_load(&l->computed) >= step) return LS_OK;
    return ls_fail(LS_INTERNAL, "rank 0 never computed the backward of step %u", step);
}

/* Each op, after each of its phases: the gradient of layer 0's weight is the last thing that backward computes. */
static void tell(void *arg, const ls_op_event *e)
{
    lead *l = arg;
    if (e->phase == LS_PHASE_BACKWARD_WEIGHT && strcmp(e->name, "linear 784x256") == 0)
        atomic_store(&l->computed, l->step);
}

/* Steps 1 to LAST_STEP; from FIRST_STEP on rank 1 lets rank 0 lead (NULL: it does not). */
static ls_status train(ls_world *w, const ls_ddp_config *dc, lead *l)
{
    ls_replica r;
    const ls_replica_config c = { .dims = dims, .ndims = COUNT(dims), .ddp = dc, .rows = 32, .optim = "sgd",
                                  .tracer = ls_world_tracer(w) };
    const bool leads = l && ls_world_rank(w) == 0;
    ls_status st = ls_replica_create(w, &c, &r);
    if (st == LS_OK && leads) st = ls_tape_listen(r.tape, &(ls_tape_events){ .op = tell }, l);
    for (uint32_t step = 1; st == LS_OK && step <= LAST_STEP; step++) {
        ls_world_at(w, step, 0);
        if (leads) l->step = step;
        if (l && !leads && step >= FIRST_STEP) st = give_way(l, step);
        if (st == LS_OK) st = ls_replica_pass(&r, step, ls_world_rank(w) * 32, 32, true, 1, NULL);
        if (st == LS_OK) st = ls_optim_step(r.optim);
        ls_params_zero_grad(&r.model->params);
    }
    ls_replica_destroy(&r);
    return st;
}

/* --- overlap ----------------------------------------------------------------------------------------- */

static ls_status reduces_during_backward(ls_world *w, void *arg)
{
    ls_event coll[MOST], op[MOST];
    LS_TRY(train(w, &two_buckets, arg));
    for (uint32_t step = FIRST_STEP; step <= LAST_STEP; step++) {
        int ncoll = events(w, step, LS_EV_COLL, "bucket", coll), nop = events(w, step, LS_EV_OP, "linear 784x256", op);
        LS_EXPECT(ncoll == 2, "%d buckets in step %u, expected 2", ncoll, step);
        LS_EXPECT(nop == 2 && !op[0].backward && op[1].backward, "%d operations of layer 0 in step %u", nop, step);
        LS_EXPECT(coll[0].bytes < coll[1].bytes, "bucket 0 has %d bytes", (int)coll[0].bytes);
        LS_EXPECT(coll[0].t0_ns < op[1].t0_ns, "bucket 0 starts after the backward of layer 0 in step %u", step);
        LS_EXPECT(ls_world_rank(w) != 0 || coll[0].t1_ns >= op[1].t1_ns,
                  "bucket 0 ends without rank 1 in step %u", step);
    }
    return LS_OK;
}

/* The all_reduce of the later layers is on its way while the earliest layer computes its gradient. */
static void reduces_a_bucket_while_earlier_layers_compute(void **state)
{
    (void)state;
    lead l = { 0 };
    expect(ls_test_ranks(LS_TEST_THREADS, 2, &roomy, reduces_during_backward, &l));
}

static ls_status reduces_after_backward(ls_world *w, void *arg)
{
    (void)arg;
    ls_ddp_config dc = two_buckets;
    dc.no_overlap = true;
    ls_event coll[MOST], op[MOST];
    LS_TRY(train(w, &dc, NULL));
    for (uint32_t step = FIRST_STEP; step <= LAST_STEP; step++) {
        int ncoll = events(w, step, LS_EV_COLL, "bucket", coll), nop = events(w, step, LS_EV_OP, "linear 784x256", op);
        LS_EXPECT(ncoll == 2 && nop == 2, "%d buckets and %d operations", ncoll, nop);
        LS_EXPECT(coll[0].t0_ns >= op[1].t1_ns, "bucket 0 starts before the backward of layer 0 ends in step %u", step);
    }
    return LS_OK;
}

static void reduces_nothing_during_backward_without_overlap(void **state)
{
    (void)state;
    expect(ls_test_ranks(LS_TEST_THREADS, 2, &roomy, reduces_after_backward, NULL));
}

/* --- order ------------------------------------------------------------------------------------------- */

/* Two square layers, a and b, take turns in being the first one. Buckets are in the order of step 1:
 * b, then a. In even steps a's gradient arrives first and has to wait for b's. */
static ls_status takes_turns(ls_world *w, void *arg)
{
    (void)arg;
    enum { N = 64 }; /* smaller collectives leave no event */
    const int64_t wdim[2] = { N, N }, xdim[2] = { 4, N }, ydim[1] = { 4 };
    const ls_ddp_config dc = { .first_bucket = 1, .bucket_cap = 1 };
    float x[4 * N];
    int64_t y[4] = { 0, 1, 2, 3 };
    ls_params ps = { 0 };
    ls_arena *arena = NULL;
    ls_ddp *ddp = NULL;
    ls_tape *t = NULL;
    LS_TRY(ls_arena_create(65536, false, NULL, &arena));
    LS_TRY(ls_params_add(&ps, "a", 2, wdim));
    LS_TRY(ls_params_add(&ps, "b", 2, wdim));
    LS_TRY(ls_params_bind(&ps, arena, NULL));
    for (int i = 0; i < 2; i++) ls_philox_uniform(1, (uint64_t)i, 0, N * N, -1, 1, ps.item[i].t.data);
    LS_TRY(ls_tape_create(1 << 18, NULL, ls_world_tracer(w), &t));
    LS_TRY(ls_ddp_create(ls_world_group(w), &ps, &dc, &ddp));
    ls_philox_normal(2, (uint64_t)ls_world_rank(w), 0, COUNT(x), 1.0f, x);
    ls_status st = LS_OK;
    for (uint32_t step = 1; st == LS_OK && step <= 5; step++) {
        ls_world_at(w, step, 0);
        ls_tape_reset(t);
        ls_params_zero_grad(&ps);
        if ((st = ls_ddp_begin_forward(ddp, t, true)) < 0) break;
        int first = step % 2 == 0;
        ls_tensor *in = ls_tape_input(t, LS_F32, 2, xdim, x), *label = ls_tape_input(t, LS_I64, 1, ydim, y);
        ls_tensor *h = ls_relu(t, ls_linear(t, in, &ps.item[first].t, NULL));
        ls_tensor *out = ls_linear(t, h, &ps.item[!first].t, NULL);
        st = ls_backward(t, ls_softmax_cross_entropy(t, out, label, NULL, NULL));
        const ls_blackbox *box = &w->page->rank[ls_world_local_rank(w)].box;
        ls_event coll[MOST];
        if (st < 0 || step == 1) continue;
        LS_EXPECT(ls_ddp_buckets(ddp) == 2 && ls_ddp_bucket(ddp, 0).param[0] == 1, "b is not bucket 0");
        int n = events(w, step, LS_EV_COLL, "bucket", coll);
        LS_EXPECT(n == 2, "%d buckets in step %u", n, step);
        for (int k = 0; k < 2; k++)
            LS_EXPECT(box->string[coll[k].label][7] == '0' + k, "step %u starts %s as number %d", step,
                      box->string[coll[k].label], k);
        LS_EXPECT(coll[1].seq == coll[0].seq + 1, "buckets are collectives %u and %u", coll[0].seq, coll[1].seq);
    }
    ls_ddp_destroy(ddp);
    ls_tape_destroy(t);
    ls_params_free(&ps);
    ls_arena_destroy(arena);
    return st;
}

static void starts_buckets_in_order_whatever_arrives_first(void **state)
{
    (void)state;
    expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, takes_turns, NULL));
    expect(ls_test_ranks(LS_TEST_THREADS, 3, &threaded, takes_turns, NULL));
}

/* --- a thread for communication -------------------------------------------------------------------- */

typedef struct bystander {
    ls_world *w;
    uint32_t seq; /* of this rank's newest collective before backward */
    bool seen;
} bystander;

/* Once, after the first bucket was started: until the bucket is reduced, to which nothing here contributes. */
static ls_status stand_by(void *arg)
{
    bystander *x = arg;
    ls_coll_desc d;
    if (x->seen || !ls_page_last_coll(x->w->page, ls_world_rank(x->w), &d) || d.seq == x->seq) return LS_OK;
    const ls_env *env = ls_env_get();
    const ls_group *g = ls_world_group(x->w);
    for (uint64_t end = env->mono_ns() + 60000000000u; env->mono_ns() < end && !x->seen; env->yield())
        for (int i = 0; i < LS_WORKS; i++) {
            const ls_work *k = &g->work[i];
            x->seen = x->seen || (k->g && k->desc.seq == d.seq && atomic_load_explicit(&k->done, memory_order_acquire));
        }
    LS_EXPECT(x->seen, "bucket 0 is not reduced while backward computes");
    return LS_OK;
}

/* Nothing in this backward gives collectives a turn until bucket 0 is reduced. */
static ls_status reduces_while_backward_stands_by(ls_world *w, void *arg)
{
    (void)arg;
    float one = 1;
    const int64_t xdim[2] = { 32, dims[0] }, ydim[1] = { 32 };
    ls_replica r;
    ls_event coll[MOST];
    const ls_replica_config c = { .dims = dims, .ndims = COUNT(dims), .ddp = &two_buckets, .rows = 32,
                                  .tracer = ls_world_tracer(w) };
    LS_TRY(ls_replica_create(w, &c, &r));
    LS_TRY(ls_replica_pass(&r, 0, 0, 32, true, 1, NULL));
    ls_world_at(w, 2, 0);
    ls_tape_reset(r.tape);
    ls_params_zero_grad(&r.model->params);
    LS_TRY(ls_ddp_begin_forward(r.ddp, r.tape, true));
    ls_coll_desc newest;
    LS_EXPECT(ls_page_last_coll(w->page, ls_world_rank(w), &newest), "no collective yet");
    bystander by = { .w = w, .seq = newest.seq };
    LS_TRY(ls_tape_listen(r.tape, &(ls_tape_events){ .progress = stand_by }, &by));
    ls_tensor *x = ls_tape_input(r.tape, LS_F32, 2, xdim, r.x);
    ls_tensor *y = ls_tape_input(r.tape, LS_I64, 1, ydim, r.label);
    ls_tensor *loss = ls_softmax_cross_entropy(r.tape, ls_model_forward(r.model, r.tape, x), y, NULL, NULL);
    ls_status st = ls_backward_from(r.tape, loss, &one);
    if (st == LS_OK) {
        LS_EXPECT(by.seen && events(w, 2, LS_EV_COLL, "bucket 0", coll) == 1, "no bucket 0");
    }
    ls_replica_destroy(&r);
    return st;
}

static void reduces_on_its_own_thread_while_compute_goes_on(void **state)
{
    (void)state;
    ls_world_opts o = roomy;
    o.progress = LS_PROGRESS_THREAD;
    expect(ls_test_ranks(LS_TEST_THREADS, 2, &o, reduces_while_backward_stands_by, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reduces_a_bucket_while_earlier_layers_compute),
        cmocka_unit_test(reduces_nothing_during_backward_without_overlap),
        cmocka_unit_test(starts_buckets_in_order_whatever_arrives_first),
        cmocka_unit_test(reduces_on_its_own_thread_while_compute_goes_on),
    };
    return cmocka_run_group_tests_name("ddp_overlap", tests, NULL, NULL);
}
