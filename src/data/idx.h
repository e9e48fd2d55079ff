/* idx.h -- the IDX parser on bytes in memory. */
#ifndef LS_DATA_IDX_H
#define LS_DATA_IDX_H
#include "lockstep/data.h"

/* ls_idx_read on n bytes of a file; `name` stands for it in messages. */
ls_status ls_idx_parse(const char *name, const uint8_t *file, size_t n, size_t limit, int *ndim,
                       size_t dims[4], uint8_t **data);

#endif
