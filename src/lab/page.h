/* page.h -- the page of a lab, Markdown, for a terminal. */
#ifndef LS_LAB_PAGE_H
#define LS_LAB_PAGE_H
#include "base/text.h"

/* Adds the page `md` to `out`: paragraphs, list items and headings broken before `width`, links and bold marks without
 * their marks, code as it is, tables in columns or, where they do not fit, a paragraph per row. After a block that
 * names a claim for the first time comes what the line of that claim in `progress` (lab/progress.h) says. */
ls_status ls_lab_page(const char *md, const char *progress, size_t width, ls_text *out);

#endif
