/* read.c -- schedules from JSON, checked number by number: a file may come
 * from anywhere, for example from a program that searches for algorithms. */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/limits.h"
#include "coll/print.h"

/* Where in the file we are, for messages; -1: not there yet. */
typedef struct place {
    const char *name;
    int rank, lane, step;
} place;

LS_COLD static ls_status LS_PRINTF(2, 3) bad(const place *at, const char *fmt, ...)
{
    char where[64] = "", what[256];
    int n = 0;
    if (at->rank >= 0) n += snprintf(where, sizeof where, "rank %d, ", at->rank);
    if (at->lane >= 0) n += snprintf(where + n, sizeof where - (size_t)n, "lane %d, ", at->lane);
    if (at->step >= 0) n += snprintf(where + n, sizeof where - (size_t)n, "step %d, ", at->step);
    if (n >= 2) memcpy(where + n - 2, ": ", 2);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return ls_fail(LS_BAD_FILE, "%s: %s%s", at->name, where, what);
}

/* What the builder or seal refused, at its place; their sentences start with the rank too. */
LS_COLD static ls_status refused(const place *at, ls_status st)
{
    const char *rest = strstr(ls_last_error(), ": ");
    return st == LS_INVALID ? bad(at, "%s", rest ? rest + 2 : ls_last_error()) : st;
}

static ls_status integer(const place *at, const json_t *o, const char *key, long long low, long long high, int *out)
{
    const json_t *v = json_object_get(o, key);
    if (!v || !json_is_integer(v)) return bad(at, "\"%s\": expected an integer", key);
    json_int_t i = json_integer_value(v);
    if (i < low || i > high) return bad(at, "\"%s\" is %lld, expected %lld to %lld", key, (long long)i, low, high);
    *out = (int)i;
    return LS_OK;
}

static ls_status slice(const place *at, const json_t *step, const char *key, ls_slice *out)
{
    const json_t *o = json_object_get(step, key);
    const char *buf = json_string_value(json_object_get(o, "buf"));
    int first, n;
    if (!json_is_object(o)) return bad(at, "\"%s\": expected an object with buf, first and n", key);
    if (!buf || !ls_bufid_find(buf, &out->buf)) return bad(at, "\"%s\": \"buf\" is none of in, out, tmp", key);
    LS_TRY(integer(at, o, "first", 0, LS_SCHED_MAX_CHUNKS, &first));
    LS_TRY(integer(at, o, "n", 0, LS_SCHED_MAX_CHUNKS, &n));
    out->first = (uint32_t)first;
    out->n = (uint32_t)n;
    return LS_OK;
}

static ls_status read_step(const place *at, const json_t *o, ls_sched *s)
{
    const char *name = json_string_value(json_object_get(o, "kind"));
    ls_step_kind kind = LS_STEP_SEND;
    ls_slice src = { LS_BUF_OUT, 0, 0 }, dst = { LS_BUF_OUT, 0, 0 };
    int peer = -1;
    if (!name || !ls_step_kind_find(name, &kind)) return bad(at, "\"kind\" is no kind of step");
    if (kind == LS_STEP_SEND || kind == LS_STEP_RECV || kind == LS_STEP_RECV_REDUCE)
        LS_TRY(integer(at, o, "peer", 0, s->shape.size - 1, &peer));
    if (kind == LS_STEP_SEND || kind == LS_STEP_COPY || kind == LS_STEP_REDUCE) LS_TRY(slice(at, o, "src", &src));
    if (kind != LS_STEP_SEND) LS_TRY(slice(at, o, "dst", &dst));

    ls_status st = LS_OK;
    switch (kind) {
    case LS_STEP_SEND: st = ls_sched_send(s, at->lane, peer, src); break;
    case LS_STEP_RECV: st = ls_sched_recv(s, at->lane, peer, dst); break;
    case LS_STEP_RECV_REDUCE: st = ls_sched_recv_reduce(s, at->lane, peer, dst); break;
    case LS_STEP_COPY: st = ls_sched_copy(s, at->lane, src, dst); break;
    case LS_STEP_REDUCE: st = ls_sched_reduce(s, at->lane, src, dst); break;
    case LS_STEP_SUM: st = ls_sched_sum(s, at->lane, dst); break;
    case LS_STEP_FOLD: st = ls_sched_fold(s, at->lane, dst); break;
    }
    return st < 0 ? refused(at, st) : LS_OK;
}

