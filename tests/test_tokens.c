/* tokens: files that tell the truth, and an order that follows from (seed, epoch, position) alone. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <cmocka.h>

#include "base/compiler.h"
#include "base/context.h"
#include "base/env.h"
#include "base/file.h"
#include "data/tokens.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void assert_says(const char *want)
{
    if (!strstr(ls_last_error(), want)) fail_msg("expected \"%s\" in \"%s\"", want, ls_last_error());
}

static const char *temporary(char path[64], const char *name)
{
    snprintf(path, 64, "/tmp/test_tokens.%d.%s", ls_env_get()->pid(), name);
    return path;
}

/* Tokens 0, 1, 2 ... n - 1 in a file of either format. */
static void write_tokens(const char *path, ls_token_format format, uint32_t vocab, uint32_t n)
{
    ls_token_writer w;
    assert_int_equal(ls_token_writer_open(&w, path, format, vocab), LS_OK);
    for (uint32_t i = 0; i < n; i++) assert_int_equal(ls_token_writer_add(&w, &i, 1), LS_OK);
    assert_int_equal(ls_token_writer_finish(&w), LS_OK);
    ls_token_writer_close(&w);
}

static ls_tokens counting(const uint16_t *id, size_t n) { return (ls_tokens){ .n = n, .u16 = id }; }

static uint16_t *count_up(size_t n)
{
    uint16_t *id = malloc(n * sizeof *id);
    for (size_t i = 0; i < n; i++) id[i] = (uint16_t)i;
    return id;
}

/* Byte for byte what llm.c's data scripts write. */
static void writes_the_formats_of_llmc_and_nanogpt(void **state)
{
    (void)state;
    static const struct { ls_token_format format; uint32_t vocab; size_t header, each; int32_t head[3]; } row[] = {
        { LS_TOKENS_LLMC, 50257, 1024, 2, { 20240520, 1, 5 } },
        { LS_TOKENS_LLMC, 65536, 1024, 2, { 20240520, 1, 5 } },
        { LS_TOKENS_LLMC, 65537, 1024, 4, { 20240801, 7, 5 } },
        { LS_TOKENS_NANOGPT, 50257, 0, 2, { 0 } },
    };
    char path[64];
    temporary(path, "bin");
    for (size_t r = 0; r < COUNT(row); r++) {
        uint8_t *p;
        size_t n;
        int64_t id[5];
        ls_tokens t;
        write_tokens(path, row[r].format, row[r].vocab, 5);
        assert_int_equal(ls_file_read(path, 4096, (char **)&p, &n), LS_OK);
        assert_int_equal(n, row[r].header + 5 * row[r].each);
        if (row[r].header) assert_memory_equal(p, row[r].head, sizeof row[r].head);
        for (size_t i = sizeof row[r].head; i < row[r].header; i++) assert_int_equal(p[i], 0);
        for (size_t i = 0; i < 5; i++)
            for (size_t b = 0; b < row[r].each; b++)
                assert_int_equal(p[row[r].header + i * row[r].each + b], b == 0 ? i : 0);
        free(p);
        assert_int_equal(ls_tokens_open(path, row[r].format, &t), LS_OK);
        assert_int_equal(t.n, 5);
        assert_int_equal(ls_tokens_read(&t, 1, 4, 5, id), LS_OK);
        for (int i = 0; i < 4; i++) assert_int_equal(id[i], i + 1);
        assert_int_equal(ls_tokens_read(&t, 2, 4, 5, id), LS_INVALID);
        assert_int_equal(ls_tokens_read(&t, SIZE_MAX, 2, 5, id), LS_INVALID);
        ls_tokens_close(&t);
    }
    ls_env_get()->unlink(path);
    ls_token_writer w;
    assert_int_equal(ls_token_writer_open(&w, path, LS_TOKENS_NANOGPT, 65537), LS_UNSUPPORTED);
    ls_token_writer_close(&w);
}

