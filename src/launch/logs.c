/* logs.c -- where the ranks' output goes: console, files, and the lines kept for a report. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/log.h"
#include "launch/impl.h"

/* --- what the flags ask for ------------------------------------------------------------ */

/* A number from 0 to max at *p, which moves behind it; -1 if there is none. */
static int number(const char **p, int max)
{
    char *end;
    if (**p < '0' || **p > '9') return -1;
    long v = strtol(*p, &end, 10);
    *p = end;
    return v <= max ? (int)v : -1;
}

ls_status ls_logs_parse(const char *flag, const char *text, int nproc, uint8_t *which)
{
    memset(which, 0, (size_t)nproc);
    if (!text || !*text) return LS_OK;
    const char *p = text;
    int all = number(&p, 3);
    if (all >= 0 && !*p) {
        memset(which, all, (size_t)nproc);
        return LS_OK;
    }
    for (p = text; *p;) {
        int r = number(&p, nproc - 1), v = r >= 0 && *p++ == ':' ? number(&p, 3) : -1;
        if (v < 0 || (*p && *p != ',') || (*p == ',' && !p[1]))
            return ls_fail(
                LS_USAGE,
                "--%s is '%s': expected 0 to 3 (1 stdout, 2 stderr, 3 both), or RANK:N,RANK:N with ranks 0 to %d", flag,
                text, nproc - 1);
        which[r] = (uint8_t)v;
        if (*p == ',') p++;
    }
    return LS_OK;
}

ls_status ls_logs_filter(const char *text, int nproc, ls_rank_set *shown)
{
    LS_TRY(ls_rank_set_create(nproc, shown));
    if (!text || !*text) {
        ls_rank_set_add_all(shown);
        return LS_OK;
    }
    for (const char *p = text; *p;) {
        int r = number(&p, nproc - 1);
        if (r < 0 || (*p && *p != ',') || (*p == ',' && !p[1]))
            return ls_fail(LS_USAGE, "--local-ranks-filter is '%s': expected ranks from 0 to %d, as 0,2", text,
                           nproc - 1);
        ls_rank_set_add(shown, r);
        if (*p == ',') p++;
    }
    return LS_OK;
}

/* The value of a name in a form; NULL: it is not one of ours. */
static const char *macro(const char *name, size_t n, const char *const value[4])
{
    static const char *const names[4] = { "role_name", "local_rank", "rank", "hostname" };
    for (size_t i = 0; i < 4; i++)
        if (strlen(names[i]) == n && strncmp(name, names[i], n) == 0) return value[i];
    return NULL;
}

ls_status ls_logs_prefix(const char *form, const char *role, int local_rank, int rank, char **out)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    char local[16], global[16], host[64] = "?";
    const char *const value[4] = { role, local, global, host };
    ls_text t = { 0 };
    snprintf(local, sizeof local, "%d", local_rank);
    snprintf(global, sizeof global, "%d", rank);
    if (ls_env_get()->hostname(host, sizeof host) < 0) snprintf(host, sizeof host, "?");
    *out = NULL;
    for (const char *p = form && *form ? form : "[${role_name}${local_rank}]:"; *p;) {
        const bool braces = *p == '$' && p[1] == '{';
        const char *name = p + 1 + braces, *text = NULL;
        const size_t n = *p == '$' ? strspn(name, letters) : 0;
        if (n > 0 && (!braces || name[n] == '}')) text = macro(name, n, value);
        if (text) ls_text_add(&t, "%s", text);
        else ls_text_addn(&t, p, 1);
        p = text ? name + n + braces : p + 1 + (*p == '$' && p[1] == '$');
    }
    ls_status st = ls_text_status(&t);
    if (st < 0) ls_text_free(&t);
    else *out = t.p;
    return st;
}

ls_status ls_logs_words(const char *text, char **out)
{
    *out = NULL;
    if (!text) return LS_OK;
    char *words = calloc(1, strlen(text) + 2), *to = words; /* an empty word is last */
    if (!words) return ls_fail(LS_NO_MEMORY, "the words of a filter");
    for (const char *p = text; *p; p++) {
        if (*p != ',') *to++ = *p;
        else if (p[1] == ',') *to++ = *p++;
        else if (to > words && to[-1]) *to++ = 0; /* an empty one would be in every line */
    }
    if (*words) *out = words;
    else free(words);
    return LS_OK;
}

ls_status ls_logs_mkdir(const char *path)
{
    const ls_env *env = ls_env_get();
    char *p = strdup(path);
    if (!p) return ls_fail(LS_NO_MEMORY, "a path");
    int r = 0;
    for (char *at = p + 1; r == 0; at++) {
        if (*at && *at != '/') continue;
        char was = *at;
        *at = 0;
        r = env->mkdir(p);
        if (r == -EEXIST) r = 0;
        *at = was;
        if (!was) break;
    }
    free(p);
    return r < 0 ? ls_fail(LS_IO, "making the folder %s: %s", path, strerror(-r)) : LS_OK;
}

