/* palette.h -- one colour, one meaning: in every figure, in the report and in the book.
 *
 * A colour is never the only cue: what matters also has a label, an outline or a hatch. tests/test_palette.c computes
 * contrasts, and how far colours are apart for people who do not see red, green or blue.
 */
#ifndef LS_FIG_PALETTE_H
#define LS_FIG_PALETTE_H
#include "base/text.h"

typedef enum ls_colour {
    LS_COLOUR_PAPER,     /* behind everything */
    LS_COLOUR_INK,       /* text */
    LS_COLOUR_QUIET,     /* text that matters less, outlines and axes */
    LS_COLOUR_FORWARD,   /* forward; parameters; what a figure is about, where none of the others fits */
    LS_COLOUR_BACKWARD,  /* backward; gradients */
    LS_COLOUR_OPTIMIZER, /* optimizer and its state */
    LS_COLOUR_HIDDEN,    /* communication that computation hides */
    LS_COLOUR_EXPOSED,   /* communication that is not hidden: the only saturated red */
    LS_COLOUR_IDLE,      /* nothing happens */
    LS_COLOURS
} ls_colour;

const char *ls_colour_name(ls_colour c);            /* "forward": its class in SVG */
const char *ls_colour_hex(ls_colour c, bool dark);  /* "#1f4e8c" */
/* The rules of a style sheet, for light and dark, of what is inside elements of the class `scope`: c-NAME fills, s-NAME
 * draws lines. Text is in ink, with `on` in the colour of paper, and with `on-pale`, for backward's, always dark. */
void ls_palette_css(const char *scope, ls_text *out);

#endif
