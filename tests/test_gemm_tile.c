/* The tile of pairs of bfloat16 against a plain loop in double, at every number of rows and columns. The products of
 * bfloat16 are exact in float; a sum of 2 k of them and C is rounded 2 k + 1 times, by 2^-24 of the sum of sizes at
 * most. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/bf16.h"
#include "tensor/gemm_tile.h"

enum { MOST_MR = 16, MOST_NR = 64, MOST_K = 65 };

static uint32_t dice = 1;

static uint16_t fraction(void)
{
    dice = dice * 1664525u + 1013904223u;
    return ls_to_bf16((float)(dice >> 8) * 0x1p-23f - 1.0f);
}

static void pairs_equal_a_loop_in_double(void **state)
{
    (void)state;
    const ls_gemm_tile *tile = ls_gemm_tile_of_pairs();
    if (!tile) skip();
    assert_true(tile->mr <= MOST_MR && tile->nr <= MOST_NR);
    static _Alignas(64) uint16_t a[MOST_MR * MOST_K][2], b[MOST_K * MOST_NR][2];
    static float c[MOST_MR * MOST_NR], was[MOST_MR * MOST_NR];
    static const int64_t length[] = { 1, 2, 31, 32, MOST_K };
    for (size_t i = 0; i < sizeof a / 4; i++) a[i][0] = fraction(), a[i][1] = fraction();
    for (size_t i = 0; i < sizeof b / 4; i++) b[i][0] = fraction(), b[i][1] = fraction();
    for (size_t l = 0; l < sizeof length / sizeof *length; l++)
        for (int mr = 1; mr <= tile->mr; mr++)
            for (int nr = 1; nr <= tile->nr; nr++)
                for (int way = 0; way < 4; way++) { /* A by rows or by columns; written or added to */
                    const int64_t k = length[l], a_row = way & 1 ? 1 : MOST_K, a_col = way & 1 ? MOST_MR : 1;
                    for (int i = 0; i < MOST_MR * MOST_NR; i++) was[i] = c[i] = (float)(i % 7) - 3.0f;
                    tile->run(&(ls_gemm_tile_args){ .mr = mr, .nr = nr, .k = k, .a = (const float *)(const void *)a,
                                                    .a_row = a_row, .a_col = a_col,
                                                    .b = (const float *)(const void *)b, .ldb = MOST_NR, .c = c,
                                                    .ldc = MOST_NR, .add = way & 2 });
                    for (int i = 0; i < MOST_MR; i++)
                        for (int j = 0; j < MOST_NR; j++) {
                            const int at = i * MOST_NR + j;
                            if (i >= mr || j >= nr) {
                                assert_true(c[at] == was[at]);
                                continue;
                            }
                            double want = way & 2 ? (double)was[at] : 0.0, size = fabs(want);
                            for (int64_t n = 0; n < k; n++)
                                for (int half = 0; half < 2; half++) {
                                    const double x = (double)ls_from_bf16(a[i * a_row + n * a_col][half]) *
                                                     (double)ls_from_bf16(b[n * MOST_NR + j][half]);
                                    want += x;
                                    size += fabs(x);
                                }
                            if (!(fabs((double)c[at] - want) <= (double)(2 * k + 1) * 0x1p-24 * size))
                                fail_msg("mr %d, nr %d, k %lld, way %d: C[%d, %d] = %.9g, want %.9g", mr, nr,
                                         (long long)k, way, i, j, (double)c[at], want);
                        }
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_equal_a_loop_in_double),
    };
    return cmocka_run_group_tests_name("gemm_tile", tests, NULL, NULL);
}
