/* area.h -- what a rank shows the other members of a group in shared memory: its flag lines, slots and mailbox.
 *
 * Other ranks read this memory at any time, and a rank that fails leaves it as it is. So it holds fixed-width integers
 * and offsets only, and readers check what they read.
 */
#ifndef LS_GROUP_AREA_H
#define LS_GROUP_AREA_H
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "meet/page.h"

#define LS_ONESHOT_BYTES 16384  /* vectors up to this travel whole through the area */
#define LS_LINE_PAYLOAD 40      /* and up to this in the flag's own line */
#define LS_MAIL_LINES 32        /* rooted collectives that a rank may be ahead of its peers; a power of two, */
_Static_assert(LS_MAIL_LINES < LS_PAGE_HISTORY, "all of which are still described");
#define LS_MAIL_BYTES 32768u    /* and their bytes: a power of two */
#define LS_MAIL_MOST 8192u      /* of one of them */
#define LS_STAGE_SLOTS 4        /* pieces of a private vector on their way */
#define LS_STAGE_BYTES ((uint32_t)16 << 10) /* of one, in every area; larger ones where the arena has room */
#define LS_SHORT_SUM_BYTES ((size_t)1 << 10)  /* vectors up to this are summed whole where every rank has a core, */
#define LS_SHORT_READ_BYTES ((size_t)4 << 10) /* if a rank reads no more than this of its peers */
#define LS_WHOLE_BYTES ((size_t)512 << 10)  /* private vectors of up to so many are not cut */

/* What a rank shows its peers of one collective: one cache line. */
typedef struct ls_line {
    _Alignas(64) _Atomic uint32_t seq; /* written last (release): number of the collective */
    _Atomic uint32_t done;             /* the same number, once this rank is through with everybody's vectors */
    uint32_t sig;
    uint32_t stage;                    /* bytes of one of its stage's slots */
    uint64_t offset;                   /* of its vector in its arena, or LS_NOT_REGISTERED; mail: in its mail_bytes */
    union {
        struct {
            uint64_t to;               /* where its sum belongs, as offset; only all_reduce sets it */
            uint64_t at;               /* its vector's address in its process; LS_NOT_REGISTERED: none to read */
        };
        char bytes[LS_LINE_PAYLOAD];   /* a vector that fits travels in the flag's own line */
    };
} ls_line;

/* A piece of a short vector with its own number: who waits for it needs no other line, and the pieces of a vector
 * come all at once (as in NCCL's LL128 protocol). */
#define LS_PACKET_BYTES 56
#define LS_PACKETS ((LS_SHORT_SUM_BYTES + LS_PACKET_BYTES - 1) / LS_PACKET_BYTES)
typedef struct ls_packet {
    _Alignas(64) char bytes[LS_PACKET_BYTES];
    uint32_t sig;
    _Atomic uint32_t seq; /* written last (release) */
} ls_packet;

/* A rank's part of a group in its arena.
 *
 * Where everyone waits for everyone (oneshot, in place), lines and slots alternate: whoever starts
 * number m has finished m-1, so every peer has started m-1 and is done reading m-2, whose line and slot are
 * written now.
 *
 * Where not everyone does (mail, rooted), ranks may be far apart. Those collectives have numbers of
 * their own and a ring of lines, mail[m % LS_MAIL_LINES]; a line may be written again when every member is
 * `through` with the collective it was written for. */
typedef struct ls_area {
    ls_line line[2];
    _Alignas(64) _Atomic uint32_t left; /* peers that have destroyed the group and will not look here again */
    _Alignas(64) _Atomic uint32_t through; /* this rank has finished rooted collectives up to this one, or some more */
    _Alignas(64) char slot[2][LS_ONESHOT_BYTES];
    ls_packet packet[2][LS_PACKETS];     /* alternate like lines and slots */
    uint64_t block[2][LS_HOST_MOST_RANKS + 1]; /* long all_to_all: first element of each rank's block, and the end */
    ls_line mail[LS_MAIL_LINES];
    _Alignas(64) char mail_bytes[LS_MAIL_BYTES];
    _Alignas(64) _Atomic uint32_t staged[3]; /* pieces put, taken, finished by this rank */
    uint64_t stage_offset;                   /* of larger slots than these in the arena, which stay with the area, */
    uint32_t stage_bytes;                    /* and how large one is; 0: there are none */
    uint64_t whole_offset;                   /* of two slots of LS_WHOLE_BYTES; 0: there are none */
    _Alignas(64) char stage[LS_STAGE_SLOTS][LS_STAGE_BYTES];
} ls_area;

#endif
