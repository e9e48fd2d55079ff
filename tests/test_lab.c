/* lab: comparisons of claims, how they are shown, and what a claims.yaml may say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "lab/claims.h"
#include "lab/expr.h"

#define N(x) (sizeof(x) / sizeof *(x))

static const ls_lab_value values[] = {
    { "a", NULL, 6.0 },          { "b", NULL, 4.0 },           { "ab", NULL, 98688.0 },  { "near", NULL, 98688.05 },
    { "zero", NULL, 0.0 },       { "half", NULL, 0.5 },        { "d1", "00ff", 0.0 },    { "d2", "00ff", 0.0 },
    { "d3", "00fe", 0.0 },
};

static bool holds(const char *expr, double tolerance, const char *shown)
{
    ls_text t = { 0 };
    bool yes = false;
    assert_int_equal(ls_lab_expr_check("f:1", expr, values, N(values)), LS_OK);
    if (ls_lab_expr_eval("f:1", expr, values, N(values), tolerance, &yes, &t) != LS_OK)
        fail_msg("%s: %s", expr, ls_last_error());
    if (shown) assert_string_equal(ls_text_str(&t), shown);
    ls_text_free(&t);
    return yes;
}

static void refused(const char *expr, const char *expected)
{
    ls_text t = { 0 };
    bool yes;
    assert_int_equal(ls_lab_expr_eval("f:7", expr, values, N(values), 0.0, &yes, &t), LS_USAGE);
    ls_text_free(&t);
    if (!strstr(ls_last_error(), expected)) fail_msg("%s: '%s' has no '%s'", expr, ls_last_error(), expected);
    assert_non_null(strstr(ls_last_error(), "f:7: "));
}

static void comparisons_hold_or_not(void **state)
{
    (void)state;
    static const char *const yes[] = { "a == 6", "a != b", "b < a", "b <= 4", "a > b", "a >= 6", "1 + 2 * 3 == 7",
                                       "(1 + 2) * 3 == 9", "10 - 2 - 3 == 5", "12 / 2 / 3 == 2", "2 < b < a",
                                                                          "-b + a == 2",
                                       "-(a - b) == -2", "ceil(half) == 1", "ceil(2) == 2", "min(a, b) == b",
                                                                          "max(1, b, 3) == 4",
                                       "1.5e2 == 150", "25e-1 == 2.5", "d1 == d2", "d1 != d3", "zero == 0" };
    static const char *const no[] = { "a == b", "a != 6", "a < b", "a < 6", "b > a", "b > 4", "a <= b", "b >= a",
                                       "2 < a < b",
                                      "b < a < 5", "b < 2 < a", "d1 == d3", "d1 != d2", "ab == near" };
    for (size_t i = 0; i < N(yes); i++) if (!holds(yes[i], 0.0, NULL)) fail_msg("%s", yes[i]);
    for (size_t i = 0; i < N(no); i++) if (holds(no[i], 0.0, NULL)) fail_msg("%s", no[i]);
    assert_true(holds("ab == near", 1e-6, NULL));
    assert_false(holds("ab == near", 1e-7, NULL));
    assert_true(holds("near == ab", 1e-6, NULL));
    assert_true(holds("-ab == -near", 1e-6, NULL));
}

static void formulas_are_shown_with_values(void **state)
{
    (void)state;
    holds("ab==near", 0.0, "98,688 = 98688.05");
    holds("ab == 16448 * a", 0.0, "98,688 = 16448 * 6 [98,688]");
    holds("2*(b-1)/b < half", 0.0, "2 * (4 - 1) / 4 [1.5] < 0.5");
    holds("max(a,b) != -b", 0.0, "max(6, 4) [6] != -4");
    holds("d1 == d3", 0.0, "00ff = 00fe");
    holds("ab == near != a", 1e-6, "98,688 ~ 98688.05 != 6"); /* equal to a tolerance */
}

