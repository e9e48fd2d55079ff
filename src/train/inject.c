/* inject.c -- faults on request, for tests and labs. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "train/trainer.h"

#define HANG_NS 3600000000000ull /* far beyond every deadline */
#define SLOW_NS 200000000ull

ls_status ls_injection_parse(const char *text, int world_size, ls_injection *out)
{
    static const char *const kinds[] = { "kill", "stop", "hang", "nan", "mismatch", "slow", "slow-input", "diverge", "overflow",
                                        "diverge-experts" };
    *out = (ls_injection){ .rank = -1 };
    if (!*text) return LS_OK;
    const char *at = strchr(text, '@');
    for (size_t i = 0; at && i < sizeof kinds / sizeof *kinds; i++) {
        if (strncmp(text, kinds[i], (size_t)(at - text)) != 0 || kinds[i][at - text] != 0) continue;
        char *end;
        long rank = strtol(at + 1, &end, 10), step = *end == ':' ? strtol(end + 1, &end, 10) : 0;
        const bool slow = i == LS_INJECT_SLOW || i == LS_INJECT_SLOW_INPUT;
        if ((out->on = slow && *end == '+')) end++;
        if (*end || rank < 0 || rank >= world_size || step < 1) break;
        out->kind = (ls_inject_kind)i;
        out->rank = (int)rank;
        out->step = step;
        return LS_OK;
    }
    return ls_fail(LS_USAGE,
                   "--inject is '%s': expected kill, stop, hang, nan, mismatch, slow, slow-input, diverge, overflow or diverge-experts, then "
                   "@RANK:STEP with RANK below %d and STEP from 1, which of slow and slow-input may end in +",
                   text, world_size);
}

static ls_status rest(uint64_t ns)
{
    const ls_env *env = ls_env_get();
    uint64_t end = env->mono_ns() + ns;
    for (uint64_t now; (now = env->mono_ns()) < end;) {
        const uint64_t left = end - now;
        env->wait(NULL, 0, NULL, 0, now + (left < 1000000000u ? left : 1000000000u));
    }
    return LS_OK;
}

/* A job that was started again by its launcher has had its fault. */
static bool due(const ls_trainer *t, int64_t step)
{
    return t->inject.rank == ls_world_rank(t->w) && ls_world_generation(t->w) == 1 &&
           (t->inject.step == step || (t->inject.on && t->inject.step < step));
}

void ls_injection_in_input(const ls_trainer *t, int64_t step)
{
    if (due(t, step) && t->inject.kind == LS_INJECT_SLOW_INPUT) rest(SLOW_NS);
}

void ls_injection_before_backward(const ls_trainer *t, int64_t step, float *weight)
{
    if (due(t, step) && t->inject.kind == LS_INJECT_SLOW) rest(SLOW_NS);
    if (due(t, step) && t->inject.kind == LS_INJECT_OVERFLOW) *weight = INFINITY;
}

ls_status ls_injection_before_update(const ls_trainer *t, int64_t step)
{
    const ls_params *ps = &t->par.model->params;
    const bool experts = t->inject.kind == LS_INJECT_DIVERGE_EXPERTS;
    if (!due(t, step) || (t->inject.kind != LS_INJECT_DIVERGE && !experts)) return LS_OK;
    if (experts && !t->par.experts)
        return ls_fail(LS_BAD_CONFIG, "--inject diverge-experts: no experts are divided here: expected parallel.ep above 1");
    for (int i = experts ? t->par.chunk[0].sparse.before : 0; i < ps->n; i++) {
        if (ps->item[i].own.count == 0) continue; /* fewer rows than ranks */
        ls_param_gradients(&ps->item[i])[0] += 1.0f;
        return LS_OK;
    }
    return ls_fail(LS_BAD_CONFIG, "--inject diverge@%d:%lld: rank %d owns no row of any parameter, so it has nothing to change: "
                   "name another rank, or use fewer ranks", t->inject.rank, (long long)step, t->inject.rank);
}

void ls_injection_after_backward(const ls_trainer *t, int64_t step, double *loss)
{
    if (due(t, step) && t->inject.kind == LS_INJECT_NAN) *loss = (double)NAN;
}

ls_status ls_injection_apply(const ls_trainer *t, int64_t step)
{
    const ls_env *env = ls_env_get();
    if (!due(t, step)) return LS_OK;
    switch (t->inject.kind) {
    case LS_INJECT_KILL: env->kill(env->pid(), SIGKILL); return LS_OK;
    case LS_INJECT_STOP: env->kill(env->pid(), SIGSTOP); return LS_OK;
    case LS_INJECT_HANG: return rest(HANG_NS);
    case LS_INJECT_MISMATCH: {
        float unexpected[3] = { 0 };
        return ls_all_reduce(ls_world_group(t->w), NULL, unexpected, 3, LS_F32, LS_MAX);
    }
    case LS_INJECT_NAN:
    case LS_INJECT_DIVERGE:
    case LS_INJECT_DIVERGE_EXPERTS:
    case LS_INJECT_OVERFLOW:
    case LS_INJECT_SLOW:
    case LS_INJECT_SLOW_INPUT: return LS_OK; /* around backward, before the update, with the samples */
    }
    return LS_OK;
}
