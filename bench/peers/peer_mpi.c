/* peer_mpi.c -- an MPI's collectives, measured as method.h says. Built once for each MPI. */
#include <mpi.h>

#include "method.h"

static void run(peer *p, size_t n)
{
    int all = (int)n, share = (int)(n / (size_t)p->o.ranks), other = 1 - p->rank;
    void *in = p->o.in_place ? MPI_IN_PLACE : p->in;
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

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    peer p = { .o = peer_options(argc, argv, "mpi"), .run = run, .most = most };
    MPI_Comm_rank(MPI_COMM_WORLD, &p.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &p.o.ranks);
    if (p.o.collective == SENDRECV && p.o.ranks != 2) MPI_Abort(MPI_COMM_WORLD, 64);
    if (p.o.collective == BROADCAST) p.o.in_place = 1;
    p.out = pages(peer_buffer_bytes(&p.o), 0);
    p.in = p.o.in_place ? p.out : pages(peer_buffer_bytes(&p.o), 0);
    peer_rows(&p);
    MPI_Finalize();
    return 0;
}
