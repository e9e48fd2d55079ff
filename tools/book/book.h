/* book.h -- the generator of the handbook: docs/handbook/NAME.md becomes OUT/NAME.html.
 *
 * The list in docs/handbook/README.md says which chapters there are, in which order; those below its heading
 * "Mechanisms" have the headings of a mechanism (frame.c). README.md itself becomes index.html.
 *
 *   main.c     options, reading the list, writing the folder
 *   frame.c    what stands around a chapter: head, lists of chapters and sections, table of its numbers
 *   render.c   a chapter's Markdown as HTML, by md4c
 *   checks.c   what a chapter promises: numbers, excerpts, links
 *   figure.c   figures that are computed, as `lockstep figure` draws them
 *
 * A chapter that breaks a rule is a fault, `FILE:LINE: what, and what to do` on stderr. All are reported; with one
 * or more nothing is written.
 */
#ifndef LS_TOOLS_BOOK_H
#define LS_TOOLS_BOOK_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include "base/text.h"

#define BOOK_CHAPTERS 32
#define BOOK_RUNS 64 /* commands that the numbers of a chapter are from */
#define BOOK_FILE_LIMIT ((size_t)4 << 20) /* bytes of a file that is read */

/* A row of the table of a chapter's numbers: a command, and which of its numbers, all exact or all shown, are there. */
typedef struct book_run {
    const char *file;     /* keys and values of book.results */
    const json_t *result; /* the first of them */
    ls_text numbers;      /* HTML: "<span id=...>38,440 bytes</span>, ..." */
} book_run;

typedef struct book_chapter {
    char name[64];   /* "ddp" for ddp.md and ddp.html; README.md is "index" */
    char title[128]; /* its first heading */
    bool mechanism;  /* has the headings of a mechanism */
    char *source;    /* the Markdown, owned */
    size_t n;
    ls_text ids;     /* "\n#ID\n" per heading: what links may name */
    ls_text contents; /* list items that link to its sections */
    ls_text headings; /* "Problem\nState placement\n": its sections in order */
    ls_text body;    /* HTML of the text */
    ls_text used;    /* "\nID\n" per number in `run` */
    book_run run[BOOK_RUNS];
    int runs;
} book_chapter;

typedef struct book {
    const char *source; /* the repository */
    const char *out;
    const char *script; /* figures.js; NULL: pages without it, whose figures have fixed values */
    book_chapter chapter[BOOK_CHAPTERS];
    int chapters;
    json_t *results; /* file name -> contents, as far as read; owned */
    bool quiet;      /* the first pass collects headings and reports no fault */
    int faults;
} book;

/* Reports a fault of docs/handbook/<name>.md; line 0 is none. */
void book_fault(book *b, const char *name, int line, const char *fmt, ...) LS_PRINTF(4, 5);

/* The chapter of that name; NULL when there is none. */
const book_chapter *book_find(const book *b, const char *name, size_t n);

/* Renders c->source into body, ids, contents, headings, used and run, which it empties first. It counts faults in b. */
void book_render(book *b, book_chapter *c);

/* Frees what book_render made of c. */
void book_release(book_chapter *c);

/* The page of chapter `i`, with everything around its text. */
void book_frame(const book *b, int i, ls_text *page);

/* Counts as a fault what a mechanism's chapter lacks of its headings, or has in another order. */
void book_check_headings(book *b, const book_chapter *c);

/* A link `results/FILE.json#NAME` whose text is `text`. Returns the result, or NULL after a fault: no such file or
 * name, or another text; *known_as is the file's key in b->results. The file has {"commit", "machine", "results":
 * {NAME: {"text", "kind", "command"}}}. */
const json_t *book_result(book *b, const book_chapter *c, int line, const char *href, const char *text,
                          const char **known_as);

/* Prose of a paragraph, without its links and code: a number with a unit in it is a fault, since nothing says where
 * it is from. lines[i] is the line of the byte prose[i]. */
void book_check_numbers(book *b, const book_chapter *c, const char *prose, const int *lines);

/* A block of code whose info is `LANGUAGE PATH:FIRST-LAST` must be these lines of the repository's file. */
void book_check_excerpt(book *b, const book_chapter *c, int line, const char *place, const char *code);

/* A block of code whose info is `figure REQUEST`: `text` must be what `lockstep figure REQUEST` prints. Adds its SVG,
 * the caption and the text to `to`. */
void book_figure(book *b, const book_chapter *c, int line, const char *request, const char *text, ls_text *to);

/* Whether `path`, relative to docs/handbook, is a file or folder of the repository; *shown gets its path from there. */
bool book_in_repository(const book *b, const char *path, char *shown, size_t n);

/* Text with <, >, & and " as entities. */
void book_escape(ls_text *t, const char *p, size_t n);
#endif
