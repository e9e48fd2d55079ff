/* The event engine where processes share cores: equal parts of them, processes that stay on a core, and processes
 * that poll or sleep while they wait; against times computed by hand and small steps of time. */
#include "harness_des.h"

/* Processes that compute for w[i], after they have slept for `asleep`[i]; when they end is in `ends`. */
static void compute_on(double cores, const uint32_t *core, double idle, uint32_t n, const double *w,
                       const double *asleep)
{
    static ls_des_op op[64][3];
    static const ls_des_op *all[64];
    static double cost[128];
    for (uint32_t i = 0; i < n; i++) {
        cost[2 * i] = asleep[i], cost[2 * i + 1] = w[i];
        op[i][0] = ls_des_op_of(LS_DES_WORK, 0, LS_DES_ASLEEP, 2 * i);
        op[i][1] = WORK(2 * i + 1);
        op[i][2] = (ls_des_op){ .kind = LS_DES_END };
        all[i] = op[i];
    }
    ls_des_model m = model_of(n, all, shared(LS_DES_FIFO));
    m.cost = cost, m.ncosts = 2 * n, m.cores = cores, m.core = core, m.idle_s = idle;
    run(&m);
}

static void compute(double cores, uint32_t n, const double *w, const double *asleep)
{
    compute_on(cores, NULL, 0, n, w, asleep);
}

/* Two of three are on core 1, whatever core 0 has to do; each core by itself is as one that all share. */
static void processes_stay_on_their_cores(void **state)
{
    (void)state;
    static const uint32_t core[] = { 1, 0, 1 }, beyond[] = { 0, 2, 1 };
    const double none[3] = { 0 };
    compute_on(2, core, 0, 3, (double[]){ 1, 1, 3 }, none);
    NEAR(ends[0], 2);
    NEAR(ends[1], 1);
    NEAR(ends[2], 4);
    compute_on(2, core, 0, 3, (double[]){ 3, 1, 1 }, (double[]){ 0, 5, 1 }); /* half of it from 1 to 3 */
    NEAR(ends[0], 4);
    NEAR(ends[1], 6);
    NEAR(ends[2], 3);
    ls_des_op op[] = { WORK(C1), END };
    const ls_des_op *const all[] = { op, op, op };
    ls_des_model m = model_of(3, all, shared(LS_DES_FIFO));
    ls_des_result r = { 0 };
    m.cores = 2, m.core = beyond;
    assert_int_equal(ls_des_run(&m, &r), LS_INVALID);
    m.cores = 1.5, m.core = core;
    assert_int_equal(ls_des_run(&m, &r), LS_INVALID);
    m.cores = 2, m.idle_s = -1;
    assert_int_equal(ls_des_run(&m, &r), LS_INVALID);
    m.idle_s = 1;
    assert_int_equal(ls_des_run(&m, &r), LS_OK);
}

/* Process 0 sends after 4 to process 1, which polls on core 1 until then; the others compute there, each for 4. One
 * that polls gets half of what they get. */
static void who_polls_takes_of_its_core(void **state)
{
    (void)state;
    static const double cost[] = { 0, 4, 2, 6 };
    enum { NOTHING, FOUR, TWO, SIX, VIA = 3 };
    static const uint32_t core[] = { 0, 1, 1, 1 }, other[] = { 0, 0, 1, 1 };
    const ls_des_op sends[] = { WORK(FOUR), SEND(1, VIA, NOTHING), END }, gets[] = { RECV(0, VIA, NOTHING), END };
    const ls_des_op late[] = { ls_des_op_of(LS_DES_WORK, 0, LS_DES_ASLEEP, SIX), RECV(0, VIA, NOTHING), END };
    const ls_des_op then[] = { RECV(0, VIA, NOTHING), WORK(TWO), END };
    const ls_des_op computes[] = { WORK(FOUR), END }, none[] = { END };
    const struct {
        const ls_des_op *gets, *third;
        const uint32_t *core;
        uint32_t via;
        double poll, one, end;
    } row[] = {
        { gets, none, core, VIA, .5, 4, 4 + 4 / 3. },     /* two thirds of the core until 4 */
        { gets, computes, core, 0, .5, 4, 4 + 2 * 2.4 },  /* two fifths */
        { gets, none, core, VIA, 0, 4, 4 },
        { gets, none, core, VIA + 1, .5, 4, 4 },          /* it does not poll for this one */
        { gets, none, other, VIA, .5, 6, 4 },             /* on the core of the sender */
        { late, none, core, VIA, .5, 6, 4 },              /* the message is there */
        { then, none, core, VIA, .5, 4 + 10 / 3., 4 + 8 / 3. }, /* and then half of the core */
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        const ls_des_op *const all[] = { sends, row[i].gets, computes, row[i].third };
        ls_des_model m = model_of(4, all, shared(LS_DES_FIFO));
        m.net.latency_s = 0;
        m.cost = cost, m.ncosts = COUNT(cost), m.cores = 2, m.core = row[i].core;
        m.poll = row[i].poll, m.poll_via = row[i].via;
        run(&m);
        if (fabs(ends[1] - row[i].one) > 1e-9 || fabs(ends[2] - row[i].end) > 1e-9)
            fail_msg("row %zu: %.9g and %.9g, expected %.9g and %.9g", i, ends[1], ends[2], row[i].one, row[i].end);
    }
    const ls_des_op *const all[] = { none, none };
    ls_des_model m = model_of(2, all, shared(LS_DES_FIFO));
    ls_des_result r = { 0 };
    const struct { const uint32_t *core; double poll; } bad[] = {
        { core, -1 }, { core, (double)INFINITY }, { core, (double)NAN }, { NULL, .5 },
    };
    m.cores = 2;
    for (size_t i = 0; i < COUNT(bad); i++) {
        m.core = bad[i].core, m.poll = bad[i].poll;
        assert_int_equal(ls_des_run(&m, &r), LS_INVALID);
    }
}

