/* tokenizer_json.h -- the parts of JSON that GPT-2's files and tokenizer.json share. */
#ifndef LS_DATA_TOKENIZER_JSON_H
#define LS_DATA_TOKENIZER_JSON_H
#include <jansson.h>

#include "data/tokenizer.h"

/* A JSON document, after a look at its nesting and with its keys once each. LS_BAD_FILE names line and column. */
ls_status ls_tokenizer_json_load(const char *name, const char *text, size_t n, json_t **out);
/* An object of tokens in the alphabet of vocab.h and their ids. */
ls_status ls_tokenizer_json_vocab(const char *name, const json_t *vocab, ls_tokenizer *t);
/* "left right" in that alphabet. LS_INVALID says what is wrong with it. */
ls_status ls_tokenizer_json_merge(ls_tokenizer *t, const char *p, size_t n);

#endif
