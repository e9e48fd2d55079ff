/* DDP used wrongly: models that differ, memory that ends, gradients that are missing, backwards without a forward, and
 * optimizer steps with gradients that were not averaged. */
#include "harness_replica.h"

#include "base/context.h"
#include "base/env.h"

#include <stdlib.h>
#include <string.h>

static const int64_t small[] = { 20, 16, 12, 5 };
#define SMALL .dims = small, .ndims = COUNT(small)

/* --- wrong use --------------------------------------------------------------------------------------------- */

typedef struct param_list {
    int n;
    struct { const char *name; int ndim; int64_t dim[2]; } item[3];
} param_list;

/* Rank 0 builds list[0], all others list[1]. */
static ls_status wraps(ls_world *w, void *arg)
{
    const param_list *l = &((const param_list *)arg)[ls_world_rank(w) > 0];
    ls_params ps = { 0 };
    ls_arena *arena = NULL;
    ls_ddp *ddp;
    ls_status st = ls_arena_create(65536, false, NULL, &arena);
    for (int i = 0; st == LS_OK && i < l->n; i++)
        st = ls_params_add(&ps, l->item[i].name, l->item[i].ndim, l->item[i].dim);
    if (st == LS_OK) st = ls_params_bind(&ps, arena, NULL);
    if (st == LS_OK) st = ls_ddp_create(ls_world_group(w), &ps, NULL, &ddp);
    if (st == LS_OK) ls_ddp_destroy(ddp);
    ls_params_free(&ps);
    ls_arena_destroy(arena);
    return st;
}

static void refuses_models_that_differ(void **state)
{
    (void)state;
    static const struct { param_list list[2]; const char *says; } row[] = {
        { { { 2, { { "w", 2, { 4, 3 } }, { "b", 1, { 4 } } } }, { 1, { { "w", 2, { 4, 3 } } } } },
          "DDP expects same model across all ranks, but Rank 0 has 2 params, while rank 1 has inconsistent 1 params" },
        { { { 2, { { "w", 2, { 4, 3 } }, { "b", 1, { 4 } } } }, { 2, { { "w", 2, { 3, 4 } }, { "b", 1, { 4 } } } } },
          "parameter 0 is w [4, 3] on rank 0, but w [3, 4] on rank 1" },
        { { { 2, { { "w", 2, { 4, 3 } }, { "b", 1, { 4 } } } }, { 2, { { "w", 2, { 4, 3 } }, { "bias", 1, { 4 } } } } },
          "parameter 1 is b [4] on rank 0, but bias [4] on rank 1" },
        { { { 1, { { "w", 2, { 4, 3 } } } }, { 1, { { "w", 1, { 12 } } } } },
          "parameter 0 is w [4, 3] on rank 0, but w [12] on rank 1" },
        { { { 1, { { "w", 2, { 4, 3 } } } }, { 0, { { 0 } } } },
          "Rank 0 has 1 params, while rank 1 has inconsistent 0 params" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        param_list list[2] = { row[i].list[0], row[i].list[1] };
        ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 3, NULL, wraps, list);
        if (r.status != LS_CONFIG_MISMATCH || !strstr(r.text, row[i].says)) fail_msg("row %zu: %d %s", i, r.status, r.text);
    }
    param_list none[2] = { { 0 }, { 0 } };
    ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 2, NULL, wraps, none);
    assert_int_equal(r.status, LS_INVALID);
    assert_non_null(strstr(r.text, "at least one parameter"));
    ls_ddp *ddp;
    ls_params ps = { 0 };
    assert_int_equal(ls_ddp_create(NULL, &ps, NULL, &ddp), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "call ls_world_join before ls_ddp_create"));
}

/* --- memory that there is not ----------------------------------------------------------------------- */

static uint64_t next_to_nothing(void) { return 4096; }

/* Stage 0: gradients; stage 1: values; and with much memory in the world, the own floats of a matrix that is read in
 * bf16. */
