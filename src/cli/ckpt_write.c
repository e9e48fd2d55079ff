/* ckpt_write.c -- lockstep ckpt merge and reshard: what writes a new folder. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/commit.h"
#include "base/file.h"
#include "base/text.h"
#include "ckpt/checkpoint.h"
#include "ckpt/hf.h"
#include "ckpt/reshard.h"
#include "cli/ckpt_folder.h"
#include "cli/cli.h"

#define COMPANION_MOST ((size_t)64 << 20) /* bytes of config.json, tokenizer.json ... */

/* --- merge ------------------------------------------------------------------------------------------------------- */

/* One parameter at a time. */
typedef struct source {
    ls_checkpoint *c; /* borrowed */
    float *values;    /* owned */
} source;

static ls_status whole(void *arg, const ls_param *p, const float **out)
{
    source *s = arg;
    const ls_checkpoint_tensor *t = ls_checkpoint_find(s->c, p->name);
    free(s->values);
    s->values = malloc(ls_checkpoint_nbytes(s->c, t) + 1);
    if (!s->values) return ls_fail(LS_NO_MEMORY, "tensor '%s'", t->name);
    LS_TRY(ls_checkpoint_read(s->c, t, NULL, NULL, s->values));
    *out = s->values;
    return LS_OK;
}

/* The parameters of the model, without memory for values. */
static ls_status params_of(const ls_checkpoint *c, ls_params *ps)
{
    for (int i = 0; i < ls_checkpoint_count(c); i++) {
        const ls_checkpoint_tensor *t = ls_checkpoint_at(c, i);
        if (ls_cli_ckpt_is_state(t->name)) continue;
        if (t->dtype != LS_F32 || t->ndim > LS_MAX_DIMS || strlen(t->name) >= LS_NAME_BYTES)
            return ls_fail(LS_UNSUPPORTED, "tensor '%s' is no parameter of Lockstep's: float, at most %d dimensions, a name of less than %d "
                           "bytes", t->name, LS_MAX_DIMS, LS_NAME_BYTES);
        LS_TRY(ls_params_add(ps, t->name, t->ndim, t->dim));
    }
    return LS_OK;
}

static ls_status write_model(ls_checkpoint *c, const char *path)
{
    static const char *const keys[] = { "lockstep.step", "lockstep.seed", "lockstep.model", "lockstep.config", "lockstep.dims",
                                        "lockstep.activation" };
    const char *meta[2 * (sizeof keys / sizeof *keys) + 1], *config = ls_checkpoint_meta(c, "lockstep.config");
    size_t at = 0;
    source s = { c, NULL };
    const ls_values values = { whole, &s };
    ls_params ps = { 0 };
    ls_hf_config hf = { 0 };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *value = ls_checkpoint_meta(c, keys[i]);
        if (!value) continue;
        meta[at++] = keys[i];
        meta[at++] = value;
    }
    meta[at] = NULL;
    ls_status st = config ? ls_hf_config_parse(ls_checkpoint_folder(c), config, strlen(config), &hf) : LS_OK;
    if (st == LS_OK) st = params_of(c, &ps);
    if (st == LS_OK) st = ls_hf_write_model(path, &hf.lm, &ps, &values, meta, NULL);
    free(s.values);
    ls_params_free(&ps);
    return st;
}

/* Small files that describe the model. */
static ls_status copy_beside(const ls_checkpoint *c, const char *out)
{
    for (int i = 0; i < ls_checkpoint_nbeside(c); i++) {
        const char *name = ls_checkpoint_beside(c, i);
        char *text = NULL;
        size_t n = 0;
        ls_text from = { 0 }, to = { 0 };
        if (strcmp(name, "model.safetensors") == 0) continue;
        ls_text_add(&from, "%s/%s", ls_checkpoint_folder(c), name);
        ls_text_add(&to, "%s/%s", out, name);
        ls_status st = ls_text_status(&from);
        if (st == LS_OK) st = ls_text_status(&to);
        if (st == LS_OK) st = ls_file_read(from.p, COMPANION_MOST, &text, &n);
        if (st == LS_OK) st = ls_file_write(to.p, text, n);
        free(text);
        ls_text_free(&from);
        ls_text_free(&to);
        LS_TRY(st);
    }
    return LS_OK;
}

static ls_status merge_into(ls_checkpoint *c, const char *folder)
{
    ls_text path = { 0 };
    ls_text_add(&path, "%s/model.safetensors", folder);
    ls_status st = ls_text_status(&path);
    if (st == LS_OK) st = ls_checkpoint_verify(c, 0, 1);
    if (st == LS_OK) st = write_model(c, path.p);
    if (st == LS_OK) st = copy_beside(c, folder);
    ls_text_free(&path);
    return st;
}

/* The new folder, and what it was made of. step < 0: unknown. */
static ls_status json_written(const char *out, const char *path, int64_t step, int ranks)
{
    ls_text text = { 0 };
    ls_text_add(&text, "{\"out\": ");
    ls_json_string(&text, out);
    ls_text_add(&text, ", \"path\": ");
    ls_json_string(&text, path);
    if (step >= 0) ls_text_add(&text, ", \"step\": %" PRId64, step);
    else ls_text_add(&text, ", \"step\": null");
    ls_text_add(&text, ", \"ranks\": %d}\n", ranks);
    return ls_cli_print(&text);
}

ls_status ls_cli_ckpt_merge(const char *path, const char *out, bool json)
{
    ls_checkpoint *c;
    ls_commit_folder *folder = NULL;
    LS_TRY(ls_checkpoint_open(path, &c));
    ls_status st = ls_commit_folder_create(out, &folder);
    if (st == LS_OK) st = merge_into(c, ls_commit_folder_path(folder));
    if (st == LS_OK) st = ls_commit_folder_finish(folder, false);
    ls_commit_folder_destroy(folder);
    if (st == LS_OK && json) {
        st = json_written(out, path, ls_checkpoint_has_manifest(c) ? ls_checkpoint_step(c) : -1, 1);
    } else if (st == LS_OK) {
        ls_cli_ckpt_put(out);
        printf(": the model of ");
        ls_cli_ckpt_put(path);
        if (ls_checkpoint_has_manifest(c)) printf(", step %" PRId64, ls_checkpoint_step(c));
        putchar('\n');
    }
    ls_checkpoint_close(c);
    return st;
}

/* --- reshard --------------------------------------------------------------------------------------------- */

ls_status ls_cli_ckpt_reshard(const char *path, const char *out, int ranks, bool json)
{
    ls_checkpoint *c;
    LS_TRY(ls_checkpoint_open(path, &c));
    ls_status st = ls_checkpoint_reshard(c, ranks, out);
    if (st == LS_OK && json) {
        st = json_written(out, path, ls_checkpoint_step(c), ranks);
    } else if (st == LS_OK) {
        ls_cli_ckpt_put(out);
        printf(": step %" PRId64 " of ", ls_checkpoint_step(c));
        ls_cli_ckpt_put(path);
        printf(", as %d rank%s would have saved it\n", ranks, ranks == 1 ? "" : "s");
    }
    ls_checkpoint_close(c);
    return st;
}
