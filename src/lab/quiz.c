/* quiz.c -- quiz.yaml: what is known of the tree, and what has to fit the claims of the lab. */
#include "lab/quiz.h"

#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/file.h"
#include "base/text.h"
#include "lab/tree.h"
#include "lockstep/rng.h"

#define MOST_QUESTIONS 32

enum { ID, TEXT, OPTIONS, CLAIMS, RIGHT, NUMBER, UNIT, ORDER, LABELS, SAY, KEYS };
static const char *const keys[KEYS] = { "id", "text", "options", "claims", "right", "number", "unit", "order", "labels", "say" };

static ls_status take(const ls_yaml_tree *t, int key, const yaml_node_t *node, ls_lab_question *q)
{
    const char *name = keys[key];
    if (q->options.n && (key == OPTIONS || key == LABELS || key == SAY))
        return ls_yaml_refuse(t, node, name, "expected one of options, labels and say");
    switch (key) {
    case ID: return ls_yaml_scalar(t, node, name, &q->id);
    case TEXT: return ls_yaml_scalar(t, node, name, &q->text);
    case OPTIONS: return ls_lab_list(t, node, name, &q->options);
    case CLAIMS: return ls_lab_list(t, node, name, &q->claims);
    case RIGHT: return ls_yaml_whole(t, node, name, LS_LAB_MAX_PAIRS, &q->right);
    case NUMBER: q->ask = LS_LAB_NUMBER; return ls_yaml_scalar(t, node, name, &q->number);
    case UNIT: return ls_yaml_scalar(t, node, name, &q->unit);
    case ORDER: q->ask = LS_LAB_ORDER; return ls_yaml_scalar(t, node, name, &q->number);
    case LABELS: return ls_lab_named(t, node, name, &q->options);
    default: q->ask = LS_LAB_SAY; return ls_lab_named(t, node, name, &q->options);
    }
}

static ls_status refuse(const ls_yaml_tree *t, const ls_lab_question *q, const char *text)
{
    return ls_fail(LS_USAGE, "%s:%zu: quiz question %s: %s", t->file, q->line, q->id ? q->id : "without an id", text);
}

/* A claim that is asserted, unless `any`; the message of ls_lab_find gets file and line. */
static ls_status claim_of(const ls_yaml_tree *t, const ls_lab_question *q, const ls_lab *lab, const char *id,
                          const ls_lab_claim **out)
{
    const ls_status st = ls_lab_find(lab, id, out);
    if (st < 0) return ls_while(st, "%s:%zu: quiz question %s", t->file, q->line, q->id);
    if ((*out)->kind == LS_LAB_SHOWN) return refuse(t, q, "an answer is a claim that is asserted, and this one is only shown");
    return LS_OK;
}

static ls_status check_number(const ls_yaml_tree *t, ls_lab_question *q, const ls_lab *lab)
{
    char id[32];
    const char *slash = strchr(q->number, '/');
    if (!slash || (size_t)(slash - q->number) >= sizeof id || !q->unit)
        return refuse(t, q, "expected number: CLAIM/NAME, and a unit");
    memcpy(id, q->number, (size_t)(slash - q->number));
    id[slash - q->number] = 0;
    LS_TRY(claim_of(t, q, lab, id, &q->claim));
    const ls_lab_pair *p = ls_lab_pair_of(&q->claim->take, slash + 1, strlen(slash + 1));
    if (!p) return refuse(t, q, "the claim takes no value of this name");
    q->value = (size_t)(p - q->claim->take.v);
    return LS_OK;
}

