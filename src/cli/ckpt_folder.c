/* ckpt_folder.c -- the checkpoint of all ranks: what it holds, whether it is whole, and the digest of its model. */
#include "cli/ckpt_folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/text.h"
#include "ckpt/manifest.h"
#include "ckpt/state.h"
#include "cli/cli.h"

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
    return ls_cli_print(&out);
}

/* --- verify --------------------------------------------------------------------------------------------------- */

ls_status ls_cli_ckpt_good(const char *path, int tensors, int files, int64_t step, bool compared, bool json)
{
    if (json) {
        ls_text out = { 0 };
        ls_text_add(&out, "{\"path\": ");
        ls_json_string(&out, path);
        ls_text_add(&out, ", \"ok\": true, \"compared\": %s, \"tensors\": %d, \"files\": %d, \"step\": ", compared ? "true" : "false",
                    tensors, files ? files : 1);
        if (step >= 0) ls_text_add(&out, "%" PRId64 "}\n", step);
        else ls_text_add(&out, "null}\n");
        return ls_cli_print(&out);
    }
    printf("ok  ");
    ls_cli_ckpt_put(path);
    if (files == 0)
        printf("  %d tensors, %s\n", tensors,
               compared ? "every byte as it was saved" : "well-formed; it has no digests to check its bytes with");
    else if (compared) printf("  step %" PRId64 ", %d tensors in %d files, every byte as it was saved\n", step, tensors, files);
    else
        printf("  %d tensors in %d files of another program, well-formed; there are no checksums of its bytes\n", tensors, files);
    return LS_OK;
}

ls_status ls_cli_ckpt_verify_folder(const char *path, bool json)
{
    ls_checkpoint *c;
    LS_TRY(ls_checkpoint_open(path, &c));
    const bool foreign = ls_checkpoint_is_foreign(c);
    ls_status st = ls_checkpoint_verify(c, 0, 1);
    if (st == LS_OK && !ls_checkpoint_has_manifest(c) && !foreign)
        st = ls_fail(LS_CKPT_CORRUPT, "%s: has no manifest.json, which Lockstep writes last: it is not whole", path);
    if (st == LS_OK)
        st = ls_cli_ckpt_good(path, ls_checkpoint_count(c), ls_checkpoint_nfiles(c),
                              foreign ? -1 : ls_checkpoint_step(c), !foreign, json);
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

bool ls_cli_ckpt_is_state(const char *name) { return begins(name, LS_STATE_OPTIM) || begins(name, LS_STATE_OWN); }

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
    else if (st == LS_OK) return ls_cli_print(&out);
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

static ls_status print_digest(const char *hex, const char *path, bool json)
{
    ls_text out = { 0 };
    if (json) {
        ls_text_add(&out, "{\"path\": ");
        ls_json_string(&out, path);
        ls_text_add(&out, ", \"digest\": \"%s\"}\n", hex);
        return ls_cli_print(&out);
    }
    printf("%s  ", hex);
    ls_cli_ckpt_put(path);
    putchar('\n');
    return LS_OK;
}

ls_status ls_cli_ckpt_digest(const char *path, bool json)
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
        st = print_digest(hex, path, json);
    }
    ls_digest_destroy(d);
    free(list);
    ls_weights_close(&w);
    return st;
}
