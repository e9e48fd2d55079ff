/* SVG: what cannot stand in XML is escaped, and lengths have two decimals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "fig/svg.h"

static void text_is_escaped(void **state)
{
    (void)state;
    ls_text t = { 0 };
    ls_svg_text(&t, 1, 2, "end", "small", "%s", "a < b & \"c\" > d");
    assert_string_equal(ls_text_str(&t), "<text x=\"1\" y=\"2\" text-anchor=\"end\" class=\"small\">a &lt; b &amp; &quot;c&quot; &gt; d</text>\n");
    ls_text_free(&t);
    ls_svg_begin(&t, "x", 10, 20, "<title>", "1 < 2");
    assert_non_null(strstr(ls_text_str(&t), "<title>&lt;title&gt;</title>"));
    assert_non_null(strstr(ls_text_str(&t), "aria-label=\"1 &lt; 2\""));
    assert_non_null(strstr(ls_text_str(&t), "viewBox=\"0 0 10 20\""));
    ls_text_free(&t);
}

static void lengths_are_rounded(void **state)
{
    (void)state;
    ls_text t = { 0 };
    ls_svg_rect(&t, -0.001, 1.0 / 3, 2.005001, 1e6, "");
    assert_string_equal(ls_text_str(&t), "<rect x=\"0\" y=\"0.33\" width=\"2.01\" height=\"1000000\"/>\n");
    ls_text_free(&t);
    const double xy[] = { 0, 1, 2.499, -3 };
    ls_svg_polyline(&t, xy, 2, "s-ink");
    assert_string_equal(ls_text_str(&t), "<polyline points=\"0 1 2.5 -3\" class=\"s-ink\"/>\n");
    ls_text_free(&t);
}

static void an_arrow_ends_before_its_points(void **state)
{
    (void)state;
    ls_text t = { 0 };
    ls_svg_arrow(&t, "n", 0, 0, 30, 40, 10, "");
    assert_string_equal(ls_text_str(&t), "<line x1=\"6\" y1=\"8\" x2=\"24\" y2=\"32\" marker-end=\"url(#n-head)\"/>\n");
    ls_text_free(&t);
    ls_svg_arrow(&t, "n", 5, 5, 5, 5, 10, ""); /* no direction */
    assert_non_null(strstr(ls_text_str(&t), "x1=\"5\" y1=\"5\" x2=\"5\" y2=\"5\""));
    ls_text_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_escaped),
        cmocka_unit_test(lengths_are_rounded),
        cmocka_unit_test(an_arrow_ends_before_its_points),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
