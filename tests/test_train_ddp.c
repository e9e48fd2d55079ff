/* The exercise's own functions, from inside: examples/train_ddp.c is compiled in, its main under another name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <dirent.h>
#include <cmocka.h>

int example_main(int argc, char **argv);
#define main example_main
#include "../examples/train_ddp.c"
#undef main

static const options small = { .d_in = 8, .d_hidden = 16, .d_out = 4, .epochs = 2, .batch = 32, .lr = 1e-3,
                               .transport = "shm", .out = "test_train_ddp.safetensors" };

static int entries(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static ls_status reduce(void)
{
    float one = 1;
    return ls_all_reduce(ls_world_group(job.world), NULL, &one, 1, LS_F32, LS_SUM);
}

static void refuses_a_second_setup(void **state)
{
    (void)state;
    job.o = &small;
    assert_int_equal(setup_ddp(0, 1), LS_OK);
    assert_int_equal(reduce(), LS_OK);
    assert_int_equal(setup_ddp(0, 1), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "setup_ddp was called twice: call cleanup_ddp first"));
    assert_int_equal(reduce(), LS_OK); /* the first one still holds */
    cleanup_ddp();
}

static void leaves_nothing_behind_after_cleanup(void **state)
{
    (void)state;
    job.o = &small;
    assert_int_equal(setup_ddp(0, 1), LS_OK);
    cleanup_ddp(); /* the first time may open what stays open for good */
    int files = entries("/proc/self/fd"), threads = entries("/proc/self/task");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(setup_ddp(0, 1), LS_OK);
        assert_int_equal(reduce(), LS_OK);
        cleanup_ddp();
        assert_int_equal(entries("/proc/self/fd"), files);
        assert_int_equal(entries("/proc/self/task"), threads);
    }
    cleanup_ddp(); /* once more does no harm */
}

static void refuses_collectives_before_setup_and_after_cleanup(void **state)
{
    (void)state;
    job.o = &small;
    assert_int_equal(reduce(), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "call ls_world_join first"));
    assert_int_equal(setup_ddp(0, 1), LS_OK);
    cleanup_ddp();
    assert_int_equal(reduce(), LS_INVALID);
}

static void refuses_a_place_that_is_not_ours(void **state)
{
    (void)state;
    job.o = &small;
    assert_int_equal(setup_ddp(1, 2), LS_CONFIG_MISMATCH);
    assert_non_null(strstr(ls_last_error(), "this is rank 0 of 1, expected rank 1 of 2"));
    cleanup_ddp();
}

static void trains_twice_in_one_process(void **state)
{
    (void)state;
    const int64_t dims[3] = { small.d_in, small.d_hidden, small.d_out };
    const ls_model_config mlp = { .name = "mlp", .dims = dims, .ndims = 3, .init = LS_INIT_TORCH };
    ls_dataset data;
    job.o = &small;
    assert_int_equal(ls_dataset_synthetic(0, 100, (size_t)small.d_in, small.d_out, &data), LS_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(train_ddp(0, 1, &mlp, &data, 1), LS_OK);
    assert_null(job.world);
    ls_dataset_free(&data);
    assert_int_equal(remove(small.out), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_a_second_setup),
        cmocka_unit_test(leaves_nothing_behind_after_cleanup),
        cmocka_unit_test(refuses_collectives_before_setup_and_after_cleanup),
        cmocka_unit_test(refuses_a_place_that_is_not_ours),
        cmocka_unit_test(trains_twice_in_one_process),
    };
    return cmocka_run_group_tests_name("train_ddp", tests, NULL, NULL);
}
