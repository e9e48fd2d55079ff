/* fuzz_tokens.c -- token files of arbitrary bytes: an error or tokens that can all be read. The first byte chooses the
 * format, the next ones the loader. */
#include <stdlib.h>
#include <string.h>

#include "data/tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    uint8_t choice[8] = { 0 };
    ls_tokens t;
    ls_token_loader *l;
    if (n < sizeof choice) return 0;
    memcpy(choice, p, sizeof choice);
    n -= sizeof choice;
    uint8_t *file = malloc(n ? n : 1); /* aligned, and with its end where a sanitizer sees it */
    if (!file) return 0;
    memcpy(file, p + sizeof choice, n);
    ls_status st = ls_tokens_parse("fuzz", file, n, choice[0] % 2 ? LS_TOKENS_NANOGPT : LS_TOKENS_LLMC, &t);
    if (st != LS_OK && st != LS_BAD_FILE) abort();
    if (st == LS_OK) {
        size_t at[4];
        if (ls_tokens_find(&t, choice[1], choice[2], choice[3], at, 4) > choice[3]) abort();
        ls_token_loader_opts o = { .batch = choice[4], .T = choice[5], .dp_rank = choice[6] % 4,
                                   .dp_size = choice[6] / 4 % 4, .seed = choice[7], .shuffle = choice[7] % 2,
                                   .vocab = 256u + choice[1] };
        st = ls_token_loader_create(&t, &o, &l);
        if (st != LS_OK && (l || st != LS_INVALID)) abort();
        for (int k = 0; st == LS_OK && k < 3; k++) {
            ls_status next = ls_token_loader_next(l);
            if (next != LS_OK && next != LS_BAD_FILE) abort();
            for (size_t i = 0; next == LS_OK && i < o.batch * o.T; i++)
                if (l->x[i] < 0 || l->x[i] >= o.vocab || l->y[i] < 0 || l->y[i] >= o.vocab) abort();
        }
        if (st == LS_OK) ls_token_loader_destroy(l);
    }
    free(file);
    return 0;
}
