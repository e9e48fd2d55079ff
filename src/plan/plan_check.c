/* plan_check.c -- a run beside its prediction, term by term. */
#include "plan/plan_check.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "train/comm_log.h"
#include "train/explain_run.h"
#include "train/metrics_file.h"
#include "train/straggler.h"

#define MOST_BYTES ((size_t)1 << 26)
#define PATH_BYTES 600

typedef unsigned long long num; /* for printf */

enum { STEP, COMPUTE, DATA, EXPOSED, BUBBLE, TIMES };

/* A term that has to be exact. */
typedef struct exact {
    char name[64];
    int rank;
    uint64_t predicted, measured;
    bool most; /* predicted: at most */
} exact;

typedef struct check {
    const char *folder;
    int size, pp;
    size_t steps, typical; /* of the run; those whose median was taken */
    double predicted[TIMES], measured[TIMES], optimizer; /* optimizer: of compute, predicted */
    bool split;     /* measured: exposed communication and bubble apart; else both are in exposed */
    exact *term;    /* owned */
    int n, cap;
} check;

static const char *const time_name[TIMES] = { "step time", "compute", "data", "exposed communication",
                                              "pipeline bubble" };
static const char *const time_key[TIMES] = { "step", "compute", "data", "exposed", "bubble" };

/* --- reading --------------------------------------------------------------------------------------------- */

/* *out NULL: there is no such file. */
static ls_status load(const char *folder, const char *name, char path[PATH_BYTES], json_t **out)
{
    char *text = NULL;
    size_t n = 0;
    json_error_t e;
    *out = NULL;
    snprintf(path, PATH_BYTES, "%.500s/%s", folder, name);
    if (ls_file_read(path, MOST_BYTES, &text, &n) < 0) return LS_OK;
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    free(text);
    return *out ? LS_OK : ls_fail(LS_BAD_FILE, "%s: line %d: %s", path, e.line, e.text);
}

static ls_status number(const char *path, const json_t *of, const char *key, double *out)
{
    *out = ls_metrics_number(of, key);
    return *out >= 0 ? LS_OK : ls_fail(LS_BAD_FILE, "%s: %s: expected a number from 0", path, key);
}

static ls_status whole(const char *path, const json_t *of, const char *key, uint64_t *out)
{
    const json_t *v = json_object_get(of, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return ls_fail(LS_BAD_FILE, "%s: %s: expected a whole number from 0", path, key);
    *out = (uint64_t)json_integer_value(v);
    return LS_OK;
}

static exact *add(check *x, int rank, const char *name)
{
    if (x->n == x->cap) {
        const int cap = x->cap ? 2 * x->cap : 64;
        exact *more = realloc(x->term, (size_t)cap * sizeof *more);
        if (!more) return NULL;
        x->term = more;
        x->cap = cap;
    }
    exact *t = &x->term[x->n++];
    *t = (exact){ .rank = rank };
    snprintf(t->name, sizeof t->name, "%s", name);
    return t;
}

/* Calls and bytes of a collective of a rank, over all its groups. */
static void count(const json_t *groups, int rank, const char *coll, uint64_t *calls, uint64_t *bytes)
{
    size_t i;
    const json_t *g;
    *calls = *bytes = 0;
    json_array_foreach(groups, i, g) {
        const json_t *had = json_object_get(g, coll);
        if (json_integer_value(json_object_get(g, "rank")) != rank || !had) continue;
        *calls += (uint64_t)json_integer_value(json_object_get(had, "calls"));
        *bytes += (uint64_t)json_integer_value(json_object_get(had, "bytes"));
    }
}

static ls_status compare_traffic(const char *path, const json_t *predicted, const json_t *comm, int rank, check *x)
{
    for (ls_coll c = 0; c < LS_COLLS; c++) {
        char name[64];
        uint64_t calls, bytes;
        const json_t *p = json_object_get(predicted, ls_coll_name(c));
        count(json_object_get(comm, "groups"), rank, ls_coll_name(c), &calls, &bytes);
        if (!p && calls == 0) continue;
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "%s of %s", k ? "bytes" : "calls", ls_coll_name(c));
            exact *t = add(x, rank, name);
            if (!t) return ls_fail(LS_NO_MEMORY, "what %d ranks call", x->size);
            if (p) LS_TRY(whole(path, p, k ? "bytes" : "calls", &t->predicted));
            t->measured = k ? bytes : calls;
            t->most = k && json_is_true(json_object_get(p, "at_most"));
        }
    }
    return LS_OK;
}

