/* expr.c -- a claim's comparison: read, evaluated and shown in one pass from left to right. */
#include "lab/expr.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"

typedef struct reader {
    const char *where, *expr;
    size_t at;
    int depth;
    const ls_lab_value *values;
    size_t n;
    bool only_check; /* values are not known yet */
    ls_text *shown;
} reader;

typedef struct side {
    double number;
    const char *text; /* NULL: a number */
    bool computed;    /* more than one number or name */
} side;

static ls_status sum(reader *r, side *out);

static ls_status refuse(const reader *r, size_t at, const char *text)
{
    return ls_fail(LS_USAGE, "%s: column %zu: %s in '%s'", r->where, at + 1, text, r->expr);
}

static char next(reader *r)
{
    while (r->expr[r->at] == ' ') r->at++;
    return r->expr[r->at];
}

bool ls_lab_is_name(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (!first && c >= '0' && c <= '9');
}

static bool is_word(const char *word, const char *p, size_t nbytes)
{
    return strlen(word) == nbytes && strncmp(word, p, nbytes) == 0;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void show_number(ls_text *t, double v)
{
    char buf[64];
    if (floor(v) == v && fabs(v) < 1e15) ls_text_add(t, "%s", ls_number_text(v, 0, buf, sizeof buf));
    else ls_text_add(t, "%.9g", v);
}

static void show_side(ls_text *t, const side *s)
{
    if (s->text) ls_text_add(t, "%s", s->text);
    else show_number(t, s->number);
}

void ls_lab_show(ls_text *out, const ls_lab_value *v)
{
    show_side(out, &(side){ .number = v->number, .text = v->text });
}

/* Both have to be numbers, and so does the result. */
static ls_status combine(const reader *r, size_t at, char op, side *a, const side *b)
{
    if (a->text || b->text) return refuse(r, at, "a text cannot be computed with");
    if (op == '/' && b->number == 0.0 && !r->only_check) return refuse(r, at, "division by zero");
    switch (op) {
    case '+': a->number += b->number; break;
    case '-': a->number -= b->number; break;
    case '*': a->number *= b->number; break;
    case '/': a->number /= b->number; break;
    case 'm': a->number = fmin(a->number, b->number); break;
    default: a->number = fmax(a->number, b->number); break;
    }
    a->computed = true;
    if (!isfinite(a->number) && !r->only_check) return refuse(r, at, "the result is too large for a number");
    return LS_OK;
}

static ls_status number(reader *r, side *out)
{
    const size_t from = r->at;
    while (is_digit(r->expr[r->at])) r->at++;
    if (r->expr[r->at] == '.') r->at++;
    while (is_digit(r->expr[r->at])) r->at++;
    if (r->expr[r->at] == 'e') {
        r->at++;
        if (r->expr[r->at] == '-' || r->expr[r->at] == '+') r->at++;
        if (!is_digit(r->expr[r->at])) return refuse(r, r->at, "expected the digits of an exponent");
        while (is_digit(r->expr[r->at])) r->at++;
    }
    if (ls_lab_is_name(r->expr[r->at], false) || r->expr[r->at] == '.')
        return refuse(r, r->at, "expected an operator after a number");
    *out = (side){ .number = strtod(r->expr + from, NULL) };
    if (!isfinite(out->number)) return refuse(r, from, "the number is too large");
    ls_text_addn(r->shown, r->expr + from, r->at - from);
    return LS_OK;
}

static ls_status close_group(reader *r, size_t opened)
{
    if (next(r) != ')') return refuse(r, opened, "this parenthesis is not closed");
    r->at++;
    ls_text_add(r->shown, ")");
    r->depth--;
    return LS_OK;
}

static ls_status open_group(reader *r)
{
    if (++r->depth > LS_LAB_MAX_DEPTH) return refuse(r, r->at, "too many parentheses inside one another");
    r->at++;
    ls_text_add(r->shown, "(");
    return LS_OK;
}

/* ceil(x), min(x, ..), max(x, ..); r->at is at the parenthesis, the name began at `from`. */
static ls_status call(reader *r, size_t from, size_t nbytes, side *out)
{
    static const char *const names[] = { "ceil", "min", "max" };
    size_t which = 0;
    while (which < 3 && !is_word(names[which], r->expr + from, nbytes)) which++;
    if (which == 3) return refuse(r, from, "expected one of the functions ceil, min, max before a parenthesis");
    const size_t opened = r->at;
    ls_text_addn(r->shown, r->expr + from, nbytes);
    LS_TRY(open_group(r));
    LS_TRY(sum(r, out));
    if (out->text) return refuse(r, from, "a text cannot be computed with");
    out->computed = true;
    while (which > 0 && next(r) == ',') {
        side other;
        const size_t at = r->at++;
        ls_text_add(r->shown, ", ");
        LS_TRY(sum(r, &other));
        LS_TRY(combine(r, at, which == 1 ? 'm' : 'M', out, &other));
    }
    if (which == 0) out->number = ceil(out->number);
    return close_group(r, opened);
}

static ls_status name(reader *r, side *out)
{
    const size_t from = r->at;
    while (ls_lab_is_name(r->expr[r->at], false)) r->at++;
    const size_t nbytes = r->at - from;
    if (next(r) == '(') return call(r, from, nbytes, out);
    for (size_t i = 0; i < r->n; i++) {
        const ls_lab_value *v = &r->values[i];
        if (!is_word(v->name, r->expr + from, nbytes)) continue;
        *out = (side){ .number = r->only_check ? 1.0 : v->number, .text = r->only_check ? NULL : v->text };
        if (!out->text && !isfinite(out->number)) return refuse(r, from, "this value is not finite");
        show_side(r->shown, out);
        return LS_OK;
    }
    return refuse(r, from, "no value is taken under this name");
}

static ls_status factor(reader *r, side *out)
{
    const char c = next(r);
    if (is_digit(c)) return number(r, out);
    if (ls_lab_is_name(c, true)) return name(r, out);
    const char after = c ? r->expr[r->at + 1] : 0;
    if (c == '-' && (ls_lab_is_name(after, false) || after == '(')) {
        const size_t at = r->at++;
        side zero = { 0 };
        ls_text_add(r->shown, "-");
        LS_TRY(factor(r, out));
        const bool computed = out->computed;
        LS_TRY(combine(r, at, '-', &zero, out));
        *out = zero;
        out->computed = computed;
        return LS_OK;
    }
    if (c == '(') {
        const size_t opened = r->at;
        LS_TRY(open_group(r));
        LS_TRY(sum(r, out));
        if (out->text) return refuse(r, opened, "a text cannot be computed with");
        return close_group(r, opened);
    }
    return refuse(r, r->at, "expected a number, a name or a parenthesis");
}

static ls_status product(reader *r, side *out)
{
    LS_TRY(factor(r, out));
    for (char op = next(r); op == '*' || op == '/'; op = next(r)) {
        side other;
        const size_t at = r->at++;
        ls_text_add(r->shown, " %c ", op);
        LS_TRY(factor(r, &other));
        LS_TRY(combine(r, at, op, out, &other));
    }
    return LS_OK;
}

static ls_status sum(reader *r, side *out)
{
    LS_TRY(product(r, out));
    for (char op = next(r); op == '+' || op == '-'; op = next(r)) {
        side other;
        const size_t at = r->at++;
        ls_text_add(r->shown, " %c ", op);
        LS_TRY(product(r, &other));
        LS_TRY(combine(r, at, op, out, &other));
    }
    return LS_OK;
}

static ls_status compared_side(reader *r, side *out)
{
    LS_TRY(sum(r, out));
    if (!out->computed) return LS_OK;
    ls_text_add(r->shown, " [");
    show_number(r->shown, out->number);
    ls_text_add(r->shown, "]");
    return LS_OK;
}

static bool equal(const side *a, const side *b, double tolerance)
{
    if (a->text) return strcmp(a->text, b->text) == 0;
    return fabs(a->number - b->number) <= tolerance * fmax(fabs(a->number), fabs(b->number));
}

/* 1: `op` holds; 0: it does not; -1: there is no such comparison of these two. */
static int compare(const char *op, const side *a, const side *b, double tolerance)
{
    const bool same_kind = !a->text == !b->text;
    if (strcmp(op, "==") == 0) return same_kind ? equal(a, b, tolerance) : -1;
    if (strcmp(op, "!=") == 0) return same_kind ? !equal(a, b, tolerance) : -1;
    if (a->text || b->text) return -1;
    if (strcmp(op, "<") == 0) return a->number < b->number;
    if (strcmp(op, "<=") == 0) return a->number <= b->number;
    if (strcmp(op, ">") == 0) return a->number > b->number;
    return a->number >= b->number;
}

static const char *comparison(reader *r)
{
    static const char *const ops[] = { "==", "!=", "<=", ">=", "<", ">" };
    next(r);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strncmp(r->expr + r->at, ops[i], strlen(ops[i])) == 0) return ops[i];
    return NULL;
}

