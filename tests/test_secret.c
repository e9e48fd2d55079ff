/* secret: a file that is not its owner's alone, or not 64 hex digits, is refused and leaves nothing behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/context.h"
#include "base/env.h"
#include "meet/secret.h"

#define DIGITS "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

static char folder[64], path[96], beside[96];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/lockstep-test-secret-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/secret", folder);
    snprintf(beside, sizeof beside, "%s/link", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(beside);
    unlink(path);
    return rmdir(folder);
}

static void write_file(const char *text, mode_t mode)
{
    unlink(path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static const uint8_t nothing[LS_SECRET_BYTES];

/* Of a refused file nothing is handed out. */
static void refused(ls_status want, const char *says)
{
    uint8_t secret[LS_SECRET_BYTES];
    memset(secret, 0xaa, sizeof secret);
    const ls_status st = ls_secret_read(path, secret);
    if (st != want || !strstr(ls_last_error(), says)) fail_msg("status %d, '%s', expected %d, '%s'", (int)st, ls_last_error(), (int)want, says);
    assert_memory_equal(secret, nothing, sizeof secret);
}

static void reads_64_digits_of_either_case(void **state)
{
    (void)state;
    static const char *const good[] = { DIGITS, DIGITS "\n", DIGITS "\r\n", "000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F\n" };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        uint8_t secret[LS_SECRET_BYTES];
        write_file(good[i], 0600);
        assert_int_equal(ls_secret_read(path, secret), LS_OK);
        for (uint8_t k = 0; k < LS_SECRET_BYTES; k++) assert_int_equal(secret[k], k);
    }
}

/* Every digit in turn replaced, one too few, one too many. */
static void refuses_whatever_is_not_64_digits(void **state)
{
    (void)state;
    for (size_t at = 0; at < strlen(DIGITS); at++) {
        char text[] = DIGITS "\n";
        text[at] = 'g';
        write_file(text, 0600);
        refused(LS_BAD_FILE, "does not have 64 hex digits");
    }
    write_file(DIGITS "0\n", 0600);
    refused(LS_BAD_FILE, "does not have 64 hex digits");
    write_file(&DIGITS[1], 0600);
    refused(LS_BAD_FILE, "does not have 64 hex digits");
    write_file("", 0600);
    refused(LS_BAD_FILE, "does not have 64 hex digits");
}

static void refuses_a_file_that_others_may_read_or_write(void **state)
{
    (void)state;
    for (mode_t bit = 1; bit <= 040; bit *= 2) {
        write_file(DIGITS "\n", 0600 | bit);
        refused(LS_UNSAFE_MODE, "chmod 600");
    }
}

static int of_another_user(int fd, ls_file_info *out)
{
    const int r = ls_env_real.fd_info(fd, out);
    out->owned = false;
    return r;
}

static void refuses_a_file_of_another_user(void **state)
{
    (void)state;
    ls_env env = ls_env_real;
    env.fd_info = of_another_user;
    write_file(DIGITS "\n", 0600);
    const ls_env *before = ls_context_get()->env;
    ls_context_get()->env = &env;
    refused(LS_UNSAFE_MODE, "belongs to another user");
    ls_context_get()->env = before;
}

static void refuses_links_and_folders(void **state)
{
    (void)state;
    char real[96];
    write_file(DIGITS "\n", 0600);
    assert_int_equal(symlink(path, beside), 0);
    snprintf(real, sizeof real, "%s", path);
    snprintf(path, sizeof path, "%s", beside);
    refused(LS_UNSAFE_PATH, "no regular file");
    snprintf(path, sizeof path, "%s", folder);
    refused(LS_UNSAFE_PATH, "no regular file");
    snprintf(path, sizeof path, "%s", real);
}

/* New ones differ, are their owner's alone whatever the umask, and never replace what is there. */
static void makes_a_new_one_for_its_owner_alone(void **state)
{
    (void)state;
    uint8_t first[LS_SECRET_BYTES], second[LS_SECRET_BYTES];
    struct stat s;
    const mode_t before = umask(0);
    unlink(path);
    assert_int_equal(ls_secret_new(path), LS_OK);
    umask(before);
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_mode & 0777, 0600);
    assert_int_equal(ls_secret_read(path, first), LS_OK);
    assert_int_equal(ls_secret_new(path), LS_IO);
    assert_non_null(strstr(ls_last_error(), "exists already"));
    assert_int_equal(ls_secret_read(path, second), LS_OK);
    assert_memory_equal(first, second, sizeof first);
    unlink(path);
    assert_int_equal(ls_secret_new(path), LS_OK);
    assert_int_equal(ls_secret_read(path, second), LS_OK);
    assert_memory_not_equal(first, second, sizeof first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_64_digits_of_either_case),
        cmocka_unit_test(refuses_whatever_is_not_64_digits),
        cmocka_unit_test(refuses_a_file_that_others_may_read_or_write),
        cmocka_unit_test(refuses_a_file_of_another_user),
        cmocka_unit_test(refuses_links_and_folders),
        cmocka_unit_test(makes_a_new_one_for_its_owner_alone),
    };
    return cmocka_run_group_tests_name("secret", tests, make_folder, remove_folder);
}
