/* render.c -- a chapter's Markdown as HTML. md4c reads it and calls back per block, span and piece of text. Text that
 * it hands over mostly lies in the source itself, which is how a fault gets its line. */
#include "book.h"

#include <ctype.h>
#include <md4c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum form { PROSE, CODE, PICTURE, EXCERPT, FIGURE } form; /* of a block */

typedef struct render {
    book *b;
    book_chapter *c;
    int line;         /* of the text that was seen last */
    ls_text prose;    /* the block's text without links and code */
    int *lines;       /* per byte of prose */
    size_t cap;
    int links, codes; /* spans that are open */
    ls_text label;    /* plain text of the heading, link or code block that is open */
    char href[512];
    form form;
    char info[512];   /* what a block of code says after its ``` */
    unsigned level;   /* of the heading that is open; 0: none */
    size_t heading;   /* where its HTML begins in body */
    bool section;     /* contents has an open list of subsections */
    int notes;        /* beside the text so far: each has a name of its own, for who hears the page */
} render;

static ls_text *body(render *r) { return &r->c->body; }

static void see(render *r, const char *p)
{
    if (p < r->c->source || p >= r->c->source + r->c->n) return; /* not of the source: a break, an unescaped link */
    int line = 1;
    for (const char *q = r->c->source; q < p; q++) line += *q == '\n';
    r->line = line;
}

static void add_prose(render *r, const char *p, size_t n)
{
    if (r->prose.n + n + 1 > r->cap) {
        const size_t cap = 2 * (r->prose.n + n + 1);
        int *more = realloc(r->lines, cap * sizeof *more);
        if (!more) { r->prose.failed = true; return; }
        r->lines = more;
        r->cap = cap;
    }
    for (size_t i = 0; i < n; i++) r->lines[r->prose.n + i] = r->line;
    ls_text_addn(&r->prose, p, n);
}

/* End of a paragraph, cell or item: its numbers are looked at. */
static void end_prose(render *r)
{
    if (r->prose.n > 0 && !r->prose.failed) book_check_numbers(r->b, r->c, ls_text_str(&r->prose), r->lines);
    if (r->prose.failed) book_fault(r->b, r->c->name, r->line, "out of memory");
    ls_text_free(&r->prose);
    r->prose = (ls_text){ 0 };
}

static void empty(ls_text *t)
{
    ls_text_free(t);
    *t = (ls_text){ 0 };
}

/* GitHub's name of a heading: small letters, digits, "_" and "-" alone, "-" for a space. */
static void id_of(const char *label, char *id, size_t n)
{
    size_t k = 0;
    for (; *label && k + 1 < n; label++)
        if (*label == ' ') id[k++] = '-';
        else if (isalnum((unsigned char)*label) || *label == '_' || *label == '-')
            id[k++] = (char)tolower((unsigned char)*label);
    id[k] = 0;
}

static void end_heading(render *r)
{
    char id[128], entry[160];
    const char *label = ls_text_str(&r->label);
    book_chapter *c = r->c;
    id_of(label, id, sizeof id);
    snprintf(entry, sizeof entry, "\n#%s\n", id);
    if (strstr(ls_text_str(&c->ids), entry))
        book_fault(r->b, c->name, r->line, "the heading \"%s\" is there twice: links could not tell them apart", label);
    ls_text_add(&c->ids, "%s", entry);
    if (r->level == 1) {
        if (c->title[0]) book_fault(r->b, c->name, r->line, "a chapter has one heading of level 1, and this is another: \"%s\"", label);
        snprintf(c->title, sizeof c->title, "%s", label);
    }
    if (r->level == 2) {
        ls_text_add(&c->headings, "%s\n", label);
        ls_text_add(&c->contents, "<li><a href=\"#%s\">", id);
        book_escape(&c->contents, label, r->label.n);
        ls_text_add(&c->contents, "</a></li>\n");
    }
    ls_text_add(body(r), "</h%u>\n", r->level);
    ls_text inner = { 0 }; /* the id is known only now */
    ls_text_add(&inner, "%s", ls_text_str(body(r)) + r->heading);
    body(r)->n = r->heading;
    ls_text_add(body(r), "<h%u id=\"%s\">%s", r->level, id, ls_text_str(&inner));
    ls_text_free(&inner);
    r->level = 0;
}

