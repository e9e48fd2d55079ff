/* doctor_json.c -- what `lockstep doctor --json` prints: docs/formats.md has every key. */
#include <string.h>

#include "base/env.h"
#include "cli/doctor.h"
#include "data/sets.h"
#include "group/backend.h"
#include "lockstep/lockstep.h"
#include "meet/job_env.h"
#include "tensor/gemm.h"
#include "tensor/gemm_tile.h"
#include "tensor/threads.h"

static const char *yes_no(bool yes) { return yes ? "true" : "false"; }

/* A string, or null for "". */
static void text_or_null(ls_text *out, const char *text)
{
    if (*text) ls_json_string(out, text);
    else ls_text_add(out, "null");
}

static void count_or_null(ls_text *out, int n)
{
    if (n > 0) ls_text_add(out, "%d", n);
    else ls_text_add(out, "null");
}

static void machine(const ls_doctor *d, ls_text *out)
{
    ls_text_add(out, ",\n \"system\": ");
    text_or_null(out, d->system.sysname);
    ls_text_add(out, ", \"release\": ");
    text_or_null(out, d->system.sysname[0] ? d->system.release : "");
    ls_text_add(out, ", \"machine\": ");
    text_or_null(out, d->system.sysname[0] ? d->system.machine : "");
    ls_text_add(out, ",\n \"processor\": ");
    text_or_null(out, d->processor);
    ls_text_add(out, ", \"instructions\": {");
    for (int i = 0; i < LS_DOCTOR_INSTRUCTIONS; i++)
        ls_text_add(out, "%s\"%s\": %s", i ? ", " : "", d->instructions[i].name, yes_no(d->instructions[i].here));
    ls_text_add(out, "},\n \"cores_usable\": %d, \"cores_online\": %ld, \"sockets\": ", d->cores_usable, d->cores_online);
    count_or_null(out, d->sockets);
    ls_text_add(out, ", \"cores\": ");
    count_or_null(out, d->cores);
    ls_text_add(out, ", \"threads\": ");
    count_or_null(out, d->threads);
    ls_text_add(out, ", \"caches_bytes\": {");
    bool first = true;
    for (int i = 0; i < LS_DOCTOR_CACHES; i++) {
        if (d->cache[i].bytes == 0) continue;
        ls_text_add(out, "%s\"%s\": %ld", first ? "" : ", ", d->cache[i].name, d->cache[i].bytes);
        first = false;
    }
    ls_text_add(out, "}, \"numa_nodes\": ");
    count_or_null(out, d->numa_nodes);
}

static void memory(const ls_doctor *d, ls_text *out)
{
    ls_text_add(out, ",\n \"memory_available_bytes\": %llu, \"page_bytes\": %ld, \"sealed_memfd\": %s",
                (unsigned long long)d->available_bytes, d->page_bytes, yes_no(d->memfd_errno == 0));
    ls_text_add(out, ", \"process_vm_readv\": %s, \"ptrace_scope\": %d,\n \"limits\": {", yes_no(d->peer_errno == 0), d->yama);
    for (int i = 0; i < LS_DOCTOR_LIMITS; i++) {
        const ls_doctor_limit *l = &d->limit[i];
        ls_text_add(out, "%s\"%s\": ", i ? ", " : "", l->key);
        if (l->unlimited) ls_text_add(out, "\"unlimited\"");
        else if (l->known) ls_text_add(out, "%llu", (unsigned long long)l->value);
        else ls_text_add(out, "null");
    }
    ls_text_add(out, "}");
}

static void build(ls_text *out)
{
    char library[96];
    ls_backend_info plugin;
    ls_gemm_library_describe(library, sizeof library);
    ls_text_add(out, "\"version\": ");
    ls_json_string(out, ls_version());
    ls_text_add(out, ",\n \"products\": {\"tiles\": \"%s\", \"tiles_most_flops\": %lld, \"library\": ", ls_gemm_tile_best()->name,
                (long long)ls_gemm_tile_best()->most_flops);
    ls_json_string(out, library);
    ls_text_add(out, ", \"bf16_instructions\": %s}", yes_no(ls_gemm_library_has_bf16()));
    ls_text_add(out, ", \"threads\": %d,\n \"transports\": [", /* of a rank that is alone */
                ls_env_get()->getenv("OMP_NUM_THREADS") ? ls_team_size() : ls_env_get()->cpus());
    for (size_t i = 0; ls_transports[i]; i++) ls_text_add(out, "%s\"%s\"", i ? ", " : "", ls_transports[i]->name);
    ls_text_add(out, "], \"plugins\": [");
    for (int i = 0; ls_backend_list(i, &plugin); i++) {
        ls_text_add(out, "%s{\"name\": \"%s\", \"on\": %s, \"about\": ", i ? ", " : "", plugin.name, yes_no(plugin.found));
        ls_json_string(out, plugin.text);
        ls_text_add(out, "}");
    }
    ls_text_add(out, "]");
}

/* null: no launcher is around. */
static void launcher(ls_text *out)
{
    ls_job_env j;
    const ls_status st = ls_job_env_read(&j);
    ls_text_add(out, ",\n \"launcher\": ");
    if (j.source == LS_JOB_ALONE && st >= 0) {
        ls_text_add(out, "null");
        return;
    }
    ls_text_add(out, "{\"from\": ");
    ls_json_string(out, j.source == LS_JOB_ALONE ? "none" : ls_job_source_text(&j));
    ls_text_add(out, ", \"rank\": %d, \"ranks\": %d, \"error\": ", j.rank, j.size);
    text_or_null(out, st < 0 ? ls_last_error() : "");
    ls_text_add(out, "}");
}

static void data(ls_text *out)
{
    ls_text_add(out, ",\n \"data_sets\": {");
    for (const ls_set *s = ls_sets; s->name; s++) {
        char path[LS_SET_PATH];
        ls_text_add(out, "%s\"%s\": ", s == ls_sets ? "" : ", ", s->name);
        text_or_null(out, ls_set_find(s, path) ? path : "");
    }
    ls_text_add(out, "}");
}

void ls_doctor_peaks_json(ls_text *out)
{
    char path[4096];
    ls_peaks p;
    const ls_status st = ls_doctor_peaks(path, sizeof path, &p);
    if (st == LS_AGAIN) {
        ls_text_add(out, "null");
        return;
    }
    ls_text_add(out, "{\"file\": ");
    ls_json_string(out, path);
    if (st < 0) {
        ls_text_add(out, ", \"error\": ");
        ls_json_string(out, ls_last_error());
    } else {
        ls_text_add(out, ", \"host\": ");
        ls_json_string(out, p.host);
        ls_text_add(out, ", \"rates\": [");
        for (int i = 0; i < p.n; i++) {
            ls_text_add(out, "%s{\"dtype\": \"%s\", \"threads\": %d, \"gflops_per_thread\": ", i ? ", " : "",
                        p.row[i].dtype == LS_BF16 ? "bf16" : "f32", p.row[i].threads);
            ls_json_number(out, p.row[i].gflops);
            ls_text_add(out, "}");
        }
        ls_text_add(out, "]");
    }
    ls_text_add(out, "}");
}

void ls_doctor_print_json(const ls_doctor *d, ls_text *out)
{
    ls_text_add(out, "{");
    build(out);
    machine(d, out);
    memory(d, out);
    ls_text_add(out, ",\n \"peak\": ");
    ls_doctor_peaks_json(out);
    launcher(out);
    data(out);
    ls_text_add(out, "}");
}
