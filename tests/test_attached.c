/* Private memory read where it lies: the bits are those of the staged way, for every collective that does it and for
 * messages; it is done where every member can read every other one's memory and nowhere else; what goes wrong in the
 * middle is named. Where this system refuses such reads, the tests say so and look at the staged way alone. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/context.h"
#include "base/env.h"
#include "group/engine.h"
#include "group/select.h"
#include "harness.h"
#include "harness_values.h"
#include "net/attach.h"

#define PAD 64
#define MOST ((size_t)600011 + 512)     /* bytes of a vector: several turns, */
#define BYTES (3 * MOST + 2 * PAD)            /* and of a buffer: uneven blocks may be twice as many */

/* --- an env that refuses ----------------------------------------------------------------------------------- */

enum { NOBODY = -2, ALL = -1 };
enum event { NOTHING, FAILS, PEER_DIES, JOB_ABORTED };

static struct {
    int refused, error;      /* which rank may not read, and what it is told; error 0: it reads something else */
    enum event event;        /* at the second read of a vector by rank 0 */
    int event_error;
    ls_world *w;             /* of this process */
    _Atomic int reads;       /* of vectors, by this process */
} fake;

static int fake_read(int pid, uint64_t address, void *to, size_t n)
{
    const int rank = ls_context_get()->rank;
    if (fake.refused == ALL || fake.refused == rank) {
        memset(to, 0x33, n);
        return -fake.error;
    }
    const bool vector = n > sizeof(uint64_t) * LS_ATTACH_PROOF;
    if (vector && rank != 0 && fake.event == JOB_ABORTED && atomic_load(&fake.reads) > 0) { /* rank 0 has freed its */
        const uint64_t end = ls_env_real.mono_ns() + 10000000000u;
        for (; ls_env_real.mono_ns() < end; ls_env_real.yield())
            if (atomic_load(&fake.w->page->abort_by)) return -EFAULT;
    }
    if (vector && atomic_fetch_add(&fake.reads, 1) == 1 && rank == 0 && fake.event != NOTHING) {
        if (fake.event == FAILS) return -fake.event_error;
        if (fake.event == JOB_ABORTED) (void)ls_page_abort(fake.w->page, 2, LS_INTERNAL, "rank 1: the vector is freed");
        if (fake.event == PEER_DIES) {
            kill(pid, SIGKILL);
            for (char s = 'R'; s != 0 && s != 'Z'; s = ls_env_real.proc_state(pid)) ls_env_real.yield();
        }
    }
    return ls_env_real.read_process(pid, address, to, n);
}

/* Where ranks share cores, some vectors go another way than the tables say. */
static int cores_for_all(void) { return 8; }

static ls_env env;
static ls_context context;

static int enter(void **state)
{
    (void)state;
    env = ls_env_real;
    env.read_process = fake_read;
    env.cpus = cores_for_all;
    fake.refused = NOBODY;
    fake.event = NOTHING;
    context = (ls_context){ .env = &env, .rank = -1, .log_level = -1 };
    *state = ls_context_swap(&context);
    return 0;
}

static int leave(void **state)
{
    ls_context_swap(*state);
    return 0;
}

/* --- what this system allows ------------------------------------------------------------------------------- */

/* Whether every rank can read every other one's private memory, found without the code under test. */
static ls_status system_allows(ls_group *g, bool *out)
{
    struct card { int64_t pid, at, value; } all[LS_TEST_RANKS];
    volatile int64_t mine = 0x5eed + g->rank;
    int32_t can = 1;
    all[g->rank] = (struct card){ getpid(), (int64_t)(uintptr_t)&mine, mine };
    LS_TRY(ls_all_gather(g, NULL, all, (size_t)g->size * 3, LS_I64));
    for (int r = 0; r < g->size; r++) {
        int64_t got = 0;
        struct iovec here = { &got, sizeof got }, there = { (void *)(uintptr_t)all[r].at, sizeof got };
        if (r == g->rank) continue;
        if (process_vm_readv((pid_t)all[r].pid, &here, 1, &there, 1, 0) != sizeof got) can = 0;
        if (got != all[r].value) can = 0;
    }
    LS_TRY(ls_all_reduce(g, NULL, &can, 1, LS_I32, LS_MIN));
    *out = can;
    return LS_OK;
}

