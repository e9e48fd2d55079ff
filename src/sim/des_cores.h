/* des_cores.h -- cores that processes share: all that compute at a moment get equal parts of them, at most a core each
 * (processor sharing). With fewer processes than cores, each takes as long as it would alone. Or each process stays on
 * a given core, which it shares with those that are there, too; then processes may also poll, which takes a part of
 * what one that computes gets.
 */
#ifndef LS_SIM_DES_CORES_H
#define LS_SIM_DES_CORES_H
#include <stdbool.h>
#include <stdint.h>
#include "lockstep/status.h"

/* A work in progress. */
typedef struct ls_des_job {
    double ends; /* on the clock of `served` */
    uint32_t p;
} ls_des_job;

/* Those that share. */
typedef struct ls_des_pool {
    double cores;
    double now, served; /* seconds of a core that each work has got since the beginning, up to `now` */
    ls_des_job *job; /* a heap, the one that ends first in front, of equal ones that of the lower process */
    uint32_t n;
    uint32_t waiting; /* processes that poll */
    double idle_since; /* when its last work ended, if n is 0 */
    double idle_from, idle_until; /* its last pause of idle_s or more; both 0: none so far */
} ls_des_pool;

typedef struct ls_des_cores {
    ls_des_pool *pool; /* owned: [npools]; none: each process has its own core */
    uint32_t npools;
    const uint32_t *of; /* borrowed: the pool of a process; NULL: there is one */
    double idle_s;
    double poll;
    ls_des_job *jobs;  /* owned: of all pools */
} ls_des_cores;

/* For n processes: on `cores` of them all, or, with `of`, [n] and from 0 to cores - 1, each on the one that it names. A
 * process that polls gets `poll` of what one that computes gets: above 0 only with `of`. Borrows `of`. LS_NO_MEMORY. */
ls_status ls_des_cores_create(double cores, const uint32_t *of, uint32_t n, double idle_s, double poll,
                              ls_des_cores *out);
void ls_des_cores_free(ls_des_cores *c);
/* Process p computes for `work` seconds of a core, from `t` on: not before what ended or began last. */
void ls_des_cores_begin(ls_des_cores *c, double t, uint32_t p, double work);
/* Process p polls from `t` on, or no longer. */
void ls_des_cores_polls(ls_des_cores *c, double t, uint32_t p, bool polls);
/* Whether process p, which waits from `from` until `until`, sleeps: of that time its core has a pause of idle_s or
 * more, the last one that it had, or one that goes on now. (A process that waits sleeps after it has looked many times
 * for what it waits for. While another one computes on its core, each look takes a slice of time.) False without
 * `of`. */
bool ls_des_cores_sleeps(const ls_des_cores *c, uint32_t p, double from, double until);
/* When the next work ends, if no work begins and no process begins or ends polling before; INFINITY: there is none. */
double ls_des_cores_next(const ls_des_cores *c);
/* Ends it: its process, and when. */
uint32_t ls_des_cores_end(ls_des_cores *c, double *t);

#endif
