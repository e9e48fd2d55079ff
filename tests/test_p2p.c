/* Messages between two ranks: in order per pair and direction, beside one another and beside collectives, in batches
 * of any order; what is refused, what a mismatch and a time-out say; tensors reduced together. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "group/group.h"
#include "harness_clock.h"

#define MS 1000000ull
#define MOST 100000 /* bytes */

static const char *const wires[] = { "shm", "tcp" };

/* Both wires, both ways to make progress. */
static void everywhere(ls_test_mode mode, int n, ls_rank_fn fn)
{
    for (int wire = 0; wire < 2; wire++)
        for (int thread = 0; thread < 2; thread++) {
            ls_world_opts o = { .transport = wires[wire], .arena_bytes = 8u << 20,
                                .progress = thread ? LS_PROGRESS_THREAD : LS_PROGRESS_INLINE };
            ls_rank_report r = ls_test_ranks(mode, n, &o, fn, NULL);
            if (r.failed) fail_msg("%d ranks over %s%s: %s", n, wires[wire], thread ? ", progress thread" : "", r.text);
        }
}

/* What rank `from` sends to `to` as its message `i`: every byte. */
static unsigned char byte_of(int from, int to, int i, size_t at)
{
    return (unsigned char)((unsigned)(from * 31 + to * 17 + i * 7) + (unsigned)at % 251u);
}

static void write_message(unsigned char *p, size_t n, int from, int to, int i)
{
    for (size_t at = 0; at < n; at++) p[at] = byte_of(from, to, i, at);
}

static ls_status read_message(const unsigned char *p, size_t n, int from, int to, int i)
{
    for (size_t at = 0; at < n; at++)
        LS_EXPECT(p[at] == byte_of(from, to, i, at), "message %d of %zu bytes from rank %d to %d: byte %zu is %d", i, n,
                  from, to, at, p[at]);
    return LS_OK;
}

static size_t size_of(int i)
{
    static const size_t sizes[] = { 0, 1, 31, 32, 33, 48, 49, 200, 4095, 4096, 4097, 16383, 16384, 16385, 70000, MOST };
    return sizes[(unsigned)i % (sizeof sizes / sizeof *sizes)];
}

/* --- batches ------------------------------------------------------------------------------------------------- */

#define EACH 3 /* messages per pair and direction */

/* Everybody with everybody else, both ways, in an order of its own (that of a pair and direction apart). */
static ls_status all_with_all(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w);
    int me = ls_world_rank(w), n = ls_world_size(w);
    size_t room = (size_t)(2 * EACH * (n - 1)) * MOST;
    void *registered;
    LS_TRY(ls_alloc(w, room, LS_MEM_DATA, &registered));
    unsigned char *private = malloc(room);
    LS_EXPECT(private, "no memory for a test");
    ls_status st = LS_OK;
    unsigned seed = 1u + (unsigned)me;
    for (int turn = 0; turn < 20 && st == LS_OK; turn++) {
        ls_p2p op[LS_P2P_BATCH];
        unsigned char *at[2] = { registered, private };
        int nop = 0, sent[LS_TEST_RANKS] = { 0 }, got[LS_TEST_RANKS] = { 0 };
        while (nop < 2 * EACH * (n - 1)) {
            seed = seed * 1664525u + 1013904223u;
            int peer = (int)(seed >> 10) % n, which = seed >> 8 & 1;
            int *count = which ? sent : got;
            if (peer == me || count[peer] == EACH) continue;
            int i = count[peer]++;
            size_t nbytes = size_of(turn + i * 5 + (which ? me : peer));
            unsigned char **p = &at[seed >> 9 & 1];
            op[nop] = (ls_p2p){ .count = nbytes, .dtype = LS_U8, .peer = peer };
            if (which) op[nop].send = *p, write_message(*p, nbytes, me, peer, i);
            else op[nop].recv = *p, memset(*p, 0xee, nbytes);
            *p += nbytes;
            nop++;
        }
        st = ls_p2p_batch(g, op, nop);
        memset(got, 0, sizeof got);
        for (int k = 0; k < nop && st == LS_OK; k++)
            if (op[k].recv) st = read_message(op[k].recv, op[k].count, op[k].peer, me, got[op[k].peer]++);
    }
    if (st == LS_OK) st = ls_p2p_batch(g, NULL, 0);
    free(private);
    return st;
}

