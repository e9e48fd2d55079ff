/* ls_checkpoint_*, and ls_state_save where it fails: no flipped bit, cut file, exchanged shard or foreign file passes
 * for a checkpoint; a save that fails on one rank fails on all, and leaves the older checkpoint and nothing else. */
#include "harness_files.h"
#include "harness_replica.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/context.h"
#include "base/env.h"
#include "base/hash.h"
#include "base/limits.h"
#include "ckpt/manifest.h"

static const int64_t dims[] = { 7, 5, 3 };

/* --- checkpoints to damage --------------------------------------------------------------------------- */

static _Atomic int failed; /* ranks whose save has failed */

typedef struct job {
    const char *folder;
    int64_t step;
    uint64_t seed;
    int stage;
    const ls_env *env; /* of the rank `failing`; NULL: the real one */
    int failing;
    const int64_t *dims; /* NULL: the ones above */
    size_t own;          /* bytes that rank 0 saves besides; 0: none */
} job;

static ls_status save(ls_world *w, void *arg)
{
    const job *j = arg;
    const ls_ddp_config ddp = { .zero_stage = j->stage };
    const ls_replica_config c = { .dims = j->dims ? j->dims : dims, .ndims = COUNT(dims), .seed = j->seed, .ddp = &ddp,
                                  .optim = "adamw", .rows = ROWS };
    ls_replica r;
    ls_state *state;
    char *own = calloc(j->own + 1, 1);
    LS_EXPECT(own, "memory");
    LS_TRY(ls_replica_create(w, &c, &r));
    LS_TRY(ls_replica_pass(&r, j->seed, 0, ROWS, true, 1.0f, NULL));
    LS_TRY(ls_optim_step(r.optim));
    LS_TRY(ls_ddp_after_step(r.ddp));
    LS_TRY(ls_state_create(ls_world_group(w), &state));
    LS_TRY(ls_state_add_model(state, &r.model->params, r.optim));
    if (j->own) LS_TRY(ls_state_add(state, "own", own, j->own));
    const ls_env *before = ls_env_get();
    if (j->env && ls_world_rank(w) == j->failing) ls_context_get()->env = j->env;
    const ls_status st = ls_state_save(state, j->folder, j->step);
    ls_context_get()->env = before;
    failed += st == LS_CKPT_FAILED;
    if (j->env) {
        char why[512];
        snprintf(why, sizeof why, "%s", ls_last_error());
        (void)ls_barrier(ls_world_group(w)); /* training could go on; the first to return ends the job */
        if (st < 0) (void)ls_fail(st, "%s", why);
    }
    ls_state_destroy(state);
    ls_replica_destroy(&r);
    free(own);
    return st;
}

static void sh(const char *format, const char *a, const char *b)
{
    char command[1024];
    snprintf(command, sizeof command, format, a, b);
    assert_int_equal(system(command), 0);
}

static void make(const char *folder, int64_t step, uint64_t seed, int ranks)
{
    job j = { .folder = folder, .step = step, .seed = seed, .stage = ranks > 1 ? 3 : 0 };
    expect(ls_test_ranks(LS_TEST_THREADS, ranks, NULL, save, &j));
}

/* What a reader who wants all of it gets. */
static ls_status check(const char *folder)
{
    ls_checkpoint *s;
    ls_status st = ls_checkpoint_open(folder, &s);
    if (st == LS_OK) st = ls_checkpoint_verify(s, 0, 1);
    ls_checkpoint_close(s);
    return st;
}

static void refused(const char *folder, ls_status status, const char *says)
{
    if (check(folder) != status) fail_msg("'%s', expected %s: '%s'", ls_last_error(), ls_status_word(status), says);
    if (!strstr(ls_last_error(), says)) fail_msg("'%s' does not say '%s'", ls_last_error(), says);
}

static const char *const file[] = { "manifest.json", "sharded/shard-00001-model-00001-of-00001.safetensors",
                                    "sharded/shard-00002-model-00001-of-00001.safetensors" };

/* --- damage ---------------------------------------------------------------------------------------------- */

