/* page.h -- what a figure consists of: a sentence, a picture in two forms, facts and a table; and how that is written.
 *
 * The sentence is the figure's point. The table has what the picture shows, for people and programs that see none.
 */
#ifndef LS_FIG_PAGE_H
#define LS_FIG_PAGE_H
#include "base/text.h"

#define LS_FIG_MAX_COLUMNS 10
#define LS_FIG_MAX_FACTS   24
#define LS_FIG_CELL        64 /* bytes of a cell's text */

typedef struct ls_fig_cell {
    bool is_text;
    double number;
    char text[LS_FIG_CELL];
} ls_fig_cell;

typedef struct ls_fig_page {
    ls_text sentence, drawing; /* drawing: lines for a terminal, of at most 78 columns */
    ls_text shapes;            /* SVG between ls_svg_begin and ls_svg_end */
    double width, height;      /* of its view box */
    const char *column[LS_FIG_MAX_COLUMNS];
    int ncolumns, ncells, room;
    ls_fig_cell *cell;         /* owned: row by row */
    struct { const char *name; double value; } fact[LS_FIG_MAX_FACTS];
    int nfacts;
    bool failed;               /* memory ran out */
} ls_fig_page;

void ls_fig_columns(ls_fig_page *p, const char *const *name, int n);
void ls_fig_number(ls_fig_page *p, double v); /* the next cell */
void ls_fig_words(ls_fig_page *p, const char *fmt, ...) LS_PRINTF(2, 3);
void ls_fig_fact(ls_fig_page *p, const char *name, double v);
void ls_fig_page_free(ls_fig_page *p); /* zeroed is fine */

/* Numbers in JSON and tables have 9 digits, whole ones all of theirs; null: not finite. */
void ls_fig_digits(ls_text *out, double v);

/* The parts that the three forms have in common are written by these. */
void ls_fig_table_text(const ls_fig_page *p, ls_text *out);
void ls_fig_table_json(const ls_fig_page *p, ls_text *out);
void ls_fig_facts_json(const ls_fig_page *p, ls_text *out);

/* log2 v for v > 0 by additions and multiplications alone: the last bit of a library's is not the same everywhere. */
double ls_fig_log2(double v);

#endif
