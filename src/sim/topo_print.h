/* topo_print.h -- a topology for people and for programs. */
#ifndef LS_SIM_TOPO_PRINT_H
#define LS_SIM_TOPO_PRINT_H
#include "base/text.h"
#include "lockstep/topo.h"

#define LS_TOPO_MATRIX 16 /* devices in the matrix for people */

/* Levels, bisection bandwidths, the tree, and what each pair of devices has. */
void ls_topo_print(const ls_topo *t, ls_text *out);
/* One object. */
void ls_topo_json(const ls_topo *t, ls_text *out);

#endif
