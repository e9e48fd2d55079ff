/* export.c -- the black boxes of all ranks as one Chrome trace (JSON object format).
 *
 * One process a rank; inside it a lane (a "thread" of the format) for compute,
 * lanes for communication, where two slices that overlap never share one, and a
 * lane for waiting. Viewers demand that slices of a lane nest or follow: what
 * would cross goes to a further lane. Arrows join the ranks of one collective.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/shared.h"
#include "base/text.h"
#include "lockstep/trace.h"

#define MAX_DEPTH 16 /* of slices inside one another */

typedef enum family { COMPUTE, COMM, WAITING, FAMILIES } family;
static const char *const family_name[FAMILIES] = { "compute", "comm", "wait" };

typedef struct slice {
    ls_event ev;
    int rank, tid;
} slice;

/* Slices still open at the current time, outermost first. */
typedef struct lane {
    uint64_t end[MAX_DEPTH];
    int depth;
} lane;

typedef struct lanes {
    lane *lane; /* owned */
    int n, cap;
} lanes;

typedef struct output {
    ls_text text;
    uint64_t base_ns; /* all times are relative to it: a double cannot hold microseconds since boot */
    bool any;         /* a row was written */
} output;

/* --- reading the boxes ------------------------------------------------------------------- */

static bool is_sound(const ls_event *ev)
{
    return ev->kind > LS_EV_NONE && ev->kind < LS_EV_KINDS && ev->t0_ns <= ev->t1_ns;
}

/* A ring as its box described it when it was looked at: the box may say something else by now. */
typedef struct ring {
    const ls_event *ev;
    uint32_t room; /* 0: there is none */
} ring;

static ring ring_of(const ls_trace_box *b)
{
    const uint32_t room = b->box ? ls_shared_count32(&b->box->capacity) : 0;
    if (room == LS_BLACKBOX_EVENTS) return (ring){ b->box->ev, room };
    if (room > LS_BLACKBOX_EVENTS && room <= LS_BLACKBOX_MOST && b->more) return (ring){ b->more, room };
    return (ring){ NULL, 0 };
}

/* The events of a box whose owner may be writing at this moment. Event i is
 * being replaced from the time on when i + room were counted. */
static size_t read_box(const ls_blackbox *box, ring rg, int rank, uint32_t first_step, uint32_t last_step, slice *out)
{
    uint64_t count = ls_shared_count(&box->count), i = count > rg.room ? count - rg.room : 0;
    size_t n = 0;
    for (; i < count; i++) {
        ls_event ev;
        ls_shared_load(&ev, &rg.ev[i % rg.room], sizeof ev);
        if (ls_shared_count(&box->count) >= i + rg.room) continue;
        if (!is_sound(&ev) || ev.step < first_step || ev.step > last_step) continue;
        out[n++] = (slice){ .ev = ev, .rank = rank };
    }
    return n;
}

bool ls_trace_is_cut(const ls_trace_box *box, uint32_t first_step)
{
    const ring rg = ring_of(box);
    const uint64_t count = rg.room > 0 ? ls_shared_count(&box->box->count) : 0;
    ls_event oldest;
    if (count <= rg.room) return false;
    ls_shared_load(&oldest, &rg.ev[(count + 1) % rg.room], sizeof oldest); /* of those that stay a while */
    return oldest.step >= first_step;
}

/* False: there is no such string. */
static bool string_of(const ls_blackbox *box, uint32_t index, char out[LS_BLACKBOX_STRING_BYTES])
{
    if (index == 0 || index >= LS_BLACKBOX_STRINGS || index >= ls_shared_count32(&box->nstrings)) return false;
    snprintf(out, LS_BLACKBOX_STRING_BYTES, "%.*s", LS_BLACKBOX_STRING_BYTES - 1, box->string[index]);
    return true;
}

static void name_of(const ls_blackbox *box, const ls_event *ev, char out[LS_BLACKBOX_STRING_BYTES])
{
    static const char *const kinds[LS_EV_KINDS] = { [LS_EV_OP] = "op",           [LS_EV_COLL] = "collective",
                                                    [LS_EV_WAIT] = "wait",       [LS_EV_SEND] = "send",
                                                    [LS_EV_RECV] = "recv",       [LS_EV_OPTIM] = "optimizer step",
                                                    [LS_EV_DATA] = "load data",  [LS_EV_STEP] = "step",
                                                    [LS_EV_MARK] = "mark" };
    if (!string_of(box, ev->label, out)) snprintf(out, LS_BLACKBOX_STRING_BYTES, "%s", kinds[ev->kind]);
}

