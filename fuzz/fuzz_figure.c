/* fuzz_figure.c -- requests of figures on arbitrary bytes: refused with a message, or answered. JSON can be read. */
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "fig/fig.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    char *request = malloc(n + 1);
    if (!request) abort();
    memcpy(request, p, n);
    request[n] = 0;
    char *answer = ls_fig_request(request);
    if (!answer) abort();
    const bool ok = strncmp(answer, "ok\n", 3) == 0;
    if (!ok && strncmp(answer, "error[usage]: ", 14) != 0) abort();
    if (ok && answer[3] == '{') {
        json_t *j = json_loads(answer + 3, JSON_REJECT_DUPLICATES, NULL);
        if (!j) abort();
        json_decref(j);
    }
    free(answer);
    free(request);
    return 0;
}
