/* dry.c -- a world whose other ranks are not there: what is called in it is noted (record.c). */
#include "group/engine.h"
#include "group/record.h"
#include "net/open.h"

ls_status ls_world_dry(int rank, int size, const int *node, const ls_world_opts *opts, ls_world **out)
{
    ls_world *w;
    *out = NULL;
    LS_TRY(ls_world_open_dry(rank, size, node, opts, &w));
    ls_status st = ls_group_create_world(w);
    if (st == LS_OK) st = ls_record_create(&w->engine->record);
    if (st < 0) {
        w->failed = true; /* nothing more is called in it */
        ls_world_leave(w);
        return st;
    }
    *out = w;
    return LS_OK;
}

bool ls_world_is_dry(const ls_world *w) { return w->dry; }
