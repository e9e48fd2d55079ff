/* shared.h -- records that one thread or process writes while others may read.
 *
 * The writer fills a record and then publishes a counter; a reader copies the
 * record, looks at the counter again, and throws the copy away when the writer
 * may have been in it. So a torn copy is possible and harmless, provided that
 * single words are atomic: that is what these copies are for.
 */
#ifndef LS_BASE_SHARED_H
#define LS_BASE_SHARED_H
#include <stddef.h>
#include <stdint.h>

typedef uint64_t ls_shared_word __attribute__((may_alias)); /* the records are structs of all sorts */

/* `to` and `from` are 8-byte aligned, nbytes is a multiple of 8. Each word is
 * stored with release: none becomes visible before what was published earlier. */
static inline void ls_shared_store(void *to, const void *from, size_t nbytes)
{
    ls_shared_word *w = to;
    const ls_shared_word *r = from;
    for (size_t i = 0; i < nbytes / sizeof *w; i++) __atomic_store_n(&w[i], r[i], __ATOMIC_RELEASE);
}

/* Each word is loaded with acquire: a counter that is read afterwards is not older than any of them. */
static inline void ls_shared_load(void *to, const void *from, size_t nbytes)
{
    ls_shared_word *w = to;
    const ls_shared_word *r = from;
    for (size_t i = 0; i < nbytes / sizeof *w; i++) w[i] = __atomic_load_n(&r[i], __ATOMIC_ACQUIRE);
}

/* release: the records that `count` speaks of are visible before it */
static inline void ls_shared_publish(uint64_t *at, uint64_t count) { __atomic_store_n(at, count, __ATOMIC_RELEASE); }
static inline void ls_shared_publish32(uint32_t *at, uint32_t count) { __atomic_store_n(at, count, __ATOMIC_RELEASE); }
/* acquire: pairs with publish */
static inline uint64_t ls_shared_count(const uint64_t *at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
static inline uint32_t ls_shared_count32(const uint32_t *at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }

#endif
