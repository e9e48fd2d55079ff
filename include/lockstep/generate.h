/* generate.h -- text from a language model, as it is made; and the model from its files.
 *
 * A model in training can be asked at any time: it is only read.
 *
 *     ls_decoder_create(model, NULL, &d);
 *     ls_generate_text(d, tokenizer, "Once", 4, &opts, print, NULL, NULL);
 */
#ifndef LS_GENERATE_H
#define LS_GENERATE_H
#include "lockstep/data.h"
#include "lockstep/decode.h"
#include "lockstep/hf.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Gets text as it is made: whole characters of UTF-8. Bytes that are none become U+FFFD. */
typedef ls_status (*ls_write_fn)(void *arg, const char *text, size_t n);

/* ls_generate for a prompt of n bytes of text; the prompt is not part of what is written. Without one it begins after
 * an end of text. `t` (borrowed) is the tokenizer of the model: tokens that it does not have are never drawn.
 * LS_INVALID: as above, the prompt is not UTF-8, or it is empty and the tokenizer has no end of text. */
ls_status ls_generate_text(ls_decoder *d, ls_tokenizer *t, const char *prompt, size_t n, const ls_generate_opts *o,
                           ls_write_fn write, void *arg, ls_generated *out);

/* --- a model and its tokenizer from files ------------------------------------------------- */

typedef struct ls_generator {
    char *path;              /* of the weights: a file, or a folder of Hugging Face's */
    ls_hf_config config;
    ls_model *model;
    ls_tokenizer *tokenizer;
    ls_decoder *decoder;
    ls_arena *arena;         /* of the parameters */
} ls_generator; /* all owned */

/* Opens a run folder (its newest checkpoint), a checkpoint's folder or file, or a Hugging Face folder. `tokenizer` is
 * what ls_tokenizer_open takes; NULL: the tokenizer.json (or vocab.json and merges.txt) beside the weights.
 * LS_BAD_FILE: nothing of the kind is there, or a pickle (named, never opened), or no tokenizer. LS_UNSUPPORTED: a
 * model that is not built in. Else as ls_hf_load, ls_ckpt_load and ls_tokenizer_open. */
ls_status ls_generator_open(const char *path, const char *tokenizer, ls_generator *out);
void ls_generator_close(ls_generator *g); /* zeroed is fine */

#ifdef __cplusplus
}
#endif
#endif
