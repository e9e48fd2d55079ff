/* DDP with parameters that take no part in the loss, of some ranks or all (find_unused, static_graph), and buffers. The
 * reference adds up gradients of models without DDP. */
#include "harness_replica.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep/hook.h"

static const int64_t dims[] = { 12, 12, 12, 12, 3 }; /* the first three layers may be left out */
enum { LAYERS = 3, STEPS = 8 };
static const ls_ddp_config one_bucket = { .find_unused = true };
static const ls_ddp_config small = { .first_bucket = 256, .bucket_cap = 700, .find_unused = true };
static const ls_ddp_config late = { .first_bucket = 256, .bucket_cap = 700, .find_unused = true, .no_overlap = true };
static const ls_ddp_config fixed = { .first_bucket = 256, .bucket_cap = 700, .static_graph = true };
static const ls_world_opts threaded = { .progress = LS_PROGRESS_THREAD };
static const ls_world_opts wires = { .transport = "tcp" };

static ls_replica_config config_of(const ls_ddp_config *ddp)
{
    return (ls_replica_config){ .dims = dims, .ndims = COUNT(dims), .seed = 4, .ddp = ddp, .plain = !ddp,
                                .rows = ROWS };
}

/* --- layers that are left out ------------------------------------------------------------------------- */

static ls_tensor *left_out(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *p)
{
    (void)u, (void)t, (void)p;
    return x;
}

/* Bit l of `skip`: layer l. */
static void leave_out(ls_replica *r, const ls_unit_class *layer, unsigned skip)
{
    static const ls_unit_class nothing = { .forward = left_out, .nparams = 2 };
    for (unsigned l = 0; l < LAYERS; l++) r->model->units.item[l].cls = skip >> l & 1 ? &nothing : layer;
}

/* What a rank leaves out in a step: something else on each; layer 1 everywhere in step 5, everything on rank 0 in
 * step 6. */
static unsigned skip_of(int rank, int step)
{
    if (step == 6 && rank == 0) return 7;
    return ((unsigned)(rank + step) & 7u) | (step == 5 ? 2u : 0u);
}

static ls_status pass(ls_world *w, ls_replica *r, int step, bool sync)
{
    return ls_replica_pass(r, (uint64_t)step, ls_world_rank(w) * ROWS, ROWS, sync, 1.0f, NULL);
}

/* Adds a step's average to sum[n]; used[i] says whether some rank uses parameter i. */
static ls_status average(ls_world *w, ls_replica *plain, const ls_unit_class *layer, int step,
                         unsigned (*without)(int, int), float *sum, bool *used)
{
    const ls_params *ps = &plain->model->params;
    const size_t n = (size_t)ls_params_count(ps), size = (size_t)ls_world_size(w);
    const float by = (float)(1.0 / (double)size);
    float *all = calloc(size * n, sizeof *all), *at = all + (size_t)ls_world_rank(w) * n;
    LS_EXPECT(all, "memory");
    ls_params_zero_grad(&plain->model->params);
    leave_out(plain, layer, without(ls_world_rank(w), step));
    LS_TRY(pass(w, plain, step, true));
    for (int i = 0; i < ps->n; at += ls_tensor_count(&ps->item[i++].t))
        if (ps->item[i].t.grad_ready) memcpy(at, ps->item[i].grad.data, ls_tensor_nbytes(&ps->item[i].t));
    LS_TRY(ls_all_gather(ls_world_group(w), NULL, all, size * n, LS_F32));
    for (size_t k = 0; k < n; k++) {
        float one = 0.0f;
        for (size_t r = 0; r < size; r++) one += all[r * n + k] * by;
        sum[k] = one;
    }
    for (int i = 0; i < ps->n; i++) {
        used[i] = i >= 2 * LAYERS;
        for (size_t r = 0; r < size; r++) used[i] |= !(without((int)r, step) >> i / 2 & 1);
    }
    free(all);
    return LS_OK;
}

static ls_status same(const ls_replica *r, int step, const float *want, const bool *used, bool had)
{
    const ls_params *ps = &r->model->params;
    for (int i = 0; i < ps->n; i++) {
        const ls_param *p = &ps->item[i];
        LS_EXPECT(p->t.grad_ready == (used[i] || had), "step %d: %s has %s gradient", step, p->name, used[i] ? "no" : "a");
        LS_EXPECT(!used[i] || memcmp(p->grad.data, want, ls_tensor_nbytes(&p->t)) == 0, "step %d: another average of %s", step, p->name);
        want += ls_tensor_count(&p->t);
    }
    return LS_OK;
}