static void begin_code(render *r, const MD_BLOCK_CODE_DETAIL *d)
{
    snprintf(r->info, sizeof r->info, "%.*s", (int)d->info.size, d->info.text ? d->info.text : "");
    if (d->info.text) see(r, d->info.text);
    const char *rest = strchr(r->info, ' ');
    r->form = !strncmp(r->info, "picture", 7) ? PICTURE : !strncmp(r->info, "figure ", 7) ? FIGURE : rest ? EXCERPT : CODE;
    empty(&r->label);
    if (r->form == PICTURE && !rest)
        book_fault(r->b, r->c->name, r->line, "a picture needs a sentence that says what it shows: ```picture SENTENCE");
}

static void end_code(render *r)
{
    const char *rest = strchr(r->info, ' ');
    ls_text *t = body(r);
    if (r->form == FIGURE) {
        book_figure(r->b, r->c, r->line, rest + 1, ls_text_str(&r->label), t);
        r->form = PROSE;
        return;
    }
    if (r->form == EXCERPT) book_check_excerpt(r->b, r->c, r->line, rest + 1, ls_text_str(&r->label));
    if (r->form != CODE) ls_text_add(t, "<figure class=\"%s\">", r->form == PICTURE ? "picture" : "excerpt");
    ls_text_add(t, "<pre tabindex=\"0\"");
    if (r->form == PICTURE && rest) {
        ls_text_add(t, " role=\"img\" aria-label=\"");
        book_escape(t, rest + 1, strlen(rest + 1));
        ls_text_add(t, "\"");
    }
    ls_text_add(t, "><code>");
    for (const char *p = ls_text_str(&r->label); *p;) {
        const size_t n = strcspn(p, "\n") + 1;
        const bool command = !strcmp(r->info, "console") && !strncmp(p, "$ ", 2);
        if (command) ls_text_add(t, "<b>");
        book_escape(t, p, n - 1);
        ls_text_add(t, command ? "</b>\n" : "\n");
        p += n - !p[n - 1];
    }
    ls_text_add(t, "</code></pre>");
    if (r->form != CODE) {
        ls_text_add(t, "<figcaption>");
        if (rest) book_escape(t, rest + 1, strlen(rest + 1));
        ls_text_add(t, "</figcaption></figure>");
    }
    ls_text_add(t, "\n");
    r->form = PROSE;
}

static int enter_block(MD_BLOCKTYPE type, void *detail, void *arg)
{
    render *r = arg;
    switch (type) {
    case MD_BLOCK_QUOTE: ls_text_add(body(r), "<aside aria-label=\"note %d\">", ++r->notes); break;
    case MD_BLOCK_UL: ls_text_add(body(r), "<ul>"); break;
    case MD_BLOCK_OL: ls_text_add(body(r), "<ol>"); break;
    case MD_BLOCK_LI: ls_text_add(body(r), "<li>"); break;
    case MD_BLOCK_HR: ls_text_add(body(r), "<hr>\n"); break;
    case MD_BLOCK_H:
        r->level = ((MD_BLOCK_H_DETAIL *)detail)->level;
        r->heading = body(r)->n;
        empty(&r->label);
        break;
    case MD_BLOCK_CODE: begin_code(r, detail); break;
    case MD_BLOCK_P: ls_text_add(body(r), "<p>"); break;
    case MD_BLOCK_TABLE: ls_text_add(body(r), "<div class=\"table\" tabindex=\"0\"><table>"); break;
    case MD_BLOCK_THEAD: ls_text_add(body(r), "<thead>"); break;
    case MD_BLOCK_TBODY: ls_text_add(body(r), "<tbody>"); break;
    case MD_BLOCK_TR: ls_text_add(body(r), "<tr>"); break;
    case MD_BLOCK_TH: ls_text_add(body(r), "<th scope=\"col\">"); break;
    case MD_BLOCK_TD: ls_text_add(body(r), "<td>"); break;
    case MD_BLOCK_DOC:
    case MD_BLOCK_HTML: break;
    }
    return 0;
}

