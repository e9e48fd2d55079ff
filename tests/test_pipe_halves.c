/* pipe_halves: stages that begin and end inside layers. A layer's attention and mlp as units of their own have the
 * parameters, ids and first values of the layer; a split names halves; and the automatic cut takes them where the
 * replayed step is shorter, against all cuts of GPT-2 124M. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "lockstep/lockstep.h"
#include "model/moe.h"
#include "parallel/pipe_cut.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
enum { STAGES = 4 };

static void assert_done(ls_status st)
{
    if (st != LS_OK) fail_msg("%s", ls_last_error());
}

#define SIZES .vocab_size = 96, .seq_len = 16, .n_layer = 3, .n_head = 4, .d_model = 32
#define EXPERTS SIZES, .n_experts = 4, .top_k = 2, .d_expert = 24, .norm_topk = true
static const ls_model_config models[] = {
    { .name = "gpt2", .init = LS_INIT_PHILOX, .seed = 1, .lm = { SIZES, .tied = true } },
    { .name = "gpt2", .init = LS_INIT_PHILOX, .seed = 1, .lm = { SIZES } },
    { .name = "llama", .init = LS_INIT_PHILOX, .seed = 1, .lm = { SIZES, .n_kv_head = 2 } },
    { .name = "moe", .init = LS_INIT_PHILOX, .seed = 1, .lm = { EXPERTS, .first_dense = 1 } },
    { .name = "moe", .init = LS_INIT_PHILOX, .seed = 1, .lm = { EXPERTS, .shared_expert = 16, .bias_rate = 0.1 } },
};

/* Where all layers are halved, or those whose bit is set, and two ranks divide the experts of a moe. */
static ls_model *model_of(const ls_model_config *mc, uint64_t halved, int ep)
{
    ls_place place = { .ep = { NULL, ep, ep - 1 } };
    ls_model *m;
    place.halved[0] = halved;
    assert_done(ls_model_create_at(mc, &place, &m));
    return m;
}

/* --- units ---------------------------------------------------------------------------------------------- */

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), k = strlen(end);
    return n >= k && strcmp(name + n - k, end) == 0;
}

/* By the names in Hugging Face's files. */
static bool is_of_mlp(const char *name)
{
    return strstr(name, ".mlp.") || strstr(name, "ln_2") || strstr(name, "post_attention") || strstr(name, "block_sparse_moe");
}

static void bind(ls_model *m, const ls_model_config *mc, ls_arena **a)
{
    assert_done(ls_arena_create(8 << 20, false, NULL, a));
    assert_done(ls_params_bind(&m->params, *a, NULL));
    assert_done(ls_model_init(m, mc));
}

/* The layers 0 and 2 of 3 are two units each: names, parts, ids and first values of all parameters are those of the
 * model of whole layers. */
static void halves_have_the_parameters_of_their_layer(void **state)
{
    (void)state;
    static const char *const names[] = { "embedding", "h.0.attention", "h.0.mlp", "h.1", "h.2.attention", "h.2.mlp", "head" };
    for (size_t k = 0; k < COUNT(models); k++)
        for (int ep = 1; ep <= (strcmp(models[k].name, "moe") == 0 ? 2 : 1); ep++) {
            ls_arena *a, *b;
            ls_model *whole = model_of(&models[k], 0, ep), *m = model_of(&models[k], 5, ep);
            assert_int_equal(m->units.n, COUNT(names));
            assert_int_equal(m->params.n, whole->params.n);
            assert_int_equal(m->params.experts, whole->params.experts);
            bind(whole, &models[k], &a);
            bind(m, &models[k], &b);
            for (int i = 0; i < m->units.n; i++) assert_string_equal(m->units.item[i].name, names[i]);
            for (int i = 0; i < m->params.n; i++) {
                const ls_param *p = &m->params.item[i], *q = ls_params_find(&whole->params, p->name);
                assert_non_null(q);
                assert_int_equal(p->id, q->id);
                assert_int_equal(p->transposed, q->transposed);
                assert_int_equal(p->f32, q->f32);
                assert_memory_equal(&p->part, &q->part, sizeof p->part);
                assert_int_equal(ls_tensor_count(&p->t), ls_tensor_count(&q->t));
                assert_memory_equal(p->t.data, q->t.data, ls_tensor_nbytes(&p->t));
                const char *unit = p->unit < 0 ? "" : m->units.item[p->unit].name;
                assert_int_equal(ends_with(unit, ".mlp"), is_of_mlp(p->name) && !ends_with(unit, "h.1"));
            }
            ls_model_destroy(m);
            ls_model_destroy(whole);
            ls_arena_destroy(b);
            ls_arena_destroy(a);
        }
}