static ls_status runs_out(ls_world *w, void *arg)
{
    static const char *const says[] = { ("while placing the gradients of 2 parameters, of which fc.weight is the largest: while "
                                         "allocating registered memory on rank 0: the arena of"),
                                        "while allocating values that peers read: fc.weight is the largest parameter",
                                        "while allocating parameter fc.weight: 16777216 bytes (param) do not fit" };
    const int which = *(const int *)arg;
    const ls_ddp_config c = { .zero_stage = which > 0 };
    ls_params ps = { 0 };
    ls_arena *own;
    ls_ddp *ddp = NULL;
    ls_env env = *ls_env_get();
    const ls_env *before = ls_context_get()->env;
    LS_TRY(ls_params_add(&ps, "fc.bias", 1, (int64_t[]){ 100 }));
    LS_TRY(ls_params_add(&ps, "fc.weight", 2, (int64_t[]){ 4096, 1024 }));
    LS_TRY(ls_arena_create(which == 2 ? 64 : (size_t)32 << 20, false, NULL, &own));
    if (which == 2) LS_TRY(ls_arena_alloc(own, ls_arena_room(own, NULL) - 64, LS_MEM_COMM, &(void *){ NULL }));
    if (which == 0) LS_TRY(ls_ddp_bind(ls_world_group(w), &ps, &c, LS_F32, own));
    env.mem_available = next_to_nothing;
    if (which < 2) ls_context_get()->env = &env;
    const ls_status st = which == 0 ? ls_ddp_create(ls_world_group(w), &ps, &c, &ddp)
                                    : ls_ddp_bind(ls_world_group(w), &ps, &c, which == 2 ? LS_BF16 : LS_F32, own);
    ls_context_get()->env = before;
    const bool said = st == LS_NO_MEMORY && strstr(ls_last_error(), says[which]);
    ls_params_free(&ps);
    ls_arena_destroy(own);
    LS_EXPECT(said, "%d: %s: %s", which, ls_status_word(st), st < 0 ? ls_last_error() : "");
    return LS_OK;
}

typedef struct shortage {
    ls_ddp_config ddp;
    bool at_once;      /* before the values are bound; false: between that and ls_ddp_create */
    const char *says;
} shortage;

/* A unit that is larger than what there is, or all of its parameters in the root. */
static ls_status unit_without_memory(ls_world *w, const shortage *x, bool root)
{
    const int64_t dims[] = { 1024, 4096, 4 };
    const ls_model_config mc = { .name = "mlp", .dims = dims, .ndims = COUNT(dims), .init = LS_INIT_PHILOX };
    ls_model *m;
    ls_arena *own;
    ls_ddp *ddp = NULL;
    ls_env env = *ls_env_get();
    const ls_env *before = ls_context_get()->env;
    LS_TRY(ls_model_create(&mc, &m));
    for (int i = 0; root && i < m->params.n; i++) m->params.item[i].unit = -1;
    LS_TRY(ls_arena_create((size_t)64 << 20, false, NULL, &own));
    env.mem_available = next_to_nothing;
    if (x->at_once) ls_context_get()->env = &env;
    ls_status st = ls_ddp_bind(ls_world_group(w), &m->params, &x->ddp, LS_F32, own);
    if (!x->at_once && st == LS_OK) st = ls_model_init(m, &mc);
    ls_context_get()->env = &env;
    if (st == LS_OK) st = ls_ddp_create(ls_world_group(w), &m->params, &x->ddp, &ddp);
    ls_context_get()->env = before;
    const bool said = st == LS_NO_MEMORY && strstr(ls_last_error(), x->says) && strstr(ls_last_error(), "0.weight") && !ddp;
    ls_ddp_destroy(ddp);
    ls_model_destroy(m);
    ls_arena_destroy(own);
    LS_EXPECT(said, "stage %d, copy %d: %s: %s", x->ddp.zero_stage, (int)x->ddp.copy, ls_status_word(st), st < 0 ? ls_last_error() : "");
    return LS_OK;
}

