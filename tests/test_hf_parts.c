/* Parts of tensors in Hugging Face's files: a rank has its own alone and checks every digest, and what ranks keep is
 * written as the whole model is. No strategy cuts parameters so yet: the parts are made by hand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/context.h"
#include "base/env.h"
#include "harness.h"
#include "lockstep/ckpt.h"
#include "lockstep/hf.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* --- the model, whole ----------------------------------------------------------------------------------- */

#define SMALL .vocab_size = 50, .seq_len = 16, .n_layer = 2, .n_head = 4, .d_model = 32
static const ls_model_config models[] = {
    { .name = "gpt2", .init = LS_INIT_PHILOX, .seed = 3, .lm = { SMALL, .tied = true } },
    { .name = "llama", .init = LS_INIT_PHILOX, .seed = 5, .lm = { SMALL, .n_kv_head = 4, .d_ff = 48 } },
    { .name = "llama", .init = LS_INIT_PHILOX, .seed = 6, .lm = { SMALL, .tied = true } },
};

static char root[64];

static const char *folder(const char *name)
{
    static _Thread_local char path[128];
    snprintf(path, sizeof path, "%s/%s", root, name);
    mkdir(path, 0700);
    return path;
}

static ls_status take_memory(ls_params *ps)
{
    for (int i = 0; i < ps->n; i++) {
        ls_tensor *t = &ps->item[i].t;
        if (!(t->data = calloc(1, ls_tensor_nbytes(t)))) return ls_fail(LS_NO_MEMORY, "%s", ps->item[i].name);
    }
    return LS_OK;
}

static ls_status build(const ls_model_config *c, ls_hf_config *hf, ls_model **out)
{
    LS_TRY(ls_hf_config_of(c, hf));
    LS_TRY(ls_model_create(c, out));
    LS_TRY(take_memory(&(*out)->params));
    LS_TRY(ls_model_init(*out, c));
    for (int i = 0; i < (*out)->params.n; i++) /* no element like its neighbour, biases and norms among them */
        for (int64_t k = 0; k < ls_tensor_count(&(*out)->params.item[i].t); k++)
            ((float *)(*out)->params.item[i].t.data)[k] += (float)(i + 1) + (float)k / 1024;
    return LS_OK;
}

static void drop(ls_model *m)
{
    for (int i = 0; m && i < m->params.n; i++) free(m->params.item[i].t.data);
    ls_model_destroy(m);
}

/* --- parts, by hand -------------------------------------------------------------------------------------- */

/* Rows of the model's [out, in] are cut for what enters a block, columns for what leaves it, as tensor parallelism
 * does; the packed q, k and v in three runs; the vocabulary in slices that are not equal. */
static const struct { const char *name; int dim, runs; } cuts[] = {
    { "wte.weight", 0, 1 },   { "embed_tokens.weight", 0, 1 }, { "lm_head.weight", 0, 1 },
    { "c_attn.weight", 0, 3 }, { "c_attn.bias", 0, 3 },        { "c_fc.weight", 0, 1 },    { "c_fc.bias", 0, 1 },
    { "c_proj.weight", 1, 1 }, { "q_proj.weight", 0, 1 },      { "k_proj.weight", 0, 1 },  { "v_proj.weight", 0, 1 },
    { "o_proj.weight", 1, 1 }, { "gate_proj.weight", 0, 1 },   { "up_proj.weight", 0, 1 }, { "down_proj.weight", 1, 1 },
};

/* What rank r of n has of a parameter of the whole model. */
static ls_part part_of(const ls_param *p, int r, int n)
{
    for (size_t i = 0; i < COUNT(cuts); i++) {
        const size_t at = strlen(p->name) - strlen(cuts[i].name);
        if (strlen(p->name) < strlen(cuts[i].name) || strcmp(p->name + at, cuts[i].name) != 0) continue;
        const int64_t of = p->t.dim[cuts[i].dim] / cuts[i].runs;
        const ls_range mine = ls_shard_of((size_t)of, r, n);
        return (ls_part){ cuts[i].dim, cuts[i].runs, of, (int64_t)mine.first, (int64_t)mine.count, 0, 0 };
    }
    return ls_part_all(&p->t);
}

