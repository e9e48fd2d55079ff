/* data.h -- data sets, which samples are whose, and batches; tokenizers, token files and their batches. */
#ifndef LS_DATA_H
#define LS_DATA_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lockstep/group.h"
#include "lockstep/mem.h"
#include "lockstep/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* n samples of `features` floats with one label each: whole in memory, or made one by one by `get`. */
typedef struct ls_dataset {
    size_t n, features;
    int64_t classes;     /* labels are in [0, classes) */
    const float *x;      /* [n, features]; NULL when bytes is set */
    const uint8_t *bytes;/* [n, features] raw pixels; a loader yields (byte / 255 - mean) / std */
    float mean, std;     /* of bytes / 255; 0 and 1: plain [0, 1] */
    const int64_t *label;/* [n] */
    void *owner;         /* freed by ls_dataset_free; NULL: everything is borrowed */
    /* Data of your own, as with PyTorch's Dataset: n is __len__ and get is __getitem__; x, bytes and label are NULL.
     * get writes sample `index` (in [0, n)): its features to x, float[features], and its label. With `tokens` set
     * (features is 0) a sample is a sequence: x is int64_t[tokens], and so are its labels. A failure (ls_fail) reaches
     * the caller of ls_loader_next. A loader with workers calls get from several threads at once; what it writes
     * should follow from the index alone, so that neither the number of workers nor that of ranks changes it. */
    ls_status (*get)(void *arg, size_t index, void *x, int64_t *label);
    void *arg;           /* for get; borrowed */
    size_t tokens;
} ls_dataset;

/* An IDX file (LeCun's format), gzipped or not, unsigned bytes. `dims` gets up to 4
 * sizes, *data is malloc'd for the caller. LS_BAD_FILE names file, byte offset
 * and rule; LS_IO when it cannot be read. `limit` bounds the payload's bytes. */
ls_status ls_idx_read(const char *path, size_t limit, int *ndim, size_t dims[4], uint8_t **data);

/* Images and labels of MNIST's layout in `dir`: {train,t10k}-{images-idx3,labels-idx1}-ubyte,
 * each with or without .gz, 10 classes. split: "train" or "test". mean is 0 and std 1.
 * LS_IO: a file is missing; LS_BAD_FILE: as above, or counts differ, or a label is not in [0, 10). */
ls_status ls_dataset_open_idx(const char *dir, const char *split, ls_dataset *out);
/* The exercise's synthetic data: torch.manual_seed(seed); randn(n, features); randint(0, classes, (n,)).
 * LS_INVALID unless features >= 1 and 1 <= classes < 2^32. */
ls_status ls_dataset_synthetic(uint64_t seed, size_t n, size_t features, int64_t classes, ls_dataset *out);
/* Mean and standard deviation of all bytes / 255, for `mean` and `std` above (of both splits: those
 * of the training images). 0 and 1 unless the set has bytes that differ. */
void ls_dataset_moments(const ls_dataset *d, float *mean, float *std);
void ls_dataset_free(ls_dataset *d); /* zeroed is fine */

/* Which samples of a step are a rank's, where sums of gradients follow the order of samples (ls_ddp_config.tree). */
typedef struct ls_deal {
    size_t batch; /* samples of a step on each rank: a multiple of `grain` */
    size_t grain; /* neighbours that stay together; at least 1 */
    int inner;    /* so many neighbouring ranks, whose number it divides, take neighbouring grains in turn; 1: each rank
                     takes a run of the step */
} ls_deal;
/* Where sample i < batch of a rank stands in the step. With batch 4, grain 1 and 4 ranks, rank 1 has 4, 5, 6, 7; with
 * inner 4 it has 1, 5, 9, 13; with inner 2 it has 1, 3, 5, 7. */
size_t ls_deal_place(const ls_deal *d, int rank, size_t i);

/* torch.utils.data.DistributedSampler, exactly (pytorch-semantics B1). */
typedef struct ls_sampler {
    size_t n;
    int num_replicas, rank;
    bool shuffle, drop_last;
    uint64_t seed;
    uint64_t epoch;
    size_t num_samples; /* this rank's, the same on every rank */
    int64_t *index;     /* owned: [num_samples], of the current epoch */
    ls_deal deal;       /* of ls_sampler_create_dealt; else zeros */
} ls_sampler;
/* LS_INVALID unless 0 <= rank < num_replicas (and n < 2^32 / 20 to shuffle). Starts at epoch 0. */
ls_status ls_sampler_create(size_t n, int num_replicas, int rank, bool shuffle, uint64_t seed,
                            bool drop_last, ls_sampler **out);
