/* The colours of figures: contrasts, and distances as people see them who do not see red, green or blue. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "fig/palette.h"

typedef struct rgb { double v[3]; } rgb; /* linear light, 0 to 1 */

static rgb read(ls_colour c, bool dark)
{
    const long hex = strtol(ls_colour_hex(c, dark) + 1, NULL, 16);
    rgb out;
    for (int i = 0; i < 3; i++) {
        const double s = (double)(hex >> (16 - 8 * i) & 255) / 255;
        out.v[i] = s <= 0.04045 ? s / 12.92 : pow((s + 0.055) / 1.055, 2.4);
    }
    return out;
}

/* WCAG 2.2. */
static double contrast(rgb a, rgb b)
{
    const double w[3] = { 0.2126, 0.7152, 0.0722 };
    double l[2] = { 0 };
    for (int i = 0; i < 3; i++) l[0] += w[i] * a.v[i], l[1] += w[i] * b.v[i];
    return (fmax(l[0], l[1]) + 0.05) / (fmin(l[0], l[1]) + 0.05);
}

/* CIE 1976, D65. */
static double distance(rgb a, rgb b)
{
    static const double m[3][3] = { { 0.4124, 0.3576, 0.1805 }, { 0.2126, 0.7152, 0.0722 },
                                    { 0.0193, 0.1192, 0.9505 } };
    static const double white[3] = { 0.9505, 1.0, 1.089 };
    double lab[2][3];
    for (int k = 0; k < 2; k++) {
        const rgb *c = k ? &b : &a;
        double f[3];
        for (int i = 0; i < 3; i++) {
            double x = 0;
            for (int j = 0; j < 3; j++) x += m[i][j] * c->v[j];
            x /= white[i];
            f[i] = x > 0.008856 ? cbrt(x) : 7.787 * x + 16.0 / 116;
        }
        lab[k][0] = 116 * f[1] - 16;
        lab[k][1] = 500 * (f[0] - f[1]);
        lab[k][2] = 200 * (f[1] - f[2]);
    }
    return sqrt(pow(lab[0][0] - lab[1][0], 2) + pow(lab[0][1] - lab[1][1], 2) + pow(lab[0][2] - lab[1][2], 2));
}

/* Machado, Oliveira and Fernandes 2009, severity 1: protanopia, deuteranopia, tritanopia; and as it is. */
static rgb seen(rgb c, int kind)
{
    static const double m[4][3][3] = {
        { { 0.152286, 1.052583, -0.204868 }, { 0.114503, 0.786281, 0.099216 }, { -0.003882, -0.048116, 1.051998 } },
        { { 0.367322, 0.860646, -0.227968 }, { 0.280085, 0.672501, 0.047413 }, { -0.011820, 0.042940, 0.968881 } },
        { { 1.255528, -0.076749, -0.178779 }, { -0.078411, 0.930809, 0.147602 }, { 0.004733, 0.691367, 0.303900 } },
        { { 1, 0, 0 }, { 0, 1, 0 }, { 0, 0, 1 } },
    };
    rgb out;
    for (int i = 0; i < 3; i++) {
        double x = 0;
        for (int j = 0; j < 3; j++) x += m[kind][i][j] * c.v[j];
        out.v[i] = fmin(1, fmax(0, x));
    }
    return out;
}

static void text_can_be_read(void **state)
{
    (void)state;
    for (int dark = 0; dark < 2; dark++) {
        const rgb paper = read(LS_COLOUR_PAPER, dark), ink = read(LS_COLOUR_INK, dark);
        const rgb always = read(LS_COLOUR_INK, false);
        assert_true(contrast(ink, paper) >= 7);
        assert_true(contrast(read(LS_COLOUR_QUIET, dark), paper) >= 4.5);
        assert_true(contrast(paper, read(LS_COLOUR_FORWARD, dark)) >= 4.5); /* class "on" */
        assert_true(contrast(paper, read(LS_COLOUR_OPTIMIZER, dark)) >= 4.5);
        assert_true(contrast(always, read(LS_COLOUR_BACKWARD, dark)) >= 4.5); /* class "on-pale" */
        assert_true(contrast(ink, read(LS_COLOUR_HIDDEN, dark)) >= 4.5);
        assert_true(contrast(ink, read(LS_COLOUR_IDLE, dark)) >= 4.5);
    }
}

static void shapes_stand_out(void **state)
{
    (void)state;
    static const ls_colour solid[] = { LS_COLOUR_FORWARD, LS_COLOUR_OPTIMIZER, LS_COLOUR_EXPOSED,
                                       LS_COLOUR_QUIET }; /* the last: outlines */
    for (int dark = 0; dark < 2; dark++)
        for (int i = 0; i < 4; i++) assert_true(contrast(read(solid[i], dark), read(LS_COLOUR_PAPER, dark)) >= 3);
}

static void meanings_are_told_apart(void **state)
{
    (void)state;
    for (int dark = 0; dark < 2; dark++)
        for (int kind = 0; kind < 4; kind++)
            for (int a = LS_COLOUR_FORWARD; a < LS_COLOUR_IDLE; a++)
                for (int b = a + 1; b < LS_COLOUR_IDLE; b++) {
                    const ls_colour x = (ls_colour)a, y = (ls_colour)b;
                    const double d = distance(seen(read(x, dark), kind), seen(read(y, dark), kind));
                    if (d < 12)
                        fail_msg("%s, kind %d: %s and %s are %.1f apart", dark ? "dark" : "light", kind, ls_colour_name(x),
                                 ls_colour_name(y), d);
                }
}

static void the_style_sheet_has_all_of_them(void **state)
{
    (void)state;
    ls_text css = { 0 };
    ls_palette_css("x", &css);
    for (int c = 0; c < LS_COLOURS; c++) {
        char rule[64];
        snprintf(rule, sizeof rule, ".x .c-%s{fill:%s;fill:var(--%s)}", ls_colour_name((ls_colour)c),
                 ls_colour_hex((ls_colour)c, false), ls_colour_name((ls_colour)c));
        assert_non_null(strstr(ls_text_str(&css), rule));
        assert_non_null(strstr(ls_text_str(&css), ls_colour_hex((ls_colour)c, false)));
        assert_non_null(strstr(ls_text_str(&css), ls_colour_hex((ls_colour)c, true)));
    }
    assert_string_equal(ls_colour_name(LS_COLOURS), "?");
    assert_string_equal(ls_colour_hex(LS_COLOURS, true), "?");
    ls_text_free(&css);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_can_be_read),
        cmocka_unit_test(shapes_stand_out),
        cmocka_unit_test(meanings_are_told_apart),
        cmocka_unit_test(the_style_sheet_has_all_of_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