static ls_status check(const ls_yaml_tree *t, ls_lab_question *q, const bool *seen, const ls_lab *lab)
{
    const ls_lab_claim *unused;
    const int asks = seen[OPTIONS] + seen[NUMBER] + seen[ORDER] + seen[SAY];
    if (!q->id || !q->text || asks != 1) return refuse(t, q, "expected id, text, and one of options, number, order, say");
    const bool whole = seen[OPTIONS] == seen[CLAIMS] && seen[OPTIONS] == seen[RIGHT];
    if (!whole || seen[NUMBER] != seen[UNIT] || seen[ORDER] != seen[LABELS])
        return refuse(t, q, "options need claims and right, number needs unit, order needs labels, and not the other way round");
    if (q->ask == LS_LAB_NUMBER) return check_number(t, q, lab);
    if (q->options.n < 2) return refuse(t, q, "expected two options, labels or texts, or more");
    if (q->ask == LS_LAB_SAY) return LS_OK;
    if (q->ask == LS_LAB_ORDER) {
        LS_TRY(claim_of(t, q, lab, q->number, &q->claim));
        for (size_t i = 0; i < q->options.n; i++)
            if (!ls_lab_pair_of(&q->claim->take, q->options.v[i].name, strlen(q->options.v[i].name)))
                return refuse(t, q, "a label is not of a value that the claim takes");
        return LS_OK;
    }
    if (q->claims.n != q->options.n || q->right > q->options.n)
        return refuse(t, q, "expected a claim per option, and the number of the right one");
    for (size_t i = 0; i < q->claims.n; i++) {
        q->place[i] = i + 1;
        LS_TRY(claim_of(t, q, lab, q->claims.v[i].value, &unused));
    }
    return LS_OK;
}

static ls_status question(const ls_yaml_tree *t, const yaml_node_t *node, const ls_lab *lab, ls_lab_quiz *out)
{
    ls_lab_question *q = &out->question[out->n];
    bool seen[KEYS] = { false };
    if (node->type != YAML_MAPPING_NODE) return ls_yaml_refuse(t, node, "questions", "expected a quiz question, which begins with - id:");
    q->line = ls_yaml_line(node);
    for (const yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
        int key;
        LS_TRY(ls_yaml_key(t, ls_yaml_node(t, p->key), keys, KEYS, seen, &key));
        LS_TRY(take(t, key, ls_yaml_node(t, p->value), q));
    }
    LS_TRY(check(t, q, seen, lab));
    for (size_t i = 0; i < out->n; i++)
        if (strcmp(out->question[i].id, q->id) == 0) return refuse(t, q, "there is already a quiz question of this id");
    out->n++;
    return LS_OK;
}

static ls_status questions(const ls_yaml_tree *t, const yaml_node_t *node, const ls_lab *lab, ls_lab_quiz *out)
{
    if (node->type != YAML_SEQUENCE_NODE) return ls_yaml_refuse(t, node, "questions", "expected a list of quiz questions");
    const yaml_node_item_t *first = node->data.sequence.items.start, *end = node->data.sequence.items.top;
    if (first == end || end - first > MOST_QUESTIONS) return ls_yaml_refuse(t, node, "questions", "expected 1 to 32");
    out->question = calloc((size_t)(end - first), sizeof *out->question);
    if (!out->question) return ls_fail(LS_NO_MEMORY, "%s: quiz questions", t->file);
    for (const yaml_node_item_t *i = first; i < end; i++) LS_TRY(question(t, ls_yaml_node(t, *i), lab, out));
    return LS_OK;
}

ls_status ls_lab_quiz_read(const char *name, const char *text, size_t n, const ls_lab *lab, ls_lab_quiz *out)
{
    enum { LAB, QUESTIONS, N };
    static const char *const top[N] = { "lab", "questions" };
    bool seen[N] = { false };
    *out = (ls_lab_quiz){ .n = 0 };
    LS_TRY(ls_yaml_tree_read(name, text, n, LS_USAGE, &out->document));
    const ls_yaml_tree *t = out->document;
    const yaml_node_t *root = ls_yaml_root(t);
    if (!root) return ls_fail(LS_USAGE, "%s:1: there are no quiz questions", name);
    if (root->type != YAML_MAPPING_NODE) return ls_yaml_refuse(t, root, "", "expected the number of a lab, and a list of quiz questions");
    for (const yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top; p++) {
        const yaml_node_t *value = ls_yaml_node(t, p->value);
        const char *number;
        int key;
        LS_TRY(ls_yaml_key(t, ls_yaml_node(t, p->key), top, N, seen, &key));
        if (key == QUESTIONS) LS_TRY(questions(t, value, lab, out));
        if (key != LAB) continue;
        LS_TRY(ls_yaml_scalar(t, value, "lab", &number));
        if (strcmp(number, lab->number) != 0) return ls_yaml_refuse(t, value, "lab", "is another lab than that of claims.yaml");
    }
    return seen[LAB] && seen[QUESTIONS] ? LS_OK : ls_yaml_refuse(t, root, "", "expected the number of a lab, and a list of quiz questions");
}