/* The balancing bias of a halved layer is its mlp's. Of four experts those above the mean of 3 tokens lose 0.1. */
static void a_halved_layer_is_balanced(void **state)
{
    (void)state;
    static const char *const names[] = { "model.layers.0.mlp.gate.balance", "model.layers.1.mlp.gate.balance",
                                         "model.layers.2.mlp.gate.balance" };
    for (uint64_t halved = 0; halved < 8; halved++) {
        ls_arena *a;
        ls_model *m = model_of(&models[4], halved, 1);
        bind(m, &models[4], &a);
        double *words = calloc((size_t)ls_moe_words(m), sizeof *words);
        assert_non_null(words);
        for (int l = 0; l < 3; l++) {
            double *chosen = words + (ls_moe_layer_words(m, words, l) - words);
            for (int e = 0; e < 4; e++) chosen[e] = 2.0 * ((e + l) % 4);
        }
        ls_moe_balance(m, words);
        for (int l = 0; l < 3; l++) {
            const float *bias = ls_params_find(&m->params, names[l])->t.data;
            for (int e = 0; e < 4; e++) assert_true(fabs((double)bias[e] - ((e + l) % 4 > 1 ? -0.1 : 0.1)) < 1e-6);
        }
        free(words);
        ls_model_destroy(m);
        ls_arena_destroy(a);
    }
}

/* --- splits ----------------------------------------------------------------------------------------------- */

static void a_split_names_halves(void **state)
{
    (void)state;
    static const struct { bool lm; uint64_t halved; int n; double split[4]; int first[5]; const char *why; } row[] = {
        { true, 7, 2, { 1.5, 1.5 }, { 0, 4, 8 }, NULL },
        { true, 7, 2, { 0, 3 }, { 0, 1, 8 }, NULL },
        { true, 7, 4, { 0.5, 1, 1.5, 0 }, { 0, 2, 4, 7, 8 }, NULL },
        { true, 2, 3, { 1.5, 0.5, 1 }, { 0, 3, 4, 6 }, NULL },
        { true, 0, 2, { 1, 2 }, { 0, 2, 5 }, NULL },
        { true, 2, 3, { 0.5, 1.5, 1 }, { 0 }, "stage 1 begins inside layer 0: expected a model whose layers are halved" },
        { true, 7, 2, { 1.25, 1.75 }, { 0 }, "a split gives stage 0 1.25 layers: expected a multiple of 0.5, because a layer can be cut "
          "only between its attention and its mlp" },
        { true, 7, 3, { 1, 0, 2 }, { 0 }, "a split gives stage 1 0 layers: expected 0.5 to 3" },
        { true, 7, 2, { 3.5, 0 }, { 0 }, "a split gives stage 0 3.5 layers: expected 0 to 3" },
        { true, 7, 2, { 1.5, 2 }, { 0 }, "a split gives 3.5 layers to 2 stages: expected 3, the layers of the model" },
        { true, 7, 2, { 0.5, 0.5 }, { 0 }, "a split gives 1 layers to 2 stages: expected 3, the layers of the model" },
        { false, 0, 2, { 2, 1 }, { 0, 2, 3 }, NULL },
        { false, 0, 2, { 1.5, 1.5 }, { 0 }, "a split gives stage 0 1.5 layers: expected a whole number, because layers of mlp have no halves" },
        { false, 0, 2, { 0.5, 2.5 }, { 0 }, "a split gives stage 0 0.5 layers: expected 1 to 3" },
    };
    static const int64_t dims[] = { 8, 8, 8, 4 };
    const ls_model_config mlp = { .name = "mlp", .init = LS_INIT_PHILOX, .dims = dims, .ndims = COUNT(dims) };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_model *m = model_of(row[i].lm ? &models[2] : &mlp, row[i].halved, 1);
        int first[5] = { -1, -1, -1, -1, -1 };
        const ls_status st = ls_model_split(m, row[i].n, row[i].split, row[i].n, first);
        if (row[i].why) {
            assert_int_equal(st, row[i].halved == 2 ? LS_INVALID : LS_BAD_CONFIG);
            assert_string_equal(ls_last_error(), row[i].why);
        } else {
            assert_done(st);
            assert_memory_equal(first, row[i].first, ((size_t)row[i].n + 1) * sizeof *first);
        }
        ls_model_destroy(m);
    }
}

