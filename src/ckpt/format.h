/* format.h -- the safetensors header, as bytes in memory.
 *
 *   bytes 0..7     N, the header's size: u64, little-endian
 *   bytes 8..8+N   JSON: name -> { dtype, shape, data_offsets }, then blanks
 *   from 8+N       the tensors, row-major, little-endian, without gaps
 *
 * What Lockstep adds, in __metadata__ (a map of strings to strings), so that no
 * flipped bit goes unnoticed and other programs still read the file:
 *
 *   lockstep.version       "1"
 *   lockstep.header        XXH3-64 of bytes 0..8+N, these 16 digits taken as zeros
 *   lockstep.xxh3.<name>   XXH3-64 of that tensor's bytes; 16 hex digits, as above
 *
 * A file with any of these has all of them, or is damaged.
 */
#ifndef LS_CKPT_FORMAT_H
#define LS_CKPT_FORMAT_H
#include "lockstep/ckpt.h"

#define LS_CKPT_PREFIX 8 /* bytes before the JSON */
#define LS_CKPT_PREFIX_KEY "lockstep.prefix" /* metadata: what ls_ckpt_save_prefixed put before each name */

typedef struct ls_ckpt_meta_pair {
    char *key, *value; /* owned */
} ls_ckpt_meta_pair;

/* A header that kept every rule. */
typedef struct ls_ckpt_header {
    ls_ckpt_tensor *tensor; /* owned, in file order */
    size_t ntensors;
    uint32_t *by_name;      /* owned: indices into tensor, names ascending */
    ls_ckpt_meta_pair *meta; /* owned, keys ascending */
    size_t nmeta;
    uint64_t data_at;       /* where the data section begins in the file */
    bool ours;              /* has lockstep.* digests, and they are complete */
} ls_ckpt_header;

/* The size of prefix and header from a file's first bytes (n of them, 9 are enough), or a failure:
 * LS_BAD_FILE for what is not safetensors, a pickle being named as such. `what` names the file. */
ls_status ls_ckpt_header_size(const char *what, const void *p, size_t n, uint64_t file_size, size_t *size);
/* Parses prefix and header, n bytes, of a file of file_size bytes. LS_BAD_FILE names the byte and
 * the rule, LS_CKPT_CORRUPT damage to a file that Lockstep wrote, or one that is cut short. */
ls_status ls_ckpt_header_parse(const char *what, const void *p, size_t n, uint64_t file_size, ls_ckpt_header *out);
void ls_ckpt_header_free(ls_ckpt_header *h); /* zeroed is fine */

/* NULL if absent. */
const ls_ckpt_tensor *ls_ckpt_header_find(const ls_ckpt_header *h, const char *name);
const char *ls_ckpt_header_meta(const ls_ckpt_header *h, const char *key);

/* The format's name of an element type, "F32"; NULL outside the enum. */
const char *ls_ckpt_dtype_name(ls_dtype d);

/* Reads into dst what this rank has of tensor t (p->part: all of it, or a part), in t's type and order. A digest is of
 * all of t: if t has one, all of t is read, in pieces of 1 MiB, and checked. If it has none, the part alone is read. */
ls_status ls_ckpt_read_param(ls_ckpt *c, const ls_ckpt_tensor *t, const ls_param *p, void *dst);

/* Element k of values in F32, BF16 or F16. */
float ls_ckpt_value(const void *raw, ls_dtype dtype, size_t k);
/* to[c, r] = from[r, c] for so many rows and columns; rows of `from` are from_row elements apart, those of `to` to_row.
 */
void ls_ckpt_turn(const float *from, size_t from_row, int64_t rows, int64_t columns, float *to, size_t to_row);
/* out [O, I] from raw [I, O], of such values. */
void ls_ckpt_transpose(const void *raw, ls_dtype dtype, int64_t O, int64_t I, float *out);

#endif
