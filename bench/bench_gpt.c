/* bench_gpt.c -- steps of training GPT-2 by the library's functions: what bench/train/torch_gpt.py does in PyTorch.
 *
 * A step is what lies between two batches of token ids: forgetting the gradients, forward, the loss, backward
 * (with the all_reduce in it, where there are several ranks), the gradients' norm, clipping and AdamW's update.
 * Token i of the run is ((i 2654435761 mod 2^32) >> 7) mod V, so that every program that does this gets the same.
 *
 *   build/bench/bench_gpt --batch 4 --tokens 64 --threads 2               (GPT-2 124M; starts its ranks by itself)
 *   build/bench/bench_gpt --ranks 2 --batch 2 --sync alternate            (every other step communicates nothing)
 *   build/bench/bench_gpt --ranks 2 --batch 2 --zero 1                    (each rank updates half)
 *   build/bench/bench_gpt --ranks 2 --batch 2 --zero 3 --copy rank        (and gathers the weights of a layer)
 *   build/bench/bench_gpt --ranks 4 --batch 1 --zero 3 --hsdp 2           (two sets of shards)
 *   build/bench/bench_gpt --ranks 2 --batch 4 --tp 2 --sp                 (each rank has half of every layer)
 *   build/bench/bench_gpt --ranks 2 --batch 1 --tokens 4096 --cp 2        (and half of every sequence)
 *   build/bench/bench_gpt --ranks 2 --batch 1 --micro_batches 8 --pp 2    (half of the layers: 1F1B)
 *   build/bench/bench_gpt --ranks 2 --batch 8 --experts 4 --ep 2          (model moe; a rank has half of the experts)
 *
 * Prints a line a step, `step,sync,ms,loss`: the time of the slowest rank, the loss of rank 0; and at the end for each
 * rank `rank,RANK,MS,GFLOP`, how long a step after the second computed without waiting for other ranks, and how many
 * operations it did; the digest of the model, which all ranks must have, the largest resident set of rank 0, and the
 * memory of all ranks together: `held_mib,KIND,MIB` by their ledgers, `pss_mib` resident, of which each counts its
 * share of pages that several map.
 *
 * With --units rank 0 also prints what it did when, in milliseconds since its step began: the passes through the units
 * of the model, `unit,step,forward|backward,begin,end,bytes of its parameters`; gradients, `grad,step,ready,bytes`; and
 * what comes after backward, `update,step,begin,end`. `root,bytes`: of the parameters that several units use.
 *
 * With --ckpt FOLDER saves and loads of checkpoints follow (gpt_ckpt.h): what bench/ckpt reads.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "lockstep/lockstep.h"
#include "gpt_ckpt.h"
#include "gpt_pipe.h"
#include "median.h"

#define WARM 2 /* steps that do not count in figures of a run */

typedef struct options {
    int64_t n_layer, n_head, d_model, vocab, seq_len;
    int64_t batch, micro_batches, tokens, ranks, threads, steps, turns, zero, prefetch, hsdp, tp, cp, ep, pp, chunks,
        experts, top;
    int64_t d_expert, force;
    size_t bucket_cap;
    double clip, lr;
    const char *dtype, *sync, *pack, *save, *ckpt, *reduce, *copy, *reshard, *security, *progress, *context, *split,
        *schedule;
    ls_opt_doubles layers;
    bool guard, units, sp, help;
} options;

