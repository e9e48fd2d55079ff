/* The prover: every algorithm is right at every size; what is broken goes red, and says where. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "lockstep/sched.h"

/* --- every algorithm ------------------------------------------------------------- */

static void every_algorithm_is_proved_for_1_to_17_ranks(void **state)
{
    (void)state;
    static const int segments[] = { 1, 2, 4 };
    int proofs = 0;
    for (int i = 0; ls_algos[i]; i++)
        for (int coll = 0; coll < LS_COLLS; coll++)
            for (int size = 1; size <= 17 && ls_algos[i]->colls & 1u << coll; size++)
                for (int g = 0; g < 3; g++)
                    for (int lanes = 1; lanes <= segments[g]; lanes++)
                        for (int uneven = 0; uneven <= (coll == LS_ALL_TO_ALL); uneven++) {
                            ls_shape s = { .coll = (ls_coll)coll, .size = size, .root = (size - 1) / 2,
                                           .segments = segments[g], .nlanes = lanes, .uneven = uneven };
                            if (ls_algos[i]->fits && !ls_algos[i]->fits(&s)) continue;
                            if (ls_sched_verify(ls_algos[i], &s) != LS_OK) fail_msg("%s", ls_last_error());
                            proofs++;
                        }
    assert_true(proofs >= 47 * 17 * 7); /* pairs of algorithm and collective */
}

static void every_root_is_proved(void **state)
{
    (void)state;
    for (int i = 0; ls_algos[i]; i++)
        for (int size = 1; size <= 16; size = size == 9 ? 16 : size + 1)
            for (int root = 0; root < size; root++)
                for (int coll = 0; coll < LS_COLLS; coll++) {
                    bool rooted = coll == LS_BROADCAST || coll == LS_REDUCE || coll == LS_GATHER || coll == LS_SCATTER;
                    if (!rooted || !(ls_algos[i]->colls & 1u << coll)) continue;
                    ls_shape s = { .coll = (ls_coll)coll, .size = size, .root = root, .segments = 2, .nlanes = 2 };
                    if (ls_sched_verify(ls_algos[i], &s) != LS_OK) fail_msg("%s", ls_last_error());
                }
}

/* Equal hosts in order and dealt out, unequal ones, one rank alone, each rank alone. */
static int place_on_hosts(int pattern, int size, int *node)
{
    int n = 0;
    for (int r = 0; r < size; r++) {
        int half = (size + 1) / 2;
        node[r] = pattern == 0 ? r / half : pattern == 1 ? r % 2 : pattern == 2 ? r % 3 : pattern == 3 ? r >= size - 1
                : pattern == 4 ? r : pattern == 5 ? r / 2 : r % 4 == 3 ? 1 + r / 8 : 0;
        if (node[r] > n) node[r] = n; /* by first appearance */
        if (node[r] == n) n++;
    }
    return n;
}

static void any_placement_on_hosts_is_proved(void **state)
{
    (void)state;
    const ls_algo *algo = ls_algo_find("hierarchical");
    int node[17], most = 0;
    for (int size = 1; size <= 17; size = size == 9 ? 16 : size + 1)
        for (int pattern = 0; pattern < 7; pattern++) {
            int n = place_on_hosts(pattern, size, node);
            most = n > most ? n : most;
            for (int coll = 0; coll < LS_COLLS; coll++)
                for (int root = 0; root < size && algo->colls & 1u << coll; root += 1 + size / 3)
                    for (int cut = 1; cut <= 3; cut += 2) {
                        ls_shape s = { .coll = (ls_coll)coll, .size = size, .root = root, .segments = cut,
                                       .nlanes = cut == 3 ? 2 : 1, .node = node };
                        if (ls_sched_verify(algo, &s) != LS_OK) fail_msg("pattern %d: %s", pattern, ls_last_error());
                    }
        }
    assert_int_equal(most, 17);
}

/* Of what one rank sends, chunks that go to other hosts. */
static int chunks_across(const ls_sched *s, const int *node)
{
    int n = 0;
    for (uint32_t i = 0; i < s->lane[0].n; i++) {
        const ls_step *a = &s->lane[0].step[i];
        if (a->kind == LS_STEP_SEND && node[a->peer] != node[s->shape.rank]) n += (int)a->src.n;
    }
    return n;
}

