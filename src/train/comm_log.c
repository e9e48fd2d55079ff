/* comm_log.c -- the counters of a step, group by group, and comm.json. */
#include "train/comm_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "group/debug.h"
#include "parallel/strategy.h"
#include "train/trainer.h"

int ls_comm_groups(const ls_parallel *p, ls_group *out[LS_COMM_GROUPS])
{
    ls_group *const sharding[] = { p->shards, p->copies, p->node, p->column, p->twins, p->exchange, p->ring,
                                   p->expert_shards, p->expert_copies, p->expert_node, p->expert_column };
    int n = 0;
    out[n++] = ls_world_group(p->mesh.w);
    for (int i = 0; i < p->mesh.nowned; i++) out[n++] = p->mesh.owned[i];
    for (size_t i = 0; i < sizeof sharding / sizeof *sharding; i++)
        if (sharding[i]) out[n++] = sharding[i];
    for (int c = 0; c < p->nchunks; c++) {
        ls_ddp *const wrapper[] = { p->chunk[c].ddp, p->chunk[c].experts };
        for (int k = 0; k < 2; k++)
            if (wrapper[k] && wrapper[k]->second) out[n++] = wrapper[k]->second;
    }
    return n;
}

/* --- while the run goes on ------------------------------------------------------------------------- */

void ls_comm_log_open(ls_comm_log *l, const ls_parallel *p)
{
    *l = (ls_comm_log){ 0 };
    l->n = ls_comm_groups(p, l->group);
}

void ls_comm_log_begin(ls_comm_log *l)
{
    for (int i = 0; i < l->n; i++) ls_group_stats_read(l->group[i], &l->before[i]);
}

void ls_comm_log_end(ls_comm_log *l, int64_t step, bool whole)
{
    if (!whole) return;
    for (int i = 0; i < l->n; i++) {
        ls_group_stats_read(l->group[i], &l->newest[i]);
        ls_comm_stats_since(&l->before[i], &l->newest[i]);
    }
    if (++l->ended >= LS_COMM_STEADY) { /* the first steps take longer for other reasons */
        for (int i = 0; i < l->n; i++) l->waited_ns[i] += l->newest[i].waited_ns;
        l->summed++;
    }
    l->step = step;
}

/* --- at its end -------------------------------------------------------------------------------------- */

/* What a rank tells of one of its groups. */
typedef struct said {
    char text[64];               /* ls_group_text; "": it has no such group */
    uint64_t ops[LS_COLLS], bytes[LS_COLLS];
    double waited_s;             /* per step; below 0: not known */
    bool stages;                 /* its ranks are of several pipeline stages */
} said;

static bool spans_stages(const ls_mesh *m, const ls_group *g)
{
    int first[LS_AXES], other[LS_AXES];
    ls_mesh_coord(m->size, m->order, ls_group_world_rank(g, 0), first);
    for (int i = 1; i < ls_group_size(g); i++) {
        ls_mesh_coord(m->size, m->order, ls_group_world_rank(g, i), other);
        if (other[LS_AXIS_PP] != first[LS_AXIS_PP]) return true;
    }
    return false;
}

static said of_group(const ls_comm_log *l, const ls_mesh *m, int k)
{
    said s = { 0 };
    if (k >= l->n) return s;
    s.waited_s = l->summed > 0 ? 1e-9 * (double)l->waited_ns[k] / (double)l->summed : -1;
    s.stages = spans_stages(m, l->group[k]);
    snprintf(s.text, sizeof s.text, "%s", ls_group_text(l->group[k]));
    for (int c = 0; c < LS_COLLS; c++) {
        s.ops[c] = l->newest[k].of[c].ops;
        s.bytes[c] = l->newest[k].of[c].bytes;
    }
    return s;
}

static void add_group(const said *s, int rank, ls_text *x)
{
    ls_text_add(x, ",\n  {\"rank\": %d, \"group\": ", rank);
    ls_json_string(x, s->text);
    for (int c = 0; c < LS_COLLS; c++)
        if (s->ops[c] > 0)
            ls_text_add(x, ", \"%s\": {\"calls\": %llu, \"bytes\": %llu}", ls_coll_name((ls_coll)c),
                        (unsigned long long)s->ops[c], (unsigned long long)s->bytes[c]);
    if (s->waited_s >= 0) ls_text_add(x, ", \"waited_s\": %.9g, \"stages\": %s", s->waited_s, s->stages ? "true" : "false");
    ls_text_add(x, "}");
}

