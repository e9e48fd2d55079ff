/* The prover of pipeline schedules: every schedule of every small shape is proved, and no broken one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/env.h"
#include "parallel/pipe_list.h"

static ls_pipe_program program_of(const ls_pipe_schedule *s, int p, int v, int m)
{
    const ls_pipe_shape shape = { p, v, m };
    ls_pipe_program g = { 0 };
    if (ls_pipe_program_create(s, &shape, &g) < 0 || ls_pipe_program_make(&g, m) < 0)
        fail_msg("%s, %d ranks, %d chunks, %d micro-batches: %s", s->name, p, v, m, ls_last_error());
    return g;
}

/* --- all small shapes ---------------------------------------------------------------------------- */

static void every_schedule_of_every_small_shape_is_proved(void **state)
{
    (void)state;
    int proved = 0, most_buffers = 0;
    const uint64_t start = ls_env_get()->mono_ns();
    for (int k = 0; ls_pipe_schedules[k]; k++) {
        const ls_pipe_schedule *s = ls_pipe_schedules[k];
        for (int p = 1; p <= 8; p++)
            for (int v = p > 1 ? s->least_chunks : 1; v <= 4 && v <= s->most_chunks; v++)
                for (int m = 1; m <= 16; m++, proved++) {
                    ls_pipe_program g = program_of(s, p, v, m);
                    if (g.buffers > most_buffers) most_buffers = g.buffers;
                    ls_pipe_program_free(&g);
                }
    }
    print_message("proved %d programs in %.2f s; at most %d messages stored per edge\n", proved,
                  1e-9 * (double)(ls_env_get()->mono_ns() - start), most_buffers);
    assert_int_equal(proved, 16 * ((8 + 8 + (4 + 7 * 3)) + (8 + 8 + (2 + 7) + (2 + 7))));
}

/* What the papers promise of memory: micro-batches alive, in units of a rank's layers (chunks are 1 / v of them). */
static void as_many_micro_batches_are_alive_as_the_papers_say(void **state)
{
    (void)state;
    for (int p = 2; p <= 8; p++)
        for (int m = 1; m <= 24; m++)
            for (int k = 0; ls_pipe_schedules[k]; k++) {
                const ls_pipe_schedule *s = ls_pipe_schedules[k];
                const char *name = s->name;
                ls_pipe_program g = program_of(s, p, 0, m);
                for (int r = 0; r < p; r++) {
                    int want = -1;
                    if (strcmp(name, "gpipe") == 0) want = m;
                    if (strcmp(name, "1f1b") == 0) want = m < p - r ? m : p - r;
                    if (strcmp(name, "zb-h1") == 0) want = m < p ? m : p;
                    if (strcmp(name, "zb-h2") == 0) want = m < 2 * p - 1 ? m : 2 * p - 1;
                    if (strcmp(name, "zb-v") == 0 && m >= 2 * p - 1) want = 2 * p;
                    if (strcmp(name, "dualpipe-v") == 0 && m >= 2 * p) want = 2 * p + 1;
                    if (want >= 0 && g.slots[r] != want)
                        fail_msg("%s, %d ranks, %d micro-batches: %d alive on rank %d, expected %d", name, p, m, g.slots[r], r, want);
                }
                ls_pipe_program_free(&g);
            }
}

/* --- broken programs ----------------------------------------------------------------------------- */

#define MOST_STAGES  12
#define MOST_MICRO   8

/* A step by its definition, written without the prover's counters: which action of which micro-batch has been done. */
typedef struct seen {
    bool done[4][MOST_STAGES][MOST_MICRO]; /* by ls_pipe_what; a whole backward is both halves */
} seen;

static bool has(const seen *s, ls_pipe_what what, int stage, int micro) { return s->done[what][stage][micro]; }

/* All earlier micro-batches of the stage have done the same, and this one has not. */
static bool in_turn(const seen *s, ls_pipe_what what, int stage, int micro)
{
    for (int i = 0; i < micro; i++)
        if (!has(s, what, stage, i)) return false;
    return !has(s, what, stage, micro);
}

