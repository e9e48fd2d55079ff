/* address.c -- numeric addresses, names, and the rule about who may listen where. */
#include "meet/address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"

bool ls_address_is_loopback(const char *addr)
{
    if (strcmp(addr, "localhost") == 0 || strcmp(addr, "::1") == 0) return true;
    unsigned part = 0, dots = 0, digits = 0; /* 127.x.y.z, and nothing that only begins like it */
    if (strncmp(addr, "127.", 4) != 0) return false;
    for (const char *p = addr; *p; p++) {
        if (*p >= '0' && *p <= '9' && digits < 3) {
            part = 10 * part + (unsigned)(*p - '0');
            digits++;
        } else if (*p == '.' && digits > 0) {
            dots++;
            part = digits = 0;
        } else {
            return false;
        }
        if (part > 255) return false;
    }
    return dots == 3 && digits > 0;
}

ls_status ls_address_check(const char *addr, bool secret)
{
    if (secret || ls_address_is_loopback(addr)) return LS_OK;
    return ls_fail(LS_AUTH_FAILED,
                   "listening on %s would let every process that can reach it into the job: it needs a secret, the same file "
                   "on every host. Make one with `lockstep secret new FILE`, copy it to the others, and give "
                   "--secret-file FILE (without a launcher: LOCKSTEP_SECRET_FILE). Without one only the loopback is listened on",
                   addr);
}

ls_status ls_address_resolve(const char *host, char addr[LS_ADDRESS_BYTES])
{
    if (strcmp(host, "localhost") == 0) host = "127.0.0.1";
    if (ls_env_get()->resolve(host, addr, LS_ADDRESS_BYTES) < 0)
        return ls_fail(LS_INVALID, "no address is known for the host name '%.200s'", host);
    return LS_OK;
}

ls_status ls_address_parse(const char *text, char *host, size_t n, int *port)
{
    const char *begin = text, *end, *colon = strrchr(text, ':');
    if (*text == '[') {
        begin = text + 1;
        end = strchr(begin, ']');
        if (!end || (end[1] && end[1] != ':')) return ls_fail(LS_INVALID, "'%.100s' is not [ADDRESS]:PORT", text);
        colon = end[1] ? end + 1 : NULL;
    } else if (colon && strchr(text, ':') != colon) { /* a bare IPv6 address */
        colon = NULL;
        end = text + strlen(text);
    } else {
        end = colon ? colon : text + strlen(text);
    }
    if (end == begin || (size_t)(end - begin) >= n) return ls_fail(LS_INVALID, "'%.100s' is no host name", text);
    if (colon) {
        char *rest;
        long v = strtol(colon + 1, &rest, 10);
        if (*rest || rest == colon + 1 || v < 0 || v > 65535)
            return ls_fail(LS_INVALID, "'%.100s': expected HOST:PORT with a port from 0 to 65535", text);
        *port = (int)v;
    }
    memcpy(host, begin, (size_t)(end - begin));
    host[end - begin] = 0;
    return LS_OK;
}