static void what_crosses_between_hosts_is_the_least_possible(void **state)
{
    (void)state;
    static const int dealt_out[8] = { 0, 1, 0, 1, 0, 1, 0, 1 }, unequal[8] = { 0, 0, 0, 0, 0, 1, 2, 2 };
    static const struct { ls_coll coll; const int *node; int want; } row[] = {
        { LS_ALL_REDUCE, dealt_out, 2 * 8 },        /* 2 (H-1)/H of the vector leave each host: H = 2, 8 chunks */
        { LS_ALL_REDUCE, unequal, 2 * 8 * 2 },      /* 2 (H-1)/H times 3 hosts */
        { LS_REDUCE_SCATTER, dealt_out, 8 },        /* every share's sum once from each other host */
        { LS_ALL_GATHER, unequal, 8 * 2 },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        int across = 0;
        for (int r = 0; r < 8; r++) {
            ls_shape shape = { .coll = row[i].coll, .rank = r, .size = 8, .segments = 1, .nlanes = 1,
                               .node = row[i].node };
            ls_sched s;
            assert_int_equal(ls_sched_emit(ls_algo_find("hierarchical"), &shape, &s), LS_OK);
            across += chunks_across(&s, row[i].node);
            ls_sched_free(&s);
        }
        if (across != row[i].want) fail_msg("row %zu: %d chunks cross, expected %d", i, across, row[i].want);
    }
}

static void hosts_must_be_numbered_by_first_appearance(void **state)
{
    (void)state;
    static const int wrong[3][3] = { { 1, 0, 0 }, { 0, 2, 1 }, { 0, -1, 1 } };
    for (int i = 0; i < 3; i++) {
        ls_shape s = { .coll = LS_ALL_REDUCE, .size = 3, .segments = 1, .nlanes = 1, .node = wrong[i] };
        assert_int_equal(ls_sched_verify(ls_algo_find("hierarchical"), &s), LS_INVALID);
        assert_non_null(strstr(ls_last_error(), "numbered by first appearance"));
    }
}

static void every_inner_rank_of_one_tree_is_a_leaf_of_the_other(void **state)
{
    (void)state;
    for (int size = 2; size <= 17; size++)
        for (int root = 0; root < size; root += 3) {
            int inside_both = 0, leaves_of_both = 0;
            for (int r = 0; r < size; r++) {
                ls_shape shape = { .coll = LS_BROADCAST, .rank = r, .size = size, .root = root, .segments = 2,
                                   .nlanes = 1 };
                ls_sched s;
                int sends[2] = { 0, 0 };
                assert_int_equal(ls_sched_emit(ls_algo_find("double_tree"), &shape, &s), LS_OK);
                for (uint32_t i = 0; i < s.lane[0].n; i++)
                    if (s.lane[0].step[i].kind == LS_STEP_SEND) sends[s.lane[0].step[i].src.first]++;
                assert_true(sends[0] <= 2 && sends[1] <= 2);
                if (r != root && sends[0] && sends[1]) inside_both++;
                if (r != root && !sends[0] && !sends[1]) leaves_of_both++;
                ls_sched_free(&s);
            }
            assert_int_equal(inside_both, 0);
            assert_true(leaves_of_both <= 1);
        }
}

static void refuses_what_it_cannot_prove(void **state)
{
    (void)state;
    ls_shape s = { .coll = LS_ALL_REDUCE, .size = 0, .segments = 1, .nlanes = 1 };
    assert_int_equal(ls_sched_verify(ls_algo_find("ring"), &s), LS_INVALID);
    s.size = 3;
    s.coll = LS_BARRIER;
    assert_int_equal(ls_sched_verify(ls_algo_find("ring"), &s), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "'ring' does not do barrier"));
}

/* --- broken on purpose --------------------------------------------------------------- */

static ls_slice out(uint32_t first, uint32_t n) { return (ls_slice){ LS_BUF_OUT, first, n }; }
static ls_slice tmp(uint32_t first, uint32_t n) { return (ls_slice){ LS_BUF_TMP, first, n }; }

static ls_slice share(const ls_shape *s, int owner) { return out((uint32_t)((owner + 2 * s->size) % s->size), 1); }

