/* loader and dataset: folders of IDX files, the exercise's data, and batches of both. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/env.h"
#include "lockstep/data.h"

static void assert_says(const char *want)
{
    if (!strstr(ls_last_error(), want)) fail_msg("expected \"%s\" in \"%s\"", want, ls_last_error());
}

/* How many samples the next batch has. */
static size_t next(ls_loader *l)
{
    if (ls_loader_next(l) != LS_OK) fail_msg("%s", ls_last_error());
    return l->n;
}

/* dir/name with a header of big-endian sizes in front of the payload. */
static void put(const char *dir, const char *name, int ndim, const uint32_t *dim, const uint8_t *payload, size_t n)
{
    const ls_env *env = ls_env_get();
    char path[200];
    uint8_t head[20] = { 0, 0, 8, (uint8_t)ndim };
    for (int d = 0; d < ndim; d++)
        for (int k = 0; k < 4; k++) head[4 + 4 * d + k] = (uint8_t)(dim[d] >> (24 - 8 * k));
    snprintf(path, sizeof path, "%s/%s", dir, name);
    env->unlink(path);
    int fd = env->create(path);
    assert_true(fd >= 0);
    assert_int_equal(env->write(fd, head, 4 + 4 * (size_t)ndim), 4 + 4 * ndim);
    assert_int_equal(env->write(fd, payload, n), (ssize_t)n);
    env->close_fd(fd);
}

#define IMAGES "train-images-idx3-ubyte"
#define LABELS "train-labels-idx1-ubyte"

/* Five images of 2 x 3 pixels: pixel p of image i is 10 i + p. Labels 9, 8, 7, 6, 5. */
static void put_five(const char *dir)
{
    uint8_t pixel[30], label[5];
    for (int i = 0; i < 5; i++) {
        label[i] = (uint8_t)(9 - i);
        for (int p = 0; p < 6; p++) pixel[6 * i + p] = (uint8_t)(10 * i + p);
    }
    put(dir, IMAGES, 3, (uint32_t[]){ 5, 2, 3 }, pixel, sizeof pixel);
    put(dir, LABELS, 1, (uint32_t[]){ 5 }, label, sizeof label);
}

static int make_dir(void **state)
{
    char *dir = malloc(64);
    snprintf(dir, 64, "/tmp/test_loader.%d", ls_env_get()->pid());
    ls_env_get()->mkdir(dir);
    *state = dir;
    return 0;
}

static int remove_dir(void **state)
{
    const ls_env *env = ls_env_get();
    static const char *const names[] = { IMAGES, LABELS };
    char path[200];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", (char *)*state, names[i]);
        env->unlink(path);
    }
    env->rmdir(*state);
    free(*state);
    return 0;
}

static void opens_a_folder_of_images(void **state)
{
    ls_dataset d;
    put_five(*state);
    assert_int_equal(ls_dataset_open_idx(*state, "train", &d), LS_OK);
    assert_int_equal(d.n, 5);
    assert_int_equal(d.features, 6);
    assert_int_equal(d.classes, 10);
    assert_int_equal(d.bytes[6 * 3 + 2], 32);
    assert_int_equal(d.label[3], 6);
    ls_dataset_free(&d);
    ls_dataset_free(&d); /* zeroed is fine */

    assert_int_equal(ls_dataset_open_idx(*state, "test", &d), LS_IO);
    assert_says("neither t10k-images-idx3-ubyte.gz nor t10k-images-idx3-ubyte is there");
    assert_int_equal(ls_dataset_open_idx(*state, "validation", &d), LS_INVALID);
    assert_int_equal(ls_dataset_open_idx("/nowhere", "train", &d), LS_IO);
    assert_says("/nowhere: neither");
}