static ls_status averages(ls_world *w, void *arg)
{
    const ls_replica_config of_ddp = config_of(arg), of_plain = config_of(NULL);
    ls_replica a, b;
    LS_TRY(ls_replica_create(w, &of_plain, &a));
    LS_TRY(ls_replica_create(w, &of_ddp, &b));
    const ls_unit_class *layer = b.model->units.item[0].cls;
    float *want = calloc((size_t)ls_params_count(&a.model->params), sizeof *want);
    bool used[2 * (LAYERS + 1)];
    LS_EXPECT(want, "memory");
    for (int s = 0; s < STEPS; s++) {
        LS_TRY(average(w, &a, layer, s, skip_of, want, used));
        ls_params_zero_grad(&b.model->params);
        leave_out(&b, layer, skip_of(ls_world_rank(w), s));
        LS_TRY(pass(w, &b, s, true));
        LS_TRY(same(&b, s, want, used, false));
    }
    LS_EXPECT(!used[0] || ls_world_size(w) > 1, "some rank uses the first layer");
    free(want);
    ls_replica_destroy(&a);
    ls_replica_destroy(&b);
    return LS_OK;
}

static void what_a_rank_does_not_use_counts_as_zero(void **state)
{
    (void)state;
    static const ls_ddp_config *const ddp[] = { &one_bucket, &small, &late };
    for (int size = 1; size <= 8; size++)
        for (size_t i = 0; i < COUNT(ddp); i++)
            expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, averages, (void *)(uintptr_t)ddp[i]));
    expect(ls_test_ranks(LS_TEST_PROCESSES, 3, &threaded, averages, (void *)(uintptr_t)&small));
    expect(ls_test_ranks(LS_TEST_PROCESSES, 2, &wires, averages, (void *)(uintptr_t)&small));
}

/* With a hook, too. allreduce divides, where the reference multiplies by the reciprocal: the same for powers of two.
 * bf16 rounds every rank's part and the average, to 8 bits. */
static ls_status averages_by_a_hook(ls_world *w, void *arg)
{
    const char *name = arg;
    const bool rounds = strcmp(name, "bf16") == 0;
    const ls_replica_config of_ddp = config_of(&small), of_plain = config_of(NULL);
    ls_comm_hook *h;
    ls_replica a, b;
    LS_TRY(ls_replica_create(w, &of_plain, &a));
    LS_TRY(ls_replica_create(w, &of_ddp, &b));
    LS_TRY(ls_hook_named(name, NULL, &h));
    LS_TRY(ls_ddp_set_hook(b.ddp, h));
    const ls_unit_class *layer = b.model->units.item[0].cls;
    const size_t n = (size_t)ls_params_count(&a.model->params);
    float *want = calloc(n, sizeof *want);
    bool used[2 * (LAYERS + 1)];
    LS_EXPECT(want, "memory");
    for (int s = 0; s < STEPS; s++) {
        LS_TRY(average(w, &a, layer, s, skip_of, want, used));
        ls_params_zero_grad(&b.model->params);
        leave_out(&b, layer, skip_of(ls_world_rank(w), s));
        LS_TRY(pass(w, &b, s, true));
        if (!rounds) LS_TRY(same(&b, s, want, used, false));
        const float *at = want;
        for (int i = 0; rounds && i < b.model->params.n; at += ls_tensor_count(&b.model->params.item[i++].t)) {
            const ls_param *p = &b.model->params.item[i];
            double far = 0, most = 0;
            for (int64_t k = 0; k < ls_tensor_count(&p->t); k++) {
                far = fmax(far, fabs((double)((float *)p->grad.data)[k] - (double)at[k]));
                most = fmax(most, fabs((double)at[k]));
            }
            LS_EXPECT(p->t.grad_ready == used[i], "step %d: %s has %s gradient", s, p->name, used[i] ? "no" : "a");
            LS_EXPECT(!used[i] || (most > 0 && far <= most / 32), "step %d: %s is %g from its average", s, p->name, far);
        }
    }
    free(want);
    ls_replica_destroy(&a);
    ls_replica_destroy(&b);
    return LS_OK;
}

