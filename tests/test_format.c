/* ls_ckpt_header_parse: what it accepts, what it refuses and why, and the limits on both sides. In
 * memory only; test_ckpt.c has files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/hash.h"
#include "ckpt/format.h"

#define assert_error_has(text)                                                                   \
    do {                                                                                         \
        if (!strstr(ls_last_error(), text)) fail_msg("'%s' lacks '%s'", ls_last_error(), text);  \
    } while (0)

/* The first n bytes of a file of file_size bytes. A failure leaves an empty header behind. */
static ls_status parse_bytes(const void *p, size_t n, uint64_t file_size)
{
    ls_ckpt_header h;
    ls_status st = ls_ckpt_header_parse("the file", p, n, file_size, &h);
    if (st != LS_OK) {
        assert_true(h.tensor == NULL && h.meta == NULL && h.by_name == NULL && h.ntensors == 0 && h.nmeta == 0);
        assert_error_has("the file");
    }
    ls_ckpt_header_free(&h);
    return st;
}

/* Size prefix and JSON: malloc'd, no byte more than that. */
static char *file_of(const char *json)
{
    uint64_t size = strlen(json);
    char *p = malloc(8 + size);
    assert_non_null(p);
    memcpy(p, &size, 8);
    memcpy(p + 8, json, size);
    return p;
}

/* A file with this header and `data` bytes behind it. */
static ls_status parse(const char *json, size_t data)
{
    char *p = file_of(json);
    ls_status st = parse_bytes(p, 8 + strlen(json), 8 + strlen(json) + data);
    free(p);
    return st;
}

