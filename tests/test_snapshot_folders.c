/* ls_snapshot_folder_*: a node's folder in memory is ours alone, is of one run, and does not stay for ever. */
#include "harness_files.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/context.h"
#include "base/env.h"
#include "ckpt/snapshot_folder.h"
#include "lockstep/status.h"

/* The place of snapshots is the test's folder, and time passes a second at a time. */
static const char *dir;
static uint64_t now_ns;
static bool stranger;
static const char *place(const char *name) { return strcmp(name, "LOCKSTEP_SNAPSHOT_DIR") == 0 ? dir : ls_env_real.getenv(name); }
static uint64_t passing(void) { return now_ns += 1000000000u; }
static void no_wait(const uint32_t *word, uint32_t value, ls_pollfd *fds, int n, uint64_t deadline_ns)
{
    (void)word, (void)value, (void)fds, (void)n, (void)deadline_ns;
}
static int info_of_stranger(const char *path, ls_file_info *out)
{
    const int err = ls_env_real.info(path, out);
    if (stranger) out->owned = false;
    return err;
}

static ls_env fake;
static ls_context context;

static int begin(void **state)
{
    make_folder(state);
    dir = *state;
    stranger = false;
    fake = ls_env_real;
    fake.getenv = place;
    fake.mono_ns = passing;
    fake.wait = no_wait;
    fake.info = info_of_stranger;
    context = *ls_context_get();
    context.env = &fake;
    ls_context_swap(&context);
    return 0;
}

static int end(void **state)
{
    ls_context_swap(NULL);
    return remove_folder(state);
}

static ls_snapshot_run run_of(void **state, const char *name)
{
    char path[256];
    ls_snapshot_run run;
    mkdir(inside(state, name, path), 0755);
    assert_int_equal(ls_snapshot_run_read(path, true, &run), LS_OK);
    return run;
}

/* --- runs ------------------------------------------------------------------------------------------ */

static void a_run_has_one_number_and_a_new_folder_another(void **state)
{
    char path[256], id[280], link_[256];
    ls_snapshot_run a, b;
    assert_int_equal(ls_snapshot_run_read(inside(state, "run", path), false, &a), LS_OK);
    assert_string_equal(a.number, ""); /* there is no folder */
    assert_int_equal(ls_snapshot_run_read(path, true, &a), LS_IO);
    mkdir(path, 0755);
    assert_int_equal(ls_snapshot_run_read(path, false, &a), LS_OK);
    assert_string_equal(a.number, "");
    a = run_of(state, "run");
    b = run_of(state, "run");
    assert_int_equal(strlen(a.number), 16);
    assert_string_equal(a.number, b.number);
    assert_int_equal(symlink(path, inside(state, "link", link_)), 0);
    assert_int_equal(ls_snapshot_run_read(link_, false, &b), LS_OK); /* the same run by another path */
    assert_string_equal(a.key, b.key);
    snprintf(id, sizeof id, "%s/run.id", path);
    assert_int_equal(unlink(id), 0);
    b = run_of(state, "run");
    assert_string_equal(a.key, b.key);
    assert_string_not_equal(a.number, b.number);
    spill(id, "0123456789abcdefg\n", 18);
    assert_int_equal(ls_snapshot_run_read(path, false, &b), LS_BAD_FILE);
    assert_string_not_equal(run_of(state, "other").key, a.key);
}

/* --- whose ------------------------------------------------------------------------------------------ */

static void is_open_to_its_user_alone(void **state)
{
    const ls_snapshot_run run = run_of(state, "run");
    char path[LS_SNAPSHOT_PATH_BYTES];
    ls_snapshot_folder f;
    struct stat s;
    assert_int_equal(ls_snapshot_folder_path(&run, 3, path), LS_OK);
    assert_int_equal(ls_snapshot_folder_open(path, &run, &f), LS_OK);
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_mode & 0777, 0700);
    ls_snapshot_folder_remove(&f);
    assert_int_equal(stat(path, &s), -1);
}

