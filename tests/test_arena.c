/* Arenas and the ledger: what is counted is what was handed out, and refusals reserve nothing. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/context.h"
#include "base/env.h"
#include "lockstep/mem.h"
#include "mem/ledger.h"

#define N(a) (sizeof(a) / sizeof *(a))

/* A world with as much memory as a test says, which counts what is reserved and given back. */
static struct machine {
    uint64_t available;
    int refuse_memfd; /* errno */
    bool refuse_map;
    int memfds, maps, closed, unmapped;
} m;
static ls_env env;
static ls_context context = { .env = &env, .rank = -1 }, *was;

static uint64_t available(void) { return m.available; }

static int memfd(const char *name, size_t n)
{
    if (m.refuse_memfd) return -m.refuse_memfd;
    m.memfds++;
    return ls_env_real.memfd(name, n);
}

static void *map_shared(int fd, size_t n, bool prefault)
{
    assert_true(prefault); /* no page fault later */
    if (m.refuse_map) return NULL;
    m.maps++;
    return ls_env_real.map_shared(fd, n, prefault);
}

static void *map_private(size_t n)
{
    if (m.refuse_map) return NULL;
    m.maps++;
    return ls_env_real.map_private(n);
}

static void *map_nothing(size_t n)
{
    m.maps++;
    return ls_env_real.map_nothing(n);
}

static void unmap(void *p, size_t n)
{
    m.unmapped++;
    ls_env_real.unmap(p, n);
}

static void close_fd(int fd)
{
    m.closed++;
    ls_env_real.close_fd(fd);
}

static int set_up(void **state)
{
    (void)state;
    m = (struct machine){ .available = 64 << 20 };
    env = ls_env_real;
    env.mem_available = available;
    env.memfd = memfd;
    env.map_shared = map_shared;
    env.map_private = map_private;
    env.map_nothing = map_nothing;
    env.unmap = unmap;
    env.close_fd = close_fd;
    was = ls_context_swap(&context);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ls_context_swap(was);
    assert_int_equal(m.memfds, m.closed); /* whatever was reserved is given back */
    assert_int_equal(m.maps, m.unmapped);
    return 0;
}

static size_t now(const ls_ledger *l)
{
    size_t n = 0;
    for (int k = 0; k < LS_MEM_KINDS; k++) n += l->now[k];
    return n;
}

static void blocks_follow_each_other_at_64_bytes(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        ls_arena *a;
        void *p;
        assert_int_equal(ls_arena_create(10000, shared, NULL, &a), LS_OK);
        assert_int_equal(ls_arena_size(a), 12288); /* whole pages */
        assert_int_equal(ls_arena_fd(a) >= 0, shared);
        char *base = ls_arena_base(a);
        for (size_t i = 0; i < 12288; i++) assert_int_equal(base[i], 0);
        static const struct { size_t nbytes, at; } row[] = {
            { 1, 0 }, { 64, 64 }, { 65, 128 }, { 0, 256 }, { 100, 256 },
        };
        for (size_t i = 0; i < N(row); i++) {
            assert_int_equal(ls_arena_alloc(a, row[i].nbytes, LS_MEM_DATA, &p), LS_OK);
            assert_ptr_equal(p, base + row[i].at);
            memset(p, 1, row[i].nbytes);
        }
        ls_arena_destroy(a);
    }
    ls_arena_destroy(NULL);
}

static void the_last_byte_fits_and_one_more_does_not(void **state)
{
    (void)state;
    ls_arena *a;
    ls_ledger l = { 0 };
    void *p;
    assert_int_equal(ls_arena_create(8192, false, &l, &a), LS_OK);
    assert_int_equal(ls_arena_alloc(a, 4096, LS_MEM_PARAM, &p), LS_OK);
    static const size_t too_much[] = { 4097, 1 << 20, SIZE_MAX - 64, SIZE_MAX - 1, SIZE_MAX };
    for (size_t i = 0; i < N(too_much); i++) {
        assert_int_equal(ls_arena_alloc(a, too_much[i], LS_MEM_GRAD, &p), LS_NO_MEMORY);
        assert_null(p);
        assert_non_null(strstr(ls_last_error(), "grad"));
        assert_non_null(strstr(ls_last_error(), "4096 of 8192"));
        assert_int_equal(now(&l), 4096);
    }
    assert_int_equal(ls_arena_alloc(a, 4096, LS_MEM_GRAD, &p), LS_OK);
    ((char *)p)[4095] = 1;
    assert_int_equal(ls_arena_alloc(a, 1, LS_MEM_GRAD, &p), LS_NO_MEMORY);
    ls_arena_destroy(a);
}