static void refuses_labels_that_do_not_fit(void **state)
{
    ls_dataset d;
    put_five(*state);
    put(*state, LABELS, 1, (uint32_t[]){ 4 }, (uint8_t[]){ 1, 2, 3, 4 }, 4);
    assert_int_equal(ls_dataset_open_idx(*state, "train", &d), LS_BAD_FILE);
    assert_says("/" LABELS ": byte 4: 4 labels, but ");
    assert_says(IMAGES " has 5 images");
    assert_null(d.owner);
    put(*state, LABELS, 1, (uint32_t[]){ 5 }, (uint8_t[]){ 1, 2, 10, 4, 5 }, 5);
    assert_int_equal(ls_dataset_open_idx(*state, "train", &d), LS_BAD_FILE);
    assert_says("byte 10: label 10 of sample 2, expected 0 to 9");
    put(*state, LABELS, 2, (uint32_t[]){ 5, 1 }, (uint8_t[]){ 1, 2, 3, 4, 5 }, 5);
    assert_int_equal(ls_dataset_open_idx(*state, "train", &d), LS_BAD_FILE);
    assert_says("byte 3: 2 dimensions, labels have 1");
    put(*state, IMAGES, 1, (uint32_t[]){ 5 }, (uint8_t[]){ 1, 2, 3, 4, 5 }, 5);
    assert_int_equal(ls_dataset_open_idx(*state, "train", &d), LS_BAD_FILE);
    assert_says("byte 3: 1 dimension, images have 2 or more");
}

static void normalises_bytes(void **state)
{
    ls_dataset d;
    ls_loader *l;
    put_five(*state);
    assert_int_equal(ls_dataset_open_idx(*state, "train", &d), LS_OK);
    ls_dataset_moments(&d, &d.mean, &d.std);
    assert_int_equal(ls_loader_create(&d, NULL, 5, false, &l), LS_OK);
    assert_int_equal(next(l), 5);
    double sum = 0.0, sq = 0.0;
    for (int i = 0; i < 30; i++) sum += (double)l->x[i];
    for (int i = 0; i < 30; i++) sq += (double)l->x[i] * (double)l->x[i];
    assert_true(fabs(sum / 30.0) < 1e-6); /* 30 roundings of values below 2 */
    assert_true(fabs(sq / 30.0 - 1.0) < 1e-6);
    ls_loader_destroy(l);

    d.mean = 0.0f;
    d.std = 0.5f;
    assert_int_equal(ls_loader_create(&d, NULL, 2, false, &l), LS_OK);
    assert_int_equal(next(l), 2);
    for (int i = 0; i < 2; i++)
        for (int p = 0; p < 6; p++) assert_true(l->x[6 * i + p] == (float)(10 * i + p) / 255.0f / 0.5f);
    assert_int_equal(l->label[1], 8);
    ls_loader_destroy(l);
    ls_dataset_free(&d);
}

/* The committed sample: what a training run without the whole data set reads. */
static void opens_the_committed_sample(void **state)
{
    (void)state;
    static const struct { const char *split; size_t n; int64_t first[5]; float mean, std; } row[] = {
        { "train", 2000, { 9, 0, 0, 3, 0 }, 0.283938f, 0.353502f },
        { "test", 500, { 9, 2, 1, 1, 6 }, 0.295064f, 0.356901f },
    };
    for (int i = 0; i < 2; i++) {
        ls_dataset d;
        float mean, std;
        assert_int_equal(ls_dataset_open_idx(LOCKSTEP_SOURCE "/tests/data/fashion-2000", row[i].split, &d), LS_OK);
        assert_int_equal(d.n, row[i].n);
        assert_int_equal(d.features, 784);
        assert_memory_equal(d.label, row[i].first, sizeof row[i].first);
        ls_dataset_moments(&d, &mean, &std);
        assert_true(fabsf(mean - row[i].mean) < 1e-5f && fabsf(std - row[i].std) < 1e-5f);
        ls_dataset_free(&d);
    }
}

static void moments_of_equal_bytes_divide_by_one(void **state)
{
    (void)state;
    uint8_t same[6] = { 7, 7, 7, 7, 7, 7 };
    float mean, std;
    ls_dataset d = { .n = 3, .features = 2, .bytes = same, .std = 1.0f };
    ls_dataset_moments(&d, &mean, &std);
    assert_true(mean == 0.0f && std == 1.0f);
}

