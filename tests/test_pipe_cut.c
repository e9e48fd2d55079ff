/* pipe_cut: the cut whose replayed step is shortest, against all cuts of small models, each simulated here from the
 * lists alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "lockstep/lockstep.h"
#include "parallel/pipe_cut.h"
#include "tensor/tape.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
enum { UNITS = 14, STAGES = 8, RANKS = 8 };

static void assert_done(ls_status st)
{
    if (st != LS_OK) fail_msg("%s", ls_last_error());
}

/* --- a step, from its lists -------------------------------------------------------------------------- */

/* When an action of the lists ends: after the one before it on its rank, and after what it needs. -1: not known yet. */
typedef struct steps {
    const ls_pipe_program *g;
    double cost[3][STAGES]; /* forward, input, weight */
    double end[RANKS][256];
} steps;

static double cost_of(const steps *s, const ls_pipe_action *a)
{
    if (a->what == LS_PIPE_FORWARD) return s->cost[0][a->stage];
    return (a->what != LS_PIPE_BACKWARD_WEIGHT ? s->cost[1][a->stage] : 0.0) +
           (a->what != LS_PIPE_BACKWARD_INPUT ? s->cost[2][a->stage] : 0.0);
}

/* The end of the action that gives `a` what it needs. */
static double arrival(const steps *s, const ls_pipe_action *a)
{
    const int p = s->g->shape.ranks, stages = p * s->g->shape.chunks;
    const bool forward = a->what == LS_PIPE_FORWARD;
    const int from = forward ? a->stage - 1 : a->stage + 1;
    if (a->what == LS_PIPE_BACKWARD_WEIGHT || from < 0 || from == stages) return 0.0;
    const int r = ls_pipe_place_rank(s->g->placement, p, from);
    for (int i = 0; i < s->g->list[r].n; i++) {
        const ls_pipe_action *b = &s->g->list[r].action[i];
        if (b->stage != from || b->micro_batch != a->micro_batch || b->what == LS_PIPE_BACKWARD_WEIGHT) continue;
        if ((b->what == LS_PIPE_FORWARD) == forward) return s->end[r][i];
    }
    return -1.0;
}

static double longest(steps *s)
{
    double last = 0.0;
    for (int r = 0; r < s->g->shape.ranks; r++)
        for (int i = 0; i < s->g->list[r].n; i++) s->end[r][i] = -1.0;
    for (bool more = true; more;) {
        more = false;
        for (int r = 0; r < s->g->shape.ranks; r++)
            for (int i = 0; i < s->g->list[r].n; i++) {
                const ls_pipe_action *a = &s->g->list[r].action[i];
                const double before = i ? s->end[r][i - 1] : 0.0, needs = arrival(s, a);
                if (s->end[r][i] >= 0.0 || before < 0.0 || needs < 0.0) continue;
                s->end[r][i] = fmax(before, needs) + cost_of(s, a);
                last = fmax(last, s->end[r][i]);
                more = true;
            }
    }
    return last;
}

static double total(const double *each, int first, int end)
{
    double sum = 0.0;
    for (int i = first; i < end; i++) sum += each[i];
    return sum;
}

static double step_of(const ls_pipe_program *g, const ls_pipe_units *u, const int *first)
{
    static steps s;
    double update[RANKS] = { 0 }, most = 0.0;
    s.g = g;
    for (int i = 0; i < g->shape.ranks * g->shape.chunks; i++) {
        s.cost[0][i] = total(u->forward, first[i], first[i + 1]);
        s.cost[1][i] = total(u->input, first[i], first[i + 1]);
        s.cost[2][i] = total(u->weight, first[i], first[i + 1]);
        update[ls_pipe_place_rank(g->placement, g->shape.ranks, i)] += total(u->update, first[i], first[i + 1]);
    }
    for (int r = 0; r < g->shape.ranks; r++) {
        bool ends = false;
        for (int i = 0; i < g->shape.ranks * g->shape.chunks; i += g->shape.ranks * g->shape.chunks - 1)
            ends |= ls_pipe_place_rank(g->placement, g->shape.ranks, i) == r;
        most = fmax(most, update[r] + (ends ? u->root : 0.0));
    }
    return longest(&s) + most;
}

