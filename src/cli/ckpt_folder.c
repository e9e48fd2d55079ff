/* ckpt_folder.c -- the checkpoint of all ranks: what it holds, whether it is whole, how two differ, and one file of it.
 * */
#include "cli/ckpt_folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/commit.h"
#include "base/env.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "ckpt/format.h"
#include "ckpt/manifest.h"
#include "ckpt/reshard.h"
#include "ckpt/save.h"
#include "ckpt/state.h"

#define COMPANION_MOST ((size_t)64 << 20) /* bytes of config.json, tokenizer.json ... */

void ls_cli_ckpt_put(const char *s)
{
    for (; *s; s++)
        if (*s >= 0x20 && *s < 0x7f) putchar(*s);
        else printf("\\x%02x", (unsigned)(unsigned char)*s);
}

static void add_shape(ls_text *out, const int64_t *dim, int ndim, const char *comma)
{
    ls_text_add(out, "[");
    for (int d = 0; d < ndim; d++) ls_text_add(out, "%s%" PRId64, d ? comma : "", dim[d]);
    ls_text_add(out, "]");
}

static ls_status print(ls_text *out)
{
    const ls_status st = ls_text_status(out);
    if (st == LS_OK) fputs(ls_text_str(out), stdout);
    ls_text_free(out);
    return st;
}

/* --- ls ----------------------------------------------------------------------------------------------------- */

static void list_json(const ls_checkpoint *c, ls_text *out)
{
    ls_text_add(out, "{\"path\":");
    ls_json_string(out, ls_checkpoint_folder(c));
    ls_text_add(out, ",\"step\":%" PRId64 ",\"world_size\":%d,\"files\":%d,\"tensors\":[", ls_checkpoint_step(c),
                ls_checkpoint_world_size(c), ls_checkpoint_nfiles(c));
    for (int i = 0; i < ls_checkpoint_count(c); i++) {
        const ls_checkpoint_tensor *t = ls_checkpoint_at(c, i);
        ls_text_add(out, "%s{\"name\":", i ? "," : "");
        ls_json_string(out, t->name);
        ls_text_add(out, ",\"dtype\":\"%s\",\"shape\":", t->dtype_name);
        add_shape(out, t->dim, t->ndim, ",");
        ls_text_add(out, ",\"bytes\":%" PRIu64 ",\"files\":%d}", ls_checkpoint_nbytes(c, t), t->nchunks);
    }
    ls_text_add(out, "]}\n");
}

static void list_text(const ls_checkpoint *c)
{
    uint64_t nbytes = 0;
    int width = 4;
    for (int i = 0; i < ls_checkpoint_count(c); i++) {
        const int n = (int)strlen(ls_checkpoint_at(c, i)->name);
        width = n > width && n <= 60 ? n : width;
        nbytes += ls_checkpoint_nbytes(c, ls_checkpoint_at(c, i));
    }
    ls_cli_ckpt_put(ls_checkpoint_folder(c));
    printf(": %d tensors in %d files, %" PRIu64 " bytes, %s\n", ls_checkpoint_count(c), ls_checkpoint_nfiles(c), nbytes,
           ls_checkpoint_has_manifest(c) ? "a checksum of each MiB" : "no checksums");
    for (int i = 0; i < ls_checkpoint_count(c); i++) {
        const ls_checkpoint_tensor *t = ls_checkpoint_at(c, i);
        const int left = width - (int)strlen(t->name);
        ls_text shape = { 0 };
        add_shape(&shape, t->dim, t->ndim, ", ");
        printf("  ");
        ls_cli_ckpt_put(t->name);
        printf("%*s %-7s %12" PRIu64 " bytes in %d file%s  %s\n", left > 0 ? left : 0, "", t->dtype_name, ls_checkpoint_nbytes(c, t),
               t->nchunks, t->nchunks == 1 ? " " : "s", ls_text_str(&shape));
        ls_text_free(&shape);
    }
}

