/* Files that are written past the system's cache: the same bytes at the end, whatever the file system can do and
 * however they come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <errno.h>
#include <unistd.h>

#include "base/commit.h"
#include "base/context.h"
#include "base/env.h"
#include "base/file.h"
#include "ckpt/save.h"

#define MIB   ((size_t)1 << 20)
#define LARGE (8 * MIB)  /* files of so many bytes go past the cache */
#define MOST  (11 * MIB)

static char path[64];
static unsigned char *bytes; /* [MOST] */

static int enter(void **state)
{
    (void)state;
    strcpy(path, "/var/tmp/lockstep-test-commit-XXXXXX"); /* on a disk, where /tmp may be memory */
    bytes = malloc(MOST);
    for (size_t i = 0; bytes && i < MOST; i++) bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    return bytes && mkdtemp(path) && strlen(strcat(path, "/file")) < sizeof path ? 0 : -1;
}

static int leave(void **state)
{
    (void)state;
    free(bytes);
    *strrchr(path, '/') = 0;
    return rmdir(path);
}

/* --- a file system of our own ------------------------------------------------------------------------------ */

static struct {
    bool refuses;       /* no writes past the cache */
    bool on;            /* this file's go past it */
    int direct, cached; /* writes of either kind */
    int at;             /* this one of the first kind ... */
    int error;          /* ... fails so, or */
    size_t takes;       /* takes so many bytes; 0: all */
    bool stays;         /* the cache cannot be used again */
} disk;

static int uncached(int fd, bool on)
{
    if (disk.refuses && on) return -EINVAL;
    if (disk.stays && !on) return -EIO;
    disk.on = on;
    (void)fd; /* not the real one, which a file system may lack */
    return 0;
}

static ssize_t write_some(int fd, const void *p, size_t n)
{
    if (!disk.on) {
        disk.cached++;
        return ls_env_real.write(fd, p, n);
    }
    assert_int_equal((uintptr_t)p % 4096, 0);
    assert_int_equal(n % 4096, 0);
    if (disk.direct++ != disk.at) return ls_env_real.write(fd, p, n);
    if (disk.error) return -disk.error;
    return ls_env_real.write(fd, p, disk.takes ? disk.takes : n);
}

static ls_env env;
static ls_context context = { .env = &env, .rank = -1 }, *was;

static int use_disk(void **state)
{
    (void)state;
    env = ls_env_real;
    env.uncached = uncached;
    env.write = write_some;
    memset(&disk, 0, sizeof disk);
    disk.at = -1;
    was = ls_context_swap(&context);
    return 0;
}

static int leave_disk(void **state)
{
    (void)state;
    ls_context_swap(was);
    return 0;
}

/* Writes n bytes in pieces, and the first 100 of them again at the end, as a header is. */
static ls_status put(size_t expected, size_t n, size_t piece)
{
    ls_commit *c;
    LS_TRY(ls_commit_create(path, &c));
    ls_commit_expect(c, expected);
    ls_status st = LS_OK;
    for (size_t at = 0; st == LS_OK && at < n; at += piece)
        st = ls_commit_write(c, bytes + at + (at < 100 ? 1 : 0), n - at < piece ? n - at : piece);
    if (st == LS_OK) st = ls_commit_rewrite(c, 0, bytes, piece);
    if (st == LS_OK) st = ls_commit_finish(c);
    ls_commit_destroy(c);
    return st;
}

/* The same at once, and no header. */
static ls_status put_plainly(size_t n)
{
    ls_commit *c;
    LS_TRY(ls_commit_create(path, &c));
    ls_commit_expect(c, n);
    ls_status st = ls_commit_write(c, bytes, n);
    if (st == LS_OK) st = ls_commit_finish(c);
    ls_commit_destroy(c);
    return st;
}

static void holds(size_t n)
{
    char *text = NULL;
    size_t found = 0;
    assert_int_equal(ls_file_read(path, MOST, &text, &found), LS_OK);
    assert_int_equal(found, n);
    assert_memory_equal(text, bytes, n);
    free(text);
    assert_int_equal(remove(path), 0);
}

/* --- claims ------------------------------------------------------------------------------------------------ */

