/* The order of a step's micro-batches: what each schedule's lists are, the proof of them, and the loop that walks
 * one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness_pipe.h"
#include "harness.h"
#include "parallel/pipe_list.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define MOST 8

/* --- lists as text: "0F0 0F1 0B0", stage, letter, micro-batch ------------------------------------ */

static const char *text_of(const ls_pipe_list *l, char *buf, size_t n)
{
    size_t at = 0;
    buf[0] = 0;
    for (int i = 0; i < l->n && at < n; i++) {
        const ls_pipe_action *a = &l->action[i];
        at += (size_t)snprintf(buf + at, n - at, "%s%d%c%d", i ? " " : "", a->stage, ls_pipe_letter(a->what), a->micro_batch);
    }
    return buf;
}

/* The reverse of it, of one rank that has stage 0 and, as chunk 1, stage `second`. */
static void set(ls_pipe_list *l, const char *text)
{
    char *end;
    l->n = 0;
    for (const char *s = text; *s; s = *end ? end + 1 : end) {
        const long stage = strtol(s, &end, 10);
        const ls_pipe_what what = (ls_pipe_what)(strchr("FBIW", *end) - "FBIW");
        ls_pipe_put(l, what, (int)stage, (int)strtol(end + 1, &end, 10));
    }
}

/* --- one list ----------------------------------------------------------------------------------------------------- */

static void one_rank_accumulates_with_every_schedule(void **state)
{
    (void)state;
    static const char *const want[MOST] = { "0F0 0B0", "0F0 0B0 0F1 0B1", "0F0 0B0 0F1 0B1 0F2 0B2" };
    char text[256];
    for (int k = 0; ls_pipe_schedules[k]; k++)
        for (int m = 1; m <= MOST; m++) {
            ls_pipe_program g = program_of(ls_pipe_schedules[k]->name, 1, 0, m);
            const ls_pipe_list *l = g.list;
            assert_int_equal(g.shape.micro_batches, m);
            assert_int_equal(l->n, 2 * m);
            assert_true(g.slots[0] == 1 && g.shape.chunks == 1);
            if (want[m - 1]) assert_string_equal(text_of(l, text, sizeof text), want[m - 1]);
            for (int i = 0; i < l->n; i++) { /* each right after its forward: one is alive */
                const ls_pipe_action *a = &l->action[i];
                assert_int_equal(a->what, i % 2 ? LS_PIPE_BACKWARD : LS_PIPE_FORWARD);
                assert_int_equal(a->micro_batch, i / 2);
                assert_true(a->chunk == 0 && a->stage == 0 && a->slot == 0);
                assert_int_equal(a->last, i / 2 == m - 1);
            }
            ls_pipe_program_free(&g);
        }
    ls_pipe_program g = program_of("interleaved", 1, 2, 2); /* chunks one after another */
    assert_string_equal(text_of(g.list, text, sizeof text), "0F0 1F0 1B0 0B0 0F1 1F1 1B1 0B1");
    ls_pipe_program_free(&g);
}

