/* The tracer and the exporter: what goes in comes out, as a trace that viewers accept. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>

#include "base/env.h"
#include "lockstep/trace.h"

#define RANKS 4
#define BASE 3000000000000123ull /* ns: 35 days of uptime, where a double has lost the nanoseconds of seconds */

static char dir[64], path[96];
static ls_blackbox *boxes[RANKS];
static ls_event *beside[RANKS]; /* of longer rings; NULL: none */
static ls_tracer *tracer[RANKS];

static int set_up(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/lockstep-test-trace-XXXXXX");
    if (!mkdtemp(dir)) return -1;
    snprintf(path, sizeof path, "%s/trace.json", dir);
    for (int r = 0; r < RANKS; r++) {
        boxes[r] = aligned_alloc(64, sizeof *boxes[r]);
        memset(boxes[r], 0xa5, sizeof *boxes[r]); /* a tracer starts with an empty ring, whatever was there */
        if (ls_tracer_create(boxes[r], &tracer[r]) != LS_OK) return -1;
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int r = 0; r < RANKS; r++) {
        ls_tracer_destroy(tracer[r]);
        free(boxes[r]);
        free(beside[r]);
        beside[r] = NULL;
    }
    unlink(path);
    return rmdir(dir); /* fails when a temporary file was left behind */
}

static void add(int rank, ls_ev_kind kind, const char *label, uint64_t t0, uint64_t t1)
{
    ls_tracer_add(tracer[rank], &(ls_event){ .kind = (uint8_t)kind, .label = ls_tracer_label(tracer[rank], label),
                                             .t0_ns = BASE + t0, .t1_ns = BASE + t1, .peer = -1 });
}

static void add_coll(int rank, uint16_t group, uint32_t seq, uint64_t t0, uint64_t t1)
{
    ls_tracer_add(tracer[rank], &(ls_event){ .kind = LS_EV_COLL, .group = group, .seq = seq, .bytes = 4096,
                                             .dtype = LS_BF16, .t0_ns = BASE + t0, .t1_ns = BASE + t1, .peer = -1 });
}

static const ls_trace_box *views(void)
{
    static ls_trace_box all[RANKS];
    for (int r = 0; r < RANKS; r++) all[r] = (ls_trace_box){ boxes[r], beside[r] };
    return all;
}

static json_t *export_steps(int nranks, uint32_t first, uint32_t last)
{
    json_error_t e;
    ls_status st = ls_trace_export(views(), nranks, first, last, path);
    if (st != LS_OK) fail_msg("%s", ls_last_error());
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &e);
    if (!root) fail_msg("line %d: %s", e.line, e.text);
    return root;
}

static json_t *export_all(int nranks) { return export_steps(nranks, 0, UINT32_MAX); }

/* --- reading a trace back ------------------------------------------------------------------- */

static const char *text_of(const json_t *ev, const char *key) { return json_string_value(json_object_get(ev, key)); }
static int int_of(const json_t *ev, const char *key) { return (int)json_integer_value(json_object_get(ev, key)); }
static int64_t ns_of(const json_t *ev, const char *key)
{
    return llround(json_number_value(json_object_get(ev, key)) * 1000.0);
}
static json_t *arg_of(const json_t *ev, const char *key) { return json_object_get(json_object_get(ev, "args"), key); }

/* The i'th event with this phase and, unless NULL, this name. */
static json_t *find(const json_t *root, const char *ph, const char *name, int i)
{
    size_t k;
    json_t *ev;
    json_array_foreach(json_object_get(root, "traceEvents"), k, ev)
    {
        bool fits = strcmp(text_of(ev, "ph"), ph) == 0 && (!name || strcmp(text_of(ev, "name"), name) == 0);
        if (fits && i-- == 0) return ev;
    }
    return NULL;
}

static int count_of(const json_t *root, const char *ph)
{
    int n = 0;
    while (find(root, ph, NULL, n)) n++;
    return n;
}

typedef struct span {
    int pid, tid;
    int64_t t0, t1;
} span;

static int by_lane_and_time(const void *a, const void *b)
{
    const span *x = a, *y = b;
    if (x->pid != y->pid) return x->pid < y->pid ? -1 : 1;
    if (x->tid != y->tid) return x->tid < y->tid ? -1 : 1;
    if (x->t0 != y->t0) return x->t0 < y->t0 ? -1 : 1;
    return x->t1 == y->t1 ? 0 : x->t1 > y->t1 ? -1 : 1;
}

