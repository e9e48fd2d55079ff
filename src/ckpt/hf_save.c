/* hf_save.c -- from a model's parameters into a Hugging Face folder; and between folders and
 * Lockstep's checkpoints. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/env.h"
#include "base/file.h"
#include "base/text.h"
#include "ckpt/hf.h"
#include "ckpt/hf_experts.h"
#include "ckpt/hf_names.h"
#include "ckpt/save.h"

/* --- a folder ------------------------------------------------------------------------------- */

/* first[s] is where shard s begins; first[n shards] is the end. As full as max_shard allows, in order. */
static int cut(const ls_ckpt_item *item, int n, size_t max_shard, int *first)
{
    int shards = 0;
    size_t filled = 0;
    for (int i = 0; i < n; i++) {
        const size_t nbytes = ls_ckpt_item_nbytes(&item[i]);
        if (i == 0 || nbytes > max_shard || filled > max_shard - nbytes) {
            first[shards++] = i;
            filled = 0;
        }
        filled += nbytes;
    }
    first[shards] = n;
    return shards;
}

static void shard_name(int s, int shards, char *out, size_t n)
{
    if (shards == 1) snprintf(out, n, "%s", HF_WHOLE);
    else snprintf(out, n, "model-%05d-of-%05d.safetensors", s + 1, shards);
}

static ls_status write_text(const char *dir, const char *name, const char *text, size_t n)
{
    ls_text path = { 0 };
    ls_text_add(&path, "%s/%s", dir, name);
    ls_status st = ls_text_status(&path);
    if (st == LS_OK) st = ls_file_write(path.p, text, n);
    ls_text_free(&path);
    return st;
}

static ls_status write_index(const char *dir, const ls_ckpt_item *item, int n, const int *first, int shards)
{
    ls_text text = { 0 };
    size_t total = 0;
    for (int i = 0; i < n; i++) total += ls_ckpt_item_nbytes(&item[i]);
    ls_text_add(&text, "{\n  \"metadata\": {\n    \"total_size\": %zu\n  },\n  \"weight_map\": {", total);
    for (int s = 0; s < shards; s++) {
        char name[64];
        shard_name(s, shards, name, sizeof name);
        for (int i = first[s]; i < first[s + 1]; i++) {
            ls_text_add(&text, "%s\n    ", i ? "," : "");
            ls_json_string(&text, item[i].name);
            ls_text_add(&text, ": \"%s\"", name);
        }
    }
    ls_text_add(&text, "\n  }\n}\n");
    ls_status st = ls_text_status(&text);
    if (st == LS_OK) st = write_text(dir, HF_INDEX, text.p, text.n);
    ls_text_free(&text);
    return st;
}

/* *begun: shards whose values were asked for. */
static ls_status write_shards(const char *dir, const ls_ckpt_item *item, const int *first, int shards, int *begun)
{
    for (int s = 0; s < shards; s++) {
        char name[64];
        ls_text path = { 0 };
        shard_name(s, shards, name, sizeof name);
        ls_text_add(&path, "%s/%s", dir, name);
        ls_status st = ls_text_status(&path);
        *begun = s + (st == LS_OK);
        if (st == LS_OK) st = ls_ckpt_write(path.p, item + first[s], first[s + 1] - first[s], NULL);
        ls_text_free(&path);
        LS_TRY(st);
    }
    return LS_OK;
}

static ls_status check_target(const char *dir, ls_dtype dtype)
{
    char name[512];
    if (dtype != LS_F32 && dtype != LS_BF16 && dtype != LS_F16)
        return ls_fail(LS_INVALID, "a model in %s: expected F32, BF16 or F16", ls_dtype_name(dtype));
    const int n = ls_env_get()->list(dir, name, sizeof name);
    if (n == 0) return LS_OK;
    ls_file_info info;
    const int known = ls_env_get()->info(dir, &info);
    if (known < 0) return ls_fail(LS_IO, "%s: cannot be opened: %s", dir, strerror(-known));
    return ls_fail(LS_INVALID, "%s: is not an empty folder: name a new one, so that no shard of another model stays in it", dir);
}

/* Config, parameters, and what makes the folder complete. */
static ls_status write_all(const char *dir, const ls_hf_config *c, const ls_ckpt_item *item, const int *first,
                           int shards, int *begun)
{
    char *config = NULL, *generation = NULL;
    ls_hf_config as = *c;
    as.dtype = item->dtype;
    ls_status st = ls_hf_config_text(&as, &config);
    if (st == LS_OK) st = write_shards(dir, item, first, shards, begun);
    if (st == LS_OK && shards > 1) st = write_index(dir, item, first[shards], first, shards);
    if (st == LS_OK) st = ls_hf_generation_text(c, &generation);
    if (st == LS_OK) st = write_text(dir, "generation_config.json", generation, strlen(generation));
    if (st == LS_OK) st = write_text(dir, "config.json", config, strlen(config));
    free(generation);
    free(config);
    return st;
}

/* The tensors of a model's parameters as files have them. */
typedef struct tensors {
    ls_ckpt_item *item; /* owned, as all here: [n] */
    ls_tensor *shape;
    char (*name)[LS_HF_NAME_BYTES];
    int *first;         /* [n + 1] of shards */
    int n;
} tensors;

static void tensors_free(tensors *x)
{
    free(x->item);
    free(x->shape);
    free(x->name);
    free(x->first);
}

