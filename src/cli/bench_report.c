/* bench_report.c -- nccl-tests' table, column by column, and its JSON file, so that scripts
 * written for either read ours. Times in microseconds, bandwidths in GB/s of 10^9 bytes. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/median.h"
#include "cli/bench.h"
#include "lockstep/lockstep.h"

#define TIME_FORMAT "%Y-%m-%d %H:%M:%S"
#define JSON_VERSION 1

extern char **environ;

void ls_bench_number(double v, int width, char out[32])
{
    for (int decimals = 2; decimals >= 0; decimals--)
        if (snprintf(out, 32, "%.*f", decimals, v) <= width) return;
    snprintf(out, 32, "%.*e", width >= 7 ? 1 : 0, v);
}

double ls_bench_bus_factor(ls_coll coll, int size)
{
    double n = size;
    switch (coll) {
    case LS_ALL_REDUCE: return 2.0 * (n - 1.0) / n;
    case LS_REDUCE_SCATTER:
    case LS_ALL_GATHER:
    case LS_ALL_TO_ALL:
    case LS_GATHER:
    case LS_SCATTER: return (n - 1.0) / n;
    default: return 1.0;
    }
}

static void now(char out[32])
{
    time_t t = time(NULL);
    struct tm local;
    if (!localtime_r(&t, &local) || strftime(out, 32, TIME_FORMAT, &local) == 0) out[0] = 0;
}

/* --- JSON ----------------------------------------------------------------------------- */

static void json_strings(ls_text *t, const char *key, char *const *v, int n)
{
    ls_text_add(t, "\"%s\": [", key);
    for (int i = 0; i < n; i++) {
        if (i) ls_text_add(t, ", ");
        ls_json_string(t, v[i]);
    }
    ls_text_add(t, "],\n");
}

/* What can change a measurement; the rest of an environment is nobody's business, and neither is
 * how a launcher lets its ranks in. */
static void json_environment(ls_text *t)
{
    static const char *const told[] = { "LOCKSTEP_", "OMP_", "SLURM_" };
    bool first = true;
    ls_text_add(t, "\"env\": [");
    for (char **e = environ; *e; e++) {
        bool tell = false;
        for (size_t i = 0; i < sizeof told / sizeof *told; i++)
            tell = tell || strncmp(*e, told[i], strlen(told[i])) == 0;
        if (!tell || strncmp(*e, "LOCKSTEP_SECRET", 15) == 0 || strncmp(*e, "LOCKSTEP_STORE", 14) == 0) continue;
        if (!first) ls_text_add(t, ", ");
        ls_json_string(t, *e);
        first = false;
    }
    ls_text_add(t, "],\n");
}

static void json_devices(ls_text *t, const ls_bench_opts *o, const ls_bench_device *d, int n)
{
    ls_text_add(t, "\"devices\": [");
    for (int i = 0; i < n; i++) {
        ls_text_add(t, "%s\n  {\"rank\": %d, \"group\": %d, \"pid\": %d, \"hostname\": ", i ? "," : "", d[i].rank,
                    d[i].group, d[i].pid);
        ls_json_string(t, d[i].host);
        ls_text_add(t, ", \"device\": %d, \"device_hex\": ", d[i].device);
        ls_json_string(t, o->transport);
        ls_text_add(t, ", \"device_info\": \"%s memory\"}", o->private_memory ? "private" : "registered");
    }
    ls_text_add(t, "]");
}