/* Fails when two slices of one lane cross; or nest, outside lanes of computing. Returns the slices, sorted. */
static span *check_lanes(const json_t *root, size_t *n)
{
    json_t *all = json_object_get(root, "traceEvents"), *ev;
    span *s = malloc(json_array_size(all) * sizeof *s);
    size_t k;
    *n = 0;
    json_array_foreach(all, k, ev)
        if (strcmp(text_of(ev, "ph"), "X") == 0) {
            int64_t t0 = ns_of(ev, "ts");
            s[(*n)++] = (span){ int_of(ev, "pid"), int_of(ev, "tid"), t0, t0 + ns_of(ev, "dur") };
        }
    qsort(s, *n, sizeof *s, by_lane_and_time);
    int64_t open[64];
    int depth = 0;
    for (size_t i = 0; i < *n; i++) {
        if (i == 0 || s[i].pid != s[i - 1].pid || s[i].tid != s[i - 1].tid) depth = 0;
        while (depth > 0 && open[depth - 1] <= s[i].t0) depth--;
        bool computing = s[i].tid == 1 || s[i].tid >= 20000;
        if (depth > 0 && (open[depth - 1] < s[i].t1 || !computing))
            fail_msg("rank %d lane %d: [%lld, %lld) in one that ends at %lld", s[i].pid, s[i].tid, (long long)s[i].t0,
                     (long long)s[i].t1, (long long)open[depth - 1]);
        assert_true(depth < 64);
        open[depth++] = s[i].t1;
    }
    return s;
}

/* --- the tracer ------------------------------------------------------------------------------- */

static void everything_accepts_no_tracer(void **state)
{
    (void)state;
    ls_event ev = { .kind = LS_EV_OP };
    ls_tracer_add(NULL, &ev);
    ls_tracer_at(NULL, 1, 2);
    assert_int_equal(ls_tracer_label(NULL, "x"), 0);
    assert_int_equal(ls_tracer_now(NULL), 0);
    ls_tracer_destroy(NULL);
}

static void the_ring_keeps_the_newest_events_with_their_step(void **state)
{
    (void)state;
    const uint64_t n = 2 * LS_BLACKBOX_EVENTS + 5;
    assert_int_equal(boxes[0]->count, 0);
    for (uint64_t i = 0; i < n; i++) {
        ls_tracer_at(tracer[0], (uint32_t)i, (uint16_t)(i % 7));
        add(0, LS_EV_OP, "op", i, i + 1);
    }
    assert_int_equal(boxes[0]->count, n);
    for (uint64_t i = n - LS_BLACKBOX_EVENTS; i < n; i++) {
        const ls_event *ev = &boxes[0]->ev[i % LS_BLACKBOX_EVENTS];
        assert_int_equal(ev->step, i);
        assert_int_equal(ev->micro_batch, i % 7);
        assert_int_equal(ev->t0_ns, BASE + i);
    }
    uint64_t before = ls_env_real.mono_ns(), now = ls_tracer_now(tracer[0]);
    assert_true(now >= before && now <= ls_env_real.mono_ns());
}

static void a_ring_that_is_too_short_for_its_steps_says_so(void **state)
{
    (void)state;
    assert_false(ls_trace_is_cut(&views()[0], 0));
    for (uint64_t i = 0; i < 2 * LS_BLACKBOX_EVENTS; i++) { /* 64 events per step */
        ls_tracer_at(tracer[0], (uint32_t)(i / 64), 0);
        add(0, LS_EV_OP, "op", i, i + 1);
        if (i + 1 == LS_BLACKBOX_EVENTS) assert_false(ls_trace_is_cut(&views()[0], 0)); /* all are there */
    }
    assert_true(ls_trace_is_cut(&views()[0], 63));
    assert_true(ls_trace_is_cut(&views()[0], 64)); /* its first event is the next to be replaced */
    assert_false(ls_trace_is_cut(&views()[0], 65));
}

static void make_room(int rank, uint32_t room)
{
    free(beside[rank]);
    beside[rank] = aligned_alloc(64, room * sizeof *beside[rank]); /* and a sanitizer sees what is read past it */
    memset(beside[rank], 0xa5, room * sizeof *beside[rank]);
    assert_int_equal(ls_tracer_set_capacity(tracer[rank], beside[rank], room), LS_OK);
}

