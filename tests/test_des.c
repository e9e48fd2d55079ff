/* The event engine: its queue against sorting, links and meetings against times computed by hand, folding against the
 * unfolded run, and errors. (Shared cores: test_des_cores.c.) */
#include "harness_des.h"

#include "sim/des_queue.h"

/* --- the queue ----------------------------------------------------------------------------------------- */

/* What waits, and a search for the first of it. */
static uint32_t first_of(const double *t, const bool *waits, uint32_t n)
{
    uint32_t best = n;
    for (uint32_t p = 0; p < n; p++)
        if (waits[p] && (best == n || t[p] < t[best])) best = p;
    return best;
}

/* Steps of time: `kind` 0 anywhere, 1 often the same, 2 in a lockstep, 3 a few far ahead, 4 mostly in the open
 * bucket. */
static double step_of(int kind, uint64_t *at)
{
    const double u = uniform(at);
    if (kind == 0) return u;
    if (kind == 1) return floor(4 * u);
    if (kind == 2) return 1;
    if (kind == 3) return u < .02 ? 1e6 * u : 1e-3 * u;
    return u < .5 ? 0 : 1e-9 * u;
}

static void the_queue_gives_times_in_order_and_of_equal_ones_the_first_process(void **state)
{
    (void)state;
    static double t[2000];
    static bool waits[2000];
    uint64_t at = 0;
    for (int kind = 0; kind < 5; kind++)
        for (uint32_t n = 1; n <= 2000; n = n < 10 ? n + 1 : n * 6 + 1) {
            ls_des_queue q;
            ls_des_event e;
            assert_int_equal(ls_des_queue_create(n, &q), LS_OK);
            for (uint32_t p = 0; p < n; p++) {
                waits[p] = true;
                ls_des_queue_push(&q, t[p] = step_of(kind, &at), p);
            }
            for (int i = 0; i < 5000; i++) {
                const uint32_t want = first_of(t, waits, n);
                assert_true(ls_des_queue_pop(&q, &e));
                if (e.p != want || e.t != t[want])
                    fail_msg("kind %d, %u processes, event %d: process %u at %.17g, expected %u at %.17g", kind, n, i,
                             e.p, e.t, want, t[want]);
                ls_des_queue_push(&q, t[e.p] += step_of(kind, &at), e.p);
            }
            for (uint32_t p = 0; p < n; p++) assert_true(ls_des_queue_pop(&q, &e));
            assert_false(ls_des_queue_pop(&q, &e));
            ls_des_queue_free(&q);
        }
}

/* --- by hand ------------------------------------------------------------------------------------------- */

static void a_message_takes_its_latency_and_its_bytes(void **state)
{
    (void)state;
    const ls_des_op a[] = { WORK(C1), SEND(1, 0, C100), WORK(C2), END }, b[] = { RECV(0, 0, C4), WORK(C8), END };
    const ls_des_op *const all[] = { a, b };
    for (int how = LS_DES_FREE; how <= LS_DES_FAIR; how++) {
        const ls_des_model m = model_of(2, all, shared((ls_des_sharing)how));
        ls_des_result r = { .ends_s = ends };
        assert_int_equal(ls_des_run(&m, &r), LS_OK);
        NEAR(r.end_s, 1 + 0.5 + 1 + 4 + 8);
        NEAR(ends[0], 3);
        assert_int_equal(r.events, 5);
        assert_int_equal(r.messages, 1);
    }
}

static void messages_of_a_rank_leave_one_after_another(void **state)
{
    (void)state;
    const ls_des_op a[] = { SEND(1, 0, C100), SEND(2, 0, C200), END }, b[] = { RECV(0, 0, C0), END };
    const ls_des_op *const all[] = { a, b, b };
    for (int how = LS_DES_FREE; how <= LS_DES_FIFO; how++) {
        const ls_des_model m = model_of(3, all, shared((ls_des_sharing)how));
        run(&m);
        NEAR(ends[1], 1.5);
        NEAR(ends[2], 3.5);
    }
    for (int how = LS_DES_FREE; how <= LS_DES_FIFO; how++) {
        const uint32_t place[] = { 2, 0, 1 };
        ls_des_model m = model_of(3, all, shared((ls_des_sharing)how));
        m.net.gap = 0.5; /* after the bytes of the first, before those of the second */
        run(&m);
        NEAR(ends[1], 1.5);
        NEAR(ends[2], 3.75);
        m.place = place;
        run(&m);
        NEAR(ends[2], 3.75);
    }
    const ls_des_model m = model_of(3, all, shared(LS_DES_FAIR)); /* half each, until the shorter one is gone */
    run(&m);
    NEAR(ends[1], 2.5);
    NEAR(ends[2], 3.5);
}