/* 3 MiB of tokens of 32 bits, added in unequal pieces: what is written does not depend on them. Until it is finished
 * nothing is there under the name, and a file that is not finished leaves nothing. */
static void a_long_file_is_written_in_pieces(void **state)
{
    (void)state;
    enum { N = 3 << 18 };
    char path[64];
    ls_token_writer w;
    ls_tokens t;
    ls_file_info info;
    uint32_t *id = malloc(N * sizeof *id);
    int64_t *back = malloc(N * sizeof *back);
    for (uint32_t i = 0; i < N; i++) id[i] = i * 7 % 100000;
    temporary(path, "pieces");
    for (int finish = 0; finish < 2; finish++) {
        assert_int_equal(ls_token_writer_open(&w, path, LS_TOKENS_LLMC, 100000), LS_OK);
        for (size_t at = 0, n = 1; at < N; at += n, n = n * 3 % 70001)
            assert_int_equal(ls_token_writer_add(&w, id + at, n < N - at ? n : N - at), LS_OK);
        assert_true(w.n <= 1 << 20);
        if (finish) assert_int_equal(ls_token_writer_finish(&w), LS_OK);
        ls_token_writer_close(&w);
        assert_int_equal(ls_env_get()->info(path, &info), 0);
        assert_int_equal(info.type, finish ? LS_FILE_REGULAR : LS_FILE_NONE);
    }
    assert_int_equal(ls_tokens_open(path, LS_TOKENS_LLMC, &t), LS_OK);
    remove(path);
    assert_int_equal(t.n, N);
    assert_int_equal(ls_tokens_read(&t, 0, N, 100000, back), LS_OK);
    for (uint32_t i = 0; i < N; i++) assert_int_equal(back[i], id[i]);
    ls_tokens_close(&t);
    free(back);
    free(id);
}

static ssize_t no_room(int fd, const void *p, size_t n, uint64_t offset)
{
    (void)fd, (void)p, (void)n, (void)offset;
    return -ENOSPC;
}

static void a_header_that_cannot_be_written_is_named(void **state)
{
    (void)state;
    char path[64];
    ls_token_writer w;
    ls_file_info info;
    ls_env full = ls_env_real;
    full.pwrite = no_room;
    ls_context with = { .env = &full, .rank = -1 }, *was = ls_context_swap(&with);
    temporary(path, "full");
    assert_int_equal(ls_token_writer_open(&w, path, LS_TOKENS_LLMC, 10), LS_OK);
    assert_int_equal(ls_token_writer_add(&w, &(uint32_t){ 3 }, 1), LS_OK);
    assert_int_equal(ls_token_writer_finish(&w), LS_IO);
    assert_says(": cannot be written: No space left");
    ls_token_writer_close(&w);
    assert_int_equal(full.info(path, &info), 0);
    assert_int_equal(info.type, LS_FILE_NONE);
    ls_context_swap(was);
}