/* Process 1 sleeps until 6, when a message is on its way that comes at 7, and computes then; process 2, on the same
 * core, computes from 6.5 on. */
static void who_would_poll_begins_in_its_turn(void **state)
{
    (void)state;
    static const double cost[] = { 0, 5, 6, 6.5, 2, 4 };
    static const uint32_t core[] = { 0, 1, 1 };
    enum { ASLEEP = LS_DES_ASLEEP };
    const ls_des_op sends[] = { WORK(1), SEND(1, 0, 0), END };
    const ls_des_op gets[] = { ls_des_op_of(LS_DES_WORK, 0, ASLEEP, 2), RECV(0, 0, 0), WORK(4), END };
    const ls_des_op computes[] = { ls_des_op_of(LS_DES_WORK, 0, ASLEEP, 3), WORK(5), END };
    const ls_des_op *const all[] = { sends, gets, computes };
    ls_des_model m = model_of(3, all, shared(LS_DES_FIFO));
    m.net.latency_s = 2;
    m.cost = cost, m.ncosts = COUNT(cost), m.cores = 2, m.core = core, m.poll = .5;
    run(&m);
    NEAR(ends[1], 7 + 4); /* half of the core */
    NEAR(ends[2], 6.5 + .5 + 4 + 1.5);
}

/* Process 0 computes for 4, and sends (which takes .5 and 1) or meets process 1; who waits for 2 sleeps, and process 1
 * then takes 8 to go on, process 0 takes 16. */
static void who_sleeps_in_a_wait_goes_on_later(void **state)
{
    (void)state;
    enum { ASLEEP = LS_DES_ASLEEP };
    const ls_des_op sends[] = { WORK(C4), SEND(1, 0, C100), END }, gets[] = { RECV(0, 0, C1), END };
    const ls_des_op later[] = { ls_des_op_of(LS_DES_WORK, 0, ASLEEP, C4), RECV(0, 0, C1), END };
    const ls_des_op comes[] = { WORK(C4), MEET(0, C1), END }, waits[] = { MEET(0, C1), END };
    const double wake[] = { 16, 8 }, never[] = { 0, 0 }, bad[][2] = { { 0, -1 }, { (double)INFINITY, 0 } };
    const uint32_t group[] = { 0, 0 }, members[] = { 2 };
    const struct { const ls_des_op *a, *b; double idle_s; const double *wake_s; double end; } row[] = {
        { sends, gets, 2, wake, 5.5 + 8 + 1 }, { sends, gets, 5.5, wake, 5.5 + 8 + 1 }, { sends, gets, 5.6, wake, 6.5 },
        { sends, gets, 0, NULL, 6.5 },         { sends, gets, 2, NULL, 6.5 },           { sends, gets, 2, never, 6.5 },
        { sends, later, 2, wake, 6.5 }, /* it waits for 1.5 alone */
        { sends, later, 1.2, wake, 5.5 + 8 + 1 }, { comes, waits, 2, wake, 4 + 8 + 1 }, { comes, waits, 4.1, wake, 5 },
    };
    for (size_t i = 0; i < COUNT(row); i++)
        for (int how = LS_DES_FREE; how <= LS_DES_FAIR; how++) {
            const ls_des_op *const all[] = { row[i].a, row[i].b };
            ls_des_model m = model_of(2, all, shared((ls_des_sharing)how));
            m.idle_s = row[i].idle_s, m.wake_s = row[i].wake_s;
            m.axes = m.ngroups = 1, m.group = group, m.members = members;
            run(&m);
            if (fabs(ends[1] - row[i].end) > 1e-9) fail_msg("row %zu, sharing %d: %g, expected %g", i, how, ends[1], row[i].end);
            if (row[i].a == comes) NEAR(ends[0], 5); /* who comes last does not wait */
        }
    const ls_des_op *const all[] = { sends, gets };
    ls_des_model m = model_of(2, all, flat);
    ls_des_result r = { 0 };
    for (int i = 0; i < 3; i++) {
        m.wake_s = i < 2 ? bad[i] : wake;
        m.idle_s = i < 2 ? 2 : 0;
        assert_int_equal(ls_des_run(&m, &r), LS_INVALID);
    }
}