static void one_that_others_made_is_refused(void **state)
{
    static const struct { const char *make, *why; } row[] = {
        { "ln -s /tmp '%s'", "is no folder" },
        { "ln -s /nowhere '%s'", "is no folder" },
        { ": >'%s'", "is no folder" },
        { "mkdir -m 0755 '%s'", "is open to other users" },
        { "mkdir -m 0710 '%s'", "is open to other users" },
        { "mkdir -m 0700 '%s'", "belongs to another user" },
    };
    const ls_snapshot_run run = run_of(state, "run");
    char path[LS_SNAPSHOT_PATH_BYTES], command[400];
    assert_int_equal(ls_snapshot_folder_path(&run, 0, path), LS_OK);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_snapshot_folder f;
        snprintf(command, sizeof command, row[i].make, path);
        assert_int_equal(system(command), 0);
        stranger = i == 5;
        assert_int_equal(ls_snapshot_folder_open(path, &run, &f), LS_UNSAFE_PATH);
        assert_non_null(strstr(ls_last_error(), row[i].why));
        assert_int_equal(f.lock, -1);
        stranger = false;
        snprintf(command, sizeof command, "rm -r '%s'", path);
        assert_int_equal(system(command), 0);
    }
}

static void no_place_for_it_is_named(void **state)
{
    const ls_snapshot_run run = run_of(state, "run");
    char path[LS_SNAPSHOT_PATH_BYTES], long_[400];
    ls_snapshot_folder f;
    dir = "/proc/none";
    assert_int_equal(ls_snapshot_folder_path(&run, 0, path), LS_OK);
    assert_int_equal(ls_snapshot_folder_open(path, &run, &f), LS_IO);
    assert_non_null(strstr(ls_last_error(), "no folder for snapshots can be made"));
    memset(long_, 'x', sizeof long_ - 1);
    long_[sizeof long_ - 1] = 0;
    dir = long_;
    assert_int_equal(ls_snapshot_folder_path(&run, 0, path), LS_BAD_CONFIG);
}

/* --- of one run, of one process ------------------------------------------------------------------------ */

static void add_step(const ls_snapshot_folder *f, const char *name)
{
    char command[800];
    snprintf(command, sizeof command, "mkdir -p '%s/%s/sharded' && : >'%s/%s/sharded/x'", f->path, name, f->path, name);
    assert_int_equal(system(command), 0);
}

static void what_another_run_left_is_removed(void **state)
{
    const ls_snapshot_run run = run_of(state, "run");
    ls_snapshot_run again = run;
    char path[LS_SNAPSHOT_PATH_BYTES];
    ls_snapshot_folder f;
    assert_int_equal(ls_snapshot_folder_path(&run, 0, path), LS_OK);
    assert_int_equal(ls_snapshot_folder_open(path, &run, &f), LS_OK);
    add_step(&f, "step-00000007");
    ls_snapshot_folder_close(&f);
    assert_int_equal(ls_snapshot_folder_open(path, &run, &f), LS_OK);
    assert_int_equal(entries(path), 3); /* the same run's stays, beside `lock` and `run` */
    ls_snapshot_folder_close(&f);
    again.number[0] = again.number[0] == '0' ? '1' : '0';
    assert_int_equal(ls_snapshot_folder_open(path, &again, &f), LS_OK);
    assert_int_equal(entries(path), 2);
    ls_snapshot_folder_close(&f);
}

static void clearing_keeps_one_step(void **state)
{
    const ls_snapshot_run run = run_of(state, "run");
    char path[LS_SNAPSHOT_PATH_BYTES], kept[300];
    ls_snapshot_folder f;
    assert_int_equal(ls_snapshot_folder_path(&run, 0, path), LS_OK);
    assert_int_equal(ls_snapshot_folder_open(path, &run, &f), LS_OK);
    add_step(&f, "step-00000007");
    add_step(&f, "step-00000008");
    add_step(&f, ".step-00000009.0123456789abcdef.tmp");
    ls_snapshot_folder_clear(&f, 8);
    assert_int_equal(entries(path), 3);
    snprintf(kept, sizeof kept, "%s/step-00000008/sharded", path);
    assert_int_equal(entries(kept), 1);
    ls_snapshot_folder_clear(&f, -1);
    assert_int_equal(entries(path), 2);
    ls_snapshot_folder_close(&f);
}

static void a_second_process_waits_and_then_gives_up(void **state)
{
    const ls_snapshot_run run = run_of(state, "run");
    char path[LS_SNAPSHOT_PATH_BYTES];
    ls_snapshot_folder first, second;
    assert_int_equal(ls_snapshot_folder_path(&run, 0, path), LS_OK);
    assert_int_equal(ls_snapshot_folder_open(path, &run, &first), LS_OK);
    const uint64_t before = now_ns;
    assert_int_equal(ls_snapshot_folder_open(path, &run, &second), LS_IO);
    assert_non_null(strstr(ls_last_error(), "another process has these snapshots"));
    assert_true(now_ns - before >= LS_SNAPSHOT_LOCK_NS);
    assert_int_equal(ls_snapshot_folder_adopt(&run, &second, 1), 0);
    ls_snapshot_folder_close(&first);
    assert_int_equal(ls_snapshot_folder_open(path, &run, &second), LS_OK);
    ls_snapshot_folder_close(&second);
}

