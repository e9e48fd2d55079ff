/* memory_check.c -- the memory of a run, compared with what there is, and what could be changed so that it fits. */
#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "train/memory.h"
#include "train/memory_stages.h"
#include "train/memory_units.h"

#define MOST_PARTS 1000000 /* micro-batches a step that are thought of */
#define MIB        1048576.0

static double mib(size_t n) { return (double)n / MIB; }

/* --- what fits ------------------------------------------------------------------------------ */

static uint64_t available(const ls_train_config *c)
{
    return c->memory.limit ? c->memory.limit : ls_env_get()->mem_available();
}

static bool fits(const ls_train_config *c, const ls_memory_plan *p, int here)
{
    return p->total <= available(c) / (uint64_t)here;
}

/* Whether it is supported, and needs so little. */
static bool would_do(const ls_train_config *c, const ls_model_config *mc, const ls_memory_ranks *r,
                     ls_memory_plan *p)
{
    return ls_train_config_check(c, r->size) == LS_OK &&
           ls_memory_plan_on(c, mc, r->rank, r->size, r->node, p) == LS_OK && fits(c, p, r->here);
}

/* The first of `base` with one change that fits; `also` says what base has changed already. False: none does. */
static bool change_that_fits(const ls_train_config *base, const ls_model_config *mc, const ls_memory_ranks *r,
                             const char *also, char *out, size_t n)
{
    static const char *const recompute[] = { "selective", "full" };
    ls_memory_plan p;
    const int64_t each = base->train.global_batch / ls_train_batch_ranks(base, r->size), local = each > 0 ? each : 1;
    const int64_t micro = ls_train_micro_batch(base, local);
    ls_train_config changed = *base;
    for (int i = 0; i < 2; i++) {
        changed.train.recompute = recompute[i];
        if (!would_do(&changed, mc, r, &p)) continue;
        snprintf(out, n, "train.recompute %s%s fits: %.1f MiB a rank", recompute[i], also, mib(p.total));
        return true;
    }
    for (int way = 0; way < 2 && !ls_train_is_invariant(base); way++) { /* grains are what makes its bits */
        changed.train.recompute = way == 0 ? base->train.recompute : "full";
        for (int64_t parts = local / micro + 1; parts <= local && parts <= MOST_PARTS; parts++) {
            if (local % parts != 0) continue;
            changed.train.micro_batch = local / parts;
            if (!would_do(&changed, mc, r, &p)) continue;
            snprintf(out, n, "train.micro_batch %lld%s%s fits: %.1f MiB a rank", (long long)changed.train.micro_batch,
                     way ? " with train.recompute full" : "", also, mib(p.total));
            return true;
        }
    }
    changed.train.micro_batch = 1;
    changed.train.dtype = "bf16";
    if (!would_do(&changed, mc, r, &p)) return false;
    snprintf(out, n, "train.dtype bf16%s and train.recompute full%s fit: %.1f MiB a rank",
             ls_train_is_invariant(base) ? "" : ", train.micro_batch 1", also, mib(p.total));
    return true;
}

/* The first of the next stages of ZeRO that fits; `changed`: with another change. False: none does. */
static bool more_shards_fit(const ls_train_config *c, const ls_model_config *mc, const ls_memory_ranks *r,
                            bool changed, char *out, size_t n)
{
    ls_memory_plan p;
    ls_train_config shards = *c;
    for (shards.zero.stage++; r->size > 1 && shards.zero.stage <= ls_ddp_most_stage(); shards.zero.stage++) {
        char also[40];
        snprintf(also, sizeof also, " with zero.stage %d", (int)shards.zero.stage);
        if (changed && change_that_fits(&shards, mc, r, also, out, n)) return true;
        if (changed || !would_do(&shards, mc, r, &p)) continue;
        snprintf(out, n, "zero.stage %d fits: %.1f MiB a rank", (int)shards.zero.stage, mib(p.total));
        return true;
    }
    return false;
}

/* The cheapest change first: the next stages of ZeRO, of which the first costs nothing, weights that are not packed a
 * few percent of a step, selective a few elementwise ops, full a third more products, smaller micro-batches their
 * efficiency, bf16 bits. */
