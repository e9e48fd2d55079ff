/* Hugging Face folders: what goes out comes back to the bit, what transformers saved is read, and
 * whatever is wrong with a folder is refused with a sentence that says so. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/limits.h"
#include "ckpt/hf.h"
#include "ckpt/save.h"
#include "coll/reduce.h"
#include "lockstep/hf.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define assert_error_has(text)                                                                   \
    do {                                                                                         \
        if (!strstr(ls_last_error(), text)) fail_msg("'%s' lacks '%s'", ls_last_error(), text);  \
    } while (0)
#define assert_refused(expr, status, text)                                                       \
    do {                                                                                         \
        const ls_status got_ = (expr);                                                           \
        if (got_ != (status)) fail_msg("%s: status %d: %s", #expr, got_, ls_last_error());       \
        assert_error_has(text);                                                                  \
    } while (0)
#define assert_done(expr)                                                                        \
    do {                                                                                         \
        if ((expr) != LS_OK) fail_msg("%s: %s", #expr, ls_last_error());                         \
    } while (0)

/* --- folders ----------------------------------------------------------------------------- */

static char root[64]; /* of this run */

static const char *in_root(const char *name)
{
    static char path[8][256];
    static int next;
    next = (next + 1) % 8;
    snprintf(path[next], sizeof path[next], "%.100s/%.100s", root, name);
    return path[next];
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

static const char *fresh(const char *name)
{
    const char *path = in_root(name);
    remove_folder(path);
    assert_int_equal(mkdir(path, 0700), 0);
    return path;
}

static void put_file(const char *dir, const char *name, const void *p, size_t n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
}

static char *get_file(const char *dir, const char *name, size_t *n)
{
    char path[512], *p;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    p = malloc(*n + 1);
    assert_non_null(p);
    assert_int_equal(fread(p, 1, *n, f), *n);
    p[*n] = 0;
    fclose(f);
    return p;
}

static int files_in(const char *dir)
{
    int n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) n += *e->d_name != '.';
    closedir(d);
    return n;
}

static void assert_same_files(const char *first, const char *second)
{
    assert_int_equal(files_in(first), files_in(second));
    DIR *d = opendir(first);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (*e->d_name == '.') continue;
        size_t n, m;
        char *p = get_file(first, e->d_name, &n), *q = get_file(second, e->d_name, &m);
        assert_true(p && q && n == m);
        assert_memory_equal(p, q, n);
        free(p);
        free(q);
    }
    closedir(d);
}

/* --- models -------------------------------------------------------------------------------- */

typedef struct fixture {
    ls_hf_config c;
    ls_model *m;
    ls_arena *arena;
} fixture;

#define SMALL .vocab_size = 64, .seq_len = 16, .n_layer = 2, .n_head = 4, .d_model = 32
static const ls_model_config gpt2 = { .name = "gpt2", .init = LS_INIT_PHILOX, .seed = 3, .lm = { SMALL, .tied = true } };
static const ls_model_config gpt2_untied = { .name = "gpt2", .init = LS_INIT_PHILOX, .seed = 4, .lm = { SMALL, .d_ff = 40 } };
static const ls_model_config llama = { .name = "llama", .init = LS_INIT_PHILOX, .seed = 5,
                                       .lm = { SMALL, .n_kv_head = 2, .d_ff = 48, .norm_eps = 1e-6,
                                               .rope_theta = 5e5 } };
static const ls_model_config llama_tied = { .name = "llama", .init = LS_INIT_PHILOX, .seed = 6, .lm = { SMALL, .tied = true } };
static const ls_model_config *const all[] = { &gpt2, &gpt2_untied, &llama, &llama_tied };

static fixture build(const ls_model_config *c)
{
    fixture f = { 0 };
    assert_done(ls_hf_config_of(c, &f.c));
    assert_done(ls_model_create(c, &f.m));
    ls_params *ps = &f.m->params;
    assert_done(ls_arena_create(ls_params_nbytes(ps) + 64u * (size_t)ps->n, false, NULL, &f.arena));
    assert_done(ls_params_bind(ps, f.arena, NULL));
    assert_done(ls_model_init(f.m, c));
    for (int i = 0; i < ps->n; i++) /* no two tensors alike */
        ((float *)ps->item[i].t.data)[0] += 0.001f * (float)i;
    return f;
}

static void drop(fixture *f)
{
    ls_model_destroy(f->m);
    ls_arena_destroy(f->arena);
}

static void forget(fixture *f)
{
    for (int i = 0; i < f->m->params.n; i++) {
        const ls_tensor *t = &f->m->params.item[i].t;
        memset(t->data, 0x55, ls_tensor_nbytes(t));
    }
}

static void assert_same_values(const fixture *a, const fixture *b)
{
    assert_int_equal(a->m->params.n, b->m->params.n);
    for (int i = 0; i < a->m->params.n; i++) {
        const ls_param *p = &a->m->params.item[i], *q = &b->m->params.item[i];
        if (memcmp(p->t.data, q->t.data, ls_tensor_nbytes(&p->t)) != 0) fail_msg("%s differs", p->name);
    }
}

static void assert_same_config(const ls_hf_config *a, const ls_hf_config *b)
{
    assert_string_equal(a->model, b->model);
    assert_memory_equal(&a->lm, &b->lm, sizeof a->lm);
    assert_true(a->bos == b->bos && a->eos == b->eos && a->dtype == b->dtype);
}

/* --- there and back -------------------------------------------------------------------------- */