/* Sizes count as they take room: rounded up to 64. */
static void the_ledger_equals_a_sum_by_hand(void **state)
{
    (void)state;
    ls_arena *a, *b;
    ls_ledger l = { 0 };
    void *p;
    assert_int_equal(ls_arena_create(1 << 16, false, &l, &a), LS_OK);
    assert_int_equal(ls_arena_create(1 << 16, true, &l, &b), LS_OK);
    assert_int_equal(now(&l), 0); /* reserved is not used */
    static const struct { int which; size_t nbytes; ls_mem_kind kind; } row[] = {
        { 0, 100, LS_MEM_PARAM }, { 0, 64, LS_MEM_PARAM }, { 1, 100, LS_MEM_GRAD }, { 0, 1000, LS_MEM_ACT },
    };
    for (size_t i = 0; i < N(row); i++)
        assert_int_equal(ls_arena_alloc(row[i].which ? b : a, row[i].nbytes, row[i].kind, &p), LS_OK);
    assert_int_equal(l.now[LS_MEM_PARAM], 128 + 64);
    assert_int_equal(l.now[LS_MEM_GRAD], 128);
    assert_int_equal(l.now[LS_MEM_ACT], 1024);

    size_t mark = ls_arena_mark(a);
    assert_int_equal(mark, 128 + 64 + 1024);
    assert_int_equal(ls_arena_alloc(a, 2048, LS_MEM_ACT, &p), LS_OK); /* on top of the same kind */
    void *first = p;
    assert_int_equal(ls_arena_alloc(a, 500, LS_MEM_DATA, &p), LS_OK);
    assert_int_equal(ls_arena_alloc(a, 0, LS_MEM_COMM, &p), LS_OK);
    assert_int_equal(ls_arena_alloc(a, 640, LS_MEM_ACT, &p), LS_OK);
    assert_int_equal(l.now[LS_MEM_ACT], 1024 + 2048 + 640);
    ls_arena_reset(a, mark);
    assert_int_equal(l.now[LS_MEM_ACT], 1024);
    assert_int_equal(l.now[LS_MEM_DATA], 0);
    assert_int_equal(l.now[LS_MEM_PARAM], 192);
    assert_int_equal(l.peak[LS_MEM_ACT], 1024 + 2048 + 640);
    assert_int_equal(l.peak[LS_MEM_DATA], 512);
    assert_int_equal(ls_arena_alloc(a, 64, LS_MEM_ACT, &p), LS_OK);
    assert_ptr_equal(p, first); /* the same room again */
    assert_int_equal(l.now[LS_MEM_ACT], 1024 + 64);
    assert_int_equal(l.peak[LS_MEM_ACT], 1024 + 2048 + 640);

    ls_arena_destroy(a);
    assert_int_equal(now(&l), 128); /* what b holds */
    ls_arena_reset(b, 0);
    assert_int_equal(now(&l), 0);
    ls_arena_destroy(b);
}

