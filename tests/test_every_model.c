/* What holds for every model of the registry, so that a new one is tested when it has its line there: parameters by
 * formula and by list, memory by a dry run, the same gradients whatever is recomputed, a decoder's logits, and Hugging
 * Face's files there and back. */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "lockstep/decode.h"
#include "lockstep/hf.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define assert_done(expr)                                                                        \
    do {                                                                                         \
        if ((expr) != LS_OK) fail_msg("%s: %s", #expr, ls_last_error());                         \
    } while (0)

enum { V = 64, T = 8, B = 2, LAYERS = 3 };

static const int64_t dims[] = { 16, 5, 3 };

/* Sizes that fit every model; dropout only where the model reads it. */
static ls_model_config config_of(const ls_model_class *cls, bool tied)
{
    ls_model_config c = { .name = cls->name, .init = LS_INIT_PHILOX, .seed = 7, .dims = dims, .ndims = COUNT(dims) };
    if (!cls->lm) return c;
    c.lm = (ls_lm_config){ .vocab_size = V, .seq_len = T, .n_layer = LAYERS, .n_head = 4, .d_model = 32, .tied = tied };
    if (ls_model_reads(cls, "model.n_kv_head")) c.lm.n_kv_head = 2;
    if (ls_model_reads(cls, "model.resid_dropout")) c.lm.resid_dropout = 0.1;
    if (ls_model_reads(cls, "model.attn_dropout")) c.lm.attn_dropout = 0.1;
    return c;
}

/* Every class twice: with a tied head and without. */
#define EACH(cls, tied)                                                                          \
    for (const ls_model_class *const *at_ = ls_model_classes, *cls; (cls = *at_); at_++)         \
        for (int tied = 0; tied <= (cls->lm ? 1 : 0); tied++)

/* A model with all its memory, and a micro-batch. */
typedef struct fixture {
    ls_model *m;
    ls_arena *values, *grads;
    ls_tape *t;
    int64_t ids[B * T], labels[B * T];
    float features[B * 16];
} fixture;

static void build(fixture *f, const ls_model_config *c, ls_recompute how)
{
    *f = (fixture){ 0 };
    assert_done(ls_model_create(c, &f->m));
    ls_params *ps = &f->m->params;
    const size_t room = ls_params_nbytes(ps) + 64u * (size_t)ps->n;
    assert_done(ls_arena_create(room, false, NULL, &f->values));
    assert_done(ls_arena_create(room, false, NULL, &f->grads));
    assert_done(ls_params_bind(ps, f->values, f->grads));
    assert_done(ls_model_init(f->m, c));
    const size_t bytes = ls_model_tape_bytes_in(f->m, B, T, &(ls_tape_mode){ .recompute = how });
    assert_true(bytes > 0);
    assert_done(ls_tape_create(bytes, NULL, NULL, &f->t));
    ls_tape_set_recompute(f->t, how);
    for (int i = 0; i < B * T; i++) f->ids[i] = i * 37 % V;
    for (int i = 0; i < B * T; i++) f->labels[i] = (i * 53 + 7) % (f->m->cls->lm ? V : 3);
    for (int i = 0; i < B * 16; i++) f->features[i] = (float)(i % 5) - 2.0f;
    f->m->draw = (ls_draw){ .seed = 3, .step = 5 };
}

static void drop(fixture *f)
{
    ls_tape_destroy(f->t);
    ls_model_destroy(f->m);
    ls_arena_destroy(f->grads);
    ls_arena_destroy(f->values);
}

static ls_tensor *input(fixture *f, ls_tensor **labels)
{
    ls_model_input in;
    f->m->cls->input(f->m, B, T, &in);
    *labels = ls_tape_input(f->t, LS_I64, in.label_ndim, in.label_dim, f->labels);
    return ls_tape_input(f->t, in.dtype, in.ndim, in.dim, in.dtype == LS_I64 ? (void *)f->ids : (void *)f->features);
}

static double step(fixture *f)
{
    ls_loss_sums sums;
    ls_tensor *labels;
    ls_tape_reset(f->t);
    ls_params_zero_grad(&f->m->params);
    ls_tensor *x = input(f, &labels);
    assert_done(ls_backward(f->t, ls_model_loss(f->m, f->t, x, labels, &sums)));
    const int64_t n = f->m->cls->lm ? B * T : B;
    assert_int_equal(sums.counted, n);
    return sums.sum / (double)n;
}

static void the_formula_counts_what_is_registered(void **state)
{
    (void)state;
    EACH(cls, tied) {
        const ls_model_config c = config_of(cls, tied);
        ls_model *m;
        ls_model_flops flops;
        assert_done(ls_model_create(&c, &m));
        assert_int_equal(ls_model_count(&c), ls_params_count(&m->params));
        cls->flops(&c, &flops);
        assert_in_range(flops.tables, 0, ls_params_count(&m->params) - 1);
        assert_int_equal(flops.layers * flops.heads * flops.width, cls->lm ? LAYERS * 32 : 0);
        ls_model_destroy(m);
    }
}

/* A loss near ln V in the beginning, the memory that was planned, and the same gradients to the bit. */
static void a_step_is_the_same_whatever_is_recomputed(void **state)
{
    (void)state;
    static const ls_recompute ways[] = { LS_RECOMPUTE_NONE, LS_RECOMPUTE_SELECTIVE, LS_RECOMPUTE_FULL };
    EACH(cls, tied) {
        const ls_model_config c = config_of(cls, tied);
        fixture first;
        build(&first, &c, LS_RECOMPUTE_NONE);
        const double loss = step(&first), even = log(cls->lm ? V : 3);
        if (!(fabs(loss - even) < 0.5)) fail_msg("%s begins with a loss of %g, expected %g +- 0.5", cls->name, loss, even);
        for (size_t w = 0; w < COUNT(ways); w++) {
            fixture f;
            build(&f, &c, ways[w]);
            const double again = step(&f);
            assert_memory_equal(&again, &loss, sizeof loss);
            const ls_tape_mode mode = { .recompute = ways[w] };
            assert_int_equal(ls_tape_peak(f.t), ls_model_tape_bytes_in(f.m, B, T, &mode));
            for (int i = 0; i < f.m->params.n; i++) {
                const ls_param *p = &f.m->params.item[i];
                if (memcmp(p->grad.data, first.m->params.item[i].grad.data, ls_tensor_nbytes(&p->grad)) != 0)
                    fail_msg("%s, %s: the gradient of %s differs", cls->name, ls_recompute_name(ways[w]), p->name);
            }
            drop(&f);
        }
        drop(&first);
    }
}

/* A token at a time, through the cache: to rounding, sums are in another order. */
static void a_decoder_gives_the_models_logits(void **state)
{
    (void)state;
    EACH(cls, tied) {
        const ls_model_config c = config_of(cls, tied);
        fixture f;
        ls_decoder *d;
        ls_tensor *labels;
        build(&f, &c, LS_RECOMPUTE_NONE);
        ls_tape_set_grad(f.t, false);
        const ls_tensor *y = ls_model_forward(f.m, f.t, input(&f, &labels));
        assert_non_null(y);
        if (!cls->lm) {
            assert_int_equal(ls_decoder_create(f.m, NULL, &d), LS_UNSUPPORTED);
            drop(&f);
            continue;
        }
        assert_done(ls_decoder_create(f.m, NULL, &d));
        for (int t = 0; t < T; t++) {
            const float *got, *want = (const float *)y->data + t * V;
            const uint32_t id = (uint32_t)f.ids[t];
            assert_done(ls_decoder_feed(d, &id, 1, &got));
            for (int v = 0; v < V; v++)
                if (!(fabsf(got[v] - want[v]) <= 1e-5f))
                    fail_msg("%s: token %d, logit %d: %g, want %g", cls->name, t, v, (double)got[v], (double)want[v]);
        }
        ls_decoder_destroy(d);
        drop(&f);
    }
}

static void remove_folder(const char *path)
{
    char file[512];
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(file, sizeof file, "%.200s/%.255s", path, e->d_name);
        if (*e->d_name != '.') unlink(file);
    }
    if (d) closedir(d);
    rmdir(path);
}

