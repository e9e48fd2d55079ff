/* ls_ckpt_*: round trips, then damage of every kind, then files that are no
 * checkpoint of this model, then disks that fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <sys/stat.h>

#include "base/context.h"
#include "base/hash.h"
#include "lockstep/ckpt.h"

/* --- a small model and a folder of its own for each test -------------------------- */

typedef struct fixture {
    char dir[64], path[96];
    ls_params ps;
} fixture;

static void add_param(ls_params *ps, const char *name, int ndim, const int64_t *dim, float first)
{
    assert_int_equal(ls_params_add(ps, name, ndim, dim), LS_OK);
    ls_tensor *t = &ps->item[ps->n - 1].t;
    float *x = malloc(ls_tensor_nbytes(t));
    assert_non_null(x);
    for (int64_t i = 0; i < ls_tensor_count(t); i++) x[i] = first + 0.37f * (float)i;
    t->data = x;
}

static void free_params(ls_params *ps)
{
    for (int i = 0; i < ps->n; i++) free(ps->item[i].t.data);
    ls_params_free(ps);
}

static void small_mlp(ls_params *ps, const char *prefix, float first)
{
    char name[LS_NAME_BYTES];
    static const struct { const char *name; int ndim; int64_t dim[2]; } row[] = {
        { "0.weight", 2, { 3, 5 } }, { "0.bias", 1, { 3 } }, { "2.weight", 2, { 2, 3 } }, { "2.bias", 1, { 2 } },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        snprintf(name, sizeof name, "%s%s", prefix, row[i].name);
        add_param(ps, name, row[i].ndim, row[i].dim, first + (float)i);
    }
}

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    strcpy(f->dir, "/tmp/lockstep-test-ckpt-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof f->path, "%s/model.safetensors", f->dir);
    small_mlp(&f->ps, "", 1.0f);
    *state = f;
    return 0;
}

static int entries(const char *dir)
{
    int n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n;
}

static int teardown(void **state)
{
    fixture *f = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", f->dir);
    assert_int_equal(system(command), 0);
    free_params(&f->ps);
    free(f);
    return 0;
}

static unsigned char *slurp(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    unsigned char *p = malloc(1 << 20);
    assert_non_null(p);
    *n = fread(p, 1, 1 << 20, f);
    fclose(f);
    return p;
}

static void spill(const char *path, const void *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
}

/* A file with this JSON header and n zero bytes of data. */
static void spill_header(const char *path, const char *json, size_t n)
{
    uint64_t size = strlen(json);
    unsigned char *p = calloc(1, 8 + size + n);
    assert_non_null(p);
    memcpy(p, &size, 8);
    memcpy(p + 8, json, size);
    spill(path, p, 8 + size + n);
    free(p);
}

static ls_status open_and_verify(const char *path)
{
    ls_ckpt *c;
    ls_status st = ls_ckpt_open(path, &c);
    if (st == LS_OK) st = ls_ckpt_verify(c);
    ls_ckpt_close(c);
    return st;
}

static bool same_values(const ls_params *a, const ls_params *b)
{
    for (int i = 0; i < a->n; i++)
        if (memcmp(a->item[i].t.data, b->item[i].t.data, ls_tensor_nbytes(&a->item[i].t)) != 0) return false;
    return true;
}

#define assert_error_has(text)                                                                   \
    do {                                                                                         \
        if (!strstr(ls_last_error(), text)) fail_msg("'%s' lacks '%s'", ls_last_error(), text);  \
    } while (0)

/* --- what is saved comes back ---------------------------------------------------------- */

static void gives_back_every_bit(void **state)
{
    fixture *f = *state;
    float *w = f->ps.item[0].t.data;
    w[0] = -0.0f;
    w[1] = NAN;
    w[2] = INFINITY;
    w[3] = 1e-42f; /* subnormal */
    assert_int_equal(ls_ckpt_save(f->path, &f->ps, NULL), LS_OK);

    ls_params back = { 0 };
    small_mlp(&back, "", -7.0f);
    assert_false(same_values(&f->ps, &back));
    assert_int_equal(ls_ckpt_load(f->path, &back, false), LS_OK);
    assert_true(same_values(&f->ps, &back));
    free_params(&back);
    assert_int_equal(entries(f->dir), 1);
}