static void a_longer_ring_lies_beside_the_box(void **state)
{
    (void)state;
    const uint32_t room = LS_BLACKBOX_EVENTS + 7;
    const uint64_t n = 2 * (uint64_t)room + 5;
    add(0, LS_EV_OP, "before", 0, 1);
    make_room(0, room);
    assert_int_equal(boxes[0]->count, 0);
    assert_int_equal(boxes[0]->capacity, room);
    const ls_event first = boxes[0]->ev[0];
    for (uint64_t i = 0; i < n; i++) {
        ls_tracer_at(tracer[0], (uint32_t)(i / 2), 0);
        add(0, LS_EV_OP, "op", i, i + 1);
        if (i + 1 == room) assert_false(ls_trace_is_cut(&views()[0], 0));
        if (i == room) assert_true(ls_trace_is_cut(&views()[0], 0));
    }
    assert_memory_equal(&first, &boxes[0]->ev[0], sizeof first); /* the box's own is left alone */
    for (uint64_t i = n - room; i < n; i++) assert_int_equal(beside[0][i % room].t0_ns, BASE + i);
    assert_int_equal(ls_tracer_count(tracer[0], LS_EV_OP), n + 1);
    assert_int_equal(ls_tracer_count(tracer[0], LS_EV_COLL), 0);
    json_t *root = export_steps(1, 0, UINT32_MAX);
    assert_int_equal(count_of(root, "X"), room - 1); /* all but its oldest event */
    json_decref(root);
    assert_int_equal(ls_tracer_set_capacity(tracer[0], beside[0], LS_BLACKBOX_EVENTS), LS_INVALID);
    assert_int_equal(ls_tracer_set_capacity(tracer[0], beside[0], LS_BLACKBOX_MOST + 1), LS_INVALID);
    assert_int_equal(boxes[0]->capacity, room);
}

static void a_box_with_a_ring_that_cannot_be_is_refused(void **state)
{
    (void)state;
    static const uint32_t wrong[] = { 0, 1, LS_BLACKBOX_EVENTS - 1, LS_BLACKBOX_EVENTS + 1, LS_BLACKBOX_MOST,
                                      LS_BLACKBOX_MOST + 1, UINT32_MAX };
    static ls_event most[LS_BLACKBOX_MOST];
    add(0, LS_EV_OP, "op", 0, 1);
    add(1, LS_EV_OP, "op", 0, 1);
    boxes[1]->count = UINT64_MAX / 2;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) { /* beside this box is no ring */
        boxes[1]->capacity = wrong[i];
        assert_int_equal(ls_trace_export(views(), 2, 0, 1, path), LS_PROTOCOL);
        assert_non_null(strstr(ls_last_error(), "rank 1"));
        assert_false(ls_trace_is_cut(&views()[1], 0));
        const ls_trace_box with = { boxes[1], most };
        const bool there = wrong[i] > LS_BLACKBOX_EVENTS && wrong[i] <= LS_BLACKBOX_MOST;
        assert_int_equal(ls_trace_export(&with, 1, 0, 1, path), there ? LS_OK : LS_PROTOCOL);
        assert_int_equal(ls_trace_is_cut(&with, 0), there);
    }
}

static void a_label_is_its_text_wherever_it_lies(void **state)
{
    (void)state;
    char a[64] = "matmul", b[64] = "matmul", longer[100];
    uint16_t first = ls_tracer_label(tracer[0], a);
    assert_int_equal(first, 1);
    assert_int_equal(ls_tracer_label(tracer[0], a), first);
    assert_int_equal(ls_tracer_label(tracer[0], b), first);
    strcpy(a, "gelu"); /* the same address, another text */
    assert_int_equal(ls_tracer_label(tracer[0], a), 2);
    strcpy(a, "matmul 2");
    assert_int_equal(ls_tracer_label(tracer[0], a), 3);
    assert_int_equal(ls_tracer_label(tracer[0], b), first);
    assert_string_equal(boxes[0]->string[3], "matmul 2");
    assert_int_equal(ls_tracer_label(tracer[0], ""), 0);
    assert_int_equal(ls_tracer_label(tracer[0], NULL), 0);

    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    uint16_t cut = ls_tracer_label(tracer[0], longer);
    assert_int_equal(strlen(boxes[0]->string[cut]), LS_BLACKBOX_STRING_BYTES - 1);
    longer[60] = 'y'; /* beyond what is kept */
    assert_int_equal(ls_tracer_label(tracer[0], longer), cut);
    longer[LS_BLACKBOX_STRING_BYTES - 1] = 0;
    assert_int_equal(ls_tracer_label(tracer[0], longer), cut);
}