static _Atomic int *refusals; /* worlds in which this system refused, of all processes */

static ls_status expect_attached(ls_group *g, bool asked)
{
    bool can;
    LS_TRY(system_allows(g, &can));
    if (!can && g->rank == 0) atomic_fetch_add(refusals, 1);
    LS_EXPECT(g->attached == (can && asked), "rank %d: attached is %d where the system says %d and the env %d", g->rank,
              g->attached, can, asked);
    return LS_OK;
}

static void say_refusals(const char *what)
{
    const int n = atomic_exchange(refusals, 0);
    if (n > 0)
        print_message("%s: this system refuses process_vm_readv between ranks, in %d worlds: staged alone\n", what, n);
}

/* --- collectives, both ways -------------------------------------------------------------------------------- */

enum place { PRIVATE, FIRST_REGISTERED, FIRST_PRIVATE, PLACES };

typedef struct vectors {
    ls_coll coll;
    ls_dtype dtype;
    size_t count;
    enum place place;
    bool in_place, uneven;
} vectors;

typedef struct buffers {
    char *registered[2], *private[2], *first; /* first: the result of the staged way */
} buffers;

static bool is_private(const vectors *x, int rank)
{
    return x->place == PRIVATE || (x->place == FIRST_PRIVATE) == (rank == 0);
}

static ls_status call(ls_group *g, const vectors *x, char *in, char *out)
{
    size_t send[LS_TEST_RANKS], recv[LS_TEST_RANKS];
    const size_t elem = ls_dtype_size(x->dtype);
    for (int r = 0; r < g->size; r++) {
        const bool blocks = x->coll == LS_ALL_TO_ALL;
        send[r] = blocks ? ls_test_block(x->count, g->rank, r, g->size, true)
                         : ls_test_share(x->count, r, g->size, true).count;
        recv[r] = ls_test_block(x->count, r, g->rank, g->size, true);
    }
    const void *from = x->in_place ? NULL : in;
    if (x->coll == LS_ALL_TO_ALL)
        return x->uneven ? ls_all_to_all_v(g, from, send, out, recv, x->dtype)
                         : ls_all_to_all(g, from, out, x->count, x->dtype);
    const ls_range own = ls_test_share(x->count, g->rank, g->size, x->uneven);
    if (x->in_place) memcpy(out + own.first * elem, in, own.count * elem);
    return x->uneven ? ls_all_gather_v(g, from, out, send, x->dtype) : ls_all_gather(g, from, out, x->count, x->dtype);
}

/* No period: what comes from elsewhere in the vector is seen. */
static char value(size_t i, int rank, int turn)
{
    return (char)((uint32_t)i * 2654435761u >> 21 ^ (uint32_t)(rank * 37 + turn));
}

