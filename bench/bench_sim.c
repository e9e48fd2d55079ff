/* bench_sim.c -- how fast the event engine is, beside its targets.
 *
 *   halving-doubling   an all_reduce over 2^20 ranks, every message: emitting the runtime's schedules, and
 *                      simulating them, once with ports that delay no one and once with ports that take messages
 *                      in turn (through the queue)
 *   405B               one step on 16,384 ranks (tp 8, pp 16, dp 128), interleaved schedule with 8 chunks and 16
 *                      micro-batches: every rank; folded; and with 1 % of jitter on every operation
 *
 * Seconds are those of the processor, all threads together; where it is said, also those of the clock.
 *
 *   build/bench/bench_sim [log2 of the ranks]       (20)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "coll/program.h"
#include "lockstep/plan.h"
#include "median.h"
#include "parallel/pipe_list.h"

enum { T = 8, P = 16, D = 128, V = 8, M = 16, RANKS = T * P * D, AXES = 2 };

/* Seconds of the processor, of all threads: others may use this machine, too. */
static double now_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static double wall_s(void) { return (double)now_ns() * 1e-9; }

static double peak_gib(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_maxrss / (1 << 20);
}

static void line(const char *what, double value, const char *unit, const char *target, bool met)
{
    printf("%-58s %10.4g %-12s target %-10s %s\n", what, value, unit, target, met ? "met" : "missed");
}

static ls_status run(const ls_des_model *m, ls_des_result *r, double *s)
{
    const double t0 = now_s();
    LS_TRY(ls_des_run(m, r));
    *s = now_s() - t0;
    return LS_OK;
}

/* --- an all_reduce --------------------------------------------------------------------------------------- */

static ls_status halving_doubling(int log2_ranks)
{
    const int n = 1 << log2_ranks;
    const double alpha = 1e-6, beta = 5e10;
    const size_t S = (size_t)n * 64;
    const ls_shape any = { .coll = LS_ALL_REDUCE, .size = n, .segments = 1, .nlanes = 1 };
    ls_coll_program p;
    ls_des_model m;
    ls_des_result r = { 0 };
    double made = now_s(), wall = wall_s(), s[2];
    LS_TRY(ls_coll_program_create(ls_algo_find("halving_doubling"), &any, S, 0, &p));
    made = now_s() - made;
    ls_coll_program_model(&p, &m);
    for (int in_turn = 0; in_turn < 2; in_turn++) {
        m.net = (ls_des_net){ .latency_s = alpha, .bytes_per_s = beta, .sharing = in_turn ? LS_DES_FIFO : LS_DES_FREE };
        LS_TRY(run(&m, &r, &s[in_turn]));
        if (!in_turn) wall = wall_s() - wall;
        const double want = ls_coll_seconds(LS_COLL_HALVING, LS_ALL_REDUCE, n, (double)S, alpha, beta);
        if (r.end_s < want * (1 - 1e-9) || r.end_s > want * (1 + 1e-9))
            return ls_fail(LS_INTERNAL, "%.17g s, expected %.17g", r.end_s, want);
    }
    printf("halving-doubling all_reduce over %d ranks: %llu messages, %llu events; %.3f s of virtual time\n", n,
           (unsigned long long)r.messages,
           (unsigned long long)r.events, r.end_s);
    line("  emitting all schedules", made, "s", "-", true);
    line("  ports that delay no one", s[0], "s", "-", true);
    line("  ports in turn", s[1], "s", "-", true);
    line("  emitting and simulating (no one delayed)", made + s[0], "s", "< 2 s", made + s[0] < 2);
    line("  the same by the clock", wall, "s", "< 2 s", wall < 2);
    line("  emitting and simulating (in turn)", made + s[1], "s", "< 2 s", made + s[1] < 2);
    line("  memory of the process", peak_gib(), "GiB", "< 4 GB", peak_gib() * 1.073741824 < 4);
    line("  rate (no one delayed)", 1e-6 * (double)r.events / s[0], "M events/s", "50",
         (double)r.events / s[0] >= 50e6);
    line("  rate (in turn)", 1e-6 * (double)r.events / s[1], "M events/s", "50", (double)r.events / s[1] >= 50e6);
    ls_coll_program_free(&p);
    return LS_OK;
}

/* --- a step ----------------------------------------------------------------------------------------------- */

enum { NOTHING, LAYER, BACK, TENSOR, HOP, DATA };
static const double costs[] = { 0, 4e-3, 8e-3, 3e-4, 1.2e-4, 5e-3 };

typedef struct grid {
    ls_des_op *op[P];
    const ls_des_op *program[RANKS];
    uint32_t base[RANKS], group[AXES * RANKS], members[RANKS / T + RANKS / D];
} grid;

/* A layer per chunk: four collectives of tp around its products, as with sequence parallelism. */
static ls_des_op *put_layer(ls_des_op *a, uint32_t work)
{
    for (int k = 0; k < 4; k++) {
        *a++ = ls_des_op_of(LS_DES_MEET, 0, 0, TENSOR);
        *a++ = ls_des_op_of(LS_DES_WORK, 0, 0, work);
    }
    return a;
}