static ls_status evaluate(reader *r, double tolerance, bool *holds)
{
    side left, right;
    if (strlen(r->expr) > LS_LAB_MAX_EXPR)
        return ls_fail(LS_USAGE, "%s: a comparison of %zu bytes, at most %d are accepted", r->where,
                       strlen(r->expr), LS_LAB_MAX_EXPR);
    *holds = true;
    LS_TRY(compared_side(r, &left));
    const char *op = comparison(r);
    if (!op) return refuse(r, r->at, "expected one of == != < <= > >=");
    for (; op; op = comparison(r), left = right) {
        const size_t at = r->at;
        r->at += strlen(op);
        ls_text_add(r->shown, " %s ", strcmp(op, "==") != 0 ? op : tolerance > 0.0 ? "~" : "=");
        LS_TRY(compared_side(r, &right));
        const int told = compare(op, &left, &right, tolerance);
        if (told < 0) return refuse(r, at, "a text can only be compared with a text, by == or !=");
        if (told == 0) *holds = false;
    }
    if (next(r)) return refuse(r, r->at, "expected an operator or the end");
    return ls_text_status(r->shown);
}

ls_status ls_lab_expr_check(const char *where, const char *expr, const ls_lab_value *values, size_t n)
{
    ls_text unused = { 0 };
    bool holds;
    reader r = { .where = where, .expr = expr, .values = values, .n = n, .only_check = true, .shown = &unused };
    const ls_status st = evaluate(&r, 0.0, &holds);
    ls_text_free(&unused);
    return st;
}

ls_status ls_lab_expr_eval(const char *where, const char *expr, const ls_lab_value *values, size_t n, double tolerance,
                           bool *holds, ls_text *shown)
{
    reader r = { .where = where, .expr = expr, .values = values, .n = n, .shown = shown };
    return evaluate(&r, tolerance, holds);
}
