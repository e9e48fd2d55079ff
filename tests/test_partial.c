/* ls_ddp_config.tree: sums of gradients over the micro-batches of all ranks, bit by bit against gradients of single
 * micro-batches that are added as a tree here; for every stage, in memory and over connections; and what it refuses. */
#include "harness_replica.h"

#include <stdlib.h>
#include <string.h>

#include "lockstep/data.h"
#include "lockstep/hook.h"

enum { EACH = 2, MOST = 16 }; /* rows of a micro-batch; micro-batches of a step */

static const int64_t dims[] = { 20, 17, 12, 3 };
static const ls_world_opts wires = { .transport = "tcp" };
static const ls_world_opts ascend = { .transport = "tcp", .algo = "direct" }; /* where a plain sum adds in rank order */

typedef struct layout {
    int stage, n, inner; /* micro-batches per rank; ranks that take neighbouring ones in turn */
    bool last, gathered; /* reduce_last; LS_ZERO_COPY_RANK */
    size_t bucket_cap;
    int sets;            /* of shards; 0: one */
} layout;

static ls_replica_config config_of(const ls_ddp_config *ddp)
{
    return (ls_replica_config){
        .dims = dims, .ndims = COUNT(dims), .seed = 4, .ddp = ddp, .plain = !ddp, .rows = EACH
    };
}

/* --- what is right -------------------------------------------------------------------------------------------- */

typedef struct sums {
    float *of[MOST]; /* owned: the gradient of each micro-batch of a step */
    size_t count;
} sums;

static ls_status make_sums(ls_world *w, int n, sums *out)
{
    const ls_replica_config c = config_of(NULL);
    ls_replica r;
    LS_TRY(ls_replica_create(w, &c, &r));
    out->count = (size_t)ls_params_count(&r.model->params);
    for (int m = 0; m < n; m++) {
        ls_params_zero_grad(&r.model->params);
        LS_TRY(ls_replica_pass(&r, 0, m * EACH, EACH, true, 1, NULL));
        out->of[m] = ls_replica_grads(&r);
    }
    ls_replica_destroy(&r);
    return LS_OK;
}

static void free_sums(sums *x)
{
    for (int m = 0; m < MOST; m++) free(x->of[m]);
}

/* Of two halves; where n is no power of two, of the largest tree and the rest. */
static float tree(const sums *x, size_t i, int first, int n)
{
    int most = 1;
    if (n == 1) return x->of[first][i];
    while (2 * most < n) most *= 2;
    return tree(x, i, first, most) + tree(x, i, first + most, n - most);
}

/* --- what ranks have ------------------------------------------------------------------------------------------ */

static ls_status compare(const ls_replica *r, const sums *x, int all, int step)
{
    size_t at = 0, differ = 0;
    for (int i = 0; i < r->model->params.n; i++) {
        const ls_param *p = &r->model->params.item[i];
        const float *found = ls_param_gradients(p);
        for (size_t k = 0; k < p->own.count; k++) {
            const size_t j = at + p->own.first + k;
            const float want = tree(x, j, 0, all);
            float ascending = x->of[0][j];
            for (int m = 1; m < all; m++) ascending += x->of[m][j];
            differ += memcmp(&ascending, &want, sizeof want) != 0;
            LS_EXPECT(memcmp(&found[k], &want, sizeof want) == 0, "step %d, %s[%zu]: %a, expected %a", step, p->name,
                      p->own.first + k, (double)found[k], (double)want);
        }
        at += (size_t)ls_tensor_count(&p->t);
    }
    LS_EXPECT(all < 4 || differ > 0, "ascending sums have the same bits: this shows nothing");
    return LS_OK;
}

static ls_status steps(ls_world *w, const layout *l, ls_replica *r, const sums *x)
{
    const int size = ls_world_size(w);
    const ls_deal deal = { (size_t)l->n, 1, l->inner };
    for (int s = 0; s < 3; s++) { /* buckets are rebuilt after the first */
        for (int k = 0; k < l->n; k++) {
            const int64_t place = (int64_t)ls_deal_place(&deal, ls_world_rank(w), (size_t)k);
            LS_TRY(ls_replica_pass(r, 0, place * EACH, EACH, k == l->n - 1, 1, NULL));
        }
        LS_TRY(compare(r, x, size * l->n, s));
        ls_params_zero_grad(&r->model->params);
        LS_TRY(ls_ddp_after_step(r->ddp));
    }
    return LS_OK;
}

static ls_status adds_as_a_tree(ls_world *w, void *arg)
{
    const layout *l = arg;
    const int size = ls_world_size(w), shards = l->sets ? size / l->sets : size, rank = ls_world_rank(w);
    ls_ddp_config c = { .zero_stage = l->stage, .tree = true, .micro_batches = l->n, .reduce_last = l->last,
                        .first_bucket = l->bucket_cap, .bucket_cap = l->bucket_cap,
                        .copy = l->gathered ? LS_ZERO_COPY_RANK : LS_ZERO_COPY_HOST };
    sums x = { 0 };
    ls_replica r;
    LS_TRY(make_sums(w, size * l->n, &x));
    if (l->sets) {
        LS_TRY(ls_group_split_named(ls_world_group(w), rank / shards, "shards", &c.shards));
        LS_TRY(ls_group_split_named(ls_world_group(w), rank % shards, "copies", &c.copies));
    }
    const ls_replica_config rc = config_of(&c);
    ls_status st = ls_replica_create(w, &rc, &r);
    if (st == LS_OK) st = steps(w, l, &r, &x);
    if (st < 0) return st; /* the world ends with it */
    ls_replica_destroy(&r);
    ls_group_destroy(c.copies);
    ls_group_destroy(c.shards);
    free_sums(&x);
    return LS_OK;
}

