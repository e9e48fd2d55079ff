/* quantity.h -- a number with its unit, as files of topologies have them: "50 GB/s", "2 us". */
#ifndef LS_SIM_QUANTITY_H
#define LS_SIM_QUANTITY_H
#include "base/text.h"

typedef enum ls_quantity { LS_Q_BANDWIDTH, LS_Q_TIME, LS_Q_FLOPS, LS_Q_MEMORY } ls_quantity;

/* Reads bytes per second, seconds, operations per second or bytes. False: `why` has what was expected and found; a unit
 * is never left out, and the number is above 0 (of a time: 0 and more). */
bool ls_quantity_read(ls_quantity q, const char *text, double *out, char *why, size_t n);
/* "450 GB/s", "2 us", "989 TFLOP/s", "80 GB": up to three decimals, in the unit that fits. Returns buf. */
const char *ls_quantity_text(ls_quantity q, double v, char *buf, size_t n);

#endif
