/* context.c -- the running thread's context. */
#include "base/context.h"

#include "base/compiler.h"
#include "base/log.h"

static LS_THREAD_LOCAL ls_context own = { .env = &ls_env_real, .rank = -1, .log_level = LS_LOG_WARN };
static LS_THREAD_LOCAL ls_context *current; /* NULL: own */

ls_context *ls_context_get(void) { return current ? current : &own; }

ls_context *ls_context_swap(ls_context *c)
{
    ls_context *was = current;
    current = c;
    return was;
}

const ls_env *ls_env_get(void) { return ls_context_get()->env; }