/* The ring's first lap takes the share next to the right one. */
static ls_status emit_off_by_one(ls_sched *o, const ls_shape *s)
{
    int n = s->size, r = s->rank, right = (r + 1) % n, left = (r + n - 1) % n;
    o->nchunks[LS_BUF_OUT] = (uint32_t)n;
    for (int k = 1; k < n; k++) {
        LS_TRY(ls_sched_send(o, 0, right, share(s, r - k)));
        LS_TRY(ls_sched_recv_reduce(o, 0, left, share(s, r - k)));
    }
    for (int k = 0; k < n - 1; k++) {
        LS_TRY(ls_sched_send(o, 0, right, share(s, r - k)));
        LS_TRY(ls_sched_recv(o, 0, left, share(s, r - k - 1)));
    }
    return LS_OK;
}

/* Recursive doubling that adds into what it is offering. */
static ls_status emit_doubling_in_place(ls_sched *o, const ls_shape *s)
{
    uint32_t all = o->nchunks[LS_BUF_OUT] = (uint32_t)s->size;
    for (int d = 1; d < s->size; d *= 2) {
        LS_TRY(ls_sched_send(o, 0, s->rank ^ d, out(0, all)));
        LS_TRY(ls_sched_recv_reduce(o, 0, s->rank ^ d, out(0, all)));
    }
    return LS_OK;
}

/* The right form: the peer's vector lands in TMP and is added when ours has been read. */
static ls_status emit_doubling(ls_sched *o, const ls_shape *s)
{
    uint32_t all = o->nchunks[LS_BUF_OUT] = o->nchunks[LS_BUF_TMP] = (uint32_t)s->size;
    for (int d = 1; d < s->size; d *= 2) {
        LS_TRY(ls_sched_send(o, 0, s->rank ^ d, out(0, all)));
        LS_TRY(ls_sched_recv(o, 0, s->rank ^ d, tmp(0, all)));
        LS_TRY(ls_sched_reduce(o, 0, tmp(0, all), out(0, all)));
    }
    return LS_OK;
}

/* Everyone adds everyone's vector to its own, in an order of its own. */
static ls_status emit_own_order(ls_sched *o, const ls_shape *s)
{
    uint32_t all = o->nchunks[LS_BUF_OUT] = o->nchunks[LS_BUF_TMP] = (uint32_t)s->size;
    LS_TRY(ls_sched_copy(o, 0, out(0, all), tmp(0, all)));
    for (int k = 1; k < s->size; k++) LS_TRY(ls_sched_send(o, 0, (s->rank + k) % s->size, tmp(0, all)));
    for (int k = 1; k < s->size; k++) LS_TRY(ls_sched_recv_reduce(o, 0, (s->rank + k) % s->size, out(0, all)));
    return LS_OK;
}

static ls_status emit_direct(ls_sched *o, const ls_shape *s) { return ls_algo_find("direct")->emit(o, s); }
static ls_status emit_ring(ls_sched *o, const ls_shape *s) { return ls_algo_find("ring")->emit(o, s); }
static ls_status emit_fold(ls_sched *o, const ls_shape *s) { return ls_algo_find("fold")->emit(o, s); }
static ls_status emit_barrier(ls_sched *o, const ls_shape *s) { return ls_algo_find("dissemination")->emit(o, s); }

static ls_status emit_pairwise(ls_sched *o, const ls_shape *s) { return ls_algo_find("pairwise")->emit(o, s); }
static ls_status emit_bruck(ls_sched *o, const ls_shape *s) { return ls_algo_find("bruck")->emit(o, s); }
static ls_status emit_linear(ls_sched *o, const ls_shape *s) { return ls_algo_find("linear")->emit(o, s); }
static ls_status emit_tree(ls_sched *o, const ls_shape *s) { return ls_algo_find("tree")->emit(o, s); }

/* Right only where all blocks are of one length: each goes through the place of another. */
static ls_status emit_through_a_wrong_place(ls_sched *o, const ls_shape *s)
{
    uint32_t n = o->nchunks[LS_BUF_IN] = o->nchunks[LS_BUF_OUT] = o->nchunks[LS_BUF_TMP] = (uint32_t)s->size;
    for (uint32_t k = 0; k < n; k++) {
        ls_slice in = { LS_BUF_IN, ((uint32_t)s->rank + k) % n, 1 };
        LS_TRY(ls_sched_copy(o, 0, in, tmp(k, 1)));
        if (k > 0) LS_TRY(ls_sched_send(o, 0, (int)in.first, tmp(k, 1)));
    }
    LS_TRY(ls_sched_copy(o, 0, tmp(0, 1), out((uint32_t)s->rank, 1)));
    for (uint32_t k = 1; k < n; k++) {
        uint32_t from = ((uint32_t)s->rank + n - k) % n;
        LS_TRY(ls_sched_recv(o, 0, (int)from, out(from, 1)));
    }
    return LS_OK;
}