ls_status ls_cli_ckpt_list_folder(const char *path, bool json)
{
    ls_checkpoint *c;
    ls_text out = { 0 };
    LS_TRY(ls_checkpoint_open(path, &c));
    if (json) list_json(c, &out);
    else list_text(c);
    ls_checkpoint_close(c);
    return print(&out);
}

/* --- verify --------------------------------------------------------------------------------------------------- */

ls_status ls_cli_ckpt_verify_folder(const char *path)
{
    ls_checkpoint *c;
    LS_TRY(ls_checkpoint_open(path, &c));
    ls_status st = ls_checkpoint_verify(c, 0, 1);
    if (st == LS_OK && !ls_checkpoint_has_manifest(c) && !ls_checkpoint_is_foreign(c))
        st = ls_fail(LS_CKPT_CORRUPT, "%s: has no manifest.json, which Lockstep writes last: it is not whole", path);
    if (st == LS_OK && ls_checkpoint_is_foreign(c)) {
        printf("ok  ");
        ls_cli_ckpt_put(path);
        printf("  %d tensors in %d files of another program, well-formed; there are no checksums of its bytes\n",
               ls_checkpoint_count(c), ls_checkpoint_nfiles(c));
    } else if (st == LS_OK) {
        printf("ok  ");
        ls_cli_ckpt_put(path);
        printf("  step %" PRId64 ", %d tensors in %d files, every byte as it was saved\n", ls_checkpoint_step(c), ls_checkpoint_count(c),
               ls_checkpoint_nfiles(c));
    }
    ls_checkpoint_close(c);
    return st;
}

/* --- show ------------------------------------------------------------------------------------------------------- */

/* Values of what a program has added: numbers as such, bytes by their number. */
static ls_status add_own(ls_checkpoint *c, const ls_checkpoint_tensor *t, bool json, ls_text *out)
{
    int64_t whole;
    double real;
    const bool one = t->ndim == 1 && t->dim[0] == 1;
    if (one && t->dtype == LS_I64) {
        LS_TRY(ls_checkpoint_read(c, t, NULL, NULL, &whole));
        ls_text_add(out, "%" PRId64, whole);
    } else if (one && t->dtype == LS_F64) {
        LS_TRY(ls_checkpoint_read(c, t, NULL, NULL, &real));
        if (json) ls_json_number(out, real);
        else ls_text_add(out, "%.9g", real);
    } else {
        ls_text_add(out, json ? "{\"bytes\":%" PRIu64 "}" : "%" PRIu64 " bytes", ls_checkpoint_nbytes(c, t));
    }
    return LS_OK;
}

typedef struct sizes {
    uint64_t model, optim, elements;
    int nmodel, noptim, nown;
} sizes;

static bool begins(const char *name, const char *with) { return strncmp(name, with, strlen(with)) == 0; }

static sizes measure(const ls_checkpoint *c)
{
    sizes s = { 0 };
    for (int i = 0; i < ls_checkpoint_count(c); i++) {
        const ls_checkpoint_tensor *t = ls_checkpoint_at(c, i);
        const uint64_t n = ls_checkpoint_nbytes(c, t);
        if (begins(t->name, LS_STATE_OWN)) s.nown++;
        else if (begins(t->name, LS_STATE_OPTIM)) s.optim += n, s.noptim++;
        else {
            uint64_t elements = 1;
            for (int d = 0; d < t->ndim; d++) elements *= (uint64_t)t->dim[d];
            s.model += n;
            s.elements += elements;
            s.nmodel++;
        }
    }
    return s;
}

static ls_status show_own(ls_checkpoint *c, bool json, ls_text *out)
{
    int n = 0;
    for (int i = 0; i < ls_checkpoint_count(c); i++) {
        const ls_checkpoint_tensor *t = ls_checkpoint_at(c, i);
        if (!begins(t->name, LS_STATE_OWN)) continue;
        const char *name = t->name + sizeof LS_STATE_OWN - 1;
        ls_text_add(out, "%s", n++ ? json ? "," : ", " : "");
        if (json) ls_json_string(out, name);
        else ls_text_add(out, "%s", name);
        ls_text_add(out, json ? ":" : " ");
        LS_TRY(add_own(c, t, json, out));
    }
    return LS_OK;
}

