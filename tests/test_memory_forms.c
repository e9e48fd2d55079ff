/* Collectives in memory that all ranks have mapped, at sizes on both sides of each border between forms: short
 * ones that run ahead, long ones in place, private ones through a copy. Bits are those of a plain sum in rank order. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/env.h"
#include "group/group.h"
#include "harness_clock.h"

#define MOST 40001
#define GUARDED 64 /* elements behind a buffer */
#define GUARD 0x5au
#define MS 1000000ull

/* --- data ---------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t h)
{
    h = (h ^ h >> 31) * 0xbf58476d1ce4e5b9ull;
    return h ^ h >> 29;
}

/* Of mixed sign and size, so that the order of a sum shows in its bits. */
static float number(int rank, uint32_t round, size_t i)
{
    uint64_t h = mix(((uint64_t)rank << 40 | (uint64_t)round << 24 | i) * 0x9e3779b97f4a7c15ull);
    return (float)((double)(int32_t)(uint32_t)h / 2147483648.0 * (double)(1u << (h >> 32 & 15u)) / 256.0);
}

static void put(void *p, ls_dtype d, size_t i, float v)
{
    if (d == LS_F32) ((float *)p)[i] = v;
    else if (d == LS_BF16) ((uint16_t *)p)[i] = ls_f32_to_bf16(v);
    else ((uint8_t *)p)[i] = (uint8_t)(int)(v * 3.0f + 128.0f);
}

/* Element i of the sum (or the greatest, or the average) over n ranks, put at `at`. */
static void put_sum(void *p, ls_dtype d, ls_redop op, size_t at, int n, uint32_t round, size_t i)
{
    float sum = 0.0f;
    unsigned whole = 0;
    for (int r = 0; r < n; r++) {
        float x = number(r, round, i);
        if (d == LS_U8) {
            unsigned u = (uint8_t)(int)(x * 3.0f + 128.0f);
            whole = r == 0 ? u : op == LS_MAX ? (u > whole ? u : whole) : (uint8_t)(whole + u);
            continue;
        }
        if (d == LS_BF16) x = ls_bf16_to_f32(ls_f32_to_bf16(x));
        if (op == LS_AVG) x *= (float)(1.0 / n);
        sum = r == 0 ? x : op == LS_MAX ? (x > sum ? x : sum) : sum + x;
    }
    if (d == LS_U8) ((uint8_t *)p)[at] = (uint8_t)whole;
    else put(p, d, at, sum);
}

/* --- one collective ---------------------------------------------------------------------------------------- */

typedef struct spec {
    ls_coll coll;
    size_t count;   /* of the vector; with counts: of the longest share */
    ls_dtype dtype;
    ls_redop op;
    int root;
    bool in_place, registered, counted;
    uint32_t round;
} spec;

typedef struct buffers {
    char *in, *out, *want;
    size_t room; /* elements of each, a guard behind included */
} buffers;

typedef struct memory {
    buffers registered, private;
} memory;

/* With counts: what rank a has for rank b (all_to_all), or rank b's share. Some are empty. */
static size_t share_count(const spec *s, int a, int b)
{
    uint64_t h = mix((uint64_t)s->round * 64 + (uint64_t)b + (s->coll == LS_ALL_TO_ALL ? (uint64_t)a * 4096 : 0));
    return h % 3 == 0 ? 0 : h % (s->count + 1);
}

static size_t sum_of(const size_t *counts, int n)
{
    size_t sum = 0;
    for (int r = 0; r < n; r++) sum += counts[r];
    return sum;
}

typedef struct call {
    ls_coll_args a;
    size_t counts[LS_TEST_RANKS], recv_counts[LS_TEST_RANKS];
    const char *got;
    size_t nwant;   /* elements of the result */
    bool scribbles; /* what stands behind them is not defined */
} call;

/* Rank r's share of the vector. */
static ls_range share_of(const spec *s, const call *c, int r, int n)
{
    ls_range x;
    if (!s->counted) {
        (void)ls_shard_range(s->count, r, n, &x);
        return x;
    }
    return (ls_range){ sum_of(c->counts, r), c->counts[r] };
}