static void what_is_saved_is_read_to_the_bit(void **state)
{
    (void)state;
    static const size_t shards[] = { 1, 9000, SIZE_MAX }; /* a tensor a file; several; one file */
    for (size_t k = 0; k < COUNT(all); k++)
        for (size_t s = 0; s < COUNT(shards); s++) {
            fixture from = build(all[k]), to = build(all[k]);
            from.c.bos = 1;
            const char *dir = fresh("there");
            assert_done(ls_hf_save(dir, &from.c, &from.m->params, LS_F32, shards[s]));
            ls_hf_config c;
            assert_done(ls_hf_config_read(dir, &c));
            assert_same_config(&c, &from.c);
            forget(&to);
            assert_done(ls_hf_load(dir, &c, &to.m->params));
            assert_same_values(&from, &to);
            const int n = from.m->params.n;
            if (shards[s] == 1) assert_int_equal(files_in(dir), n + 3);
            else if (shards[s] == SIZE_MAX) assert_int_equal(files_in(dir), 3);
            else assert_in_range(files_in(dir), 6, n + 1);
            drop(&from);
            drop(&to);
        }
}

static void no_shard_is_larger_than_asked_for(void **state)
{
    (void)state;
    fixture f = build(&gpt2);
    const size_t most = 20000; /* a c_fc has 16384 bytes: no tensor alone is larger */
    const char *dir = fresh("cut");
    assert_done(ls_hf_save(dir, &f.c, &f.m->params, LS_F32, most));
    size_t n, total = 0;
    int shards = files_in(dir) - 3; /* config, generation_config, index */
    char name[64], *index = get_file(dir, "model.safetensors.index.json", &n);
    assert_non_null(index);
    for (int s = 1; s <= shards; s++) {
        ls_ckpt *c;
        size_t nbytes = 0;
        snprintf(name, sizeof name, "cut/model-%05d-of-%05d.safetensors", s, shards);
        assert_done(ls_ckpt_open(in_root(name), &c));
        for (int i = 0; i < ls_ckpt_count(c); i++) nbytes += (size_t)(ls_ckpt_at(c, i)->end - ls_ckpt_at(c, i)->begin);
        assert_in_range(nbytes, 1, most);
        total += nbytes;
        ls_ckpt_close(c);
    }
    assert_int_equal(total, ls_params_nbytes(&f.m->params));
    snprintf(name, sizeof name, "\"total_size\": %zu\n", total);
    assert_non_null(strstr(index, name));
    free(index);
    drop(&f);
}

static float narrowed(float v, ls_dtype dtype)
{
    return dtype == LS_BF16 ? ls_bf16_to_f32(ls_f32_to_bf16(v)) : ls_f16_to_f32(ls_f32_to_f16(v));
}

static void narrow_types_are_rounded_once(void **state)
{
    (void)state;
    static const ls_dtype types[] = { LS_BF16, LS_F16 };
    for (size_t k = 0; k < COUNT(all); k++)
        for (int d = 0; d < 2; d++) {
            fixture from = build(all[k]), to = build(all[k]);
            const char *dir = fresh("narrow"), *again = fresh("again");
            assert_done(ls_hf_save(dir, &from.c, &from.m->params, types[d], 9000));
            ls_hf_config c;
            assert_done(ls_hf_config_read(dir, &c));
            assert_int_equal(c.dtype, types[d]);
            forget(&to);
            assert_done(ls_hf_load(dir, &c, &to.m->params));
            for (int i = 0; i < from.m->params.n; i++) {
                const ls_tensor *a = &from.m->params.item[i].t, *b = &to.m->params.item[i].t;
                for (int64_t e = 0; e < ls_tensor_count(a); e++) {
                    const float want = narrowed(((float *)a->data)[e], types[d]);
                    assert_memory_equal(&want, (float *)b->data + e, sizeof want);
                }
            }
            assert_done(ls_hf_save(again, &c, &to.m->params, types[d], 9000));
            assert_same_files(dir, again);
            drop(&from);
            drop(&to);
        }
}

/* Conv1D: [in, out] in the file, value by value. */
static void gpt2s_matrices_are_turned_in_the_file(void **state)
{
    (void)state;
    fixture f = build(&gpt2);
    const char *dir = fresh("transposed");
    assert_done(ls_hf_save(dir, &f.c, &f.m->params, LS_F32, SIZE_MAX));
    ls_ckpt *c;
    assert_done(ls_ckpt_open(in_root("transposed/model.safetensors"), &c));
    int transposed = 0;
    for (int i = 0; i < f.m->params.n; i++) {
        const ls_param *p = &f.m->params.item[i];
        const ls_ckpt_tensor *t = ls_ckpt_find(c, p->name);
        assert_non_null(t);
        float *v = malloc((size_t)(t->end - t->begin));
        assert_done(ls_ckpt_read(c, t, v));
        const float *w = p->t.data;
        if (p->t.ndim == 2 && strstr(p->name, ".h.")) {
            const int64_t O = p->t.dim[0], I = p->t.dim[1];
            assert_true(t->dim[0] == I && t->dim[1] == O);
            for (int64_t o = 0; o < O; o++)
                for (int64_t k = 0; k < I; k++) assert_memory_equal(&v[k * O + o], &w[o * I + k], sizeof(float));
            transposed++;
        } else {
            assert_memory_equal(v, w, ls_tensor_nbytes(&p->t));
        }
        free(v);
    }
    assert_int_equal(transposed, 8);
    ls_ckpt_close(c);
    drop(&f);
}

static void golden(const char *name, const ls_hf_config *want, int nparams)
{
    char dir[512];
    ls_hf_config c;
    ls_model *m;
    ls_arena *arena;
    snprintf(dir, sizeof dir, "%s/tests/golden/hf/%s", LOCKSTEP_SOURCE, name);
    assert_done(ls_hf_config_read(dir, &c));
    assert_same_config(&c, want);
    const ls_model_config mc = { .name = c.model, .lm = c.lm };
    assert_done(ls_model_create(&mc, &m));
    assert_int_equal(m->params.n, nparams);
    assert_done(ls_arena_create(ls_params_nbytes(&m->params) + 64u * (size_t)m->params.n, false, NULL, &arena));
    assert_done(ls_params_bind(&m->params, arena, NULL));
    assert_done(ls_hf_load(dir, &c, &m->params));
    ls_model_destroy(m);
    ls_arena_destroy(arena);
}

