/* say.h -- what a run tells people while it goes on. */
#ifndef LS_REPORT_SAY_H
#define LS_REPORT_SAY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/compiler.h"

/* stdout reaches a terminal unchanged: directly, or through the launcher. */
bool ls_say_on_terminal(void);
/* One line of any length (a newline is added) on stdout. On a terminal it takes the place of the live line, whose bytes
 * come by another way, when they like. */
void ls_say(const char *fmt, ...) LS_PRINTF(1, 2);
/* Columns of the terminal that stdout reaches; 0: it reaches none, or one of unknown width. */
int ls_say_columns(void);

/* The live line on stderr: a bar on a terminal, nothing elsewhere. */
typedef struct ls_bar {
    bool terminal;
    int columns;
    uint64_t start_ns, drawn_ns;
    bool shown;
} ls_bar;

/* Finds out whether stderr ends at a terminal (directly, or through the launcher). */
void ls_bar_init(ls_bar *b);
/* step of steps, at most 10 times a second; per_s of the unit, "tokens". */
void ls_bar_draw(ls_bar *b, int64_t step, int64_t steps, int64_t epoch, double loss, double per_s,
                 const char *unit);
/* Takes the line away, so that something else can be printed. */
void ls_bar_clear(ls_bar *b);

/* "1:05" or "2:03:04" for seconds, into buf; returns buf. */
const char *ls_eta_text(double seconds, char *buf, size_t n);

#endif