#define AT(field) offsetof(options, field)
static const ls_opt table[] = {
    { "n_layer", LS_OPT_INT, AT(n_layer), "12", "1..1024", "layers", 0, NULL },
    { "n_head", LS_OPT_INT, AT(n_head), "12", "1..1024", "heads", 0, NULL },
    { "d_model", LS_OPT_INT, AT(d_model), "768", "1..65536", "width", 0, NULL },
    { "vocab", LS_OPT_INT, AT(vocab), "50257", "1..16777216", "tokens that there are", 0, NULL },
    { "seq_len", LS_OPT_INT, AT(seq_len), "1024", "1..1048576", "positions that there are", 0, NULL },
    { "batch", LS_OPT_INT, AT(batch), "4", "1..65536", "sequences a rank", 0, NULL },
    { "micro_batches", LS_OPT_INT, AT(micro_batches), "1", "1..1024", "of --batch sequences each: a step", 0, NULL },
    { "pack", LS_OPT_CHOICE, AT(pack), "never", "never|always|alternate",
      "whether micro-batches read packed copies of the weights; alternate: in every other step", 0, NULL },
    { "tokens", LS_OPT_INT, AT(tokens), "64", "1..1048576", "tokens a sequence", 0, NULL },
    { "ranks", LS_OPT_INT, AT(ranks), "1", "1..256", "ranks, data parallel but for --tp and --cp", 0, NULL },
    { "tp", LS_OPT_INT, AT(tp), "1", "1..256", "ranks that divide every layer", 0, NULL },
    { "sp", LS_OPT_BOOL, AT(sp), "false", NULL, "and norms, dropout and residuals along the sequence", 0, NULL },
    { "cp", LS_OPT_INT, AT(cp), "1", "1..256", "ranks that divide every sequence", 0, NULL },
    { "context", LS_OPT_CHOICE, AT(context), "ring", "ring|gather|ulysses", "--cp: how queries meet keys of other ranks", 0, NULL },
    { "layers", LS_OPT_DOUBLES, AT(layers), "", "0..1024",
      "--pp: layers of each stage; none given: those of the shortest replayed step", 0, NULL },
    { "split", LS_OPT_CHOICE, AT(split), "zigzag", "zigzag|contiguous", "--cp: tokens of a rank", 0, NULL },
    { "pp", LS_OPT_INT, AT(pp), "1", "1..256", "pipeline stages, of --micro_batches", 0, NULL },
    { "schedule", LS_OPT_STRING, AT(schedule), "1f1b", NULL, "--pp: in which order micro-batches are computed", 0, NULL },
    { "chunks", LS_OPT_INT, AT(chunks), "0", "0..64", "--pp: pieces of the model per rank; 0: as few as the schedule needs", 0, NULL },
    { "ep", LS_OPT_INT, AT(ep), "1", "1..256", "--experts: ranks that divide them", 0, NULL },
    { "experts", LS_OPT_INT, AT(experts), "0", "0..1024", "of each layer, of model moe; 0: GPT-2", 0, NULL },
    { "top", LS_OPT_INT, AT(top), "2", "1..32", "--experts: that compute a token", 0, NULL },
    { "d_expert", LS_OPT_INT, AT(d_expert), "0", "0..65536",
      "--experts: width; 0: 8/3 d_model, as many operations as a GPT-2 mlp", 0, NULL },
    { "force", LS_OPT_INT, AT(force), "-1", "-1..1023",
      "--experts: every token goes to this one and the --top - 1 after it, an exactly even load where these are on different ranks; -1: "
      "the router chooses", 0, NULL },
    { "threads", LS_OPT_INT, AT(threads), "1", "1..1024", "threads a rank", 0, NULL },
    { "steps", LS_OPT_INT, AT(steps), "5", "1..", "steps", 0, NULL },
    { "clip", LS_OPT_DOUBLE, AT(clip), "1", "0..", "largest norm of the gradients", 0, NULL },
    { "lr", LS_OPT_DOUBLE, AT(lr), "1e-4", "0..", "AdamW's learning rate", 0, NULL },
    { "dtype", LS_OPT_CHOICE, AT(dtype), "f32", "f32|bf16", "of activations and of what they are multiplied by", 0, NULL },
    { "bucket_cap", LS_OPT_BYTES, AT(bucket_cap), "0", "0..", "bytes of a gradient bucket; 0: DDP's default", 0, NULL },
    { "zero", LS_OPT_INT, AT(zero), "0", "0..3", "ZeRO's stage: 1 shards optimizer state, 2 gradients, 3 weights", 0, NULL },
    { "reduce", LS_OPT_CHOICE, AT(reduce), "every", "every|last", "stages 2 and 3: which micro-batches are reduced", 0, NULL },
    { "copy", LS_OPT_CHOICE, AT(copy), "host", "host|rank", "stage 3: one copy of the weights, or layers gathered by each rank",
      0, NULL },
    { "prefetch", LS_OPT_INT, AT(prefetch), "1", "0..64", "copy rank: layers gathered ahead", 0, NULL },
    { "reshard", LS_OPT_CHOICE, AT(reshard), "default", "always|never|default",
      "copy rank: layers that release their weights after forward", 0, NULL },
    { "hsdp", LS_OPT_INT, AT(hsdp), "1", "1..256", "stages 1 to 3: sets of shards, each on consecutive ranks", 0, NULL },
    { "units", LS_OPT_BOOL, AT(units), "false", NULL, "print when the pass through each unit began and ended", 0, NULL },
    { "security", LS_OPT_CHOICE, AT(security), "auto", "auto|auth|encrypt", "between nodes (comm.security)", 0, NULL },
    { "progress", LS_OPT_CHOICE, AT(progress), "inline", "inline|thread", "what moves collectives (comm.progress)", 0, NULL },
    { "guard", LS_OPT_BOOL, AT(guard), "false", NULL, "hash the updated weights, as the trainer's replica guard does", 0, NULL },
    { "sync", LS_OPT_CHOICE, AT(sync), "always", "always|alternate", "alternate: every other step under no_sync", 0, NULL },
    { "save", LS_OPT_STRING, AT(save), "", NULL, "write the first weights to this file", 0, NULL },
    { "ckpt", LS_OPT_STRING, AT(ckpt), "", NULL, "after the steps, measure checkpoints in this folder (gpt_ckpt.h)", 0, NULL },
    { "turns", LS_OPT_INT, AT(turns), "3", "1..1000", "of saves and loads, with --ckpt", 0, NULL },
    { "help", LS_OPT_BOOL, AT(help), "false", NULL, "print this and stop", 'h', NULL },
};

