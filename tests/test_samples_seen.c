/* What training is fed with, seen from outside: a feed of each rank, whose data says at every place which place it is.
 * Ranks are simulated one after another; that the trainer asks its feed for step 0, 1, 2 ... is in test_train_ranks.c.
 *
 *   features  sample i of the synthetic 1,000 holds the number i
 *   tokens    token i of the file is i: 414 of them, 103 windows of 4
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "data/tokens.h"
#include "train/feed.h"
#include "train/memory.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define MOST_RANKS 4
#define GLOBAL 12 /* samples of a step: 1 to 4 ranks divide it */
#define SAMPLES 1000
#define FEATURES 3
#define T 4
#define TOKENS 414
#define WINDOWS 103
#define MOST 4096 /* places of two epochs and what pads them */

typedef struct seen {
    int64_t at[MOST]; /* which sample each place of the run held, step after step, in the order of places in a step */
    size_t n;
    size_t step_end[256];
    int64_t steps_per_epoch;
} seen;

typedef struct how {
    bool tokens, drop_last;
    const char *shuffle, *seed, *micro, *workers;
    int size, inner;
    int64_t first, steps; /* of the run that are looked at; steps 0: two epochs */
} how;

static char folder[64];
static float numbered[SAMPLES * FEATURES];

static int make_data(void **state)
{
    (void)state;
    char path[128];
    ls_token_writer w;
    for (size_t i = 0; i < COUNT(numbered); i++) numbered[i] = (float)(i / FEATURES);
    snprintf(folder, sizeof folder, "/tmp/lockstep-test-samples-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/train.bin", folder);
    if (ls_token_writer_open(&w, path, LS_TOKENS_LLMC, TOKENS) < 0) return 1;
    for (uint32_t i = 0; i < TOKENS; i++)
        if (ls_token_writer_add(&w, &i, 1) < 0) return 1;
    const ls_status st = ls_token_writer_finish(&w);
    ls_token_writer_close(&w);
    return st < 0;
}

static int remove_data(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/train.bin", folder);
    remove(path);
    return remove(folder);
}

/* Which sample row b of a micro-batch is, from nothing but its content. */
static int64_t sample_of(const ls_rows *rows, size_t b)
{
    if (!rows->tokens) {
        const float *x = (const float *)rows->x + b * FEATURES;
        for (int f = 1; f < FEATURES; f++) assert_true(x[f] == x[0]);
        return (int64_t)x[0];
    }
    const int64_t *x = (const int64_t *)rows->x + b * T, *y = rows->label + b * T;
    assert_int_equal(x[0] % T, 0);
    for (int t = 0; t < T; t++) assert_true(x[t] == x[0] + t && y[t] == x[t] + 1);
    return x[0] / T;
}

/* One step of one rank, micro-batch by micro-batch, into the places of the step; how many samples it has. */
static size_t take_step(ls_feed *f, int64_t step, int64_t *place, size_t room)
{
    size_t n = 0;
    if (ls_feed_step(f, step) < 0) fail_msg("%s", ls_last_error());
    for (size_t k = 0; k < ls_feed_micro_batches(f); k++) {
        const ls_rows rows = ls_feed_micro_batch(f, k);
        assert_true(rows.n > 0 && rows.n <= f->micro);
        n += rows.n;
        for (size_t b = 0; b < rows.n; b++) {
            assert_true(rows.first + b < room);
            assert_int_equal(place[rows.first + b], -1); /* a place is one rank's, and handed out once */
            place[rows.first + b] = sample_of(&rows, b);
        }
    }
    assert_int_equal(n, f->step.n);
    assert_int_equal(ls_feed_micro_batch(f, ls_feed_micro_batches(f)).n, 0);
    return n;
}

typedef struct opened {
    ls_train_config c;
    ls_opts *o;
    ls_feed feed;
} opened;