static void makes_the_exercises_data(void **state)
{
    (void)state;
    static const int64_t label[] = { 1, 2, 1, 1, 1, 2, 2, 1, 2, 2 };
    ls_dataset d;
    assert_int_equal(ls_dataset_synthetic(0, 1000, 4, 3, &d), LS_OK);
    assert_int_equal(d.n, 1000);
    assert_memory_equal(d.label, label, sizeof label);
    assert_true(fabsf(d.x[0] - -1.1258398294f) <= 1e-6f);
    assert_true(fabsf(d.x[3] - -0.4338788092f) <= 1e-6f);
    ls_dataset_free(&d);
    assert_int_equal(ls_dataset_synthetic(0, 1, 0, 3, &d), LS_INVALID);
    assert_int_equal(ls_dataset_synthetic(0, 1, 1, 0, &d), LS_INVALID);
    assert_int_equal(ls_dataset_synthetic(0, SIZE_MAX / 2, 64, 3, &d), LS_INVALID);
    assert_null(d.owner);
}

static void cuts_an_epoch_into_batches(void **state)
{
    (void)state;
    for (size_t n = 0; n < 12; n++)
        for (size_t batch = 1; batch < 14; batch++)
            for (int drop = 0; drop < 2; drop++) {
                ls_dataset d;
                ls_loader *l;
                assert_int_equal(ls_dataset_synthetic(1, n, 2, 3, &d), LS_OK);
                assert_int_equal(ls_loader_create(&d, NULL, batch, drop, &l), LS_OK);
                assert_int_equal(ls_loader_batches(l), drop ? n / batch : (n + batch - 1) / batch);
                for (int epoch = 0; epoch < 2; epoch++) {
                    size_t seen = 0, batches = 0, got;
                    while ((got = next(l)) > 0) {
                        assert_true(got == batch || (!drop && seen + got == n));
                        assert_memory_equal(l->x, d.x + 2 * seen, got * 2 * sizeof *l->x);
                        assert_memory_equal(l->label, d.label + seen, got * sizeof *l->label);
                        seen += got;
                        batches++;
                    }
                    assert_int_equal(batches, ls_loader_batches(l));
                    assert_int_equal(seen, drop ? n / batch * batch : n);
                    assert_int_equal(next(l), 0);
                    ls_loader_rewind(l);
                }
                ls_loader_destroy(l);
                ls_dataset_free(&d);
            }
}

static void follows_the_samplers_order(void **state)
{
    (void)state;
    ls_dataset d;
    ls_sampler *s;
    ls_loader *l;
    assert_int_equal(ls_dataset_synthetic(1, 103, 3, 5, &d), LS_OK);
    assert_int_equal(ls_sampler_create(103, 4, 2, true, 0, false, &s), LS_OK);
    assert_int_equal(ls_loader_create(&d, s, 8, false, &l), LS_OK);
    assert_int_equal(ls_loader_batches(l), 4); /* 26 samples */
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        assert_int_equal(ls_sampler_set_epoch(s, epoch), LS_OK);
        ls_loader_rewind(l);
        size_t at = 0, got;
        while ((got = next(l)) > 0)
            for (size_t b = 0; b < got; b++, at++) {
                size_t i = (size_t)s->index[at];
                assert_int_equal(l->label[b], d.label[i]);
                assert_memory_equal(l->x + 3 * b, d.x + 3 * i, 3 * sizeof *l->x);
            }
        assert_int_equal(at, 26);
    }
    ls_loader_destroy(l);
    assert_int_equal(ls_loader_create(&d, s, 0, false, &l), LS_INVALID);
    d.n = 102;
    assert_int_equal(ls_loader_create(&d, s, 8, false, &l), LS_INVALID);
    assert_says("a sampler over 103 samples for a data set of 102");
    ls_sampler_destroy(s);
    ls_dataset_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_a_folder_of_images),
        cmocka_unit_test(refuses_labels_that_do_not_fit),
        cmocka_unit_test(normalises_bytes),
        cmocka_unit_test(opens_the_committed_sample),
        cmocka_unit_test(moments_of_equal_bytes_divide_by_one),
        cmocka_unit_test(makes_the_exercises_data),
        cmocka_unit_test(cuts_an_epoch_into_batches),
        cmocka_unit_test(follows_the_samplers_order),
    };
    return cmocka_run_group_tests_name("loader", tests, make_dir, remove_dir);
}