typedef struct job {
    const options *o;
    ls_model_config gpt2;
    ls_world *w;
    ls_arena *arena;
    ls_parallel par;
    ls_optim *adamw;
    int64_t *x, *y; /* [batch, tokens]: ids, and the ones that follow them; with --pp of each micro-batch */
    ls_stage_pass *alive; /* with --pp: [par.ntapes] */
    double loss;
    int64_t step;
    uint64_t began_ns, entered_ns; /* the step, the unit */
    double busy_ms; /* of the steps after the first WARM, without waits for other ranks */
    double staged_ms; /* with --pp: from the beginning of the step to the end of this rank's last action */
    pipe_times *pipe; /* owned; with --pp, of the same steps */
} job;

static double ms_since(uint64_t began_ns) { return 1e-6 * (double)(now_ns() - began_ns); }

static ls_model_config gpt2_of(const options *o)
{
    if (o->experts > 0)
        return (ls_model_config){ .name = "moe", .init = LS_INIT_PHILOX,
                                  .lm = { .vocab_size = o->vocab, .seq_len = o->seq_len, .n_layer = o->n_layer,
                                          .n_head = o->n_head, .d_model = o->d_model, .tied = true,
                                          .n_experts = o->experts, .top_k = o->top, .norm_topk = true,
                                          .forced_expert = o->force + 1,
                                          .d_expert = o->d_expert ? o->d_expert : o->d_model * 8 / 3 } };
    return (ls_model_config){ .name = "gpt2", .init = LS_INIT_PHILOX,
                              .lm = { .vocab_size = o->vocab, .seq_len = o->seq_len, .n_layer = o->n_layer,
                                      .n_head = o->n_head, .d_model = o->d_model, .tied = true } };
}

static ls_ddp_config ddp_of(const options *o)
{
    const bool gathers = o->zero == 3 && strcmp(o->copy, "rank") == 0;
    return (ls_ddp_config){ .bucket_cap = o->bucket_cap,
                            .zero_stage = o->ranks > 1 ? (int)o->zero : 0,
                            .reduce_last = o->zero > 1 && strcmp(o->reduce, "last") == 0,
                            .copy = gathers ? LS_ZERO_COPY_RANK : LS_ZERO_COPY_HOST,
                            .prefetch = gathers ? (int)o->prefetch : 0,
                            .reshard = strcmp(o->reshard, "always") == 0  ? LS_RESHARD_ALWAYS
                                       : strcmp(o->reshard, "never") == 0 ? LS_RESHARD_NEVER
                                                                          : LS_RESHARD_DEFAULT };
}

static ls_plan plan_of(const options *o)
{
    const int64_t dp = o->ranks / (o->tp * o->cp * o->ep * o->pp);
    return (ls_plan){ .size = { [LS_AXIS_PP] = (int)o->pp,
                                [LS_AXIS_DP] = (int)dp,
                                [LS_AXIS_EP] = (int)o->ep,
                                [LS_AXIS_CP] = (int)o->cp,
                                [LS_AXIS_TP] = (int)o->tp },
                      .ddp = ddp_of(o),
                      .hsdp = (int)o->hsdp,
                      .schedule = o->schedule,
                      .chunks = (int)o->chunks,
                      .micro_batch = o->batch,
                      .micro_batches = (int)o->micro_batches,
                      .tokens = o->tokens,
                      .split = o->layers.n ? o->layers.v : NULL,
                      .nsplit = o->layers.n,
                      .sequence_parallel = o->sp,
                      .context = o->cp > 1 ? o->context : NULL,
                      .in_turn = o->cp > 1 && strcmp(o->split, "contiguous") == 0,
                      .dtype = strcmp(o->dtype, "bf16") == 0 ? LS_BF16 : LS_F32 };
}

