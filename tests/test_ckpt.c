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
#include <malloc.h>
#include <math.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/context.h"
#include "harness_files.h"
#include "ckpt/format.h"
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

/* --- what is no file of ours -------------------------------------------------------- */

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

/* The names that a PyTorch module has whose layers are self.net; parameters keep theirs, and so their digest. */
static void saves_and_loads_with_a_prefix(void **state)
{
    fixture *f = *state;
    ls_params back = { 0 }, prefixed = { 0 };
    ls_ckpt *c;
    char saved[33], loaded[33];
    static const char *const meta[] = { "note", "x", NULL }, *const reserved[] = { "lockstep.prefix", "x.", NULL };
    small_mlp(&back, "", 0.0f);
    small_mlp(&prefixed, "net.", 0.0f);
    assert_int_equal(ls_ckpt_save_prefixed(f->path, &f->ps, "net.", meta), LS_OK);
    assert_int_equal(ls_ckpt_open(f->path, &c), LS_OK);
    for (int i = 0; i < f->ps.n; i++) assert_string_equal(ls_ckpt_at(c, i)->name, prefixed.item[i].name);
    assert_string_equal(ls_ckpt_meta(c, "lockstep.prefix"), "net.");
    assert_string_equal(ls_ckpt_meta(c, "note"), "x");
    assert_true(ls_ckpt_has_digests(c));
    assert_int_equal(ls_ckpt_verify(c), LS_OK);
    ls_ckpt_close(c);
    assert_int_equal(ls_ckpt_load(f->path, &back, false), LS_OK);
    assert_true(same_values(&f->ps, &back));
    assert_int_equal(ls_params_digest(&f->ps, saved), LS_OK);
    assert_int_equal(ls_params_digest(&back, loaded), LS_OK);
    assert_string_equal(saved, loaded);
    assert_int_equal(ls_ckpt_load(f->path, &prefixed, false), LS_OK); /* a model that has these names itself */
    assert_true(same_values(&f->ps, &prefixed));

    assert_int_equal(ls_ckpt_save_prefixed(f->path, &f->ps, "", NULL), LS_OK); /* none is none */
    assert_int_equal(ls_ckpt_open(f->path, &c), LS_OK);
    assert_null(ls_ckpt_meta(c, "lockstep.prefix"));
    ls_ckpt_close(c);
    assert_int_equal(ls_ckpt_save(f->path, &f->ps, reserved), LS_INVALID);
    assert_error_has("'lockstep.prefix': the key is reserved");
    free_params(&back);
    free_params(&prefixed);
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

/* --- several writers --------------------------------------------------------------------------- */

/* What two writers leave who overwrite each other's bytes in place, wherever one overtakes the other. */
static void R42_the_bytes_of_two_writers_fail_their_checksum(void **state)
{
    fixture *f = *state;
    ls_params other = { 0 };
    size_t na, nb;
    small_mlp(&other, "", 50.0f);
    assert_int_equal(ls_ckpt_save(f->path, &f->ps, NULL), LS_OK);
    unsigned char *a = slurp(f->path, &na);
    assert_int_equal(ls_ckpt_save(f->path, &other, NULL), LS_OK);
    unsigned char *b = slurp(f->path, &nb);
    assert_int_equal(na, nb);
    int mixed = 0;
    for (size_t cut = 1; cut < na; cut++) {
        unsigned char *mix = malloc(na);
        assert_non_null(mix);
        memcpy(mix, a, cut);
        memcpy(mix + cut, b + cut, na - cut);
        if (memcmp(mix, a, na) != 0 && memcmp(mix, b, na) != 0) {
            mixed++;
            spill(f->path, mix, na);
            if (open_and_verify(f->path) != LS_CKPT_CORRUPT) fail_msg("cut at byte %zu of %zu", cut, na);
        }
        free(mix);
    }
    assert_true(mixed > 100);
    free(a);
    free(b);
    free_params(&other);
}

/* Two processes save to one path again and again; whoever reads it finds one of the two files, whole. */
static void R42_two_savers_of_one_path_always_leave_a_whole_file(void **state)
{
    fixture *f = *state;
    enum { SAVES = 100 };
    ls_params other = { 0 }, back = { 0 };
    pid_t pid[2];
    int ended = 0, reads = 0, status;
    small_mlp(&other, "", 50.0f);
    small_mlp(&back, "", 0.0f);
    assert_int_equal(ls_ckpt_save(f->path, &f->ps, NULL), LS_OK);
    for (int k = 0; k < 2; k++) {
        pid[k] = fork();
        assert_true(pid[k] >= 0);
        if (pid[k] > 0) continue;
        for (int i = 0; i < SAVES; i++)
            if (ls_ckpt_save(f->path, k ? &other : &f->ps, NULL) != LS_OK) _exit(1);
        _exit(0);
    }
    while (ended < 2) {
        if (ls_ckpt_load(f->path, &back, false) != LS_OK) fail_msg("%s", ls_last_error());
        assert_true(same_values(&back, &f->ps) || same_values(&back, &other));
        reads++;
        const pid_t p = waitpid(-1, &status, WNOHANG);
        assert_true(p >= 0);
        if (p == 0) continue;
        assert_int_equal(status, 0);
        ended++;
    }
    assert_int_equal(ls_ckpt_load(f->path, &back, false), LS_OK);
    assert_true(reads > 0);
    assert_int_equal(entries(f->dir), 1); /* no temporary file is left */
    free_params(&other);
    free_params(&back);
}

/* --- disks that fail ------------------------------------------------------------------------- */

/* An env whose file calls fail, write little, or end the process, at the call that is asked for. */
static struct { int calls, fail_at, error; size_t most; bool dies; char order[256]; } disk;

static bool fails(char call)
{
    if (disk.calls < (int)sizeof disk.order - 1) disk.order[disk.calls] = call;
    if (disk.calls++ != disk.fail_at) return false;
    if (disk.dies) _exit(0); /* as a kill does: nothing is cleaned up */
    return true;
}

static int bad_create(const char *path) { return fails('c') ? -disk.error : ls_env_real.create(path); }
static int bad_fsync(int fd) { return fails('f') ? -disk.error : ls_env_real.fsync(fd); }
static int bad_fsync_dir(const char *path) { return fails('d') ? -disk.error : ls_env_real.fsync_dir(path); }
static int bad_rename(const char *a, const char *b) { return fails('r') ? -disk.error : ls_env_real.rename(a, b); }
static ssize_t bad_write(int fd, const void *p, size_t n)
{
    if (fails('w')) return -disk.error;
    return ls_env_real.write(fd, p, n < disk.most ? n : disk.most);
}

static ls_env bad_env(void)
{
    ls_env env = ls_env_real;
    env.create = bad_create;
    env.write = bad_write;
    env.fsync = bad_fsync;
    env.rename = bad_rename;
    env.fsync_dir = bad_fsync_dir;
    memset(&disk, 0, sizeof disk);
    disk.fail_at = -1;
    disk.most = 100; /* short writes all along */
    return env;
}

static void flushes_before_it_renames_and_the_folder_after(void **state)
{
    fixture *f = *state;
    ls_env env = bad_env();
    disk.most = SIZE_MAX;
    ls_context context = { .env = &env, .rank = -1 }, *was = ls_context_swap(&context);
    ls_status st = ls_ckpt_save(f->path, &f->ps, NULL);
    ls_context_swap(was);
    assert_int_equal(st, LS_OK);
    assert_string_equal(disk.order, "cwwwwwfrd"); /* header and four tensors */
}

static void is_whole_after_a_crash_at_any_call(void **state)
{
    fixture *f = *state;
    ls_params old = { 0 }, back = { 0 };
    small_mlp(&old, "", 50.0f);
    small_mlp(&back, "", 0.0f);
    bool finished = false;
    int crashes = 0, replaced = 0;
    for (int at = 0; !finished; at++) {
        assert_int_equal(ls_ckpt_save(f->path, &old, NULL), LS_OK);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            ls_env env = bad_env();
            ls_context context = { .env = &env, .rank = -1 };
            disk.fail_at = at;
            disk.dies = true;
            ls_context_swap(&context);
            _exit(ls_ckpt_save(f->path, &f->ps, NULL) == LS_OK ? 17 : 18);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 17));
        finished = WEXITSTATUS(status) == 17;
        assert_int_equal(ls_ckpt_load(f->path, &back, false), LS_OK);
        bool is_new = same_values(&back, &f->ps);
        assert_true(is_new || same_values(&back, &old));
        crashes += !finished;
        replaced += !finished && is_new;
    }
    assert_true(crashes > 8);
    assert_int_equal(replaced, 1); /* after the rename, before the folder's flush */
    free_params(&old);
    free_params(&back);
}

