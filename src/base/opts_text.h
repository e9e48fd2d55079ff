/* opts_text.h -- a table of options as text: rows by name, descriptions, YAML, values to and from text. Beside
 * lockstep/opts.h: for help, man pages, completion and tests.
 */
#ifndef LS_BASE_OPTS_TEXT_H
#define LS_BASE_OPTS_TEXT_H
#include "base/text.h"
#include "lockstep/opts.h"

/* --- opts.c --- */
size_t ls_opts_find(const ls_opts *o, const char *name); /* its row; how many there are when unknown */

/* --- opts_help.c: the table as text, for --help, man pages and completions --- */
bool ls_opt_dotted(const ls_opt *table, size_t n);                /* whether a name has a dot */
bool ls_opt_opens_section(const ls_opt *table, size_t i);         /* row i is the first of its section */
bool ls_opt_in_section(const ls_opt *row, const char *section);   /* "": of no section */
const char *ls_opt_placeholder(ls_opt_type t);                    /* " N"; "" of a switch */
/* Who reads an option that not every run reads, in buf: "adam and adamw"; "" where there is no such rule. */
typedef const char *ls_opt_readers(const char *name, char *buf, size_t n);
/* "adam and adamw: decay (default 0.9; 0..1) [also --beta]". `config`: the row may stand in a YAML file. `readers` may
 * be NULL. */
void ls_opt_describe(const ls_opt *row, bool config, ls_opt_readers *readers, ls_text *out);
/* "adam and adamw: decay": the first part of it. */
void ls_opt_say(const ls_opt *row, ls_opt_readers *readers, ls_text *out);
/* Columns for help on stdout: COLUMNS, else the terminal's, else 110; 40 to 110. */
int ls_help_width(void);

typedef struct ls_help_index { const char *section, *summary; } ls_help_index;
typedef struct ls_help {
    const char *usage, *summary;
    const char *example;        /* NULL: none */
    const char *section;        /* NULL: all; "": the options of no section alone */
    const ls_help_index *index; /* lines that name sections; ends with a section of NULL. NULL: none */
    ls_opt_readers *readers;    /* NULL: help alone says so */
    int width;
} ls_help;
/* malloc'd; NULL when out of memory. */
char *ls_opts_help_of(const ls_opt *table, size_t n, const ls_help *h);

/* --- opts_value.c --- */
typedef struct ls_opt_value {
    bool b;
    int64_t i;
    double d;
    size_t bytes;
    uint64_t ns;
    ls_opt_ints ints;
    ls_opt_doubles doubles;
} ls_opt_value;
/* Reads text as row's type and checks its range. False: `why` says what was expected and found. */
bool ls_opt_read(const ls_opt *row, const char *text, ls_opt_value *out, char *why, size_t nwhy);
/* "an integer in 1..64": what a row accepts. */
void ls_opt_expected(const ls_opt *row, char *buf, size_t n);
void ls_opt_format(const ls_opt *row, const void *field, ls_text *out);
bool ls_opt_bool_word(const char *text, bool *out);

/* --- opts_yaml.c --- */
/* ls_opts_load_yaml on text in memory; `name` stands for the file in messages. */
ls_status ls_opts_read_yaml(ls_opts *o, const char *name, const char *text, size_t n);

/* --- nearest.c --- */
/* Edits from a to b, '-' and '_' equal; a large number when either is too long to compare. */
unsigned ls_edit_distance(const char *a, const char *b);
/* How many edits still count as a slip in a word of this length. */
unsigned ls_edit_slip(const char *name);

#endif