static ls_status units_without_memory(ls_world *w, void *arg)
{
    LS_TRY(unit_without_memory(w, arg, false));
    return unit_without_memory(w, arg, true);
}

static void names_a_parameter_where_memory_ends(void **state)
{
    (void)state;
    static const shortage row[] = {
        { { .zero_stage = 1 }, true, "allocating values that peers read" },
        { { .zero_stage = 2 }, false, "allocating gradients of the root and of " },
        { { .zero_stage = 2, .reduce_last = true }, true, "allocating values that peers read" },
        { { .zero_stage = 3 }, true, "allocating values that peers read" },
        { { .zero_stage = 3 }, false, "allocating gradients of the root and of " },
        { { .zero_stage = 3, .copy = LS_ZERO_COPY_RANK, .reduce_last = true }, false, "allocating the values of " },
    };
    for (size_t i = 0; i < COUNT(row); i++)
        expect(ls_test_ranks(LS_TEST_THREADS, 1, NULL, units_without_memory, (void *)(uintptr_t)&row[i]));
    for (int which = 0; which < 3; which++) expect(ls_test_ranks(LS_TEST_THREADS, 1, NULL, runs_out, &which));
}

/* One linear layer and a parameter that only ranks below *arg use. */
static ls_status leaves_one_out(ls_world *w, void *arg)
{
    int used_below = *(int *)arg, rank = ls_world_rank(w);
    const int64_t wdim[2] = { 3, 4 }, bdim[1] = { 3 }, xdim[2] = { 2, 4 }, ydim[1] = { 2 };
    float x[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    int64_t y[2] = { 0, 2 };
    ls_params ps = { 0 };
    ls_arena *arena = NULL;
    ls_ddp *ddp = NULL;
    ls_tape *t = NULL;
    ls_status st = ls_arena_create(65536, false, NULL, &arena);
    if (st == LS_OK) st = ls_params_add(&ps, "weight", 2, wdim);
    if (st == LS_OK) st = ls_params_add(&ps, "spare", 1, bdim);
    if (st == LS_OK) st = ls_params_bind(&ps, arena, NULL);
    if (st == LS_OK) memset(ps.item[0].t.data, 0, ls_params_nbytes(&ps));
    if (st == LS_OK) st = ls_tape_create(65536, NULL, NULL, &t);
    if (st == LS_OK) st = ls_ddp_create(ls_world_group(w), &ps, NULL, &ddp);
    for (int i = 0; st == LS_OK && i < 2; i++) {
        ls_tape_reset(t);
        if ((st = ls_ddp_begin_forward(ddp, t, true)) < 0) break;
        ls_tensor *in = ls_tape_input(t, LS_F32, 2, xdim, x), *label = ls_tape_input(t, LS_I64, 1, ydim, y);
        ls_tensor *out = ls_linear(t, in, &ps.item[0].t, rank < used_below ? &ps.item[1].t : NULL);
        st = ls_backward(t, ls_softmax_cross_entropy(t, out, label, NULL, NULL));
    }
    if (st < 0) (void)ls_world_abort(w, st);
    ls_ddp_destroy(ddp);
    ls_tape_destroy(t);
    ls_params_free(&ps);
    ls_arena_destroy(arena);
    return st;
}

static void names_the_parameter_that_got_no_gradient(void **state)
{
    (void)state;
    int used_below = 0;
    ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 2, NULL, leaves_one_out, &used_below);
    assert_int_equal(r.status, LS_INVALID);
    assert_non_null(strstr(r.text, "Expected to have finished reduction in the prior iteration before starting a new one"));
    assert_non_null(strstr(r.text, "parameter 1 (spare)"));
    used_below = 1; /* rank 0 uses it and waits for rank 1, which does not */
    r = ls_test_ranks(LS_TEST_THREADS, 2, NULL, leaves_one_out, &used_below);
    assert_int_equal(r.status, LS_INVALID);
    assert_non_null(strstr(r.text, "rank 1 got no gradient for parameter 1 (spare)"));
    used_below = 2;
    expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, leaves_one_out, &used_below));
}