static ls_status show(ls_checkpoint *c, bool json, ls_text *out)
{
    const sizes s = measure(c);
    char a[32], b[32];
    if (json) {
        ls_text_add(out, "{\"path\":");
        ls_json_string(out, ls_checkpoint_folder(c));
        ls_text_add(out, ",\"step\":%" PRId64 ",\"generation\":%" PRId64 ",\"world_size\":%d,\"files\":%d,\"parameters\":%" PRIu64
                    ",\"model_bytes\":%" PRIu64 ",\"optimizer_bytes\":%" PRIu64 ",\"state\":{", ls_checkpoint_step(c),
                    ls_checkpoint_generation(c), ls_checkpoint_world_size(c), ls_checkpoint_nfiles(c), s.elements,
                        s.model, s.optim);
        LS_TRY(show_own(c, true, out));
        ls_text_add(out, "}}\n");
        return LS_OK;
    }
    if (ls_checkpoint_is_foreign(c)) ls_text_add(out, "%s: saved by another program\n", ls_checkpoint_folder(c));
    else
        ls_text_add(out, "%s: step %" PRId64 ", saved by %d rank%s, generation %" PRId64 "\n", ls_checkpoint_folder(c), ls_checkpoint_step(c),
                ls_checkpoint_world_size(c), ls_checkpoint_world_size(c) == 1 ? "" : "s", ls_checkpoint_generation(c));
    ls_text_add(out, "  model      %d tensors, %s parameters, %s\n", s.nmodel, ls_number_text((double)s.elements, 0, a, sizeof a),
                ls_bytes_text((double)s.model, b, sizeof b));
    ls_text_add(out, "  optimizer  %d tensors, %s\n", s.noptim, ls_bytes_text((double)s.optim, b, sizeof b));
    ls_text_add(out, "  state      ");
    LS_TRY(show_own(c, false, out));
    ls_text_add(out, "%s\n  files      %d of ranks", s.nown ? "" : "none", ls_checkpoint_nfiles(c));
    for (int i = 0; i < ls_checkpoint_nbeside(c); i++) ls_text_add(out, ", %s", ls_checkpoint_beside(c, i));
    ls_text_add(out, "\n");
    return LS_OK;
}

ls_status ls_cli_ckpt_show(const char *path, bool json)
{
    ls_checkpoint *c;
    ls_text out = { 0 };
    LS_TRY(ls_checkpoint_open(path, &c));
    ls_status st = show(c, json, &out);
    ls_checkpoint_close(c);
    if (st == LS_OK && !json)
        for (char *line = out.p, *end; line && *line; line = end) { /* names come from files */
            end = strchr(line, '\n');
            *end++ = 0;
            ls_text_printable(line);
            puts(line);
        }
    else if (st == LS_OK) return print(&out);
    ls_text_free(&out);
    return st;
}

/* --- digest ------------------------------------------------------------------------------------------------------ */

static ls_status digest_of(ls_weights *w, const ls_weights_tensor *t, ls_digest *d)
{
    if (t->is_state) return LS_OK;
    if (t->dtype != LS_F32)
        return ls_fail(LS_UNSUPPORTED, "tensor '%s' is %s: a digest is of float values", t->name, t->dtype_name);
    void *values = malloc(t->nbytes + 1);
    if (!values) return ls_fail(LS_NO_MEMORY, "tensor '%s': %" PRIu64 " bytes", t->name, t->nbytes);
    const ls_status st = ls_weights_read(w, t, values);
    if (st == LS_OK) {
        ls_digest_add(d, t->name, strlen(t->name) + 1);
        ls_digest_add(d, values, t->nbytes);
    }
    free(values);
    return st;
}