static void wrong_comparisons_name_the_column(void **state)
{
    (void)state;
    refused("a", "column 2: expected one of == != < <= > >=");
    refused("", "column 1: expected a number");
    refused("a == ", "column 6: expected a number");
    refused("a == q", "column 6: no value is taken under this name");
    refused("a == nea", "column 6: no value is taken under this name");
    refused("a == 1 / zero", "column 8: division by zero");
    refused("a / (b - 4) == 1", "column 3: division by zero");
    refused("1e200 * 1e200 == a", "column 7: the result is too large");
    refused("1e999 == a", "column 1: the number is too large");
    refused("(a == 6", "column 1: this parenthesis is not closed");
    refused("a == 6)", "column 7: expected an operator or the end");
    refused("a == 6 b", "column 8: expected an operator or the end");
    refused("floor(a) == 6", "column 1: expected one of the functions ceil, min, max");
    refused("ceil(a, b) == 6", "column 5: this parenthesis is not closed");
    refused("ceil(d1) == 6", "column 1: a text cannot be computed with");
    refused("(d1) == d2", "column 1: a text cannot be computed with");
    refused("d1 + 1 == 6", "column 4: a text cannot be computed with");
    refused("d1 == a", "column 4: a text can only be compared with a text");
    refused("d1 < d2", "column 4: a text can only be compared with a text");
    refused("0x10 == a", "column 2: expected an operator after a number");
    refused("1.2.3 == a", "column 4: expected an operator after a number");
    refused("1e == a", "column 3: expected the digits of an exponent");
    refused("a = 6", "column 3: expected one of");
    refused("--a == 6", "column 1: expected a number");
    assert_int_equal(ls_lab_expr_check("f:7", "1 / (a - a) == q", values, N(values)), LS_USAGE);
    assert_non_null(strstr(ls_last_error(), "column 16: no value"));
}

static void comparisons_have_limits(void **state)
{
    (void)state;
    char deep[4 * LS_LAB_MAX_DEPTH] = "", longest[LS_LAB_MAX_EXPR + 2];
    for (int i = 0; i < LS_LAB_MAX_DEPTH; i++) strcat(deep, "(");
    strcat(deep, "6");
    for (int i = 0; i < LS_LAB_MAX_DEPTH; i++) strcat(deep, ")");
    strcat(deep, "==a");
    assert_true(holds(deep, 0.0, NULL));
    memmove(deep + 1, deep, strlen(deep) + 1);
    refused(deep, "too many parentheses");
    memset(longest, ' ', sizeof longest);
    memcpy(longest, "a == 6", 6);
    longest[LS_LAB_MAX_EXPR] = 0;
    assert_true(holds(longest, 0.0, NULL));
    longest[LS_LAB_MAX_EXPR] = ' ';
    longest[LS_LAB_MAX_EXPR + 1] = 0;
    refused(longest, "at most 1000");
}

#define HEAD "lab: 01\ntitle: Buckets\nminutes: 45\nclaims:\n"
#define CLAIM(id) "- id: " id "\n  says: It moves gradients.\n  rows: [R21, R213]\n" \
    "  run: {small: lockstep train a.yaml --json, large: probe b}\n" \
    "  take: {a: small/comm/bytes, b: large/comm/bytes}\n" \
    "  expect: a == b\n  kind: exact\n  why: Only buckets travel.\n" \
    "  ask: {text: How many?, options: [more, the same], right: 2}\n" \
    "  control: {large: starter}\n"

static ls_status read_text(const char *text, ls_lab *lab)
{
    return ls_lab_read("c.yaml", text, strlen(text), lab);
}

static void claims_are_read(void **state)
{
    (void)state;
    ls_lab lab;
    const ls_lab_claim *c;
    if (read_text(HEAD CLAIM("01.5") CLAIM("01.6"), &lab) != LS_OK) fail_msg("%s", ls_last_error());
    assert_string_equal(lab.number, "01");
    assert_string_equal(lab.title, "Buckets");
    assert_int_equal(lab.minutes, 45);
    assert_int_equal(lab.n, 2);
    assert_int_equal(ls_lab_find(&lab, "5", &c), LS_OK);
    assert_ptr_equal(c, &lab.claims[0]);
    assert_int_equal(ls_lab_find(&lab, "01.6", &c), LS_OK);
    assert_ptr_equal(c, &lab.claims[1]);
    assert_int_equal(ls_lab_find(&lab, "7", &c), LS_USAGE);
    assert_string_equal(ls_last_error(), "lab 01 has no claim '7': expected one of 01.5, 01.6");
    assert_string_equal(c->says, "It moves gradients.");
    assert_int_equal(c->kind, LS_LAB_EXACT);
    assert_string_equal(c->rows.v[1].value, "R213");
    assert_string_equal(c->run.v[0].name, "small");
    assert_string_equal(c->run.v[1].value, "probe b");
    assert_string_equal(c->take.v[1].value, "large/comm/bytes");
    assert_int_equal(c->expect_line, 20);
    assert_string_equal(c->control.v[0].value, "starter");
    assert_string_equal(c->options.v[1].value, "the same");
    assert_int_equal(c->right, 2);
    ls_lab_free(&lab);
}