/* --- lanes --------------------------------------------------------------------------------- */

static family family_of(const ls_event *ev)
{
    if (ev->kind == LS_EV_COLL || ev->kind == LS_EV_SEND || ev->kind == LS_EV_RECV) return COMM;
    return ev->kind == LS_EV_WAIT ? WAITING : COMPUTE;
}

/* Compute is lane 1 and communication 2 and up, so that viewers, which sort by
 * number, show them first. No rank has 10,000 collectives and messages in flight at once. */
static int tid_of(family f, int k)
{
    static const int first[FAMILIES] = { 20000, 2, 10000 };
    return f == COMPUTE && k == 0 ? 1 : first[f] + k;
}

static int by_rank_and_time(const void *a, const void *b)
{
    const slice *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->ev.t0_ns != y->ev.t0_ns) return x->ev.t0_ns < y->ev.t0_ns ? -1 : 1;
    if (x->ev.t1_ns != y->ev.t1_ns) return x->ev.t1_ns > y->ev.t1_ns ? -1 : 1; /* the longer one is outside */
    return 0;
}

/* Whether the slice fits the lane; if so it is opened there. */
static bool place(lane *l, const ls_event *ev, bool may_nest)
{
    while (l->depth > 0 && l->end[l->depth - 1] <= ev->t0_ns) l->depth--;
    if (l->depth > 0 && (!may_nest || l->end[l->depth - 1] < ev->t1_ns || l->depth == MAX_DEPTH)) return false;
    l->end[l->depth++] = ev->t1_ns;
    return true;
}

/* The first lane that the slice fits; -1 when memory is out. */
static int choose_lane(lanes *ls, const ls_event *ev, bool may_nest)
{
    int k = 0;
    while (k < ls->n && !place(&ls->lane[k], ev, may_nest)) k++;
    if (k < ls->n) return k;
    if (ls->n == ls->cap) {
        int cap = ls->cap ? 2 * ls->cap : 8;
        lane *more = realloc(ls->lane, (size_t)cap * sizeof *more);
        if (!more) return -1;
        ls->lane = more;
        ls->cap = cap;
    }
    ls->lane[ls->n++] = (lane){ .end = { ev->t1_ns }, .depth = 1 };
    return k;
}

/* --- writing --------------------------------------------------------------------------------- */

static void add_row(output *o)
{
    ls_text_add(&o->text, "%s", o->any ? ",\n" : "\n");
    o->any = true;
}

static void add_us(output *o, const char *key, uint64_t ns)
{
    ls_text_add(&o->text, ",\"%s\":%llu.%03u", key, (unsigned long long)(ns / 1000), (unsigned)(ns % 1000));
}

/* Nothing, if the box has no such string. */
static void add_string(ls_text *t, const char *key, const ls_blackbox *box, uint32_t index)
{
    char text[LS_BLACKBOX_STRING_BYTES];
    if (!string_of(box, index, text)) return;
    ls_text_add(t, ",\"%s\":", key);
    ls_json_string(t, text);
}

