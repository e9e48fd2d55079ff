/* pipe_csv.c -- pipeline schedules as files: cells, what follows from them, and the messages in them. */
#include "parallel/pipe_csv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longest names first where one begins with another. */
#define WORDS(word)                                                                                                    \
    word(WAIT_REDUCE_GRAD) word(WAIT_SEND_F) word(WAIT_SEND_B) word(REDUCE_GRAD) word(UNSHARD) word(RESHARD)           \
    word(SEND_F) word(RECV_F) word(SEND_B) word(RECV_B) word(F) word(B) word(I) word(W)

#define CONSTANT(name) CELL_##name,
#define NAME(name) #name,
typedef enum cell_kind { WORDS(CONSTANT) CELL_KINDS } cell_kind;
static const char *const cell_name[] = { WORDS(NAME) };

typedef struct cell {
    cell_kind kind;
    int row, column; /* from 0 */
    int stage, micro_batch;
} cell;

typedef struct sheet {
    const char *name; /* of the file */
    cell *item;       /* owned */
    size_t n, cap, computations;
    int rows, longest; /* the most actions that a row has */
    int stages, micro_batches;
} sheet;

/* --- cells --------------------------------------------------------------------------------------- */

#define MOST_NUMBER 1000000000

static bool read_number(const char **at, const char *end, int *out)
{
    const char *p = *at;
    int64_t v = 0;
    for (; p < end && *p >= '0' && *p <= '9' && v < MOST_NUMBER; p++) v = 10 * v + (*p - '0');
    if (p == *at || v >= MOST_NUMBER) return false;
    *at = p;
    *out = (int)v;
    return true;
}

static bool read_kind(const char **at, const char *end, cell_kind *out)
{
    for (int k = 0; k < CELL_KINDS; k++) {
        const size_t n = strlen(cell_name[k]);
        if ((size_t)(end - *at) < n || memcmp(*at, cell_name[k], n) != 0) continue;
        *out = (cell_kind)k;
        *at += n;
        return true;
    }
    return false;
}

static bool is_computation(cell_kind k) { return k >= CELL_F; }
static bool is_message(cell_kind k) { return k >= CELL_SEND_F && k <= CELL_RECV_B; }
static bool is_wait(cell_kind k) { return k == CELL_WAIT_SEND_F || k == CELL_WAIT_SEND_B; }

static ls_status fail_cell(const sheet *s, int row, int column, const char *text, size_t n)
{
    char shown[33];
    snprintf(shown, sizeof shown, "%.*s", n < 32 ? (int)n : 32, text);
    ls_text_printable(shown);
    return ls_fail(LS_BAD_FILE, "%s: row %d, cell %d: '%s': expected a stage, F, B, I or W, and a micro-batch, such as 2F0", s->name, row + 1,
                   column + 1, shown);
}

static ls_status add_cell(sheet *s, const cell *c)
{
    if (s->n == s->cap) {
        const size_t cap = s->cap ? 2 * s->cap : 256;
        cell *item = realloc(s->item, cap * sizeof *item);
        if (!item) return ls_fail(LS_NO_MEMORY, "%s: %zu cells", s->name, cap);
        s->item = item;
        s->cap = cap;
    }
    s->item[s->n++] = *c;
    if (!is_computation(c->kind)) return LS_OK;
    s->computations++;
    if (c->stage >= s->stages) s->stages = c->stage + 1;
    if (c->micro_batch >= s->micro_batches) s->micro_batches = c->micro_batch + 1;
    return LS_OK;
}

static void trim(const char **from, const char **end)
{
    while (*from < *end && (**from == ' ' || **from == '\t')) ++*from;
    while (*end > *from && ((*end)[-1] == ' ' || (*end)[-1] == '\t' || (*end)[-1] == '\r')) --*end;
}

static ls_status read_action(sheet *s, int row, int column, const char *from, const char *end)
{
    const char *at = from;
    cell c = { .row = row, .column = column, .micro_batch = -1 };
    trim(&at, &end);
    if (!read_number(&at, end, &c.stage) || !read_kind(&at, end, &c.kind))
        return fail_cell(s, row, column, from, (size_t)(end - from));
    const bool numbered = read_number(&at, end, &c.micro_batch);
    if (at != end || ((is_computation(c.kind) || is_message(c.kind) || is_wait(c.kind)) && !numbered))
        return fail_cell(s, row, column, from, (size_t)(end - from));
    return add_cell(s, &c);
}