/* One group of each rank at a time: a collective as long as those of each step. */
static ls_status collect(const ls_comm_log *l, const ls_mesh *m, ls_group *world, ls_text *x)
{
    const int size = ls_group_size(world), rank = ls_group_rank(world);
    said *all = calloc((size_t)size, sizeof *all);
    ls_status st = all ? LS_OK : ls_fail(LS_NO_MEMORY, "the groups of %d ranks", size);
    for (int k = 0; st == LS_OK && k < LS_COMM_GROUPS; k++) {
        all[rank] = of_group(l, m, k);
        st = ls_all_gather(world, NULL, all, (size_t)size * sizeof *all, LS_U8);
        for (int r = 0; st == LS_OK && r < size; r++)
            if (*all[r].text) add_group(&all[r], r, x);
    }
    free(all);
    return st;
}

/* The most that each rank has had of each kind of memory, until now. */
static ls_status collect_memory(const ls_ledger *l, ls_group *world, ls_text *x)
{
    const int size = ls_group_size(world), rank = ls_group_rank(world);
    int64_t (*all)[LS_MEM_KINDS] = calloc((size_t)size, sizeof *all);
    if (!all) return ls_fail(LS_NO_MEMORY, "the memory of %d ranks", size);
    for (int k = 0; k < LS_MEM_KINDS; k++) all[rank][k] = (int64_t)l->peak[k];
    const ls_status st = ls_all_gather(world, NULL, all, (size_t)size * LS_MEM_KINDS, LS_I64);
    ls_text_add(x, ",\n \"memory\": [");
    for (int r = 0; r < size; r++) {
        ls_text_add(x, "%s\n  {\"rank\": %d", r ? "," : "", r);
        for (int k = 0; k < LS_MEM_KINDS; k++)
            ls_text_add(x, ", \"%s\": %lld", ls_mem_kind_name((ls_mem_kind)k), (long long)all[r][k]);
        ls_text_add(x, "}");
    }
    ls_text_add(x, "]");
    free(all);
    return st;
}

static ls_status write_file(ls_trainer *t, const ls_text *x)
{
    char path[320];
    snprintf(path, sizeof path, "%s/comm.json", t->run_dir);
    ls_train_task(t, LS_TASK_WRITING, path);
    const ls_status st = ls_file_write(path, x->p, x->n);
    ls_train_task(t, LS_TASK_NONE, NULL);
    return st;
}

/* How long each rank was busy per step: every rank knows it of all others. */
static void add_busy(const ls_trainer *t, int size, ls_text *x)
{
    if (t->busy_steps == 0) return;
    ls_text_add(x, ",\n \"busy_steps\": %lld, \"busy\": [", (long long)t->busy_steps);
    for (int r = 0; r < size; r++) {
        const double *sum = t->busy_sum + r * LS_BUSY_PHASES, scale = 1e-9 / (double)t->busy_steps;
        ls_text_add(x, "%s\n  {\"rank\": %d, \"compute_s\": %.9g, \"data_s\": %.9g}", r ? "," : "", r,
                    scale * sum[LS_BUSY_COMPUTE], scale * sum[LS_BUSY_INPUT]);
    }
    ls_text_add(x, "]");
}

ls_status ls_comm_log_write(ls_trainer *t)
{
    ls_group *world = ls_world_group(t->w);
    const int *node = ls_debug_look(world).node, size = ls_group_size(world);
    ls_text x = { 0 };
    if (t->comm.step == 0) return LS_OK; /* on all ranks alike */
    ls_text_add(&x, "{\"step\": %lld, \"steps_before\": %lld, \"nodes\": [", (long long)t->comm.step, (long long)t->begun);
    for (int r = 0; r < size; r++) ls_text_add(&x, "%s%d", r ? ", " : "", node[r]);
    ls_text_add(&x, "],\n \"groups\": [");
    ls_text memory = { 0 };
    ls_status st = collect_memory(ls_world_ledger(t->w), world, &memory);
    const size_t head = x.n;
    if (st == LS_OK) st = collect(&t->comm, &t->par.mesh, world, &x);
    if (st == LS_OK && x.n > head) x.p[head] = ' '; /* the first comma */
    ls_text_add(&x, "]");
    ls_text_add(&x, "%s", ls_text_str(&memory));
    add_busy(t, size, &x);
    ls_text_add(&x, "}\n");
    if (st == LS_OK) st = ls_text_status(&memory);
    ls_text_free(&memory);
    if (st == LS_OK) st = ls_text_status(&x);
    if (st == LS_OK && t->par.mesh.speaks) st = write_file(t, &x);
    ls_text_free(&x);
    return st;
}