static void a_full_table_of_labels_gives_0_and_keeps_what_it_has(void **state)
{
    (void)state;
    char text[32];
    for (int i = 1; i < LS_BLACKBOX_STRINGS; i++) {
        snprintf(text, sizeof text, "label %d", i);
        assert_int_equal(ls_tracer_label(tracer[0], text), i);
    }
    assert_int_equal(ls_tracer_label(tracer[0], "one more"), 0);
    assert_int_equal(boxes[0]->nstrings, LS_BLACKBOX_STRINGS);
    for (int i = 1; i < LS_BLACKBOX_STRINGS; i++) {
        snprintf(text, sizeof text, "label %d", i);
        assert_int_equal(ls_tracer_label(tracer[0], text), i);
    }
}

/* --- the exported file ------------------------------------------------------------------------- */

static void one_step_of_two_ranks_reads_as_written(void **state)
{
    (void)state;
    for (int r = 0; r < 2; r++) {
        ls_tracer_at(tracer[r], 12, 0);
        uint16_t linear = ls_tracer_label(tracer[r], "linear");
        ls_tracer_add(tracer[r], &(ls_event){ .kind = LS_EV_OP, .backward = 1, .label = linear, .gflops = 12.5f,
                                              .peer = -1, .t0_ns = BASE + 1001, .t1_ns = BASE + 4005 });
        add_coll(r, 3, 118, 2000, 2500);
        add(r, LS_EV_WAIT, "bucket", 4100, 4200);
        add(r, LS_EV_STEP, "step", 0, 5000);
    }
    json_t *root = export_all(2), *ev;
    assert_int_equal(json_integer_value(json_object_get(root, "schemaVersion")), 1);
    assert_int_equal(json_integer_value(json_object_get(root, "baseTimeNanoseconds")), BASE);
    json_t *info = json_object_get(root, "distributedInfo");
    assert_string_equal(text_of(info, "backend"), "lockstep");
    assert_int_equal(int_of(info, "world_size"), 2);
    assert_int_equal(int_of(info, "rank"), 0);
    assert_int_equal(count_of(root, "X"), 8);

    for (int r = 0; r < 2; r++) {
        assert_non_null(ev = find(root, "X", "linear", r));
        assert_int_equal(int_of(ev, "pid"), r);
        assert_int_equal(int_of(ev, "tid"), 1);
        assert_string_equal(text_of(ev, "cat"), "backward");
        assert_int_equal(ns_of(ev, "ts"), 1001); /* to the nanosecond */
        assert_int_equal(ns_of(ev, "dur"), 3004);
        assert_int_equal(json_integer_value(arg_of(ev, "step")), 12);
        assert_true(json_number_value(arg_of(ev, "gflops")) == 12.5);

        assert_non_null(ev = find(root, "X", "collective", r)); /* without a label: what it is */
        assert_int_equal(int_of(ev, "tid"), 2);
        assert_string_equal(text_of(ev, "cat"), "comm");
        assert_int_equal(json_integer_value(arg_of(ev, "seq")), 118);
        assert_int_equal(json_integer_value(arg_of(ev, "group")), 3);
        assert_int_equal(json_integer_value(arg_of(ev, "bytes")), 4096);
        assert_string_equal(json_string_value(arg_of(ev, "dtype")), "bfloat16");

        assert_non_null(ev = find(root, "M", "process_name", r));
        assert_string_equal(json_string_value(arg_of(ev, "name")), r ? "rank 1" : "rank 0");
        static const char *const lane[] = { "compute", "comm", "wait" };
        for (int k = 0; k < 3; k++) {
            assert_non_null(ev = find(root, "M", "thread_name", 3 * r + k));
            assert_string_equal(json_string_value(arg_of(ev, "name")), lane[k]);
        }
    }
    json_decref(root);
}