/* "0F0", "", or "(0F3;3B1)OVERLAP_F_B". */
static ls_status read_cell(sheet *s, int row, int column, const char *from, const char *end)
{
    static const char together[] = ")OVERLAP_F_B";
    trim(&from, &end);
    if (from == end) return LS_OK;
    if (*from != '(') return read_action(s, row, column, from, end);
    const size_t n = sizeof together - 1;
    if ((size_t)(end - from) <= n || memcmp(end - n, together, n) != 0)
        return fail_cell(s, row, column, from, (size_t)(end - from));
    end -= n;
    for (const char *at = from + 1; at <= end;) {
        const char *next = memchr(at, ';', (size_t)(end - at));
        if (!next) next = end;
        LS_TRY(read_action(s, row, column, at, next));
        at = next + 1;
    }
    return LS_OK;
}

static ls_status read_rows(sheet *s, const char *at, const char *end)
{
    while (at < end) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        const char *stop = line ? line : end;
        const size_t before = s->n;
        for (int column = 0; at <= stop; column++) {
            const char *comma = memchr(at, ',', (size_t)(stop - at));
            LS_TRY(read_cell(s, s->rows, column, at, comma ? comma : stop));
            at = comma ? comma + 1 : stop + 1;
        }
        if (s->n == before) return ls_fail(LS_BAD_FILE, "%s: row %d is empty: expected the actions of rank %d", s->name, s->rows + 1, s->rows);
        if ((int)(s->n - before) > s->longest) s->longest = (int)(s->n - before);
        s->rows++;
    }
    if (s->computations == 0) return ls_fail(LS_BAD_FILE, "%s: there is no action: expected a row per rank, such as 0F0,0F1,0B0,0B1", s->name);
    return LS_OK;
}

/* --- what follows from them ---------------------------------------------------------------------- */

static bool fits(const sheet *s, ls_pipe_placement where, const cell *c)
{
    if (!is_computation(c->kind)) return true;
    return ls_pipe_place_rank(where, s->rows, c->stage) == c->row;
}

static ls_status find_placement(const sheet *s, ls_pipe_placement *where)
{
    const cell *odd[2] = { NULL, NULL }; /* the first cell that does not fit it */
    for (int w = LS_PIPE_LOOP; w <= LS_PIPE_V; w++)
        for (size_t i = 0; i < s->n && !odd[w]; i++)
            if (!fits(s, (ls_pipe_placement)w, &s->item[i])) odd[w] = &s->item[i];
    *where = odd[LS_PIPE_LOOP] ? LS_PIPE_V : LS_PIPE_LOOP;
    if (!odd[*where] && (*where == LS_PIPE_LOOP || s->stages == 2 * s->rows)) return LS_OK;
    const cell *c = odd[LS_PIPE_LOOP];
    return ls_fail(LS_BAD_FILE,
                   "%s: row %d, cell %d: stage %d is in the row of rank %d: expected it in that of rank %d, or all stages in a V of 2 "
                   "chunks per rank",
                   s->name, c->row + 1, c->column + 1, c->stage, c->row, c->stage % s->rows);
}

static ls_status find_shape(const sheet *s, ls_pipe_shape *shape, ls_pipe_placement *where)
{
    if ((int64_t)s->stages * s->micro_batches > (int64_t)s->computations)
        return ls_fail(LS_BAD_FILE,
                       "%s: %zu computations are fewer than the forwards of %d stages and %d micro-batches: expected each micro-batch in each "
                       "stage",
                       s->name, s->computations, s->stages, s->micro_batches);
    if (s->stages % s->rows != 0)
        return ls_fail(LS_BAD_FILE, "%s: %d stages on the ranks of %d rows: expected a multiple of %d", s->name, s->stages, s->rows, s->rows);
    *shape = (ls_pipe_shape){ s->rows, s->stages / s->rows, s->micro_batches };
    return find_placement(s, where);
}

static ls_pipe_what what_of(cell_kind k)
{
    if (k == CELL_F) return LS_PIPE_FORWARD;
    if (k == CELL_B) return LS_PIPE_BACKWARD;
    return k == CELL_I ? LS_PIPE_BACKWARD_INPUT : LS_PIPE_BACKWARD_WEIGHT;
}