/* The best of all cuts, of which stages [from, S) are still to be chosen. */
static double best_of(const ls_pipe_program *g, const ls_pipe_units *u, int *first, int from)
{
    const int stages = g->shape.ranks * g->shape.chunks;
    double best = INFINITY;
    if (from == stages) return step_of(g, u, first);
    for (int at = first[from - 1] + 1; at <= u->n - (stages - from); at++) {
        first[from] = at;
        best = fmin(best, best_of(g, u, first, from + 1));
    }
    return best;
}

/* --- models ------------------------------------------------------------------------------------------ */

typedef struct costs {
    double forward[UNITS], input[UNITS], weight[UNITS], update[UNITS];
    ls_pipe_units u;
} costs;

/* GPT-2 124M: an embedding, 12 layers of 1, a head of `head` layers, which computes its logits in backward. */
static void gpt2(costs *c, double head, double update)
{
    c->u = (ls_pipe_units){ UNITS, c->forward, c->input, c->weight, c->update, 0.0 };
    for (int i = 0; i < UNITS; i++) c->forward[i] = c->input[i] = c->weight[i] = 1.0, c->update[i] = update;
    c->forward[0] = c->input[0] = c->weight[0] = 0.01;
    c->forward[UNITS - 1] = 0.01;
    c->input[UNITS - 1] = 2.0 * head;
    c->weight[UNITS - 1] = head;
    c->update[0] = c->update[UNITS - 1] = 0.0;
    c->u.root = head * update;
}

static double random01(uint64_t *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return (double)(*x >> 40) / (double)(1 << 24);
}

static void any(costs *c, uint64_t *x)
{
    gpt2(c, 8.0 * random01(x), random01(x));
    for (int i = 0; i < UNITS; i++) {
        c->forward[i] *= 0.5 + random01(x);
        c->input[i] *= 0.5 + random01(x);
        c->weight[i] *= 0.5 + random01(x);
    }
}

/* Stages of as many units each as possible. */
static void even(int stages, int *first)
{
    for (int s = 0; s <= stages; s++) first[s] = s * UNITS / stages;
}

static void make(const char *name, int ranks, int m, ls_pipe_program *g, ls_pipe_config *c)
{
    const ls_pipe_schedule *s;
    *c = (ls_pipe_config){ .schedule = name, .micro_batches = m };
    assert_done(ls_pipe_schedule_find(name, &s));
    assert_done(ls_pipe_program_create(s, &(ls_pipe_shape){ ranks, 0, m }, g));
    assert_done(ls_pipe_program_make(g, m));
}

/* --- tests --------------------------------------------------------------------------------------------- */

static void a_step_is_what_its_lists_say(void **state)
{
    (void)state;
    uint64_t x = 1;
    for (int k = 0; ls_pipe_schedules[k]; k++)
        for (int ranks = 2; ranks <= 4; ranks++) {
            ls_pipe_program g;
            ls_pipe_config c;
            costs u;
            int first[STAGES + 1];
            double step;
            make(ls_pipe_schedules[k]->name, ranks, 6, &g, &c);
            any(&u, &x);
            even(ranks * g.shape.chunks, first);
            assert_done(ls_pipe_step_of(&c, ranks, &u.u, first, &step));
            assert_true(fabs(step - step_of(&g, &u.u, first)) < 1e-9 * step);
            ls_pipe_program_free(&g);
        }
}

