/* data_show.h -- lockstep data show: what is in a token file. */
#ifndef LS_CLI_DATA_SHOW_H
#define LS_CLI_DATA_SHOW_H
#include "data/tokens.h"

typedef struct ls_data_show {
    ls_token_format format;
    const char *tokenizer; /* NULL: the one beside the file, if there is one */
    size_t tokens;         /* how many to print */
    bool json;             /* one object on a line, instead of text */
} ls_data_show;

ls_status ls_cli_data_show(const char *path, const ls_data_show *how);

#endif
