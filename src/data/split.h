/* split.h -- cutting text into the words that byte pair encoding works on. PCRE2 finds them. */
#ifndef LS_DATA_SPLIT_H
#define LS_DATA_SPLIT_H
#include <stdbool.h>
#include <stddef.h>
#include "lockstep/status.h"

/* GPT-2's pattern (Radford et al. 2019), with white space as Unicode defines it: PCRE2's \s has U+180E too. */
extern const char *const ls_split_gpt2;
/* How the same pattern is written elsewhere. */
extern const char *const ls_split_gpt2_classic;

typedef struct ls_split ls_split;

/* LS_UNSUPPORTED: the pattern is not one of PCRE2's, and why, or has \K; LS_INVALID: too long.
 * `quick` lets plain ASCII be cut by hand-written code; it counts for GPT-2's pattern alone. */
ls_status ls_split_create(const char *pattern, bool quick, ls_split **out);
void ls_split_destroy(ls_split *s);
const char *ls_split_pattern(const ls_split *s); /* as it was given */

/* The end of the word that begins at byte `at` < n of the valid UTF-8 `text`; at < *end <= n. What lies
 * between matches is a word too. LS_INVALID: the pattern takes too many steps on this text. */
ls_status ls_split_next(ls_split *s, const char *text, size_t n, size_t at, size_t *end);

#endif
