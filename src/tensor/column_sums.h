/* column_sums.h -- sums over the rows of a matrix: the gradient of a bias. */
#ifndef LS_TENSOR_COLUMN_SUMS_H
#define LS_TENSOR_COLUMN_SUMS_H
#include "lockstep/tensor.h"

/* db[o] (+)= the sum of dy[n][o] over n, in ascending n; dy is [.., O], float or bfloat16. Divided among the rank's
 * threads; the bits do not depend on their number. */
void ls_column_sums(float *db, const ls_tensor *dy, int64_t O, bool add);

#endif