static void batches_have_no_order_that_deadlocks(void **state)
{
    (void)state;
    everywhere(LS_TEST_THREADS, 2, all_with_all);
    everywhere(LS_TEST_THREADS, 5, all_with_all);
    everywhere(LS_TEST_PROCESSES, 3, all_with_all);
}

/* --- several in flight ------------------------------------------------------------------------------------------ */

#define FLIGHT 30

/* Started in order on both sides, waited for in an order of each rank's own, mixed with blocking ones. */
static ls_status in_order(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w);
    int me = ls_world_rank(w), peer = 1 - me;
    unsigned char *p = malloc((size_t)2 * FLIGHT * MOST);
    ls_work *work[2 * FLIGHT];
    LS_EXPECT(p, "no memory for a test");
    ls_status st = LS_OK;
    for (int turn = 0; turn < 3 && st == LS_OK; turn++) {
        for (int k = 0; k < 2 * FLIGHT && st == LS_OK; k++) {
            bool sends = k % 2 == me;
            unsigned char *x = p + (size_t)k * MOST;
            size_t nbytes = size_of(k / 2 + turn);
            if (sends) write_message(x, nbytes, me, peer, k / 2);
            const ls_p2p op = { .send = sends ? x : NULL, .recv = sends ? NULL : x, .count = nbytes, .dtype = LS_U8,
                                .peer = peer };
            st = ls_p2p_start(g, &op, "in order", &work[k]);
        }
        unsigned seed = (unsigned)(me + turn);
        for (int left = 2 * FLIGHT; left > 0 && st == LS_OK; left--) {
            seed = seed * 1664525u + 1013904223u;
            int k = (int)(seed >> 8) % (2 * FLIGHT);
            while (!work[k]) k = (k + 1) % (2 * FLIGHT);
            if (seed & 64 && ls_work_test(work[k]) < 0) st = ls_fail(LS_INTERNAL, "%s", ls_last_error());
            if (st == LS_OK) st = ls_work_wait(work[k]);
            work[k] = NULL;
            if (st == LS_OK && k % 2 != me)
                st = read_message(p + (size_t)k * MOST, size_of(k / 2 + turn), peer, me, k / 2);
        }
        for (int i = 0; i < 200 && st == LS_OK; i++) { /* ping, pong */
            size_t nbytes = size_of(i) % 5000;
            if (me == 0) write_message(p, nbytes, me, peer, i);
            st = me == 0 ? ls_send(g, p, nbytes, LS_U8, peer) : ls_recv(g, p, nbytes, LS_U8, peer);
            if (st == LS_OK) st = me == 0 ? ls_recv(g, p, nbytes, LS_U8, peer) : ls_send(g, p, nbytes, LS_U8, peer);
            if (st == LS_OK) st = read_message(p, nbytes, 0, 1, i);
        }
    }
    free(p);
    return st;
}

static void messages_of_a_pair_are_matched_in_order(void **state)
{
    (void)state;
    everywhere(LS_TEST_THREADS, 2, in_order);
    everywhere(LS_TEST_PROCESSES, 2, in_order);
}

/* --- beside collectives ------------------------------------------------------------------------------------------ */