/* Bounds in units of whole layers, of halves, and of a model that has only those halves that bounds cut. */
static void bounds_are_the_same_in_every_model(void **state)
{
    (void)state;
    int whole[] = { 0, 2, 4, 5 }, cut[] = { 0, 2, 5, 8 };
    ls_model *layers = model_of(&models[0], 0, 1), *halved = model_of(&models[0], 7, 1);
    ls_place place = { 0 };
    ls_model_to_halves(layers, halved, 3, whole);
    assert_memory_equal(whole, ((int[]){ 0, 3, 7, 8 }), sizeof whole);
    ls_model_to_layers(halved, 3, whole, &place);
    assert_memory_equal(whole, ((int[]){ 0, 2, 4, 5 }), sizeof whole);
    assert_int_equal(place.halved[0], 0);
    ls_model_to_layers(halved, 3, cut, &place); /* after the attention of layer 0, and after layer 1 */
    assert_memory_equal(cut, ((int[]){ 0, 2, 4, 6 }), sizeof cut);
    assert_int_equal(place.halved[0], 1);
    ls_model_destroy(halved);
    ls_model_destroy(layers);
}

/* --- what a run does ----------------------------------------------------------------------------------------- */

static const ls_model_config gpt2_124m = { .name = "gpt2", .lm = { .vocab_size = 50257, .seq_len = 1024, .n_layer = 12, .n_head = 12,
                                                                   .d_model = 768, .tied = true } };

typedef struct costs {
    double *each; /* owned: [4][units] */
    ls_pipe_units u;
} costs;

/* For micro-batches of 64 tokens; an element's update takes as long as 160 operations (parallelize.c). */
static void costs_of(const ls_model *m, const ls_pipe_config *c, costs *out)
{
    const int n = m->units.n;
    ls_unit_costs_of of = { .batch = 1, .tokens = 64, .halves = strncmp(c->schedule, "zb", 2) == 0 || *c->schedule == 'd' };
    ls_unit_cost *cost = calloc((size_t)n, sizeof *cost);
    double *each = calloc(4 * (size_t)n, sizeof *each);
    assert_true(cost && each);
    assert_done(ls_pipe_loss_waits(c, 2, &of.logits_in_forward));
    assert_done(ls_model_unit_costs(m, &of, cost));
    for (int i = 0; i < n; i++) {
        each[i] = cost[i].forward;
        each[n + i] = cost[i].input;
        each[2 * n + i] = cost[i].weight;
        each[3 * n + i] = 160.0 * cost[i].elements;
    }
    *out = (costs){ each, { n, each, each + n, each + 2 * n, each + 3 * n, 160.0 * 50257 * 768 } };
    free(cost);
}

/* The shortest step of all cuts at every `apart`-th unit, of which bounds from `b` on are to be chosen. */
static double best_of(const ls_pipe_config *c, const ls_pipe_units *u, int *first, int stages, int b, int apart)
{
    double best = INFINITY, step;
    if (b == stages) {
        assert_done(ls_pipe_step_of(c, 2, u, first, &step));
        return step;
    }
    const int next = first[b - 1] + 1;
    for (int at = (next - 1 + apart - 1) / apart * apart + 1; at <= u->n - (stages - b); at += apart) {
        first[b] = at;
        best = fmin(best, best_of(c, u, first, stages, b + 1, apart));
    }
    return best;
}

/* Bounds of stages in halves of layers from the embedding's end, by the names of the units after them. */
static void bounds_of(const ls_parallel *here, int stages, int *halves)
{
    for (int s = 1; s < stages; s++) {
        const ls_unit *u = &here->model->units.item[here->first_unit[s]];
        halves[s] = strcmp(u->name, "head") == 0 ? 24 : 2 * u->number + ends_with(u->name, ".mlp");
    }
}

