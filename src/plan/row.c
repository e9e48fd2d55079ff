/* row.c -- reads published measurements from CSV (RFC 4180). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/row.h"

enum { COLUMNS = 64, MOST_CELL = 1 << 16, MOST_SIZE = 1 << 30 };

typedef struct reader {
    const char *name;
    char *at;
    int line;
} reader;

/* The next record: cells are unquoted in place and end with a zero byte. *n = 0: the end of the text. */
static ls_status record(reader *r, char **cell, int *n)
{
    char *in = r->at, *out = r->at;
    const int first = r->line;
    *n = 0;
    while (*in == '\n' || *in == '\r') {
        r->line += *in == '\n';
        in++;
    }
    out = in;
    if (!*in) return LS_OK;
    for (;;) {
        if (*n == COLUMNS) return ls_fail(LS_BAD_FILE, "%s:%d: more than %d columns", r->name, first, COLUMNS);
        cell[(*n)++] = out;
        if (*in == '"') {
            for (in++; *in && (*in != '"' || in[1] == '"'); *out++ = *in++) {
                if (*in == '"') in++;
                r->line += *in == '\n';
            }
            if (!*in) return ls_fail(LS_BAD_FILE, "%s:%d: a quoted cell does not end", r->name, first);
            in++;
        } else {
            while (*in && *in != ',' && *in != '\n' && *in != '\r') *out++ = *in++;
        }
        const char end = *in;
        if (end != ',' && end != '\n' && end != '\r' && end != 0)
            return ls_fail(LS_BAD_FILE, "%s:%d: text after a quoted cell: '%.20s'", r->name, first, in);
        *out++ = 0;
        if (end) in++;
        if (end == ',') continue;
        r->line += end == '\n';
        r->at = in;
        return LS_OK;
    }
}

static const char *const names[] = { "id",       "source",       "model",       "params",    "layers",   "hidden",
             "heads",
                                     "kv_heads", "ffn",          "vocab",       "seq",       "dtype",    "gpu",
                                                     "gpus_per_node",
                                     "n_gpus",   "tp",           "pp",          "vpp",       "cp",       "ep",
                                                      "dp",
                                     "zero_stage", "micro_batch", "global_batch", "recompute", "schedule",
                                         "measured_metric", "measured_value",
                                     "unit",     "note" };
enum { NAMES = sizeof names / sizeof *names };
enum { ID, SOURCE, MODEL, PARAMS, LAYERS, HIDDEN, HEADS, KV_HEADS, FFN, VOCAB, SEQ, DTYPE, GPU, PER_NODE, N_GPUS, TP,
    PP, VPP,
       CP, EP, DP, ZERO, MICRO, BATCH, RECOMPUTE, SCHEDULE, METRIC, VALUE, UNIT, NOTE };

static ls_status number(const reader *r, int line, int column, const char *text, double least, double *out)
{
    char *end;
    if (!*text) return LS_OK;
    *out = strtod(text, &end);
    if (end == text || *end || !isfinite(*out) || *out < least || *out > 1e300)
        return ls_fail(LS_BAD_FILE, "%s:%d: %s is '%.40s'; expected a number%s", r->name, line, names[column], text,
                       least >= 0 ? " of 0 or more" : "");
    return LS_OK;
}

static ls_status whole(const reader *r, int line, int column, const char *text, int64_t *out)
{
    double v = (double)*out;
    LS_TRY(number(r, line, column, text, 0, &v));
    if (v != floor(v) || v > MOST_SIZE)
        return ls_fail(LS_BAD_FILE, "%s:%d: %s is '%.40s'; expected a whole number of at most %d", r->name, line,
                       names[column], text, MOST_SIZE);
    *out = (int64_t)v;
    return LS_OK;
}

static double stated_params(const char *text)
{
    char *end;
    const double v = strtod(text, &end);
    const double unit = *end == 'T' ? 1e12 : *end == 'B' ? 1e9 : *end == 'M' ? 1e6 : 0;
    return v > 0 && isfinite(v) ? v * unit : 0;
}

/* A size in a note, within what a cell may have. */
static int64_t noted(const ls_row *r, const char *key, double absent)
{
    const double v = ls_row_noted(r, key, absent);
    return v >= 0 && v <= MOST_SIZE ? (int64_t)v : (int64_t)absent;
}