static void run(int size, const ls_world_opts *o, const layout *l)
{
    layout arg = *l;
    const ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, size, o, adds_as_a_tree, &arg);
    if (r.failed)
        fail_msg("%d ranks%s, stage %d, %d micro-batches in turns of %d%s%s, %d sets: %s", size, o ? " over tcp" : "",
                 l->stage, l->n, l->inner, l->last ? ", reduced once" : "", l->gathered ? ", gathered" : "", l->sets,
                 r.text);
}

/* Any number of micro-batches, on one rank. */
static void one_rank_adds_pairs(void **state)
{
    (void)state;
    for (int n = 1; n <= 9; n++)
        for (int stage = 0; stage <= 3; stage++) run(1, NULL, &(layout){ .stage = stage, .n = n, .inner = 1 });
}

static void ranks_add_the_upper_levels(void **state)
{
    (void)state;
    for (int size = 2; size <= 8; size *= 2)
        for (int n = 1; size * n <= MOST; n *= 2) {
            const size_t cap = n == 2 ? 700 : 0;
            run(size, NULL, &(layout){ .n = n, .inner = 1, .bucket_cap = cap });
            run(size, n == 2 ? &wires : NULL, &(layout){ .stage = 1, .n = n, .inner = 1, .bucket_cap = cap });
            run(size, NULL, &(layout){ .stage = 2, .n = n, .inner = 1, .last = true });
        }
}

static void ranks_add_the_lower_levels(void **state)
{
    (void)state;
    for (int size = 2; size <= 8; size *= 2)
        for (int n = 1; size * n <= MOST; n *= 2) {
            const layout slots = { .stage = 2, .n = n, .inner = size, .bucket_cap = n == 4 ? 700 : 0 };
            run(size, n == 2 ? &wires : NULL, &slots);
            run(size, NULL, &(layout){ .stage = 3, .n = n, .inner = size });
            run(size, n == 4 ? &wires : NULL, &(layout){ .stage = 3, .n = n, .inner = size, .gathered = true });
        }
}

/* Over connections sums are complete within a set first, and the sets add the upper levels. */
static void sets_add_the_upper_levels(void **state)
{
    (void)state;
    for (int n = 1; n <= 2; n *= 2)
        for (int sets = 2; sets <= 8; sets *= 2) {
            run(8, &ascend, &(layout){ .stage = 2, .n = n, .inner = 8 / sets, .sets = sets });
            run(8, NULL, &(layout){ .stage = 2, .n = n, .inner = 8, .sets = sets });
            run(8, &wires, &(layout){ .stage = 1, .n = n, .inner = 1, .sets = sets });
        }
}

/* --- what is refused ------------------------------------------------------------------------------------------ */

static ls_status says(ls_status st, ls_status want, const char *text)
{
    LS_EXPECT(st == want && strstr(ls_last_error(), text), "status %d: '%s', expected '%s'", (int)st, ls_last_error(),
              text);
    return LS_OK;
}

static ls_status refuses(ls_world *w, void *arg)
{
    ls_replica r;
    ls_comm_hook *hook;
    (void)arg;
    for (int i = 0; i < 2; i++) {
        const ls_ddp_config bad = { .tree = true, .find_unused = i == 0, .static_graph = i == 1 };
        const ls_replica_config c = config_of(&bad);
        LS_TRY(says(ls_replica_create(w, &c, &r), LS_UNSUPPORTED,
                    "with ls_ddp_config.tree: the sums need every parameter"));
    }
    for (int stage = 0; stage <= 2; stage += 2) {
        const ls_ddp_config two = { .tree = true, .micro_batches = 2, .zero_stage = stage };
        const ls_replica_config c = config_of(&two);
        LS_TRY(ls_replica_create(w, &c, &r));
        if (stage == 0) {
            LS_TRY(says(ls_ddp_join_begin(r.ddp, NULL), LS_UNSUPPORTED, "ls_ddp_join_begin with ls_ddp_config.tree"));
            LS_TRY(ls_hook_allreduce(&hook));
            LS_TRY(says(ls_ddp_set_hook(r.ddp, hook), LS_UNSUPPORTED,
                        "communication hook allreduce with ls_ddp_config.tree"));
            hook->destroy(hook);
        }
        LS_TRY(ls_replica_pass(&r, 0, 0, EACH, false, 1, NULL));
        LS_TRY(says(ls_replica_pass(&r, 0, 0, EACH, false, 1, NULL), LS_INVALID,
                    "a step with more backwards than the 2 of"));
        ls_replica_destroy(&r);
    }
    return LS_OK;
}

static void what_has_no_tree_is_refused(void **state)
{
    (void)state;
    expect(ls_test_ranks(LS_TEST_THREADS, 1, NULL, refuses, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_adds_pairs),
        cmocka_unit_test(ranks_add_the_upper_levels),
        cmocka_unit_test(ranks_add_the_lower_levels),
        cmocka_unit_test(sets_add_the_upper_levels),
        cmocka_unit_test(what_has_no_tree_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
