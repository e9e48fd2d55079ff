/* plan_report.h -- what `lockstep plan` answers: the best layouts, why, and what would change them. */
#ifndef LS_PLAN_REPORT_H
#define LS_PLAN_REPORT_H
#include "base/text.h"
#include "lockstep/plan.h"

/* --- plan_ask.c: questions that take several searches --- */

/* The best layout that differs from another in one respect. */
typedef struct ls_neighbour {
    char change[48];    /* "tp 8", "ZeRO 0" */
    ls_refusal refused; /* no such layout is legal; LS_REFUSE_NONE: */
    bool too_large;     /* none fits; cost is that with the least memory */
    ls_layout_cost cost;
} ls_neighbour;
enum { LS_NEIGHBOURS = 32 };
/* Twice and half of each degree and of the micro-batch, and each other ZeRO stage, recomputation and schedule, the rest
 * as good as it can be; into out[LS_NEIGHBOURS]; *n how many. */
ls_status ls_neighbours_of(const ls_layout_query *q, const ls_layout_cost *best, ls_neighbour *out, int *n);

/* A resource that there is 10 % more of (of a latency, less). */
typedef struct ls_sensitivity {
    const char *resource; /* static */
    double same, again;   /* seconds of a step: of the same layout, of the then best */
    bool other;           /* the then best is another layout */
} ls_sensitivity;
enum { LS_SENSITIVITIES = LS_RES_COUNT + 1 }; /* and memory */
ls_status ls_sensitivity_of(const ls_layout_query *q, const ls_layout_cost *best, ls_sensitivity out[LS_SENSITIVITIES]);

/* The layout that is best if only operations take time: links, adapters, memory and launches cost nothing. */
typedef struct ls_by_flops {
    double ranked;       /* seconds of a step if so */
    ls_layout_cost real; /* the same layout, all counted */
} ls_by_flops;
/* LS_BAD_CONFIG: none fits. */
ls_status ls_by_flops_of(const ls_layout_query *q, ls_by_flops *out);

/* Worlds of whole nodes, 1, 2, 3, 4, 6, 8, 12 ... of them, and parts of a node, up to q->world, each with its best
 * layout, except those without a legal one. LS_BAD_CONFIG, with the reason: none of them has one. */
typedef struct ls_world_plan {
    int64_t world;
    bool fits;
    ls_layout_cost best;
} ls_world_plan;
enum { LS_WORLDS = 64 };
ls_status ls_worlds_of(const ls_layout_query *q, ls_world_plan out[LS_WORLDS], int *n);

/* --- plan_report.c and plan_json.c --- */

typedef struct ls_plan_report {
    const ls_layout_query *q;
    const ls_layouts *found;
    bool batch_given;
    const ls_neighbour *neighbour; /* NULL: not asked for */
    int nneighbours;
    const ls_sensitivity *sensitivity; /* [LS_SENSITIVITIES]; NULL: not asked for */
    const ls_by_flops *by_flops;       /* NULL: not asked for */
    const ls_world_plan *worlds;       /* of an inverse question; NULL: none */
    int nworlds;
    double want_mfu, want_s; /* 0: not asked for */
    bool cheapest;           /* the world with the least device-seconds per step is asked for */
} ls_plan_report;
void ls_plan_print(const ls_plan_report *r, ls_text *out);
void ls_plan_json(const ls_plan_report *r, ls_text *out);
/* Index of the world that the inverse question asks for; -1: none does. */
int ls_world_asked(const ls_plan_report *r);

/* "tp 8, pp 16, ..." */
const char *ls_layout_text(const ls_layout *l, char *buf, size_t n);
const char *ls_layout_node_text(const ls_layout *l, char *buf, size_t n); /* "tp 8 x dp 2" */
const char *ls_pipe_form_name(ls_pipe_form f);
const char *ls_kept_name(ls_recompute_kind k);
/* The parts of a step in order; name NULL at the end. */
typedef struct ls_step_part { const char *name, *key; size_t at; } ls_step_part;
extern const ls_step_part ls_step_parts[];
double ls_step_part_of(const ls_step_cost *c, const ls_step_part *p);
/* The median part of the peak that published rows with these constants have, 16-bit products; 0: none. */
double ls_layout_null_mfu(const ls_layout_query *q);

#endif