static void open_feed(const how *h, int rank, opened *to)
{
    const char *const flags[] = { "data.name", h->tokens ? "tokens" : "synthetic", "data.path", h->tokens ? folder : "",
                                  "model.name", h->tokens ? "gpt2" : "mlp", "model.dims", "3,4", "model.vocab_size", "414",
                                  "model.seq_len", "4", "model.n_layer", "1", "model.n_head", "1", "model.d_model", "4",
                                  "data.shuffle", h->shuffle, "data.drop_last", h->drop_last ? "true" : "false",
                                  "train.seed", h->seed ? h->seed : "0", "data.workers", h->workers ? h->workers : "0" };
    ls_source source = { 0 };
    ls_model_config mc;
    ls_feed *f = &to->feed;
    assert_int_equal(ls_opts_create(ls_train_opts, ls_train_nopts, &to->c, &to->o), LS_OK);
    for (size_t i = 0; i < COUNT(flags); i += 2)
        if (ls_opts_set(to->o, flags[i], flags[i + 1], "flag") < 0) fail_msg("%s", ls_last_error());
    if (ls_train_model(&to->c, &source, &mc) < 0) fail_msg("%s", ls_last_error());
    *f = (ls_feed){ .rank = rank, .size = h->size, .local = (size_t)(GLOBAL / h->size), .inner = h->inner };
    f->micro = h->micro ? (size_t)atoi(h->micro) : f->local;
    to->c.train.global_batch = GLOBAL;
    if (ls_feed_open(f, &to->c, &mc, &source) < 0) fail_msg("%s", ls_last_error());
    ls_source_free(&source);
    if (h->tokens) return;
    assert_int_equal(f->train.n, SAMPLES);
    f->train.x = numbered; /* its owner frees what stood here */
}

static void close_feed(opened *o)
{
    ls_feed_close(&o->feed);
    ls_opts_destroy(o->o);
}

static seen *look(const how *h)
{
    seen *s = calloc(1, sizeof *s);
    opened rank[MOST_RANKS];
    assert_non_null(s);
    for (int r = 0; r < h->size; r++) open_feed(h, r, &rank[r]);
    s->steps_per_epoch = rank[0].feed.steps_per_epoch;
    const int64_t steps = h->steps ? h->steps : 2 * s->steps_per_epoch;
    assert_true(steps <= (int64_t)COUNT(s->step_end));
    for (int64_t k = 0; k < steps; k++) {
        int64_t place[GLOBAL];
        size_t n = 0;
        for (int i = 0; i < GLOBAL; i++) place[i] = -1;
        for (int r = 0; r < h->size; r++) n += take_step(&rank[r].feed, h->first + k, place, GLOBAL);
        for (size_t i = 0; i < n; i++) { /* without a gap: dropout's numbers follow from the place */
            assert_true(place[i] >= 0 && s->n < MOST);
            s->at[s->n++] = place[i];
        }
        s->step_end[k] = s->n;
    }
    for (int r = 0; r < h->size; r++) close_feed(&rank[r]);
    return s;
}

/* How often each of `kinds` samples stands in places [from, to). */
static void count(const seen *s, size_t from, size_t to, int *times, size_t kinds)
{
    assert_true(to <= s->n);
    memset(times, 0, kinds * sizeof *times);
    for (size_t i = from; i < to; i++) {
        assert_in_range(s->at[i], 0, kinds - 1);
        times[s->at[i]]++;
    }
}

static bool same_multiset(const seen *a, const seen *b, int64_t step)
{
    int of_a[SAMPLES], of_b[SAMPLES];
    const size_t a0 = step ? a->step_end[step - 1] : 0, b0 = step ? b->step_end[step - 1] : 0;
    count(a, a0, a->step_end[step], of_a, SAMPLES);
    count(b, b0, b->step_end[step], of_b, SAMPLES);
    return memcmp(of_a, of_b, sizeof of_a) == 0;
}

/* Of n places, how many hold the same sample. */
static size_t agree(const int64_t *a, const int64_t *b, size_t n)
{
    size_t same = 0;
    for (size_t i = 0; i < n; i++) same += a[i] == b[i];
    return same;
}

/* --- tokens --------------------------------------------------------------------------------------------- */

/* Windows follow one another without end: an epoch is each of them once, wherever in a step it ends. */
static void every_window_comes_once_an_epoch(void **state)
{
    (void)state;
    static const char *const micro[] = { NULL, "1", "2", "5" };
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        const how alone = { .tokens = true, .shuffle = shuffle ? "true" : "false", .size = 1, .steps = 2 * WINDOWS / GLOBAL + 1 };
        seen *one = look(&alone);
        int times[WINDOWS];
        assert_int_equal(one->steps_per_epoch, (WINDOWS + GLOBAL - 1) / GLOBAL);
        for (int epoch = 0; epoch < 2; epoch++) {
            count(one, (size_t)epoch * WINDOWS, (size_t)(epoch + 1) * WINDOWS, times, WINDOWS);
            for (int w = 0; w < WINDOWS; w++)
                if (times[w] != 1) fail_msg("window %d comes %d times in epoch %d", w, times[w], epoch);
        }
        int64_t straight[WINDOWS];
        for (int w = 0; w < WINDOWS; w++) straight[w] = w;
        /* of 103 places in random order about one holds its own number: 12 and more have a chance of 1e-9 */
        for (int epoch = 0; epoch < 2; epoch++)
            assert_true(shuffle ? agree(one->at + epoch * WINDOWS, straight, WINDOWS) < 12
                                : agree(one->at + epoch * WINDOWS, straight, WINDOWS) == WINDOWS);
        if (shuffle) assert_true(agree(one->at, one->at + WINDOWS, WINDOWS) < 12);

        for (int size = 1; size <= MOST_RANKS; size++)
            for (size_t m = 0; m < COUNT(micro); m++) {
                how h = alone;
                h.size = size;
                h.micro = micro[m];
                seen *s = look(&h);
                assert_int_equal(s->n, one->n);
                assert_memory_equal(s->at, one->at, one->n * sizeof *one->at); /* place by place */
                assert_memory_equal(s->step_end, one->step_end, sizeof one->step_end);
                free(s);
            }
        free(one);
    }
}

