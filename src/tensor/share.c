/* share.c -- the one place where elementwise work starts threads. */
#include "tensor/share.h"

#include <string.h>

#include "tensor/threads.h"

#define PARTS_PER_THREAD 4 /* so that a thread which lost its core for a while is helped, */
#define PART_BYTES ((int64_t)64 << 10) /* of parts that are worth taking */
#define PART_COLUMNS 256               /* of parts where more than one for each thread is worth it */

typedef struct cut_loop {
    ls_loop loop;
    const void *call;
    int64_t n, unit, parts;
} cut_loop;

static int64_t cut(const cut_loop *c, int64_t i)
{
    const int64_t at = ls_part_begin((c->n + c->unit - 1) / c->unit, c->parts, i) * c->unit;
    return at < c->n ? at : c->n;
}

static void one_part(void *arg, int64_t i)
{
    const cut_loop *c = arg;
    const int64_t first = cut(c, i), end = cut(c, i + 1);
    if (first < end) c->loop(c->call, first, end - first);
}

static void run_parts(ls_loop loop, const void *call, int64_t n, int64_t unit, int64_t parts)
{
    ls_team_run(one_part, &(cut_loop){ loop, call, n, unit, parts }, parts);
}

void ls_parallel_for(ls_loop loop, const void *call, int64_t n, int64_t unit, int64_t bytes)
{
    const int64_t threads = ls_threads_pay(bytes) ? ls_team_size() : 1;
    if (threads == 1) {
        loop(call, 0, n);
        return;
    }
    int64_t parts = bytes / PART_BYTES;
    if (parts > threads * PARTS_PER_THREAD) parts = threads * PARTS_PER_THREAD;
    if (parts < threads) parts = threads;
    run_parts(loop, call, n, unit, parts);
}

void ls_share_columns(ls_loop loop, const void *call, int64_t columns, int64_t bytes)
{
    const int64_t threads = ls_threads_pay(bytes) ? ls_team_size() : 1;
    int64_t each = columns / (PART_COLUMNS * threads);
    if (each > PARTS_PER_THREAD) each = PARTS_PER_THREAD;
    if (each < 1) each = 1;
    if (threads == 1) loop(call, 0, columns);
    else run_parts(loop, call, columns, LS_SHARE_COLUMNS, each * threads);
}

static void clear(const void *call, int64_t first, int64_t count)
{
    memset(*(float *const *)call + first, 0, (size_t)count * sizeof(float));
}

void ls_clear(float *to, int64_t n) { ls_parallel_for(clear, &to, n, LS_SHARE_LINE, n * (int64_t)sizeof *to); }
