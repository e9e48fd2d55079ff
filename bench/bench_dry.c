/* bench_dry.c -- planning a rank that is not there: GPT-2 124M made and one step taken in a dry world (group.h).
 *
 * Milliseconds of each part, medians: the world with its mesh, the model with parameters, gradients and optimizer, and
 * the step with the collectives that it would call. Between hosts these are schedules, and choosing them takes most of
 * the time, as it does on a real rank (once for each size).
 *
 *   build/bench/bench_dry [repeats]       (15)
 */
#include <stdio.h>
#include <stdlib.h>

#include "lockstep/optim.h"
#include "lockstep/parallel.h"
#include "median.h"

enum { PARTS = 3, MOST = 101, MOST_RANKS = 1024 };

static double now_ms(void) { return (double)now_ns() * 1e-6; }

typedef struct planned {
    ls_world *w;
    ls_arena *own;
    ls_parallel par;
    ls_optim *optim;
    int collectives;
    size_t bytes;
} planned;

static ls_status step(planned *p)
{
    const ls_recorded *had;
    ls_model_input in;
    ls_tape *t = p->par.tape[0];
    ls_world_record_clear(p->w);
    LS_TRY(ls_ddp_begin_forward(p->par.ddp, t, true));
    p->par.model->cls->input(p->par.model, 4, 1024, &in);
    ls_tensor *x = ls_tape_input(t, in.dtype, in.ndim, in.dim, NULL);
    ls_tensor *labels = ls_tape_input(t, LS_I64, in.label_ndim, in.label_dim, NULL);
    LS_TRY(ls_backward(t, ls_model_loss(p->par.model, t, x, labels, NULL)));
    LS_TRY(ls_optim_step(p->optim));
    LS_TRY(ls_ddp_after_step(p->par.ddp));
    p->collectives = ls_world_recorded(p->w, &had);
    p->bytes = ls_tape_peak(t);
    for (int k = 0; k < LS_MEM_KINDS; k++) p->bytes += ls_world_ledger(p->w)->now[k];
    return LS_OK;
}

static ls_status plan(int rank, int size, int per_host, int stage, planned *p, double ms[PARTS])
{
    const ls_plan how = { .size = { 1, size, 1, 1, 1 }, /* pp, dp, ep, cp, tp */
                          .ddp = { .zero_stage = stage }, .micro_batch = 4, .micro_batches = 1 };
    const ls_model_config gpt2 = { .name = "gpt2", .init = LS_INIT_PHILOX,
                                   .lm = { .vocab_size = 50257, .seq_len = 1024, .n_layer = 12, .n_head = 12,
                                           .d_model = 768, .tied = true } };
    ls_optim_config adamw;
    int node[MOST_RANKS];
    for (int r = 0; r < size; r++) node[r] = r / per_host;
    double t0 = now_ms(), t1;
    LS_TRY(ls_world_dry(rank, size, node, NULL, &p->w));
    ms[0] = (t1 = now_ms()) - t0;
    LS_TRY(ls_arena_create_dry(ls_world_ledger(p->w), &p->own));
    LS_TRY(ls_parallelize(p->w, &how, &gpt2, &(ls_parallel_opts){ .own = p->own }, &p->par));
    LS_TRY(ls_optim_defaults("adamw", &adamw));
    LS_TRY(ls_optim_create(&adamw, &p->par.model->params, p->own, &p->optim));
    ms[1] = (t0 = now_ms()) - t1;
    LS_TRY(step(p));
    ms[2] = now_ms() - t0;
    return LS_OK;
}

static void forget(planned *p)
{
    ls_optim_destroy(p->optim);
    ls_parallel_destroy(&p->par);
    ls_arena_destroy(p->own);
    ls_world_leave(p->w);
}

int main(int argc, char **argv)
{
    static const struct { int rank, size, per_host, stage; } row[] = {
        { 0, 1, 1, 0 },           { 1, 2, 2, 0 },         { 1, 8, 8, 1 },   { 777, 1024, 1024, 0 },
        { 777, 1024, 1024, 1 },   { 3, 16, 8, 0 },        { 17, 64, 8, 0 }, { 17, 64, 8, 1 },
    };
    int repeats = argc > 1 ? atoi(argv[1]) : 15;
    static double part[PARTS][MOST], all[MOST];
    if (repeats < 1 || repeats > MOST) repeats = MOST;
    printf("%-27s %10s %10s %10s %10s %12s %12s\n", "rank, of ranks on hosts", "world ms", "state ms", "step ms",
           "all ms", "collectives", "MiB");
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        planned p = { 0 };
        for (int k = 0; k < repeats; k++) {
            double ms[PARTS];
            p = (planned){ 0 };
            const ls_status st = plan(row[i].rank, row[i].size, row[i].per_host, row[i].stage, &p, ms);
            forget(&p);
            if (st < 0) {
                fprintf(stderr, "bench_dry: %s\n", ls_last_error());
                return 1;
            }
            all[k] = ms[0] + ms[1] + ms[2];
            for (int j = 0; j < PARTS; j++) part[j][k] = ms[j];
        }
        printf("%5d of %4d on %3d, %s  %10.2f %10.2f %10.2f %10.2f %12d %12.1f\n", row[i].rank, row[i].size,
               (row[i].size + row[i].per_host - 1) / row[i].per_host, row[i].stage ? "ZeRO" : "DDP ",
               median(part[0], repeats), median(part[1], repeats), median(part[2], repeats), median(all, repeats),
               p.collectives, (double)p.bytes / 1048576.0);
    }
    return 0;
}