/* The same permutation in steps of num_replicas * deal->batch samples, of which this rank's are those that the deal
 * says: so what a step has does not depend on the number of ranks. The last step of an epoch is filled with samples
 * from the epoch's beginning, or left out with drop_last. LS_INVALID: a deal whose numbers do not divide each other. */
ls_status ls_sampler_create_dealt(size_t n, int num_replicas, int rank, bool shuffle, uint64_t seed, bool drop_last,
                                  const ls_deal *deal, ls_sampler **out);
/* Reshuffles for the epoch: without it every epoch repeats the same order. */
ls_status ls_sampler_set_epoch(ls_sampler *s, uint64_t epoch);
void ls_sampler_destroy(ls_sampler *s);

/* What a loader is made with. Zero-initialise; 0 means the default. */
typedef struct ls_loader_opts {
    size_t batch;   /* samples per batch; at least 1 */
    bool drop_last; /* leave out a last batch that is smaller */
    int workers;    /* threads that fill batches ahead (PyTorch's num_workers), up to LS_LOADER_MAX_WORKERS; 0: none,
                       ls_loader_next fills them itself */
    int prefetch;   /* batches that each worker is ahead (prefetch_factor), up to 64; 0: 2 */
} ls_loader_opts;
#define LS_LOADER_MAX_WORKERS 64

/* Batches in the sampler's order, which depend neither on workers nor on prefetch. The last one may be smaller unless
 * drop_last. */
typedef struct ls_loader {
    const ls_dataset *data;     /* borrowed */
    const ls_sampler *sampler;  /* borrowed; NULL: 0..n-1 in order */
    size_t batch, next;         /* samples a batch; position in this epoch */
    bool drop_last;
    size_t n;                   /* samples of the batch at hand; 0: the epoch is over */
    float *x;                   /* owned: [n, features]; NULL where samples are tokens */
    int64_t *ids;               /* owned: [n, tokens]; NULL where they are features */
    int64_t *label;             /* owned: [n], or [n, tokens] */
    float of_byte[256];         /* (byte / 255 - mean) / std */
    struct ls_prefetch *ahead;  /* owned: the workers and their batches; NULL: none */
} ls_loader;
/* LS_INVALID: batch is 0, the sampler is for another number of samples, the data set has none of x, bytes and get, or
 * workers or prefetch are out of range. LS_SYSTEM: a thread cannot be started. */
ls_status ls_loader_create_with(const ls_dataset *d, const ls_sampler *s, const ls_loader_opts *o, ls_loader **out);
/* The same without workers. */
ls_status ls_loader_create(const ls_dataset *d, const ls_sampler *s, size_t batch, bool drop_last, ls_loader **out);
size_t ls_loader_batches(const ls_loader *l); /* an epoch */
void ls_loader_rewind(ls_loader *l);          /* to the start of the sampler's current epoch */
/* The next batch: l->n samples in l->x or l->ids, and l->label, valid until the next call (with workers the pointers
 * change with each batch); l->n is 0 at the end of the epoch. Allocates nothing. Where get fails, this call fails with
 * the sample's index before get's message; the position stays, so a further call tries the batch again.
 *
 * Workers fill up to workers * prefetch batches that follow the one at hand, in the order that the sampler has now:
 * after ls_loader_rewind, ls_sampler_set_epoch or another `next` they begin again from there. */
ls_status ls_loader_next(ls_loader *l);
/* For programs whose ranks choose their samples themselves. Every rank of g calls it once, with the n >= 0 sample ids
 * of its first batch, in order. *same: there are several ranks, at least one sample, and all ranks have the same ids.
 * Then rank 0 prints a warning, because such ranks compute the same gradient, and more ranks train no faster. Costs one
 * all_reduce of 16 bytes. The trainer's own data are always sharded. */
ls_status ls_check_sharded(ls_group *g, const int64_t *id, size_t n, bool *same);
/* The same for the batch at hand of a loader. LS_NO_MEMORY. */
ls_status ls_loader_check_sharded(const ls_loader *l, ls_group *g, bool *same);
/* Ends the workers, once each has finished the get that it is in. NULL is fine. */
void ls_loader_destroy(ls_loader *l);