static void reads_what_transformers_saved(void **state)
{
    (void)state;
    const ls_hf_config g = { .model = "gpt2", .bos = 0, .eos = 0, .dtype = LS_F32,
                             .lm = { SMALL, .n_kv_head = 4, .d_ff = 128, .norm_eps = 1e-5, .rope_theta = 10000,
                                     .tied = true } };
    const ls_hf_config l = { .model = "llama", .bos = 1, .eos = 2, .dtype = LS_F32,
                             .lm = { SMALL, .n_kv_head = 2, .d_ff = 48, .norm_eps = 1e-5, .rope_theta = 10000 } };
    golden("gpt2", &g, 28);
    golden("llama", &l, 21);
}

/* --- names that files may have --------------------------------------------------------------- */

/* A file made from the fixture's parameters, with other names, types and additions. */
typedef struct other {
    const char *strip;          /* a prefix that is left out */
    const char *without;        /* a parameter that is left out */
    const char *extra[3];       /* tensors of 2 x 2 that are added */
    const ls_tensor *head;      /* lm_head.weight, added */
    const char *replaced;       /* a parameter that is replaced by `by` */
    const ls_tensor *by;
} other;

static void write_other(const char *path, const fixture *f, const other *o)
{
    static const float square[4] = { 1, 2, 3, 4 };
    const ls_tensor small = { .dtype = LS_F32, .ndim = 2, .dim = { 2, 2 }, .data = (void *)square };
    ls_ckpt_item item[64];
    int n = 0;
    for (int i = 0; i < f->m->params.n; i++) {
        const ls_param *p = &f->m->params.item[i];
        const char *name = p->name;
        if (o->without && strcmp(name, o->without) == 0) continue;
        const bool by = o->replaced && strcmp(name, o->replaced) == 0;
        const bool conv = strcmp(f->c.model, "gpt2") == 0 && p->t.ndim == 2 && strstr(name, ".h.");
        if (o->strip && strncmp(name, o->strip, strlen(o->strip)) == 0) name += strlen(o->strip);
        item[n++] = (ls_ckpt_item){ .name = name, .from = by ? o->by : &p->t, .dtype = by ? o->by->dtype : LS_F32,
                                    .transposed = conv && !by };
    }
    for (int i = 0; i < 3 && o->extra[i]; i++)
        item[n++] = (ls_ckpt_item){ .name = o->extra[i], .from = &small, .dtype = LS_F32 };
    if (o->head) item[n++] = (ls_ckpt_item){ .name = "lm_head.weight", .from = o->head, .dtype = LS_F32 };
    assert_done(ls_ckpt_write(path, item, n, NULL));
}

static ls_status load_other(const ls_model_config *mc, const other *o)
{
    fixture from = build(mc), to = build(mc);
    fresh("other");
    write_other(in_root("other/model.safetensors"), &from, o);
    forget(&to);
    const ls_status st = ls_hf_load(in_root("other"), &to.c, &to.m->params);
    if (st == LS_OK) assert_same_values(&from, &to);
    drop(&from);
    drop(&to);
    return st;
}

static void names_may_lack_their_prefix_and_buffers_are_skipped(void **state)
{
    (void)state;
    assert_done(load_other(&gpt2, &(other){ .strip = "transformer." }));
    assert_done(load_other(&llama, &(other){ .strip = "model." }));
    assert_done(load_other(&gpt2, &(other){ .extra = { "transformer.h.0.attn.bias", "transformer.h.1.attn.masked_bias" } }));
    assert_done(load_other(&gpt2, &(other){ .strip = "transformer.", .extra = { "h.0.attn.bias", "h.1.attn.bias" } }));
    assert_done(load_other(&llama, &(other){ .extra = { "model.layers.0.self_attn.rotary_emb.inv_freq" } }));
}

static void a_tied_head_is_absent_or_equal(void **state)
{
    (void)state;
    fixture f = build(&gpt2);
    const ls_tensor *wte = &f.m->params.item[0].t;
    assert_done(load_other(&gpt2, &(other){ .head = wte }));
    float *v = wte->data; /* load_other builds its own model: this one differs in one element now */
    v[100] += 1.0f;
    assert_refused(load_other(&gpt2, &(other){ .head = wte }), LS_BAD_FILE, "differs from 'transformer.wte.weight'");
    assert_error_has("tie_word_embeddings");
    const ls_tensor wrong = { .dtype = LS_F32, .ndim = 2, .dim = { 32, 64 }, .data = v };
    assert_refused(load_other(&gpt2, &(other){ .head = &wrong }), LS_SHAPE, "'lm_head.weight' has shape [32, 64]");
    drop(&f);
}

