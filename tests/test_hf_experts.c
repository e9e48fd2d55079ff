/* Experts in a checkpoint's model.safetensors: a tensor for each, as transformers and exports have them. Ranks that
 * have some of the experts, or some rows of each, read it as they read the one tensor of earlier files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/hf.h"
#include "ckpt/hf_experts.h"
#include "ckpt/weights.h"
#include "harness.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
enum { E = 4, F = 24, C = 32 };

#define SMALL .vocab_size = 50, .seq_len = 16, .n_layer = 2, .n_head = 4, .d_model = C, .n_experts = E, .d_expert = F
static const ls_model_config models[] = {
    { .name = "moe", .init = LS_INIT_PHILOX, .seed = 3, .lm = { SMALL } },
    { .name = "moe", .init = LS_INIT_PHILOX, .seed = 4, .lm = { SMALL, .shared_expert = 40 } },
};

static char root[64];

static void assert_done(ls_status st)
{
    if (st != LS_OK) fail_msg("status %d: %s", st, ls_last_error());
}

static void assert_refused(ls_status st, ls_status expected, const char *says)
{
    if (st != expected || !strstr(ls_last_error(), says)) fail_msg("status %d: %s", st, ls_last_error());
}

static const char *in_root(const char *name)
{
    static _Thread_local char path[4][128];
    static _Thread_local int at;
    at = (at + 1) % 4;
    snprintf(path[at], sizeof path[at], "%s/%s", root, name);
    return path[at];
}

static void take_memory(ls_params *ps)
{
    for (int i = 0; i < ps->n; i++) {
        ps->item[i].t.data = calloc(1, ls_tensor_nbytes(&ps->item[i].t));
        assert_non_null(ps->item[i].t.data);
    }
}

/* A model whose elements are all different, in the file of an earlier Lockstep and in that of this one. */
typedef struct scene {
    ls_model *m;
    ls_hf_config hf;
    char *config; /* owned */
    const char *meta[5];
} scene;

static void scene_open(scene *s, const ls_model_config *c)
{
    assert_done(ls_hf_config_of(c, &s->hf));
    assert_done(ls_model_create(c, &s->m));
    take_memory(&s->m->params);
    for (int i = 0; i < s->m->params.n; i++)
        for (int64_t k = 0; k < ls_tensor_count(&s->m->params.item[i].t); k++)
            ((float *)s->m->params.item[i].t.data)[k] = (float)(i + 1) + (float)k / 65536;
    assert_done(ls_hf_config_text(&s->hf, &s->config));
    const char *const meta[] = { "lockstep.model", "moe", "lockstep.config", s->config, NULL };
    memcpy(s->meta, meta, sizeof meta);
    assert_done(ls_ckpt_save(in_root("stacked.safetensors"), &s->m->params, s->meta));
    assert_done(ls_hf_write_model(in_root("apart.safetensors"), &s->hf.lm, &s->m->params, NULL, s->meta, NULL));
}

static void scene_close(scene *s)
{
    for (int i = 0; i < s->m->params.n; i++) free(s->m->params.item[i].t.data);
    ls_model_destroy(s->m);
    free(s->config);
}

/* What a rank has of each parameter: experts [first_run, first_run + runs), of each rows [first, first + rows). */
static void cut(const ls_params *whole, int first_run, int runs, int64_t first, int64_t rows, ls_params *out)
{
    for (int i = 0; i < whole->n; i++) {
        const ls_param *p = &whole->item[i];
        int64_t dim[LS_MAX_DIMS];
        memcpy(dim, p->t.dim, sizeof dim);
        const bool experts = strstr(p->name, ".experts.");
        if (experts) dim[0] = runs * rows;
        assert_done(ls_params_add(out, p->name, p->t.ndim, dim));
        if (experts) out->item[i].part = (ls_part){ 0, runs, F, first, rows, first_run, E };
    }
    take_memory(out);
}

