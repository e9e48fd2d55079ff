/* copy.h -- copying that memcpy does not do. */
#ifndef LS_BASE_COPY_H
#define LS_BASE_COPY_H
#include <stddef.h>

/* memcpy past the caches: what is written need not be read first, nor taken from another core's cache. Pays where more
 * is touched than a cache holds and nobody reads it soon, or where another core has read the destination before and
 * reads it next. All of it is visible before whatever the caller writes next. */
void ls_copy_past_cache(void *dst, const void *src, size_t nbytes);

/* memcpy by the processor's own string instruction, where it has a fast one: whole lines, in order. */
void ls_copy_string(void *dst, const void *src, size_t nbytes);

/* The same as ls_copy_past_cache to ndst places. src is read from memory once. */
void ls_spread_past_cache(void *const *dst, int ndst, const void *src, size_t nbytes);

#endif