/* The same call staged, and read where it lies if that may be: equal buffers, guards too, and equal counts of bytes. */
static ls_status both_ways(ls_group *g, const vectors *x, buffers *b, bool may)
{
    double *point = &g->e->tuning.cost.in_memory.attach;
    char **buf = is_private(x, g->rank) ? b->private : b->registered;
    const size_t size = 3 * x->count * ls_dtype_size(x->dtype) + 2 * PAD;
    uint64_t bytes[2];
    for (int way = 0; way < 2; way++) {
        *point = way ? 0.0 : LS_COST_NEVER;
        for (size_t i = 0; i < size; i++) buf[0][i] = value(i, g->rank, 0);
        memset(buf[1], 0x5a, size);
        if (x->in_place && x->coll == LS_ALL_TO_ALL) memcpy(buf[1], buf[0], size);
        const int reads = atomic_load(&fake.reads);
        ls_comm_stats before, after;
        ls_comm_stats_read(g->w, &before);
        LS_TRY(call(g, x, buf[0] + PAD, buf[1] + PAD));
        ls_comm_stats_read(g->w, &after);
        bytes[way] = after.bytes - before.bytes;
        const bool can = x->coll == LS_ALL_TO_ALL ? !x->in_place : g->size == 2;
        const bool want = way == 1 && may && can;
        LS_EXPECT((strcmp(ls_select_ran(g), "attached") == 0) == want,
                  "rank %d: %s of %zu %s, place %d, in place %d, uneven %d ran as %s", g->rank, ls_coll_name(x->coll),
                  x->count, ls_dtype_name(x->dtype), x->place, x->in_place, x->uneven, ls_select_ran(g));
        LS_EXPECT(want || g->w->threads || atomic_load(&fake.reads) == reads, "rank %d read a peer's memory", g->rank);
        for (size_t i = 0; i < size; i++)
            LS_EXPECT(buf[0][i] == value(i, g->rank, 0), "the input has changed");
        if (way == 0) memcpy(b->first, buf[1], size);
    }
    LS_EXPECT(bytes[0] == bytes[1], "counted %llu bytes staged, %llu read in place", (unsigned long long)bytes[0],
              (unsigned long long)bytes[1]);
    LS_EXPECT(memcmp(b->first, buf[1], size) == 0,
              "rank %d: %s of %zu %s, place %d, in place %d, uneven %d: other bytes", g->rank, ls_coll_name(x->coll),
              x->count, ls_dtype_name(x->dtype), x->place, x->in_place, x->uneven);
    return LS_OK;
}

static ls_status table(ls_world *w, bool may)
{
    ls_group *g = ls_world_group(w);
    static const ls_coll colls[] = { LS_ALL_GATHER, LS_ALL_TO_ALL };
    static const size_t counts[] = { 20011, 33333, 600011 };
    buffers b = { .first = malloc(3 * BYTES) };
    if (!b.first) return ls_fail(LS_NO_MEMORY, "no memory for a test");
    ls_status st = LS_OK;
    for (int i = 0; i < 2 && st == LS_OK; i++) {
        void *p;
        st = ls_alloc(w, BYTES, LS_MEM_DATA, &p);
        b.registered[i] = p;
        b.private[i] = b.first + (size_t)(1 + i) * BYTES;
    }
    for (int turn = 0; turn < 2 * 3 * PLACES * 2 * 2 && st == LS_OK; turn++)
        for (int d = 0; d < LS_DTYPES && st == LS_OK; d++) {
            vectors x = { .coll = colls[turn % 2], .count = counts[turn / 2 % 3],
                          .place = (enum place)(turn / 6 % PLACES), .in_place = turn / 6 / PLACES % 2,
                          .uneven = turn / 12 / PLACES, .dtype = (ls_dtype)d };
            if (x.count > 20011 && ls_dtype_size(x.dtype) > 4) continue;
            if (x.count > 33333 && x.dtype != LS_U8) continue;
            if (!may && d > 0) continue; /* staged in any case: some of them */
            if (d > 0 && (turn / 2 + turn / 6 + d) % 3 != 0 && !getenv("LOCKSTEP_TEST_LONG")) continue; /* each form has each type */
            if (x.coll == LS_ALL_TO_ALL) x.count -= x.count % (size_t)g->size;
            st = both_ways(g, &x, &b, may);
        }
    free(b.first);
    return st;
}

static ls_status whole_table(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w);
    LS_TRY(expect_attached(g, true));
    return table(w, g->attached);
}

static const ls_world_opts opts = { .arena_bytes = (size_t)24 << 20, .coll_timeout_ns = 60000000000u };

static void gives_the_bits_of_slots(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2; mode++)
        for (int n = 2; n <= 5; n++) {
            ls_rank_report r = ls_test_ranks(mode ? LS_TEST_PROCESSES : LS_TEST_THREADS, n, &opts, whole_table, NULL);
            if (r.failed) fail_msg("%d %s: %s", n, mode ? "processes" : "threads", r.text);
        }
    say_refusals("collectives");
}