static void a_large_file_goes_past_the_cache_in_whole_blocks(void **state)
{
    (void)state;
    static const size_t pieces[] = { 100, 4096, 999983, MIB, 3 * MIB + 1 };
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        disk.direct = disk.cached = 0;
        assert_int_equal(put(LARGE + 5, LARGE + 5, pieces[i]), LS_OK);
        assert_int_equal(disk.direct, 8);
        assert_int_equal(disk.cached, 1); /* the last five bytes */
        assert_false(disk.on);
        holds(LARGE + 5);
    }
}

static void the_real_disk_has_the_same_bytes(void **state)
{
    (void)state;
    assert_int_equal(put(MOST - 7, MOST - 7, 999983), LS_OK);
    holds(MOST - 7);
    assert_int_equal(put_plainly(MOST - 7), LS_OK);
    holds(MOST - 7);
}

static void a_small_file_and_an_old_file_system_use_the_cache(void **state)
{
    (void)state;
    assert_int_equal(put(LARGE - 1, LARGE - 1, MIB), LS_OK);
    assert_int_equal(disk.direct, 0);
    holds(LARGE - 1);
    disk.refuses = true;
    assert_int_equal(put(LARGE, LARGE, MIB), LS_OK);
    assert_int_equal(disk.direct, 0);
    holds(LARGE);
}

static void a_wrong_expectation_costs_nothing(void **state)
{
    (void)state;
    static const size_t n[] = { 1, 100, MIB, LARGE };
    for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
        assert_int_equal(put(LARGE, n[i], n[i] < 100 ? n[i] : 100), LS_OK);
        holds(n[i]);
    }
    assert_int_equal(put(LARGE, MOST - 1, MIB), LS_OK);
    holds(MOST - 1);
}

static void a_disk_that_takes_a_part_goes_on_through_the_cache(void **state)
{
    (void)state;
    static const size_t takes[] = { 1, 4096, 5000, MIB - 1 };
    for (disk.at = 0; disk.at < 8; disk.at++)
        for (size_t i = 0; i <= sizeof takes / sizeof *takes; i++) {
            disk.error = i == 4 ? EINVAL : 0;
            disk.takes = i < 4 ? takes[i] : 0;
            disk.direct = 0;
            assert_int_equal(put(LARGE + 5, LARGE + 5, MIB), LS_OK);
            assert_int_equal(disk.direct, disk.at + 1);
            holds(LARGE + 5);
        }
}

static void a_disk_that_fails_says_so_and_leaves_nothing(void **state)
{
    (void)state;
    for (disk.at = 0; disk.at < 8; disk.at += 7) {
        disk.error = ENOSPC;
        disk.direct = 0;
        assert_int_equal(put(LARGE, LARGE, MIB), LS_IO);
        assert_non_null(strstr(ls_last_error(), "cannot be written: No space left on device"));
    }
    disk.at = -1;
    disk.stays = true;
    assert_int_equal(put(LARGE + 1, LARGE + 1, MIB), LS_IO);
    assert_non_null(strstr(ls_last_error(), "cannot be written through the cache: Input/output error"));
    char parent[64], names[256];
    snprintf(parent, sizeof parent, "%s", path);
    *strrchr(parent, '/') = 0;
    assert_int_equal(ls_env_real.list(parent, names, sizeof names), 0);
}

static void a_checkpoint_of_large_tensors_goes_past_the_cache(void **state)
{
    (void)state;
    const ls_tensor t = { .dtype = LS_F32, .ndim = 1, .dim = { LARGE / 4 }, .data = bytes };
    const ls_ckpt_item item = { .name = "w", .from = &t, .dtype = LS_F32 };
    assert_int_equal(ls_ckpt_write(path, &item, 1, NULL), LS_OK);
    assert_int_equal(disk.direct, 8);
    assert_int_equal(remove(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_large_file_goes_past_the_cache_in_whole_blocks, use_disk, leave_disk),
        cmocka_unit_test(the_real_disk_has_the_same_bytes),
        cmocka_unit_test_setup_teardown(a_small_file_and_an_old_file_system_use_the_cache, use_disk, leave_disk),
        cmocka_unit_test_setup_teardown(a_wrong_expectation_costs_nothing, use_disk, leave_disk),
        cmocka_unit_test_setup_teardown(a_disk_that_takes_a_part_goes_on_through_the_cache, use_disk, leave_disk),
        cmocka_unit_test_setup_teardown(a_disk_that_fails_says_so_and_leaves_nothing, use_disk, leave_disk),
        cmocka_unit_test_setup_teardown(a_checkpoint_of_large_tensors_goes_past_the_cache, use_disk, leave_disk),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
