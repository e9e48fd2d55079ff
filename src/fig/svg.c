/* svg.c -- the elements of SVG that figures need. */
#include "fig/svg.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "fig/palette.h"

/* Rounded to 1/100, and never "-0". */
static void length(ls_text *out, const char *attribute, double v)
{
    ls_text_add(out, " %s=\"%.9g\"", attribute, floor(v * 100.0 + 0.5) / 100.0 + 0.0);
}

static void escape(ls_text *out, const char *s)
{
    for (; *s; s++)
        if (*s == '&') ls_text_add(out, "&amp;");
        else if (*s == '<') ls_text_add(out, "&lt;");
        else if (*s == '>') ls_text_add(out, "&gt;");
        else if (*s == '"') ls_text_add(out, "&quot;");
        else ls_text_addn(out, s, 1);
}

static void cls_end(ls_text *out, const char *cls)
{
    if (*cls) ls_text_add(out, " class=\"%s\"", cls);
    ls_text_add(out, "/>\n");
}

void ls_svg_begin(ls_text *out, const char *name, double width, double height, const char *title, const char *sentence)
{
    ls_text_add(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"ls-fig\" role=\"img\" viewBox=\"0 0 %.9g %.9g\" aria-label=\"", width,
                height);
    escape(out, sentence);
    ls_text_add(out, "\">\n<title>");
    escape(out, title);
    ls_text_add(out, "</title>\n<desc>");
    escape(out, sentence);
    ls_text_add(out, "</desc>\n<style>");
    ls_palette_css("ls-fig", out);
    ls_text_add(out, "</style>\n<defs><pattern id=\"%s-hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
                     "patternTransform=\"rotate(45)\"><line x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\" class=\"s-ink\"/></pattern>"
                     "<marker id=\"%s-head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"6\" markerHeight=\"6\" "
                     "orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" class=\"c-ink\"/></marker></defs>\n", name, name);
    ls_svg_rect(out, 0, 0, width, height, "c-paper");
}

void ls_svg_end(ls_text *out) { ls_text_add(out, "</svg>\n"); }

void ls_svg_rect(ls_text *out, double x, double y, double w, double h, const char *cls)
{
    ls_text_add(out, "<rect");
    length(out, "x", x);
    length(out, "y", y);
    length(out, "width", w);
    length(out, "height", h);
    cls_end(out, cls);
}

void ls_svg_hatch(ls_text *out, const char *name, double x, double y, double w, double h)
{
    ls_text_add(out, "<rect");
    length(out, "x", x);
    length(out, "y", y);
    length(out, "width", w);
    length(out, "height", h);
    ls_text_add(out, " fill=\"url(#%s-hatch)\" fill-opacity=\".55\"/>\n", name);
}

static void ends(ls_text *out, double x1, double y1, double x2, double y2)
{
    ls_text_add(out, "<line");
    length(out, "x1", x1);
    length(out, "y1", y1);
    length(out, "x2", x2);
    length(out, "y2", y2);
}

void ls_svg_line(ls_text *out, double x1, double y1, double x2, double y2, const char *cls)
{
    ends(out, x1, y1, x2, y2);
    cls_end(out, cls);
}

void ls_svg_arrow(ls_text *out, const char *name, double x1, double y1, double x2, double y2, double shorten,
                  const char *cls)
{
    const double dx = x2 - x1, dy = y2 - y1, n = sqrt(dx * dx + dy * dy), k = n > 0 ? shorten / n : 0;
    ends(out, x1 + k * dx, y1 + k * dy, x2 - k * dx, y2 - k * dy);
    ls_text_add(out, " marker-end=\"url(#%s-head)\"", name);
    cls_end(out, cls);
}

void ls_svg_circle(ls_text *out, double x, double y, double r, const char *cls)
{
    ls_text_add(out, "<circle");
    length(out, "cx", x);
    length(out, "cy", y);
    length(out, "r", r);
    cls_end(out, cls);
}

void ls_svg_polyline(ls_text *out, const double *xy, int n, const char *cls)
{
    ls_text_add(out, "<polyline points=\"");
    for (int i = 0; i < 2 * n; i++)
        ls_text_add(out, "%s%.9g", i ? " " : "", floor(xy[i] * 100.0 + 0.5) / 100.0 + 0.0);
    ls_text_add(out, "\"");
    cls_end(out, cls);
}

void ls_svg_text(ls_text *out, double x, double y, const char *anchor, const char *cls, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ls_text_add(out, "<text");
    length(out, "x", x);
    length(out, "y", y);
    ls_text_add(out, " text-anchor=\"%s\"", anchor);
    if (*cls) ls_text_add(out, " class=\"%s\"", cls);
    ls_text_add(out, ">");
    escape(out, text);
    ls_text_add(out, "</text>\n");
}