/* --- refused ----------------------------------------------------------------------------------------------- */

static ls_status refused(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w), *rest;
    LS_TRY(expect_attached(g, false));
    LS_TRY(table(w, false));
    LS_TRY(ls_group_split(g, g->rank == 1 ? 1 : 0, &rest)); /* without the rank that may not, it may be */
    if (rest->size > 1) LS_TRY(expect_attached(rest, fake.refused != ALL));
    ls_group_destroy(rest);
    return LS_OK;
}

static void is_staged_where_one_rank_cannot_read(void **state)
{
    (void)state;
    static const struct { int refused, error; const char *what; } row[] = {
        { ALL, EPERM, "a container" }, { ALL, ENOSYS, "no such call" },       { 1, EPERM, "one rank" },
        { 1, ESRCH, "no process" },    { 1, 0, "another process's memory" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int mode = 0; mode < 2; mode++) {
            fake.refused = row[i].refused;
            fake.error = row[i].error;
            ls_rank_report r = ls_test_ranks(mode ? LS_TEST_PROCESSES : LS_TEST_THREADS, 3, &opts, refused, NULL);
            if (r.failed) fail_msg("%s, %s: %s", row[i].what, mode ? "processes" : "threads", r.text);
        }
    say_refusals("groups without the rank that may not");
}

/* --- messages ---------------------------------------------------------------------------------------------- */

/* One message each way at once, and one that only goes there; p2p has 256 KiB at least. */
static ls_status messages(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w);
    static const size_t sizes[] = { 262143, 262144, 700001, ((size_t)1 << 20) + 5 };
    char *out = malloc((size_t)8 << 20), *in = out + ((size_t)4 << 20);
    const int right = (g->rank + 1) % g->size, left = (g->rank + g->size - 1) % g->size;
    ls_status st = expect_attached(g, true);
    for (int turn = 0; turn < 16 && st == LS_OK; turn++) {
        const size_t n = sizes[turn % 4];
        const bool lends = turn / 4 % 2, both = turn / 8;
        g->e->tuning.cost.in_memory.attach = lends ? 0.0 : LS_COST_NEVER;
        for (size_t i = 0; i < n; i++) out[i] = value(i, g->rank, turn);
        memset(in, 0x5a, n + PAD);
        ls_comm_stats before, after;
        ls_comm_stats_read(w, &before);
        const int reads = atomic_load(&fake.reads);
        ls_p2p op[] = { { .send = out, .count = n, .dtype = LS_U8, .peer = right },
                        { .recv = in, .count = n, .dtype = LS_U8, .peer = left } };
        if (both) st = ls_p2p_batch(g, op, 2);
        else if (g->rank % 2 == 0) st = ls_send(g, out, n, LS_U8, right);
        if (!both && st == LS_OK) st = ls_recv(g, in, n, LS_U8, left);
        if (!both && st == LS_OK && g->rank % 2) st = ls_send(g, out, n, LS_U8, right);
        ls_comm_stats_read(w, &after);
        if (st < 0) break;
        const bool read = atomic_load(&fake.reads) > reads, want = g->attached && lends && n >= 262144;
        if (!w->threads && read != want)
            st = ls_fail(LS_INTERNAL, "%zu bytes, lends %d: read in place is %d", n, lends, read);
        if (after.bytes - before.bytes != n) st = ls_fail(LS_INTERNAL, "%zu bytes counted otherwise", n);
        for (size_t i = 0; i < n + PAD && st == LS_OK; i++)
            if (in[i] != (i < n ? value(i, left, turn) : 0x5a))
                st = ls_fail(LS_INTERNAL, "rank %d: byte %zu of %zu is %d, lends %d", g->rank, i, n, in[i], lends);
    }
    /* one that nobody receives is discarded, and the channel serves the next group */
    for (int turn = 0; turn < 2 && st == LS_OK; turn++) {
        ls_group *part;
        ls_work *k = NULL;
        const ls_p2p alone = { .send = out, .count = 700001, .dtype = LS_U8, .peer = 1 };
        st = ls_group_split(g, 0, &part);
        g->e->tuning.cost.in_memory.attach = 0.0;
        if (st == LS_OK && g->rank == 0 && turn == 0) st = ls_p2p_start(part, &alone, NULL, &k);
        if (st == LS_OK && turn == 1) {
            ls_p2p op = g->rank == 0 ? (ls_p2p){ .send = out, .count = 700001, .dtype = LS_U8, .peer = 1 }
                                     : (ls_p2p){ .recv = in, .count = 700001, .dtype = LS_U8, .peer = 0 };
            if (g->rank < 2) st = ls_p2p_batch(part, &op, 1);
        }
        if (st == LS_OK) ls_group_destroy(part);
        if (w->failed) st = ls_fail(LS_INTERNAL, "destroying a group failed: %s", ls_last_error());
    }
    free(out);
    return st;
}