static void refuses_headers_that_break_a_rule(void **state)
{
    (void)state;
#define T(shape, begin, end) "{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"
    static const struct { const char *json; size_t data; const char *says; } row[] = {
        { "{\"a\":" T("[2]", "0", "8") ",\"b\":" T("[2]", "4", "12") "}", 12, "holes or overlaps" },
        { "{\"a\":" T("[2]", "0", "8") ",\"b\":" T("[1]", "12", "16") "}", 16, "holes or overlaps" },
        { "{\"a\":" T("[2]", "4", "12") "}", 12, "holes or overlaps" },
        { "{\"a\":" T("[2]", "0", "8") ",\"b\":" T("[2]", "0", "8") "}", 8, "holes or overlaps" },
        { "{\"a\":" T("[2]", "0", "8") ",\"a\":" T("[2]", "8", "16") "}", 16, "stands twice" },
        { "{\"a\":" T("[2]", "0", "8") ",\"\\u0061\":" T("[2]", "8", "16") "}", 16, "stands twice" },
        { "{\"a\":" T("[2]", "0", "8") "}", 4, "cut short" },
        { "{\"a\":" T("[2]", "0", "8") "}", 9, "after its end" },
        { "{\"a\":" T("[3]", "0", "8") "}", 8, "disagree about the size" },
        { "{\"a\":" T("[-2]", "0", "8") "}", 8, "not a whole number" },
        { "{\"a\":" T("[2.0]", "0", "8") "}", 8, "not a whole number" },
        { "{\"a\":" T("[\"2\"]", "0", "8") "}", 8, "not a whole number" },
        { "{\"a\":" T("[1,1,1,1,1,1,1,1,2]", "0", "8") "}", 8, "more than 8 dimensions" },
        { "{\"a\":" T("[4294967296,4294967296]", "0", "0") "}", 0, "64 bits" },
        { "{\"a\":" T("[9223372036854775807,8]", "0", "0") "}", 0, "64 bits" },
        { "{\"a\":" T("[NaN]", "0", "8") "}", 8, "not a JSON object" },
        { "{\"a\":" T("[1e0]", "0", "4") "}", 4, "not a whole number" },
        { "{\"a\":" T("[18446744073709551616]", "0", "4") "}", 4, "not a JSON object" },
        { "{\"a\":" T("2", "0", "8") "}", 8, "not a list" },
        { "{\"a\":" T("[2]", "8", "0") "}", 8, "ascending" },
        { "{\"a\":" T("[2]", "-8", "0") "}", 8, "ascending" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4,8]}}", 8, "list of two" },
        { "{\"a\":{\"dtype\":\"F31\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "\"dtype\"" },
        { "{\"a\":{\"dtype\":32,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "\"dtype\"" },
        { "{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "nothing else" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", 8, "nothing else" },
        { "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "keys once" },
        { "{\"a\":[]}", 0, "not a JSON object" },
        { "{\"a\":null}", 0, "not a JSON object" },
        { "{\"a\":}", 0, "expected a value" },
        { "{\"a\"}", 0, "expected ':'" },
        { "{\"a\":[}]}", 0, "not a JSON object" },
        { "{\"a\":" T("[2]", "0", "8") ",}", 8, "name in quotes" },
        { "{\"a\":" T("[2]", "0", "8") " \"b\":" T("[2]", "8", "16") "}", 16, "expected ','" },
        { "{,}", 0, "name in quotes" },
        { "{a:1}", 0, "name in quotes" },
        { "{\"a\":" T("[2]", "0", "8"), 8, "expected ','" },
        { "{\"a", 0, "does not end" },
        { "{\"a\\\"", 0, "does not end" },
        { "{\"a\":[1", 0, "does not end" },
        { "{}x", 0, "only blanks" },
        { "{}\n", 0, "only blanks" },
        { "{}{}", 0, "only blanks" },
        { "{\"\":" T("[2]", "0", "8") "}", 8, "without a name" },
        { "{\"a\\n\":" T("[2]", "0", "8") "}", 8, "control characters" },
        { "{\"a\\u009b\":" T("[2]", "0", "8") "}", 8, "control characters" },
        { "{\"a\\u0000b\":" T("[2]", "0", "8") "}", 8, "not JSON in UTF-8" },
        { "{\"a\xff\":" T("[2]", "0", "8") "}", 8, "not JSON in UTF-8" },
        { "{\"\\ud800\":" T("[2]", "0", "8") "}", 8, "not JSON in UTF-8" },
        { "{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "metadata key stands twice" },
        { "{\"__metadata__\":{\"a\":1}}", 0, "expected a string" },
        { "{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0, "expected a string" },
        { "{\"__metadata__\":[]}", 0, "expected '{'" },
        { "{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ stands twice" },
        { "{\"\\u005f_metadata__\":{}}", 0, "escapes" },
        { "{\"__metadata__\":{\"lockstep.version\":\"1\"}}", 0, "no digest of the header" },
        { "{\"__metadata__\":{\"lockstep.header\":\"00000000000000zz\"}}", 0, "no digest of the header" },
        { "{\"__metadata__\":{\"lockstep.header\":\"0000000000000000\"}}", 0, "the header's digest" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_status st = parse(row[i].json, row[i].data);
        if (st != LS_BAD_FILE && st != LS_CKPT_CORRUPT) fail_msg("%s: status %d", row[i].json, st);
        if (!strstr(ls_last_error(), row[i].says)) fail_msg("%s: '%s' lacks '%s'", row[i].json, ls_last_error(), row[i].says);
    }
    assert_int_equal(parse("{\"a\":" T("[2]", "0", "8") "}", 8), LS_OK); /* the table's frame itself is right */
#undef T
}

/* Headers whose own digest is right, but that lack or have too much of the rest. */
static void wants_all_digests_or_none(void **state)
{
    (void)state;
#define META(version, more) "{\"__metadata__\":{\"lockstep.version\":\"" version "\",\"lockstep.header\":\"0000000000000000\"" more "},"
#define TENSOR "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}"
#define DIGEST "c44bdff4074eecdb" /* of one zero byte */
    static const struct { const char *json; ls_status status; const char *says; } row[] = {
        { META("1", ",\"lockstep.xxh3.a\":\"" DIGEST "\"") TENSOR, LS_OK, "" },
        { META("1", "") TENSOR, LS_CKPT_CORRUPT, "digests of 0 tensors, but 1" },
        { META("1", ",\"lockstep.xxh3.b\":\"" DIGEST "\"") TENSOR, LS_CKPT_CORRUPT, "'a' has no digest" },
        { META("1", ",\"lockstep.xxh3.a\":\"" DIGEST "\",\"lockstep.xxh3.b\":\"\"") TENSOR, LS_CKPT_CORRUPT, "of 2 tensors" },
        { META("1", ",\"lockstep.xxh3.a\":\"C44BDFF4074EECDB\"") TENSOR, LS_CKPT_CORRUPT, "'a' has no digest" },
        { META("1", ",\"lockstep.xxh3.a\":\"" DIGEST "0\"") TENSOR, LS_CKPT_CORRUPT, "'a' has no digest" },
        { META("2", ",\"lockstep.xxh3.a\":\"" DIGEST "\"") TENSOR, LS_UNSUPPORTED, "version '2'" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        size_t n = 8 + strlen(row[i].json);
        char hex[17], *p = file_of(row[i].json), *digits = memmem(p, n, "0000000000000000", 16);
        snprintf(hex, sizeof hex, "%016llx", (unsigned long long)ls_hash64(p, n, 0));
        memcpy(digits, hex, 16);
        ls_status st = parse_bytes(p, n, n + 1);
        free(p);
        if (st != row[i].status) fail_msg("row %zu: status %d: %s", i, st, ls_last_error());
        if (st != LS_OK) assert_error_has(row[i].says);
    }
#undef META
#undef TENSOR
#undef DIGEST
}

static void refuses_nesting_above_the_limit(void **state)
{
    (void)state;
    for (int depth = 63; depth <= 64; depth++) { /* the object around them is one more */
        char json[200] = "{\"a\":";
        for (int i = 0; i < depth; i++) strcat(json, "[");
        for (int i = 0; i < depth; i++) strcat(json, "]");
        strcat(json, "}");
        assert_int_equal(parse(json, 0), LS_BAD_FILE);
        assert_error_has(depth == 63 ? "not a JSON object" : "nesting too deep");
    }
}

static void names_up_to_1024_bytes(void **state)
{
    (void)state;
    for (size_t n = 1024; n <= 1025; n++) {
        char *json = malloc(2000);
        assert_non_null(json);
        sprintf(json, "{\"%0*d\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", (int)n, 0);
        assert_int_equal(parse(json, 1), n == 1024 ? LS_OK : LS_BAD_FILE);
        free(json);
    }
    assert_error_has("too long");
}

static void headers_up_to_16_mib(void **state)
{
    (void)state;
    for (size_t n = (size_t)16 << 20; n <= ((size_t)16 << 20) + 1; n++) {
        char *p = malloc(8 + n);
        assert_non_null(p);
        memset(p, ' ', 8 + n);
        memcpy(p, &n, 8);
        memcpy(p + 8, "{}", 2);
        assert_int_equal(parse_bytes(p, 8 + n, 8 + n), n == (size_t)16 << 20 ? LS_OK : LS_BAD_FILE);
        free(p);
    }
    assert_error_has("at most 16777216");
}

/* At the limit the time must stay in seconds and the memory near the file's size. */
static void up_to_262144_pairs_of_metadata(void **state)
{
    (void)state;
    for (size_t n = 262144; n <= 262145; n++) {
        char *json = malloc(n * 16 + 64), *at = json;
        assert_non_null(json);
        at += sprintf(at, "{\"__metadata__\":{");
        for (size_t i = 0; i < n; i++) at += sprintf(at, "%s\"%zx\":\"\"", i ? "," : "", i);
        sprintf(at, "}}");
        assert_int_equal(parse(json, 0), n == 262144 ? LS_OK : LS_BAD_FILE);
        free(json);
    }
    assert_error_has("more metadata");
}

static void up_to_262144_tensors(void **state)
{
    (void)state;
    for (size_t n = 262144; n <= 262145; n++) {
        char *json = malloc(n * 64 + 64), *at = json;
        assert_non_null(json);
        *at++ = '{';
        for (size_t i = 0; i < n; i++)
            at += sprintf(at, "%s\"%zx\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", i ? "," : "", i);
        sprintf(at, "}");
        assert_int_equal(parse(json, 0), n == 262144 ? LS_OK : LS_BAD_FILE);
        free(json);
    }
    assert_error_has("more tensors");
}

static void refuses_a_pickle_by_name(void **state)
{
    (void)state;
    static const struct { const char *bytes; size_t n; } row[] = {
        { "\x80\x02}q\x00X\x08\x00\x00\x00" "0.weight", 18 },   /* pickle, protocol 2 */
        { "\x80\x04\x95\x1c\x00\x00\x00\x00\x00\x00\x00}", 12 },
        { "PK\x03\x04\x00\x00\x08\x08\x00\x00\x00\x00", 12 },   /* torch.save since 1.6 */
        { "\x80\x02", 2 },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        assert_int_equal(parse_bytes(row[i].bytes, row[i].n, row[i].n), LS_BAD_FILE);
        assert_error_has("this is a pickle");
        assert_error_has("run code");
    }
    /* A header of 640 bytes begins with the same two bytes and is none. */
    char json[641];
    memset(json, ' ', 640);
    json[640] = 0;
    memcpy(json, "{}", 2);
    assert_int_equal(parse(json, 0), LS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_headers_that_break_a_rule),
        cmocka_unit_test(wants_all_digests_or_none),
        cmocka_unit_test(refuses_nesting_above_the_limit),
        cmocka_unit_test(names_up_to_1024_bytes),
        cmocka_unit_test(headers_up_to_16_mib),
        cmocka_unit_test(up_to_262144_pairs_of_metadata),
        cmocka_unit_test(up_to_262144_tensors),
        cmocka_unit_test(refuses_a_pickle_by_name),
    };
    return cmocka_run_group_tests_name("format", tests, NULL, NULL);
}
