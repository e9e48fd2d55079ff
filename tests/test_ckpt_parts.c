/* ls_ckpt_load: the part of a tensor that a rank has is read from the file of the whole, in pieces, with its digest or
 * without. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <malloc.h>
#include <sys/stat.h>

#include "base/context.h"
#include "ckpt/format.h"
#include "harness_ckpt.h"

/* A file of one rank, read by ranks that have rows, columns, or heads of q k v. */
static void parts_are_read_from_the_file_of_the_whole(void **state)
{
    const fixture *f = *state;
    static const struct { ls_part part; int64_t dim[2]; } row[] = {
        { { 0, 1, 6, 2, 3, 0, 0 }, { 3, 4 } }, { { 1, 1, 4, 1, 2, 0, 0 }, { 6, 2 } }, { { 0, 3, 2, 1, 1, 0, 0 }, { 3, 4 } },
        { { 0, 1, 6, 0, 6, 0, 0 }, { 6, 4 } },
    };
    for (int transposed = 0; transposed < 2; transposed++)
        for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
            ls_params all = { 0 }, here = { 0 };
            add_param(&all, "w", 2, (int64_t[]){ 6, 4 }, 1);
            add_param(&here, "w", 2, row[k].dim, 100);
            here.item[0].part = row[k].part;
            all.item[0].transposed = here.item[0].transposed = transposed;
            assert_int_equal(ls_ckpt_save(f->path, &all, NULL), LS_OK);
            assert_int_equal(ls_ckpt_load(f->path, &here, false), LS_OK);
            const float *want = all.item[0].t.data, *got = here.item[0].t.data;
            for (int64_t i = 0; i < ls_tensor_count(&here.item[0].t); i++)
                assert_true(got[i] == want[ls_part_index(&here.item[0].part, &here.item[0].t, i, NULL)]);
            if (k < 3) assert_int_equal(ls_ckpt_save(f->path, &here, NULL), LS_INVALID);
            here.item[0].part.of++; /* of a larger tensor than the file has */
            if (k < 3) assert_int_equal(ls_ckpt_load(f->path, &here, false), LS_SHAPE);
            assert_int_equal(remove(f->path), 0);
            free_params(&all);
            free_params(&here);
        }
}

/* --- parts of a large tensor ------------------------------------------------------------------- */

enum { ROWS = 1500, COLS = 1000, PIECE = 1 << 20 }; /* six pieces, none of which ends with a row */
static struct { size_t bytes, most, heap; } seen;   /* what reads saw: their sum, the longest, memory in use */

static size_t heap(void)
{
    const struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

static ssize_t seeing_pread(int fd, void *p, size_t n, uint64_t at)
{
    if (n > seen.most) seen.most = n;
    if (heap() > seen.heap) seen.heap = heap();
    seen.bytes += n;
    return ls_env_real.pread(fd, p, n, at);
}

static ls_status load_seeing(const char *path, ls_params *ps)
{
    ls_env env = ls_env_real;
    ls_context context = { .env = &env, .rank = -1 };
    env.pread = seeing_pread;
    memset(&seen, 0, sizeof seen);
    ls_context *was = ls_context_swap(&context);
    const ls_status st = ls_ckpt_load(path, ps, false);
    char message[LS_ERROR_BYTES];
    if (st < 0) snprintf(message, sizeof message, "%s", ls_last_error());
    ls_context_swap(was);
    return st < 0 ? ls_fail(st, "%s", message) : st;
}

static const struct { ls_part part; int64_t dim[2]; } large_parts[] = {
    { { 0, 1, ROWS, 400, 300, 0, 0 }, { 300, COLS } },
    { { 0, 1, ROWS, 1200, 300, 0, 0 }, { 300, COLS } },
    { { 1, 1, COLS, 300, 250, 0, 0 }, { ROWS, 250 } },
    { { 0, 3, 500, 100, 50, 0, 0 }, { 150, COLS } },
};

static size_t file_size(const char *path)
{
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    return (size_t)s.st_size;
}

static void flip(const char *path, size_t at)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)at, SEEK_SET), 0);
    const int c = fgetc(f);
    assert_int_equal(fseek(f, (long)at, SEEK_SET), 0);
    assert_int_equal(fputc(c ^ 0x10, f), c ^ 0x10);
    assert_int_equal(fclose(f), 0);
}

