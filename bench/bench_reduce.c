/* bench_reduce.c -- how fast one core combines vectors.
 *
 * This is gamma of the cost model and the ceiling of every all_reduce on this
 * machine, so each row ends with memcpy of one of the vectors, which nothing
 * that reads and writes memory can beat by much. GB/s counts every byte read
 * and every byte written: n sources and k destinations of `bytes` each.
 *
 *   build/bench/bench_reduce [max_bytes]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "coll/reduce.h"
#include "lockstep/dtype.h"

#define REPS 31
#define MOST 8 /* vectors */

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v)
{
    qsort(v, REPS, sizeof *v, by_value);
    return v[REPS / 2];
}

static void fill(void *v, size_t count, ls_dtype d)
{
    for (size_t i = 0; i < count; i++)
        switch (d) {
        case LS_F32: ((float *)v)[i] = 1.0f; break;
        case LS_F64: ((double *)v)[i] = 1.0; break;
        case LS_BF16: ((uint16_t *)v)[i] = ls_f32_to_bf16(1.0f); break;
        case LS_F16: ((uint16_t *)v)[i] = 0x3c00; break;
        case LS_I32: ((int32_t *)v)[i] = 1; break;
        case LS_I64: ((int64_t *)v)[i] = 1; break;
        default: ((uint8_t *)v)[i] = 1; break;
        }
}

int main(int argc, char **argv)
{
    static const struct { const char *name; int n, k; ls_dtype d; ls_redop op; } row[] = {
        { "fold of 2", 2, 2, LS_F32, LS_AVG },  { "add to one", 2, 1, LS_F32, LS_SUM },
        { "sum of 3", 3, 1, LS_F32, LS_AVG },   { "fold of 4", 4, 4, LS_F32, LS_AVG },
        { "sum of 8", 8, 1, LS_F32, LS_AVG },   { "fold of 2", 2, 2, LS_BF16, LS_AVG },
        { "add to one", 2, 1, LS_BF16, LS_SUM },{ "fold of 2", 2, 2, LS_F16, LS_AVG },
        { "add to one", 2, 1, LS_F64, LS_SUM }, { "max to one", 2, 1, LS_F32, LS_MAX },
        { "add to one", 2, 1, LS_I32, LS_SUM }, { "add to one", 2, 1, LS_I64, LS_SUM },
        { "add to one", 2, 1, LS_U8, LS_SUM },
    };
    size_t max = argc > 1 ? strtoull(argv[1], NULL, 0) : (size_t)16 << 20;
    void *v[MOST];
    for (int i = 0; i < MOST; i++) {
        v[i] = aligned_alloc(64, (max + 63) / 64 * 64);
        if (!v[i]) return 1;
        memset(v[i], 0, max);
    }
    printf("# median of %d; GB/s counts all bytes read and written\n", REPS);
    printf("%-12s %-9s %-4s %12s %12s %12s %12s\n", "what", "type", "op", "bytes", "us", "GB/s", "memcpy GB/s");
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (size_t bytes = 4096; bytes <= max; bytes *= 8) {
            const size_t count = bytes / ls_dtype_size(row[i].d), batch = bytes < 65536 ? 65536 / bytes : 1;
            const void *src[MOST];
            double ns[REPS], copy_ns[REPS];
            memcpy(src, v, sizeof src);
            for (int r = 0; r < REPS; r++) {
                for (int k = 0; k < MOST; k++) fill(v[k], count, row[i].d); /* an average of ones stays one */
                uint64_t t0 = now_ns();
                for (size_t b = 0; b < batch; b++)
                    ls_reduce_n(v, row[i].k, src, row[i].n, count, row[i].d, row[i].op, 1.0 / row[i].n);
                uint64_t t1 = now_ns();
                for (size_t b = 0; b < batch; b++) memcpy(v[MOST - 1], v[MOST - 2], bytes);
                uint64_t t2 = now_ns();
                ns[r] = (double)(t1 - t0) / (double)batch;
                copy_ns[r] = (double)(t2 - t1) / (double)batch;
            }
            double a = median(ns), c = median(copy_ns), moved = (double)bytes * (row[i].n + row[i].k);
            printf("%-12s %-9s %-4s %12zu %12.2f %12.2f %12.2f\n", row[i].name, ls_dtype_name(row[i].d),
                   ls_redop_name(row[i].op), bytes, 1e-3 * a, moved / a, 2.0 * (double)bytes / c);
        }
    for (int i = 0; i < MOST; i++) free(v[i]);
    return 0;
}
