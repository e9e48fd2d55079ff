/* dry.c -- worlds whose other ranks are not there: calls in a dry one are noted, in a mirror answered at once. */
#include "group/engine.h"
#include "group/record.h"
#include "net/open.h"

static ls_status open_alone(int rank, int size, const int *node, const ls_world_opts *opts,
                            const ls_mirror_opts *mirror, ls_world **out)
{
    ls_world *w;
    *out = NULL;
    LS_TRY(ls_world_open_alone(rank, size, node, opts, !mirror, &w));
    ls_status st = ls_group_create_world(w);
    if (st == LS_OK) st = ls_record_create(mirror, &w->engine->record);
    if (st < 0) {
        w->failed = true; /* nothing more is called in it */
        ls_world_leave(w);
        return st;
    }
    *out = w;
    return LS_OK;
}

ls_status ls_world_dry(int rank, int size, const int *node, const ls_world_opts *opts, ls_world **out)
{
    return open_alone(rank, size, node, opts, NULL, out);
}

ls_status ls_world_mirror(int rank, int size, const int *node, const ls_world_opts *opts, const ls_mirror_opts *mirror,
                          ls_world **out)
{
    static const ls_mirror_opts usual = { 0 };
    return open_alone(rank, size, node, opts, mirror ? mirror : &usual, out);
}

bool ls_world_is_dry(const ls_world *w) { return w->dry; }
bool ls_world_is_alone(const ls_world *w) { return w->alone; }