static bool can(const seen *s, const ls_pipe_action *a, int stage, int stages)
{
    const int micro = a->micro_batch;
    const bool input = a->what == LS_PIPE_BACKWARD || a->what == LS_PIPE_BACKWARD_INPUT;
    const bool weight = a->what == LS_PIPE_BACKWARD || a->what == LS_PIPE_BACKWARD_WEIGHT;
    if (a->what == LS_PIPE_FORWARD)
        return in_turn(s, LS_PIPE_FORWARD, stage, micro) && (stage == 0 || has(s, LS_PIPE_FORWARD, stage - 1, micro));
    if (input && !(in_turn(s, LS_PIPE_BACKWARD_INPUT, stage, micro) && has(s, LS_PIPE_FORWARD, stage, micro) &&
                   (stage == stages - 1 || has(s, LS_PIPE_BACKWARD_INPUT, stage + 1, micro))))
        return false;
    return !weight || (in_turn(s, LS_PIPE_BACKWARD_WEIGHT, stage, micro) &&
                       (input || has(s, LS_PIPE_BACKWARD_INPUT, stage, micro)));
}

/* Whether the lists are a step, where no message needs space. */
static bool is_step(const ls_pipe_program *g)
{
    const int p = g->shape.ranks, stages = p * g->shape.chunks;
    int at[MOST_STAGES] = { 0 };
    seen s = { 0 };
    for (bool any = true; any;) {
        any = false;
        for (int r = 0; r < p; r++) {
            if (at[r] == g->list[r].n) continue;
            const ls_pipe_action *a = &g->list[r].action[at[r]];
            const int stage = ls_pipe_place_stage(g->placement, p, r, a->chunk);
            if (!can(&s, a, stage, stages)) continue;
            s.done[a->what][stage][a->micro_batch] = true;
            if (a->what == LS_PIPE_BACKWARD) s.done[LS_PIPE_BACKWARD_INPUT][stage][a->micro_batch] = true;
            if (a->what == LS_PIPE_BACKWARD) s.done[LS_PIPE_BACKWARD_WEIGHT][stage][a->micro_batch] = true;
            at[r]++;
            any = true;
        }
    }
    for (int r = 0; r < p; r++)
        if (at[r] < g->list[r].n) return false;
    for (int stage = 0; stage < stages; stage++)
        for (int i = 0; i < g->shape.micro_batches; i++)
            if (!has(&s, LS_PIPE_FORWARD, stage, i) || !has(&s, LS_PIPE_BACKWARD_WEIGHT, stage, i)) return false;
    return true;
}

typedef enum { DROP, TWICE, SWAP, MUTATIONS } mutation;

/* A copy of the program whose list of `rank` has one action broken at i. */
static ls_pipe_program broken(const ls_pipe_program *from, int rank, int i, mutation how)
{
    ls_pipe_program g = { 0 };
    assert_int_equal(ls_pipe_program_create_empty(from->placement, &from->shape, from->list[rank].room + 1, &g), LS_OK);
    for (int r = 0; r < from->shape.ranks; r++) {
        g.list[r].n = from->list[r].n;
        memcpy(g.list[r].action, from->list[r].action, (size_t)g.list[r].n * sizeof *g.list[r].action);
    }
    ls_pipe_list *l = &g.list[rank];
    if (how == DROP) memmove(l->action + i, l->action + i + 1, (size_t)(--l->n - i) * sizeof *l->action);
    if (how == TWICE) memmove(l->action + i + 1, l->action + i, (size_t)(l->n++ - i) * sizeof *l->action);
    if (how == SWAP) {
        const ls_pipe_action first = l->action[i];
        l->action[i] = l->action[i + 1];
        l->action[i + 1] = first;
    }
    return g;
}