/* Two ranks send to a third at once. */
static void messages_to_a_rank_wait_or_share(void **state)
{
    (void)state;
    const ls_des_op a[] = { SEND(2, 0, C100), END }, b[] = { SEND(2, 0, C200), END };
    const ls_des_op c[] = { RECV(0, 0, C0), WORK(C0), RECV(1, 0, C0), END };
    const ls_des_op *const all[] = { a, b, c };
    ls_des_model m = model_of(3, all, shared(LS_DES_FREE));
    NEAR(run(&m), 2.5);
    m.net = shared(LS_DES_FIFO);
    NEAR(run(&m), 3.5);
    m.net = shared(LS_DES_FAIR);
    NEAR(run(&m), 3.5); /* the same end: the link is never idle */
    const ls_des_op d[] = { RECV(1, 0, C0), END };
    const ls_des_op *const late[] = { a, b, d };
    m = model_of(3, late, shared(LS_DES_FAIR));
    NEAR(run(&m), 3.5);
    const ls_des_op e[] = { RECV(0, 0, C0), END };
    const ls_des_op *const early[] = { a, b, e };
    m = model_of(3, early, shared(LS_DES_FAIR));
    NEAR(run(&m), 2.5);
}

/* Flows 0 -> 2, 1 -> 2, 1 -> 3 of 200 bytes: the first two share the way into 2, the last two the way out of 1: all get
 * half. With a third flow into 2 those three get a third, and 1 -> 3 the rest of 1's way out: two thirds. */
static void rates_are_max_min_fair(void **state)
{
    (void)state;
    const ls_des_op a[] = { SEND(2, 0, C200), END }, b[] = { SEND(2, 0, C200), SEND(3, 0, C200), END };
    const ls_des_op c[] = { RECV(0, 0, C0), RECV(1, 0, C0), END }, d[] = { RECV(1, 0, C0), END };
    const ls_des_op c3[] = { RECV(0, 0, C0), RECV(1, 0, C0), RECV(4, 0, C0), END };
    const ls_des_op *const three[] = { a, b, c, d }, *const four[] = { a, b, c3, d, a };
    ls_des_model m = model_of(4, three, shared(LS_DES_FAIR));
    run(&m);
    NEAR(ends[2], 4.5);
    NEAR(ends[3], 4.5);
    m = model_of(5, four, shared(LS_DES_FAIR));
    run(&m);
    NEAR(ends[3], 3.5);
    NEAR(ends[2], 6.5);
}

static void messages_of_a_pair_are_in_order_and_kept_until_they_are_wanted(void **state)
{
    (void)state;
    const ls_des_op a[] = { SEND(1, 0, C100), SEND(1, 1, C0), SEND(1, 0, C0), SEND(1, 1, C100), END };
    const ls_des_op b[] = { WORK(C8), RECV(0, 1, C1), RECV(0, 0, C2), RECV(0, 0, C0), RECV(0, 1, C0), END };
    const ls_des_op *const all[] = { a, b };
    for (int how = LS_DES_FREE; how <= LS_DES_FIFO; how++) {
        const ls_des_model m = model_of(2, all, shared((ls_des_sharing)how));
        NEAR(run(&m), 11);
        /* The second message of via 0 comes before the first of via 1 is taken; nothing else may be taken for it. */
        const ls_des_op c[] = { RECV(0, 1, C0), WORK(C0), END };
        const ls_des_op *const one[] = { a, c };
        const ls_des_model n = model_of(2, one, shared((ls_des_sharing)how));
        run(&n);
        NEAR(ends[1], 1.5);
    }
}

