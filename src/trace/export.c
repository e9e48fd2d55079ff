/* export.c -- the black boxes of all ranks as one Chrome trace (JSON object format).
 *
 * One process a rank; inside it a lane for compute, lanes for collectives (two
 * that overlap never share one), a lane for waiting. Viewers demand that slices of
 * a lane nest or follow: an event that would cross goes to a further lane. Flow
 * arrows join the ranks of one collective.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "lockstep/trace.h"

#define MAX_LANES 16
#define MAX_DEPTH 16

typedef enum family { COMPUTE, COMM, WAITING, FAMILIES } family;
static const int first_tid[FAMILIES] = { 1, 20, 40 };
static const char *const family_name[FAMILIES] = { "compute", "communication", "waiting" };

typedef struct slice {
    ls_event ev;
    int rank, tid;
} slice;

/* Slices still open at the current time, outermost first. */
typedef struct lane {
    uint64_t end[MAX_DEPTH];
    int depth;
} lane;

static family family_of(const ls_event *ev)
{
    if (ev->kind == LS_EV_COLL || ev->kind == LS_EV_SEND || ev->kind == LS_EV_RECV) return COMM;
    return ev->kind == LS_EV_WAIT ? WAITING : COMPUTE;
}

static int by_rank_and_time(const void *a, const void *b)
{
    const slice *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->ev.t0_ns != y->ev.t0_ns) return x->ev.t0_ns < y->ev.t0_ns ? -1 : 1;
    if (x->ev.t1_ns != y->ev.t1_ns) return x->ev.t1_ns > y->ev.t1_ns ? -1 : 1; /* the longer one is outside */
    return 0;
}

static int by_collective(const void *a, const void *b)
{
    const slice *x = *(const slice *const *)a, *y = *(const slice *const *)b;
    if (x->ev.group != y->ev.group) return x->ev.group < y->ev.group ? -1 : 1;
    if (x->ev.seq != y->ev.seq) return x->ev.seq < y->ev.seq ? -1 : 1;
    return x->rank - y->rank;
}

/* Whether the slice fits the lane; if so it is opened there. */
static bool place(lane *l, const ls_event *ev, bool may_nest)
{
    while (l->depth > 0 && l->end[l->depth - 1] <= ev->t0_ns) l->depth--;
    if (l->depth > 0 && (!may_nest || l->end[l->depth - 1] < ev->t1_ns || l->depth == MAX_DEPTH)) return false;
    l->end[l->depth++] = ev->t1_ns;
    return true;
}

/* Slices are sorted by rank and time. */
static void assign_lanes(slice *s, size_t n)
{
    lane lanes[FAMILIES][MAX_LANES];
    memset(lanes, 0, sizeof lanes);
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && s[i].rank != s[i - 1].rank) memset(lanes, 0, sizeof lanes);
        family f = family_of(&s[i].ev);
        int k = 0;
        while (k < MAX_LANES && !place(&lanes[f][k], &s[i].ev, f == COMPUTE)) k++;
        s[i].tid = k < MAX_LANES ? first_tid[f] + k : 0; /* 0: left out, more than MAX_LANES at once */
    }
}

static size_t collect(const ls_blackbox *const *box, int nranks, uint32_t first_step, uint32_t last_step, slice *out)
{
    size_t n = 0;
    for (int r = 0; r < nranks; r++) {
        uint64_t count = box[r]->count, from = count > LS_BLACKBOX_EVENTS ? count - LS_BLACKBOX_EVENTS : 0;
        for (uint64_t i = from; i < count; i++) {
            const ls_event *ev = &box[r]->ev[i % LS_BLACKBOX_EVENTS];
            if (ev->kind == LS_EV_NONE || ev->step < first_step || ev->step > last_step || ev->t1_ns < ev->t0_ns) continue;
            out[n++] = (slice){ .ev = *ev, .rank = r };
        }
    }
    return n;
}

static void microseconds(ls_text *t, const char *key, uint64_t ns)
{
    ls_text_add(t, "\"%s\":%llu.%03u", key, (unsigned long long)(ns / 1000), (unsigned)(ns % 1000));
}

static void name_of(const ls_blackbox *box, const ls_event *ev, char out[LS_BLACKBOX_STRING_BYTES])
{
    static const char *const kinds[LS_EV_KINDS] = { "none", "op", "collective", "wait", "send", "recv", "optimizer", "data", "step", "mark" };
    bool labelled = ev->label > 0 && ev->label < LS_BLACKBOX_STRINGS;
    snprintf(out, LS_BLACKBOX_STRING_BYTES, "%s", labelled ? box->string[ev->label] : ev->kind < LS_EV_KINDS ? kinds[ev->kind] : "?");
}

