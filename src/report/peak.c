/* peak.c -- how fast this machine multiplies matrices: measured, and kept in a file. */
#include "report/peak.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/team.h"
#include "tensor/gemm.h"
#include "report/rundir.h"

#define VARIABLE   "LOCKSTEP_PEAK"
#define ONCE_S     0.2 /* a run that is the first of its kind here waits so long */
#define MOST       1e9 /* GFLOP/s of a thread that a file may claim */
#define LEAST_RUNS 4   /* of a size; the first makes ready */

/* --- measuring ------------------------------------------------------------------------- */

/* The shortest of the products of one size, in nanoseconds, within the budget. */
static ls_status shortest(ls_gemm *g, const ls_gemm_call *call, double budget_ns, double *ns)
{
    const ls_env *env = ls_env_get();
    double spent = 0.0;
    for (int i = 0; i < LEAST_RUNS || spent < budget_ns; i++) {
        uint64_t t0 = env->mono_ns();
        LS_TRY(ls_gemm_run(g, call));
        double took = (double)(env->mono_ns() - t0);
        if (i == 0) continue;
        if (i == 1 || took < *ns) *ns = took;
        spent += took;
    }
    return LS_OK;
}

ls_status ls_peak_measure(ls_dtype dtype, int threads, double seconds, double *gflops)
{
    static const int64_t sizes[] = { 384, 768, 1152, 1536 };
    const int64_t most = seconds < 0.1 ? 1 : 4; /* short ones fit between what others do, and come close */
    const size_t elements = (size_t)(sizes[most - 1] * sizes[most - 1]);
    *gflops = 0.0;
    if (dtype != LS_F32 && dtype != LS_BF16) return ls_fail(LS_UNSUPPORTED, "products of %s", ls_dtype_name(dtype));
    float *a = malloc(3 * elements * sizeof *a); /* A, B and C; of bf16 the first half of each */
    ls_gemm *g = NULL;
    const int before = ls_team_resize(threads);
    ls_status st = a ? ls_gemm_create(&g) : ls_fail(LS_NO_MEMORY, "matrices of %zu elements", elements);
    for (size_t i = 0; st == LS_OK && i < 3 * elements; i++) {
        const float v = (float)(i % 13) * 0.0625f;
        const uint16_t pair[2] = { ls_f32_to_bf16(v), ls_f32_to_bf16(v) };
        memcpy(a + i, dtype == LS_F32 ? (const void *)&v : pair, sizeof v);
    }
    for (int64_t i = 0; st == LS_OK && i < most; i++) {
        const int64_t n = sizes[i];
        double ns = 0.0;
        const ls_gemm_call call = { .m = n,
                                    .n = n,
                                    .k = n,
                                    .trans_b = true,
                                    .in = dtype,
                                    .out = dtype,
                                    .a = a,
                                    .b = a + elements,
                                    .c = a + 2 * elements };
        st = shortest(g, &call, seconds * 1e9 / (double)most, &ns);
        double rate = st == LS_OK ? 2.0 * (double)(n * n * n) / ns / threads : 0.0;
        if (rate > *gflops) *gflops = rate;
    }
    ls_team_resize(before);
    ls_gemm_destroy(g);
    free(a);
    return st;
}

ls_status ls_peak_measure_all(double seconds, ls_peaks *out)
{
    static const ls_dtype dtypes[] = { LS_F32, LS_BF16 };
    const ls_env *env = ls_env_get();
    const int cores = env->cpus();
    *out = (ls_peaks){ 0 };
    if (env->hostname(out->host, sizeof out->host) < 0) out->host[0] = 0;
    for (int threads = 1; threads <= cores; threads = threads == 1 && cores > 1 ? cores : cores + 1) {
        for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
            ls_peak_row *row = &out->row[out->n];
            *row = (ls_peak_row){ .dtype = dtypes[i], .threads = threads };
            const ls_status st = ls_peak_measure(row->dtype, threads, seconds, &row->gflops);
            if (st < 0 && st != LS_UNSUPPORTED) return st;
            out->n += st == LS_OK;
        }
    }
    return LS_OK;
}

/* --- the file ---------------------------------------------------------------------------- */

bool ls_peak_path(char *path, size_t n) { return ls_file_cached(VARIABLE, "peak.json", path, n); }

void ls_peak_print_json(const ls_peaks *p, ls_text *out)
{
    ls_text_add(out, "{\n  \"lockstep_peak\": 1,\n  \"host\": ");
    ls_json_string(out, p->host);
    ls_text_add(out, ",\n  \"peaks\": [");
    for (int i = 0; i < p->n; i++) {
        ls_text_add(out, "%s\n    {\"dtype\": \"%s\", \"threads\": %d, \"gflops_per_thread\": ", i ? "," : "",
                    ls_dtype_name(p->row[i].dtype), p->row[i].threads);
        ls_json_number(out, p->row[i].gflops);
        ls_text_add(out, "}");
    }
    ls_text_add(out, "\n  ]\n}\n");
}

