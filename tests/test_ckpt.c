/* ls_ckpt_*: round trips, then files that are no checkpoint of this model, then several writers of one file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <math.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "harness_ckpt.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        CKPT_TEST(gives_back_every_bit),
        CKPT_TEST(keeps_metadata_and_lists_tensors_in_file_order),
        CKPT_TEST(starts_the_data_at_a_multiple_of_64),
        CKPT_TEST(replaces_an_older_file_of_the_name),
        CKPT_TEST(saves_a_model_without_parameters),
        CKPT_TEST(reads_a_file_that_another_program_wrote),
        CKPT_TEST(refuses_what_is_no_regular_file),
        CKPT_TEST(recognises_and_strips_the_wrapper_prefix),
        CKPT_TEST(saves_and_loads_with_a_prefix),
        CKPT_TEST(says_what_does_not_fit),
        CKPT_TEST(R42_the_bytes_of_two_writers_fail_their_checksum),
        CKPT_TEST(R42_two_savers_of_one_path_always_leave_a_whole_file),
        CKPT_TEST(refuses_to_write_what_it_could_not_read),
    };
    return cmocka_run_group_tests_name("ckpt", tests, NULL, NULL);
}