static void every_flipped_bit_is_found(void **state)
{
    char folder[256], path[400];
    make(inside(state, "whole", folder), 10, 1, 2);
    assert_int_equal(check(folder), LS_OK);
    for (size_t i = 0; i < COUNT(file); i++) {
        size_t n;
        snprintf(path, sizeof path, "%s/%s", folder, file[i]);
        unsigned char *p = slurp(path, &n);
        for (size_t at = 0; at < n; at++) {
            p[at] ^= (unsigned char)(1u << at % 8);
            spill(path, p, n);
            const ls_status st = check(folder);
            p[at] ^= (unsigned char)(1u << at % 8);
            if (st == LS_OK) fail_msg("%s: bit %zu of byte %zu was flipped, and nobody noticed", file[i], at % 8, at);
        }
        spill(path, p, n);
        free(p);
    }
    assert_int_equal(check(folder), LS_OK);
}

/* Data are checked where they are read, too, without a reader who goes through all of it. */
static void a_flipped_bit_of_data_is_found_by_a_read(void **state)
{
    char folder[256], path[400];
    size_t n;
    float values[5 * 7];
    ls_checkpoint *s;
    make(inside(state, "whole", folder), 10, 1, 2);
    snprintf(path, sizeof path, "%s/%s", folder, file[2]);
    unsigned char *p = slurp(path, &n);
    p[n - 1] ^= 1;
    spill(path, p, n);
    free(p);
    assert_int_equal(ls_checkpoint_open(folder, &s), LS_OK);
    assert_int_equal(ls_checkpoint_read(s, ls_checkpoint_find(s, "0.weight"), NULL, NULL, values), LS_CKPT_CORRUPT);
    assert_non_null(strstr(ls_last_error(), "shard-00002"));
    assert_non_null(strstr(ls_last_error(), "changed after they were saved"));
    ls_checkpoint_close(s);
}

static void every_cut_is_found(void **state)
{
    char folder[256], path[400];
    make(inside(state, "whole", folder), 10, 1, 2);
    for (size_t i = 0; i < COUNT(file); i++) {
        size_t n;
        snprintf(path, sizeof path, "%s/%s", folder, file[i]);
        unsigned char *p = slurp(path, &n);
        for (size_t at = 0; at < n; at++) {
            spill(path, p, at);
            if (check(folder) == LS_OK) fail_msg("%s: cut after %zu of %zu bytes, and nobody noticed", file[i], at, n);
        }
        p[n] = 0;
        spill(path, p, n + 1);
        if (check(folder) == LS_OK) fail_msg("%s: has a byte more, and nobody noticed", file[i]);
        spill(path, p, n);
        free(p);
    }
}

static void files_of_another_rank_or_save_are_refused(void **state)
{
    char folder[256], other[256], a[400], b[400];
    make(inside(state, "whole", folder), 10, 1, 2);
    make(inside(state, "other", other), 10, 1, 2); /* the same step, values and sizes: another save */
    snprintf(a, sizeof a, "%s/%s", folder, file[1]);
    snprintf(b, sizeof b, "%s/%s", folder, file[2]);
    sh("cd '%s/sharded' && mv %s x && mv shard-00002-* shard-00001-model-00001-of-00001.safetensors && "
       "mv x shard-00002-model-00001-of-00001.safetensors", folder, "shard-00001-*");
    assert_int_equal(check(folder), LS_CKPT_CORRUPT);
    sh("cd '%s/sharded' && mv %s x && mv shard-00002-* shard-00001-model-00001-of-00001.safetensors && "
       "mv x shard-00002-model-00001-of-00001.safetensors", folder, "shard-00001-*");
    assert_int_equal(check(folder), LS_OK);
    for (size_t i = 1; i < COUNT(file); i++) {
        snprintf(a, sizeof a, "%s/%s", folder, file[i]);
        snprintf(b, sizeof b, "%s/%s", other, file[i]);
        sh("mv '%s' '%s.kept'", a, *state);
        sh("cp '%s' '%s'", b, a);
        refused(folder, LS_CKPT_CORRUPT, "of another save or rank");
        sh("mv '%s.kept' '%s'", *state, a);
    }
    assert_int_equal(check(folder), LS_OK);
}

static void missing_and_foreign_files_are_named(void **state)
{
    char folder[256], a[400];
    make(inside(state, "whole", folder), 10, 1, 2);
    snprintf(a, sizeof a, "%s/%s", folder, file[2]);
    sh("mv '%s' '%s/kept'", a, *state);
    refused(folder, LS_CKPT_CORRUPT, "shard-00002-model-00001-of-00001.safetensors: is missing, and the manifest names it");
    sh("ln -s '%s/kept' '%s'", *state, a);
    refused(folder, LS_UNSAFE_PATH, "is not a regular file");
    sh("rm '%s' && mkfifo '%s'", a, a);
    refused(folder, LS_UNSAFE_PATH, "is not a regular file");
}