/* Fills the input, writes the wanted result, and sets up the call. */
static void prepare(const spec *s, const buffers *b, int rank, int n, call *c)
{
    size_t elem = ls_dtype_size(s->dtype), total = s->count;
    for (int r = 0; r < n; r++) {
        c->counts[r] = share_count(s, rank, r);
        c->recv_counts[r] = share_count(s, r, rank);
    }
    if (s->counted) total = sum_of(c->counts, n);
    c->a = (ls_coll_args){ .coll = s->coll, .dtype = s->dtype, .op = s->op, .root = s->root, .count = total };
    if (s->counted) c->a.counts = c->counts;
    if (s->counted && s->coll == LS_ALL_TO_ALL) c->a.recv_counts = c->recv_counts;
    memset(b->out, (int)GUARD, b->room * elem);
    memset(b->in, (int)GUARD, b->room * elem);
    memset(b->want, (int)GUARD, b->room * elem);
    ls_range own = share_of(s, c, rank, n);
    bool root = rank == s->root;
    char *in = s->in_place ? b->out : b->in;
    c->a.in = s->in_place ? NULL : in;
    c->a.out = b->out;
    c->got = b->out;
    c->scribbles = false;
    c->nwant = total;
    switch (s->coll) {
    case LS_ALL_REDUCE:
    case LS_REDUCE:
        for (size_t i = 0; i < total; i++) {
            put(in, s->dtype, i, number(rank, s->round, i));
            if (s->coll == LS_ALL_REDUCE || root) put_sum(b->want, s->dtype, s->op, i, n, s->round, i);
        }
        if (s->coll == LS_REDUCE && !root) {
            c->a.in = in;
            c->a.out = s->in_place ? NULL : b->out;
            c->nwant = 0;
            c->scribbles = s->in_place;
        }
        break;
    case LS_REDUCE_SCATTER:
        for (size_t i = 0; i < total; i++) put(in, s->dtype, i, number(rank, s->round, i));
        for (size_t i = 0; i < own.count; i++) put_sum(b->want, s->dtype, s->op, i, n, s->round, own.first + i);
        c->nwant = own.count;
        if (s->in_place) {
            c->got = b->out + own.first * elem;
            c->scribbles = true;
        }
        break;
    case LS_ALL_GATHER:
    case LS_GATHER:
        for (int r = 0; r < n; r++) {
            ls_range x = share_of(s, c, r, n);
            for (size_t i = 0; i < x.count; i++) put(b->want, s->dtype, x.first + i, number(r, s->round, i));
        }
        if (s->in_place && (root || s->coll == LS_ALL_GATHER)) in = b->out + own.first * elem;
        else c->a.in = in = b->in;
        for (size_t i = 0; i < own.count; i++) put(in, s->dtype, i, number(rank, s->round, i));
        if (s->coll == LS_GATHER && !root) {
            c->nwant = 0;
            c->scribbles = true;
            c->a.out = s->in_place ? NULL : b->out;
        }
        break;
    case LS_BROADCAST:
        for (size_t i = 0; i < total; i++) {
            put(b->want, s->dtype, i, number(s->root, s->round, i));
            if (root) put(in, s->dtype, i, number(rank, s->round, i));
        }
        if (!root) c->a.in = NULL;
        break;
    case LS_SCATTER:
        c->a.in = root ? b->in : NULL;
        for (size_t i = 0; root && i < total; i++) put(b->in, s->dtype, i, number(rank, s->round, i));
        for (size_t i = 0; i < own.count; i++) put(b->want, s->dtype, i, number(s->root, s->round, own.first + i));
        c->nwant = own.count;
        if (root && s->in_place) {
            c->a.out = NULL;
            c->nwant = 0;
            c->scribbles = true;
        }
        break;
    case LS_ALL_TO_ALL: {
        size_t at = 0;
        for (size_t i = 0; i < total; i++) put(in, s->dtype, i, number(rank, s->round, i));
        for (int r = 0; r < n; r++) {
            size_t k = s->counted ? c->recv_counts[r] : total / (size_t)n, first = k * (size_t)rank;
            if (s->counted) first = 0;
            for (int q = 0; s->counted && q < rank; q++) first += share_count(s, r, q);
            for (size_t i = 0; i < k; i++) put(b->want, s->dtype, at++, number(r, s->round, first + i));
        }
        c->nwant = at;
        c->scribbles = s->in_place; /* more may have been sent than came */
        break;
    }
    default: c->nwant = 0; break;
    }
}

