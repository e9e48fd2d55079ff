/* shelf.h -- the labs that are there: in the source tree, or installed beside the program. */
#ifndef LS_LAB_SHELF_H
#define LS_LAB_SHELF_H
#include <stdbool.h>

#include "base/text.h"
#include "lab/claims.h"

#define LS_LAB_MOST 32 /* labs */

typedef struct ls_lab_entry {
    char name[64];    /* "01_buckets": the name of its folder */
    ls_text folder;   /* owned: its path */
    ls_text claims;   /* owned: of claims.yaml */
    ls_text programs; /* owned: of its starter; "": not built */
} ls_lab_entry;

typedef struct ls_lab_shelf {
    ls_lab_entry entry[LS_LAB_MOST]; /* by name */
    int n;
} ls_lab_shelf;

/* LS_IO: there are no labs. Free *out with ls_lab_shelf_free, after a failure as well. */
ls_status ls_lab_shelf_open(ls_lab_shelf *out);
void ls_lab_shelf_free(ls_lab_shelf *s);

/* The lab "1", "01", "buckets" or "01_buckets". LS_USAGE, naming those that are there. */
ls_status ls_lab_shelf_find(const ls_lab_shelf *s, const char *which, const ls_lab_entry **out);

#endif
