/* cmd_pipeline.c -- lockstep pipeline: draw, prove and time a pipeline schedule. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/pipeline.h"
#include "parallel/pipe_csv.h"

static const ls_opt table[] = {
    { .name = "schedule", .type = LS_OPT_CHOICE, .offset = offsetof(ls_pipeline_options, schedule), .def = "1f1b",
      .range = ls_pipe_choices, .help = "the schedule; --list describes them" },
    { .name = "stages", .type = LS_OPT_INT, .offset = offsetof(ls_pipeline_options, ranks), .def = "4", .range = "1..4096",
      .help = "ranks of the pipeline", .alias = "ranks|pp", .short_name = 'p' },
    { .name = "micro", .type = LS_OPT_INT, .offset = offsetof(ls_pipeline_options, micro), .def = "8", .range = "1..1000000",
      .help = "micro-batches per step", .short_name = 'm' },
    { .name = "chunks", .type = LS_OPT_INT, .offset = offsetof(ls_pipeline_options, chunks), .def = "0", .range = "0..64",
      .help = "pieces of the model per rank; 0: the fewest that the schedule has" },
    { .name = "forward", .type = LS_OPT_DOUBLES, .offset = offsetof(ls_pipeline_options, forward), .def = "1", .range = "0..1e9",
      .help = "forward of a micro-batch, milliseconds: of a rank's layers, or of each stage" },
    { .name = "backward-input", .type = LS_OPT_DOUBLES, .offset = offsetof(ls_pipeline_options, input), .def = "1",
      .range = "0..1e9", .help = "the same of the backward of the input" },
    { .name = "backward-weight", .type = LS_OPT_DOUBLES, .offset = offsetof(ls_pipeline_options, weight), .def = "1",
      .range = "0..1e9", .help = "the same of the backward of the weights" },
    { .name = "transfer", .type = LS_OPT_DOUBLE, .offset = offsetof(ls_pipeline_options, transfer), .def = "0", .range = "0..1e9",
      .help = "a message from rank to rank, milliseconds" },
    { .name = "alive", .type = LS_OPT_INT, .offset = offsetof(ls_pipeline_options, alive), .def = "0", .range = "0..1000000",
      .help = "refuse more micro-batches of a chunk alive per rank; 0: any number" },
    { .name = "columns", .type = LS_OPT_INT, .offset = offsetof(ls_pipeline_options, columns), .def = "78", .range = "40..400",
      .help = "width of the drawing" },
    { .name = "file", .type = LS_OPT_STRING, .offset = offsetof(ls_pipeline_options, file),
      .help = "take the schedule from this CSV file, as PyTorch's _dump_csv and --csv write it" },
    { .name = "csv", .type = LS_OPT_BOOL, .offset = offsetof(ls_pipeline_options, csv), .def = "false",
      .help = "print the schedule as CSV, a row per rank, which PyTorch's _load_csv reads" },
    { .name = "messages", .type = LS_OPT_BOOL, .offset = offsetof(ls_pipeline_options, messages), .def = "false",
      .help = "with --csv: with sends and receives" },
    { .name = "svg", .type = LS_OPT_STRING, .offset = offsetof(ls_pipeline_options, svg), .help = "write the drawing to this file" },
    { .name = "compare", .type = LS_OPT_BOOL, .offset = offsetof(ls_pipeline_options, compare), .def = "false",
      .help = "all schedules for these ranks and micro-batches: time, bubble and memory" },
    { .name = "json", .type = LS_OPT_BOOL, .offset = offsetof(ls_pipeline_options, json), .def = "false",
      .help = "print JSON; --list and --compare, too" },
    { .name = "list", .type = LS_OPT_BOOL, .offset = offsetof(ls_pipeline_options, list), .def = "false",
      .help = "list the schedules and where they come from" },
    { .name = "help", .type = LS_OPT_BOOL, .offset = offsetof(ls_pipeline_options, help), .def = "false", .help = "this text",
      .short_name = 'h' },
};

/* --- what is asked for --------------------------------------------------------------------------- */

/* n stages' times: one value is of a rank's layers, which its chunks share evenly. */
static ls_status spread(const char *name, const ls_opt_doubles *given, const ls_pipe_shape *s, double *out)
{
    const int stages = s->ranks * s->chunks;
    if (given->n != 1 && given->n != stages)
        return ls_fail(LS_USAGE, "--%s has %d times: expected one, or %d, one per stage", name, given->n, stages);
    for (int i = 0; i < stages; i++) out[i] = given->n == 1 ? given->v[0] / s->chunks : given->v[i];
    return LS_OK;
}

static ls_status time_it(const ls_pipeline_options *o, ls_pipeline *p)
{
    const ls_pipe_shape *s = &p->program.shape;
    const size_t stages = (size_t)s->ranks * (size_t)s->chunks;
    double *time = malloc(3 * stages * sizeof *time);
    if (!time) return ls_fail(LS_NO_MEMORY, "the times of %zu stages", stages);
    ls_status st = spread("forward", &o->forward, s, time);
    if (st == LS_OK) st = spread("backward-input", &o->input, s, time + stages);
    if (st == LS_OK) st = spread("backward-weight", &o->weight, s, time + 2 * stages);
    const ls_pipe_times t = { time, time + stages, time + 2 * stages, o->transfer };
    if (st == LS_OK) st = ls_pipe_replay_create(&p->program, &t, &p->replay);
    free(time);
    return st;
}

