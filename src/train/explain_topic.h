/* explain_topic.h -- one way to divide a model, explained with the numbers of a plan: what the problem is, how ranks
 * stay in step, where state is, what it costs, and a common misunderstanding with the number that refutes it.
 *
 *   explain_topic.c   the list of topics
 *   explain_topic_parts.c  what their texts share
 *   explain_four.c    the end of each text: state, axis and shape, collective and link, number
 *   explain_dp.c      dp, and the five headings of `explain zero`
 *   explain_tp.c      tp and sp: a layer with the shapes of its parts
 *   explain_cp.c      cp: the work of each rank
 *   explain_ep.c      ep: experts and rows
 *   explain_pp.c      pp: stages, what passes between them, and the bubble
 *   explain_3d.c      3d: a table with a line per axis
 *
 * Another topic is a file like these and a word in ls_topics.
 */
#ifndef LS_TRAIN_EXPLAIN_TOPIC_H
#define LS_TRAIN_EXPLAIN_TOPIC_H
#include "coll/cost.h"
#include "train/explain_run.h"

#define LS_TOPIC_WIDTH 110 /* columns of a text */

/* What a topic is explained with. */
typedef struct ls_topic_of {
    const ls_train_config *c; /* borrowed, as all here; with an axis that the topic is about */
    const ls_model_config *mc;
    const ls_explain_layout *l;
    ls_cost cost;             /* of this machine where it is calibrated, else a preset */
    char cost_from[96];
} ls_topic_of;

typedef struct ls_topic {
    const char *name, *title;
    const char *const *plan; /* keys and values of the plan that is shown where no configuration is given; NULL-ended */
    int ranks;               /* of it */
    /* Makes the axis there if the configuration does not have it, and returns what it has changed ("parallel.tp 2");
     * NULL: nothing. */
    const char *(*adjust)(ls_train_config *c);
    ls_status (*print)(const ls_topic_of *t, ls_text *out);
    ls_axis axis;            /* that it is about; LS_AXES: all that the plan has */
} ls_topic;

extern const ls_topic *const ls_topics[]; /* NULL-ended */
extern const ls_topic ls_topic_dp, ls_topic_tp, ls_topic_sp, ls_topic_cp, ls_topic_ep, ls_topic_pp,
    ls_topic_3d;
const ls_topic *ls_topic_find(const char *name); /* NULL: there is none */
/* "dp, tp, sp" into buf; returns buf. */
const char *ls_topic_names(char *buf, size_t n);

/* The text about a plan of `size` ranks; c has the topic's axis (ls_topic.adjust). Fails as ls_explain_layout_make
 * does. */
ls_status ls_topic_print(const ls_topic *topic, const ls_train_config *c, const ls_model_config *mc, int size,
                         ls_text *out);

/* explain_dp.c: the same headings for the stages of ZeRO, whose table `explain zero` prints above them. */
void ls_topic_zero(const ls_zero_costs *z, ls_text *out);

/* --- what their texts share --------------------------------------------------------------------------------- */

typedef enum ls_topic_part {
    LS_TOPIC_PROBLEM, LS_TOPIC_SYNC, LS_TOPIC_STATE, LS_TOPIC_COST, LS_TOPIC_MISTAKE, LS_TOPIC_ASKED,
    LS_TOPIC_FOUR
} ls_topic_part;
/* A heading. */
void ls_topic_head(ls_topic_part part, ls_text *out);
/* A sentence or several, in lines below the heading. */
void ls_topic_say(ls_text *out, const char *fmt, ...) LS_PRINTF(2, 3);
/* The collectives of rank 0 that are for an axis, and their total. */
void ls_topic_calls(const ls_topic_of *t, ls_axis axis, ls_text *out);

/* explain_four.c: an axis in four sentences, about state, axis and shape, collective and link, number. */
void ls_topic_four(const ls_topic_of *t, ls_axis axis, ls_text *out);

/* What an axis costs rank 0 per step. */
typedef struct ls_axis_cost {
    uint64_t calls, bytes, moved;  /* of whole vectors; moved here, by the plan */
    double sent;                   /* bytes that a rank sends if each call goes round a ring */
    double ns[LS_LEVELS];          /* that takes, by the cost model, if nothing else is under way */
} ls_axis_cost;
ls_axis_cost ls_axis_cost_of(const ls_topic_of *t, const ls_explain_layout *l, ls_axis axis);
/* "3.10 MiB" and the like are of base/text.h; "1.23 ms" into buf; returns buf. */
const char *ls_topic_ms(double ns, char *buf, size_t n);

#endif
