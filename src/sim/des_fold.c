/* des_fold.c -- one process for all that do the same at the same times.
 *
 * Classes are refined until they are stable, as colors of a graph: two processes stay in one class while the processes
 * that they name, and the members of their groups, are of equal classes. Then what processes name is compared class by
 * class, so that colors that are the same by chance fold nothing; of groups, sums of 64-bit colors are compared.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/des.h"

/* What programs that are the same list name, each once. */
typedef struct list {
    const ls_des_op *program;
    uint32_t first, n; /* in `named` */
} list;

typedef struct folder {
    const ls_des_model *m;
    list *list;         /* owned, as all here: [nlists] */
    uint32_t nlists, *list_of; /* [n] */
    ls_des_op *named;   /* operations whose `cost` is 0 */
    uint32_t nnamed, cap;
    uint64_t *color, *next; /* [n] */
    uint64_t *group;    /* [ngroups]: colors of groups */
    uint32_t *class_of; /* [n] */
    uint32_t *one;      /* [n]: the first process of each class */
    uint32_t nclasses;
    uint64_t *table;    /* [2 n] */
} folder;

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2))) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 29) * 0x94d049bb133111ebu;
    return x ^ x >> 32;
}

/* --- lists ------------------------------------------------------------------------------------------- */

static bool same(ls_des_op a, ls_des_op b) { return a.kind == b.kind && a.who == b.who && a.via == b.via; }

static ls_status add_list(folder *f, const ls_des_op *program)
{
    list *l = &f->list[f->nlists++];
    *l = (list){ .program = program, .first = f->nnamed };
    for (const ls_des_op *a = program; a->kind != LS_DES_END; a++) {
        uint32_t i = l->n;
        if (a->kind == LS_DES_WORK) continue;
        while (i > 0 && !same(f->named[l->first + i - 1], *a)) i--;
        if (i > 0) continue;
        if (f->nnamed == f->cap) {
            const uint32_t cap = f->cap ? 2 * f->cap : 256;
            ls_des_op *more = realloc(f->named, cap * sizeof *more);
            if (!more) return ls_fail(LS_NO_MEMORY, "the classes of %u processes", f->m->n);
            f->named = more;
            f->cap = cap;
        }
        f->named[f->nnamed] = *a;
        f->named[f->nnamed++].cost = 0;
        l->n++;
    }
    return LS_OK;
}

/* By address; a table with open addressing, of which `table` has the memory. */
static ls_status find_lists(folder *f)
{
    const ls_des_model *m = f->m;
    memset(f->table, 0, 2 * (size_t)m->n * sizeof *f->table);
    for (uint32_t p = 0; p < m->n; p++) {
        size_t i = (size_t)(mix((uint64_t)(uintptr_t)m->program[p], 0) % (2 * (uint64_t)m->n));
        while (f->table[i] != 0 && f->list[f->table[i] - 1].program != m->program[p])
            i = i + 1 < 2 * (size_t)m->n ? i + 1 : 0;
        if (f->table[i] == 0) {
            if (f->nlists > m->n / 2) return LS_OK; /* hardly two are alike */
            LS_TRY(add_list(f, m->program[p]));
            f->table[i] = f->nlists;
        }
        f->list_of[p] = (uint32_t)f->table[i] - 1;
    }
    return LS_OK;
}

/* --- classes -------------------------------------------------------------------------------------------- */

static void color_groups(folder *f)
{
    const ls_des_model *m = f->m;
    for (uint32_t g = 0; g < m->ngroups; g++) f->group[g] = m->members[g];
    for (size_t i = 0; i < (size_t)m->axes * m->n; i++)
        if (m->group[i] < m->ngroups) f->group[m->group[i]] += mix(f->color[i % m->n], 1);
}

static uint64_t color_of(const folder *f, uint32_t p)
{
    const list *l = &f->list[f->list_of[p]];
    uint64_t c = f->color[p];
    for (uint32_t i = 0; i < l->n; i++) {
        const ls_des_op a = f->named[l->first + i];
        const uint32_t to = ls_des_peer(f->m, p, a);
        if (a.kind == LS_DES_MEET)
            c = mix(c, a.who < f->m->axes ? f->group[f->m->group[(size_t)a.who * f->m->n + p]] : 0);
        else c = mix(c, to < f->m->n ? f->color[to] : 0);
    }
    return c;
}