/* Lists of one rank, which the proof takes from anyone. */
static void a_proof_finds_slots_for_what_is_alive(void **state)
{
    (void)state;
    static const struct {
        int chunks, micro_batches, slots;
        const char *list, *slot;
    } row[] = {
        { 1, 3, 1, "0F0 0B0 0F1 0B1 0F2 0B2", "000000" },
        { 1, 3, 2, "0F0 0F1 0B0 0F2 0B1 0B2", "010010" },
        { 1, 3, 3, "0F0 0F1 0F2 0B0 0B1 0B2", "012012" },
        { 1, 4, 2, "0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3", "01001101" },
        { 1, 2, 2, "0F0 0I0 0F1 0W0 0I1 0W1", "001011" }, /* alive until its weights are done */
        { 1, 3, 2, "0F0 0I0 0F1 0W0 0B1 0F2 0B2", "0010111" },
        { 2, 2, 2, "0F0 1F0 1B0 0F1 0B0 1F1 1B1 0B1", "01110001" },
        { 2, 2, 4, "0F0 0F1 1F0 1F1 1B0 1B1 0B0 0B1", "01232301" },
    };
    for (size_t k = 0; k < COUNT(row); k++) {
        ls_pipe_program g;
        const ls_pipe_shape shape = { 1, row[k].chunks, row[k].micro_batches };
        assert_int_equal(ls_pipe_program_create_empty(LS_PIPE_LOOP, &shape, 16, &g), LS_OK);
        set(g.list, row[k].list);
        if (ls_pipe_prove(&g, row[k].slots, 0) < 0) fail_msg("%s: %s", row[k].list, ls_last_error());
        assert_int_equal(g.slots[0], row[k].slots);
        for (int i = 0; i < g.list->n; i++) {
            const ls_pipe_action *a = &g.list->action[i];
            if (a->slot != row[k].slot[i] - '0') fail_msg("%s: action %d is in slot %d, expected %c", row[k].list, i, a->slot, row[k].slot[i]);
            assert_int_equal(a->last, a->micro_batch == row[k].micro_batches - 1);
        }
        if (row[k].slots > 1) { /* one fewer is too few */
            assert_int_equal(ls_pipe_prove(&g, row[k].slots - 1, 0), LS_INTERNAL);
            assert_non_null(strstr(ls_last_error(), "are alive with it, and there is memory for"));
        }
        ls_pipe_program_free(&g);
    }
}

static void a_list_that_is_no_step_is_refused(void **state)
{
    (void)state;
    static const struct {
        int chunks, alive;
        const char *list, *says; /* of 2 micro-batches */
    } row[] = {
        { 1, 0, "", "rank 0 ends after 0 actions: in stage 0, 0 of 2 micro-batches have gone forward, 0 backward, and 0 have" },
        { 1, 0, "0F0 0B0", "ends after 2 actions: in stage 0, 1 of 2 micro-batches have gone forward, 1 backward, and 1 have" },
        { 1, 0, "0F0 0F1 0B0 0I1", "2 of 2 micro-batches have gone forward, 2 backward, and 1 have their gradients of weights" },
        { 1, 1, "0F0 0F1 0B0 0B1", "action 1, the forward of micro-batch 1 (0F1): 2 are alive with it, and there is memory for 1" },
        { 1, 1, "0F0 0I0 0F1 0W0 0B1", "action 2, the forward of micro-batch 1 (0F1): 2 are alive with it" },
        { 1, 0, "0F0 0F0 0B0 0B0", "action 1, the forward of micro-batch 0 (0F0): expected micro-batch 1, since each goes once" },
        { 1, 0, "0F0 0B0 0B0 0F1 0B1", "action 2, the backward of micro-batch 0 (0B0): expected micro-batch 1, since each goes once" },
        { 1, 0, "0F1 0F0 0B0 0B1", "action 0, the forward of micro-batch 1 (0F1): expected micro-batch 0" },
        { 1, 0, "0F0 0F1 0B1 0B0", "action 2, the backward of micro-batch 1 (0B1): expected micro-batch 0" },
        { 1, 0, "0B0 0F0 0F1 0B1", "action 0, the backward of micro-batch 0 (0B0): it has not gone forward there: expected 0F0 first" },
        { 1, 0, "0F0 0B0 0B1 0F1", "action 2, the backward of micro-batch 1 (0B1): it has not gone forward there: expected 0F1 first" },
        { 1, 0, "0F0 0W0 0I0 0F1 0B1", "action 1, the backward of the weights of micro-batch 0 (0W0): expected the other half first, 0I0" },
        { 1, 0, "0F0 0I0 0F1 0B1 0W0", "action 3, the backward of micro-batch 1 (0B1): expected micro-batch 0, since each goes once" },
        { 1, 0, "0F0 0B0 0W0 0F1 0B1", "action 2, the backward of the weights of micro-batch 0 (0W0): expected micro-batch 1" },
        { 1, 0, "0F0 0B0 0F1 0B1 0F2 0B2", "action 4, the forward of micro-batch 2 (0F2): expected micro-batches 0 to 1" },
        { 1, 0, "0F0 0B0 0F1 0B1 0F1", "action 4, the forward of micro-batch 1 (0F1): all 2 micro-batches have gone that way in stage 0" },
        { 1, 0, "0F0 0B0 1F1 1B1", "rank 0, action 2 is of chunk 1: expected 0 to 0" },
        { 1, 0, "0F0 0I0 0W0 0F1 0I1 0W1 0W1 0W1 0W1 0W1 0W1", "action 6, the backward of the weights of micro-batch 1 (0W1): all 2" },
        { 2, 0, "0F0 1F0 1B0 0B0 0F1 0B1", "rank 0 ends after 6 actions: in stage 1, 1 of 2 micro-batches have gone forward, 1" },
        { 2, 0, "0F0 1B0 0B0 1F0 0F1 1F1 1B1 0B1", "action 1, the backward of micro-batch 0 (1B0): it has not gone forward there" },
        { 2, 0, "1F0 0F0 1B0 0B0 0F1 1F1 1B1 0B1", "deadlock, with 2 messages stored per edge: rank 0, action 0 (1F0), waits for 0F0 of rank 0" },
    };
    for (size_t k = 0; k < COUNT(row); k++) {
        ls_pipe_program g;
        const ls_pipe_shape shape = { 1, row[k].chunks, 2 };
        assert_int_equal(ls_pipe_program_create_empty(LS_PIPE_LOOP, &shape, 16, &g), LS_OK);
        g.list->wanted = 16;
        set(g.list, row[k].list);
        if (ls_pipe_prove(&g, row[k].alive, 0) != LS_INTERNAL) fail_msg("'%s' passes", row[k].list);
        if (!strstr(ls_last_error(), row[k].says)) fail_msg("'%s': '%s' is not in '%s'", row[k].list, row[k].says, ls_last_error());
        assert_non_null(strstr(ls_last_error(), "pipeline schedule: "));
        ls_pipe_program_free(&g);
    }
}