static ls_status check(const spec *s, const buffers *b, const call *c, const char *how)
{
    size_t elem = ls_dtype_size(s->dtype);
    size_t n = (c->scribbles ? c->nwant : b->room - GUARDED > c->nwant ? c->nwant + GUARDED : b->room) * elem;
    for (size_t i = 0; i < n; i++)
        if (c->got[i] != b->want[i])
            return ls_fail(LS_INTERNAL, "%s: %s of %zu %s, op %d, root %d, %s, %s%s: other bits at element %zu of %zu",
                           how, ls_coll_name(s->coll), s->count, ls_dtype_name(s->dtype), (int)s->op, s->root,
                           s->in_place ? "in place" : "out of place", s->registered ? "registered" : "private",
                           s->counted ? ", with counts" : "", i / elem, c->nwant);
    return LS_OK;
}

static const buffers *buffers_of(const memory *m, const spec *s)
{
    return s->registered ? &m->registered : &m->private;
}

static ls_status do_one(ls_group *g, const memory *m, const spec *s)
{
    call c;
    const buffers *b = buffers_of(m, s);
    ls_work *k;
    prepare(s, b, ls_group_rank(g), ls_group_size(g), &c);
    LS_TRY(ls_coll_start(g, &c.a, &k));
    LS_TRY(ls_work_wait(k));
    return check(s, b, &c, "alone");
}

static ls_status allocate(ls_world *w, size_t most, memory *m)
{
    void *p[2];
    size_t room = most + GUARDED, nbytes = room * sizeof(float);
    for (int i = 0; i < 2; i++) LS_TRY(ls_alloc(w, nbytes, LS_MEM_DATA, &p[i]));
    m->private = (buffers){ malloc(nbytes), malloc(nbytes), malloc(nbytes), room };
    m->registered = (buffers){ p[0], p[1], m->private.want, room };
    return m->private.in && m->private.out && m->private.want ? LS_OK : ls_fail(LS_NO_MEMORY, "no memory for a test");
}

static void release(memory *m)
{
    free(m->private.in);
    free(m->private.out);
    free(m->private.want);
}

/* --- all of them -------------------------------------------------------------------------------------------- */

static const size_t counts[] = { 0, 1, 7, 10, 33, 1000, 1025, 2050, 9000, MOST };
static const ls_coll colls[] = { LS_ALL_REDUCE, LS_REDUCE_SCATTER, LS_ALL_GATHER, LS_BROADCAST,
                                 LS_REDUCE,     LS_GATHER,         LS_SCATTER,    LS_ALL_TO_ALL };
#define NCOLLS (sizeof colls / sizeof *colls)
#define NCOUNTS (sizeof counts / sizeof *counts)

static spec nth_spec(size_t coll, size_t count, uint32_t turn, int n)
{
    spec s = { .coll = colls[coll], .count = count, .round = turn, .root = (int)(turn % (uint32_t)n) };
    uint64_t h = mix(turn * 0x9e3779b97f4a7c15ull);
    s.registered = h & 1;
    s.in_place = h >> 1 & 1;
    s.dtype = h >> 2 & 1 ? LS_F32 : h >> 3 & 1 ? LS_BF16 : LS_U8;
    s.op = h >> 4 & 1 ? LS_SUM : h >> 5 & 1 || s.dtype == LS_U8 ? LS_MAX : LS_AVG;
    if (s.coll == LS_ALL_TO_ALL) s.count -= s.count % (size_t)n;
    return s;
}

static ls_status every_one(ls_world *w, void *arg)
{
    int repeats = *(const int *)arg;
    memory m;
    ls_group *g = ls_world_group(w);
    ls_status st = allocate(w, MOST, &m);
    uint32_t turn = 0;
    for (int i = 0; i < repeats && st == LS_OK; i++)
        for (size_t coll = 0; coll < NCOLLS && st == LS_OK; coll++)
            for (size_t c = 0; c < NCOUNTS && st == LS_OK; c++) {
                spec s = nth_spec(coll, counts[c], turn++, ls_group_size(g));
                st = do_one(g, &m, &s);
            }
    release(&m);
    return st;
}

static void among(ls_test_mode mode, int n, ls_rank_fn fn, void *arg)
{
    ls_world_opts o = { .arena_bytes = 3u << 20 };
    ls_rank_report r = ls_test_ranks(mode, n, &o, fn, arg);
    if (r.failed) fail_msg("%d %s: %s", n, mode == LS_TEST_THREADS ? "threads" : "processes", r.text);
}

