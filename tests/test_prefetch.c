/* Own data: a loader over a callback, and over a callback in worker threads. What comes is compared with what the data
 * set says; how far workers go ahead is counted, never timed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/compiler.h"
#include "base/context.h"
#include "harness.h"

#define S 1000000000ull
#define COUNT(a) (sizeof(a) / sizeof *(a))
#define N 103
#define FEATURES 3
#define TOKENS 5

/* --- a data set -------------------------------------------------------------------------------- */

typedef struct source {
    _Atomic int gets;       /* calls of get, */
    _Atomic int on_caller;  /* those on the loader's own thread, */
    _Atomic int inside;     /* and those that run now */
    int together;           /* of them get waits for so many */
    _Atomic size_t broken;  /* get fails for this sample */
    bool silent;            /* without a message */
    size_t slow_from;       /* samples from here on take a millisecond */
} source;

static _Thread_local bool is_caller; /* the thread that calls ls_loader_next */

static float feature(size_t index, int f) { return (float)(index * 10 + (size_t)f); }
static int64_t label(size_t index) { return (int64_t)(index * 7 % 11); }
static int64_t token(size_t index, int t) { return (int64_t)(index * 100 + (size_t)t); }

static ls_status enter(source *s, size_t index)
{
    const ls_env *env = ls_env_get();
    const uint64_t end = env->mono_ns() + 60 * S;
    atomic_fetch_add(&s->gets, 1);
    if (is_caller) atomic_fetch_add(&s->on_caller, 1);
    atomic_fetch_add(&s->inside, 1);
    while (s->together && atomic_load(&s->inside) < s->together) {
        if (env->mono_ns() > end) return ls_fail(LS_JOIN_TIMEOUT, "sample %zu waited in vain for another", index);
        env->yield();
    }
    for (size_t i = 0; i < index * 5 % 7; i++) env->yield(); /* so that batches are not done in order */
    if (s->slow_from && index >= s->slow_from) env->wait(NULL, 0, NULL, 0, env->mono_ns() + S / 1000);
    if (!s->together) atomic_fetch_sub(&s->inside, 1);
    if (index != atomic_load(&s->broken)) return LS_OK;
    return s->silent ? LS_IO : ls_fail(LS_IO, "the disk is on fire");
}

static ls_status get_features(void *arg, size_t index, void *x, int64_t *y)
{
    LS_TRY(enter(arg, index));
    for (int f = 0; f < FEATURES; f++) ((float *)x)[f] = feature(index, f);
    *y = label(index);
    return LS_OK;
}

static ls_status get_tokens(void *arg, size_t index, void *x, int64_t *y)
{
    LS_TRY(enter(arg, index));
    for (int t = 0; t < TOKENS; t++) {
        ((int64_t *)x)[t] = token(index, t);
        y[t] = token(index, t + 1);
    }
    return LS_OK;
}

static ls_dataset of_features(source *s)
{
    *s = (source){ .broken = SIZE_MAX };
    return (ls_dataset){ .n = N, .features = FEATURES, .classes = 11, .get = get_features, .arg = s };
}

static ls_dataset of_tokens(source *s)
{
    *s = (source){ .broken = SIZE_MAX };
    return (ls_dataset){ .n = N, .tokens = TOKENS, .get = get_tokens, .arg = s };
}

static ls_status create(const ls_dataset *d, const ls_sampler *s, int workers, int prefetch, size_t batch,
                        ls_loader **l)
{
    const ls_loader_opts o = { .batch = batch, .workers = workers, .prefetch = prefetch };
    is_caller = true;
    return ls_loader_create_with(d, s, &o, l);
}

static bool holds(const ls_loader *l, size_t b, size_t index)
{
    if (l->data->tokens) {
        const int64_t *ids = l->ids + b * TOKENS, *next = l->label + b * TOKENS;
        for (int t = 0; t < TOKENS; t++)
            if (ids[t] != token(index, t) || next[t] != token(index, t + 1)) return false;
        return true;
    }
    const float *x = l->x + b * FEATURES;
    for (int f = 0; f < FEATURES; f++)
        if (x[f] < feature(index, f) || x[f] > feature(index, f)) return false;
    return l->label[b] == label(index);
}

