/* probe.c -- what the claims of lab 01 need of the library beside `lockstep train`: each word prints one JSON object.
 *
 *   events READY [LAUNCH|late|first|rebuilt]   the order of a step's events, around bucket READY (LAUNCH: the launch
 *                                  of another one; late: without overlap; first: of step 1; rebuilt: `registered`
 *                                  lists the buckets of step 3)
 *   order [usual]                  gradients of bucket 1 are ready before those of bucket 0 (usual: after)
 *   asleep [inline]                buckets that are reduced while a layer sleeps (inline: nothing else moves them)
 *   mean [sum]                     gradients of DDP beside the mean, or the sum, computed by hand from all ranks
 *   replicas [alone]               after how many steps ranks have equal weights, with the wrapper or without
 *   uneven N,N,N,N                 ranks with so many samples, beside the gradient of the joint batch
 *   ids [alike]                    samples of each rank with the sampler, or without
 *   accumulate [forgotten]         bytes and gradient of a step of four micro-batches (forgotten: without no_sync)
 *   slow [RANK]                    rank 3, or another one, is late by 200 ms in three steps: how long each rank waits,
 *                                  and for whom
 *   skips [found|weighted|nobody]  the loss of rank 3 leaves out two layers (found: with find_unused; weighted: and
 *                                  each loss counts 4/3; nobody: it leaves none out): the gradient of one of them
 *                                  beside the mean over four ranks, and over the three others
 *   average OPTIMIZER              averaging gradients beside averaging parameters, after 20 steps; `state`: how far an
 *                                  optimizer's state is from that of another rank when parameters are averaged
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "probe.h"

enum { STEPS = 100 };

/* All values, or gradients, in a row; how many. */
static size_t copy(const net *n, bool gradients, float *out)
{
    const ls_params *ps = &n->model->params;
    size_t at = 0;
    for (int i = 0; i < ps->n; i++) {
        const size_t count = (size_t)ls_tensor_count(&ps->item[i].t);
        memcpy(out + at, gradients ? ps->item[i].t.grad->data : ps->item[i].t.data, count * sizeof *out);
        at += count;
    }
    return at;
}

/* The largest difference, relative to the largest magnitude of b. */
static double difference(const float *a, const float *b, size_t n)
{
    double most = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
        size = fmax(size, fabs((double)b[i]));
    }
    return most / size;
}

/* --- mean ---------------------------------------------------------------------------------------------------- */

static uint64_t hash_of(const float *v, size_t n)
{
    uint64_t h = 1469598103934665603u; /* FNV-1a */
    const unsigned char *p = (const unsigned char *)v;
    for (size_t i = 0; i < n * sizeof *v; i++) h = (h ^ p[i]) * 1099511628211u;
    return h;
}

static ls_status mean(ls_world *w, void *arg)
{
    job *j = arg;
    const int rank = ls_world_rank(w);
    net alone = { 0 }, ddp = { 0 };
    float *all = calloc(RANKS * (size_t)MOST, sizeof *all);
    float *got = calloc(MOST, sizeof *got), *by_hand = calloc(MOST, sizeof *by_hand);
    size_t n = 0;
    ls_status st = all && got && by_hand ? net_open(&alone, w, NULL, "sgd", SEED) : ls_fail(LS_NO_MEMORY, "gradients");
    if (st == LS_OK) st = net_open(&ddp, w, &caps, "sgd", SEED);
    if (st == LS_OK) st = net_backward(&alone, 0, 8 * rank, 8, 1.0f);
    if (st == LS_OK) st = net_backward(&ddp, 0, 8 * rank, 8, 1.0f);
    if (st == LS_OK) {
        (void)copy(&alone, true, all + (size_t)rank * MOST);
        n = copy(&ddp, true, got);
        st = ls_all_gather(ls_world_group(w), NULL, all, RANKS * (size_t)MOST, LS_F32);
    }
    for (size_t i = 0; st == LS_OK && i < n; i++) {
        double sum = 0;
        for (size_t r = 0; r < RANKS; r++) sum += (double)all[r * MOST + i];
        by_hand[i] = (float)(strcmp(j->more, "sum") == 0 ? sum : sum / RANKS);
    }
    if (st == LS_OK) j->hash[rank] = strcmp(j->more, "alone") == 0 ? hash_of(all + (size_t)rank * MOST, n) : hash_of(got, n);
    if (st == LS_OK && rank == 0) j->result = difference(got, by_hand, n);
    net_close(&ddp);
    net_close(&alone);
    free(all);
    free(got);
    free(by_hand);
    return st;
}