static void keeps_metadata_and_lists_tensors_in_file_order(void **state)
{
    fixture *f = *state;
    static const char *const meta[] = { "step", "120", "note", "a \"quoted\"\nline, <b> and \xc3\xa4", NULL };
    assert_int_equal(ls_ckpt_save(f->path, &f->ps, meta), LS_OK);
    ls_ckpt *c;
    assert_int_equal(ls_ckpt_open(f->path, &c), LS_OK);
    assert_string_equal(ls_ckpt_meta(c, "format"), "pt");
    assert_string_equal(ls_ckpt_meta(c, "step"), "120");
    assert_string_equal(ls_ckpt_meta(c, "note"), meta[3]);
    assert_null(ls_ckpt_meta(c, "absent"));

    assert_int_equal(ls_ckpt_count(c), 4);
    for (int i = 0; i < 4; i++) {
        const ls_ckpt_tensor *t = ls_ckpt_at(c, i);
        assert_string_equal(t->name, f->ps.item[i].name);
        assert_ptr_equal(ls_ckpt_find(c, t->name), t);
        assert_string_equal(t->dtype_name, "F32");
        assert_int_equal(t->dtype, LS_F32);
        assert_true(t->has_checksum);
        float x[15];
        assert_int_equal(t->end - t->begin, ls_tensor_nbytes(&f->ps.item[i].t));
        assert_int_equal(ls_ckpt_read(c, t, x), LS_OK);
        assert_memory_equal(x, f->ps.item[i].t.data, t->end - t->begin);
    }
    assert_null(ls_ckpt_find(c, "0.weigh"));
    ls_ckpt_close(c);
}

static void starts_the_data_at_a_multiple_of_64(void **state)
{
    fixture *f = *state;
    char value[80] = "";
    for (int k = 0; k < 70; k++) { /* every length of header modulo 64 */
        const char *const meta[] = { "k", value, NULL };
        assert_int_equal(ls_ckpt_save(f->path, &f->ps, meta), LS_OK);
        size_t n;
        unsigned char *p = slurp(f->path, &n);
        uint64_t header;
        memcpy(&header, p, 8);
        assert_int_equal((8 + header) % 64, 0);
        assert_int_equal(n, 8 + header + ls_params_nbytes(&f->ps));
        assert_int_equal(p[8], '{');
        free(p);
        value[k] = 'x';
        value[k + 1] = 0;
    }
}

static void replaces_an_older_file_of_the_name(void **state)
{
    fixture *f = *state;
    assert_int_equal(ls_ckpt_save(f->path, &f->ps, NULL), LS_OK);
    ((float *)f->ps.item[2].t.data)[1] = 99.0f;
    assert_int_equal(ls_ckpt_save(f->path, &f->ps, NULL), LS_OK);
    ls_params back = { 0 };
    small_mlp(&back, "", 0.0f);
    assert_int_equal(ls_ckpt_load(f->path, &back, false), LS_OK);
    assert_true(same_values(&f->ps, &back));
    free_params(&back);
    assert_int_equal(entries(f->dir), 1);
}

static void saves_a_model_without_parameters(void **state)
{
    fixture *f = *state;
    ls_params none = { 0 };
    assert_int_equal(ls_ckpt_save(f->path, &none, NULL), LS_OK);
    assert_int_equal(ls_ckpt_load(f->path, &none, false), LS_OK);
    assert_int_equal(open_and_verify(f->path), LS_OK);
}

static void reads_a_file_that_another_program_wrote(void **state)
{
    fixture *f = *state;
    spill_header(f->path, "{ \"b\" : {\"shape\":[2, 0],\"dtype\":\"I8\",\"data_offsets\":[8,8]},\t\"__metadata__\":{},\n"
                 "\"a\\u00e4\":{\"data_offsets\":[0,8],\"dtype\":\"BF16\",\"shape\":[1,1,1,1,1,1,1,4]} }   ", 8);
    ls_ckpt *c;
    assert_int_equal(ls_ckpt_open(f->path, &c), LS_OK);
    const ls_ckpt_tensor *t = ls_ckpt_find(c, "a\xc3\xa4");
    assert_non_null(t);
    assert_int_equal(t->ndim, 8);
    assert_int_equal(t->dim[7], 4);
    assert_int_equal(t->dtype, LS_BF16);
    assert_false(t->has_checksum);
    assert_int_equal(ls_ckpt_find(c, "b")->dtype, LS_DTYPES);
    assert_string_equal(ls_ckpt_find(c, "b")->dtype_name, "I8");
    assert_int_equal(ls_ckpt_verify(c), LS_OK);
    ls_ckpt_close(c);
}