/* The batch at hand is the sampler's at position `at`. */
static ls_status check_batch(const ls_loader *l, const ls_sampler *s, size_t at, size_t n)
{
    LS_EXPECT(l->n == n, "%zu samples at %zu, expected %zu", l->n, at, n);
    for (size_t b = 0; b < n; b++)
        LS_EXPECT(holds(l, b, s ? (size_t)s->index[at + b] : at + b), "place %zu holds another sample", at + b);
    return LS_OK;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static ls_status check_epoch(ls_loader *l, const ls_sampler *s)
{
    const size_t all = s ? s->num_samples : l->data->n;
    ls_loader_rewind(l);
    for (size_t at = 0; at < all; at += l->batch) {
        LS_TRY(ls_loader_next(l));
        LS_TRY(check_batch(l, s, at, least(l->batch, all - at)));
    }
    LS_TRY(ls_loader_next(l));
    LS_EXPECT(l->n == 0, "%zu samples after the epoch's end", l->n);
    return LS_OK;
}

static void ok(ls_status st)
{
    if (st != LS_OK) fail_msg("%s", ls_last_error());
}

/* --- what comes ----------------------------------------------------------------------------------- */

static const struct { int workers, prefetch; } crews[] = { { 0, 0 }, { 1, 1 }, { 1, 0 }, { 2, 1 }, { 3, 0 }, { 5, 4 } };

static void order_and_content_do_not_depend_on_workers(void **state)
{
    (void)state;
    static const size_t batches[] = { 1, 7, 103, 200 };
    for (size_t c = 0; c < COUNT(crews); c++)
        for (size_t k = 0; k < COUNT(batches); k++)
            for (int tokens = 0; tokens < 2; tokens++) {
                source src;
                const ls_dataset d = tokens ? of_tokens(&src) : of_features(&src);
                ls_sampler *s;
                ls_loader *l;
                ok(ls_sampler_create(N, 2, 1, true, 3, false, &s));
                ok(create(&d, s, crews[c].workers, crews[c].prefetch, batches[k], &l));
                assert_true(tokens ? !l->x && l->ids : l->x && !l->ids);
                for (uint64_t epoch = 0; epoch < 2; epoch++) {
                    ok(ls_sampler_set_epoch(s, epoch));
                    ok(check_epoch(l, s));
                }
                ls_loader_destroy(l);
                ok(create(&d, NULL, crews[c].workers, crews[c].prefetch, batches[k], &l));
                ok(check_epoch(l, NULL));
                ls_loader_destroy(l);
                ls_sampler_destroy(s);
            }
}

/* Data in memory may have workers, too; and a last batch is left out alike. */
static void data_in_memory_may_have_workers(void **state)
{
    (void)state;
    ls_dataset d;
    ok(ls_dataset_synthetic(1, N, FEATURES, 11, &d));
    for (int workers = 0; workers < 3; workers++)
        for (int drop = 0; drop < 2; drop++) {
            ls_loader *l;
            const ls_loader_opts o = { .batch = 10, .drop_last = drop, .workers = workers };
            ok(ls_loader_create_with(&d, NULL, &o, &l));
            size_t seen = 0;
            for (ok(ls_loader_next(l)); l->n > 0; ok(ls_loader_next(l))) {
                assert_memory_equal(l->x, d.x + seen * FEATURES, l->n * FEATURES * sizeof *l->x);
                assert_memory_equal(l->label, d.label + seen, l->n * sizeof *l->label);
                seen += l->n;
            }
            assert_int_equal(seen, drop ? 100 : N);
            ls_loader_destroy(l);
        }
    ls_dataset_free(&d);
}

/* 400 random turns: on, back to the start, another epoch, another position. */
static void goes_wherever_it_is_sent(void **state)
{
    (void)state;
    for (size_t c = 0; c < COUNT(crews); c++) {
        source src;
        const ls_dataset d = of_features(&src);
        ls_sampler *s;
        ls_loader *l;
        ls_mt19937 g;
        ls_mt19937_seed(&g, 5);
        ok(ls_sampler_create(N, 1, 0, true, 3, false, &s));
        ok(create(&d, s, crews[c].workers, crews[c].prefetch, 8, &l));
        for (int turn = 0; turn < 400; turn++) {
            int64_t what, where;
            ok(ls_mt19937_randint(&g, 0, 12, 1, &what));
            ok(ls_mt19937_randint(&g, 0, 14, 1, &where));
            if (what == 0) ls_loader_rewind(l);
            if (what == 1) l->next = (size_t)where * 8;
            if (what == 2) ok(ls_sampler_set_epoch(s, (uint64_t)where));
            const size_t at = l->next, left = at < N ? N - at : 0;
            ok(ls_loader_next(l));
            ok(check_batch(l, s, at, least(8, left)));
        }
        ls_loader_destroy(l);
        ls_sampler_destroy(s);
    }
}

/* --- a get that fails -------------------------------------------------------------------------------- */

static void a_failure_reaches_the_caller_with_its_index(void **state)
{
    (void)state;
    for (size_t c = 0; c < COUNT(crews); c++) {
        source src;
        const ls_dataset d = of_features(&src);
        ls_loader *l;
        atomic_store(&src.broken, 37);
        ok(create(&d, NULL, crews[c].workers, crews[c].prefetch, 10, &l));
        for (size_t at = 0; at < 30; at += 10) { /* what is whole comes */
            ok(ls_loader_next(l));
            ok(check_batch(l, NULL, at, 10));
        }
        for (int i = 0; i < 2; i++) {
            assert_int_equal(ls_loader_next(l), LS_IO);
            assert_int_equal(l->n, 0);
            assert_int_equal(l->next, 30);
            if (!strstr(ls_last_error(), "sample 37 of the data set: the disk is on fire")) fail_msg("%s", ls_last_error());
        }
        src.silent = true; /* after a failure no worker runs */
        ls_loader_rewind(l);
        ok(ls_loader_next(l));
        l->next = 30;
        assert_int_equal(ls_loader_next(l), LS_IO);
        if (!strstr(ls_last_error(), "sample 37") || !strstr(ls_last_error(), ls_status_text(LS_IO))) fail_msg("%s", ls_last_error());
        atomic_store(&src.broken, SIZE_MAX); /* and then it is put out */
        for (size_t at = 30; at < N; at += 10) {
            (void)ls_fail(LS_INVALID, "another message");
            ok(ls_loader_next(l));
            assert_string_equal(ls_last_error(), "another message");
            ok(check_batch(l, NULL, at, least(10, N - at)));
        }
        ls_loader_destroy(l);
    }
}

/* --- how far ahead ------------------------------------------------------------------------------------- */

static bool reaches(const source *s, int gets)
{
    const ls_env *env = ls_env_get();
    for (const uint64_t end = env->mono_ns() + 60 * S; env->mono_ns() < end; env->yield())
        if (atomic_load(&s->gets) == gets) return true;
    return false;
}

/* The time of get is the workers' and not the caller's: no call is on its thread, and while the caller does nothing
 * they go as many batches ahead as they may. */
static void workers_hide_the_time_of_get(void **state)
{
    (void)state;
    source src;
    const ls_dataset d = of_features(&src);
    ls_loader *l;
    ok(create(&d, NULL, 2, 3, 5, &l));
    for (int k = 1; k <= 10; k++) { /* 6 batches ahead of the one at hand */
        ok(ls_loader_next(l));
        ok(check_batch(l, NULL, (size_t)(k - 1) * 5, 5));
        assert_true(atomic_load(&src.gets) <= 5 * (k + 6));
        if (!reaches(&src, 5 * (k + 6))) fail_msg("%d samples after %d batches, expected %d", atomic_load(&src.gets), k, 5 * (k + 6));
    }
    assert_int_equal(atomic_load(&src.on_caller), 0);
    ls_loader_destroy(l);
    assert_int_equal(atomic_load(&src.gets), 80);

    ok(create(&d, NULL, 0, 0, 5, &l)); /* without workers all of them are the caller's */
    atomic_store(&src.gets, 0);
    ok(ls_loader_next(l));
    assert_int_equal(atomic_load(&src.on_caller), 5);
    assert_int_equal(atomic_load(&src.gets), 5);
    ls_loader_destroy(l);
}

static void gets_run_at_the_same_time(void **state)
{
    (void)state;
    source src;
    const ls_dataset d = of_features(&src);
    ls_loader *l;
    src.together = 3; /* the first sample waits for two others */
    ok(create(&d, NULL, 3, 1, 5, &l));
    ok(ls_loader_next(l));
    ok(check_batch(l, NULL, 0, 5));
    ls_loader_destroy(l);
}

/* Of batches that take twenty seconds each, destroying the loader, or going elsewhere, waits for a sample. */
static void ends_promptly_in_the_middle_of_an_epoch(void **state)
{
    (void)state;
    enum { BATCH = 20000 };
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
        source src;
        ls_dataset d = of_features(&src);
        ls_loader *l;
        d.n = 4 * BATCH;
        src.slow_from = BATCH;
        ok(create(&d, NULL, 1, 1, BATCH, &l));
        ok(ls_loader_next(l));
        while (atomic_load(&src.gets) == BATCH) ls_env_get()->yield(); /* the worker is in the next batch */
        if (elsewhere) {
            ls_loader_rewind(l);
            ok(ls_loader_next(l));
            ok(check_batch(l, NULL, 0, BATCH));
        }
        ls_loader_destroy(l);
        const int slow = atomic_load(&src.gets) - BATCH * (1 + elsewhere);
        if (slow >= BATCH) fail_msg("the worker made all %d samples of a batch that nobody wanted", slow);
    }
}