static void a_collective_says_what_it_did(void **state)
{
    (void)state;
    const ls_event ev = { .kind = LS_EV_COLL, .group = 2, .seq = 5, .bytes = 4096, .moved = 6144, .bucket = 4,
                          .peer = -1, .dtype = LS_F32, .t0_ns = BASE, .t1_ns = BASE + 10,
                          .label = ls_tracer_label(tracer[0], "bucket 3"),
                          .coll = (uint8_t)ls_tracer_label(tracer[0], "all_reduce"),
                          .algo = (uint8_t)ls_tracer_label(tracer[0], "ring"),
                          .peers = (uint8_t)ls_tracer_label(tracer[0], "0, 2-3") };
    ls_event none = ev;
    none.label = none.bucket = none.algo = 0;
    none.coll = 200; /* no such string */
    ls_tracer_add(tracer[0], &ev);
    ls_tracer_add(tracer[0], &none);
    ls_tracer_mark(tracer[0], "ready", 4);
    ls_tracer_mark(NULL, "ready", 4);
    json_t *root = export_all(1), *e = find(root, "X", "bucket 3", 0);
    assert_non_null(e);
    assert_string_equal(json_string_value(arg_of(e, "coll")), "all_reduce");
    assert_string_equal(json_string_value(arg_of(e, "algo")), "ring");
    assert_string_equal(json_string_value(arg_of(e, "peers")), "0, 2-3");
    assert_int_equal(json_integer_value(arg_of(e, "bucket")), 3);
    assert_int_equal(json_integer_value(arg_of(e, "bytes")), 4096);
    assert_int_equal(json_integer_value(arg_of(e, "moved")), 6144);
    assert_non_null(e = find(root, "X", "collective", 0));
    assert_null(arg_of(e, "coll"));
    assert_null(arg_of(e, "algo"));
    assert_null(arg_of(e, "bucket"));
    assert_non_null(e = find(root, "i", "ready", 0));
    assert_int_equal(json_integer_value(arg_of(e, "bucket")), 3);
    assert_null(arg_of(e, "moved")); /* it moves nothing */
    json_decref(root);
}

static void only_the_steps_asked_for_are_shown(void **state)
{
    (void)state;
    for (uint32_t step = 0; step < 10; step++) {
        ls_tracer_at(tracer[0], step, 0);
        add(0, LS_EV_STEP, "step", 10 * step, 10 * step + 10);
    }
    json_t *root = export_steps(1, 3, 5);
    assert_int_equal(count_of(root, "X"), 3);
    assert_int_equal(json_integer_value(arg_of(find(root, "X", NULL, 0), "step")), 3);
    assert_int_equal(json_integer_value(json_object_get(root, "baseTimeNanoseconds")), BASE + 30);
    json_decref(root);

    root = export_steps(2, 90, 99); /* an empty trace is a trace */
    assert_int_equal(count_of(root, "X"), 0);
    assert_int_equal(count_of(root, "M"), 4);
    json_decref(root);
}

static void a_mark_is_an_instant(void **state)
{
    (void)state;
    add(0, LS_EV_MARK, "rebuilt", 100, 100);
    json_t *root = export_all(1), *ev = find(root, "i", "rebuilt", 0);
    assert_non_null(ev);
    assert_string_equal(text_of(ev, "s"), "t");
    assert_null(json_object_get(ev, "dur"));
    json_decref(root);
}

static void slices_of_a_lane_nest_or_follow_and_none_is_lost(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int round = 0; round < 20; round++) {
        size_t n, want = 0;
        for (int r = 0; r < RANKS; r++) {
            ls_tracer_destroy(tracer[r]);
            assert_int_equal(ls_tracer_create(boxes[r], &tracer[r]), LS_OK);
            for (int i = 0; i < 60; i++, want++) { /* times from a small range: many cross, touch or are equal */
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                uint64_t t0 = (seed >> 33) % 97, dt = (seed >> 45) % 31;
                static const ls_ev_kind kinds[] = { LS_EV_OP,   LS_EV_COLL,  LS_EV_WAIT, LS_EV_SEND,
                                                    LS_EV_RECV, LS_EV_OPTIM, LS_EV_DATA, LS_EV_STEP };
                add(r, kinds[(seed >> 20) % 8], "x", t0, t0 + dt);
            }
        }
        json_t *root = export_all(RANKS);
        free(check_lanes(root, &n));
        assert_int_equal(n, want);
        json_decref(root);
    }
}

