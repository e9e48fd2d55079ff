/* gemm_dnnl.c -- large matrix products by oneDNN's C interface.
 *
 * Preparing a product costs oneDNN 5 to 500 us, running it 0.3 us: so each
 * shape is prepared once and its memory objects are pointed at the operands
 * of the call. oneDNN has several primitives for the same product, which differ
 * by up to 1.5x: choose() knows which is the fast one.
 *
 * With more threads oneDNN cuts the sums over K otherwise, or into other blocks
 * (an AMX instruction adds up 32 terms before it adds them to C), so other bits
 * come out. Therefore it never sees more than one thread: a product is cut into
 * pieces of C, whose number and sizes do not depend on threads (gemm_dnnl_cut.c),
 * and threads share the pieces.
 */
#if defined(LOCKSTEP_GEMM_DNNL)
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "tensor/gemm_dnnl.h"
#include "tensor/threads.h"

static const char *const way_names[LS_DNNL_WAYS] = { "matmul", "sgemm" };
static const int argument[LS_DNNL_OPERANDS] = {
    DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD,
};

struct ls_gemm_library {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    ls_dnnl_product *item; /* owned */
    int n, cap;
    char *scratch; /* owned, shared by all products: they run one after the other */
    size_t scratch_bytes;
    dnnl_cpu_isa_t isa; /* asked once */
    ls_dnnl_openmp openmp;
    int forced;    /* way; -1: choose */
};

const char *ls_gemm_library_name(void) { return "oneDNN"; }

static bool has(dnnl_cpu_isa_t isa)
{
    return ((unsigned)dnnl_get_effective_cpu_isa() & (unsigned)isa) == (unsigned)isa;
}

bool ls_gemm_library_has_bf16(void) { return has(dnnl_cpu_isa_avx512_core_bf16); }

