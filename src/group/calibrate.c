/* calibrate.c -- what two ranks' messages cost, by ring all_gather and
 * reduce_scatter: one message each way at once, moved, or moved and added. */
#include "group/calibrate.h"

#include <math.h>
#include <string.h>

#include "group/group.h"

#define PASSES 4            /* over all measurements, so that a disturbance does not hit all of one */
#define POINT_NS 20000000u  /* spent on one of them in a pass, */
#define BATCHES 300         /* in at most so many batches of operations: short, so that some find both ranks running */
#define MOST_CROWD 64 /* ranks, which then share their cores */
#define LARGEST ((size_t)4 << 20)
#define MESSAGES 64       /* sent in a row, for the gap */

typedef struct pair {
    ls_calibration *c; /* rank 0's */
    ls_level level;
} pair;

/* Sizes from next to nothing to LARGEST, each message's. */
static size_t size_of(int i)
{
    static const size_t size[LS_CALIBRATE_SIZES] = { 8, 512, 4096, 16384, 65536, 262144, 1 << 20, LARGEST };
    return size[i];
}

typedef struct job {
    ls_group *g;
    ls_coll coll;
    void *buf;
    size_t nbytes; /* of one message */
    int messages;  /* LS_SENDRECV: in a row */
} job;

static ls_status operation(const job *j)
{
    size_t count = 2 * j->nbytes / sizeof(float);
    if (j->coll == LS_ALL_GATHER) return ls_all_gather(j->g, NULL, j->buf, count, LS_F32);
    if (j->coll == LS_REDUCE_SCATTER) return ls_reduce_scatter(j->g, NULL, j->buf, count, LS_F32, LS_SUM);
    if (j->coll == LS_BARRIER) return ls_barrier(j->g);
    ls_p2p op[MESSAGES];
    bool first = ls_group_rank(j->g) == 0;
    for (int i = 0; i < j->messages; i++)
        op[i] = (ls_p2p){ .send = first ? j->buf : NULL, .recv = first ? NULL : j->buf, .count = 1, .dtype = LS_F32,
                          .peer = first ? 1 : 0 };
    LS_TRY(ls_p2p_batch(j->g, op, j->messages));
    return first ? ls_recv(j->g, j->buf, 1, LS_F32, 1) : ls_send(j->g, j->buf, 1, LS_F32, 0);
}

static int32_t batch_of(const job *j)
{
    if (j->messages > 1) return 2;
    return j->nbytes <= 4096 ? 50 : j->nbytes <= 65536 ? 8 : 1;
}

/* Lowers *ns to the least mean of many batches, on this rank. Rank 0 says before each how many operations it has;
 * 0: the end. */
static ls_status least(const job *j, double *ns)
{
    const ls_env *env = ls_env_get();
    uint64_t end = env->mono_ns() + POINT_NS;
    for (int batch = 0;; batch++) {
        int32_t ops = batch < BATCHES && (batch < 4 || env->mono_ns() < end) ? batch_of(j) : 0;
        LS_TRY(ls_broadcast(j->g, &ops, 1, LS_I32, 0));
        if (ops == 0) return LS_OK;
        uint64_t t0 = env->mono_ns();
        for (int i = 0; i < ops; i++) LS_TRY(operation(j));
        double each = (double)(env->mono_ns() - t0) / ops;
        if (each < *ns && batch > 0) *ns = each;
    }
}

/* --- two ranks -------------------------------------------------------------------------------- */

/* [0 .. SIZES) messages moved, then as many moved and added, then one small message and MESSAGES in a row. */
#define POINTS (2 * LS_CALIBRATE_SIZES + 2)

static job point(ls_group *g, void *buf, int i)
{
    job j = { .g = g, .buf = buf, .coll = LS_SENDRECV, .messages = i == POINTS - 1 ? MESSAGES : 1 };
    if (i >= 2 * LS_CALIBRATE_SIZES) return j;
    j.coll = i < LS_CALIBRATE_SIZES ? LS_ALL_GATHER : LS_REDUCE_SCATTER;
    j.nbytes = size_of(i % LS_CALIBRATE_SIZES);
    return j;
}

/* No message takes longer than a longer one; where it seems so, it was disturbed. */
static void make_monotone(double *ns)
{
    for (int i = LS_CALIBRATE_SIZES - 2; i >= 0; i--)
        if (ns[i] > ns[i + 1]) ns[i] = ns[i + 1];
}

