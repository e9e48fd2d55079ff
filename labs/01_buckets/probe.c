/* probe.c -- what the claims of lab 01 need of the library beside `lockstep train`: each word prints one JSON object.
 *
 *   events READY [LAUNCH|late|first]   the order of a step's events, around bucket READY (LAUNCH: the launch of
 *                                  another one; late: without overlap; first: of step 1)
 *   mean [sum]                     gradients of DDP beside the mean, or the sum, computed by hand from all ranks
 *   uneven N,N,N,N                 ranks with so many samples, beside the gradient of the joint batch
 *   ids [alike]                    samples of each rank with the sampler, or without
 *   average OPTIMIZER              averaging gradients beside averaging parameters, after 20 steps
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../net.h"

enum { RANKS = 4, SEED = 42, MOST = 32768, BUCKETS = 8, NAMES = 1024 };

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

typedef struct job {
    const char *word, *more;
    bool late, first;
    int from, other; /* buckets */
    uint64_t hash[RANKS];
    double result, second;
    char text[4][NAMES];
    int at[5];
} job;

/* --- events -------------------------------------------------------------------------------------------------- */

typedef struct watcher {
    ls_comm_hook hook; /* first: DDP hands it back */
    const ls_params *ps;
    int clock, last, launch[BUCKETS], reduced[BUCKETS], ready[16];
    char arrived[NAMES];
} watcher;

static ls_status start(ls_comm_hook *h, ls_group *g, const ls_grad_bucket *b, ls_work **work)
{
    watcher *x = (watcher *)h;
    const ls_coll_args a = { .coll = LS_ALL_REDUCE, .dtype = LS_F32, .out = b->data, .count = b->count, .op = LS_AVG, .label = "probe" };
    if (b->index < BUCKETS) x->launch[b->index] = ++x->clock;
    return ls_coll_start(g, &a, work);
}

static ls_status finish(ls_comm_hook *h, ls_group *g, const ls_grad_bucket *b, const float **out, size_t *count)
{
    watcher *x = (watcher *)h;
    (void)g, (void)out, (void)count; /* the averages are in b->data */
    if (b->index < BUCKETS) x->reduced[b->index] = ++x->clock;
    return LS_OK;
}

static void add_name(char *list, const char *name)
{
    const size_t n = strlen(list);
    snprintf(list + n, NAMES - n, "%s%s", n ? " " : "", name);
}

static ls_status grad_ready(void *arg, ls_tensor *t)
{
    watcher *x = arg;
    for (int i = 0; i < x->ps->n; i++)
        if (&x->ps->item[i].t == t) {
            x->ready[i] = x->last = ++x->clock;
            add_name(x->arrived, x->ps->item[i].name);
        }
    return LS_OK;
}

static void list_buckets(const net *n, char *out)
{
    for (int i = 0; i < ls_ddp_buckets(n->ddp); i++) {
        const ls_ddp_bucket_info b = ls_ddp_bucket(n->ddp, i);
        for (int k = 0; k < b.nparams; k++) add_name(out, n->model->params.item[b.param[k]].name);
    }
}

