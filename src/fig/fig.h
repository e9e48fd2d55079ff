/* fig.h -- figures: what a page, a report or a terminal shows of an idea, computed by the code that the runtime runs.
 *
 * A request is a line of words, the same for `lockstep figure`, for the book and for its pages' sliders:
 *
 *     schedule algo=tree coll=broadcast ranks=8 step=2 --svg
 *     buckets preset=one-bucket cap_kib=512 --json
 *     list --json
 *
 * Its answer depends on nothing else: not on the machine, a file, the clock or the requests before it. So the same
 * source that is compiled to WebAssembly gives the same bytes (tests/test_fig_wasm.c).
 */
#ifndef LS_FIG_FIG_H
#define LS_FIG_FIG_H
#include "base/text.h"
#include "fig/page.h"

#define LS_FIG_MAX_CONTROLS 12

/* What a reader can change. */
typedef struct ls_fig_control {
    const char *name, *label; /* "cap_kib", "bucket cap (KiB)" */
    const char *def;          /* its value if the request does not say one */
    const char *words;        /* "on|off": what it may be; NULL: a number */
    double least, most;       /* of a number */
    bool whole;               /* a whole number */
} ls_fig_control;

/* Values that show something. */
typedef struct ls_fig_preset {
    const char *name;  /* "one-bucket" */
    const char *set;   /* "cap_kib=1048576": words of a request */
    const char *point; /* what it shows, as a sentence */
} ls_fig_preset;

/* The value of a control: a number, or which of its words. */
typedef struct ls_fig_value {
    double number;
    int word;
} ls_fig_value;

typedef struct ls_figure {
    const char *name, *title;
    const char *caption;           /* what is shown and which code computes it */
    const ls_fig_control *control; /* ends with a name of NULL */
    const ls_fig_preset *preset;   /* likewise */
    /* v[i] is the value of control i, within its bounds. LS_USAGE: values that do not go together. */
    ls_status (*make)(const ls_fig_value *v, ls_fig_page *out);
} ls_figure;

extern const ls_figure *const ls_figures[]; /* NULL-ended */
extern const ls_figure ls_figure_schedule, ls_figure_winner, ls_figure_buckets, ls_figure_sampler, ls_figure_ledger,
    ls_figure_pipeline;

/* Adds the answer to `out`: a text, an SVG or a JSON object, as --text, --svg or --json says (none of them: text). With
 * --page the JSON object has the SVG and the text, too, so that a page asks once.
 * LS_USAGE: unknown or repeated words, values out of bounds; the message says what is expected. */
ls_status ls_fig_answer(const char *request, ls_text *out);

/* The same in one piece, for who has only bytes: "ok", a new line, and the answer; or "error[usage]: " and the message.
 * For the caller to free; NULL: there is no memory. */
char *ls_fig_request(const char *request);

#endif