static void put_stage(const ls_pipe_program *g, int rank, ls_des_op *a)
{
    const ls_pipe_list *l = &g->list[rank];
    const int stages = P * V, stride = T * D;
    for (int i = 0; i < l->n; i++) {
        const ls_pipe_action *x = &l->action[i];
        const bool forward = x->what == LS_PIPE_FORWARD;
        const int before = forward ? x->stage - 1 : x->stage + 1, after = forward ? x->stage + 1 : x->stage - 1;
        if (before >= 0 && before < stages)
            *a++ = ls_des_op_of(LS_DES_RECV, (uint32_t)((before % P - rank) * stride),
                                2 * (uint32_t)x->chunk + !forward, NOTHING);
        a = put_layer(a, forward ? LAYER : BACK);
        if (after >= 0 && after < stages)
            *a++ = ls_des_op_of(LS_DES_SEND, (uint32_t)((after % P - rank) * stride),
                                2 * (uint32_t)(after / P) + !forward, HOP);
    }
    /* reduce_scatter and all_gather of each chunk */
    for (int c = 0; c < 2 * V; c++) *a++ = ls_des_op_of(LS_DES_MEET, 1, 0, DATA);
    *a = ls_des_op_of(LS_DES_END, 0, 0, NOTHING);
}

static ls_status make_grid(grid *x)
{
    const ls_pipe_schedule *s;
    const ls_pipe_shape shape = { P, V, M };
    ls_pipe_program g;
    LS_TRY(ls_pipe_schedule_find("interleaved", &s));
    LS_TRY(ls_pipe_program_create(s, &shape, &g));
    LS_TRY(ls_pipe_program_make(&g, M));
    for (int k = 0; k < P; k++) {
        x->op[k] = malloc(((size_t)g.list[k].n * 10 + 2 * V + 1) * sizeof *x->op[k]);
        if (!x->op[k]) return ls_fail(LS_NO_MEMORY, "a stage");
        put_stage(&g, k, x->op[k]);
    }
    ls_pipe_program_free(&g);
    for (uint32_t r = 0; r < RANKS; r++) {
        x->program[r] = x->op[r / (T * D)];
        x->base[r] = r;
        x->group[r] = r / T;
        x->group[RANKS + r] = RANKS / T + r / (T * D) * T + r % T;
        x->members[x->group[r]]++;
        x->members[x->group[RANKS + r]]++;
    }
    return LS_OK;
}

static ls_status step(void)
{
    enum { TIMES = 5 };
    static grid x;
    static double whole[RANKS], part[RANKS];
    double s[3][TIMES];
    ls_des_result r = { .ends_s = whole }, f = { .ends_s = part }, j = { 0 };
    LS_TRY(make_grid(&x));
    ls_des_model m = { .n = RANKS, .program = x.program, .base = x.base, .cost = costs,
                       .ncosts = sizeof costs / sizeof *costs, .axes = AXES,
                       .ngroups = RANKS / T + RANKS / D, .group = x.group, .members = x.members,
                           .net = { .bytes_per_s = 1 } };
    uint32_t classes = 0;
    bool same = true;
    for (int k = 0; k < TIMES; k++) {
        ls_des_folded folded;
        LS_TRY(run(&m, &r, &s[0][k]));
        s[1][k] = now_s();
        LS_TRY(ls_des_fold(&m, &folded));
        LS_TRY(ls_des_run(&folded.model, &f));
        s[1][k] = now_s() - s[1][k];
        classes = folded.model.n;
        for (uint32_t i = 0; i < RANKS; i++) same = same && folded.class_of && whole[i] == part[folded.class_of[i]];
        ls_des_folded_free(&folded);
        ls_des_model shaken = m;
        shaken.jitter = 0.01;
        LS_TRY(run(&shaken, &j, &s[2][k]));
    }
    const double unfolded = median(s[0], TIMES), fold = median(s[1], TIMES), shaken = median(s[2], TIMES);
    printf("\n405B on %d ranks (tp %d, pp %d, dp %d; %d chunks, %d micro-batches): %llu events; medians of %d\n",
           RANKS, T, P, D, V, M,
           (unsigned long long)r.events, TIMES);
    line("  every rank", unfolded, "s", "< 1 s", unfolded < 1);
    line("  rate", 1e-6 * (double)r.events / unfolded, "M events/s", "50", (double)r.events / unfolded >= 50e6);
    line("  folded, with finding the classes", 1e3 * fold, "ms", "< 10 ms", fold < 10e-3);
    printf("  %u classes of ranks; the times of all ranks are %s\n", classes, same ? "the same to the bit"
           : "NOT the same");
    line("  1 % of jitter on every operation, times as long", shaken / unfolded, "x", "<= 3", shaken <= 3 * unfolded);
    for (int k = 0; k < P; k++) free(x.op[k]);
    return same ? LS_OK : ls_fail(LS_INTERNAL, "folding changed a bit");
}

int main(int argc, char **argv)
{
    const int log2_ranks = argc > 1 ? atoi(argv[1]) : 20;
    if (log2_ranks < 1 || log2_ranks > 24) {
        fprintf(stderr, "bench_sim: the logarithm of the ranks is '%s': expected 1 to 24\n", argv[1]);
        return 64;
    }
    ls_status st = halving_doubling(log2_ranks);
    if (st == LS_OK) st = step();
    if (st < 0) fprintf(stderr, "bench_sim: %s\n", ls_last_error());
    return st < 0 ? 1 : 0;
}