/* Against a list of what is in use: any order of allocations, marks and resets, of which some are assigned to units. */
static void any_order_of_marks_and_resets_leaves_the_ledger_right(void **state)
{
    (void)state;
    ls_arena *a;
    ls_ledger l = { 0 };
    enum { ROWS = 3 };
    static struct { size_t mark, nbytes, assigned; int kind, row; } live[4096];
    int n = 0, first;
    uint64_t seed = 7;
    assert_int_equal(ls_ledger_open(&l, ROWS, &first), LS_OK);
    assert_int_equal(ls_arena_create(1 << 20, false, &l, &a), LS_OK);
    for (int turn = 0; turn < 20000; turn++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        unsigned r = (unsigned)(seed >> 33);
        if (r % 8 == 0 && n > 0) {
            n -= (int)(r / 8 % 20) < n ? (int)(r / 8 % 20) : n;
            ls_arena_reset(a, n > 0 ? live[n - 1].mark : 0);
        } else if (n < 4096) {
            void *p;
            size_t nbytes = r / 8 % 700;
            int kind = (int)(r / 8192 % LS_MEM_KINDS);
            if (ls_arena_alloc(a, nbytes, (ls_mem_kind)kind, &p) != LS_OK) continue;
            live[n].nbytes = (nbytes + 63) / 64 * 64;
            live[n].kind = kind;
            live[n].row = (int)(r / 65536 % (ROWS + 1)); /* ROWS: none */
            live[n].assigned = live[n].row < ROWS ? nbytes / 2 : 0;
            const char *half = (char *)p + nbytes / 4;
            assert_int_equal(ls_arena_assign(a, half, live[n].assigned, live[n].row - 1), LS_OK);
            live[n++].mark = ls_arena_mark(a);
        }
        size_t want[LS_MEM_KINDS] = { 0 }, all = 0;
        size_t unit[ROWS + 1][LS_MEM_KINDS] = { 0 };
        for (int i = 0; i < n; i++) want[live[i].kind] += live[i].nbytes;
        for (int i = 0; i < n; i++) unit[live[i].row][live[i].kind] += live[i].assigned;
        for (int i = 0; i < ROWS; i++) assert_memory_equal(l.row[i].now, unit[i], sizeof unit[i]);
        for (int k = 0; k < LS_MEM_KINDS; k++) {
            assert_int_equal(l.now[k], want[k]);
            assert_true(l.peak[k] >= want[k]);
            all += want[k];
        }
        assert_int_equal(ls_arena_mark(a), all);
    }
    ls_arena_destroy(a);
    assert_int_equal(now(&l), 0);
    ls_ledger_close(&l, first);
}

static void expect_row(const ls_ledger *l, int row, ls_mem_kind k, size_t now, size_t peak)
{
    assert_int_equal(l->row[row].now[k], now);
    assert_int_equal(l->row[row].peak[k], peak);
}

static void what_is_assigned_is_its_unit_s_until_it_is_taken_back(void **state)
{
    (void)state;
    ls_arena *a;
    ls_ledger l = { 0 };
    char *p, *q;
    int first;
    assert_int_equal(ls_ledger_open(&l, 3, &first), LS_OK); /* the root, and units 0 and 1 */
    assert_int_equal(first, 0);
    assert_int_equal(ls_arena_create(1 << 14, false, &l, &a), LS_OK);
    assert_int_equal(ls_arena_alloc(a, 1000, LS_MEM_PARAM, (void **)&p), LS_OK);
    assert_int_equal(ls_arena_assign(a, p + 300, 200, 0), LS_OK); /* its middle, */
    assert_int_equal(ls_arena_assign(a, p, 100, -1), LS_OK);      /* its beginning, */
    assert_int_equal(ls_arena_assign(a, p + 900, 100, 1), LS_OK);
    assert_int_equal(ls_arena_assign(a, p + 500, 400, 1), LS_OK); /* all between two others, */
    assert_int_equal(ls_arena_assign(a, p + 1000, 0, 1), LS_OK);  /* nothing */
    expect_row(&l, 0, LS_MEM_PARAM, 100, 100);
    expect_row(&l, 1, LS_MEM_PARAM, 200, 200);
    expect_row(&l, 2, LS_MEM_PARAM, 500, 500);
    assert_int_equal(l.now[LS_MEM_PARAM], 1024); /* kinds do not change: 224 bytes are no unit's */
    assert_int_equal(l.held[LS_MEM_PARAM], 800);

    const size_t mark = ls_arena_mark(a);
    assert_int_equal(ls_arena_alloc(a, 64, LS_MEM_GRAD, (void **)&q), LS_OK);
    assert_int_equal(ls_arena_assign(a, q, 64, 0), LS_OK);
    assert_int_equal(ls_arena_alloc(a, 64, LS_MEM_GRAD, (void **)&q), LS_OK); /* after it: nobody's */
    expect_row(&l, 1, LS_MEM_GRAD, 64, 64);
    static const struct { size_t at, nbytes; } wrong[] = {
        { 1000, 100 }, { 50, 100 }, { 250, 100 }, { 320, 8 }, { 1024, 1 }, { 1088, 65 }, { 1 << 20, 1 },
    };
    for (size_t i = 0; i < N(wrong); i++)
        assert_int_equal(ls_arena_assign(a, p + wrong[i].at, wrong[i].nbytes, 0), LS_INVALID);
    expect_row(&l, 1, LS_MEM_GRAD, 64, 64);

    ls_arena_reset(a, mark);
    expect_row(&l, 1, LS_MEM_GRAD, 0, 64);
    ls_arena_reset(a, 512); /* in the middle of what is unit 1's */
    expect_row(&l, 2, LS_MEM_PARAM, 12, 500);
    expect_row(&l, 1, LS_MEM_PARAM, 200, 200);
    assert_int_equal(l.now[LS_MEM_PARAM], 512);
    ls_arena_charge(a, NULL);
    for (int i = 0; i < 3; i++) assert_int_equal(l.row[i].now[LS_MEM_PARAM], 0);
    ls_arena_charge(a, &l);
    ls_arena_destroy(a);
    for (int i = 0; i < 3; i++) assert_int_equal(l.row[i].now[LS_MEM_PARAM], 0);
    assert_int_equal(now(&l), 0);
    ls_ledger_close(&l, first);
}