static void json_header(ls_bench_report *r, const ls_bench_device *d, int n)
{
    const ls_bench_opts *o = r->o;
    ls_text *t = &r->json;
    char time_text[32];
    now(time_text);
    ls_text_add(t, "{\n\"version\": %d,\n\"start_time\": \"%s\",\n\"program\": ", JSON_VERSION, time_text);
    ls_json_string(t, ls_version());
    ls_text_add(t, ",\n");
    json_strings(t, "args", o->argv, o->argc);
    json_environment(t);
    ls_text_add(t, "\"config\": {\"collective\": \"%s\", \"ranks\": %d, \"nthreads\": %d, \"ngpus\": 0, ", ls_coll_name(o->coll), n,
                o->threads ? n : 1);
    ls_text_add(t, "\"minimum_bytes\": %zu, \"maximum_bytes\": %zu, ", o->min_bytes, o->max_bytes);
    if (o->step_factor > 1) ls_text_add(t, "\"step_factor\": %lld, ", (long long)o->step_factor);
    else ls_text_add(t, "\"step_bytes\": %zu, ", o->step_bytes);
    ls_text_add(t, "\"warmup_iters\": %lld, \"iterations\": %lld, \"aggregated_iterations\": %lld, \"validation\": %lld, ",
                (long long)o->warmup, (long long)o->iters, (long long)o->agg, (long long)o->check);
    ls_text_add(t, "\"graph\": 0, \"blocking_collectives\": %s, \"per_iter_timing\": %s, \"per_iter_skip\": %lld, ",
                o->blocking ? "true" : "false", o->per_iter ? "true" : "false", (long long)o->skip);
    ls_text_add(t, "\"touch\": %s, \"transport\": ", o->touch ? "true" : "false");
    ls_json_string(t, o->transport);
    ls_text_add(t, ", \"backend\": \"%s\", \"algo\": ", o->backend);
    if (o->algo && *o->algo) ls_json_string(t, o->algo);
    else ls_text_add(t, "null");
    ls_text_add(t, ",\n");
    json_devices(t, o, d, n); /* here for nccl-tests' own readers, */
    ls_text_add(t, "},\n");
    json_devices(t, o, d, n); /* and here for those that look at the top */
    ls_text_add(t, ",\n\"results\": [");
}

static void json_result(ls_text *t, const char *key, const ls_bench_result *x)
{
    ls_text_add(t, ", \"%s\": {\"time\": ", key);
    ls_json_number(t, x->us);
    ls_text_add(t, ", \"alg_bw\": ");
    ls_json_number(t, x->algbw);
    ls_text_add(t, ", \"bus_bw\": ");
    ls_json_number(t, x->busbw);
    ls_text_add(t, ", \"algorithm\": \"%s\", \"segments\": %d", x->algo ? x->algo : "none", x->segments);
    ls_text_add(t, ", \"nwrong\": ");
    if (x->nwrong < 0) ls_text_add(t, "null}");
    else ls_text_add(t, "%.0f}", x->nwrong);
}

static void json_times(ls_text *t, const double *v, int n)
{
    ls_text_add(t, "[");
    for (int i = 0; i < n; i++) ls_text_add(t, "%s%.3f", i ? ", " : "", v[i]);
    ls_text_add(t, "]");
}

/* --- single iterations ------------------------------------------------------------------- */

typedef struct spread { double min, max, avg, p50, p95, p99, stdev, cv; } spread;

double ls_bench_median(double *v, int n)
{
    ls_sort_values(v, (size_t)n);
    return v[n / 2];
}

/* Of sorted values: the smallest that `percent` of them do not exceed. */
static double percentile(const double *v, int n, int percent)
{
    int i = (n * percent + 99) / 100 - 1;
    return v[i < 0 ? 0 : i];
}

static spread spread_of(const ls_bench_iters *x)
{
    spread s = { 0 };
    int n = x->n - x->skip;
    double *v = n > 0 ? malloc((size_t)n * sizeof *v) : NULL;
    if (!v) return s;
    memcpy(v, x->each + x->skip, (size_t)n * sizeof *v);
    ls_sort_values(v, (size_t)n);
    for (int i = 0; i < n; i++) s.avg += v[i] / n;
    for (int i = 0; i < n; i++) s.stdev += (v[i] - s.avg) * (v[i] - s.avg) / n;
    s.stdev = sqrt(s.stdev);
    s.min = v[0];
    s.max = v[n - 1];
    s.p50 = v[n / 2];
    s.p95 = percentile(v, n, 95);
    s.p99 = percentile(v, n, 99);
    s.cv = s.avg > 0 ? 100.0 * s.stdev / s.avg : 0;
    free(v);
    return s;
}