static void lends_messages(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2; mode++)
        for (int n = 2; n <= 4; n += 2) {
            ls_rank_report r = ls_test_ranks(mode ? LS_TEST_PROCESSES : LS_TEST_THREADS, n, &opts, messages, NULL);
            if (r.failed) fail_msg("%d %s: %s", n, mode ? "processes" : "threads", r.text);
        }
    say_refusals("messages");
}

/* Every rank knows who reads whom on its host: all read all, except the one rank that may not. With `alone` all of them
 * have told what this rank tells. */
static ls_status knows_who_reads(ls_world *w, bool can, bool alone)
{
    for (int r = 0; r < w->size; r++) {
        if (!ls_world_is_local(w, r)) continue;
        const int told = alone ? w->rank : r;
        for (int q = 0; q < w->size; q++) {
            const bool want = ls_world_is_local(w, q) && (told == q || (can && told != fake.refused));
            LS_EXPECT(ls_rank_set_has(&w->reads[r], q) == want, "rank %d reads rank %d: %d", r, q, !want);
        }
    }
    return LS_OK;
}

static void forget_who_reads(ls_world *w)
{
    for (int r = 0; r < w->size; r++) ls_rank_set_free(&w->reads[r]);
    free(w->reads);
    w->reads = NULL;
}

/* As if the ranks were on two hosts in turn, and the others told what this one tells. */
static ls_status meets_on_two_hosts(ls_world *w, bool can)
{
    int *const one_host = w->node, node[70];
    ls_rank_set *const reads = w->reads;
    for (int r = 0; r < w->size; r++) node[r] = r % 2;
    w->node = node;
    w->alone = true;
    ls_status st = ls_attach_meet(w);
    if (st == LS_OK) st = knows_who_reads(w, can, true);
    if (w->reads != reads) forget_who_reads(w);
    w->reads = reads;
    w->alone = false;
    w->node = one_host;
    return st;
}

static ls_status who_reads(ls_world *w, void *arg)
{
    (void)arg;
    uint64_t mine = 0x5eed, got = 0;
    const bool can = ls_env_real.read_process(getpid(), (uint64_t)(uintptr_t)&mine, &got, sizeof got) == 0;
    LS_TRY(knows_who_reads(w, can, false));
    return meets_on_two_hosts(w, can);
}

static void every_rank_knows_who_reads_whom(void **state)
{
    (void)state;
    static const int ranks[] = { 6, 70 }; /* 70: in two words of a set */
    for (int i = 0; i < 2; i++) {
        const ls_world_opts o = { .arena_bytes = (size_t)1 << 20 };
        fake.refused = ranks[i] - 3;
        fake.error = EPERM;
        ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, ranks[i], &o, who_reads, NULL);
        if (r.failed) fail_msg("%d ranks: %s", ranks[i], r.text);
    }
}

