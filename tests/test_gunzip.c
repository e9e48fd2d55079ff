/* gunzip: what comes out of a gzip file, and what is said about one that is damaged or too large. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <zlib.h>

#include "data/gunzip.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* Adds a member with n bytes of p to the file at to; returns its bytes. */
static size_t member(uint8_t *to, size_t room, const char *p, size_t n)
{
    z_stream z = { .next_in = (Bytef *)(uintptr_t)p, .avail_in = (uInt)n, .next_out = to, .avail_out = (uInt)room };
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 16 + 15, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return room - z.avail_out;
}

/* Unpacks a copy of exactly n bytes, so that a sanitizer sees a read past its end. */
static ls_status unpack(const uint8_t *file, size_t n, size_t limit, char **out, size_t *nout)
{
    uint8_t *copy = malloc(n ? n : 1);
    memcpy(copy, file, n);
    const ls_status st = ls_gunzip("t.gz", copy, n, limit, out, nout);
    free(copy);
    return st;
}

static void says(const char *want)
{
    if (!strstr(ls_last_error(), want)) fail_msg("expected \"%s\" in \"%s\"", want, ls_last_error());
}

static void refused(const uint8_t *file, size_t n, size_t limit, const char *why)
{
    char *out;
    size_t nout;
    assert_int_equal(unpack(file, n, limit, &out, &nout), LS_BAD_FILE);
    assert_null(out);
    says(why);
}

/* 0, 1, ... as text: it shrinks, and is long enough for memory that grows twice. */
static char *numbers(size_t n)
{
    char *p = malloc(n + 1);
    for (size_t i = 0; i < n; i++) p[i] = (char)('0' + (i * i / 7) % 10);
    p[n] = 0;
    return p;
}

static void what_was_packed_comes_out(void **state)
{
    static const size_t size[] = { 0, 1, 65535, 65536, 65537, 131072, 300000 };
    (void)state;
    for (size_t i = 0; i < COUNT(size); i++) {
        char *text = numbers(size[i]), *out;
        uint8_t *file = malloc(size[i] + 4096);
        const size_t n = member(file, size[i] + 4096, text, size[i]);
        size_t nout;
        if (unpack(file, n, 1u << 20, &out, &nout) != LS_OK) fail_msg("%s", ls_last_error());
        assert_int_equal(nout, size[i]);
        assert_memory_equal(out, text, nout + 1); /* with the zero byte */
        free(out);
        free(file);
        free(text);
    }
}

static void members_follow_one_another(void **state)
{
    uint8_t file[4096];
    size_t n = 0, nout;
    char *out;
    (void)state;
    n += member(file + n, sizeof file - n, "one ", 4);
    n += member(file + n, sizeof file - n, "", 0);
    n += member(file + n, sizeof file - n, "two", 3);
    assert_int_equal(unpack(file, n, 100, &out, &nout), LS_OK);
    assert_string_equal(out, "one two");
    free(out);
}

static void the_limit_is_what_passes(void **state)
{
    static const size_t limit[] = { 0, 1, 70000, 131072 };
    (void)state;
    for (size_t i = 0; i < COUNT(limit); i++) {
        char *text = numbers(limit[i] + 1), *out, why[120];
        uint8_t *file = malloc(limit[i] + 4096);
        size_t nout, n = member(file, limit[i] + 4096, text, limit[i]);
        if (unpack(file, n, limit[i], &out, &nout) != LS_OK) fail_msg("%s", ls_last_error());
        assert_int_equal(nout, limit[i]);
        free(out);
        n = member(file, limit[i] + 4096, text, limit[i] + 1);
        snprintf(why, sizeof why, "t.gz: it unpacks to more than the %zu bytes that are accepted", limit[i]);
        refused(file, n, limit[i], why);
        free(file);
        free(text);
    }
}

static void damage_is_named_with_its_byte(void **state)
{
    uint8_t file[4096];
    char *text = numbers(3000), why[80];
    const size_t n = member(file, sizeof file - 16, text, 3000);
    (void)state;
    refused(file, 0, 1u << 20, "t.gz: byte 0: not a gzip file, as its name says");
    refused((const uint8_t *)"hello", 5, 1u << 20, "t.gz: byte 0: not a gzip file, as its name says");
    for (size_t cut = 2; cut < n; cut++) {
        snprintf(why, sizeof why, "t.gz: byte %zu: the gzip stream is cut off", cut);
        refused(file, cut, 1u << 20, why);
    }
    file[n - 6] ^= 1; /* of the checksum */
    refused(file, n, 1u << 20, "the gzip stream is damaged: incorrect data check");
    file[n - 6] ^= 1;
    memcpy(file + n, "tail", 4);
    snprintf(why, sizeof why, "t.gz: byte %zu: 4 bytes after the gzip stream", n);
    refused(file, n + 4, 1u << 20, why);
    file[n] = 0x1f; /* begins like another member */
    snprintf(why, sizeof why, "t.gz: byte %zu: 1 bytes after the gzip stream", n);
    refused(file, n + 1, 1u << 20, why);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_packed_comes_out),
        cmocka_unit_test(members_follow_one_another),
        cmocka_unit_test(the_limit_is_what_passes),
        cmocka_unit_test(damage_is_named_with_its_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