/* --- the console ------------------------------------------------------------------------ */

size_t ls_console_waiting(const ls_console *c) { return c->pending.n - c->at; }

void ls_console_add(ls_console *c, const char *p, size_t n)
{
    if (!c->gone) ls_text_addn(&c->pending, p, n);
}

/* The launcher's own log must know, too. */
static void set_live(ls_console *c, const void *stream)
{
    c->live = stream;
    ls_context_get()->live = stream != NULL;
}

static void erase_live(ls_console *c)
{
    if (c->live) ls_console_add(c, LS_ERASE_LINE, sizeof LS_ERASE_LINE - 1);
    set_live(c, NULL);
}

void ls_console_say(ls_console *c, const char *p, size_t n)
{
    if (n > 0) erase_live(c);
    ls_console_add(c, p, n);
}

static bool writable(int fd, uint64_t deadline_ns)
{
    ls_pollfd p = { .fd = fd, .events = LS_POLL_OUT };
    ls_env_get()->wait(NULL, 0, &p, 1, deadline_ns);
    return p.revents != 0;
}

/* A terminal held with Ctrl-S or a pager must not keep us from watching the
 * ranks: a pipe that is writable at all takes 4 KiB without blocking. */
void ls_console_flush(ls_console *c)
{
    const ls_env *env = ls_env_get();
    while (ls_console_waiting(c) > 0 && writable(c->fd, 0)) {
        size_t n = ls_console_waiting(c);
        ssize_t k = env->write(c->fd, c->pending.p + c->at, n < 4096 ? n : 4096);
        if (k == -EAGAIN) return;
        if (k < 0) c->gone = true;
        c->at = k < 0 ? c->pending.n : c->at + (size_t)k;
    }
    if (ls_console_waiting(c) == 0 && c->pending.p) {
        c->pending.n = c->at = 0;
        c->pending.p[0] = 0;
    }
}

void ls_console_drain(ls_console *c, uint64_t deadline_ns)
{
    const ls_env *env = ls_env_get();
    for (;;) {
        ls_console_flush(c);
        if (ls_console_waiting(c) == 0 || env->mono_ns() >= deadline_ns) return;
        writable(c->fd, deadline_ns);
    }
}

/* --- the last lines ---------------------------------------------------------------------- */

static void tail_add(ls_tail *t, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '\n') { /* an empty line counts, but not as the first of all */
            if (!t->open && t->count > 0) t->line[t->count++ % LS_TAIL_LINES][0] = 0;
            t->open = false;
            continue;
        }
        if (!t->open) {
            t->count++;
            t->n = 0;
            t->open = true;
        }
        char *line = t->line[(t->count - 1) % LS_TAIL_LINES];
        if (p[i] == '\r') t->n = 0; /* a progress bar writes over itself */
        else if (p[i] == 'K' && t->n >= 2 && memcmp(line + t->n - 2, "\x1b[", 2) == 0) t->n -= 2; /* and erases the rest */
        else if (t->n + 1 < LS_TAIL_BYTES) line[t->n++] = p[i];
        line[t->n] = 0;
    }
}

const char *ls_tail_line(const ls_tail *t, unsigned i, char out[LS_TAIL_BYTES])
{
    unsigned have = t->count < LS_TAIL_LINES ? t->count : LS_TAIL_LINES;
    if (i >= have) return NULL;
    const char *line = t->line[(t->count - have + i) % LS_TAIL_LINES];
    size_t n = 0;
    for (; line[n]; n++) { /* colours and cursor movements included: they end in letters, which stay */
        unsigned char c = (unsigned char)line[n];
        out[n] = (char)((c < 0x20 && c != '\t') || c == 0x7f ? '?' : c);
    }
    out[n] = 0;
    return out;
}

/* --- streams ------------------------------------------------------------------------------- */

/* On a terminal other streams' lines take the place of a live one. */
static void to_console(ls_stream *s, const char *p, size_t n)
{
    ls_console *c = s->console;
    bool live = c->live == s;
    if (c->live && !live) erase_live(c);
    for (size_t i = 0; c->terminal && i < n; i++) {
        live = p[i] != '\n' && (live || (s->returned && p[i] != '\r'));
        s->returned = p[i] != '\n' && (s->returned || p[i] == '\r');
    }
    set_live(c, live ? s : NULL);
    ls_console_add(c, p, n);
}