static void a_hook_reduces_what_some_ranks_do_not_use(void **state)
{
    (void)state;
    for (int size = 1; size <= 8; size *= 2) {
        expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, averages_by_a_hook, "allreduce"));
        expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, averages_by_a_hook, "bf16"));
    }
    expect(ls_test_ranks(LS_TEST_PROCESSES, 2, &threaded, averages_by_a_hook, "allreduce"));
}

/* Nobody has zeroed gradients: what no rank uses stays to the bit, also where ranks have other values. */
static ls_status stays(ls_world *w, void *arg)
{
    const char *hook = arg;
    const ls_replica_config c = config_of(&small);
    ls_comm_hook *h;
    ls_replica r;
    LS_TRY(ls_replica_create(w, &c, &r));
    if (hook) LS_TRY(ls_hook_named(hook, &(ls_powersgd_config){ .start = 2 }, &h));
    if (hook) LS_TRY(ls_ddp_set_hook(r.ddp, h));
    const ls_unit_class *layer = r.model->units.item[0].cls;
    const ls_param *p = &r.model->params.item[2]; /* of layer 1 */
    const size_t nbytes = ls_tensor_nbytes(&p->t);
    float before[12 * 12];
    LS_EXPECT(nbytes == sizeof before, "%zu bytes", nbytes);
    for (int s = 0; s < 3; s++) LS_TRY(pass(w, &r, 0, true));
    ((float *)p->grad.data)[3] += (float)ls_world_rank(w);
    memcpy(before, p->grad.data, nbytes);
    leave_out(&r, layer, 2);
    LS_TRY(pass(w, &r, 1, true));
    LS_EXPECT(p->t.grad_ready && memcmp(before, p->grad.data, nbytes) == 0, "a gradient that nobody has touched is another one");
    ls_replica_destroy(&r);
    return LS_OK;
}

/* A backward that is not reduced counts: its gradients are reduced with those of the next one. */
static ls_status accumulates(ls_world *w, void *arg)
{
    const ls_replica_config of_ddp = config_of(arg), of_plain = config_of(NULL);
    ls_replica a, b;
    LS_TRY(ls_replica_create(w, &of_plain, &a));
    LS_TRY(ls_replica_create(w, &of_ddp, &b));
    const ls_unit_class *layer = b.model->units.item[0].cls;
    const size_t n = (size_t)ls_params_count(&a.model->params);
    float *want = calloc(n, sizeof *want);
    bool used[2 * (LAYERS + 1)];
    LS_EXPECT(want, "memory");
    LS_TRY(average(w, &a, layer, 0, skip_of, want, used)); /* zero in rank 0: all layers are used */
    leave_out(&b, layer, skip_of(ls_world_rank(w), 0));
    LS_TRY(pass(w, &b, 0, false));
    leave_out(&b, layer, 7);
    ls_model *m = b.model;
    LS_TRY(pass(w, &b, 0, true));
    for (int i = 0; i < 2 * LAYERS; i++) {
        const ls_param *p = &m->params.item[i];
        float *at = want;
        for (int k = 0; k < i; k++) at += ls_tensor_count(&m->params.item[k].t);
        LS_EXPECT(p->t.grad_ready && memcmp(p->grad.data, at, ls_tensor_nbytes(&p->t)) == 0, "%s: another sum", p->name);
    }
    free(want);
    ls_replica_destroy(&a);
    ls_replica_destroy(&b);
    return LS_OK;
}

static void gradients_of_earlier_backwards_count(void **state)
{
    (void)state;
    for (int size = 1; size <= 3; size++) {
        expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, stays, NULL));
        expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, stays, "bf16"));
        expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, stays, "powersgd"));
        expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, accumulates, (void *)(uintptr_t)&small));
    }
}

/* --- buckets ------------------------------------------------------------------------------------------- */

