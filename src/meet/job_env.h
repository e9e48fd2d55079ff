/* job_env.h -- which rank of which job this process is, as its environment or the program itself says.
 *
 * The first that is there wins: torchrun's variables (RANK, WORLD_SIZE ...), Open MPI's, PMI's (MPICH's Hydra,
 * Intel MPI), Slurm's. Slurm comes after MPI, because `mpirun` inside an allocation leaves SLURM_* around. A program
 * that passes its rank and size must agree with the environment, and needs none.
 */
#ifndef LS_MEET_JOB_ENV_H
#define LS_MEET_JOB_ENV_H
#include <stdbool.h>
#include "base/limits.h"
#include "lockstep/status.h"

typedef enum ls_job_source {
    LS_JOB_ALONE,
    LS_JOB_RANK,
    LS_JOB_PROGRAM, /* ls_job_args */
    LS_JOB_OPENMPI,
    LS_JOB_PMI,
    LS_JOB_SLURM
} ls_job_source;

/* What the program passes by itself (the fields of ls_world_opts). size 0: nothing. */
typedef struct ls_job_args {
    int rank, size;
    const char *addr; /* NULL: MASTER_ADDR, else localhost */
    int port;         /* 0: MASTER_PORT */
} ls_job_args;

typedef struct ls_job_env {
    ls_job_source source;
    int rank, size, local_rank, local_size;
    const char *store;  /* borrowed from the environment: name of the store that `lockstep run` serves; NULL */
    int secret_fd;      /* of that store; -1 */
    bool by_hand;       /* nobody serves a store: the first rank of each host does, at `meeting` */
    bool several;       /* hosts: rank 0's store is at addr and port, or where `rendezvous` says */
    int node;           /* of them, this one's number */
    const char *rendezvous;  /* borrowed: HOST:PORT of node 0's store, set by another node's launcher; NULL */
    const char *secret_file; /* borrowed: LOCKSTEP_SECRET_FILE; NULL */
    const char *listen;      /* borrowed: LOCKSTEP_LISTEN, an address of this host to listen on; NULL */
    const char *address;     /* borrowed: LOCKSTEP_ADDRESS, how the other hosts reach this one; NULL */
    const char *run_id;      /* borrowed: TORCHELASTIC_RUN_ID, or "none" */
    char meeting[96];   /* abstract name of the Unix socket where the job's ranks on this machine meet */
    int port;           /* MASTER_PORT, or Slurm's 20000 + job id modulo 20000; 0: none */
    bool port_derived;  /* not said by MASTER_PORT */
    char addr[LS_HOST_MAX_NAME + 1]; /* MASTER_ADDR, or the first host of Slurm's list; "" unknown */
} ls_job_env;

/* Nothing set: LS_OK and a world of one. LS_INVALID names the variable that is wrong or missing,
 * LS_UNSUPPORTED what this version does not join. */
ls_status ls_job_env_read(ls_job_env *out);
/* The same for a program that passes its rank. LS_CONFIG_MISMATCH: the environment says another; both are named. */
ls_status ls_job_env_read_with(const ls_job_args *a, ls_job_env *out);

/* A variable that holds a number; *out stays as it is when it is not set. LS_INVALID names it. */
ls_status ls_env_int(const char *name, int min, int max, int *out);

/* Whether its ranks meet at MASTER_ADDR and MASTER_PORT, as those of torch.distributed do. */
static inline bool ls_job_has_port(const ls_job_env *j)
{
    return j->source == LS_JOB_RANK || j->source == LS_JOB_PROGRAM;
}

/* "Open MPI's environment (OMPI_COMM_WORLD_RANK)": who won. Static text. */
const char *ls_job_source_text(const ls_job_env *j);

#endif