typedef ls_status (*emit_fn)(ls_sched *, const ls_shape *);
typedef void (*break_fn)(ls_sched *s, int size); /* all ranks' sealed schedules */

static void remove_step(ls_lane *ln, uint32_t i)
{
    memmove(&ln->step[i], &ln->step[i + 1], (ln->n - i - 1) * sizeof *ln->step);
    ln->n--;
}

static void not_at_all(ls_sched *s, int size) { (void)s, (void)size; }
static void drop_a_send(ls_sched *s, int size) { (void)size, remove_step(&s[1].lane[0], 2), ls_sched_seal(&s[1]); }
static void drop_the_last_send(ls_sched *s, int size) { (void)size, remove_step(&s[1].lane[0], s[1].lane[0].n - 2); }
static void swap_a_peer(ls_sched *s, int size) { s[1].lane[0].step[0].peer = (s[1].lane[0].step[0].peer + 1) % size; }
static void drop_a_fold(ls_sched *s, int size) { (void)size, remove_step(&s[2].lane[0], 0); }
static void fold_twice(ls_sched *s, int size) { (void)size, ls_sched_fold(&s[2], 0, out(1, 1)); }
static void touch_a_fold(ls_sched *s, int size) { (void)size, ls_sched_send(&s[0], 0, 1, out(1, 1)); }
static void add_a_message(ls_sched *s, int size) { (void)size, ls_sched_send(&s[3], 0, 0, out(2, 1)); }
static void lengthen_a_message(ls_sched *s, int size) { (void)size, s[1].lane[0].step[0].src = out(0, 2); }
static void drop_a_receive(ls_sched *s, int size) { (void)size, remove_step(&s[2].lane[0], s[2].lane[0].n - 1); }
static void claim_one_sum(ls_sched *s, int size) { for (int r = 0; r < size; r++) s[r].one_sum = true; }

static void forget_hazards(ls_sched *s, int size)
{
    for (int r = 0; r < size; r++)
        for (uint32_t i = 0; i < s[r].lane[0].n; i++) s[r].lane[0].step[i].after_send = -1;
}

static void forget_last_reduces(ls_sched *s, int size)
{
    for (int r = 0; r < size; r++)
        for (uint32_t i = 0; i < s[r].lane[0].n; i++) s[r].lane[0].step[i].last_reduce = false;
}

static void finish_too_early(ls_sched *s, int size)
{
    (void)size;
    for (uint32_t i = 0; i < s[0].lane[0].n; i++)
        if (s[0].lane[0].step[i].kind == LS_STEP_RECV_REDUCE) {
            s[0].lane[0].step[i].last_reduce = true;
            return;
        }
}

/* The root of a scatter takes one rank's share for another's, in its list of sends. */
static void send_a_share_twice(ls_sched *s, int size)
{
    (void)size;
    s[0].lane[0].step[1].src = s[0].lane[0].step[0].src;
}
static void forget_to_receive(ls_sched *s, int size) { (void)size, s[0].lane[0].n = 0; }
static void with_counts(ls_sched *s, int size) { for (int r = 0; r < size; r++) s[r].shape.uneven = true; }
static void shorten_a_subtree(ls_sched *s, int size) { (void)size, s[2].lane[0].step[1].src.n = 1; }
static void send_another_block(ls_sched *s, int size) { (void)size, s[1].lane[0].step[1].src.first = 3; }
static void swap_directions(ls_sched *s, int size)
{
    for (int r = 0; r < size; r++)
        for (int i = 0; i < 2; i++) s[r].lane[0].step[i].peer = (r + (i == 0 ? size - 1 : 1)) % size;
}
static void sum_twice(ls_sched *s, int size) { (void)size, ls_sched_sum(&s[0], 0, out(0, 1)); }

static void stop_a_round_early(ls_sched *s, int size)
{
    for (int r = 0; r < size; r++) s[r].lane[0].n -= 2;
}

