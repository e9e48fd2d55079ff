/* roofline_trace.c -- how long the operations of a run took, by its trace. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/file.h"
#include "plan/roofline.h"

#define MOST_BYTES ((size_t)1 << 30)

/* A slice of the trace calls what backward recomputes a forward. */
static bool is_slice(const ls_step_op *op, const char *name, const char *category)
{
    const size_t n = strlen(op->name), k = strlen(LS_STEP_AGAIN);
    const bool again = n > k && strcmp(op->name + n - k, LS_STEP_AGAIN) == 0;
    if (op->phase == LS_STEP_UPDATE) return strcmp(category, "optim") == 0 && strcmp(name, "optimizer step") == 0;
    return strcmp(category, op->phase == LS_STEP_BACKWARD && !again ? "backward" : "forward") == 0 &&
           strcmp(name, op->name) == 0;
}

static void add(const ls_step_list *of, const json_t *event, double *seconds, double *calls)
{
    const char *name = json_string_value(json_object_get(event, "name"));
    const char *category = json_string_value(json_object_get(event, "cat"));
    const json_t *dur = json_object_get(event, "dur");
    if (!name || !category || !json_is_number(dur)) return;
    for (int i = 0; i < of->nops; i++) {
        if (!is_slice(&of->op[i], name, category)) continue;
        seconds[i] += 1e-6 * json_number_value(dur);
        calls[i]++;
        return;
    }
}

static ls_status read_events(const ls_roofline *r, const char *path, const json_t *events, double *seconds)
{
    const ls_step_list *of = &r->l->of[r->stage];
    const json_int_t rank = ls_mesh_at(r->l->size, r->l->order, 0, LS_ALONG(LS_AXIS_PP), r->stage);
    size_t i;
    const json_t *event;
    if (!json_is_array(events)) return ls_fail(LS_BAD_FILE, "%s: expected traceEvents, as --trace.steps writes", path);
    double *calls = calloc((size_t)of->nops + 1, sizeof *calls);
    if (!calls) return ls_fail(LS_NO_MEMORY, "%d operations", of->nops);
    json_array_foreach(events, i, event)
        if (json_integer_value(json_object_get(event, "pid")) == rank) add(of, event, seconds, calls);
    for (int k = 0; k < of->nops; k++)
        if (calls[k] > 0) seconds[k] *= of->op[k].calls / calls[k];
    free(calls);
    return LS_OK;
}

ls_status ls_roofline_trace(const ls_roofline *r, const char *folder, ls_roofline_measured *m)
{
    char path[600], *text = NULL;
    size_t n;
    ls_file_info info = { 0 };
    json_error_t error;
    snprintf(path, sizeof path, "%s/trace/trace.json", folder);
    if (ls_env_get()->info(path, &info) < 0 || info.type == LS_FILE_NONE) return LS_OK;
    LS_TRY(ls_file_read(path, MOST_BYTES, &text, &n));
    json_t *j = json_loadb(text, n, 0, &error);
    free(text);
    if (!j) return ls_fail(LS_BAD_FILE, "%s:%d: %s", path, error.line, error.text);
    m->op_s = calloc((size_t)r->l->of[r->stage].nops + 1, sizeof *m->op_s);
    const ls_status st = m->op_s ? read_events(r, path, json_object_get(j, "traceEvents"), m->op_s)
                                 : ls_fail(LS_NO_MEMORY, "the times of operations");
    json_decref(j);
    return st;
}