/* Asks for the values of shards from `begin` on when the rank does that writes. */
static ls_status attend(const tensors *x, int begin, int shards, const ls_values *values)
{
    for (int s = begin; s < shards; s++)
        LS_TRY(ls_ckpt_attend_items(x->item + x->first[s], x->first[s + 1] - x->first[s], values));
    return LS_OK;
}

/* Of parameter p, which is `experts` tensors, the one of expert e. */
static void add(tensors *x, const ls_param *p, const ls_values *values, int64_t experts, int64_t e, ls_dtype dtype)
{
    const int i = x->n++;
    ls_ckpt_item *it = &x->item[i];
    *it = ls_ckpt_item_of(p, ls_hf_tensor_name(p->name, e, x->name[i]), values, &x->shape[i]);
    it->dtype = dtype;
    if (experts == 1) return;
    x->shape[i].dim[0] /= experts;
    it->skip = (size_t)(e * ls_tensor_count(&x->shape[i]));
    it->transposed = ls_hf_expert_transposed(p->name);
}

static ls_status list(const ls_lm_config *lm, const ls_params *ps, const ls_values *values, ls_dtype dtype, tensors *x)
{
    size_t n = 1;
    const int all = ls_params_total(ps);
    for (int i = 0; i < all; i++) n += (size_t)ls_hf_tensors(lm, ls_params_at(ps, i)->name);
    *x = (tensors){ .item = calloc(n, sizeof *x->item), .shape = calloc(n, sizeof *x->shape),
                    .name = calloc(n, sizeof *x->name), .first = calloc(n, sizeof *x->first) };
    if (!x->item || !x->shape || !x->name || !x->first) return ls_fail(LS_NO_MEMORY, "a list of %zu tensors", n);
    for (int i = 0; i < all; i++) {
        const ls_param *p = ls_params_at(ps, i);
        const int64_t experts = ls_hf_tensors(lm, p->name);
        for (int64_t e = 0; e < experts; e++) add(x, p, values, experts, e, dtype);
        if (!values && !ls_part_is_all(&p->part))
            return ls_fail(LS_INVALID, "parameter '%s' is a part of a tensor here: save it by ls_hf_save_of", p->name);
    }
    return LS_OK;
}

static ls_status save(const char *dir, const ls_hf_config *c, const ls_params *ps, const ls_values *values,
                      ls_dtype dtype, size_t max_shard)
{
    tensors x;
    ls_status st = list(&c->lm, ps, values, dtype, &x);
    const int shards = st == LS_OK ? cut(x.item, x.n, max_shard, x.first) : 0;
    int begun = 0;
    if (st == LS_OK && !dir) st = attend(&x, 0, shards, values);
    else if (st == LS_OK) {
        st = check_target(dir, dtype);
        if (st == LS_OK) st = write_all(dir, c, x.item, x.first, shards, &begun);
        if (st < 0 && values) { /* the other ranks ask for all values, and wait for this one */
            char why[LS_ERROR_BYTES];
            snprintf(why, sizeof why, "%s", ls_last_error());
            (void)attend(&x, begun, shards, values);
            (void)ls_fail(st, "%s", why);
        }
    }
    tensors_free(&x);
    return st;
}

ls_status ls_hf_write_model(const char *path, const ls_lm_config *lm, const ls_params *ps, const ls_values *values,
                            const char *const *meta, ls_ckpt_sums *sums)
{
    tensors x;
    ls_status st = list(lm, ps, values, LS_F32, &x);
    if (st == LS_OK && path) st = ls_ckpt_write_summed(path, x.item, x.n, meta, sums);
    else if (st == LS_OK) st = ls_ckpt_attend_items(x.item, x.n, values);
    tensors_free(&x);
    return st;
}

ls_status ls_hf_save(const char *dir, const ls_hf_config *c, const ls_params *ps, ls_dtype dtype, size_t max_shard)
{
    return save(dir, c, ps, NULL, dtype, max_shard);
}

ls_status ls_hf_save_of(const char *dir, const ls_hf_config *c, const ls_params *ps, const ls_values *values,
                        ls_dtype dtype, size_t max_shard)
{
    return save(dir, c, ps, values, dtype, max_shard);
}

/* --- checkpoints ------------------------------------------------------------------------------ */

ls_status ls_hf_export(const char *checkpoint, const char *dir, ls_dtype dtype, size_t max_shard)
{
    ls_hf_config c;
    ls_model *model = NULL;
    ls_arena *arena = NULL;
    LS_TRY(check_target(dir, dtype));
    ls_status st = ls_hf_open(checkpoint, &c, &model, &arena);
    if (st == LS_OK) st = ls_hf_save(dir, &c, &model->params, dtype, max_shard);
    ls_model_destroy(model);
    ls_arena_destroy(arena);
    return st;
}

ls_status ls_hf_import(const char *dir, const char *checkpoint)
{
    ls_hf_config c;
    ls_model *model = NULL;
    ls_arena *arena = NULL;
    char *config = NULL;
    ls_status st = ls_hf_open(dir, &c, &model, &arena);
    c.dtype = LS_F32;
    if (st == LS_OK) st = ls_hf_config_text(&c, &config);
    const char *meta[] = { "lockstep.step", "0", "lockstep.model", c.model, HF_CONFIG_KEY, config, NULL };
    if (st == LS_OK) st = ls_hf_write_model(checkpoint, &c.lm, &model->params, NULL, meta, NULL);
    free(config);
    ls_model_destroy(model);
    ls_arena_destroy(arena);
    return st;
}
