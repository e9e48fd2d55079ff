/* explain_side.h -- what `lockstep explain` is asked about: a configuration or a run, with its model; --compare asks
 * about two.
 */
#ifndef LS_CLI_EXPLAIN_SIDE_H
#define LS_CLI_EXPLAIN_SIDE_H
#include "cli/cli.h"
#include "train/explain_topic.h"

/* The configuration comes first: rows of `lockstep train` have their offsets in it. */
typedef struct ls_explain_options {
    ls_train_config c;
    ls_opt_ints ranks, stages;
    int64_t nodes, rank;
    const char *compare, *topology;
    double tflops, memory_rate;
    bool json, help;
} ls_explain_options;

extern const ls_opt ls_explain_opts[];
extern const size_t ls_explain_nopts;

/* What the words after the command say. */
typedef struct ls_explain_subject {
    bool zero, roofline;
    const ls_topic *topic;  /* NULL: none */
    const char *folder;     /* of a run; NULL: a configuration */
    const char *name;       /* the configuration's or the run's, as it was given; NULL: a topic's own plan */
    char config[600];       /* the run's */
} ls_explain_subject;

typedef struct ls_explain_asked {
    ls_explain_options o;
    ls_explain_subject s;
    ls_opt *rows;           /* owned, as all below */
    ls_opts *opts;
    ls_source source;
    ls_model_config mc;
    ls_run_counters k;
    ls_run_failure failure; /* of a run */
    int *node;              /* of a run that says it */
    int size;               /* ranks */
    const char *adjusted;   /* what a topic has changed; static; NULL: nothing */
} ls_explain_asked;

/* Reads the arguments of the command, where `instead` (NULL: nothing) takes the place of the configuration or run.
 * The model is not there yet. To be closed also after a failure. */
ls_status ls_explain_ask(int argc, char **argv, const char *instead, ls_explain_asked *out);
/* The numbers of ranks and the model; fails as a run of that many ranks does. */
ls_status ls_explain_look(ls_explain_asked *a);
void ls_explain_forget(ls_explain_asked *a);

#endif