/* --- replicas ------------------------------------------------------------------------------------------------ */

static ls_status replicas(ls_world *w, void *arg)
{
    job *j = arg;
    const int rank = ls_world_rank(w);
    net n = { 0 };
    float *values = calloc(MOST, sizeof *values);
    ls_status st = values ? net_open(&n, w, strcmp(j->more, "alone") == 0 ? NULL : &caps, "sgd", SEED + (uint64_t)rank)
                          : ls_fail(LS_NO_MEMORY, "weights");
    for (uint64_t step = 0; st == LS_OK && step < STEPS; step++) {
        int64_t hash[RANKS] = { 0 };
        st = net_backward(&n, step, 8 * rank, 8, 1.0f);
        if (st == LS_OK) st = ls_optim_step(n.optim);
        if (st == LS_OK) hash[rank] = (int64_t)hash_of(values, copy(&n, false, values));
        if (st == LS_OK) st = ls_all_gather(ls_world_group(w), NULL, hash, RANKS, LS_I64);
        if (rank == 0) j->at[0] += hash[0] == hash[1] && hash[1] == hash[2] && hash[2] == hash[3];
    }
    if (rank == 0) j->at[1] = STEPS;
    net_close(&n);
    free(values);
    return st;
}

/* --- uneven -------------------------------------------------------------------------------------------------- */

static ls_status uneven(ls_world *w, void *arg)
{
    job *j = arg;
    const int rank = ls_world_rank(w);
    long long rows[RANKS] = { 0 }, first = 0, all = 0;
    net one = { 0 }, ddp = { 0 };
    float *joint = calloc(MOST, sizeof *joint), *got = calloc(MOST, sizeof *got);
    ls_status st = joint && got ? LS_OK : ls_fail(LS_NO_MEMORY, "gradients");
    if (st == LS_OK && sscanf(j->more, "%lld,%lld,%lld,%lld", &rows[0], &rows[1], &rows[2], &rows[3]) != RANKS)
        st = ls_fail(LS_USAGE, "uneven: expected four numbers of samples, as 8,8,8,2");
    for (int r = 0; st == LS_OK && r < RANKS; r++) {
        if (rows[r] < 1 || rows[r] > NET_MOST_ROWS / RANKS) st = ls_fail(LS_USAGE, "uneven: expected 1 to %d samples", NET_MOST_ROWS / RANKS);
        if (r < rank) first += rows[r];
        all += rows[r];
    }
    if (st == LS_OK) st = net_open(&one, w, NULL, "sgd", SEED);
    if (st == LS_OK) st = net_backward(&one, 0, 0, all, 1.0f);
    for (int weighted = 0; st == LS_OK && weighted < 2; weighted++) {
        const float weight = weighted ? (float)((double)rows[rank] * RANKS / (double)all) : 1.0f;
        st = net_open(&ddp, w, &caps, "sgd", SEED);
        if (st == LS_OK) st = net_backward(&ddp, 0, first, rows[rank], weight);
        if (st == LS_OK) (void)copy(&one, true, joint);
        const size_t n = st == LS_OK ? copy(&ddp, true, got) : 0;
        if (st == LS_OK && rank == 0) *(weighted ? &j->second : &j->result) = difference(got, joint, n);
        net_close(&ddp);
    }
    net_close(&one);
    free(joint);
    free(got);
    return st;
}

/* --- ids ----------------------------------------------------------------------------------------------------- */

