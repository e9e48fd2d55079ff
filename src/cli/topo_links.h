/* topo_links.h -- what links between ranks do, measured: each pair of ranks, and each way to carry bytes.
 *
 *   topo_links.c       pairs of ranks, one after another, while the others wait
 *   topo_transports.c  transports and plain sockets between two threads, with the processor time that they take
 */
#ifndef LS_CLI_TOPO_LINKS_H
#define LS_CLI_TOPO_LINKS_H
#include "base/text.h"
#include "lockstep/world.h"

#define LS_LINKS_SLOW   3.0 /* a rate below a third of the median is slow, one below a third of the other direction's */
#define LS_LINKS_UNEVEN 3.0 /* makes a pair asymmetric, */
#define LS_LINKS_LATE   4.0 /* and a latency of more than four medians is late: less can be noise */

typedef struct ls_links {
    int size;
    double *rate;      /* [size][size], owned: bytes per second from a rank to another; 0 on the diagonal */
    double *latency_s; /* [size][size]: half of the way there and back; the same both ways */
} ls_links;

typedef enum ls_links_fault { LS_LINKS_FINE, LS_LINKS_IS_SLOW, LS_LINKS_IS_UNEVEN, LS_LINKS_IS_LATE } ls_links_fault;

/* Every rank calls it, with messages of nbytes; all get the result. Free it with ls_links_free, after a failure too. */
ls_status ls_links_measure(ls_world *w, size_t nbytes, ls_links *out);
void ls_links_free(ls_links *l);
/* Of the link from a to b, compared with the median over all links. */
ls_links_fault ls_links_judge(const ls_links *l, int a, int b);
void ls_links_print(const ls_links *l, const char *transport, ls_text *out);
void ls_links_json(const ls_links *l, const char *transport, ls_text *out);

/* One row per way: latency, rate, and seconds of processor time of both ends together per 10^9 bytes. */
typedef struct ls_carried {
    const char *name, *how; /* "tcp": "transport tcp, with checksums" */
    double latency_s, rate, cpu_s_per_gb;
} ls_carried;
#define LS_CARRIERS 4
/* Shared memory and tcp as ranks use them, a Unix socket and a TCP connection without a protocol. */
ls_status ls_carriers_measure(size_t nbytes, ls_carried out[LS_CARRIERS]);
void ls_carriers_print(const ls_carried *c, ls_text *out);
void ls_carriers_json(const ls_carried *c, ls_text *out);

#endif
