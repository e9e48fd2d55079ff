/* expr.h -- the comparison that a lab's claim makes between numbers its runs have printed.
 *
 *     "sent == 2 * (n - 1) / n * params"   shown as   "98,688 = 2 * (4 - 1) / 4 * 65,792 [98,688]"
 *
 * Numbers, names, + - * / ( ), ceil, min, max and one or more of == != < <= > >=. In a chain, as in a == b == c, every
 * comparison has to hold. A value that is text, such as a digest, stands alone on its side of == or !=.
 */
#ifndef LS_LAB_EXPR_H
#define LS_LAB_EXPR_H
#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"
#include "lockstep/status.h"

typedef struct ls_lab_value {
    const char *name;
    const char *text; /* NULL: the value is `number` */
    double number;
} ls_lab_value;

/* Whether `c` can stand in a name: letters, digits and _; `first`: no digit. */
bool ls_lab_is_name(char c, bool first);

/* Reads `expr` and looks each name up among the n values, of which only the name is read. Messages begin with `where`,
 * the file and line, and say the column, from 1. Fails with LS_USAGE. */
ls_status ls_lab_expr_check(const char *where, const char *expr, const ls_lab_value *values, size_t n);

/* Evaluates it. *holds: every comparison does. Numbers are equal if they differ by at most `tolerance` times the larger
 * magnitude of the two; 0: only if they are the same. The formula with values in place of names is added to
 * `shown`, with = for == or, with a tolerance, ~; a side that is more than one number has its result after it. Fails
 * with LS_USAGE, also for a division by zero, a result that is not finite and a text that is not alone on its side. */
ls_status ls_lab_expr_eval(const char *where, const char *expr, const ls_lab_value *values, size_t n, double tolerance,
                           bool *holds, ls_text *shown);

/* Adds a value to a text, as the formula shows it. */
void ls_lab_show(ls_text *out, const ls_lab_value *v);

#endif
