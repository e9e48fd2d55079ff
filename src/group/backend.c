/* backend.c -- finding, loading and asking the plugin that comm.backend names. */
#include "group/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/log.h"
#include "group/engine.h"
#include "group/form.h"
#include "group/mismatch.h"
#include "group/spans.h"

/* One build of the mpi plugin per implementation: they share names but not numbers. */
typedef struct flavour {
    const char *name, *made_for, *packages;
} flavour;

static const flavour flavours[] = {
    { "mpi-openmpi", "Open MPI", "libopenmpi-dev and openmpi-bin" },
    { "mpi-mpich", "MPICH", "libmpich-dev and mpich" },
};
#define NFLAVOURS ((int)(sizeof flavours / sizeof *flavours))

struct ls_backend {
    const ls_backend_ops *ops;
    ls_backend_lib *lib;     /* owned */
    ls_backend_group *world; /* owned */
    ls_range *share, *from;  /* owned, [world size]: scratch of start */
    const char *name;        /* of its flavour */
    _Atomic uint32_t busy;   /* 1 while a thread is inside the library */
    char text[400];          /* for people */
};

/* --- finding it ---------------------------------------------------------------------------------------- */

/* Which build fits the launcher that started us; NULL: none does. */
static const flavour *flavour_for(ls_job_source source)
{
    if (source == LS_JOB_OPENMPI) return &flavours[0];
    if (source == LS_JOB_PMI) return &flavours[1];
    if (source == LS_JOB_SLURM && ls_env_get()->getenv("PMIX_NAMESPACE")) return &flavours[0]; /* srun --mpi=pmix */
    return NULL;
}

/* Folder number i of those that are searched, into buf; false after the last. "" is the system's own search. */
static bool folder(int i, char *buf, size_t n)
{
    const ls_env *env = ls_env_get();
    for (const char *p = env->getenv("LOCKSTEP_PLUGIN_PATH"); p && *p;) {
        size_t k = strcspn(p, ":");
        if (k > 0 && i-- == 0) {
            snprintf(buf, n, "%.*s", (int)k, p);
            return k < n;
        }
        p += k + (p[k] == ':');
    }
    if (i > 3) return false;
    if (i == 3) {
        *buf = 0;
        return true;
    }
    if (env->self_path(buf, n) < 0) *buf = 0;
    char *slash = strrchr(buf, '/'); /* beside the program, above it, and where it may be installed */
    size_t k = slash ? (size_t)(slash - buf) : 0;
    snprintf(buf + k, n - k, "%s", i == 0 ? "" : i == 1 ? "/.." : "/../" LOCKSTEP_LIBDIR);
    return true;
}

/* The library's file, or "" when no folder has it. */
static void find_file(const flavour *f, char *path, size_t n)
{
    char dir[400];
    for (int i = 0; folder(i, dir, sizeof dir); i++) {
        ls_file_info info = { 0 };
        if (!*dir || (size_t)snprintf(path, n, "%s/liblockstep_%s.so", dir, f->name) >= n) continue;
        if (ls_env_get()->info(path, &info) == 0 && info.type != LS_FILE_NONE && info.type != LS_FILE_DIR) return;
    }
    *path = 0;
}

static const char advice[] = "built together with Lockstep where %s are installed";

/* Loads one build. `shared`: its library's symbols are for everybody, as MPI wants it. */
static ls_status load(const flavour *f, bool shared, const ls_backend_ops **out, char *path, size_t n)
{
    const ls_env *env = ls_env_get();
    char bare[64], why[256], how[128];
    snprintf(bare, sizeof bare, "liblockstep_%s.so", f->name);
    snprintf(how, sizeof how, advice, f->packages);
    find_file(f, path, n);
    void *library = env->library(*path ? path : bare, shared, why, sizeof why);
    if (!library && !*path)
        return ls_fail(LS_UNSUPPORTED, "%s is not there (%s); it is %s and looked for beside the program and in "
                                       "LOCKSTEP_PLUGIN_PATH", bare, f->made_for, how);
    if (!library) return ls_fail(LS_UNSUPPORTED, "%s cannot be loaded: %s", path, why);
    if (!*path) snprintf(path, n, "%s", bare);
    const ls_backend_ops *ops = env->symbol(library, LS_BACKEND_SYMBOL);
    if (!ops) return ls_fail(LS_UNSUPPORTED, "%s has no %s: it is no plugin of Lockstep", path, LS_BACKEND_SYMBOL);
    if (ops->abi != LS_BACKEND_ABI || ops->nbytes != sizeof *ops || strcmp(ops->version, LOCKSTEP_VERSION) != 0)
        return ls_fail(LS_UNSUPPORTED, "%s was built for another Lockstep (interface %u of %s, here %u of %s): build it "
                                       "again with this one", path, ops->abi, ops->abi < 100 ? ops->version : "?",
                       LS_BACKEND_ABI, LOCKSTEP_VERSION);
    if (strcmp(ops->made_for, f->made_for) != 0)
        return ls_fail(LS_UNSUPPORTED, "%s is made for %s, not for %s", path, ops->made_for, f->made_for);
    *out = ops;
    return LS_OK;
}