/* Large ones, to and fro and both ways at once, into registered memory and private. */
static ls_status large_ones(ls_world *w, void *arg)
{
    static const size_t sizes[] = { 1u << 20, (1u << 20) + 3, 2500001, (17u << 20) + 1 };
    ls_group *g = ls_world_group(w);
    int me = ls_world_rank(w), peer = 1 - me;
    size_t room = sizes[3];
    void *p[2];
    (void)arg;
    for (int i = 0; i < 2; i++) LS_TRY(ls_alloc(w, room, LS_MEM_DATA, &p[i]));
    unsigned char *private = malloc(room);
    LS_EXPECT(private, "no memory for a test");
    ls_status st = LS_OK;
    for (int i = 0; i < 12 && st == LS_OK; i++) {
        size_t n = sizes[i % 4];
        unsigned char *out = i % 3 == 2 ? private : p[1];
        write_message(p[0], n, me, peer, i);
        memset(out, 0, n);
        if (i % 2) {
            ls_p2p op[2] = { { .send = p[0], .count = n, .dtype = LS_U8, .peer = peer },
                             { .recv = out, .count = n, .dtype = LS_U8, .peer = peer } };
            st = ls_p2p_batch(g, op, 2);
        } else {
            if (me == 0) st = ls_send(g, p[0], n, LS_U8, peer);
            if (st == LS_OK) st = ls_recv(g, out, n, LS_U8, peer);
            if (st == LS_OK && me == 1) st = ls_send(g, p[0], n, LS_U8, peer);
        }
        if (st == LS_OK) st = read_message(out, n, peer, me, i);
    }
    free(private);
    return st;
}

static void large_messages_are_copied_by_both_sides(void **state)
{
    (void)state;
    for (int thread = 0; thread < 2; thread++)
        for (int mode = 0; mode < 2; mode++) {
            ls_world_opts o = { .transport = mode ? "shm" : "mixed", .arena_bytes = 48u << 20,
                                .progress = thread ? LS_PROGRESS_THREAD : LS_PROGRESS_INLINE };
            ls_rank_report r = ls_test_ranks(mode ? LS_TEST_PROCESSES : LS_TEST_THREADS, 2, &o, large_ones, NULL);
            if (r.failed) fail_msg("%s%s: %s", o.transport, thread ? ", progress thread" : "", r.text);
        }
}

static ls_status start_message(ls_group *g, const void *in, void *out, size_t n, int peer, ls_work **work)
{
    const ls_p2p op = { .send = in, .recv = out, .count = n, .dtype = LS_F32, .peer = peer };
    return ls_p2p_start(g, &op, NULL, work);
}

static ls_status start_sum(ls_group *g, float *x, size_t n, ls_work **work)
{
    ls_coll_args a = { .coll = LS_ALL_REDUCE, .out = x, .count = n, .dtype = LS_F32 };
    return ls_coll_start(g, &a, work);
}

/* Each rank has a message and a sum in flight, started in opposite orders; whichever is waited for first. */
static ls_status crossed(ls_world *w, void *arg)
{
    (void)arg;
    enum { N = 5000 };
    ls_group *g = ls_world_group(w);
    int me = ls_world_rank(w);
    float *x = calloc(2 * N, sizeof *x);
    LS_EXPECT(x, "no memory for a test");
    ls_status st = LS_OK;
    for (int turn = 0; turn < 8 && st == LS_OK; turn++) {
        ls_work *message, *sum = NULL;
        float *sent = x, *summed = x + N;
        for (int i = 0; i < N; i++) sent[i] = me == 0 ? -1.0f : (float)i, summed[i] = 1.0f;
        bool late = (turn & 1) != 0, blocking = (turn & 2) != 0, sum_first = (turn & 4) != 0;
        if (me == 0) { /* expects the message first, and the sum behind it */
            st = start_message(g, NULL, sent, N, 1, &message);
            if (st == LS_OK && blocking) st = ls_all_reduce(g, NULL, summed, N, LS_F32, LS_SUM);
            else if (st == LS_OK) st = start_sum(g, summed, N, &sum);
            if (st == LS_OK && sum_first) st = ls_work_wait(sum), sum = NULL;
            if (st == LS_OK) st = ls_work_wait(message);
            if (st == LS_OK) st = ls_work_wait(sum);
        } else { /* the sum first; the message when it is complete, or behind it */
            st = start_sum(g, summed, N, &sum);
            if (st == LS_OK && late) st = ls_work_wait(sum), sum = NULL;
            if (st == LS_OK) st = ls_send(g, sent, N, LS_F32, 0);
            if (st == LS_OK) st = ls_work_wait(sum);
        }
        if (st == LS_OK && (sent[N - 1] != N - 1 || summed[N - 1] != 2.0f)) st = ls_fail(LS_INTERNAL, "wrong data");
    }
    free(x);
    return st;
}

