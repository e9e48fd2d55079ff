/* probe.c -- what the claims of lab 00 need of the library beside `lockstep train`: each word prints one JSON object.
 *
 *   diff FILE FILE           lines of code that the second file has and the first has not
 *   collectives FILE         calls of collectives in a source file
 *   nodes NODES RANKS        local ranks of a job of so many nodes, all of them on this machine
 *   early [joined]           an all_reduce and a wrapper before this rank has joined a job
 *   replicas [alone]         digests of four ranks' weights after 20 steps, with the wrapper or without
 *   step [sharded]           bytes that backward moves, and the update
 *   save [RANK]              four ranks that are told to save to one path
 *   writers [atomic]         two ranks that write one file at the same time
 *   module [inner|unread]    a file whose names begin with "module." (inner: without; unread: never loaded)
 *   hook [none]              what a communication hook is given
 *   traffic [HOOK]           bytes of a backward without a hook and with one, on two ranks
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../net.h"
#include "probe.h"

enum { MOST_LINES = 2000 };

static ls_ddp_config caps(void) { return (ls_ddp_config){ .first_bucket = 2048, .bucket_cap = 16384 }; }

/* --- diff, collectives ------------------------------------------------------------------------------------------ */

/* Lines of code: without those that are empty, or belong to a comment alone. Cuts `text` up. */
static int code_lines(char *text, const char **line)
{
    bool comment = false;
    int n = 0;
    for (char *p = text, *end; *p && n < MOST_LINES; p = end) {
        end = p + strcspn(p, "\n");
        if (*end) *end++ = 0;
        const char *first = p + strspn(p, " ");
        const bool begins = strncmp(first, "/*", 2) == 0;
        if (*first && !begins && !comment) line[n++] = p;
        if (begins) comment = true;
        if (strstr(p, "*/")) comment = false;
    }
    return n;
}

/* Lines of `b` that are not in a longest common subsequence of the two. */
static int new_lines(const char **a, int na, const char **b, int nb)
{
    int *row = calloc((size_t)nb + 1, sizeof *row);
    if (!row) return -1;
    for (int i = 0; i < na; i++)
        for (int k = 0, corner = 0; k < nb; k++) {
            const int above = row[k + 1];
            row[k + 1] = strcmp(a[i], b[k]) == 0 ? corner + 1 : above > row[k] ? above : row[k];
            corner = above;
        }
    const int common = row[nb];
    free(row);
    return nb - common;
}

static ls_status diff(job *j)
{
    const char **a = calloc(MOST_LINES, sizeof *a), **b = calloc(MOST_LINES, sizeof *b);
    char *one = NULL, *two = NULL;
    size_t nbytes;
    ls_status st = a && b ? LS_OK : ls_fail(LS_NO_MEMORY, "lines");
    if (st == LS_OK) st = read_file(j->more, &one, &nbytes);
    if (st == LS_OK) st = read_file(j->more2, &two, &nbytes);
    if (st == LS_OK) {
        const int na = code_lines(one, a), nb = code_lines(two, b);
        printf("{\"lines\": %d, \"new\": %d}\n", nb, new_lines(a, na, b, nb));
    }
    free(one);
    free(two);
    free(a);
    free(b);
    return st;
}

static ls_status collectives(job *j)
{
    static const char *const call[] = { "ls_all_reduce(", "ls_reduce_scatter(", "ls_all_gather(", "ls_broadcast(",
                                        "ls_reduce(", "ls_coll_start(" };
    char *text = NULL;
    size_t nbytes;
    const ls_status st = read_file(j->more, &text, &nbytes);
    int n = 0;
    for (size_t i = 0; st == LS_OK && i < sizeof call / sizeof *call; i++)
        for (const char *p = text; (p = strstr(p, call[i])); p++) n++;
    if (st == LS_OK) printf("{\"calls\": %d}\n", n);
    free(text);
    return st;
}

/* --- early ------------------------------------------------------------------------------------------------------ */

/* The function that the newest message names first; "": it names none, or nothing failed. */
static void named(ls_status st, char *out, size_t most)
{
    const char *p = st < 0 ? strstr(ls_last_error(), "ls_") : NULL;
    const size_t n = p ? strspn(p, "abcdefghijklmnopqrstuvwxyz_") : 0;
    snprintf(out, most, "%.*s", (int)n, p ? p : "");
}

