/* explain_counters.c -- what a run has counted, in metrics.jsonl, comm.json and memory.json, beside the plan of its
 * configuration.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/median.h"
#include "train/explain_run.h"
#include "train/metrics_file.h"
#include "train/straggler.h"

#define COMM_MOST   ((size_t)1 << 26) /* bytes of comm.json */
#define MEMORY_MOST ((size_t)1 << 24) /* of memory.json */
#define PATH_BYTES  600

typedef unsigned long long num; /* for printf */

/* --- metrics.jsonl: rank 0, all groups ----------------------------------------------------------- */

/* A step without an evaluation. */
typedef struct counted {
    int64_t step;
    uint64_t bytes;
    double seconds, exposed_s, hidden_s, data_s;
} counted;

typedef struct reading {
    counted *item; /* owned */
    size_t n, cap;
    int world_size;
} reading;

static ls_status read_line(void *arg, int64_t step, const json_t *j)
{
    reading *r = arg;
    const double ranks = ls_metrics_number(j, "world_size"), bytes = ls_metrics_number(j, "comm/bytes");
    const int size = ranks >= 1 && ranks <= 65536 ? (int)ranks : 0;
    if (size != r->world_size) r->n = 0; /* it went on with other ranks */
    r->world_size = size;
    if (json_object_get(j, "eval/loss") || !(bytes >= 0 && bytes < 9e15)) return LS_OK;
    if (r->n == r->cap) {
        const size_t cap = r->cap ? 2 * r->cap : 256;
        counted *more = realloc(r->item, cap * sizeof *more);
        if (!more) return ls_fail(LS_NO_MEMORY, "%zu steps of a run", cap);
        r->item = more;
        r->cap = cap;
    }
    r->item[r->n++] = (counted){ step, (uint64_t)bytes, ls_metrics_number(j, "time_metrics/end_to_end(s)"),
                                 ls_metrics_number(j, "comm/exposed(s)"), ls_metrics_number(j, "comm/hidden(s)"),
                                 ls_metrics_number(j, "time_metrics/data_loading(s)") };
    return LS_OK;
}

static int by_bytes(const void *a, const void *b)
{
    const counted *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return (x->step > y->step) - (x->step < y->step);
}

/* Most steps move the same bytes. The first two differ, since buckets are rebuilt, and so do the last of an epoch. */
static void find_steady(reading *r, ls_run_counters *out)
{
    qsort(r->item, r->n, sizeof *r->item, by_bytes);
    for (size_t i = 0, end; i < r->n; i = end) {
        double seconds = 0, exposed = 0, hidden = 0, data = 0;
        for (end = i; end < r->n && r->item[end].bytes == r->item[i].bytes; end++) {
            seconds += r->item[end].seconds;
            exposed += r->item[end].exposed_s;
            hidden += r->item[end].hidden_s;
            data += r->item[end].data_s;
        }
        const size_t n = end - i;
        if (n < out->steady || (n == out->steady && r->item[end - 1].step < out->last)) continue;
        out->steady = n;
        out->first = r->item[i].step;
        out->last = r->item[end - 1].step;
        out->bytes = r->item[i].bytes;
        out->seconds = seconds / (double)n;
        out->exposed_s = exposed / (double)n;
        out->hidden_s = hidden / (double)n;
        out->data_s = data / (double)n;
    }
}

