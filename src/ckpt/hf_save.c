/* hf_save.c -- from a model's parameters into a Hugging Face folder; and between folders and
 * Lockstep's checkpoints. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/file.h"
#include "base/text.h"
#include "ckpt/hf.h"
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

static ls_status write_shards(const char *dir, const ls_ckpt_item *item, const int *first, int shards)
{
    for (int s = 0; s < shards; s++) {
        char name[64];
        ls_text path = { 0 };
        shard_name(s, shards, name, sizeof name);
        ls_text_add(&path, "%s/%s", dir, name);
        ls_status st = ls_text_status(&path);
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

ls_status ls_hf_save(const char *dir, const ls_hf_config *c, const ls_params *ps, ls_dtype dtype, size_t max_shard)
{
    LS_TRY(check_target(dir, dtype));
    ls_status st = LS_OK;
    char *config = NULL, *generation = NULL;
    int *first = malloc((size_t)(ps->n + 1) * sizeof *first);
    ls_ckpt_item *item = malloc((size_t)(ps->n + 1) * sizeof *item);
    if (!first || !item) {
        st = ls_fail(LS_NO_MEMORY, "a list of %d tensors", ps->n);
        goto done;
    }
    for (int i = 0; i < ps->n; i++)
        item[i] = (ls_ckpt_item){ .name = ps->item[i].name, .from = &ps->item[i].t, .dtype = dtype,
                                  .turned = ps->item[i].turned };
    const int shards = cut(item, ps->n, max_shard, first);
    ls_hf_config as = *c;
    as.dtype = dtype;
    if ((st = ls_hf_config_text(&as, &config)) < 0) goto done;
    if ((st = write_shards(dir, item, first, shards)) < 0) goto done;
    if (shards > 1 && (st = write_index(dir, item, ps->n, first, shards)) < 0) goto done;
    if ((st = ls_hf_generation_text(c, &generation)) < 0) goto done;
    if ((st = write_text(dir, "generation_config.json", generation, strlen(generation))) < 0) goto done;
    st = write_text(dir, "config.json", config, strlen(config));
done:
    free(generation);
    free(config);
    free(item);
    free(first);
    return st;
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
    if (st == LS_OK) st = ls_ckpt_save(checkpoint, &model->params, meta);
    free(config);
    ls_model_destroy(model);
    ls_arena_destroy(arena);
    return st;
}
