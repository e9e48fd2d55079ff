/* print.c -- a schedule as text for people, dot for pictures, JSON for programs. */
#include "coll/print.h"

#include <stdio.h>
#include <string.h>

static const char *const kind_name[] = {
    [LS_STEP_SEND] = "send",     [LS_STEP_RECV] = "recv", [LS_STEP_RECV_REDUCE] = "recv_reduce",
    [LS_STEP_COPY] = "copy",     [LS_STEP_REDUCE] = "reduce",
    [LS_STEP_SUM] = "sum",       [LS_STEP_FOLD] = "fold",
};
static const char *const buf_name[] = { "in", "out", "tmp" };

static void slice_text(ls_slice a, char *buf, size_t n)
{
    if (a.n == 0) snprintf(buf, n, "nothing");
    else if (a.n == 1) snprintf(buf, n, "%s[%u]", buf_name[a.buf % 3], a.first);
    else snprintf(buf, n, "%s[%u..%u]", buf_name[a.buf % 3], a.first, a.first + a.n - 1);
}

static const char *name_of(ls_step_kind k) { return (unsigned)k <= LS_STEP_FOLD ? kind_name[k] : "?"; }

void ls_step_text(const ls_step *s, char *buf, size_t n)
{
    char src[40], dst[40];
    slice_text(s->src, src, sizeof src);
    slice_text(s->dst, dst, sizeof dst);
    switch (s->kind) {
    case LS_STEP_SEND: snprintf(buf, n, "send %s -> %d", src, s->peer); break;
    case LS_STEP_RECV:
    case LS_STEP_RECV_REDUCE: snprintf(buf, n, "%s %s <- %d", name_of(s->kind), dst, s->peer); break;
    case LS_STEP_COPY:
    case LS_STEP_REDUCE: snprintf(buf, n, "%s %s <- %s", name_of(s->kind), dst, src); break;
    default: snprintf(buf, n, "%s %s <- all", name_of(s->kind), dst); break;
    }
}

bool ls_step_kind_find(const char *name, ls_step_kind *out)
{
    for (int k = LS_STEP_SEND; k <= LS_STEP_FOLD; k++)
        if (strcmp(kind_name[k], name) == 0) {
            *out = (ls_step_kind)k;
            return true;
        }
    return false;
}

bool ls_bufid_find(const char *name, ls_bufid *out)
{
    for (int b = LS_BUF_IN; b <= LS_BUF_TMP; b++)
        if (strcmp(buf_name[b], name) == 0) {
            *out = (ls_bufid)b;
            return true;
        }
    return false;
}

static uint32_t step_count(const ls_sched *s)
{
    uint32_t n = 0;
    for (int l = 0; l < s->shape.nlanes; l++) n += s->lane[l].n;
    return n;
}

static void print_text(const ls_sched *s, ls_text *out)
{
    uint32_t n = step_count(s);
    ls_text_add(out, "rank %d of %d: %u step%s, %u chunks\n", s->shape.rank, s->shape.size, n, n == 1 ? "" : "s",
                s->nchunks[LS_BUF_OUT]);
    for (int l = 0; l < s->shape.nlanes; l++) {
        if (s->shape.nlanes > 1) ls_text_add(out, "lane %d\n", l);
        for (uint32_t i = 0; i < s->lane[l].n; i++) {
            const ls_step *a = &s->lane[l].step[i];
            char text[LS_STEP_TEXT];
            ls_step_text(a, text, sizeof text);
            bool noted = a->after_send >= 0 || a->last_reduce;
            ls_text_add(out, noted ? "%4u  %-32s" : "%4u  %s", i, text);
            if (a->after_send >= 0) ls_text_add(out, "after send %d is read  ", a->after_send);
            if (a->last_reduce) ls_text_add(out, "complete");
            while (out->n > 0 && out->p[out->n - 1] == ' ') out->p[--out->n] = 0;
            ls_text_add(out, "\n");
        }
    }
}