/* Of a model that has gone, an arena may have memory yet. */
static void later_rows_are_others(void **state)
{
    (void)state;
    ls_arena *a;
    ls_ledger l = { 0 };
    void *p;
    int first, second;
    assert_int_equal(ls_arena_create(4096, false, &l, &a), LS_OK);
    assert_int_equal(ls_arena_alloc(a, 128, LS_MEM_PARAM, &p), LS_OK);
    assert_int_equal(ls_arena_assign(a, p, 64, 0), LS_OK); /* no rows: nothing happens */
    assert_int_equal(ls_ledger_open(&l, 2, &first), LS_OK);
    assert_int_equal(ls_arena_assign(a, p, 64, 0), LS_OK);
    assert_int_equal(ls_ledger_open(&l, 4, &second), LS_OK);
    assert_int_not_equal(first, second);
    ls_ledger_close(&l, first); /* has gone already */
    assert_int_equal(l.nrows, 4);
    for (int i = 0; i < 4; i++) expect_row(&l, i, LS_MEM_PARAM, 0, 0);
    assert_int_equal(l.held[LS_MEM_PARAM] + l.most[LS_MEM_PARAM], 0);
    ls_arena_destroy(a);
    for (int i = 0; i < 4; i++) expect_row(&l, i, LS_MEM_PARAM, 0, 0);
    ls_ledger_close(&l, second);
    assert_null(l.row);
}

/* The rows' peaks are of one moment. */
static void rows_peak_together(void **state)
{
    (void)state;
    ls_ledger l = { 0 };
    int first;
    assert_int_equal(ls_ledger_open(&l, 2, &first), LS_OK);
    ls_ledger_assign(&l, LS_MEM_ACT, first, 100);
    ls_ledger_release(&l, LS_MEM_ACT, first, 90);
    ls_ledger_assign(&l, LS_MEM_ACT, first + 1, 80);
    expect_row(&l, 0, LS_MEM_ACT, 10, 100);
    expect_row(&l, 1, LS_MEM_ACT, 80, 0);
    ls_ledger_assign(&l, LS_MEM_ACT, first + 1, 11);
    expect_row(&l, 0, LS_MEM_ACT, 10, 10);
    expect_row(&l, 1, LS_MEM_ACT, 91, 91);
    ls_ledger_assign(&l, LS_MEM_ACT, first + 2, 1000); /* no such row */
    ls_ledger_assign(&l, LS_MEM_ACT, LS_LEDGER_NO_ROW, 1000);
    assert_int_equal(l.held[LS_MEM_ACT], 101);
    ls_ledger_close(&l, first);
}

static void holds_its_own_bytes_only(void **state)
{
    (void)state;
    ls_arena *a;
    assert_int_equal(ls_arena_create(8192, true, NULL, &a), LS_OK);
    char *base = ls_arena_base(a);
    int outside;
    const struct { const void *p; size_t nbytes; bool want; } row[] = {
        { base, 8192, true },         { base, 0, true },        { base + 8192, 0, true },  { base + 8191, 1, true },
        { base, 8193, false },        { base + 8191, 2, false }, { base - 1, 1, false },   { base + 8192, 1, false },
        { base + 1, SIZE_MAX, false }, { NULL, 0, false },       { &outside, 4, false },
    };
    for (size_t i = 0; i < N(row); i++) assert_int_equal(ls_arena_holds(a, row[i].p, row[i].nbytes), row[i].want);
    ls_arena_destroy(a);
}

