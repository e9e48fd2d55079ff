/* fuzz_topo.c -- a topology on arbitrary bytes: an error, or one that keeps ls_topo_check's rules and whose links can
 * be asked. */
#include <stdint.h>
#include <stdlib.h>

#include "lockstep/topo.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    ls_topo t;
    const ls_status st = ls_topo_read("fuzz", (const char *)p, n, &t);
    if (st == LS_BAD_FILE || st == LS_NO_MEMORY) return 0;
    if (st != LS_OK || ls_topo_check(&t) != LS_OK) abort();
    const int64_t last = ls_topo_devices(&t) - 1;
    double rate, latency;
    ls_topo_pair(&t, 0, last, &rate, &latency);
    if (!(rate > 0) || latency < 0) abort();
    for (int l = 0; l < t.nlevels; l++)
        if (!(ls_topo_bisection(&t, l, 0) >= 0) || ls_topo_port(&t, l, 0) > ls_topo_uplink(&t, l, 0)) abort();
    if (ls_topo_resize(&t, 1) != LS_OK || ls_topo_check(&t) != LS_OK) abort();
    return 0;
}