static ls_status ids(ls_world *w, void *arg)
{
    job *j = arg;
    const int rank = ls_world_rank(w);
    const bool alike = strcmp(j->more, "alike") == 0;
    ls_sampler *s = NULL;
    bool same = false;
    ls_status st = ls_sampler_create(32, alike ? 1 : RANKS, alike ? 0 : rank, true, 0, false, &s);
    if (st == LS_OK) st = ls_check_sharded(ls_world_group(w), s->index, 8, &same);
    for (int i = 0; st == LS_OK && i < 8; i++) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)s->index[i]);
        add_name(j->text[rank], number);
    }
    if (rank == 0) j->result = same;
    ls_sampler_destroy(s);
    return st;
}

/* --- average ------------------------------------------------------------------------------------------------- */

static ls_status reduce(ls_group *g, const net *n, bool gradients)
{
    const ls_params *ps = &n->model->params;
    for (int i = 0; i < ps->n; i++) {
        const ls_tensor *t = gradients ? ps->item[i].t.grad : &ps->item[i].t;
        LS_TRY(ls_all_reduce(g, t->data, t->data, (size_t)ls_tensor_count(t), LS_F32, LS_AVG));
    }
    return LS_OK;
}

/* The difference of rank 1's state of the first layer from rank 0's; 0: the optimizer has none. */
static ls_status state_difference(ls_world *w, const net *n, double *out)
{
    const size_t count = (size_t)ls_tensor_count(&n->model->params.item[0].t);
    const float *mine = ls_optim_nstates(n->optim) > 0
        ? ls_optim_state(n->optim, n->model->params.item[0].name, ls_optim_state_name(n->optim, 0))
        : NULL;
    if (!mine) return LS_OK;
    float *all = calloc(RANKS * count, sizeof *all);
    if (!all) return ls_fail(LS_NO_MEMORY, "the state of an optimizer");
    memcpy(all + (size_t)ls_world_rank(w) * count, mine, count * sizeof *all);
    const ls_status st = ls_all_gather(ls_world_group(w), NULL, all, RANKS * count, LS_F32);
    if (st == LS_OK && ls_world_rank(w) == 0) *out = difference(all + count, all, count);
    free(all);
    return st;
}

static ls_status average(ls_world *w, void *arg)
{
    job *j = arg;
    ls_group *g = ls_world_group(w);
    float *values[2] = { calloc(MOST, sizeof(float)), calloc(MOST, sizeof(float)) };
    size_t n = 0;
    ls_status st = values[0] && values[1] ? LS_OK : ls_fail(LS_NO_MEMORY, "parameters");
    for (int gradients = 0; st == LS_OK && gradients < 2; gradients++) {
        net x = { 0 };
        st = net_open(&x, w, NULL, j->more, SEED);
        for (uint64_t step = 0; st == LS_OK && step < 20; step++) {
            st = net_backward(&x, step, 8 * ls_world_rank(w), 8, 1.0f);
            if (st == LS_OK && gradients) st = reduce(g, &x, true);
            if (st == LS_OK) st = ls_optim_step(x.optim);
            if (st == LS_OK && !gradients) st = reduce(g, &x, false);
        }
        if (st == LS_OK) n = copy(&x, false, values[gradients]);
        if (st == LS_OK && !gradients) st = state_difference(w, &x, &j->second);
        net_close(&x);
    }
    if (st == LS_OK && ls_world_rank(w) == 0) j->result = difference(values[0], values[1], n);
    free(values[0]);
    free(values[1]);
    return st;
}

/* --- the words ----------------------------------------------------------------------------------------------- */