static void finds_the_best_cut(void **state)
{
    (void)state;
    uint64_t x = 7;
    int tried = 0;
    for (int k = 0; ls_pipe_schedules[k]; k++)
        for (int ranks = 2; ranks <= 4; ranks++)
            for (int m = 1; m <= 8; m += 3)
                for (int round = 0; round < 4; round++) {
                    ls_pipe_program g;
                    ls_pipe_config c;
                    costs u;
                    int first[STAGES + 1] = { 0 }, all[STAGES + 1] = { 0 };
                    double step, before;
                    make(ls_pipe_schedules[k]->name, ranks, m, &g, &c);
                    const int stages = ranks * g.shape.chunks;
                    if (stages <= 4) {
                        if (round) any(&u, &x);
                        else gpt2(&u, 5.45, 0.0);
                        even(stages, first);
                        all[stages] = UNITS;
                        assert_done(ls_pipe_step_of(&c, ranks, &u.u, first, &before));
                        assert_done(ls_pipe_cut(&c, ranks, &u.u, NULL, 0.0, first, &step));
                        assert_true(step <= before);
                        assert_true(fabs(step - step_of(&g, &u.u, first)) < 1e-9 * step);
                        const double least = best_of(&g, &u.u, all, 1);
                        if (step > least * (1.0 + 1e-9))
                            fail_msg("%s, %d ranks, %d micro-batches: %g, and the best is %g", c.schedule, ranks, m, step, least);
                        tried++;
                    }
                    ls_pipe_program_free(&g);
                }
    assert_true(tried > 100);
}

/* By hand: 1F1B with two ranks and four micro-batches, a head of 5.45 layers. With 8 layers the first stage has a
 * forward of 8 and a backward of 16, the last one a forward of 4 and a backward of 24.35, and it never waits after its
 * first forward: 8 + 4 * 28.35 + 16 = 137.4. With 9 it has 3 and 22.35; the first stage ends its fourth forward at
 * 88.35, for which the last one waits, and the step ends at 88.35 + 25.35 + 18 = 131.7. With 10 the first stage alone
 * is busy from the first backward on: 10 + 2 + 20.35 + 4 * 20 + 2 * 10 = 132.35. */
static void takes_a_layer_from_the_last_stage_of_1f1b(void **state)
{
    (void)state;
    costs u;
    int first[3] = { 0, 9, UNITS };
    double step;
    const ls_pipe_config c = { .schedule = "1f1b", .micro_batches = 4 };
    gpt2(&u, 5.45, 0.0);
    u.forward[0] = u.input[0] = u.weight[0] = u.forward[UNITS - 1] = 0.0;
    assert_done(ls_pipe_step_of(&c, 2, &u.u, first, &step));
    assert_true(fabs(step - 137.4) < 1e-9);
    assert_done(ls_pipe_cut(&c, 2, &u.u, NULL, 0.0, first, &step));
    assert_int_equal(first[1], 10); /* the embedding and 9 layers */
    assert_true(fabs(step - 131.7) < 1e-9);
    for (int k = 0; k < 2; k++) { /* it is 4.15 % shorter than with 8 layers */
        first[1] = 9;
        assert_done(ls_pipe_cut(&c, 2, &u.u, NULL, k ? 0.042 : 0.041, first, &step));
        assert_int_equal(first[1], k ? 9 : 10);
        assert_true(fabs(step - (k ? 137.4 : 131.7)) < 1e-9);
    }
}

static void a_cut_that_is_no_better_is_not_taken(void **state)
{
    (void)state;
    costs u;
    double step, again;
    const ls_pipe_config c = { .schedule = "1f1b", .micro_batches = 1 };
    gpt2(&u, 1.0, 0.0); /* one micro-batch: every cut takes as long */
    for (int at = 1; at < UNITS; at++) {
        int first[3] = { 0, at, UNITS };
        assert_done(ls_pipe_step_of(&c, 2, &u.u, first, &step));
        assert_done(ls_pipe_cut(&c, 2, &u.u, NULL, 0.0, first, &again));
        assert_int_equal(first[1], at);
        assert_true(step >= again && step < again * (1.0 + 1e-9));
    }
}

