/* bench_generate.c -- tokens a second with a KV cache, beside how fast memory gives the weights.
 *
 * A token needs every weight once (learned positions and, where the head has a matrix of its own, the embedding give
 * one row), and the keys and values of all tokens before it. The limit is those bytes at the speed at which the same
 * weights are only added up, by as many threads (OMP_NUM_THREADS), in turns with the tokens: nothing can be faster.
 * `of limit` is the median over the turns, so that what slows one slows the other; `at best` compares the quickest
 * token with the quickest reading, what a busy machine disturbs least. Sampling (temperature 0.8, top-k 200) is part of
 * a token.
 *
 *   build/bench/bench_generate [PRESET [CONTEXT ...]]        gpt2 32 1000
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "lockstep/decode.h"
#include "median.h"
#include "tensor/threads.h"

#define TURNS 41
#define PART ((int64_t)1 << 18) /* floats, of a thread */
#define SPAN 64  /* floats that are added side by side */

LS_KERNEL static float add_up(const float *restrict x, int64_t n)
{
    float part[SPAN] = { 0 };
    for (int64_t i = 0; i + SPAN <= n; i += SPAN)
        for (int j = 0; j < SPAN; j++) part[j] += x[i + j];
    for (int j = 1; j < SPAN; j++) part[0] += part[j];
    return part[0];
}

static _Noreturn void die(void)
{
    fprintf(stderr, "%s\n", ls_last_error());
    exit(1);
}

typedef struct sweeping {
    const float *x;
    int64_t n;
    float sum[LS_TEAM_MOST]; /* of each thread */
} sweeping;

static void sweep_part(void *arg, int64_t i)
{
    sweeping *s = arg;
    const int64_t first = i * PART;
    s->sum[ls_team_index()] += add_up(s->x + first, s->n - first < PART ? s->n - first : PART);
}

/* Seconds to read all parameters. */
static double sweep(const ls_params *ps, volatile float *sink)
{
    const float *x = ps->item[0].t.data, *last = ps->item[ps->n - 1].t.data; /* side by side in their arena */
    const int64_t n = last + ls_tensor_count(&ps->item[ps->n - 1].t) - x;
    const uint64_t t0 = now_ns();
    static sweeping s;
    s = (sweeping){ .x = x, .n = n };
    ls_team_run(sweep_part, &s, (n + PART - 1) / PART);
    *sink = s.sum[0];
    return 1e-9 * (double)(now_ns() - t0);
}

static void measure(ls_model *m, const ls_model_preset *p, ls_decoder *d, size_t context)
{
    const ls_lm_config *c = &p->lm;
    const size_t all = (size_t)ls_params_count(&m->params) * 4, row = (size_t)c->d_model * 4;
    size_t read = all;
    if (strcmp(p->model, "gpt2") == 0) read -= (size_t)(c->seq_len - 1) * row;
    if (!c->tied) read -= (size_t)(c->vocab_size - 1) * row;
    const double kv = 8.0 * (double)(c->n_layer * c->n_kv_head * (c->d_model / c->n_head)) * (double)context;
    double token[TURNS], pass[TURNS], share[TURNS];
    uint32_t *id = malloc((context + 1) * sizeof *id), next = 0;
    uint64_t *weight = malloc((size_t)c->vocab_size * sizeof *weight);
    const float *logits;
    const ls_sample_opts o = { .temperature = 0.8, .top_k = 200, .top_p = 1 };
    volatile float sink;
    if (!id || !weight) exit(1);
    for (size_t i = 0; i < context; i++) id[i] = (uint32_t)(i * 7919 % (size_t)c->vocab_size);
    if (ls_decoder_rewind(d, 0) < 0) die();
    const uint64_t t0 = now_ns();
    if (ls_decoder_feed(d, id, context, &logits) < 0) die();
    const double prompt = 1e-9 * (double)(now_ns() - t0);
    const double bytes = (double)read + kv;
    for (int r = 0; r < TURNS; r++) {
        pass[r] = sweep(&m->params, &sink);
        if (ls_decoder_rewind(d, context) < 0) die();
        const uint64_t start = now_ns();
        if (ls_decoder_feed(d, &next, 1, &logits) < 0) die();
        if (ls_sample(&o, logits, (size_t)c->vocab_size, (uint64_t)r, weight, &next) < 0) die();
        token[r] = 1e-9 * (double)(now_ns() - start);
        share[r] = pass[r] * bytes / (double)all / token[r];
    }
    const double s = median(token, TURNS), rate = (double)all / median(pass, TURNS);
    const double best = pass[0] * bytes / (double)all / token[0]; /* sorted by median() */
    printf("%-12s %7d %8zu %9.1f %9.2f %9.1f %9.2f %9.2f %9.1f %8.1f %% %8.1f %%\n", p->name, ls_team_size(), context,
           (double)context / prompt, 1e3 * s, 1 / s, 1e-6 * bytes, 1e-9 * rate, rate / bytes,
           100 * median(share, TURNS), 100 * best);
    free(weight);
    free(id);
}

int main(int argc, char **argv)
{
    const ls_model_preset *p = ls_model_preset_find(argc > 1 ? argv[1] : "gpt2");
    ls_model *m;
    ls_arena *arena;
    ls_decoder *d;
    if (!p) {
        fprintf(stderr, "no preset %s\n", argv[1]);
        return 1;
    }
    const ls_model_config c = { .name = p->model, .lm = p->lm, .init = LS_INIT_PHILOX };
    if (ls_model_create(&c, &m) < 0) die();
    if (ls_arena_create(ls_params_nbytes(&m->params) + 64 * (size_t)m->params.n, false, NULL, &arena) < 0) die();
    if (ls_params_bind(&m->params, arena, NULL) < 0 || ls_model_init(m, &c) < 0) die();
    if (ls_decoder_create(m, NULL, &d) < 0) die();
    printf("# median of %d tokens; MB read for a token; GB/s of adding up the weights; tokens/s at that speed\n",
           TURNS);
    printf("%-12s %7s %8s %9s %9s %9s %9s %9s %9s %10s %10s\n", "model", "threads", "context", "prompt/s", "ms", "tokens/s",
           "MB", "GB/s", "limit/s", "of limit", "at best");
    for (int i = 2; i < argc; i++) measure(m, p, d, strtoull(argv[i], NULL, 0));
    if (argc <= 2) {
        measure(m, p, d, 32);
        measure(m, p, d, ls_decoder_capacity(d) <= 1000 ? ls_decoder_capacity(d) / 2 : 1000);
    }
    ls_decoder_destroy(d);
    ls_model_destroy(m);
    ls_arena_destroy(arena);
    return 0;
}