static void print(const job *j)
{
    if (strcmp(j->word, "events") == 0)
        printf("{\"ready\": %d, \"launch\": %d, \"reduced\": %d, \"last_ready\": %d, \"step\": %d, \"launch_delay_us\": %.3f, "
               "\"arrived\": \"%s\", \"registered\": \"%s\", \"in_buckets\": \"%s\", \"model\": \"%s\", \"events\": \"%s\"}\n", j->at[0], j->at[1],
               j->at[2], j->at[3], j->at[4], j->result, j->text[0], j->text[1], j->text[2], j->text[3], j->events);
    else if (strcmp(j->word, "order") == 0)
        printf("{\"ready0\": %d, \"ready1\": %d, \"launch0\": %d, \"launch1\": %d, \"arrived\": \"%s\", \"events\": \"%s\"}\n", j->at[0], j->at[1],
               j->at[2], j->at[3], j->text[0], j->events);
    else if (strcmp(j->word, "asleep") == 0) printf("{\"reduced\": %d, \"sleeps\": %d}\n", j->at[0], j->at[1]);
    else if (strcmp(j->word, "replicas") == 0) printf("{\"equal\": %d, \"steps\": %d}\n", j->at[0], j->at[1]);
    else if (strcmp(j->word, "mean") == 0)
        printf("{\"difference\": %.9g, \"bits\": [\"%016llx\", \"%016llx\", \"%016llx\", \"%016llx\"]}\n", j->result,
               (unsigned long long)j->hash[0], (unsigned long long)j->hash[1], (unsigned long long)j->hash[2],
               (unsigned long long)j->hash[3]);
    else if (strcmp(j->word, "uneven") == 0)
        printf("{\"by_rank\": %.9g, \"by_count\": %.9g}\n", j->result, j->second);
    else if (strcmp(j->word, "ids") == 0)
        printf("{\"same\": %d, \"ids\": [\"%s\", \"%s\", \"%s\", \"%s\"]}\n", (int)j->result, j->text[0], j->text[1], j->text[2], j->text[3]);
    else if (strcmp(j->word, "accumulate") == 0)
        printf("{\"bytes\": %llu, \"difference\": %.9g}\n", (unsigned long long)j->hash[0], j->result);
    else if (strcmp(j->word, "slow") == 0)
        printf("{\"waited_ms\": [%llu, %llu, %llu, %llu], \"for\": [%d, %d, %d, %d]}\n", (unsigned long long)j->hash[0],
               (unsigned long long)j->hash[1], (unsigned long long)j->hash[2], (unsigned long long)j->hash[3],
               j->named[0], j->named[1], j->named[2], j->named[3]);
    else if (strcmp(j->word, "skips") == 0)
        printf("{\"of_four\": %.9g, \"of_three\": %.9g}\n", j->result, j->second);
    else
        printf("{\"difference\": %.9g, \"state\": %.9g}\n", j->result, j->second);
}

int main(int argc, char **argv)
{
    static const struct { const char *word; ls_rank_fn run; } words[] = {
        { "events", events }, { "order", order },   { "asleep", asleep }, { "mean", mean },       { "replicas", replicas },
        { "uneven", uneven }, { "ids", ids },       { "average", average },
        { "accumulate", accumulate }, { "slow", slow },     { "skips", skips },
    };
    static job j;
    ls_rank_fn run = NULL;
    j = (job){ .word = argc > 1 ? argv[1] : "", .more = argc > 2 ? argv[2] : "" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i].word, j.word) == 0) run = words[i].run;
    const char *last = argc > 2 ? argv[argc - 1] : "";
    j.first = strcmp(last, "first") == 0;
    j.late = strcmp(last, "late") == 0;
    j.rebuilt = strcmp(last, "rebuilt") == 0;
    if (run == events) j.from = j.other = atoi(j.more);
    if (run == events && argc > 3 && !j.late && !j.first && !j.rebuilt) j.other = atoi(argv[3]);
    const bool inl = run == asleep && strcmp(last, "inline") == 0;
    const ls_world_opts o = { .progress = run == asleep && !inl ? LS_PROGRESS_THREAD : LS_PROGRESS_INLINE };
    ls_status st = run && j.from >= 0 && j.from < 3 && j.other >= 0 && j.other < 3
        ? ls_world_threads(RANKS, &o, run, &j)
        : ls_fail(LS_USAGE, "expected events BUCKET [BUCKET|late|first|rebuilt], order [usual], asleep [inline], mean [sum|alone], "
                            "replicas [alone], uneven N,N,N,N, ids [alike], average OPTIMIZER, accumulate [forgotten], slow [RANK] or "
                            "skips [found|weighted|nobody]");
    if (st == LS_OK) print(&j);
    else fprintf(stderr, "probe: error[%s]: %s\n", ls_status_word(st), ls_last_error());
    return ls_status_exit_code(st);
}
