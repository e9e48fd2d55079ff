/* own_hook.c -- a communication hook that the library does not have; docs/your-own-model.md goes through it. Each
 * rank rounds its gradients to 8 bits and sends them to all ranks, each of which averages what it gets. With up to
 * seven ranks this is less traffic than an all_reduce in f32. What rounding loses is added to the gradients of the
 * next step.
 *
 * Which of four quadrants is a point in? */
#include <lockstep/lockstep.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the hook -------------------------------------------------------------------------- */

typedef struct int8_hook {
    ls_comm_hook hook; /* first: the library hands it back */
    int8_t *sent;      /* [size] messages per bucket: a scale, then an element per byte */
    float *lost;       /* [most]: what rounding has lost */
    size_t started, finished; /* elements of the buckets before the one that starts, or finishes, next */
} int8_hook;

static ls_status attach(ls_comm_hook *h, ls_group *g, const ls_params *ps, size_t most)
{
    int8_hook *c = (int8_hook *)h;
    const size_t size = (size_t)ls_group_size(g), bytes = size * (most + (size_t)ps->n * sizeof(float));
    void *p;
    LS_TRY(ls_alloc(ls_group_world(g), bytes, LS_MEM_COMM, &p));
    c->sent = p;
    c->lost = calloc(most, sizeof *c->lost);
    return c->lost ? LS_OK : ls_fail(LS_NO_MEMORY, "int8: %zu elements", most);
}

/* Where rank r's message of a bucket lies; `before`: elements of the buckets before it. */
static int8_t *message(const int8_hook *c, const ls_group *g, const ls_grad_bucket *b, size_t before, int r)
{
    const size_t size = (size_t)ls_group_size(g), scale = sizeof(float);
    return c->sent + size * (before + scale * (size_t)b->index) + (size_t)r * (scale + b->count);
}

static ls_status start(ls_comm_hook *h, ls_group *g, const ls_grad_bucket *b, ls_work **work)
{
    int8_hook *c = (int8_hook *)h;
    if (b->index == 0) c->started = 0;
    int8_t *all = message(c, g, b, c->started, 0), *mine = message(c, g, b, c->started, ls_group_rank(g));
    float *lost = c->lost + c->started, most = 0;
    for (size_t i = 0; i < b->count; i++) most = fmaxf(most, fabsf(b->data[i] += lost[i]));
    const float scale = most > 0 ? most / 127 : 1;
    memcpy(mine, &scale, sizeof scale);
    for (size_t i = 0; i < b->count; i++) {
        const float rounded = rintf(b->data[i] / scale);
        mine[sizeof scale + i] = (int8_t)rounded;
        lost[i] = b->data[i] - rounded * scale;
    }
    const ls_coll_args a = { .coll = LS_ALL_GATHER, .dtype = LS_U8, .out = all, .label = "int8",
                             .count = (size_t)ls_group_size(g) * (sizeof scale + b->count) };
    c->started += b->count;
    return ls_coll_start(g, &a, work);
}

/* Buckets finish in the order in which they started. */
static ls_status finish(ls_comm_hook *h, ls_group *g, const ls_grad_bucket *b, const float **out, size_t *count)
{
    int8_hook *c = (int8_hook *)h;
    (void)out, (void)count; /* the averages go to b->data */
    if (b->index == 0) c->finished = 0;
    memset(b->data, 0, b->count * sizeof *b->data);
    for (int r = 0; r < ls_group_size(g); r++) {
        const int8_t *from = message(c, g, b, c->finished, r);
        float scale;
        memcpy(&scale, from, sizeof scale);
        scale /= (float)ls_group_size(g);
        for (size_t i = 0; i < b->count; i++) b->data[i] += (float)from[sizeof scale + i] * scale;
    }
    c->finished += b->count;
    return LS_OK;
}

static void destroy(ls_comm_hook *h)
{
    free(((int8_hook *)h)->lost);
    free(h);
}

static ls_status int8_create(ls_comm_hook **out)
{
    int8_hook *c = calloc(1, sizeof *c);
    *out = &c->hook;
    if (!c) return ls_fail(LS_NO_MEMORY, "int8");
    c->hook = (ls_comm_hook){ .name = "int8", .attach = attach, .start = start, .finish = finish, .destroy = destroy };
    return LS_OK;
}

/* --- a model to train ------------------------------------------------------------------ */