static void a_peer_sees_a_shared_arena_through_its_descriptor(void **state)
{
    (void)state;
    ls_arena *a;
    void *p;
    assert_int_equal(ls_arena_create(4096, true, NULL, &a), LS_OK);
    assert_int_equal(ls_env_real.fd_size(ls_arena_fd(a)), 4096);
    char *peer = ls_env_real.map_shared(ls_arena_fd(a), 4096, true);
    assert_non_null(peer);
    assert_int_equal(ls_arena_alloc(a, 100, LS_MEM_GRAD, &p), LS_OK);
    strcpy(p, "in place");
    assert_string_equal(peer + ((char *)p - (char *)ls_arena_base(a)), "in place");
    ls_env_real.unmap(peer, 4096);
    ls_arena_destroy(a);
}

static void too_much_is_refused_before_anything_is_reserved(void **state)
{
    (void)state;
    static const size_t sizes[] = { (64 << 20) + 1, (size_t)1 << 50, SIZE_MAX - 4095, SIZE_MAX };
    for (size_t i = 0; i < 2 * N(sizes); i++) {
        ls_arena *a = (ls_arena *)&m;
        assert_int_equal(ls_arena_create(sizes[i / 2], i % 2 == 1, NULL, &a), LS_NO_MEMORY);
        assert_null(a);
        assert_non_null(strstr(ls_last_error(), "64.0 MiB of memory are available"));
        assert_int_equal(m.maps + m.memfds, 0);
    }
    assert_non_null(strstr(ls_last_error(), "; use fewer ranks")); /* what to do */
    m.available = UINT64_MAX; /* nobody knows: still no wrapping around */
    ls_arena *a;
    assert_int_equal(ls_arena_create(SIZE_MAX, true, NULL, &a), LS_NO_MEMORY);
    assert_int_equal(m.maps + m.memfds, 0);

    m.available = 1 << 20;
    assert_int_equal(ls_arena_create(1 << 20, true, NULL, &a), LS_OK); /* exactly what there is */
    ls_arena_destroy(a);
}

static void what_the_system_refuses_is_said_and_given_back(void **state)
{
    (void)state;
    ls_arena *a = (ls_arena *)&m;
    m.refuse_memfd = ENOSPC;
    assert_int_equal(ls_arena_create(4096, true, NULL, &a), LS_NO_MEMORY);
    assert_null(a);
    assert_non_null(strstr(ls_last_error(), "No space left on device"));
    m.refuse_memfd = 0;
    m.refuse_map = true;
    for (int shared = 0; shared < 2; shared++) {
        assert_int_equal(ls_arena_create(4096, shared, NULL, &a), LS_NO_MEMORY);
        assert_null(a);
        assert_non_null(strstr(ls_last_error(), "cannot be mapped"));
    }
}

/* A thousand times what the machine has: ledger, marks and resets as of an arena with memory. */
static void a_dry_arena_counts_and_has_no_memory(void **state)
{
    (void)state;
    ls_ledger ledger = { 0 };
    ls_arena *a;
    char *p, *q, *last;
    m.refuse_map = true; /* of memory */
    assert_int_equal(ls_arena_create_dry(&ledger, &a), LS_OK);
    assert_true(ls_arena_is_dry(a));
    assert_true(ls_arena_holds(a, ls_arena_base(a), (size_t)1 << 30)); /* vectors of a dry op's collective */
    assert_int_equal(ls_arena_alloc(a, 100, LS_MEM_PARAM, (void **)&p), LS_OK);
    assert_int_equal(ls_arena_alloc(a, 1, LS_MEM_GRAD, (void **)&q), LS_OK);
    assert_ptr_equal(q, p + 128);
    assert_int_equal((uintptr_t)p % 64, 0);
    const size_t mark = ls_arena_mark(a);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ls_arena_alloc(a, (size_t)20 << 30, LS_MEM_OPTIM, (void **)&last), LS_OK);
        assert_true(ls_arena_holds(a, last, (size_t)20 << 30));
    }
    assert_int_equal(ledger.now[LS_MEM_PARAM], 128);
    assert_int_equal(ledger.now[LS_MEM_OPTIM], (size_t)60 << 30);
    assert_int_equal(ls_arena_mark(a), 192 + ((size_t)60 << 30));
    ls_arena_reset(a, mark);
    assert_int_equal(ledger.now[LS_MEM_OPTIM], 0);
    assert_int_equal(ledger.peak[LS_MEM_OPTIM], (size_t)60 << 30);
    ls_arena_destroy(a);
    assert_int_equal(now(&ledger), 0);
}

