/* job_env.c -- rank and size from the environment that a launcher leaves (torchrun's, Open MPI's, PMI's, Slurm's), or
 * from the program. */
#include "meet/job_env.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/env.h"
#include "base/hash.h"
#include "lockstep/world.h"
#include "meet/address.h"
#include "meet/hostlist.h"

#define MOST_RANKS (1 << 20) /* what a variable may say; how many can join is checked later */

/* How one source spells what we want; NULL: it does not say. */
typedef struct names {
    const char *rank, *size, *local_rank, *local_size, *text;
} names;

static const names spelled[] = {
    [LS_JOB_ALONE] = { .text = "nothing in the environment" },
    [LS_JOB_RANK] = { "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "the environment (RANK, WORLD_SIZE)" },
    [LS_JOB_PROGRAM] = { NULL, NULL, "LOCAL_RANK", "LOCAL_WORLD_SIZE", "the program (rank and size of ls_world_opts)" },
    [LS_JOB_OPENMPI] = { "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                         "OMPI_COMM_WORLD_LOCAL_SIZE", "Open MPI's environment (OMPI_COMM_WORLD_RANK)" },
    [LS_JOB_PMI] = { "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
                     "PMI's environment (PMI_RANK: MPICH, Intel MPI)" },
    [LS_JOB_SLURM] = { "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL, "Slurm's environment (SLURM_PROCID)" },
};

const char *ls_job_source_text(const ls_job_env *j) { return j->store ? "lockstep run" : spelled[j->source].text; }

static const char *env_text(const char *name)
{
    const char *text = name ? ls_env_get()->getenv(name) : NULL;
    return text && *text ? text : NULL;
}

ls_status ls_env_int(const char *name, int min, int max, int *out)
{
    const char *text = env_text(name);
    if (!text) return LS_OK;
    char *end;
    long v = strtol(text, &end, 10);
    if (*end || v < min || v > max)
        return ls_fail(LS_INVALID, "environment variable %s is '%s': expected a number from %d to %d", name, text, min,
                       max);
    *out = (int)v;
    return LS_OK;
}

/* A batch script of Slurm's has SLURM_PROCID=0 too, but is nobody's rank: only what srun starts is. */
static bool is_batch_script(void)
{
    const char *environment = env_text("ENVIRONMENT");
    return environment && strcmp(environment, "BATCH") == 0 && !env_text("SLURM_STEP_ID") && !env_text("SLURM_STEPID");
}

static ls_job_source find_source(void)
{
    if (env_text("RANK") || env_text("WORLD_SIZE")) return LS_JOB_RANK;
    if (env_text("OMPI_COMM_WORLD_SIZE") && (env_text("OMPI_COMM_WORLD_RANK") || env_text("PMIX_RANK")))
        return LS_JOB_OPENMPI;
    if (env_text("PMI_RANK") && env_text("PMI_SIZE")) return LS_JOB_PMI;
    if (env_text("SLURM_PROCID") && (env_text("SLURM_STEP_NUM_TASKS") || env_text("SLURM_NTASKS")) && !is_batch_script())
        return LS_JOB_SLURM;
    return LS_JOB_ALONE;
}

/* The names to read, with what takes another's place where it is missing. */
static names names_of(ls_job_source s)
{
    names n = spelled[s];
    if (s == LS_JOB_OPENMPI && !env_text(n.rank)) n.rank = "PMIX_RANK";
    if (s == LS_JOB_PMI && !env_text(n.local_rank)) { /* srun --mpi=pmi2 leaves these to Slurm */
        n.local_rank = "SLURM_LOCALID";
    }
    if (s == LS_JOB_SLURM && env_text("SLURM_STEP_NUM_TASKS")) n.size = "SLURM_STEP_NUM_TASKS";
    return n;
}

bool ls_world_launched(int *rank, int *size)
{
    ls_job_source s = find_source();
    names n = names_of(s);
    *rank = 0;
    *size = 1;
    if (s == LS_JOB_ALONE) return false;
    if (ls_env_int(n.rank, 0, MOST_RANKS, rank) < 0 || ls_env_int(n.size, 1, MOST_RANKS, size) < 0) {
        *rank = 0;
        *size = 1;
    }
    return true;
}

/* --- where the ranks of a job meet ------------------------------------------------------------------- */

static void meet_at(ls_job_env *j, const char *fmt, ...) LS_PRINTF(2, 3);

static void meet_at(ls_job_env *j, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(j->meeting, sizeof j->meeting, fmt, ap);
    va_end(ap);
}

static unsigned long long short_hash(const char *text) { return (unsigned long long)ls_hash64(text, strlen(text), 0); }

/* Open MPI numbers its jobs (PMIX_NAMESPACE); the address of the daemon that started us tells two with equal numbers
 * apart. */
static ls_status meet_openmpi(ls_job_env *j)
{
    static const char *const daemon[] = { "PMIX_SERVER_URI2", "PMIX_SERVER_URI21", "PMIX_SERVER_URI41",
                                          "OMPI_MCA_orte_local_daemon_uri" };
    const char *job = env_text("PMIX_NAMESPACE"), *uri = NULL;
    if (!job) job = env_text("OMPI_MCA_ess_base_jobid");
    for (size_t i = 0; i < sizeof daemon / sizeof *daemon && !uri; i++) uri = env_text(daemon[i]);
    if (!job && !uri)
        return ls_fail(LS_INVALID, "Open MPI's environment has neither PMIX_NAMESPACE nor the address of its daemon: the "
                                   "ranks cannot find one another; start them with mpirun");
    meet_at(j, "lockstep-openmpi-%016llx-%016llx", short_hash(job ? job : ""), short_hash(uri ? uri : ""));
    return LS_OK;
}

/* PMI gives a job no name. Slurm's and some others' does (PMI_JOBID); else every rank of this machine has the same
 * proxy: the process at the other end of PMI_FD, whatever shells stand between; where PMI speaks TCP, its address;
 * and at last our parent. */
static ls_status meet_pmi(ls_job_env *j)
{
    const ls_env *env = ls_env_get();
    const char *job = env_text("PMI_JOBID"), *port = env_text("PMI_PORT");
    int fd = -1, pid = -1;
    LS_TRY(ls_env_int("PMI_FD", 0, 1 << 20, &fd));
    if (job) meet_at(j, "lockstep-pmi-job-%016llx", short_hash(job));
    else if (port) meet_at(j, "lockstep-pmi-port-%016llx", short_hash(port));
    else if (fd >= 0 && (pid = env->peer_pid(fd)) > 0) meet_at(j, "lockstep-pmi-proxy-%d", pid);
    else meet_at(j, "lockstep-pmi-parent-%d", env->parent_pid());
    return LS_OK;
}

/* The number of hosts in a list, and the first one. */
static ls_status read_hosts(const char *list, char first[LS_HOST_MAX_NAME + 1], int *nhosts)
{
    char (*hosts)[LS_HOST_MAX_NAME + 1] = calloc(LS_WORLD_MOST_RANKS, sizeof *hosts);
    if (!hosts) return ls_fail(LS_NO_MEMORY, "the step's list of nodes");
    ls_status st = ls_hostlist_expand(list, hosts, LS_WORLD_MOST_RANKS, nhosts);
    if (st == LS_OK) memcpy(first, hosts[0], sizeof *hosts);
    free(hosts);
    return st;
}

/* Our tasks, of those that SLURM_STEP_TASKS_PER_NODE says each node has. */
static ls_status read_tasks(const char *counts, int node, ls_job_env *j)
{
    int ntasks = 0, sum = 0, *tasks = calloc(LS_WORLD_MOST_RANKS, sizeof *tasks);
    if (!tasks) return ls_fail(LS_NO_MEMORY, "the step's list of tasks");
    ls_status st = ls_tasklist_expand(counts, tasks, LS_WORLD_MOST_RANKS, &ntasks);
    for (int i = 0; i < ntasks && st == LS_OK; i++) sum += tasks[i];
    if (st == LS_OK && (sum != j->size || node >= ntasks))
        st = ls_fail(LS_INVALID, "SLURM_STEP_TASKS_PER_NODE is '%.80s' (%d tasks on %d nodes), but the step has %d tasks and "
                                 "this is node %d", counts, sum, ntasks, j->size, node);
    if (st == LS_OK) j->local_size = tasks[node];
    free(tasks);
    return st;
}

/* Where the ranks of a step are, and how many are here. */
static ls_status place_slurm(ls_job_env *j)
{
    char first[LS_HOST_MAX_NAME + 1];
    int nhosts = 0, node = 0, nodes = 0, per_node = -1;
    const char *list = env_text("SLURM_STEP_NODELIST"), *counts = env_text("SLURM_STEP_TASKS_PER_NODE");
    LS_TRY(ls_env_int("SLURM_NODEID", 0, MOST_RANKS, &node));
    LS_TRY(ls_env_int("SLURM_NNODES", 1, MOST_RANKS, &nodes));
    LS_TRY(ls_env_int("SLURM_STEP_NUM_NODES", 1, MOST_RANKS, &nodes));
    LS_TRY(ls_env_int("SLURM_NTASKS_PER_NODE", 1, MOST_RANKS, &per_node));
    if (!list) list = env_text("SLURM_JOB_NODELIST");
    if (list) LS_TRY(read_hosts(list, first, &nhosts));
    if (list && !*j->addr) memcpy(j->addr, first, sizeof j->addr);
    if (nodes == 0) nodes = nhosts > 0 ? nhosts : 1;
    if (counts) {
        LS_TRY(read_tasks(counts, node, j));
    } else if (nodes > 1) {
        if (per_node < 0)
            return ls_fail(LS_INVALID, "environment variable SLURM_STEP_TASKS_PER_NODE is not set, and the step has %d "
                                       "nodes: start the ranks with srun", nodes);
        j->local_size = per_node;
    }
    return LS_OK;
}

static ls_status meet_slurm(ls_job_env *j)
{
    const char *id = env_text("SLURM_JOB_ID"), *step = env_text("SLURM_STEP_ID");
    int last_digits = 0;
    LS_TRY(place_slurm(j));
    if (!step) step = env_text("SLURM_STEPID");
    if (!id && !j->port)
        return ls_fail(LS_INVALID, "environment variables SLURM_JOB_ID and MASTER_PORT are not set: the ranks cannot find "
                                   "one another; start them with srun");
    if (id) {
        char *end;
        unsigned long long number = strtoull(id, &end, 10);
        if (*end || *id < '0' || *id > '9')
            return ls_fail(LS_INVALID, "environment variable SLURM_JOB_ID is '%.40s': expected a number", id);
        last_digits = (int)(number % 20000);
    }
    if (!j->port) {
        j->port = 20000 + last_digits;
        j->port_derived = true;
    }
    if (id) meet_at(j, "lockstep-slurm-%.32s.%.32s", id, step ? step : "0");
    else meet_at(j, "lockstep-port-%d", j->port);
    return LS_OK;
}

/* --- reading ------------------------------------------------------------------------------------------ */

/* RANK and its like come from whoever started the process: they must be whole. */
static ls_status meet_by_hand(ls_job_env *j)
{
    const char *missing = !env_text("RANK") ? "RANK" : !env_text("WORLD_SIZE") ? "WORLD_SIZE" : NULL;
    if (!missing && !j->store && j->size > 1) missing = !*j->addr ? "MASTER_ADDR" : !j->port ? "MASTER_PORT" : NULL;
    if (missing)
        return ls_fail(LS_INVALID, "environment variable %s is not set: ranks started without a launcher need RANK, WORLD_SIZE, "
                                   "MASTER_ADDR and MASTER_PORT; `lockstep run` sets them all", missing);
    meet_at(j, "lockstep-port-%d", j->port);
    return LS_OK;
}

static ls_status check_args(const ls_job_args *a)
{
    if (a->size == 0 && (a->rank || a->addr || a->port))
        return ls_fail(LS_INVALID, "ls_world_opts has a rank, master_addr or master_port and no size: set size, too");
    if (a->size < 0 || (a->size > 0 && (a->rank < 0 || a->rank >= a->size)))
        return ls_fail(LS_INVALID, "ls_world_opts says rank %d of %d: expected a rank from 0 to size - 1", a->rank, a->size);
    if (a->port < 0 || a->port > 65535)
        return ls_fail(LS_INVALID, "ls_world_opts.master_port is %d: expected 1 to 65535", a->port);
    if (a->addr && strlen(a->addr) > LS_HOST_MAX_NAME)
        return ls_fail(LS_INVALID, "ls_world_opts.master_addr is %.40s...: expected at most %d characters", a->addr,
                       LS_HOST_MAX_NAME);
    return LS_OK;
}

static bool same_host(const char *a, const char *b)
{
    return strcmp(a, b) == 0 || (ls_address_is_loopback(a) && ls_address_is_loopback(b));
}

/* Rank and size must be those of the environment, where that has both; address and port are filled in. */
static ls_status take_args(const ls_job_args *a, const names *n, ls_job_env *j)
{
    if (j->source == LS_JOB_PROGRAM) {
        j->rank = a->rank;
        j->size = a->size;
    }
    if (env_text(n->rank) && env_text(n->size) && (j->rank != a->rank || j->size != a->size))
        return ls_fail(LS_CONFIG_MISMATCH, "the program says rank %d of %d, %s says rank %d of %d: start the program without "
                       "a launcher, or pass it the launcher's rank and size", a->rank, a->size, ls_job_source_text(j), j->rank,
                       j->size);
    if (*j->addr && a->addr && !same_host(j->addr, a->addr))
        return ls_fail(LS_CONFIG_MISMATCH, "the program says master_addr %s, environment variable MASTER_ADDR says %s: leave one "
                       "of them out", a->addr, j->addr);
    if (j->port && a->port && j->port != a->port)
        return ls_fail(LS_CONFIG_MISMATCH, "the program says master_port %d, environment variable MASTER_PORT says %d: leave one "
                       "of them out", a->port, j->port);
    const char *addr = a->addr ? a->addr : ls_job_has_port(j) ? "localhost" : ""; /* others know better */
    if (!*j->addr) snprintf(j->addr, sizeof j->addr, "%s", addr);
    if (!j->port) j->port = a->port;
    return LS_OK;
}

/* Of a program that passes its rank, in an environment without any. */
static ls_status meet_program(ls_job_env *j)
{
    if (j->size > 1 && !j->port)
        return ls_fail(LS_INVALID, "nothing says at which port %d ranks meet: set master_port of ls_world_opts, or environment "
                       "variable MASTER_PORT", j->size);
    meet_at(j, "lockstep-port-%d", j->port);
    return LS_OK;
}

/* What ranks on several hosts need besides. */
static ls_status check_several(ls_job_env *j, const names *n)
{
    j->node = (j->rank - j->local_rank) / j->local_size; /* equal numbers of ranks, in the hosts' order */
    LS_TRY(ls_env_int("SLURM_NODEID", 0, MOST_RANKS, &j->node));
    if (ls_job_has_port(j)) LS_TRY(ls_env_int("GROUP_RANK", 0, MOST_RANKS, &j->node));
    if (j->node < 0 || j->node >= LS_WORLD_MOST_RANKS)
        return ls_fail(LS_INVALID, "this is node %d: expected 0 to %d", j->node, LS_WORLD_MOST_RANKS - 1);
    if ((j->rank == 0) != (j->node == 0 && j->local_rank == 0))
        return ls_fail(LS_INVALID, "rank %d is local rank %d on node %d: rank 0, and only it, must be the first of node 0",
                       j->rank, j->local_rank, j->node);
    if (!j->store && (!*j->addr || !j->port))
        return ls_fail(LS_INVALID, "%s is %d but only %d ranks are on this machine: to join several, environment variables "
                                   "MASTER_ADDR and MASTER_PORT must say where rank 0 is",
                       n->size, j->size, j->local_size);
    if (j->secret_fd < 0 && !j->secret_file)
        return ls_fail(LS_AUTH_FAILED, "%s is %d but only %d ranks are on this machine: joining several needs a secret, the "
                                       "same file on each. Make one with `lockstep secret new FILE`, copy it to the others, "
                                       "and set LOCKSTEP_SECRET_FILE=FILE",
                       n->size, j->size, j->local_size);
    if (!j->store && j->node > 0) { /* tests have several "nodes" on one */
        size_t at = strlen(j->meeting);
        snprintf(j->meeting + at, sizeof j->meeting - at, "-node%d", j->node);
    }
    return LS_OK;
}

static ls_status check(ls_job_env *j, const names *n)
{
    if (j->rank >= j->size)
        return ls_fail(LS_INVALID, "%s is %d and %s %d: expected %s from 0 to %d", n->rank, j->rank, n->size, j->size,
                       n->rank, j->size - 1);
    if (j->size > LS_WORLD_MOST_RANKS)
        return ls_fail(LS_INVALID, "%s is %d: a world has at most %d ranks", n->size, j->size, LS_WORLD_MOST_RANKS);
    bool here = !*j->addr || strcmp(j->addr, "127.0.0.1") == 0 || strcmp(j->addr, "localhost") == 0 ||
                strcmp(j->addr, "::1") == 0;
    if (ls_job_has_port(j) && !j->store && !here && j->local_size < 0)
        return ls_fail(LS_INVALID, "MASTER_ADDR is '%s', so there may be other machines: LOCAL_RANK and LOCAL_WORLD_SIZE must "
                                   "say which of the ranks on this one this is, and how many they are",
                       j->addr);
    if (j->local_rank < 0) j->local_rank = j->rank;
    if (j->local_size < 0) j->local_size = j->size;
    if (j->local_rank >= j->local_size)
        return ls_fail(LS_INVALID, "%s is %d of %d ranks on this machine", n->local_rank, j->local_rank, j->local_size);
    if (j->local_size > LS_HOST_MOST_RANKS)
        return ls_fail(LS_INVALID, "%d ranks are on this machine: at most %d, since each maps the memory of all others there; "
                                   "start fewer, with more threads each, or use more machines",
                       j->local_size, LS_HOST_MOST_RANKS);
    j->several = j->local_size != j->size;
    if (j->several) LS_TRY(check_several(j, n));
    return LS_OK;
}

ls_status ls_job_env_read(ls_job_env *j) { return ls_job_env_read_with(&(ls_job_args){ 0 }, j); }

ls_status ls_job_env_read_with(const ls_job_args *a, ls_job_env *j)
{
    *j = (ls_job_env){ .source = find_source(), .size = 1, .local_rank = -1, .local_size = -1, .secret_fd = -1,
                        .run_id = "none" };
    LS_TRY(check_args(a));
    if (j->source == LS_JOB_ALONE && a->size > 0) j->source = LS_JOB_PROGRAM;
    names n = names_of(j->source);
    if (j->source == LS_JOB_ALONE) return LS_OK;
    LS_TRY(ls_env_int(n.rank, 0, MOST_RANKS, &j->rank));
    LS_TRY(ls_env_int(n.size, 1, MOST_RANKS, &j->size));
    LS_TRY(ls_env_int(n.local_rank, 0, MOST_RANKS, &j->local_rank));
    LS_TRY(ls_env_int(n.local_size, 1, MOST_RANKS, &j->local_size));
    LS_TRY(ls_env_int("MASTER_PORT", 1, 65535, &j->port));
    j->secret_file = env_text("LOCKSTEP_SECRET_FILE");
    j->listen = env_text("LOCKSTEP_LISTEN");
    j->run_id = env_text("TORCHELASTIC_RUN_ID");
    if (!j->run_id) j->run_id = "none";
    const char *addr = env_text("MASTER_ADDR");
    if (addr) snprintf(j->addr, sizeof j->addr, "%s", addr);
    if (j->source == LS_JOB_RANK) {
        LS_TRY(ls_env_int("LOCKSTEP_SECRET_FD", 0, 1 << 20, &j->secret_fd));
        j->store = env_text("LOCKSTEP_STORE");
        if (j->store) LS_TRY(ls_env_int("LOCKSTEP_LOCAL_RANK", 0, MOST_RANKS, &j->local_rank)); /* LOCAL_RANK may be virtual */
        j->rendezvous = env_text("LOCKSTEP_RENDEZVOUS");
        j->address = env_text("LOCKSTEP_ADDRESS");
    }
    if (a->size > 0) LS_TRY(take_args(a, &n, j));
    if (j->source == LS_JOB_PROGRAM) n.rank = "rank", n.size = "size of ls_world_opts"; /* for messages */
    switch (j->source) {
    case LS_JOB_RANK: LS_TRY(meet_by_hand(j)); break;
    case LS_JOB_PROGRAM: LS_TRY(meet_program(j)); break;
    case LS_JOB_OPENMPI: LS_TRY(meet_openmpi(j)); break;
    case LS_JOB_PMI: LS_TRY(meet_pmi(j)); break;
    case LS_JOB_SLURM: LS_TRY(meet_slurm(j)); break;
    case LS_JOB_ALONE: break;
    }
    LS_TRY(check(j, &n));
    j->by_hand = !j->store && j->size > 1;
    return LS_OK;
}