static void text_iters(const ls_bench_report *r, const ls_bench_iters *x)
{
    spread s = spread_of(x);
    const double shown[] = { s.min, s.max, s.p99, s.cv };
    for (int i = 0; i < 4; i++) {
        char text[32];
        ls_bench_number(shown[i], 7, text);
        fprintf(r->to, "  %7s", text);
    }
}

static void json_iters(ls_text *t, const char *key, const ls_bench_iters *x)
{
    spread s = spread_of(x);
    ls_text_add(t, ",\n   \"%s_per_iter\": {\"skipped_iterations\": %d, \"min_us\": %.3f, \"max_us\": %.3f, \"avg_us\": %.6f, ", key,
                x->skip, s.min, s.max, s.avg);
    ls_text_add(t, "\"p50_us\": %.3f, \"p95_us\": %.3f, \"p99_us\": %.3f, \"stdev_us\": %.6f, \"cv_pct\": %.3f,\n    \"times_us\": ", s.p50,
                s.p95, s.p99, s.stdev, s.cv);
    json_times(t, x->each, x->n);
    if (x->ranks > 1) {
        ls_text_add(t, ",\n    \"per_process_max_times_us\": [");
        for (int k = 0; k < x->ranks; k++) {
            if (k) ls_text_add(t, ",\n      ");
            json_times(t, x->rank + (size_t)k * (size_t)x->n, x->n);
        }
        ls_text_add(t, "]");
    }
    ls_text_add(t, "}");
}

/* --- the table ------------------------------------------------------------------------------ */

ls_status ls_bench_report_open(ls_bench_report *r, const ls_bench_opts *o, FILE *to)
{
    *r = (ls_bench_report){ .o = o, .to = to, .table = !o->csv && !o->print_json,
                            .as_json = o->print_json || (o->json && *o->json) };
    if (!o->json || !*o->json) return LS_OK;
    char name[4096];
    snprintf(name, sizeof name, "%s", o->json);
    for (int i = 0; i < 1000; i++) { /* what somebody measured before stays */
        r->file = fopen(name, "wx");
        if (r->file) {
            if (r->table) fprintf(to, "# Writing JSON output to %s\n", name);
            return LS_OK;
        }
        if (errno != EEXIST) break;
        snprintf(name, sizeof name, "%s.%d", o->json, i);
    }
    return ls_fail(LS_IO, "%s: cannot be written: %s", name, strerror(errno));
}