ls_status ls_cli_ckpt_digest(const char *path)
{
    ls_weights w;
    char hex[33];
    LS_TRY(ls_weights_open(path, &w));
    ls_weights_tensor *list = ls_weights_list(&w);
    ls_digest *d = ls_digest_create();
    ls_status st = list && d ? LS_OK : ls_fail(LS_NO_MEMORY, "%s: a digest", path);
    for (int i = 0; st == LS_OK && i < ls_weights_count(&w); i++) st = digest_of(&w, &list[i], d);
    if (st == LS_OK) {
        ls_digest_hex(d, hex);
        printf("%s  ", hex);
        ls_cli_ckpt_put(path);
        putchar('\n');
    }
    ls_digest_destroy(d);
    free(list);
    ls_weights_close(&w);
    return st;
}

/* --- merge ----------------------------------------------------------------------------------------------------------
 * */

/* One tensor at a time, for ls_ckpt_write. */
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

static ls_status write_model(ls_checkpoint *c, const char *path)
{
    const int n = ls_checkpoint_count(c);
    static const char *const keys[] = { "lockstep.step", "lockstep.seed", "lockstep.model", "lockstep.config", "lockstep.dims",
                                        "lockstep.activation" };
    const char *meta[2 * (sizeof keys / sizeof *keys) + 1];
    size_t at = 0;
    int items = 0;
    source s = { c, NULL };
    const ls_values values = { whole, &s };
    ls_param *param = calloc((size_t)n + 1, sizeof *param);
    ls_tensor *shape = calloc((size_t)n + 1, sizeof *shape);
    ls_ckpt_item *item = calloc((size_t)n + 1, sizeof *item);
    ls_status st = param && shape && item ? LS_OK : ls_fail(LS_NO_MEMORY, "a list of %d tensors", n);
    for (int i = 0; st == LS_OK && i < n; i++) {
        const ls_checkpoint_tensor *t = ls_checkpoint_at(c, i);
        if (begins(t->name, LS_STATE_OPTIM) || begins(t->name, LS_STATE_OWN)) continue;
        if (t->dtype != LS_F32 || t->ndim > LS_MAX_DIMS || strlen(t->name) >= LS_NAME_BYTES)
            st = ls_fail(LS_UNSUPPORTED, "tensor '%s' is no parameter of Lockstep's: float, at most %d dimensions, a name of less than %d "
                         "bytes", t->name, LS_MAX_DIMS, LS_NAME_BYTES);
        if (st < 0) break;
        snprintf(param[items].name, sizeof param[items].name, "%s", t->name);
        shape[items] = (ls_tensor){ .dtype = LS_F32, .ndim = t->ndim };
        for (int d = 0; d < t->ndim; d++) shape[items].dim[d] = t->dim[d];
        item[items] = (ls_ckpt_item){ .name = t->name, .from = &shape[items], .values = &values,
                                      .param = &param[items], .dtype = LS_F32 };
        items++;
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *value = ls_checkpoint_meta(c, keys[i]);
        if (!value) continue;
        meta[at++] = keys[i];
        meta[at++] = value;
    }
    meta[at] = NULL;
    if (st == LS_OK) st = ls_ckpt_write(path, item, items, meta);
    free(s.values);
    free(param);
    free(shape);
    free(item);
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

ls_status ls_cli_ckpt_merge(const char *path, const char *out)
{
    ls_checkpoint *c;
    ls_commit_folder *folder = NULL;
    LS_TRY(ls_checkpoint_open(path, &c));
    ls_status st = ls_commit_folder_create(out, &folder);
    if (st == LS_OK) st = merge_into(c, ls_commit_folder_path(folder));
    if (st == LS_OK) st = ls_commit_folder_finish(folder, false);
    ls_commit_folder_destroy(folder);
    if (st == LS_OK) {
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

ls_status ls_cli_ckpt_reshard(const char *path, const char *out, int ranks)
{
    ls_checkpoint *c;
    LS_TRY(ls_checkpoint_open(path, &c));
    const ls_status st = ls_checkpoint_reshard(c, ranks, out);
    if (st == LS_OK) {
        ls_cli_ckpt_put(out);
        printf(": step %" PRId64 " of ", ls_checkpoint_step(c));
        ls_cli_ckpt_put(path);
        printf(", as %d rank%s would have saved it\n", ranks, ranks == 1 ? "" : "s");
    }
    ls_checkpoint_close(c);
    return st;
}
