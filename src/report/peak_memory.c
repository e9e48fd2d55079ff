/* peak_memory.c -- how fast this machine's memory is. */
#include "report/peak.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/env.h"
#include "base/team.h"

#define ELEMENTS  (16 << 20) /* of each vector: 64 MiB */
#define PIECE     (1 << 16)
#define WINDOW    32         /* pieces of a pass: short ones fit between what other processes do */
#define LEAST_RUNS 16        /* each piece twice */

typedef struct pass {
    float *x;
    const float *y;
    int64_t first; /* piece */
} pass;

static void add(void *arg, int64_t piece)
{
    const pass *p = arg;
    float *restrict x = p->x + (p->first + piece) * PIECE;
    const float *restrict y = p->y + (p->first + piece) * PIECE;
    for (int i = 0; i < PIECE; i++) x[i] += y[i];
}

static void fill(void *arg, int64_t piece)
{
    const pass *p = arg;
    float *y = p->x + ELEMENTS + piece * PIECE;
    for (int i = 0; i < PIECE; i++) p->x[piece * PIECE + i] = y[i] = 1.0f;
}

ls_status ls_peak_memory(int threads, double seconds, double *bytes_per_s)
{
    const ls_env *env = ls_env_get();
    const double bytes = 3.0 * WINDOW * PIECE * sizeof(float); /* x read and written, y read */
    float *memory = malloc(2 * ELEMENTS * sizeof *memory);
    *bytes_per_s = 0;
    if (!memory) return ls_fail(LS_NO_MEMORY, "two vectors of %d MiB", (int)(ELEMENTS * sizeof *memory >> 20));
    pass p = { memory, memory + ELEMENTS, 0 };
    const int before = ls_team_resize(threads);
    ls_team_run(fill, &p, ELEMENTS / PIECE);
    double spent = 0;
    for (int i = 0; i < LEAST_RUNS || spent < 1e9 * seconds; i++) {
        const uint64_t t0 = env->mono_ns();
        ls_team_run(add, &p, WINDOW);
        const double took = (double)(env->mono_ns() - t0);
        if (took > 0 && 1e9 * bytes / took > *bytes_per_s) *bytes_per_s = 1e9 * bytes / took;
        spent += took > 0 ? took : 1e6;
        p.first = (p.first + WINDOW) % (ELEMENTS / PIECE);
    }
    ls_team_resize(before);
    free(memory);
    return LS_OK;
}