/* Many messages that came early are taken in another order, some of them twice from the same process. */
static void early_messages_are_found_in_any_order(void **state)
{
    (void)state;
    static ls_des_op one[40][3], all_of[81];
    const ls_des_op *all[41];
    uint64_t at = 77;
    for (uint32_t p = 0; p < 40; p++) {
        one[p][0] = SEND(40, 0, C0), one[p][1] = SEND(40, 0, C0), one[p][2] = END;
        all[p] = one[p];
        all_of[p] = RECV(p, 0, C1);
        all_of[40 + p] = RECV(39 - p, 0, C1);
    }
    for (uint32_t p = 39; p > 0; p--) {
        const uint32_t k = (uint32_t)(uniform(&at) * (p + 1));
        const ls_des_op swap = all_of[p];
        all_of[p] = all_of[k];
        all_of[k] = swap;
    }
    all_of[80] = END;
    all[40] = all_of;
    for (int how = LS_DES_FREE; how <= LS_DES_FAIR; how++) {
        const ls_des_model m = model_of(41, all, shared((ls_des_sharing)how));
        NEAR(run(&m), 80.5);
    }
}

/* What came early is not what is waited for. */
static void messages_are_not_mistaken_for_others(void **state)
{
    (void)state;
    const ls_des_op a[] = { SEND(1, 0, C0), WORK(C8), SEND(1, 1, C0), END };
    const ls_des_op b[] = { WORK(C2), RECV(0, 1, C0), WORK(C1), RECV(0, 0, C0), END };
    const ls_des_op *const all[] = { a, b };
    for (int how = LS_DES_FREE; how <= LS_DES_FAIR; how++) {
        const ls_des_model m = model_of(2, all, shared((ls_des_sharing)how));
        NEAR(run(&m), 8 + 0.5 + 1);
    }
}

static void a_meeting_is_over_when_the_last_one_has_come(void **state)
{
    (void)state;
    const uint32_t group[] = { 0, 0, 1, 1, /* axis 1: */ 2, 3, 2, 3 }, members[] = { 2, 2, 2, 2 };
    const ls_des_op a[] = { WORK(C1), MEET(0, C2), MEET(1, C1), END },
        b[] = { WORK(C8), MEET(0, C2), MEET(1, C1), END };
    const ls_des_op *const all[] = { a, b, a, a };
    for (int how = LS_DES_FREE; how <= LS_DES_FIFO; how++) {
        ls_des_model m = model_of(4, all, shared((ls_des_sharing)how));
        m.axes = 2, m.ngroups = 4, m.group = group, m.members = members;
        run(&m);
        NEAR(ends[0], 11); /* 1 is late: 8 + 2, then with 2 */
        NEAR(ends[1], 11);
        NEAR(ends[2], 11);
        NEAR(ends[3], 11);
    }
}

/* --- topologies ------------------------------------------------------------------------------------------ */

static ls_topo two_nodes(bool rails, double oversubscription)
{
    return (ls_topo){ .name = "t", .nlevels = 2, .device = { .name = "d" },
                      .level = { { .name = "node", .count = 4, .link = "a", .bytes_per_s = 400, .latency_s = 0.125,
                                   .ports = 1, .oversubscription = 1 },
                                 { .name = "all", .count = 2, .link = "b", .bytes_per_s = 50, .latency_s = 1,
                                   .ports = 4, .rails = rails,
                                   .oversubscription = oversubscription } } };
}

/* n senders of the first node send 100 bytes each to one of the second, or to themselves in a circle. */
static double crossing(const ls_topo *t, int n, bool within, ls_des_sharing how, const ls_des_failure *failure)
{
    ls_des_op op[8][3];
    const ls_des_op *all[8];
    for (int i = 0; i < 8; i++) {
        const int to = within ? (i + 1) % 4 : i + 4;
        const bool sends = i < n, gets = within ? i < 4 && (i + 3) % 4 < n : i >= 4 && i - 4 < n;
        ls_des_op *a = op[i];
        if (sends) *a++ = SEND((uint32_t)to, 0, C100);
        if (gets) *a++ = RECV((uint32_t)(within ? (i + 3) % 4 : i - 4), 0, C0);
        *a = END;
        all[i] = op[i];
    }
    ls_des_model m = model_of(8, all, (ls_des_net){ .topo = t, .sharing = how, .failure = failure,
                                                    .nfailures = failure ? 1 : 0 });
    return run(&m);
}