/* The header's digests get names that nobody looks for: the file is as another program's. */
static void drop_digests(const char *path)
{
    static const char key[] = "\"lockstep.";
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    char text[4096];
    const size_t n = fread(text, 1, sizeof text, f);
    int found = 0;
    for (size_t i = 0; i + sizeof key <= n; i++) {
        if (memcmp(text + i, key, sizeof key - 1) != 0) continue;
        text[i + 1] = 'L';
        found++;
    }
    assert_true(found > 2);
    rewind(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void assert_part(const ls_param *here, const ls_param *all)
{
    const float *want = all->t.data, *got = here->t.data;
    for (int64_t i = 0; i < ls_tensor_count(&here->t); i++)
        if (got[i] != want[ls_part_index(&here->part, &here->t, i, NULL)]) fail_msg("element %lld", (long long)i);
}

/* With a digest all bytes are read, in pieces; without one, those of the part. Memory is for the part and one piece. */
static void a_part_takes_the_memory_of_a_part(void **state)
{
    const fixture *f = *state;
    const size_t all_bytes = sizeof(float) * ROWS * COLS;
    for (int i = 0; i < 4 * (int)(sizeof large_parts / sizeof *large_parts); i++) {
        const bool transposed = i % 2, digests = i / 2 % 2;
        ls_params all = { 0 }, here = { 0 };
        add_param(&all, "w", 2, (int64_t[]){ ROWS, COLS }, 1);
        add_param(&here, "w", 2, large_parts[i / 4].dim, 100);
        here.item[0].part = large_parts[i / 4].part;
        all.item[0].transposed = here.item[0].transposed = transposed;
        assert_int_equal(ls_ckpt_save(f->path, &all, NULL), LS_OK);
        if (!digests) drop_digests(f->path);
        const size_t part_bytes = ls_tensor_nbytes(&here.item[0].t), before = heap();
        const size_t header = 9 + file_size(f->path) - all_bytes; /* its first nine bytes are read for its size */
        if (load_seeing(f->path, &here) < 0) fail_msg("%s", ls_last_error());
        assert_int_equal(seen.bytes, header + (digests ? all_bytes : part_bytes));
        assert_true(!digests || seen.most == PIECE);
        if (seen.heap > before + part_bytes + PIECE + (1 << 18)) fail_msg("%zu bytes more", seen.heap - before);
        assert_part(&here.item[0], &all.item[0]);
        free_params(&all);
        free_params(&here);
    }
}

/* The digest is of the whole tensor: a byte that is not of the part counts, too. */
static void a_flipped_byte_in_or_beside_a_part_is_noticed(void **state)
{
    const fixture *f = *state;
    ls_params all = { 0 };
    add_param(&all, "w", 2, (int64_t[]){ ROWS, COLS }, 1);
    assert_int_equal(ls_ckpt_save(f->path, &all, NULL), LS_OK);
    const size_t data = file_size(f->path) - sizeof(float) * ROWS * COLS;
    for (size_t k = 0; k < sizeof large_parts / sizeof *large_parts; k++) {
        ls_params here = { 0 };
        add_param(&here, "w", 2, large_parts[k].dim, 100);
        ls_param *p = &here.item[0];
        p->part = large_parts[k].part;
        const size_t first = sizeof(float) * (size_t)ls_part_index(&p->part, &p->t, 0, NULL);
        const int64_t last_index = ls_part_index(&p->part, &p->t, ls_tensor_count(&p->t) - 1, NULL);
        const size_t last = sizeof(float) * (size_t)last_index + 3; /* its last byte */
        const size_t end = sizeof(float) * ROWS * COLS - 1;
        const size_t at[] = { first, last, first - 1, last < end ? last + 1 : 0, 0, PIECE, end };
        for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
            flip(f->path, data + at[i]);
            assert_int_equal(load_seeing(f->path, &here), LS_CKPT_CORRUPT);
            assert_error_has("tensor 'w' has the digest");
            assert_true(((float *)p->t.data)[0] == 100.0f && ((float *)p->t.data)[1] == 100.0f + 0.37f);
            flip(f->path, data + at[i]);
        }
        assert_int_equal(load_seeing(f->path, &here), LS_OK);
        assert_part(p, &all.item[0]);
        free_params(&here);
    }
    free_params(&all);
}

/* Elements that the tensor does not have are refused before a byte of another tensor is taken for them. */
static void a_part_that_is_not_in_the_tensor_is_refused(void **state)
{
    const fixture *f = *state;
    ls_params all = { 0 }, here = { 0 };
    add_param(&all, "w", 2, (int64_t[]){ 6, 4 }, 1);
    add_param(&here, "w", 2, (int64_t[]){ 3, 4 }, 100);
    here.item[0].part = (ls_part){ 0, 1, 6, 4, 3, 0, 0 };
    assert_int_equal(ls_ckpt_save(f->path, &all, NULL), LS_OK);
    assert_int_equal(ls_ckpt_load(f->path, &here, false), LS_SHAPE);
    assert_error_has("elements 4 to 6 of each of 1 runs of 6");
    free_params(&all);
    free_params(&here);
}

/* Sizes around a four, a square and a tile; rows further apart than they are long, and one float beyond each end. */
static void a_matrix_is_transposed_whatever_its_size(void **state)
{
    (void)state;
    static const int64_t sizes[] = { 1, 3, 4, 15, 16, 17, 127, 128, 129, 300 };
    enum { N = sizeof sizes / sizeof *sizes, MOST = 303 };
    float *from = malloc(MOST * MOST * sizeof *from), *to = malloc(MOST * MOST * sizeof *to);
    assert_true(from && to);
    for (int i = 0; i < MOST * MOST; i++) from[i] = (float)i;
    for (int k = 0; k < N * N; k++) {
        const int64_t rows = sizes[k / N], columns = sizes[k % N];
        const size_t from_row = (size_t)columns + 3, to_row = (size_t)rows + 2;
        for (int i = 0; i < MOST * MOST; i++) to[i] = -1;
        ls_ckpt_turn(from, from_row, rows, columns, to + 1, to_row);
        for (int64_t c = 0; c < columns; c++)
            for (int64_t r = 0; r < (int64_t)to_row; r++) {
                const float found = to[1 + (size_t)c * to_row + (size_t)r];
                const float want = r < rows ? from[(size_t)r * from_row + (size_t)c] : -1;
                if (found != want) fail_msg("%lld x %lld: [%lld][%lld] = %g, want %g", (long long)rows, (long long)columns,
                                            (long long)c, (long long)r, (double)found, (double)want);
            }
        assert_true(to[0] == -1 && to[1 + (size_t)columns * to_row] == -1);
    }
    free(from);
    free(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CKPT_TEST(parts_are_read_from_the_file_of_the_whole),
        CKPT_TEST(a_part_takes_the_memory_of_a_part),
        CKPT_TEST(a_flipped_byte_in_or_beside_a_part_is_noticed),
        CKPT_TEST(a_part_that_is_not_in_the_tensor_is_refused),
        cmocka_unit_test(a_matrix_is_transposed_whatever_its_size),
    };
    return cmocka_run_group_tests_name("ckpt_parts", tests, NULL, NULL);
}