static ls_status events(ls_world *w, void *arg)
{
    job *j = arg;
    const uint64_t steps = j->first ? 1 : 3;
    const ls_ddp_config c = { .first_bucket = 2048, .bucket_cap = 16384, .no_overlap = j->late };
    const ls_tape_events listen = { .grad_ready = grad_ready };
    const int rank = ls_world_rank(w);
    watcher *x = calloc(1, sizeof *x);
    net n = { 0 };
    if (!x) return ls_fail(LS_NO_MEMORY, "a hook");
    x->hook = (ls_comm_hook){ .name = "probe", .start = start, .finish = finish };
    ls_status st = net_open(&n, w, &c, "sgd", SEED);
    x->ps = &n.model->params;
    if (st == LS_OK) st = ls_ddp_set_hook(n.ddp, &x->hook);
    if (st == LS_OK) st = ls_tape_listen(n.tape, &listen, x); /* before DDP: it hears of a gradient first */
    for (uint64_t step = 0; st == LS_OK && step < steps; step++) {
        x->clock = 0;
        *x->arrived = 0;
        st = net_backward(&n, step, 8 * rank, 8, 1.0f);
        if (st == LS_OK && rank == 0 && step == 0) {
            snprintf(j->text[0], NAMES, "%s", x->arrived);
            list_buckets(&n, j->text[1]);
        }
        if (st == LS_OK) st = ls_optim_step(n.optim);
    }
    if (st == LS_OK && rank == 0) {
        const ls_ddp_bucket_info b = ls_ddp_bucket(n.ddp, j->from);
        for (int k = 0; k < b.nparams; k++)
            if (x->ready[b.param[k]] > j->at[0]) j->at[0] = x->ready[b.param[k]];
        j->at[1] = x->launch[j->other];
        j->at[2] = x->reduced[j->other];
        j->at[3] = x->last;
        j->at[4] = ++x->clock;
        list_buckets(&n, j->text[2]);
    }
    net_close(&n);
    free(x);
    return st;
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
    const ls_ddp_config c = { .first_bucket = 2048, .bucket_cap = 16384 };
    const int rank = ls_world_rank(w);
    net alone = { 0 }, ddp = { 0 };
    float *all = calloc(RANKS * (size_t)MOST, sizeof *all);
    float *got = calloc(MOST, sizeof *got), *by_hand = calloc(MOST, sizeof *by_hand);
    size_t n = 0;
    ls_status st = all && got && by_hand ? net_open(&alone, w, NULL, "sgd", SEED) : ls_fail(LS_NO_MEMORY, "gradients");
    if (st == LS_OK) st = net_open(&ddp, w, &c, "sgd", SEED);
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

/* --- uneven -------------------------------------------------------------------------------------------------- */

static ls_status uneven(ls_world *w, void *arg)
{
    job *j = arg;
    const ls_ddp_config c = { .first_bucket = 2048, .bucket_cap = 16384 };
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
        st = net_open(&ddp, w, &c, "sgd", SEED);
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
        printf("{\"ready\": %d, \"launch\": %d, \"reduced\": %d, \"last_ready\": %d, \"step\": %d, \"arrived\": \"%s\", "
               "\"registered\": \"%s\", \"in_buckets\": \"%s\"}\n", j->at[0], j->at[1], j->at[2], j->at[3], j->at[4], j->text[0],
               j->text[1], j->text[2]);
    else if (strcmp(j->word, "mean") == 0)
        printf("{\"difference\": %.9g, \"bits\": [\"%016llx\", \"%016llx\", \"%016llx\", \"%016llx\"]}\n", j->result,
               (unsigned long long)j->hash[0], (unsigned long long)j->hash[1], (unsigned long long)j->hash[2],
               (unsigned long long)j->hash[3]);
    else if (strcmp(j->word, "uneven") == 0)
        printf("{\"by_rank\": %.9g, \"by_count\": %.9g}\n", j->result, j->second);
    else if (strcmp(j->word, "ids") == 0)
        printf("{\"same\": %d, \"ids\": [\"%s\", \"%s\", \"%s\", \"%s\"]}\n", (int)j->result, j->text[0], j->text[1], j->text[2], j->text[3]);
    else
        printf("{\"difference\": %.9g}\n", j->result);
}

int main(int argc, char **argv)
{
    static const struct { const char *word; ls_rank_fn run; } words[] = {
        { "events", events }, { "mean", mean }, { "uneven", uneven }, { "ids", ids }, { "average", average },
    };
    static job j;
    ls_rank_fn run = NULL;
    j = (job){ .word = argc > 1 ? argv[1] : "", .more = argc > 2 ? argv[2] : "" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i].word, j.word) == 0) run = words[i].run;
    j.first = argc > 2 && strcmp(argv[argc - 1], "first") == 0;
    j.late = argc > 2 && strcmp(argv[argc - 1], "late") == 0;
    if (run == events) j.from = j.other = atoi(j.more);
    if (run == events && argc > 3 && !j.late && !j.first) j.other = atoi(argv[3]);
    ls_status st = run && j.from >= 0 && j.from < 3 && j.other >= 0 && j.other < 3
        ? ls_world_threads(RANKS, NULL, run, &j)
        : ls_fail(LS_USAGE, "expected events BUCKET [BUCKET|late|first], mean [sum|alone], uneven N,N,N,N, ids [alike] or average OPTIMIZER");
    if (st == LS_OK) print(&j);
    else fprintf(stderr, "probe: error[%s]: %s\n", ls_status_word(st), ls_last_error());
    return ls_status_exit_code(st);
}