/* So many micro-batches that not all 286 cuts are replayed: none is better by more than 1 %. */
static void moves_bounds_where_there_is_too_much_to_replay(void **state)
{
    (void)state;
    static const char *const names[] = { "1f1b", "zb-h1" };
    const int m = 4000;
    for (size_t k = 0; k < COUNT(names); k++) {
        const ls_pipe_config c = { .schedule = names[k], .micro_batches = m };
        costs u;
        int first[5], at[5] = { 0, 1, 2, 3, UNITS };
        double step, before, best = INFINITY, one;
        gpt2(&u, 5.45, 0.1);
        even(4, first);
        assert_done(ls_pipe_step_of(&c, 4, &u.u, first, &before));
        assert_done(ls_pipe_cut(&c, 4, &u.u, NULL, 0.0, first, &step));
        for (at[1] = 1; at[1] <= UNITS - 3; at[1]++)
            for (at[2] = at[1] + 1; at[2] <= UNITS - 2; at[2]++)
                for (at[3] = at[2] + 1; at[3] <= UNITS - 1; at[3]++) {
                    assert_done(ls_pipe_step_of(&c, 4, &u.u, at, &one));
                    best = fmin(best, one);
                }
        assert_done(ls_pipe_step_of(&c, 4, &u.u, first, &one));
        assert_true(one >= step * (1.0 - 1e-9) && one <= step * (1.0 + 1e-9) && step < 0.9 * before);
        if (step > 1.01 * best) fail_msg("%s: %g, and the best is %g", names[k], step, best);
    }
}

/* --- a limit of memory --------------------------------------------------------------------------------- */

/* A rank needs the sum of its stages' units. */
typedef struct needs {
    const ls_pipe_program *g;
    size_t of[UNITS];
    int asked;
} needs;

static ls_status need_of(void *arg, const int *first, size_t *bytes)
{
    needs *n = arg;
    size_t rank[RANKS] = { 0 };
    *bytes = 0;
    n->asked++;
    for (int i = 0; i < n->g->shape.ranks * n->g->shape.chunks; i++)
        for (int u = first[i]; u < first[i + 1]; u++)
            rank[ls_pipe_place_rank(n->g->placement, n->g->shape.ranks, i)] += n->of[u];
    for (int r = 0; r < n->g->shape.ranks; r++) *bytes = rank[r] > *bytes ? rank[r] : *bytes;
    return LS_OK;
}

/* Of all cuts the one with least above the limit, and of those the fastest. */
static void best_within(needs *n, const ls_pipe_units *u, size_t limit, int *first, int from, size_t *above,
                        double *step)
{
    const int stages = n->g->shape.ranks * n->g->shape.chunks;
    if (from == stages) {
        size_t bytes;
        assert_done(need_of(n, first, &bytes));
        const size_t over = bytes > limit ? bytes - limit : 0;
        const double takes = step_of(n->g, u, first);
        if (over < *above || (over == *above && takes < *step)) *above = over, *step = takes;
        return;
    }
    for (int at = first[from - 1] + 1; at <= u->n - (stages - from); at++) {
        first[from] = at;
        best_within(n, u, limit, first, from + 1, above, step);
    }
}

