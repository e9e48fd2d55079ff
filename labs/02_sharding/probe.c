/* probe.c -- what the claims of lab 02 need beside `lockstep train`: each word prints one JSON object.
 *
 *   trace [default|always|never] [layer=N]     the order of what happens to layer N (0) in a step of ZeRO-3 with
 *                                              gathered layers (FSDP): numbers of its events
 *   limit RECIPE TEXT STAGE BYTES [WORD..]     a training on 4 ranks that may take what it needs and BYTES more (or
 *                                              less): its exit status, and what the message proposes
 *   save [skip]                                a checkpoint of that training: on how many ranks the call succeeded
 *                                              (skip: rank 3 does not make it), and on how many the message names
 *                                              rank 3
 *
 * Of trace: a listener on the tape looks at the layer whenever the tape says something: its parameters have values, or
 * none.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep/lockstep.h"
#include "probe.h"

enum { RANKS = 4, BATCH = 2, TOKENS = 64, VOCABULARY = 260, EVENTS = 8 };

typedef struct watcher {
    ls_world *w;
    const ls_param *param; /* of the layer that is watched */
    const char *layer;
    bool there;            /* it has values */
    int clock, left;       /* events so far; units whose backward is over before that of the layer */
    uint64_t reduced;      /* reduce_scatters before this step */
    int gather[2], release[2], forward, backward, reduce, gathers;
} watcher;

typedef struct job {
    ls_reshard reshard;
    int layer;
    watcher of0; /* rank 0's */
    bool save, skip;
    char dir[1024]; /* for the checkpoint */
    bool saved[RANKS], names3[RANKS];
} job;

/* Notes what has changed since the last look. */
static void look(watcher *x)
{
    ls_comm_stats s;
    const bool there = x->param->t.data != NULL;
    if (there && !x->there && x->gathers < 2) x->gather[x->gathers++] = ++x->clock;
    if (!there && x->there && x->gathers > 0) x->release[x->gathers - 1] = ++x->clock;
    x->there = there;
    ls_comm_stats_read(x->w, &s);
    const uint64_t reduced = s.of[LS_REDUCE_SCATTER].ops - x->reduced; /* one per unit, in the order of backward */
    if (x->backward && !x->reduce && reduced > (uint64_t)x->left) x->reduce = ++x->clock;
}

static ls_status unit(void *arg, const struct ls_unit *u, ls_unit_when when)
{
    watcher *x = arg;
    (void)u;
    look(x);
    if (when == LS_UNIT_LEAVE_BACKWARD && !x->backward) x->left++;
    return LS_OK;
}

static void op(void *arg, const ls_op_event *e)
{
    watcher *x = arg;
    look(x);
    if (!e->unit || strcmp(e->unit->name, x->layer) != 0) return;
    if (e->phase == LS_PHASE_FORWARD && !x->forward) x->forward = ++x->clock;
    if (e->phase != LS_PHASE_FORWARD && !x->backward) x->backward = ++x->clock;
}

static ls_status progress(void *arg)
{
    look(arg);
    return LS_OK;
}

static ls_status one_step(const ls_parallel *p, ls_optim *adam)
{
    const int64_t dim[2] = { BATCH, TOKENS };
    int64_t x[BATCH * TOKENS];
    ls_tape *t = p->tape[0];
    for (int i = 0; i < BATCH * TOKENS; i++) x[i] = i % VOCABULARY;
    ls_tape_reset(t);
    LS_TRY(ls_ddp_begin_forward(p->ddp, t, true));
    ls_tensor *in = ls_tape_input(t, LS_I64, 2, dim, x), *want = ls_tape_input(t, LS_I64, 2, dim, x);
    LS_TRY(ls_backward(t, ls_model_loss(p->model, t, in, want, NULL)));
    LS_TRY(ls_optim_step(adam));
    return ls_ddp_after_step(p->ddp);
}

/* A first step without a listener, then one with it. */
static ls_status watch(const job *j, ls_world *w, const ls_parallel *p, ls_optim *adam, watcher *x)
{
    const ls_tape_events listen = { .unit = unit, .op = op, .progress = progress };
    const ls_units *us = &p->model->units;
    ls_comm_stats s;
    LS_TRY(one_step(p, adam));
    ls_comm_stats_read(w, &s);
    *x = (watcher){ .w = w, .reduced = s.of[LS_REDUCE_SCATTER].ops };
    for (int u = 0; u < us->n; u++) {
        if (strncmp(us->item[u].name, "h.", 2) != 0 || us->item[u].number != j->layer) continue;
        x->layer = us->item[u].name;
        x->param = &p->model->params.item[us->item[u].first];
    }
    if (!x->param) return ls_fail(LS_USAGE, "the model has no layer %d", j->layer);
    LS_TRY(ls_tape_listen(p->tape[0], &listen, x));
    const ls_status st = one_step(p, adam);
    look(x);
    ls_tape_unlisten(p->tape[0], x);
    return st;
}