static void a_list_without_room_is_refused(void **state)
{
    (void)state;
    ls_pipe_program g;
    const ls_pipe_shape shape = { 1, 1, 2 };
    assert_int_equal(ls_pipe_program_create_empty(LS_PIPE_LOOP, &shape, 4, &g), LS_OK);
    set(g.list, "0F0 0B0 0F1 0B1 0B1");
    assert_int_equal(g.list->n, 4);
    assert_int_equal(ls_pipe_prove(&g, 0, 0), LS_INTERNAL);
    assert_non_null(strstr(ls_last_error(), "rank 0 has more than the 4 actions of a step of 2 micro-batches"));
    ls_pipe_program_free(&g);
}

/* --- schedules, against their definitions -------------------------------------------------------- */

static int least(int a, int b) { return a < b ? a : b; }

/* Megatron's warm-up formulas, written from their definitions: the k-th forward and the k-th backward of a rank. */
typedef struct defined {
    int stage, micro_batch;
} defined;

static defined kth(int p, int v, int m, int rank, bool forward, int k)
{
    const int rounds = m / p > 1 ? m / p : 1, per_round = m / rounds;
    if (v == 1) return (defined){ rank, k };
    const int round = k / (per_round * v), in_round = k % (per_round * v), chunk = in_round / per_round;
    return (defined){ (forward ? chunk : v - 1 - chunk) * p + rank, round * per_round + in_round % per_round };
}

