/* limit.c -- each collective written by hand for exactly this case, and nothing else.
 *
 * All buffers lie in one mapping. A short all_reduce: everyone shows its vector and adds all. all_reduce and
 * reduce_scatter: between two flags, rank r adds slice r of everybody's
 * vector in one pass and stores it where it is wanted. The others copy straight from their owner's buffer. No
 * argument is checked, nobody is named when a rank is late. It is no bound: a library may be quicker (bound.c is one).
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "method.h"
#include "pin.h"

#define MAX_RANKS 16
#define FLAT_BYTES 512 /* up to which everyone shows its vector and adds all: one flag wait; above it two, and no copy */
#define BLOCK 4096 /* floats added before the next ones: several destinations stay in the first-level cache */

typedef struct flag {
    _Alignas(128) _Atomic uint32_t count;
    double value;
} flag;

/* A short vector in its flag's own line, and a longer one beside it; used in turns. */
typedef struct board {
    _Alignas(128) _Atomic uint32_t count;
    float line[15];
    _Alignas(128) float rest[FLAT_BYTES / sizeof(float)];
} board;

static flag *flags;
static board (*boards)[2];
static uint32_t boarded;
static float *in_of[MAX_RANKS], *out_of[MAX_RANKS];
static uint32_t barriers;
static int spins;

static int reached(int rank, uint32_t count)
{
    return (int32_t)(atomic_load_explicit(&flags[rank].count, memory_order_acquire) - count) >= 0;
}

static void barrier(const peer *p)
{
    atomic_store_explicit(&flags[p->rank].count, ++barriers, memory_order_release);
    for (int r = 0; r < p->o.ranks; r++)
        for (int tries = 0; !reached(r, barriers); tries++) {
            if (tries > spins) sched_yield();
            else __builtin_ia32_pause();
        }
}

/* dst[d][i] = sum over ranks of src[r][i], in rank order */
static void add(float *const *dst, int ndst, float *const *src, int ranks, size_t n)
{
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t m = n - at < BLOCK ? n - at : BLOCK;
        typedef float vec __attribute__((vector_size(64), aligned(4), may_alias));
        size_t i = 0;
        for (; i + 32 <= m; i += 32) {
            vec a = *(const vec *)(src[0] + at + i), b = *(const vec *)(src[0] + at + i + 16);
            for (int r = 1; r < ranks; r++) {
                a += *(const vec *)(src[r] + at + i);
                b += *(const vec *)(src[r] + at + i + 16);
            }
            for (int d = 0; d < ndst; d++) *(vec *)(dst[d] + at + i) = a, *(vec *)(dst[d] + at + i + 16) = b;
        }
        for (; i < m; i++) {
            float sum = src[0][at + i];
            for (int r = 1; r < ranks; r++) sum += src[r][at + i];
            for (int d = 0; d < ndst; d++) dst[d][at + i] = sum;
        }
    }
}

static void flat(const peer *p, size_t n)
{
    uint32_t count = ++boarded, half = count & 1;
    float *src[MAX_RANKS];
    for (int r = 0; r < p->o.ranks; r++) {
        board *b = &boards[r][half];
        src[r] = n <= 15 ? b->line : b->rest;
    }
    memcpy(src[p->rank], p->in, n * sizeof(float));
    atomic_store_explicit(&boards[p->rank][half].count, count, memory_order_release);
    for (int r = 0; r < p->o.ranks; r++) {
        const _Atomic uint32_t *theirs = &boards[r][half].count;
        for (int tries = 0; (int32_t)(atomic_load_explicit(theirs, memory_order_acquire) - count) < 0; tries++) {
            if (tries > spins) sched_yield();
            else __builtin_ia32_pause();
        }
    }
    float *dst = p->out;
    add(&dst, 1, src, p->o.ranks, n);
}

static void run(peer *p, size_t n)
{
    int ranks = p->o.ranks, me = p->rank;
    size_t share = n / (size_t)ranks, first = (size_t)me * share;
    float *src[MAX_RANKS], *dst[MAX_RANKS];
    if (p->o.collective == ALL_REDUCE && n * sizeof(float) <= FLAT_BYTES) {
        flat(p, n);
        return;
    }
    barrier(p);
    switch (p->o.collective) {
    case ALL_REDUCE: {
        size_t chunk = ((n + (size_t)ranks - 1) / (size_t)ranks + 15) & ~(size_t)15;
        first = chunk * (size_t)me < n ? chunk * (size_t)me : n;
        for (int r = 0; r < ranks; r++) src[r] = in_of[r] + first, dst[r] = out_of[r] + first;
        add(dst, ranks, src, ranks, n - first < chunk ? n - first : chunk);
        break;
    }
    case REDUCE_SCATTER:
        for (int r = 0; r < ranks; r++) src[r] = in_of[r] + first;
        dst[0] = peer_result(p, n);
        add(dst, 1, src, ranks, share);
        break;
    case ALL_GATHER:
        for (int k = p->o.in_place; k < ranks; k++) {
            int r = (me + k) % ranks;
            const float *own = in_of[r] + (p->o.in_place ? (size_t)r * share : 0);
            memcpy(p->out + (size_t)r * share, own, share * sizeof(float));
        }
        break;
    case BROADCAST:
        if (me) memcpy(p->out, out_of[0], n * sizeof(float));
        break;
    case ALL_TO_ALL:
        for (int k = 0; k < ranks; k++) {
            int r = (me + k) % ranks;
            memcpy(p->out + (size_t)r * share, in_of[r] + first, share * sizeof(float));
        }
        break;
    case SENDRECV: /* the sender's flag says that it may be read, the receiver's that it was */
        if (me == 1) memcpy(p->out, in_of[0], n * sizeof(float));
        barrier(p);
        if (me == 0) memcpy(p->out, in_of[1], n * sizeof(float));
        break;
    default: return;
    }
    barrier(p);
}

static double most(peer *p, double mine)
{
    flags[p->rank].value = mine;
    barrier(p);
    double all = flags[0].value;
    for (int r = 1; r < p->o.ranks; r++) all = flags[r].value > all ? flags[r].value : all;
    barrier(p);
    return all;
}

int main(int argc, char **argv)
{
    peer p = { .o = peer_options(argc, argv, "limit"), .run = run, .most = most };
    p.o.memory = "registered";
    if (p.o.ranks < 1 || p.o.ranks > MAX_RANKS) return 64;
    if (p.o.collective == BROADCAST) p.o.in_place = 1;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    spins = p.o.ranks <= cores ? 20000 : 20;
    flags = pages(sizeof *flags * MAX_RANKS, 1);
    boards = pages(sizeof *boards * MAX_RANKS, 1);
    for (int r = 0; r < p.o.ranks; r++) {
        out_of[r] = pages(peer_buffer_bytes(&p.o), 1);
        in_of[r] = p.o.in_place ? out_of[r] : pages(peer_buffer_bytes(&p.o), 1);
    }
    for (int r = 1; r < p.o.ranks; r++)
        if (fork() == 0) {
            p.rank = r;
            break;
        }
    pin_rank(p.rank, 1);
    p.in = in_of[p.rank], p.out = out_of[p.rank];
    memset(p.out, 0, peer_buffer_bytes(&p.o));
    if (!p.o.in_place) memset(p.in, 0, peer_buffer_bytes(&p.o));
    peer_header(&p);
    peer_rows(&p);
    if (p.rank) _exit(0);
    while (wait(NULL) > 0) continue;
    return 0;
}