/* The same with a third process on the core of the one that waits: it computes for a while, after a while. */
static void nobody_sleeps_on_a_core_that_computes(void **state)
{
    (void)state;
    enum { ASLEEP = LS_DES_ASLEEP };
    static const double cost[] = { 0, 4, 1, 3, .5, 2.5, 1.5, 10 };
    enum { NOTHING, FOUR, ONE, THREE, HALF, MORE, LESS, LONG };
    const ls_des_op sends[] = { WORK(FOUR), SEND(1, 0, NOTHING), END }, gets[] = { RECV(0, 0, NOTHING), END };
    const ls_des_op late[] = { ls_des_op_of(LS_DES_WORK, 0, ASLEEP, MORE), RECV(0, 0, NOTHING), END };
    const double wake[] = { 0, 8, 0 };
    static const uint32_t apart[] = { 0, 1, 1 }, same[] = { 0, 0, 1 };
    const struct { const uint32_t *core; const ls_des_op *gets; uint32_t asleep, work; double end; } row[] = {
        { apart, gets, NOTHING, NOTHING, 4 + 8 }, /* alone */
        { apart, gets, NOTHING, LONG, 4 },        /* the other one computes all the time, */
        { apart, gets, ONE, LONG, 4 },            /* or after one second: it has not slept */
        { apart, gets, LESS, LONG, 4 },           /* less than two */
        { apart, gets, MORE, LONG, 4 + 8 },       /* it sleeps, whatever is computed later */
        { apart, gets, NOTHING, LESS, 4 + 8 },    /* nothing is computed from 1.5 on, */
        { apart, gets, NOTHING, MORE, 4 },        /* or from 2.5 */
        { apart, gets, ONE, HALF, 4 + 8 },
        { apart, late, THREE, ONE, 4 },           /* idle until 3, but it waits since 2.5 */
        { same, gets, NOTHING, NOTHING, 4 },      /* on the core of the sender */
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        const ls_des_op third[] = { ls_des_op_of(LS_DES_WORK, 0, ASLEEP, row[i].asleep), WORK(row[i].work), END };
        const ls_des_op none[] = { END };
        const ls_des_op *const all[] = { sends, row[i].gets, row[i].work == NOTHING ? none : third };
        ls_des_model m = model_of(3, all, shared(LS_DES_FIFO));
        m.net.latency_s = 0;
        m.cost = cost, m.ncosts = COUNT(cost), m.cores = 2, m.core = row[i].core, m.idle_s = 2, m.wake_s = wake;
        run(&m);
        if (fabs(ends[1] - row[i].end) > 1e-9) fail_msg("row %zu: %g, expected %g", i, ends[1], row[i].end);
    }
}

static void cores_are_shared_evenly(void **state)
{
    (void)state;
    const double none[64] = { 0 }, one[3] = { 1, 1, 1 }, two[2] = { 1, 3 }, later[2] = { 0, 1 };
    compute(1, 2, one, none);
    NEAR(ends[0], 2);
    NEAR(ends[1], 2);
    compute(2, 3, one, none); /* two thirds of a core each */
    for (int i = 0; i < 3; i++) NEAR(ends[i], 1.5);
    compute(4, 3, one, none); /* no more than a core each */
    for (int i = 0; i < 3; i++) NEAR(ends[i], 1);
    compute(1, 2, two, none); /* half a core each until the first has had its second, then the other alone */
    NEAR(ends[0], 2);
    NEAR(ends[1], 4);
    compute(1, 2, (double[]){ 3, 1 }, later); /* alone for a second, half until 3, and alone again */
    NEAR(ends[0], 4);
    NEAR(ends[1], 3);
    compute(1, 2, none, (double[]){ 2, 2 }); /* who sleeps needs no core */
    NEAR(ends[0], 2);
    NEAR(ends[1], 2);
}

