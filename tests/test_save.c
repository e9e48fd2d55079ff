/* Saving a run: whichever system call of a save fails, or is the last one that the process makes, the newest whole
 * checkpoint is found and loads, and older ones go only after the new one is durable. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/commit.h"
#include "base/file.h"
#include "data/tokens.h"
#include "harness_disk.h"
#include "lockstep/ckpt.h"
#include "report/rundir.h"
#include "train/trainer.h"

/* --- a run in a folder of its own, two checkpoints of which it keeps ------------------------------------- */

typedef struct fixture {
    ls_train_config c;
    ls_opts *o;
    ls_trainer *t;
} fixture;

static char folder[64];

static int enter(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/lockstep-test-save-XXXXXX");
    disk.parent = "run/checkpoints";
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int leave(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

static void build(fixture *f)
{
    static const char *const set[][2] = { { "model.name", "gpt2" },
                                          { "data.name", "tokens" },        { "data.path", "tokens" },
                                          { "model.vocab_size", "17" },     { "model.seq_len", "8" },
                                          { "model.n_layer", "1" },         { "model.n_head", "1" },
                                          { "model.d_model", "8" },         { "train.global_batch", "2" } };
    *f = (fixture){ 0 };
    assert_int_equal(ls_opts_create(ls_train_opts, ls_train_nopts, &f->c, &f->o), LS_OK);
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        if (ls_opts_set(f->o, set[i][0], set[i][1], "flag") < 0) fail_msg("%s", ls_last_error());
    assert_int_equal(mkdir("tokens", 0777), 0);
    ls_token_writer w;
    assert_int_equal(ls_token_writer_open(&w, "tokens/train.bin", LS_TOKENS_LLMC, 17), LS_OK);
    for (uint32_t i = 0; i < 100; i++) assert_int_equal(ls_token_writer_add(&w, &(uint32_t){ i % 17 }, 1), LS_OK);
    assert_int_equal(ls_token_writer_finish(&w), LS_OK);
    ls_token_writer_close(&w);
    if (ls_trainer_create(&f->c, &f->t) < 0) fail_msg("%s", ls_last_error());
    strcpy(f->t->run_dir, "run");
    f->t->config = strdup("run: { name: test }\n");
    assert_int_equal(ls_mkdirs("run/checkpoints"), LS_OK);
}

static void drop(fixture *f)
{
    ls_trainer_destroy(f->t);
    ls_opts_destroy(f->o);
}

/* Of a step every parameter has the step's number for values. */
static ls_status save(fixture *f, int64_t step)
{
    ls_params *ps = &f->t->par.model->params;
    for (int i = 0; i < ps->n; i++)
        for (int64_t k = 0; k < ls_tensor_count(&ps->item[i].t); k++) ((float *)ps->item[i].t.data)[k] = (float)step;
    f->t->step = step;
    return ls_train_save(f->t);
}

/* Loads what a path leads to, as model.load does, and says which step it is. -1: nothing, or not whole. */
static int64_t step_in(fixture *f, const char *path)
{
    ls_text found = { 0 };
    ls_params *ps = &f->t->par.model->params;
    int64_t step = -1;
    if (ls_rundir_checkpoint(path, &found) == LS_OK && ls_ckpt_load(found.p, ps, true) == LS_OK) {
        step = (int64_t)((float *)ps->item[0].t.data)[0];
        for (int i = 0; i < ps->n; i++)
            for (int64_t k = 0; k < ls_tensor_count(&ps->item[i].t); k++)
                if (((float *)ps->item[i].t.data)[k] != (float)step) step = -2;
    }
    ls_text_free(&found);
    return step;
}

static bool exists(const char *path)
{
    struct stat s;
    return lstat(path, &s) == 0;
}

static void save_two(fixture *f)
{
    assert_int_equal(system("rm -rf run/checkpoints/* run/checkpoints/.step*"), 0);
    f->t->nsaved = 0;
    for (int64_t step = 1; step <= 2; step++)
        if (save(f, step) < 0) fail_msg("%s", ls_last_error());
}

/* --- claims ------------------------------------------------------------------------------------------------ */

static void is_durable_before_it_says_so_and_before_the_older_goes(void **state)
{
    (void)state;
    fixture f;
    build(&f);
    save_two(&f);
    f.t->events_fd = ls_env_real.append("events");
    ls_env env = bad_env();
    ls_context context = { .env = &env, .rank = -1 }, *was = ls_context_swap(&context);
    ls_status st = save(&f, 3);
    ls_context_swap(was);
    assert_int_equal(st, LS_OK);
    const char *named = strrchr(disk.order, 'P'), *durable = strchr(disk.order, 'D');
    assert_non_null(named);
    assert_non_null(durable);
    const char *renamed = named - 1, *removed = strpbrk(disk.order, "uk");
    assert_int_equal(*renamed, 'r'); /* the folder, behind its own flush, */
    assert_int_equal(renamed[-1], 'd');
    assert_true(strrchr(disk.order, 'f') < renamed && strrchr(disk.order, 'w') < renamed); /* behind its files', */
    assert_true(named < durable);                                                          /* before it is said, */
    assert_non_null(removed);
    assert_true(durable < removed); /* and before anything is deleted */
    assert_true(exists("run/checkpoints/step-00000003/config.json"));
    assert_false(exists("run/checkpoints/step-00000001"));
    drop(&f);
}

static void is_found_whole_after_a_crash_at_any_call(void **state)
{
    (void)state;
    fixture f;
    build(&f);
    bool finished = false;
    int crashes = 0, kept = 0;
    for (int at = 0; !finished; at++) {
        save_two(&f);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            ls_env env = bad_env();
            ls_context context = { .env = &env, .rank = -1 };
            disk.fail_at = at;
            disk.dies = true;
            ls_context_swap(&context);
            _exit(save(&f, 3) == LS_OK ? 17 : 18);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 17));
        finished = WEXITSTATUS(status) == 17;
        crashes += !finished;
        const int64_t newest = step_in(&f, "run");
        if (newest != 3 && newest != 2) fail_msg("crash at call %d: the newest is step %lld", at, (long long)newest);
        kept += newest == 2;
        assert_int_equal(step_in(&f, "run/checkpoints/step-00000002"), 2);
        /* what has the new name is whole, and the oldest goes only if the new one is there */
        if (exists("run/checkpoints/step-00000003"))
            assert_int_equal(step_in(&f, "run/checkpoints/step-00000003"), 3);
        if (newest == 2) assert_int_equal(step_in(&f, "run/checkpoints/step-00000001"), 1);
        ls_commit_sweep("run/checkpoints", pid);
        assert_int_equal(system("test -z \"$(find run -name '.*.tmp')\""), 0);
    }
    assert_true(crashes > 15 && kept > 10);
    drop(&f);
}

