/* pipeline_picture.h -- a pipeline schedule over time, as lines for a terminal and as SVG. */
#ifndef LS_FIG_PIPELINE_PICTURE_H
#define LS_FIG_PIPELINE_PICTURE_H
#include "base/text.h"
#include "parallel/pipe_replay.h"

#define LS_PIPE_LEAST_COLUMNS 40

/* Three lines per rank, of at most `columns` characters: what it does when, or '.' where it idles (the bubble); the
 * micro-batches, each where its action begins; and the phases. Returns how much time a character is. */
double ls_pipe_draw_text(const ls_pipe_program *g, const ls_pipe_replay *r, int columns, ls_text *out);
/* Shapes between ls_svg_begin and ls_svg_end, for a view box of `width` and *height. `name` is that of ls_svg_begin. */
void ls_pipe_draw_svg(const ls_pipe_program *g, const ls_pipe_replay *r, const char *name, double width,
                      ls_text *shapes, double *height);
/* "F forward, B backward, ...": what the picture's letters mean, as far as it has them. Adds words without a
 * newline. */
void ls_pipe_legend(const ls_pipe_program *g, ls_text *out);

#endif