/* *arg: whether the forward of the second backward was announced. */
static ls_status goes_back_twice(ls_world *w, void *arg)
{
    ls_replica r;
    float one = 1.0f;
    const int64_t xdim[2] = { ROWS, small[0] }, ydim[1] = { ROWS };
    LS_TRY(ls_replica_create(w, &(ls_replica_config){ SMALL, .rows = ROWS }, &r));
    ls_status st = ls_replica_pass(&r, 0, 0, ROWS, true, 1, NULL);
    ls_tape_reset(r.tape);
    if (st == LS_OK && *(bool *)arg) st = ls_ddp_begin_forward(r.ddp, r.tape, true);
    ls_tensor *x = ls_tape_input(r.tape, LS_F32, 2, xdim, r.x);
    ls_tensor *y = ls_tape_input(r.tape, LS_I64, 1, ydim, r.label);
    ls_tensor *loss = ls_softmax_cross_entropy(r.tape, ls_model_forward(r.model, r.tape, x), y, NULL, NULL);
    if (st == LS_OK) st = ls_backward_from(r.tape, loss, &one);
    ls_replica_destroy(&r);
    return st;
}

static void refuses_a_second_backward_without_a_forward(void **state)
{
    (void)state;
    bool announced = false;
    ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 2, NULL, goes_back_twice, &announced);
    assert_int_equal(r.status, LS_INVALID);
    assert_non_null(strstr(r.text, "Expected to mark a variable ready only once: parameter 5 (4.bias)"));
    announced = true;
    expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, goes_back_twice, &announced));
}

/* A forward without a backward (a loss nobody used) leaves nothing unfinished: PyTorch allows it. */
static ls_status looks_only(ls_world *w, void *arg)
{
    (void)arg;
    ls_replica r;
    LS_TRY(ls_replica_create(w, &(ls_replica_config){ SMALL, .rows = ROWS }, &r));
    LS_TRY(ls_ddp_begin_forward(r.ddp, r.tape, true));
    LS_TRY(ls_replica_pass(&r, 0, 0, ROWS, true, 1, NULL));
    LS_TRY(ls_ddp_begin_forward(r.ddp, r.tape, true));
    LS_TRY(ls_replica_pass(&r, 1, 0, ROWS, true, 1, NULL));
    ls_replica_destroy(&r);
    return LS_OK;
}

static void allows_a_forward_without_a_backward(void **state)
{
    (void)state;
    expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, looks_only, NULL));
}

/* --- gradients that were never averaged -------------------------------------------------------------------- */

static ls_status pass(ls_world *w, ls_replica *r, uint64_t batch, bool sync)
{
    return ls_replica_pass(r, batch, ls_world_rank(w) * ROWS, ROWS, sync, 1, NULL);
}

/* Forward and backward on a tape that the wrapper has not seen. */
static ls_status pass_behind_its_back(ls_world *w, ls_replica *r)
{
    ls_replica other = *r;
    other.ddp = NULL;
    LS_TRY(ls_tape_create(ls_model_tape_bytes(r->model, ROWS), NULL, NULL, &other.tape));
    const ls_status st = pass(w, &other, 1, true);
    ls_tape_destroy(other.tape);
    return st;
}

/* The wrapper's hooks stay on the tape: they are those of a backward that did not synchronise. */
static ls_status pass_unannounced(ls_world *w, ls_replica *r)
{
    LS_TRY(pass(w, r, 1, false));
    ls_params_zero_grad(&r->model->params);
    ls_replica other = *r;
    other.ddp = NULL;
    return pass(w, &other, 2, true);
}

static ls_status pass_under_no_sync(ls_world *w, ls_replica *r) { return pass(w, r, 1, false); }