static ls_status call_early(ls_world *w, void *arg)
{
    char collective[64], wrapper[64];
    const ls_ddp_config c = caps();
    float one = 1;
    net n = { 0 };
    (void)arg;
    LS_TRY(net_open(&n, NULL, NULL, "sgd", 42));
    named(ls_all_reduce(ls_world_group(w), &one, &one, 1, LS_F32, LS_SUM), collective, sizeof collective);
    named(ls_ddp_create(ls_world_group(w), &n.model->params, &c, &n.ddp), wrapper, sizeof wrapper);
    net_close(&n);
    printf("{\"needed\": \"ls_world_join\", \"all_reduce_names\": \"%s\", \"wrapper_names\": \"%s\"}\n", collective, wrapper);
    return LS_OK;
}

static ls_status early(job *j) { return more_is(j, "joined") ? ls_world_threads(1, NULL, call_early, j) : call_early(NULL, j); }

/* --- replicas, step --------------------------------------------------------------------------------------------- */

static ls_status train_replica(ls_world *w, void *arg)
{
    job *j = arg;
    const ls_ddp_config c = caps();
    const int rank = ls_world_rank(w);
    net n;
    ls_status st = net_open(&n, w, more_is(j, "alone") ? NULL : &c, "sgd", 42);
    for (uint64_t step = 0; st == LS_OK && step < 20; step++) {
        st = net_backward(&n, step, 8 * rank, 8, 1.0f);
        if (st == LS_OK) st = ls_optim_step(n.optim);
    }
    if (st == LS_OK) st = ls_params_digest(&n.model->params, j->digest[rank]);
    net_close(&n);
    return st;
}

static ls_status replicas(job *j)
{
    LS_TRY(ls_world_threads(RANKS, NULL, train_replica, j));
    int different = 0;
    for (int r = 0; r < RANKS; r++) {
        bool seen = false;
        for (int k = 0; k < r; k++) seen = seen || strcmp(j->digest[k], j->digest[r]) == 0;
        different += !seen;
    }
    printf("{\"different\": %d}\n", different);
    return LS_OK;
}

/* Bytes that this rank has moved since *before. */
static uint64_t moved(const ls_world *w, const ls_comm_stats *before)
{
    ls_comm_stats now;
    ls_comm_stats_read(w, &now);
    ls_comm_stats_since(before, &now);
    return now.bytes;
}

static ls_status count_step(ls_world *w, void *arg)
{
    job *j = arg;
    ls_ddp_config c = caps();
    c.zero_stage = more_is(j, "sharded");
    const int rank = ls_world_rank(w);
    net n;
    ls_status st = net_open(&n, w, &c, "sgd", 42);
    for (uint64_t step = 0; st == LS_OK && step < 3; step++) {
        ls_comm_stats before;
        ls_comm_stats_read(w, &before);
        st = net_backward(&n, step, 8 * rank, 8, 1.0f);
        if (rank == 0) j->bytes[0] = moved(w, &before);
        ls_comm_stats_read(w, &before);
        if (st == LS_OK) st = ls_optim_step(n.optim);
        if (st == LS_OK) st = ls_ddp_after_step(n.ddp);
        if (rank == 0) j->bytes[1] = moved(w, &before);
    }
    net_close(&n);
    return st;
}

static ls_status step(job *j)
{
    LS_TRY(ls_world_threads(RANKS, NULL, count_step, j));
    printf("{\"backward\": %llu, \"update\": %llu}\n", (unsigned long long)j->bytes[0], (unsigned long long)j->bytes[1]);
    return LS_OK;
}

/* --- hook, traffic ---------------------------------------------------------------------------------------------- */

typedef struct watcher {
    ls_comm_hook hook; /* first: DDP hands it back */
    const ls_params *ps;
    job *to; /* NULL on ranks that do not tell */
} watcher;

static ls_status start(ls_comm_hook *h, ls_group *g, const ls_grad_bucket *b, ls_work **work)
{
    const watcher *x = (const watcher *)h;
    const ls_coll_args a = { .coll = LS_ALL_REDUCE, .dtype = LS_F32, .out = b->data, .count = b->count, .op = LS_AVG, .label = "probe" };
    if (x->to) {
        x->to->ascending += b->index == x->to->calls++;
        if (b->is_last) x->to->last = b->index;
        for (int i = 0; i < b->nparams; i++) x->to->elements += ls_tensor_count(&x->ps->item[b->param[i]].t);
    }
    return ls_coll_start(g, &a, work);
}

static ls_status watch(ls_world *w, void *arg)
{
    job *j = arg;
    const ls_ddp_config c = caps();
    const int rank = ls_world_rank(w);
    watcher x = { .hook = { .name = "probe", .start = start }, .to = rank == 0 ? j : NULL };
    net n;
    ls_status st = net_open(&n, w, &c, "sgd", 42);
    x.ps = &n.model->params;
    if (st == LS_OK && !more_is(j, "none")) st = ls_ddp_set_hook(n.ddp, &x.hook);
    for (uint64_t step = 0; st == LS_OK && step < 3; step++) {
        if (rank == 0) j->calls = j->ascending = 0, j->last = -1, j->elements = 0;
        st = net_backward(&n, step, 8 * rank, 8, 1.0f);
    }
    if (rank == 0)
        for (int i = 0; st == LS_OK && i < x.ps->n; i++) j->parameters += ls_tensor_count(&x.ps->item[i].t);
    net_close(&n);
    return st;
}