static void links_of_a_topology_carry_what_they_can(void **state)
{
    (void)state;
    const ls_topo shared4 = two_nodes(false, 1), rails = two_nodes(true, 1), over = two_nodes(true, 4);
    for (int how = LS_DES_FREE; how <= LS_DES_FAIR; how++) {
        NEAR(crossing(&shared4, 1, true, (ls_des_sharing)how, NULL), 0.125 + 0.25);
        NEAR(crossing(&shared4, 4, true, (ls_des_sharing)how, NULL), 0.125 + 0.25);
        NEAR(crossing(&shared4, 1, false, (ls_des_sharing)how, NULL), 1 + 0.5); /* all four ports are its */
        NEAR(crossing(&rails, 1, false, (ls_des_sharing)how, NULL), 1 + 2);
        NEAR(crossing(&rails, 4, false, (ls_des_sharing)how, NULL), 1 + 2);
    }
    NEAR(crossing(&shared4, 4, false, LS_DES_FIFO, NULL), 1 + 4 * 0.5);
    NEAR(crossing(&shared4, 4, false, LS_DES_FAIR, NULL), 1 + 4 * 0.5);
    NEAR(crossing(&over, 4, false, LS_DES_FIFO, NULL), 1 + 4 * 2);
    NEAR(crossing(&over, 4, false, LS_DES_FAIR, NULL), 1 + 4 * 2);
    const ls_des_op to2[] = { SEND(2, 0, C100), END }, from01[] = { RECV(0, 0, C0), RECV(1, 0, C0), END };
    const ls_des_op *const into[] = { to2, to2, from01 };
    for (int how = LS_DES_FIFO; how <= LS_DES_FAIR; how++) { /* ports into a device, too */
        const ls_des_model m = model_of(3, into, (ls_des_net){ .topo = &rails, .sharing = (ls_des_sharing)how });
        NEAR(run(&m), 0.125 + 2 * 0.25);
    }
    ls_topo slow = rails;
    slow.nslow = 1;
    slow.slow[0] = (ls_topo_slow){ .level = 1, .unit = 1, .bytes_per_s = 25 };
    for (int how = LS_DES_FREE; how <= LS_DES_FAIR; how++)
        NEAR(crossing(&slow, 2, false, (ls_des_sharing)how, NULL), 1 + 4);
}

static void links_that_fail_carry_nothing_until_they_are_back(void **state)
{
    (void)state;
    const ls_topo t = two_nodes(true, 1);
    const ls_des_failure before = { 1, 0, 0, 3 }, within = { 1, 1, 1, 5 }, after = { 1, 0, 7, 9 },
        other = { 0, 0, 0, 9 };
    NEAR(crossing(&t, 2, false, LS_DES_FIFO, &before), 3 + 3);
    NEAR(crossing(&t, 2, false, LS_DES_FIFO, &within), 5 + 3); /* sent again */
    NEAR(crossing(&t, 2, false, LS_DES_FIFO, &after), 3);
    NEAR(crossing(&t, 2, false, LS_DES_FIFO, &other), 3); /* of the links within a node */
    NEAR(crossing(&t, 1, true, LS_DES_FIFO, &(ls_des_failure){ 0, 1, 0, 9 }), 9 + 0.375);
}

/* --- chance ------------------------------------------------------------------------------------------------ */

static void jitter_follows_from_the_seed_alone(void **state)
{
    (void)state;
    ls_des_op a[101], b[101];
    for (int i = 0; i < 100; i++) a[i] = WORK(C8), b[i] = i % 2 ? WORK(C8) : WORK(C4);
    a[100] = b[100] = END;
    const ls_des_op *const all[] = { a, a, b };
    ls_des_model m = model_of(3, all, flat);
    m.jitter = 0.01;
    m.seed = 7;
    const double once = run(&m), first = ends[0], second = ends[1];
    assert_true(first != second); /* each process has its own */
    assert_true(first > 800 * 0.99 && first < 800 * 1.01 && fabs(first - 800) > 1e-9);
    assert_true(fabs(first - 800) < 3); /* draws go both ways: the standard deviation of the sum is 0.46 */
    m.net = shared(LS_DES_FIFO);
    assert_true(run(&m) == once && ends[0] == first && ends[1] == second); /* in any order */
    m.seed = 8;
    assert_true(run(&m) != once);
    const double pace[] = { 1, 3, 1 };
    m.jitter = 0;
    m.pace = pace;
    NEAR(run(&m), 2400);
    NEAR(ends[0], 800);
    NEAR(ends[2], 600);
}