static void a_third_ranks_file_is_refused(void **state)
{
    char folder[256];
    make(inside(state, "whole", folder), 10, 1, 2);
    sh("cd '%s/sharded' && cp shard-00002-* shard-00003-model-00001-of-00001.safetensors %s", folder, "");
    refused(folder, LS_CKPT_CORRUPT, "shard-00003-model-00001-of-00001.safetensors: is not in the manifest");
}

static void a_folder_without_a_manifest_is_not_a_checkpoint(void **state)
{
    char folder[256];
    refused(*state, LS_BAD_FILE, "has no manifest.json");
    inside(state, "nowhere", folder);
    refused(folder, LS_BAD_FILE, "has no manifest.json");
}

/* The files of another program have no manifest; what can be checked without one is. */
static void without_a_manifest_elements_must_be_there_once(void **state)
{
    char folder[256];
    ls_checkpoint *s;
    make(inside(state, "whole", folder), 10, 1, 2);
    sh("rm '%s/%s'", folder, file[0]);
    assert_int_equal(ls_checkpoint_open(folder, &s), LS_OK);
    assert_false(ls_checkpoint_has_manifest(s));
    assert_int_equal(ls_checkpoint_count(s), 4 * 4 + 1);
    ls_checkpoint_close(s);
    sh("cd '%s/sharded' && cp shard-00002-* shard-00003-model-00001-of-00001.safetensors %s", folder, "");
    refused(folder, LS_BAD_FILE, "has the same elements in");
    sh("rm '%s'/sharded/shard-0000[13]-* %s", folder, "");
    refused(folder, LS_BAD_FILE, "a rank's file is missing");
}

/* --- a manifest whose digest fits, and that lies --------------------------------------------------------- */

/* Writes the manifest of `folder` with `was` replaced by `now`, and a digest that fits. */
static void forge(const char *folder, const char *was, const char *now)
{
    char path[400];
    size_t n;
    ls_digest *d = ls_digest_create();
    char hex[33];
    ls_text text = { 0 };
    snprintf(path, sizeof path, "%s/%s", folder, file[0]);
    char *p = (char *)slurp(path, &n);
    p[n] = 0;
    char *at = strstr(p, was);
    if (!at) fail_msg("the manifest has no '%s': %s", was, p);
    ls_text_addn(&text, p, (size_t)(at - p));
    ls_text_add(&text, "%s%s", now, at + strlen(was));
    text.n = (size_t)(strstr(text.p, "\"digest\"") - text.p);
    text.p[text.n] = 0;
    ls_digest_add(d, text.p, text.n);
    ls_digest_hex(d, hex);
    ls_text_add(&text, "\"digest\":\"%s\"}\n", hex);
    spill(path, text.p, text.n);
    ls_text_free(&text);
    ls_digest_destroy(d);
    free(p);
}

