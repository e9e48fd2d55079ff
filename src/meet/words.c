/* words.c -- writing and reading records in shared memory. */
#include "meet/words.h"

#include <string.h>

#include "base/compiler.h"
#include "base/env.h"

#define TURNS 1000 /* to read a record while it is written */

void ls_words_write(_Atomic uint32_t *version, _Atomic uint64_t *word, const void *record, int n)
{
    const char *from = record;
    const uint32_t v = atomic_load_explicit(version, memory_order_relaxed) | 1u;
    atomic_store_explicit(version, v, memory_order_relaxed);
    LS_FENCE_RELEASE(); /* readers that see a new word see the odd version */
    for (int k = 0; k < n; k++) {
        uint64_t w;
        memcpy(&w, from + 8 * k, sizeof w);
        atomic_store_explicit(&word[k], w, memory_order_relaxed);
    }
    atomic_store_explicit(version, v + 1, memory_order_release); /* the record is whole */
}

bool ls_words_read(const _Atomic uint32_t *version, const _Atomic uint64_t *word, void *record, int n)
{
    char *to = record;
    for (int turn = 0; turn < TURNS; turn++) {
        const uint32_t before = atomic_load_explicit(version, memory_order_acquire);
        for (int k = 0; k < n; k++) {
            const uint64_t w = atomic_load_explicit(&word[k], memory_order_relaxed);
            memcpy(to + 8 * k, &w, sizeof w);
        }
        LS_FENCE_ACQUIRE(); /* the copy is done before version is read again */
        if (!(before & 1u) && atomic_load_explicit(version, memory_order_relaxed) == before) return true;
        if (turn > 0) ls_env_get()->yield(); /* who writes may have lost its time slice */
    }
    return false;
}