static ls_status from_file(const ls_pipeline_options *o, ls_pipeline *p)
{
    char *text = NULL;
    size_t n = 0;
    LS_TRY(ls_file_read(o->file, LS_PIPE_MOST_CSV_BYTES, &text, &n));
    int others;
    const ls_status st = ls_pipe_csv_read(o->file, text, n, (int)o->alive, &p->program, &others);
    p->name = o->file;
    free(text);
    if (st == LS_OK && others > 0) fprintf(stderr, "%s: %d actions of FSDP, such as UNSHARD, are left out\n", o->file, others);
    return st;
}

static ls_status from_schedule(const ls_pipeline_options *o, ls_pipeline *p)
{
    const ls_pipe_schedule *s;
    const ls_pipe_shape shape = { (int)o->ranks, (int)o->chunks, (int)o->micro };
    LS_TRY(ls_pipe_schedule_find(o->schedule, &s));
    LS_TRY(ls_pipe_program_create(s, &shape, &p->program));
    LS_TRY(ls_pipe_program_make(&p->program, (int)o->micro));
    p->name = s->name;
    if (o->alive == 0 || ls_pipe_prove(&p->program, (int)o->alive, 0) == LS_OK) return LS_OK;
    return ls_fail(LS_BAD_CONFIG, "--alive %d: %s", (int)o->alive, ls_last_error());
}

static ls_status write_svg(const char *path, const ls_pipeline *p)
{
    ls_text svg = { 0 };
    ls_pipeline_svg(p, &svg);
    ls_status st = ls_text_status(&svg);
    if (st == LS_OK) st = ls_file_write(path, svg.p, svg.n);
    ls_text_free(&svg);
    return st;
}

static ls_status show(const ls_pipeline_options *o)
{
    ls_pipeline p = { 0 };
    ls_text out = { 0 };
    ls_status st = o->file && o->file[0] ? from_file(o, &p) : from_schedule(o, &p);
    if (st == LS_OK) st = time_it(o, &p);
    if (st == LS_OK && o->svg && o->svg[0]) st = write_svg(o->svg, &p);
    if (st == LS_OK) {
        if (o->csv) ls_pipe_csv_write(&p.program, o->messages, &out);
        else if (o->json) ls_pipeline_json(&p, &out);
        else ls_pipeline_text(&p, (int)o->columns, &out);
        st = ls_cli_print(&out);
    }
    ls_pipe_replay_free(&p.replay);
    ls_pipe_program_free(&p.program);
    return st;
}

/* Options that contradict each other. */
static ls_status check(const ls_opts *opts, const ls_pipeline_options *o)
{
    static const char *const of_schedules[] = { "schedule", "stages", "micro", "chunks" };
    for (size_t i = 0; o->file && o->file[0] && i < sizeof of_schedules / sizeof *of_schedules; i++)
        if (ls_opts_is_set(opts, of_schedules[i]))
            return ls_fail(LS_USAGE, "--file and --%s: a file says that itself: leave one of them out", of_schedules[i]);
    if (o->messages && !o->csv) return ls_fail(LS_USAGE, "--messages belongs to --csv");
    if (o->csv && o->json) return ls_fail(LS_USAGE, "--csv and --json: leave one of them out");
    if (!o->compare) return LS_OK;
    static const char *const of_one[] = { "schedule", "chunks", "alive", "file", "csv", "svg" };
    for (size_t i = 0; i < sizeof of_one / sizeof *of_one; i++)
        if (ls_opts_is_set(opts, of_one[i]))
            return ls_fail(LS_USAGE, "--compare and --%s: it shows all schedules: leave one of them out", of_one[i]);
    if (o->forward.n != 1 || o->input.n != 1 || o->weight.n != 1)
        return ls_fail(LS_USAGE, "--compare with times per stage: schedules differ in their stages: expected one time, of a rank's layers");
    if (o->micro > LS_PIPELINE_MOST_COMPARED)
        return ls_fail(LS_USAGE, "--compare with %lld micro-batches: expected at most %d", (long long)o->micro, LS_PIPELINE_MOST_COMPARED);
    return LS_OK;
}

static ls_status compare(const ls_pipeline_options *o)
{
    ls_text out = { 0 };
    const ls_status st = ls_pipeline_compare(o, &out);
    if (st == LS_OK) return ls_cli_print(&out);
    ls_text_free(&out);
    return st;
}

static ls_status list(bool json)
{
    ls_text out = { 0 };
    ls_pipeline_list(json, &out);
    return ls_cli_print(&out);
}

static int run(int argc, char **argv)
{
    ls_pipeline_options o = { 0 };
    ls_opts *opts = NULL;
    int rest = 0, code = 0;
    ls_status st = ls_opts_create(table, sizeof table / sizeof *table, &o, &opts);
    if (st == LS_OK) st = ls_opts_parse(opts, argc, argv, false, &rest);
    if (st == LS_OK && o.help) code = ls_cli_help(&ls_cmd_pipeline);
    else if (st == LS_OK && ls_opts_npositional(opts) > 0)
        st = ls_fail(LS_USAGE, "unexpected '%s'; --help shows what it takes", ls_opts_positional(opts, 0));
    else if (st == LS_OK && o.list) st = list(o.json);
    else if (st == LS_OK && (st = check(opts, &o)) == LS_OK) st = o.compare ? compare(&o) : show(&o);
    if (st < 0) code = ls_cli_fail("pipeline", st);
    ls_opts_destroy(opts);
    return code;
}

const ls_cmd ls_cmd_pipeline = {
    .name = "pipeline",
    .summary = "draw, prove and time a pipeline schedule, or compare all",
    .usage = "lockstep pipeline [options]",
    .example = "lockstep pipeline --schedule zb-h1 --stages 4 --micro 8 --svg zb-h1.svg\n"
               "  lockstep pipeline --compare --stages 8 --micro 32",
    LS_CMD_OPTS(table),
    .run = run,
};