static void a_manifest_that_lies_is_refused(void **state)
{
    static const struct { const char *was, *now; ls_status status; const char *says; } row[] = {
        { "\"lockstep_manifest\":1", "\"lockstep_manifest\":2", LS_UNSUPPORTED, "this build reads version 1" },
        { "\"step\":10", "\"step\":-1", LS_BAD_FILE, "\"step\" is not a number" },
        { "\"step\":10", "\"step\":10,\n\"step\":10", LS_BAD_FILE, "a key stands twice" },
        { "\"step\":10", "\"steps\":10", LS_BAD_FILE, "an unknown key" },
        { "\"step\":10,\n", "", LS_BAD_FILE, "a key is missing" },
        { "\"world_size\":2", "\"world_size\":0", LS_BAD_FILE, "\"world_size\" is not a number of ranks" },
        { "\"world_size\":2", "\"world_size\":65537", LS_BAD_FILE, "\"world_size\" is not a number of ranks" },
        { "sharded/shard-00001", "../sharded/shard-00001", LS_BAD_FILE, "name is not plain" },
        { "sharded/shard-00001", "/etc/shard-00001", LS_BAD_FILE, "name is not plain" },
        { "sharded/shard-00001", "sharded/../shard-00001", LS_BAD_FILE, "name is not plain" },
        { "sharded/shard-00001", "sharded/.shard-00001", LS_BAD_FILE, "name is not plain" },
        { "sharded/shard-00001", "sharded/shard-00002", LS_BAD_FILE, "stands twice" },
        { "sharded/shard-00001", "sharded/shard-00004", LS_CKPT_CORRUPT, "shard-00004" },
        { "\"bytes\":", "\"bytes\":1", LS_CKPT_CORRUPT, "the manifest says 1" },
        { "\"header_bytes\":", "\"header_bytes\":1", LS_BAD_FILE, "fewer bytes than its header" },
        { "\"header\":\"", "\"header\":\"0", LS_BAD_FILE, "\"header\" is not 16 hex digits" },
        { "\"blocks\":\"", "\"blocks\":\"0123456789abcdef", LS_BAD_FILE, "disagree about the size" },
        { "\"blocks\":\"", "\"blocks\":\"0", LS_BAD_FILE, "\"blocks\" are not hex digits" },
        { "\"blocks\":\"", "\"more\":1,\"blocks\":\"", LS_BAD_FILE, "each once and nothing else" },
        { "\"files\":{", "\"files\":[{", LS_BAD_FILE, "" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        char folder[256], name[32];
        snprintf(name, sizeof name, "lies-%zu", i);
        make(inside(state, name, folder), 10, 1, 2);
        forge(folder, row[i].was, row[i].now);
        refused(folder, row[i].status, row[i].says);
    }
}

static void limits_of_a_manifest(void **state)
{
    (void)state;
    ls_manifest m, back;
    ls_text text = { 0 };
    char name[LS_MANIFEST_MAX_NAME + 2];
    for (size_t n = sizeof name - 2; n < sizeof name; n++) { /* the longest, and one more */
        ls_ckpt_sums none = { 0 };
        memset(name, 'a', n);
        name[n] = 0;
        m = (ls_manifest){ .step = 1, .generation = 1, .world_size = 1 };
        memset(m.save, '0', 32);
        assert_int_equal(ls_manifest_add(&m, name, &none), LS_OK);
        text.n = 0;
        if (n == sizeof name - 2) {
            assert_int_equal(ls_manifest_text(&m, &text), LS_OK);
            assert_int_equal(ls_manifest_parse("test", text.p, text.n, &back), LS_OK);
            assert_string_equal(back.file[0].name, name);
            ls_manifest_free(&back);
        } else {
            assert_int_equal(ls_manifest_text(&m, &text), LS_INVALID);
        }
        ls_manifest_free(&m);
    }
    ls_text_free(&text);
}

/* --- the newest ------------------------------------------------------------------------------------------ */

typedef struct search {
    const char *dir;
    int64_t step; /* found; -1: none */
} search;

static ls_status find(ls_world *w, void *arg)
{
    search *s = arg;
    ls_checkpoint *saved;
    LS_TRY(ls_checkpoint_newest(ls_world_group(w), s->dir, &saved));
    if (ls_world_rank(w) == 0) s->step = saved ? ls_checkpoint_step(saved) : -1;
    ls_checkpoint_close(saved);
    return LS_OK;
}

static int64_t newest(const char *dir)
{
    search s = { dir, 0 };
    expect(ls_test_ranks(LS_TEST_THREADS, 3, NULL, find, &s));
    return s.step;
}

static void the_newest_whole_one_is_found(void **state)
{
    static const int64_t steps[] = { 5, 100000000, 20 }; /* of more digits than eight, too */
    char folder[256], name[64], path[400];
    assert_int_equal(newest(*state), -1);
    assert_int_equal(newest(inside(state, "nowhere", folder)), -1);
    for (size_t i = 0; i < COUNT(steps); i++) {
        snprintf(name, sizeof name, "step-%08lld", (long long)steps[i]);
        make(inside(state, name, folder), steps[i], 1, 2);
    }
    sh("mkdir '%s/step-x' '%s/.step-00000007.0123456789abcdef.tmp'", *state, *state);
    assert_int_equal(newest(*state), 100000000);
    snprintf(path, sizeof path, "%s/step-100000000/%s", (char *)*state, file[1]);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(newest(*state), 20);
    for (size_t i = 1; i < COUNT(file); i++) { /* of data, which only a reader of all bytes sees: once of each rank */
        size_t n;
        snprintf(path, sizeof path, "%s/step-00000020/%s", (char *)*state, file[i]);
        unsigned char *p = slurp(path, &n);
        p[n - 3] ^= 4;
        spill(path, p, n);
        assert_int_equal(newest(*state), 5);
        p[n - 3] ^= 4;
        if (i == 1) spill(path, p, n); /* the second one stays damaged */
        free(p);
    }
    sh("rm '%s/step-00000005/manifest.json' && rm -r '%s/step-00000005/sharded'", *state, *state);
    search s = { *state, 0 };
    const ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 3, NULL, find, &s);
    assert_int_equal(r.status, LS_CKPT_CORRUPT);
    assert_non_null(strstr(r.text, "none of its 3 checkpoints is whole"));
}