static void gives_the_bits_of_a_plain_sum(void **state)
{
    (void)state;
    for (int n = 1; n <= 9; n++) {
        int repeats = n <= 4 ? 6 : 2;
        among(LS_TEST_THREADS, n, every_one, &repeats);
    }
    for (int n = 2; n <= 5; n++) {
        int repeats = 3;
        among(LS_TEST_PROCESSES, n, every_one, &repeats);
    }
}

/* --- counts per rank ---------------------------------------------------------------------------------------- */

static ls_status with_counts(ls_world *w, void *arg)
{
    static const ls_coll v[] = { LS_ALL_GATHER, LS_REDUCE_SCATTER, LS_GATHER, LS_SCATTER, LS_ALL_TO_ALL };
    static const size_t longest[] = { 0, 3, 40, 500, 4000 };
    memory m;
    ls_group *g = ls_world_group(w);
    ls_status st = allocate(w, MOST, &m);
    (void)arg;
    uint32_t turn = 0;
    for (size_t i = 0; i < 2 && st == LS_OK; i++)
        for (size_t coll = 0; coll < 5 && st == LS_OK; coll++)
            for (size_t c = 0; c < 5 && st == LS_OK; c++) {
                spec s = nth_spec(0, longest[c], turn++, ls_group_size(g));
                s.coll = v[coll];
                s.counted = true;
                st = do_one(g, &m, &s);
            }
    release(&m);
    return st;
}

static void takes_counts_per_rank_some_of_them_zero(void **state)
{
    (void)state;
    for (int n = 1; n <= 9; n++) among(LS_TEST_THREADS, n, with_counts, NULL);
    among(LS_TEST_PROCESSES, 4, with_counts, NULL);
}

/* --- past the caches ------------------------------------------------------------------------------------------ */

#define APART 100001 /* elements of 4 bytes: between 256 and 512 KiB */
#define LONG 1600001 /* four ranks touch more than the caches hold */

static ls_status long_ones(ls_world *w, void *arg)
{
    static const ls_coll v[] = { LS_ALL_GATHER, LS_REDUCE_SCATTER, LS_BROADCAST, LS_ALL_TO_ALL };
    memory m;
    ls_group *g = ls_world_group(w);
    int rank = ls_group_rank(g), n = ls_group_size(g);
    ls_status st = allocate(w, LONG, &m);
    buffers registered = m.registered;
    (void)arg;
    for (uint32_t turn = 0; turn < 4 * 6 && st == LS_OK; turn++) {
        /* 0, 1: in and out of place; 2: some ranks' memory is private; 3, 4: only results, or only what is offered, is
         * registered; 5: counts per rank */
        uint32_t how = turn / 4;
        spec s = { .coll = v[turn % 4], .count = LONG, .round = turn, .root = (int)turn % n, .in_place = how == 1,
                   .dtype = LS_F32, .op = how % 2 ? LS_AVG : LS_SUM, .registered = how != 2 || rank % 2 };
        if (s.coll == LS_ALL_TO_ALL) s.count -= s.count % (size_t)n;
        if (how == 5 && s.coll == LS_BROADCAST) continue;
        s.counted = how == 5;
        if (s.counted) s.count = LONG / (size_t)n;
        m.registered = registered;
        if (how == 3) m.registered.in = m.private.in;
        if (how == 4) m.registered.out = m.private.out;
        st = do_one(g, &m, &s);
    }
    release(&m);
    return st;
}

/* Private, short enough for a slot, too long for a rank's own share to go through it. */
static ls_status shares_apart(ls_world *w, void *arg)
{
    memory m;
    ls_group *g = ls_world_group(w);
    ls_status st = allocate(w, APART, &m);
    (void)arg;
    for (uint32_t turn = 0; turn < 8 && st == LS_OK; turn++) {
        spec s = { .coll = LS_ALL_REDUCE, .count = APART - turn, .round = turn, .in_place = turn % 2, .dtype = LS_F32,
                   .op = turn & 2 ? LS_AVG : LS_SUM, .registered = (turn & 4) && ls_group_rank(g) == 1 };
        st = do_one(g, &m, &s);
    }
    release(&m);
    return st;
}

static void private_sums_keep_their_own_share(void **state)
{
    (void)state;
    for (int n = 2; n <= 5; n++) {
        ls_world_opts o = { .arena_bytes = 12u << 20 };
        ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, n, &o, shares_apart, NULL);
        if (r.failed) fail_msg("%d ranks: %s", n, r.text);
    }
}