bool ls_backend_list(int i, ls_backend_info *out)
{
    const ls_backend_ops *ops;
    char path[512], what[200];
    if (i < 0 || i >= NFLAVOURS) return false;
    *out = (ls_backend_info){ .name = flavours[i].name };
    if (load(&flavours[i], false, &ops, path, sizeof path) < 0) {
        snprintf(out->text, sizeof out->text, "%s", ls_last_error());
        return true;
    }
    ops->describe(what, sizeof what);
    out->found = true;
    snprintf(out->text, sizeof out->text, "%s, %s", what, path);
    return true;
}

/* --- opening it ---------------------------------------------------------------------------------------- */

static LS_COLD ls_status no_mpirun(ls_job_source source, const char *text, int ranks)
{
    if (source == LS_JOB_ALONE)
        return ls_fail(LS_UNSUPPORTED, "backend mpi needs ranks that mpirun starts, and no launcher has started any: put "
                                       "mpirun -n %d before the command", ranks > 1 ? ranks : 2);
    return ls_fail(LS_UNSUPPORTED, "backend mpi needs ranks that mpirun starts; these come from %s: put mpirun -n %d before "
                                   "the command in its place", text, ranks);
}

ls_status ls_backend_launched(int ranks)
{
    ls_job_env j;
    LS_TRY(ls_job_env_read(&j));
    if (flavour_for(j.source)) return LS_OK;
    return no_mpirun(j.source, ls_job_source_text(&j), j.source == LS_JOB_ALONE ? ranks : j.size);
}

static ls_status check_launcher(const ls_world *w, const flavour **out)
{
    if (w->threads)
        return ls_fail(LS_UNSUPPORTED, "backend mpi needs a process for each rank: here ranks are threads");
    *out = flavour_for(w->source);
    return *out ? LS_OK : no_mpirun(w->source, w->source_text, w->size);
}

static void enter(struct ls_backend *b)
{
    while (atomic_exchange_explicit(&b->busy, 1, memory_order_acquire)) ls_env_get()->yield();
}

static bool try_enter(struct ls_backend *b) { return !atomic_exchange_explicit(&b->busy, 1, memory_order_acquire); }
static void leave(struct ls_backend *b) { atomic_store_explicit(&b->busy, 0, memory_order_release); }

static void release(struct ls_backend *b)
{
    if (b) free(b->share);
    free(b);
}

ls_status ls_backend_open(ls_engine *e)
{
    ls_world *w = e->w;
    const char *asked = w->opts.backend;
    const flavour *f;
    char path[512], why[LS_ERROR_BYTES] = "", what[200], here = 1;
    if (!asked || strcmp(asked, "sched") == 0) {
        if (!w->opts.rank_order) return LS_OK;
        return ls_fail(LS_BAD_CONFIG, "comm.order ranks is for backend mpi: Lockstep's own algorithms state their order");
    }
    if (strcmp(asked, "mpi") != 0)
        return ls_fail(LS_BAD_CONFIG, "no backend named '%s': expected sched or mpi", asked);
    if (w->opts.algo)
        return ls_fail(LS_BAD_CONFIG, "algorithm '%s' is asked for, but with backend mpi the MPI library chooses its own",
                       w->opts.algo);
    if (w->opts.wire_bf16)
        return ls_fail(LS_BAD_CONFIG, "bf16 on the wire (comm.wire) is asked for, but with backend mpi the MPI library "
                                      "decides what travels");
    LS_TRY(check_launcher(w, &f));
    struct ls_backend *b = calloc(1, sizeof *b);
    char *all = calloc((size_t)w->size, 1);
    if (b) b->share = calloc(2 * (size_t)w->size, sizeof *b->share);
    if (!b || !all || !b->share) {
        free(all);
        release(b);
        return ls_fail(LS_NO_MEMORY, "a backend for %d ranks", w->size);
    }
    b->from = b->share + w->size;
    b->name = f->name;
    ls_status st = load(f, true, &b->ops, path, sizeof path);
    if (st < 0) st = ls_while(st, "opening backend mpi");
    /* nobody enters MPI, where nothing ends a wait, before all can */
    if (st == LS_OK) st = ls_world_exchange(w, "backend", &here, 1, all);
    free(all);
    if (st == LS_OK) {
        bool threaded = w->opts.progress == LS_PROGRESS_THREAD;
        st = b->ops->open(w->rank, w->size, threaded, &b->lib, &b->world, why);
        if (st < 0) st = ls_fail(st, "%s", why);
    }
    if (st < 0) {
        release(b);
        return st;
    }
    e->backend = b;
    b->ops->describe(what, sizeof what);
    snprintf(b->text, sizeof b->text, "mpi (%s); reduction order: %s; fail-stop: a rank that dies ends the job", what,
             w->opts.rank_order ? "ascending ranks" : "MPI's own");
    ls_log(LS_LOG_INFO, "backend %s, by %s", b->text, path);
    return LS_OK;
}

