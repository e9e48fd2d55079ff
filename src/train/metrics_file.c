/* metrics_file.c -- metrics.jsonl, line by line. */
#include "train/metrics_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

#define METRICS_MOST ((size_t)1 << 30) /* bytes */
#define PATH_BYTES   600

double ls_metrics_number(const json_t *line, const char *key)
{
    const json_t *v = json_object_get(line, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

ls_status ls_metrics_read(const char *folder, ls_metrics_line line, void *arg)
{
    char path[PATH_BYTES], *text = NULL;
    size_t n = 0, number = 0;
    snprintf(path, sizeof path, "%.500s/metrics.jsonl", folder);
    ls_status st = ls_file_read(path, METRICS_MOST, &text, &n);
    if (st < 0) return ls_fail(LS_BAD_FILE, "%s is no run's folder: %s", folder, ls_last_error());
    for (const char *at = text, *end; st == LS_OK && (end = memchr(at, '\n', n - (size_t)(at - text))); at = end + 1) {
        json_error_t e;
        json_t *j = json_loadb(at, (size_t)(end - at), JSON_REJECT_DUPLICATES, &e);
        const json_t *step = json_object_get(j, "step");
        number++;
        if (!json_is_integer(step)) st = ls_fail(LS_BAD_FILE, "%s: line %zu is no JSON object with a step", path, number);
        else st = line(arg, json_integer_value(step), j);
        json_decref(j);
    }
    free(text);
    return st;
}
