/* mfu.h -- model FLOP utilisation: how much of what the machine can multiply goes into the model.
 *
 *   F = 6 N + 12 L H Q T   operations a token, forward and backward
 *   MFU = F x tokens a second / peak operations a second
 *
 * Chowdhery et al. 2022 (PaLM), appendix B. N are the parameters that take part in products: 2 N operations forward,
 * 4 N backward. Tables that are only looked up are not among them: positions, and an embedding that is not the
 * head's matrix as well (PaLM's is). The second term is attention, Q K^T and the weighted sum of V, each 2 H Q T a
 * token and layer, times three for forward and backward; the masked half counts, as there. L layers, H heads of Q
 * channels, T tokens a sequence. What a run computes twice to save memory counts once.
 * Of models without tokens F = 6 N, a sample.
 */
#ifndef LS_REPORT_MFU_H
#define LS_REPORT_MFU_H
#include "base/text.h"
#include "lockstep/model.h"

typedef struct ls_mfu {
    int64_t params;               /* of the whole model */
    int64_t tables;               /* of them: only looked up */
    int64_t layers, heads, width; /* L, H, Q; 0 where there is no attention */
    int64_t tokens;               /* T; 0: samples are not sequences */
    double flops;                 /* F */
} ls_mfu;

/* Of a model with so many parameters, whose sequences are T tokens long; c is resolved. */
void ls_mfu_count(const ls_model_config *c, int64_t params, int64_t T, ls_mfu *out);

/* The formula with these numbers, in lines for people, for `ranks` ranks of which each can do peak_gflops. */
void ls_mfu_explain(const ls_mfu *m, int ranks, double peak_gflops, const char *peak_text, ls_text *out);

#endif
