/* palette.c -- the colours, and the style sheet that they make. */
#include "fig/palette.h"

static const struct { const char *name, *light, *dark; } colours[LS_COLOURS] = {
    [LS_COLOUR_PAPER] = { "paper", "#ffffff", "#0d1117" },
    [LS_COLOUR_INK] = { "ink", "#1b1f24", "#e6edf3" },
    [LS_COLOUR_QUIET] = { "quiet", "#57606a", "#9aa4af" },
    [LS_COLOUR_FORWARD] = { "forward", "#1f4e8c", "#3b7dd8" },
    [LS_COLOUR_BACKWARD] = { "backward", "#8fb8e8", "#b9dcff" },
    [LS_COLOUR_OPTIMIZER] = { "optimizer", "#8250c4", "#d09af5" },
    [LS_COLOUR_HIDDEN] = { "hidden", "#d3dae3", "#3a434f" },
    [LS_COLOUR_EXPOSED] = { "exposed", "#d1242f", "#ff5a52" },
    [LS_COLOUR_IDLE] = { "idle", "#f1f3f5", "#1c2128" },
};

const char *ls_colour_name(ls_colour c) { return (unsigned)c < LS_COLOURS ? colours[c].name : "?"; }

const char *ls_colour_hex(ls_colour c, bool dark)
{
    if ((unsigned)c >= LS_COLOURS) return "?";
    return dark ? colours[c].dark : colours[c].light;
}

static void variables(const char *scope, bool dark, ls_text *out)
{
    ls_text_add(out, ".%s{", scope);
    for (int c = 0; c < LS_COLOURS; c++)
        ls_text_add(out, "--%s:%s%s", colours[c].name, ls_colour_hex((ls_colour)c, dark), c + 1 < LS_COLOURS ? ";" : "");
    ls_text_add(out, "}");
}

/* "fill:#1b1f24;fill:var(--ink)": a viewer without CSS variables has the light colour. */
static void paint(const char *property, ls_colour c, ls_text *out)
{
    ls_text_add(out, "%s:%s;%s:var(--%s)", property, colours[c].light, property, colours[c].name);
}

static void rule(const char *scope, const char *selector, const char *name, const char *property, ls_colour c,
                 const char *more, ls_text *out)
{
    ls_text_add(out, ".%s %s%s{", scope, selector, name);
    paint(property, c, out);
    ls_text_add(out, "%s}", more);
}

void ls_palette_css(const char *scope, ls_text *out)
{
    variables(scope, false, out);
    ls_text_add(out, "@media(prefers-color-scheme:dark){");
    variables(scope, true, out);
    ls_text_add(out, "}@media print{");
    variables(scope, false, out);
    ls_text_add(out, "}");
    rule(scope, "text", "", "fill", LS_COLOUR_INK,
         ";font:13px system-ui,sans-serif;font-variant-numeric:tabular-nums", out);
    ls_text_add(out, ".%s .small{font-size:11px}", scope);
    rule(scope, ".quiet", "", "fill", LS_COLOUR_QUIET, "", out);
    rule(scope, ".on", "", "fill", LS_COLOUR_PAPER, "", out);
    ls_text_add(out, ".%s .on-pale{fill:%s}", scope, ls_colour_hex(LS_COLOUR_INK, false));
    for (int c = 0; c < LS_COLOURS; c++) {
        rule(scope, ".c-", colours[c].name, "fill", (ls_colour)c, "", out);
        rule(scope, ".s-", colours[c].name, "stroke", (ls_colour)c, ";fill:none", out);
    }
    rule(scope, ".box", "", "stroke", LS_COLOUR_QUIET, ";stroke-width:.75", out);
    ls_text_add(out, ".%s .bold{stroke-width:3}.%s .dash{stroke-dasharray:5 4}", scope, scope);
}