static void headers_that_lie_are_refused(void **state)
{
    (void)state;
    static const struct { int32_t head[3]; size_t bytes; ls_token_format format; const char *says; } row[] = {
        { { 20240520, 1, 3 }, 1024 + 6, LS_TOKENS_LLMC, NULL },
        { { 20240520, 1, 0 }, 1024, LS_TOKENS_LLMC, NULL },
        { { 20240801, 7, 3 }, 1024 + 12, LS_TOKENS_LLMC, NULL },
        { { 20240520, 1, 4 }, 1024 + 6, LS_TOKENS_LLMC, "t.bin: byte 8: the header says 4 tokens, but 6 bytes of 2 each follow it" },
        { { 20240520, 1, 2 }, 1024 + 6, LS_TOKENS_LLMC, "says 2 tokens" },
        { { 20240520, 1, 3 }, 1024 + 7, LS_TOKENS_LLMC, "says 3 tokens, but 7 bytes" },
        { { 20240520, 1, -3 }, 1024 + 6, LS_TOKENS_LLMC, "says -3 tokens" },
        { { 20240520, 1, INT32_MAX }, 1024 + 6, LS_TOKENS_LLMC, "says 2147483647 tokens" },
        { { 20240520, 2, 3 }, 1024 + 6, LS_TOKENS_LLMC, "byte 4: version 2, expected 1" },
        { { 20240801, 1, 3 }, 1024 + 12, LS_TOKENS_LLMC, "byte 4: version 1, expected 7" },
        { { 20240801, 7, 3 }, 1024 + 6, LS_TOKENS_LLMC, "says 3 tokens, but 6 bytes of 4" },
        { { 7, 1, 3 }, 1024 + 6, LS_TOKENS_LLMC, "byte 0: magic number 7, expected 20240520 or 20240801; nanoGPT's format has none: say so" },
        { { 20240520, 1, 3 }, 1023, LS_TOKENS_LLMC, "1023 bytes, but the header of a token file has 1024" },
        { { 0 }, 0, LS_TOKENS_LLMC, "0 bytes" },
        { { 20240520, 1, 3 }, 1024 + 6, LS_TOKENS_NANOGPT, "this is llm.c's header, not nanoGPT's format" },
        { { 1, 2, 3 }, 12, LS_TOKENS_NANOGPT, NULL },
        { { 1, 2, 3 }, 11, LS_TOKENS_NANOGPT, "11 bytes, expected tokens of 2 bytes each" },
        { { 0 }, 0, LS_TOKENS_NANOGPT, "0 bytes" },
    };
    for (size_t r = 0; r < COUNT(row); r++) {
        uint8_t *p = calloc(1, row[r].bytes + 12);
        ls_tokens t;
        memcpy(p, row[r].head, sizeof row[r].head);
        uint8_t *exact = malloc(row[r].bytes + 1);
        memcpy(exact, p, row[r].bytes);
        ls_status st = ls_tokens_parse("t.bin", exact, row[r].bytes, row[r].format, &t);
        if (st != (row[r].says ? LS_BAD_FILE : LS_OK)) fail_msg("row %zu: %s", r, ls_status_word(st));
        if (row[r].says) assert_says(row[r].says);
        free(p);
        free(exact);
    }
}

static void a_token_beyond_the_vocabulary_is_named_with_its_place(void **state)
{
    (void)state;
    char path[64], says[200];
    ls_tokens t;
    int64_t id[300];
    temporary(path, "large");
    for (int format = 0; format < 2; format++) {
        write_tokens(path, (ls_token_format)format, 300, 300);
        assert_int_equal(ls_tokens_open(path, (ls_token_format)format, &t), LS_OK);
        assert_int_equal(ls_tokens_read(&t, 100, 150, 250, id), LS_OK);
        assert_int_equal(ls_tokens_read(&t, 100, 151, 250, id), LS_BAD_FILE);
        snprintf(says, sizeof says, "%s: byte %d: token 250 is 250, but the vocabulary has 250", path, (format ? 0 : 1024) + 500);
        assert_says(says);
        ls_token_loader *l;
        ls_token_loader_opts o = { .batch = 2, .T = 50, .dp_size = 1, .vocab = 250 };
        assert_int_equal(ls_token_loader_create(&t, &o, &l), LS_OK);
        assert_int_equal(ls_token_loader_next(l), LS_OK);
        assert_int_equal(ls_token_loader_next(l), LS_OK);
        assert_int_equal(ls_token_loader_next(l), LS_BAD_FILE); /* window 4 is followed by token 250 */
        assert_int_equal(l->position, 4);
        ls_token_loader_destroy(l);
        ls_tokens_close(&t);
    }
    ls_env_get()->unlink(path);
    assert_int_equal(ls_tokens_open(path, LS_TOKENS_LLMC, &t), LS_IO);
    assert_int_equal(ls_tokens_open("/tmp", LS_TOKENS_LLMC, &t), LS_IO);
}

