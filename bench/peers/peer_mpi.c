/* peer_mpi.c -- an MPI's collectives, measured as method.h says. Built once for each MPI.
 *
 *   -m WAYS   instead of -p, a list of what to measure one after the other, e.g. private.out,alloc.in,window.in:
 *             memory of malloc's kind, of MPI_Alloc_mem, of MPI_Win_allocate_shared (ranks of one machine), and place
 */
#include <mpi.h>

#include "method.h"

static MPI_Op sum_bf16;
static uint16_t *narrow; /* -w bf16: what travels */

static void add_narrow(void *in, void *inout, int *n, MPI_Datatype *type)
{
    (void)type;
    add_bf16(inout, inout, in, (size_t)*n);
}

static void run(peer *p, size_t n)
{
    int all = (int)n, share = (int)(n / (size_t)p->o.ranks), other = 1 - p->rank;
    void *in = p->o.in_place ? MPI_IN_PLACE : p->in;
    if (p->o.bf16 && p->o.collective == ALL_REDUCE) {
        to_bf16(narrow, p->in, n);
        MPI_Allreduce(MPI_IN_PLACE, narrow, all, MPI_UINT16_T, sum_bf16, MPI_COMM_WORLD);
        from_bf16(p->out, narrow, n);
        return;
    }
    switch (p->o.collective) {
    case ALL_REDUCE: MPI_Allreduce(in, p->out, all, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
    case REDUCE_SCATTER: MPI_Reduce_scatter_block(in, p->out, share, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
    case ALL_GATHER: MPI_Allgather(in, share, MPI_FLOAT, p->out, share, MPI_FLOAT, MPI_COMM_WORLD); break;
    case BROADCAST: MPI_Bcast(p->out, all, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
    case ALL_TO_ALL: MPI_Alltoall(in, share, MPI_FLOAT, p->out, share, MPI_FLOAT, MPI_COMM_WORLD); break;
    case SENDRECV:
        if (p->rank == 0) MPI_Send(p->in, all, MPI_FLOAT, other, 0, MPI_COMM_WORLD);
        MPI_Recv(p->out, all, MPI_FLOAT, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (p->rank == 1) MPI_Send(p->in, all, MPI_FLOAT, other, 0, MPI_COMM_WORLD);
        break;
    default: MPI_Barrier(MPI_COMM_WORLD); break;
    }
}

static double most(peer *p, double mine)
{
    (void)p;
    double all;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    return all;
}

/* A buffer of one kind of memory; *w is the window that owns it, where one does. */
static float *buffer(const char *memory, size_t bytes, MPI_Win *w)
{
    void *p = NULL;
    *w = MPI_WIN_NULL;
    if (strcmp(memory, "window") == 0) MPI_Win_allocate_shared((MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &p, w);
    else if (strcmp(memory, "alloc") == 0) MPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, &p);
    else return pages(bytes, 0);
    if (!p) MPI_Abort(MPI_COMM_WORLD, 71);
    memset(p, 0, bytes);
    return p;
}

static void release(const char *memory, float *p, size_t bytes, MPI_Win *w)
{
    if (*w != MPI_WIN_NULL) MPI_Win_free(w);
    else if (strcmp(memory, "alloc") == 0) MPI_Free_mem(p);
    else munmap(p, bytes);
}

static int has(const char *list, const char *memory, const char *place)
{
    char word[32];
    const size_t n = (size_t)snprintf(word, sizeof word, "%s.%s", memory, place);
    for (const char *at = list; (at = strstr(at, word)); at += n)
        if ((at == list || at[-1] == ',') && (at[n] == 0 || at[n] == ',')) return 1;
    return 0;
}

/* One kind of memory, in each place that is asked for. */
static void measure(peer *p, const char *memory, const char *name, const char *ways)
{
    static const char *const places[] = { "out", "in" };
    const size_t bytes = peer_buffer_bytes(&p->o);
    MPI_Win windows[2];
    if (!has(ways, memory, "in") && !has(ways, memory, "out")) return;
    float *in = buffer(memory, bytes, &windows[0]), *out = buffer(memory, bytes, &windows[1]);
    p->o.memory = name;
    for (int place = 0; place < 2; place++) {
        if (!has(ways, memory, places[place])) continue;
        p->o.in_place = place;
        p->out = out;
        p->in = place ? out : in;
        peer_rows(p);
    }
    release(memory, in, bytes, &windows[0]);
    release(memory, out, bytes, &windows[1]);
}

int main(int argc, char **argv)
{
    const char *ways = NULL;
    MPI_Init(&argc, &argv);
    peer p = { .o = peer_options(argc, argv, "mpi"), .run = run, .most = most };
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "-m") == 0) ways = argv[i + 1];
    MPI_Comm_rank(MPI_COMM_WORLD, &p.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &p.o.ranks);
    if (p.o.collective == SENDRECV && p.o.ranks != 2) MPI_Abort(MPI_COMM_WORLD, 64);
    if (!ways) ways = p.o.in_place || p.o.collective == BROADCAST ? "private.in" : "private.out";
    if (p.o.bf16) {
        MPI_Op_create(add_narrow, 1, &sum_bf16);
        narrow = malloc(p.o.most / 2 + 64);
        if (!narrow) MPI_Abort(MPI_COMM_WORLD, 71);
    }
    peer_header(&p);
    measure(&p, "private", "private", ways);
    measure(&p, "alloc", "MPI_Alloc_mem", ways);
    measure(&p, "window", "MPI_Win_allocate_shared", ways);
    free(narrow);
    MPI_Finalize();
    return 0;
}