static void neither_waits_for_the_other(void **state)
{
    (void)state;
    everywhere(LS_TEST_THREADS, 2, crossed);
    everywhere(LS_TEST_PROCESSES, 2, crossed);
}

/* Rank 0 waits for rank 2, which is late; rank 1's message to it passes, and so does its own to rank 1. */
static ls_status other_pairs(ls_world *w, void *arg)
{
    (void)arg;
    enum { N = 30000 };
    ls_group *g = ls_world_group(w);
    int me = ls_world_rank(w);
    float *x = calloc(3 * N, sizeof *x);
    LS_EXPECT(x, "no memory for a test");
    ls_status st = LS_OK;
    ls_work *work[2];
    if (me == 0) {
        st = start_message(g, NULL, x, N, 2, &work[0]);
        if (st == LS_OK) st = start_message(g, x + N, NULL, N, 2, &work[1]);
        if (st == LS_OK) st = ls_recv(g, x + 2 * N, N, LS_F32, 1);
        if (st == LS_OK) st = ls_send(g, x + 2 * N, N, LS_F32, 1);
        if (st == LS_OK) st = ls_work_wait(work[0]);
        if (st == LS_OK) st = ls_work_wait(work[1]);
    } else if (me == 1) { /* only then does rank 2 learn that it may begin */
        st = ls_send(g, x, N, LS_F32, 0);
        if (st == LS_OK) st = ls_recv(g, x, N, LS_F32, 0);
        if (st == LS_OK) st = ls_send(g, x, 1, LS_F32, 2);
    } else {
        st = ls_recv(g, x, 1, LS_F32, 1);
        if (st == LS_OK) st = ls_recv(g, x, N, LS_F32, 0);
        if (st == LS_OK) st = ls_send(g, x, N, LS_F32, 0);
    }
    free(x);
    return st;
}

static void pairs_and_directions_do_not_wait_for_each_other(void **state)
{
    (void)state;
    everywhere(LS_TEST_THREADS, 3, other_pairs);
}

/* --- what is refused ------------------------------------------------------------------------------------------------
 */

static ls_status refusals(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w);
    int me = ls_world_rank(w), peer = 1 - me;
    float x[8] = { 0 };
    const struct { ls_p2p op; const char *says;
    } row[] = {
        { { .send = x, .recv = x, .count = 1, .peer = peer }, "message 1 of a batch: a message sends and receives at once" },
        { { .send = x, .count = 1, .peer = 2 }, "cannot send to rank 2: expected another rank from 0 to 1" },
        { { .recv = x, .count = 1, .peer = -1 }, "cannot receive from rank -1" },
        { { .send = x, .count = 1, .peer = me }, "expected another rank from 0 to 1" },
        { { .send = x, .count = 1, .dtype = LS_DTYPES, .peer = peer }, "send: dtype number 7 does not exist" },
        { { .recv = x, .count = SIZE_MAX / 2, .peer = peer },
          "recv: 9223372036854775807 elements of float are more than" },
        { { .count = 3, .peer = peer }, "recv: no buffer for 3 elements of float" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_p2p op[2] = { { .send = x, .count = 4, .peer = peer }, row[i].op };
        LS_EXPECT(ls_p2p_batch(g, op, 2) == LS_INVALID, "row %zu is taken", i);
        LS_EXPECT(strstr(ls_last_error(), row[i].says), "'%s' does not say '%s'", ls_last_error(), row[i].says);
    }
    static ls_p2p many[LS_P2P_BATCH + 1];
    LS_EXPECT(ls_p2p_batch(g, many, LS_P2P_BATCH + 1) == LS_INVALID, "a batch of 129");
    LS_EXPECT(strstr(ls_last_error(), "a batch of 129 messages: expected 0 to 128"), "%s", ls_last_error());
    LS_EXPECT(ls_p2p_batch(g, many, -1) == LS_INVALID && ls_p2p_batch(g, NULL, 1) == LS_INVALID, "half a batch");
    LS_EXPECT(ls_p2p_batch(NULL, many, 1) == LS_INVALID, "a batch of no group");
    ls_work *none;
    LS_EXPECT(ls_p2p_start(g, NULL, NULL, &none) == LS_INVALID && !none, "no message");
    LS_EXPECT(strstr(ls_last_error(), "expected an ls_p2p, found NULL"), "%s", ls_last_error());
    LS_EXPECT(ls_send(g, NULL, 1, LS_F32, peer) == LS_INVALID, "nothing is sent");
    LS_EXPECT(strstr(ls_last_error(), "send: no buffer for 1 elements"), "%s", ls_last_error());
    LS_EXPECT(ls_recv(g, x, 1, LS_F32, 7) == LS_INVALID, "received from nobody");
    LS_EXPECT(ls_send(g, x, (size_t)1 << 37, LS_U8, peer) == LS_UNSUPPORTED, "a count that no signature holds is sent");
    LS_EXPECT(strstr(ls_last_error(), "send: 137438953472 elements of uint8: one message has at most 137438953471"), "%s",
              ls_last_error());
    return ls_barrier(g); /* none of this has numbered a message: */
}