/* A folder under another step's name, or a link to a folder, is not taken for the newest. */
static void a_renamed_folder_and_a_link_are_skipped(void **state)
{
    char folder[256];
    make(inside(state, "step-00000005", folder), 5, 1, 2);
    make(inside(state, "elsewhere", folder), 9, 1, 2);
    assert_int_equal(newest(*state), 5);
    sh("cp -r '%s/step-00000005' '%s/step-00000007'", *state, *state);
    assert_int_equal(newest(*state), 5);
    sh("ln -s elsewhere '%s/step-00000009%s'", *state, "");
    assert_int_equal(newest(*state), 5);
    sh("rm '%s/step-00000009%s'", *state, "");
    sh("mv '%s/elsewhere' '%s/step-00000009'", *state, *state);
    assert_int_equal(newest(*state), 9);
}

/* --- another program's ----------------------------------------------------------------------------------- */

typedef struct load_job {
    const char *folder;
    const int64_t *dims;
    const char *optim;
    size_t own;
} load_job;

static ls_status load(ls_world *w, void *arg)
{
    const load_job *j = arg;
    ls_checkpoint *saved;
    ls_state *state;
    ls_replica r;
    char own[64];
    LS_TRY(ls_checkpoint_open(j->folder, &saved));
    const ls_ddp_config ddp = { .zero_stage = 1 };
    const ls_replica_config c = { .dims = j->dims, .ndims = COUNT(dims), .seed = 9, .ddp = &ddp, .optim = j->optim,
                                  .rows = ROWS, .saved = saved };
    ls_status st = ls_replica_create(w, &c, &r);
    if (st == LS_OK) {
        LS_TRY(ls_state_create(ls_world_group(w), &state));
        LS_TRY(ls_state_add_model(state, &r.model->params, r.optim));
        if (j->own) LS_TRY(ls_state_add(state, "own", own, j->own));
        st = ls_state_load(state, saved);
        ls_state_destroy(state);
    }
    ls_replica_destroy(&r);
    ls_checkpoint_close(saved);
    return st;
}

static void another_programs_checkpoint_is_refused(void **state)
{
    static const int64_t wider[] = { 7, 6, 3 };
    char folder[256];
    job j = { .folder = inside(state, "whole", folder), .step = 1, .seed = 1, .stage = 2, .own = 24 };
    expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, save, &j));
    const struct { load_job job; const char *says; } row[] = {
        { { folder, wider, "adamw", 24 }, "has shape [5, 7], the program's has [6, 7]" },
        { { folder, dims, "sgd", 24 }, "saved with another optimizer or by another program" },
        { { folder, dims, "adamw", 25 }, "tensor 'state.own' has shape [24], the program's has [25]" },
        { { folder, dims, "adamw", 0 }, "saved with another optimizer or by another program" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        const ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 2, NULL, load, (void *)(uintptr_t)&row[i].job);
        assert_int_equal(r.status, LS_SHAPE);
        if (!strstr(r.text, row[i].says)) fail_msg("'%s' does not say '%s'", r.text, row[i].says);
    }
    load_job good = { folder, dims, "adamw", 24 };
    expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, load, &good));
}

/* --- disks that fail --------------------------------------------------------------------------------------- */

static _Atomic int calls, fail_at; /* of the calls below; only the failing rank makes them */
static int with;

static int counted(void)
{
    return ++calls == fail_at ? with : 0;
}

static ssize_t write_fails(int fd, const void *p, size_t n)
{
    const int err = counted();
    if (err == -EAGAIN) return ls_env_real.write(fd, p, n > 1 ? n / 2 : n); /* a short write is not a failure */
    return err ? err : ls_env_real.write(fd, p, n);
}
static ssize_t pwrite_fails(int fd, const void *p, size_t n, uint64_t offset)
{
    const int err = counted();
    return err && err != -EAGAIN ? err : ls_env_real.pwrite(fd, p, n, offset);
}
static int fsync_fails(int fd)
{
    const int err = counted();
    return err && err != -EAGAIN && err != -EINTR ? err : ls_env_real.fsync(fd);
}
static int fsync_dir_fails(const char *path)
{
    const int err = counted();
    return err && err != -EAGAIN && err != -EINTR ? err : ls_env_real.fsync_dir(path);
}
static int rename_fails(const char *from, const char *to)
{
    const int err = counted();
    return err && err != -EAGAIN && err != -EINTR ? err : ls_env_real.rename(from, to);
}
static int create_fails(const char *path)
{
    const int err = counted();
    return err && err != -EAGAIN && err != -EINTR ? err : ls_env_real.create(path);
}
static int mkdir_fails(const char *path)
{
    const int err = counted();
    return err && err != -EAGAIN && err != -EINTR ? err : ls_env_real.mkdir(path);
}

