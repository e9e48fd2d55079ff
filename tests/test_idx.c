/* idx: what a data file must look like, and what is said about one that does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <zlib.h>

#include "base/env.h"
#include "data/idx.h"
#include "lockstep/rng.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define LIMIT    ((size_t)1 << 20)

typedef struct bytes { uint8_t p[4096]; size_t n; } bytes;

/* An IDX file of the given sizes whose elements count up from 0. */
static bytes idx_of(int ndim, const uint32_t *dim)
{
    bytes b = { .p = { 0, 0, 8, (uint8_t)ndim }, .n = 4 };
    size_t count = 1;
    for (int d = 0; d < ndim; d++) {
        for (int shift = 24; shift >= 0; shift -= 8) b.p[b.n++] = (uint8_t)(dim[d] >> shift);
        count *= dim[d];
    }
    for (size_t i = 0; i < count; i++) b.p[b.n++] = (uint8_t)i;
    return b;
}

static bytes gzip_of(const bytes *b)
{
    bytes out = { .n = 0 };
    z_stream z = { 0 };
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 16 + 15, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)b->p;
    z.avail_in = (uInt)b->n;
    z.next_out = out.p;
    z.avail_out = sizeof out.p;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    out.n = z.total_out;
    deflateEnd(&z);
    return out;
}

/* Parses a copy of exactly n bytes, so that a sanitizer sees a read past its end. */
static ls_status parse(const uint8_t *p, size_t n, size_t limit, int *ndim, size_t dims[4], uint8_t **data)
{
    uint8_t *copy = malloc(n ? n : 1);
    memcpy(copy, p, n);
    ls_status st = ls_idx_parse("t.idx", copy, n, limit, ndim, dims, data);
    free(copy);
    return st;
}

static void assert_says(const char *want)
{
    if (!strstr(ls_last_error(), want)) fail_msg("expected \"%s\" in \"%s\"", want, ls_last_error());
}

static void write_file(const char *path, const bytes *b)
{
    const ls_env *env = ls_env_get();
    env->unlink(path);
    int fd = env->create(path);
    assert_true(fd >= 0);
    assert_int_equal(env->write(fd, b->p, b->n), (ssize_t)b->n);
    env->close_fd(fd);
}

static void reads_plain_and_gzipped_alike(void **state)
{
    (void)state;
    static const struct { int ndim; uint32_t dim[4]; size_t count; } row[] = {
        { 1, { 5 }, 5 }, { 2, { 3, 4 }, 12 }, { 3, { 2, 3, 4 }, 24 }, { 4, { 2, 2, 2, 2 }, 16 }, { 1, { 1 }, 1 },
    };
    for (size_t i = 0; i < COUNT(row); i++)
        for (int gz = 0; gz < 2; gz++) {
            bytes b = idx_of(row[i].ndim, row[i].dim);
            if (gz) b = gzip_of(&b);
            int ndim;
            size_t dims[4];
            uint8_t *data;
            assert_int_equal(parse(b.p, b.n, LIMIT, &ndim, dims, &data), LS_OK);
            assert_int_equal(ndim, row[i].ndim);
            for (int d = 0; d < ndim; d++) assert_int_equal(dims[d], row[i].dim[d]);
            for (size_t k = 0; k < row[i].count; k++) assert_int_equal(data[k], k);
            free(data);
        }
}