/* First values; --save: this rank has all of them in f32 here. */
static ls_status first_values(void *arg, ls_model *m)
{
    const job *j = arg;
    LS_TRY(ls_model_init(m, &j->gpt2));
    return *j->o->save && ls_world_rank(j->w) == 0 ? ls_ckpt_save(j->o->save, &m->params, NULL) : LS_OK;
}

/* Values, gradients, tapes and the optimizer's state, from the world's arena and j's own. */
static ls_status state(job *j, size_t tape_bytes, const size_t *chunk, size_t packed)
{
    const options *o = j->o;
    const ls_plan p = plan_of(o);
    const ls_parallel_opts opts = { .own = j->arena,
                                    .tape_bytes = tape_bytes,
                                    .chunk_bytes = chunk,
                                    .packed_bytes = packed,
                                    .values = first_values,
                                    .arg = j };
    ls_optim_config adamw;
    LS_TRY(ls_optim_defaults("adamw", &adamw));
    adamw.lr = o->lr;
    LS_TRY(ls_parallelize(j->w, &p, &j->gpt2, &opts, &j->par));
    LS_TRY(ls_optim_create(&adamw, &j->par.model->params, j->arena, &j->adamw));
    j->alive = calloc((size_t)j->par.ntapes, sizeof *j->alive);
    if (!j->alive) return ls_fail(LS_NO_MEMORY, "a list of %d micro-batches", j->par.ntapes);
    return o->guard ? ls_optim_hash_values(j->adamw) : LS_OK;
}

static void forget(job *j)
{
    free(j->alive);
    ls_optim_destroy(j->adamw);
    ls_parallel_destroy(&j->par);
    ls_arena_destroy(j->arena);
    ls_world_leave(j->w);
}

/* Forward and backward of one micro-batch, whose ids may be NULL on a dry tape. */
static ls_status pass(job *j, bool sync, float share, ls_loss_sums *sums)
{
    ls_tape *t = j->par.tape[0];
    const int64_t dim[2] = { j->o->batch, j->o->tokens };
    ls_tape_reset(t);
    LS_TRY(ls_parallel_begin_forward(&j->par, t, sync));
    ls_tensor *x = ls_tape_input(t, LS_I64, 2, dim, j->x), *y = ls_tape_input(t, LS_I64, 2, dim, j->y);
    ls_tensor *loss = ls_model_loss(j->par.model, t, x, y, sums);
    return j->x ? ls_backward_from(t, loss, &share) : ls_backward(t, loss);
}

/* --- with --pp ------------------------------------------------------------------------------------------------ */

static int64_t *ids_of(const job *j, int64_t *ids, int micro_batch)
{
    return ids ? ids + micro_batch * j->o->batch * j->o->tokens : NULL;
}

static ls_status stage_forward(void *arg, const ls_pipe_action *a, ls_pipe_data *data)
{
    job *j = arg;
    const uint64_t t0 = now_ns();
    LS_TRY(ls_parallel_stage_forward(&j->par, a, j->o->batch, j->o->tokens, ids_of(j, j->x, a->micro_batch),
                                     ids_of(j, j->y, a->micro_batch), data, &j->alive[a->slot]));
    if (j->pipe && j->step >= WARM) pipe_note(j->pipe, a, ms_since(t0));
    return LS_OK;
}

static ls_status stage_backward(void *arg, const ls_pipe_action *a, ls_pipe_data *data)
{
    job *j = arg;
    const float scale = (float)j->o->cp / (float)j->o->micro_batches;
    ls_stage_pass *s = &j->alive[a->slot];
    const uint64_t t0 = now_ns();
    LS_TRY(ls_parallel_stage_backward(&j->par, a, s, &scale, data));
    if (j->pipe && j->step >= WARM) pipe_note(j->pipe, a, ms_since(t0));
    if (ls_parallel_has_loss(&j->par, a) && a->what != LS_PIPE_BACKWARD_WEIGHT && j->x)
        j->loss += s->sums.sum / (double)s->sums.counted / (double)j->o->micro_batches;
    return LS_OK;
}

static size_t edge(void *arg, int number, int micro_batch, ls_dtype *dtype)
{
    const job *j = arg;
    (void)micro_batch;
    return ls_parallel_edge(&j->par, number, j->o->batch, j->o->tokens, dtype);
}

static ls_status run_stages(job *j)
{
    static const ls_pipe_work work = { NULL, stage_forward, stage_backward, edge };
    j->loss = 0;
    LS_TRY(ls_pipe_run(j->par.pipe, (int)j->o->micro_batches, &work, j));
    j->staged_ms = ms_since(j->began_ns);
    return LS_OK;
}

/* What a rank takes. */
typedef struct needs {
    size_t shared, own, tape, chunk[LS_PIPE_MOST_CHUNKS], packed;
} needs;