static void other_tensors_are_refused_by_name(void **state)
{
    (void)state;
    assert_refused(load_other(&gpt2, &(other){ .without = "transformer.h.1.ln_2.bias" }), LS_SHAPE,
                   "lacks 1 tensor: transformer.h.1.ln_2.bias");
    assert_refused(load_other(&llama, &(other){ .without = "lm_head.weight" }), LS_SHAPE, "lacks 1 tensor: lm_head.weight");
    assert_refused(load_other(&gpt2, &(other){ .extra = { "transformer.h.2.ln_1.weight", "score.weight" } }), LS_SHAPE,
                   "has 2 tensors: transformer.h.2.ln_1.weight, score.weight");
    assert_refused(load_other(&gpt2, &(other){ .without = "transformer.wpe.weight", .extra = { "wpe" } }), LS_SHAPE,
                   "lacks 1 tensors that config.json's model has (the log names them), and has 1");
    assert_refused(load_other(&llama, &(other){ .extra = { "model.layers.0.self_attn.q_proj.bias" } }), LS_SHAPE, "has 1 tensor");

    /* both shapes, as the file has them */
    fixture f = build(&gpt2);
    const ls_tensor *c_attn = &ls_params_find(&f.m->params, "transformer.h.0.attn.c_attn.weight")->t;
    assert_refused(load_other(&gpt2, &(other){ .replaced = "transformer.h.0.attn.c_attn.weight", .by = c_attn }), LS_SHAPE,
                   "has shape [96, 32], config.json makes it [32, 96]");
    ls_tensor flat = { .dtype = LS_F32, .ndim = 1, .dim = { 96 * 32 }, .data = c_attn->data };
    assert_refused(load_other(&gpt2, &(other){ .replaced = "transformer.h.0.attn.c_attn.weight", .by = &flat }), LS_SHAPE,
                   "has shape [3072], config.json makes it [32, 96]");
    ls_tensor whole = f.m->params.item[0].t;
    whole.dtype = LS_I32;
    assert_refused(load_other(&gpt2, &(other){ .replaced = "transformer.wte.weight", .by = &whole }), LS_UNSUPPORTED,
                   "'transformer.wte.weight' has elements of type I32");
    drop(&f);
}

/* Hundreds of names do not fit into a sentence: as many as do, and how many more. */
static void many_missing_tensors_are_counted(void **state)
{
    (void)state;
    fixture f = build(&llama);
    fresh("many");
    const ls_ckpt_item one = { .name = "lm_head.weight", .from = &ls_params_find(&f.m->params, "lm_head.weight")->t };
    assert_done(ls_ckpt_write(in_root("many/model.safetensors"), &one, 1, NULL));
    assert_refused(ls_hf_load(in_root("many"), &f.c, &f.m->params), LS_SHAPE, "lacks 20 tensors: embed_tokens.weight, layers.0.");
    assert_error_has(" more: the files are of another model");
    drop(&f);
}

/* --- folders that are not whole ----------------------------------------------------------------- */

static void a_sharded_model_must_be_all_there(void **state)
{
    (void)state;
    fixture f = build(&llama);
    const char *dir = fresh("part");
    assert_done(ls_hf_save(dir, &f.c, &f.m->params, LS_F32, 20000));
    size_t n, m;
    char *index = get_file(dir, "model.safetensors.index.json", &n);
    char *second = get_file(dir, "model-00002-of-00005.safetensors", &m), *at;
    assert_true(index && second);

    unlink(in_root("part/model-00002-of-00005.safetensors"));
    assert_refused(ls_hf_load(dir, &f.c, &f.m->params), LS_BAD_FILE, "names the shard model-00002-of-00005.safetensors, which is not");
    put_file(dir, "model-00002-of-00005.safetensors", second, m - 1);
    assert_refused(ls_hf_load(dir, &f.c, &f.m->params), LS_CKPT_CORRUPT, "cut short");
    put_file(dir, "model-00002-of-00005.safetensors", "\x80\x02}q\0.", 6);
    assert_refused(ls_hf_load(dir, &f.c, &f.m->params), LS_BAD_FILE, "this is a pickle");
    second[m - 1] ^= 1;
    put_file(dir, "model-00002-of-00005.safetensors", second, m);
    assert_refused(ls_hf_load(dir, &f.c, &f.m->params), LS_CKPT_CORRUPT, "digest");
    second[m - 1] ^= 1;
    put_file(dir, "model-00002-of-00005.safetensors", second, m);
    assert_done(ls_hf_load(dir, &f.c, &f.m->params));

    /* an index that lies: a tensor in another shard, then a name that nobody has */
    at = strstr(index, "model-00002-of");
    at[10] = '1';
    put_file(dir, "model.safetensors.index.json", index, n);
    assert_refused(ls_hf_load(dir, &f.c, &f.m->params), LS_BAD_FILE, "should be in model-00001-of-00005.safetensors, and is not");
    at[10] = '2';
    at = strstr(index, "\"model.norm.weight\"");
    at[1] = 'M';
    put_file(dir, "model.safetensors.index.json", index, n);
    assert_refused(ls_hf_load(dir, &f.c, &f.m->params), LS_BAD_FILE, "'Model.norm.weight' should be in");
    free(index);
    free(second);
    drop(&f);
}

static void a_shard_has_no_tensor_that_the_index_lacks(void **state)
{
    (void)state;
    fixture f = build(&llama_tied);
    const char *dir = fresh("extra");
    write_other(in_root("extra/a.safetensors"), &f, &(other){ .without = "model.norm.weight" });
    write_other(in_root("extra/b.safetensors"), &f, &(other){ 0 });
    static const char index[] = "{\"weight_map\": {\"model.norm.weight\": \"b.safetensors\", "
                                "\"model.embed_tokens.weight\": \"a.safetensors\"}}";
    put_file(dir, "model.safetensors.index.json", index, strlen(index));
    assert_refused(ls_hf_load(dir, &f.c, &f.m->params), LS_BAD_FILE, "which the index has");
    drop(&f);
}