static void keeps_the_older_ones_whichever_call_fails(void **state)
{
    (void)state;
    fixture f;
    build(&f);
    ls_env env = bad_env();
    ls_context context = { .env = &env, .rank = -1 };
    static const int errors[] = { ENOSPC, EIO };
    int failures = 0;
    for (size_t e = 0; e < sizeof errors / sizeof *errors; e++)
        for (int at = 0;; at++) {
            save_two(&f);
            disk_reset();
            disk.fail_at = at;
            disk.error = errors[e];
            ls_context *was = ls_context_swap(&context);
            ls_status st = save(&f, 3);
            char message[LS_ERROR_BYTES];
            strcpy(message, ls_last_error());
            ls_context_swap(was);
            if (disk.calls <= at) break; /* no call was left to fail */
            const char failed = disk.order[at];
            if (st == LS_OK) { /* a folder that was there already, an older one that stays for now */
                assert_non_null(strchr("muk" "r", failed));
                assert_int_equal(step_in(&f, "run"), 3);
                continue;
            }
            failures++;
            assert_int_equal(st, LS_CKPT_FAILED);
            assert_non_null(strstr(message, strerror(errors[e])));
            assert_non_null(strstr(message, "step-00000003"));
            assert_int_equal(step_in(&f, "run"), failed == 'P' ? 3 : 2); /* it has its name then, whole */
            assert_int_equal(step_in(&f, "run/checkpoints/step-00000002"), 2);
            assert_int_equal(step_in(&f, "run/checkpoints/step-00000001"), 1);
            assert_int_equal(system("test -z \"$(find run -name '.*.tmp')\""), 0);
        }
    assert_true(failures > 20);
    drop(&f);
}