static void long_vectors_go_past_the_caches(void **state)
{
    (void)state;
    ls_world_opts o = { .arena_bytes = 20u << 20 };
    ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 4, &o, long_ones, NULL);
    if (r.failed) fail_msg("%s", r.text);
}

/* --- in flight together, in two groups ------------------------------------------------------------------------ */

#define FLIGHT 6

static ls_status together(ls_world *w, void *arg)
{
    ls_group *g[2] = { ls_world_group(w), NULL };
    memory m[FLIGHT];
    int have = 0;
    ls_status st = LS_OK;
    (void)arg;
    LS_TRY(ls_group_split(g[0], ls_world_rank(w) % 2, &g[1]));
    for (; have < FLIGHT && st == LS_OK; have++) st = allocate(w, MOST, &m[have]);
    for (uint32_t round = 0; round < 40 && st == LS_OK; round++) {
        spec s[FLIGHT];
        call c[FLIGHT];
        ls_work *k[FLIGHT];
        for (int i = 0; i < FLIGHT && st == LS_OK; i++) {
            uint64_t h = mix((round * FLIGHT + (uint64_t)i + 7) * 0x9e3779b97f4a7c15ull);
            ls_group *in = g[i % 2];
            s[i] = nth_spec(h % NCOLLS, counts[(h >> 8) % NCOUNTS], round * FLIGHT + (uint32_t)i, ls_group_size(in));
            prepare(&s[i], buffers_of(&m[i], &s[i]), ls_group_rank(in), ls_group_size(in), &c[i]);
            st = ls_coll_start(in, &c[i].a, &k[i]);
        }
        for (int j = 0; j < FLIGHT && st == LS_OK; j++) { /* waited for in another order */
            int i = (j * 5 + 3) % FLIGHT;
            st = ls_work_wait(k[i]);
        }
        for (int i = 0; i < FLIGHT && st == LS_OK; i++) st = check(&s[i], buffers_of(&m[i], &s[i]), &c[i], "in flight");
    }
    while (have > 0) release(&m[--have]);
    if (st == LS_OK) ls_group_destroy(g[1]);
    return st;
}

static void keeps_collectives_in_flight_apart(void **state)
{
    (void)state;
    for (int n = 2; n <= 6; n++) {
        ls_world_opts o = { .arena_bytes = 6u << 20, .progress = n % 2 ? LS_PROGRESS_THREAD : LS_PROGRESS_INLINE };
        ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, n, &o, together, NULL);
        if (r.failed) fail_msg("%d ranks: %s", n, r.text);
    }
}

/* --- running ahead ----------------------------------------------------------------------------------------------- */

#define AHEAD (LS_MAIL_LINES - 8) /* as far as a rank may be sure to get */

typedef struct pace {
    _Atomic int ahead; /* rank 0 has done so many while nobody else had begun */
} pace;

static ls_status reached(void *arg)
{
    return atomic_load((_Atomic int *)arg) >= AHEAD ? LS_OK : LS_AGAIN;
}

static ls_status wait_for_pace(ls_world *w, pace *p)
{
    ls_waiter waiter = { .abort_word = w->waiter.abort_word };
    return ls_wait(&waiter, reached, &p->ahead, ls_env_get()->mono_ns() + 10000 * MS);
}

/* The writer does AHEAD collectives before any reader enters the first: with a writer that waits, nobody would
 * ever go on. Then both go on, over many turns of the ring. */
static ls_status runs_ahead(ls_world *w, void *arg)
{
    pace *p = arg;
    ls_group *g = ls_world_group(w);
    int rank = ls_world_rank(w), n = ls_world_size(w);
    float x[2000], got[2000];
    bool writer = rank == 0;
    if (!writer && wait_for_pace(w, p) != LS_OK) return ls_fail(LS_INTERNAL, "the writer did not run ahead");
    for (int i = 0; i < 40 * LS_MAIL_LINES; i++) {
        size_t count = (size_t)(i * 37 % (i < AHEAD ? 230 : 2000)) + 1; /* all together more than fits at once */
        if (i >= AHEAD && i % 2) { /* the next turns: some through a reduction to another root */
            int root = i % n;
            for (size_t j = 0; j < count; j++) x[j] = (float)(rank + 1 + i);
            LS_TRY(ls_reduce(g, x, got, count, LS_F32, LS_SUM, root));
            for (size_t j = 0; j < count && rank == root; j++)
                LS_EXPECT(got[j] == (float)(n * (n + 1) / 2 + n * i), "reduce %d: element %zu is %g", i, j,
                          (double)got[j]);
            continue;
        }
        for (size_t j = 0; j < count; j++) x[j] = writer ? (float)(i + 1) : -1.0f;
        LS_TRY(ls_broadcast(g, x, count, LS_F32, 0));
        for (size_t j = 0; j < count; j++)
            LS_EXPECT(x[j] == (float)(i + 1), "broadcast %d: element %zu is %g", i, j, (double)x[j]);
        if (writer && i < AHEAD) atomic_store(&p->ahead, i + 1);
    }
    return LS_OK;
}