static void is_as_defined(const ls_pipe_program *g, int rank, int warm_up)
{
    const int p = g->shape.ranks, v = g->shape.chunks, m = g->shape.micro_batches;
    const ls_pipe_list *l = &g->list[rank];
    assert_int_equal(l->n, 2 * m * v);
    for (int i = 0, f = 0, b = 0; i < l->n; i++) {
        const bool forward = i < warm_up || (i < l->n - warm_up && (i - warm_up) % 2 == 0);
        const defined want = kth(p, v, m, rank, forward, forward ? f : b);
        const ls_pipe_action *a = &l->action[i];
        if (a->what != (forward ? LS_PIPE_FORWARD : LS_PIPE_BACKWARD) || a->stage != want.stage ||
            a->micro_batch != want.micro_batch)
            fail_msg("%s, p %d v %d m %d: rank %d, action %d is %d%c%d: expected %d%c%d", g->schedule->name, p, v, m, rank, i, a->stage,
                     ls_pipe_letter(a->what), a->micro_batch, want.stage, forward ? 'F' : 'B', want.micro_batch);
        *(forward ? &f : &b) += 1;
    }
}

static void lists_are_those_of_megatron(void **state)
{
    (void)state;
    for (int p = 2; p <= 8; p++)
        for (int m = 1; m <= 16; m++) {
            ls_pipe_program gpipe = program_of("gpipe", p, 1, m), f1b1 = program_of("1f1b", p, 0, m);
            for (int r = 0; r < p; r++) {
                is_as_defined(&gpipe, r, m);
                assert_int_equal(gpipe.slots[r], m);
                is_as_defined(&f1b1, r, least(m, p - 1 - r));
                assert_int_equal(f1b1.slots[r], least(m, p - r));
            }
            ls_pipe_program_free(&gpipe);
            ls_pipe_program_free(&f1b1);
            const int rounds = m / p > 1 ? m / p : 1;
            for (int v = 2; v <= 4 && m % rounds == 0; v++) {
                ls_pipe_program g = program_of("interleaved", p, v, m);
                for (int r = 0; r < p; r++)
                    is_as_defined(&g, r, least(m * v, (v - 1) * (m / rounds) + 2 * (p - 1 - r)));
                ls_pipe_program_free(&g);
            }
        }
}

static void lists_by_hand(void **state)
{
    (void)state;
    static const struct { const char *name; int p, v, m, rank; const char *want; } row[] = {
        { "gpipe", 4, 1, 2, 3, "3F0 3F1 3B0 3B1" },
        { "1f1b", 4, 1, 4, 2, "2F0 2F1 2B0 2F2 2B1 2F3 2B2 2B3" },
        { "1f1b", 4, 1, 2, 0, "0F0 0F1 0B0 0B1" }, /* fewer micro-batches than ranks */
        { "1f1b", 4, 1, 2, 3, "3F0 3B0 3F1 3B1" },
        { "interleaved", 2, 2, 2, 0, "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1" },
        { "interleaved", 2, 2, 2, 1, "1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1" },
        { "interleaved", 2, 2, 3, 1, "1F0 1F1 1F2 3F0 3B0 3F1 3B1 3F2 3B2 1B0 1B1 1B2" }, /* one group of 3 */
        { "interleaved", 2, 2, 1, 0, "0F0 2F0 2B0 0B0" },
    };
    char text[256];
    for (size_t k = 0; k < COUNT(row); k++) {
        ls_pipe_program g = program_of(row[k].name, row[k].p, row[k].v, row[k].m);
        assert_string_equal(text_of(&g.list[row[k].rank], text, sizeof text), row[k].want);
        ls_pipe_program_free(&g);
    }
}