static void pickles_and_strange_folders_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const pickles[] = { "pytorch_model.bin", "model.pt", "x.pth", "consolidated.00.pth" };
    fixture f = build(&gpt2);
    for (size_t i = 0; i < COUNT(pickles); i++) {
        const char *dir = fresh("pickle");
        put_file(dir, pickles[i], "never read", 10);
        assert_refused(ls_hf_load(dir, &f.c, &f.m->params), LS_BAD_FILE, pickles[i]);
        assert_error_has("this is a pickle");
        assert_error_has("save_pretrained");
        char path[300];
        snprintf(path, sizeof path, "%s/%s", dir, pickles[i]);
        assert_refused(ls_hf_load(path, &f.c, &f.m->params), LS_BAD_FILE, "this is a pickle");
        assert_refused(ls_hf_import(path, in_root("x.safetensors")), LS_BAD_FILE, "this is a pickle");
    }
    const char *dir = fresh("empty");
    assert_refused(ls_hf_load(dir, &f.c, &f.m->params), LS_BAD_FILE, "neither model.safetensors nor");
    put_file(dir, "training_args.bin", "a pickle that nobody needs", 26);
    assert_refused(ls_hf_load(dir, &f.c, &f.m->params), LS_BAD_FILE, "neither model.safetensors nor");
    assert_refused(ls_hf_load(in_root("empty/training_args.txt"), &f.c, &f.m->params), LS_BAD_FILE, "neither");
    put_file(dir, "weights.safetensors", "", 0);
    assert_refused(ls_hf_load(in_root("empty/weights.safetensors"), &f.c, &f.m->params), LS_BAD_FILE, "is a file; name the folder");
    assert_int_equal(symlink("weights.safetensors", in_root("empty/model.safetensors")), 0);
    assert_refused(ls_hf_load(dir, &f.c, &f.m->params), LS_UNSAFE_PATH, "--local-dir");
    assert_refused(ls_hf_save(dir, &f.c, &f.m->params, LS_F32, SIZE_MAX), LS_INVALID, "is not an empty folder");
    assert_refused(ls_hf_save(in_root("nowhere"), &f.c, &f.m->params, LS_F32, SIZE_MAX), LS_INVALID, "is not an empty folder");
    assert_refused(ls_hf_save(fresh("new"), &f.c, &f.m->params, LS_I32, SIZE_MAX), LS_INVALID, "expected F32, BF16 or F16");
    drop(&f);
}

/* --- the index -------------------------------------------------------------------------------------- */