static void conclude(ls_calibration *c, ls_level level, double *ns)
{
    ls_link_cost *link = &c->cost.link[level];
    double size[LS_CALIBRATE_SIZES], alpha, worst;
    make_monotone(ns);
    make_monotone(ns + LS_CALIBRATE_SIZES);
    for (int i = 0; i < LS_CALIBRATE_SIZES; i++) {
        c->nbytes[i] = size_of(i);
        size[i] = (double)size_of(i);
        c->ns[level][i] = ns[i];
    }
    ls_cost_fit(size, ns, LS_CALIBRATE_SIZES, &link->alpha_ns, &link->beta_ns, &c->residual[level]);
    link->gap_ns = (ns[POINTS - 1] - ns[POINTS - 2]) / (MESSAGES - 1);
    if (!(link->gap_ns > 0.0)) link->gap_ns = 0.0;
    if (link->gap_ns > link->alpha_ns) link->gap_ns = link->alpha_ns;
    if (level == LS_LEVEL_MEMORY) /* there a sum reads the peer's vector where it lies */
        ls_cost_fit(size, ns + LS_CALIBRATE_SIZES, LS_CALIBRATE_SIZES, &alpha, &c->cost.gamma_ns, &worst);
    c->measured[level] = true;
}

static ls_status measure_pair(ls_group *g, void *arg)
{
    const pair *p = arg;
    double ns[POINTS];
    void *buf;
    LS_TRY(ls_alloc(ls_group_world(g), 2 * LARGEST, LS_MEM_COMM, &buf));
    memset(buf, 0, 2 * LARGEST);
    g->forced = ls_algo_find("ring");
    memset(g->asked, 0, sizeof g->asked);
    for (int i = 0; i < POINTS; i++) ns[i] = (double)INFINITY;
    for (int pass = 0; pass < PASSES; pass++)
        for (int i = 0; i < POINTS; i++) {
            job j = point(g, buf, i);
            LS_TRY(least(&j, &ns[i]));
        }
    if (ls_group_rank(g) == 0) conclude(p->c, p->level, ns);
    return LS_OK;
}

/* Each rank's thread on a core of its own: other programs may drive both to one. If that fails, so be it. */
static void spread_out(const ls_world *w)
{
    if (ls_env_get()->cpus() >= ls_world_size(w)) (void)ls_cores_stay_on(ls_world_rank(w), 1);
}

static ls_status pair_rank(ls_world *w, void *arg)
{
    spread_out(w);
    return measure_pair(ls_world_group(w), arg);
}

static ls_status switch_rank(ls_world *w, void *arg)
{
    spread_out(w);
    return ls_calibrate_switch_points(ls_world_group(w), arg);
}

/* --- more ranks than cores ------------------------------------------------------------------------- */

static ls_status crowd_rank(ls_world *w, void *arg)
{
    ls_calibration *c = arg;
    ls_group *g = ls_world_group(w);
    job j = { .g = g, .coll = LS_BARRIER };
    double ns = (double)INFINITY;
    int rounds = 0;
    g->forced = ls_algo_find("tree"); /* a schedule: mapped memory's barrier is another one */
    memset(g->asked, 0, sizeof g->asked);
    for (int pass = 0; pass < PASSES; pass++) LS_TRY(least(&j, &ns));
    if (ls_group_rank(g) != 0) return LS_OK;
    while (1 << rounds < ls_group_size(g)) rounds += 1;
    double poke = ns / (2 * rounds) - c->cost.link[LS_LEVEL_MEMORY].alpha_ns; /* up the tree and down */
    c->cost.poke_ns = poke > 0.0 ? poke : 0.0;
    return LS_OK;
}

ls_status ls_calibrate_host(ls_calibration *out)
{
    static const struct { const char *transport; ls_level level; } row[] = { { "shm", LS_LEVEL_MEMORY },
                                                                             { "tcp", LS_LEVEL_LOOPBACK } };
    for (int i = 0; i < 2; i++) {
        pair p = { .c = out, .level = row[i].level };
        ls_world_opts o = { .transport = row[i].transport, .arena_bytes = 3 * LARGEST };
        LS_TRY(ls_world_threads(2, &o, pair_rank, &p));
    }
    ls_world_opts so = { .transport = "shm", .arena_bytes = LS_SWITCH_ARENA_BYTES };
    LS_TRY(ls_world_threads(2, &so, switch_rank, out));
    int cores = ls_env_get()->cpus();
    out->ranks = (size_t)(cores < 2 ? 4 : cores > MOST_CROWD / 2 ? MOST_CROWD : 2 * cores);
    ls_world_opts o = { .transport = "shm", .arena_bytes = (size_t)1 << 20 };
    return ls_world_threads((int)out->ranks, &o, crowd_rank, out);
}

ls_status ls_calibrate_network(ls_world *w, ls_calibration *out)
{
    ls_group *all = ls_world_group(w), *two;
    int far = 0;
    while (far < all->size && all->node[far] == all->node[0]) far++;
    if (far == all->size) return LS_OK;
    LS_TRY(ls_group_split(all, all->rank == 0 || all->rank == far ? 0 : -1, &two));
    pair p = { .c = out, .level = LS_LEVEL_NETWORK };
    ls_status st = two ? measure_pair(two, &p) : LS_OK;
    ls_group_destroy(two);
    return st == LS_OK ? ls_barrier(all) : st;
}
