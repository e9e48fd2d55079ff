/* svg.h -- SVG into a text: shapes with a class from palette.h, no script, no font, nothing from elsewhere.
 *
 * Lengths are in units of the view box, and are written with two decimals, so that every machine writes the same bytes.
 */
#ifndef LS_FIG_SVG_H
#define LS_FIG_SVG_H
#include "base/text.h"

/* `name` is a word for ids; `sentence` is what a screen reader says. Ends with ls_svg_end. */
void ls_svg_begin(ls_text *out, const char *name, double width, double height, const char *title, const char *sentence);
void ls_svg_end(ls_text *out);
/* Classes of several words: "c-forward box". */
void ls_svg_rect(ls_text *out, double x, double y, double w, double h, const char *cls);
/* A rectangle filled with lines in the colour of text, over one that is there: the second cue beside a colour. */
void ls_svg_hatch(ls_text *out, const char *name, double x, double y, double w, double h);
void ls_svg_line(ls_text *out, double x1, double y1, double x2, double y2, const char *cls);
/* A line with a head at its end, `shorten` units away from both ends. */
void ls_svg_arrow(ls_text *out, const char *name, double x1, double y1, double x2, double y2, double shorten,
                  const char *cls);
void ls_svg_circle(ls_text *out, double x, double y, double r, const char *cls);
/* n points, xy[2 n]. */
void ls_svg_polyline(ls_text *out, const double *xy, int n, const char *cls);
/* anchor: "start", "middle" or "end"; cls may be "". */
void ls_svg_text(ls_text *out, double x, double y, const char *anchor, const char *cls, const char *fmt, ...)
    LS_PRINTF(6, 7);

#endif