/* Element by element, by what a part of experts is. */
static void is_slice(const ls_param *here, const ls_param *whole)
{
    const ls_part *part = &here->part;
    const float *got = here->t.data, *all = whole->t.data;
    const bool experts = strstr(here->name, ".experts.");
    for (int64_t k = 0; k < ls_tensor_count(&here->t); k++) {
        const int64_t i = k / C, j = k % C;
        const int64_t row = experts ? (part->first_run + i / part->count) * F + part->first + i % part->count : i;
        if (got[k] != all[experts ? row * C + j : k]) fail_msg("%s: element %lld", here->name, (long long)k);
    }
}

static void parts_are_read_from_both_forms(void **state)
{
    (void)state;
    static const char *const files[] = { "apart.safetensors", "stacked.safetensors" };
    static const struct { int first_run, runs; int64_t first, rows; } parts[] = {
        { 0, E, 0, F }, { 0, 2, 0, F }, { 2, 2, 0, F }, { 0, E, 0, 10 }, { 0, E, 10, F - 10 }, { 1, 2, 5, 7 }, { 3, 1, F - 1, 1 },
    };
    for (size_t m = 0; m < COUNT(models); m++) {
        scene s;
        scene_open(&s, &models[m]);
        for (size_t f = 0; f < COUNT(files); f++)
            for (size_t k = 0; k < COUNT(parts); k++) {
                ls_params here = { 0 };
                cut(&s.m->params, parts[k].first_run, parts[k].runs, parts[k].first, parts[k].rows, &here);
                assert_done(ls_ckpt_load(in_root(files[f]), &here, false));
                for (int i = 0; i < here.n; i++) is_slice(&here.item[i], &s.m->params.item[i]);
                for (int i = 0; i < here.n; i++) free(here.item[i].t.data);
                ls_params_free(&here);
            }
        scene_close(&s);
    }
}

/* Expert e of w2 and down_proj is transposed there; all others are rows of the parameter. */
static void a_file_has_a_tensor_for_each(void **state)
{
    (void)state;
    for (size_t m = 0; m < COUNT(models); m++) {
        scene s;
        ls_ckpt *c;
        int tensors = 0;
        scene_open(&s, &models[m]);
        assert_done(ls_ckpt_open(in_root("apart.safetensors"), &c));
        for (int i = 0; i < s.m->params.n; i++) {
            const ls_param *p = &s.m->params.item[i];
            const char *behind = strstr(p->name, ".experts.");
            tensors += behind ? E : 1;
            assert_true(!behind == (ls_ckpt_find(c, p->name) != NULL));
            for (int e = 0; behind && e < E; e++) {
                char name[256];
                float got[F * C];
                const bool turned = strstr(behind, "w2") || strstr(behind, "down_proj");
                snprintf(name, sizeof name, "%.*s.experts.%d.%s", (int)(behind - p->name), p->name, e,
                         behind + strlen(".experts."));
                const ls_ckpt_tensor *t = ls_ckpt_find(c, name);
                assert_non_null(t);
                assert_true(t->ndim == 2 && t->dim[0] == (turned ? C : F) && t->dim[1] == (turned ? F : C));
                assert_done(ls_ckpt_read(c, t, got));
                for (int k = 0; k < F * C; k++)
                    assert_true(got[turned ? k % C * F + k / C : k] == ((const float *)p->t.data)[e * F * C + k]);
            }
        }
        assert_int_equal(ls_ckpt_count(c), tensors);
        ls_ckpt_close(c);
        scene_close(&s);
    }
}

/* Files of both forms are one model to who compares them: the same tensors, of the same digest. */
static void weights_are_parameters(void **state)
{
    (void)state;
    scene s;
    ls_weights w;
    scene_open(&s, &models[0]);
    assert_done(ls_weights_open(in_root("apart.safetensors"), &w));
    assert_int_equal(ls_weights_count(&w), s.m->params.n);
    for (int i = 0; i < s.m->params.n; i++) {
        const ls_param *p = &s.m->params.item[i];
        ls_weights_tensor t;
        float *got = malloc(ls_tensor_nbytes(&p->t));
        assert_true(got && ls_weights_find(&w, p->name, &t));
        assert_int_equal(t.nbytes, ls_tensor_nbytes(&p->t));
        assert_done(ls_weights_read(&w, &t, got));
        assert_memory_equal(got, p->t.data, t.nbytes);
        free(got);
    }
    ls_weights_close(&w);
    scene_close(&s);
}