/* What the note and the name say of the model's form. */
static void form(ls_row *r)
{
    ls_llm *m = &r->m;
    const char *n = r->name;
    const bool llama = strstr(n, "lama") || strstr(n, "LLaMA") || strstr(n, "LLAMA") || strstr(n, "Qwen") ||
        strstr(n, "DeepSeek") ||
                       strstr(n, "ixtral") || strstr(n, "Kimi") || strstr(n, "OSS");
    m->gated = llama || ls_row_notes(r, "swiglu");
    m->biases = m->positions = !m->gated && !strstr(n, "emotron");
    m->name = n;
    if (m->experts || ls_row_notes(r, "experts=")) {
        m->experts = noted(r, "experts=", 0);
        m->topk = noted(r, "topk=", 1);
        m->shared = noted(r, "shared=", 0);
        m->expert_ffn = noted(r, "moe_ffn=", (double)noted(r, "moe-ffn-hidden-size=", (double)m->ffn));
        m->dense_layers = noted(r, "dense_layers=", 0);
    }
    m->head_dim = noted(r, "head_dim=", 0);
    /* DeepSeek-V3's configuration is public: latent attention, and three dense layers; a row that states its sizes has
     * them, whatever the model's name. Kimi K2 has its attention. */
    const bool v3 = m->layers == 61 && m->hidden == 7168 && m->experts == 256 && m->topk == 8 && m->expert_ffn == 2048;
    if (v3 && !m->dense_layers) m->dense_layers = 3;
    if (v3) m->gated = true, m->biases = m->positions = false;
    if (v3 || ls_row_notes(r, "MLA")) {
        m->q_rank = noted(r, "q_rank=", 1536);
        m->kv_rank = noted(r, "kv_rank=", 512);
        m->nope_dim = 128, m->rope_dim = 64, m->v_dim = 128;
    }
    if (ls_row_notes(r, "MTP 1 ") && !ls_row_notes(r, "w/o MTP")) m->mtp = 1;
    if (ls_row_notes(r, "alternating sliding window")) m->window = 128, m->window_every = 2;
}