void ls_bench_report_header(ls_bench_report *r, const ls_bench_device *d, int n)
{
    const ls_bench_opts *o = r->o;
    bool by_factor = o->step_factor > 1, mpi = strcmp(o->backend, "mpi") == 0;
    if (r->as_json) json_header(r, d, n);
    if (!r->table) {
        if (!o->csv) return;
        fprintf(r->to, "program,collective,place,memory,ranks,bytes,iterations,min_us,median_us,single_us,algbw_GBps,busbw_GBps,wrong\n");
        return;
    }
    fprintf(r->to, "# lockstep %s\n# Collective test starting: %s\n", ls_version(), ls_coll_name(o->coll));
    fprintf(r->to, "# nThread %d nGpus 0 minBytes %zu maxBytes %zu step: %lld(%s) ", o->threads ? n : 1, o->min_bytes,
            o->max_bytes, by_factor ? (long long)o->step_factor : (long long)o->step_bytes, by_factor ? "factor" : "bytes");
    fprintf(r->to, "warmup iters: %lld iters: %lld%s agg iters: %lld validation: %lld graph: 0\n", (long long)o->warmup,
            (long long)o->iters, o->more_iters ? " or more" : "", (long long)o->agg, (long long)o->check);
    if (o->blocking) fprintf(r->to, "# Blocking Enabled: wait for completion and barrier after each collective\n");
    if (o->touch) fprintf(r->to, "# Touch Enabled: data are rewritten before and read after each collective, untimed\n");
    if (!o->threads) fprintf(r->to, "# Ranks from %s\n", r->ranks_from);
    fprintf(r->to, "# Collectives by %s\n", r->carried_by);
    fprintf(r->to, "#\n# Using devices\n");
    for (int i = 0; i < n; i++)
        fprintf(r->to, "#  Rank %2d Group %2d Pid %6d on %10s device %2d [%s] %s memory\n", d[i].rank, d[i].group, d[i].pid, d[i].host,
                d[i].device, mpi ? "mpi" : o->transport, o->private_memory ? "private" : "registered");

    const char *per = o->per_iter ? " (+ per-iteration)" : "";
    int half = o->per_iter ? 67 : 31; /* columns of one placement, without the two blanks before it */
    int l = (int)strlen("out-of-place") + (int)strlen(per), pad = (half - l) / 2;
    fprintf(r->to, "#\n# %10s  %12s  %8s  %6s  %6s  %*s%s%s%*s", "", "", "", "", "", pad, "", "out-of-place", per, half - pad - l, "");
    l -= 4;
    pad = (half - l) / 2;
    fprintf(r->to, "  %*s%s%s%*s\n", pad, "", "in-place", per, half - pad - l, "");
    static const char *const names[2][8] = { { "time", "algbw", "busbw", "#wrong", "i_min", "i_max", "i_p99", "i_cv%" },
                                             { "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)", "(us)", "(%)" } };
    static const char *const left[2][5] = { { "size", "count", "type", "redop", "root" },
                                            { "(B)", "(elements)", "", "", "" } };
    for (int line = 0; line < 2; line++) {
        const char *const *l5 = left[line];
        fprintf(r->to, "# %10s  %12s  %8s  %6s  %6s", l5[0], l5[1], l5[2], l5[3], l5[4]);
        for (int placement = 0; placement < 2; placement++)
            for (int k = 0; k < (o->per_iter ? 8 : 4); k++) fprintf(r->to, "  %*s", k == 0 || k > 3 ? 7 : 6, names[line][k]);
        if (o->timestamps) fprintf(r->to, "  %19s", line ? "" : "timestamp");
        fprintf(r->to, "\n");
    }
    fflush(r->to);
}

/* A placement that was not measured keeps its columns. */
static void text_result(const ls_bench_report *r, const ls_bench_result *x)
{
    char us[32] = "N/A", algbw[32] = "N/A", busbw[32] = "N/A", wrong[32] = "N/A";
    if (x->us >= 0) {
        ls_bench_number(x->us, 7, us);
        ls_bench_number(x->algbw, 6, algbw);
        ls_bench_number(x->busbw, 6, busbw);
        if (x->nwrong >= 0) snprintf(wrong, sizeof wrong, "%g", x->nwrong);
    }
    fprintf(r->to, "  %7s  %6s  %6s  %6s", us, algbw, busbw, wrong);
    if (x->us >= 0 && x->iters.n > 0) text_iters(r, &x->iters);
    for (int i = 0; x->us < 0 && r->o->per_iter && i < 4; i++) fprintf(r->to, "  %7s", "N/A");
}

static void add_who(char *out, size_t n, const char *place, const ls_bench_result *x)
{
    const size_t at = strlen(out);
    if (x->us < 0 || !x->algo) return;
    snprintf(out + at, n - at, "%s%s by %s", at ? ", " : "", place, x->algo);
    if (x->segments > 1) snprintf(out + strlen(out), n - strlen(out), " in %d segments", x->segments);
}