static ls_status compare_memory(const char *path, const json_t *predicted, const json_t *comm, const char *cpath,
                                int rank, check *x)
{
    uint64_t sum = 0;
    for (int k = 0; k <= LS_MEM_KINDS; k++) {
        const char *kind = k < LS_MEM_KINDS ? ls_mem_kind_name((ls_mem_kind)k) : "total";
        char name[64];
        snprintf(name, sizeof name, "memory: %s", kind);
        exact *t = add(x, rank, name);
        if (!t) return ls_fail(LS_NO_MEMORY, "kinds of memory");
        LS_TRY(whole(path, predicted, kind, &t->predicted));
        if (k < LS_MEM_KINDS)
            LS_TRY(whole(cpath, json_array_get(json_object_get(comm, "memory"), (size_t)rank), kind, &t->measured));
        else t->measured = sum;
        sum += t->measured;
    }
    return LS_OK;
}

static ls_status read_times(const char *path, const json_t *j, check *x)
{
    static const char *const key[TIMES] = { "step_s", "compute_s", "data_s", "exposed_s", "bubble_s" };
    const json_t *t = json_object_get(j, "time");
    for (int i = 0; i < TIMES; i++) LS_TRY(number(path, t, key[i], &x->predicted[i]));
    LS_TRY(number(path, t, "optimizer_s", &x->optimizer));
    x->predicted[COMPUTE] += x->optimizer; /* a run times both together */
    return LS_OK;
}

/* The mean over the ranks of what each computed and read, in proportion to a typical step; what is left of it they
 * waited. */
static ls_status measure_times(const check *x, const json_t *comm, const ls_run_counters *k, double out[TIMES],
                               bool *split)
{
    double *busy = NULL, waits = 0, stages = 0;
    const double of_mean = k->typical.mean_s > 0 ? k->typical.median_s / k->typical.mean_s : 1;
    out[STEP] = k->typical.median_s;
    out[DATA] = fmin(out[STEP], k->typical.data_s * of_mean);
    if (x->size > 1) LS_TRY(ls_run_busy_read(x->folder, x->size, &busy));
    if (!busy) { /* one rank, or a run of too few steps */
        out[EXPOSED] = k->typical.exposed_s * of_mean;
        out[COMPUTE] = fmax(0, out[STEP] - out[EXPOSED] - out[DATA]);
        return LS_OK;
    }
    out[COMPUTE] = out[DATA] = 0;
    for (int r = 0; r < x->size; r++) {
        out[COMPUTE] += of_mean * busy[LS_BUSY_COMPUTE * x->size + r] / x->size;
        out[DATA] += of_mean * busy[LS_BUSY_INPUT * x->size + r] / x->size;
    }
    free(busy);
    size_t i;
    const json_t *g;
    *split = true;
    json_array_foreach(json_object_get(comm, "groups"), i, g) {
        const double s = ls_metrics_number(g, "waited_s");
        if (!(s >= 0)) *split = false;
        waits += s;
        if (json_is_true(json_object_get(g, "stages"))) stages += s;
    }
    const double left = fmax(0, out[STEP] - out[COMPUTE] - out[DATA]);
    out[BUBBLE] = *split && waits > 0 ? left * stages / waits : 0;
    out[EXPOSED] = fmax(0, left - out[BUBBLE]);
    return LS_OK;
}

static ls_status read_ranks(const char *path, const json_t *j, const json_t *comm, const char *cpath, check *x)
{
    const json_t *ranks = json_object_get(j, "ranks");
    if (json_array_size(ranks) != (size_t)x->size)
        return ls_fail(LS_BAD_FILE, "%s: ranks: expected %d, found %zu", path, x->size, json_array_size(ranks));
    for (int r = 0; r < x->size; r++) {
        const json_t *of = json_array_get(ranks, (size_t)r);
        LS_TRY(compare_memory(path, json_object_get(of, "memory"), comm, cpath, r, x));
        LS_TRY(compare_traffic(path, json_object_get(of, "comm"), comm, r, x));
    }
    return LS_OK;
}

