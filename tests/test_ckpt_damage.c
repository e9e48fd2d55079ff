/* ls_ckpt_*: every flipped bit and every truncation of a file is noticed; a disk that fails, or a crash, leaves a whole
 * file. */
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
#include <sys/wait.h>

#include "harness_ckpt.h"
#include "harness_disk.h"

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

/* --- disks that fail ------------------------------------------------------------------------- */

/* Writes are short all along. */
enum { SHORT = 100 };

static void flushes_before_it_renames_and_the_folder_after(void **state)
{
    fixture *f = *state;
    ls_env env = bad_env();
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
            disk.most = SHORT;
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
    disk.most = SHORT;

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        CKPT_TEST(notices_every_flipped_bit),
        CKPT_TEST(notices_every_other_value_of_a_byte),
        CKPT_TEST(notices_every_truncation_and_extension),
        CKPT_TEST(names_the_damaged_tensor_and_loads_nothing_of_it),
        CKPT_TEST(keeps_the_old_file_whichever_call_fails),
        CKPT_TEST(flushes_before_it_renames_and_the_folder_after),
        CKPT_TEST(is_whole_after_a_crash_at_any_call),
        CKPT_TEST(goes_on_after_an_interrupted_call),
        CKPT_TEST(names_the_folder_that_is_missing),
    };
    return cmocka_run_group_tests_name("ckpt_damage", tests, NULL, NULL);
}