/* A file whose experts are not those of the model changes nothing. */
static void other_experts_are_refused(void **state)
{
    (void)state;
    scene s;
    ls_params half = { 0 }, other = { 0 };
    scene_open(&s, &models[0]);
    cut(&s.m->params, 0, 2, 0, F, &half); /* half the experts, of a model with twice as many rows in each */
    for (int i = 0; i < half.n; i++)
        if (strstr(half.item[i].name, ".experts.")) half.item[i].part = (ls_part){ 0, 1, 2 * F, 0, 2 * F, 0, 2 };
    assert_refused(ls_ckpt_load(in_root("apart.safetensors"), &half, false), LS_SHAPE, "of 4 experts");
    for (int i = 0; i < half.n; i++) free(half.item[i].t.data);
    ls_params_free(&half);
    /* expert 2 is missing: 0 and 1 are a tensor that does not fit */
    for (int i = 0; i < s.m->params.n; i++) {
        const ls_param *p = &s.m->params.item[i];
        const int64_t n = ls_hf_tensors(&s.hf.lm, p->name);
        for (int64_t e = 0; e < n; e++) {
            char name[LS_HF_NAME_BYTES];
            const int64_t turned[] = { C, F }, rows[] = { F, C };
            const int64_t *dim = n == 1 ? p->t.dim : ls_hf_expert_transposed(p->name) ? turned : rows;
            if (n > 1 && e == 2) continue;
            assert_done(ls_params_add(&other, ls_hf_tensor_name(p->name, e, name), p->t.ndim, dim));
        }
    }
    take_memory(&other);
    assert_done(ls_ckpt_save(in_root("missing.safetensors"), &other, s.meta));
    assert_refused(ls_ckpt_load(in_root("missing.safetensors"), &s.m->params, false), LS_SHAPE, "has shape [48, 32]");
    for (int i = 0; i < other.n; i++) free(other.item[i].t.data);
    ls_params_free(&other);
    scene_close(&s);
}

/* What an export of either file has are the same bytes. */
static void exports_are_the_same(void **state)
{
    (void)state;
    static const char *const files[] = { "apart", "stacked" };
    ls_weights w[2];
    scene s;
    scene_open(&s, &models[1]);
    for (int k = 0; k < 2; k++) {
        char file[64], dir[64];
        snprintf(file, sizeof file, "%s.safetensors", files[k]);
        snprintf(dir, sizeof dir, "export-of-%s", files[k]);
        mkdir(in_root(dir), 0700);
        assert_done(ls_hf_export(in_root(file), in_root(dir), LS_F32, SIZE_MAX));
        snprintf(dir, sizeof dir, "export-of-%s/model.safetensors", files[k]);
        assert_done(ls_weights_open(in_root(dir), &w[k]));
    }
    assert_int_equal(ls_ckpt_count(w[0].file), ls_ckpt_count(w[1].file));
    for (int i = 0; i < ls_ckpt_count(w[0].file); i++) {
        const ls_ckpt_tensor *a = ls_ckpt_at(w[0].file, i), *b = ls_ckpt_at(w[1].file, i);
        assert_string_equal(a->name, b->name);
        assert_true(a->has_checksum && a->checksum == b->checksum);
    }
    ls_weights_close(&w[0]);
    ls_weights_close(&w[1]);
    scene_close(&s);
}

static int begin(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/lockstep-test-hf-experts-XXXXXX");
    return mkdtemp(root) ? 0 : 1;
}

static int end(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_has_a_tensor_for_each), cmocka_unit_test(parts_are_read_from_both_forms),
        cmocka_unit_test(weights_are_parameters),       cmocka_unit_test(other_experts_are_refused),
        cmocka_unit_test(exports_are_the_same),
    };
    return cmocka_run_group_tests_name("hf_experts", tests, begin, end);
}
