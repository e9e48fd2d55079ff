/* own_data.c -- data that the library does not know: lines of a CSV file, parsed by worker threads while ranks compute.
 * docs/your-own-model.md goes through it. A line is a label (0, 1 or 2) and four numbers:  1,0.5,-2,3.25,1e-3
 *
 *   own_data FILE.csv [WORKERS]
 */
#include <lockstep/lockstep.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FEATURES = 4, CLASSES = 3, HIDDEN = 32, BATCH = 16, EPOCHS = 10, SEED = 1, LINES = 100000 };

typedef struct csv {
    char *text;        /* ends with a zero byte */
    char *line[LINES]; /* where each line begins */
    size_t n;
} csv;

static ls_status read_lines(const char *path, csv *c)
{
    FILE *f = fopen(path, "rb");
    if (!f) return ls_fail(LS_IO, "%s cannot be opened", path);
    c->text = calloc((size_t)1 << 24, 1);
    const size_t n = c->text ? fread(c->text, 1, ((size_t)1 << 24) - 1, f) : 0;
    fclose(f);
    for (char *at = c->text; n > 0 && at && *at && c->n < LINES; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
        c->line[c->n++] = at;
    return c->n > 0 ? LS_OK : ls_fail(LS_BAD_FILE, "%s has no lines", path);
}

/* Sample `index`: x [FEATURES] and its label. Runs in several threads at once. */
static ls_status get(void *arg, size_t index, void *x, int64_t *label)
{
    const csv *c = arg;
    char *end;
    *label = strtol(c->line[index], &end, 10);
    if (*label < 0 || *label >= CLASSES)
        return ls_fail(LS_BAD_FILE, "line %zu: label %lld, expected 0 to %d", index + 1, (long long)*label, CLASSES - 1);
    for (int f = 0; f < FEATURES; f++) {
        char *comma = end;
        if (*comma == ',' && comma[1] != '\n') ((float *)x)[f] = strtof(comma + 1, &end);
        if (end <= comma + 1) return ls_fail(LS_BAD_FILE, "line %zu: %d numbers after the label, expected %d", index + 1, f, FEATURES);
    }
    return LS_OK;
}

typedef struct job {
    ls_model *model;
    ls_ddp *ddp;
    ls_optim *adam;
    ls_tape *tape;
    ls_sampler *sampler;
    ls_loader *loader;
} job;

static ls_status build(job *j, ls_world *w, const ls_dataset *data, int workers)
{
    const ls_model_config mlp = { .name = "mlp", .dims = (int64_t[]){ FEATURES, HIDDEN, CLASSES }, .ndims = 3, .seed = SEED };
    const ls_loader_opts loader = { .batch = BATCH, .workers = workers };
    ls_optim_config c;
    LS_TRY(ls_model_create(&mlp, &j->model));
    LS_TRY(ls_arena_create((size_t)1 << 20, false, ls_world_ledger(w), &j->model->arena));
    LS_TRY(ls_params_bind(&j->model->params, j->model->arena, NULL));
    LS_TRY(ls_model_init(j->model, &mlp));
    LS_TRY(ls_ddp_create(ls_world_group(w), &j->model->params, NULL, &j->ddp));
    LS_TRY(ls_optim_defaults("adam", &c));
    c.lr = 0.01;
    LS_TRY(ls_optim_create(&c, &j->model->params, j->model->arena, &j->adam));
    LS_TRY(ls_tape_create(ls_model_tape_bytes(j->model, BATCH), ls_world_ledger(w), ls_world_tracer(w), &j->tape));
    LS_TRY(ls_sampler_create(data->n, ls_world_size(w), ls_world_rank(w), true, SEED, false, &j->sampler));
    return ls_loader_create_with(data, j->sampler, &loader, &j->loader);
}

static ls_status train(job *j, ls_world *w)
{
    ls_loader *l = j->loader;
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        double sum[2] = { 0 }; /* of losses, and samples */
        LS_TRY(ls_sampler_set_epoch(j->sampler, epoch));
        ls_loader_rewind(l);
        for (;;) {
            LS_TRY(ls_loader_next(l));
            if (l->n == 0) break;
            const int64_t n = (int64_t)l->n;
            ls_params_zero_grad(&j->model->params);
            ls_tape_reset(j->tape);
            LS_TRY(ls_ddp_begin_forward(j->ddp, j->tape, true));
            ls_tensor *x = ls_tape_input(j->tape, LS_F32, 2, (int64_t[]){ n, FEATURES }, l->x);
            ls_tensor *y = ls_tape_input(j->tape, LS_I64, 1, &n, l->label);
            ls_tensor *loss = ls_softmax_cross_entropy(j->tape, ls_model_forward(j->model, j->tape, x), y, NULL, NULL);
            LS_TRY(ls_backward(j->tape, loss));
            LS_TRY(ls_optim_step(j->adam));
            sum[0] += (double)*(float *)loss->data * (double)n;
            sum[1] += (double)n;
        }
        LS_TRY(ls_all_reduce(ls_world_group(w), sum, sum, 2, LS_F64, LS_SUM));
        if (ls_world_rank(w) == 0) printf("epoch %d  samples %.0f  loss %.4f\n", (int)epoch, sum[1], sum[0] / sum[1]);
    }
    return LS_OK;
}

int main(int argc, char **argv)
{
    static csv lines;
    job j = { 0 };
    ls_world *w = NULL;
    ls_status st = argc == 2 || argc == 3 ? read_lines(argv[1], &lines) : ls_fail(LS_USAGE, "usage: own_data FILE.csv [WORKERS]");
    const ls_dataset data = { .n = lines.n, .features = FEATURES, .classes = CLASSES, .get = get, .arg = &lines };
    if (st == LS_OK) st = ls_world_join(NULL, &w);
    if (st == LS_OK) st = build(&j, w, &data, argc == 3 ? atoi(argv[2]) : 2);
    if (st == LS_OK) st = train(&j, w);
    if (st < 0) fprintf(stderr, "own_data: error[%s]: %s\n", ls_status_word(st), ls_last_error());
    if (st < 0 && w) (void)ls_world_abort(w, st);
    ls_loader_destroy(j.loader);
    ls_sampler_destroy(j.sampler);
    ls_tape_destroy(j.tape);
    ls_optim_destroy(j.adam);
    ls_ddp_destroy(j.ddp);
    ls_model_destroy(j.model);
    ls_world_leave(w);
    free(lines.text);
    return ls_status_exit_code(st);
}