static ls_status read_sched(place *at, const json_t *o, ls_sched *s)
{
    const char *coll = json_string_value(json_object_get(o, "coll"));
    const json_t *chunks = json_object_get(o, "chunks"), *lanes = json_object_get(o, "lanes");
    static const char *const buf[] = { "in", "out", "tmp" };
    if (!json_is_object(o)) return bad(at, "expected an object per rank");
    s->shape.coll = coll ? ls_coll_find(coll) : LS_COLLS;
    if (s->shape.coll == LS_COLLS) return bad(at, "\"coll\" is no collective");
    LS_TRY(integer(at, o, "size", 1, LS_SCHED_MAX_RANKS, &s->shape.size));
    LS_TRY(integer(at, o, "rank", 0, s->shape.size - 1, &s->shape.rank));
    LS_TRY(integer(at, o, "root", 0, s->shape.size - 1, &s->shape.root));
    LS_TRY(integer(at, o, "segments", 1, LS_MAX_SEGMENTS, &s->shape.segments));
    for (int b = 0; b < 3; b++) {
        int n;
        LS_TRY(integer(at, chunks, buf[b], 0, LS_SCHED_MAX_CHUNKS, &n));
        s->nchunks[b] = (uint32_t)n;
    }
    s->shape.uneven = json_is_true(json_object_get(o, "uneven"));
    s->one_sum = json_is_true(json_object_get(o, "one_sum"));
    size_t nlanes = json_array_size(lanes);
    if (nlanes < 1 || nlanes > LS_MAX_LANES)
        return bad(at, "\"lanes\": expected an array of 1 to %d lanes", LS_MAX_LANES);
    s->shape.nlanes = (int)nlanes;

    for (at->lane = 0; at->lane < s->shape.nlanes; at->lane++) {
        const json_t *steps = json_array_get(lanes, (size_t)at->lane);
        if (!json_is_array(steps)) return bad(at, "expected an array of steps");
        size_t n = json_array_size(steps);
        for (at->step = 0; (size_t)at->step < n; at->step++)
            LS_TRY(read_step(at, json_array_get(steps, (size_t)at->step), s));
        at->step = -1;
    }
    at->lane = -1;
    ls_status st = ls_sched_seal(s);
    return st < 0 ? refused(at, st) : LS_OK;
}

void ls_sched_free_all(ls_sched *s, int count)
{
    for (int r = 0; s && r < count; r++) ls_sched_free(&s[r]);
    free(s);
}

ls_status ls_sched_read_json(const char *name, const char *text, size_t n, ls_sched **out, int *count)
{
    ls_status st = LS_OK;
    json_error_t error;
    json_t *root = NULL;
    ls_sched *s = NULL;
    size_t size = 0;
    place at = { name, -1, -1, -1 };

    *out = NULL;
    *count = 0;
    if (n > LS_SCHED_MAX_JSON_BYTES) {
        st = bad(&at, "%zu bytes, expected at most %zu", n, LS_SCHED_MAX_JSON_BYTES);
        goto done;
    }
    root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        st = bad(&at, "line %d, column %d: %s", error.line, error.column, error.text);
        goto done;
    }
    size = json_array_size(root);
    if (size < 1 || size > LS_SCHED_MAX_RANKS) {
        st = bad(&at, "expected an array of 1 to %d schedules, one per rank", LS_SCHED_MAX_RANKS);
        goto done;
    }
    s = calloc(size, sizeof *s);
    if (!s) st = ls_fail(LS_NO_MEMORY, "%zu schedules", size);
    for (size_t r = 0; st == LS_OK && r < size; r++) {
        at = (place){ name, (int)r, -1, -1 };
        st = read_sched(&at, json_array_get(root, r), &s[r]);
    }
    if (st == LS_OK) {
        *out = s;
        *count = (int)size;
        s = NULL;
    }
done:
    ls_sched_free_all(s, (int)size);
    json_decref(root);
    return st;
}