/* Steps are "l0s3"; messages to and from peers end in a node of the peer. */
static void print_dot(const ls_sched *s, ls_text *out)
{
    ls_text_add(out, "digraph \"%s rank %d of %d\" {\n  rankdir=TB; node [shape=box, fontname=monospace];\n",
                ls_coll_name(s->shape.coll), s->shape.rank, s->shape.size);
    for (int l = 0; l < s->shape.nlanes; l++) {
        ls_text_add(out, "  subgraph cluster_%d { label=\"lane %d\";\n", l, l);
        for (uint32_t i = 0; i < s->lane[l].n; i++) {
            char text[LS_STEP_TEXT];
            ls_step_text(&s->lane[l].step[i], text, sizeof text);
            ls_text_add(out, "    l%ds%u [label=\"%s\"%s];\n", l, i, text,
                        s->lane[l].step[i].last_reduce ? ", style=bold" : "");
        }
        ls_text_add(out, "  }\n");
        for (uint32_t i = 0; i < s->lane[l].n; i++) {
            const ls_step *a = &s->lane[l].step[i];
            if (i > 0) ls_text_add(out, "  l%ds%u -> l%ds%u;\n", l, i - 1, l, i);
            if (a->after_send >= 0)
                ls_text_add(out, "  l%ds%d -> l%ds%u [style=dashed, label=\"read\"];\n", l, a->after_send, l, i);
            if (a->peer < 0) continue;
            ls_text_add(out, "  \"rank %d\" [shape=ellipse];\n", a->peer);
            if (a->kind == LS_STEP_SEND) ls_text_add(out, "  l%ds%u -> \"rank %d\" [color=blue];\n", l, i, a->peer);
            else ls_text_add(out, "  \"rank %d\" -> l%ds%u [color=blue];\n", a->peer, l, i);
        }
    }
    ls_text_add(out, "}\n");
}

static void json_slice(ls_text *out, const char *key, ls_slice a)
{
    ls_text_add(out, ", \"%s\": {\"buf\": \"%s\", \"first\": %u, \"n\": %u}", key, buf_name[a.buf % 3], a.first, a.n);
}

static void print_json(const ls_sched *s, ls_text *out)
{
    ls_text_add(out, "{\"coll\": \"%s\", \"rank\": %d, \"size\": %d, \"root\": %d, \"segments\": %d, ",
                ls_coll_name(s->shape.coll), s->shape.rank, s->shape.size, s->shape.root, s->shape.segments);
    if (s->shape.uneven) ls_text_add(out, "\"uneven\": true, ");
    ls_text_add(out, "\"chunks\": {\"in\": %u, \"out\": %u, \"tmp\": %u}, \"one_sum\": %s,\n \"lanes\": [",
                s->nchunks[LS_BUF_IN], s->nchunks[LS_BUF_OUT], s->nchunks[LS_BUF_TMP], s->one_sum ? "true" : "false");
    for (int l = 0; l < s->shape.nlanes; l++) {
        ls_text_add(out, l ? ",\n  [" : "\n  [");
        for (uint32_t i = 0; i < s->lane[l].n; i++) {
            const ls_step *a = &s->lane[l].step[i];
            ls_text_add(out, "%s\n   {\"kind\": \"%s\"", i ? "," : "", name_of(a->kind));
            if (a->peer >= 0) ls_text_add(out, ", \"peer\": %d", a->peer);
            if (a->kind == LS_STEP_SEND || a->kind == LS_STEP_COPY || a->kind == LS_STEP_REDUCE)
                json_slice(out, "src", a->src);
            if (a->kind != LS_STEP_SEND) json_slice(out, "dst", a->dst);
            if (a->after_send >= 0) ls_text_add(out, ", \"after_send\": %d", a->after_send);
            if (a->last_reduce) ls_text_add(out, ", \"last_reduce\": true");
            ls_text_add(out, "}");
        }
        ls_text_add(out, "]");
    }
    ls_text_add(out, "]}");
}

ls_status ls_sched_print(const ls_sched *s, ls_print_format format, ls_text *out)
{
    switch (format) {
    case LS_PRINT_TEXT: print_text(s, out); break;
    case LS_PRINT_DOT: print_dot(s, out); break;
    case LS_PRINT_JSON: print_json(s, out); break;
    }
    return ls_text_status(out);
}
