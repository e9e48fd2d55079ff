/* topo_svg.h -- a picture of a cluster. */
#ifndef LS_FIG_TOPO_SVG_H
#define LS_FIG_TOPO_SVG_H
#include "base/text.h"
#include "lockstep/topo.h"

#define LS_TOPO_DRAWN 8 /* units of one unit that are drawn; devices are drawn all */

/* Boxes in one another, one per unit, with the link that joins what is in them; slow units are hatched. */
void ls_topo_svg(const ls_topo *t, ls_text *out);

#endif
