/* figure.c -- figures that are computed: the Markdown has the text that `lockstep figure` prints, the page its SVG. One
 * function makes both (src/fig), so they cannot disagree. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "book.h"
#include "fig/fig.h"

static ls_status answer(const char *request, const char *form, ls_text *out)
{
    ls_text words = { 0 };
    ls_text_add(&words, "%s %s", request, form);
    ls_status st = ls_text_status(&words);
    if (st == LS_OK) st = ls_fig_answer(ls_text_str(&words), out);
    ls_text_free(&words);
    return st;
}

/* Without blanks at the ends of lines, which a page does not have. */
static void trim(ls_text *t)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++) {
        while (t->p[i] == '\n' && n > 0 && t->p[n - 1] == ' ') n--;
        t->p[n++] = t->p[i];
    }
    t->n = n;
    if (t->p) t->p[n] = 0;
}

/* The first line in which two texts differ. */
static int first_difference(const char *a, const char *b)
{
    int line = 1;
    for (; *a && *a == *b; a++, b++) line += *a == '\n';
    return line;
}

/* Text whose `code` is marked up. */
static void add_marked(const char *p, ls_text *to)
{
    for (bool code = false;; code = !code) {
        const size_t n = strcspn(p, "`");
        book_escape(to, p, n);
        if (!p[n]) break;
        ls_text_add(to, code ? "</code>" : "<code>");
        p += n + 1;
    }
}

/* What the figure shows, which is the third line of its text, and what computes it. */
static void add_caption(const char *name, const char *text, ls_text *to)
{
    for (int i = 0; i < 2 && text; i++) text = (text = strchr(text, '\n')) ? text + 1 : NULL;
    ls_text_add(to, "<span class=\"sentence\">");
    if (text) book_escape(to, text, strcspn(text, "\n"));
    ls_text_add(to, "</span> ");
    for (int i = 0; ls_figures[i]; i++)
        if (!strcmp(ls_figures[i]->name, name)) add_marked(ls_figures[i]->caption, to);
}

void book_figure(book *b, const book_chapter *c, int line, const char *request, const char *text, ls_text *to)
{
    ls_text now = { 0 }, svg = { 0 };
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(request, " "), request);
    if (answer(request, "--text", &now) < 0 || answer(request, "--svg", &svg) < 0)
        book_fault(b, c->name, line, "figure %s: %s", request, ls_last_error());
    else if (trim(&now), strcmp(ls_text_str(&now), text))
        book_fault(b, c->name, line + first_difference(ls_text_str(&now), text),
                   "the block is not what `lockstep figure %s` prints; `make results` writes it", request);
    ls_text_add(to, "<figure class=\"drawn\" data-request=\"");
    book_escape(to, request, strlen(request));
    ls_text_add(to, "\">\n<div class=\"table picture-box\" tabindex=\"0\">%s</div>\n<figcaption>", ls_text_str(&svg));
    add_caption(name, text, to);
    ls_text_add(to, "<br><code class=\"command\">lockstep figure ");
    book_escape(to, request, strlen(request));
    ls_text_add(to, "</code></figcaption>\n<details><summary>The figure as text</summary><pre tabindex=\"0\"><code>");
    book_escape(to, text, strlen(text));
    ls_text_add(to, "</code></pre></details>\n</figure>\n");
    ls_text_free(&now);
    ls_text_free(&svg);
}