static void end_of_text_shows_where_documents_begin(void **state)
{
    (void)state;
    static const uint16_t id[] = { 9, 1, 2, 9, 9, 3, 4, 5, 9 };
    ls_tokens t = counting(id, COUNT(id));
    size_t at[8];
    assert_int_equal(ls_tokens_find(&t, 9, 0, SIZE_MAX, NULL, 0), 4);
    assert_int_equal(ls_tokens_find(&t, 9, 1, 7, at, 8), 2);
    assert_int_equal(at[0], 3);
    assert_int_equal(at[1], 4);
    assert_int_equal(ls_tokens_find(&t, 9, 0, 9, at, 2), 4); /* more than there is room for */
    assert_int_equal(at[1], 3);
    assert_int_equal(ls_tokens_find(&t, 9, 9, 5, at, 8), 0);
    assert_int_equal(ls_tokens_find(&t, 7, 0, 9, at, 8), 0);
}

static ls_token_loader *loader(const ls_tokens *t, ls_token_loader_opts o)
{
    ls_token_loader *l;
    if (o.vocab == 0) o.vocab = 65536;
    if (o.dp_size == 0) o.dp_size = 1;
    assert_int_equal(ls_token_loader_create(t, &o, &l), LS_OK);
    return l;
}

static void a_window_is_T_tokens_and_the_ones_that_follow(void **state)
{
    (void)state;
    uint16_t *id = count_up(1000);
    ls_tokens t = counting(id, 1000);
    ls_token_loader *l = loader(&t, (ls_token_loader_opts){ .batch = 3, .T = 37 });
    assert_int_equal(l->windows, 27); /* (1000 - 1) / 37 */
    for (int k = 0; k < 9; k++) {
        assert_int_equal(ls_token_loader_next(l), LS_OK);
        for (size_t b = 0; b < 3; b++) {
            assert_int_equal(l->first[b], (3 * (size_t)k + b) * 37);
            for (size_t i = 0; i < 37; i++) {
                assert_int_equal(l->x[b * 37 + i], l->first[b] + i);
                assert_int_equal(l->y[b * 37 + i], l->first[b] + i + 1);
            }
        }
    }
    assert_int_equal(ls_token_loader_next(l), LS_OK);
    assert_int_equal(l->first[0], 0); /* the next epoch */
    ls_token_loader_destroy(l);
    free(id);
}

static void every_epoch_has_every_window_once_in_another_order(void **state)
{
    (void)state;
    static const size_t windows[] = { 1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000, 4097 };
    uint16_t *id = count_up(4097 * 2 + 1);
    for (size_t k = 0; k < COUNT(windows); k++) {
        size_t W = windows[k], same = 0, fixed = 0;
        ls_tokens t = counting(id, W * 2 + 1);
        ls_token_loader *l = loader(&t, (ls_token_loader_opts){ .batch = 1, .T = 2, .seed = 7, .shuffle = true });
        uint8_t *seen = calloc(W, 1);
        for (uint64_t epoch = 0; epoch < 5; epoch++) {
            for (size_t i = 0; i < W; i++) {
                size_t w = ls_token_loader_window(l, epoch * W + i);
                assert_true(w < W);
                assert_int_equal(seen[w]++, epoch);
                same += w == ls_token_loader_window(l, (epoch + 1) * W + i);
                fixed += w == i;
            }
        }
        /* 5 epochs of a random permutation repeat 5 places and fix 5 in the mean; 25 or more: below 1e-9 */
        if (W >= 16 && (same >= 25 || fixed >= 25)) fail_msg("%zu windows: %zu places repeat, %zu are fixed", W, same, fixed);
        free(seen);
        ls_token_loader_destroy(l);
    }
    free(id);
}

/* Where each window stands in an epoch, over many epochs: 8 windows, 8 places, 4000 epochs. Chi-squared with
 * 49 degrees of freedom is above 114 with probability 1e-6. */
