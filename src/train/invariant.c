/* invariant.c -- train.numerics invariant: what it computes with, and what it cannot be combined with. */
#include <string.h>

#include "lockstep/sched.h"
#include "train/config.h"

bool ls_train_is_invariant(const ls_train_config *c) { return strcmp(c->train.numerics, "invariant") == 0; }

int64_t ls_train_micro_batch(const ls_train_config *c, int64_t local)
{
    if (ls_train_is_invariant(c)) return c->train.grain < local ? c->train.grain : local;
    return c->train.micro_batch ? c->train.micro_batch : local;
}

/* The fewest samples of a grain that are at least `grain` and of which the batch has a power of two. */
static int64_t next_grain(int64_t batch, int64_t grain)
{
    int64_t odd = batch;
    while (odd % 2 == 0) odd /= 2;
    while (odd < grain) odd *= 2;
    return odd <= batch ? odd : batch;
}

/* Algorithms asked for by name: the order of their sums must be that of LS_SUM_TREE, which one pass over the vectors of
 * all ranks has. */
static ls_status check_tree_algo(const ls_train_config *c, int world_size)
{
    static const ls_coll coll[] = { LS_ALL_REDUCE, LS_REDUCE_SCATTER };
    const ls_algo *by[LS_COLLS];
    if (ls_algo_parse(c->comm.algo, by) < 0) return LS_OK; /* it is said elsewhere */
    for (int i = 0; i < 2 && world_size > 1; i++) {
        const ls_shape shape = { .coll = coll[i], .size = world_size, .segments = 1, .nlanes = 1 };
        ls_sched s = { 0 };
        if (!by[coll[i]] || ls_sched_emit(by[coll[i]], &shape, &s) < 0) continue;
        const bool one_sum = s.one_sum;
        ls_sched_free(&s);
        if (!one_sum)
            return ls_fail(LS_UNSUPPORTED, "train.numerics invariant with comm.algo %s: %s adds in an order of its own: use direct, or leave "
                           "comm.algo out", c->comm.algo, by[coll[i]]->name);
    }
    return LS_OK;
}

/* What makes bits depend on the layout, or cannot add in a stated order. */
ls_status ls_train_check_invariant(const ls_train_config *c, int world_size)
{
    const int pp = (int)c->parallel.pp, replicas = pp > 1 ? world_size / pp : world_size;
    const struct { bool on; const char *what, *why; } no[] = {
        { strcmp(c->comm.backend, "mpi") == 0, "comm.backend mpi", "MPI adds in an order of its own" },
        { strcmp(c->comm.wire, "bf16") == 0, "comm.wire bf16", "what is rounded would depend on the ranks' places" },
        { strcmp(c->ddp.hook, "none") != 0, "ddp.hook", "a hook adds in an order of its own" },
        { c->ddp.find_unused, "ddp.find_unused true", "its sums need every parameter in every backward" },
        { c->ddp.static_graph, "ddp.static_graph true", "its sums need every parameter in every backward" },
        { c->ddp.bucket_view, "ddp.bucket_view true", "gradients are not divided by the number of ranks" },
        { strcmp(c->train.pack_weights, "always") == 0, "train.pack_weights always", "packed products round differently" },
        { c->parallel.tp > 1, "parallel.tp", "ranks that divide layers add parts of sums" },
        { c->parallel.cp > 1, "parallel.cp", "ranks that divide sequences add parts of sums" },
        { strcmp(c->optim.scale_lr, "none") != 0, "optim.scale_lr", "the learning rate would depend on the number of ranks" },
    };
    const int64_t batch = c->train.global_batch, grain = c->train.grain;
    if (!ls_train_is_invariant(c)) return LS_OK;
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (no[i].on)
            return ls_fail(LS_UNSUPPORTED, "train.numerics invariant with %s: %s: leave one of them out", no[i].what, no[i].why);
    LS_TRY(check_tree_algo(c, replicas));
    if (batch % grain != 0 || (batch / grain & (batch / grain - 1)) != 0)
        return ls_fail(LS_BAD_CONFIG, "train.numerics invariant: train.global_batch is %lld and train.grain %lld: expected a power of two of grains: "
                       "set train.grain to %lld", (long long)batch, (long long)grain, (long long)next_grain(batch, grain));
    if ((replicas & (replicas - 1)) != 0 || replicas > batch / grain)
        return ls_fail(LS_BAD_CONFIG, "train.numerics invariant on %d %s: expected a power of two, at most the %lld grains of train.global_batch "
                       "%lld (train.grain %lld)", replicas, pp > 1 ? "replicas" : "ranks", (long long)(batch / grain),
                       (long long)batch, (long long)grain);
    return LS_OK;
}