static ls_status pass_on_top(ls_world *w, ls_replica *r)
{
    LS_TRY(pass(w, r, 1, true));
    return pass(w, r, 2, false);
}

static ls_status pass_after_another_wrapper(ls_world *w, ls_replica *r)
{
    ls_ddp *first = r->ddp;
    const ls_status st = ls_ddp_create(ls_world_group(w), &r->model->params, NULL, &r->ddp);
    ls_ddp_destroy(first);
    return st < 0 ? st : pass(w, r, 1, false);
}

typedef ls_status (*pass_fn)(ls_world *w, ls_replica *r);
static const pass_fn never_averaged[] = { pass_under_no_sync, pass_behind_its_back, pass_unannounced, pass_on_top,
                                          pass_after_another_wrapper };

typedef struct attempt {
    pass_fn pass;
    const char *optim;
    bool scaled;
} attempt;

static ls_status try_a_step(ls_world *w, const attempt *a, ls_replica *r)
{
    LS_TRY(pass(w, r, 0, true));
    LS_TRY(ls_optim_step(r->optim));
    LS_TRY(a->pass(w, r));
    float *before = ls_replica_values(r);
    const ls_status st = a->scaled ? ls_optim_step_scaled(r->optim, 0.5) : ls_optim_step(r->optim);
    float *after = ls_replica_values(r);
    const bool same = memcmp(before, after, ls_params_nbytes(&r->model->params)) == 0;
    free(before);
    free(after);
    LS_EXPECT(st == LS_OK || (same && ls_optim_steps(r->optim) == 1), "a refused step has changed weights");
    return st;
}

static ls_status steps_with_own_gradients(ls_world *w, void *arg)
{
    const attempt *a = arg;
    ls_replica r;
    LS_TRY(ls_replica_create(w, &(ls_replica_config){ SMALL, .optim = a->optim, .rows = ROWS }, &r));
    const ls_status st = try_a_step(w, a, &r);
    ls_replica_destroy(&r);
    return st;
}

static void refuses_a_step_with_gradients_that_were_not_averaged(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(never_averaged); i++)
        for (int k = 0; k < 2; k++) {
            attempt a = { never_averaged[i], k ? "sgd" : "adamw", k };
            ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 2 + k, NULL, steps_with_own_gradients, &a);
            if (r.status != LS_INVALID || !strstr(r.text, ": step 2 on rank ") ||
                !strstr(r.text, "the gradient of 0.weight is this rank's own, not the mean over ") ||
                !strstr(r.text, "ls_ddp_begin_forward(ddp, tape, true)"))
                fail_msg("case %zu: %d %s", i, r.status, r.text);
            expect(ls_test_ranks(LS_TEST_THREADS, 1, NULL, steps_with_own_gradients, &a)); /* nobody to differ from */
        }
}

/* Micro-batches without and a last one with, what zero_grad has dropped, a model that is wrapped no longer. */
static ls_status steps_with_averages(ls_world *w, void *arg)
{
    (void)arg;
    ls_replica r;
    char digest[33];
    LS_TRY(ls_replica_create(w, &(ls_replica_config){ SMALL, .optim = "adamw", .rows = ROWS }, &r));
    for (uint64_t step = 0; step < 3; step++) {
        for (uint64_t m = 0; m < 3; m++) LS_TRY(pass(w, &r, 3 * step + m, m == 2));
        LS_TRY(ls_optim_step(r.optim));
    }
    LS_TRY(pass(w, &r, 9, true)); /* averages are added to, and averaged once more */
    LS_TRY(pass(w, &r, 10, true));
    LS_TRY(ls_optim_step(r.optim));
    LS_TRY(pass(w, &r, 11, false));
    ls_params_zero_grad(&r.model->params);
    LS_TRY(ls_optim_step(r.optim));
    LS_TRY(ls_params_digest(&r.model->params, digest));
    LS_TRY(ls_expect_equal(w, digest, 32, "parameters"));
    LS_TRY(pass(w, &r, 12, false));
    ls_ddp_destroy(r.ddp);
    r.ddp = NULL;
    for (int i = 0; i < r.model->params.n; i++) /* their memory is the world's */
    {
        const ls_param *p = &r.model->params.item[i];
        LS_EXPECT(!p->t.grad && !p->grad.data, "a gradient outlives its wrapper");
        LS_EXPECT(p->keeps.count == p->own.count, "'%s': the norm leaves elements to another rank", p->name);
    }
    LS_TRY(ls_optim_step(r.optim));
    ls_replica_destroy(&r);
    return LS_OK;
}