static int leave_block(MD_BLOCKTYPE type, void *detail, void *arg)
{
    (void)detail;
    render *r = arg;
    end_prose(r);
    switch (type) {
    case MD_BLOCK_QUOTE: ls_text_add(body(r), "</aside>\n"); break;
    case MD_BLOCK_UL: ls_text_add(body(r), "</ul>\n"); break;
    case MD_BLOCK_OL: ls_text_add(body(r), "</ol>\n"); break;
    case MD_BLOCK_LI: ls_text_add(body(r), "</li>\n"); break;
    case MD_BLOCK_H: end_heading(r); break;
    case MD_BLOCK_CODE: end_code(r); break;
    case MD_BLOCK_P: ls_text_add(body(r), "</p>\n"); break;
    case MD_BLOCK_TABLE: ls_text_add(body(r), "</table></div>\n"); break;
    case MD_BLOCK_THEAD: ls_text_add(body(r), "</thead>\n"); break;
    case MD_BLOCK_TBODY: ls_text_add(body(r), "</tbody>\n"); break;
    case MD_BLOCK_TR: ls_text_add(body(r), "</tr>\n"); break;
    case MD_BLOCK_TH: ls_text_add(body(r), "</th>"); break;
    case MD_BLOCK_TD: ls_text_add(body(r), "</td>"); break;
    case MD_BLOCK_DOC:
    case MD_BLOCK_HR:
    case MD_BLOCK_HTML: break;
    }
    return 0;
}

/* Link to NAME.md#ID, NAME.md or #ID: the chapter has to be there, and the heading. */
static void begin_chapter_link(render *r)
{
    const char *hash = strchr(r->href, '#');
    const size_t n = hash ? (size_t)(hash - r->href) : strlen(r->href);
    const book_chapter *to = n == 0 ? r->c : n > 3 ? book_find(r->b, r->href, n - 3) : NULL;
    char id[160];
    snprintf(id, sizeof id, "\n%s\n", hash ? hash : "");
    if (!to)
        book_fault(r->b, r->c->name, r->line, "link to %s, which is no chapter of docs/handbook/README.md", r->href);
    else if (hash && !strstr(ls_text_str(&to->ids), id))
        book_fault(r->b, r->c->name, r->line, "link to %s: that chapter has no such heading", r->href);
    ls_text_add(body(r), "<a href=\"%s%s%s\">", n && to ? to->name : "", n ? ".html" : "", hash ? hash : "");
}

static bool same(const json_t *x, const json_t *y, const char *a, const char *b)
{
    return json_equal(json_object_get(x, a), json_object_get(y, a)) &&
           json_equal(json_object_get(x, b), json_object_get(y, b));
}

/* Adds a number to the row of its command in the table of this chapter's numbers; links lead there. */
static void add_to_table(render *r, const char *id, const char *file, const json_t *one)
{
    book_chapter *c = r->c;
    int k = 0;
    while (k < c->runs && !same(c->run[k].result, one, "command", "kind")) k++;
    if (k == BOOK_RUNS) {
        book_fault(r->b, c->name, r->line, "numbers of more than %d commands: raise BOOK_RUNS", BOOK_RUNS);
        return;
    }
    if (k == c->runs) c->run[c->runs++] = (book_run){ .file = file, .result = one };
    ls_text *t = &c->run[k].numbers;
    ls_text_add(t, "%s<span id=\"%s\">", t->n > 0 ? ", " : "", id);
    book_escape(t, ls_text_str(&r->label), r->label.n);
    ls_text_add(t, "</span>");
}

static void end_number(render *r)
{
    const char *text = ls_text_str(&r->label), *file;
    char id[300], entry[310];
    const json_t *one = book_result(r->b, r->c, r->line, r->href, text, &file);
    id_of(r->href + strlen("results/"), id, sizeof id);
    snprintf(entry, sizeof entry, "\n%s\n", id);
    ls_text_add(body(r), "<a class=\"number\" href=\"#%s\">", id);
    book_escape(body(r), text, r->label.n);
    if (one) {
        const char *command = json_string_value(json_object_get(one, "command"));
        ls_text_add(body(r), "<span class=\"made-by\">");
        book_escape(body(r), command, strlen(command));
        ls_text_add(body(r), "</span>");
    }
    ls_text_add(body(r), "</a>");
    if (!one || strstr(ls_text_str(&r->c->used), entry)) return;
    ls_text_add(&r->c->used, "%s", entry);
    add_to_table(r, id, file, one);
}

static void begin_link(render *r, const MD_SPAN_A_DETAIL *d)
{
    snprintf(r->href, sizeof r->href, "%.*s", (int)d->href.size, d->href.text ? d->href.text : "");
    if (d->href.text) see(r, d->href.text);
    if (r->level == 0) empty(&r->label);
    add_prose(r, ";", 1); /* a number before a link does not get its unit from after it */
    if (!strncmp(r->href, "results/", 8)) return; /* end_number, once its text is known */
    if (!strncmp(r->href, "https://", 8)) ls_text_add(body(r), "<a href=\"%s\">", r->href);
    else if (!strncmp(r->href, "../", 3)) ls_text_add(body(r), "<span class=\"elsewhere\">");
    else begin_chapter_link(r);
}