static void pass_on(ls_stream *s, const char *p, size_t n)
{
    if (!s->console) return;
    if (s->hold == LS_HOLD_NOT) {
        to_console(s, p, n);
        return;
    }
    size_t room = s->held.n < LS_HELD_BYTES ? LS_HELD_BYTES - s->held.n : 0;
    ls_text_addn(&s->held, p, n < room || s->hold == LS_HOLD_WHOLE ? n : room);
}

/* What cannot be written is lost: the training goes on without its log. */
static void to_file(int *file, const char *what, const char *p, size_t n)
{
    const ls_env *env = ls_env_get();
    while (*file >= 0 && n > 0) {
        ssize_t k = env->write(*file, p, n);
        if (k <= 0) {
            ls_log(LS_LOG_WARN, "a log file of %s cannot be written: %s; the rest of it is lost", what, strerror((int)-k));
            env->close_fd(*file);
            *file = -1;
            return;
        }
        p += k;
        n -= (size_t)k;
    }
}

/* A line that has one of the copy's words. */
static void copy_line(const ls_stream *s, bool whole)
{
    ls_copy *c = s->copy;
    bool has = false;
    for (const char *word = c->words; !has && *word; word += strlen(word) + 1)
        has = memmem(s->line, s->nline, word, strlen(word)) != NULL;
    if (!has) return;
    to_file(&c->file, "the lines that were asked for", s->prefix, strlen(s->prefix));
    to_file(&c->file, "the lines that were asked for", s->line, s->nline);
    if (!whole) to_file(&c->file, "the lines that were asked for", "\n", 1);
}

/* Passes on the line so far, as a whole one where it needs a prefix. */
static void end_line(ls_stream *s)
{
    if (s->nline == 0) return;
    bool whole = s->line[s->nline - 1] == '\n';
    if (s->prefixed) pass_on(s, s->prefix, strlen(s->prefix));
    pass_on(s, s->line, s->nline);
    if (s->prefixed && !whole) pass_on(s, "\n", 1);
    if (s->copy) copy_line(s, whole);
    s->nline = 0;
}

static void add_lines(ls_stream *s, const char *p, size_t n, uint64_t now_ns)
{
    for (size_t i = 0; i < n; i++) {
        if (s->nline == 0) s->line_ns = now_ns;
        s->line[s->nline++] = p[i];
        bool over = p[i] == '\n' || (p[i] == '\r' && !s->prefixed); /* a progress bar's beginning */
        if (over || s->nline == sizeof s->line) end_line(s);
    }
}

void ls_stream_close(ls_stream *s)
{
    const ls_env *env = ls_env_get();
    if (s->from >= 0) env->close_fd(s->from);
    if (s->to >= 0) env->close_fd(s->to);
    if (s->file >= 0) env->close_fd(s->file);
    s->from = s->to = s->file = -1;
    ls_text_free(&s->held);
}

/* False: nothing more is there now. */
static bool read_some(ls_stream *s, uint64_t now_ns)
{
    char buf[16384];
    ssize_t k = ls_env_get()->read(s->from, buf, sizeof buf);
    if (k == -EAGAIN) return false;
    if (k <= 0) {
        ls_env_get()->close_fd(s->from);
        s->from = -1;
        end_line(s);
        return false;
    }
    to_file(&s->file, s->prefix, buf, (size_t)k);
    if (s->tail) tail_add(s->tail, buf, (size_t)k);
    add_lines(s, buf, (size_t)k, now_ns);
    return (size_t)k == sizeof buf;
}

bool ls_stream_pump(ls_stream *s, uint64_t now_ns)
{
    for (int turn = 0; turn < 4 && s->from >= 0; turn++)
        if (!read_some(s, now_ns)) break;
    if (s->nline > 0 && !s->prefixed && now_ns - s->line_ns >= LS_LINE_NS) end_line(s);
    return s->nline > 0 && !s->prefixed;
}

/* A descendant that outlived the rank may hold the pipe open: what is in it now
 * is the rank's, and that is all. 1 MiB is what a pipe can hold. */
void ls_stream_finish(ls_stream *s)
{
    for (int turn = 0; turn < 16 && s->from >= 0; turn++) {
        ls_pollfd p = { .fd = s->from, .events = LS_POLL_IN };
        ls_env_get()->wait(NULL, 0, &p, 1, 0);
        if (!p.revents) break;
        ls_stream_pump(s, 0);
    }
    end_line(s);
    if (s->from >= 0) ls_env_get()->close_fd(s->from);
    s->from = -1;
}

void ls_stream_hold(ls_stream *s, ls_hold how)
{
    if (how == LS_HOLD_NOT) ls_stream_release(s);
    s->hold = how;
}

void ls_stream_release(ls_stream *s)
{
    s->hold = LS_HOLD_NOT;
    if (s->held.n > 0) pass_on(s, s->held.p, s->held.n);
    s->held.n = 0;
}