/* The best of what both versions of oneDNN name. */
void ls_gemm_library_describe(char *out, size_t n)
{
    static const struct { dnnl_cpu_isa_t isa; const char *name; } known[] = {
        { dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx" },   { dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16" },
        { dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni" }, { dnnl_cpu_isa_avx512_core, "avx512_core" },
        { dnnl_cpu_isa_avx2, "avx2" },                         { dnnl_cpu_isa_avx, "avx" },
        { dnnl_cpu_isa_sse41, "sse41" },
    };
    const dnnl_version_t *v = dnnl_version();
    const char *best = "no vectors";
    for (size_t i = sizeof known / sizeof *known; i-- > 0;)
        if (has(known[i].isa)) best = known[i].name;
    snprintf(out, n, "oneDNN %d.%d.%d (%s)", v->major, v->minor, v->patch, best);
}

const char *ls_gemm_library_way(int i) { return i >= 0 && i < LS_DNNL_WAYS ? way_names[i] : NULL; }
void ls_gemm_library_force(ls_gemm_library *l, int i) { l->forced = i; }

ls_status ls_gemm_library_open(ls_gemm_library **out)
{
    *out = NULL;
    ls_gemm_library *l = calloc(1, sizeof *l);
    if (!l) return ls_fail(LS_NO_MEMORY, "oneDNN's context");
    l->forced = -1;
    l->isa = dnnl_get_effective_cpu_isa();
    l->openmp = ls_dnnl_find_openmp();
    dnnl_status_t got = dnnl_engine_create(&l->engine, dnnl_cpu, 0);
    if (got == dnnl_success) got = dnnl_stream_create(&l->stream, l->engine, dnnl_stream_default_flags);
    if (got != dnnl_success) {
        ls_gemm_library_close(l);
        return ls_dnnl_refused(got, "creating an engine");
    }
    *out = l;
    return LS_OK;
}

void ls_gemm_library_close(ls_gemm_library *l)
{
    if (!l) return;
    for (int i = 0; i < l->n; i++) ls_dnnl_release(&l->item[i]);
    if (l->stream) dnnl_stream_destroy(l->stream);
    if (l->engine) dnnl_engine_destroy(l->engine);
    free(l->scratch);
    free(l->item);
    free(l);
}

static bool can(ls_dnnl_way w, const ls_gemm_call *c) { return w == LS_DNNL_MATMUL || c->in == LS_F32; }
bool ls_gemm_library_can(int i, const ls_gemm_call *c) { return can((ls_dnnl_way)i, c); }

#define SGEMM_ROWS 512 /* of C, above which SGEMM is faster where B is transposed */

/* SGEMM is 1.0 to 1.2 times as fast as a matmul of floats where B is not transposed, and where it is and rows are many
 * 1.0 to 1.1 times with AVX-512 (bench_gemm gpt). It has no bias: to write it to C first takes what that gains. */
static ls_dnnl_way usual(const ls_gemm_call *c)
{
    if (c->packed || c->in == LS_BF16 || c->bias) return LS_DNNL_MATMUL;
    if (!c->trans_b) return LS_DNNL_SGEMM;
    return c->m > SGEMM_ROWS && has(dnnl_cpu_isa_avx512_core) ? LS_DNNL_SGEMM : LS_DNNL_MATMUL;
}

static ls_dnnl_way choose(const ls_gemm_library *l, const ls_gemm_call *c)
{
    const bool forced = l->forced >= 0 && !c->packed && can((ls_dnnl_way)l->forced, c);
    return forced ? (ls_dnnl_way)l->forced : usual(c);
}

bool ls_gemm_library_prepares(const ls_gemm_call *c) { return usual(c) == LS_DNNL_MATMUL; }

/* Room for at least so much scratch memory; 64-byte aligned. */
static LS_COLD ls_status grow_scratch(ls_gemm_library *l, size_t bytes)
{
    free(l->scratch);
    l->scratch = aligned_alloc(64, (bytes + 63) / 64 * 64);
    l->scratch_bytes = l->scratch ? bytes : 0;
    return l->scratch ? LS_OK : ls_fail(LS_NO_MEMORY, "oneDNN: %zu bytes of scratch memory", bytes);
}

static LS_COLD ls_status add_product(ls_gemm_library *l, const ls_dnnl_product *what, ls_dnnl_product **out)
{
    ls_dnnl_product p = *what;
    if (l->n == l->cap) {
        const int cap = l->cap ? 2 * l->cap : 16;
        ls_dnnl_product *more = realloc(l->item, (size_t)cap * sizeof *more);
        if (!more) return ls_fail(LS_NO_MEMORY, "oneDNN: list of %d products", cap);
        l->item = more;
        l->cap = cap;
    }
    p.cut = ls_dnnl_cut_of(&p.key, LS_DNNL_MATMUL, l->isa);
    const int threads = ls_dnnl_limit_threads(&l->openmp, 1);
    const dnnl_status_t got = ls_dnnl_prepare(l->engine, &p);
    ls_dnnl_limit_threads(&l->openmp, threads);
    ls_status st = got == dnnl_success ? LS_OK : ls_dnnl_refused(got, "preparing a matrix product");
    const size_t scratch = (size_t)p.threads * (p.scratch_bytes + p.copy_bytes);
    if (st == LS_OK && scratch > l->scratch_bytes) st = grow_scratch(l, scratch);
    if (st < 0) {
        ls_dnnl_release(&p);
        return st;
    }
    l->item[l->n] = p;
    *out = &l->item[l->n++];
    return LS_OK;
}

static bool same(const ls_dnnl_product *x, const ls_dnnl_product *y)
{
    const ls_gemm_call *a = &x->key, *b = &y->key;
    return a->m == b->m && a->n == b->n && a->k == b->k && a->trans_a == b->trans_a && a->trans_b == b->trans_b &&
           a->add == b->add && a->in == b->in && a->out == b->out && !a->bias == !b->bias && !a->packed == !b->packed &&
           x->threads == y->threads;
}

/* --- running it ------------------------------------------------------------------------ */

/* A product that is being run; pieces leave how they ended. */
typedef struct running {
    ls_gemm_library *l;
    const ls_gemm_call *call;
    const ls_dnnl_product *product; /* NULL: SGEMM */
    ls_dnnl_cut cut;
    dnnl_status_t got[LS_DNNL_MOST_PIECES];
} running;

static int64_t less(int64_t a, int64_t b) { return a < b ? a : b; }

LS_KERNEL static void add_row(float *restrict to, const float *restrict x, int64_t n)
{
    for (int64_t j = 0; j < n; j++) to[j] += x[j];
}

static void copy_rows(char *to, size_t to_row, const char *from, size_t from_row, int64_t rows, size_t bytes)
{
    for (int64_t i = 0; i < rows; i++) memcpy(to + (size_t)i * to_row, from + (size_t)i * from_row, bytes);
}

/* Of a thread's copy of columns of B, in whole cache lines. */
static size_t dense_b_bytes(const running *r)
{
    return ((size_t)(r->call->k * r->cut.columns) * sizeof(float) + 63) / 64 * 64;
}

static void run_sgemm(running *r, int i)
{
    const ls_gemm_call *c = r->call;
    const int64_t row = r->cut.across ? 0 : i * r->cut.rows, column = r->cut.across ? i * r->cut.columns : 0;
    const int64_t m = less(r->cut.rows, c->m - row), n = less(r->cut.columns, c->n - column);
    const float *a = (const float *)c->a + row * (c->trans_a ? 1 : c->k);
    int64_t b_row = r->cut.b_row ? r->cut.b_row : c->trans_b ? c->k : c->n;
    const float *b = (const float *)(r->cut.b_row ? r->l->scratch : c->b) + column * (c->trans_b ? c->k : 1);
    float *to = (float *)c->c + row * c->n + column;
    if (r->cut.dense_b) {
        char *copy = r->l->scratch + (size_t)ls_team_index() * dense_b_bytes(r);
        copy_rows(copy, (size_t)n * sizeof *b, (const char *)b, (size_t)c->n * sizeof *b, c->k, (size_t)n * sizeof *b);
        b = (const float *)(const void *)copy;
        b_row = n;
    }
    for (int64_t j = 0; c->bias && j < m; j++) /* it knows no bias: C begins with it */
        if (c->add) add_row(to + j * c->n, c->bias + column, n);
        else memcpy(to + j * c->n, c->bias + column, (size_t)n * sizeof *to);
    r->got[i] = dnnl_sgemm(c->trans_a ? 'T' : 'N', c->trans_b ? 'T' : 'N', m, n, c->k, 1.0f, a,
                           c->trans_a ? c->m : c->k, b, b_row, c->add || c->bias ? 1.0f : 0.0f, to, c->n);
}

/* Piece i of a sum over K: the first into C, the others into scratch memory. */
static void run_split_k(running *r, int i)
{
    const ls_gemm_call *c = r->call;
    const int64_t k = i * r->cut.split_k;
    float *to = i == 0 ? (float *)c->c : (float *)r->l->scratch + (i - 1) * c->m * c->n;
    const float *a = (const float *)c->a + k * c->m, *b = (const float *)c->b + k * c->n;
    const int64_t terms = less(r->cut.split_k, c->k - k);
    const float keep = i == 0 && c->add ? 1.0f : 0.0f;
    r->got[i] = dnnl_sgemm('T', 'N', c->m, c->n, terms, 1.0f, a, c->m, b, c->n, keep, to, c->n);
}

static void run_primitive(running *r, int i)
{
    const ls_gemm_call *c = r->call;
    const ls_dnnl_product *p = r->product;
    const size_t in = ls_dnnl_element_bytes(c->in), out = ls_dnnl_element_bytes(c->out);
    const int64_t row = r->cut.across ? 0 : i * r->cut.rows, column = r->cut.across ? i * r->cut.columns : 0;
    const int64_t m = less(r->cut.rows, c->m - row), n = less(r->cut.columns, c->n - column);
    const ls_dnnl_prepared *by = m < r->cut.rows || n < r->cut.columns ? &p->last : &p->whole;
    const int me = ls_team_index();
    char *scratch = r->l->scratch + (size_t)me * (p->scratch_bytes + p->copy_bytes), *copy = scratch + p->scratch_bytes;
    char *to = (char *)c->c + (size_t)(row * c->n + column) * out;
    const char *a = (const char *)c->a + (size_t)(row * (c->trans_a ? 1 : c->k)) * in;
    const char *b = c->packed ? c->packed : (const char *)c->b + (size_t)(column * c->k) * in;
    const float *bias = c->bias ? c->bias + column : NULL;

    if (r->cut.dense_a) {
        copy_rows(copy, (size_t)m * in, a, (size_t)c->m * in, c->k, (size_t)m * in);
        a = copy;
    }
    /* oneDNN's handles are not const; it writes to C and the scratchpad only. */
    void *operand[LS_DNNL_OPERANDS] = { [LS_DNNL_C] = n < c->n ? copy : to, [LS_DNNL_SCRATCH] = scratch };
    memcpy(&operand[LS_DNNL_A], &a, sizeof a);
    memcpy(&operand[LS_DNNL_B], &b, sizeof b);
    memcpy(&operand[LS_DNNL_BIAS], &bias, sizeof bias);
    dnnl_exec_arg_t args[LS_DNNL_OPERANDS];
    int nargs = 0;
    for (int o = 0; o < LS_DNNL_OPERANDS; o++) {
        const dnnl_memory_t memory = by->memory[me][o];
        if (!memory) continue;
        r->got[i] = dnnl_memory_set_data_handle(memory, operand[o]);
        if (r->got[i] != dnnl_success) return;
        args[nargs++] = (dnnl_exec_arg_t){ argument[o], memory };
    }
    r->got[i] = dnnl_primitive_execute(by->run, r->l->stream, nargs, args);
    if (n < c->n) copy_rows(to, (size_t)c->n * out, copy, (size_t)n * out, m, (size_t)n * out);
}

/* oneDNN sums in another order where it finds several threads: each call gets one. */
static void run_piece(void *arg, int64_t i)
{
    running *r = arg;
    const int threads = ls_dnnl_limit_threads(&r->l->openmp, 1);
    if (r->product) run_primitive(r, (int)i);
    else if (r->cut.split_k) run_split_k(r, (int)i);
    else run_sgemm(r, (int)i);
    ls_dnnl_limit_threads(&r->l->openmp, threads);
}

#define STRETCH 16 /* rows of B that are copied at a time */

typedef struct b_rows {
    char *to;
    const char *from;
    size_t to_row, from_row; /* bytes from one to the next; the shorter from_row is copied */
    int64_t n;
} b_rows;

static void copy_stretch(void *arg, int64_t i)
{
    const b_rows *b = arg;
    const int64_t first = i * STRETCH, rows = less(STRETCH, b->n - first);
    copy_rows(b->to + (size_t)first * b->to_row, b->to_row, b->from + (size_t)first * b->from_row, b->from_row, rows,
              b->from_row);
}

/* B once more, in scratch memory, for all pieces. */
static ls_status copy_b(running *r)
{
    const ls_gemm_call *c = r->call;
    const size_t from_row = (size_t)c->n * sizeof(float), to_row = (size_t)r->cut.b_row * sizeof(float);
    if (r->l->scratch_bytes < (size_t)c->k * to_row) LS_TRY(grow_scratch(r->l, (size_t)c->k * to_row));
    b_rows rows = { .to = r->l->scratch, .from = c->b, .to_row = to_row, .from_row = from_row, .n = c->k };
    const int64_t stretches = (c->k + STRETCH - 1) / STRETCH;
    ls_threads_for(ls_threads_pay(2 * c->k * (int64_t)from_row), stretches, copy_stretch, &rows);
    return LS_OK;
}

/* A row of C: the pieces of a sum over K, in their order. */
static void add_split_k(void *arg, int64_t row)
{
    const running *r = arg;
    const ls_gemm_call *c = r->call;
    for (int64_t i = 1; i < r->cut.pieces; i++)
        add_row((float *)c->c + row * c->n, (const float *)r->l->scratch + ((i - 1) * c->m + row) * c->n, c->n);
}

static ls_status run_pieces(running *r)
{
    const int pieces = r->cut.pieces;
    const size_t sums = r->cut.split_k ? (size_t)(pieces - 1) * (size_t)(r->call->m * r->call->n) * sizeof(float) : 0;
    const size_t copies = r->cut.dense_b ? (size_t)ls_team_size() * dense_b_bytes(r) : 0, room = sums + copies;
    if (r->cut.b_row) LS_TRY(copy_b(r));
    if (r->l->scratch_bytes < room) LS_TRY(grow_scratch(r->l, room));
    ls_team_run(run_piece, r, pieces);
    for (int i = 0; i < pieces; i++)
        if (r->got[i] != dnnl_success) return ls_dnnl_refused(r->got[i], "a matrix product");
    if (r->cut.split_k) ls_threads_for(ls_threads_pay((int64_t)sums), r->call->m, add_split_k, r);
    return LS_OK;
}

static ls_status find_product(ls_gemm_library *l, const ls_gemm_call *c, ls_dnnl_product **out)
{
    const ls_dnnl_product wanted = { .key = *c, .threads = ls_team_size() };
    for (int i = 0; i < l->n; i++)
        if (same(&l->item[i], &wanted)) {
            *out = &l->item[i];
            return LS_OK;
        }
    return add_product(l, &wanted, out);
}

/* What the packed layout gains, and where: docs/performance.md. */
bool ls_gemm_library_packs(const ls_gemm_call *c)
{
    return c->in == LS_BF16 || c->bias || c->trans_b;
}

ls_status ls_gemm_library_pack(ls_gemm_library *l, const ls_gemm_call *c, void *to, size_t room, bool *done)
{
    ls_gemm_call packed = *c;
    ls_dnnl_product *p;
    packed.packed = to;
    LS_TRY(find_product(l, &packed, &p));
    *done = p->packed_bytes > 0 && p->packed_bytes <= room;
    if (!*done) return LS_OK;
    void *from; /* oneDNN's handles are not const */
    memcpy(&from, &c->b, sizeof from);
    dnnl_status_t got = dnnl_memory_set_data_handle(p->plain, from);
    if (got == dnnl_success) got = dnnl_memory_set_data_handle(p->packed, to);
    if (got == dnnl_success) got = dnnl_memory_set_data_handle(p->pack_scratch, l->scratch);
    if (got != dnnl_success) return ls_dnnl_refused(got, "naming an operand");
    const dnnl_exec_arg_t args[] = {
        { DNNL_ARG_FROM, p->plain }, { DNNL_ARG_TO, p->packed }, { DNNL_ARG_SCRATCHPAD, p->pack_scratch },
    };
    /* As everywhere: threads of its own would take the cores from the team. */
    const int threads = ls_dnnl_limit_threads(&l->openmp, 1);
    got = dnnl_primitive_execute(p->pack, l->stream, 3, args);
    ls_dnnl_limit_threads(&l->openmp, threads);
    return got == dnnl_success ? LS_OK : ls_dnnl_refused(got, "packing a weight");
}

ls_status ls_gemm_library_run(ls_gemm_library *l, const ls_gemm_call *c)
{
    const ls_dnnl_way by = choose(l, c);
    ls_dnnl_product *p = NULL;
    if (by != LS_DNNL_SGEMM) LS_TRY(find_product(l, c, &p));
    running r = { .l = l, .call = c, .product = p, .cut = p ? p->cut : ls_dnnl_cut_of(c, LS_DNNL_SGEMM, l->isa) };
    return run_pieces(&r);
}
#else
typedef int ls_gemm_dnnl_empty; /* gemm_blas.c is built instead */
#endif
