/* fuzz_idx.c -- the IDX parser on arbitrary bytes: an error or elements that can all be read. */
#include <stdlib.h>

#include "data/idx.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    int ndim;
    size_t dims[4], count = 1;
    uint8_t *data;
    ls_status st = ls_idx_parse("fuzz", p, n, (size_t)1 << 20, &ndim, dims, &data);
    if (st != LS_OK) {
        if (st != LS_BAD_FILE || data) abort();
        return 0;
    }
    for (int d = 0; d < ndim; d++) count *= dims[d];
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < count; i++) sum = (uint8_t)(sum + data[i]);
    free(data);
    return 0;
}