static ls_status fill_up(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w);
    ls_work *work[LS_WORKS + 1];
    float x[LS_WORKS + 1][4];
    int me = ls_world_rank(w);
    LS_TRY(refusals(w, NULL));
    for (int turn = 0; turn < 3; turn++) {
        for (int k = 0; k < LS_WORKS; k++) {
            for (int i = 0; i < 4; i++) x[k][i] = me ? -1.0f : (float)k;
            LS_TRY(start_message(g, me ? NULL : x[k], me ? x[k] : NULL, 4, 1 - me, &work[k]));
        }
        ls_status st = start_message(g, me ? NULL : x[LS_WORKS], me ? x[LS_WORKS] : NULL, 4, 1 - me, &work[LS_WORKS]);
        LS_EXPECT(st == LS_INVALID && !work[LS_WORKS], "one too many gives %d", (int)st);
        LS_EXPECT(strstr(ls_last_error(), "64 messages were started on group world"), "%s", ls_last_error());
        static float y[2][LS_P2P_BATCH];
        ls_p2p op[LS_P2P_BATCH];
        for (int k = 0; k < LS_P2P_BATCH; k++) {
            op[k] = (ls_p2p){ .count = 1, .peer = 1 - me };
            if (me) op[k].recv = &y[1][k];
            else op[k].send = &y[0][k], y[0][k] = (float)k;
        }
        LS_TRY(ls_p2p_batch(g, op, LS_P2P_BATCH)); /* there is room for that, and the 64 are ahead of it */
        for (int k = 0; k < LS_P2P_BATCH; k++) LS_EXPECT(!me || y[1][k] == (float)k, "%g", (double)y[1][k]);
        for (int k = LS_WORKS - 1; k >= 0; k--) LS_TRY(ls_work_wait(work[k]));
        for (int k = 0; k < LS_WORKS; k++) LS_EXPECT(x[k][3] == (float)k, "message %d: %g", k, (double)x[k][3]);
    }
    return LS_OK;
}

static void says_what_is_wrong_and_goes_on(void **state)
{
    (void)state;
    everywhere(LS_TEST_THREADS, 2, fill_up);
}

/* --- what goes wrong --------------------------------------------------------------------------------------------- */

typedef struct fate {
    int row;
    struct { ls_status status; char text[512]; } rank[2]; /* of threads: shared */
} fate;

enum { OTHER_COUNT, OTHER_TYPE, OTHER_ORDER, LARGE_COUNT, NEVER_SENT, NEVER_RECEIVED, BOTH_RECEIVE, FATES };

