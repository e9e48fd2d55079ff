/* load.h -- an open safetensors file from the inside. */
#ifndef LS_CKPT_LOAD_H
#define LS_CKPT_LOAD_H
#include "ckpt/format.h"

struct ls_ckpt {
    char *path; /* owned; behind the struct */
    int fd;     /* owned */
    ls_ckpt_header header;
};

#endif
