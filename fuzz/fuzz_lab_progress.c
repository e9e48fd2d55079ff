/* fuzz_lab_progress.c -- arbitrary bytes as progress of a lab's reader, as lines to import, and as the page of a lab.
 * What was imported is read back as the same, and importing it again changes nothing. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lab/page.h"
#include "lab/progress.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

#define CHECK(claim) \
    if (!(claim)) abort()

static void merge(const char *text, const char *more)
{
    ls_text once = { 0 }, twice = { 0 };
    int items, again;
    const ls_status st = ls_lab_progress_merge(text, "fuzz", more, &once, &items);
    CHECK(st == LS_OK || st == LS_USAGE);
    if (st == LS_OK) {
        CHECK(ls_lab_progress_merge(ls_text_str(&once), "fuzz", more, &twice, &again) == LS_OK);
        CHECK(items == again && strcmp(ls_text_str(&once), ls_text_str(&twice)) == 0);
    }
    ls_text_free(&once);
    ls_text_free(&twice);
}

static void edit(const char *text)
{
    static const ls_lab_item some = { .state = "green", .date = "2027-01-03", .tries = 2, .hints = 1, .told = true, .values = "1 = 1" };
    ls_lab_item item;
    ls_text t = { 0 };
    ls_lab_progress_find(text, "01.5", &item);
    ls_lab_progress_edit(text, "01.5", &some, &t);
    ls_lab_progress_find(ls_text_str(&t), "01.5", &item);
    CHECK(memcmp(&item, &some, sizeof some) == 0);
    ls_text_free(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const char mine[] = "# lockstep labs, progress 1\n01.5 holds 2027-01-03 | 6 = 6\n01.ex1 red 2027-01-03 tries=2\n";
    char *text = malloc(n + 1);
    ls_text page = { 0 };
    if (!text) return 0;
    if (n) memcpy(text, p, n);
    text[n] = 0;
    edit(text);
    merge("", text);
    merge(mine, text);
    CHECK(ls_lab_page(text, mine, 40, &page) == LS_OK);
    ls_text_free(&page);
    CHECK(ls_lab_page("01.5, 01.ex1\n", text, 40, &page) == LS_OK);
    ls_text_free(&page);
    free(text);
    return 0;
}