static void each_place_is_equally_likely(void **state)
{
    (void)state;
    uint16_t *id = count_up(17);
    ls_tokens t = counting(id, 17);
    ls_token_loader *l = loader(&t, (ls_token_loader_opts){ .batch = 1, .T = 2, .seed = 11, .shuffle = true });
    double times[8][8] = { { 0 } }, chi = 0.0;
    for (uint64_t g = 0; g < 8 * 4000; g++) times[g % 8][ls_token_loader_window(l, g)]++;
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) chi += (times[i][j] - 500.0) * (times[i][j] - 500.0) / 500.0;
    if (chi > 114.0) fail_msg("chi-squared is %g", chi);
    ls_token_loader_destroy(l);
    free(id);
}

/* --- reading ahead --------------------------------------------------------------------- */

static ls_env env; /* the real one, but for little memory and a record of what was read ahead */
static ls_context context = { .env = &env, .rank = -1 };
static struct {
    const uint8_t *p;
    size_t n;
    bool now;
} asked[4096];
static size_t nasked;
static int answer;

static uint64_t little_memory(void) { return 4096; }

static int recorded(const void *p, size_t n, bool now)
{
    assert_true(nasked < COUNT(asked));
    asked[nasked].p = p;
    asked[nasked].n = n;
    asked[nasked++].now = now;
    return answer < 0 ? answer : ls_env_real.read_ahead(p, n, now);
}

/* A file of n tokens that is too long for the memory there is, opened. */
static ls_context *open_long_file(size_t n, ls_tokens *t)
{
    char path[64];
    temporary(path, "long");
    write_tokens(path, LS_TOKENS_LLMC, 50257, (uint32_t)n);
    env = ls_env_real;
    env.mem_available = little_memory;
    env.read_ahead = recorded;
    nasked = 0;
    answer = 0;
    ls_context *was = ls_context_swap(&context);
    assert_int_equal(ls_tokens_open(path, LS_TOKENS_LLMC, t), LS_OK);
    remove(path);
    assert_false(t->resident);
    assert_int_equal(nasked, 0); /* not at once */
    return was;
}

/* How many of the questions, from the first on, cover a window; `now` or not. */
static bool was_asked(const ls_token_loader *l, size_t window, bool now, size_t first, size_t end)
{
    const uint8_t *p = (const uint8_t *)(l->data->u16 + window * l->T);
    for (size_t i = first; i < end; i++)
        if (asked[i].now == now && asked[i].p <= p && asked[i].p + asked[i].n >= p + 2 * (l->T + 1)) return true;
    return false;
}

static void windows_are_mapped_before_they_are_touched_and_asked_for_long_before(void **state)
{
    (void)state;
    ls_tokens t;
    ls_context *was = open_long_file(30000, &t);
    for (int rank = 0; rank < 3; rank += 2) {
        ls_token_loader *l;
        const ls_token_loader_opts o = {
            .batch = 2, .T = 64, .dp_rank = rank, .dp_size = 3, .seed = 5, .shuffle = true, .vocab = 50257
        };
        assert_int_equal(ls_token_loader_create(&t, &o, &l), LS_OK);
        nasked = 0;
        size_t until[3 * LS_TOKENS_AHEAD]; /* questions that had been asked after each batch */
        for (int k = 0; k < 3 * LS_TOKENS_AHEAD; k++) {
            assert_int_equal(ls_token_loader_next(l), LS_OK);
            until[k] = nasked;
            /* between, the system is left alone */
            if (k % LS_TOKENS_AHEAD != 0) assert_int_equal(until[k], until[k - 1]);
            for (size_t b = 0; b < 2; b++) {
                size_t window = l->first[b] / l->T;
                assert_true(was_asked(l, window, true, 0, nasked));
                if (k >= LS_TOKENS_AHEAD) /* the disk had the time of so many batches */
                    assert_true(was_asked(l, window, false, 0, until[k / LS_TOKENS_AHEAD * LS_TOKENS_AHEAD - 1]));
            }
        }
        /* each window once: mapped, and asked for */
        assert_int_equal(nasked, 2 * (3 * LS_TOKENS_AHEAD + 3 * LS_TOKENS_AHEAD));

        /* elsewhere, the same again; back in what is mapped, nothing */
        l->position = 6000;
        nasked = 0;
        assert_int_equal(ls_token_loader_next(l), LS_OK);
        assert_int_equal(nasked, 2 * 2 * LS_TOKENS_AHEAD);
        assert_true(was_asked(l, l->first[1] / l->T, true, 0, nasked));
        l->position = 6030;
        assert_int_equal(ls_token_loader_next(l), LS_OK);
        assert_int_equal(nasked, 2 * 2 * LS_TOKENS_AHEAD);
        ls_token_loader_destroy(l);
    }
    ls_tokens_close(&t);
    ls_context_swap(was);
}

