/* main.c -- the generator of the handbook: reads SOURCE/docs/handbook, writes the folder OUT. book.h says how.
 *
 *   book SOURCE OUT [FIGURES.js]
 *
 * With FIGURES.js, which tools/figures/build makes, readers can change the values of figures.
 *
 * Exit status: 0 when all pages are written; 1 after faults, which are on stderr, and OUT is as it was; 64 usage.
 */
#include "book.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

static bool read_page(book *b, book_chapter *c, const char *file)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/docs/handbook/%s", b->source, file);
    if (ls_file_read(path, BOOK_FILE_LIMIT, &c->source, &c->n) == LS_OK) return true;
    book_fault(b, c->name, 0, "%s", ls_last_error());
    return false;
}

/* Items `* [Title](NAME.md): ...` of README.md are the chapters. */
static bool read_list(book *b)
{
    bool mechanisms = false;
    int line = 0;
    for (const char *p = b->chapter[0].source; *p; p += strcspn(p, "\n"), p += *p == '\n') {
        line++;
        if (p[0] == '#') mechanisms = !strncmp(p, "## Mechanisms\n", strlen("## Mechanisms\n"));
        const char *to = p[0] == '*' ? strstr(p, "](") : NULL;
        const size_t n = to ? strcspn(to + 2, ")#\n") : 0;
        if (!to || to > p + strcspn(p, "\n") || n <= 3 || n >= sizeof b->chapter[0].name || memcmp(to + 2 + n - 3, ".md", 3) ||
            memchr(to + 2, '/', n)) continue;
        if (b->chapters == BOOK_CHAPTERS) {
            book_fault(b, "index", line, "more than %d chapters: raise BOOK_CHAPTERS", BOOK_CHAPTERS - 1);
            return false;
        }
        book_chapter *c = &b->chapter[b->chapters];
        snprintf(c->name, sizeof c->name, "%.*s", (int)(n - 3), to + 2);
        c->mechanism = mechanisms;
        char file[80];
        snprintf(file, sizeof file, "%s.md", c->name);
        if (book_find(b, c->name, n - 3)) {
            book_fault(b, "index", line, "%s is in the list twice", file);
            return false;
        }
        b->chapters++;
        if (!read_page(b, c, file)) return false;
    }
    return true;
}

static ls_status write_page(const book *b, const char *name, const char *ending, const char *p, size_t n)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s%s", b->out, name, ending);
    return ls_file_write(path, p, n);
}

static ls_status write_style(const book *b)
{
    char path[1024], *css;
    size_t n;
    snprintf(path, sizeof path, "%s/tools/book/book.css", b->source);
    LS_TRY(ls_file_read(path, BOOK_FILE_LIMIT, &css, &n));
    const ls_status st = write_page(b, "book", ".css", css, n);
    free(css);
    return st;
}

/* A copy of the script that makes figures live. */
static ls_status write_script(const book *b)
{
    char *script;
    size_t n;
    LS_TRY(ls_file_read(b->script, BOOK_FILE_LIMIT, &script, &n));
    const ls_status st = write_page(b, "figures", ".js", script, n);
    free(script);
    return st;
}

static ls_status write_all(const book *b)
{
    ls_status st = ls_mkdirs(b->out);
    if (st == LS_OK) st = write_style(b);
    if (st == LS_OK && b->script) st = write_script(b);
    for (int i = 0; st == LS_OK && i < b->chapters; i++) {
        ls_text page = { 0 };
        book_frame(b, i, &page);
        st = ls_text_status(&page);
        if (st == LS_OK) st = write_page(b, b->chapter[i].name, ".html", ls_text_str(&page), page.n);
        ls_text_free(&page);
    }
    return st;
}

static void release(book *b)
{
    for (int i = 0; i < BOOK_CHAPTERS; i++) {
        book_release(&b->chapter[i]);
        free(b->chapter[i].source);
    }
    json_decref(b->results);
    free(b);
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 4 || argv[1][0] == '-') {
        fprintf(stderr, "usage: book SOURCE OUT [FIGURES.js]   (writes the handbook of SOURCE/docs/handbook into the folder OUT)\n");
        return 64;
    }
    book *b = calloc(1, sizeof *b);
    if (!b || !(b->results = json_object())) {
        fprintf(stderr, "book: out of memory\n");
        free(b);
        return 1;
    }
    b->source = argv[1];
    b->out = argv[2];
    b->script = argv[3];
    b->chapters = 1;
    snprintf(b->chapter[0].name, sizeof b->chapter[0].name, "index");
    if (read_page(b, &b->chapter[0], "README.md") && read_list(b)) {
        b->quiet = true; /* once to know all headings, once to check the links to them */
        for (int i = 0; i < b->chapters; i++) book_render(b, &b->chapter[i]);
        b->quiet = false;
        for (int i = 0; i < b->chapters; i++) {
            book_render(b, &b->chapter[i]);
            book_check_headings(b, &b->chapter[i]);
        }
    }
    ls_status st = b->faults ? LS_OK : write_all(b);
    if (st < 0) fprintf(stderr, "book: %s\n", ls_last_error());
    if (b->faults) fprintf(stderr, "book: %d fault%s in docs/handbook; nothing was written\n", b->faults, b->faults == 1 ? "" : "s");
    else if (st == LS_OK) printf("%s/index.html: %d chapters%s\n", b->out, b->chapters,
                                 b->script ? "" : "; their figures have fixed values, since FIGURES.js was not named");
    const int status = b->faults || st < 0;
    release(b);
    return status;
}