/* A shorter step is the longest one without its last micro-batches, in every schedule: no rank needs more slots. */
static void a_step_of_fewer_micro_batches_leaves_the_last_ones_out(void **state)
{
    (void)state;
    for (int k = 0; ls_pipe_schedules[k]; k++) {
        const char *name = ls_pipe_schedules[k]->name;
        ls_pipe_program all = program_of(name, 4, 0, 9), fewer = program_of(name, 4, 0, 9);
        for (int m = 9; m >= 1; m--) {
            if (ls_pipe_program_make(&fewer, m) < 0) fail_msg("%s: %s", name, ls_last_error());
            assert_int_equal(fewer.shape.micro_batches, m);
            for (int r = 0, j = 0; r < 4; r++, j = 0) {
                assert_true(fewer.slots[r] <= all.slots[r]);
                for (int i = 0; i < all.list[r].n; i++) {
                    const ls_pipe_action *a = &all.list[r].action[i], *b = &fewer.list[r].action[j];
                    if (a->micro_batch >= m) continue;
                    assert_true(a->what == b->what && a->micro_batch == b->micro_batch);
                    assert_true(a->stage == b->stage && a->chunk == b->chunk);
                    assert_int_equal(b->last, b->micro_batch == m - 1);
                    j++;
                }
                assert_int_equal(fewer.list[r].n, j);
            }
        }
        assert_int_equal(ls_pipe_program_make(&fewer, 10), LS_INVALID);
        assert_non_null(strstr(ls_last_error(), "10 micro-batches: expected 1 to 9"));
        assert_int_equal(ls_pipe_program_make(&fewer, 0), LS_INVALID);
        ls_pipe_program_free(&fewer);
        ls_pipe_program_free(&all);
    }
}

static void a_shape_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    static const struct { const char *name; ls_pipe_shape shape; const char *says; } row[] = {
        { "gpipe", { 4, 2, 8 }, "pipeline schedule gpipe with 2 chunks of the model per rank: expected 1" },
        { "1f1b", { 4, -1, 8 }, "pipeline schedule 1f1b with -1 chunks of the model per rank: expected 1" },
        { "interleaved", { 4, 1, 8 }, "interleaved with 1 chunks of the model per rank: expected 2 to 64" },
        { "interleaved", { 4, 65, 8 }, "interleaved with 65 chunks of the model per rank: expected 2 to 64" },
        { "interleaved", { 1, 65, 8 }, "interleaved with 65 chunks of the model per rank: expected 1 to 64" },
        { "1f1b", { 0, 0, 8 }, "a pipeline of 0 ranks: expected at least 1" },
        { "1f1b", { 2, 0, 0 }, "a step of 0 micro-batches: expected 1 to 16777216" },
        { "1f1b", { 2, 0, 16777217 }, "a step of 16777217 micro-batches: expected 1 to 16777216" },
        { "1f1b", { 1024, 0, 32768 }, "its lists have 100663296 actions: expected at most 21845 micro-batches" },
    };
    for (size_t k = 0; k < COUNT(row); k++) {
        const ls_pipe_schedule *s;
        ls_pipe_program g;
        assert_int_equal(ls_pipe_schedule_find(row[k].name, &s), LS_OK);
        assert_int_equal(ls_pipe_program_create(s, &row[k].shape, &g), LS_BAD_CONFIG);
        if (!strstr(ls_last_error(), row[k].says)) fail_msg("'%s' is not in '%s'", row[k].says, ls_last_error());
    }
}

static void stages_are_placed_in_a_loop_or_a_v(void **state)
{
    (void)state;
    static const int v[8] = { 0, 1, 2, 3, 3, 2, 1, 0 };
    for (int stage = 0; stage < 8; stage++) {
        assert_int_equal(ls_pipe_place_rank(LS_PIPE_V, 4, stage), v[stage]);
        assert_int_equal(ls_pipe_place_rank(LS_PIPE_LOOP, 4, stage), stage % 4);
        for (int w = LS_PIPE_LOOP; w <= LS_PIPE_V; w++) {
            const ls_pipe_placement where = (ls_pipe_placement)w;
            const int chunk = ls_pipe_place_chunk(where, 4, stage);
            assert_int_equal(chunk, stage / 4);
            assert_int_equal(ls_pipe_place_stage(where, 4, ls_pipe_place_rank(where, 4, stage), chunk), stage);
        }
    }
}