/* Numbers classes by their first process: a table with open addressing, as in find_lists. */
static void number(folder *f)
{
    const uint32_t n = f->m->n;
    const size_t slots = 2 * (size_t)n;
    memset(f->table, 0, slots * sizeof *f->table);
    f->nclasses = 0;
    for (uint32_t p = 0; p < n; p++) {
        size_t i = (size_t)(f->color[p] % slots);
        while (f->table[i] != 0 && f->color[f->one[f->table[i] - 1]] != f->color[p]) i = i + 1 < slots ? i + 1 : 0;
        if (f->table[i] == 0) {
            f->one[f->nclasses++] = p;
            f->table[i] = f->nclasses;
        }
        f->class_of[p] = (uint32_t)f->table[i] - 1;
    }
}

static void refine(folder *f)
{
    const ls_des_model *m = f->m;
    for (uint32_t p = 0; p < m->n; p++) {
        uint64_t pace = 0;
        if (m->pace) memcpy(&pace, &m->pace[p], sizeof pace);
        f->color[p] = mix(f->list_of[p], pace);
    }
    for (uint32_t before = 0;; before = f->nclasses) {
        number(f);
        if (f->nclasses == before || f->nclasses > m->n / 2) return;
        color_groups(f);
        for (uint32_t p = 0; p < m->n; p++) f->next[p] = color_of(f, p);
        memcpy(f->color, f->next, m->n * sizeof *f->color);
    }
}

/* --- comparing ------------------------------------------------------------------------------------------- */

/* What a process names is what the first one of its class names, class by class; and no two of the processes that it
 * sends to, or receives from, by the same `via`, are of one class. */
static bool is_like(const folder *f, uint32_t p)
{
    const ls_des_model *m = f->m;
    const uint32_t q = f->one[f->class_of[p]];
    const list *l = &f->list[f->list_of[p]];
    if (f->list_of[q] != f->list_of[p] || (m->pace && m->pace[p] != m->pace[q])) return false;
    for (uint32_t i = 0; i < l->n; i++) {
        const ls_des_op a = f->named[l->first + i];
        if (a.kind == LS_DES_MEET) {
            if (a.who >= m->axes) return false;
            const uint32_t *group = m->group + (size_t)a.who * m->n;
            if (f->group[group[p]] != f->group[group[q]]) return false;
            continue;
        }
        const uint32_t to = ls_des_peer(m, p, a), there = ls_des_peer(m, q, a);
        if (to >= m->n || there >= m->n || f->class_of[to] != f->class_of[there]) return false;
        for (uint32_t k = 0; p == q && k < i; k++) { /* of the first; then it holds for those that are like it */
            const ls_des_op b = f->named[l->first + k];
            if (b.kind == a.kind && b.via == a.via && f->class_of[ls_des_peer(m, p, b)] == f->class_of[to])
                return false;
        }
    }
    return true;
}

/* --- the smaller model --------------------------------------------------------------------------------------- */

/* A class's program names classes. */
static ls_des_op *put_program(const folder *f, uint32_t c, ls_des_op *at)
{
    const uint32_t p = f->one[c];
    for (const ls_des_op *a = f->m->program[p];; a++) {
        *at = *a;
        if (a->kind == LS_DES_SEND || a->kind == LS_DES_RECV)
            at->who = f->class_of[ls_des_peer(f->m, p, *a)] & 0x1fffffffu;
        at++;
        if (a->kind == LS_DES_END) return at;
    }
}

