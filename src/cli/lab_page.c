/* lab_page.c -- lockstep lab 1 page: the page of a lab, with what its claims were on this machine. */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/opts_text.h"
#include "cli/lab.h"
#include "lab/page.h"

#define MOST_BYTES 1000000

ls_status ls_cli_lab_page(const ls_lab_entry *e)
{
    ls_text path = { 0 }, file = { 0 }, out = { 0 };
    char *md = NULL, *progress = NULL;
    size_t n;
    ls_text_add(&file, "%s/lab.md", ls_text_str(&e->folder));
    ls_status st = ls_text_status(&file);
    if (st == LS_OK) st = ls_file_read(file.p, MOST_BYTES, &md, &n);
    const bool known = st == LS_OK && ls_cli_lab_progress_path(&path) == LS_OK;
    if (known) st = ls_lab_progress_text(path.p, &progress);
    if (st == LS_OK) st = ls_lab_page(md, progress ? progress : "", (size_t)ls_help_width(), &out);
    if (st == LS_OK) fputs(ls_text_str(&out), stdout);
    if (st == LS_OK && !known) printf("\nNumbers of your machine stand here after `lockstep lab start` and `lockstep lab %.2s`.\n", e->name);
    free(md);
    free(progress);
    ls_text_free(&out);
    ls_text_free(&file);
    ls_text_free(&path);
    return st;
}