static void a_hundred_collectives_at_once_have_a_lane_each(void **state)
{
    (void)state;
    size_t n;
    for (uint32_t i = 0; i < 100; i++) add_coll(0, 0, i, 10 + i, 1000 + i);
    for (uint32_t i = 0; i < 100; i++) add_coll(0, 0, 100 + i, 2000 + 10 * i, 2010 + 10 * i); /* one after the other */
    json_t *root = export_all(1);
    span *s = check_lanes(root, &n);
    assert_int_equal(n, 200);
    int in_first = 0;
    for (size_t i = 0; i < n; i++) in_first += s[i].tid == 2;
    assert_int_equal(in_first, 101);
    assert_int_equal(s[n - 1].tid, 101);
    free(s);
    json_decref(root);
}

/* Arrows start at the rank that came first, end at the last, and sit on a slice each. */
static void arrows_join_the_ranks_of_one_collective(void **state)
{
    (void)state;
    static const uint64_t t0[RANKS] = { 30, 10, 40, 20 };
    for (int r = 0; r < RANKS; r++) {
        add_coll(r, 0, 7, t0[r], 50);
        if (r < 2) add_coll(r, 1, 7, 60, 70); /* same number, another group */
        if (r < 2) add_coll(r, 0, 8, 60, 70);
        if (r == 3) add_coll(r, 2, 0, 60, 70); /* alone */
    }
    json_t *root = export_all(RANKS), *ev;
    assert_int_equal(count_of(root, "s"), 3);
    assert_int_equal(count_of(root, "t"), 2);
    assert_int_equal(count_of(root, "f"), 3);
    static const struct { const char *ph; int i, pid; int64_t ns; const char *id; } row[] = {
        { "s", 0, 1, 0, "0.7" },  { "t", 0, 3, 10, "0.7" }, { "t", 1, 0, 20, "0.7" }, { "f", 0, 2, 30, "0.7" },
        { "s", 1, 0, 50, "0.8" }, { "f", 1, 1, 50, "0.8" }, { "s", 2, 0, 50, "1.7" }, { "f", 2, 1, 50, "1.7" },
    };
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        assert_non_null(ev = find(root, row[k].ph, NULL, row[k].i));
        assert_int_equal(int_of(ev, "pid"), row[k].pid);
        assert_int_equal(int_of(ev, "tid"), strcmp(row[k].id, "0.8") == 0 ? 3 : 2);
        assert_int_equal(ns_of(ev, "ts"), row[k].ns); /* after the first event, which starts at 10 */
        assert_string_equal(text_of(ev, "id"), row[k].id);
    }
    json_decref(root);
}

static void hostile_labels_are_inert(void **state)
{
    (void)state;
    static const struct { const char *label, *want; } row[] = {
        { "</script><script>alert(1)", "</script><script>alert(1)" },
        { "quote\" back\\slash", "quote\" back\\slash" },
        { "\x1b[31mred\n", "\x1b[31mred\n" },
        { "bad \xff\xc3 utf", "bad \xef\xbf\xbd\xef\xbf\xbd utf" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) add(0, LS_EV_OP, row[i].label, 10 * i, 10 * i + 5);
    json_t *root = export_all(1);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) assert_non_null(find(root, "X", row[i].want, 0));
    json_decref(root);
    char text[8192];
    FILE *f = fopen(path, "r");
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    assert_null(strchr(text, '<')); /* nor does the file itself hold anything a browser or a terminal would act on */
    assert_null(strchr(text, '\x1b'));
}