/* What carries out the rows from here on, where it differs from the row before. */
static void text_who(ls_bench_report *r, const ls_bench_row *row)
{
    char by[sizeof r->by] = "";
    add_who(by, sizeof by, "out-of-place", &row->out_of_place);
    add_who(by, sizeof by, "in-place", &row->in_place);
    if (strcmp(by, r->by) == 0) return;
    memcpy(r->by, by, sizeof by);
    fprintf(r->to, "# from %zu bytes: %s\n", row->bytes, *by ? by : "nothing to move");
}

static void text_row(const ls_bench_report *r, const ls_bench_row *row)
{
    fprintf(r->to, "%12li  %12li  %8s  %6s  %6d", (long)row->bytes, (long)row->count, row->dtype, row->op, row->root);
    text_result(r, &row->out_of_place);
    text_result(r, &row->in_place);
    if (r->o->timestamps) {
        char time_text[32];
        now(time_text);
        fprintf(r->to, "  %19s", time_text);
    }
    fprintf(r->to, "\n");
}

static void csv_result(const ls_bench_report *r, const ls_bench_row *row, const char *place, const ls_bench_result *x)
{
    if (x->us < 0) return;
    fprintf(r->to, "lockstep,%s,%s,%s,%d,%zu,%d,%.4f,%.4f,%.4f,%.5g,%.5g,", ls_coll_name(r->o->coll), place,
            r->o->private_memory ? "private" : "registered", row->ranks, row->bytes, row->iterations, x->least_us, x->us, x->single_us,
            x->algbw, x->busbw);
    if (x->nwrong >= 0) fprintf(r->to, "%.0f", x->nwrong);
    fprintf(r->to, "\n");
}

/* --- bytes, and the line through the rows -------------------------------------------------- */

static bool as_the_formula(const ls_bench_count *c)
{
    return c->known && memcmp(c->measured, c->formula, sizeof *c->measured * (size_t)c->ranks) == 0;
}

static bool alike(const uint64_t *v, int n)
{
    for (int i = 1; i < n; i++)
        if (v[i] != v[0]) return false;
    return true;
}

static void text_count(const ls_bench_report *r, const char *place, const ls_bench_count *c)
{
    bool one = alike(c->measured, c->ranks) && alike(c->formula, c->ranks);
    for (int i = 0; i < (one ? 1 : c->ranks); i++) {
        char who[16] = "all";
        if (!one) snprintf(who, sizeof who, "%d", i);
        fprintf(r->to, "# count %12s  %-18s  rank %3s  %14llu  ", place, c->algo, who, (unsigned long long)c->measured[i]);
        if (!c->known) fprintf(r->to, "%14s\n", "no formula");
        else fprintf(r->to, "%14llu  %s\n", (unsigned long long)c->formula[i], c->measured[i] == c->formula[i] ? "equal" : "DIFFERS");
    }
}

static void json_count(ls_text *t, const char *key, const ls_bench_count *c)
{
    ls_text_add(t, ",\n   \"%s_count\": {\"algorithm\": \"%s\", \"rounds\": %d, \"measured\": [", key, c->algo, c->rounds);
    for (int i = 0; i < c->ranks; i++) ls_text_add(t, "%s%llu", i ? ", " : "", (unsigned long long)c->measured[i]);
    ls_text_add(t, "], \"formula\": ");
    if (!c->known) ls_text_add(t, "null}");
    for (int i = 0; c->known && i < c->ranks; i++)
        ls_text_add(t, "%s%llu%s", i ? ", " : "[", (unsigned long long)c->formula[i], i + 1 < c->ranks ? "" : "]}");
}

static void keep_sample(ls_bench_report *r, const ls_bench_row *row, bool in_place, const ls_bench_result *x)
{
    if (!x->count.known || x->us <= 0) return;
    struct ls_bench_sample *more = realloc(r->sample, (size_t)(r->nsamples + 1) * sizeof *more);
    if (!more) return; /* one point less */
    r->sample = more;
    r->sample[r->nsamples++] = (struct ls_bench_sample){
        .at = { x->count.rounds, (double)x->count.most, x->us }, .algo = x->count.algo, .size = row->bytes,
        .in_place = in_place };
}