static void steps_with_gradients_that_were_averaged_last(void **state)
{
    (void)state;
    for (int size = 1; size <= 3; size++) expect(ls_test_ranks(LS_TEST_THREADS, size, NULL, steps_with_averages, NULL));
}

/* A frozen matrix in a list of its own, a trained one, and a bias. */
typedef struct half_frozen {
    ls_params frozen, ps;
    ls_arena *arena;
    ls_ddp *ddp;
    ls_tape *t;
    ls_optim *o, *of_frozen;
} half_frozen;

static ls_status build_half_frozen(ls_world *w, half_frozen *m)
{
    const int64_t wdim[2] = { 3, 4 }, square[2] = { 4, 4 }, bdim[1] = { 3 };
    ls_optim_config oc;
    LS_TRY(ls_arena_create(65536, false, NULL, &m->arena));
    LS_TRY(ls_params_add(&m->frozen, "frozen", 2, square));
    LS_TRY(ls_params_add(&m->ps, "weight", 2, wdim));
    LS_TRY(ls_params_add(&m->ps, "bias", 1, bdim));
    LS_TRY(ls_params_bind(&m->frozen, m->arena, NULL));
    LS_TRY(ls_params_bind(&m->ps, m->arena, NULL));
    for (int i = 0; i < 16; i++) ((float *)m->frozen.item[0].t.data)[i] = 0.1f;
    for (int i = 0; i < 12; i++) ((float *)m->ps.item[0].t.data)[i] = 0.1f * (float)i;
    memset(m->ps.item[1].t.data, 0, 3 * sizeof(float));
    LS_TRY(ls_tape_create(65536, NULL, NULL, &m->t));
    LS_TRY(ls_ddp_create(ls_world_group(w), &m->ps, NULL, &m->ddp));
    LS_TRY(ls_optim_defaults("adamw", &oc));
    LS_TRY(ls_optim_create(&oc, &m->ps, m->arena, &m->o));
    return ls_optim_create(&oc, &m->frozen, m->arena, &m->of_frozen);
}