static void folders_that_nobody_has_are_taken_over(void **state)
{
    const ls_snapshot_run run = run_of(state, "run"), other = run_of(state, "other");
    char path[LS_SNAPSHOT_PATH_BYTES];
    ls_snapshot_folder f, held, got[2];
    for (int node = 0; node < 3; node++) {
        assert_int_equal(ls_snapshot_folder_path(&run, node, path), LS_OK);
        assert_int_equal(ls_snapshot_folder_open(path, &run, node == 1 ? &held : &f), LS_OK);
        if (node != 1) ls_snapshot_folder_close(&f);
    }
    assert_int_equal(ls_snapshot_folder_path(&other, 0, path), LS_OK);
    assert_int_equal(ls_snapshot_folder_open(path, &other, &f), LS_OK);
    ls_snapshot_folder_close(&f);
    assert_int_equal(ls_snapshot_folder_adopt(&run, got, 1), 1);
    ls_snapshot_folder_close(&got[0]);
    assert_int_equal(ls_snapshot_folder_adopt(&run, got, 2), 2);
    assert_int_equal(got[0].path[strlen(got[0].path) - 1], '0');
    assert_int_equal(got[1].path[strlen(got[1].path) - 1], '2');
    for (int i = 0; i < 2; i++) ls_snapshot_folder_remove(&got[i]);
    ls_snapshot_folder_close(&held);
}

static void age(const char *path, int64_t seconds)
{
    const struct timespec at = { .tv_sec = (time_t)(ls_env_real.wall_ns() / 1000000000 - seconds) };
    const struct timespec times[] = { at, at };
    assert_int_equal(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW), 0);
}

static void the_sweep_takes_what_is_old_and_nobodys(void **state)
{
    static const struct { const char *run; int64_t seconds; bool held, stays; } row[] = {
        { "fresh", 60, false, true }, { "day", 24 * 3600 - 60, false, true }, { "old", 24 * 3600 + 60, false, false },
        { "alive", 72 * 3600, true, true },
    };
    ls_snapshot_folder f, alive = { .lock = -1 };
    char path[4][LS_SNAPSHOT_PATH_BYTES], link_[256];
    for (size_t i = 0; i < 4; i++) {
        const ls_snapshot_run run = run_of(state, row[i].run);
        assert_int_equal(ls_snapshot_folder_path(&run, 0, path[i]), LS_OK);
        assert_int_equal(ls_snapshot_folder_open(path[i], &run, row[i].held ? &alive : &f), LS_OK);
        add_step(row[i].held ? &alive : &f, "step-00000003");
        if (!row[i].held) ls_snapshot_folder_close(&f);
        age(path[i], row[i].seconds);
    }
    char name[64];
    snprintf(name, sizeof name, "lockstep-%u-link-0", ls_env_real.uid());
    assert_int_equal(symlink("/tmp", inside(state, name, link_)), 0);
    age(link_, 99 * 3600);
    assert_int_equal(ls_snapshot_sweep(), 1);
    for (size_t i = 0; i < 4; i++) {
        struct stat s;
        assert_int_equal(stat(path[i], &s) == 0, row[i].stays);
    }
    ls_snapshot_folder_close(&alive);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_run_has_one_number_and_a_new_folder_another, begin, end),
        cmocka_unit_test_setup_teardown(is_open_to_its_user_alone, begin, end),
        cmocka_unit_test_setup_teardown(one_that_others_made_is_refused, begin, end),
        cmocka_unit_test_setup_teardown(no_place_for_it_is_named, begin, end),
        cmocka_unit_test_setup_teardown(what_another_run_left_is_removed, begin, end),
        cmocka_unit_test_setup_teardown(clearing_keeps_one_step, begin, end),
        cmocka_unit_test_setup_teardown(a_second_process_waits_and_then_gives_up, begin, end),
        cmocka_unit_test_setup_teardown(folders_that_nobody_has_are_taken_over, begin, end),
        cmocka_unit_test_setup_teardown(the_sweep_takes_what_is_old_and_nobodys, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
