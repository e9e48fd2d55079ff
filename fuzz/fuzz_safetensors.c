/* fuzz_safetensors.c -- the checkpoint header's parser on arbitrary bytes: an error with a sentence, or a header
 * that keeps its promises. An even first byte: the rest is a file. An odd one: four bytes of data size, then the
 * JSON, whose size prefix is put right here, so that mutations reach the rules behind it. */
#include <stdlib.h>
#include <string.h>

#include "ckpt/format.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

#define CHECK(claim) \
    if (!(claim)) abort()

static void check_promises(const ls_ckpt_header *h, uint64_t file_size)
{
    uint64_t covered = 0;
    for (size_t i = 0; i < h->ntensors; i++) {
        const ls_ckpt_tensor *t = &h->tensor[i];
        CHECK(t->name && *t->name && t->dtype_name && t->ndim >= 0 && t->ndim <= LS_CKPT_MAX_DIMS);
        CHECK(t->begin <= t->end && t->end <= file_size - h->data_at);
        CHECK(ls_ckpt_header_find(h, t->name) == t); /* so names are unique */
        CHECK(t->has_checksum == h->ours);
        covered += t->end - t->begin;
    }
    CHECK(covered == file_size - h->data_at);
    for (size_t i = 0; i < h->nmeta; i++) CHECK(ls_ckpt_header_meta(h, h->meta[i].key) == h->meta[i].value);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    uint8_t *file = malloc(n + 16);
    size_t size = 0;
    uint64_t file_size = 0;
    if (!file) return 0;
    if (n > 5 && p[0] & 1) {
        uint32_t data;
        uint64_t header = n - 5;
        memcpy(&data, p + 1, 4);
        memcpy(file, &header, 8);
        memcpy(file + 8, p + 5, n - 5);
        size = n + 3;
        file_size = size + data;
    } else if (n > 0) {
        size = n - 1;
        file_size = size;
        memcpy(file, p + 1, size);
    }
    uint8_t *exact = malloc(size ? size : 1); /* no slack: a read behind the end is seen */
    if (exact) {
        memcpy(exact, file, size);
        ls_ckpt_header h;
        ls_status st = ls_ckpt_header_parse("fuzz", exact, size, file_size, &h);
        CHECK(st == LS_OK || st == LS_BAD_FILE || st == LS_CKPT_CORRUPT || st == LS_UNSUPPORTED || st == LS_INVALID);
        if (st == LS_OK) check_promises(&h, file_size);
        else CHECK(*ls_last_error() && h.tensor == NULL && h.meta == NULL);
        ls_ckpt_header_free(&h);
    }
    free(exact);
    free(file);
    return 0;
}
