/* reference.h -- train_ddp as it should be, or without one of its steps. */
#ifndef LS_LAB_SCRIPT_REFERENCE_H
#define LS_LAB_SCRIPT_REFERENCE_H
#include <stdbool.h>
#include <string.h>

#include "lockstep/lockstep.h"

enum { NO_WRAPPER = 1, NO_SET_EPOCH, NO_SAMPLER, NO_SHUFFLE, MOST_EPOCHS = 4, PER_RANK = 4 };

typedef struct shape {
    int in, hidden, out, samples, epochs;
    uint64_t seed;
} shape;

typedef struct result {
    double loss[MOST_EPOCHS];
    char digest[33];
} result;

typedef struct parts {
    ls_world *w;
    ls_ddp *ddp;
    ls_optim *adam;
    ls_tape *tape;
    ls_sampler *s;
    ls_loader *l;
    ls_model *m;
} parts;

static inline ls_status reference_epoch(const parts *p, const shape *s, int e, int lacks, double *loss)
{
    ls_status st = lacks == NO_SET_EPOCH ? LS_OK : ls_sampler_set_epoch(p->s, (uint64_t)e);
    ls_loader_rewind(p->l);
    while (st == LS_OK && (st = ls_loader_next(p->l)) == LS_OK && p->l->n > 0) {
        const int64_t n = (int64_t)p->l->n, dim[2] = { n, s->in };
        ls_tape_reset(p->tape);
        if (p->ddp) LS_TRY(ls_ddp_begin_forward(p->ddp, p->tape, true));
        ls_tensor *x = ls_tape_input(p->tape, LS_F32, 2, dim, p->l->x);
        ls_tensor *y = ls_tape_input(p->tape, LS_I64, 1, &n, p->l->label);
        ls_tensor *of = ls_softmax_cross_entropy(p->tape, ls_model_forward(p->m, p->tape, x), y, NULL, NULL);
        LS_TRY(ls_backward(p->tape, of));
        LS_TRY(ls_optim_step(p->adam));
        *loss += (double)*(float *)of->data / (double)ls_loader_batches(p->l);
    }
    return st;
}

static inline ls_status reference_open(parts *p, const shape *s, int rank, int size, int lacks, const ls_dataset *data)
{
    const int64_t dims[3] = { s->in, s->hidden, s->out };
    const ls_model_config mc = { .name = "mlp", .dims = dims, .ndims = 3, .init = LS_INIT_PHILOX,
                                 .seed = s->seed + (uint64_t)rank };
    const ls_world_opts o = { .rank = rank, .size = size };
    ls_optim_config oc;
    LS_TRY(ls_world_join(&o, &p->w));
    LS_TRY(ls_model_create(&mc, &p->m));
    LS_TRY(ls_arena_create(4 * ls_params_nbytes(&p->m->params) + 65536, false, NULL, &p->m->arena));
    LS_TRY(ls_params_bind(&p->m->params, p->m->arena, lacks == NO_WRAPPER ? p->m->arena : NULL));
    LS_TRY(ls_model_init(p->m, &mc));
    if (lacks != NO_WRAPPER) LS_TRY(ls_ddp_create(ls_world_group(p->w), &p->m->params, NULL, &p->ddp));
    LS_TRY(ls_optim_defaults("adam", &oc));
    LS_TRY(ls_optim_create(&oc, &p->m->params, p->m->arena, &p->adam));
    LS_TRY(ls_tape_create(ls_model_tape_bytes(p->m, PER_RANK), NULL, NULL, &p->tape));
    LS_TRY(ls_sampler_create(data->n, size, rank, lacks != NO_SHUFFLE, 0, false, &p->s));
    return ls_loader_create(data, lacks == NO_SAMPLER ? NULL : p->s, PER_RANK, false, &p->l);
}

/* The same weights, to the bit, and losses. */
static inline bool are_equal(const shape *s, const result *a, const result *b)
{
    for (int e = 0; e < s->epochs; e++)
        if (!(a->loss[e] - b->loss[e] < 1e-6 && b->loss[e] - a->loss[e] < 1e-6)) return false;
    return strcmp(a->digest, b->digest) == 0;
}

/* What rank `rank` of `size` gets; lacks: 0, or the step that is left out. All ranks call it. *wrong (NULL: nothing is
 * compared) is set if `found` of any rank is something else, and all ranks know it afterwards. */
static inline ls_status reference(const shape *s, int rank, int size, int lacks, const result *found,
                                  _Atomic bool *wrong, result *out)
{
    parts p = { 0 };
    ls_dataset data = { 0 };
    *out = (result){ 0 };
    ls_status st = ls_dataset_synthetic(s->seed, (size_t)s->samples, (size_t)s->in, s->out, &data);
    if (st == LS_OK) st = reference_open(&p, s, rank, size, lacks, &data);
    for (int e = 0; st == LS_OK && e < s->epochs; e++) st = reference_epoch(&p, s, e, lacks, &out->loss[e]);
    if (st == LS_OK) st = ls_params_digest(&p.m->params, out->digest);
    if (st == LS_OK && wrong && !are_equal(s, found, out)) *wrong = true;
    if (st == LS_OK) st = ls_barrier(ls_world_group(p.w));
    ls_loader_destroy(p.l);
    ls_sampler_destroy(p.s);
    ls_tape_destroy(p.tape);
    ls_optim_destroy(p.adam);
    ls_ddp_destroy(p.ddp);
    ls_world_leave(p.w);
    ls_model_destroy(p.m);
    ls_dataset_free(&data);
    return st;
}

#endif
