/* checks.c -- what a chapter promises, checked: where its numbers are from, that excerpts equal the source. */
#include "book.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/file.h"

void book_fault(book *b, const char *name, int line, const char *fmt, ...)
{
    if (b->quiet) return;
    b->faults++;
    fprintf(stderr, "docs/handbook/%s.md:", strcmp(name, "index") ? name : "README");
    if (line > 0) fprintf(stderr, "%d:", line);
    fputc(' ', stderr);
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

const book_chapter *book_find(const book *b, const char *name, size_t n)
{
    if (n == strlen("README") && !memcmp(name, "README", n)) return &b->chapter[0];
    for (int i = 0; i < b->chapters; i++)
        if (strlen(b->chapter[i].name) == n && !memcmp(b->chapter[i].name, name, n)) return &b->chapter[i];
    return NULL;
}

/* --- numbers that a run wrote --- */

/* The contents of results/FILE.json, read once. */
static json_t *results_of(book *b, const book_chapter *c, int line, const char *file)
{
    json_t *known = json_object_get(b->results, file);
    if (known) return known;
    char path[1024], *data;
    size_t n;
    json_error_t error;
    snprintf(path, sizeof path, "%s/docs/handbook/%s", b->source, file);
    if (ls_file_read(path, BOOK_FILE_LIMIT, &data, &n) < 0) {
        book_fault(b, c->name, line, "%s cannot be read: %s", file, ls_last_error());
        return NULL;
    }
    known = json_loadb(data, n, JSON_REJECT_DUPLICATES, &error);
    free(data);
    if (!known || !json_is_object(json_object_get(known, "results")) ||
        json_object_set_new(b->results, file, known) != 0) {
        book_fault(b, c->name, line, "%s has no object \"results\"%s%s; `make results` writes it", file,
                   known ? "" : ": ", known ? "" : error.text);
        return NULL;
    }
    return known;
}

const json_t *book_result(book *b, const book_chapter *c, int line, const char *href, const char *text,
                          const char **known_as)
{
    const char *name = strchr(href, '#');
    char file[256];
    if (!name || (size_t)(name - href) >= sizeof file) {
        book_fault(b, c->name, line, "the link %s names no result: write results/FILE.json#NAME", href);
        return NULL;
    }
    snprintf(file, sizeof file, "%.*s", (int)(name - href), href);
    json_t *all = results_of(b, c, line, file);
    if (!all) return NULL;
    *known_as = json_object_iter_key(json_object_iter_at(b->results, file));
    const json_t *one = json_object_get(json_object_get(all, "results"), name + 1);
    const char *says = json_string_value(json_object_get(one, "text"));
    if (!says || !json_is_string(json_object_get(one, "command")) || !json_is_string(json_object_get(one, "kind"))) {
        book_fault(b, c->name, line, "%s has no result \"%s\"; docs/handbook/results.txt says which there are", file, name + 1);
        return NULL;
    }
    if (strcmp(says, text)) {
        book_fault(b, c->name, line, "the text says \"%s\", and %s says \"%s\"; `make results` writes both", text, href, says);
        return NULL;
    }
    return one;
}

/* --- numbers that nothing shows --- */

static const char *const units[] = { "%", "bytes", "byte", "B", "kB", "KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB",
                                     "ns", "us", "ms", "s", "seconds", "second", "minutes", "minute", "hours", "B/s", "MB/s",
                                     "GB/s", "Mbit/s", "Gbit/s", "FLOP/s", "GFLOP/s", "TFLOP/s", "tokens/s", "samples/s" };

/* The unit that begins at p and ends with its word; NULL when there is none. */
static const char *unit_at(const char *p)
{
    size_t n = strcspn(p, " \n\t.,;:()[]\"'!?");
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strlen(units[i]) == n && !memcmp(units[i], p, n)) return units[i];
    return NULL;
}

void book_check_numbers(book *b, const book_chapter *c, const char *prose, const int *lines)
{
    for (const char *p = prose; *p; p++) {
        if (!isdigit((unsigned char)*p)) continue;
        const char *end = p + strspn(p, "0123456789.,");
        bool in_word = p > prose && (isalnum((unsigned char)p[-1]) || p[-1] == '_');
        const char *unit = in_word ? NULL : unit_at(end + strspn(end, " "));
        if (unit)
            book_fault(b, c->name, lines[p - prose],
                       "\"%.*s %s\" has no source: link it to a result of a run, [..](results/FILE.json#NAME), or to what says it",
                       (int)(end - p), p, unit);
        p = end - 1;
    }
}

/* --- excerpts --- */

void book_check_excerpt(book *b, const book_chapter *c, int line, const char *place, const char *code)
{
    char file[512], path[1024], *data;
    int first, last;
    size_t n;
    const char *colon = strrchr(place, ':');
    if (!colon || (size_t)(colon - place) >= sizeof file || sscanf(colon, ":%d-%d", &first, &last) != 2 || first < 1 ||
        last < first) {
        book_fault(b, c->name, line, "an excerpt is named LANGUAGE PATH:FIRST-LAST, and not \"%s\"", place);
        return;
    }
    snprintf(file, sizeof file, "%.*s", (int)(colon - place), place);
    snprintf(path, sizeof path, "%s/%s", b->source, file);
    if (ls_file_read(path, BOOK_FILE_LIMIT, &data, &n) < 0) {
        book_fault(b, c->name, line, "an excerpt of %s: %s", file, ls_last_error());
        return;
    }
    const char *is = data;
    for (int k = 1; k < first && is; k++) is = (is = strchr(is, '\n')) ? is + 1 : NULL;
    for (int k = first; k <= last || *code; k++) {
        size_t have = strcspn(code, "\n"), want = is ? strcspn(is, "\n") : 0;
        if (k > last)
            book_fault(b, c->name, line + 1 + k - first, "the excerpt goes on after line %d of %s: \"%.*s\"", last, file,
                       (int)have, code);
        else if (!is || !is[0])
            book_fault(b, c->name, line, "%s has no line %d", file, k);
        else if (have != want || memcmp(code, is, want))
            book_fault(b, c->name, line + 1 + k - first, "line %d of %s is \"%.*s\", and the excerpt says \"%.*s\"", k, file,
                       (int)want, is, (int)have, code);
        else {
            code += have + (code[have] == '\n');
            is += want + (is[want] == '\n');
            continue;
        }
        break;
    }
    free(data);
}

/* --- links out of the book --- */

bool book_in_repository(const book *b, const char *path, char *shown, size_t n)
{
    int up = 0;
    char full[1024];
    while (!strncmp(path, "../", 3)) path += 3, up++;
    snprintf(shown, n, "%s%.*s", up == 2 ? "" : "docs/", (int)strcspn(path, "#"), path);
    snprintf(full, sizeof full, "%s/%s", b->source, shown);
    ls_file_info info = { 0 };
    full[strcspn(full, "#")] = 0;
    return (up == 1 || up == 2) && !strstr(path, "..") && ls_env_get()->info(full, &info) == 0 && info.type != LS_FILE_NONE;
}

void book_escape(ls_text *t, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *as = p[i] == '<' ? "&lt;" : p[i] == '>' ? "&gt;" : p[i] == '&' ? "&amp;" : p[i] == '"' ? "&quot;" : NULL;
        if (as) ls_text_add(t, "%s", as);
        else ls_text_addn(t, p + i, 1);
    }
}