/* r's steps may be in any order. */
static ls_status find_typical(const reading *r, ls_run_counters *out)
{
    int64_t begun = INT64_MAX;
    double *v = malloc(r->n * sizeof *v);
    ls_typical_step t = { 0 };
    const bool steady = 2 * out->steady >= r->n;
    if (!v) return ls_fail(LS_NO_MEMORY, "the times of %zu steps", r->n);
    for (size_t i = 0; i < r->n; i++) begun = r->item[i].step < begun ? r->item[i].step : begun;
    for (int all = 0; all < 2 && t.steps == 0; all++)
        for (size_t i = 0; i < r->n; i++) {
            const counted *x = &r->item[i];
            if ((steady && x->bytes != out->bytes) || (!all && x->step < begun + LS_COMM_STEADY)) continue;
            v[t.steps++] = x->seconds;
            t.mean_s += x->seconds;
            t.exposed_s += x->exposed_s;
            t.data_s += x->data_s;
        }
    t.mean_s /= (double)t.steps;
    t.exposed_s /= (double)t.steps;
    t.data_s /= (double)t.steps;
    t.median_s = ls_median(v, t.steps);
    out->typical = t;
    free(v);
    return LS_OK;
}

ls_status ls_run_counters_read(const char *folder, ls_run_counters *out)
{
    reading r = { 0 };
    *out = (ls_run_counters){ 0 };
    ls_status st = ls_metrics_read(folder, read_line, &r);
    if (st == LS_OK && r.n == 0)
        st = ls_fail(LS_BAD_FILE, "%s/metrics.jsonl has no step without an evaluation, which has traffic of its own", folder);
    if (st == LS_OK) {
        out->world_size = r.world_size;
        out->steps = r.n;
        find_steady(&r, out);
        st = find_typical(&r, out);
    }
    free(r.item);
    return st;
}

/* --- comm.json ------------------------------------------------------------------------------------------- */

/* *out is NULL if there is no such file. */
static ls_status load(const char *folder, char path[PATH_BYTES], json_t **out)
{
    char *text = NULL;
    size_t n = 0;
    json_error_t e;
    *out = NULL;
    snprintf(path, PATH_BYTES, "%.500s/comm.json", folder);
    if (ls_file_read(path, COMM_MOST, &text, &n) < 0) return LS_OK;
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    free(text);
    return *out ? LS_OK : ls_fail(LS_BAD_FILE, "%s: line %d: %s", path, e.line, e.text);
}

static ls_status read_nodes(const char *path, const json_t *j, int **node, int *n)
{
    const json_t *list = json_object_get(j, "nodes");
    const size_t size = json_array_size(list);
    if (size < 1 || size > 65536) return ls_fail(LS_BAD_FILE, "%s: nodes: expected a list with the node of each rank", path);
    if (!(*node = calloc(size, sizeof **node))) return ls_fail(LS_NO_MEMORY, "the nodes of %zu ranks", size);
    *n = (int)size;
    for (size_t r = 0; r < size; r++) {
        const json_t *v = json_array_get(list, r);
        const json_int_t at = json_is_integer(v) ? json_integer_value(v) : -1;
        if (at < 0 || at >= (json_int_t)size)
            return ls_fail(LS_BAD_FILE, "%s: nodes: of rank %zu: expected a number from 0 to %zu", path, r, size - 1);
        (*node)[r] = (int)at;
    }
    return LS_OK;
}

ls_status ls_run_nodes_read(const char *folder, int **node, int *n)
{
    char path[PATH_BYTES];
    json_t *j;
    *node = NULL;
    *n = 0;
    LS_TRY(load(folder, path, &j));
    if (!j) return LS_OK;
    const ls_status st = read_nodes(path, j, node, n);
    json_decref(j);
    if (st < 0) {
        free(*node);
        *node = NULL;
        *n = 0;
    }
    return st;
}

static ls_status read_busy(const char *path, const json_t *list, int size, double *busy)
{
    static const char *const key[LS_BUSY_PHASES] = { "compute_s", "data_s" };
    for (int r = 0; r < size; r++)
        for (int p = 0; p < LS_BUSY_PHASES; p++) {
            const double s = ls_metrics_number(json_array_get(list, (size_t)r), key[p]);
            if (!(s >= 0)) return ls_fail(LS_BAD_FILE, "%s: busy: rank %d: %s: expected a number from 0", path, r, key[p]);
            busy[p * size + r] = s;
        }
    return LS_OK;
}

