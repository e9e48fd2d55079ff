/* The event engine where processes share cores: equal parts of them, processes that stay on a core, a core that takes
 * over a process, and processes that sleep while they wait; against times computed by hand and small steps of time. */
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

static void an_idle_core_takes_over_a_process(void **state)
{
    (void)state;
    static const uint32_t core[] = { 0, 0, 0, 1 }, last[] = { 2, 2, 2, 2 };
    const double none[4] = { 0 };
    compute_on(2, core, .5, 2, (double[]){ 1, 2 }, none); /* half of a core until .5, and then one each */
    NEAR(ends[0], 1.25);
    NEAR(ends[1], 2.25);
    compute_on(2, core, .5, 2, (double[]){ 2, 2 }, none); /* the same from .5 on */
    NEAR(ends[0], 2.25);
    NEAR(ends[1], 2.25);
    compute_on(2, core, .5, 2, (double[]){ 1, 1 }, (double[]){ 3, 4 }); /* each comes to an idle core, but alone */
    NEAR(ends[0], 4);
    NEAR(ends[1], 5);
    compute_on(2, core, .5, 2, (double[]){ 2, 2 }, (double[]){ 3, 4 }); /* at 4 core 1 has long been idle */
    NEAR(ends[0], 5);
    NEAR(ends[1], 6);
    compute_on(2, core, .5, 4, (double[]){ 4, 4, 4, 1 }, none); /* core 1 takes the third at 1.5, the second at 5.5 */
    NEAR(ends[0], 7);
    NEAR(ends[1], 7);
    NEAR(ends[2], 5);
    NEAR(ends[3], 1);
    compute_on(3, last, .1, 4, (double[]){ 3, 2, 4, 1 }, none); /* cores 0 and 1 take the two that have most to do */
    NEAR(ends[0], .1 + 2.975);
    NEAR(ends[1], .1 + 2 * .975 + 1);
    NEAR(ends[2], .1 + 3.975);
    NEAR(ends[3], .1 + 2 * .975);
    /* after a wait of all, the two of an idle core begin when the others do, and core 1 takes none of these */
    static const uint32_t two[] = { 0, 0, 1, 1 };
    compute_on(2, two, .5, 4, (double[]){ 1, 1, 1, 1 }, (double[]){ 3, 3, 3, 3 });
    for (int i = 0; i < 4; i++) NEAR(ends[i], 5);
    static const uint32_t few[] = { 0, 0, 1, 1, 1 }, one[7] = { 0 };
    compute_on(3, few, .1, 5, (double[]){ 1, 1, 1, 1, 1 }, (double[5]){ 0 }); /* from the core with the most works */
    NEAR(ends[4], .1 + 1 - .1 / 3);
    compute_on(2, one, .7, 7, (double[]){ 1, 10, 3, 100, 20, 12, 4 }, (double[7]){ 0 }); /* each has had .1 at .7 */
    const double want[] = { 6.1, 38.1, 16.1, 100.6, 50.1, 42.1, 20.1 };
    for (int i = 0; i < 7; i++) NEAR(ends[i], want[i]);
    /* the second, with more to do, goes over at .5 and is done at 2.25; it stays there */
    static const double cost[] = { 1, 3, 2, 1 };
    const ls_des_op op[2][3] = { { WORK(0), WORK(1), END }, { WORK(2), WORK(3), END } };
    const ls_des_op *const all[] = { op[0], op[1] };
    ls_des_model m = model_of(2, all, shared(LS_DES_FIFO));
    m.cost = cost, m.ncosts = 4, m.cores = 2, m.core = core, m.idle_s = .5;
    run(&m);
    NEAR(ends[0], 1.25 + 3);
    NEAR(ends[1], 2.25 + 1);
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

/* Processes 2 and 3 begin on core 0; core 1, on which process 1 waits, takes one of them when it has been idle for so
 * long that process 1 sleeps, to the last bit of that moment. */
static void who_waits_on_a_core_that_takes_over_sleeps(void **state)
{
    (void)state;
    static const uint32_t core[] = { 0, 1, 0, 0 };
    const ls_des_op sends[] = { WORK(1), SEND(1, 0, 0), END }, busy[] = { WORK(2), END };
    const ls_des_op gets[] = { WORK(3), RECV(0, 0, 0), END };
    const ls_des_op *const all[] = { sends, gets, busy, busy };
    const double wake[] = { 0, 8, 0, 0 };
    uint64_t at = 0;
    for (int i = 0; i < 200; i++) {
        const double cost[] = { 0, 1, 1, .01 + .3 * uniform(&at) };
        ls_des_model m = model_of(4, all, shared(LS_DES_FIFO));
        m.net.latency_s = 0;
        m.cost = cost, m.ncosts = COUNT(cost), m.cores = 2, m.core = core, m.idle_s = 2e-4, m.wake_s = wake;
        run(&m);
        if (!(ends[1] > 8)) fail_msg("idle since %.17g: process 1 ends at %g", cost[3], ends[1]);
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

/* The same with a core per process, and cores that take over. */
static void any_work_on_idle_cores_ends_when_small_steps_say(void **state)
{
    (void)state;
    uint64_t at = 5;
    uint32_t went = 0;
    for (int trial = 0; trial < 20; trial++) {
        const uint32_t n = 2 + (uint32_t)(10 * uniform(&at)), cores = 2 + (uint32_t)(3 * uniform(&at));
        const double dt = 1e-4, idle = .05 + .3 * uniform(&at);
        double w[64], asleep[64], left[64], end[64] = { 0 }, since[8] = { 0 };
        uint32_t core[64], on[64];
        for (uint32_t i = 0; i < n; i++) left[i] = w[i] = .1 + uniform(&at), asleep[i] = 2 * uniform(&at);
        for (uint32_t i = 0; i < n; i++) on[i] = core[i] = (uint32_t)(cores * uniform(&at));
        for (double t = 0; t < 20; t += dt) {
            uint32_t busy[8] = { 0 }, from = 0, to = UINT32_MAX, most = UINT32_MAX;
            for (uint32_t i = 0; i < n; i++) busy[on[i]] += asleep[i] <= t && left[i] > 0;
            for (uint32_t k = 0; k < cores; k++) {
                if (busy[k] > 0) since[k] = t;
                if (busy[k] > busy[from]) from = k;
                if (busy[k] == 0 && t - since[k] >= idle && (to == UINT32_MAX || since[k] < since[to])) to = k;
            }
            for (uint32_t i = 0; i < n && to != UINT32_MAX && busy[from] > 1; i++) {
                if (on[i] != from || asleep[i] > t || left[i] <= 0) continue;
                if (most == UINT32_MAX || left[i] > left[most]) most = i;
            }
            if (most != UINT32_MAX) on[most] = to, busy[from]--, busy[to]++, went++;
            for (uint32_t i = 0; i < n; i++)
                if (asleep[i] <= t && left[i] > 0 && (left[i] -= dt / busy[on[i]]) <= 0) end[i] = t + dt;
        }
        compute_on(cores, core, idle, n, w, asleep);
        for (uint32_t i = 0; i < n; i++)
            if (fabs(ends[i] - end[i]) > .01)
                fail_msg("%u works on %u cores: %u ends at %g, in steps at %g", n, cores, i, ends[i], end[i]);
    }
    assert_true(went > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_stay_on_their_cores),
        cmocka_unit_test(an_idle_core_takes_over_a_process),
        cmocka_unit_test(who_sleeps_in_a_wait_goes_on_later),
        cmocka_unit_test(nobody_sleeps_on_a_core_that_computes),
        cmocka_unit_test(who_waits_on_a_core_that_takes_over_sleeps),
        cmocka_unit_test(cores_are_shared_evenly),
        cmocka_unit_test(any_work_on_shared_cores_ends_when_small_steps_say),
        cmocka_unit_test(any_work_on_idle_cores_ends_when_small_steps_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