/* What a rank finds when it saves. A save that fails is a result. */
static ls_status save(job *j, ls_world *w, const ls_parallel *p, ls_optim *adam)
{
    const int rank = ls_world_rank(w);
    char folder[1100];
    ls_state *s = NULL;
    snprintf(folder, sizeof folder, "%s/saved", j->dir);
    ls_status st = one_step(p, adam);
    if (st < 0 || (j->skip && rank == RANKS - 1)) return st;
    st = ls_state_create(ls_world_group(w), &s);
    if (st == LS_OK) st = ls_state_add_model(s, &p->model->params, adam);
    if (st == LS_OK) st = ls_state_save(s, folder, 1);
    j->saved[rank] = st == LS_OK;
    j->names3[rank] = st < 0 && strstr(ls_last_error(), "rank 3");
    ls_state_destroy(s);
    return LS_OK;
}

static ls_status train(ls_world *w, void *arg)
{
    job *j = arg;
    const ls_lm_config lm = { .vocab_size = VOCABULARY, .seq_len = TOKENS, .n_layer = 2, .n_head = 4, .d_model = 64,
                              .tied = true };
    const ls_model_config mc = { .name = "gpt2", .init = LS_INIT_PHILOX, .seed = 42, .lm = lm };
    const ls_plan plan = { .size = { 1, RANKS, 1, 1, 1 }, .micro_batch = BATCH, .micro_batches = 1,
                           .ddp = { .zero_stage = 3, .copy = LS_ZERO_COPY_RANK, .reshard = j->reshard } };
    const ls_optim_config oc = { .name = "adam", .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 };
    ls_parallel_opts opts = { .tape_bytes = (size_t)4 << 20 };
    ls_parallel p = { 0 };
    ls_optim *adam = NULL;
    watcher x = { 0 };
    ls_status st = ls_arena_create((size_t)4 << 20, false, NULL, &opts.own);
    if (st == LS_OK) st = ls_parallelize(w, &plan, &mc, &opts, &p);
    if (st == LS_OK) st = ls_optim_create(&oc, &p.model->params, opts.own, &adam);
    if (st == LS_OK) st = j->save ? save(j, w, &p, adam) : watch(j, w, &p, adam, &x);
    if (st == LS_OK && ls_world_rank(w) == 0) j->of0 = x;
    ls_optim_destroy(adam);
    ls_parallel_destroy(&p);
    ls_arena_destroy(opts.own);
    return st;
}

static ls_status trace(int argc, char **argv)
{
    job j = { .reshard = LS_RESHARD_DEFAULT };
    bool known = true;
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "always") == 0) j.reshard = LS_RESHARD_ALWAYS;
        else if (strcmp(argv[i], "never") == 0) j.reshard = LS_RESHARD_NEVER;
        else if (strncmp(argv[i], "layer=", 6) == 0) j.layer = atoi(argv[i] + 6);
        else known = known && strcmp(argv[i], "default") == 0;
    }
    if (!known) return ls_fail(LS_USAGE, "expected trace [default|always|never] [layer=N]");
    LS_TRY(ls_world_threads(RANKS, NULL, train, &j));
    const watcher *x = &j.of0;
    printf("{\"gathers\": %d, \"gather\": %d, \"forward\": %d, \"release\": %d, ", x->gathers, x->gather[0], x->forward,
           x->release[0]);
    printf("\"gather_again\": %d, \"backward\": %d, \"release_again\": %d, ", x->gather[1], x->backward, x->release[1]);
    printf("\"reduce\": %d}\n", x->reduce);
    return LS_OK;
}

static ls_status save_all(bool skip)
{
    const ls_world_opts o = { .coll_timeout_ns = 1000000000 };
    job j = { .save = true, .skip = skip };
    int saved = 0, names3 = 0;
    LS_TRY(make_folder(j.dir, sizeof j.dir));
    const ls_status st = ls_world_threads(RANKS, &o, train, &j);
    LS_TRY(remove_folder(j.dir));
    if (!skip) LS_TRY(st);
    for (int r = 0; r < RANKS; r++) saved += j.saved[r], names3 += j.names3[r];
    printf("{\"saved\": %d, \"names_rank_3\": %d}\n", saved, names3);
    return LS_OK;
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    ls_status st = ls_fail(LS_USAGE, "expected trace, limit or save: the first lines of labs/02_sharding/probe.c say more");
    if (strcmp(word, "trace") == 0) st = trace(argc, argv);
    if (strcmp(word, "save") == 0) st = save_all(argc > 2 && strcmp(argv[2], "skip") == 0);
    if (strcmp(word, "limit") == 0 && argc >= 6)
        st = limit(argv[2], argv[3], argv[4], atoll(argv[5]), argv + 6, argc - 6);
    if (st < 0) fprintf(stderr, "probe: error[%s]: %s\n", ls_status_word(st), ls_last_error());
    return ls_status_exit_code(st);
}
