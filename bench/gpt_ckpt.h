/* gpt_ckpt.h -- what bench_gpt measures of checkpoints: turns of a save that is waited for, a load of it, a memcpy of
 * as many bytes as a rank copies, and a save while steps go on. Every time is that of the slowest rank.
 */
#ifndef BENCH_GPT_CKPT_H
#define BENCH_GPT_CKPT_H
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "median.h"
#include "lockstep/lockstep.h"

typedef struct ckpt_turns {
    ls_world *w;
    ls_params *ps;
    ls_optim *optim;
    const ls_model_config *model;
    const char *folder;
    int64_t turns;
    ls_status (*step)(void *arg, double *ms); /* one more step, with the time of the slowest rank */
    void *arg;
    ls_state *state; /* owned, as the next three */
    ls_model *other; /* that values are loaded into, as a program does before its ranks share them */
    ls_arena *memory;
    char *from, *to; /* in `memory`: as many bytes as the copy has */
} ckpt_turns;

static ls_status slowest(ckpt_turns *c, double *v)
{
    return ls_all_reduce(ls_world_group(c->w), NULL, v, 1, LS_F64, LS_MAX);
}

static ls_status begin_together(ckpt_turns *c, uint64_t *t0)
{
    LS_TRY(ls_barrier(ls_world_group(c->w)));
    *t0 = now_ns();
    return LS_OK;
}

static ls_status end_together(ckpt_turns *c, uint64_t t0, double *ms)
{
    *ms = 1e-6 * (double)(now_ns() - t0);
    return slowest(c, ms);
}

static ls_status ckpt_open(ckpt_turns *c)
{
    void *p;
    LS_TRY(ls_state_create(ls_world_group(c->w), &c->state));
    LS_TRY(ls_state_add_model(c->state, c->ps, c->optim));
    LS_TRY(ls_state_reserve(c->state));
    const size_t copy = ls_state_copy_bytes(c->state), values = (size_t)ls_params_count(c->ps) * sizeof(float);
    LS_TRY(ls_model_create(c->model, &c->other));
    LS_TRY(ls_arena_create(2 * copy + 2 * values + ((size_t)1 << 20), false, NULL, &c->memory));
    LS_TRY(ls_params_bind(&c->other->params, c->memory, c->memory));
    LS_TRY(ls_arena_alloc(c->memory, copy, LS_MEM_CKPT, &p));
    c->from = p;
    LS_TRY(ls_arena_alloc(c->memory, copy, LS_MEM_CKPT, &p));
    c->to = p;
    memset(c->from, 1, copy);
    memset(c->to, 2, copy);
    return LS_OK;
}

static void ckpt_close(ckpt_turns *c)
{
    ls_state_destroy(c->state);
    ls_model_destroy(c->other);
    ls_arena_destroy(c->memory);
}

/* As a run that goes on loads: every byte checked, the values, the optimizer's state. */
static ls_status load(ckpt_turns *c, const char *folder)
{
    ls_checkpoint *from;
    LS_TRY(ls_checkpoint_open_all(ls_world_group(c->w), folder, &from));
    ls_status st = ls_checkpoint_values(from, &c->other->params);
    if (st == LS_OK) st = ls_state_load(c->state, from);
    ls_checkpoint_close(from);
    return st;
}

/* Calls fn for every file of the checkpoint's ranks, on rank 0. */
static void each_file(ckpt_turns *c, const char *folder, void (*fn)(int fd))
{
    char path[1200];
    snprintf(path, sizeof path, "%s/sharded", folder);
    DIR *d = ls_world_rank(c->w) == 0 ? opendir(path) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/sharded/%s", folder, e->d_name);
        const int fd = open(path, O_RDONLY);
        if (fd >= 0) fn(fd);
        if (fd >= 0) close(fd);
    }
    if (d) closedir(d);
}

/* Its pages leave the system's cache, so that a load comes from the disk. */
static void drop_file(int fd) { (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); }

/* What `dd bs=1M of=/dev/null` does. */
static void read_file(int fd)
{
    static char block[1 << 20];
    while (read(fd, block, sizeof block) > 0) {}
}

