/* expert_loads.c -- a few steps of the whole model on one rank, and what its routers did in the last one. */
#include "train/expert_loads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/env.h"
#include "base/log.h"
#include "base/team.h"
#include "model/moe.h"
#include "train/alone.h"
#include "train/trainer.h"

#define STEPS 8 /* at the rate with which runs begin: after three, routers of small models prefer some experts */
#define MOST_FLOPS 1e11 /* per step: seconds on a slow machine, and no step is cut short */

typedef struct job {
    const ls_train_config *c;
    int copies;
    uint64_t long_ns;
    int64_t most; /* steps */
    ls_expert_loads *out;
} job;

/* Of the newest step: each token is counted for k experts. */
static ls_status take(const ls_model *m, int64_t T, ls_expert_loads *out)
{
    const int64_t L = m->lm.n_layer, E = m->lm.n_experts;
    out->layers = L;
    out->experts = E;
    if (m->lm.capacity_factor > 0)
        out->most = (double)ls_moe_capacity(T, m->lm.top_k, E, m->lm.capacity_factor) / (double)T;
    out->part = calloc((size_t)(L * E), sizeof *out->part);
    if (!out->part) return ls_fail(LS_NO_MEMORY, "the loads of %lld experts", (long long)E);
    for (int l = 0; l < L; l++) {
        const double *chosen = ls_moe_layer_words(m, ls_moe_counts(m), l);
        double all = 0;
        for (int64_t e = 0; e < E; e++) all += chosen[e];
        for (int64_t e = 0; e < E && all > 0; e++) {
            const double part = (double)m->lm.top_k * chosen[e] / all;
            out->part[l * E + e] = (float)part;
            if (part > out->busiest) out->busiest = part;
        }
    }
    return LS_OK;
}

static ls_status train_rank(ls_world *w, void *arg)
{
    const job *j = arg;
    const ls_env *env = ls_env_get();
    const uint64_t begin = env->mono_ns();
    ls_trainer *t;
    ls_step_stats s;
    (void)ls_team_resize(ls_team_planned(j->copies));
    LS_TRY(ls_trainer_create_in(j->c, w, NULL, &t));
    ls_status st = LS_OK;
    int n = 0;
    do st = ls_train_step(t, &s);
    while (st == LS_OK && ++n < j->most && env->mono_ns() - begin < j->long_ns);
    if (st == LS_OK) st = take(t->par.model, ls_train_seq_len(j->c), j->out);
    if (st == LS_OK) j->out->steps = n;
    ls_trainer_destroy(t);
    return st;
}

/* All experts are counted, though each token meets some of them: they have to be read all the same. */
static ls_status check_length(const ls_train_config *c)
{
    ls_source source = { 0 };
    ls_model_config mc;
    const ls_status st = ls_train_model(c, &source, &mc);
    const double tokens = (double)(c->train.global_batch * ls_train_seq_len(c));
    const double flops = st == LS_OK ? 6 * (double)ls_model_count(&mc) * tokens : 0;
    ls_source_free(&source);
    if (flops < MOST_FLOPS) return st;
    return ls_fail(LS_UNSUPPORTED, "a step of one rank takes %.0f GFLOP: expected less than %.0f", 1e-9 * flops,
                   1e-9 * MOST_FLOPS);
}

ls_status ls_expert_loads_find(const ls_train_config *c, const ls_plan *p, int copies, double long_s,
                               ls_expert_loads *out)
{
    ls_train_config one;
    *out = (ls_expert_loads){ 0 };
    if (strcmp(c->model.name, "moe") != 0 || c->moe.force_expert >= 0) return LS_OK;
    ls_alone_config(c, p, &one);
    one.train.seq_len = c->train.seq_len;
    one.memory.check = true;
    LS_TRY(ls_alone_learn(c, p, &one));
    LS_TRY(check_length(&one));
    const int64_t most = c->train.steps > 0 && c->train.steps < STEPS ? c->train.steps : STEPS;
    job j = { &one, copies, (uint64_t)(1e9 * long_s), most, out };
    const int level = ls_context_get()->log_level;
    ls_context_get()->log_level = LS_LOG_WARN; /* what a run says of itself is said once */
    const ls_status st = ls_alone_run(&one, copies, train_rank, &j);
    ls_context_get()->log_level = level;
    return st < 0 ? ls_while(st, "finding the loads of experts") : LS_OK;
}

void ls_expert_loads_busiest(const float *part, int64_t layers, int64_t experts, int ranks, int rank, float *out)
{
    const int64_t n = experts / ranks; /* of a rank */
    memcpy(out, part, (size_t)(layers * experts) * sizeof *out);
    for (int64_t l = 0; l < layers; l++) {
        const float *from = part + l * experts;
        double most = -1;
        int busiest = 0;
        for (int r = 0; r < ranks; r++) {
            double sum = 0;
            for (int64_t e = 0; e < n; e++) sum += (double)from[r * n + e];
            if (sum > most) most = sum, busiest = r;
        }
        memcpy(out + l * experts + rank * n, from + busiest * n, (size_t)n * sizeof *out);
        memcpy(out + l * experts + busiest * n, from + rank * n, (size_t)n * sizeof *out);
    }
}

void ls_expert_loads_of_ranks(const ls_expert_loads *l, int ranks, double *out)
{
    const int64_t n = l->experts / ranks; /* of a rank */
    for (int64_t i = 0; i < l->layers; i++) {
        double all = 0, *const of = out + i * ranks;
        for (int r = 0; r < ranks; r++) of[r] = 0;
        for (int64_t e = 0; e < n * ranks; e++) {
            const double part = (double)l->part[i * l->experts + e], got = l->most > 0 ? fmin(part, l->most) : part;
            of[e / n] += got;
            all += got;
        }
        for (int r = 0; r < ranks; r++) of[r] = all > 0 ? ranks * of[r] / all : 1;
    }
}

void ls_expert_loads_free(ls_expert_loads *l)
{
    free(l->part);
    *l = (ls_expert_loads){ 0 };
}