/* --- steady steps ----------------------------------------------------------------------------------------- */

#ifndef LS_SANITIZED
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
static _Atomic long allocations;
static _Atomic bool counting;

void *malloc(size_t n)
{
    if (atomic_load(&counting)) atomic_fetch_add(&allocations, 1);
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t each)
{
    if (atomic_load(&counting)) atomic_fetch_add(&allocations, 1);
    return __libc_calloc(n, each);
}

void *realloc(void *p, size_t n)
{
    if (atomic_load(&counting)) atomic_fetch_add(&allocations, 1);
    return __libc_realloc(p, n);
}

static void steady_batches_allocate_nothing(void **state)
{
    (void)state;
    for (size_t c = 0; c < COUNT(crews); c++) {
        source src;
        const ls_dataset d = of_features(&src);
        ls_loader *l;
        ok(create(&d, NULL, crews[c].workers, crews[c].prefetch, 8, &l));
        ok(ls_loader_next(l));
        atomic_store(&allocations, 0);
        atomic_store(&counting, true);
        ls_status st = LS_OK;
        for (int epoch = 0; epoch < 3 && st == LS_OK; epoch++) {
            do st = ls_loader_next(l);
            while (st == LS_OK && l->n > 0);
            ls_loader_rewind(l);
        }
        atomic_store(&counting, false);
        ok(st);
        assert_int_equal(atomic_load(&allocations), 0);
        atomic_store(&counting, true); /* the counter counts */
        void *volatile p = malloc(8);
        atomic_store(&counting, false);
        free(p);
        assert_int_equal(atomic_load(&allocations), 1);
        ls_loader_destroy(l);
    }
}
#endif