const char *ls_comm_text(const ls_world *w)
{
    if (w->engine->backend) return w->engine->backend->text;
    if (w->size > 1 && w->group->mapped && !w->group->asked[LS_ALL_REDUCE]) return "sched (Lockstep's own); reduction order: ascending ranks";
    return "sched (Lockstep's own); reduction order: stated by each algorithm (`lockstep help collectives`)";
}

/* At once, and by one rank: mpirun may end it any moment. */
static void say_over(const ls_world *w)
{
    char text[LS_ERROR_BYTES] = "a failure";
    ls_status s = LS_OK;
    int about = -1;
    (void)ls_page_cause(w->page, &about, &s, text, sizeof text);
    if (w->rank == (s == LS_RANK_DIED && about == 0 ? 1 : 0))
        ls_log(LS_LOG_WARN, "%s; an MPI job does not outlive that: every rank leaves, or is ended by mpirun, and none is "
                            "started again", text);
}

void ls_backend_close(ls_engine *e)
{
    struct ls_backend *b = e->backend;
    if (!b) return;
    const ls_world *w = e->w;
    if (w->failed && w->size > 1) say_over(w);
    enter(b);
    b->ops->close(b->lib, b->world, w->failed);
    release(b);
    e->backend = NULL;
}

bool ls_backend_is_planned(const ls_world *w)
{
    return w->alone && w->opts.backend && strcmp(w->opts.backend, "sched") != 0;
}

ls_backend_group *ls_backend_world(const ls_engine *e) { return e->backend ? e->backend->world : NULL; }

ls_status ls_backend_split(ls_group *parent, int color, ls_backend_group **out)
{
    struct ls_backend *b = parent->e->backend;
    char why[LS_ERROR_BYTES] = "";
    *out = NULL;
    if (!b) return LS_OK;
    enter(b);
    ls_status st = b->ops->split(parent->backend, color, out, why);
    leave(b);
    return st < 0 ? ls_fail(st, "splitting group %s: %s", parent->text, why) : LS_OK;
}

void ls_backend_destroy(ls_engine *e, ls_backend_group *g)
{
    struct ls_backend *b = e->backend;
    if (!b || !g || g == b->world) return;
    enter(b);
    b->ops->destroy(g);
    leave(b);
}

/* --- works ---------------------------------------------------------------------------------------------- */

static ls_range recv_share(const ls_work *k, int r)
{
    ls_range s = { 0, 0 };
    if (!k->recv_counts) return ls_work_share(k, r);
    for (int q = 0; q < r; q++) s.first += k->recv_counts[q];
    s.count = k->recv_counts[r];
    return s;
}

static ls_status start(struct ls_backend *b, ls_work *k)
{
    ls_group *g = k->g;
    ls_range *share = b->share, *from = b->from;
    char why[LS_ERROR_BYTES] = "";
    bool all_to_all = k->a.coll == LS_ALL_TO_ALL, message = k->a.coll == LS_SENDRECV;
    if (k->span) ls_spans_pack(k);
    for (int r = 0; r < g->size; r++) share[r] = message ? (ls_range){ 0, 0 } : ls_work_share(k, r);
    for (int r = 0; r < g->size && all_to_all; r++) from[r] = recv_share(k, r);
    ls_backend_call c = { .coll = k->a.coll, .dtype = k->a.dtype, .op = k->a.op, .root = k->a.root,
                          .peer = k->peer, .tag = (int)(k->says >> 55), .in = k->a.in, .out = k->a.out,
                          .count = k->a.count, .rank_order = g->w->opts.rank_order,
                          .share = share,
                          .recv_share = all_to_all ? from : NULL };
    ls_status st = b->ops->start(g->backend, &c, &k->request, why);
    if (st < 0) return ls_fail(st, "rank %d: %s: %s", g->w->rank, ls_coll_name(k->a.coll), why);
    k->phase = 1;
    return LS_OK;
}

ls_status ls_backend_turn(ls_work *k)
{
    struct ls_backend *b = k->g->e->backend;
    char why[LS_ERROR_BYTES] = "";
    if (!try_enter(b)) return LS_AGAIN; /* the other thread is making a group */
    ls_status st = k->phase == 0 ? start(b, k) : LS_OK;
    if (st == LS_OK && (st = b->ops->test(k->request, why)) < 0)
        st = ls_fail(st, "rank %d: %s #%u: %s", k->g->w->rank, ls_coll_name(k->a.coll), k->desc.seq, why);
    char text[LS_ERROR_BYTES];
    if (st < 0) memcpy(text, ls_last_error(), sizeof text);
    leave(b);
    if (st == LS_OK && k->span) ls_spans_unpack(k);
    if (st == LS_AGAIN || k->a.coll == LS_SENDRECV) return st;
    /* what moves has no description with it, and may fit all the same */
    ls_status differs = ls_mismatch_compare(k->g, k);
    return differs < 0 || st == LS_OK ? differs : ls_fail(st, "%s", text);
}

const ls_form ls_form_backend = {
    .name = "mpi",
    .about = "whole, by the library that --backend names",
    .turn = ls_backend_turn,
};