/* PyTorch's rule: from registration order, the last bucket first, never rebuilt. A layer takes 576 + 48 bytes. */
static ls_status has_buckets(ls_world *w, void *arg)
{
    const ls_replica_config c = config_of(arg);
    ls_replica r;
    LS_TRY(ls_replica_create(w, &c, &r));
    for (int s = 0; s < 3; s++) {
        const int n = ls_ddp_buckets(r.ddp);
        int last = r.model->params.n;
        LS_EXPECT(ls_ddp_rebuilt(r.ddp) && n > 2, "%d buckets", n);
        for (int k = 0; k < n; k++) {
            const ls_ddp_bucket_info b = ls_ddp_bucket(r.ddp, k);
            for (int i = 1; i < b.nparams; i++) LS_EXPECT(b.param[i] == b.param[i - 1] + 1, "bucket %d is not in order", k);
            LS_EXPECT(b.param[b.nparams - 1] == last - 1, "bucket %d ends with %d", k, b.param[b.nparams - 1]);
            last = b.param[0];
        }
        LS_EXPECT(last == 0 && ls_ddp_bucket(r.ddp, n - 1).nparams == 1, "the last bucket begins with %d", last);
        LS_TRY(pass(w, &r, s, true));
    }
    ls_replica_destroy(&r);
    return LS_OK;
}

static void buckets_follow_registration(void **state)
{
    (void)state;
    expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, has_buckets, (void *)(uintptr_t)&small));
}

/* --- a static graph --------------------------------------------------------------------------------------- */

static unsigned middle(int rank, int step)
{
    (void)rank, (void)step;
    return 2;
}

static ls_status is_static(ls_world *w, void *arg)
{
    const ls_replica_config of_ddp = config_of(&fixed), of_plain = config_of(NULL);
    ls_replica a, b;
    (void)arg;
    LS_TRY(ls_replica_create(w, &of_plain, &a));
    LS_TRY(ls_replica_create(w, &of_ddp, &b));
    const ls_unit_class *layer = b.model->units.item[0].cls;
    float *want = calloc((size_t)ls_params_count(&a.model->params), sizeof *want);
    bool used[2 * (LAYERS + 1)];
    LS_EXPECT(want, "memory");
    leave_out(&b, layer, 2);
    for (int s = 0; s < 4; s++) {
        LS_EXPECT(s > 1 || ls_ddp_buckets(b.ddp) == 1, "step %d: %d buckets before the first backward", s, ls_ddp_buckets(b.ddp));
        LS_TRY(average(w, &a, layer, s, middle, want, used));
        ls_params_zero_grad(&b.model->params);
        LS_TRY(pass(w, &b, s, true));
        LS_TRY(same(&b, s, want, used, false));
    }
    LS_EXPECT(ls_ddp_rebuilt(b.ddp) && ls_ddp_buckets(b.ddp) > 2, "%d buckets", ls_ddp_buckets(b.ddp));
    free(want);
    ls_params_zero_grad(&b.model->params);
    leave_out(&b, layer, arg ? 0 : 6);
    const ls_status st = pass(w, &b, 0, true);
    LS_EXPECT(st == LS_INVALID && strstr(ls_last_error(), "static_graph: on rank ") &&
              strstr(ls_last_error(), arg ? "got no gradient in the first backward, and gets one" : "got a gradient in the first "
                                                                                        "backward, and gets none"), "status %d: %s", st, ls_last_error());
    ls_replica_destroy(&a);
    ls_replica_destroy(&b);
    return LS_OK;
}

static ls_status differ(ls_world *w, void *arg)
{
    const ls_replica_config c = config_of(&fixed);
    ls_replica r;
    (void)arg;
    LS_TRY(ls_replica_create(w, &c, &r));
    leave_out(&r, r.model->units.item[0].cls, ls_world_rank(w) == 1 ? 2 : 0);
    const ls_status st = pass(w, &r, 0, true);
    LS_EXPECT(st == LS_CONFIG_MISMATCH && strstr(ls_last_error(), "static_graph: parameter 2 (2.weight) takes part in the loss of rank "
                                                                 "0, but not in that of rank 1"), "status %d: %s", st, ls_last_error());
    ls_replica_destroy(&r);
    return LS_OK;
}

static void a_static_graph_is_that_of_the_first_backward(void **state)
{
    (void)state;
    int yes = 1;
    for (int size = 1; size <= 3; size++) {
        expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, is_static, NULL));
        expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, is_static, &yes));
    }
    expect(ls_test_ranks(LS_TEST_THREADS, 3, NULL, differ, NULL));
}

/* --- what is refused ---------------------------------------------------------------------------------------- */