static void count_tapes(const ls_parallel *p, needs *out)
{
    out->tape = ls_parallel_staged(p) ? ls_tape_scratch_peak(p->scratch) + 64 : ls_tape_peak(p->tape[0]);
    size_t all = out->tape;
    for (int c = 0, at = 0; ls_parallel_staged(p) && c < p->nchunks; c++)
        for (int i = ls_pipe_slots_of(p->pipe, c); i > 0; i--, all += out->chunk[c] + 64) {
            const size_t peak = ls_tape_peak(p->tape[at++]);
            if (peak > out->chunk[c]) out->chunk[c] = peak;
        }
    if (ls_parallel_shares_tapes(p)) out->shared += all;
}

/* A step in a dry world says. */
static ls_status plan(const options *o, needs *out)
{
    job dry = { .o = o, .gpt2 = gpt2_of(o) };
    int rank, size;
    ls_loss_sums sums;
    if (!ls_world_launched(&rank, &size) || rank >= o->ranks) rank = 0; /* joining says what is wrong */
    *out = (needs){ 0 };
    ls_status st = ls_world_dry(rank, (int)o->ranks, NULL, NULL, &dry.w);
    if (st == LS_OK) st = ls_arena_create_dry(NULL, &dry.arena);
    if (st == LS_OK) st = state(&dry, 0, NULL, 0);
    if (st == LS_OK) ls_tape_pack_begin(dry.par.tape[0]);
    for (int i = 0; i < 2 && st == LS_OK; i++) { /* buckets are rebuilt in the second */
        st = ls_parallel_staged(&dry.par) ? run_stages(&dry) : pass(&dry, true, 1.0f, &sums);
        if (st == LS_OK) st = ls_optim_step(dry.adamw);
        if (st == LS_OK) st = ls_parallel_after_step(&dry.par);
    }
    if (st == LS_OK) {
        *out = (needs){ .shared = ls_world_arena_used(dry.w), .own = ls_arena_mark(dry.arena),
                        .packed = strcmp(o->pack, "never") != 0 ? ls_tape_packed_bytes(dry.par.tape[0]) : 0 };
        count_tapes(&dry.par, out);
    }
    forget(&dry);
    return st;
}

static ls_status on_unit(void *arg, const ls_unit *u, ls_unit_when when)
{
    job *j = arg;
    const ls_params *ps = &j->par.model->params;
    const bool backward = when == LS_UNIT_LEAVE_BACKWARD;
    size_t nbytes = 0;
    if (when == LS_UNIT_ENTER || when == LS_UNIT_ENTER_BACKWARD) j->entered_ns = now_ns();
    if (when != LS_UNIT_LEAVE && !backward) return LS_OK;
    for (int i = u->first; i < u->first + u->nparams; i++) nbytes += ls_tensor_nbytes(&ps->item[i].t);
    printf("unit,%lld,%s,%.3f,%.3f,%zu\n", (long long)j->step + 1, backward ? "backward" : "forward",
           1e-6 * (double)(j->entered_ns - j->began_ns), ms_since(j->began_ns), nbytes);
    return LS_OK;
}

static ls_status on_grad(void *arg, ls_tensor *param)
{
    const job *j = arg;
    printf("grad,%lld,%.3f,%zu\n", (long long)j->step + 1, ms_since(j->began_ns), ls_tensor_nbytes(param));
    return LS_OK;
}

/* With --units: rank 0 notes times. What the units do not have, the root has. */
static ls_status listen_to_units(job *j)
{
    const ls_params *ps = &j->par.model->params;
    const ls_tape_events events = { .unit = on_unit, .grad_ready = on_grad };
    size_t root = 0;
    if (!j->o->units || ls_world_rank(j->w) != 0) return LS_OK;
    for (int i = 0; i < ps->n; i++)
        if (ps->item[i].unit < 0) root += ls_tensor_nbytes(&ps->item[i].t);
    printf("root,%zu\n", root);
    return ls_tape_listen(j->par.tape[0], &events, j);
}