static void a_save_that_fails_anywhere_loses_nothing(void **state)
{
    static const int errors[] = { -ENOSPC, -EIO, -EDQUOT };
    char folder[256], newer[256];
    ls_env env = ls_env_real;
    env.write = write_fails;
    env.pwrite = pwrite_fails;
    env.fsync = fsync_fails;
    env.fsync_dir = fsync_dir_fails;
    env.rename = rename_fails;
    env.create = create_fails;
    env.mkdir = mkdir_fails;
    make(inside(state, "step-00000001", folder), 1, 1, 2);
    inside(state, "step-00000002", newer);
    for (int failing = 0; failing < 2; failing++)
        for (size_t e = 0; e < COUNT(errors); e++) {
            int n = 1, failures = 0;
            for (;; n++) {
                job j = { .folder = newer, .step = 2, .seed = 1, .stage = 3, .env = &env, .failing = failing };
                calls = failed = 0;
                fail_at = n;
                with = errors[e];
                const ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 2, NULL, save, &j);
                assert_int_equal(check(folder), LS_OK);
                if (calls < n) break; /* all have failed once */
                if (!r.failed) { /* one that does not matter, such as making a folder that is there */
                    assert_int_equal(check(newer), LS_OK);
                    sh("rm -rf '%s' %s", newer, "");
                    continue;
                }
                failures++;
                assert_int_equal(failed, 2); /* both ranks know */
                assert_int_equal(r.status, LS_CKPT_FAILED);
                assert_non_null(strstr(r.text, strerror(-with)));
                assert_non_null(strstr(r.text, failing ? "rank 1: " : "rank 0: "));
                const int left = entries(*state);
                if (left == 2) assert_int_equal(check(newer), LS_OK); /* the flush of the parent, after the rename */
                else assert_int_equal(left, 1);
                sh("rm -rf '%s' %s", newer, "");
            }
            int above = 1; /* folders above the new one, which are there already, and what is removed at the end */
            for (const char *slash = *state; (slash = strchr(slash, '/')); slash++) above++;
            if (failures < calls - above) fail_msg("rank %d: of %d calls only %d matter", failing, calls, failures);
            assert_int_equal(check(newer), LS_OK);
            sh("rm -rf '%s' %s", newer, "");
        }
}

static void interrupted_and_short_writes_are_gone_on_with(void **state)
{
    static const int errors[] = { -EINTR, -EAGAIN };
    char folder[256];
    ls_env env = ls_env_real;
    env.write = write_fails;
    env.pwrite = pwrite_fails;
    for (size_t e = 0; e < COUNT(errors); e++)
        for (int n = 1; n <= 12; n++) {
            job j = { .folder = inside(state, "step-00000002", folder), .step = 2, .seed = 1, .stage = 3, .env = &env };
            calls = 0;
            fail_at = n;
            with = errors[e];
            expect(ls_test_ranks(LS_TEST_THREADS, 2, NULL, save, &j));
            assert_int_equal(check(folder), LS_OK);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_flipped_bit_is_found, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_flipped_bit_of_data_is_found_by_a_read, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(every_cut_is_found, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(files_of_another_rank_or_save_are_refused, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(missing_and_foreign_files_are_named, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_third_ranks_file_is_refused, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_folder_without_a_manifest_is_not_a_checkpoint, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(without_a_manifest_elements_must_be_there_once, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_manifest_that_lies_is_refused, make_folder, remove_folder),
        cmocka_unit_test(limits_of_a_manifest),
        cmocka_unit_test_setup_teardown(the_newest_whole_one_is_found, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_renamed_folder_and_a_link_are_skipped, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(another_programs_checkpoint_is_refused, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_save_that_fails_anywhere_loses_nothing, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(interrupted_and_short_writes_are_gone_on_with, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