/* One process reads the files, and then all ranks load them: each from the disk. */
static ls_status cold_turn(ckpt_turns *c, const char *folder, double *plain_ms, double *load_ms)
{
    uint64_t t0;
    each_file(c, folder, drop_file);
    LS_TRY(begin_together(c, &t0));
    each_file(c, folder, read_file);
    LS_TRY(end_together(c, t0, plain_ms));
    each_file(c, folder, drop_file);
    LS_TRY(begin_together(c, &t0));
    LS_TRY(load(c, folder));
    return end_together(c, t0, load_ms);
}

static ls_status waited_turn(ckpt_turns *c, int64_t turn)
{
    char folder[600];
    double save_ms, plain_ms, cold_ms, warm_ms;
    uint64_t t0;
    snprintf(folder, sizeof folder, "%s/waited-%lld", c->folder, (long long)turn);
    LS_TRY(begin_together(c, &t0));
    LS_TRY(ls_state_save(c->state, folder, turn));
    LS_TRY(end_together(c, t0, &save_ms));
    /* Twice, and the second counts: a virtual machine may have to be given the memory for the first. */
    for (int i = 0; i < 2; i++) LS_TRY(cold_turn(c, folder, &plain_ms, &cold_ms));
    LS_TRY(begin_together(c, &t0));
    LS_TRY(load(c, folder));
    LS_TRY(end_together(c, t0, &warm_ms));
    if (ls_world_rank(c->w) == 0)
        printf("waited,%lld,%.1f,%.1f,%.1f,%.1f\n", (long long)turn, save_ms, cold_ms, warm_ms, plain_ms);
    return LS_OK;
}

/* usual_ms: a step without a save. Steps go on until the save is over; `slower` is by how much they took longer
 * together, the pause of the copy excluded. */
static ls_status async_turn(ckpt_turns *c, int64_t turn, double usual_ms)
{
    char folder[600];
    double copy_ms, pause_ms, all_ms, step_ms, slower = 0;
    const size_t n = ls_state_copy_bytes(c->state);
    int steps = 0;
    uint64_t t0;
    ls_status st;
    snprintf(folder, sizeof folder, "%s/async-%lld", c->folder, (long long)turn);
    LS_TRY(begin_together(c, &t0));
    memcpy(c->to, c->from, n);
    LS_TRY(end_together(c, t0, &copy_ms));
    if (c->to[turn % (int64_t)n] != 1) return ls_fail(LS_INTERNAL, "memcpy did not copy");
    LS_TRY(begin_together(c, &t0));
    LS_TRY(ls_state_save_begin(c->state, folder, turn));
    LS_TRY(end_together(c, t0, &pause_ms));
    for (; (st = ls_state_save_poll(c->state)) == LS_AGAIN; steps++) {
        LS_TRY(c->step(c->arg, &step_ms));
        slower += step_ms - usual_ms;
    }
    LS_TRY(st);
    LS_TRY(end_together(c, t0, &all_ms));
    if (ls_world_rank(c->w) == 0)
        printf("async,%lld,%.1f,%.1f,%.1f,%d,%.1f,%.1f\n", (long long)turn, copy_ms, pause_ms, all_ms, steps, usual_ms, slower);
    return LS_OK;
}

/* Prints lines of CSV, after `copy_bytes,` of rank 0:
 *   waited,turn,save ms,load ms from the disk,load ms from the cache,plain read ms from the disk
 *   async,turn,memcpy ms,pause ms,until durable ms,steps meanwhile,usual step ms,steps longer by ms
 */
static ls_status ckpt_measure(ckpt_turns *c)
{
    double usual[5];
    LS_TRY(ckpt_open(c));
    if (ls_world_rank(c->w) == 0) printf("copy_bytes,%zu\n", ls_state_copy_bytes(c->state));
    for (int64_t turn = 1; turn <= c->turns; turn++) {
        LS_TRY(waited_turn(c, turn));
        for (int i = 0; i < 5; i++) LS_TRY(c->step(c->arg, &usual[i]));
        LS_TRY(async_turn(c, turn, median(usual, 5)));
        fflush(stdout);
    }
    return LS_OK;
}

#endif
