/* Every number among the keys of `lockstep train` at both ends of its range, and beyond them: a value within either
 * trains or is refused by the key's name, in a process of its own; one outside is refused by name. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/env.h"
#include "base/file.h"
#include "base/opts_text.h"
#include "data/tokens.h"
#include "train/config.h"
#include "train/memory.h"
#include "report/rundir.h"
#include "train/trainer.h"

static char folder[64];
#define COUNT(a) (sizeof(a) / sizeof *(a))

/* --- small runs ---------------------------------------------------------------------------------------------- */

#define STEPS 3

/* A key goes to the first run to which it belongs. PATH stands for the folder's tokens. */
static const char *const common[] = { "train.steps", "3", "train.global_batch", "64", "memory.limit", "1GiB",
                                      "log.tensorboard", "false", "checkpoint.every", "1" };
static const char *const runs[][26] = {
    { "data.name", "synthetic", "model.dims", "8,4,3", "optim.name", "sgd", "optim.schedule", "wsd" },
    { "model.name", "llama", "data.path", "PATH", "data.tokenizer", "byte", "model.vocab_size", "257", "model.seq_len", "8",
      "model.n_layer", "1", "model.n_head", "2", "model.d_model", "8", "train.sample_every", "3", "train.sample_prompt", "a",
      "optim.name", "adamw" },
    { "model.name", "moe", "data.path", "PATH", "data.tokenizer", "byte", "model.vocab_size", "257", "model.seq_len", "8",
      "model.n_layer", "1", "model.n_head", "2", "model.d_model", "8", "train.sample_every", "3", "train.sample_prompt", "a",
      "optim.name", "adamw" },
    { "model.name", "gpt2", "data.path", "PATH", "data.tokenizer", "byte", "model.vocab_size", "257", "model.seq_len", "8",
      "model.n_layer", "1", "model.n_head", "2", "model.d_model", "8" },
    { "model.name", "timed", "data.name", "synthetic", "model.dims", "8,3" },
    { "data.name", "synthetic", "model.dims", "8,4,3", "ddp.hook", "powersgd" },
    { "data.name", "synthetic", "model.dims", "8,4,3", "optim.loss_scale", "dynamic" },
    { "data.name", "synthetic", "model.dims", "8,4,3", "zero.stage", "3", "zero.copy", "rank" },
    { "data.name", "synthetic", "model.dims", "8,4,3", "train.numerics", "invariant" },
    { "model.name", "gpt2", "data.path", "PATH", "data.tokenizer", "byte", "model.vocab_size", "257", "model.seq_len", "8",
      "model.n_layer", "1", "model.n_head", "2", "model.d_model", "8", "parallel.cp", "9", "parallel.context", "ulysses-ring" },
    { "model.name", "gpt2", "data.path", "PATH", "data.tokenizer", "byte", "model.vocab_size", "257", "model.seq_len", "8",
      "model.n_layer", "1", "model.n_head", "2", "model.d_model", "8", "parallel.pp", "2" },
    { "model.name", "gpt2", "data.path", "PATH", "data.tokenizer", "byte", "model.vocab_size", "257", "model.seq_len", "8",
      "model.n_layer", "1", "model.n_head", "2", "model.d_model", "8", "parallel.tp", "2" },
};

typedef enum end { TRAINED, REFUSED, OTHER_RUN, BROKEN } end;
typedef struct outcome {
    end is;
    char text[600];
} outcome;

static ls_status configure(ls_opts *o, const ls_train_config *c, size_t which, const char *key, const char *value,
                           const char *run_dir)
{
    char tokens[80];
    snprintf(tokens, sizeof tokens, "%s/train.bin", folder);
    for (size_t i = 0; i < COUNT(common); i += 2) LS_TRY(ls_opts_set(o, common[i], common[i + 1], "flag"));
    for (size_t i = 0; i < COUNT(runs[which]) && runs[which][i]; i += 2) {
        const char *v = runs[which][i + 1];
        LS_TRY(ls_opts_set(o, runs[which][i], strcmp(v, "PATH") == 0 ? tokens : v, "flag"));
    }
    LS_TRY(ls_opts_set(o, "run.dir", run_dir, "flag"));
    const bool endless = strcmp(key, "train.steps") == 0 || strcmp(key, "train.epochs") == 0;
    if (strcmp(key, "train.epochs") == 0) LS_TRY(ls_opts_set(o, "train.steps", "0", "flag"));
    if (endless && strcmp(value, "0") != 0) LS_TRY(ls_opts_set(o, "inject", "nan@0:3", "flag"));
    LS_TRY(ls_opts_set(o, key, value, "flag"));
    return ls_train_config_resolve(o, c);
}