/* --- the loop ------------------------------------------------------------------------------------------------ */

/* What was called: s feed (samples), F forward, B backward, each with its micro-batch; ! the last. */
typedef struct diary {
    char text[256];
    const char *fail_at;
} diary;

static ls_status note(diary *d, char what, const ls_pipe_action *a)
{
    const size_t used = strlen(d->text);
    snprintf(d->text + used, sizeof d->text - used, "%s%c%d%s", used ? " " : "", what, a->micro_batch, a->last ? "!" : "");
    const char *mine = d->text + used + (used > 0);
    return d->fail_at && strcmp(mine, d->fail_at) == 0 ? ls_fail(LS_SHAPE, "no %s today", mine) : LS_OK;
}

static ls_status feed(void *arg, const ls_pipe_action *a) { return note(arg, 's', a); }
static ls_status forward(void *arg, const ls_pipe_action *a, ls_pipe_data *data)
{
    (void)data;
    return note(arg, 'F', a);
}
static ls_status backward(void *arg, const ls_pipe_action *a, ls_pipe_data *data)
{
    (void)data;
    return note(arg, 'B', a);
}
static const ls_pipe_work work = { feed, forward, backward, NULL };

static ls_pipe *pipe_of(int micro_batches)
{
    ls_pipe *p;
    const ls_pipe_config c = { .micro_batches = micro_batches };
    if (ls_pipe_create(&c, &p) < 0) fail_msg("%s", ls_last_error());
    return p;
}

static void runs(ls_pipe *p, int micro_batches, const char *want)
{
    diary d = { 0 };
    if (ls_pipe_run(p, micro_batches, &work, &d) < 0) fail_msg("%s", ls_last_error());
    assert_string_equal(d.text, want);
}

static void each_action_is_called_in_order(void **state)
{
    (void)state;
    ls_pipe *p = pipe_of(3);
    assert_int_equal(ls_pipe_slots(p), 1);
    for (int k = 0; k < 2; k++) {
        runs(p, 3, "s0 F0 B0 s1 F1 B1 s2! F2! B2!");
        runs(p, 1, "s0! F0! B0!"); /* an epoch ends with fewer samples */
        runs(p, 2, "s0 F0 B0 s1! F1! B1!");
    }
    const ls_pipe_work without = { .forward = forward, .backward = backward }; /* samples are in memory already */
    diary d = { 0 };
    assert_int_equal(ls_pipe_run(p, 2, &without, &d), LS_OK);
    assert_string_equal(d.text, "F0 B0 F1! B1!");
    ls_pipe_destroy(p);
    ls_pipe_destroy(NULL);
}

static void only_so_many_micro_batches_as_it_was_created_for(void **state)
{
    (void)state;
    ls_pipe *p = pipe_of(3);
    diary d = { 0 };
    for (int k = 0; k < 2; k++) {
        assert_int_equal(ls_pipe_run(p, k ? 4 : 0, &work, &d), LS_INVALID);
        char says[64];
        snprintf(says, sizeof says, "ls_pipe_run: %d micro-batches: expected 1 to 3", k ? 4 : 0);
        assert_non_null(strstr(ls_last_error(), says));
        assert_string_equal(d.text, "");
    }
    runs(p, 3, "s0 F0 B0 s1 F1 B1 s2! F2! B2!");
    ls_pipe_destroy(p);
}

static void the_first_failure_ends_a_step_and_is_returned_as_it_is(void **state)
{
    (void)state;
    static const struct { const char *at, *done; } row[] = {
        { "s0", "s0" }, { "F0", "s0 F0" }, { "B0", "s0 F0 B0" }, { "s1!", "s0 F0 B0 s1!" }, { "B1!", "s0 F0 B0 s1! F1! B1!" },
    };
    ls_pipe *p = pipe_of(2);
    for (size_t k = 0; k < COUNT(row); k++) {
        diary d = { .fail_at = row[k].at };
        char says[32];
        assert_int_equal(ls_pipe_run(p, 2, &work, &d), LS_SHAPE);
        snprintf(says, sizeof says, "no %s today", row[k].at);
        assert_string_equal(ls_last_error(), says);
        assert_string_equal(d.text, row[k].done);
        runs(p, 2, "s0 F0 B0 s1! F1! B1!"); /* it leaves nothing behind */
    }
    ls_pipe_destroy(p);
}