static ls_status read_all(const char *path, const json_t *j, const json_t *comm, const char *cpath, check *x)
{
    ls_run_counters k;
    uint64_t size, pp, step, before;
    LS_TRY(ls_run_counters_read(x->folder, &k));
    LS_TRY(whole(path, j, "world_size", &size));
    LS_TRY(whole(path, j, "pp", &pp));
    LS_TRY(whole(cpath, comm, "step", &step));
    LS_TRY(whole(cpath, comm, "steps_before", &before));
    if (size < 1 || size > 65536 || (int)size != k.world_size)
        return ls_fail(LS_BAD_FILE, "%s is of %llu ranks, and the run had %d: predict it again", path, (num)size, k.world_size);
    if (json_array_size(json_object_get(comm, "memory")) != size)
        return ls_fail(LS_BAD_FILE, "%s: memory: expected a list of %llu ranks, found %zu: was it written by this version?",
                       cpath, (num)size, json_array_size(json_object_get(comm, "memory")));
    if (step <= before + LS_COMM_STEADY) /* how long ranks were busy is said of later ones */
        return ls_fail(LS_BAD_CONFIG, "%s: the run has taken %llu steps, and a prediction is of those after step %d: raise "
                       "train.steps", x->folder, (num)(step - before), LS_COMM_STEADY);
    x->size = (int)size;
    x->pp = (int)pp;
    x->steps = k.steps;
    x->typical = k.typical.steps;
    LS_TRY(read_times(path, j, x));
    LS_TRY(measure_times(x, comm, &k, x->measured, &x->split));
    return read_ranks(path, j, comm, cpath, x);
}

/* --- errors ---------------------------------------------------------------------------------------------- */

/* In per cent of what was measured. */
static double error_of(double predicted, double measured)
{
    return measured > 0 ? 100 * (predicted / measured - 1) : predicted > 0 ? (double)NAN : 0;
}

static bool is_exact(const exact *t) { return t->most ? t->measured <= t->predicted : t->measured == t->predicted; }

static const exact *first_wrong(const check *x)
{
    for (int i = 0; i < x->n; i++)
        if (!is_exact(&x->term[i])) return &x->term[i];
    return NULL;
}

static bool shown(const check *x, int i) { return i != BUBBLE || x->pp > 1; }

/* Of the parts of a step, the one that is off by most time. */
static int worst_of(const check *x)
{
    int worst = COMPUTE;
    for (int i = COMPUTE; i < TIMES; i++)
        if (shown(x, i) && fabs(x->predicted[i] - x->measured[i]) > fabs(x->predicted[worst] - x->measured[worst]))
            worst = i;
    return worst;
}

static void add_summary(const check *x, ls_text *out)
{
    const exact *t = first_wrong(x);
    const int i = worst_of(x);
    if (t) {
        ls_text_add(out, "the plan is wrong: rank %d, %s: predicted %s%llu, counted %llu (%+.3g %%)", t->rank, t->name,
                    t->most ? "at most " : "", (num)t->predicted, (num)t->measured,
                    error_of((double)t->predicted, (double)t->measured));
        return;
    }
    const double off = x->predicted[i] - x->measured[i];
    ls_text_add(out, "the largest error is in %s: %.3f ms were predicted and %.3f ms measured, which is %.1f %% of a step too %s",
                time_name[i], 1e3 * x->predicted[i], 1e3 * x->measured[i],
                x->measured[STEP] > 0 ? 100 * fabs(off) / x->measured[STEP] : 0, off < 0 ? "few" : "many");
}

/* --- text ------------------------------------------------------------------------------------------------ */

static void add_row(const char *name, const char *a, const char *b, double error, ls_text *out)
{
    ls_text_add(out, "%-24s %16s %16s ", name, a, b);
    if (isfinite(error)) ls_text_add(out, "%+9.2f %%\n", error);
    else ls_text_add(out, "%9s\n", "-");
}

/* Ranks call alike mostly: lines for rank 0, and how many of the others' terms are exact. */
static void add_exact(const check *x, ls_text *out)
{
    char a[32], b[32];
    int others = 0, right = 0;
    for (int i = 0; i < x->n; i++) {
        const exact *t = &x->term[i];
        others += t->rank > 0;
        right += t->rank > 0 && is_exact(t);
        if (t->rank > 0 || (t->predicted == 0 && t->measured == 0)) continue;
        snprintf(a, sizeof a, "%s%llu", t->most ? "<= " : "", (num)t->predicted);
        snprintf(b, sizeof b, "%llu", (num)t->measured);
        add_row(t->name, a, b, t->most && is_exact(t) ? 0 : error_of((double)t->predicted, (double)t->measured), out);
    }
    if (others) ls_text_add(out, "ranks 1 to %d: %d of %d classes of memory, calls and bytes are exact\n", x->size - 1, right, others);
}