/* --- folding ------------------------------------------------------------------------------------------------ */

/* A step of t x d x p ranks: stages pass on micro-batches, ranks of tp meet in each, those of dp at the end. */
typedef struct mesh {
    ls_des_op op[8][400];
    const ls_des_op *program[512];
    uint32_t base[512], group[2 * 512], members[512];
} mesh;

static ls_des_model mesh_of(mesh *x, uint32_t t, uint32_t d, uint32_t p, uint32_t micro)
{
    const uint32_t n = t * d * p, each = t * d;
    for (uint32_t s = 0; s < p; s++) {
        ls_des_op *a = x->op[s];
        for (uint32_t m = 0; m < micro; m++) {
            if (s > 0) *a++ = RECV(0u - each, 0, C0);
            *a++ = WORK(s % 2 ? C2 : C1);
            *a++ = MEET(0, C1);
            if (s + 1 < p) *a++ = SEND(each, 0, C100);
        }
        *a++ = MEET(1, C4);
        *a = END;
    }
    memset(x->members, 0, sizeof x->members);
    for (uint32_t i = 0; i < n; i++) {
        x->program[i] = x->op[i / each];
        x->base[i] = i;
        x->group[i] = i / t;                                     /* tp */
        x->group[n + i] = d * p + i / each * t + i % t;          /* dp */
        x->members[x->group[i]]++;
        x->members[x->group[n + i]]++;
    }
    ls_des_model m = model_of(n, x->program, flat);
    m.base = x->base, m.axes = 2, m.ngroups = d * p + p * t, m.group = x->group, m.members = x->members;
    return m;
}

static void folding_changes_no_bit(void **state)
{
    (void)state;
    static mesh x;
    static double whole[512], part[512], pace[512];
    for (uint32_t t = 1; t <= 4; t *= 2)
        for (uint32_t d = 2; d <= 8; d += 3)
            for (uint32_t p = 1; p <= 8; p += 3)
                for (int slow = 0; slow < 2; slow++) {
                    ls_des_model m = mesh_of(&x, t, d, p, 9);
                    ls_des_folded f;
                    ls_des_result a = { .ends_s = whole }, b = { .ends_s = part };
                    for (uint32_t i = 0; i < m.n; i++) pace[i] = 1;
                    pace[m.n - 1] = 1.0 + 1.0 / 3;
                    if (slow) m.pace = pace;
                    assert_int_equal(ls_des_run(&m, &a), LS_OK);
                    assert_int_equal(ls_des_fold(&m, &f), LS_OK);
                    if (!slow) assert_int_equal(f.model.n, p);
                    if (slow && 8 * p <= m.n) assert_non_null(f.class_of);
                    if (slow && f.class_of) assert_true(f.model.n > p);
                    assert_int_equal(ls_des_run(&f.model, &b), LS_OK);
                    assert_true(a.end_s == b.end_s);
                    for (uint32_t i = 0; f.class_of && i < m.n; i++)
                        if (whole[i] != part[f.class_of[i]])
                            fail_msg("t %u d %u p %u, rank %u: %.17g, folded %.17g", t, d, p, i, whole[i],
                                     part[f.class_of[i]]);
                    ls_des_folded_free(&f);
                }
}