static void what_cannot_be_read_any_more_is_named(void **state)
{
    (void)state;
    ls_tokens t;
    ls_token_loader *l;
    ls_context *was = open_long_file(3000, &t);
    const ls_token_loader_opts o = { .batch = 1, .T = 8, .dp_size = 1, .vocab = 50257 };
    assert_int_equal(ls_token_loader_create(&t, &o, &l), LS_OK);
    answer = -EFAULT;
    assert_int_equal(ls_token_loader_next(l), LS_IO);
    assert_says("18 bytes from 1024 on cannot be read");
    assert_int_equal(l->position, 0);
    answer = -EINVAL; /* a system that knows no such thing */
    assert_int_equal(ls_token_loader_next(l), LS_OK);
    assert_int_equal(l->x[3], 3);
    ls_token_loader_destroy(l);
    ls_tokens_close(&t);
    ls_context_swap(was);
}

/* Pages that this process touched for the first time. */
static long faults(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_minflt + u.ru_majflt;
}

/* A sanitizer keeps notes on what a program touches, which fault themselves: there is nothing to count then. */
#ifdef LS_SANITIZED
#define COUNTABLE false
#else
#define COUNTABLE true
#endif

/* 31 windows anywhere in 32 MiB: a kernel that maps 2 MiB a fault would have some 13 of them. */
static void a_steady_step_has_no_page_fault(void **state)
{
    (void)state;
    char path[64];
    ls_tokens t;
    temporary(path, "faults");
    write_tokens(path, LS_TOKENS_LLMC, 65536, 16 << 20);
    for (int is_long = 0; is_long < 2; is_long++) {
        ls_token_loader *l;
        env = ls_env_real;
        if (is_long) env.mem_available = little_memory;
        ls_context *was = ls_context_swap(&context);
        assert_int_equal(ls_tokens_open(path, LS_TOKENS_LLMC, &t), LS_OK);
        assert_int_equal(t.resident, !is_long);
        const ls_token_loader_opts o = {
            .batch = 1, .T = 16, .dp_size = 1, .seed = 3, .shuffle = true, .vocab = 65536
        };
        assert_int_equal(ls_token_loader_create(&t, &o, &l), LS_OK);
        assert_int_equal(ls_token_loader_next(l), LS_OK); /* x and y are touched for the first time */
        long before = faults();
        for (int k = 0; k < LS_TOKENS_AHEAD - 1; k++) assert_int_equal(ls_token_loader_next(l), LS_OK);
        if (COUNTABLE) assert_int_equal(faults() - before, 0);
        ls_token_loader_destroy(l);
        ls_tokens_close(&t);
        ls_context_swap(was);
    }
    remove(path);
}

