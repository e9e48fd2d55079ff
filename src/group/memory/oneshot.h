/* oneshot.h -- short vectors, whole, through slots, flag lines or packets; with quick.c, which does the same without a
 * work. */
#ifndef LS_GROUP_MEMORY_ONESHOT_H
#define LS_GROUP_MEMORY_ONESHOT_H
#include <string.h>

#include "group/group.h"

/* Whether a sum of so many bytes is a oneshot, alike on every rank. More than fits a line goes in packets. */
static inline bool ls_sum_is_short(const ls_group *g, size_t nbytes)
{
    return !g->crowded && nbytes <= LS_SHORT_SUM_BYTES && nbytes * ((size_t)g->size - 1) <= LS_SHORT_READ_BYTES;
}

/* A short vector in packets, and what they hold once they are here. */
static inline bool ls_in_packets(const ls_group *g, ls_coll coll, size_t nbytes)
{
    return coll == LS_ALL_REDUCE && nbytes > LS_LINE_PAYLOAD && ls_sum_is_short(g, nbytes);
}
static inline void ls_packets_write(ls_packet *p, const char *bytes, size_t nbytes, uint32_t sig, uint32_t mseq)
{
    for (; nbytes > 0; p++) {
        size_t n = nbytes < LS_PACKET_BYTES ? nbytes : LS_PACKET_BYTES;
        if (LS_LIKELY(n == LS_PACKET_BYTES)) memcpy(p->bytes, bytes, LS_PACKET_BYTES);
        else memcpy(p->bytes, bytes, n);
        p->sig = sig;
        atomic_store_explicit(&p->seq, mseq, memory_order_release);
        bytes += n;
        nbytes -= n;
    }
}
static inline void ls_packet_read(const ls_packet *p, char *to, size_t nbytes)
{
    if (LS_LIKELY(nbytes >= LS_PACKET_BYTES)) memcpy(to, p->bytes, LS_PACKET_BYTES);
    else memcpy(to, p->bytes, nbytes);
}

#endif