static void text_line(const ls_bench_report *r, const struct ls_bench_sample *s, const ls_bench_point *p, int n,
                      const ls_bench_line *l)
{
    fprintf(r->to, "# fit of %d rows %s by %s: T = rounds alpha + bytes beta\n", n, s->in_place ? "in place" : "out of place", s->algo);
    fprintf(r->to, "#   alpha %.3f us a round, beta %.5f ns a byte (%.2f GB/s); residuals: rms %.1f %%, worst %+.1f %%\n", l->alpha_us,
            l->beta_us * 1e3, l->beta_us > 0 ? 1e-3 / l->beta_us : 0, 100 * l->rms, 100 * l->worst);
    fprintf(r->to, "# %10s  %6s  %12s  %10s  %10s  %9s  %s\n", "size", "rounds", "bytes", "time", "fitted", "residual", "regime");
    for (int i = 0, k = 0; k < n; i++) {
        if (s[i].in_place != s->in_place || strcmp(s[i].algo, s->algo) != 0) continue;
        double us = ls_bench_line_us(l, &p[k]);
        fprintf(r->to, "# %10zu  %6.0f  %12.0f  %10.2f  %10.2f  %+8.1f%%  %s\n", s[i].size, p[k].rounds, p[k].bytes, p[k].us, us,
                100 * (us / p[k].us - 1), ls_bench_line_latency(l, &p[k]) ? "latency" : "bandwidth");
        k++;
    }
}

/* One line for each algorithm and placement, over all rows that it carried out. */
static void report_fit(ls_bench_report *r)
{
    ls_bench_point *p = calloc((size_t)r->nsamples + 1, sizeof *p);
    bool first = true;
    if (r->as_json) ls_text_add(&r->json, ",\n\"fit\": [");
    for (int i = 0; p && i < r->nsamples; i++) {
        const struct ls_bench_sample *s = &r->sample[i];
        int n = 0, before = 0;
        for (int k = 0; k < r->nsamples; k++) {
            if (r->sample[k].in_place != s->in_place || strcmp(r->sample[k].algo, s->algo) != 0) continue;
            before += k < i;
            p[n++] = r->sample[k].at;
        }
        ls_bench_line l;
        if (before > 0) continue;
        if (!ls_bench_fit(p, n, &l)) {
            if (r->table) fprintf(r->to, "# no fit %s by %s: rows of two sizes are needed\n", s->in_place ? "in place" : "out of place", s->algo);
            continue;
        }
        if (r->table) text_line(r, s, p, n, &l);
        if (r->as_json)
            ls_text_add(&r->json, "%s\n  {\"algorithm\": \"%s\", \"in_place\": %s, \"rows\": %d, \"alpha_us\": %.6g, "
                        "\"beta_us_per_byte\": %.6g, \"rms\": %.6g, \"worst\": %.6g}", first ? "" : ",", s->algo,
                        s->in_place ? "true" : "false", n, l.alpha_us, l.beta_us, l.rms, l.worst);
        first = false;
    }
    if (r->as_json) ls_text_add(&r->json, "]");
    free(p);
}

static void json_row(ls_bench_report *r, const ls_bench_row *row)
{
    ls_text *t = &r->json;
    ls_text_add(t, "%s\n  {\"size\": %zu, \"count\": %zu, \"type\": \"%s\", \"redop\": \"%s\", \"root\": %d",
                r->nrows ? "," : "", row->bytes, row->count, row->dtype, row->op, row->root);
    static const char *const key[] = { "out_of_place", "in_place" };
    const ls_bench_result *x[] = { &row->out_of_place, &row->in_place };
    for (int i = 0; i < 2; i++) {
        if (x[i]->us < 0) continue;
        json_result(t, key[i], x[i]);
        if (x[i]->iters.n > 0) json_iters(t, key[i], &x[i]->iters);
        if (r->o->count) json_count(t, key[i], &x[i]->count);
    }
    ls_text_add(t, ", \"actual_iterations\": %d, \"experiment_name\": \"%s\"}", row->iterations, ls_coll_name(r->o->coll));
}