/* Along one axis of a cube after the other. Some ranks begin later, so that the others end at other times. */
static void flipped_bits_name_the_ranks_that_numbers_name(void **state)
{
    (void)state;
    enum { BITS = 5, N = 1 << BITS };
    static ls_des_op cube[2][2 * BITS + 2], own[N][2 * BITS + 2];
    const ls_des_op *together[N], *apart[N];
    double pace[N], until[2][N];
    for (uint32_t r = 0; r < N; r++) {
        ls_des_op *a = cube[r % 3 == 0], *b = own[r];
        *a++ = *b++ = WORK(r % 3 == 0 ? C2 : C1);
        for (uint32_t d = 1; d < N; d *= 2) {
            *a++ = SEND(d, 0, C100);
            *b++ = SEND(r ^ d, 0, C100);
            *a++ = RECV(d, 0, C4);
            *b++ = RECV(r ^ d, 0, C4);
        }
        *a = *b = END;
        together[r] = cube[r % 3 == 0];
        apart[r] = own[r];
        pace[r] = 1 + .25 * (r % 7);
    }
    for (int how = LS_DES_FREE; how <= LS_DES_FAIR; how++)
        for (int slow = 0; slow < 2; slow++) {
            ls_des_model m = model_of(N, together, flat);
            ls_des_result r = { .ends_s = until[0] };
            m.net.sharing = (ls_des_sharing)how;
            m.flips = true;
            m.pace = slow ? pace : NULL;
            assert_int_equal(ls_des_run(&m, &r), LS_OK);
            m.program = apart;
            m.flips = false;
            r.ends_s = until[1];
            assert_int_equal(ls_des_run(&m, &r), LS_OK);
            assert_memory_equal(until[0], until[1], sizeof until[0]);
        }
    /* Two pairs of a fast and a slow one. */
    const ls_des_op pair[] = { WORK(C1), SEND(2, 0, C100), RECV(2, 0, C4), END };
    const ls_des_op other[] = { WORK(C2), SEND(2, 0, C100), RECV(2, 0, C4), END };
    const ls_des_op *const four[] = { pair, pair, other, other };
    ls_des_model m = model_of(4, four, flat);
    ls_des_folded f;
    m.flips = true;
    const double whole = run(&m);
    m.wake_s = (double[4]){ 0 };
    assert_int_equal(ls_des_fold(&m, &f), LS_OK);
    assert_null(f.class_of);
    m.wake_s = NULL;
    assert_int_equal(ls_des_fold(&m, &f), LS_OK);
    assert_int_equal(f.model.n, 2);
    assert_true(run(&f.model) == whole);
    ls_des_folded_free(&f);
}

/* A rank that sends to two of a class is in no class with what it would send once. */
static void what_cannot_be_folded_is_not(void **state)
{
    (void)state;
    const ls_des_op root[] = { SEND(1, 0, C100), SEND(2, 0, C100), SEND(3, 0, C100), END },
        leaf[] = { RECV(0, 0, C0), END };
    const ls_des_op *const all[] = { root, leaf, leaf, leaf };
    ls_des_model m = model_of(4, all, flat);
    ls_des_folded f;
    assert_int_equal(ls_des_fold(&m, &f), LS_OK);
    assert_null(f.class_of);
    NEAR(run(&f.model), 3.5);
    ls_des_folded_free(&f);
    static mesh x;
    m = mesh_of(&x, 2, 2, 2, 3);
    m.jitter = 0.1;
    assert_int_equal(ls_des_fold(&m, &f), LS_OK);
    assert_null(f.class_of);
}

/* --- errors ------------------------------------------------------------------------------------------------- */

static void fails(const ls_des_model *m, ls_status st, const char *part)
{
    ls_des_result r = { 0 };
    assert_int_equal(ls_des_run(m, &r), st);
    if (!strstr(ls_last_error(), part)) fail_msg("'%s' does not say '%s'", ls_last_error(), part);
}