static ls_status read_row(const char *name, const json_t *row, size_t i, ls_peak_row *out)
{
    const json_t *dtype = json_object_get(row, "dtype"), *threads = json_object_get(row, "threads");
    const json_t *gflops = json_object_get(row, "gflops_per_thread");
    const char *type = json_string_value(dtype);
    for (out->dtype = 0; out->dtype < LS_DTYPES; out->dtype++)
        if (type && strcmp(type, ls_dtype_name(out->dtype)) == 0) break;
    if (out->dtype == LS_DTYPES)
        return ls_fail(LS_BAD_FILE, "%s: peaks[%zu].dtype: expected the name of a type, as \"float\"", name, i);
    json_int_t t = json_integer_value(threads);
    if (t < 1 || t > 1 << 20)
        return ls_fail(LS_BAD_FILE, "%s: peaks[%zu].threads: expected a number from 1 on", name, i);
    double v = json_number_value(gflops);
    if (!(v > 0.0) || v > MOST)
        return ls_fail(LS_BAD_FILE, "%s: peaks[%zu].gflops_per_thread: expected a number above 0, up to %g", name, i,
                       MOST);
    out->threads = (int)t;
    out->gflops = v;
    return LS_OK;
}

static ls_status read_all(const char *name, const json_t *root, ls_peaks *out)
{
    const json_t *version = json_object_get(root, "lockstep_peak"), *peaks = json_object_get(root, "peaks");
    const char *host = json_string_value(json_object_get(root, "host"));
    if (!json_is_integer(version) || json_integer_value(version) != 1)
        return ls_fail(LS_BAD_FILE, "%s: \"lockstep_peak\": expected 1", name);
    if (!host || strlen(host) >= sizeof out->host) return ls_fail(LS_BAD_FILE, "%s: host: expected a name", name);
    if (!json_is_array(peaks) || json_array_size(peaks) > LS_PEAK_ROWS)
        return ls_fail(LS_BAD_FILE, "%s: peaks: expected up to %d objects", name, LS_PEAK_ROWS);
    snprintf(out->host, sizeof out->host, "%s", host);
    for (size_t i = 0; i < json_array_size(peaks); i++)
        LS_TRY(read_row(name, json_array_get(peaks, i), i, &out->row[out->n++]));
    return LS_OK;
}

ls_status ls_peak_read_json(const char *name, const char *text, size_t n, ls_peaks *out)
{
    json_error_t e;
    *out = (ls_peaks){ 0 };
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    if (!root) return ls_fail(LS_BAD_FILE, "%s: line %d: %s", name, e.line, e.text);
    ls_status st = read_all(name, root, out);
    json_decref(root);
    return st;
}

ls_status ls_peak_keep(const ls_peaks *p, const char *path)
{
    char folder[4096];
    ls_text text = { 0 };
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 0, path);
    if (*folder) LS_TRY(ls_mkdirs(folder));
    ls_peak_print_json(p, &text);
    ls_status st = ls_text_status(&text);
    if (st == LS_OK) st = ls_file_write(path, text.p, text.n);
    ls_text_free(&text);
    return st;
}

/* Rows that were measured on this host; none where there is no such file, unless it must be there. */
static ls_status kept_here(const char *path, bool must, ls_peaks *out)
{
    const ls_env *env = ls_env_get();
    char host[256] = "", *text = NULL;
    ls_file_info info = { .type = LS_FILE_NONE };
    size_t n = 0;
    *out = (ls_peaks){ 0 };
    if (env->hostname(host, sizeof host) < 0) host[0] = 0;
    ls_status st = LS_OK;
    if (must || (env->info(path, &info) >= 0 && info.type != LS_FILE_NONE)) {
        st = ls_file_read(path, LS_PEAK_MAX_BYTES, &text, &n);
        if (st == LS_OK) st = ls_peak_read_json(path, text, n, out);
        free(text);
    }
    if (st < 0 || strcmp(out->host, host) != 0) *out = (ls_peaks){ 0 };
    snprintf(out->host, sizeof out->host, "%s", host);
    return st;
}

static double row_of(const ls_peaks *p, ls_dtype dtype, int threads)
{
    for (int i = 0; i < p->n; i++)
        if (p->row[i].dtype == dtype && p->row[i].threads == threads) return p->row[i].gflops;
    return 0.0;
}

/* Measured for later runs, too: only a number that stays the same is worth dividing by. */
static ls_status measure_once(ls_dtype dtype, int threads, const char *path, ls_peaks *p, double *gflops)
{
    LS_TRY(ls_peak_measure(dtype, threads, ONCE_S, gflops));
    if (p->n == LS_PEAK_ROWS) p->n--; /* the newest gives way */
    p->row[p->n++] = (ls_peak_row){ .dtype = dtype, .threads = threads, .gflops = *gflops };
    return ls_peak_keep(p, path);
}

ls_status ls_peak_find(ls_dtype dtype, int threads, ls_peak *out)
{
    char path[4096];
    const char *asked = ls_env_get()->getenv(VARIABLE);
    const bool named = asked && *asked;
    ls_peaks p;
    *out = (ls_peak){ 0 };
    if (!ls_peak_path(path, sizeof path)) {
        snprintf(out->text, sizeof out->text, "not known: there is no folder to keep it in, so MFU is left out");
        return LS_OK;
    }
    ls_status st = kept_here(path, named, &p);
    if (st < 0 && named) return st;
    if (st < 0) {
        snprintf(out->text, sizeof out->text, "not known: %.180s; `lockstep doctor --peak` measures it", ls_last_error());
        return LS_OK;
    }
    double each = row_of(&p, dtype, threads);
    if (each == 0.0 && (st = measure_once(dtype, threads, path, &p, &each)) < 0) {
        snprintf(out->text, sizeof out->text, "not known: %.200s; MFU is left out", ls_last_error());
        return LS_OK;
    }
    snprintf(out->text, sizeof out->text, "%.1f GFLOP/s per thread in %s products, %d thread%s per rank (measured once, cached in %.140s)",
             each, dtype == LS_BF16 ? "bf16" : "f32", threads, threads == 1 ? "" : "s", path);
    out->gflops = each * threads;
    return LS_OK;
}