static void takes_the_fastest_cut_that_fits(void **state)
{
    (void)state;
    uint64_t x = 3;
    int tried = 0, slower = 0, none = 0;
    for (int k = 0; ls_pipe_schedules[k]; k++)
        for (int ranks = 2; ranks <= 4; ranks++)
            for (size_t limit = 300; limit <= 1300; limit += 100) {
                ls_pipe_program g;
                ls_pipe_config c;
                costs u;
                needs n = { .g = &g };
                int first[STAGES + 1] = { 0 }, all[STAGES + 1] = { 0 };
                const ls_pipe_memory memory = { limit, need_of, &n };
                make(ls_pipe_schedules[k]->name, ranks, 5, &g, &c);
                const int stages = ranks * g.shape.chunks;
                all[stages] = UNITS;
                any(&u, &x);
                for (int i = 0; i < UNITS; i++) n.of[i] = 50 + (size_t)(100 * random01(&x));
                even(stages, first);
                if (stages <= 4) {
                    double step, best = INFINITY, free_step = best_of(&g, &u.u, all, 1);
                    size_t bytes, above = SIZE_MAX;
                    assert_done(ls_pipe_cut(&c, ranks, &u.u, &memory, 0.0, first, &step));
                    assert_true(fabs(step - step_of(&g, &u.u, first)) < 1e-9 * step);
                    assert_done(need_of(&n, first, &bytes));
                    best_within(&n, &u.u, limit, all, 1, &above, &best);
                    if ((bytes > limit ? bytes - limit : 0) != above || fabs(step - best) > 1e-9 * best)
                        fail_msg("%s, %d ranks, limit %zu: needs %zu and takes %g; the best is %zu above and takes %g",
                                 c.schedule, ranks, limit, bytes, step, above, best);
                    tried++;
                    slower += above == 0 && best > free_step * (1.0 + 1e-9);
                    none += above > 0;
                }
                ls_pipe_program_free(&g);
            }
    assert_true(tried > 60 && slower > 10 && none > 10);
}

/* `least` is about cuts that fit alike: one that does not fit is left for any that does, and one that fits is not left
 * for a step that is hardly shorter. What a slower cut needs is not asked once one fits. */
static void a_cut_that_does_not_fit_is_left_for_a_slower_one(void **state)
{
    (void)state;
    costs u;
    ls_pipe_program g;
    ls_pipe_config c;
    double step;
    make("1f1b", 2, 4, &g, &c);
    gpt2(&u, 5.45, 0.0);
    u.forward[0] = u.input[0] = u.weight[0] = u.forward[UNITS - 1] = 0.0;
    needs n = { .g = &g };
    for (int i = 0; i < UNITS; i++) n.of[i] = 10;
    const struct { size_t limit; int from, want; } row[] = {
        { 200, 9, 10 }, /* all cuts fit: as without a limit */
        { 90, 10, 9 },  /* 10 units are too many, and 9 are the next fastest */
        { 90, 9, 9 },
        { 70, 10, 7 },  /* only equal halves fit */
        { 60, 10, 7 },  /* none fits: the one that needs least */
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        const ls_pipe_memory memory = { row[i].limit, need_of, &n };
        int first[3] = { 0, row[i].from, UNITS };
        assert_done(ls_pipe_cut(&c, 2, &u.u, &memory, 0.0, first, &step));
        if (first[1] != row[i].want) fail_msg("row %zu: %d units in the first stage, expected %d", i, first[1], row[i].want);
    }
    for (int k = 0; k < 2; k++) { /* 4.15 % shorter with 10 units than with 9: worth it, unless 5 % are asked for */
        const ls_pipe_memory memory = { 100, need_of, &n };
        int first[3] = { 0, 9, UNITS };
        assert_done(ls_pipe_cut(&c, 2, &u.u, &memory, k ? 0.05 : 0.04, first, &step));
        assert_int_equal(first[1], k ? 9 : 10);
    }
    const ls_pipe_memory memory = { 200, need_of, &n };
    int first[3] = { 0, 10, UNITS };
    n.asked = 0;
    assert_done(ls_pipe_cut(&c, 2, &u.u, &memory, 0.0, first, &step));
    assert_int_equal(n.asked, 1);
    ls_pipe_program_free(&g);
}

static void the_loss_waits_in_gpipe_alone(void **state)
{
    (void)state;
    for (int k = 0; ls_pipe_schedules[k]; k++) {
        const ls_pipe_config c = { .schedule = ls_pipe_schedules[k]->name, .micro_batches = 8 };
        bool waits;
        assert_done(ls_pipe_loss_waits(&c, 2, &waits));
        assert_int_equal(waits, strcmp(c.schedule, "gpipe") == 0);
    }
}