static void says_what_is_wrong(void **state)
{
    (void)state;
    const ls_des_op lonely[] = { WORK(C1), RECV(1, 0, C0), END }, end[] = { END }, far[] = { SEND(9, 0, C0), END };
    const ls_des_op cost[] = { WORK(77), END }, meets[] = { MEET(3, C0), END };
    const ls_des_op *const waits[] = { lonely, end }, *const to_far[] = { far, end }, *const costly[] = { cost, end },
        *const met[] = { meets, end };
    for (int how = LS_DES_FREE; how <= LS_DES_FIFO; how++) {
        ls_des_model m = model_of(2, waits, shared((ls_des_sharing)how));
        fails(&m, LS_INTERNAL, "process 0 waits at operation 1 for a message (1) forever");
        m.program = to_far;
        fails(&m, LS_INVALID, "process 0, operation 0: process 9: expected less than 2");
        m.program = costly;
        fails(&m, LS_INVALID, "cost 77: expected less than 7");
        m.program = met;
        fails(&m, LS_INVALID, "axis 3: expected less than 0");
    }
    ls_des_model m = model_of(2, waits, flat);
    m.jitter = 2;
    fails(&m, LS_INVALID, "a jitter of 2");
    m = model_of(2, waits, (ls_des_net){ .bytes_per_s = 0 });
    fails(&m, LS_INVALID, "a network of 0 s and 0 bytes/s");
    m = model_of(2, waits, (ls_des_net){ .bytes_per_s = 1, .gap = 2 });
    fails(&m, LS_INVALID, "a gap of 2: expected 0 to 1");
    const ls_topo t = two_nodes(false, 1);
    const ls_des_op *const nine[9] = { end, end, end, end, end, end, end, end, end };
    m = model_of(9, nine, (ls_des_net){ .topo = &t });
    fails(&m, LS_BAD_CONFIG, "9 ranks do not fit on t");
    const ls_des_failure gone = { 1, 0, 0, (double)INFINITY }, nowhere = { 2, 0, 0, 1 }, back = { 1, 0, 2, 1 };
    const ls_des_op a[] = { SEND(4, 0, C100), END }, b[] = { RECV(0, 0, C0), END };
    const ls_des_op *const across[] = { a, end, end, end, b };
    m = model_of(5, across, (ls_des_net){ .topo = &t, .sharing = LS_DES_FIFO, .failure = &gone, .nfailures = 1 });
    fails(&m, LS_INTERNAL, "process 4 waits at operation 0 for a message (0) forever");
    m.net.failure = &nowhere;
    fails(&m, LS_BAD_CONFIG, "a failure of unit 0 of level 2");
    m.net.failure = &back;
    fails(&m, LS_BAD_CONFIG, "a failure from 2 s until 1 s");
}

/* --- what is told --------------------------------------------------------------------------------------------- */

typedef struct heard { int n; ls_des_span span[16]; ls_des_kind kind[16]; } heard;

static void note(void *arg, const ls_des_op *op, const ls_des_span *span)
{
    heard *h = arg;
    if (h->n < 16) h->kind[h->n] = (ls_des_kind)op->kind, h->span[h->n] = *span;
    h->n++;
}

static void tells_of_each_operation_once(void **state)
{
    (void)state;
    const ls_des_op a[] = { WORK(C4), SEND(1, 0, C100), END }, b[] = { WORK(C1), RECV(0, 0, C0), END };
    const ls_des_op *const all[] = { a, b };
    for (int how = LS_DES_FREE; how <= LS_DES_FAIR; how++) {
        heard h = { 0 };
        ls_des_model m = model_of(2, all, shared((ls_des_sharing)how));
        m.told = note, m.arg = &h;
        run(&m);
        assert_int_equal(h.n, 4);
        for (int i = 0; i < h.n; i++) {
            const ls_des_span *s = &h.span[i];
            if (h.kind[i] == LS_DES_WORK) NEAR(s->until_s - s->from_s, s->process ? 1 : 4);
            if (h.kind[i] != LS_DES_RECV) continue;
            assert_int_equal(s->process, 1);
            assert_int_equal(s->at, 1);
            NEAR(s->from_s, 1);
            NEAR(s->ready_s, 5.5);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_queue_gives_times_in_order_and_of_equal_ones_the_first_process),
        cmocka_unit_test(a_message_takes_its_latency_and_its_bytes),
        cmocka_unit_test(messages_of_a_rank_leave_one_after_another),
        cmocka_unit_test(messages_to_a_rank_wait_or_share),
        cmocka_unit_test(rates_are_max_min_fair),
        cmocka_unit_test(messages_of_a_pair_are_in_order_and_kept_until_they_are_wanted),
        cmocka_unit_test(early_messages_are_found_in_any_order),
        cmocka_unit_test(messages_are_not_mistaken_for_others),
        cmocka_unit_test(a_meeting_is_over_when_the_last_one_has_come),
        cmocka_unit_test(links_of_a_topology_carry_what_they_can),
        cmocka_unit_test(links_that_fail_carry_nothing_until_they_are_back),
        cmocka_unit_test(jitter_follows_from_the_seed_alone),
        cmocka_unit_test(folding_changes_no_bit),
        cmocka_unit_test(flipped_bits_name_the_ranks_that_numbers_name),
        cmocka_unit_test(what_cannot_be_folded_is_not),
        cmocka_unit_test(says_what_is_wrong),
        cmocka_unit_test(tells_of_each_operation_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
