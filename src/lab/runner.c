/* runner.c -- commands become results, and results values of a comparison. */
#include "lab/runner.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <signal.h> /* names of signals only */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/env.h"
#include "base/file.h"
#include "lab/expr.h"
#include "lab/process.h"

#define MOST_WORDS 64
#ifdef LS_SANITIZED
#define COMMAND_S (10 * LS_LAB_COMMAND_S) /* a sanitizer slows a command down */
#else
#define COMMAND_S LS_LAB_COMMAND_S
#endif

/* A command that has run. */
typedef struct result {
    char *command; /* owned */
    json_t *json;  /* owned; NULL: it failed, and `why` says how */
    ls_text why;
    ls_text err;   /* owned: its messages */
    bool ended;    /* by itself: `code` is its exit status */
    int code;
} result;

struct ls_lab_runner {
    const ls_lab_place *place;
    char work[128];  /* a folder that this runner has made */
    char self[4096]; /* this program */
    result *results; /* owned */
    int n, cap;
};

/* --- the folder ---------------------------------------------------------------------------------------- */

static ls_status make_work(ls_lab_runner *r)
{
    const ls_env *env = ls_env_get();
    const char *tmp = env->getenv("TMPDIR");
    uint64_t name;
    env->random(&name, sizeof name);
    const int n = snprintf(r->work, sizeof r->work, "%s/lockstep-lab-%016llx", tmp && *tmp == '/' ? tmp : "/tmp",
                           (unsigned long long)name);
    if (n < 0 || (size_t)n >= sizeof r->work) {
        *r->work = 0;
        return ls_fail(LS_IO, "TMPDIR is longer than a lab can use: expected at most %zu bytes", sizeof r->work - 32);
    }
    const int made = env->mkdir_secret(r->work);
    if (made == 0) return LS_OK;
    const ls_status st = ls_fail(LS_IO, "making %s, a folder for what the commands of a lab write: %s; set TMPDIR to a folder "
                                 "that you may write in", r->work, strerror(-made));
    *r->work = 0;
    return st;
}

ls_status ls_lab_runner_open(const ls_lab_place *place, ls_lab_runner **out)
{
    *out = NULL;
    ls_lab_runner *r = calloc(1, sizeof *r);
    if (!r) return ls_fail(LS_NO_MEMORY, "the runner of a lab");
    r->place = place;
    ls_status st = make_work(r);
    if (st == LS_OK && ls_env_get()->self_path(r->self, sizeof r->self) < 0)
        st = ls_fail(LS_SYSTEM, "the path of this program is unknown");
    if (st == LS_OK) *out = r;
    else ls_lab_runner_close(r);
    return st;
}

void ls_lab_runner_close(ls_lab_runner *r)
{
    if (!r) return;
    if (*r->work) ls_remove_tree(r->work);
    for (int i = 0; i < r->n; i++) {
        free(r->results[i].command);
        ls_text_free(&r->results[i].why);
        ls_text_free(&r->results[i].err);
        json_decref(r->results[i].json);
    }
    free(r->results);
    free(r);
}

int ls_lab_runs(const ls_lab_runner *r) { return r->n; }

/* --- words ------------------------------------------------------------------------------------------------ */

static bool is_word(const char *p, size_t nbytes, const char *word)
{
    return strlen(word) == nbytes && memcmp(p, word, nbytes) == 0;
}

/* The words of a command as they are passed on, in one piece of memory, each with its NUL; their number. */
static int words_of(const ls_lab_place *place, const char *self, const char *command, ls_text *out)
{
    int n = 0;
    bool program = true; /* this word is one: the first, and after -- the one that `lockstep run` starts */
    for (const char *p = command + strspn(command, " "); *p; p += strspn(p, " ")) {
        const size_t nbytes = strcspn(p, " ");
        const char *more = NULL; /* what the path of a program of the lab ends with */
        if (program && is_word(p, nbytes, "starter")) more = "";
        if (program && is_word(p, nbytes, "probe")) more = "_probe";
        if (program && is_word(p, nbytes, "single")) more = "_single";
        ls_file_info info = { 0 };
        ls_text file = { 0 };
        ls_text_add(&file, "%s/%.*s", place->folder, (int)nbytes, p);
        const bool there = !file.failed && ls_env_get()->info(file.p, &info) == 0 && info.type == LS_FILE_REGULAR;
        if (n++ == 0 && is_word(p, nbytes, "lockstep")) ls_text_add(out, "%s", self);
        else if (more) ls_text_add(out, "%s%s", place->programs ? place->programs : "", more);
        else if (there) ls_text_addn(out, file.p, file.n);
        else ls_text_addn(out, p, nbytes);
        ls_text_addn(out, "", 1);
        ls_text_free(&file);
        program = is_word(p, nbytes, "--");
        p += nbytes;
    }
    return n;
}

