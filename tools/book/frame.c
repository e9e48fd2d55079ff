/* frame.c -- what stands around a chapter: head, lists of chapters and sections, and how its numbers were made. */
#include "book.h"

#include <stdio.h>
#include <string.h>

#include "lockstep/lockstep.h"

static const char *const mechanism[] = { "Problem", "Synchronization pattern", "State placement", "Communication cost",
                                         "Common misunderstandings", "Say it aloud" };

void book_check_headings(book *b, const book_chapter *c)
{
    const char *has = ls_text_str(&c->headings);
    for (size_t i = 0; c->mechanism && i < sizeof mechanism / sizeof *mechanism; i++) {
        const size_t n = strcspn(has, "\n");
        if (n != strlen(mechanism[i]) || memcmp(has, mechanism[i], n)) {
            book_fault(b, c->name, 0, "section %zu of a mechanism is \"%s\", and here it is \"%.*s\"", i + 1, mechanism[i], (int)n, has);
            return;
        }
        has += n + 1;
    }
}

static void escaped(ls_text *t, const char *s) { book_escape(t, s, strlen(s)); }

static void chapters(const book *b, int here, ls_text *t)
{
    ls_text_add(t, "<nav class=\"chapters\" aria-label=\"Chapters\">\n<p class=\"book\">The Lockstep handbook</p>\n<ul>\n");
    for (int i = 0; i < b->chapters; i++) {
        const book_chapter *c = &b->chapter[i];
        ls_text_add(t, "<li><a href=\"%s.html\"%s>", c->name, i == here ? " aria-current=\"page\"" : "");
        escaped(t, i == 0 ? "How to read it" : c->title);
        ls_text_add(t, "</a>");
        if (i == here && i > 0 && c->contents.n > 0) ls_text_add(t, "\n<ul>\n%s</ul>", ls_text_str(&c->contents));
        ls_text_add(t, "</li>\n");
    }
    ls_text_add(t, "</ul>\n</nav>\n");
}

static void numbers(const book *b, const book_chapter *c, ls_text *t)
{
    if (c->runs == 0) return;
    ls_text_add(t, "<section class=\"made\" aria-labelledby=\"made\">\n<h2 id=\"made\">How the numbers of this page were made</h2>\n"
                "<div class=\"table\" tabindex=\"0\"><table><thead><tr><th scope=\"col\">command</th><th scope=\"col\">numbers</th>"
                "<th scope=\"col\">valid</th></tr></thead><tbody>\n");
    for (int k = 0; k < c->runs; k++) {
        const json_t *file = json_object_get(b->results, c->run[k].file), *one = c->run[k].result;
        const char *commit = json_string_value(json_object_get(file, "commit")),
                   *machine = json_string_value(json_object_get(file, "machine"));
        const bool exact = !strcmp(json_string_value(json_object_get(one, "kind")), "exact");
        ls_text_add(t, "<tr><td><code>");
        escaped(t, json_string_value(json_object_get(one, "command")));
        ls_text_add(t, "</code></td><td>%s</td><td>%s", ls_text_str(&c->run[k].numbers), exact ? "everywhere: a test compares it" : "");
        if (!exact) escaped(t, machine ? machine : "on an unknown machine");
        ls_text_add(t, "; commit %s</td></tr>\n", commit ? commit : "unknown");
    }
    ls_text_add(t, "</tbody></table></div>\n</section>\n");
}

static void turn(const book *b, int here, ls_text *t)
{
    ls_text_add(t, "<nav class=\"turn\" aria-label=\"Chapter before and after\">\n");
    for (int k = -1; k <= 1; k += 2) {
        if (here + k < 0 || here + k >= b->chapters) continue;
        const book_chapter *c = &b->chapter[here + k];
        ls_text_add(t, "<a class=\"%s\" href=\"%s.html\"><span>%s</span> ", k < 0 ? "before" : "after", c->name,
                    k < 0 ? "before" : "next");
        escaped(t, c->title);
        ls_text_add(t, "</a>\n");
    }
    ls_text_add(t, "</nav>\n");
}

void book_frame(const book *b, int i, ls_text *t)
{
    const book_chapter *c = &b->chapter[i];
    ls_text_add(t, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                "<meta name=\"color-scheme\" content=\"light dark\">\n<title>");
    escaped(t, c->title);
    ls_text_add(t, "%s</title>\n<link rel=\"icon\" href=\"data:,\">\n<link rel=\"stylesheet\" href=\"book.css\">\n", i == 0 ? "" : " - The Lockstep handbook");
    if (b->script && strstr(ls_text_str(&c->body), "<figure class=\"drawn\"")) ls_text_add(t, "<script src=\"figures.js\" defer></script>\n");
    ls_text_add(t, "</head>\n<body>\n<a class=\"skip\" href=\"#text\">Skip to the text</a>\n");
    chapters(b, i, t);
    ls_text_add(t, "<main id=\"text\">\n%s", ls_text_str(&c->body));
    numbers(b, c, t);
    turn(b, i, t);
    ls_text_add(t, "</main>\n<footer>Lockstep %s</footer>\n</body>\n</html>\n", ls_version());
}