/* --- no damage goes unnoticed -------------------------------------------------------------- */

static void notices_every_flipped_bit(void **state)
{
    fixture *f = *state;
    static const char *const meta[] = { "step", "7", NULL };
    for (int with_tensors = 0; with_tensors <= 1; with_tensors++) {
        ls_params none = { 0 };
        assert_int_equal(ls_ckpt_save(f->path, with_tensors ? &f->ps : &none, meta), LS_OK);
        assert_int_equal(open_and_verify(f->path), LS_OK);
        size_t n;
        unsigned char *p = slurp(f->path, &n);
        FILE *file = fopen(f->path, "r+b");
        assert_non_null(file);
        for (size_t at = 0; at < n; at++)
            for (int bit = 0; bit < 8; bit++) {
                p[at] = (unsigned char)(p[at] ^ 1 << bit);
                assert_int_equal(pwrite(fileno(file), &p[at], 1, (off_t)at), 1);
                ls_status st = open_and_verify(f->path);
                if (st != LS_CKPT_CORRUPT && st != LS_BAD_FILE)
                    fail_msg("bit %d of byte %zu of %zu: status %d", bit, at, n, st);
                assert_int_equal(ls_status_exit_code(st), 65);
                p[at] = (unsigned char)(p[at] ^ 1 << bit);
                assert_int_equal(pwrite(fileno(file), &p[at], 1, (off_t)at), 1);
            }
        fclose(file);
        free(p);
    }
}

static void notices_every_other_value_of_a_byte(void **state)
{
    fixture *f = *state;
    assert_int_equal(ls_ckpt_save(f->path, &f->ps, NULL), LS_OK);
    size_t n;
    unsigned char *p = slurp(f->path, &n);
    FILE *file = fopen(f->path, "r+b");
    assert_non_null(file);
    for (size_t at = 0; at < n; at++)
        for (unsigned k = 0; k < 8; k++) { /* blanks, digits, quotes: values that JSON would swallow */
            unsigned char byte = (unsigned char)" \t\n0\"a,9"[k];
            if (byte == p[at]) continue;
            assert_int_equal(pwrite(fileno(file), &byte, 1, (off_t)at), 1);
            ls_status st = open_and_verify(f->path);
            if (st >= 0) fail_msg("byte %zu of %zu as %u: status %d", at, n, byte, st);
            assert_int_equal(pwrite(fileno(file), &p[at], 1, (off_t)at), 1);
        }
    fclose(file);
    free(p);
}

static void notices_every_truncation_and_extension(void **state)
{
    fixture *f = *state;
    assert_int_equal(ls_ckpt_save(f->path, &f->ps, NULL), LS_OK);
    size_t n;
    unsigned char *p = slurp(f->path, &n);
    for (size_t keep = 0; keep < n; keep++) {
        spill(f->path, p, keep);
        ls_status st = open_and_verify(f->path);
        if (st != LS_CKPT_CORRUPT && st != LS_BAD_FILE) fail_msg("%zu of %zu bytes: status %d", keep, n, st);
    }
    spill(f->path, p, n - 1);
    assert_int_equal(open_and_verify(f->path), LS_CKPT_CORRUPT);
    assert_error_has("cut short");
    p[n] = 0;
    spill(f->path, p, n + 1);
    assert_int_equal(open_and_verify(f->path), LS_CKPT_CORRUPT);
    assert_error_has("after its end");
    free(p);
}

static void names_the_damaged_tensor_and_loads_nothing_of_it(void **state)
{
    fixture *f = *state;
    assert_int_equal(ls_ckpt_save(f->path, &f->ps, NULL), LS_OK);
    size_t n;
    unsigned char *p = slurp(f->path, &n);
    p[n - 4 * 2 - 1] ^= 0x40; /* the last byte of 2.weight; 2.bias follows with two floats */
    spill(f->path, p, n);
    free(p);

    ls_params back = { 0 }, was = { 0 };
    small_mlp(&back, "", 40.0f);
    small_mlp(&was, "", 40.0f);
    assert_int_equal(ls_ckpt_load(f->path, &back, false), LS_CKPT_CORRUPT);
    assert_error_has(f->path);
    assert_error_has("'2.weight'");
    assert_error_has("expected");
    assert_true(same_values(&back, &was));
    assert_int_equal(open_and_verify(f->path), LS_CKPT_CORRUPT);
    assert_error_has("'2.weight'");
    free_params(&back);
    free_params(&was);
}