/* --- costs of a model's units ------------------------------------------------------------------------ */

/* The products of GPT-2: 24 N C^2 per layer and half, beside attention and what moves bytes: norms, gelu, sums. The
 * head is 2 N V C per product, and its logits are computed in backward. */
static void costs_are_those_of_the_products(void **state)
{
    (void)state;
    const ls_model_config mc = { .name = "gpt2", .lm = { .vocab_size = 50257, .seq_len = 64, .n_layer = 2, .n_head = 4,
                                                          .d_model = 256, .tied = true } };
    const double N = 2 * 64, C = 256, V = 50257, layer = 24 * N * C * C, head = 2 * N * V * C;
    ls_model *m;
    ls_unit_cost cost[4];
    assert_done(ls_model_create(&mc, &m));
    assert_int_equal(m->units.n, 4);
    for (int way = 0; way < 3; way++) { /* backward in one piece, in halves, and logits in forward */
        const ls_unit_costs_of of = { .batch = 2, .halves = way == 1, .logits_in_forward = way == 2 };
        assert_done(ls_model_unit_costs(m, &of, cost));
        for (int i = 1; i <= 2; i++) {
            assert_true(cost[i].forward > layer && cost[i].forward < 1.3 * layer);
            assert_true(cost[i].input > layer && cost[i].input < 1.5 * layer);
            assert_true(cost[i].weight >= layer && cost[i].weight < 1.1 * layer);
            assert_true(cost[i].elements == 12 * C * C + 13 * C);
        }
        const ls_unit_cost *h = &cost[3];
        const double products[] = { h->forward / head, h->input / head, h->weight / head };
        static const double want[][3] = { { 0, 3, 0 }, { 0, 2, 1 }, { 1, 2, 0 } };
        for (int k = 0; k < 3; k++) assert_true(products[k] > want[way][k] - 1e-9 && products[k] < want[way][k] + 0.1);
        assert_true(h->elements == 2 * C && cost[0].elements == 64 * C); /* the tied matrix is the root's */
        assert_true(cost[0].forward + cost[0].input + cost[0].weight < 0.5 * layer);
    }
    ls_model_destroy(m);
}

/* --- what a run does ------------------------------------------------------------------------------------ */

/* GPT-2 124M on two ranks, 4 micro-batches of 64 tokens: both ranks find the same stages. Those of 1F1B have 9 and 3
 * layers; those of gpipe and zb-h1 8.5 and 3.5, so one layer is two units. */
static void every_rank_of_a_plan_finds_the_same_stages(void **state)
{
    (void)state;
    static const double split[] = { 7, 5 }, halves[] = { 7.5, 4.5 };
    static const struct { const char *schedule; const double *split; int first, units; } plans[] = {
        { "1f1b", NULL, 10, 14 }, { "zb-h2", NULL, 10, 14 }, { "gpipe", NULL, 10, 15 }, { "zb-h1", NULL, 10, 15 },
        { "1f1b", split, 8, 14 }, { "1f1b", halves, 9, 15 },
    };
    const ls_model_config mc = { .name = "gpt2", .lm = { .vocab_size = 50257, .seq_len = 1024, .n_layer = 12,
                                                          .n_head = 12, .d_model = 768, .tied = true } };
    for (size_t k = 0; k < COUNT(plans); k++)
        for (int rank = 0; rank < 2; rank++) {
            const ls_plan p = { .size = { [LS_AXIS_PP] = 2, [LS_AXIS_DP] = 1, [LS_AXIS_EP] = 1, [LS_AXIS_CP] = 1,
                                          [LS_AXIS_TP] = 1 },
                                .schedule = plans[k].schedule, .split = plans[k].split,
                                .nsplit = plans[k].split ? 2 : 0, .micro_batch = 1, .micro_batches = 4, .tokens = 64 };
            ls_world *w;
            ls_arena *arena;
            ls_parallel here;
            assert_done(ls_world_dry(rank, 2, NULL, NULL, &w));
            assert_done(ls_arena_create_dry(NULL, &arena));
            assert_done(ls_parallelize(w, &p, &mc, &(ls_parallel_opts){ .own = arena }, &here));
            assert_int_equal(here.first_unit[0], 0);
            assert_int_equal(here.first_unit[1], plans[k].first);
            assert_int_equal(here.first_unit[2], plans[k].units);
            /* The tied matrix counts once: on the rank of the last stage. */
            assert_int_equal(here.model->params.item[0].keeps.count, rank == 1 ? 50257 * 768 : 0);
            ls_parallel_destroy(&here);
            ls_arena_destroy(arena);
            ls_world_leave(w);
        }
}