/* The claims file with one piece of text replaced. */
static void replaced(const char *old, const char *new, ls_status expected, const char *message)
{
    static const char whole[] = HEAD CLAIM("01.5");
    char text[2 * sizeof whole];
    ls_lab lab;
    const char *at = strstr(whole, old);
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - whole), whole, new, at + strlen(old));
    const ls_status st = read_text(text, &lab);
    ls_lab_free(&lab);
    if (st != expected) fail_msg("'%s': %d: %s", new, (int)st, ls_last_error());
    if (st < 0 && !strstr(ls_last_error(), message)) fail_msg("'%s': '%s' has no '%s'", new, ls_last_error(), message);
}

static void kinds_are_read(void **state)
{
    (void)state;
    ls_lab lab;
    replaced("kind: exact", "kind: timed", LS_OK, "");
    replaced("kind: exact", "kind: virtual", LS_OK, "");
    replaced("kind: exact", "kind: exactly", LS_USAGE, "c.yaml:11: kind: expected exact, numeric TOLERANCE");
    replaced("kind: exact", "kind: numeric", LS_USAGE, "c.yaml:11: kind: expected exact, numeric TOLERANCE");
    replaced("kind: exact", "kind: numeric 0", LS_USAGE, "c.yaml:11: kind: expected a tolerance between 0 and 1");
    replaced("kind: exact", "kind: numeric 1e-3x", LS_USAGE, "c.yaml:11: kind: expected a tolerance between 0 and 1");
    assert_int_equal(read_text(HEAD "- {id: x, says: s, run: {r: lockstep}, take: {a: r/b}, kind: numeric 1e-6, "
                               "why: w, "
                               "expect: a == 1, control: {r: probe}}\n", &lab), LS_OK);
    assert_int_equal(lab.claims[0].kind, LS_LAB_NUMERIC);
    assert_true(lab.claims[0].tolerance == 1e-6);
    ls_lab_free(&lab);
    assert_int_equal(read_text(HEAD "- {id: x, says: s, run: {r: lockstep}, take: {a: r/b}, kind: virtual, why: w, "
                               "expect: a == 1, control: {r: probe}}\n", &lab), LS_OK);
    assert_int_equal(lab.claims[0].kind, LS_LAB_VIRTUAL);
    assert_true(lab.claims[0].tolerance == 1e-9);
    ls_lab_free(&lab);
    assert_int_equal(read_text(HEAD "- {id: x, says: s, run: {r: lockstep}, take: {a: r/b}, kind: shown, why: w}\n",
                     &lab), LS_OK);
    assert_int_equal(lab.claims[0].kind, LS_LAB_SHOWN);
    assert_null(lab.claims[0].expect);
    ls_lab_free(&lab);
}

static void broken_claims_name_the_line(void **state)
{
    (void)state;
    replaced("minutes: 45\n", "", LS_USAGE, "c.yaml:1: minutes: is missing");
    replaced("minutes: 45", "minutes: 0", LS_USAGE, "c.yaml:3: minutes: expected a whole number from 1");
    replaced("minutes: 45", "minutes: 601", LS_USAGE, "c.yaml:3: minutes: expected a whole number from 1");
    replaced("minutes: 45", "minutes: 600", LS_OK, "");
    replaced("minutes: 45", "minutes: 99999999999999999999999",
             LS_USAGE, "c.yaml:3: minutes: expected a whole number from 1");
    replaced("title: Buckets", "titel: Buckets", LS_USAGE, "c.yaml:2: titel: is not a key that is known here");
    replaced("title: Buckets", "lab: 02", LS_USAGE, "c.yaml:2: lab: is given twice");
    replaced("title: Buckets", "title: \"a\\eb\"", LS_USAGE, "c.yaml:2: title: a control character");
    replaced("title: Buckets", "title: ", LS_USAGE, "c.yaml:2: title: expected a text, found nothing");
    replaced("title: Buckets", "title: [", LS_USAGE, "c.yaml:4: not YAML: did not find");
    replaced("  says: It moves gradients.\n", "", LS_USAGE, "c.yaml:5: says: is missing from this claim");
    replaced("rows: [R21, R213]", "rows: R21", LS_USAGE, "c.yaml:7: rows: expected a list of texts");
    replaced("run: {small", "run: {small: lockstep, small", LS_USAGE, "c.yaml:8: run: this name is given twice");
    replaced("run: {small", "run: {1small", LS_USAGE, "c.yaml:8: run: a name has letters");
    replaced("probe b", "sh -c ls", LS_USAGE,
             "c.yaml:8: claim 01.5: 'large': a command begins with lockstep, probe or starter");
    replaced("probe b", "probes b", LS_USAGE, "a command begins with");
    replaced("probe b", "probe b > c", LS_USAGE, "c.yaml:8: claim 01.5: 'large': there is no shell");
    replaced("b: large/comm", "b: larger/comm", LS_USAGE,
             "c.yaml:9: claim 01.5: 'larger/comm/bytes': expected RUN/KEY");
    replaced("b: large/comm/bytes", "b: large/stderr", LS_USAGE, "c.yaml:9: claim 01.5: 'large/stderr': expected RUN/stderr/TEXT");
    replaced("b: large/comm/bytes", "b: large/stderr/", LS_USAGE, "'large/stderr/': expected RUN/stderr/TEXT");
    replaced("b: large/comm/bytes", "b: large/stderr/65 or / 66", LS_OK, "");
    replaced("b: large/comm/bytes", "b: large/", LS_USAGE, "c.yaml:9: claim 01.5: 'large/': expected RUN/KEY");
    replaced("expect: a == b", "expect: a == c", LS_USAGE, "c.yaml:10: claim 01.5: expect: column 6: no value");
    replaced("  expect: a == b\n", "", LS_USAGE, "c.yaml:5: claim 01.5: 'expect': is missing");
    replaced("  control: {large: starter}\n", "", LS_USAGE, "c.yaml:5: claim 01.5: 'control': is missing");
    replaced("control: {large", "control: {largest", LS_USAGE,
             "c.yaml:14: claim 01.5: 'largest': the claim has no run");
    replaced("control: {large: starter", "control: {large: cat",
             LS_USAGE, "c.yaml:14: claim 01.5: 'large': a command begins");
    replaced("right: 2", "right: 3", LS_USAGE, "c.yaml:13: ask: expected a text, two options or more");
    replaced("right: 2", "wrong: 2", LS_USAGE, "c.yaml:13: ask: expected text, options and right");
    replaced("control: {large: starter}\n", "control: {large: starter}\n---\na: b\n",
             LS_USAGE, "more than one document");
    replaced("control: {large: starter}\n", "control: {large: starter}\n" CLAIM("01.5"), LS_USAGE,
             "c.yaml:15: 01.5: there is already a claim of this id");
}

