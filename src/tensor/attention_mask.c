/* attention_mask.c -- probabilities that do not count: hidden by the causal mask, or dropped. */
#include "tensor/attention_impl.h"

#include <string.h>

#include "lockstep/rng.h"

void ls_attention_hide(const block *at, float *st)
{
    for (int j = 0; j < at->keys; j++) {
        const int first = first_query(at, j);
        if (first > 0) memset(st + j * QUERIES, 0, (size_t)first * sizeof *st);
    }
}

void ls_attention_draw(const ls_attention_call *c, const block *at, int64_t row, int64_t key, uint64_t mask[QUERIES])
{
    uint32_t word[KEYS + 8]; /* Philox makes four at a time: up to three more on both sides */
    memset(mask, 0, QUERIES * sizeof *mask);
    for (int i = 0; i < at->queries; i++) {
        const int keys = keys_seen(at, i);
        if (keys <= 0) continue;
        const int64_t along = c->drop.T > 0 ? c->drop.T : c->Tk;
        const uint64_t first = c->drop.first + (uint64_t)((row + i) * along + c->drop.first_key + key);
        const int before = (int)(first % 4);
        ls_philox_blocks(c->drop.seed, c->drop.stream, first / 4, (size_t)(before + keys + 3) / 4, word);
        for (int j = 0; j < keys; j++) mask[i] |= (uint64_t)(word[before + j] >> 8 >= c->drop.least) << j;
    }
}

LS_KERNEL static void drop(const block *at, float *restrict st, const uint64_t *restrict mask, float scale)
{
    for (int j = 0; j < at->keys; j++) {
        float *restrict s = st + j * QUERIES;
        for (int i = first_query(at, j) / LANES * LANES; i < at->width; i++) s[i] *= mask[i] >> j & 1u ? scale : 0.0f;
    }
}

void ls_attention_apply_drop(const block *at, float *st, const uint64_t *mask, float scale)
{
    drop(at, st, mask, scale);
}