/* Where parts differ from rank to rank: of a sequence that is cut in turn, and of a vocabulary. */
static void ranks_with_unequal_parts_find_the_same_stages(void **state)
{
    (void)state;
    static const struct { int cp, tp; int64_t vocab, tokens; } plans[] = {
        { 2, 1, 50257, 1024 }, { 2, 1, 50257, 2048 }, { 2, 1, 50257, 4096 }, { 2, 1, 50257, 8192 }, { 1, 4, 258, 64 },
    };
    for (size_t k = 0; k < COUNT(plans); k++) {
        const int size = 2 * plans[k].cp * plans[k].tp;
        const ls_model_config mc = { .name = "gpt2",
                                     .lm = { .vocab_size = plans[k].vocab, .seq_len = 8192, .n_layer = 12, .n_head = 12,
                                             .d_model = 768, .tied = true } };
        int first = -1;
        for (int rank = 0; rank < size; rank++) {
            const ls_plan p = { .size = { [LS_AXIS_PP] = 2, [LS_AXIS_DP] = 1, [LS_AXIS_EP] = 1,
                                          [LS_AXIS_CP] = plans[k].cp, [LS_AXIS_TP] = plans[k].tp },
                                .schedule = "1f1b", .context = plans[k].cp > 1 ? "ring" : NULL,
                                .in_turn = plans[k].cp > 1, .micro_batch = 1, .micro_batches = 4,
                                .tokens = plans[k].tokens };
            ls_world *w;
            ls_arena *arena;
            ls_parallel here;
            assert_done(ls_world_dry(rank, size, NULL, NULL, &w));
            assert_done(ls_arena_create_dry(NULL, &arena));
            assert_done(ls_parallelize(w, &p, &mc, &(ls_parallel_opts){ .own = arena }, &here));
            if (rank == 0) first = here.first_unit[1];
            assert_int_equal(here.first_unit[1], first);
            ls_parallel_destroy(&here);
            ls_arena_destroy(arena);
            ls_world_leave(w);
        }
    }
}

/* Layers of the first of two stages, for a step of few tokens, in which the update counts. */
static int first_stage_of(int replicas, int zero_stage)
{
    const ls_model_config mc = { .name = "gpt2", .lm = { .vocab_size = 50257, .seq_len = 1024, .n_layer = 12,
                                                          .n_head = 12, .d_model = 768 } };
    const ls_plan p = { .size = { [LS_AXIS_PP] = 2, [LS_AXIS_DP] = replicas, [LS_AXIS_EP] = 1, [LS_AXIS_CP] = 1,
                                  [LS_AXIS_TP] = 1 },
                        .schedule = "1f1b", .ddp = { .zero_stage = zero_stage }, .hsdp = 1, .micro_batch = 1, .micro_batches = 4,
                        .tokens = 16 };
    ls_world *w;
    ls_arena *arena;
    ls_parallel here;
    assert_done(ls_world_dry(0, 2 * replicas, NULL, NULL, &w));
    assert_done(ls_arena_create_dry(NULL, &arena));
    assert_done(ls_parallelize(w, &p, &mc, &(ls_parallel_opts){ .own = arena }, &here));
    const int first = here.first_unit[1];
    ls_parallel_destroy(&here);
    ls_arena_destroy(arena);
    ls_world_leave(w);
    return first;
}