static void cheapest_change(const ls_train_config *c, const ls_model_config *mc, const ls_memory_ranks *r, char *out,
                            size_t n)
{
    ls_memory_plan p;
    ls_train_config unpacked = *c;
    unpacked.train.pack_weights = "never";
    if (more_shards_fit(c, mc, r, false, out, n)) return;
    if (ls_train_packs(c, r->size) && would_do(&unpacked, mc, r, &p))
        snprintf(out, n, "train.pack_weights never fits: %.1f MiB a rank", mib(p.total));
    else if (!change_that_fits(c, mc, r, "", out, n) &&
             !change_that_fits(&unpacked, mc, r, " with train.pack_weights never", out, n) &&
             !more_shards_fit(c, mc, r, true, out, n))
        snprintf(out, n,
                 "neither recompute nor smaller micro-batches are enough: use model parallelism (parallel.tp, "
                 "parallel.cp, parallel.pp), a smaller model, fewer ranks or a machine with more memory");
}

static int largest(const ls_memory_plan *p, int but1, int but2)
{
    int most = -1;
    for (int k = 0; k < LS_MEM_KINDS; k++)
        if (k != but1 && k != but2 && (most < 0 || p->bytes[k] > p->bytes[most])) most = k;
    return most;
}

ls_status ls_memory_check(const ls_train_config *c, const ls_model_config *mc, const ls_memory_ranks *r,
                          const ls_memory_plan *p)
{
    char change[200];
    const int here = r->here;
    if (!c->memory.check || fits(c, p, here)) return LS_OK;
    cheapest_change(c, mc, r, change, sizeof change);
    const int a = largest(p, -1, -1), b = largest(p, a, -1), d = largest(p, a, b);
    return ls_fail(LS_NO_MEMORY,
                   "%d rank%s on this machine need%s %.1f MiB, but %.1f MiB are available; a rank's: %s %.1f, %s "
                   "%.1f, %s %.1f MiB; %s (memory.check false starts all the same)",
                   here, here == 1 ? "" : "s", here == 1 ? "s" : "", mib(p->total) * here, (double)available(c) / MIB,
                   ls_memory_kind_name(a), mib(p->bytes[a]), ls_memory_kind_name(b), mib(p->bytes[b]),
                   ls_memory_kind_name(d), mib(p->bytes[d]), change);
}

/* --- before ranks are started ------------------------------------------------------------------ */

static ls_status add_table(const ls_train_config *c, const ls_model_config *mc, int size, ls_text *out)
{
    ls_memory_plan p;
    ls_memory_units units;
    int rank;
    LS_TRY(ls_memory_plan_largest(c, mc, size, &rank, &p));
    LS_TRY(ls_memory_plan_units(c, mc, rank, size, NULL, &p, &units));
    ls_text_add(out, "memory per rank%s, before the first step:\n%-16s%16s%12s\n",
                c->parallel.pp > 1 ? " of the pipeline stage that takes the most" : "", "", "bytes", "MiB");
    for (int k = 0; k < LS_MEM_KINDS; k++)
        if (p.bytes[k]) ls_text_add(out, "%-16s%16zu%12.2f\n", ls_memory_kind_name(k), p.bytes[k], mib(p.bytes[k]));
    ls_text_add(out, "%-16s%16zu%12.2f\n", "total", p.total, mib(p.total));
    ls_text_add(out, "%d rank%s: %.2f MiB of %.2f MiB available", size, size == 1 ? "" : "s", mib(p.total) * size,
                (double)available(c) / MIB);
    if (!fits(c, &p, size)) {
        char change[200];
        cheapest_change(c, mc, &(ls_memory_ranks){ .size = size, .here = size, .rank = rank }, change, sizeof change);
        ls_text_add(out, ": does not fit; %s", change);
    }
    ls_text_add(out, "\n\n");
    ls_memory_units_table(&p, &units, out);
    ls_memory_units_free(&units);
    return ls_text_status(out);
}

static ls_status check(const ls_train_config *c, const ls_model_config *mc, int size)
{
    ls_memory_plan p;
    int rank;
    LS_TRY(ls_memory_plan_largest(c, mc, size, &rank, &p));
    return ls_memory_check(c, mc, &(ls_memory_ranks){ .size = size, .here = size, .rank = rank }, &p);
}

ls_status ls_memory_explain(const ls_train_config *c, int size, ls_text *out)
{
    ls_source source = { 0 };
    ls_model_config mc;
    ls_memory_stages fitted;
    ls_status st = ls_train_model(c, &source, &mc);
    if (st == LS_OK) st = ls_memory_stages_fit(c, &mc, size, &fitted);
    if (st == LS_OK && out && *fitted.said) ls_text_add(out, "%s\n\n", fitted.said);
    if (st == LS_OK) st = out ? add_table(&fitted.c, &mc, size, out) : check(&fitted.c, &mc, size);
    ls_source_free(&source);
    return st;
}