/* --- features -------------------------------------------------------------------------------------------- */

/* Where ranks do not divide the samples, the order goes round again until they do: with 3 ranks two samples twice. */
static void check_epoch(const seen *s, int epoch, const how *h)
{
    int times[SAMPLES], twice = 0, never = 0;
    const size_t end = s->step_end[(epoch + 1) * s->steps_per_epoch - 1];
    count(s, epoch ? s->step_end[epoch * s->steps_per_epoch - 1] : 0, end, times, SAMPLES);
    for (int i = 0; i < SAMPLES; i++) {
        assert_in_range(times[i], 0, 2);
        twice += times[i] == 2;
        never += times[i] == 0;
    }
    assert_int_equal(twice, h->drop_last ? 0 : h->size == 3 ? 2 : 0);
    assert_int_equal(never, h->drop_last ? SAMPLES % GLOBAL : 0);
}

static void every_sample_comes_once_an_epoch(void **state)
{
    (void)state;
    static const char *const micro[] = { NULL, "1", "2", "5" };
    for (int k = 0; k < 4; k++) {
        how h = { .shuffle = k & 1 ? "true" : "false", .drop_last = k & 2, .size = 1 };
        seen *one = look(&h);
        assert_int_equal(one->steps_per_epoch, h.drop_last ? SAMPLES / GLOBAL : (SAMPLES + GLOBAL - 1) / GLOBAL);
        const size_t epoch = one->step_end[one->steps_per_epoch - 1];
        assert_int_equal(epoch, h.drop_last ? SAMPLES / GLOBAL * GLOBAL : SAMPLES);
        if (k & 1) assert_true(agree(one->at, one->at + epoch, epoch) < 12);
        else assert_true(agree(one->at, one->at + epoch, epoch) == epoch);
        for (size_t i = 0; i < epoch && !(k & 1); i++) assert_int_equal(one->at[i], i);

        for (h.size = 1; h.size <= MOST_RANKS; h.size++)
            for (size_t m = 0; m < COUNT(micro); m++) {
                h.micro = micro[m];
                seen *s = look(&h);
                assert_int_equal(s->steps_per_epoch, one->steps_per_epoch);
                for (int e = 0; e < 2; e++) check_epoch(s, e, &h);
                for (int64_t step = 0; step < 2 * s->steps_per_epoch; step++) {
                    const bool padded = h.size == 3 && !h.drop_last && (step + 1) % s->steps_per_epoch == 0;
                    if (!padded && !same_multiset(s, one, step))
                        fail_msg("%d ranks: step %d has other samples than on one rank", h.size, (int)step);
                }
                free(s);
            }
        free(one);
    }
}

/* With train.numerics invariant every step has as many samples, of which the rest of an epoch counts: 1,000 samples are
 * 83 steps of 12 and 4 more, which end inside a micro-batch of 3. */