/* ZeRO divides the update among the replicas, so what a stage has to update counts less: the more replicas, the nearer
 * is the cut to that of the products alone. Without ZeRO the number of replicas changes nothing. */
static void replicas_that_shard_have_less_to_update(void **state)
{
    (void)state;
    const int alone = first_stage_of(1, 0), many = first_stage_of(16, 1);
    assert_int_equal(first_stage_of(16, 0), alone);
    assert_int_equal(first_stage_of(1, 1), alone);
    assert_int_not_equal(many, alone);
}

/* Tapes of a rank of two whose head computes its logits in forward. */
static int early_tapes(const char *schedule, int rank, int *ntapes)
{
    const ls_model_config mc = { .name = "gpt2", .lm = { .vocab_size = 100, .seq_len = 16, .n_layer = 4, .n_head = 2,
                                                          .d_model = 16 } };
    const ls_plan p = { .size = { [LS_AXIS_PP] = 2, [LS_AXIS_DP] = 1, [LS_AXIS_EP] = 1, [LS_AXIS_CP] = 1,
                                  [LS_AXIS_TP] = 1 },
                        .schedule = schedule, .micro_batch = 1, .micro_batches = 4, .tokens = 16 };
    ls_world *w;
    ls_arena *arena;
    ls_parallel here;
    int early = 0;
    assert_done(ls_world_dry(rank, 2, NULL, NULL, &w));
    assert_done(ls_arena_create_dry(NULL, &arena));
    assert_done(ls_parallelize(w, &p, &mc, &(ls_parallel_opts){ .own = arena }, &here));
    for (int i = 0; i < here.ntapes; i++) early += ls_tape_has_logits_in_forward(here.tape[i]);
    *ntapes = here.ntapes;
    ls_parallel_destroy(&here);
    ls_arena_destroy(arena);
    ls_world_leave(w);
    return early;
}

/* GPipe's last rank computes all forwards before its first backward, so the logits of each go with its forward. */
static void logits_are_computed_in_forward_where_the_loss_waits(void **state)
{
    (void)state;
    int n;
    for (int k = 0; ls_pipe_schedules[k]; k++) {
        const char *name = ls_pipe_schedules[k]->name;
        const bool waits = strcmp(name, "gpipe") == 0;
        const int last = early_tapes(name, 1, &n);
        if (waits) assert_int_equal(last, n);
        else assert_int_equal(last, 0);
        assert_int_equal(early_tapes(name, 0, &n), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_what_its_lists_say),
        cmocka_unit_test(finds_the_best_cut),
        cmocka_unit_test(takes_a_layer_from_the_last_stage_of_1f1b),
        cmocka_unit_test(a_cut_that_is_no_better_is_not_taken),
        cmocka_unit_test(moves_bounds_where_there_is_too_much_to_replay),
        cmocka_unit_test(takes_the_fastest_cut_that_fits),
        cmocka_unit_test(a_cut_that_does_not_fit_is_left_for_a_slower_one),
        cmocka_unit_test(the_loss_waits_in_gpipe_alone),
        cmocka_unit_test(costs_are_those_of_the_products),
        cmocka_unit_test(every_rank_of_a_plan_finds_the_same_stages),
        cmocka_unit_test(ranks_with_unequal_parts_find_the_same_stages),
        cmocka_unit_test(replicas_that_shard_have_less_to_update),
        cmocka_unit_test(logits_are_computed_in_forward_where_the_loss_waits),
    };
    return cmocka_run_group_tests_name("pipe_cut", tests, NULL, NULL);
}