/* The parameters of rank r. Of what all have each keeps some elements. */
static ls_status cut_params(const ls_params *whole, int r, int n, ls_params *out)
{
    for (int i = 0; i < whole->n; i++) {
        const ls_param *p = &whole->item[i];
        const ls_part part = part_of(p, r, n);
        int64_t dim[LS_MAX_DIMS];
        memcpy(dim, p->t.dim, sizeof dim);
        dim[part.dim] = part.runs * part.count;
        LS_TRY(ls_params_add(out, p->name, p->t.ndim, dim));
        ls_param *to = &out->item[i];
        to->part = part;
        to->transposed = p->transposed;
        to->own = (ls_range){ 0, (size_t)ls_tensor_count(&to->t) };
        to->keeps = ls_part_is_all(&part) ? ls_shard_of(to->own.count, r, n) : to->own;
    }
    return take_memory(out);
}

static void free_params(ls_params *ps)
{
    for (int i = 0; i < ps->n; i++) free(ps->item[i].t.data);
    ls_params_free(ps);
}

/* Element by element, by what a part means: its dimension is runs of `of`, of each of which some are here. */
static ls_status is_slice(const ls_param *p, const ls_param *whole)
{
    const ls_part *part = &p->part;
    const int64_t cols = p->t.ndim > 1 ? p->t.dim[1] : 1, all_cols = whole->t.ndim > 1 ? whole->t.dim[1] : 1;
    const float *here = p->t.data, *all = whole->t.data;
    for (int64_t i = 0; i < p->t.dim[0]; i++)
        for (int64_t j = 0; j < cols; j++) {
            int64_t at[2] = { i, j };
            at[part->dim] = at[part->dim] / part->count * part->of + part->first + at[part->dim] % part->count;
            const float got = here[i * cols + j], want = all[at[0] * all_cols + at[1]];
            LS_EXPECT(got == want, "%s: [%lld, %lld] is %g, expected %g", p->name, (long long)i, (long long)j,
                      (double)got, (double)want);
        }
    return LS_OK;
}

/* --- reading --------------------------------------------------------------------------------------------- */

static ls_env counting;
static const ls_env *real_env;
static size_t bytes_read;

static ssize_t count_pread(int fd, void *p, size_t n, uint64_t at)
{
    const ssize_t k = real_env->pread(fd, p, n, at);
    if (k > 0) bytes_read += (size_t)k;
    return k;
}

static size_t file_bytes(const char *dir)
{
    struct stat s;
    char path[256];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_int_equal(stat(path, &s), 0);
    return (size_t)s.st_size;
}

/* drop_digests: they get names that nobody looks for, so the file is as another program's. Returns where the bytes of
 * tensor `name` begin in the file; NULL: those of the first. */