void ls_lab_repeat(const ls_lab_place *place, const char *command, ls_text *out)
{
    ls_text words = { 0 };
    const int n = words_of(place, "lockstep", command, &words);
    const char *word = ls_text_str(&words);
    for (int i = 0; i < n && !words.failed; i++, word += strlen(word) + 1) ls_text_add(out, "%s%s", i ? " " : "", word);
    out->failed |= words.failed;
    ls_text_free(&words);
}

static bool has_word(const char *command, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = strstr(command, word); p; p = strstr(p + 1, word))
        if ((p == command || p[-1] == ' ') && (p[n] == ' ' || p[n] == 0)) return true;
    return false;
}

/* --- one command ------------------------------------------------------------------------------------------ */

/* The last JSON object that was printed: from the first byte if that begins one, else from the last line that does. */
static json_t *object_of(const ls_text *said)
{
    const char *text = ls_text_str(said), *from = *text == '{' ? text : NULL;
    json_error_t e;
    json_t *json = from ? json_loadb(from, said->n - (size_t)(from - text), JSON_REJECT_DUPLICATES, &e) : NULL;
    for (const char *p = strstr(text, "\n{"); !json && p; p = strstr(p + 1, "\n{")) from = p + 1;
    if (!json && from) json = json_loadb(from, said->n - (size_t)(from - text), JSON_REJECT_DUPLICATES, &e);
    if (json && !json_is_object(json)) {
        json_decref(json);
        json = NULL;
    }
    return json;
}

/* The last line of a text that is to stand in a message. */
static void add_last_line(ls_text *out, ls_text *from)
{
    while (from->n > 0 && from->p[from->n - 1] == '\n') from->p[--from->n] = 0;
    if (from->n == 0) return;
    const char *line = strrchr(from->p, '\n');
    char *copy = strdup(line ? line + 1 : from->p);
    if (!copy) {
        out->failed = true;
        return;
    }
    ls_text_printable(copy);
    ls_text_add(out, ": %s", copy);
    free(copy);
}

static void explain(const ls_lab_ended *e, uint64_t timeout_ns, ls_text *err, ls_text *why)
{
    switch (e->how) {
    case LS_LAB_ENDED_EXIT: ls_text_add(why, e->code ? "ended with exit status %d" : "printed no JSON object", e->code); break;
    case LS_LAB_ENDED_SIGNAL: ls_text_add(why, "was ended by signal %d", e->code); break;
    case LS_LAB_ENDED_LATE: ls_text_add(why, "took longer than %.0f s and was stopped", (double)timeout_ns * 1e-9); return;
    case LS_LAB_ENDED_LOUD: ls_text_add(why, "printed more than %u bytes and was stopped", LS_LAB_MAX_OUTPUT); return;
    default: break;
    }
    add_last_line(why, err);
}