static ls_status make_program(const sheet *s, int most_alive, ls_pipe_program *g)
{
    ls_pipe_shape shape;
    ls_pipe_placement where = LS_PIPE_LOOP;
    LS_TRY(find_shape(s, &shape, &where));
    const int step = 3 * shape.chunks * shape.micro_batches; /* actions, at most */
    LS_TRY(ls_pipe_program_create_empty(where, &shape, s->longest < step ? s->longest : step, g));
    for (size_t i = 0; i < s->n; i++) {
        const cell *c = &s->item[i];
        if (is_computation(c->kind))
            ls_pipe_put(&g->list[c->row], what_of(c->kind), ls_pipe_place_chunk(where, s->rows, c->stage),
                        c->micro_batch);
    }
    const ls_status st = ls_pipe_prove(g, most_alive, 0);
    return st == LS_INTERNAL ? ls_fail(LS_BAD_FILE, "%s: not proved: %s", s->name, ls_last_error()) : st;
}

/* --- messages ------------------------------------------------------------------------------------ */

enum { COMPUTED = 1, SENT = 2, RECEIVED = 4 };

typedef struct post {
    const sheet *s;
    const ls_pipe_program *g;
    unsigned char *flags; /* [2, S, m]: of each activation that a stage gives, then of each gradient */
} post;

/* The flags of what stage `stage` gives forward, or backward; NULL: no such stage, or it gives it to its own rank. */
static unsigned char *flags_of(const post *m, bool forward, int stage, int micro_batch)
{
    const ls_pipe_shape *shape = &m->g->shape;
    const int p = shape->ranks, stages = p * shape->chunks, to = forward ? stage + 1 : stage - 1;
    if (stage < 0 || stage >= stages || to < 0 || to >= stages || micro_batch >= shape->micro_batches) return NULL;
    if (ls_pipe_place_rank(m->g->placement, p, stage) == ls_pipe_place_rank(m->g->placement, p, to)) return NULL;
    const size_t row = (size_t)(forward ? 0 : stages) + (size_t)stage;
    return &m->flags[row * (size_t)shape->micro_batches + (size_t)micro_batch];
}

static ls_status fail_message(const post *m, const cell *c, const char *why)
{
    return ls_fail(LS_BAD_FILE, "%s: row %d, cell %d: %d%s%d: %s", m->s->name, c->row + 1, c->column + 1, c->stage, cell_name[c->kind],
                   c->micro_batch, why);
}

static ls_status check_computation(const post *m, const cell *c)
{
    if (c->kind == CELL_W) return LS_OK;
    const bool forward = c->kind == CELL_F;
    unsigned char *given = flags_of(m, forward, c->stage, c->micro_batch);
    const unsigned char *needed = flags_of(m, forward, forward ? c->stage - 1 : c->stage + 1, c->micro_batch);
    if (given) *given |= COMPUTED;
    if (needed && !(*needed & RECEIVED)) return fail_message(m, c, "expected it after the receive of what it needs");
    return LS_OK;
}

static ls_status check_message(const post *m, const cell *c)
{
    const bool forward = c->kind == CELL_SEND_F || c->kind == CELL_RECV_F || c->kind == CELL_WAIT_SEND_F;
    const bool receives = c->kind == CELL_RECV_F || c->kind == CELL_RECV_B;
    const int from = !receives ? c->stage : forward ? c->stage - 1 : c->stage + 1;
    unsigned char *flags = flags_of(m, forward, from, c->micro_batch);
    if (!flags) return fail_message(m, c, "there is no such message between two ranks");
    if (ls_pipe_place_rank(m->g->placement, m->g->shape.ranks, c->stage) != c->row) return fail_message(m, c, "that stage is on another rank");
    if (is_wait(c->kind)) return *flags & SENT ? LS_OK : fail_message(m, c, "expected it after its send");
    const unsigned char mine = receives ? RECEIVED : SENT;
    if (*flags & mine) return fail_message(m, c, "expected each message once");
    if (!receives && !(*flags & COMPUTED)) return fail_message(m, c, "expected it after the computation of what it sends");
    *flags |= mine;
    return LS_OK;
}

static ls_status check_all_sent(const post *m)
{
    const ls_pipe_shape *shape = &m->g->shape;
    const int stages = shape->ranks * shape->chunks;
    for (int way = 0; way < 2; way++)
        for (int stage = 0; stage < stages; stage++)
            for (int i = 0; i < shape->micro_batches; i++) {
                const unsigned char *flags = flags_of(m, way == 0, stage, i);
                if (flags && !(*flags & SENT))
                    return ls_fail(LS_BAD_FILE, "%s: %dSEND_%c%d is missing: expected all messages or none", m->s->name, stage,
                                   way == 0 ? 'F' : 'B', i);
            }
    return LS_OK;
}