/* Of LS_ATTACH_MOST from rank to rank nothing is read in place, of a little less all is; of messages likewise. */
static ls_status the_most(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w);
    const int peer = 1 - g->rank;
    char *in = calloc(4, LS_ATTACH_MOST), *out = in ? in + 2 * LS_ATTACH_MOST : NULL;
    ls_status st = in ? expect_attached(g, true) : ls_fail(LS_NO_MEMORY, "no memory for a test");
    for (int less = 0; less < 2 && st == LS_OK; less++) {
        const size_t n = LS_ATTACH_MOST - (size_t)less, message = LS_ATTACH_MESSAGE_MOST - (size_t)less;
        const ls_p2p op[] = { { .send = in, .count = message, .dtype = LS_U8, .peer = peer },
                              { .recv = out, .count = message, .dtype = LS_U8, .peer = peer } };
        const int reads = atomic_load(&fake.reads);
        if ((st = ls_p2p_batch(g, op, 2)) < 0) break;
        const bool lent = atomic_load(&fake.reads) > reads, want = less && g->attached;
        if (lent != want) st = ls_fail(LS_INTERNAL, "a message of %zu bytes: read in place is %d", message, lent);
        if (st == LS_OK) st = ls_all_to_all(g, in, out, 2 * n, LS_U8);
        if (st == LS_OK && (strcmp(ls_select_ran(g), "attached") == 0) != want)
            st = ls_fail(LS_INTERNAL, "an all_to_all with blocks of %zu bytes ran as %s", n, ls_select_ran(g));
    }
    free(in);
    return st;
}

static void what_is_too_long_goes_past_the_caches(void **state)
{
    (void)state;
    ls_rank_report r = ls_test_ranks(LS_TEST_PROCESSES, 2, &opts, the_most, NULL);
    if (r.failed) fail_msg("%s", r.text);
    say_refusals("the longest");
}

static ls_status other_message(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w);
    const size_t n = 700001;
    char *p = calloc(1, n + 1);
    g->e->tuning.cost.in_memory.attach = 0.0;
    ls_status st = g->rank == 0 ? ls_send(g, p, n, LS_U8, 1) : ls_recv(g, p, n + 1, LS_U8, 0);
    free(p);
    return st;
}

static void another_message_is_named(void **state)
{
    (void)state;
    ls_rank_report r = ls_test_ranks(LS_TEST_PROCESSES, 2, &opts, other_message, NULL);
    assert_int_equal(r.failed, 2);
    assert_int_equal(r.status, LS_COLL_MISMATCH);
    assert_non_null(strstr(r.text, "700001"));
    assert_non_null(strstr(r.text, "700002"));
}

/* --- what goes wrong in the middle ------------------------------------------------------------------------- */

typedef struct outcome {
    bool attached;
    int status[3];
    char text[3][512];
} outcome;

typedef struct disturbed {
    bool message;
    outcome *o;
} disturbed;

static ls_status in_the_middle(ls_world *w, void *arg)
{
    const disturbed *d = arg;
    ls_group *g = ls_world_group(w);
    const size_t n = (size_t)3 << 19;
    char *in = calloc(2, n), *out = in + n;
    g->e->tuning.cost.in_memory.attach = 0.0;
    fake.w = w;
    if (g->rank == 0) d->o->attached = g->attached;
    atomic_store(&fake.reads, 0);
    if (!g->attached) {
        free(in);
        return LS_OK;
    }
    ls_status st;
    const int right = (g->rank + 1) % g->size, left = (g->rank + g->size - 1) % g->size;
    const ls_p2p op[] = { { .send = in, .count = n, .dtype = LS_U8, .peer = right },
                          { .recv = out, .count = n, .dtype = LS_U8, .peer = left } };
    st = d->message ? ls_p2p_batch(g, op, 2) : ls_all_to_all(g, in, out, n, LS_U8);
    d->o->status[g->rank] = st;
    snprintf(d->o->text[g->rank], sizeof d->o->text[0], "%s", ls_last_error());
    free(in);
    return st;
}