static ls_status fill(const reader *r, int line, char **cell, ls_row *o)
{
    const char *t[NAMES];
    for (int i = 0; i < NAMES; i++) t[i] = cell[i];
    if (!*t[ID] || strlen(t[ID]) >= sizeof o->id)
        return ls_fail(LS_BAD_FILE, "%s:%d: id is '%.80s'; expected 1 to %zu characters", r->name, line, t[ID],
                       sizeof o->id - 1);
    strcpy(o->id, t[ID]);
    const char *dash = strrchr(o->id, '-');
    const size_t n = dash && dash > o->id ? (size_t)(dash - o->id) : strlen(o->id);
    memcpy(o->family, o->id, n < sizeof o->family - 1 ? n : sizeof o->family - 1);
    o->line = line;
    o->source = t[SOURCE], o->name = t[MODEL], o->dtype = t[DTYPE], o->gpu = t[GPU], o->recompute = t[RECOMPUTE];
    o->schedule = t[SCHEDULE], o->metric = t[METRIC], o->unit = t[UNIT], o->note = t[NOTE];
    o->params = stated_params(t[PARAMS]);
    o->zero = -1;
    const struct { int column; int64_t *at; } sizes[] = {
        { LAYERS, &o->m.layers }, { HIDDEN, &o->m.hidden }, { HEADS, &o->m.heads }, { KV_HEADS, &o->m.kv_heads },
        { FFN, &o->m.ffn }, { VOCAB, &o->m.vocab }, { SEQ, &o->m.seq }, { PER_NODE, &o->per_node }, { N_GPUS, &o->n },
        { TP, &o->t }, { PP, &o->p }, { VPP, &o->v }, { CP, &o->c }, { EP, &o->e }, { DP, &o->d }, { ZERO, &o->zero },
        { MICRO, &o->micro }, { BATCH, &o->batch },
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        LS_TRY(whole(r, line, sizes[i].column, t[sizes[i].column], sizes[i].at));
    if (!*t[METRIC]) return ls_fail(LS_BAD_FILE, "%s:%d: measured_metric is empty", r->name, line);
    if (!*t[VALUE]) return ls_fail(LS_BAD_FILE, "%s:%d: measured_value is empty", r->name, line);
    LS_TRY(number(r, line, VALUE, t[VALUE], -1e300, &o->value));
    form(o);
    return LS_OK;
}

/* Which cell of a record each column is; -1: none. */
static ls_status header(const reader *r, char **cell, int n, int *where)
{
    for (int i = 0; i < NAMES; i++) {
        where[i] = -1;
        for (int k = 0; k < n; k++)
            if (strcmp(cell[k], names[i]) == 0) where[i] = k;
    }
    static const int needed[] = { ID, METRIC, VALUE };
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (where[needed[i]] < 0)
            return ls_fail(LS_BAD_FILE, "%s:1: no column '%s'; expected the columns id,source,model,...,note", r->name,
                           names[needed[i]]);
    return LS_OK;
}

static ls_status keep(ls_rows *out, const reader *r, int line, char **cell, int n, const int *where)
{
    static char none[1] = "";
    char *own[NAMES];
    size_t bytes = 0;
    for (int i = 0; i < NAMES; i++) {
        own[i] = where[i] >= 0 && where[i] < n ? cell[where[i]] : none;
        bytes += strlen(own[i]) + 1;
    }
    ls_row *grown = realloc(out->row, (size_t)(out->n + 1) * sizeof *grown);
    if (!grown) return ls_fail(LS_NO_MEMORY, "%d rows", out->n + 1);
    out->row = grown;
    ls_row *row = &grown[out->n];
    *row = (ls_row){ .cells = malloc(bytes) };
    if (!row->cells) return ls_fail(LS_NO_MEMORY, "a row of %zu bytes", bytes);
    out->n++;
    char *to = row->cells;
    for (int i = 0; i < NAMES; i++) {
        const size_t k = strlen(own[i]) + 1;
        own[i] = memcpy(to, own[i], k);
        to += k;
    }
    return fill(r, line, own, row);
}

ls_status ls_rows_read(const char *name, char *text, ls_rows *out)
{
    reader r = { name, text, 1 };
    char *cell[COLUMNS];
    int n, where[NAMES];
    *out = (ls_rows){ 0 };
    ls_status st = record(&r, cell, &n);
    if (st == LS_OK && n == 0) st = ls_fail(LS_BAD_FILE, "%s: empty; expected a line of column names", name);
    if (st == LS_OK) st = header(&r, cell, n, where);
    const int columns = n;
    while (st == LS_OK) {
        const int line = r.line;
        st = record(&r, cell, &n);
        if (st != LS_OK || n == 0) break;
        if (n != columns)
            st = ls_fail(LS_BAD_FILE, "%s:%d: %d cells; expected %d, as the first line has", name, line, n, columns);
        else
            st = keep(out, &r, line, cell, n, where);
    }
    if (st != LS_OK) ls_rows_free(out);
    return st;
}

void ls_rows_free(ls_rows *r)
{
    for (int i = 0; i < r->n; i++) free(r->row[i].cells);
    free(r->row);
    *r = (ls_rows){ 0 };
}

double ls_row_noted(const ls_row *r, const char *key, double absent)
{
    const char *at = strstr(r->note, key);
    char *end;
    if (!at) return absent;
    const double v = strtod(at + strlen(key), &end);
    return end == at + strlen(key) ? absent : v;
}

bool ls_row_notes(const ls_row *r, const char *words) { return strstr(r->note, words) != NULL; }

uint64_t ls_row_configuration(const ls_row *r)
{
    const int64_t v[] = { r->m.layers, r->m.hidden, r->m.heads, r->m.ffn, r->m.seq, r->n, r->t, r->p, r->v, r->c, r->e,
                          r->d, r->zero, r->micro, r->batch };
    const char *const s[] = { r->family, r->name, r->dtype, r->gpu, r->recompute, r->schedule };
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) h = (h ^ (uint64_t)v[i]) * 1099511628211u ^ (h >> 29);
    for (size_t i = 0; i < sizeof s / sizeof *s; i++)
        for (const char *p = s[i]; *p; p++) h = (h ^ (unsigned char)*p) * 1099511628211u;
    if (!r->m.layers) /* a collective: the message is the configuration */
        for (const char *p = r->note; *p; p++) h = (h ^ (unsigned char)*p) * 1099511628211u;
    return h ^ (h >> 31);
}