/* --- tokenizers -------------------------------------------------------------- */

typedef struct ls_tokenizer ls_tokenizer;

/* Token ids; calls add at the end. Zeroed is empty. */
typedef struct ls_ids {
    uint32_t *p; /* owned; ls_ids_free */
    size_t n, cap;
} ls_ids;
void ls_ids_free(ls_ids *ids);

enum {
    LS_ENCODE_SPECIAL = 1, /* the text of a special token is that token (without: text like any other) */
    LS_ENCODE_LOSSY = 2    /* what is not UTF-8 counts as U+FFFD, one for each error (without: refused) */
};

/* Opens a tokenizer by what it is called:
 *
 *   byte         token i is the byte i; 256 is <|endoftext|>. Takes any bytes
 *   char         printable ASCII, tab and newline, a token each (ls_tokenizer_open_chars: those of a text)
 *   gpt2         GPT-2's 50,257 tokens, from vocab.bpe and encoder.json in $LOCKSTEP_GPT2, else from where
 *                `lockstep data fetch gpt2` puts them
 *   FOLDER       the tokenizer.json in it; without one, GPT-2's two files, which Hugging Face calls
 *                merges.txt and vocab.json
 *   FILE         a tokenizer.json of Hugging Face: byte-level BPE, or one token a character
 *
 * LS_IO: a file is missing, and which. LS_BAD_FILE: one breaks its format, or is larger than Lockstep accepts.
 * LS_UNSUPPORTED: it asks for what is not built in (a normalizer, another model), which is named. */
ls_status ls_tokenizer_open(const char *what, ls_tokenizer **out);
/* One token for each character of n bytes of UTF-8, in the order of their code points, and then
 * <|endoftext|>. LS_INVALID: it is not UTF-8 or has a NUL, with the byte's offset. */
ls_status ls_tokenizer_open_chars(const char *text, size_t n, ls_tokenizer **out);
void ls_tokenizer_close(ls_tokenizer *t); /* NULL is fine */

/* Writes it as a tokenizer.json, whole or not at all: Hugging Face's tokenizers give the same ids. LS_IO. */
ls_status ls_tokenizer_save(const ls_tokenizer *t, const char *path);
/* The text of tokenizer_config.json beside it, malloc'd for the caller: with both, transformers' AutoTokenizer gives
 * the ids that ls_tokenizer_encode gives, and nothing around them. `bos` and `eos` are the model's ids (-1: none; an id
 * that is no special token here is left out), max_length its longest sequence. */
ls_status ls_tokenizer_config_text(const ls_tokenizer *t, int64_t bos, int64_t eos, int64_t max_length, char **out);

/* Every id is below it. */
uint32_t ls_tokenizer_vocab_size(const ls_tokenizer *t);
/* The id of a special token by its text ("<|endoftext|>"); -1: there is none. */
int64_t ls_tokenizer_special(const ls_tokenizer *t, const char *text);
/* What stands between documents: <|endoftext|>, <|end_of_text|> or </s>; -1: it has none of them. */
int64_t ls_tokenizer_end_of_text(const ls_tokenizer *t);

/* The ids of n bytes of text, added to `out`, which on failure is as before. No token is added
 * before or after. The tokenizer remembers words, so one thread at a time.
 * LS_INVALID: not UTF-8, or a character that is no token; the byte's offset is named. */
ls_status ls_tokenizer_encode(ls_tokenizer *t, const char *text, size_t n, unsigned flags, ls_ids *out);
/* The bytes of one token, *n of them, borrowed; NULL when no token has this id. A character may be
 * split between two tokens. */
const char *ls_tokenizer_token(const ls_tokenizer *t, uint32_t id, size_t *n);
/* The bytes of n tokens one after another: malloc'd for the caller, with a zero byte after its *bytes.
 * LS_INVALID: an id is no token. */
ls_status ls_tokenizer_decode(const ls_tokenizer *t, const uint32_t *id, size_t n, char **text, size_t *bytes);

/* --- token files --------------------------------------------------------------- */

typedef enum ls_token_format {
    LS_TOKENS_LLMC,   /* llm.c: 256 int32 (20240520, 1, number of tokens, zeros), then uint16 each; with
                       * 20240801 and 7 uint32 each. Little-endian */
    LS_TOKENS_NANOGPT /* nanoGPT: uint16 each, nothing else */
} ls_token_format;