static void send_two_at_once(ls_sched *s, int size)
{
    (void)size;
    for (int r = 0; r < 2; r++)
        for (int k = 0; k < 2; k++) ls_sched_send(&s[r], 0, 1 - r, out(0, 1));
    for (int r = 0; r < 2; r++)
        for (int k = 0; k < 2; k++) ls_sched_recv(&s[r], 0, 1 - r, tmp(0, 1));
}

static ls_status verdict(emit_fn emit, break_fn sabotage, ls_coll coll, int size)
{
    ls_algo algo = { .name = "broken", .colls = 1u << coll, .emit = emit };
    ls_sched s[8];
    const ls_sched *p[8];
    for (int r = 0; r < size; r++) {
        ls_shape shape = { .coll = coll, .rank = r, .size = size, .segments = 1, .nlanes = 1 };
        assert_int_equal(ls_sched_emit(&algo, &shape, &s[r]), LS_OK);
        p[r] = &s[r];
    }
    sabotage(s, size);
    ls_status st = ls_sched_verify_all(p, size);
    for (int r = 0; r < size; r++) ls_sched_free(&s[r]);
    return st;
}

static void names_what_is_broken(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        emit_fn emit;
        break_fn sabotage;
        ls_coll coll;
        int size;
        const char *say[3]; /* parts of the sentence; none: it is right */
    } row[] = {
        { "right as it is", emit_ring, not_at_all, LS_ALL_REDUCE, 4, { NULL } },
        { "ring, index off by one", emit_off_by_one, not_at_all, LS_ALL_REDUCE, 4,
          { "pushed", "lane 0, step 1 (recv_reduce", "of the vector to chunk" } },
        { "doubling in place", emit_doubling_in_place, not_at_all, LS_ALL_REDUCE, 4,
          { "pulled", "waits until rank", "out[0..3]" } },
        { "doubling through tmp", emit_doubling, not_at_all, LS_ALL_REDUCE, 8, { NULL } },
        { "doubling through tmp, no hazards", emit_doubling, forget_hazards, LS_ALL_REDUCE, 4,
          { "pulled", "overwrites out[0]", "has yet to read" } },
        { "an order of additions per rank", emit_own_order, not_at_all, LS_ALL_REDUCE, 3,
          { "out[0]", "different orders", "ranks 0 and 1" } },
        { "a dropped send", emit_ring, drop_a_send, LS_ALL_REDUCE, 4, { "rank 2", "chunk 2 of the vector to chunk 3" } },
        { "a dropped last send", emit_ring, drop_the_last_send, LS_ALL_REDUCE, 4,
          { "rank 2", "a message that rank 1 never sends", "deadlock" } },
        { "a swapped peer", emit_direct, swap_a_peer, LS_ALL_REDUCE, 4, { "rank 3", "adds chunk 2 of the vector to chunk 3" } },
        { "a missing fold", emit_fold, drop_a_fold, LS_ALL_REDUCE, 4, { "out[2]", "rank 1 counted 0 times" } },
        { "a chunk folded twice", emit_fold, fold_twice, LS_ALL_REDUCE, 4, { "out[1]", "rank 1", "rank 2" } },
        { "a folded chunk sent", emit_fold, touch_a_fold, LS_ALL_REDUCE, 4, { "rank 0 uses out[1]", "rank 1 reduces in place" } },
        { "an extra message", emit_ring, add_a_message, LS_ALL_REDUCE, 4, { "rank 3", "rank 0 never receives", "out[2]" } },
        { "a longer message", emit_direct, lengthen_a_message, LS_ALL_REDUCE, 4,
          { "expects 1 chunks", "rank 1's step 0 sends 2" } },
        { "a missing receive", emit_direct, drop_a_receive, LS_ALL_GATHER, 4, { "rank 2 never receives", "out[3]" } },
        { "no last addition marked", emit_ring, forget_last_reduces, LS_REDUCE_SCATTER, 4,
          { "out[0] of rank 0", "last addition" } },
        { "a last addition too early", emit_ring, finish_too_early, LS_ALL_REDUCE, 4,
          { "rank 0", "counts as the last addition to out[2]", "0 times" } },
        { "one sum claimed for hops", emit_ring, claim_one_sum, LS_ALL_REDUCE, 4, { "adds two vectors", "one_sum" } },
        { "a round short", emit_barrier, stop_a_round_early, LS_BARRIER, 4, { "rank 0 leaves before rank" } },
        { "two messages at once", emit_doubling, send_two_at_once, LS_ALL_REDUCE, 2,
          { "waits for space", "rank 1 has yet to read", "deadlock" } },
        { "scatter, a share for another", emit_linear, send_a_share_twice, LS_SCATTER, 4,
          { "rank 2", "puts chunk 1 of the vector into out[2]", "as long as chunk 2" } },
        { "gather without a receive", emit_linear, forget_to_receive, LS_GATHER, 4, { "rank 1", "rank 0 never receives" } },
        { "gather by a tree, less than the subtree", emit_tree, shorten_a_subtree, LS_GATHER, 4,
          { "rank 0", "expects 2 chunks", "rank 2's step 1 sends 1" } },
        { "reduce, one vector twice", emit_linear, sum_twice, LS_REDUCE, 4, { "rank 0", "never sends", "deadlock" } },
        { "all_to_all, another's block", emit_pairwise, send_another_block, LS_ALL_TO_ALL, 4,
          { "out[1] of rank 0: holds what rank 1 has for rank 3" } },
        { "sendrecv from the wrong side", emit_pairwise, swap_directions, LS_SENDRECV, 4,
          { "out[0] of rank 0: holds what rank 1 has for rank 2", "segment 0" } },
        { "all_to_all, a longer message", emit_direct, lengthen_a_message, LS_ALL_TO_ALL, 4, { "expects 1 chunks" } },
        { "all_to_all, a round short", emit_pairwise, stop_a_round_early, LS_ALL_TO_ALL, 4, { "never filled", "of rank 0" } },
        { "all_to_all through another's place", emit_through_a_wrong_place, not_at_all, LS_ALL_TO_ALL, 4, { NULL } },
        { "the same with counts", emit_through_a_wrong_place, with_counts, LS_ALL_TO_ALL, 4,
          { "puts what rank", "into tmp[", "which is as long as what rank" } },
        { "Bruck's", emit_bruck, not_at_all, LS_ALL_TO_ALL, 7, { NULL } },
        { "Bruck's with counts", emit_bruck, with_counts, LS_ALL_TO_ALL, 7, { "which is as long as" } },
        { "Bruck's, a round short", emit_bruck, stop_a_round_early, LS_ALL_GATHER, 4, { "rank 3 never receives" } },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_status st = verdict(row[i].emit, row[i].sabotage, row[i].coll, row[i].size);
        bool right = row[i].say[0] == NULL;
        if (st != (right ? LS_OK : LS_INTERNAL))
            fail_msg("%s: status %d: %s", row[i].name, (int)st, st == LS_OK ? "proved" : ls_last_error());
        for (int k = 0; k < 3 && row[i].say[k]; k++)
            if (!strstr(ls_last_error(), row[i].say[k]))
                fail_msg("%s: no '%s' in: %s", row[i].name, row[i].say[k], ls_last_error());
    }
}