static void the_rest_of_an_epoch_counts_once(void **state)
{
    (void)state;
    for (int size = 1; size <= MOST_RANKS; size *= 2)
        for (int inner = 1; inner <= size; inner *= 2) {
            const how h = { .shuffle = "false", .micro = "3", .size = size, .inner = inner };
            opened rank[MOST_RANKS];
            for (int r = 0; r < size; r++) open_feed(&h, r, &rank[r]);
            assert_int_equal(rank[0].feed.steps_per_epoch, SAMPLES / GLOBAL + 1);
            for (int64_t step = SAMPLES / GLOBAL - 1; step <= SAMPLES / GLOBAL; step++) {
                const size_t want = step < SAMPLES / GLOBAL ? GLOBAL : SAMPLES % GLOBAL;
                int times[GLOBAL] = { 0 };
                for (int r = 0; r < size; r++) {
                    ls_feed *f = &rank[r].feed;
                    if (ls_feed_step(f, step) < 0) fail_msg("%s", ls_last_error());
                    assert_int_equal(f->all, want);
                    assert_int_equal(ls_feed_micro_batches(f), GLOBAL / 3 / size);
                    for (size_t k = 0; k < ls_feed_micro_batches(f); k++) {
                        const ls_rows rows = ls_feed_micro_batch(f, k);
                        assert_true(rows.n > 0 && rows.n >= rows.counts);
                        for (size_t b = 0; b < rows.counts; b++) {
                            assert_true(rows.first + b < GLOBAL);
                            times[rows.first + b]++;
                            assert_int_equal(sample_of(&rows, b), step * GLOBAL + (int64_t)(rows.first + b));
                        }
                    }
                }
                for (size_t i = 0; i < GLOBAL; i++)
                    if (times[i] != (i < want))
                        fail_msg("%d ranks, inner %d: place %zu of step %d counts %d times, want %d", size, inner, i,
                                 (int)step, times[i], i < want);
            }
            for (int r = 0; r < size; r++) close_feed(&rank[r]);
        }
}

/* --- both --------------------------------------------------------------------------------------------------- */

static void the_seed_decides_the_order(void **state)
{
    (void)state;
    for (int tokens = 0; tokens < 2; tokens++) {
        const how h = { .tokens = tokens, .shuffle = "true", .seed = "7", .size = 2, .steps = 8 };
        how other = h;
        other.seed = "8";
        seen *a = look(&h), *again = look(&h), *b = look(&other);
        assert_true(a->n == 96 && b->n == 96);
        assert_memory_equal(a, again, sizeof *a);
        assert_true(agree(a->at, b->at, a->n) < 12);
        free(a);
        free(again);
        free(b);
    }
}

/* A run that begins at step 13, or at step 100, is fed what the run from the beginning was. */
static void a_feed_can_begin_at_any_step(void **state)
{
    (void)state;
    for (int tokens = 0; tokens < 2; tokens++) {
        const how whole = { .tokens = tokens, .shuffle = "true", .size = 3, .micro = "2", .steps = 110 };
        seen *a = look(&whole);
        static const int64_t begins[] = { 1, 13, 100 };
        for (size_t i = 0; i < COUNT(begins); i++) {
            how rest = whole;
            rest.first = begins[i];
            rest.steps = 10;
            seen *b = look(&rest);
            const size_t skip = a->step_end[begins[i] - 1];
            assert_int_equal(b->n, a->step_end[begins[i] + 9] - skip);
            assert_memory_equal(b->at, a->at + skip, b->n * sizeof *b->at);
            free(b);
        }
        free(a);
    }
}

/* Threads that prepare batches change nothing: over two epochs, and from a step in the middle. */
static void workers_feed_the_same_samples(void **state)
{
    (void)state;
    const how whole = { .shuffle = "true", .size = 3, .micro = "2", .steps = 110 };
    how with = whole;
    with.workers = "3";
    seen *a = look(&whole), *b = look(&with);
    assert_memory_equal(a, b, sizeof *a);
    free(b);
    with.first = 80; /* the epoch ends with step 83 */
    with.steps = 10;
    b = look(&with);
    assert_memory_equal(b->at, a->at + a->step_end[79], b->n * sizeof *b->at);
    free(a);
    free(b);
}

/* Of data that are too long to be read twice: another first, middle or last value is another checksum. */
static void a_checksum_sees_both_ends_and_the_middle(void **state)
{
    (void)state;
    enum { N = 1 << 18 }; /* a MiB */
    float *x = calloc(N, sizeof *x);
    assert_non_null(x);
    const ls_feed f = { .train = { .x = x, .n = N, .features = 1 } };
    const uint64_t before = ls_feed_checksum(&f);
    static const size_t at[] = { 0, N / 2, N - 1 };
    for (size_t i = 0; i < COUNT(at); i++) {
        x[at[i]] = 1.0f;
        assert_true(ls_feed_checksum(&f) != before);
        x[at[i]] = 0.0f;
        assert_true(ls_feed_checksum(&f) == before);
    }
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_feed_the_same_samples),
        cmocka_unit_test(every_window_comes_once_an_epoch),
        cmocka_unit_test(every_sample_comes_once_an_epoch),
        cmocka_unit_test(the_rest_of_an_epoch_counts_once),
        cmocka_unit_test(the_seed_decides_the_order),
        cmocka_unit_test(a_checksum_sees_both_ends_and_the_middle),
        cmocka_unit_test(a_feed_can_begin_at_any_step),
    };
    return cmocka_run_group_tests_name("samples_seen", tests, make_data, remove_data);
}
