/* opts_impl.h -- what the files behind opts.h share. */
#ifndef LS_BASE_OPTS_IMPL_H
#define LS_BASE_OPTS_IMPL_H
#include "base/opts_text.h"

/* Who set a value; the larger wins. */
typedef enum ls_opt_rank { LS_OPT_BY_DEFAULT, LS_OPT_BY_FILE, LS_OPT_BY_ENVIRONMENT, LS_OPT_BY_FLAG } ls_opt_rank;

typedef struct ls_opt_slot {
    char *text;       /* owned: what a string in the target points to */
    char *origin;     /* owned; NULL: "default" */
    ls_opt_rank rank;
} ls_opt_slot;

struct ls_opts {
    const ls_opt *table; /* borrowed */
    size_t n;
    void *target;        /* borrowed */
    ls_opt_slot *slot;   /* owned: [n] */
    bool dotted;         /* some name has a dot: the others are for the command line only */
    char **positional;   /* owned array of borrowed argv strings */
    int npositional;
};

/* Where a value comes from and how to say so. */
typedef struct ls_opt_source {
    ls_opt_rank rank;
    const char *origin; /* kept with the value: "run.yaml:12" */
    const char *where;  /* in front of a message: "run.yaml:12:3: ", "" or "--" for a flag */
    bool null;          /* YAML's null: nothing was given */
} ls_opt_source;

/* --- opts.c --- */
/* Whether the row is configuration, as opposed to a flag of the command line alone. */
bool ls_opts_is_config(const ls_opts *o, size_t i);
ls_status ls_opts_assign(ls_opts *o, size_t i, const char *value, const ls_opt_source *from);
ls_status ls_opts_unknown(const ls_opts *o, const char *name, const ls_opt_source *from);

#endif
