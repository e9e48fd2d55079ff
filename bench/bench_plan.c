/* bench_plan.c -- how fast and how exact planning is, beside its targets.
 *
 *   layouts            every legal layout of two models on 16,384 ranks, without bounds, on one thread: those whose
 *                      time is computed, and those that are judged (memory alone where they do not fit)
 *   the certificate    the same with bounds: the plan, and why no other is better
 *   closed forms       the largest relative difference between the event engine and the formulas of lockstep/plan.h
 *                      over all that both have: collectives without contention, and pipelines
 *
 * Seconds are those of the processor. tools/draw-fit --table has the errors of predictions, bench_sim the engine's
 * speed.
 *
 *   build/bench/bench_plan [TOPOLOGY.yaml]      (recipes/clusters/h100-8.yaml)
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/team.h"
#include "coll/program.h"
#include "coll_forms.h"
#include "lockstep/plan.h"
#include "lockstep/topo.h"
#include "median.h"
#include "parallel/pipe_events.h"

static double now_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void line(const char *what, double value, const char *unit, const char *target)
{
    printf("%-66s %10.4g %-14s target %s\n", what, value, unit, target);
}

/* --- layouts ---------------------------------------------------------------------------------------------- */

enum { TIMES = 5, WORLD = 16384, BATCH = 2048 };

static ls_status search(const char *model, const ls_topo *t, bool exhaustive, ls_layouts *out, double *seconds)
{
    ls_layout_query q = { .topo = t, .world = WORLD, .batch = BATCH, .top = 5, .exhaustive = exhaustive };
    double s[TIMES];
    LS_TRY(ls_llm_preset(model, &q.model));
    for (int i = 0; i < TIMES; i++) {
        s[i] = now_s();
        LS_TRY(ls_layout_search(&q, out));
        s[i] = now_s() - s[i];
    }
    *seconds = median(s, TIMES);
    return LS_OK;
}

static ls_status layouts(const ls_topo *t)
{
    static const char *const model[] = { "llama3-405b", "deepseek-v3" };
    static ls_layouts all, few;
    for (size_t i = 0; i < sizeof model / sizeof *model; i++) {
        double whole, bounded;
        char what[96];
        LS_TRY(search(model[i], t, true, &all, &whole));
        LS_TRY(search(model[i], t, false, &few, &bounded));
        printf("%s on %d ranks, batch %d: %lld legal layouts, %lld of which fit; medians of %d\n", model[i], WORLD,
               BATCH, (long long)all.legal, (long long)all.evaluated, TIMES);
        line("  layouts timed, with the ledger of all, per core", 1e-6 * (double)all.evaluated / whole, "M per second",
             "2");
        line("  layouts judged, per core", 1e-6 * (double)all.legal / whole, "M per second", "-");
        line("  every layout judged", whole, "s", "< 1 s");
        line("  the best with a certificate", bounded, "s", "< 1 s");
        snprintf(what, sizeof what, "  the same best %d plans; all layouts are accounted for", few.n);
        const bool counted = few.evaluated + few.too_large + few.bounded == few.legal;
        bool same = few.n == all.n && few.legal == all.legal && counted;
        for (int k = 0; same && k < few.n; k++)
            same = few.best[k].cost.total == all.best[k].cost.total && few.best[k].bytes == all.best[k].bytes;
        printf("%-66s %10s\n", what, same ? "yes" : "NO");
        if (!same) return ls_fail(LS_INTERNAL, "%s: the search with bounds finds other plans", model[i]);
    }
    return LS_OK;
}

/* --- closed forms ------------------------------------------------------------------------------------------ */

static double off(double got, double want) { return want > 0 ? fabs(got - want) / want : fabs(got); }