enum { BATCH = 64, STEPS = 300, SEED = 1 };
static const int64_t dims[] = { 2, 32, 4 };
static const ls_model_config mlp = { .name = "mlp", .dims = dims, .ndims = 3, .init = LS_INIT_PHILOX, .seed = SEED };

typedef struct job {
    ls_model *model;
    ls_arena *arena;
    ls_ddp *ddp;
    ls_optim *adamw;
    ls_tape *tape;
} job;

static ls_status build(job *j, ls_world *w, int64_t mine, bool hooked)
{
    ls_optim_config c;
    ls_comm_hook *hook;
    LS_TRY(ls_optim_defaults("adamw", &c));
    c.lr = 3e-3;
    LS_TRY(ls_model_create(&mlp, &j->model));
    LS_TRY(ls_arena_create((size_t)1 << 20, false, ls_world_ledger(w), &j->arena));
    LS_TRY(ls_params_bind(&j->model->params, j->arena, NULL));
    LS_TRY(ls_model_init(j->model, &mlp));
    LS_TRY(ls_ddp_create(ls_world_group(w), &j->model->params, NULL, &j->ddp));
    if (hooked) {
        LS_TRY(int8_create(&hook));
        LS_TRY(ls_ddp_set_hook(j->ddp, hook));
    }
    LS_TRY(ls_optim_create(&c, &j->model->params, j->arena, &j->adamw));
    return ls_tape_create(ls_model_tape_bytes(j->model, mine), ls_world_ledger(w), ls_world_tracer(w), &j->tape);
}

/* Points [first, first + n) of a step's batch. */
static void draw(int64_t step, int64_t first, int64_t n, float *x, int64_t *quadrant)
{
    ls_philox_uniform(SEED, (uint64_t)step, (uint64_t)(2 * first), (size_t)(2 * n), -1, 1, x);
    for (int64_t i = 0; i < n; i++) quadrant[i] = (x[2 * i] > 0) + 2 * (x[2 * i + 1] > 0);
}

static ls_status train(job *j, ls_world *w)
{
    const int64_t n = BATCH / ls_world_size(w), first = ls_world_rank(w) * n;
    float x[2 * BATCH], sum;
    int64_t quadrant[BATCH];
    for (int64_t step = 1; step <= STEPS; step++) {
        draw(step, first, n, x, quadrant);
        ls_tape_reset(j->tape);
        ls_params_zero_grad(&j->model->params);
        LS_TRY(ls_ddp_begin_forward(j->ddp, j->tape, true));
        ls_tensor *points = ls_tape_input(j->tape, LS_F32, 2, (int64_t[]){ n, 2 }, x);
        ls_tensor *labels = ls_tape_input(j->tape, LS_I64, 1, &n, quadrant);
        ls_tensor *loss = ls_model_loss(j->model, j->tape, points, labels, NULL);
        LS_TRY(ls_backward(j->tape, loss));
        LS_TRY(ls_optim_step(j->adamw));
        sum = *(float *)loss->data;
        LS_TRY(ls_all_reduce(ls_world_group(w), NULL, &sum, 1, LS_F32, LS_AVG));
        if (ls_world_rank(w) == 0 && (step == 1 || step % 100 == 0))
            printf("step %lld loss %.4f\n", (long long)step, (double)sum);
    }
    return LS_OK;
}

/* own_hook [plain]: without the hook. */
int main(int argc, char **argv)
{
    job j = { 0 };
    ls_world *w = NULL;
    const bool hooked = argc < 2 || strcmp(argv[1], "plain") != 0;
    ls_status st = ls_world_join(NULL, &w);
    if (st == LS_OK && BATCH % ls_world_size(w) != 0)
        st = ls_fail(LS_USAGE, "%d ranks do not divide a batch of %d", ls_world_size(w), BATCH);
    if (st == LS_OK) st = build(&j, w, BATCH / ls_world_size(w), hooked);
    if (st == LS_OK) st = train(&j, w);
    if (st < 0) fprintf(stderr, "own_hook: %s\n", ls_last_error());
    if (st < 0 && w) (void)ls_world_abort(w, st);
    ls_tape_destroy(j.tape);
    ls_optim_destroy(j.adamw);
    ls_ddp_destroy(j.ddp);
    ls_model_destroy(j.model);
    ls_arena_destroy(j.arena);
    ls_world_leave(w);
    return ls_status_exit_code(st);
}
