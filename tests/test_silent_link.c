/* A link that falls silent at a random message of a random rank: the report names the sender and a receiver of what was
 * held back, in that direction, or says that it cannot be known; it never blames a rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "net/world.h"
#include "harness_clock.h"

#define MS 1000000ull
#define RUNS 36 /* with LOCKSTEP_TEST_LONG, else half of them; LOCKSTEP_RUNS sets another number */
#define STEPS 40
#define MOST 20000 /* floats: several pieces or frames */

static uint32_t draw(uint64_t *rng, uint32_t n)
{
    *rng = *rng * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*rng >> 33) % n;
}

typedef struct program {
    uint64_t seed;
    bool registered;
} program;

/* To the right and from the left. */
static ls_status pass_on(ls_group *g, float *x, float *y, size_t count, bool batch)
{
    int n = ls_group_size(g), rank = ls_group_rank(g), right = (rank + 1) % n, left = (rank + n - 1) % n;
    ls_p2p op[2] = { { .send = x, .count = count, .peer = right }, { .recv = y, .count = count, .peer = left } };
    if (batch) return ls_p2p_batch(g, op, 2);
    if (rank % 2) LS_TRY(ls_recv(g, y, count, LS_F32, left));
    LS_TRY(ls_send(g, x, count, LS_F32, right));
    return rank % 2 ? LS_OK : ls_recv(g, y, count, LS_F32, left);
}

/* Every rank does the same. */
static ls_status run_program(ls_world *w, void *arg)
{
    const program *p = arg;
    static const size_t counts[] = { 1, 9, 300, 1100, MOST };
    uint64_t rng = p->seed;
    ls_group *g = ls_world_group(w);
    int n = ls_world_size(w);
    void *all = NULL;
    if (p->registered) LS_TRY(ls_alloc(w, 2 * MOST * sizeof(float), LS_MEM_DATA, &all));
    else LS_EXPECT(all = malloc(2 * MOST * sizeof(float)), "no memory for a test");
    float *x = all, *y = x + MOST;
    memset(all, 0, 2 * MOST * sizeof(float));
    ls_status st = LS_OK;
    for (int step = 0; step < STEPS && st == LS_OK; step++) {
        size_t count = counts[draw(&rng, 5)];
        int root = (int)draw(&rng, (uint32_t)n);
        switch (draw(&rng, 7)) {
        case 0: st = ls_all_reduce(g, NULL, x, count, LS_F32, LS_SUM); break;
        case 1: st = ls_broadcast(g, x, count, LS_F32, root); break;
        case 2: st = ls_reduce(g, NULL, x, count, LS_F32, LS_SUM, root); break;
        case 3: st = ls_all_gather(g, NULL, x, count, LS_F32); break;
        case 4: st = ls_all_to_all(g, x, y, count - count % (size_t)n, LS_F32); break;
        case 5: st = pass_on(g, x, y, count, false); break;
        default: st = pass_on(g, x, y, count, true); break;
        }
    }
    if (!p->registered) free(all);
    return st;
}