static void schedules_must_belong_together(void **state)
{
    (void)state;
    ls_sched s[2];
    const ls_sched *p[2] = { &s[0], &s[1] };
    for (int r = 0; r < 2; r++) {
        ls_shape shape = { .coll = LS_ALL_REDUCE, .rank = r, .size = 2, .segments = 1 + r, .nlanes = 1 };
        assert_int_equal(ls_sched_emit(ls_algo_find("ring"), &shape, &s[r]), LS_OK);
    }
    assert_int_equal(ls_sched_verify_all(p, 2), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "ranks 0 and 1 differ"));
    for (int r = 0; r < 2; r++) ls_sched_free(&s[r]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_is_proved_for_1_to_17_ranks),
        cmocka_unit_test(every_root_is_proved),
        cmocka_unit_test(any_placement_on_hosts_is_proved),
        cmocka_unit_test(what_crosses_between_hosts_is_the_least_possible),
        cmocka_unit_test(hosts_must_be_numbered_by_first_appearance),
        cmocka_unit_test(every_inner_rank_of_one_tree_is_a_leaf_of_the_other),
        cmocka_unit_test(refuses_what_it_cannot_prove),
        cmocka_unit_test(names_what_is_broken),
        cmocka_unit_test(schedules_must_belong_together),
    };
    return cmocka_run_group_tests_name("verify", tests, NULL, NULL);
}
