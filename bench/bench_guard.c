/* bench_guard.c -- what the replica guard costs: updates of AdamW with and without the hash of the values it writes.
 *
 * Two ranks, threads of this process with one thread each, update parameters at the same time, as under DDP: the
 * embeddings of GPT-2 124M and so many of its layers, by default none, since the shorter a pair is, the less a
 * neighbour disturbs only one half of it. Times are given for all 124,439,808 parameters. Updates with and without the
 * hash alternate; the difference is the median over pairs. It is measured twice, with the memory of the two optimizers
 * exchanged, since where memory lies can matter more than the hash does; the last line has the means. All else that the
 * guard does is one number more in a collective that a step has anyway.
 *
 *   build/bench/bench_guard [pairs] [layers]
 *
 * The last line: `update_ms,PLAIN,HASHED,DIFFERENCE`, of rank 0.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "copy.h"
#include "median.h"
#include "lockstep/lockstep.h"

#define MOST_PAIRS 1000
#define ALL 124439808.0 /* parameters of GPT-2 124M */

typedef struct job {
    int pairs, layers;
    double plain, hashed, difference; /* ms, of rank 0 */
    double scale;                     /* to all parameters */
} job;

static ls_status add(ls_params *ps, const char *name, int layer, int64_t rows, int64_t row)
{
    char full[LS_NAME_BYTES];
    const int64_t dim[2] = { rows, row };
    snprintf(full, sizeof full, "%d.%s", layer, name);
    return ls_params_add(ps, full, row > 1 ? 2 : 1, dim);
}

static ls_status add_all(ls_params *ps, int layers)
{
    LS_TRY(add(ps, "wte", 0, 50257, 768));
    LS_TRY(add(ps, "wpe", 0, 1024, 768));
    for (int l = 1; l <= layers; l++) {
        LS_TRY(add(ps, "attn", l, 2304, 768));
        LS_TRY(add(ps, "attn.bias", l, 2304, 1));
        LS_TRY(add(ps, "proj", l, 768, 768));
        LS_TRY(add(ps, "fc", l, 3072, 768));
        LS_TRY(add(ps, "fc.bias", l, 3072, 1));
        LS_TRY(add(ps, "out", l, 768, 3072));
    }
    return LS_OK;
}

static ls_status update(ls_world *w, ls_params *ps, ls_optim *o, double *ms)
{
    for (int i = 0; i < ps->n; i++) ps->item[i].t.grad_ready = true;
    LS_TRY(ls_barrier(ls_world_group(w)));
    const uint64_t t0 = now_ns();
    LS_TRY(ls_optim_step(o));
    LS_TRY(ls_barrier(ls_world_group(w)));
    *ms = 1e-6 * (double)(now_ns() - t0);
    return LS_OK;
}

/* Adds the medians of all pairs to *j; the hash is that of optimizer number `hashed` of two. */
static ls_status measure_pairs(ls_world *w, job *j, ls_params *ps, ls_arena *a, int hashed)
{
    ls_optim *o[2];
    ls_optim_config c;
    double ms[2][MOST_PAIRS], more[MOST_PAIRS];
    const size_t mark = ls_arena_mark(a);
    LS_TRY(ls_optim_defaults("adamw", &c));
    for (int k = 0; k < 2; k++) LS_TRY(ls_optim_create(&c, ps, a, &o[k]));
    LS_TRY(ls_optim_hash_values(o[hashed]));
    for (int p = -1; p < j->pairs; p++) { /* the first pair warms up */
        double now[2];
        for (int k = 0; k < 2; k++) LS_TRY(update(w, ps, o[(p + k) & 1], &now[(p + k) & 1]));
        if (p < 0) continue;
        ms[0][p] = now[!hashed];
        ms[1][p] = now[hashed];
        more[p] = now[hashed] - now[!hashed];
    }
    if (ls_world_rank(w) == 0) {
        j->plain += 0.5 * median(ms[0], j->pairs);
        j->hashed += 0.5 * median(ms[1], j->pairs);
        j->difference += 0.5 * median(more, j->pairs);
    }
    for (int k = 0; k < 2; k++) ls_optim_destroy(o[k]);
    ls_arena_reset(a, mark);
    return LS_OK;
}

static ls_status measure(ls_world *w, void *arg)
{
    job *j = arg;
    ls_params ps = { 0 };
    ls_arena *a;
    LS_TRY(add_all(&ps, j->layers));
    LS_TRY(ls_arena_create(6 * (ls_params_nbytes(&ps) + (size_t)ps.n * 128), false, NULL, &a));
    LS_TRY(ls_params_bind(&ps, a, a));
    for (int i = 0; i < ps.n; i++)
        for (int64_t k = 0; k < ls_tensor_count(&ps.item[i].t); k++) {
            ((float *)ps.item[i].t.data)[k] = (float)(k % 1000) * 1e-3f;
            ((float *)ps.item[i].grad.data)[k] = (float)(k % 777) * 1e-3f - 0.4f;
        }
    for (int hashed = 0; hashed < 2; hashed++) LS_TRY(measure_pairs(w, j, &ps, a, hashed));
    if (ls_world_rank(w) == 0) j->scale = ALL / (double)ls_params_count(&ps);
    ls_params_free(&ps);
    ls_arena_destroy(a);
    return LS_OK;
}

int main(int argc, char **argv)
{
    job j = { .pairs = argc > 1 ? atoi(argv[1]) : 301, .layers = argc > 2 ? atoi(argv[2]) : 0 };
    if (j.pairs < 1 || j.pairs > MOST_PAIRS || j.layers < 0) {
        fprintf(stderr, "bench_guard: expected 1 to %d pairs, and 0 layers or more\n", MOST_PAIRS);
        return 64;
    }
    use_threads(1);
    const ls_status st = ls_world_threads(2, NULL, measure, &j);
    if (st < 0) fprintf(stderr, "bench_guard: %s\n", ls_last_error());
    else printf("update_ms,%.3f,%.3f,%.3f\n", j.scale * j.plain, j.scale * j.hashed, j.scale * j.difference);
    return ls_status_exit_code(st);
}