ls_status ls_lab_quiz_load(const char *folder, const ls_lab *lab, ls_lab_quiz *out)
{
    ls_text path = { 0 };
    ls_file_info info = { 0 };
    char *text = NULL;
    size_t n;
    *out = (ls_lab_quiz){ .n = 0 };
    ls_text_add(&path, "%s/quiz.yaml", folder);
    ls_status st = ls_text_status(&path);
    const bool there = st == LS_OK && ls_env_get()->info(path.p, &info) == 0 && info.type == LS_FILE_REGULAR;
    if (there) st = ls_file_read(path.p, LS_YAML_MAX_BYTES, &text, &n);
    if (there && st == LS_OK) st = ls_lab_quiz_read(path.p, text, n, lab, out);
    if (out->document) out->document->file = "quiz.yaml"; /* the path ends here */
    free(text);
    ls_text_free(&path);
    return st;
}

void ls_lab_quiz_free(ls_lab_quiz *quiz)
{
    ls_yaml_tree_free(quiz->document);
    free(quiz->question);
    *quiz = (ls_lab_quiz){ .n = 0 };
}

static void swap(ls_lab_question *q, size_t a, size_t b)
{
    const ls_lab_pair option = q->options.v[a], claim = q->claims.v[a];
    const size_t place = q->place[a];
    q->options.v[a] = q->options.v[b], q->claims.v[a] = q->claims.v[b], q->place[a] = q->place[b];
    q->options.v[b] = option, q->claims.v[b] = claim, q->place[b] = place;
    if (q->right == a + 1) q->right = b + 1;
    else if (q->right == b + 1) q->right = a + 1;
}

void ls_lab_quiz_shuffle(ls_lab_quiz *quiz, uint64_t seed)
{
    for (size_t k = 0; k < quiz->n; k++) {
        ls_lab_question *q = &quiz->question[k];
        uint64_t stream = 0; /* of the id, so that a question that is added later moves no other */
        for (const char *p = q->id; *p; p++) stream = stream * 31 + (unsigned char)*p;
        for (size_t i = q->ask == LS_LAB_CHOICE ? q->options.n : 0; i > 1; i--) {
            uint32_t word[4];
            ls_philox_block(seed, stream, i, word);
            swap(q, i - 1, word[0] % i);
        }
    }
}

ls_status ls_lab_quiz_order(const ls_lab_question *q, const double *number, size_t *right)
{
    double value[LS_LAB_MAX_PAIRS];
    for (size_t i = 0; i < q->options.n; i++) {
        const ls_lab_pair *p = ls_lab_pair_of(&q->claim->take, q->options.v[i].name, strlen(q->options.v[i].name));
        value[i] = number[p - q->claim->take.v];
    }
    for (size_t i = 0; i < q->options.n; i++) {
        size_t before = 0;
        for (size_t k = 0; k < q->options.n; k++) {
            if (k != i && !(value[k] < value[i]) && !(value[k] > value[i]))
                return ls_fail(LS_USAGE, "quiz question %s: claim %s gives no order: two of its values are equal, or not numbers", q->id,
                               q->claim->id);
            before += value[k] < value[i];
        }
        right[before] = i;
    }
    return LS_OK;
}
