/* file: whole files, and whether two are the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"

#define MOST 200000 /* longer than what is compared at a time */

static char folder[64];
static char bytes[MOST];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/lockstep-test-file-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char path[96];
    for (const char *name = "ab"; *name; name++) {
        snprintf(path, sizeof path, "%s/%c", folder, *name);
        unlink(path);
    }
    return rmdir(folder);
}

static const char *path_of(char name, char path[96])
{
    snprintf(path, 96, "%s/%c", folder, name);
    return path;
}

static void two_files_are_the_same_when_every_byte_is(void **state)
{
    (void)state;
    char a[96], b[96];
    bool same;
    for (size_t i = 0; i < MOST; i++) bytes[i] = (char)(i * 31 >> 3);
    assert_int_equal(ls_file_write(path_of('a', a), bytes, MOST), LS_OK);
    assert_int_equal(ls_file_write(path_of('b', b), bytes, MOST), LS_OK);
    assert_int_equal(ls_file_same(a, b, &same), LS_OK);
    assert_true(same);
    static const size_t at[] = { 0, 65535, 65536, 131072, MOST - 1 };
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        bytes[at[i]] ^= 1;
        assert_int_equal(ls_file_write(b, bytes, MOST), LS_OK);
        bytes[at[i]] ^= 1;
        assert_int_equal(ls_file_same(a, b, &same), LS_OK);
        if (same) fail_msg("byte %zu differs, and is not seen", at[i]);
    }
    assert_int_equal(ls_file_write(b, bytes, MOST - 1), LS_OK);
    assert_int_equal(ls_file_same(a, b, &same), LS_OK);
    assert_false(same);
    unlink(b);
    assert_int_equal(ls_file_same(a, b, &same), LS_OK);
    assert_false(same);
}

static void reads_what_was_written_and_no_more_than_the_limit(void **state)
{
    (void)state;
    char a[96], *data;
    size_t n;
    assert_int_equal(ls_file_write(path_of('a', a), bytes, MOST), LS_OK);
    assert_int_equal(ls_file_read(a, MOST, &data, &n), LS_OK);
    assert_int_equal(n, MOST);
    assert_memory_equal(data, bytes, MOST);
    assert_int_equal(data[MOST], 0);
    free(data);
    assert_int_equal(ls_file_read(a, MOST - 1, &data, &n), LS_BAD_FILE);
    assert_null(data);
    assert_non_null(strstr(ls_last_error(), "at most 199999 are accepted"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_files_are_the_same_when_every_byte_is),
        cmocka_unit_test(reads_what_was_written_and_no_more_than_the_limit),
    };
    return cmocka_run_group_tests_name("file", tests, make_folder, remove_folder);
}