/* A folder of another run, in a checkpoint.dir that both use. */
static void replaces_a_checkpoint_of_the_same_step(void **state)
{
    (void)state;
    fixture f;
    build(&f);
    for (int plain = 0; plain <= 1; plain++) { /* with and without an exchange of names */
        save_two(&f);
        fclose(fopen("run/checkpoints/step-00000002/of-another", "w"));
        f.t->nsaved = 0;
        ls_env env = bad_env();
        disk.no_exchange = plain;
        ls_context context = { .env = &env, .rank = -1 }, *was = ls_context_swap(&context);
        ls_status st = save(&f, 2);
        ls_context_swap(was);
        assert_int_equal(st, LS_OK);
        assert_int_equal(step_in(&f, "run"), 2);
        assert_false(exists("run/checkpoints/step-00000002/of-another"));
        assert_int_equal(system("test -z \"$(find run -name '.*.tmp')\""), 0);
    }
    drop(&f);
}

static void skips_folders_that_are_not_whole(void **state)
{
    (void)state;
    static const char *const spoil[] = {
        "mkdir run/checkpoints/step-00000003",
        "mkdir run/checkpoints/step-00000003 && : >run/checkpoints/step-00000003/model.safetensors",
        ("cp -r run/checkpoints/step-00000002 run/checkpoints/step-100000000 && "
         "truncate -s -1 run/checkpoints/step-100000000/sharded/*"),
        "cp -r run/checkpoints/step-00000001 run/checkpoints/step-00000009.old", /* no step */
        "cp -r run/checkpoints/step-00000001 run/checkpoints/.step-00000009.0123456701234567.tmp",
    };
    fixture f;
    build(&f);
    for (size_t i = 0; i < sizeof spoil / sizeof *spoil; i++) {
        save_two(&f);
        assert_int_equal(system(spoil[i]), 0);
        assert_int_equal(step_in(&f, "run"), 2);
    }
    assert_int_equal(system("rm run/checkpoints/*/manifest.json"), 0);
    ls_text found = { 0 };
    assert_int_equal(ls_rundir_checkpoint("run", &found), LS_BAD_FILE);
    ls_text_free(&found);
    drop(&f);
}

static void keeps_as_many_as_it_is_told_to(void **state)
{
    (void)state;
    fixture f;
    build(&f);
    f.c.checkpoint.keep = INT64_C(1) << 32; /* 0 as an int */
    for (int64_t step = 1; step <= 4; step++) assert_int_equal(save(&f, step), LS_OK);
    for (int64_t step = 1; step <= 4; step++) {
        char path[64];
        snprintf(path, sizeof path, "run/checkpoints/step-%08lld", (long long)step);
        assert_int_equal(step_in(&f, path), step);
    }
    drop(&f);
}