/* The same the other way round: who gives to a root does not wait for it. */
static ls_status gives_ahead(ls_world *w, void *arg)
{
    pace *p = arg;
    ls_group *g = ls_world_group(w);
    int rank = ls_world_rank(w), n = ls_world_size(w);
    float got[64 * 4], x[64];
    if (rank == 1 && wait_for_pace(w, p) != LS_OK) return ls_fail(LS_INTERNAL, "nobody ran ahead");
    for (int i = 0; i < 10 * LS_MAIL_LINES; i++) {
        for (int j = 0; j < 64; j++) x[j] = (float)(rank * 1000 + i);
        LS_TRY(ls_gather(g, x, rank == 1 ? got : NULL, 64 * (size_t)n, LS_F32, 1));
        for (int j = 0; j < 64 * n && rank == 1; j++)
            LS_EXPECT(got[j] == (float)(j / 64 * 1000 + i), "gather %d: element %d is %g", i, j, (double)got[j]);
        if (rank == 0 && i < AHEAD) atomic_store(&p->ahead, i + 1);
    }
    return LS_OK;
}

static void writers_run_ahead_of_readers(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n++) {
        pace p[2] = { 0 };
        among(LS_TEST_THREADS, n, runs_ahead, &p[0]);
        among(LS_TEST_THREADS, n, gives_ahead, &p[1]);
    }
}

/* --- a reader that stops ------------------------------------------------------------------------------------------ */

typedef struct silence {
    size_t count;
    ls_coll coll;
    bool dies;
    ls_status status[LS_TEST_RANKS];
    char text[LS_TEST_RANKS][LS_ERROR_BYTES];
} silence;

static ls_status never(void *arg)
{
    (void)arg;
    return LS_AGAIN;
}

/* Rank 1 does three and then only computes. The others go on until they are told. */
static ls_status one_stops(ls_world *w, void *arg)
{
    silence *s = arg;
    int rank = ls_world_rank(w);
    ls_group *g = ls_world_group(w);
    float *private = calloc(2 * s->count + 1, sizeof *private), *x = private;
    LS_EXPECT(x, "no memory for a test");
    void *p = x;
    if (s->count >= LONG) LS_TRY(ls_alloc(w, 2 * s->count * sizeof *x, LS_MEM_DATA, &p)); /* past the caches */
    x = p;
    ls_status st = ls_barrier(g); /* who gives to a root may be through before the root has joined */
    for (int i = 0; st == LS_OK && (rank != 1 || i < 3) && i < 100000; i++) {
        ls_coll_args a = { .coll = s->coll,
                           .in = s->coll == LS_BROADCAST ? NULL : x,
                           .out = x + s->count,
                           .count = s->count,
                           .dtype = LS_F32 };
        ls_work *k;
        if ((st = ls_coll_start(g, &a, &k)) == LS_OK) st = ls_work_wait(k);
    }
    if (rank == 1 && s->dies) {
        ls_test_looks_no_more();
        raise(SIGKILL);
    }
    if (rank == 1 && st == LS_OK) {
        ls_waiter waiter = { .abort_word = w->waiter.abort_word };
        st = ls_wait(&waiter, never, NULL, ls_env_get()->mono_ns() + 10000 * MS) == LS_ABORTED ? ls_world_aborted(w)
                                                                                               : LS_INTERNAL;
    }
    s->status[rank] = st;
    snprintf(s->text[rank], sizeof s->text[rank], "%s", ls_last_error());
    free(private);
    return LS_OK;
}