static ls_status build(job *j)
{
    const options *o = j->o;
    needs n;
    LS_TRY(plan(o, &n));
    const ls_world_opts w = { .arena_bytes = ((size_t)4 << 20) + n.shared,
                              .progress = strcmp(o->progress, "thread") == 0 ? LS_PROGRESS_THREAD : LS_PROGRESS_INLINE,
                              .security = strcmp(o->security, "auth") == 0      ? LS_SECURITY_AUTH
                                          : strcmp(o->security, "encrypt") == 0 ? LS_SECURITY_ENCRYPT
                                                                                : LS_SECURITY_DEFAULT };
    LS_TRY(ls_world_join(&w, &j->w));
    LS_TRY(ls_arena_create(n.own + n.packed, false, ls_world_ledger(j->w), &j->arena));
    ls_arena_may_grow(j->arena, NULL, NULL); /* the plan is that of ranks of one node */
    LS_TRY(state(j, n.tape, n.chunk, n.packed));
    LS_TRY(listen_to_units(j));
    const size_t count = (size_t)(o->batch * o->tokens * (o->pp > 1 ? o->micro_batches : 1));
    j->x = calloc(count, sizeof *j->x);
    j->y = calloc(count, sizeof *j->y);
    return j->x && j->y ? LS_OK : ls_fail(LS_NO_MEMORY, "ids of %zu tokens", count);
}

static int64_t token(int64_t i, int64_t vocab)
{
    return (int64_t)(((uint32_t)((uint64_t)i * 2654435761u)) >> 7) % vocab;
}

/* This rank's part of micro-batch s, to micro-batch `at` of x and y: sequences of one token more than they are long. */
static void next_batch(job *j, int64_t s, int at)
{
    int64_t *const x = ids_of(j, j->x, at), *const y = ids_of(j, j->y, at);
    const options *o = j->o;
    const ls_group *samplers = j->par.mesh.batch;
    const int64_t T = o->tokens, first = (s * ls_group_size(samplers) + ls_group_rank(samplers)) * o->batch;
    for (int64_t b = 0; b < o->batch; b++)
        for (int64_t t = 0; t < T; t++) {
            const int64_t i = (first + b) * (T + 1) + t;
            x[b * T + t] = token(i, o->vocab);
            y[b * T + t] = token(i + 1, o->vocab);
        }
}

/* Micro-batch i of a step: its loss, its share of which gradients are of, is added to *loss. A rank's loss is of its
 * tokens; gradients are averaged over the ranks that divide sequences, too. */
static ls_status micro_batch(job *j, int64_t i, bool sync, double *loss)
{
    const int64_t n = j->o->micro_batches;
    ls_loss_sums sums;
    LS_TRY(pass(j, sync && i == n - 1, (float)j->o->cp / (float)n, &sums));
    *loss += sums.sum / (double)sums.counted / (double)n;
    return LS_OK;
}

static ls_status step(job *j, int64_t s, bool sync, double *loss)
{
    ls_params *ps = &j->par.model->params;
    ls_tape *t = j->par.tape[0];
    double norm;
    *loss = 0;
    j->step = s;
    j->began_ns = now_ns();
    ls_params_zero_grad(ps);
    if (strcmp(j->o->pack, "always") == 0 || s % 2 == 1) ls_tape_pack_begin(t);
    if (ls_parallel_staged(&j->par)) LS_TRY(run_stages(j));
    for (int64_t i = 0; i < j->o->micro_batches && !ls_parallel_staged(&j->par); i++) {
        if (i > 0) next_batch(j, s * j->o->micro_batches + i, 0); /* the first is there */
        LS_TRY(micro_batch(j, i, sync, loss));
    }
    ls_tape_pack_end(t);
    const double updating = ms_since(j->began_ns);
    /* Without communication replicas part, which is the point of the comparison: the optimizer is told otherwise. */
    for (int i = 0; i < ps->n && !sync; i++) ps->item[i].t.grad_reduced = true;
    if (sync) LS_TRY(ls_parallel_sum_gradients(&j->par));
    if (sync) LS_TRY(ls_grad_norm_shared(ls_world_group(j->w), ps, &norm, NULL));
    else LS_TRY(ls_grad_norm(ps, &norm, NULL));
    LS_TRY(ls_optim_step_scaled(j->adamw, ls_clip_scale(norm, j->o->clip)));
    LS_TRY(ls_parallel_after_step(&j->par));
    if (j->o->units && ls_world_rank(j->w) == 0)
        printf("update,%lld,%.3f,%.3f\n", (long long)s + 1, updating, ms_since(j->began_ns));
    return LS_OK;
}

/* Steps that let replicas drift apart would be worth nothing. */
static ls_status same_replicas(job *j, char mine[33])
{
    const size_t size = (size_t)ls_world_size(j->w);
    const ls_values values = ls_parallel_values(&j->par);
    LS_TRY(ls_params_digest_of(&j->par.model->params, &values, mine));
    char *all = malloc(32 * size);
    if (!all) return ls_fail(LS_NO_MEMORY, "digests of %zu ranks", size);
    ls_status st = ls_all_gather(ls_world_group(j->w), mine, all, 32 * size, LS_U8);
    for (size_t r = 0; r < size && st == LS_OK; r++)
        if (memcmp(all + 32 * r, all, 32) != 0) st = ls_fail(LS_INTERNAL, "ranks 0 and %zu have different models", r);
    free(all);
    return st;
}

