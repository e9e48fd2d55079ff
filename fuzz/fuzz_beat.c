/* fuzz_beat.c -- beats of another host on arbitrary bytes: refused with the page as it was, or taken into
 * slots that can be shown, and told on. */
#include <stdlib.h>
#include <string.h>

#include "meet/beat.h"

#define RANKS 3

#define MOST_BYTES                                                                                                     \
    (sizeof(ls_beat_head) + LS_ERROR_BYTES + LS_SAVED_PATH_BYTES +                                                     \
     RANKS * (sizeof(ls_beat_rank) + LS_BEAT_PEERS * sizeof(ls_beat_peer)))

/* The ranks whose bits are set. */
static ls_beat_of only(uint64_t bits)
{
    static uint64_t word;
    static ls_rank_set set = { &word, RANKS };
    word = bits & ((1u << RANKS) - 1);
    return (ls_beat_of){ &set, false };
}

static uint64_t told_word;
static ls_rank_set told = { &told_word, RANKS };

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void clear(ls_world_page *page)
{
    for (int r = 0; r < RANKS; r++) memset(&page->rank[r], 0, offsetof(ls_rank_slot, box) + offsetof(ls_blackbox, ev));
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static ls_world_page *page; /* large: made once, and only what is written here is cleared */
    static char out[MOST_BYTES];
    char text[600];
    if (!page && !(page = calloc(1, ls_page_bytes(RANKS)))) abort();
    memset(page, 0, sizeof *page);
    clear(page);
    ls_page_format(page, RANKS, 1);
    atomic_store(&page->rank[0].state, LS_RANK_RUNNING); /* ours: nobody else may write it */
    bool taken = ls_beat_read(page, only(~1ull), p, n, 1000000000u, &told);
    if (!taken && (page->abort_by || page->rank[1].state || page->rank[2].state)) abort();
    if (page->rank[0].state != LS_RANK_RUNNING || page->rank[0].step != 0) abort();
    for (int r = 0; r < RANKS; r++) {
        ls_coll_desc d;
        (void)ls_page_where(page, r, text, sizeof text);
        (void)ls_page_message_peer(page, r);
        if (ls_page_last_coll(page, r, &d)) (void)ls_desc_text(&d, &page->rank[r], text, sizeof text);
    }
    size_t k = ls_beat_write(page, only(~0ull), 2000000000u, out);
    if (k > MOST_BYTES) abort();
    clear(page); /* what we tell, we also take */
    if (!ls_beat_read(page, only(~0ull), out, k, 2000000000u, &told)) abort();
    return 0;
}
