/* Rank and size from the environments of four launchers: who wins, what is read, what is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/context.h"
#include "lockstep/world.h"
#include "meet/job_env.h"

#define MOST 16

/* The environment of a process that is not this one. */
static _Thread_local const char *const *vars;
static _Thread_local int proxy_pid;

static const char *fake_getenv(const char *name)
{
    for (int i = 0; i < MOST && vars[i]; i++) {
        size_t n = strlen(name);
        if (strncmp(vars[i], name, n) == 0 && vars[i][n] == '=') return vars[i] + n + 1;
    }
    return NULL;
}

static int fake_peer_pid(int sock) { return sock == 6 ? proxy_pid : -9; }
static int fake_parent_pid(void) { return 4711; }

static ls_status read_with_args(const char *const *set, const ls_job_args *a, ls_job_env *j)
{
    ls_env env = *ls_env_get();
    env.getenv = fake_getenv;
    env.peer_pid = fake_peer_pid;
    env.parent_pid = fake_parent_pid;
    ls_context c = { .env = &env, .rank = -1 };
    vars = set;
    ls_context *before = ls_context_swap(&c);
    ls_status st = ls_job_env_read_with(a, j);
    int rank, size;
    assert_int_equal(ls_world_launched(&rank, &size), j->source != LS_JOB_ALONE && j->source != LS_JOB_PROGRAM);
    if (st == LS_OK && j->source != LS_JOB_PROGRAM && (rank != j->rank || size != j->size)) fail_msg("launched says %d of %d", rank, size);
    ls_context_swap(before);
    if (st < 0) (void)ls_fail(st, "%s", c.error);
    return st;
}

static ls_status read_with(const char *const *set, ls_job_env *j)
{
    return read_with_args(set, &(ls_job_args){ 0 }, j);
}

#define OMPI(rank, size) "OMPI_COMM_WORLD_RANK=" rank, "OMPI_COMM_WORLD_SIZE=" size, "OMPI_COMM_WORLD_LOCAL_RANK=" rank, \
    "OMPI_COMM_WORLD_LOCAL_SIZE=" size, "PMIX_NAMESPACE=927334401", "PMIX_SERVER_URI2=927334400.0;tcp4://127.0.0.1:56367"
#define HYDRA(rank, size) "PMI_RANK=" rank, "PMI_SIZE=" size, "MPI_LOCALRANKID=" rank, "MPI_LOCALNRANKS=" size, "PMI_FD=6"
#define SLURM(rank, size) "SLURM_PROCID=" rank, "SLURM_NTASKS=" size, "SLURM_LOCALID=" rank, "SLURM_JOB_ID=123456", \
    "SLURM_STEP_ID=2", "SLURM_NNODES=1", "SLURM_NODEID=0", "SLURM_STEP_NODELIST=node[07]", "SLURM_STEP_TASKS_PER_NODE=" size
#define BY_HAND(rank, size) "RANK=" rank, "WORLD_SIZE=" size, "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500"

