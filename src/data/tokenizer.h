/* tokenizer.h -- what a tokenizer is made of; the readers of its files fill this in. */
#ifndef LS_DATA_TOKENIZER_H
#define LS_DATA_TOKENIZER_H
#include "data/bpe.h"
#include "data/split.h"
#include "data/vocab.h"
#include "lockstep/data.h"

#define LS_END_OF_TEXT "<|endoftext|>"
#define LS_TOKENIZER_PATH 1024 /* bytes of the path of one of its files */

/* A token that stands for more than its text, which is in the vocabulary. */
typedef struct ls_special {
    uint32_t id;
    bool special; /* Hugging Face's mark: left out of a text for people */
} ls_special;

struct ls_tokenizer {
    bool chars;          /* a token a character; else byte pair encoding */
    ls_vocab vocab;      /* tokens by their bytes */
    ls_bpe bpe;
    ls_split *split;     /* owned; NULL: the text is one word */
    ls_special *special; /* owned, [nspecial] */
    uint32_t nspecial;
    uint8_t starts[256]; /* a special token begins with this byte */
};

/* All zero, for a reader to fill. */
ls_status ls_tokenizer_new(ls_tokenizer **out);
/* LS_NO_MEMORY; LS_INVALID as ls_vocab_add. */
ls_status ls_tokenizer_add_special(ls_tokenizer *t, const char *text, size_t n, uint32_t id, bool special);
/* When everything is in: checks that every byte is a token (not for characters). LS_INVALID: one is not. */
ls_status ls_tokenizer_finish(ls_tokenizer *t);

/* A merge of two tokens by their bytes. LS_INVALID: one of the three is not in the vocabulary. */
ls_status ls_tokenizer_add_merge(ls_tokenizer *t, const char *left, size_t nleft, const char *right, size_t nright);

/* tokenizer.json from n bytes of memory; `name` stands for it in messages. */
ls_status ls_tokenizer_parse_json(const char *name, const char *text, size_t n, ls_tokenizer **out);
/* vocab.bpe and encoder.json, each from memory. */
ls_status ls_tokenizer_parse_gpt2(const char *merges_name, const char *merges, size_t nmerges, const char *vocab_name,
                                  const char *vocab, size_t nvocab, ls_tokenizer **out);
/* What ls_tokenizer_open opens: a tokenizer.json, a folder with GPT-2's two files, "byte", "char". */
ls_status ls_tokenizer_open_json(const char *path, ls_tokenizer **out);
ls_status ls_tokenizer_open_gpt2(const char *dir, ls_tokenizer **out);
ls_status ls_tokenizer_open_bytes(ls_tokenizer **out);
ls_status ls_tokenizer_open_ascii(ls_tokenizer **out);

#endif