static void automatic_cuts_take_halves_where_a_step_is_shorter(void **state)
{
    (void)state;
    static const struct {
        const char *schedule;
        int m, halves[STAGES];
        double gain; /* in % of the step of whole layers */
    } row[] = {
        { "gpipe", 4, { 0, 17 }, 1.6 },        { "gpipe", 8, { 0, 17 }, 1.7 },
        { "1f1b", 4, { 0, 18 }, 0.0 },         { "1f1b", 8, { 0, 18 }, 0.8 },
        { "zb-h1", 8, { 0, 17 }, 1.6 },        { "interleaved", 8, { 0, 6, 13, 24 }, 1.9 },
        { "zb-v", 4, { 0, 7, 8, 24 }, 2.7 },   { "zb-v", 8, { 0, 7, 8, 24 }, 3.3 },
        { "dualpipe-v", 8, { 0, 7, 11, 24 }, 2.0 },
    };
    ls_model *m = model_of(&gpt2_124m, ~(uint64_t)0, 1);
    assert_int_equal(m->units.n, 26);
    for (size_t i = 0; i < COUNT(row); i++) {
        const ls_pipe_config c = { .schedule = row[i].schedule, .micro_batches = row[i].m };
        const int stages = row[i].halves[2] ? 4 : 2;
        const ls_plan p = { .size = { [LS_AXIS_PP] = 2, [LS_AXIS_DP] = 1, [LS_AXIS_EP] = 1, [LS_AXIS_CP] = 1,
                                      [LS_AXIS_TP] = 1 },
                            .schedule = c.schedule, .micro_batch = 1, .micro_batches = c.micro_batches, .tokens = 64 };
        int all[STAGES + 1] = { 0 }, chosen[STAGES + 1] = { 0 }, got[STAGES] = { 0 };
        double step;
        costs u;
        ls_world *w;
        ls_arena *arena;
        ls_parallel here;
        assert_done(ls_world_dry(0, 2, NULL, NULL, &w));
        assert_done(ls_arena_create_dry(NULL, &arena));
        assert_done(ls_parallelize(w, &p, &gpt2_124m, &(ls_parallel_opts){ .own = arena }, &here));
        bounds_of(&here, stages, got);
        costs_of(m, &c, &u);
        all[stages] = chosen[stages] = u.u.n;
        for (int s = 1; s < stages; s++) chosen[s] = 1 + got[s];
        assert_done(ls_pipe_step_of(&c, 2, &u.u, chosen, &step));
        const double halves = best_of(&c, &u.u, all, stages, 1, 1), layers = best_of(&c, &u.u, all, stages, 1, 2);
        const bool cuts = got[1] % 2 || got[2] % 2 || got[3] % 2;
        if (fabs(100.0 * (1.0 - halves / layers) - row[i].gain) > 0.05)
            fail_msg("%s, %d micro-batches: halves take %.3f %% less, expected %.1f", c.schedule, row[i].m,
                     100.0 * (1.0 - halves / layers), row[i].gain);
        if (cuts != (halves < layers * 0.985) || step > (cuts ? halves : layers) * 1.0001)
            fail_msg("%s, %d micro-batches: %g with bounds after %d, %d, %d halves of layers; best of layers %g, of halves %g",
                     c.schedule, row[i].m, step, got[1], got[2], got[3], layers, halves);
        for (int s = 1; s < stages; s++)
            if (got[s] != row[i].halves[s])
                fail_msg("%s, %d micro-batches: bound %d after %d halves, expected %d", c.schedule, row[i].m, s, got[s], row[i].halves[s]);
        free(u.each);
        ls_parallel_destroy(&here);
        ls_arena_destroy(arena);
        ls_world_leave(w);
    }
    ls_model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_have_the_parameters_of_their_layer),
        cmocka_unit_test(a_halved_layer_is_balanced),
        cmocka_unit_test(a_split_names_halves),
        cmocka_unit_test(bounds_are_the_same_in_every_model),
        cmocka_unit_test(automatic_cuts_take_halves_where_a_step_is_shorter),
    };
    return cmocka_run_group_tests_name("pipe_halves", tests, NULL, NULL);
}