static void files_have_limits(void **state)
{
    (void)state;
    ls_lab lab;
    ls_text t = { 0 };
    for (int over = 0; over < 2; over++) {
        t.n = 0;
        ls_text_add(&t, "%s", HEAD);
        for (int i = 0; i < LS_LAB_MAX_CLAIMS + over; i++)
            ls_text_add(&t, "- {id: c%d, says: s, run: {r: lockstep}, take: {a: r/b}, kind: shown, why: w}\n", i);
        assert_int_equal(read_text(ls_text_str(&t), &lab), over ? LS_USAGE : LS_OK);
        if (over) assert_string_equal(ls_last_error(), "c.yaml:5: claims: there are too many");
        ls_lab_free(&lab);
        t.n = 0;
        ls_text_add(&t, "%s- {id: c, says: s, run: {r: lockstep}, kind: shown, why: w, take: {", HEAD);
        for (int i = 0; i < LS_LAB_MAX_PAIRS + over; i++) ls_text_add(&t, "%sa%d: r/b", i ? ", " : "", i);
        ls_text_add(&t, "}}\n");
        assert_int_equal(read_text(ls_text_str(&t), &lab), over ? LS_USAGE : LS_OK);
        if (over) assert_string_equal(ls_last_error(), "c.yaml:5: take: too many entries");
        ls_lab_free(&lab);
    }
    ls_text_free(&t);
    assert_int_equal(read_text("", &lab), LS_USAGE);
    assert_string_equal(ls_last_error(), "c.yaml:1: there are no claims");
    ls_lab_free(&lab);
    assert_int_equal(ls_lab_load("/nowhere/claims.yaml", &lab), LS_IO);
    ls_lab_free(&lab);
    char *large = malloc(LS_YAML_MAX_BYTES + 1);
    assert_non_null(large);
    memset(large, '\n', LS_YAML_MAX_BYTES + 1);
    assert_int_equal(ls_lab_read("c.yaml", large, LS_YAML_MAX_BYTES + 1, &lab), LS_USAGE);
    assert_non_null(strstr(ls_last_error(), "at most 1048576"));
    assert_int_equal(ls_lab_read("c.yaml", large, LS_YAML_MAX_BYTES, &lab), LS_USAGE);
    assert_string_equal(ls_last_error(), "c.yaml:1: there are no claims");
    ls_lab_free(&lab);
    free(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comparisons_hold_or_not),
        cmocka_unit_test(formulas_are_shown_with_values),
        cmocka_unit_test(wrong_comparisons_name_the_column),
        cmocka_unit_test(comparisons_have_limits),
        cmocka_unit_test(claims_are_read),
        cmocka_unit_test(kinds_are_read),
        cmocka_unit_test(broken_claims_name_the_line),
        cmocka_unit_test(files_have_limits),
    };
    return cmocka_run_group_tests_name("lab", tests, NULL, NULL);
}