/* A launcher removes what a rank that it killed left, and nothing else. */
static void sweeps_what_one_process_left(void **state)
{
    (void)state;
    assert_int_equal(system("touch .a.0123abcd00000041.tmp .a.0123abcd00000042.tmp a.0123abcd00000041.tmp .a.00000041.tmp"
                            " .a.0123abcX00000041.tmp .0123abcd00000041.tmp '.b c.ffffffff00000041.tmp' a &&"
                            " mkdir .d.0123abcd00000041.tmp && touch .d.0123abcd00000041.tmp/.a.0123abcd00000041.tmp"),
                     0);
    assert_int_equal(ls_commit_sweep(".", 0x41), 3);
    assert_false(exists(".a.0123abcd00000041.tmp"));
    assert_false(exists(".b c.ffffffff00000041.tmp"));
    assert_false(exists(".d.0123abcd00000041.tmp"));
    assert_true(exists(".a.0123abcd00000042.tmp") && exists("a.0123abcd00000041.tmp") && exists(".a.00000041.tmp") &&
                exists(".a.0123abcX00000041.tmp") && exists(".0123abcd00000041.tmp") && exists("a"));
    assert_int_equal(ls_commit_sweep("absent", 0x41), 0);
}

/* Another rank, that still writes: each time the folder is listed, one more file comes, 3 in all. */
static int (*list_of_env)(const char *path, char *names, size_t n);
static int coming;

static int list_and_write(const char *path, char *names, size_t n)
{
    const int count = list_of_env(path, names, n);
    char file[100];
    snprintf(file, sizeof file, "%s/shard-%d", path, coming);
    if (coming > 0 && coming-- > 0) fclose(fopen(file, "w"));
    return count;
}

static void a_folder_goes_while_others_write_in_it(void **state)
{
    (void)state;
    ls_env slow = *ls_env_get();
    list_of_env = slow.list;
    slow.list = list_and_write;
    assert_int_equal(system("mkdir -p a/b && touch a/c a/b/d"), 0);
    coming = 3;
    ls_context context = { .env = &slow, .rank = -1 }, *was = ls_context_swap(&context);
    ls_remove_folder("a");
    ls_context_swap(was);
    assert_false(exists("a"));
    assert_int_equal(coming, 0);
}

/* Results are shared as the user's umask says, secrets are not. */
static void follows_the_umask(void **state)
{
    (void)state;
    static const struct { mode_t mask, file, dir; } row[] = {
        { 022, 0644, 0755 }, { 027, 0640, 0750 }, { 077, 0600, 0700 },
    };
    fixture f;
    build(&f);
    const mode_t was = umask(022);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct stat s;
        umask(row[i].mask);
        assert_int_equal(save(&f, 100 + (int64_t)i), LS_OK);
        char path[96];
        snprintf(path, sizeof path, "run/checkpoints/step-%08zu", 100 + i);
        assert_int_equal(stat(path, &s), 0);
        assert_int_equal(s.st_mode & 07777, row[i].dir);
        static const char *const files[] = { "manifest.json", "config.json",
                                             "sharded/shard-00001-model-00001-of-00001.safetensors" };
        for (int k = 0; k < 3; k++) {
            char file[128];
            snprintf(file, sizeof file, "%s/%s", path, files[k]);
            assert_int_equal(stat(file, &s), 0);
            assert_int_equal(s.st_mode & 07777, row[i].file);
        }
        int fd = ls_env_real.append("metrics.jsonl");
        assert_int_equal(fstat(fd, &s), 0);
        assert_int_equal(s.st_mode & 07777, row[i].file);
        close(fd);
        unlink("metrics.jsonl");
        fd = ls_env_real.create_secret("secret");
        assert_int_equal(fstat(fd, &s), 0);
        assert_int_equal(s.st_mode & 07777, 0600);
        close(fd);
        unlink("secret");
    }
    umask(was);
    drop(&f);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, enter, leave)
    const struct CMUnitTest tests[] = {
        TEST(is_durable_before_it_says_so_and_before_the_older_goes),
        TEST(is_found_whole_after_a_crash_at_any_call),
        TEST(keeps_the_older_ones_whichever_call_fails),
        TEST(replaces_a_checkpoint_of_the_same_step),
        TEST(skips_folders_that_are_not_whole),
        TEST(keeps_as_many_as_it_is_told_to),
        TEST(sweeps_what_one_process_left),
        TEST(a_folder_goes_while_others_write_in_it),
        TEST(follows_the_umask),
    };
    return cmocka_run_group_tests_name("save", tests, NULL, NULL);
}
