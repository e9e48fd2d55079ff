/* train.h from outside: a whole run by one call, and arguments that it refuses by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "lockstep/train.h"

static int enter_folder(void **state)
{
    char *path = strdup("/tmp/lockstep-test-XXXXXX");
    *state = path;
    unsetenv("WORLD_SIZE");
    return mkdtemp(path) && chdir(path) == 0 ? 0 : -1;
}

static int leave_folder(void **state)
{
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", (char *)*state);
    free(*state);
    return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

#define SMALL "--model.name", "mlp", "--model.dims", "8,4,3", "--data.name", "synthetic"

static void trains_as_the_command_does(void **state)
{
    (void)state;
    FILE *f = fopen("run.yaml", "w");
    assert_non_null(f);
    fputs("train: { steps: 5 }\nlog: { tensorboard: false }\n", f);
    fclose(f);
    const char *const args[] = { "run.yaml", SMALL, "--train.steps", "3", "--run.dir", "here" };
    ls_train_result result;
    assert_int_equal(ls_train_run((int)(sizeof args / sizeof *args), args, &result), LS_OK);
    assert_int_equal(result.steps, 3); /* a flag wins over the file */
    assert_int_equal(strlen(result.digest), 32);
    assert_string_equal(result.run_dir, "here");
    assert_int_equal(access(result.checkpoint, R_OK), 0);
    assert_int_equal(access("here/config.yaml", R_OK), 0);
}

static void refuses_what_only_others_can_follow(void **state)
{
    (void)state;
    static const struct {
        const char *args[3], *words;
    } row[] = {
        { { "--help" }, "--help is for `lockstep train`" },
        { { "--print-config" }, "--print-config is for `lockstep train`" },
        { { "--dry-run" }, "--dry-run is for `lockstep train`" },
        { { "--explain", "mfu" }, "--explain is for `lockstep train`" },
        { { "--events", "x.jsonl" }, "--events is for the launcher" },
        { { "--log-dir", "x" }, "--log-dir is for the launcher" },
        { { "--nproc-per-node", "2" }, "`lockstep run --nproc-per-node 2`" },
        { { "a.yaml", "b.yaml" }, "'b.yaml' is a second one" },
        { { "--train.stepps", "3" }, "did you mean" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const char *args[12] = { SMALL };
        int n = 6;
        for (int k = 0; row[i].args[k]; k++) args[n++] = row[i].args[k];
        ls_train_result result;
        assert_int_equal(ls_train_run(n, args, &result), LS_USAGE);
        if (!strstr(ls_last_error(), row[i].words)) fail_msg("'%s' is not in: %s", row[i].words, ls_last_error());
        assert_int_equal(result.steps, 0);
    }
    ls_train_result result;
    assert_int_equal(ls_train_run(0, NULL, &result), LS_USAGE);
    const char *const unread[] = { SMALL, "--optim.name", "sgd", "--optim.betas", "0.8,0.9" };
    assert_int_equal(ls_train_run((int)(sizeof unread / sizeof *unread), unread, &result), LS_BAD_CONFIG);
    assert_int_equal(access("runs", F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trains_as_the_command_does),
        cmocka_unit_test(refuses_what_only_others_can_follow),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