static void break_everywhere(const ls_pipe_program *whole, int *refused, int *legal)
{
    for (int rank = 0; rank < whole->shape.ranks; rank++)
        for (int i = 0; i < whole->list[rank].n; i++)
            for (int how = DROP; how < MUTATIONS; how++) {
                if (how == SWAP && i + 1 == whole->list[rank].n) continue;
                ls_pipe_program g = broken(whole, rank, i, (mutation)how);
                const bool passes = ls_pipe_prove(&g, 0, 0) == LS_OK;
                if (passes != is_step(&g) || (passes && how != SWAP))
                    fail_msg("%s, %d ranks, %d micro-batches, mutation %d of rank %d's action %d: %s", whole->schedule->name,
                             whole->shape.ranks, whole->shape.micro_batches, how, rank, i, passes ? "passes" : ls_last_error());
                if (!passes) assert_non_null(strstr(ls_last_error(), "pipeline schedule: "));
                *(passes ? legal : refused) += 1;
                ls_pipe_program_free(&g);
            }
}

static void every_action_that_is_dropped_doubled_or_misplaced_is_found(void **state)
{
    (void)state;
    int refused = 0, legal = 0;
    for (int k = 0; ls_pipe_schedules[k]; k++)
        for (int p = 1; p <= 4; p++)
            for (int m = 1; m <= 5; m++) {
                ls_pipe_program g = program_of(ls_pipe_schedules[k], p, 0, m);
                assert_true(is_step(&g));
                break_everywhere(&g, &refused, &legal);
                ls_pipe_program_free(&g);
            }
    print_message("%d mutations refused; %d swaps are another legal order\n", refused, legal);
    assert_true(refused > 3 * legal && legal > 0);
}

/* --- space for messages -------------------------------------------------------------------------- */

/* All micro-batches through a chunk before the next, on 2 ranks with 2 chunks each. While rank 0 sends its m
 * activations of stage 0, it takes none of stage 1's: of k buffers per edge, k on either edge and the micro-batch that
 * rank 1 computes hold 2 k + 1 of them. */
static void a_program_says_how_many_messages_an_edge_stores(void **state)
{
    (void)state;
    for (int m = 2; m <= 12; m++) {
        const ls_pipe_shape shape = { 2, 2, m };
        const int needed = m / 2;
        ls_pipe_program g;
        assert_int_equal(ls_pipe_program_create_empty(LS_PIPE_LOOP, &shape, 4 * m, &g), LS_OK);
        for (int r = 0; r < 2; r++)
            for (int c = 0; c < 4; c++)
                for (int i = 0; i < m; i++)
                    ls_pipe_put(&g.list[r], c < 2 ? LS_PIPE_FORWARD : LS_PIPE_BACKWARD, c < 2 ? c : 3 - c, i);
        assert_int_equal(ls_pipe_prove(&g, 0, 0), LS_OK);
        assert_int_equal(g.buffers, needed);
        assert_int_equal(ls_pipe_prove(&g, 0, needed), LS_OK);
        if (needed > 1) {
            char says[160];
            snprintf(says, sizeof says,
                     "deadlock, with %d messages stored per edge: rank 0, action %d (0F%d), has no space to send to stage 1 on rank 1;",
                     needed - 1, 2 * needed - 1, 2 * needed - 1);
            assert_int_equal(ls_pipe_prove(&g, 0, needed - 1), LS_INTERNAL);
            if (!strstr(ls_last_error(), says)) fail_msg("'%s' is not in '%s'", says, ls_last_error());
        }
        ls_pipe_program_free(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_of_every_small_shape_is_proved),
        cmocka_unit_test(as_many_micro_batches_are_alive_as_the_papers_say),
        cmocka_unit_test(every_action_that_is_dropped_doubled_or_misplaced_is_found),
        cmocka_unit_test(a_program_says_how_many_messages_an_edge_stores),
    };
    return cmocka_run_group_tests_name("pipe_prove", tests, NULL, NULL);
}
