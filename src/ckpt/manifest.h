/* manifest.h -- manifest.json of a checkpoint that several ranks have written: which files belong to it, and the
 * checksum of each byte of them.
 *
 *   { "lockstep_manifest": 1, "save": "<32 hex digits>", "step": 100, "generation": 1, "world_size": 4,
 *     "files": { "sharded/shard-00001-model-00001-of-00001.safetensors":
 *                  { "bytes": 5242944, "header_bytes": 1088, "header": "<16 hex digits>", "blocks": "<16 hex
 * digits>..." },                "config.yaml": { ... } },
 *     "digest": "<32 hex digits>" }
 *
 * `header` is the XXH3-64 of a file's first header_bytes bytes, and `blocks` has one of each MiB after them. The last
 * line is `digest`: the XXH3-128 of the text before it. So a reader who has checked the manifest can read any range of
 * any file and check it, without the rest. The rank that writes it does so when all other files are on the disk: a
 * folder with a manifest is complete.
 */
#ifndef LS_CKPT_MANIFEST_H
#define LS_CKPT_MANIFEST_H
#include "base/text.h"
#include "ckpt/save.h"

#define LS_MANIFEST_NAME "manifest.json"
#define LS_SHARDED_NAME "sharded" /* the folder of the ranks' files, as PyTorch's DCP calls it */

typedef struct ls_manifest_file {
    char *name; /* owned: a plain name, or one in sharded/ */
    ls_ckpt_sums sums;
} ls_manifest_file;

typedef struct ls_manifest {
    char save[33];          /* random hex digits: which save wrote it */
    int64_t step, generation;
    int world_size;         /* ranks that wrote it */
    ls_manifest_file *file; /* owned, names ascending */
    size_t nfiles;
} ls_manifest;

/* The text of manifest.json. LS_INVALID: a file's name that ls_manifest_parse would refuse. */
ls_status ls_manifest_text(const ls_manifest *m, ls_text *out);
/* Parses n bytes. LS_CKPT_CORRUPT: the digest does not fit, so that the text is damaged or no manifest. LS_BAD_FILE:
 * the digest fits, and a rule is broken: beyond base/limits.h, a key missing, unknown or twice, a name that leads out
 * of the folder, numbers of bytes and blocks that do not fit each other. LS_UNSUPPORTED: another version. */
ls_status ls_manifest_parse(const char *what, const void *text, size_t n, ls_manifest *out);
/* Reads and parses the one in `folder`. LS_BAD_FILE: there is none. */
ls_status ls_manifest_read(const char *folder, ls_manifest *out);
void ls_manifest_free(ls_manifest *m); /* zeroed is fine */

/* Takes ownership of *sums, also after a failure. Keeps the names ascending. */
ls_status ls_manifest_add(ls_manifest *m, const char *name, ls_ckpt_sums *sums);
/* NULL if absent. */
const ls_manifest_file *ls_manifest_find(const ls_manifest *m, const char *name);
/* Checksums of a file that is no safetensors file: blocks alone. */
ls_status ls_manifest_sum_file(const char *path, ls_ckpt_sums *out);

#endif