static void add_slice(output *o, const slice *s, const ls_blackbox *box)
{
    static const char *const category[LS_EV_KINDS] = { "none", "forward", "comm", "wait", "comm",
                                                       "comm", "optim",   "data", "step", "mark" };
    const ls_event *ev = &s->ev;
    const bool moves = family_of(ev) != COMPUTE, instant = ev->kind == LS_EV_MARK;
    ls_text *t = &o->text;
    char name[LS_BLACKBOX_STRING_BYTES];
    name_of(box, ev, name);

    add_row(o);
    ls_text_add(t, "{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,\"name\":", instant ? "i" : "X", s->rank, s->tid);
    ls_json_string(t, name);
    ls_text_add(t, ",\"cat\":\"%s\"", ev->kind == LS_EV_OP && ev->backward ? "backward" : category[ev->kind]);
    add_us(o, "ts", ev->t0_ns - o->base_ns);
    if (instant) ls_text_add(t, ",\"s\":\"t\"");
    else add_us(o, "dur", ev->t1_ns - ev->t0_ns);

    ls_text_add(t, ",\"args\":{\"step\":%u", ev->step);
    if (ev->micro_batch) ls_text_add(t, ",\"micro_batch\":%u", ev->micro_batch);
    if (moves) {
        ls_text_add(t, ",\"group\":");
        if (string_of(box, ev->group_name, name)) ls_json_string(t, name);
        else ls_text_add(t, "%u", ev->group);
        ls_text_add(t, ",\"seq\":%u,\"dtype\":\"%s\"", ev->seq, ls_dtype_name((ls_dtype)ev->dtype));
        add_string(t, "coll", box, ev->coll);
        add_string(t, "algo", box, ev->algo);
        add_string(t, "peers", box, ev->peers);
        ls_text_add(t, ",\"moved\":%llu", (unsigned long long)ev->moved);
    }
    if (moves || ev->bytes) ls_text_add(t, ",\"bytes\":%llu", (unsigned long long)ev->bytes);
    if (ev->bucket > 0) ls_text_add(t, ",\"bucket\":%d", ev->bucket - 1);
    if (ev->peer >= 0) ls_text_add(t, ",\"peer\":%d", ev->peer);
    if (isfinite(ev->gflops) && ev->gflops > 0) ls_text_add(t, ",\"gflops\":%.6g", (double)ev->gflops);
    ls_text_add(t, "}}");
}