/* As computed in small steps of time, each of which all that compute have equal parts of. */
static void any_work_on_shared_cores_ends_when_small_steps_say(void **state)
{
    (void)state;
    uint64_t at = 0;
    for (int trial = 0; trial < 20; trial++) {
        const uint32_t n = 1 + (uint32_t)(20 * uniform(&at));
        const double cores = 1 + floor(4 * uniform(&at)), dt = 1e-4;
        double w[64], asleep[64], left[64], end[64] = { 0 };
        for (uint32_t i = 0; i < n; i++) left[i] = w[i] = .1 + uniform(&at), asleep[i] = 2 * uniform(&at);
        for (double t = 0; t < 60; t += dt) {
            uint32_t busy = 0;
            for (uint32_t i = 0; i < n; i++) busy += asleep[i] <= t && left[i] > 0;
            for (uint32_t i = 0; i < n; i++)
                if (asleep[i] <= t && left[i] > 0 && (left[i] -= dt * fmin(1, cores / busy)) <= 0) end[i] = t + dt;
        }
        compute(cores, n, w, asleep);
        for (uint32_t i = 0; i < n; i++)
            if (fabs(ends[i] - end[i]) > .01)
                fail_msg("%u works on %g cores: %u ends at %g, in steps at %g", n, cores, i, ends[i], end[i]);
    }
}

/* The same with a core per process. Each second one polls until it has a message, which the one before sends after a
 * while, and computes then. */
static void any_work_beside_polls_ends_when_small_steps_say(void **state)
{
    (void)state;
    uint64_t at = 5;
    for (int trial = 0; trial < 20; trial++) {
        const uint32_t n = 2 * (1 + (uint32_t)(6 * uniform(&at))), cores = 1 + (uint32_t)(3 * uniform(&at));
        const double dt = 1e-4, poll = .5 * uniform(&at);
        static ls_des_op op[16][4];
        static const ls_des_op *all[16];
        double cost[33] = { 0 }, left[16], end[16] = { 0 }, *w = cost + 1, *from = cost + 17;
        uint32_t core[16];
        for (uint32_t i = 0; i < n; i++) {
            left[i] = w[i] = .1 + uniform(&at), from[i] = i % 2 ? from[i - 1] : 2 * uniform(&at);
            core[i] = (uint32_t)(cores * uniform(&at));
            op[i][0] = i % 2 ? RECV(i - 1, 0, 0) : ls_des_op_of(LS_DES_WORK, 0, LS_DES_ASLEEP, 17 + i);
            op[i][1] = i % 2 ? WORK(1 + i) : SEND(i + 1, 0, 0);
            op[i][2] = i % 2 ? END : WORK(1 + i);
            op[i][3] = END;
            all[i] = op[i];
        }
        for (double t = 0; t < 20; t += dt) {
            double busy[4] = { 0 };
            for (uint32_t i = 0; i < n; i++)
                busy[core[i]] += from[i] > t ? (i % 2 ? poll : 0) : left[i] > 0;
            for (uint32_t i = 0; i < n; i++)
                if (from[i] <= t && left[i] > 0 && (left[i] -= dt / fmax(1, busy[core[i]])) <= 0) end[i] = t + dt;
        }
        ls_des_model m = model_of(n, all, shared(LS_DES_FIFO));
        m.net.latency_s = 0;
        m.cost = cost, m.ncosts = 33, m.cores = cores, m.core = core, m.poll = poll;
        run(&m);
        for (uint32_t i = 0; i < n; i++)
            if (fabs(ends[i] - end[i]) > .01)
                fail_msg("%u works on %u cores: %u ends at %g, in steps at %g", n, cores, i, ends[i], end[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_stay_on_their_cores),
        cmocka_unit_test(who_polls_takes_of_its_core),
        cmocka_unit_test(who_would_poll_begins_in_its_turn),
        cmocka_unit_test(who_sleeps_in_a_wait_goes_on_later),
        cmocka_unit_test(nobody_sleeps_on_a_core_that_computes),
        cmocka_unit_test(cores_are_shared_evenly),
        cmocka_unit_test(any_work_on_shared_cores_ends_when_small_steps_say),
        cmocka_unit_test(any_work_beside_polls_ends_when_small_steps_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