/* The groups that the first of each class is in, of which those with equal colors are one. */
static uint32_t put_groups(const folder *f, uint32_t *group, uint32_t *members, uint64_t *color)
{
    const ls_des_model *m = f->m;
    uint32_t n = 0;
    for (uint32_t a = 0; a < m->axes; a++) {
        const uint32_t first = n; /* groups of different axes are different */
        for (uint32_t c = 0; c < f->nclasses; c++) {
            const uint32_t g = m->group[(size_t)a * m->n + f->one[c]];
            const uint64_t like = g < m->ngroups ? f->group[g] : 0;
            uint32_t i = first;
            while (i < n && color[i] != like) i++;
            if (i == n) color[n] = like, members[n++] = 0;
            members[i]++;
            group[(size_t)a * f->nclasses + c] = i;
        }
    }
    return n;
}

static ls_status make(folder *f, ls_des_folded *out)
{
    const ls_des_model *m = f->m;
    const size_t n = f->nclasses, groups = n * m->axes;
    size_t ops = 0;
    for (uint32_t c = 0; c < n; c++)
        for (const ls_des_op *a = m->program[f->one[c]]; ops++, a->kind != LS_DES_END;) a++;
    const size_t bytes = n * (sizeof(ls_des_op *) + sizeof(double)) + ops * sizeof(ls_des_op) +
                         groups * (sizeof(uint64_t) + 2 * sizeof(uint32_t));
    char *at = out->memory = malloc(bytes + 1);
    if (!at) return ls_fail(LS_NO_MEMORY, "%zu classes of processes", n);
    ls_des_op **program = (ls_des_op **)(void *)at;
    double *pace = (double *)(void *)(at += n * sizeof *program);
    uint64_t *color = (uint64_t *)(void *)(at += n * sizeof *pace);
    ls_des_op *op = (ls_des_op *)(void *)(at += groups * sizeof *color);
    uint32_t *group = (uint32_t *)(void *)(at += ops * sizeof *op), *members = group + groups;
    for (uint32_t c = 0; c < n; c++) {
        program[c] = op;
        op = put_program(f, c, op);
        pace[c] = m->pace ? m->pace[f->one[c]] : 1;
    }
    out->model = *m;
    out->model.n = f->nclasses;
    out->model.program = (const ls_des_op *const *)program;
    out->model.base = NULL;
    out->model.flips = false;
    out->model.pace = m->pace ? pace : NULL;
    out->model.ngroups = put_groups(f, group, members, color);
    out->model.group = group;
    out->model.members = members;
    out->class_of = f->class_of;
    f->class_of = NULL;
    return LS_OK;
}

static ls_status fold(folder *f, ls_des_folded *out)
{
    const size_t n = f->m->n;
    f->list = malloc(n * sizeof *f->list);
    f->list_of = malloc(n * sizeof *f->list_of);
    f->color = malloc(n * sizeof *f->color);
    f->next = malloc(n * sizeof *f->next);
    f->group = calloc((size_t)f->m->ngroups + 1, sizeof *f->group);
    f->class_of = malloc(n * sizeof *f->class_of);
    f->one = malloc(n * sizeof *f->one);
    f->table = malloc(2 * n * sizeof *f->table);
    if (!f->list || !f->list_of || !f->color || !f->next || !f->group || !f->class_of || !f->one || !f->table)
        return ls_fail(LS_NO_MEMORY, "the classes of %zu processes", n);
    LS_TRY(find_lists(f));
    if (f->nlists > n / 2) return LS_OK;
    refine(f);
    if (f->nclasses > n / 2) return LS_OK;
    color_groups(f);
    for (uint32_t p = 0; p < n; p++)
        if (!is_like(f, p)) return LS_OK;
    return make(f, out);
}

ls_status ls_des_fold(const ls_des_model *m, ls_des_folded *out)
{
    folder f = { .m = m };
    *out = (ls_des_folded){ .model = *m };
    if (m->net.sharing != LS_DES_FREE || m->net.topo || m->place || m->log2_stride > 0 || m->jitter > 0 || m->wake_s ||
        m->n < 1)
        return LS_OK;
    const ls_status st = fold(&f, out);
    free(f.list);
    free(f.list_of);
    free(f.named);
    free(f.color);
    free(f.next);
    free(f.group);
    free(f.class_of);
    free(f.one);
    free(f.table);
    return st;
}

void ls_des_folded_free(ls_des_folded *f)
{
    free(f->class_of);
    free(f->memory);
    *f = (ls_des_folded){ 0 };
}
