/* idx.h -- the IDX parser on bytes in memory, and where its files are. */
#ifndef LS_DATA_IDX_H
#define LS_DATA_IDX_H
#include "lockstep/data.h"

/* ls_idx_read on n bytes of a file; `name` stands for it in messages. */
ls_status ls_idx_parse(const char *name, const uint8_t *file, size_t n, size_t limit, int *ndim,
                       size_t dims[4], uint8_t **data);

#define LS_IDX_PATH 1024
/* Where a file of MNIST's layout is: dir/name.gz, else dir/name. LS_IO: neither is there. */
ls_status ls_idx_find(const char *dir, const char *name, char path[LS_IDX_PATH]);

#endif