/* Of this process, MiB; 0: the system does not say. */
static double pss(void)
{
    char line[128];
    double kib = 0;
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Pss: %lf kB", &kib) == 1) break;
    if (f) fclose(f);
    return kib / 1024;
}

static ls_status print_memory(job *j, bool first)
{
    const ls_ledger *l = ls_world_ledger(j->w);
    double memory[LS_MEM_KINDS + 1] = { [LS_MEM_KINDS] = pss() };
    for (ls_mem_kind k = 0; k < LS_MEM_KINDS; k++) memory[k] = (double)l->now[k] / (1 << 20);
    LS_TRY(ls_all_reduce(ls_world_group(j->w), NULL, memory, LS_MEM_KINDS + 1, LS_F64, LS_SUM));
    for (ls_mem_kind k = 0; k < LS_MEM_KINDS && first; k++) printf("held_mib,%s,%.3f\n", ls_mem_kind_name(k), memory[k]);
    if (first) printf("pss_mib,%.1f\n", memory[LS_MEM_KINDS]);
    return LS_OK;
}

/* Which rank had most to do: for how long a step computed, without waits, and its operations (with --pp: of one
 * micro-batch). */
static ls_status print_ranks(job *j, bool first)
{
    const int size = ls_world_size(j->w), r = ls_world_rank(j->w);
    const int64_t counted = j->o->steps - WARM;
    double *all = calloc((size_t)size, 2 * sizeof *all);
    if (!all) return ls_fail(LS_NO_MEMORY, "figures of %d ranks", size);
    all[2 * r] = counted > 0 ? j->busy_ms / (double)counted : 0;
    all[2 * r + 1] = 1e-9 * ls_tape_flops(j->par.tape[0]);
    const ls_status st = ls_all_reduce(ls_world_group(j->w), NULL, all, 2 * (size_t)size, LS_F64, LS_SUM);
    for (int i = 0; i < size && first && st == LS_OK; i++) printf("rank,%d,%.3f,%.3f\n", i, all[2 * i], all[2 * i + 1]);
    free(all);
    return st;
}

static ls_status timed_step(job *j, int64_t s, bool sync, double *loss, double *ms)
{
    for (int i = 0; i < (j->o->pp > 1 ? j->o->micro_batches : 1); i++) next_batch(j, s * j->o->micro_batches + i, i);
    LS_TRY(ls_barrier(ls_world_group(j->w)));
    ls_comm_stats before, moved;
    ls_comm_stats_read(j->w, &before);
    const uint64_t t0 = now_ns();
    LS_TRY(step(j, s, sync, loss));
    *ms = ms_since(t0);
    ls_comm_stats_read(j->w, &moved);
    ls_comm_stats_since(&before, &moved);
    if (s >= WARM) j->busy_ms += *ms - 1e-6 * (double)moved.waited_ns;
    if (ls_parallel_staged(&j->par)) { /* the last stage knows it */
        *loss = j->par.mesh.has_loss ? j->loss : 0;
        LS_TRY(ls_all_reduce(j->par.mesh.axis[LS_AXIS_PP], NULL, loss, 1, LS_F64, LS_SUM));
        double span = j->staged_ms;
        LS_TRY(ls_all_reduce(ls_world_group(j->w), NULL, &span, 1, LS_F64, LS_MAX));
        j->pipe->span_ms += s >= WARM ? span : 0;
        j->pipe->steps += s >= WARM;
    }
    return ls_all_reduce(ls_world_group(j->w), NULL, ms, 1, LS_F64, LS_MAX);
}

static ls_status one_more(void *arg, double *ms)
{
    job *j = arg;
    double loss;
    return timed_step(j, j->step + 1, true, &loss, ms);
}

static ls_status checkpoints(job *j)
{
    ckpt_turns c = { .w = j->w, .ps = &j->par.model->params, .optim = j->adamw, .model = &j->gpt2, .folder = j->o->ckpt,
                     .turns = j->o->turns, .step = one_more, .arg = j };
    const ls_status st = *j->o->ckpt ? ckpt_measure(&c) : LS_OK;
    ckpt_close(&c);
    return st;
}