static void a_box_in_ruins_gives_a_trace_all_the_same(void **state)
{
    (void)state;
    const ls_event ev[] = {
        { .kind = LS_EV_OP, .t0_ns = BASE, .t1_ns = BASE + 1, .label = 200, .gflops = INFINITY },
        { .kind = LS_EV_OP, .t0_ns = BASE + 9, .t1_ns = BASE + 1 }, /* left out, as is the next */
        { .kind = 200, .t0_ns = BASE, .t1_ns = BASE + 1 },
        { .kind = LS_EV_COLL, .t0_ns = BASE, .t1_ns = BASE + 1, .dtype = 99, .label = 1 },
    };
    for (size_t i = 0; i < sizeof ev / sizeof *ev; i++) ls_tracer_add(tracer[0], &ev[i]);
    boxes[0]->nstrings = 5000;
    memset(boxes[0]->string[1], 'x', LS_BLACKBOX_STRING_BYTES); /* no NUL */
    json_t *root = export_all(1);
    assert_int_equal(count_of(root, "X"), 2);
    assert_non_null(find(root, "X", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", 0));
    json_decref(root);
}

static void an_export_that_fails_names_the_file_and_leaves_nothing(void **state)
{
    (void)state;
    const ls_trace_box *all = views();
    add(0, LS_EV_OP, "op", 0, 1);
    assert_int_equal(ls_trace_export(all, 0, 0, 1, path), LS_INVALID);
    assert_int_equal(ls_trace_export(all, 1, 0, 1, "/no/such/folder/t.json"), LS_IO);
    assert_non_null(strstr(ls_last_error(), "/no/such/folder/t.json"));
    assert_int_equal(mkdir(path, 0700), 0); /* a folder stands where the file should be */
    assert_int_equal(ls_trace_export(all, 1, 0, 1, path), LS_IO);
    assert_non_null(strstr(ls_last_error(), path));
    assert_int_equal(rmdir(path), 0);
}

/* --- writing and reading at the same time -------------------------------------------------------- */

static void add_numbered(uint64_t i) /* its time and its bytes say which one it is */
{
    const ls_event ev = { .kind = LS_EV_SEND, .t0_ns = BASE + i, .t1_ns = BASE + i, .bytes = i, .peer = -1 };
    ls_tracer_add(tracer[0], &ev);
}

/* The trace shows, in order of time, the events numbered shift + i for i in [0, gap) and in [end, n). */
static void expect_numbers(const json_t *root, size_t shift, size_t gap, size_t end, size_t n)
{
    json_t *ev;
    size_t k, i = 0;
    json_array_foreach(json_object_get(root, "traceEvents"), k, ev)
    {
        if (strcmp(text_of(ev, "ph"), "X") != 0) continue;
        if (i == gap) i = end;
        assert_int_equal(json_integer_value(arg_of(ev, "bytes")), shift + i);
        i++;
    }
    assert_int_equal(i, n);
}

/* The writer may be replacing the oldest one at this moment. */
static void a_full_ring_shows_all_but_its_oldest_event(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 2 * LS_BLACKBOX_EVENTS + 3; i++) add_numbered(i);
    json_t *root = export_all(1);
    expect_numbers(root, LS_BLACKBOX_EVENTS + 4, LS_BLACKBOX_EVENTS, 0, LS_BLACKBOX_EVENTS - 1);
    json_decref(root);
}

/* A page of events that no one can read: the export's first load from it waits until write_meanwhile has added some. */
static struct {
    char *at;
    size_t nbytes;
    uint64_t next, end; /* the events that it adds are [next, end) */
} page;

static void write_meanwhile(int sig, siginfo_t *info, void *context)
{
    (void)context;
    const char *at = info->si_addr;
    if (at < page.at || at >= page.at + page.nbytes) {
        signal(sig, SIG_DFL); /* a fault of its own */
        return;
    }
    mprotect(page.at, page.nbytes, PROT_READ | PROT_WRITE);
    while (page.next < page.end) add_numbered(page.next++);
}

static void an_event_that_is_replaced_while_it_is_read_is_left_out(void **state)
{
    (void)state;
    const uint64_t n = LS_BLACKBOX_EVENTS - 10, more = 30; /* the ring has room, so nothing is replaced at first */
    const uintptr_t size = (uintptr_t)sysconf(_SC_PAGESIZE), first = ((uintptr_t)boxes[0]->ev + size - 1) / size * size;
    const size_t k = (first - (uintptr_t)boxes[0]->ev) / sizeof(ls_event); /* the first one in the page */
    const struct sigaction act = { .sa_sigaction = write_meanwhile, .sa_flags = SA_SIGINFO };
    struct sigaction before;
    for (uint64_t i = 0; i < n; i++) add_numbered(i);
    page.at = (char *)first;
    page.nbytes = size;
    page.next = n;
    page.end = LS_BLACKBOX_EVENTS + k + more;
    assert_int_equal(sigaction(SIGSEGV, &act, &before), 0);
    assert_int_equal(mprotect(page.at, page.nbytes, PROT_NONE), 0);
    json_t *root = export_all(1);
    sigaction(SIGSEGV, &before, NULL);
    assert_int_equal(page.next, page.end);
    expect_numbers(root, 0, k, k + more + 1, n); /* event k + more may be being replaced by now */
    json_decref(root);
}

static _Atomic bool stop;

static void write_on_and_on(void *arg)
{
    (void)arg;
    for (uint64_t i = 0; !atomic_load(&stop); i++) {
        ls_event ev = { .kind = LS_EV_SEND, .t0_ns = BASE + i, .t1_ns = BASE + i + i % 100, .bytes = i,
                        .seq = (uint32_t)i, .group = (uint16_t)(i % 997), .peer = (int16_t)(i % 991) };
        ls_tracer_add(tracer[0], &ev);
        if (i % 512 == 0) { /* now and then a short breath: on one core too, the reader gets in between */
            char text[32];
            snprintf(text, sizeof text, "label %u", (unsigned)(i / 512 % 300));
            ls_tracer_label(tracer[0], text);
            ls_env_real.yield();
        }
    }
}

static void what_is_read_while_a_rank_writes_is_whole_and_of_one_ring(void **state)
{
    (void)state;
    void *handle;
    size_t seen = 0, k;
    json_t *ev;
    char wrong[96] = "";
    atomic_store(&stop, false);
    assert_int_equal(ls_env_real.thread_start(write_on_and_on, NULL, &handle), 0);
    for (int round = 0; (round < 20 || (seen == 0 && round < 100000)) && !*wrong; round++) { /* the thread has begun */
        json_t *root = export_all(1);
        json_int_t first = -1;
        json_array_foreach(json_object_get(root, "traceEvents"), k, ev)
        {
            if (strcmp(text_of(ev, "ph"), "X") != 0) continue;
            json_int_t i = json_integer_value(arg_of(ev, "bytes"));
            if (first < 0) first = i; /* they come in order of time, which is that of i */
            bool whole = json_integer_value(arg_of(ev, "seq")) == (i & 0xffffffff) &&
                         json_integer_value(arg_of(ev, "group")) == i % 997 &&
                         json_integer_value(arg_of(ev, "peer")) == i % 991 && ns_of(ev, "dur") == i % 100;
            if (!whole) snprintf(wrong, sizeof wrong, "event %lld is torn", (long long)i);
            if (i - first >= LS_BLACKBOX_EVENTS)
                snprintf(wrong, sizeof wrong, "event %lld stands where an older one was", (long long)i);
            seen++;
        }
        json_decref(root);
    }
    atomic_store(&stop, true);
    ls_env_real.thread_join(handle);
    if (*wrong) fail_msg("%s", wrong);
    assert_true(seen > 0);
}

int main(void)
{
#define WITH_BOXES(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_accepts_no_tracer),
        WITH_BOXES(the_ring_keeps_the_newest_events_with_their_step),
        WITH_BOXES(a_longer_ring_lies_beside_the_box),
        WITH_BOXES(a_box_with_a_ring_that_cannot_be_is_refused),
        WITH_BOXES(a_ring_that_is_too_short_for_its_steps_says_so),
        WITH_BOXES(a_label_is_its_text_wherever_it_lies),
        WITH_BOXES(a_full_table_of_labels_gives_0_and_keeps_what_it_has),
        WITH_BOXES(one_step_of_two_ranks_reads_as_written),
        WITH_BOXES(a_collective_says_what_it_did),
        WITH_BOXES(only_the_steps_asked_for_are_shown),
        WITH_BOXES(a_mark_is_an_instant),
        WITH_BOXES(slices_of_a_lane_nest_or_follow_and_none_is_lost),
        WITH_BOXES(a_hundred_collectives_at_once_have_a_lane_each),
        WITH_BOXES(arrows_join_the_ranks_of_one_collective),
        WITH_BOXES(hostile_labels_are_inert),
        WITH_BOXES(a_box_in_ruins_gives_a_trace_all_the_same),
        WITH_BOXES(an_export_that_fails_names_the_file_and_leaves_nothing),
        WITH_BOXES(a_full_ring_shows_all_but_its_oldest_event),
        WITH_BOXES(an_event_that_is_replaced_while_it_is_read_is_left_out),
        WITH_BOXES(what_is_read_while_a_rank_writes_is_whole_and_of_one_ring),
    };
    return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