/* --- more ranks than cores --------------------------------------------------------------------------------- */

static ls_status rank_reads_its_part(ls_world *w, void *arg)
{
    (void)arg;
    source src;
    const ls_dataset d = of_features(&src);
    ls_sampler *s = NULL;
    ls_loader *l = NULL;
    int64_t samples = 0;
    ls_status st = ls_sampler_create(N, ls_world_size(w), ls_world_rank(w), true, 9, false, &s);
    if (st == LS_OK) st = create(&d, s, 3, 2, 2, &l);
    for (uint64_t epoch = 0; st == LS_OK && epoch < 3; epoch++) {
        st = ls_sampler_set_epoch(s, epoch);
        if (st == LS_OK) st = check_epoch(l, s);
        samples = (int64_t)s->num_samples;
        if (st == LS_OK) st = ls_all_reduce(ls_world_group(w), &samples, &samples, 1, LS_I64, LS_SUM);
        if (st == LS_OK && samples < N) st = ls_fail(LS_INTERNAL, "%d samples on all ranks", (int)samples);
    }
    ls_loader_destroy(l);
    ls_sampler_destroy(s);
    return st;
}

static void more_ranks_than_cores_have_workers(void **state)
{
    (void)state;
    for (int mode = LS_TEST_THREADS; mode <= LS_TEST_PROCESSES; mode++) {
        const ls_rank_report r = ls_test_ranks((ls_test_mode)mode, 8, NULL, rank_reads_its_part, NULL);
        if (r.failed) fail_msg("%s", r.text);
    }
}

