/* own_units.c -- a deep model of your own as units, so that Lockstep recomputes, counts and plans it unit by unit; the
 * section "Your own units" of docs/your-own-model.md goes through it. Which character comes next? From the 8 before it:
 *
 *   x = [embed of the 8, side by side]                    [B, 8 E] = [B, H]
 *   DEPTH times:  x = x + down(gelu(up(norm(x))))         H -> 4 H -> H
 *   logits = head(x)                                      [B, CHARS]
 */
#include <lockstep/lockstep.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CHARS = 128, CONTEXT = 8, E = 16, H = CONTEXT * E, DEPTH = 8, BATCH = 64, STEPS = 200, DRAWS = 100 };

/* --- the formula, unit by unit: parameters by their positions in the unit --------------------- */

enum { NORM, NORM_BIAS, UP, DOWN, IN_BLOCK };

static ls_tensor *embedding(const ls_unit *u, ls_tape *t, ls_tensor *ids, const ls_pass *pass)
{
    ls_tensor *x = ls_embedding(t, ids, &ls_unit_param(u, pass, 0)->t);
    return ls_reshape(t, x, 2, (int64_t[]){ x ? x->dim[0] : 0, H });
}

static ls_tensor *block(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass)
{
    ls_tensor *h = ls_layernorm(t, x, &ls_unit_param(u, pass, NORM)->t, &ls_unit_param(u, pass, NORM_BIAS)->t, 1e-5f);
    h = ls_gelu(t, ls_linear(t, h, &ls_unit_param(u, pass, UP)->t, NULL));
    return ls_add(t, x, ls_linear(t, h, &ls_unit_param(u, pass, DOWN)->t, NULL));
}

static ls_tensor *head(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass)
{
    ls_tensor *logits = ls_linear(t, x, &ls_unit_param(u, pass, 0)->t, NULL);
    if (pass->output != LS_OUTPUT_LOSS) return logits;
    return ls_softmax_cross_entropy(t, logits, pass->labels, NULL, NULL);
}

static const ls_unit_class embedding_unit = { .forward = embedding, .nparams = 1 };
static const ls_unit_class block_unit = { .forward = block, .nparams = IN_BLOCK, .recompute = true };
static const ls_unit_class head_unit = { .forward = head, .nparams = 1 };

/* --- the class ---------------------------------------------------------------------------------- */

static ls_status resolve(const ls_model_config *c, ls_model_config *out)
{
    *out = *c; /* nothing can be set */
    return LS_OK;
}

static ls_status add(ls_model *m, const char *unit, const char *name, int64_t d0, int64_t d1)
{
    char whole[LS_NAME_BYTES];
    snprintf(whole, sizeof whole, "%s.%s", unit, name);
    return ls_units_add(&m->units, &m->params, whole, d1 ? 2 : 1, (int64_t[]){ d0, d1 });
}

static ls_status create(const ls_model_config *c, ls_model *m)
{
    (void)c;
    LS_TRY(ls_units_begin(&m->units, "embedding", 0, &embedding_unit, NULL));
    LS_TRY(add(m, "embedding", "weight", CHARS, E));
    for (int l = 0; l < DEPTH; l++) {
        char name[LS_UNIT_NAME];
        snprintf(name, sizeof name, "block.%d", l);
        LS_TRY(ls_units_begin(&m->units, name, l, &block_unit, NULL));
        LS_TRY(add(m, name, "norm.weight", H, 0));
        LS_TRY(add(m, name, "norm.bias", H, 0));
        LS_TRY(add(m, name, "up.weight", 4 * H, H));
        LS_TRY(add(m, name, "down.weight", H, 4 * H));
    }
    LS_TRY(ls_units_begin(&m->units, "head", 0, &head_unit, NULL));
    return add(m, "head", "weight", CHARS, H);
}

static ls_status init(ls_model *m, const ls_model_config *c)
{
    for (int i = 0; i < m->params.n; i++) {
        ls_param *p = &m->params.item[i];
        const float one = strstr(p->name, "norm.weight") ? 1 : 0, stddev = 1 / sqrtf((float)p->t.dim[p->t.ndim - 1]);
        const ls_dist normal = { .kind = LS_DIST_NORMAL, .a = stddev }, same = { .kind = LS_DIST_CONSTANT, .a = one };
        LS_TRY(ls_init_part(p, c->seed, p->t.ndim == 2 ? normal : same));
    }
    return LS_OK;
}

static void input(const ls_model *m, int64_t batch, int64_t tokens, ls_model_input *in)
{
    (void)m;
    (void)tokens;
    *in = (ls_model_input){ LS_I64, 2, { batch, CONTEXT }, 1, { batch } };
}

static const ls_model_class stack = {
    .name = "stack", .resolve = resolve, .create = create, .init = init, .input = input,
};