static ls_status collectives(double *worst, int *cases)
{
    static const struct { double alpha, beta; } network[] = { { 1e-6, 1e9 }, { 5e-6, 5e10 }, { 0, 1e8 } };
    for (size_t i = 0; i < sizeof coll_forms / sizeof *coll_forms; i++)
        for (int n = 2; n <= 256; n = n < 16 ? n + 1 : 2 * n)
            for (size_t k = 0; k < 3 * sizeof network / sizeof *network; k++) {
                const size_t S = (size_t)n * (k % 3 == 0 ? 1 : k % 3 == 1 ? 12345 : 1 << 24);
                const coll_form *row = &coll_forms[i];
                const ls_shape any = { .coll = row->coll, .size = n, .segments = 1, .nlanes = 1 };
                const ls_algo *a = ls_algo_find(row->algo);
                ls_coll_program p;
                ls_des_model m;
                ls_des_result r = { 0 };
                if ((row->powers && (n & (n - 1)) != 0) || (a->fits && !a->fits(&any))) continue;
                LS_TRY(ls_coll_program_create(a, &any, S, 0, &p));
                ls_coll_program_model(&p, &m);
                m.net = (ls_des_net){ .latency_s = network[k / 3].alpha, .bytes_per_s = network[k / 3].beta };
                LS_TRY(ls_des_run(&m, &r));
                ls_coll_program_free(&p);
                *worst = fmax(*worst, off(r.end_s, ls_coll_seconds(row->form, row->coll, n, (double)S,
                                                                  m.net.latency_s, m.net.bytes_per_s)));
                ++*cases;
            }
    return LS_OK;
}

/* Of interleaved 1F1B and ZB-H1 without hops, where the runtime's lists wait for others than those of the papers. */
static ls_status pipelines(double *worst, int *cases)
{
    static const struct { const char *name; ls_pipe_form form; double hop; int v; } row[] = {
        { "gpipe", LS_PIPE_GPIPE, .25, 1 },         { "1f1b", LS_PIPE_1F1B, .25, 1 },
        { "interleaved", LS_PIPE_INTERLEAVED, 0, 2 }, { "interleaved", LS_PIPE_INTERLEAVED, 0, 4 },
        { "zb-h1", LS_PIPE_ZB_H1, 0, 1 },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int p = 2; p <= 32; p += p < 8 ? 1 : 8)
            for (int n = 2 * p; n <= 6 * p; n += p) {
                const ls_pipe_costs c = { .forward = 3, .input = 2.5, .weight = 2, .hop = row[i].hop, .p = p,
                                          .v = row[i].v, .m = n };
                const ls_pipe_shape shape = { p, row[i].v, n };
                double time[3][128];
                const ls_pipe_schedule *s;
                ls_pipe_program g;
                ls_pipe_events e;
                ls_des_model m;
                ls_des_result r = { 0 };
                for (int k = 0; k < p * row[i].v; k++)
                    time[0][k] = 3.0 / row[i].v, time[1][k] = 2.5 / row[i].v, time[2][k] = 2.0 / row[i].v;
                const ls_pipe_loads loads = { time[0], time[1], time[2], 0 };
                LS_TRY(ls_pipe_schedule_find(row[i].name, &s));
                LS_TRY(ls_pipe_program_create(s, &shape, &g));
                LS_TRY(ls_pipe_program_make(&g, n));
                LS_TRY(ls_pipe_events_create(&g, &loads, 1, &e));
                ls_pipe_events_model(&e, &m);
                m.net = (ls_des_net){ .latency_s = row[i].hop, .bytes_per_s = (double)INFINITY };
                LS_TRY(ls_des_run(&m, &r));
                ls_pipe_events_free(&e);
                ls_pipe_program_free(&g);
                *worst = fmax(*worst, off(r.end_s, ls_pipe_seconds(row[i].form, &c)));
                ++*cases;
            }
    return LS_OK;
}

int main(int argc, char **argv)
{
    static ls_topo topo;
    double coll = 0, pipe = 0;
    int ncoll = 0, npipe = 0;
    char what[96];
    ls_team_resize(1);
    ls_status st = ls_topo_load(argc > 1 ? argv[1] : "recipes/clusters/h100-8.yaml", &topo);
    if (st == LS_OK) st = ls_topo_resize(&topo, WORLD / topo.level[0].count);
    if (st == LS_OK) st = layouts(&topo);
    if (st == LS_OK) st = collectives(&coll, &ncoll);
    if (st == LS_OK) st = pipelines(&pipe, &npipe);
    if (st < 0) return fprintf(stderr, "bench_plan: %s\n", ls_last_error()), 1;
    printf("\nthe event engine beside closed forms, without contention\n");
    snprintf(what, sizeof what, "  %d collectives, the largest relative difference", ncoll);
    line(what, coll, "", "1e-9");
    snprintf(what, sizeof what, "  %d pipelines, the largest relative difference", npipe);
    line(what, pipe, "", "1e-9");
    return coll <= 1e-9 && pipe <= 1e-9 ? 0 : 1;
}