static void add_names(output *o, int rank, const lanes all[FAMILIES])
{
    ls_text *t = &o->text;
    add_row(o);
    ls_text_add(t, "{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",", rank);
    ls_text_add(t, "\"args\":{\"name\":\"rank %d\"}}", rank);
    add_row(o);
    ls_text_add(t, "{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_sort_index\",", rank);
    ls_text_add(t, "\"args\":{\"sort_index\":%d}}", rank);
    for (int f = 0; f < FAMILIES; f++)
        for (int k = 0; k < all[f].n; k++) {
            char number[16] = "";
            if (k > 0) snprintf(number, sizeof number, " %d", k + 1);
            add_row(o);
            ls_text_add(t, "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",", rank, tid_of((family)f, k));
            ls_text_add(t, "\"args\":{\"name\":\"%s%s\"}}", family_name[f], number);
        }
}

/* The n slices of one rank, in order of time. */
static ls_status add_rank(output *o, int rank, slice *s, size_t n, const ls_blackbox *box)
{
    lanes all[FAMILIES] = { 0 };
    ls_status st = LS_OK;
    for (size_t i = 0; i < n && st == LS_OK; i++) {
        family f = family_of(&s[i].ev);
        int k = choose_lane(&all[f], &s[i].ev, f == COMPUTE);
        if (k < 0) st = ls_fail(LS_NO_MEMORY, "the lanes of a trace");
        else s[i].tid = tid_of(f, k);
    }
    if (st == LS_OK) {
        add_names(o, rank, all);
        for (size_t i = 0; i < n; i++) add_slice(o, &s[i], box);
    }
    for (int f = 0; f < FAMILIES; f++) free(all[f].lane);
    return st;
}

static bool same_collective(const slice *x, const slice *y)
{
    return x->ev.group == y->ev.group && x->ev.seq == y->ev.seq;
}

/* Within a collective the rank that came first is first: arrows point to who was waited for. */
static int by_collective(const void *a, const void *b)
{
    const slice *x = *(const slice *const *)a, *y = *(const slice *const *)b;
    if (x->ev.group != y->ev.group) return x->ev.group < y->ev.group ? -1 : 1;
    if (x->ev.seq != y->ev.seq) return x->ev.seq < y->ev.seq ? -1 : 1;
    return by_rank_and_time(&(slice){ .ev = x->ev }, &(slice){ .ev = y->ev });
}

static void add_arrow(output *o, const slice *s, const char *ph)
{
    add_row(o);
    ls_text_add(&o->text, "{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,\"name\":\"collective\",\"cat\":\"comm\"", ph, s->rank,
                s->tid);
    ls_text_add(&o->text, ",\"id\":\"%u.%u\"%s", s->ev.group, s->ev.seq, *ph == 'f' ? ",\"bp\":\"e\"" : "");
    add_us(o, "ts", s->ev.t0_ns - o->base_ns);
    ls_text_add(&o->text, "}");
}

/* Arrows from rank to rank through the slices of one collective. */
static ls_status add_flows(output *o, const slice *s, size_t n)
{
    const slice **coll = malloc((n + 1) * sizeof *coll);
    if (!coll) return ls_fail(LS_NO_MEMORY, "joining %zu trace events", n);
    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        if (s[i].ev.kind == LS_EV_COLL) coll[m++] = &s[i];
    qsort(coll, m, sizeof *coll, by_collective);
    for (size_t i = 0, end; i < m; i = end) {
        for (end = i + 1; end < m && same_collective(coll[i], coll[end]);) end++;
        for (size_t k = i; end - i > 1 && k < end; k++) add_arrow(o, coll[k], k == i ? "s" : k + 1 == end ? "f" : "t");
    }
    free(coll);
    return LS_OK;
}

/* *room: events of all rings. */
static ls_status find_rings(const ls_trace_box *box, int nranks, ring *rings, size_t *room)
{
    *room = 0;
    for (int r = 0; r < nranks; r++) {
        if (!box[r].box) continue;
        rings[r] = ring_of(&box[r]);
        if (rings[r].room == 0)
            return ls_fail(LS_PROTOCOL, "the black box of rank %d has a ring that is neither of %d events nor, beside it, of up "
                           "to %d", r, LS_BLACKBOX_EVENTS, LS_BLACKBOX_MOST);
        *room += rings[r].room;
    }
    return LS_OK;
}

/* *out[*n], the caller's to free: the events of those steps. */
static ls_status read_boxes(const ls_trace_box *box, int nranks, uint32_t first_step, uint32_t last_step, slice **out,
                            size_t *n)
{
    ring *rings = calloc((size_t)nranks, sizeof *rings);
    size_t room = 0;
    *out = NULL;
    *n = 0;
    ls_status st = rings ? find_rings(box, nranks, rings, &room) : ls_fail(LS_NO_MEMORY, "the rings of %d ranks", nranks);
    if (st == LS_OK && !(*out = malloc((room + 1) * sizeof **out)))
        st = ls_fail(LS_NO_MEMORY, "the events of %d ranks for a trace", nranks);
    for (int r = 0; r < nranks && st == LS_OK; r++)
        if (rings[r].room > 0) *n += read_box(box[r].box, rings[r], r, first_step, last_step, *out + *n);
    free(rings);
    return st;
}

ls_status ls_trace_export(const ls_trace_box *box, int nranks, uint32_t first_step, uint32_t last_step,
                          const char *path)
{
    output o = { .base_ns = UINT64_MAX };
    ls_status st = LS_OK;
    slice *s;
    size_t n;
    if (nranks < 1) return ls_fail(LS_INVALID, "a trace of %d ranks: expected at least 1", nranks);
    LS_TRY(read_boxes(box, nranks, first_step, last_step, &s, &n));
    qsort(s, n, sizeof *s, by_rank_and_time);
    for (size_t i = 0; i < n; i++)
        if (s[i].ev.t0_ns < o.base_ns) o.base_ns = s[i].ev.t0_ns;
    if (n == 0) o.base_ns = 0;

    ls_text_add(&o.text,
                "{\"schemaVersion\":1,\"displayTimeUnit\":\"ms\",\"baseTimeNanoseconds\":%llu,"
                "\"distributedInfo\":{\"backend\":\"lockstep\",\"rank\":0,\"world_size\":%d},\"traceEvents\":[",
                (unsigned long long)o.base_ns, nranks);
    size_t i = 0;
    for (int r = 0; r < nranks && st == LS_OK; r++) {
        if (!box[r].box) continue;
        size_t first = i;
        while (i < n && s[i].rank == r) i++;
        st = add_rank(&o, r, s + first, i - first, box[r].box);
    }
    if (st == LS_OK) st = add_flows(&o, s, n);
    ls_text_add(&o.text, "\n]}\n");
    if (st == LS_OK) st = ls_text_status(&o.text);
    if (st == LS_OK) st = ls_file_write(path, o.text.p, o.text.n);
    ls_text_free(&o.text);
    free(s);
    return st;
}