static void another_seed_is_another_order(void **state)
{
    (void)state;
    uint16_t *id = count_up(2001);
    ls_tokens t = counting(id, 2001);
    ls_token_loader *a = loader(&t, (ls_token_loader_opts){ .batch = 1, .T = 2, .seed = 1, .shuffle = true });
    ls_token_loader *b = loader(&t, (ls_token_loader_opts){ .batch = 1, .T = 2, .seed = 2, .shuffle = true });
    size_t same = 0;
    for (uint64_t g = 0; g < 1000; g++) same += ls_token_loader_window(a, g) == ls_token_loader_window(b, g);
    assert_true(same < 15);
    ls_token_loader_destroy(a);
    ls_token_loader_destroy(b);
    free(id);
}

/* 12 samples a step, by 1 rank at once, by 4 ranks, by 2 ranks in 3 goes ...: always the same 12. */
static void a_step_has_the_same_samples_for_any_split(void **state)
{
    (void)state;
    static const struct { int ranks; size_t batch; } split[] = {
        { 1, 12 }, { 4, 3 }, { 2, 2 }, { 12, 1 }, { 3, 2 }, { 1, 1 },
    };
    uint16_t *id = count_up(1001);
    ls_tokens t = counting(id, 1001);
    for (size_t s = 0; s < COUNT(split); s++) {
        ls_token_loader *whole = loader(&t, (ls_token_loader_opts){ .batch = 12, .T = 10, .seed = 3, .shuffle = true });
        ls_token_loader *part[12];
        for (int r = 0; r < split[s].ranks; r++)
            part[r] = loader(&t, (ls_token_loader_opts){ .batch = split[s].batch, .T = 10, .dp_rank = r,
                                                         .dp_size = split[s].ranks, .seed = 3, .shuffle = true });
        for (int step = 0; step < 30; step++) { /* beyond an epoch of 100 */
            assert_int_equal(ls_token_loader_next(whole), LS_OK);
            size_t at = 0;
            while (at < 12)
                for (int r = 0; r < split[s].ranks; r++) {
                    assert_int_equal(ls_token_loader_next(part[r]), LS_OK);
                    for (size_t b = 0; b < split[s].batch; b++, at++) {
                        assert_int_equal(part[r]->first[b], whole->first[at]);
                        assert_memory_equal(part[r]->x + b * 10, whole->x + at * 10, 10 * sizeof *whole->x);
                        assert_memory_equal(part[r]->y + b * 10, whole->y + at * 10, 10 * sizeof *whole->y);
                    }
                }
            for (int r = 0; r < split[s].ranks; r++) assert_int_equal(part[r]->position, whole->position);
        }
        for (int r = 0; r < split[s].ranks; r++) ls_token_loader_destroy(part[r]);
        ls_token_loader_destroy(whole);
    }
    free(id);
}

static void goes_on_from_one_integer(void **state)
{
    (void)state;
    uint16_t *id = count_up(1001);
    ls_tokens t = counting(id, 1001);
    ls_token_loader_opts o = { .batch = 4, .T = 10, .dp_rank = 1, .dp_size = 2, .seed = 5, .shuffle = true };
    ls_token_loader *a = loader(&t, o);
    for (int k = 0; k < 17; k++) assert_int_equal(ls_token_loader_next(a), LS_OK);
    uint64_t position = a->position;
    assert_int_equal(position, 17 * 8);
    ls_token_loader *b = loader(&t, o);
    b->position = position;
    for (int k = 0; k < 17; k++) {
        assert_int_equal(ls_token_loader_next(a), LS_OK);
        assert_int_equal(ls_token_loader_next(b), LS_OK);
        assert_memory_equal(a->x, b->x, 40 * sizeof *a->x);
        assert_memory_equal(a->first, b->first, 4 * sizeof *a->first);
    }
    ls_token_loader_destroy(a);
    ls_token_loader_destroy(b);
    free(id);
}

