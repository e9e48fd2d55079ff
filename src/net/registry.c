/* registry.c -- the list of transports. */
#include <stdio.h>
#include <string.h>

#include "net/transports.h"

/* The transports: a line each, in the order in which messages and --help name them. */
#define TRANSPORTS(transport) \
    transport(shm, "")        \
    transport(tcp, "|")       \
    transport(mixed, "|")     \
    transport(self, "|")

#define DECLARED(name, bar) extern const ls_transport_ops ls_transport_##name;
#define LISTED(name, bar) &ls_transport_##name,
#define CHOICE(name, bar) bar #name

TRANSPORTS(DECLARED)
const ls_transport_ops *const ls_transports[] = { TRANSPORTS(LISTED) &ls_transport_fault, NULL };
const char ls_transport_choices[] = TRANSPORTS(CHOICE);

const ls_transport_ops *ls_transport_find(const char *name)
{
    for (size_t i = 0; ls_transports[i]; i++) {
        const ls_transport_ops *t = ls_transports[i];
        size_t n = strlen(t->name);
        if (strncmp(name, t->name, n) == 0 && (name[n] == 0 || strchr(":,", name[n]))) return t; /* "fault:shm,delay=1ms" */
    }
    return NULL;
}

ls_status ls_transport_check(const char *name)
{
    char names[128];
    const char *colon = strchr(name, ':');
    const ls_transport_ops *t = ls_transport_find(name), *inner = colon ? ls_transport_find(colon + 1) : NULL;
    (void)ls_transport_names(NULL, names, sizeof names);
    if (!t || (t != &ls_transport_fault && strcmp(name, t->name) != 0))
        return ls_fail(LS_BAD_CONFIG, "no transport named '%s': expected one of %s, or fault:<one of them>", name, names);
    if (t != &ls_transport_fault) return LS_OK;
    if (inner && inner != &ls_transport_fault && colon[1 + strlen(inner->name)] != ':') return ls_fault_check(name);
    return ls_fail(LS_BAD_CONFIG, "transport '%s': expected fault: and one of %s", name, names);
}

static bool lists(const ls_transport_ops *t, const char *key)
{
    for (const char *const *k = t->keys; k && *k; k++)
        if (strcmp(*k, key) == 0) return true;
    return false;
}

bool ls_transport_reads(const char *name, const char *key)
{
    const char *colon = strchr(name, ':');
    const ls_transport_ops *t = ls_transport_find(colon ? colon + 1 : name);
    return !t || lists(t, key);
}

ls_status ls_transport_check_wire(const char *name)
{
    char names[128];
    if (ls_transport_reads(name, "comm.wire")) return LS_OK;
    return ls_fail(LS_BAD_CONFIG, "comm.wire: bf16 is for connections between nodes, and transport '%s' has none: use one of "
                   "%s, or comm.wire: f32", name, ls_transport_names("comm.wire", names, sizeof names));
}

const char *ls_transport_names(const char *key, char *buf, size_t n)
{
    int names = 0, said = 0;
    size_t at = 0;
    buf[0] = '\0';
    for (int i = 0; ls_transports[i] != &ls_transport_fault; i++) names += !key || lists(ls_transports[i], key);
    for (int i = 0; ls_transports[i] != &ls_transport_fault && at < n; i++) {
        if (key && !lists(ls_transports[i], key)) continue;
        at += (size_t)snprintf(buf + at, n - at, "%s%s", said == 0 ? "" : said < names - 1 ? ", " : " and ",
                               ls_transports[i]->name);
        said++;
    }
    return buf;
}