static void the_pair_and_the_direction_are_named(void **state)
{
    (void)state;
    static const char *const wires[] = { "fault:shm", "fault:tcp" };
    static const char *const algos[] = { NULL, "ring", "direct", "recursive_doubling", "tree" };
    const char *asked = getenv("LOCKSTEP_RUNS");
    uint64_t rng = 42;
    const bool all = getenv("LOCKSTEP_TEST_LONG") != NULL;
    int runs = asked ? atoi(asked) : all ? RUNS : RUNS / 2, hung = 0, named = 0;
    for (int i = 0; i < runs; i++) {
        int n = 2 + (int)draw(&rng, 3), victim = (int)draw(&rng, (uint32_t)n), nth = 1 + (int)draw(&rng, 40);
        program p = { .seed = 1000 + (uint64_t)i, .registered = draw(&rng, 2) };
        const char *wire = wires[draw(&rng, 2)], *algo = algos[draw(&rng, 5)];
        ls_world_opts o = { .transport = wire, .algo = algo, .arena_bytes = 8u << 20, .coll_timeout_ns = 600 * MS,
                            .progress = draw(&rng, 3) == 0 ? LS_PROGRESS_THREAD : LS_PROGRESS_INLINE };
        ls_test_mode mode = draw(&rng, 3) == 0 ? LS_TEST_PROCESSES : LS_TEST_THREADS;
        char plan[32], where[160], link[64];
        snprintf(plan, sizeof plan, "stall@%d:%d", victim, nth);
        snprintf(where, sizeof where, "run %d: %s, %d ranks, %s, %s", i, plan, n, wire, algo ? algo : "by size");
        setenv("LOCKSTEP_FAULT", plan, 1);
        ls_rank_report r = ls_test_ranks_in_step(mode, n, &o, run_program, &p);
        unsetenv("LOCKSTEP_FAULT");
        if (!r.failed) continue; /* it does not send so many */
        hung++;
        const char *text = r.text;
        snprintf(link, sizeof link, "the link from rank %d to rank ", victim);
        if (strstr(text, link)) named++;
        else if (!strstr(text, "cannot be known")) fail_msg("%s: %s", where, text);
        else print_message("%s: %s\n", where, text);
    }
    print_message("%d stalls, %d named\n", hung, named);
    assert_true(asked || hung >= (all ? 25 : 12));
    assert_true(named * 10 >= hung * 9);
}

/* Both sides know nothing of one another's waits: the one that sent has gone on, and is in no hurry. */
static ls_status goes_on(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w);
    float x = 1;
    if (ls_world_rank(w) == 1) return ls_recv(g, &x, 1, LS_F32, 0);
    LS_TRY(ls_send(g, &x, 1, LS_F32, 1));
    while (!atomic_load_explicit(&w->page->abort_by, memory_order_acquire)) ls_env_get()->yield();
    return ls_barrier(g);
}

static void nobody_is_blamed_for_what_cannot_be_known(void **state)
{
    (void)state;
    for (int wire = 0; wire < 2; wire++) {
        ls_world_opts o = { .transport = wire ? "fault:tcp" : "fault:shm", .coll_timeout_ns = 300 * MS };
        setenv("LOCKSTEP_FAULT", "drop@0:1", 1);
        ls_rank_report r = ls_test_ranks_in_step(LS_TEST_THREADS, 2, &o, goes_on, NULL);
        unsetenv("LOCKSTEP_FAULT");
        assert_int_equal(r.status, LS_RANK_HUNG);
        if (!strstr(r.text, "whether rank 0, rank 1 or the link from one to the other is at fault cannot be known"))
            fail_msg("%s", r.text);
    }
}

/* A rank that does not come is named, however its collective is carried out. */
static ls_status does_not_come(ls_world *w, void *arg)
{
    (void)arg;
    float x[4] = { 0 };
    LS_TRY(ls_all_reduce(ls_world_group(w), NULL, x, 4, LS_F32, LS_SUM));
    if (ls_world_rank(w) == 2)
        while (!atomic_load_explicit(&w->page->abort_by, memory_order_acquire)) ls_env_get()->yield();
    return ls_all_reduce(ls_world_group(w), NULL, x, 4, LS_F32, LS_SUM);
}

static void a_rank_that_does_not_come_is_blamed(void **state)
{
    (void)state;
    static const char *const wires[] = { "shm", "tcp", "fault:shm", "fault:tcp" };
    for (int i = 0; i < 4; i++) {
        ls_world_opts o = { .transport = wires[i], .coll_timeout_ns = 400 * MS };
        ls_rank_report r = ls_test_ranks_in_step(LS_TEST_THREADS, 4, &o, does_not_come, NULL);
        assert_int_equal(r.status, LS_RANK_HUNG);
        if (!strstr(r.text, " for rank 2 (pid ")) fail_msg("over %s: %s", wires[i], r.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_pair_and_the_direction_are_named),
        cmocka_unit_test(nobody_is_blamed_for_what_cannot_be_known),
        cmocka_unit_test(a_rank_that_does_not_come_is_blamed),
    };
    return cmocka_run_group_tests_name("silent_link", tests, NULL, NULL);
}