/* Rows one after another: what a row needs to know of others is only how often a message is sent and received. */
static ls_status check_messages(const sheet *s, const ls_pipe_program *g)
{
    post m = { s, g, NULL };
    ls_status st = LS_OK;
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) n += is_message(s->item[i].kind) || is_wait(s->item[i].kind);
    if (n == 0) return LS_OK;
    m.flags = calloc(2 * (size_t)s->stages * (size_t)s->micro_batches, 1);
    if (!m.flags) return ls_fail(LS_NO_MEMORY, "%s: %zu messages", s->name, n);
    for (size_t i = 0; i < s->n && st == LS_OK; i++) {
        const cell *c = &s->item[i];
        if (is_computation(c->kind)) st = check_computation(&m, c);
        else if (is_message(c->kind) || is_wait(c->kind)) st = check_message(&m, c);
    }
    if (st == LS_OK) st = check_all_sent(&m);
    free(m.flags);
    return st;
}

/* --- reading and writing ------------------------------------------------------------------------- */

ls_status ls_pipe_csv_read(const char *name, const char *text, size_t nbytes, int most_alive, ls_pipe_program *out,
                           int *others)
{
    sheet s = { .name = name };
    ls_status st = LS_OK;
    *out = (ls_pipe_program){ 0 };
    if (others) *others = 0;
    if (nbytes > LS_PIPE_MOST_CSV_BYTES) return ls_fail(LS_BAD_FILE, "%s has %zu bytes: expected at most %zu", name, nbytes, LS_PIPE_MOST_CSV_BYTES);
    st = read_rows(&s, text, text + nbytes);
    if (st == LS_OK) st = make_program(&s, most_alive, out);
    if (st == LS_OK) st = check_messages(&s, out);
    for (size_t i = 0; others && i < s.n; i++)
        *others += !is_computation(s.item[i].kind) && !is_message(s.item[i].kind) && !is_wait(s.item[i].kind);
    free(s.item);
    if (st < 0) ls_pipe_program_free(out);
    return st;
}

static const char *comma(const ls_text *out) { return out->n > 0 && out->p[out->n - 1] != '\n' ? "," : ""; }

/* "0SEND_F1", or nothing: the message between the stage of `a`, whose rank writes it down, and another: an activation,
 * or a gradient. */
static void add_message(const ls_pipe_program *g, const char *verb, bool activation, const ls_pipe_action *a, int other,
                        ls_text *out)
{
    const int p = g->shape.ranks, mine = a->stage;
    if (other < 0 || other >= p * g->shape.chunks) return;
    if (ls_pipe_place_rank(g->placement, p, mine) == ls_pipe_place_rank(g->placement, p, other)) return;
    ls_text_add(out, "%s%d%s_%c%d", comma(out), mine, verb, activation ? 'F' : 'B', a->micro_batch);
}

static void write_action(const ls_pipe_program *g, const ls_pipe_action *a, bool messages, ls_text *out)
{
    const bool forward = a->what == LS_PIPE_FORWARD, sends = messages && a->what != LS_PIPE_BACKWARD_WEIGHT;
    const int before = forward ? a->stage - 1 : a->stage + 1, after = forward ? a->stage + 1 : a->stage - 1;
    if (sends) add_message(g, "RECV", forward, a, before, out);
    ls_text_add(out, "%s%d%c%d", comma(out), a->stage, ls_pipe_letter(a->what), a->micro_batch);
    if (sends && !forward) add_message(g, "WAIT_SEND", true, a, a->stage + 1, out); /* it has been received long ago */
    if (sends) add_message(g, "SEND", forward, a, after, out);
}

/* Gradients are waited for when the row has no more to compute. */
static void write_waits(const ls_pipe_program *g, const ls_pipe_list *l, ls_text *out)
{
    for (int i = 0; i < l->n; i++) {
        const ls_pipe_action *a = &l->action[i];
        if (a->what == LS_PIPE_BACKWARD || a->what == LS_PIPE_BACKWARD_INPUT)
            add_message(g, "WAIT_SEND", false, a, a->stage - 1, out);
    }
}

void ls_pipe_csv_write(const ls_pipe_program *g, bool messages, ls_text *out)
{
    for (int r = 0; r < g->shape.ranks; r++) {
        for (int i = 0; i < g->list[r].n; i++) write_action(g, &g->list[r].action[i], messages, out);
        if (messages) write_waits(g, &g->list[r], out);
        ls_text_add(out, "\n");
    }
}