static const struct { ls_coll coll; size_t count; } stops[] = {
    { LS_BROADCAST, 8 }, { LS_BROADCAST, 1500 }, { LS_BROADCAST, 40000 },
    { LS_REDUCE, 100 },  { LS_GATHER, 90000 },   { LS_ALL_TO_ALL, 30000 },
    { LS_BROADCAST, 3 * LONG / 2 }, { LS_ALL_GATHER, 3 * LONG / 2 },
};

/* Longer than one of them takes where all ranks run, under ThreadSanitizer too. */
#ifdef __SANITIZE_THREAD__
#define LONG_SILENCE 4000
#else
#define LONG_SILENCE 1200
#endif
static uint64_t silence_ns(size_t count) { return (count >= LONG ? LONG_SILENCE : 300) * MS; }

/* The deadline's status, or what another said first (or a death, if it is one); and in each sentence who is meant. */
static void names_rank_1(const silence *s)
{
    for (int r = 0; r < 3; r++) {
        const char *name = ls_coll_name(s->coll);
        if (s->dies && r == 1) continue;
        if (s->status[r] != LS_RANK_HUNG && s->status[r] != LS_ABORTED && (!s->dies || s->status[r] != LS_RANK_DIED))
            fail_msg("%s of %zu: rank %d gets %d (%s)", name, s->count, r, (int)s->status[r], s->text[r]);
        if (!strstr(s->text[r], s->dies ? "rank 1 (pid " : "for rank 1 (pid "))
            fail_msg("%s of %zu: rank %d reads '%s'", name, s->count, r, s->text[r]);
    }
}

static void a_reader_that_stops_is_named_on_every_rank(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        static silence s;
        s = (silence){ .count = stops[i].count, .coll = stops[i].coll };
        ls_world_opts o = { .coll_timeout_ns = silence_ns(stops[i].count), .arena_bytes = 24u << 20 };
        (void)ls_test_ranks_in_step(LS_TEST_THREADS, 3, &o, one_stops, &s);
        names_rank_1(&s);
    }
}

static void a_reader_that_is_killed_is_named_on_every_other_rank(void **state)
{
    (void)state;
    silence *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(s != MAP_FAILED);
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        *s = (silence){ .count = stops[i].count, .coll = stops[i].coll, .dies = true };
        ls_world_opts o = { .coll_timeout_ns = silence_ns(stops[i].count), .arena_bytes = 24u << 20 };
        (void)ls_test_ranks_in_step(LS_TEST_PROCESSES, 3, &o, one_stops, s);
        names_rank_1(s);
    }
    munmap(s, sizeof *s);
}

/* --- two who both think that they are the root -------------------------------------------------------------------- */

static ls_status both_are_root(ls_world *w, void *arg)
{
    ls_status *got = arg;
    int rank = ls_world_rank(w);
    float x[4] = { 0 };
    ls_status st = ls_broadcast(ls_world_group(w), x, 4, LS_F32, rank % 2);
    if (st == LS_OK) st = ls_all_reduce(ls_world_group(w), NULL, x, 4, LS_F32, LS_SUM);
    got[rank] = st;
    if (st == LS_COLL_MISMATCH && (!strstr(ls_last_error(), "root 0") || !strstr(ls_last_error(), "root 1")))
        return ls_fail(LS_INTERNAL, "'%s' does not name both roots", ls_last_error());
    return LS_OK;
}

static void two_roots_are_found_out_at_the_next_meeting(void **state)
{
    (void)state;
    ls_status got[2] = { LS_OK, LS_OK };
    (void)ls_test_ranks(LS_TEST_THREADS, 2, NULL, both_are_root, got);
    assert_int_equal(got[0], LS_COLL_MISMATCH);
    assert_int_equal(got[1], LS_COLL_MISMATCH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_bits_of_a_plain_sum),
        cmocka_unit_test(takes_counts_per_rank_some_of_them_zero),
        cmocka_unit_test(long_vectors_go_past_the_caches),
        cmocka_unit_test(private_sums_keep_their_own_share),
        cmocka_unit_test(keeps_collectives_in_flight_apart),
        cmocka_unit_test(writers_run_ahead_of_readers),
        cmocka_unit_test(a_reader_that_stops_is_named_on_every_rank),
        cmocka_unit_test(a_reader_that_is_killed_is_named_on_every_other_rank),
        cmocka_unit_test(two_roots_are_found_out_at_the_next_meeting),
    };
    return cmocka_run_group_tests_name("memory_forms", tests, NULL, NULL);
}