static void keeps_the_old_file_whichever_call_fails(void **state)
{
    fixture *f = *state;
    ls_env env = bad_env();
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
    ls_env env = bad_env();
    ls_context context = { .env = &env, .rank = -1 };
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
        TEST(refuses_what_is_no_regular_file),
        TEST(recognises_and_strips_the_wrapper_prefix),
        TEST(saves_and_loads_with_a_prefix),
        TEST(parts_are_read_from_the_file_of_the_whole),
        TEST(a_part_takes_the_memory_of_a_part),
        TEST(a_flipped_byte_in_or_beside_a_part_is_noticed),
        TEST(a_part_that_is_not_in_the_tensor_is_refused),
        TEST(says_what_does_not_fit),
        TEST(R42_the_bytes_of_two_writers_fail_their_checksum),
        TEST(R42_two_savers_of_one_path_always_leave_a_whole_file),
        TEST(refuses_to_write_what_it_could_not_read),
        TEST(keeps_the_old_file_whichever_call_fails),
        TEST(flushes_before_it_renames_and_the_folder_after),
        TEST(is_whole_after_a_crash_at_any_call),
        TEST(goes_on_after_an_interrupted_call),
        TEST(names_the_folder_that_is_missing),
        cmocka_unit_test(a_matrix_is_transposed_whatever_its_size),
    };
    return cmocka_run_group_tests_name("ckpt", tests, NULL, NULL);
}