static void hugging_faces_files_have_the_same_model(void **state)
{
    (void)state;
    EACH(cls, tied) {
        const ls_model_config c = config_of(cls, tied);
        if (!cls->lm) continue;
        fixture f;
        ls_hf_config written, read;
        ls_model *m;
        ls_arena *arena;
        char dir[] = "/tmp/lockstep-every-model-XXXXXX";
        assert_non_null(mkdtemp(dir));
        build(&f, &c, LS_RECOMPUTE_NONE);
        assert_done(ls_hf_config_of(&c, &written));
        assert_done(ls_hf_save(dir, &written, &f.m->params, LS_F32, SIZE_MAX));
        assert_done(ls_hf_open(dir, &read, &m, &arena));
        assert_string_equal(read.model, cls->name);
        assert_memory_equal(&read.lm, &written.lm, sizeof read.lm);
        assert_int_equal(m->params.n, f.m->params.n);
        for (int i = 0; i < m->params.n; i++) {
            const ls_param *got = &m->params.item[i], *want = &f.m->params.item[i];
            assert_string_equal(got->name, want->name);
            assert_memory_equal(got->t.data, want->t.data, ls_tensor_nbytes(&want->t));
        }
        ls_model_destroy(m);
        ls_arena_destroy(arena);
        remove_folder(dir);
        drop(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_formula_counts_what_is_registered),
        cmocka_unit_test(a_step_is_the_same_whatever_is_recomputed),
        cmocka_unit_test(a_decoder_gives_the_models_logits),
        cmocka_unit_test(hugging_faces_files_have_the_same_model),
    };
    return cmocka_run_group_tests_name("every_model", tests, NULL, NULL);
}
