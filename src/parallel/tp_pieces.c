/* tp_pieces.c -- in how many pieces ranks that divide a layer exchange a product (place.h).
 *
 * n bytes take 2 (tp - 1) messages of n / tp each (ring). In p pieces only the last one is not overlapped, and every
 * other one costs its messages once more:
 *
 *   T(p) = 2 (tp - 1) (p message + n / (p tp) byte)     least at p = sqrt(n byte / (tp message))
 *
 * This leaves out that a product of few rows is slower per row, and that a wait costs more where ranks share their
 * cores with others: a piece has at least FEWEST_ROWS, and there are at most MOST (docs/parallel.md measures more).
 */
#include "lockstep/place.h"

#define FEWEST_ROWS 64 /* of a piece */
#define MOST 4

int ls_tp_pieces(const ls_place *p, int64_t rows, size_t nbytes)
{
    if (!ls_divides(&p->tp) || p->sequence_parallel || rows < 2) return 1;
    if (p->pieces > 0) return p->pieces < rows ? p->pieces : (int)rows;
    const double gain = (double)nbytes * p->link.byte_ns, cost = p->tp.size * p->link.message_ns;
    int n = 1;
    while (n < MOST && rows / (2 * n) >= FEWEST_ROWS && gain > 4.0 * n * n * cost) n *= 2;
    return n;
}