static void what_goes_wrong_in_the_middle_is_named(void **state)
{
    (void)state;
    static const struct { enum event event; int error; ls_status cause; const char *says; } row[] = {
        { PEER_DIES, 0, LS_RANK_DIED, "ended unexpectedly" },
        { FAILS, EFAULT, LS_PROTOCOL, "not mapped" },
        { FAILS, EPERM, LS_SYSTEM, "does not allow it" },
        { JOB_ABORTED, 0, LS_INTERNAL, "the vector is freed" },
    };
    outcome *o = mmap(NULL, sizeof *o, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(o != MAP_FAILED);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int n = 2; n <= 3; n++)
            for (int message = 0; message < 2; message++) {
                disturbed d = { message, o };
                memset(o, 0, sizeof *o);
                fake.event = row[i].event;
                fake.event_error = row[i].error;
                ls_rank_report r = ls_test_ranks(LS_TEST_PROCESSES, n, &opts, in_the_middle, &d);
                if (!o->attached) {
                    print_message("this system refuses process_vm_readv between ranks: nothing to disturb\n");
                    skip();
                }
                const int dead = row[i].event != PEER_DIES ? -1 : message ? n - 1 : 1; /* whom rank 0 reads first */
                if (r.failed == 0) fail_msg("event %zu, %d ranks, message %d: nobody failed", i, n, message);
                for (int rank = 0; rank < n; rank++) {
                    if (rank == dead) continue;
                    const bool ok = o->status[rank] == LS_OK && rank != 0 && message; /* another pair's, and over */
                    if (!ok && (o->status[rank] >= 0 || !strstr(o->text[rank], row[i].says)))
                        fail_msg("event %zu, %d ranks, message %d: rank %d says %d: %s", i, n, message, rank,
                                 o->status[rank], o->text[rank]);
                }
                if (dead >= 0) {
                    char who[32];
                    snprintf(who, sizeof who, "rank %d (pid", dead);
                    if (!strstr(o->text[0], who)) fail_msg("rank %d died: %s", dead, o->text[0]);
                }
            }
    munmap(o, sizeof *o);
}

static int says_error;
static int failing_read(int pid, uint64_t address, void *to, size_t n)
{
    (void)pid, (void)address, (void)to, (void)n;
    return -says_error;
}

static void each_refusal_has_a_sentence(void **state)
{
    (void)state;
    static const struct { int error; ls_status st; const char *says; } row[] = {
        { ENOSYS, LS_UNSUPPORTED, "has no process_vm_readv" }, { EPERM, LS_SYSTEM, "does not allow it" },
        { ESRCH, LS_PEER_RESET, "has ended" },                 { EFAULT, LS_PROTOCOL, "not mapped" },
        { EIO, LS_SYSTEM, "Input/output error" },
    };
    ls_world *w = calloc(1, sizeof *w);
    char to[8];
    w->size = 2;
    w->page = calloc(1, ls_page_bytes(2));
    atomic_store(&w->page->rank[1].pid, 4321);
    env.read_process = failing_read;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        says_error = row[i].error;
        assert_int_equal(ls_attach_read(w, 1, 0xabc0, to, sizeof to), row[i].st);
        assert_non_null(strstr(ls_last_error(), row[i].says));
        assert_non_null(strstr(ls_last_error(), "8 bytes of rank 1 (pid 4321) at 0xabc0"));
    }
    free(w->page);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(gives_the_bits_of_slots, enter, leave),
        cmocka_unit_test_setup_teardown(is_staged_where_one_rank_cannot_read, enter, leave),
        cmocka_unit_test_setup_teardown(every_rank_knows_who_reads_whom, enter, leave),
        cmocka_unit_test_setup_teardown(lends_messages, enter, leave),
        cmocka_unit_test_setup_teardown(what_is_too_long_goes_past_the_caches, enter, leave),
        cmocka_unit_test_setup_teardown(another_message_is_named, enter, leave),
        cmocka_unit_test_setup_teardown(what_goes_wrong_in_the_middle_is_named, enter, leave),
        cmocka_unit_test_setup_teardown(each_refusal_has_a_sentence, enter, leave),
    };
    refusals = mmap(NULL, sizeof *refusals, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