static long edit_header(const char *dir, bool drop_digests, const char *name)
{
    static char header[1 << 16];
    static const char key[] = "\"lockstep.";
    char path[256];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    uint64_t n;
    assert_int_equal(fread(&n, sizeof n, 1, f), 1);
    assert_true(n < sizeof header);
    assert_int_equal(fread(header, 1, n, f), n);
    header[n] = '\0';
    for (char *at = header; drop_digests && (at = strstr(at, key)); at++) at[1] = 'L';
    assert_int_equal(fseek(f, sizeof n, SEEK_SET), 0);
    assert_int_equal(fwrite(header, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    unsigned long begin = 0;
    const char *entry = name ? strstr(header, name) : NULL;
    const char *offsets = entry ? strstr(entry, "\"data_offsets\":") : NULL;
    if (offsets) assert_int_equal(sscanf(offsets, "\"data_offsets\":[%lu", &begin), 1);
    return (long)(sizeof n + n + begin);
}

/* Headers are of some 10 KiB here. What has a digest is read whole, to check it. */
static void a_rank_has_its_part_and_reads_what_it_checks(void **state)
{
    (void)state;
    static const ls_dtype dtypes[] = { LS_F32, LS_BF16 };
    for (size_t m = 0; m < 2 * COUNT(models); m++)
        for (size_t d = 0; d < COUNT(dtypes); d++) {
            const ls_model_config *mc = &models[m / 2];
            const bool digests = m % 2;
            ls_hf_config c;
            ls_model *model, *rounded;
            char name[32];
            snprintf(name, sizeof name, "reads-%zu-%zu", m, d);
            const char *dir = folder(name);
            if (build(mc, &c, &model) < 0 || build(mc, &c, &rounded) < 0 ||
                ls_hf_save(dir, &c, &model->params, dtypes[d], SIZE_MAX) < 0 ||
                ls_hf_load(dir, &c, &rounded->params) < 0)
                fail_msg("%s", ls_last_error());
            if (!digests) (void)edit_header(dir, true, NULL);
            const size_t all = ls_params_nbytes(&model->params) / (dtypes[d] == LS_F32 ? 1 : 2);
            const size_t header = file_bytes(dir) - all;
            for (int n = 2; n <= 4; n++)
                for (int r = 0; r < n; r++) {
                    ls_params ps = { 0 };
                    size_t parts = 0, before = bytes_read;
                    if (cut_params(&model->params, r, n, &ps) < 0 || ls_hf_load(dir, &c, &ps) < 0)
                        fail_msg("rank %d of %d: %s", r, n, ls_last_error());
                    for (int i = 0; i < ps.n; i++) {
                        parts += (size_t)ls_tensor_count(&ps.item[i].t) * ls_dtype_size(dtypes[d]);
                        if (is_slice(&ps.item[i], &rounded->params.item[i]) < 0)
                            fail_msg("rank %d of %d: %s", r, n, ls_last_error());
                    }
                    const size_t least = digests ? all : parts;
                    assert_in_range(bytes_read - before, least, least + 2 * header);
                    free_params(&ps);
                }
            drop(model);
            drop(rounded);
        }
}

static void flip(const char *dir, long at)
{
    char path[256];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    const int c = fgetc(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fputc(c ^ 1, f), c ^ 1);
    assert_int_equal(fclose(f), 0);
}

static ls_status load_cut(const char *dir, const ls_hf_config *c, const ls_params *whole, int r, int n)
{
    ls_params ps = { 0 };
    ls_status st = cut_params(whole, r, n, &ps);
    if (st == LS_OK) st = ls_hf_load(dir, c, &ps);
    for (int i = 0; st == LS_OK && i < ps.n; i++) st = is_slice(&ps.item[i], ls_params_find(whole, ps.item[i].name));
    free_params(&ps);
    return st;
}

/* A head that is the embedding once more is cut and compared as the embedding is. Rank 0 of 2 has the rows 0 to 24. */
static void a_tied_head_is_checked_in_parts(void **state)
{
    (void)state;
    ls_hf_config c, of_file;
    ls_model *model, *untied = NULL;
    ls_model_config mc = models[2];
    const char *dir = folder("tied");
    mc.lm.tied = false;
    if (build(&models[2], &c, &model) < 0 || build(&mc, &of_file, &untied) < 0) fail_msg("%s", ls_last_error());
    const ls_param *embedding = ls_params_find(&untied->params, "model.embed_tokens.weight");
    const ls_param *head = ls_params_find(&untied->params, "lm_head.weight");
    assert_true(embedding && head);
    memcpy(head->t.data, embedding->t.data, ls_tensor_nbytes(&head->t));
    for (int i = 0; i < model->params.n; i++) { /* the same model without its head */
        const ls_param *from = ls_params_find(&untied->params, model->params.item[i].name);
        memcpy(model->params.item[i].t.data, from->t.data, ls_tensor_nbytes(&from->t));
    }
    if (ls_hf_save(dir, &of_file, &untied->params, LS_F32, SIZE_MAX) < 0) fail_msg("%s", ls_last_error());
    for (int r = 0; r < 2; r++)
        if (load_cut(dir, &c, &model->params, r, 2) < 0) fail_msg("rank %d: %s", r, ls_last_error());

    const long last_row = edit_header(dir, false, "\"lm_head.weight\"") + 49 * 32 * 4;
    flip(dir, last_row); /* of rank 1: both read all of the head, to check it */
    for (int r = 0; r < 2; r++) {
        assert_int_equal(load_cut(dir, &c, &model->params, r, 2), LS_CKPT_CORRUPT);
        assert_non_null(strstr(ls_last_error(), "tensor 'lm_head.weight' has the digest"));
    }
    assert_int_equal(edit_header(dir, true, "\"lm_head.weight\"") + 49 * 32 * 4, last_row);
    if (load_cut(dir, &c, &model->params, 0, 2) < 0) fail_msg("without digests: %s", ls_last_error());
    assert_int_equal(load_cut(dir, &c, &model->params, 1, 2), LS_BAD_FILE);
    assert_non_null(strstr(ls_last_error(), "'lm_head.weight' differs from 'model.embed_tokens.weight'"));
    drop(model);
    drop(untied);
}

/* --- writing --------------------------------------------------------------------------------------------- */

typedef struct job {
    const ls_model_config *model;
    const char *dir;
    ls_dtype dtype;
    size_t max_shard;
    bool twice; /* rank 1 keeps what rank 0 does */
} job;

static ls_status writes(ls_world *w, void *arg)
{
    const job *j = arg;
    ls_hf_config c;
    ls_model *model = NULL;
    ls_params ps = { 0 };
    ls_kept *kept = NULL;
    ls_status st = build(j->model, &c, &model);
    if (st == LS_OK) st = cut_params(&model->params, ls_world_rank(w), ls_world_size(w), &ps);
    for (int i = 0; st == LS_OK && i < ps.n; i++) { /* its part of the values, and of nothing else */
        ls_param *p = &ps.item[i];
        for (int64_t k = 0; k < ls_tensor_count(&p->t); k++)
            ((float *)p->t.data)[k] = ((float *)model->params.item[i].t.data)[ls_part_index(&p->part, &p->t, k, NULL)];
        if (j->twice && ls_world_rank(w) == 1) p->keeps = p->own;
    }
    if (st == LS_OK) st = ls_kept_create(ls_world_group(w), &kept);
    const ls_values values = ls_kept_values(kept);
    const char *dir = ls_world_rank(w) == 0 ? j->dir : NULL;
    if (st == LS_OK) st = ls_hf_save_of(dir, &c, &ps, &values, j->dtype, j->max_shard);
    ls_kept_destroy(kept);
    free_params(&ps);
    drop(model);
    return st;
}

static void expect_same_file(const char *a, const char *b, const char *name)
{
    char path[2][256];
    static char text[2][1 << 20];
    size_t n[2];
    snprintf(path[0], sizeof path[0], "%s/%s", a, name);
    snprintf(path[1], sizeof path[1], "%s/%s", b, name);
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(path[i], "rb");
        if (!f) fail_msg("%s is not there", path[i]);
        n[i] = fread(text[i], 1, sizeof text[i], f);
        fclose(f);
    }
    assert_true(n[0] == n[1] && n[0] > 0 && n[0] < sizeof text[0]);
    if (memcmp(text[0], text[1], n[0]) != 0) fail_msg("%s differs", path[1]);
}

/* The files of three ranks that keep parts are those of one that has all. */
static void what_ranks_keep_is_written_whole(void **state)
{
    (void)state;
    static const struct { ls_dtype dtype; size_t max_shard; const char *file[3]; } row[] = {
        { LS_F32, SIZE_MAX, { "model.safetensors" } },
        { LS_BF16, 40000, { "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                            "model.safetensors.index.json" } },
    };
    for (size_t i = 0; i < 2 * COUNT(row); i++) {
        const size_t m = i / COUNT(row), k = i % COUNT(row);
        ls_hf_config c;
        ls_model *model;
        char one[128], name[32];
        snprintf(name, sizeof name, "one-%zu", i);
        snprintf(one, sizeof one, "%s", folder(name));
        snprintf(name, sizeof name, "three-%zu", i);
        if (build(&models[m], &c, &model) < 0) fail_msg("%s", ls_last_error());
        const size_t most = row[k].max_shard == SIZE_MAX ? SIZE_MAX : ls_params_nbytes(&model->params) / 2 * 3 / 4;
        if (ls_hf_save(one, &c, &model->params, row[k].dtype, most) < 0) fail_msg("%s", ls_last_error());
        job j = { &models[m], folder(name), row[k].dtype, most, false };
        const ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 3, NULL, writes, &j);
        if (r.failed) fail_msg("%s", r.text);
        for (int f = 0; f < 3 && row[k].file[f]; f++) expect_same_file(one, j.dir, row[k].file[f]);
        drop(model);
    }
}

/* --- failures -------------------------------------------------------------------------------------------------- */

typedef struct counted {
    int calls;
    const char *blocked; /* becomes a folder at the first call; NULL: nothing does */
} counted;

static ls_status count_whole(void *arg, const ls_param *p, const float **out)
{
    counted *k = arg;
    if (k->calls++ == 0 && k->blocked && mkdir(k->blocked, 0700) < 0) return ls_fail(LS_IO, "%s", k->blocked);
    *out = p->t.data;
    return LS_OK;
}

/* The other ranks ask for every value in any case: the one that writes must, too, or they wait forever. */
static void a_rank_that_cannot_write_asks_for_every_value(void **state)
{
    (void)state;
    ls_hf_config c;
    ls_model *model;
    counted attends = { 0 }, late = { 0 }, early = { 0 };
    char path[256];
    const char *dir = folder("blocked");
    if (build(&models[0], &c, &model) < 0) fail_msg("%s", ls_last_error());
    const size_t most = ls_params_nbytes(&model->params) / 2 * 3 / 4;
    const ls_values others = { count_whole, &attends };
    assert_int_equal(ls_hf_save_of(NULL, &c, &model->params, &others, LS_BF16, most), LS_OK);
    assert_true(attends.calls > 2);
    snprintf(path, sizeof path, "%s/model-00001-of-00002.safetensors", dir);
    late.blocked = path;
    const ls_values blocked = { count_whole, &late };
    assert_true(ls_hf_save_of(dir, &c, &model->params, &blocked, LS_BF16, most) < 0);
    assert_non_null(strstr(ls_last_error(), "model-00001-of-00002.safetensors"));
    assert_int_equal(late.calls, attends.calls);
    const ls_values full = { count_whole, &early }; /* the folder is not empty */
    assert_int_equal(ls_hf_save_of(dir, &c, &model->params, &full, LS_BF16, most), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "is not an empty folder"));
    assert_int_equal(early.calls, attends.calls);
    drop(model);
}

/* --- bad input --------------------------------------------------------------------------------------------- */

static void says_what_does_not_fit(void **state)
{
    (void)state;
    ls_hf_config c;
    ls_model *model;
    ls_params ps = { 0 };
    const char *dir = folder("bad");
    if (build(&models[0], &c, &model) < 0 || ls_hf_save(dir, &c, &model->params, LS_F32, SIZE_MAX) < 0 ||
        cut_params(&model->params, 1, 2, &ps) < 0)
        fail_msg("%s", ls_last_error());
    /* half of a matrix that is smaller in the file */
    ls_param *p = ls_params_find(&ps, "transformer.h.0.mlp.c_fc.weight");
    p->part.of = 200;
    assert_int_equal(ls_hf_load(dir, &c, &ps), LS_SHAPE);
    assert_non_null(strstr(ls_last_error(), "'transformer.h.0.mlp.c_fc.weight' has shape [32, 128], config.json makes "
                                            "it [32, 200]"));
    p->part.of = 100; /* elements that it does not have */
    assert_int_equal(ls_hf_load(dir, &c, &ps), LS_SHAPE);
    assert_non_null(strstr(ls_last_error(), "parameter 'transformer.h.0.mlp.c_fc.weight'"));
    p->part.of = 128;
    assert_int_equal(ls_hf_load(dir, &c, &ps), LS_OK);
    assert_int_equal(ls_hf_save(folder("bad-out"), &c, &ps, LS_F32, SIZE_MAX), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "is a part of a tensor here: save it by ls_hf_save_of"));
    free_params(&ps);
    drop(model);

    job j = { &models[0], folder("twice"), LS_F32, SIZE_MAX, true };
    const ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 2, NULL, writes, &j);
    assert_int_equal(r.status, LS_INVALID);
    if (!strstr(r.text, "'transformer.wpe.weight': ranks keep 768 elements together, the whole tensor has 512"))
        fail_msg("%s", r.text);
}

static int begin(void **state)
{
    (void)state;
    static ls_context context = { .rank = -1 };
    real_env = ls_env_get();
    counting = *real_env;
    counting.pread = count_pread;
    context.env = &counting;
    ls_context_swap(&context);
    snprintf(root, sizeof root, "/tmp/lockstep-test-hf-parts-XXXXXX");
    return mkdtemp(root) ? 0 : 1;
}

static int end(void **state)
{
    (void)state;
    char command[128];
    ls_context_swap(NULL);
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_has_its_part_and_reads_what_it_checks),
        cmocka_unit_test(a_tied_head_is_checked_in_parts),
        cmocka_unit_test(what_ranks_keep_is_written_whole),
        cmocka_unit_test(a_rank_that_cannot_write_asks_for_every_value),
        cmocka_unit_test(says_what_does_not_fit),
    };
    return cmocka_run_group_tests_name("hf_parts", tests, begin, end);
}