/* The bias takes part in the loss if uses_all. */
static ls_status step_half_frozen(half_frozen *m, bool uses_all)
{
    const int64_t xdim[2] = { 2, 4 }, ydim[1] = { 2 };
    float x[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    int64_t y[2] = { 0, 2 };
    LS_TRY(ls_ddp_begin_forward(m->ddp, m->t, true));
    ls_tensor *in = ls_linear(m->t, ls_tape_input(m->t, LS_F32, 2, xdim, x), &m->frozen.item[0].t, NULL);
    ls_tensor *out = ls_linear(m->t, in, &m->ps.item[0].t, uses_all ? &m->ps.item[1].t : NULL);
    ls_tensor *labels = ls_tape_input(m->t, LS_I64, 1, ydim, y);
    LS_TRY(ls_backward(m->t, ls_softmax_cross_entropy(m->t, out, labels, NULL, NULL)));
    LS_TRY(ls_optim_step(m->o));
    LS_TRY(ls_optim_step(m->of_frozen));
    LS_EXPECT(*(float *)m->frozen.item[0].t.data == 0.1f, "a frozen parameter has changed");
    return LS_OK;
}

static ls_status steps_with_a_frozen_parameter(ls_world *w, void *arg)
{
    half_frozen m = { 0 };
    ls_status st = build_half_frozen(w, &m);
    if (st == LS_OK) st = step_half_frozen(&m, *(const bool *)arg);
    ls_optim_destroy(m.o);
    ls_optim_destroy(m.of_frozen);
    ls_ddp_destroy(m.ddp);
    ls_tape_destroy(m.t);
    ls_params_free(&m.ps);
    ls_params_free(&m.frozen);
    ls_arena_destroy(m.arena);
    return st;
}

static void names_the_parameter_whose_bucket_was_not_averaged(void **state)
{
    (void)state;
    bool uses_all = true;
    expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, steps_with_a_frozen_parameter, &uses_all));
    uses_all = false;
    ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 2, NULL, steps_with_a_frozen_parameter, &uses_all);
    assert_int_equal(r.status, LS_INVALID);
    if (!strstr(r.text, "step 1 on rank ") || !strstr(r.text, "the gradient of weight is this rank's own") ||
        !strstr(r.text, "parameter bias has no gradient, and without find_unused every parameter must take part in the loss"))
        fail_msg("%s", r.text);
    expect(ls_test_ranks(LS_TEST_THREADS, 1, NULL, steps_with_a_frozen_parameter, &uses_all));
}

/* What is announced at first; then the opposite, or the same again, when forward has begun. */
static ls_status change_mind(ls_world *w, ls_replica *r, const bool sync[2])
{
    const float one = 1.0f;
    const int64_t xdim[2] = { ROWS, small[0] }, ydim[1] = { ROWS };
    LS_TRY(pass(w, r, 0, sync[0]));
    ls_params_zero_grad(&r->model->params);
    ls_tape_reset(r->tape);
    LS_TRY(ls_ddp_begin_forward(r->ddp, r->tape, sync[0]));
    ls_tensor *x = ls_tape_input(r->tape, LS_F32, 2, xdim, r->x);
    ls_tensor *y = ls_tape_input(r->tape, LS_I64, 1, ydim, r->label);
    ls_tensor *loss = ls_softmax_cross_entropy(r->tape, ls_model_forward(r->model, r->tape, x), y, NULL, NULL);
    LS_TRY(ls_ddp_begin_forward(r->ddp, r->tape, sync[1]));
    return ls_backward_from(r->tape, loss, &one);
}

static ls_status changes_its_mind(ls_world *w, void *arg)
{
    ls_replica r;
    LS_TRY(ls_replica_create(w, &(ls_replica_config){ SMALL, .optim = "sgd", .rows = ROWS }, &r));
    const ls_status st = change_mind(w, &r, arg);
    ls_replica_destroy(&r);
    return st;
}

static void refuses_another_sync_between_forward_and_backward(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        bool sync[2] = { k & 1, k & 2 };
        for (int size = 1; size <= 2; size++) {
            ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, size, NULL, changes_its_mind, sync);
            if (r.status != LS_INVALID || !strstr(r.text, "the tape holds a forward whose backward has not run") ||
                !strstr(r.text, sync[0] ? "(sync true)" : "(sync false)"))
                fail_msg("%d then %d: %d %s", sync[0], sync[1], r.status, r.text);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_a_parameter_where_memory_ends),
        cmocka_unit_test(refuses_models_that_differ),
        cmocka_unit_test(names_the_parameter_that_got_no_gradient),
        cmocka_unit_test(refuses_a_second_backward_without_a_forward),
        cmocka_unit_test(allows_a_forward_without_a_backward),
        cmocka_unit_test(refuses_a_step_with_gradients_that_were_not_averaged),
        cmocka_unit_test(steps_with_gradients_that_were_averaged_last),
        cmocka_unit_test(names_the_parameter_whose_bucket_was_not_averaged),
        cmocka_unit_test(refuses_another_sync_between_forward_and_backward),
    };
    return cmocka_run_group_tests_name("ddp_misuse", tests, NULL, NULL);
}