/* --- hostile headers ------------------------------------------------------------------------ */

static void refuses_headers_that_break_a_rule(void **state)
{
    fixture *f = *state;
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
        ls_ckpt *c = (ls_ckpt *)f;
        spill_header(f->path, row[i].json, row[i].data);
        ls_status st = ls_ckpt_open(f->path, &c);
        if (st != LS_BAD_FILE && st != LS_CKPT_CORRUPT) fail_msg("%s: status %d", row[i].json, st);
        assert_null(c);
        assert_error_has(f->path);
        if (!strstr(ls_last_error(), row[i].says)) fail_msg("%s: '%s' lacks '%s'", row[i].json, ls_last_error(), row[i].says);
    }
    spill_header(f->path, "{\"a\":" T("[2]", "0", "8") "}", 8); /* the table's frame itself is right */
    assert_int_equal(open_and_verify(f->path), LS_OK);
#undef T
}

/* Headers whose own digest is right, but that lack or have too much of the rest. */
static void wants_all_digests_or_none(void **state)
{
    fixture *f = *state;
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
        spill_header(f->path, row[i].json, 1);
        size_t n;
        char hex[17], *p = (char *)slurp(f->path, &n), *digits = strstr(p + 8, "0000000000000000");
        snprintf(hex, sizeof hex, "%016llx", (unsigned long long)ls_hash64(p, n - 1, 0));
        memcpy(digits, hex, 16);
        spill(f->path, p, n);
        free(p);
        ls_status st = open_and_verify(f->path);
        if (st != row[i].status) fail_msg("row %zu: status %d: %s", i, st, ls_last_error());
        if (st != LS_OK) assert_error_has(row[i].says);
    }
#undef META
#undef TENSOR
#undef DIGEST
}

static void refuses_nesting_above_the_limit(void **state)
{
    fixture *f = *state;
    for (int depth = 63; depth <= 64; depth++) { /* the object around them is one more */
        char json[200] = "{\"a\":";
        for (int i = 0; i < depth; i++) strcat(json, "[");
        for (int i = 0; i < depth; i++) strcat(json, "]");
        strcat(json, "}");
        spill_header(f->path, json, 0);
        assert_int_equal(open_and_verify(f->path), LS_BAD_FILE);
        assert_error_has(depth == 63 ? "not a JSON object" : "nesting too deep");
    }
}

static void names_up_to_1024_bytes(void **state)
{
    fixture *f = *state;
    for (size_t n = 1024; n <= 1025; n++) {
        char *json = malloc(2000);
        assert_non_null(json);
        sprintf(json, "{\"%0*d\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", (int)n, 0);
        spill_header(f->path, json, 1);
        free(json);
        assert_int_equal(open_and_verify(f->path), n == 1024 ? LS_OK : LS_BAD_FILE);
    }
    assert_error_has("too long");
}

static void headers_up_to_16_mib(void **state)
{
    fixture *f = *state;
    for (size_t n = (size_t)16 << 20; n <= ((size_t)16 << 20) + 1; n++) {
        unsigned char *p = malloc(8 + n);
        assert_non_null(p);
        memset(p, ' ', 8 + n);
        memcpy(p, &n, 8);
        memcpy(p + 8, "{}", 2);
        spill(f->path, p, 8 + n);
        free(p);
        assert_int_equal(open_and_verify(f->path), n == (size_t)16 << 20 ? LS_OK : LS_BAD_FILE);
    }
    assert_error_has("at most 16777216");
}

/* At the limit the time must stay in seconds and the memory near the file's size. */
static void up_to_262144_pairs_of_metadata(void **state)
{
    fixture *f = *state;
    for (size_t n = 262144; n <= 262145; n++) {
        char *json = malloc(n * 16 + 64), *at = json;
        assert_non_null(json);
        at += sprintf(at, "{\"__metadata__\":{");
        for (size_t i = 0; i < n; i++) at += sprintf(at, "%s\"%zx\":\"\"", i ? "," : "", i);
        sprintf(at, "}}");
        spill_header(f->path, json, 0);
        free(json);
        assert_int_equal(open_and_verify(f->path), n == 262144 ? LS_OK : LS_BAD_FILE);
    }
    assert_error_has("more metadata");
}