/* --- training ------------------------------------------------------------------------------------- */

typedef struct job {
    ls_model *model;
    ls_arena *arena;
    ls_ddp *ddp;
    ls_optim *adamw;
    ls_tape *tape;
} job;

static ls_status build(job *j, ls_world *w, int64_t mine, ls_recompute how)
{
    const ls_model_config c = { .seed = 1 };
    ls_optim_config adamw;
    LS_TRY(ls_model_create_of(&stack, &c, &j->model));
    LS_TRY(ls_arena_create((size_t)32 << 20, false, ls_world_ledger(w), &j->arena));
    LS_TRY(ls_params_bind(&j->model->params, j->arena, NULL)); /* DDP brings the gradients' memory */
    LS_TRY(ls_model_init(j->model, &c));
    LS_TRY(ls_ddp_create(ls_world_group(w), &j->model->params, NULL, &j->ddp));
    LS_TRY(ls_optim_defaults("adamw", &adamw));
    LS_TRY(ls_optim_create(&adamw, &j->model->params, j->arena, &j->adamw));
    const size_t bytes = ls_model_tape_bytes_in(j->model, mine, 0, &(ls_tape_mode){ .recompute = how });
    LS_TRY(ls_tape_create(bytes, ls_world_ledger(w), ls_world_tracer(w), &j->tape));
    ls_tape_set_recompute(j->tape, how);
    if (ls_world_rank(w) == 0)
        printf("ranks %d, units %d, parameters %lld, activations %zu bytes\n", ls_world_size(w), j->model->units.n,
               (long long)ls_params_count(&j->model->params), bytes);
    return LS_OK;
}

static ls_status train(job *j, ls_world *w, const char *text, size_t n)
{
    const int64_t mine = BATCH / ls_world_size(w);
    int64_t ids[BATCH][CONTEXT], next[BATCH];
    for (int64_t step = 0; step < STEPS; step++) {
        for (int64_t i = 0; i < mine; i++) {
            float u;
            ls_philox_uniform(1, DRAWS, (uint64_t)(step * BATCH + ls_world_rank(w) * mine + i), 1, 0, 1, &u);
            const char *at = text + (size_t)((double)u * (double)(n - CONTEXT));
            for (int k = 0; k < CONTEXT; k++) ids[i][k] = at[k] & 127;
            next[i] = at[CONTEXT] & 127;
        }
        ls_params_zero_grad(&j->model->params);
        ls_tape_reset(j->tape);
        LS_TRY(ls_ddp_begin_forward(j->ddp, j->tape, true));
        ls_tensor *x = ls_tape_input(j->tape, LS_I64, 2, (int64_t[]){ mine, CONTEXT }, ids);
        ls_tensor *labels = ls_tape_input(j->tape, LS_I64, 1, &mine, next);
        ls_tensor *loss = ls_model_loss(j->model, j->tape, x, labels, NULL);
        LS_TRY(ls_backward(j->tape, loss));
        LS_TRY(ls_optim_step(j->adamw));
        LS_TRY(ls_all_reduce(ls_world_group(w), loss->data, loss->data, 1, LS_F32, LS_AVG));
        if (ls_world_rank(w) == 0 && (step == 0 || (step + 1) % 50 == 0))
            printf("step %4lld  loss %.6f\n", (long long)step + 1, (double)*(float *)loss->data);
    }
    return LS_OK;
}

int main(int argc, char **argv)
{
    static char text[1 << 20];
    job j = { 0 };
    ls_world *w = NULL;
    ls_recompute how;
    FILE *f = argc == 3 ? fopen(argv[1], "rb") : NULL;
    const size_t n = f ? fread(text, 1, sizeof text, f) : 0;
    ls_status st = n > CONTEXT ? LS_OK : ls_fail(LS_USAGE, "usage: own_units FILE none|selective|full");
    if (st == LS_OK) st = ls_recompute_find(argv[2], &how);
    if (st == LS_OK) st = ls_world_join(&(ls_world_opts){ .arena_bytes = (size_t)32 << 20 }, &w);
    if (st == LS_OK) st = build(&j, w, BATCH / ls_world_size(w), how);
    if (st == LS_OK) st = train(&j, w, text, n);
    if (st < 0) fprintf(stderr, "own_units: error[%s]: %s\n", ls_status_word(st), ls_last_error());
    if (st < 0 && w) (void)ls_world_abort(w, st);
    ls_tape_destroy(j.tape);
    ls_optim_destroy(j.adamw);
    ls_ddp_destroy(j.ddp);
    ls_model_destroy(j.model);
    ls_arena_destroy(j.arena);
    ls_world_leave(w);
    if (f) fclose(f);
    return ls_status_exit_code(st);
}