/* The checkpoints of a run that went well: the newest two of its three at least, the last with its model, unless it is
 * not wanted. */
static bool kept_its_checkpoints(const char *run_dir, const ls_train_config *c)
{
    ls_file_info info;
    const ls_env *env = ls_env_get();
    for (int64_t step = STEPS - 1; step <= STEPS; step++) {
        char path[200];
        if (step < STEPS && c->checkpoint.every != 1) continue;
        const bool model = step == STEPS && strcmp(c->checkpoint.consolidate, "never") != 0;
        snprintf(path, sizeof path, "%s/checkpoints/step-%08lld/%s", run_dir, (long long)step,
                 model ? "model.safetensors" : "manifest.json");
        if (env->info(path, &info) < 0 || info.type != LS_FILE_REGULAR) return false;
    }
    return true;
}

static void attempt(size_t which, const char *key, const char *value, outcome *out)
{
    ls_train_config c;
    ls_opts *o;
    ls_train_result result = { 0 };
    char run_dir[100];
    static int count;
    snprintf(run_dir, sizeof run_dir, "%s/run-%d-%d", folder, (int)getpid(), count++);
    ls_status st = ls_opts_create(ls_train_opts, ls_train_nopts, &c, &o);
    if (st == LS_OK) st = configure(o, &c, which, key, value, run_dir);
    if (st == LS_OK) st = ls_train_check_given(o, &c);
    if (st == LS_OK) st = ls_train_config_check(&c, 1);
    if (st == LS_OK) st = ls_train(&c, o, &result);
    const char *why = ls_last_error();
    const bool stopped = st == LS_NAN && strstr(why, "in step 3"); /* the fault that ends an endless run */
    const bool none = strcmp(value, "0") == 0 && strcmp(key, "train.epochs") == 0; /* nothing to do */
    snprintf(out->text, sizeof out->text, "%s", st < 0 ? why : "");
    const bool whole = st == LS_OK && !none && c.train.steps == STEPS;
    if (whole && (result.steps != STEPS || !kept_its_checkpoints(run_dir, &c))) {
        out->is = BROKEN;
        snprintf(out->text, sizeof out->text, "it ended after %lld steps without the checkpoints of the last two",
                 (long long)result.steps);
    } else if (st == LS_OK || stopped) out->is = TRAINED;
    else if (st == LS_BAD_CONFIG && strstr(why, "belongs to") && strncmp(why, key, strlen(key)) == 0) out->is = OTHER_RUN;
    else if (strstr(why, key) || (st == LS_NO_MEMORY && strstr(why, "are available"))) out->is = REFUSED;
    else if (strncmp(key, "pipeline.", 9) == 0 && strstr(why, "pp is 2; expected 1 to 1")) out->is = REFUSED; /* one rank */
    else if (strcmp(key, "parallel.tp_pieces") == 0 && strstr(why, "tp is 2; expected 1 to 1")) out->is = REFUSED;
    else if (st == LS_NAN && strncmp(key, "optim.", 6) == 0) out->is = REFUSED; /* trained until it diverged, and says so */
    else out->is = BROKEN;
}

