/* Which random numbers each use of Philox asks for in a run with one seed: no two uses ask for the same. The linker
 * wraps the generator's functions, so this test sees whatever the library draws. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "data/tokens.h"
#include "train/trainer.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define SEED 9
#define BATCH 8
#define T 8

typedef enum use { VALUES, ORDER, DROPOUT, SAMPLE, USES } use;
static const char *const use_name[USES] = { "initial values", "the order of windows", "dropout", "sampling" };

/* One seed's streams of each use. */
static struct {
    pthread_mutex_t lock; /* dropout is made by all threads of a rank */
    bool on, sampling, other_seed;
    uint64_t stream[USES][4096];
    size_t n[USES];
} drawn = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void note(use u, uint64_t seed, uint64_t stream)
{
    if (!drawn.on) return;
    pthread_mutex_lock(&drawn.lock);
    drawn.other_seed |= seed != SEED;
    size_t i = 0;
    while (i < drawn.n[u] && drawn.stream[u][i] != stream) i++;
    if (i == drawn.n[u] && i < COUNT(drawn.stream[u])) drawn.stream[u][drawn.n[u]++] = stream;
    pthread_mutex_unlock(&drawn.lock);
}

void __real_ls_philox_block(uint64_t seed, uint64_t stream, uint64_t block, uint32_t out[4]);
void __wrap_ls_philox_block(uint64_t seed, uint64_t stream, uint64_t block, uint32_t out[4]);
void __real_ls_philox_blocks(uint64_t seed, uint64_t stream, uint64_t block, size_t n, uint32_t *out);
void __wrap_ls_philox_blocks(uint64_t seed, uint64_t stream, uint64_t block, size_t n, uint32_t *out);
void __real_ls_philox_uniform(uint64_t seed, uint64_t stream, uint64_t first, size_t n, float lo, float hi, float *out);
void __wrap_ls_philox_uniform(uint64_t seed, uint64_t stream, uint64_t first, size_t n, float lo, float hi, float *out);
void __real_ls_philox_normal(uint64_t seed, uint64_t stream, uint64_t first, size_t n, float stddev, float *out);
void __wrap_ls_philox_normal(uint64_t seed, uint64_t stream, uint64_t first, size_t n, float stddev, float *out);

void __wrap_ls_philox_block(uint64_t seed, uint64_t stream, uint64_t block, uint32_t out[4])
{
    note(drawn.sampling ? SAMPLE : ORDER, seed, stream);
    __real_ls_philox_block(seed, stream, block, out);
}

void __wrap_ls_philox_blocks(uint64_t seed, uint64_t stream, uint64_t block, size_t n, uint32_t *out)
{
    note(DROPOUT, seed, stream);
    __real_ls_philox_blocks(seed, stream, block, n, out);
}

void __wrap_ls_philox_uniform(uint64_t seed, uint64_t stream, uint64_t first, size_t n, float lo, float hi, float *out)
{
    note(VALUES, seed, stream);
    __real_ls_philox_uniform(seed, stream, first, n, lo, hi, out);
}

void __wrap_ls_philox_normal(uint64_t seed, uint64_t stream, uint64_t first, size_t n, float stddev, float *out)
{
    note(VALUES, seed, stream);
    __real_ls_philox_normal(seed, stream, first, n, stddev, out);
}

/* --- a run -------------------------------------------------------------------------------------------------- */

static char folder[64];

static int make_tokens(void **state)
{
    (void)state;
    char path[128];
    ls_token_writer w;
    snprintf(folder, sizeof folder, "/tmp/lockstep-test-streams-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/train.bin", folder);
    if (ls_token_writer_open(&w, path, LS_TOKENS_LLMC, 17) < 0) return 1;
    for (uint32_t i = 0; i < 161; i++)
        if (ls_token_writer_add(&w, &(uint32_t){ i % 17 }, 1) < 0) return 1; /* 20 windows */
    const ls_status st = ls_token_writer_finish(&w);
    ls_token_writer_close(&w);
    return st < 0;
}

static int remove_tokens(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/train.bin", folder);
    remove(path);
    return remove(folder);
}

static ls_trainer *trainer(ls_train_config *c, ls_opts **o)
{
    static const char *const flags[] = { "model.name", "gpt2", "data.name", "tokens", "data.path", folder, "model.vocab_size",
                                         "17", "model.seq_len", "8", "model.n_layer", "3", "model.n_head", "2",
                                         "model.d_model", "16", "model.embd_dropout", "0.1", "model.attn_dropout", "0.1",
                                         "model.resid_dropout", "0.1", "train.global_batch", "8", "train.seed", "9" };
    ls_trainer *t;
    assert_int_equal(ls_opts_create(ls_train_opts, ls_train_nopts, c, o), LS_OK);
    for (size_t i = 0; i < COUNT(flags); i += 2)
        if (ls_opts_set(*o, flags[i], flags[i + 1], "flag") < 0) fail_msg("%s", ls_last_error());
    if (ls_trainer_create(c, &t) < 0) fail_msg("%s", ls_last_error());
    return t;
}

static void train(ls_trainer *t, int64_t first, int64_t steps)
{
    ls_step_stats s;
    for (t->step = first; t->step < first + steps;)
        if (ls_train_step(t, &s) < 0) fail_msg("%s", ls_last_error());
}

static void sample(uint64_t position)
{
    static const float logits[4] = { 1, 2, 3, 4 };
    const ls_sample_opts o = { .temperature = 1.0, .top_p = 1.0, .seed = SEED };
    uint64_t weight[4];
    uint32_t id;
    drawn.sampling = true;
    if (ls_sample(&o, logits, 4, position, weight, &id) < 0) fail_msg("%s", ls_last_error());
    drawn.sampling = false;
}

#define LATE (((int64_t)1 << 40) - 8) /* the last steps whose numbers are told apart */

static void no_two_uses_of_a_seed_share_a_stream(void **state)
{
    (void)state;
    ls_train_config c;
    ls_opts *o;
    drawn.on = true;
    ls_trainer *t = trainer(&c, &o);
    train(t, 0, 40); /* 16 epochs */
    train(t, LATE, 8);
    for (uint64_t i = 0; i < 100; i++) sample(i);
    sample(UINT64_MAX);
    drawn.on = false;
    ls_trainer_destroy(t);
    ls_opts_destroy(o);

    /* 12 matrices and two embeddings; 16 epochs and those of the late steps; a stream per step and place: 1 + 2 x 3 of
     * the residual stream, 3 of attention */
    assert_false(drawn.other_seed);
    assert_int_equal(drawn.n[VALUES], 14);
    assert_true(drawn.n[ORDER] >= 17);
    assert_int_equal(drawn.n[DROPOUT], 48 * 10);
    assert_int_equal(drawn.n[SAMPLE], 1);
    for (int a = 0; a < USES; a++)
        for (int b = 0; b < a; b++)
            for (size_t i = 0; i < drawn.n[a]; i++)
                for (size_t k = 0; k < drawn.n[b]; k++)
                    if (drawn.stream[a][i] == drawn.stream[b][k])
                        fail_msg("%s and %s share stream %#llx", use_name[a], use_name[b],
                                 (unsigned long long)drawn.stream[a][i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_two_uses_of_a_seed_share_a_stream),
    };
    return cmocka_run_group_tests_name("streams", tests, make_tokens, remove_tokens);
}