void ls_bench_report_row(ls_bench_report *r, const ls_bench_row *row)
{
    const ls_bench_result *x[] = { &row->out_of_place, &row->in_place };
    if (r->o->csv) {
        csv_result(r, row, "out", x[0]);
        csv_result(r, row, "in", x[1]);
    } else if (r->table) {
        text_who(r, row);
        text_row(r, row);
    }
    fflush(r->to); /* long rows follow: show this one now */
    if (r->as_json) json_row(r, row);
    r->nrows++;
    for (int i = 0; i < 2; i++) {
        if (x[i]->us < 0) continue;
        r->bw += x[i]->busbw;
        r->nbw++;
        if (x[i]->nwrong > 0) r->wrong += (int64_t)x[i]->nwrong;
        if (r->o->fit) keep_sample(r, row, i == 1, x[i]);
        if (!r->o->count) continue;
        const ls_bench_count *c = &x[i]->count;
        r->counted++;
        r->unknown += !c->known;
        r->miscounted += c->known && !as_the_formula(c);
        if (r->table) text_count(r, i ? "in-place" : "out-of-place", c);
    }
}

static void json_footer(ls_bench_report *r, double bw)
{
    char time_text[32];
    ls_text *t = &r->json;
    now(time_text);
    ls_text_add(t, ",\n\"out_of_bounds\": {\"count\": %lld, \"okay\": %s},\n", (long long)r->wrong, r->wrong ? "false" : "true");
    ls_text_add(t, "\"average_bus_bandwidth\": {\"bandwidth\": ");
    ls_json_number(t, bw);
    ls_text_add(t, ", \"okay\": \"unchecked\"},\n\"end_time\": \"%s\"\n}\n", time_text);
}

ls_status ls_bench_report_close(ls_bench_report *r)
{
    double bw = r->nbw ? r->bw / r->nbw : 0;
    if (r->as_json) ls_text_add(&r->json, "]");
    if (r->o->fit) report_fit(r);
    if (r->table) {
        if (r->o->count)
            fprintf(r->to, "# %-20s : %d of %d as the formula says %s\n", "Bytes on each rank", r->counted - r->miscounted - r->unknown,
                    r->counted, r->miscounted ? "FAILED" : r->unknown ? "(no formula for the others)" : "OK");
        fprintf(r->to, "# %-20s : %lld %s\n", "Out of bounds values", (long long)r->wrong, r->wrong ? "FAILED" : "OK");
        fprintf(r->to, "# %-20s : %g\n#\n# Collective test concluded: %s\n#\n", "Avg bus bandwidth", bw, ls_coll_name(r->o->coll));
    }
    fflush(r->to);
    if (!r->as_json) return LS_OK;
    json_footer(r, bw);
    LS_TRY(ls_text_status(&r->json));
    if (r->o->print_json && (fputs(r->json.p, r->to) < 0 || fflush(r->to) != 0)) return ls_fail(LS_IO, "writing to standard output failed");
    if (!r->file) return LS_OK;
    bool lost = fwrite(r->json.p, 1, r->json.n, r->file) != r->json.n;
    lost = fclose(r->file) != 0 || lost;
    r->file = NULL;
    return lost ? ls_fail(LS_IO, "%s: writing failed", r->o->json) : LS_OK;
}

void ls_bench_report_free(ls_bench_report *r)
{
    if (r->file) fclose(r->file);
    r->file = NULL;
    free(r->sample);
    r->sample = NULL;
    ls_text_free(&r->json);
}