/* In a child: what aborts there is the child's end, and said as such. */
static void in_a_child(size_t which, const char *key, const char *value, outcome *out)
{
    int pipe_fd[2], status;
    assert_int_equal(pipe(pipe_fd), 0);
    fflush(stdout);
    fflush(stderr);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        outcome mine = { 0 };
        alarm(240); /* an endless run is one that broke */
        if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)) _exit(2);
        attempt(which, key, value, &mine);
        const ssize_t n = write(pipe_fd[1], &mine, sizeof mine);
        _exit(n == (ssize_t)sizeof mine ? 0 : 3);
    }
    close(pipe_fd[1]);
    const ssize_t n = read(pipe_fd[0], out, sizeof *out);
    close(pipe_fd[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (n == (ssize_t)sizeof *out && WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    out->is = BROKEN;
    snprintf(out->text, sizeof out->text, "the process died of signal %d", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

static void tries(const char *key, const char *value)
{
    outcome got = { .is = OTHER_RUN };
    for (size_t i = 0; i < COUNT(runs) && got.is == OTHER_RUN; i++) in_a_child(i, key, value, &got);
    if (getenv("LOCKSTEP_TEST_VERBOSE")) printf("%s %s: %d %s\n", key, value, (int)got.is, got.text);
    if (got.is == OTHER_RUN) fail_msg("%s %s: no run of this test takes it: %s", key, value, got.text);
    if (got.is == BROKEN) fail_msg("%s %s: %s", key, value, got.text);
}

static void is_refused_as_read(const char *key, const char *value)
{
    ls_train_config c;
    ls_opts *o;
    char name[80];
    assert_int_equal(ls_opts_create(ls_train_opts, ls_train_nopts, &c, &o), LS_OK);
    const ls_status st = ls_opts_set(o, key, value, "flag");
    ls_opts_destroy(o);
    snprintf(name, sizeof name, "--%s: expected", key);
    if (st != LS_USAGE) fail_msg("%s %s, which is out of range, is accepted", key, value);
    if (!strstr(ls_last_error(), name)) fail_msg("%s is not named: %s", key, ls_last_error());
}

/* --- ends ----------------------------------------------------------------------------------------------------- */

typedef struct ends {
    char low[40], high[40], below[40], above[40];
} ends;

static void of_whole_numbers(const ls_opt *row, const char *low, const char *high, ends *e)
{
    ls_opt_value a, b;
    char why[200];
    const ls_opt plain = { .name = row->name, .type = row->type };
    assert_true(ls_opt_read(&plain, low, &a, why, sizeof why) && ls_opt_read(&plain, high, &b, why, sizeof why));
    /* of 64 bits the number beyond the ends has its digits all the same */
    const int64_t first = row->type == LS_OPT_BYTES ? (int64_t)a.bytes : row->type == LS_OPT_TIME ? (int64_t)a.ns
                          : row->type == LS_OPT_INTS ? a.ints.v[0] : a.i;
    const int64_t last = row->type == LS_OPT_BYTES ? (int64_t)b.bytes : row->type == LS_OPT_TIME ? (int64_t)b.ns
                         : row->type == LS_OPT_INTS ? b.ints.v[0] : b.i;
    const char *unit = row->type == LS_OPT_TIME ? "ns" : "";
    snprintf(e->low, sizeof e->low, "%lld%s", (long long)first, unit);
    snprintf(e->high, sizeof e->high, "%lld%s", (long long)last, unit);
    snprintf(e->below, sizeof e->below, "%lld%s", (long long)first - 1, unit);
    snprintf(e->above, sizeof e->above, "%llu%s", (unsigned long long)last + 1, unit);
}

static void of_real_numbers(const char *low, const char *high, ends *e)
{
    const bool open = *high == '<';
    const double first = strtod(low, NULL), last = strtod(high + open, NULL);
    snprintf(e->low, sizeof e->low, "%.17g", first);
    snprintf(e->high, sizeof e->high, "%.17g", open ? nextafter(last, -DBL_MAX) : last);
    snprintf(e->below, sizeof e->below, "%.17g", nextafter(first, -DBL_MAX));
    snprintf(e->above, sizeof e->above, "%.17g", open ? last : nextafter(last, DBL_MAX));
}

static bool is_number(const ls_opt *row)
{
    return row->type != LS_OPT_STRING && row->type != LS_OPT_BOOL && row->type != LS_OPT_CHOICE;
}

static void ends_of(const ls_opt *row, ends *e)
{
    char low[64];
    const char *dots = row->range ? strstr(row->range, "..") : NULL;
    if (!dots || dots == row->range || !dots[2]) fail_msg("%s: the range '%s' has no two ends", row->name, row->range ? row->range : "");
    snprintf(low, sizeof low, "%.*s", (int)(dots - row->range), row->range);
    if (row->type == LS_OPT_DOUBLE || row->type == LS_OPT_DOUBLES) of_real_numbers(low, dots + 2, e);
    else of_whole_numbers(row, low, dots + 2, e);
    if (row->type != LS_OPT_INTS && row->type != LS_OPT_DOUBLES) return;
    char one[40];
    char *const list[] = { e->low, e->high, e->below, e->above };
    for (int i = 0; i < 4; i++) { /* two of them, for a list of one is no model and no optimizer */
        snprintf(one, sizeof one, "%s", list[i]);
        assert_true(snprintf(list[i], 40, row->type == LS_OPT_INTS ? "8,%.17s" : "0.5,%.24s", one) < 40);
    }
}

static void beyond_its_ends_a_number_is_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < ls_train_nopts; i++) {
        ends e;
        if (!is_number(&ls_train_opts[i])) continue;
        ends_of(&ls_train_opts[i], &e);
        is_refused_as_read(ls_train_opts[i].name, e.below);
        is_refused_as_read(ls_train_opts[i].name, e.above);
    }
}

static void at_its_ends_a_number_trains_or_is_refused_by_name(void **state)
{
    (void)state;
    int count = 0;
    for (size_t i = 0; i < ls_train_nopts; i++) {
        ends e;
        if (!is_number(&ls_train_opts[i])) continue;
        ends_of(&ls_train_opts[i], &e);
        tries(ls_train_opts[i].name, e.low);
        tries(ls_train_opts[i].name, e.high);
        count++;
    }
    assert_true(count > 40);
}

/* --- where two numbers multiply ---------------------------------------------------------------------------------- */

static void refuses_products_that_do_not_fit(void **state)
{
    (void)state;
    ls_train_config c;
    ls_opts *o;
    static const char *const set[] = { "model.name", "gpt2", "data.path", "t", "model.seq_len", "16777216", "train.global_batch", "16777216" };
    assert_int_equal(ls_opts_create(ls_train_opts, ls_train_nopts, &c, &o), LS_OK);
    for (size_t i = 0; i < COUNT(set); i += 2) assert_int_equal(ls_opts_set(o, set[i], set[i + 1], "flag"), LS_OK);
    assert_int_equal(ls_train_config_check(&c, 1), LS_BAD_CONFIG);
    assert_non_null(strstr(ls_last_error(), "train.micro_batch"));
    assert_int_equal(ls_opts_set(o, "train.micro_batch", "128", "flag"), LS_OK);
    assert_int_equal(ls_train_config_check(&c, 1), LS_OK);
    int64_t steps = 0;
    c.train.epochs = 4294967295 / 16;
    assert_int_equal(ls_train_steps(&c, 16, &steps), LS_OK);
    assert_true(steps == c.train.epochs * 16);
    c.train.epochs++;
    assert_int_equal(ls_train_steps(&c, 16, &steps), LS_BAD_CONFIG);
    assert_non_null(strstr(ls_last_error(), "train.epochs is 268435456: of 16 steps each, a run of at most 4294967295 steps has 268435455"));
    ls_opts_destroy(o);
}

/* So that no run measures one. */
static ls_status keep_a_peak(void)
{
    char path[100], host[64], text[400];
    if (ls_env_get()->hostname(host, sizeof host) < 0) return LS_SYSTEM;
    snprintf(path, sizeof path, "%s/peak.json", folder);
    int n = snprintf(text, sizeof text, "{ \"lockstep_peak\": 1, \"host\": \"%s\", \"peaks\": [", host);
    for (int threads = 1; threads <= 2; threads++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s{ \"dtype\": \"float\", \"threads\": %d, \"gflops_per_thread\": 100 }",
                      threads > 1 ? ", " : "", threads);
    n += snprintf(text + n, sizeof text - (size_t)n, "] }\n");
    setenv("LOCKSTEP_PEAK", path, 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    return ls_file_write(path, text, (size_t)n);
}

static int make_folder(void **state)
{
    (void)state;
    char path[100];
    ls_token_writer w;
    snprintf(folder, sizeof folder, "/tmp/lockstep-test-ranges-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/train.bin", folder);
    if (ls_token_writer_open(&w, path, LS_TOKENS_LLMC, 257) != LS_OK) return 1;
    for (uint32_t i = 0; i < 801; i++) {
        const uint32_t id = i * i % 29;
        if (ls_token_writer_add(&w, &id, 1) != LS_OK) return 1;
    }
    const ls_status st = ls_token_writer_finish(&w);
    ls_token_writer_close(&w);
    return st != LS_OK || keep_a_peak() != LS_OK;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beyond_its_ends_a_number_is_refused_by_name),
        cmocka_unit_test(at_its_ends_a_number_trains_or_is_refused_by_name),
        cmocka_unit_test(refuses_products_that_do_not_fit),
    };
    return cmocka_run_group_tests_name("key_ranges", tests, make_folder, remove_folder);
}