/* A token file, mapped. It must not get shorter while it is open. */
typedef struct ls_tokens {
    char *path;          /* owned */
    size_t n;            /* tokens */
    const uint16_t *u16; /* [n], borrowed from the mapping; NULL when there are 32 bits each */
    const uint32_t *u32; /* [n], or NULL */
    const void *map;     /* owned; NULL: the tokens are borrowed from elsewhere */
    size_t map_bytes;
    bool resident;       /* the whole file was read and mapped when it was opened: no touch faults */
} ls_tokens;

/* A file of up to a sixteenth of the available memory is made resident at once; of a longer one a loader reads
 * the windows that come next. LS_IO: not readable. LS_BAD_FILE: not of that format, or its header does not
 * tell the truth. */
ls_status ls_tokens_open(const char *path, ls_token_format format, ls_tokens *out);
void ls_tokens_close(ls_tokens *t); /* zeroed is fine */
/* Tokens [first, first + n) into out. LS_INVALID: beyond the end. LS_BAD_FILE: one is not below
 * `vocab`; file, byte and id are named. */
ls_status ls_tokens_read(const ls_tokens *t, size_t first, size_t n, uint32_t vocab, int64_t *out);
/* Where `id` stands among tokens [first, first + n), which may reach beyond the end: up to `cap` indices into
 * `at` (cap 0: NULL is fine), ascending; returns how often it stands there. With end-of-text: the documents. */
size_t ls_tokens_find(const ls_tokens *t, uint32_t id, size_t first, size_t n, size_t *at, size_t cap);

/* Batches of windows of T tokens, each with the token that follows every one of them.
 *
 * Window w is tokens [w T, w T + T], so there are W = (n - 1) / T of them and neighbours share one
 * token. Sample g, counted over all ranks and since the beginning, is window `g mod W` of epoch
 * g / W in that epoch's order, a permutation that follows from (seed, epoch) alone. So what sample g
 * is depends neither on the number of ranks nor on how a batch is divided, and a run goes on from one
 * integer, `position`. */
typedef struct ls_token_loader {
    const ls_tokens *data; /* borrowed */
    size_t batch, T;       /* windows a batch on this rank; tokens a window */
    size_t windows;        /* W */
    int dp_rank, dp_size;
    uint64_t seed;
    bool shuffle;          /* false: the order of the file, every epoch */
    uint32_t vocab;        /* ids are checked against it */
    ls_deal deal;          /* which samples of a step are this rank's */
    uint64_t position;     /* samples that all ranks have taken; may be set */
    uint64_t mapped[2];    /* this rank's windows of samples [0] to [1] are mapped; see ls_token_loader_next */
    uint64_t asked;        /* and the system is reading those of samples up to here */
    int64_t *x, *y;        /* owned, [batch, T]: tokens, and the ones that follow them */
    size_t *first;         /* owned, [batch]: where each window begins in the file */
} ls_token_loader;

/* What a loader is made for; the fields are those above. */
typedef struct ls_token_loader_opts {
    size_t batch, T;
    int dp_rank, dp_size;
    uint64_t seed;
    bool shuffle;
    uint32_t vocab;
    size_t grain; /* ls_deal's; 0: 1 */
    int inner;
} ls_token_loader_opts;

/* LS_INVALID: batch or T is 0, no rank of dp_size, or the file has not T + 1 tokens. Position 0. */
ls_status ls_token_loader_create(const ls_tokens *t, const ls_token_loader_opts *o, ls_token_loader **out);
/* The next batch into x, y and first: of the dp_size * batch samples from `position` on this rank's part is
 * the dp_rank-th, unless the deal says otherwise; then position is after them all. LS_BAD_FILE as in ls_tokens_read;
 * position stays.
 *
 * Of a file that is not resident, the windows of LS_TOKENS_AHEAD batches are mapped at once, and the system is asked
 * to read those of as many more: so the disk works while others compute, and the batches between touch nothing
 * that faults. LS_IO: the file cannot be read any more. */
#define LS_TOKENS_AHEAD 32
ls_status ls_token_loader_next(ls_token_loader *l);
/* The window that sample g is. */
size_t ls_token_loader_window(const ls_token_loader *l, uint64_t g);
void ls_token_loader_destroy(ls_token_loader *l); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