static void up_to_262144_tensors(void **state)
{
    fixture *f = *state;
    for (size_t n = 262144; n <= 262145; n++) {
        char *json = malloc(n * 64 + 64), *at = json;
        assert_non_null(json);
        *at++ = '{';
        for (size_t i = 0; i < n; i++)
            at += sprintf(at, "%s\"%zx\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", i ? "," : "", i);
        sprintf(at, "}");
        spill_header(f->path, json, 0);
        free(json);
        assert_int_equal(open_and_verify(f->path), n == 262144 ? LS_OK : LS_BAD_FILE);
    }
    assert_error_has("more tensors");
}

static void refuses_a_pickle_by_name(void **state)
{
    fixture *f = *state;
    static const struct { const char *bytes; size_t n; } row[] = {
        { "\x80\x02}q\x00X\x08\x00\x00\x00" "0.weight", 18 },   /* pickle, protocol 2 */
        { "\x80\x04\x95\x1c\x00\x00\x00\x00\x00\x00\x00}", 12 },
        { "PK\x03\x04\x00\x00\x08\x08\x00\x00\x00\x00", 12 },   /* torch.save since 1.6 */
        { "\x80\x02", 2 },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        spill(f->path, row[i].bytes, row[i].n);
        assert_int_equal(open_and_verify(f->path), LS_BAD_FILE);
        assert_error_has("this is a pickle");
        assert_error_has("run code");
    }
    /* A header of 640 bytes begins with the same two bytes and is none. */
    char json[641];
    memset(json, ' ', 640);
    json[640] = 0;
    memcpy(json, "{}", 2);
    spill_header(f->path, json, 0);
    assert_int_equal(open_and_verify(f->path), LS_OK);
}

static void refuses_what_is_no_regular_file(void **state)
{
    fixture *f = *state;
    char link[128];
    snprintf(link, sizeof link, "%s/link", f->dir);
    assert_int_equal(ls_ckpt_save(f->path, &f->ps, NULL), LS_OK);
    assert_int_equal(symlink(f->path, link), 0);
    assert_int_equal(open_and_verify(link), LS_UNSAFE_PATH);
    assert_error_has("symbolic link");
    assert_int_equal(open_and_verify(f->dir), LS_INVALID);
    assert_error_has("is a folder");
    snprintf(link, sizeof link, "%s/fifo", f->dir);
    assert_int_equal(mkfifo(link, 0600), 0);
    assert_int_equal(open_and_verify(link), LS_UNSAFE_PATH); /* and does not wait for a writer */
    assert_int_equal(open_and_verify("/dev/zero"), LS_UNSAFE_PATH);
    snprintf(link, sizeof link, "%s/absent", f->dir);
    assert_int_equal(open_and_verify(link), LS_IO);
    assert_error_has("No such file");
}

/* --- files of another model --------------------------------------------------------------- */

static void recognises_and_strips_the_wrapper_prefix(void **state)
{
    fixture *f = *state;
    ls_params wrapped = { 0 }, back = { 0 };
    small_mlp(&wrapped, "module.", 3.0f);
    small_mlp(&back, "", 0.0f);
    assert_int_equal(ls_ckpt_save(f->path, &wrapped, NULL), LS_OK);
    assert_int_equal(ls_ckpt_load(f->path, &back, false), LS_SHAPE);
    assert_error_has("'module.'");
    assert_error_has("stripped");
    assert_int_equal(ls_ckpt_load(f->path, &back, true), LS_OK);
    assert_true(same_values(&wrapped, &back));
    assert_int_equal(ls_ckpt_load(f->path, &wrapped, true), LS_OK); /* the names fit as they are */

    assert_int_equal(ls_ckpt_save(f->path, &f->ps, NULL), LS_OK); /* nothing to strip */
    assert_int_equal(ls_ckpt_load(f->path, &back, true), LS_OK);
    assert_true(same_values(&f->ps, &back));
    free_params(&wrapped);
    free_params(&back);
}