static void what_cannot_be_created_is_refused(void **state)
{
    (void)state;
    static const struct {
        ls_pipe_config c;
        int stages;
        ls_status st;
        const char *says; /* NULL: it is */
    } row[] = {
        { { .micro_batches = 1 }, 1, LS_OK, NULL },
        { { .micro_batches = LS_PIPE_MOST_MICRO_BATCHES, .schedule = "1f1b", .chunks = 1 }, 1, LS_OK, NULL },
        { { .micro_batches = 4 }, 2, LS_OK, NULL },
        { { .micro_batches = 4, .schedule = "gpipe" }, 1, LS_OK, NULL },
        { { .micro_batches = 4, .schedule = "2f2b" }, 1, LS_BAD_CONFIG, "no pipeline schedule '2f2b': expected one of gpipe, 1f1b," },
        { { .micro_batches = 4, .chunks = 2 }, 2, LS_BAD_CONFIG, "pipeline schedule 1f1b with 2 chunks of the model per rank: expected 1" },
        { { .micro_batches = 4, .chunks = 2, .schedule = "interleaved" }, 2, LS_OK, NULL },
        { { .micro_batches = 4, .chunks = 2, .schedule = "interleaved" }, 1, LS_BAD_CONFIG,
          "2 chunks of the model on the one rank of a pipeline: expected 1, or several ranks" },
        { { .micro_batches = 4, .chunks = -1 }, 1, LS_BAD_CONFIG, "with -1 chunks of the model per rank: expected 1" },
        { { .micro_batches = 0 }, 1, LS_BAD_CONFIG, "a step of 0 micro-batches: expected 1 to 16777216" },
        { { .micro_batches = LS_PIPE_MOST_MICRO_BATCHES + 1 }, 1, LS_BAD_CONFIG, "a step of 16777217 micro-batches" },
    };
    for (size_t k = 0; k < COUNT(row); k++) {
        assert_int_equal(ls_pipe_check(&row[k].c, row[k].stages), row[k].st);
        if (row[k].says && !strstr(ls_last_error(), row[k].says))
            fail_msg("'%s' is not in '%s'", row[k].says, ls_last_error());
        if (!row[k].says || row[k].stages > 1) continue;
        ls_pipe *p = (ls_pipe *)&row; /* to see that it is cleared */
        assert_int_equal(ls_pipe_create(&row[k].c, &p), row[k].st);
        assert_null(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_accumulates_with_every_schedule),
        cmocka_unit_test(a_proof_finds_slots_for_what_is_alive),
        cmocka_unit_test(a_list_that_is_no_step_is_refused),
        cmocka_unit_test(a_list_without_room_is_refused),
        cmocka_unit_test(lists_are_those_of_megatron),
        cmocka_unit_test(lists_by_hand),
        cmocka_unit_test(a_step_of_fewer_micro_batches_leaves_the_last_ones_out),
        cmocka_unit_test(a_shape_that_does_not_fit_is_refused),
        cmocka_unit_test(stages_are_placed_in_a_loop_or_a_v),
        cmocka_unit_test(each_action_is_called_in_order),
        cmocka_unit_test(only_so_many_micro_batches_as_it_was_created_for),
        cmocka_unit_test(the_first_failure_ends_a_step_and_is_returned_as_it_is),
        cmocka_unit_test(what_cannot_be_created_is_refused),
    };
    return cmocka_run_group_tests_name("pipe", tests, NULL, NULL);
}