static void kinds_have_names(void **state)
{
    (void)state;
    static const char *const names[] = { "param", "grad", "optim", "act", "comm", "data", "ckpt" };
    for (int k = 0; k < LS_MEM_KINDS; k++) assert_string_equal(ls_mem_kind_name((ls_mem_kind)k), names[k]);
    assert_string_equal(ls_mem_kind_name(LS_MEM_KINDS), "?");
}

/* --- two threads -------------------------------------------------------------------------------------- */

#define SPANS 3000

typedef struct taker {
    ls_arena *a;
    ls_mem_kind kind;
    char *p[SPANS];
} taker;

static void take_spans(void *arg)
{
    taker *t = arg;
    for (int i = 0; i < SPANS; i++) {
        void *p;
        t->p[i] = ls_arena_alloc(t->a, 64, t->kind, &p) == LS_OK ? p : NULL;
        if (p) memset(p, (int)t->kind + 1, 64);
    }
}

static void two_threads_may_allocate_at_once(void **state)
{
    (void)state;
    ls_ledger ledger = { 0 };
    static taker t[2];
    void *thread;
    ls_arena *a;
    assert_int_equal(ls_arena_create(2 * SPANS * 64, false, &ledger, &a), LS_OK);
    t[0] = (taker){ .a = a, .kind = LS_MEM_COMM };
    t[1] = (taker){ .a = a, .kind = LS_MEM_DATA };
    assert_int_equal(ls_env_get()->thread_start(take_spans, &t[1], &thread), 0);
    take_spans(&t[0]);
    ls_env_get()->thread_join(thread);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < SPANS; i++) { /* everybody's are still as written */
            assert_non_null(t[k].p[i]);
            for (int b = 0; b < 64; b++) assert_int_equal(t[k].p[i][b], (int)t[k].kind + 1);
        }
    assert_int_equal(ledger.now[LS_MEM_COMM] + ledger.now[LS_MEM_DATA], 2 * SPANS * 64);
    ls_arena_destroy(a);
}

static void another_ledger_takes_over(void **state)
{
    (void)state;
    ls_ledger one = { 0 }, other = { 0 };
    ls_arena *a;
    void *p;
    assert_int_equal(ls_arena_create(1 << 16, false, &one, &a), LS_OK);
    assert_int_equal(ls_arena_alloc(a, 128, LS_MEM_PARAM, &p), LS_OK);
    assert_int_equal(ls_arena_alloc(a, 64, LS_MEM_GRAD, &p), LS_OK);
    assert_int_equal(ls_arena_alloc(a, 64, LS_MEM_PARAM, &p), LS_OK);
    ls_arena_charge(a, &other);
    assert_int_equal(one.now[LS_MEM_PARAM] + one.now[LS_MEM_GRAD], 0);
    assert_int_equal(other.now[LS_MEM_PARAM], 192);
    assert_int_equal(other.peak[LS_MEM_GRAD], 64);
    ls_arena_reset(a, 128); /* what it gives back, it gives back there */
    assert_int_equal(other.now[LS_MEM_PARAM], 128);
    assert_int_equal(other.now[LS_MEM_GRAD], 0);
    ls_arena_charge(a, NULL);
    assert_int_equal(other.now[LS_MEM_PARAM], 0);
    ls_arena_destroy(a);
}

int main(void)
{
#define ON_MACHINE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        ON_MACHINE(blocks_follow_each_other_at_64_bytes),
        ON_MACHINE(the_last_byte_fits_and_one_more_does_not),
        ON_MACHINE(the_ledger_equals_a_sum_by_hand),
        ON_MACHINE(any_order_of_marks_and_resets_leaves_the_ledger_right),
        ON_MACHINE(what_is_assigned_is_its_unit_s_until_it_is_taken_back),
        ON_MACHINE(later_rows_are_others),
        cmocka_unit_test(rows_peak_together),
        ON_MACHINE(holds_its_own_bytes_only),
        ON_MACHINE(a_peer_sees_a_shared_arena_through_its_descriptor),
        ON_MACHINE(too_much_is_refused_before_anything_is_reserved),
        ON_MACHINE(what_the_system_refuses_is_said_and_given_back),
        ON_MACHINE(a_dry_arena_counts_and_has_no_memory),
        cmocka_unit_test(kinds_have_names),
        cmocka_unit_test(another_ledger_takes_over),
        cmocka_unit_test(two_threads_may_allocate_at_once),
    };
    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
