/* gpt.c -- shapes, unit by unit. */
#include "fig/gpt.h"

#include <stdlib.h>

#define IN_BLOCK 12
#define BESIDES 4 /* two tables, and the last norm */

ls_status ls_fig_gpt_params(const ls_fig_gpt *g, ls_fig_param **out, int *n)
{
    const size_t C = g->width;
    const ls_fig_param norm = { C, 1, false };
    const ls_fig_param block[IN_BLOCK] = {
        norm, norm, { 3 * C, C, true }, { 3 * C, 1, false }, { C, C, true }, { C, 1, false },
        norm, norm, { 4 * C, C, true }, { 4 * C, 1, false }, { C, 4 * C, true }, { C, 1, false },
    };
    *n = BESIDES + IN_BLOCK * g->layers;
    ls_fig_param *p = *out = malloc((size_t)*n * sizeof *p);
    if (!p) return ls_fail(LS_NO_MEMORY, "the shapes of %d layers", g->layers);
    *p++ = (ls_fig_param){ g->vocab, C, true };
    *p++ = (ls_fig_param){ g->seq_len, C, false }; /* positions are added, and read in f32 */
    for (int l = 0; l < g->layers; l++)
        for (int i = 0; i < IN_BLOCK; i++) *p++ = block[i];
    *p++ = norm;
    *p = norm;
    return LS_OK;
}