static void add_text(const check *x, ls_text *out)
{
    char a[32], b[32];
    ls_text_add(out, "%s: %d rank%s; measured: the median of %zu steps of %zu\n\n", x->folder, x->size, x->size == 1 ? "" : "s",
                x->typical, x->steps);
    ls_text_add(out, "%-24s %16s %16s %11s\n", "per step", "predicted", "measured", "error");
    for (int i = 0; i < TIMES; i++) {
        if (!shown(x, i)) continue;
        snprintf(a, sizeof a, "%.3f ms", 1e3 * x->predicted[i]);
        snprintf(b, sizeof b, "%.3f ms", 1e3 * x->measured[i]);
        add_row(time_name[i], a, b, error_of(x->predicted[i], x->measured[i]), out);
    }
    ls_text_add(out, "\n%-24s %16s %16s %11s\n", "rank 0", "predicted", "counted", "error");
    add_exact(x, out);
    ls_text_add(out, "\n");
    add_summary(x, out);
    ls_text_add(out, "\n");
}

/* --- JSON ------------------------------------------------------------------------------------------------ */

static void add_json(const check *x, ls_text *out)
{
    ls_text summary = { 0 };
    const exact *wrong = first_wrong(x);
    ls_text_add(out, "{\"run\": ");
    ls_json_string(out, x->folder);
    ls_text_add(out, ", \"world_size\": %d, \"steps\": %zu, \"steady_steps\": %zu,\n \"time\": {", x->size, x->steps, x->typical);
    for (int i = 0; i < TIMES; i++) {
        ls_text_add(out, "%s\"%s\": {", i ? ",\n  " : "\n  ", time_key[i]);
        ls_json_field(out, "predicted_s", x->predicted[i]);
        ls_text_add(out, ", ");
        ls_json_field(out, "measured_s", x->measured[i]);
        ls_text_add(out, ", ");
        ls_json_field(out, "error_pct", error_of(x->predicted[i], x->measured[i]));
        ls_text_add(out, "}");
    }
    ls_text_add(out, "},\n \"exact\": %s, \"terms\": [", wrong ? "false" : "true");
    for (int i = 0; i < x->n; i++) {
        const exact *t = &x->term[i];
        ls_text_add(out, "%s\n  {\"rank\": %d, \"term\": \"%s\", \"predicted\": %llu, \"counted\": %llu, \"at_most\": %s, ",
                    i ? "," : "", t->rank, t->name, (num)t->predicted, (num)t->measured, t->most ? "true" : "false");
        ls_json_field(out, "error_pct", error_of((double)t->predicted, (double)t->measured));
        ls_text_add(out, "}");
    }
    add_summary(x, &summary);
    ls_text_add(out, "],\n \"largest_error\": \"%s\", \"summary\": ", wrong ? wrong->name : time_key[worst_of(x)]);
    ls_json_string(out, ls_text_str(&summary));
    ls_text_add(out, "}\n");
    ls_text_free(&summary);
}

/* --- all of it ------------------------------------------------------------------------------------------- */

ls_status ls_plan_check_run(const char *folder, bool json, ls_text *out)
{
    char path[PATH_BYTES], cpath[PATH_BYTES];
    json_t *j = NULL, *comm = NULL;
    check x = { .folder = folder };
    ls_status st = load(folder, "predicted.json", path, &j);
    if (st == LS_OK && !j)
        st = ls_fail(LS_BAD_FILE, "%s: there is no such file, so nothing was predicted: train with --predict, as in `lockstep "
                     "train CONFIG --predict --run.dir NEW-FOLDER`, and check that folder", path);
    if (st == LS_OK) st = load(folder, "comm.json", cpath, &comm);
    if (st == LS_OK && !comm)
        st = ls_fail(LS_BAD_FILE, "%s: there is no such file: the run has not ended; check it when it has, after %d steps at "
                     "least", cpath, LS_COMM_STEADY + 1);
    if (st == LS_OK) st = read_all(path, j, comm, cpath, &x);
    if (st == LS_OK) (json ? add_json : add_text)(&x, out);
    json_decref(j);
    json_decref(comm);
    free(x.term);
    return st == LS_OK ? ls_text_status(out) : st;
}
