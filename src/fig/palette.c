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

void ls_palette_css(const char *scope, ls_text *out)
{
    variables(scope, false, out);
    ls_text_add(out, "@media(prefers-color-scheme:dark){");
    variables(scope, true, out);
    ls_text_add(out, "}@media print{");
    variables(scope, false, out);
    ls_text_add(out, "}.%s text{fill:var(--ink);font:13px system-ui,sans-serif;font-variant-numeric:tabular-nums}", scope);
    ls_text_add(out, ".%s .small{font-size:11px}.%s .quiet{fill:var(--quiet)}.%s .on{fill:var(--paper)}.%s .on-pale{fill:%s}", scope, scope, scope,
                scope, ls_colour_hex(LS_COLOUR_INK, false));
    for (int c = 0; c < LS_COLOURS; c++)
        ls_text_add(out, ".%s .c-%s{fill:var(--%s)}.%s .s-%s{stroke:var(--%s);fill:none}", scope, colours[c].name,
                    colours[c].name, scope, colours[c].name, colours[c].name);
    ls_text_add(out, ".%s .box{stroke:var(--quiet);stroke-width:.75}.%s .bold{stroke-width:3}.%s .dash{stroke-dasharray:5 4}", scope,
                scope, scope);
}