static ls_status meet_fate(ls_world *w, void *arg)
{
    fate *f = arg;
    ls_group *g = ls_world_group(w);
    int me = ls_world_rank(w), peer = 1 - me;
    size_t large = 5u << 20; /* more than sockets hold: a send of it needs a receiver */
    float *x = calloc(large + 1, sizeof *x);
    LS_EXPECT(x, "no memory for a test");
    ls_status st = me ? ls_recv(g, x, 3, LS_F32, peer) : ls_send(g, x, 3, LS_F32, peer); /* all is well so far */
    if (st == LS_OK && me == 0)
        switch (f->row) {
        case OTHER_COUNT: st = ls_send(g, x, 12, LS_F32, peer); break;
        case OTHER_TYPE: st = ls_send(g, x, 10, LS_I32, peer); break;
        case OTHER_ORDER:
            st = ls_send(g, x, 20, LS_F32, peer);
            if (st == LS_OK) st = ls_send(g, x, 10, LS_F32, peer);
            break;
        case LARGE_COUNT: st = ls_send(g, x, large, LS_F32, peer); break;
        case NEVER_SENT: st = ls_barrier(g); break;
        case NEVER_RECEIVED: st = ls_send(g, x, large, LS_F32, peer); break;
        case BOTH_RECEIVE: st = ls_recv(g, x, 10, LS_F32, peer); break;
        }
    else if (st == LS_OK && f->row != NEVER_RECEIVED) st = ls_recv(g, x, 10, LS_F32, peer);
    if (st == LS_OK) st = ls_barrier(g);
    f->rank[me].status = st;
    snprintf(f->rank[me].text, sizeof f->rank[me].text, "%s", ls_last_error());
    free(x);
    return LS_OK; /* the finding is the result */
}

static void both_sides_learn_what_went_wrong(void **state)
{
    (void)state;
    static const struct { bool hung; const char *says, *too;
    } row[FATES] = {
        { false, "rank 1 called recv #1 of world: 10 float from rank 0",
          "but rank 0 called send #1 of world: 12 float to rank 1: " },
        { false, "recv #1 of world: 10 float from rank 0",
          "send #1 of world: 10 int32 to rank 1: sends and receives of a pair" },
        { false, "recv #1 of world: 10 float from rank 0", "send #1 of world: 20 float to rank 1" },
        { false, "recv #1 of world: 10 float from rank 0", "send #1 of world: 5242880 float to rank 1" },
        { true, "in recv #1 of world: 10 float from rank 0 for rank 0 (pid ",
          "which is in step 0, in barrier #0 of world" },
        { true, " s in send #1 of world: 5242880 float to rank 1 for rank 1 (pid ",
          "which is in step 0, in barrier #0" },
        { true, ": 10 float from rank",
          "which is in step 0, in recv #" },
    };
    for (int wire = 0; wire < 2; wire++)
        for (int thread = 0; thread < 2; thread++)
            for (int i = 0; i < FATES; i++) {
                fate f = { .row = i };
                ls_world_opts o = { .transport = wires[wire],
                                    .arena_bytes = 4u << 20,
                                    .coll_timeout_ns = row[i].hung ? 300 * MS : 0,
                                    .progress = thread ? LS_PROGRESS_THREAD : LS_PROGRESS_INLINE };
                (void)ls_test_ranks_in_step(LS_TEST_THREADS, 2, &o, meet_fate, &f);
                for (int r = 0; r < 2; r++) {
                    const char *text = f.rank[r].text;
                    bool fits = row[i].hung ? f.rank[r].status == LS_RANK_HUNG || f.rank[r].status == LS_ABORTED
                                            : f.rank[r].status == LS_COLL_MISMATCH;
                    /* whose deadline comes first tells; only the one who waits for the message names it */
                    bool barrier = row[i].hung && strstr(text, "in barrier #0 of world for rank");
                    if (!fits)
                        fail_msg("fate %d over %s, thread %d: rank %d gets %d: %s", i, wires[wire], thread, r,
                                 (int)f.rank[r].status, text);
                    if (!barrier && (!strstr(text, row[i].says) || !strstr(text, row[i].too)))
                        fail_msg("fate %d over %s, thread %d: rank %d reads '%s'", i, wires[wire], thread, r, text);
                    if (barrier && !strstr(text, "which is in step 0, in "))
                        fail_msg("fate %d: rank %d reads '%s'", i, r, text);
                }
            }
}

/* --- groups that go while messages are on their way --------------------------------------------------------------- */