ls_status ls_run_busy_read(const char *folder, int size, double **busy)
{
    char path[PATH_BYTES];
    json_t *j;
    *busy = NULL;
    LS_TRY(load(folder, path, &j));
    const json_t *list = json_object_get(j, "busy");
    const size_t n = json_array_size(list);
    ls_status st = LS_OK;
    if (list && n != (size_t)size) st = ls_fail(LS_BAD_FILE, "%s: busy: expected %d ranks, found %zu", path, size, n);
    else if (list && !(*busy = calloc(LS_BUSY_PHASES * n, sizeof **busy)))
        st = ls_fail(LS_NO_MEMORY, "the busy times of %d ranks", size);
    else if (list) st = read_busy(path, list, size, *busy);
    json_decref(j);
    if (st < 0) {
        free(*busy);
        *busy = NULL;
    }
    return st;
}

/* --- what each group of each rank has counted ---------------------------------------------------- */

/* A number that is not negative; LS_BAD_FILE otherwise. */
static ls_status number(const char *path, const json_t *of, const char *key, uint64_t *out)
{
    const json_t *v = json_object_get(of, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return ls_fail(LS_BAD_FILE, "%s: %s: expected a number from 0", path, key);
    *out = (uint64_t)json_integer_value(v);
    return LS_OK;
}

static ls_status read_group(const char *path, const json_t *j, ls_explain_layout *l)
{
    uint64_t rank;
    const char *name = json_string_value(json_object_get(j, "group"));
    LS_TRY(number(path, j, "rank", &rank));
    if (rank >= (uint64_t)l->size || !name)
        return ls_fail(LS_BAD_FILE, "%s: rank %llu: expected a rank below %d, and the name of a group", path, (num)rank, l->size);
    ls_explain_rank *r = &l->rank[rank];
    int k = 0;
    while (k < r->ngroups && strcmp(r->group[k].text, name) != 0) k++;
    if (k == r->ngroups)
        return ls_fail(LS_BAD_FILE, "%s: rank %llu has a group %s, which the plan of config.yaml does not have", path, (num)rank, name);
    for (ls_coll c = 0; c < LS_COLLS; c++) {
        const json_t *had = json_object_get(j, ls_coll_name(c));
        if (!had) continue;
        LS_TRY(number(path, had, "calls", &r->group[k].real[c].calls));
        LS_TRY(number(path, had, "bytes", &r->group[k].real[c].moved));
    }
    return LS_OK;
}

static ls_status compare(const char *path, const ls_explain_layout *l)
{
    for (int r = 0; r < l->size; r++)
        for (int k = 0; k < l->rank[r].ngroups; k++)
            for (ls_coll c = 0; c < LS_COLLS; c++) {
                const ls_explain_group *g = &l->rank[r].group[k];
                const num calls = g->real[c].calls, moved = g->real[c].moved, most = g->dry[c].moved;
                const bool same = ls_explain_varies(l, c) ? moved <= most : moved == most;
                if (calls == g->dry[c].calls && same) continue;
                return ls_fail(LS_BAD_FILE, "%s: step %lld: rank %d called %llu %s in group %s and moved %llu bytes by them, but the plan of "
                               "config.yaml has %llu calls and %s%llu bytes: is config.yaml the run's own, and was it written by this "
                               "version?", path, (long long)l->step, r, calls, ls_coll_name(c), g->text, moved,
                               (num)g->dry[c].calls, ls_explain_varies(l, c) ? "at most " : "", most);
            }
    return LS_OK;
}

static ls_status read_counters(const char *path, const json_t *j, ls_explain_layout *l)
{
    uint64_t step, before;
    const json_t *list = json_object_get(j, "groups"), *g;
    size_t i;
    LS_TRY(number(path, j, "step", &step));
    LS_TRY(number(path, j, "steps_before", &before));
    if ((int)json_array_size(json_object_get(j, "nodes")) != l->size)
        return ls_fail(LS_BAD_FILE, "%s has the counters of %zu ranks, but the run ended with %d", path,
                       json_array_size(json_object_get(j, "nodes")), l->size);
    if (step < before + LS_COMM_STEADY) return LS_OK; /* too few: its first steps move other bytes */
    l->step = (int64_t)step;
    json_array_foreach(list, i, g) LS_TRY(read_group(path, g, l));
    return compare(path, l);
}

static ls_status check_groups(const char *folder, ls_explain_layout *l)
{
    char path[PATH_BYTES];
    json_t *j;
    LS_TRY(load(folder, path, &j));
    if (!j) return LS_OK;
    const ls_status st = read_counters(path, j, l);
    json_decref(j);
    return st;
}

/* --- metrics.jsonl and memory.json beside the plan ----------------------------------------------- */

uint64_t ls_explain_moved(const ls_explain_layout *l, int rank, bool *most)
{
    uint64_t sum = 0;
    *most = false;
    for (int i = 0; i < l->rank[rank].ncalls; i++) {
        const ls_explain_calls *k = &l->rank[rank].calls[i];
        sum += k->moved;
        *most |= ls_explain_varies(l, k->coll);
    }
    return sum;
}

static ls_status check_bytes(const char *folder, const ls_explain_layout *l, const ls_run_counters *k)
{
    bool most;
    const uint64_t planned = ls_explain_moved(l, 0, &most);
    if (most ? k->bytes <= planned : k->bytes == planned) return LS_OK;
    return ls_fail(LS_BAD_FILE, "%s: in %zu of %zu steps rank 0 moved %llu bytes, but the plan of its config.yaml for %d ranks on %s "
                   "has %s%llu: is config.yaml the run's own, was it written by this version, and were all ranks on one node?",
                   folder, k->steady, k->steps, (num)k->bytes, l->size, l->nnodes == 1 ? "one node" : "its nodes",
                   most ? "at most " : "", (num)planned);
}

static ls_status check_kinds(const char *path, const json_t *j, const ls_memory_plan *p)
{
    static const ls_mem_kind kinds[] = { LS_MEM_PARAM, LS_MEM_GRAD, LS_MEM_OPTIM };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const char *name = ls_mem_kind_name(kinds[i]);
        const json_t *peak = json_object_get(json_object_get(j, name), "peak");
        if (!json_is_integer(peak)) return ls_fail(LS_BAD_FILE, "%s: has no number %s.peak", path, name);
        if ((size_t)json_integer_value(peak) != p->bytes[kinds[i]])
            return ls_fail(LS_BAD_FILE, "%s: %s.peak is %lld bytes, but the plan of config.yaml has %zu", path, name,
                           (long long)json_integer_value(peak), p->bytes[kinds[i]]);
    }
    return LS_OK;
}

/* *there: the run has ended, and has memory.json. */
static ls_status check_memory(const char *folder, const ls_memory_plan *p, bool *there)
{
    char path[PATH_BYTES], *text = NULL;
    size_t n = 0;
    json_error_t e;
    snprintf(path, sizeof path, "%.500s/memory.json", folder);
    *there = ls_file_read(path, MEMORY_MOST, &text, &n) == LS_OK;
    if (!*there) return LS_OK; /* a run that was killed has none */
    json_t *j = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    const ls_status st = j ? check_kinds(path, j, p) : ls_fail(LS_BAD_FILE, "%s: line %d: %s", path, e.line, e.text);
    json_decref(j);
    free(text);
    return st;
}

ls_status ls_explain_check(const char *folder, const ls_run_counters *k, ls_explain_layout *l, bool *memory)
{
    LS_TRY(check_bytes(folder, l, k));
    LS_TRY(check_groups(folder, l));
    return check_memory(folder, &l->rank[0].plan, memory);
}