static void says_what_does_not_fit(void **state)
{
    fixture *f = *state;
    assert_int_equal(ls_ckpt_save(f->path, &f->ps, NULL), LS_OK);
    ls_params other = { 0 };
    add_param(&other, "0.weight", 2, (int64_t[]){ 3, 4 }, 0.0f);
    assert_int_equal(ls_ckpt_load(f->path, &other, false), LS_SHAPE);
    assert_error_has("'0.weight' has shape [3, 5], the model's has [3, 4]");
    free_params(&other);

    add_param(&other, "0.weight", 1, (int64_t[]){ 15 }, 0.0f);
    assert_int_equal(ls_ckpt_load(f->path, &other, false), LS_SHAPE);
    assert_error_has("has [15]");
    free_params(&other);

    small_mlp(&other, "", 0.0f);
    add_param(&other, "4.weight", 1, (int64_t[]){ 1 }, 0.0f);
    assert_int_equal(ls_ckpt_load(f->path, &other, false), LS_SHAPE);
    assert_error_has("no tensor '4.weight'");
    free_params(&other);

    add_param(&other, "0.weight", 2, (int64_t[]){ 3, 5 }, 0.0f);
    assert_int_equal(ls_ckpt_load(f->path, &other, false), LS_SHAPE);
    assert_error_has("'0.bias', which the model does not know");
    free_params(&other);

    spill_header(f->path, "{\"w\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4);
    add_param(&other, "w", 1, (int64_t[]){ 2 }, 0.0f);
    assert_int_equal(ls_ckpt_load(f->path, &other, false), LS_SHAPE);
    assert_error_has("type F16, the model's are F32");
    free_params(&other);
}

static void refuses_to_write_what_it_could_not_read(void **state)
{
    fixture *f = *state;
    static const char *const reserved[] = { "lockstep.header", "x", NULL };
    assert_int_equal(ls_ckpt_save(f->path, &f->ps, reserved), LS_INVALID);
    assert_error_has("reserved");
    ls_params twice = { 0 };
    add_param(&twice, "w", 1, (int64_t[]){ 2 }, 0.0f);
    add_param(&twice, "v", 1, (int64_t[]){ 2 }, 0.0f);
    strcpy(twice.item[1].name, "w");
    assert_int_equal(ls_ckpt_save(f->path, &twice, NULL), LS_INVALID);
    strcpy(twice.item[1].name, "w\x1b[2J");
    assert_int_equal(ls_ckpt_save(f->path, &twice, NULL), LS_INVALID);
    free(twice.item[1].t.data);
    twice.item[1].t.data = NULL;
    assert_int_equal(ls_ckpt_save(f->path, &twice, NULL), LS_INVALID);
    assert_error_has("bind the parameters");
    free_params(&twice);
    assert_int_equal(entries(f->dir), 0);
}

/* --- disks that fail ------------------------------------------------------------------------- */

/* An env whose file calls fail or write little, one after the other. */
static struct { int calls, fail_at, error; size_t most; } disk;

static bool fails(void) { return disk.calls++ == disk.fail_at; }
static int bad_create(const char *path) { return fails() ? -disk.error : ls_env_real.create(path); }
static int bad_fsync(int fd) { return fails() ? -disk.error : ls_env_real.fsync(fd); }
static int bad_fsync_dir(const char *path) { return fails() ? -disk.error : ls_env_real.fsync_dir(path); }
static int bad_rename(const char *a, const char *b) { return fails() ? -disk.error : ls_env_real.rename(a, b); }
static ssize_t bad_write(int fd, const void *p, size_t n)
{
    if (fails()) return -disk.error;
    return ls_env_real.write(fd, p, n < disk.most ? n : disk.most);
}

static void keeps_the_old_file_whichever_call_fails(void **state)
{
    fixture *f = *state;
    ls_env env = ls_env_real;
    env.create = bad_create;
    env.write = bad_write;
    env.fsync = bad_fsync;
    env.rename = bad_rename;
    env.fsync_dir = bad_fsync_dir;
    ls_context context = { .env = &env, .rank = -1 };

    ls_params old = { 0 }, back = { 0 };
    small_mlp(&old, "", 50.0f);
    small_mlp(&back, "", 0.0f);
    assert_int_equal(ls_ckpt_save(f->path, &old, NULL), LS_OK);

    static const int errors[] = { ENOSPC, EIO, EDQUOT, EROFS };
    int failures = 0;
    for (size_t e = 0; e < sizeof errors / sizeof *errors; e++)
        for (int at = 0;; at++) {
            disk.calls = 0;
            disk.fail_at = at;
            disk.error = errors[e];
            disk.most = 100; /* short writes all along */
            ls_context *was = ls_context_swap(&context);
            ls_status st = ls_ckpt_save(f->path, &f->ps, NULL);
            char message[LS_ERROR_BYTES];
            strcpy(message, ls_last_error());
            ls_context_swap(was);
            if (st == LS_OK) { /* no call was left to fail */
                assert_true(disk.calls == at && at > 8);
                assert_int_equal(ls_ckpt_save(f->path, &old, NULL), LS_OK);
                break;
            }
            failures++;
            assert_int_equal(st, LS_CKPT_FAILED);
            assert_non_null(strstr(message, strerror(errors[e])));
            assert_non_null(strstr(message, "bytes in /tmp/lockstep-test-ckpt-"));
            assert_int_equal(entries(f->dir), 1); /* no temporary file is left */
            assert_int_equal(ls_ckpt_load(f->path, &back, false), LS_OK);
            /* Only when the last call fails, the folder's flush, has the new file its name. */
            bool replaced = same_values(&back, &f->ps);
            assert_true(replaced || same_values(&back, &old));
            assert_int_equal(replaced, strstr(message, "its folder") != NULL);
            if (replaced) assert_int_equal(ls_ckpt_save(f->path, &old, NULL), LS_OK);
        }
    assert_true(failures > 40);
    free_params(&old);
    free_params(&back);
}

static void goes_on_after_an_interrupted_call(void **state)
{
    fixture *f = *state;
    ls_env env = ls_env_real;
    env.write = bad_write;
    ls_context context = { .env = &env, .rank = -1 };
    disk.calls = 0;
    disk.fail_at = 3;
    disk.error = EINTR;
    disk.most = 7;
    ls_context *was = ls_context_swap(&context);
    ls_status st = ls_ckpt_save(f->path, &f->ps, NULL);
    ls_context_swap(was);
    assert_int_equal(st, LS_OK);
    assert_int_equal(open_and_verify(f->path), LS_OK);
}

static void names_the_folder_that_is_missing(void **state)
{
    fixture *f = *state;
    char path[160];
    snprintf(path, sizeof path, "%s/absent/model.safetensors", f->dir);
    assert_int_equal(ls_ckpt_save(path, &f->ps, NULL), LS_CKPT_FAILED);
    assert_error_has("/absent");
    assert_error_has("No such file");
    snprintf(path, sizeof path, "%s/", f->dir);
    assert_int_equal(ls_ckpt_save(path, &f->ps, NULL), LS_CKPT_FAILED);
    assert_error_has("names a folder");
    assert_int_equal(ls_ckpt_save(f->dir, &f->ps, NULL), LS_CKPT_FAILED); /* the name is a folder's */
    assert_int_equal(entries(f->dir), 0);
}


int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(gives_back_every_bit),
        TEST(keeps_metadata_and_lists_tensors_in_file_order),
        TEST(starts_the_data_at_a_multiple_of_64),
        TEST(replaces_an_older_file_of_the_name),
        TEST(saves_a_model_without_parameters),
        TEST(reads_a_file_that_another_program_wrote),
        TEST(notices_every_flipped_bit),
        TEST(notices_every_other_value_of_a_byte),
        TEST(notices_every_truncation_and_extension),
        TEST(names_the_damaged_tensor_and_loads_nothing_of_it),
        TEST(refuses_headers_that_break_a_rule),
        TEST(wants_all_digests_or_none),
        TEST(refuses_nesting_above_the_limit),
        TEST(names_up_to_1024_bytes),
        TEST(headers_up_to_16_mib),
        TEST(up_to_262144_pairs_of_metadata),
        TEST(up_to_262144_tensors),
        TEST(refuses_a_pickle_by_name),
        TEST(refuses_what_is_no_regular_file),
        TEST(recognises_and_strips_the_wrapper_prefix),
        TEST(says_what_does_not_fit),
        TEST(refuses_to_write_what_it_could_not_read),
        TEST(keeps_the_old_file_whichever_call_fails),
        TEST(goes_on_after_an_interrupted_call),
        TEST(names_the_folder_that_is_missing),
    };
    return cmocka_run_group_tests_name("ckpt", tests, NULL, NULL);
}
