/* rundir: folders are made with their parents, and one that has something in it is never used again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "report/rundir.h"

static int enter_folder(void **state)
{
    char *path = strdup("/tmp/lockstep-test-XXXXXX");
    *state = path;
    return mkdtemp(path) && chdir(path) == 0 ? 0 : -1;
}

static int leave_folder(void **state)
{
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", (char *)*state);
    free(*state);
    return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static void makes_parents_too(void **state)
{
    (void)state;
    static const char *const row[] = { "a", "a/b/c", "a/b/c", "./d//e/", "/tmp" };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        assert_int_equal(ls_mkdirs(row[i]), LS_OK);
        assert_true(is_folder(row[i]));
    }
    assert_int_equal(symlink("a", "link"), 0); /* people have such scratch disks */
    assert_int_equal(ls_mkdirs("link/f"), LS_OK);
    assert_true(is_folder("a/f"));
}

static void names_the_part_that_is_in_the_way(void **state)
{
    (void)state;
    fclose(fopen("file", "w"));
    assert_int_equal(ls_mkdirs("file/b"), LS_IO);
    assert_non_null(strstr(ls_last_error(), "making the folder file: Not a directory"));
    assert_int_equal(ls_mkdirs("file"), LS_IO);
    assert_int_equal(ls_mkdirs("/proc/none/b"), LS_IO);
    assert_non_null(strstr(ls_last_error(), "/proc/none"));
    assert_int_equal(ls_mkdirs(""), LS_BAD_CONFIG);
}

static void appends_a_number_to_a_folder_that_exists(void **state)
{
    (void)state;
    static const struct { const char *dir, *name, *want; } row[] = {
        { "", "run", "runs/run" },     { "", "run", "runs/run-2" },   { "", "run", "runs/run-3" },
        { "", "file", "runs/file-2" }, /* a file is in the way like a folder */
        { "x/y", "run", "x/y" },       { "empty/", "run", "empty" },  { "link", "run", "link" },
    };
    char out[256], sub[300];
    assert_int_equal(ls_mkdirs("runs"), LS_OK);
    fclose(fopen("runs/file", "w"));
    assert_int_equal(ls_mkdirs("empty"), LS_OK);
    assert_int_equal(ls_mkdirs("target"), LS_OK);
    assert_int_equal(symlink("target", "link"), 0);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        assert_int_equal(ls_rundir_create(row[i].dir, row[i].name, out, sizeof out), LS_OK);
        assert_string_equal(out, row[i].want);
        snprintf(sub, sizeof sub, "%s/checkpoints", out);
        assert_true(is_folder(sub));
    }
}

static void refuses_a_folder_that_is_given_and_exists(void **state)
{
    (void)state;
    static const struct { const char *dir, *says; } row[] = {
        { "full", "run.dir full exists already and holds a file: a run is never overwritten" },
        { "full//", "run.dir full exists already" },
        { "hidden", "and holds .hidden:" },
        { "many", "and holds a and more:" },
        { "link", "run.dir link exists already and holds a file" },
        { "a-file", "run.dir a-file exists already, and is no folder" },
        { "dangling", "run.dir dangling exists already, and is no folder" },
    };
    char out[256], name[300];
    assert_int_equal(ls_mkdirs("full"), LS_OK);
    assert_int_equal(ls_mkdirs("hidden"), LS_OK);
    assert_int_equal(ls_mkdirs("many"), LS_OK);
    fclose(fopen("full/a file", "w"));
    fclose(fopen("hidden/.hidden", "w"));
    fclose(fopen("a-file", "w"));
    fclose(fopen("many/a", "w"));
    for (int i = 0; i < 2; i++) { /* more than the room for names */
        snprintf(name, sizeof name, "many/b%0200d", i);
        fclose(fopen(name, "w"));
    }
    assert_int_equal(symlink("full", "link"), 0);
    assert_int_equal(symlink("nowhere", "dangling"), 0);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        assert_int_equal(ls_rundir_create(row[i].dir, "run", out, sizeof out), LS_BAD_CONFIG);
        if (!strstr(ls_last_error(), row[i].says)) fail_msg("%s", ls_last_error());
        assert_non_null(strstr(ls_last_error(), "Give a --run.dir that does not exist or is empty, or leave it out"));
        assert_int_equal(ls_rundir_check(row[i].dir), LS_BAD_CONFIG);
        snprintf(name, sizeof name, "%s-2", row[i].dir);
        assert_false(is_folder(name));
    }
    assert_false(is_folder("full/checkpoints"));
    assert_int_equal(ls_rundir_check(""), LS_OK);
    assert_int_equal(ls_rundir_check("none"), LS_OK);
    assert_false(is_folder("none"));
}

static void refuses_names_that_are_too_long(void **state)
{
    (void)state;
    char name[600], out[256];
    memset(name, 'n', sizeof name);
    name[599] = 0;
    assert_int_equal(ls_rundir_create("", name, out, sizeof out), LS_BAD_CONFIG);
    assert_int_equal(ls_rundir_create(name, "run", out, sizeof out), LS_BAD_CONFIG);
    assert_non_null(strstr(ls_last_error(), "at most 248 bytes"));
    assert_int_equal(ls_mkdirs(name), LS_BAD_CONFIG);
    name[200] = 0;
    assert_int_equal(ls_rundir_create(name, "run", out, sizeof out), LS_OK);
}

static void removes_a_folder_and_folders_of_files_in_it(void **state)
{
    (void)state;
    assert_int_equal(ls_mkdirs("flat/sharded"), LS_OK);
    assert_int_equal(ls_mkdirs("deep/er/still"), LS_OK);
    assert_int_equal(ls_mkdirs("kept"), LS_OK);
    fclose(fopen("kept/a", "w"));
    assert_int_equal(symlink("../kept", "flat/link"), 0);
    fclose(fopen("flat/sharded/c", "w"));
    fclose(fopen("deep/er/still/a", "w"));
    fclose(fopen("flat/a", "w"));
    fclose(fopen("flat/b", "w"));
    ls_remove_folder("flat");
    ls_remove_folder("deep");
    ls_remove_folder("none");
    assert_false(is_folder("flat"));
    assert_int_equal(access("deep/er/still/a", F_OK), 0); /* a folder too deep */
    assert_int_equal(access("kept/a", F_OK), 0);          /* what a link led to */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(makes_parents_too, enter_folder, leave_folder),
        cmocka_unit_test_setup_teardown(names_the_part_that_is_in_the_way, enter_folder, leave_folder),
        cmocka_unit_test_setup_teardown(appends_a_number_to_a_folder_that_exists, enter_folder, leave_folder),
        cmocka_unit_test_setup_teardown(refuses_a_folder_that_is_given_and_exists, enter_folder, leave_folder),
        cmocka_unit_test_setup_teardown(refuses_names_that_are_too_long, enter_folder, leave_folder),
        cmocka_unit_test_setup_teardown(removes_a_folder_and_folders_of_files_in_it, enter_folder, leave_folder),
    };
    return cmocka_run_group_tests_name("rundir", tests, NULL, NULL);
}