static ls_status run(job *j)
{
    const bool alternate = strcmp(j->o->sync, "alternate") == 0;
    const bool first = ls_world_rank(j->w) == 0;
    if (first) printf("step,sync,ms,loss\n");
    for (int64_t s = 0; s < j->o->steps; s++) {
        const bool sync = !alternate || s % 2 == 0;
        double loss, ms;
        LS_TRY(timed_step(j, s, sync, &loss, &ms));
        if (first) printf("%lld,%d,%.3f,%.7g\n", (long long)s + 1, sync, ms, loss);
        fflush(stdout);
    }
    LS_TRY(checkpoints(j));
    struct rusage u;
    char digest[33] = "";
    LS_TRY(print_ranks(j, first));
    if (ls_parallel_staged(&j->par)) {
        const ls_pipe_config pipe = { .schedule = j->o->schedule, .chunks = (int)j->o->chunks,
                                      .micro_batches = (int)j->o->micro_batches };
        LS_TRY(pipe_print(j->pipe, j->w, &pipe, (int)j->o->pp, first));
    }
    LS_TRY(print_memory(j, first));
    if (!alternate) LS_TRY(same_replicas(j, digest));
    if (first && *digest) printf("digest,%s\n", digest);
    if (first && getrusage(RUSAGE_SELF, &u) == 0) printf("max_rss_mib,%.1f\n", (double)u.ru_maxrss / 1024);
    return LS_OK;
}

static int rank(const options *o)
{
    job j = { .o = o, .gpt2 = gpt2_of(o) };
    ls_status st = LS_OK;
    if (o->zero && strcmp(o->sync, "always") != 0)
        st = ls_fail(LS_USAGE,
                     "--zero 1 --sync alternate: a share is updated with what all ranks have summed; use --zero 0");
    if (o->hsdp > 1 && (!o->zero || o->ranks % o->hsdp != 0))
        st = ls_fail(LS_USAGE, "--hsdp %lld: expected --zero 1 to 3, and a divisor of --ranks %lld", (long long)o->hsdp, (long long)o->ranks);
    if (o->ranks % (o->tp * o->cp) != 0)
        st = ls_fail(LS_USAGE, "--tp %lld x --cp %lld: expected a divisor of --ranks %lld", (long long)o->tp, (long long)o->cp, (long long)o->ranks);
    if (o->guard && o->zero) st = ls_fail(LS_USAGE, "--guard is for replicas: use --zero 0");
    if (st == LS_OK) st = build(&j);
    if (st == LS_OK && ls_world_size(j.w) != o->ranks)
        st = ls_fail(LS_CONFIG_MISMATCH, "--ranks is %lld and there are %d", (long long)o->ranks, ls_world_size(j.w));
    j.pipe = calloc(1, sizeof *j.pipe);
    if (st == LS_OK && !j.pipe) st = ls_fail(LS_NO_MEMORY, "times of stages");
    if (st == LS_OK) st = run(&j);
    if (st < 0 && st != LS_ABORTED) fprintf(stderr, "bench_gpt: %s\n", ls_last_error());
    if (st < 0 && j.w) (void)ls_world_abort(j.w, st);
    free(j.pipe);
    free(j.y);
    free(j.x);
    forget(&j);
    return ls_status_exit_code(st);
}

/* OpenMP reads its number of threads when a process begins, so even a single rank is another process. */
static int start(char **argv, const options *o)
{
    char threads[24];
    ls_launch_opts l = { .argv = (const char *const *)argv, .nproc = (int)o->ranks };
    ls_launch_result result;
    snprintf(threads, sizeof threads, "%lld", (long long)o->threads);
    setenv("OMP_NUM_THREADS", threads, 1);
    if (ls_launch(&l, &result) == LS_OK) return result.exit_code;
    fprintf(stderr, "bench_gpt: %s\n", ls_last_error());
    return 1;
}

int main(int argc, char **argv)
{
    options o;
    ls_opts *opts;
    int rest, code = 0, unused;
    ls_status st = ls_opts_create(table, sizeof table / sizeof *table, &o, &opts);
    if (st == LS_OK) st = ls_opts_parse(opts, argc, argv, false, &rest);
    if (st == LS_OK && ls_opts_npositional(opts) > 0)
        st = ls_fail(LS_USAGE, "'%s' is no option", ls_opts_positional(opts, 0));
    if (st == LS_OK && o.help) {
        char *text = ls_opts_help(opts, "bench_gpt [options]", "steps of training GPT-2", "bench_gpt --threads 2");
        printf("%s", text ? text : "");
        free(text);
    } else if (st == LS_OK) {
        code = ls_world_launched(&unused, &unused) ? rank(&o) : start(argv, &o);
    } else {
        fprintf(stderr, "bench_gpt: %s\n", ls_last_error());
        code = ls_status_exit_code(st);
    }
    ls_opts_destroy(opts);
    return code;
}