static void reads_each_launcher(void **state)
{
    (void)state;
    static const struct {
        const char *set[MOST];
        ls_job_source source;
        int rank, size;
        const char *meeting, *says;
    } row[] = {
        { { NULL }, LS_JOB_ALONE, 0, 1, "", "nothing" },
        { { BY_HAND("1", "3") }, LS_JOB_RANK, 1, 3, "lockstep-port-29500", "RANK" },
        { { OMPI("2", "4") }, LS_JOB_OPENMPI, 2, 4, "lockstep-openmpi-", "Open MPI" },
        { { HYDRA("2", "4") }, LS_JOB_PMI, 2, 4, "lockstep-pmi-proxy-99", "MPICH" },
        { { SLURM("2", "4") }, LS_JOB_SLURM, 2, 4, "lockstep-slurm-123456.2", "Slurm" },
        { { "PMIX_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "PMIX_NAMESPACE=x@1" }, LS_JOB_OPENMPI, 1, 2, "lockstep-openmpi-", "Open MPI" },
        { { "PMI_RANK=1", "PMI_SIZE=2" }, LS_JOB_PMI, 1, 2, "lockstep-pmi-parent-4711", "PMI" },
        { { "PMI_RANK=1", "PMI_SIZE=2", "PMI_FD=5" }, LS_JOB_PMI, 1, 2, "lockstep-pmi-parent-4711", "PMI" },
        { { "PMI_RANK=1", "PMI_SIZE=2", "PMI_JOBID=7.0" }, LS_JOB_PMI, 1, 2, "lockstep-pmi-job-", "PMI" },
        { { "PMI_RANK=1", "PMI_SIZE=2", "PMI_PORT=h:3" }, LS_JOB_PMI, 1, 2, "lockstep-pmi-port-", "PMI" },
        { { "RANK=", "WORLD_SIZE=", HYDRA("0", "2") }, LS_JOB_PMI, 0, 2, "lockstep-pmi-proxy-99", "PMI" },
        /* srun gives a step fewer tasks than its job has; a batch script is not one of them */
        { { "SLURM_PROCID=1", "SLURM_NTASKS=8", "SLURM_STEP_NUM_TASKS=2", "SLURM_JOB_ID=9" }, LS_JOB_SLURM, 1, 2,
          "lockstep-slurm-9.0", "Slurm" },
        { { "SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_JOB_ID=9", "ENVIRONMENT=BATCH" }, LS_JOB_ALONE, 0, 1, "", "nothing" },
    };
    proxy_pid = 99;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_job_env j;
        if (read_with(row[i].set, &j) != LS_OK) fail_msg("row %zu: %s", i, ls_last_error());
        if (j.source != row[i].source || j.rank != row[i].rank || j.size != row[i].size)
            fail_msg("row %zu: source %d, rank %d of %d", i, (int)j.source, j.rank, j.size);
        assert_int_equal(j.by_hand, j.size > 1);
        if (strncmp(j.meeting, row[i].meeting, strlen(row[i].meeting)) != 0) fail_msg("row %zu: meets at %s", i, j.meeting);
        if (!strstr(ls_job_source_text(&j), row[i].says)) fail_msg("row %zu: %s", i, ls_job_source_text(&j));
    }
}

/* A program that passes its rank needs no environment; one that is there must say the same. */
static void takes_the_programs_arguments(void **state)
{
    (void)state;
    static const struct {
        const char *set[MOST];
        ls_job_args args;
        ls_job_source source;
        const char *addr;
        int port;
    } good[] = {
        { { NULL }, { 1, 3, NULL, 29500 }, LS_JOB_PROGRAM, "localhost", 29500 },
        { { NULL }, { 1, 3, "127.0.0.1", 29500 }, LS_JOB_PROGRAM, "127.0.0.1", 29500 },
        { { "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29501" }, { 1, 3, NULL, 0 }, LS_JOB_PROGRAM, "127.0.0.1", 29501 },
        { { "MASTER_ADDR=127.0.0.1" }, { 1, 3, "localhost", 7 }, LS_JOB_PROGRAM, "127.0.0.1", 7 },
        { { "RANK=1", "WORLD_SIZE=3" }, { 1, 3, NULL, 29500 }, LS_JOB_RANK, "localhost", 29500 },
        { { BY_HAND("1", "3") }, { 1, 3, "localhost", 29500 }, LS_JOB_RANK, "127.0.0.1", 29500 },
        { { OMPI("1", "3") }, { 1, 3, NULL, 0 }, LS_JOB_OPENMPI, "", 0 },
        { { SLURM("1", "3") }, { 1, 3, NULL, 0 }, LS_JOB_SLURM, "node07", 20000 + 123456 % 20000 },
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ls_job_env j;
        proxy_pid = 99;
        if (read_with_args(good[i].set, &good[i].args, &j) != LS_OK) fail_msg("row %zu: %s", i, ls_last_error());
        const bool local = j.local_rank == 1 && j.local_size == 3;
        if (j.source != good[i].source || j.rank != 1 || j.size != 3 || !local || !j.by_hand)
            fail_msg("row %zu: source %d, rank %d of %d", i, (int)j.source, j.rank, j.size);
        if (strcmp(j.addr, good[i].addr) != 0 || j.port != good[i].port) fail_msg("row %zu: %s port %d", i, j.addr, j.port);
        if (good[i].source == LS_JOB_PROGRAM) assert_string_equal(ls_job_source_text(&j), "the program (rank and size of ls_world_opts)");
    }
    static const struct { const char *set[MOST]; ls_job_args args; ls_status status; const char *says[2]; } bad[] = {
        { { BY_HAND("1", "4") }, { 0, 2, NULL, 0 }, LS_CONFIG_MISMATCH, { "program says rank 0 of 2", "says rank 1 of 4" } },
        { { BY_HAND("1", "4") }, { 1, 2, NULL, 0 }, LS_CONFIG_MISMATCH, { "program says rank 1 of 2", "says rank 1 of 4" } },
        { { OMPI("0", "2") }, { 1, 2, NULL, 0 }, LS_CONFIG_MISMATCH, { "rank 1 of 2, Open MPI's environment", "rank 0 of 2" } },
        { { BY_HAND("1", "4") }, { 1, 4, "10.0.0.1", 0 }, LS_CONFIG_MISMATCH, { "master_addr 10.0.0.1", "MASTER_ADDR says 127.0.0.1" } },
        { { BY_HAND("1", "4") }, { 1, 4, NULL, 12355 }, LS_CONFIG_MISMATCH, { "master_port 12355", "MASTER_PORT says 29500" } },
        { { "RANK=0" }, { 0, 1, NULL, 1 }, LS_INVALID, { "WORLD_SIZE is not set", "" } },
        { { "WORLD_SIZE=4" }, { 0, 4, NULL, 1 }, LS_INVALID, { "RANK is not set", "" } },
        { { NULL }, { 0, 2, NULL, 0 }, LS_INVALID, { "master_port", "MASTER_PORT" } },
        { { NULL }, { 2, 2, NULL, 1 }, LS_INVALID, { "rank 2 of 2", "" } },
        { { NULL }, { -1, 2, NULL, 1 }, LS_INVALID, { "rank -1 of 2", "" } },
        { { NULL }, { 0, -2, NULL, 1 }, LS_INVALID, { "rank 0 of -2", "" } },
        { { NULL }, { 0, 65537, NULL, 1 }, LS_INVALID, { "is 65537", "at most 65536" } },
        { { NULL }, { 0, 2, NULL, 65536 }, LS_INVALID, { "master_port is 65536", "" } },
        { { NULL }, { 1, 0, NULL, 0 }, LS_INVALID, { "no size", "" } },
        { { NULL }, { 0, 0, "localhost", 0 }, LS_INVALID, { "no size", "" } },
        { { NULL }, { 0, 0, NULL, 1 }, LS_INVALID, { "no size", "" } },
        { { NULL }, { 0, 2, "10.0.0.1", 1 }, LS_INVALID, { "10.0.0.1", "LOCAL_WORLD_SIZE" } },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ls_job_env j;
        const ls_status st = read_with_args(bad[i].set, &bad[i].args, &j);
        if (st != bad[i].status || !strstr(ls_last_error(), bad[i].says[0]) || !strstr(ls_last_error(), bad[i].says[1]))
            fail_msg("row %zu: %d %s", i, (int)st, ls_last_error());
    }
}

static void takes_the_place_that_our_launcher_names(void **state)
{
    (void)state;
    ls_job_env j;
    assert_int_equal(read_with((const char *const[MOST]){ BY_HAND("1", "2"), "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2",
                                                          "LOCKSTEP_LOCAL_RANK=1", "LOCKSTEP_STORE=s" }, &j), LS_OK);
    assert_int_equal(j.local_rank, 1); /* LOCAL_RANK may be virtual */
    assert_int_equal(read_with((const char *const[MOST]){ BY_HAND("1", "2"), "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2",
                                                          "LOCKSTEP_LOCAL_RANK=0" }, &j), LS_OK);
    assert_int_equal(j.local_rank, 1); /* left over from another job */
}

static void the_first_of_the_four_wins(void **state)
{
    (void)state;
    static const char *const all[] = { BY_HAND("0", "2"), "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=3", "PMIX_NAMESPACE=1",
                                       "PMI_RANK=2", "PMI_SIZE=4", "SLURM_PROCID=3", "SLURM_NTASKS=5", "SLURM_JOB_ID=1", NULL };
    static const int from[] = { 0, 4, 7, 9 }; /* the first variables taken away, one launcher after the other */
    for (int i = 0; i < 4; i++) {
        ls_job_env j;
        assert_int_equal(read_with(all + from[i], &j), LS_OK);
        assert_int_equal(j.rank, i);
        assert_int_equal(j.size, i + 2);
    }
}

static void meets_where_no_other_job_does(void **state)
{
    (void)state;
    static const char *const jobs[][MOST] = {
        { OMPI("0", "2") },
        { "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "PMIX_NAMESPACE=927334401", "PMIX_SERVER_URI2=927334400.0;tcp4://127.0.0.1:56368" },
        { "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "PMIX_NAMESPACE=927334402", "PMIX_SERVER_URI2=927334400.0;tcp4://127.0.0.1:56367" },
        { "PMI_RANK=0", "PMI_SIZE=2", "PMI_JOBID=1" }, { "PMI_RANK=0", "PMI_SIZE=2", "PMI_JOBID=2" },
        { SLURM("0", "2") }, { "SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_JOB_ID=123456", "SLURM_STEP_ID=3" },
    };
    enum { N = sizeof jobs / sizeof *jobs };
    ls_job_env j[N], again;
    for (int i = 0; i < N; i++) {
        assert_int_equal(read_with(jobs[i], &j[i]), LS_OK);
        for (int k = 0; k < i; k++) assert_string_not_equal(j[i].meeting, j[k].meeting);
    }
    assert_int_equal(read_with((const char *const[MOST]){ OMPI("1", "2") }, &again), LS_OK); /* another rank, the same job */
    assert_string_equal(again.meeting, j[0].meeting);
}

static void takes_slurms_port_and_first_host(void **state)
{
    (void)state;
    ls_job_env j;
    assert_int_equal(read_with((const char *const[MOST]){ SLURM("0", "2") }, &j), LS_OK);
    assert_int_equal(j.port, 20000 + 123456 % 20000);
    assert_true(j.port_derived);
    assert_string_equal(j.addr, "node07");
    assert_int_equal(read_with((const char *const[MOST]){ SLURM("0", "2"), "MASTER_PORT=5", "MASTER_ADDR=h" }, &j), LS_OK);
    assert_int_equal(j.port, 5);
    assert_false(j.port_derived);
    assert_string_equal(j.addr, "h");
}

static void says_which_variable_is_wrong(void **state)
{
    (void)state;
    static const struct { const char *set[MOST]; ls_status status; const char *says; } row[] = {
        { { "OMPI_COMM_WORLD_RANK=x", "OMPI_COMM_WORLD_SIZE=2" }, LS_INVALID, "OMPI_COMM_WORLD_RANK is 'x'" },
        { { "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2" }, LS_INVALID, "PMIX_NAMESPACE" },
        { { "OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=2", "PMIX_NAMESPACE=1" }, LS_INVALID, "OMPI_COMM_WORLD_RANK from 0 to 1" },
        { { "PMI_RANK=-1", "PMI_SIZE=2" }, LS_INVALID, "PMI_RANK is '-1'" },
        { { "PMI_RANK=0", "PMI_SIZE=65537" }, LS_INVALID, "at most 65536" },
        { { "SLURM_PROCID=0", "SLURM_NTASKS=2" }, LS_INVALID, "SLURM_JOB_ID" },
        { { "SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_JOB_ID=x" }, LS_INVALID, "SLURM_JOB_ID is 'x'" },
        { { "SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_JOB_ID=1", "SLURM_STEP_NODELIST=a[" }, LS_INVALID, "not closed" },
        { { "SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_JOB_ID=1", "SLURM_STEP_TASKS_PER_NODE=3" }, LS_INVALID, "3 tasks on 1 nodes" },
        { { "SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_JOB_ID=1", "SLURM_NNODES=2" }, LS_INVALID, "SLURM_STEP_TASKS_PER_NODE is not set" },
        { { "SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_JOB_ID=1", "SLURM_LOCALID=2" }, LS_INVALID, "SLURM_LOCALID is 2" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_job_env j;
        ls_status st = read_with(row[i].set, &j);
        if (st != row[i].status || !strstr(ls_last_error(), row[i].says))
            fail_msg("row %zu: status %d, '%s' lacks '%s'", i, st, ls_last_error(), row[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_each_launcher),
        cmocka_unit_test(takes_the_programs_arguments),
        cmocka_unit_test(takes_the_place_that_our_launcher_names),
        cmocka_unit_test(the_first_of_the_four_wins),
        cmocka_unit_test(meets_where_no_other_job_does),
        cmocka_unit_test(takes_slurms_port_and_first_host),
        cmocka_unit_test(says_which_variable_is_wrong),
    };
    return cmocka_run_group_tests_name("job_env", tests, NULL, NULL);
}