static void end_link(render *r)
{
    char shown[512];
    if (!strncmp(r->href, "results/", 8)) end_number(r);
    else if (strncmp(r->href, "../", 3)) ls_text_add(body(r), "</a>");
    else {
        if (!book_in_repository(r->b, r->href, shown, sizeof shown))
            book_fault(r->b, r->c->name, r->line, "link to %s: the repository has no %s", r->href, shown);
        ls_text_add(body(r), "</span>");
        if (strcmp(shown, ls_text_str(&r->label))) ls_text_add(body(r), " (<code>%s</code>)", shown);
    }
}

static int enter_span(MD_SPANTYPE type, void *detail, void *arg)
{
    render *r = arg;
    const bool number = r->links && !strncmp(r->href, "results/", 8); /* its text is written at its end */
    if (type == MD_SPAN_A) begin_link(r, detail), r->links++;
    else if (type == MD_SPAN_CODE) r->codes++, add_prose(r, ";", 1), number ? (void)0 : ls_text_add(body(r), "<code>");
    else if (type == MD_SPAN_IMG) book_fault(r->b, r->c->name, r->line, "images are not supported: draw in a ```picture SENTENCE block");
    else if (!number) ls_text_add(body(r), type == MD_SPAN_EM ? "<em>" : "<strong>");
    return 0;
}

static int leave_span(MD_SPANTYPE type, void *detail, void *arg)
{
    (void)detail;
    render *r = arg;
    const bool number = r->links && !strncmp(r->href, "results/", 8);
    if (type == MD_SPAN_A) r->links--, end_link(r);
    else if (type == MD_SPAN_CODE) r->codes--, number ? (void)0 : ls_text_add(body(r), "</code>");
    else if (type != MD_SPAN_IMG && !number) ls_text_add(body(r), type == MD_SPAN_EM ? "</em>" : "</strong>");
    return 0;
}

static int text(MD_TEXTTYPE type, const MD_CHAR *p, MD_SIZE n, void *arg)
{
    render *r = arg;
    const bool brk = type == MD_TEXT_BR || type == MD_TEXT_SOFTBR;
    if (brk) p = "\n", n = 1;
    else if (r->form == PROSE) see(r, p); /* a block of code has the line of its first ``` */
    if (r->form != PROSE || r->level || r->links) ls_text_addn(&r->label, brk ? " " : p, n);
    if (r->form != PROSE) return 0;
    if (!r->links && !r->codes) add_prose(r, brk ? " " : p, n);
    if (r->links && !strncmp(r->href, "results/", 8)) return 0;
    if (type == MD_TEXT_ENTITY) ls_text_addn(body(r), p, n);
    else book_escape(body(r), p, n);
    if (type == MD_TEXT_BR) ls_text_add(body(r), "<br>");
    return 0;
}

void book_release(book_chapter *c)
{
    ls_text *const made[] = { &c->ids, &c->contents, &c->headings, &c->body, &c->used };
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) empty(made[i]);
    for (int k = 0; k < c->runs; k++) empty(&c->run[k].numbers);
    c->runs = 0;
    c->title[0] = 0;
}

void book_render(book *b, book_chapter *c)
{
    render r = { .b = b, .c = c };
    book_release(c);
    const MD_PARSER parser = { .flags = MD_FLAG_TABLES | MD_FLAG_NOHTML | MD_FLAG_NOINDENTEDCODEBLOCKS,
                               .enter_block = enter_block, .leave_block = leave_block,
                               .enter_span = enter_span, .leave_span = leave_span, .text = text };
    bool whole = md_parse(c->source, (MD_SIZE)c->n, &parser, &r) == 0;
    if (!c->title[0]) book_fault(b, c->name, 1, "a chapter begins with a heading of level 1, its title");
    whole = whole && !c->ids.failed && !c->contents.failed && !c->headings.failed && !c->body.failed && !c->used.failed;
    for (int k = 0; k < c->runs; k++) whole = whole && !c->run[k].numbers.failed;
    if (!whole) book_fault(b, c->name, 0, "out of memory");
    ls_text_free(&r.prose);
    ls_text_free(&r.label);
    free(r.lines);
}
