/* note.h -- where a model's gradients lie, noted for `lockstep run --lint`. */
#ifndef LS_NN_NOTE_H
#define LS_NN_NOTE_H
#include "lockstep/nn.h"

/* Notes a call with "grads": [[address, bytes], ...]. Nothing, unless a lint watches. */
void ls_params_note(const char *call, const ls_params *ps);

#endif
