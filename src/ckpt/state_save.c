/* state_save.c -- a save that is waited for: its parts one after another (saving.h). */
#include "ckpt/saving.h"

static ls_status save(ls_state *s, ls_saving *v, const char *folder, int64_t step, ls_state_companions companions,
                      void *arg)
{
    const bool leads = ls_group_rank(s->g) == 0;
    LS_TRY(ls_save_begin(v, s, folder, step, &s->culprit));
    ls_status st = ls_save_list(v, s);
    if (st == LS_OK) st = ls_save_write(v);
    LS_TRY(ls_state_agree(s->g, st, &s->culprit));
    LS_TRY(ls_save_gather(v, s->g));
    if (companions) {
        st = companions(arg, leads ? v->b.path : NULL, leads ? &v->manifest : NULL);
        LS_TRY(ls_state_agree(s->g, st, &s->culprit));
    }
    return ls_state_agree(s->g, leads ? ls_save_commit(v) : LS_OK, &s->culprit);
}

ls_status ls_state_save(ls_state *s, const char *folder, int64_t step)
{
    return ls_state_save_with(s, folder, step, NULL, NULL);
}

ls_status ls_state_save_with(ls_state *s, const char *folder, int64_t step, ls_state_companions companions, void *arg)
{
    ls_saving v = { 0 };
    LS_TRY(ls_state_check_idle(s, "ls_state_save"));
    return ls_save_end(&v, save(s, &v, folder, step, companions, arg), folder);
}