#define LEFT 60 /* as many as are on their way before a sender waits */

/* Rank 0 sends what nobody receives, of every size, blocking and not, and the group goes. The next group has the same
 * channel, and its messages are its own. */
static ls_status leaves_messages(ls_world *w, void *arg)
{
    (void)arg;
    int me = ls_world_rank(w), n = ls_world_size(w);
    unsigned char *p = calloc(2, MOST);
    float *large = calloc(1u << 20, sizeof *large);
    void *registered;
    LS_EXPECT(p && large, "no memory for a test");
    LS_TRY(ls_alloc(w, 4u << 20, LS_MEM_DATA, &registered));
    ls_status st = LS_OK;
    for (int turn = 0; turn < 3 && st == LS_OK; turn++) {
        ls_group *g;
        ls_work *unused;
        LS_TRY(ls_group_split(ls_world_group(w), 0, &g));
        int channel = g->channel;
        float seven = 7.0f, got = 0;
        if (me == 0) {
            for (int i = 0; i < (turn == 0 ? LEFT : 2) && st == LS_OK; i++)
                st = ls_send(g, &seven, (size_t)i % 2, LS_F32, 1);
            for (int i = 0; i < 3 && turn == 1 && st == LS_OK; i++)
                st = start_message(g, i == 2 ? registered : large, NULL, i == 1 ? 20000u : 1u << 20, n - 1, &unused);
        }
        if (me == 1 && turn == 2 && st == LS_OK) st = ls_recv(g, &got, 0, LS_F32, 0); /* the first of two */
        if (st == LS_OK) st = ls_barrier(g);
        ls_group_destroy(g);
        LS_TRY(st);
        LS_TRY(ls_group_split(ls_world_group(w), 0, &g));
        LS_EXPECT(g->channel == channel, "channel %d, expected %d again", g->channel, channel);
        for (int i = 0; i < 3 && st == LS_OK; i++) {
            float nine = 9.0f + (float)i;
            got = 0;
            for (int r = 1; r < n && me == 0 && st == LS_OK; r++) st = ls_send(g, &nine, 1, LS_F32, r);
            if (me > 0) st = ls_recv(g, &got, 1, LS_F32, 0);
            if (me > 0 && st == LS_OK && got != nine)
                st = ls_fail(LS_INTERNAL, "turn %d: message %d is %g, expected %g", turn, i, (double)got, (double)nine);
        }
        ls_group_destroy(g);
    }
    free(p);
    free(large);
    return st;
}

static void a_destroyed_group_leaves_no_messages(void **state)
{
    (void)state;
    everywhere(LS_TEST_THREADS, 3, leaves_messages);
    everywhere(LS_TEST_PROCESSES, 2, leaves_messages);
}

/* A message that the group's end has overlooked: for the next group it is another group's. */
static ls_status overlooks_one(ls_world *w, void *arg)
{
    fate *f = arg;
    int me = ls_world_rank(w);
    float x = 7.0f;
    ls_group *g;
    for (int i = 0; i < 2; i++) {
        LS_TRY(ls_group_split(ls_world_group(w), 0, &g));
        LS_TRY(ls_barrier(ls_world_group(w))); /* rank 0 has named the new group: reports know no other one by then */
        if (me == 0) LS_TRY(ls_send(g, &x, 1, LS_F32, 1));
        if (me == 0 && i == 0) g->p2p_seq[1][0]--; /* it is not counted */
        if (me == 0 || i == 0) LS_TRY(ls_barrier(g));
        if (me == 1 && i == 1) f->rank[1].status = ls_recv(g, &x, 1, LS_F32, 0);
        if (i == 0) ls_group_destroy(g);
    }
    return LS_OK;
}

static void a_message_of_another_group_is_refused(void **state)
{
    (void)state;
    for (int wire = 0; wire < 2; wire++) {
        fate f = { 0 };
        ls_world_opts o = { .transport = wires[wire] };
        ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 2, &o, overlooks_one, &f);
        assert_int_equal(f.rank[1].status, LS_COLL_MISMATCH);
        if (!strstr(r.text, "recv #0 of ranks 0, 1: 1 float from rank 0") ||
            !strstr(r.text, "send #0 of another group: 1 float to rank 1"))
            fail_msg("over %s: %s", wires[wire], r.text);
    }
}

