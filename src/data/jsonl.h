/* jsonl.h -- JSON Lines: a document per line. */
#ifndef LS_DATA_JSONL_H
#define LS_DATA_JSONL_H
#include <stddef.h>
#include "lockstep/status.h"

/* Takes one document: the text is borrowed for the call, UTF-8 without NUL. */
typedef ls_status (*ls_jsonl_fn)(void *arg, size_t line, const char *text, size_t n);

/* Calls fn with the string "text" of the object on each line of n bytes; lines count from 1, blank ones are skipped.
 * `name` stands for the file in messages. LS_BAD_FILE: a line is not UTF-8, not a JSON object, or has no string "text";
 * with line and byte. What fn returns below 0 ends it. */
ls_status ls_jsonl_read(const char *name, const char *p, size_t n, ls_jsonl_fn fn, void *arg);

#endif