/* --- wrong use ------------------------------------------------------------------------------------------------ */

static void says_what_is_wrong(void **state)
{
    (void)state;
    source src;
    const ls_dataset good = of_features(&src);
    ls_dataset no_get = good, both = good, neither = good, in_memory = good;
    no_get.get = NULL;
    both.tokens = TOKENS;
    neither.features = 0;
    in_memory.get = NULL;
    in_memory.tokens = TOKENS;
    const struct { const ls_dataset *d; ls_loader_opts o; const char *says; } row[] = {
        { &good, { .batch = 0 }, "batches of 0 samples" },
        { &good, { .batch = 4, .workers = -1 }, "-1 workers: expected 0 to 64" },
        { &good, { .batch = 4, .workers = 65 }, "65 workers: expected 0 to 64" },
        { &good, { .batch = 4, .workers = 1, .prefetch = 65 }, "a prefetch of 65" },
        { &good, { .batch = 4, .workers = 1, .prefetch = -1 }, "a prefetch of -1" },
        { &good, { .batch = 4, .prefetch = 2 }, "0 workers and a prefetch of 2" },
        { &no_get, { .batch = 4 }, "without get needs x or bytes" },
        { &in_memory, { .batch = 4 }, "sequences of tokens need get" },
        { &both, { .batch = 4 }, "3 features and 5 tokens" },
        { &neither, { .batch = 4 }, "0 features and 0 tokens" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_loader *l;
        assert_int_equal(ls_loader_create_with(row[i].d, NULL, &row[i].o, &l), LS_INVALID);
        assert_null(l);
        if (!strstr(ls_last_error(), row[i].says)) fail_msg("row %zu: %s", i, ls_last_error());
    }
    ls_loader_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_and_content_do_not_depend_on_workers),
        cmocka_unit_test(data_in_memory_may_have_workers),
        cmocka_unit_test(goes_wherever_it_is_sent),
        cmocka_unit_test(a_failure_reaches_the_caller_with_its_index),
        cmocka_unit_test(workers_hide_the_time_of_get),
        cmocka_unit_test(gets_run_at_the_same_time),
        cmocka_unit_test(ends_promptly_in_the_middle_of_an_epoch),
#ifndef LS_SANITIZED
        cmocka_unit_test(steady_batches_allocate_nothing),
#endif
        cmocka_unit_test(more_ranks_than_cores_have_workers),
        cmocka_unit_test(says_what_is_wrong),
    };
    return cmocka_run_group_tests_name("prefetch", tests, NULL, NULL);
}