static void the_index_keeps_its_rules(void **state)
{
    (void)state;
#define MAP(pairs) "{\"metadata\":{\"total_size\":1},\"weight_map\":{" pairs "}}"
    static const struct { const char *text, *says; } row[] = {
        { MAP("\"a\":\"a.safetensors\",\"b\":\"b-0._.safetensors\""), NULL },
        { " \n{\"weight_map\":{\"a\":\"a.safetensors\"}}\n ", NULL },
        { "{\"metadata\":{},\"weight_map\":{\"a\":\"a.safetensors\"}}", NULL },
        { MAP("\"a\":\"../a.safetensors\""), "not plain" },
        { MAP("\"a\":\"/etc/a.safetensors\""), "not plain" },
        { MAP("\"a\":\"sub/a.safetensors\""), "not plain" },
        { MAP("\"a\":\"..safetensors\""), "not plain" },
        { MAP("\"a\":\".safetensors\""), "not plain" },
        { MAP("\"a\":\"a b.safetensors\""), "not plain" },
        { MAP("\"a\":\"a\\u0000.safetensors\""), "not JSON in UTF-8" },
        { MAP("\"a\":\"a.json\""), "not plain" },
        { MAP("\"a\":\"\""), "not plain" },
        { MAP("\"a\":\"pytorch_model-00001-of-00002.bin\""), "this is a pickle" },
        { MAP("\"a\":1"), "expected a string" },
        { MAP("\"a\":\"a.safetensors\",\"\\u0061\":\"a.safetensors\""), "'a' stands twice" },
        { MAP(""), "names no tensor" },
        { "{\"metadata\":{\"total_size\":1}}", "no \"weight_map\"" },
        { "{\"weight_map\":{\"a\":\"a.safetensors\"},\"weight_map\":{\"b\":\"a.safetensors\"}}", "stands twice" },
        { "{\"metadata\":{\"total_size\":-1},\"weight_map\":{\"a\":\"a.safetensors\"}}", "total_size" },
        { "{\"metadata\":{\"total_size\":\"1\"},\"weight_map\":{\"a\":\"a.safetensors\"}}", "total_size" },
        { "{\"metadata\":[],\"weight_map\":{\"a\":\"a.safetensors\"}}", "total_size" },
        { "{\"other\":1,\"weight_map\":{\"a\":\"a.safetensors\"}}", "neither" },
        { MAP("\"a\":\"a.safetensors\"") "x", "something follows" },
        { "", "expected '{'" },
        { "[]", "expected '{'" },
        { "{\"weight_map\":[]}", "expected '{'" },
        { "{\"weight_map\":{\"a\":\"a.safetensors\"", "does not end" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_hf_index ix;
        const ls_status st = ls_hf_index_parse("the index", row[i].text, strlen(row[i].text), &ix);
        if (st != (row[i].says ? LS_BAD_FILE : LS_OK)) fail_msg("%s: status %d: %s", row[i].text, st, ls_last_error());
        if (row[i].says && !strstr(ls_last_error(), row[i].says)) fail_msg("%s: %s", row[i].text, ls_last_error());
        if (row[i].says) assert_true(ix.shard == NULL && ix.place == NULL && ix.nplaces == 0 && ix.nshards == 0);
        ls_hf_index_free(&ix);
    }
}

/* {"weight_map":{"t0":"s0.safetensors", ...}} with `shards` shards, whose names are padded to `length` bytes. */
static char *long_index(int shards, size_t length)
{
    char *text = malloc((size_t)shards * (length + 32) + 64), *at = text;
    assert_non_null(text);
    at += sprintf(at, "{\"weight_map\":{");
    for (int s = 0; s < shards; s++)
        at += sprintf(at, "%s\"t%d\":\"%0*d.safetensors\"", s ? "," : "", s, (int)(length - 12), s);
    sprintf(at, "}}");
    return text;
}

static void the_index_has_limits(void **state)
{
    (void)state;
    static const struct { int shards; size_t length; ls_status status; const char *says; } row[] = {
        { LS_HF_MAX_SHARDS, 30, LS_OK, "" },
        { LS_HF_MAX_SHARDS + 1, 30, LS_BAD_FILE, "more shards" },
        { 1, LS_HF_MAX_SHARD_NAME, LS_OK, "" },
        { 1, LS_HF_MAX_SHARD_NAME + 1, LS_BAD_FILE, "too long" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_hf_index ix;
        char *text = long_index(row[i].shards, row[i].length);
        const ls_status st = ls_hf_index_parse("the index", text, strlen(text), &ix);
        if (st != row[i].status) fail_msg("row %zu: status %d: %s", i, st, ls_last_error());
        if (st < 0) assert_error_has(row[i].says);
        else assert_int_equal(ix.nshards, row[i].shards);
        ls_hf_index_free(&ix);
        free(text);
    }
    char *big = malloc(LS_HF_MAX_INDEX + 1);
    assert_non_null(big);
    memset(big, ' ', LS_HF_MAX_INDEX + 1);
    ls_hf_index ix;
    assert_refused(ls_hf_index_parse("the index", big, LS_HF_MAX_INDEX + 1, &ix), LS_BAD_FILE, "at most");
    static const char good[] = "{\"weight_map\":{\"a\":\"a.safetensors\"}}";
    memcpy(big, good, strlen(good));
    assert_done(ls_hf_index_parse("the index", big, LS_HF_MAX_INDEX, &ix));
    ls_hf_index_free(&ix);
    free(big);
}

/* --- config.json -------------------------------------------------------------------------------------- */

#define GPT2(more) "{\"model_type\":\"gpt2\",\"vocab_size\":64,\"n_positions\":16,\"n_embd\":32,\"n_layer\":2,\"n_head\":4" more "}"
#define LLAMA(more) \
    "{\"model_type\":\"llama\",\"vocab_size\":64,\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":2," \
    "\"num_attention_heads\":4" more "}"

static void the_config_is_read_with_transformers_defaults(void **state)
{
    (void)state;
    ls_hf_config c;
    assert_done(ls_hf_config_parse("config", GPT2(""), strlen(GPT2("")), &c));
    assert_true(c.lm.tied && c.lm.d_ff == 128 && c.lm.norm_eps == 1e-5 && c.lm.attn_dropout == 0.1 && c.bos == -1);
    assert_done(ls_hf_config_parse("config", LLAMA(""), strlen(LLAMA("")), &c));
    assert_true(!c.lm.tied && c.lm.d_ff == 48 && c.lm.n_kv_head == 4 && c.lm.seq_len == 2048 && c.lm.norm_eps == 1e-6 &&
                c.lm.rope_theta == 10000.0 && c.dtype == LS_F32);
    static const char five[] = LLAMA(",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":500000.0},\"dtype\":\"bfloat16\","
                                     "\"eos_token_id\":[2,3],\"head_dim\":8,\"unknown\":{\"a\":[1,{\"b\":null}]}");
    assert_done(ls_hf_config_parse("config", five, strlen(five), &c));
    assert_true(c.lm.rope_theta == 500000.0 && c.dtype == LS_BF16 && c.eos == 2);
}

static void a_config_that_is_not_ours_is_refused(void **state)
{
    (void)state;
    static const struct { const char *text; ls_status status; const char *says; } row[] = {
        { GPT2(",\"n_inner\":null,\"activation_function\":\"gelu_pytorch_tanh\""), LS_OK, "" },
        { LLAMA(",\"rope_scaling\":null,\"head_dim\":null,\"hidden_act\":\"silu\",\"mlp_bias\":false"), LS_OK, "" },
        { LLAMA(",\"rope_scaling\":{\"type\":\"default\"}"), LS_OK, "" },
        { "", LS_BAD_FILE, "byte 0: expected '{'" },
        { "[]", LS_BAD_FILE, "expected '{'" },
        { "{}", LS_BAD_FILE, "\"model_type\" is absent" },
        { "{\"model_type\":7}", LS_BAD_FILE, "\"model_type\" is 7" },
        { "{\"model_type\":\"bert\"}", LS_UNSUPPORTED, "\"bert\"; supported are gpt2" },
        { "{\"model_type\":\"gpt2\"}", LS_BAD_FILE, "\"vocab_size\" is absent" },
        { GPT2("") "x", LS_BAD_FILE, "end of file expected" },
        { GPT2(",\"vocab_size\":65"), LS_BAD_FILE, "duplicate" },
        { GPT2(",\"x\":NaN"), LS_BAD_FILE, "config" },
        { GPT2(",\"x\":\"\xff\""), LS_BAD_FILE, "unable to decode" },
        { "{\"model_type\":\"gpt2\",\"vocab_size\":64.0}", LS_BAD_FILE, "\"vocab_size\" is 64.0; expected a whole number" },
        { "{\"model_type\":\"gpt2\",\"vocab_size\":0}", LS_BAD_FILE, "\"vocab_size\" is 0" },
        { "{\"model_type\":\"gpt2\",\"vocab_size\":-5}", LS_BAD_FILE, "\"vocab_size\" is -5" },
        { "{\"model_type\":\"gpt2\",\"vocab_size\":99999999999}", LS_BAD_FILE, "\"n_positions\" is absent" },
        { GPT2(",\"n_inner\":99999999999"), LS_BAD_CONFIG, "model.d_ff is 99999999999" },
        { GPT2(",\"layer_norm_epsilon\":\"1e-5\""), LS_BAD_FILE, "expected a number" },
        { GPT2(",\"layer_norm_epsilon\":0"), LS_BAD_CONFIG, "epsilon is 0" },
        { GPT2(",\"resid_pdrop\":1.5"), LS_BAD_CONFIG, "dropout of 1.5" },
        { GPT2(",\"tie_word_embeddings\":1"), LS_BAD_FILE, "expected true or false" },
        { GPT2(",\"activation_function\":\"relu\""), LS_UNSUPPORTED, "\"activation_function\" is \"relu\"" },
        { GPT2(",\"scale_attn_by_inverse_layer_idx\":true"), LS_UNSUPPORTED, "scale_attn_by_inverse_layer_idx" },
        { GPT2(",\"bos_token_id\":\"x\""), LS_BAD_FILE, "a token's id" },
        { GPT2(",\"torch_dtype\":\"int8\""), LS_BAD_FILE, "\"torch_dtype\" is \"int8\"" },
        { LLAMA(",\"num_key_value_heads\":3"), LS_BAD_CONFIG, "n_kv_head 3" },
        { LLAMA(",\"hidden_act\":\"gelu\""), LS_UNSUPPORTED, "hidden_act" },
        { LLAMA(",\"attention_bias\":true"), LS_UNSUPPORTED, "attention_bias" },
        { LLAMA(",\"attention_dropout\":0.1"), LS_UNSUPPORTED, "\"attention_dropout\" is 0.1" },
        { GPT2(",\"reorder_and_upcast_attn\":true"), LS_UNSUPPORTED, "\"reorder_and_upcast_attn\" is true" },
        { GPT2(",\"scale_attn_weights\":false"), LS_UNSUPPORTED, "\"scale_attn_weights\" is false" },
        { GPT2(",\"add_cross_attention\":true"), LS_UNSUPPORTED, "\"add_cross_attention\" is true" },
        { GPT2(",\"pruned_heads\":{\"1\":[0]}"), LS_UNSUPPORTED, "\"pruned_heads\" is {\"1\":[0]}" },
        { GPT2(",\"pruned_heads\":{},\"is_encoder_decoder\":false,\"quantization_config\":null"), LS_OK, "" },
        { GPT2(",\"is_encoder_decoder\":true"), LS_UNSUPPORTED, "\"is_encoder_decoder\" is true" },
        { LLAMA(",\"quantization_config\":{\"bits\":4}"), LS_UNSUPPORTED, "\"quantization_config\" is {\"bits\":4}" },
        { LLAMA(",\"mlp_bias\":true"), LS_UNSUPPORTED, "\"mlp_bias\" is true" },
        { LLAMA(",\"sliding_window\":4096"), LS_UNSUPPORTED, "\"sliding_window\" is 4096" },
        { LLAMA(",\"use_sliding_window\":true"), LS_UNSUPPORTED, "\"use_sliding_window\" is true" },
        { LLAMA(",\"partial_rotary_factor\":0.5"), LS_UNSUPPORTED, "\"partial_rotary_factor\" is 0.5" },
        { LLAMA(",\"rope_parameters\":{\"rope_theta\":1e4,\"rope_type\":\"default\",\"partial_rotary_factor\":0.25}"),
          LS_UNSUPPORTED, "\"partial_rotary_factor\" is 0.25" },
        { LLAMA(",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":32}"), LS_UNSUPPORTED, "(\"llama3\")" },
        { LLAMA(",\"rope_scaling\":{\"type\":\"linear\"}"), LS_UNSUPPORTED, "(\"linear\")" },
        { LLAMA(",\"rope_scaling\":7"), LS_BAD_FILE, "expected an object" },
        { LLAMA(",\"rope_parameters\":{\"rope_theta\":\"x\"}"), LS_BAD_FILE, "rope_theta" },
        { LLAMA(",\"rope_theta\":0"), LS_BAD_CONFIG, "rotary base 0" },
        { LLAMA(",\"head_dim\":16"), LS_UNSUPPORTED, "\"head_dim\" is 16" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_hf_config c;
        const ls_status st = ls_hf_config_parse("config", row[i].text, strlen(row[i].text), &c);
        if (st != row[i].status) fail_msg("%s: status %d: %s", row[i].text, st, ls_last_error());
        if (st < 0 && !strstr(ls_last_error(), row[i].says)) fail_msg("%s: '%s'", row[i].text, ls_last_error());
    }
}

static void generation_config_has_the_special_tokens(void **state)
{
    (void)state;
    static const struct { int64_t bos, eos; const char *text; } row[] = {
        { 1, 2, "{\n  \"bos_token_id\": 1,\n  \"eos_token_id\": 2,\n  \"pad_token_id\": 2\n}\n" },
        { -1, 84, "{\n  \"eos_token_id\": 84,\n  \"pad_token_id\": 84\n}\n" },
        { 0, -1, "{\n  \"bos_token_id\": 0\n}\n" },
        { -1, -1, "{\n}\n" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        char *text;
        const ls_hf_config c = { .model = "gpt2", .bos = row[i].bos, .eos = row[i].eos };
        assert_done(ls_hf_generation_text(&c, &text));
        assert_string_equal(text, row[i].text);
        free(text);
    }
}

static void the_config_has_limits(void **state)
{
    (void)state;
    ls_hf_config c;
    static const char good[] = GPT2("");
    char *text = malloc(LS_HF_MAX_CONFIG + 1);
    assert_non_null(text);
    memset(text, ' ', LS_HF_MAX_CONFIG + 1);
    memcpy(text, good, strlen(good));
    assert_done(ls_hf_config_parse("config", text, LS_HF_MAX_CONFIG, &c));
    assert_refused(ls_hf_config_parse("config", text, LS_HF_MAX_CONFIG + 1, &c), LS_BAD_FILE, "at most");
    for (size_t depth = LS_JSON_MAX_DEPTH - 1; depth <= LS_JSON_MAX_DEPTH; depth++) { /* inside the outermost object */
        char *at = text + sprintf(text, "%.*s,\"x\":", (int)strlen(good) - 1, good);
        for (size_t k = 0; k < depth; k++) *at++ = '[';
        for (size_t k = 0; k < depth; k++) *at++ = ']';
        *at++ = '}';
        const ls_status st = ls_hf_config_parse("config", text, (size_t)(at - text), &c);
        if (depth < LS_JSON_MAX_DEPTH) assert_int_equal(st, LS_OK);
        else assert_refused(st, LS_BAD_FILE, "nesting too deep");
    }
    free(text);
}

/* Every field, with values whose decimals are awkward. */
static void the_config_is_written_so_that_it_is_read_again(void **state)
{
    (void)state;
    const ls_hf_config row[] = {
        { .model = "gpt2", .bos = 50256, .eos = 50256, .dtype = LS_F16,
          .lm = { .vocab_size = 50257, .seq_len = 1024, .n_layer = 12, .n_head = 12, .n_kv_head = 12, .d_model = 768,
                  .d_ff = 3000, .norm_eps = 1.0 / 3,
                  .rope_theta = 10000, .tied = false, .embd_dropout = 0.1, .attn_dropout = 0.2,
                  .resid_dropout = 0.0 } },
        { .model = "llama", .bos = -1, .eos = 2, .dtype = LS_BF16,
          .lm = { .vocab_size = 32000, .seq_len = 2048, .n_layer = 22, .n_head = 32, .n_kv_head = 4, .d_model = 2048,
                  .d_ff = 5632, .norm_eps = 1e-5, .rope_theta = 1234567.891, .tied = true } },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        char *text;
        ls_hf_config c;
        assert_done(ls_hf_config_text(&row[i], &text));
        assert_done(ls_hf_config_parse("config", text, strlen(text), &c));
        assert_same_config(&c, &row[i]);
        if (i == 1) assert_non_null(strstr(text, "\"rms_norm_eps\": 1e-05"));
        assert_null(strstr(text, "partial_rotary_factor")); /* checked, not written */
        free(text);
    }
    ls_hf_config c;
    assert_refused(ls_hf_config_of(&(ls_model_config){ .name = "mlp" }, &c), LS_UNSUPPORTED, "'mlp' has no form");
}

/* --- checkpoints ------------------------------------------------------------------------------------------ */

static void import_then_export_gives_the_same_files(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT(all); k++) {
        fixture f = build(all[k]);
        const char *first = fresh("first"), *second = fresh("second");
        assert_done(ls_hf_save(first, &f.c, &f.m->params, LS_F32, 20000));
        assert_done(ls_hf_import(first, in_root("both.safetensors")));
        ls_ckpt *c;
        assert_done(ls_ckpt_open(in_root("both.safetensors"), &c));
        assert_string_equal(ls_ckpt_meta(c, "lockstep.model"), all[k]->name);
        ls_ckpt_close(c);
        fixture g = build(all[k]);
        forget(&g);
        assert_done(ls_ckpt_load(in_root("both.safetensors"), &g.m->params, false)); /* a checkpoint like any other */
        assert_same_values(&f, &g);
        assert_done(ls_hf_export(in_root("both.safetensors"), second, LS_F32, 20000));
        assert_same_files(first, second);
        drop(&f);
        drop(&g);
    }
}

static void only_language_models_are_exported(void **state)
{
    (void)state;
    fixture f = build(&gpt2);
    const char *meta[] = { "lockstep.model", "mlp", NULL };
    assert_done(ls_ckpt_save(in_root("mlp.safetensors"), &f.m->params, meta));
    assert_refused(ls_hf_export(in_root("mlp.safetensors"), fresh("out"), LS_F32, SIZE_MAX), LS_UNSUPPORTED, "model 'mlp'");
    assert_done(ls_ckpt_save(in_root("mlp.safetensors"), &f.m->params, NULL));
    assert_refused(ls_hf_export(in_root("mlp.safetensors"), in_root("out"), LS_F32, SIZE_MAX), LS_BAD_FILE, "no lockstep.config");
    const char *lie[] = { "lockstep.config", LLAMA(""), NULL };
    assert_done(ls_ckpt_save(in_root("mlp.safetensors"), &f.m->params, lie));
    assert_refused(ls_hf_export(in_root("mlp.safetensors"), in_root("out"), LS_F32, SIZE_MAX), LS_SHAPE, "model needs");
    assert_int_equal(files_in(in_root("out")), 0);
    drop(&f);
}

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/lockstep-test-hf-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    DIR *d = opendir(root);
    for (struct dirent *e; d && (e = readdir(d));)
        if (*e->d_name != '.' && unlink(in_root(e->d_name)) < 0) remove_folder(in_root(e->d_name));
    if (d) closedir(d);
    return rmdir(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_saved_is_read_to_the_bit),
        cmocka_unit_test(no_shard_is_larger_than_asked_for),
        cmocka_unit_test(narrow_types_are_rounded_once),
        cmocka_unit_test(gpt2s_matrices_are_turned_in_the_file),
        cmocka_unit_test(reads_what_transformers_saved),
        cmocka_unit_test(names_may_lack_their_prefix_and_buffers_are_skipped),
        cmocka_unit_test(a_tied_head_is_absent_or_equal),
        cmocka_unit_test(other_tensors_are_refused_by_name),
        cmocka_unit_test(many_missing_tensors_are_counted),
        cmocka_unit_test(a_sharded_model_must_be_all_there),
        cmocka_unit_test(a_shard_has_no_tensor_that_the_index_lacks),
        cmocka_unit_test(pickles_and_strange_folders_are_refused_by_name),
        cmocka_unit_test(the_index_keeps_its_rules),
        cmocka_unit_test(the_index_has_limits),
        cmocka_unit_test(the_config_is_read_with_transformers_defaults),
        cmocka_unit_test(a_config_that_is_not_ours_is_refused),
        cmocka_unit_test(generation_config_has_the_special_tokens),
        cmocka_unit_test(the_config_has_limits),
        cmocka_unit_test(the_config_is_written_so_that_it_is_read_again),
        cmocka_unit_test(import_then_export_gives_the_same_files),
        cmocka_unit_test(only_language_models_are_exported),
    };
    return cmocka_run_group_tests_name("hf", tests, make_root, remove_root);
}