/* The order is part of what a checkpoint promises: it must not change with a version. */
static void the_order_is_the_one_of_old_runs(void **state)
{
    (void)state;
    static const size_t want[] = { /* make-token-order.py */
        831, 459, 909, 894, 407, 717, 740, 29, 638, 715, 698, 487, 504, 804, 36, 629, 520, 271, 395, 49,
    };
    uint16_t *id = count_up(2001);
    ls_tokens t = counting(id, 2001);
    ls_token_loader *l = loader(&t, (ls_token_loader_opts){ .batch = 1, .T = 2, .seed = 42, .shuffle = true });
    for (size_t g = 0; g < COUNT(want); g++)
        if (ls_token_loader_window(l, 995 + g) != want[g]) fail_msg("sample %zu is %zu", 995 + g, ls_token_loader_window(l, 995 + g));
    ls_token_loader_destroy(l);
    free(id);
}

static void impossible_loaders_are_refused(void **state)
{
    (void)state;
    uint16_t *id = count_up(11);
    ls_tokens t = counting(id, 11), none = { 0 };
    static const struct { ls_token_loader_opts o; const char *says; } row[] = {
        { { .batch = 0, .T = 5, .dp_size = 1 }, "batches of 0 windows" },
        { { .batch = 1, .T = 0, .dp_size = 1 }, "windows of 0 tokens" },
        { { .batch = 1, .T = 11, .dp_size = 1 }, "tokens: 11 tokens, a window needs 11 and the one that follows" },
        { { .batch = 1, .T = SIZE_MAX, .dp_size = 1 }, "a window needs" },
        { { .batch = 1, .T = 5, .dp_rank = 2, .dp_size = 2 }, "rank 2 of 2" },
        { { .batch = 1, .T = 5, .dp_rank = -1, .dp_size = 2 }, "rank -1 of 2" },
        { { .batch = 1, .T = 5 }, "rank 0 of 0" },
    };
    ls_token_loader *l;
    for (size_t i = 0; i < COUNT(row); i++) {
        assert_int_equal(ls_token_loader_create(&t, &row[i].o, &l), LS_INVALID);
        assert_null(l);
        assert_says(row[i].says);
    }
    ls_token_loader_opts huge = { .batch = SIZE_MAX / 8, .T = 5, .dp_size = 1 };
    ls_token_loader_opts small = { .batch = 1, .T = 1, .dp_size = 1 };
    assert_int_equal(ls_token_loader_create(&t, &huge, &l), LS_NO_MEMORY);
    assert_int_equal(ls_token_loader_create(&none, &small, &l), LS_INVALID);
    l = loader(&t, (ls_token_loader_opts){ .batch = 1, .T = 10 });
    assert_int_equal(l->windows, 1);
    ls_token_loader_destroy(l);
    free(id);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_the_formats_of_llmc_and_nanogpt),
        cmocka_unit_test(a_long_file_is_written_in_pieces),
        cmocka_unit_test(a_header_that_cannot_be_written_is_named),
        cmocka_unit_test(headers_that_lie_are_refused),
        cmocka_unit_test(a_token_beyond_the_vocabulary_is_named_with_its_place),
        cmocka_unit_test(end_of_text_shows_where_documents_begin),
        cmocka_unit_test(a_window_is_T_tokens_and_the_ones_that_follow),
        cmocka_unit_test(every_epoch_has_every_window_once_in_another_order),
        cmocka_unit_test(each_place_is_equally_likely),
        cmocka_unit_test(another_seed_is_another_order),
        cmocka_unit_test(windows_are_mapped_before_they_are_touched_and_asked_for_long_before),
        cmocka_unit_test(what_cannot_be_read_any_more_is_named),
        cmocka_unit_test(a_steady_step_has_no_page_fault),
        cmocka_unit_test(a_step_has_the_same_samples_for_any_split),
        cmocka_unit_test(goes_on_from_one_integer),
        cmocka_unit_test(the_order_is_the_one_of_old_runs),
        cmocka_unit_test(impossible_loaders_are_refused),
    };
    return cmocka_run_group_tests_name("tokens", tests, NULL, NULL);
}