static void names_the_byte_and_the_rule(void **state)
{
    (void)state;
    static const struct { uint8_t p[24]; size_t n; const char *says, *gz_says; } row[] = {
        { { 0 }, 0, "t.idx: byte 0: the file ends inside the magic number", "byte 0 of the unpacked data: the file ends inside the magic number" },
        { { 0, 0, 8 }, 3, "byte 3: the file ends inside the magic number", NULL },
        { { 'P', 'K', 3, 4 }, 4, "t.idx: byte 0: magic number 504b0304, expected 000008", "byte 0 of the unpacked data: magic" },
        { { 0, 0, 13, 1 }, 4, "byte 2: element type 0x0d, expected 0x08 (unsigned bytes)", NULL },
        { { 0, 0, 8, 0 }, 4, "byte 3: 0 dimensions, expected 1 to 4", NULL },
        { { 0, 0, 8, 5 }, 4, "byte 3: 5 dimensions, expected 1 to 4", NULL },
        { { 0, 0, 8, 1, 0, 0 }, 6, "byte 6: the file ends inside the sizes", NULL },
        { { 0, 0, 8, 1, 0, 0, 0, 0 }, 8, "byte 4: size 0 of dimension 0", NULL },
        { { 0, 0, 8, 1, 0, 0, 0, 3, 1, 2 }, 10, "byte 8: 2 bytes of elements, its sizes say 3",
          "byte 10 of the unpacked data: the file ends inside the elements" },
        { { 0, 0, 8, 1, 0, 0, 0, 1, 1, 2 }, 10, "byte 9: 1 bytes more than its sizes say",
          "byte 9 of the unpacked data: more bytes than its sizes say" },
        { { 0, 0, 8, 1, 0, 16, 0, 1 }, 8, "byte 4: more elements than the 1048576 accepted", NULL },
        { { 0, 0, 8, 2, 255, 255, 255, 255, 255, 255, 255, 255 }, 12, "more elements than", NULL },
        { { 0, 0, 8, 2, 0, 0, 0, 2, 0, 8, 0, 1 }, 12, "byte 8: more elements than", NULL },
        { { 0, 0, 8, 1, 0, 16, 0, 0 }, 8, "its sizes say 1048576", "byte 4 of the unpacked data: 1048576 elements cannot come out of a file of" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        int ndim;
        size_t dims[4];
        uint8_t *data;
        assert_int_equal(parse(row[i].p, row[i].n, LIMIT, &ndim, dims, &data), LS_BAD_FILE);
        assert_null(data);
        assert_says(row[i].says);
        bytes b = { .n = row[i].n };
        memcpy(b.p, row[i].p, row[i].n);
        b = gzip_of(&b);
        assert_int_equal(parse(b.p, b.n, LIMIT, &ndim, dims, &data), LS_BAD_FILE);
        assert_says(row[i].gz_says ? row[i].gz_says : "of the unpacked data");
    }
}

static void accepts_as_many_elements_as_the_limit(void **state)
{
    (void)state;
    bytes b = idx_of(2, (uint32_t[]){ 10, 10 });
    int ndim;
    size_t dims[4];
    uint8_t *data;
    assert_int_equal(parse(b.p, b.n, 100, &ndim, dims, &data), LS_OK);
    free(data);
    assert_int_equal(parse(b.p, b.n, 99, &ndim, dims, &data), LS_BAD_FILE);
    assert_says("byte 8: more elements than the 99 accepted");
}

static void every_truncation_is_an_error(void **state)
{
    (void)state;
    bytes plain = idx_of(3, (uint32_t[]){ 5, 6, 7 });
    for (int gz = 0; gz < 2; gz++) {
        bytes b = gz ? gzip_of(&plain) : plain;
        for (size_t n = 0; n < b.n; n++) {
            int ndim;
            size_t dims[4];
            uint8_t *data;
            if (parse(b.p, n, LIMIT, &ndim, dims, &data) != LS_BAD_FILE) fail_msg("cut at byte %zu", n);
            assert_null(data);
        }
    }
    bytes b = gzip_of(&plain);
    int ndim;
    size_t dims[4];
    uint8_t *data;
    assert_int_equal(parse(b.p, b.n - 1, LIMIT, &ndim, dims, &data), LS_BAD_FILE);
    assert_says("the gzip stream is cut off inside its checksum");
    assert_int_equal(parse(b.p, 40, LIMIT, &ndim, dims, &data), LS_BAD_FILE);
    assert_says("t.idx: byte 40: the gzip stream is cut off inside the elements");
}

static void every_extra_byte_is_an_error(void **state)
{
    (void)state;
    bytes b = idx_of(1, (uint32_t[]){ 9 });
    b = gzip_of(&b);
    size_t end = b.n++;
    int ndim;
    size_t dims[4];
    uint8_t *data;
    char want[64];
    assert_int_equal(parse(b.p, b.n, LIMIT, &ndim, dims, &data), LS_BAD_FILE);
    snprintf(want, sizeof want, "t.idx: byte %zu: 1 bytes after the gzip stream", end);
    assert_says(want);
}

/* gzip's CRC sees every flip of payload; flips of its header's time, system and flags may pass. Whatever
 * passes must have the right elements. */
static void no_flipped_bit_changes_elements_of_a_gzip(void **state)
{
    (void)state;
    bytes plain = idx_of(2, (uint32_t[]){ 6, 9 }), b = gzip_of(&plain);
    int refused = 0, damaged = 0;
    for (size_t bit = 0; bit < 8 * b.n; bit++) {
        int ndim;
        size_t dims[4];
        uint8_t *data;
        b.p[bit / 8] ^= (uint8_t)(1 << bit % 8);
        ls_status st = parse(b.p, b.n, LIMIT, &ndim, dims, &data);
        b.p[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (st == LS_OK) assert_memory_equal(data, plain.p + 12, 54);
        else assert_int_equal(st, LS_BAD_FILE);
        refused += st != LS_OK;
        damaged += st != LS_OK && strstr(ls_last_error(), "the gzip stream is damaged") != NULL;
        free(data);
    }
    assert_true(refused >= (int)(8 * (b.n - 10))); /* everything behind the 10-byte header */
    assert_true(damaged > 0);
}

static void survives_random_bytes(void **state)
{
    (void)state;
    bytes plain = idx_of(3, (uint32_t[]){ 4, 5, 6 });
    ls_mt19937 g;
    ls_mt19937_seed(&g, 1);
    for (int round = 0; round < 4000; round++) {
        bytes b = round % 2 ? gzip_of(&plain) : plain;
        for (uint32_t k = ls_mt19937_next(&g) % 6 + 1; k > 0; k--)
            b.p[ls_mt19937_next(&g) % (round % 3 ? (uint32_t)b.n : 24)] = (uint8_t)ls_mt19937_next(&g);
        int ndim;
        size_t dims[4];
        uint8_t *data;
        ls_status st = parse(b.p, b.n, LIMIT, &ndim, dims, &data);
        assert_true(st == LS_OK || (st == LS_BAD_FILE && !data));
        free(data);
    }
}

static void reads_a_file_and_says_why_it_cannot(void **state)
{
    (void)state;
    char path[64];
    int ndim;
    size_t dims[4];
    uint8_t *data;
    snprintf(path, sizeof path, "/tmp/test_idx.%d", ls_env_get()->pid());
    bytes b = idx_of(1, (uint32_t[]){ 7 });
    write_file(path, &b);
    assert_int_equal(ls_idx_read(path, LIMIT, &ndim, dims, &data), LS_OK);
    assert_int_equal(dims[0], 7);
    free(data);
    ls_env_get()->unlink(path);
    assert_int_equal(ls_idx_read(path, LIMIT, &ndim, dims, &data), LS_IO);
    assert_null(data);
    assert_says("No such file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_plain_and_gzipped_alike),
        cmocka_unit_test(names_the_byte_and_the_rule),
        cmocka_unit_test(accepts_as_many_elements_as_the_limit),
        cmocka_unit_test(every_truncation_is_an_error),
        cmocka_unit_test(every_extra_byte_is_an_error),
        cmocka_unit_test(no_flipped_bit_changes_elements_of_a_gzip),
        cmocka_unit_test(survives_random_bytes),
        cmocka_unit_test(reads_a_file_and_says_why_it_cannot),
    };
    return cmocka_run_group_tests_name("idx", tests, NULL, NULL);
}
