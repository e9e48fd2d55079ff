/* topo_svg.c -- a picture of a cluster: boxes in one another. */
#include "fig/topo_svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fig/svg.h"
#include "sim/quantity.h"

#define SQUARE 18.0 /* of a device, */
#define GAP    4.0  /* and between two */
#define MARGIN 10.0
#define TITLE  34.0 /* two lines over what is in a box */
#define LEAST  290.0 /* width of a box at least */
#define LETTER 6.4   /* of its second line */
#define ROW    4    /* units side by side */

typedef struct size { double w, h; } size;

/* Units of level `level`, and how many of them are drawn in a row. */
static int drawn(const ls_topo *t, int level)
{
    const int n = t->level[level].count;
    return level > 0 && n > LS_TOPO_DRAWN ? LS_TOPO_DRAWN : n;
}

static int per_row(const ls_topo *t, int level)
{
    const int n = drawn(t, level), wide = level > 0 ? ROW : n > 16 ? (int)ceil(sqrt(n)) : 8;
    return n < wide ? n : wide;
}

static void link_text(const ls_topo_level *v, char *buf, size_t n)
{
    char each[40];
    snprintf(buf, n, "%s: %d x %s, one direction", v->link, v->ports,
             ls_quantity_text(LS_Q_BANDWIDTH, v->bytes_per_s, each, sizeof each));
}

/* Of the words over a unit's members, as wide as letters of that size are at most on average. */
static double words_width(const ls_topo *t, int level)
{
    char text[160];
    link_text(&t->level[level], text, sizeof text);
    return fmax(LEAST, 2 * MARGIN + LETTER * (double)strlen(text));
}

static size of_unit(const ls_topo *t, int level)
{
    const size inner = level > 0 ? of_unit(t, level - 1) : (size){ SQUARE, SQUARE };
    const double gap = level > 0 ? MARGIN : GAP;
    const int columns = per_row(t, level), rows = (drawn(t, level) + columns - 1) / columns;
    const double w = columns * (inner.w + gap) - gap + 2 * MARGIN;
    const bool more = drawn(t, level) < t->level[level].count;
    return (size){ fmax(w, words_width(t, level)), TITLE + rows * (inner.h + gap) - gap + MARGIN + (more ? 16 : 0) };
}

static bool is_slow(const ls_topo *t, int level, int64_t unit)
{
    for (int i = 0; i < t->nslow; i++)
        if (t->slow[i].level == level && t->slow[i].unit == unit) return true;
    return false;
}

static void draw(const ls_topo *t, int level, int64_t unit, double x, double y, ls_text *out)
{
    const ls_topo_level *v = &t->level[level];
    const size all = of_unit(t, level), inner = level > 0 ? of_unit(t, level - 1) : (size){ SQUARE, SQUARE };
    const double gap = level > 0 ? MARGIN : GAP;
    const int columns = per_row(t, level), n = drawn(t, level);
    char link[160];
    link_text(v, link, sizeof link);
    ls_svg_rect(out, x, y, all.w, all.h, "c-paper box");
    if (level + 1 < t->nlevels && is_slow(t, level + 1, unit)) /* not behind its words */
        ls_svg_hatch(out, "topo", x, y + TITLE - 3, all.w, all.h - TITLE + 3);
    ls_svg_text(out, x + MARGIN, y + 14, "start", "", "%s %lld", v->name, (long long)unit);
    ls_svg_text(out, x + MARGIN, y + 28, "start", "small", "%s", link);
    for (int i = 0; i < n; i++) {
        const double at_x = x + MARGIN + i % columns * (inner.w + gap);
        const double at_y = y + TITLE + i / columns * (inner.h + gap);
        const int64_t child = unit * v->count + i;
        if (level > 0) draw(t, level - 1, child, at_x, at_y, out);
        else ls_svg_rect(out, at_x, at_y, SQUARE, SQUARE, "c-forward");
        if (level == 0 && is_slow(t, level, child)) ls_svg_hatch(out, "topo", at_x, at_y, inner.w, inner.h);
    }
    if (n < v->count) ls_svg_text(out, x + MARGIN, y + all.h - 6, "start", "small", "and %d more", v->count - n);
}

void ls_topo_svg(const ls_topo *t, ls_text *out)
{
    char sentence[400];
    const int top = t->nlevels - 1;
    const size all = of_unit(t, top);
    snprintf(sentence, sizeof sentence, "%s: %lld devices in %d levels; %d units joined by %s.", t->name, (long long)ls_topo_devices(t), t->nlevels,
             t->level[top].count, t->level[top].link);
    ls_svg_begin(out, "topo", all.w + 2 * MARGIN, all.h + 2 * MARGIN, t->name, sentence);
    draw(t, top, 0, MARGIN, MARGIN, out);
    ls_svg_end(out);
}