static void add_slice(ls_text *t, const slice *s, const ls_blackbox *box, uint64_t base)
{
    char name[LS_BLACKBOX_STRING_BYTES];
    const ls_event *ev = &s->ev;
    name_of(box, ev, name);
    ls_text_add(t, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"name\":", s->rank, s->tid);
    ls_json_string(t, name);
    ls_text_add(t, ",\"cat\":\"%s\",", ev->kind == LS_EV_OP ? ev->backward ? "backward" : "forward" : family_name[family_of(ev)]);
    microseconds(t, "ts", ev->t0_ns - base);
    ls_text_add(t, ",");
    microseconds(t, "dur", ev->t1_ns - ev->t0_ns);
    ls_text_add(t, ",\"args\":{\"step\":%u", ev->step);
    if (family_of(ev) != COMPUTE)
        ls_text_add(t, ",\"group\":%u,\"seq\":%u,\"bytes\":%llu,\"dtype\":\"%s\"", ev->group, ev->seq, (unsigned long long)ev->bytes,
                    ls_dtype_name((ls_dtype)ev->dtype));
    if (ev->gflops > 0) ls_text_add(t, ",\"gflop\":%.6g", (double)ev->gflops);
    ls_text_add(t, "}}");
}

static void add_names(ls_text *t, const slice *s, size_t n, int nranks)
{
    for (int r = 0; r < nranks; r++) {
        ls_text_add(t, "%s{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"rank %d\"}}", r ? ",\n" : "", r, r);
        ls_text_add(t, ",\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%d}}", r, r);
        for (int f = 0; f < FAMILIES; f++)
            for (int k = 0; k < MAX_LANES; k++) {
                bool used = false;
                for (size_t i = 0; i < n && !used; i++) used = s[i].rank == r && s[i].tid == first_tid[f] + k;
                if (used)
                    ls_text_add(t, ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"%s%.*d\"}}", r,
                                first_tid[f] + k, family_name[f], k > 0, k + 1);
            }
    }
}

/* Arrows from rank to rank through the slices of one collective. */
static ls_status add_flows(ls_text *t, const slice *s, size_t n, uint64_t base)
{
    const slice **coll = malloc((n + 1) * sizeof *coll);
    if (!coll) return ls_fail(LS_NO_MEMORY, "joining %zu trace events", n);
    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        if (s[i].ev.kind == LS_EV_COLL && s[i].tid) coll[m++] = &s[i];
    qsort(coll, m, sizeof *coll, by_collective);
    for (size_t i = 0, end; i < m; i = end) {
        for (end = i + 1; end < m && coll[end]->ev.group == coll[i]->ev.group && coll[end]->ev.seq == coll[i]->ev.seq;) end++;
        for (size_t k = i; end - i > 1 && k < end; k++) {
            ls_text_add(t, ",\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,\"name\":\"same collective\",\"cat\":\"flow\",\"bp\":\"e\",\"id\":\"%u.%u\",",
                        k == i ? "s" : k + 1 == end ? "f" : "t", coll[k]->rank, coll[k]->tid, coll[k]->ev.group, coll[k]->ev.seq);
            microseconds(t, "ts", coll[k]->ev.t0_ns - base);
            ls_text_add(t, "}");
        }
    }
    free(coll);
    return LS_OK;
}

ls_status ls_trace_export(const ls_blackbox *const *box, int nranks, uint32_t first_step, uint32_t last_step, const char *path)
{
    slice *s = malloc(((size_t)nranks * LS_BLACKBOX_EVENTS + 1) * sizeof *s);
    if (!s) return ls_fail(LS_NO_MEMORY, "a trace of %d ranks", nranks);
    size_t n = collect(box, nranks, first_step, last_step, s);
    qsort(s, n, sizeof *s, by_rank_and_time);
    assign_lanes(s, n);
    uint64_t base = UINT64_MAX;
    for (size_t i = 0; i < n; i++)
        if (s[i].ev.t0_ns < base) base = s[i].ev.t0_ns;
    if (n == 0) base = 0;

    ls_text t = { 0 };
    ls_text_add(&t, "{\"schemaVersion\":1,\"displayTimeUnit\":\"ms\",\"baseTimeNanoseconds\":%llu,"
                    "\"distributedInfo\":{\"backend\":\"lockstep\",\"rank\":0,\"world_size\":%d},\"traceEvents\":[\n", (unsigned long long)base, nranks);
    add_names(&t, s, n, nranks);
    for (size_t i = 0; i < n; i++)
        if (s[i].tid) add_slice(&t, &s[i], box[s[i].rank], base);
    ls_status st = add_flows(&t, s, n, base);
    ls_text_add(&t, "\n]}\n");
    if (st == LS_OK) st = ls_text_status(&t);
    if (st == LS_OK) st = ls_file_write(path, t.p, t.n);
    ls_text_free(&t);
    free(s);
    return st;
}
