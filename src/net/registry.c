/* registry.c -- the list of transports. */
#include <string.h>

#include "lockstep/transport.h"
#include "net/transports.h"

const ls_transport_ops *const ls_transports[] = {
    &ls_transport_self,
    &ls_transport_shm,
    &ls_transport_tcp,
    &ls_transport_mixed,
    &ls_transport_fault,
    NULL,
};

const ls_transport_ops *ls_transport_find(const char *name)
{
    for (size_t i = 0; ls_transports[i]; i++) {
        const ls_transport_ops *t = ls_transports[i];
        size_t n = strlen(t->name);
        if (strncmp(name, t->name, n) == 0 && (name[n] == 0 || name[n] == ':')) return t; /* "fault:shm" */
    }
    return NULL;
}