static ls_status shards(ls_world *w, void *arg)
{
    const ls_replica_config c = config_of(arg);
    ls_replica r;
    const ls_status st = ls_replica_create(w, &c, &r);
    LS_EXPECT(st == LS_UNSUPPORTED && strstr(ls_last_error(), "sharded gradients need every parameter in every backward"), "%s",
              ls_last_error());
    return LS_OK;
}

/* Without find_unused the next forward names what is missing (test_ddp_misuse.c has the message). */
static ls_status asks_for_it(ls_world *w, void *arg)
{
    const ls_ddp_config plain = { 0 };
    const ls_replica_config c = config_of(&plain);
    ls_replica r;
    (void)arg;
    LS_TRY(ls_replica_create(w, &c, &r));
    leave_out(&r, r.model->units.item[0].cls, 2);
    LS_TRY(pass(w, &r, 0, true));
    LS_EXPECT(pass(w, &r, 1, true) == LS_INVALID && strstr(ls_last_error(), "2.weight"), "%s", ls_last_error());
    ls_replica_destroy(&r);
    return LS_OK;
}

static void what_is_not_possible_is_refused(void **state)
{
    (void)state;
    static const ls_ddp_config sharded = { .find_unused = true, .zero_stage = 1 };
    static const ls_ddp_config sharded_too = { .static_graph = true, .zero_stage = 2 };
    expect(ls_test_ranks(LS_TEST_THREADS, 1, NULL, shards, (void *)(uintptr_t)&sharded));
    expect(ls_test_ranks(LS_TEST_THREADS, 1, NULL, shards, (void *)(uintptr_t)&sharded_too));
    expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, asks_for_it, NULL));
}

/* --- buffers ---------------------------------------------------------------------------------------------- */

static ls_status copies(ls_world *w, void *arg)
{
    const ls_ddp_config plain = { 0 };
    const ls_replica_config c = config_of(&plain);
    const int rank = ls_world_rank(w);
    float mean[5];
    int64_t batches = 100 + rank;
    const ls_buffer list[] = { { "norm.mean", mean, 5, LS_F32 }, { "norm.batches", &batches, 1, LS_I64 } };
    ls_replica r;
    (void)arg;
    for (int i = 0; i < 5; i++) mean[i] = (float)(10 * rank + i);
    LS_TRY(ls_replica_create(w, &c, &r));
    LS_TRY(ls_ddp_set_buffers(r.ddp, list, 2));
    for (int i = 0; i < 5; i++) LS_EXPECT((int)mean[i] == i, "element %d is %g", i, (double)mean[i]);
    LS_EXPECT(batches == 100, "%lld batches", (long long)batches);
    for (int s = 0; s < 4; s++) { /* steps 1 and 2 are not reduced: forwards 2 and 3 leave buffers alone */
        batches = 200 + 10 * s + rank;
        LS_TRY(pass(w, &r, s, s == 0 || s == 3));
        const int64_t want = 200 + 10 * s + (s < 2 ? 0 : rank);
        LS_EXPECT(batches == want, "step %d: %lld, expected %lld", s, (long long)batches, (long long)want);
    }
    if (ls_world_size(w) > 1) {
        const ls_status st = ls_ddp_set_buffers(r.ddp, list, rank ? 1 : 2);
        LS_EXPECT(st == LS_CONFIG_MISMATCH && strstr(ls_last_error(), "rank 0 has 2 buffers, but rank 1 has 1"), "%s", ls_last_error());
    }
    ls_replica_destroy(&r);
    return LS_OK;
}

static void buffers_are_those_of_rank_0(void **state)
{
    (void)state;
    for (int size = 1; size <= 3; size++) expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, copies, NULL));
    expect(ls_test_ranks(LS_TEST_PROCESSES, 2, &wires, copies, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_rank_does_not_use_counts_as_zero),
        cmocka_unit_test(a_hook_reduces_what_some_ranks_do_not_use),
        cmocka_unit_test(gradients_of_earlier_backwards_count),
        cmocka_unit_test(buckets_follow_registration),
        cmocka_unit_test(a_static_graph_is_that_of_the_first_backward),
        cmocka_unit_test(what_is_not_possible_is_refused),
        cmocka_unit_test(buffers_are_those_of_rank_0),
    };
    return cmocka_run_group_tests_name("unused", tests, NULL, NULL);
}
