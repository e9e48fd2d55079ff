/* own_model.c -- a model that the library does not have, trained on any number of ranks; docs/your-own-model.md
 * goes through it. Which character comes next? From the 8 before it (Bengio et al. 2003, with a residual layer):
 *
 *   x = gelu(hidden([embed of the 8, side by side]))      [B, 8 E] -> [B, H]
 *   x = x + gelu(residual(x))
 *   logits = head(norm(x))                                [B, CHARS]
 */
#include <lockstep/lockstep.h>
#include <math.h>
#include <stdio.h>

enum { CHARS = 128, CONTEXT = 8, E = 16, H = 128, BATCH = 64, STEPS = 1000, SEED = 1, DRAWS = 100 };
enum { EMBED, HIDDEN, HIDDEN_BIAS, RESIDUAL, RESIDUAL_BIAS, NORM, NORM_BIAS, HEAD, PARAMS };
static const struct { const char *name; int64_t dim[2]; } shape[PARAMS] = { /* a bias has one dimension */
    { "embed.weight", { CHARS, E } }, { "hidden.weight", { H, CONTEXT * E } }, { "hidden.bias", { H } },
    { "residual.weight", { H, H } },  { "residual.bias", { H } },              { "norm.weight", { H } },
    { "norm.bias", { H } },           { "head.weight", { CHARS, H } },
};

static ls_tensor *loss_of(ls_tape *t, ls_param *p, ls_tensor *ids, ls_tensor *next) /* [B, CONTEXT], [B] -> a number */
{
    ls_tensor *x = ls_embedding(t, ids, &p[EMBED].t);
    x = ls_reshape(t, x, 2, (int64_t[]){ x ? x->dim[0] : 0, CONTEXT * E });
    x = ls_gelu(t, ls_linear(t, x, &p[HIDDEN].t, &p[HIDDEN_BIAS].t));
    x = ls_add(t, x, ls_gelu(t, ls_linear(t, x, &p[RESIDUAL].t, &p[RESIDUAL_BIAS].t)));
    x = ls_layernorm(t, x, &p[NORM].t, &p[NORM_BIAS].t, 1e-5f);
    return ls_softmax_cross_entropy(t, ls_linear(t, x, &p[HEAD].t, NULL), next, NULL, NULL);
}

typedef struct job {
    ls_params params;
    ls_arena *arena;
    ls_ddp *ddp;
    ls_optim *adamw;
    ls_tape *tape;
} job;

static ls_status build(job *j, ls_world *w, int64_t mine)
{
    ls_optim_config c;
    ls_tape *dry;
    for (int i = 0; i < PARAMS; i++)
        LS_TRY(ls_params_add(&j->params, shape[i].name, shape[i].dim[1] ? 2 : 1, shape[i].dim));
    LS_TRY(ls_arena_create((size_t)4 << 20, false, ls_world_ledger(w), &j->arena));
    LS_TRY(ls_params_bind(&j->params, j->arena, NULL)); /* DDP brings the gradients' memory */
    for (int i = 0; i < PARAMS; i++) {
        ls_tensor *p = &j->params.item[i].t;
        const size_t n = (size_t)ls_tensor_count(p);
        if (p->ndim == 2) ls_philox_normal(SEED, (uint64_t)i, 0, n, 1 / sqrtf((float)p->dim[1]), p->data);
        for (size_t k = 0; p->ndim == 1 && k < n; k++) ((float *)p->data)[k] = i == NORM;
    }
    LS_TRY(ls_ddp_create(ls_world_group(w), &j->params, NULL, &j->ddp));
    LS_TRY(ls_optim_defaults("adamw", &c));
    LS_TRY(ls_optim_create(&c, &j->params, j->arena, &j->adamw));
    LS_TRY(ls_tape_create_dry(&dry)); /* how much memory will a step take? */
    ls_tensor *ids = ls_tape_input(dry, LS_I64, 2, (int64_t[]){ mine, CONTEXT }, NULL);
    ls_status st = ls_backward(dry, loss_of(dry, j->params.item, ids, ls_tape_input(dry, LS_I64, 1, &mine, NULL)));
    const size_t bytes = ls_tape_peak(dry);
    ls_tape_destroy(dry);
    return st < 0 ? st : ls_tape_create(bytes, ls_world_ledger(w), ls_world_tracer(w), &j->tape);
}

static ls_status train(job *j, ls_world *w, const char *text, size_t n)
{
    const int rank = ls_world_rank(w);
    const int64_t mine = BATCH / ls_world_size(w);
    int64_t ids[BATCH][CONTEXT], next[BATCH];
    LS_TRY(build(j, w, mine));
    if (rank == 0) printf("ranks %d, parameters %lld\n", ls_world_size(w), (long long)ls_params_count(&j->params));
    for (int64_t step = 0; step < STEPS; step++) {
        for (int64_t i = 0; i < mine; i++) { /* sample i of all ranks' batch is the same however many ranks there are */
            float u;
            ls_philox_uniform(SEED, DRAWS, (uint64_t)(step * BATCH + rank * mine + i), 1, 0, 1, &u);
            const char *at = text + (size_t)((double)u * (double)(n - CONTEXT));
            for (int k = 0; k < CONTEXT; k++) ids[i][k] = at[k] & 127;
            next[i] = at[CONTEXT] & 127;
        }
        ls_params_zero_grad(&j->params);
        ls_tape_reset(j->tape);
        LS_TRY(ls_ddp_begin_forward(j->ddp, j->tape, true));
        ls_tensor *x = ls_tape_input(j->tape, LS_I64, 2, (int64_t[]){ mine, CONTEXT }, ids);
        ls_tensor *loss = loss_of(j->tape, j->params.item, x, ls_tape_input(j->tape, LS_I64, 1, &mine, next));
        LS_TRY(ls_backward(j->tape, loss)); /* and the ranks' gradients are averaged meanwhile */
        LS_TRY(ls_optim_step(j->adamw));
        LS_TRY(ls_all_reduce(ls_world_group(w), loss->data, loss->data, 1, LS_F32, LS_AVG));
        if (rank == 0 && (step == 0 || (step + 1) % 100 == 0))
            printf("step %4lld  loss %.6f\n", (long long)step + 1, (double)*(float *)loss->data);
    }
    return rank == 0 ? ls_ckpt_save("own_model.safetensors", &j->params, NULL) : LS_OK;
}

int main(int argc, char **argv)
{
    static char text[1 << 20];
    job j = { 0 };
    ls_world *w = NULL;
    FILE *f = argc == 2 ? fopen(argv[1], "rb") : NULL;
    const size_t n = f ? fread(text, 1, sizeof text, f) : 0;
    ls_status st = n > CONTEXT ? ls_world_join(NULL, &w) : ls_fail(LS_USAGE, "usage: own_model FILE, a text to learn");
    if (st == LS_OK && BATCH % ls_world_size(w) != 0)
        st = ls_fail(LS_BAD_CONFIG, "%d ranks do not divide a batch of %d", ls_world_size(w), BATCH);
    if (st == LS_OK) st = train(&j, w, text, n);
    if (st < 0) fprintf(stderr, "own_model: error[%s]: %s\n", ls_status_word(st), ls_last_error());
    if (st < 0 && w) (void)ls_world_abort(w, st); /* the other ranks end too, with our message */
    ls_tape_destroy(j.tape);
    ls_optim_destroy(j.adamw);
    ls_ddp_destroy(j.ddp);
    ls_params_free(&j.params);
    ls_arena_destroy(j.arena);
    ls_world_leave(w);
    if (f) fclose(f);
    return ls_status_exit_code(st);
}
