/* registry.c -- the optimizers of the library. */
#include <stdio.h>
#include <string.h>

#include "lockstep/optim.h"

/* The optimizers: a line each, in the order in which messages and --help name them. */
#define OPTIMIZERS(optimizer) \
    optimizer(sgd, "")        \
    optimizer(adam, "|")      \
    optimizer(adamw, "|")

#define DECLARED(name, bar) extern const ls_optim_class ls_optim_##name;
#define LISTED(name, bar) &ls_optim_##name,
#define CHOICE(name, bar) bar #name

OPTIMIZERS(DECLARED)
const ls_optim_class *const ls_optim_classes[] = { OPTIMIZERS(LISTED) NULL };
const char ls_optim_choices[] = OPTIMIZERS(CHOICE);

const ls_optim_class *ls_optim_class_find(const char *name)
{
    for (int i = 0; name && ls_optim_classes[i]; i++)
        if (strcmp(ls_optim_classes[i]->name, name) == 0) return ls_optim_classes[i];
    return NULL;
}

static bool lists(const ls_optim_class *cls, const char *key)
{
    for (const char *const *k = cls->keys; k && *k; k++)
        if (strcmp(*k, key) == 0) return true;
    return false;
}

bool ls_optim_reads(const ls_optim_class *cls, const char *key)
{
    if (cls && lists(cls, key)) return true;
    for (int i = 0; ls_optim_classes[i]; i++)
        if (lists(ls_optim_classes[i], key)) return false;
    return true;
}

const char *ls_optim_names(const char *key, char *buf, size_t n)
{
    int names = 0, said = 0;
    size_t at = 0;
    buf[0] = '\0';
    for (int i = 0; ls_optim_classes[i]; i++) names += !key || lists(ls_optim_classes[i], key);
    for (int i = 0; ls_optim_classes[i] && at < n; i++) {
        if (key && !lists(ls_optim_classes[i], key)) continue;
        at += (size_t)snprintf(buf + at, n - at, "%s%s", said == 0 ? "" : said < names - 1 ? ", " : " and ",
                               ls_optim_classes[i]->name);
        said++;
    }
    return buf;
}