/* Runs a command; the result's `json` stays NULL if it has none. */
static ls_status start(ls_lab_runner *r, result *x)
{
    ls_text words = { 0 }, out = { 0 };
    const char *argv[MOST_WORDS + 5];
    char dir[192], tokens[192];
    ls_lab_ended ended = { 0 };
    const uint64_t timeout_ns = r->place->timeout_ns ? r->place->timeout_ns : COMMAND_S * 1000000000ull;
    int n = words_of(r->place, r->self, x->command, &words);
    ls_status st = ls_text_status(&words);
    if (st == LS_OK && n > MOST_WORDS) st = ls_fail(LS_USAGE, "a command of %d words, at most %d are accepted: %s", n, MOST_WORDS, x->command);
    if (st == LS_OK) {
        const char *word = ls_text_str(&words);
        for (int i = 0; i < n; i++, word += strlen(word) + 1) argv[i] = word;
        snprintf(dir, sizeof dir, "%s/run-%d", r->work, r->n);
        if (strncmp(x->command, "lockstep train ", 15) == 0 && !has_word(x->command, "--run.dir"))
            argv[n++] = "--run.dir", argv[n++] = dir;
        snprintf(tokens, sizeof tokens, "%s/tokens", r->work); /* of a text; else .cache in the reader's folder */
        if (has_word(x->command, "--data.name") && !has_word(x->command, "--data.path"))
            argv[n++] = "--data.path", argv[n++] = tokens;
        argv[n] = NULL;
        if (!r->place->programs && (strncmp(x->command, "lockstep", 8) != 0 || has_word(x->command, "--")))
            ls_text_add(&x->why, "cannot run: the lab's programs are not built; `make build` in a checkout builds them");
        else st = ls_lab_process(&(ls_child){ .argv = argv }, timeout_ns, r->place->stop, &out, &x->err, &ended);
    }
    x->code = ended.code;
    x->ended = st == LS_OK && !x->why.n && ended.how == LS_LAB_ENDED_EXIT;
    if (st == LS_OK && !x->why.n && ended.how == LS_LAB_ENDED_EXIT) x->json = object_of(&out);
    const bool failed = !x->json || ended.code || ended.how != LS_LAB_ENDED_EXIT;
    if (st == LS_OK && !x->why.n && failed) explain(&ended, timeout_ns, &x->err, &x->why);
    ls_text_free(&words);
    ls_text_free(&out);
    return st;
}

static ls_status result_of(ls_lab_runner *r, const char *command, const result **out)
{
    for (int i = 0; i < r->n; i++)
        if (strcmp(r->results[i].command, command) == 0) {
            *out = &r->results[i];
            return LS_OK;
        }
    if (r->n == r->cap) {
        const int cap = r->cap ? 2 * r->cap : 16;
        result *more = realloc(r->results, (size_t)cap * sizeof *more);
        if (!more) return ls_fail(LS_NO_MEMORY, "the results of a lab");
        r->results = more, r->cap = cap;
    }
    result x = { .command = strdup(command) };
    if (!x.command) return ls_fail(LS_NO_MEMORY, "the results of a lab");
    const ls_status st = start(r, &x);
    if (st < 0) {
        free(x.command);
        ls_text_free(&x.why);
        ls_text_free(&x.err);
        json_decref(x.json);
        return st;
    }
    r->results[r->n] = x;
    *out = &r->results[r->n++];
    return LS_OK;
}

/* --- values --------------------------------------------------------------------------------------------------- */

static ls_status refuse(const ls_lab *lab, const ls_lab_claim *c, const ls_lab_pair *take, const char *what)
{
    return ls_fail(LS_USAGE, "%s:%zu: claim %s: '%s': %s", lab->file, take->line, c->id, take->value, what);
}

static const json_t *step_into(const json_t *from, const char *key, size_t nbytes)
{
    size_t at = 0;
    if (json_is_object(from)) return json_object_getn(from, key, nbytes);
    if (!json_is_array(from) || nbytes == 0 || nbytes > 6) return NULL;
    for (size_t i = 0; i < nbytes; i++) {
        if (key[i] < '0' || key[i] > '9') return NULL;
        at = 10 * at + (size_t)(key[i] - '0');
    }
    return json_array_get(from, at);
}

/* Lists and objects become text, so that two of them can be compared; the caller frees *text. */
static ls_status value_of(const ls_lab *lab, const ls_lab_claim *c, const ls_lab_pair *take, const result *x,
                          char **text, ls_lab_value *out)
{
    const json_t *at = x->json;
    const char *p = strchr(take->value, '/');
    out->name = take->name;
    for (; p; p = strchr(p + 1, '/')) {
        const size_t nbytes = strcspn(p + 1, "/");
        if (nbytes == 1 && p[1] == '#' && (json_is_array(at) || json_is_object(at))) {
            out->number = (double)(json_is_array(at) ? json_array_size(at) : json_object_size(at));
            return p[2] ? refuse(lab, c, take, "# is a number of elements and has no keys") : LS_OK;
        }
        at = step_into(at, p + 1, nbytes);
        if (!at) return refuse(lab, c, take, "the result of this run has no such key");
    }
    if (json_is_number(at)) out->number = json_number_value(at);
    else if (json_is_boolean(at)) out->number = json_is_true(at) ? 1.0 : 0.0;
    else if (json_is_string(at)) out->text = json_string_value(at);
    else if (json_is_null(at)) return refuse(lab, c, take, "is null: expected a number, a text or a list");
    else if ((out->text = *text = json_dumps(at, JSON_COMPACT)) == NULL) return ls_fail(LS_NO_MEMORY, "the value of %s", take->value);
    return LS_OK;
}