/* --- tensors reduced together ------------------------------------------------------------------------------------- */

static ls_status many_tensors(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w);
    int n = ls_world_size(w), me = ls_world_rank(w);
    enum { TENSORS = 37 };
    void *tensor[TENSORS];
    size_t count[TENSORS];
    for (int big = 0; big < 3; big++) { /* the last does not fit into the arena */
        for (int t = 0; t < TENSORS; t++) {
            count[t] = (size_t)(t * t * 3) % 101 * (big == 0 ? 1 : big == 1 ? 30 : 2000);
            float *x = malloc((count[t] + 1) * sizeof *x);
            LS_EXPECT(x, "no memory for a test");
            for (size_t i = 0; i <= count[t]; i++) x[i] = (float)(me + t) + (float)(i % 9);
            tensor[t] = x;
        }
        ls_status st = ls_all_reduce_coalesced(g, tensor, count, TENSORS, LS_F32, LS_SUM);
        for (int t = 0; t < TENSORS; t++) {
            const float *x = tensor[t];
            for (size_t i = 0; st == LS_OK && i < count[t]; i++) {
                float want = (float)(n * (n - 1) / 2 + n * t) + (float)n * (float)(i % 9);
                if (x[i] != want)
                    st = ls_fail(LS_INTERNAL, "tensor %d: x[%zu] is %g, expected %g", t, i, (double)x[i], (double)want);
            }
            float guard = (float)(me + t) + (float)(count[t] % 9);
            if (st == LS_OK && x[count[t]] != guard) st = ls_fail(LS_INTERNAL, "written past tensor %d", t);
        }
        for (int t = 0; t < TENSORS; t++) free(tensor[t]);
        LS_TRY(st);
    }
    LS_TRY(ls_all_reduce_coalesced(g, NULL, NULL, 0, LS_F32, LS_SUM));
    count[0] = 3;
    tensor[0] = NULL;
    LS_EXPECT(ls_all_reduce_coalesced(g, tensor, count, 1, LS_F32, LS_SUM) == LS_INVALID, "a tensor of nothing");
    LS_EXPECT(strstr(ls_last_error(), "no buffer for tensor 0 of 3 elements"), "%s", ls_last_error());
    LS_EXPECT(ls_all_reduce_coalesced(g, NULL, NULL, 1, LS_F32, LS_SUM) == LS_INVALID, "no list");
    LS_EXPECT(ls_all_reduce_coalesced(g, tensor, count, 1, LS_DTYPES, LS_SUM) == LS_INVALID, "no type");
    LS_EXPECT(ls_all_reduce_coalesced(NULL, tensor, count, 1, LS_F32, LS_SUM) == LS_INVALID, "no group");
    count[0] = SIZE_MAX / 8;
    tensor[0] = count;
    LS_EXPECT(ls_all_reduce_coalesced(g, tensor, count, 1, LS_F32, LS_SUM) == LS_INVALID, "too much");
    return LS_OK;
}

static void small_tensors_are_reduced_together(void **state)
{
    (void)state;
    everywhere(LS_TEST_THREADS, 3, many_tensors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_have_no_order_that_deadlocks),
        cmocka_unit_test(messages_of_a_pair_are_matched_in_order),
        cmocka_unit_test(large_messages_are_copied_by_both_sides),
        cmocka_unit_test(neither_waits_for_the_other),
        cmocka_unit_test(pairs_and_directions_do_not_wait_for_each_other),
        cmocka_unit_test(says_what_is_wrong_and_goes_on),
        cmocka_unit_test(both_sides_learn_what_went_wrong),
        cmocka_unit_test(a_destroyed_group_leaves_no_messages),
        cmocka_unit_test(a_message_of_another_group_is_refused),
        cmocka_unit_test(small_tensors_are_reduced_together),
    };
    return cmocka_run_group_tests_name("p2p", tests, NULL, NULL);
}