static ls_status hook(job *j)
{
    LS_TRY(ls_world_threads(RANKS, NULL, watch, j));
    printf("{\"calls\": %d, \"ascending\": %d, \"last\": %d, \"elements\": %lld, \"parameters\": %lld}\n", j->calls, j->ascending,
           j->last, (long long)j->elements, (long long)j->parameters);
    return LS_OK;
}

static ls_status count_traffic(ls_world *w, void *arg)
{
    job *j = arg;
    const ls_ddp_config c = caps();
    const int rank = ls_world_rank(w);
    ls_status st = LS_OK;
    for (int hooked = 0; st == LS_OK && hooked < 2; hooked++) {
        ls_comm_hook *h = NULL;
        net n;
        st = net_open(&n, w, &c, "sgd", 42);
        if (st == LS_OK && hooked) st = ls_hook_named(*j->more ? j->more : "bf16", NULL, &h);
        if (st == LS_OK && hooked) st = ls_ddp_set_hook(n.ddp, h);
        for (uint64_t i = 0; st == LS_OK && i < 3; i++) {
            ls_comm_stats before;
            ls_comm_stats_read(w, &before);
            st = net_backward(&n, i, 8 * rank, 8, 1.0f);
            if (rank == 0) j->bytes[hooked] = moved(w, &before);
        }
        net_close(&n);
    }
    return st;
}

static ls_status traffic(job *j)
{
    LS_TRY(ls_world_threads(2, NULL, count_traffic, j));
    printf("{\"f32\": %llu, \"hook\": %llu}\n", (unsigned long long)j->bytes[0], (unsigned long long)j->bytes[1]);
    return LS_OK;
}

/* --- the words -------------------------------------------------------------------------------------------------- */

static ls_status make_folder(job *j)
{
    const char *tmp = getenv("TMPDIR");
    const int n = snprintf(j->folder, sizeof j->folder, "%s/lockstep-probe-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (n > 0 && (size_t)n < sizeof j->folder && mkdtemp(j->folder)) return LS_OK;
    const ls_status st = ls_fail(LS_IO, "a folder in %.300s: %s", tmp && *tmp ? tmp : "/tmp", strerror(errno));
    *j->folder = 0;
    return st;
}

static void remove_folder(const job *j)
{
    static const char *const file[] = { "secret", "model.safetensors", "module.safetensors", "own-0.safetensors", "own-1.safetensors" };
    char path[PATH + 32];
    for (size_t i = 0; *j->folder && i < sizeof file / sizeof *file; i++) {
        snprintf(path, sizeof path, "%s/%s", j->folder, file[i]);
        (void)remove(path); /* most of them were not written */
    }
    if (*j->folder) (void)rmdir(j->folder);
}

int main(int argc, char **argv)
{
    static const struct { const char *word; ls_status (*run)(job *j); bool writes; } words[] = {
        { "diff", diff, false }, { "collectives", collectives, false }, { "nodes", nodes, true }, { "early", early, false },
        { "replicas", replicas, false }, { "step", step, false }, { "save", save, true }, { "writers", writers, true },
        { "module", module, true }, { "hook", hook, false }, { "traffic", traffic, false },
    };
    static job j;
    const char *word = argc > 1 ? argv[1] : "";
    if (strcmp(word, "report") == 0) { /* a rank of `nodes` */
        const ls_status st = ls_world_run(NULL, report, NULL);
        if (st < 0) fprintf(stderr, "probe: error[%s]: %s\n", ls_status_word(st), ls_last_error());
        return ls_status_exit_code(st);
    }
    j = (job){ .more = argc > 2 ? argv[2] : "", .more2 = argc > 3 ? argv[3] : "" };
    ls_status st = ls_fail(LS_USAGE, "expected diff, collectives, nodes, early, replicas, step, save, writers, module, hook or traffic");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i].word, word) == 0) {
            st = words[i].writes ? make_folder(&j) : LS_OK;
            if (st == LS_OK) st = words[i].run(&j);
            remove_folder(&j);
            break;
        }
    if (st < 0) fprintf(stderr, "probe: error[%s]: %s\n", ls_status_word(st), ls_last_error());
    return ls_status_exit_code(st);
}