/* How many lines of a text have these words. */
static int lines_with(const char *text, const char *words)
{
    int n = 0;
    for (const char *p = strstr(text, words); p; p = strstr(p, words)) {
        n++;
        p += strcspn(p, "\n");
    }
    return n;
}

static const char *command_of(const ls_lab_claim *c, const char *run, size_t nbytes, bool control)
{
    const ls_lab_pairs *from[2] = { control ? &c->control : &c->run, &c->run };
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < from[k]->n; i++) {
            const ls_lab_pair *p = &from[k]->v[i];
            if (strlen(p->name) == nbytes && strncmp(p->name, run, nbytes) == 0) return p->value;
        }
    return NULL; /* claims.c has refused it */
}

/* The values of a claim without a comparison. */
static void show_values(const ls_lab_value *v, size_t n, ls_text *out)
{
    for (size_t i = 0; i < n; i++) {
        ls_text_add(out, "%s%s = ", i ? ", " : "", v[i].name);
        ls_lab_show(out, &v[i]);
    }
}

ls_status ls_lab_test(ls_lab_runner *r, const ls_lab *lab, const ls_lab_claim *c, bool control, ls_lab_outcome *out)
{
    ls_lab_value values[LS_LAB_MAX_PAIRS] = { { 0 } };
    char *texts[LS_LAB_MAX_PAIRS] = { 0 };
    ls_text where = { 0 };
    ls_status st = LS_OK;
    *out = (ls_lab_outcome){ 0 };
    for (size_t i = 0; st == LS_OK && i < c->take.n; i++) {
        const char *path = c->take.v[i].value;
        const char *command = command_of(c, path, strcspn(path, "/"), control);
        const char *key = strchr(path, '/') + 1, *messages = strncmp(key, "stderr/", 7) == 0 ? key + 7 : NULL;
        const result *x = NULL;
        st = result_of(r, command, &x);
        if (st < 0) break;
        values[i].name = c->take.v[i].name;
        if (x->ended && messages) {
            values[i].number = lines_with(ls_text_str(&x->err), messages);
        } else if (x->ended && strcmp(key, "exit_status") == 0) {
            values[i].number = x->code;
        } else if (x->why.n) {
            if (!out->why.n) ls_text_add(&out->why, "`%s` %s", command, ls_text_str(&x->why));
        } else {
            st = value_of(lab, c, &c->take.v[i], x, &texts[i], &values[i]);
        }
    }
    ls_text_add(&where, "%s:%zu: claim %s: expect", lab->file, c->expect_line, c->id);
    if (st == LS_OK) st = ls_text_status(&where);
    if (st == LS_OK && !out->why.n && c->expect)
        st = ls_lab_expr_eval(ls_text_str(&where), c->expect, values, c->take.n, c->tolerance, &out->holds,
                              &out->shown);
    for (size_t i = 0; i < LS_LAB_MAX_PAIRS; i++)
        out->number[i] = i < c->take.n && !out->why.n && !values[i].text ? values[i].number : (double)NAN;
    if (st == LS_OK && !out->why.n && !c->expect) show_values(values, c->take.n, &out->shown);
    if (st == LS_OK && !out->why.n && c->kind == LS_LAB_SHOWN) out->holds = true;
    if (st == LS_OK) st = ls_text_status(&out->shown);
    if (st == LS_OK) st = ls_text_status(&out->why);
    for (size_t i = 0; i < c->take.n; i++) free(texts[i]);
    ls_text_free(&where);
    return st;
}

void ls_lab_outcome_free(ls_lab_outcome *out)
{
    ls_text_free(&out->shown);
    ls_text_free(&out->why);
}
