/* save.c -- writing parameters as one safetensors file, whole or not at all. */
#include "ckpt/format.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/commit.h"
#include "base/hash.h"
#include "base/text.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors is little-endian; a big-endian machine would have to swap bytes here and in load.c"
#endif

#define DATA_ALIGN 64 /* the data section begins at a multiple: it can be mapped and used in place */

static ls_status check_meta(const char *const *meta)
{
    for (; meta && *meta; meta += 2) {
        const char *key = *meta;
        if (strcmp(key, "format") == 0 || strcmp(key, "lockstep.version") == 0 || strcmp(key, "lockstep.header") == 0 ||
            strncmp(key, "lockstep.xxh3.", 14) == 0)
            return ls_fail(LS_INVALID, "checkpoint metadata '%s': the key is reserved", key);
        if (!meta[1]) return ls_fail(LS_INVALID, "checkpoint metadata '%s' has no value", key);
    }
    return LS_OK;
}

static ls_status check_params(const ls_params *ps)
{
    for (int i = 0; i < ps->n; i++) {
        const ls_tensor *t = &ps->item[i].t;
        if (!t->data || !ls_ckpt_dtype_name(t->dtype))
            return ls_fail(LS_INVALID, "parameter '%s' has no %s: bind the parameters before saving them", ps->item[i].name,
                           t->data ? "element type" : "values");
    }
    return LS_OK;
}

static void add_pair(ls_text *out, const char *key, const char *value)
{
    ls_text_add(out, "%s", out->p[out->n - 1] == '{' ? "" : ",");
    ls_json_string(out, key);
    ls_text_add(out, ":");
    ls_json_string(out, value);
}

/* Returns where the 16 zeros stand that become the header's digest. */
static size_t add_metadata(ls_text *out, const ls_params *ps, const char *const *meta)
{
    ls_text_add(out, "{");
    add_pair(out, "format", "pt");
    add_pair(out, "lockstep.version", "1");
    add_pair(out, "lockstep.header", "0000000000000000");
    size_t digest_at = out->n - 17;
    for (; meta && *meta; meta += 2) add_pair(out, meta[0], meta[1]);
    for (int i = 0; i < ps->n; i++) {
        const ls_param *p = &ps->item[i];
        char key[14 + LS_NAME_BYTES], hex[17];
        snprintf(key, sizeof key, "lockstep.xxh3.%s", p->name);
        snprintf(hex, sizeof hex, "%016" PRIx64, ls_hash64(p->t.data, ls_tensor_nbytes(&p->t), 0));
        add_pair(out, key, hex);
    }
    ls_text_add(out, "}");
    return digest_at;
}

/* The size prefix and the header, up to the first byte of data. */
static ls_status make_header(const ls_params *ps, const char *const *meta, ls_text *out)
{
    uint64_t at = 0, size = 0;
    ls_text_addn(out, (const char *)&size, sizeof size);
    ls_text_add(out, "{\"__metadata__\":");
    LS_TRY(ls_text_status(out));
    size_t digest_at = add_metadata(out, ps, meta);
    for (int i = 0; i < ps->n; i++) {
        const ls_tensor *t = &ps->item[i].t;
        ls_text_add(out, ",");
        ls_json_string(out, ps->item[i].name);
        ls_text_add(out, ":{\"dtype\":\"%s\",\"shape\":[", ls_ckpt_dtype_name(t->dtype));
        for (int d = 0; d < t->ndim; d++) ls_text_add(out, "%s%" PRId64, d ? "," : "", t->dim[d]);
        ls_text_add(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at, at + ls_tensor_nbytes(t));
        at += ls_tensor_nbytes(t);
    }
    ls_text_add(out, "}");
    while (!out->failed && out->n % DATA_ALIGN != 0) ls_text_addn(out, " ", 1);
    LS_TRY(ls_text_status(out));

    size = out->n - sizeof size;
    memcpy(out->p, &size, sizeof size);
    char hex[17];
    snprintf(hex, sizeof hex, "%016" PRIx64, ls_hash64(out->p, out->n, 0));
    memcpy(out->p + digest_at, hex, 16);
    return LS_OK;
}

static ls_status write_file(const char *path, const ls_text *header, const ls_params *ps)
{
    ls_commit *c;
    LS_TRY(ls_commit_create(path, &c));
    ls_status st = ls_commit_write(c, header->p, header->n);
    for (int i = 0; st == LS_OK && i < ps->n; i++)
        st = ls_commit_write(c, ps->item[i].t.data, ls_tensor_nbytes(&ps->item[i].t));
    if (st == LS_OK) st = ls_commit_finish(c);
    ls_commit_destroy(c);
    return st;
}

ls_status ls_ckpt_save(const char *path, const ls_params *ps, const char *const *meta)
{
    ls_text header = { 0 };
    ls_ckpt_header check = { 0 };
    ls_status st = check_meta(meta);
    if (st == LS_OK) st = check_params(ps);
    if (st == LS_OK) st = make_header(ps, meta, &header);
    if (st != LS_OK) goto done;

    /* What we could not read back (a name twice, a control character) is not written. */
    uint64_t total = header.n + ls_params_nbytes(ps);
    st = ls_ckpt_header_parse(path, header.p, header.n, total, &check);
    if (st != LS_OK) {
        st = ls_while(st == LS_NO_MEMORY ? st : LS_INVALID, "checking a checkpoint before it is written");
        goto done;
    }

    st = write_file(path, &header, ps);
    if (st == LS_IO) {
        const char *slash = strrchr(path, '/');
        st = ls_fail(LS_CKPT_FAILED, "%s (the checkpoint needs %" PRIu64 " bytes in %.*s; an older one stays as it was)",
                     ls_last_error(), total, slash ? (int)(slash - path) + (slash == path) : 1, slash ? path : ".");
    }
done:
    ls_ckpt_header_free(&check);
    ls_text_free(&header);
    return st;
}
