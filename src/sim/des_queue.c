/* des_queue.c -- opening calendars and buckets. */
#include "sim/des_queue.h"

#include <math.h>
#include <stdlib.h>

#define FEW 24    /* so many events are sorted by insertion */
#define MANY 64   /* of the same moment: sorted by bits */

void ls_des_queue_free(ls_des_queue *q)
{
    free(q->far);
    free(q->bucket);
    free(q->list);
    free(q->low);
    free(q->late);
    free(q->same);
    *q = (ls_des_queue){ 0 };
}

static uint32_t most_buckets(uint32_t n) { return n / 2 > 16 ? n / 2 : 16; }

ls_status ls_des_queue_create(uint32_t n, ls_des_queue *out)
{
    const size_t k = n;
    *out = (ls_des_queue){ .n = n, .same_t = -(double)INFINITY };
    out->far = malloc(k * sizeof *out->far);
    out->bucket = malloc(most_buckets(n) * sizeof *out->bucket);
    out->list = malloc(k * sizeof *out->list);
    out->low = malloc(k * sizeof *out->low);
    out->late = malloc(k * sizeof *out->late);
    out->same = calloc(k / 64 + 1, sizeof *out->same);
    if (out->far && out->bucket && out->list && out->low && out->late && out->same) return LS_OK;
    ls_des_queue_free(out);
    return ls_fail(LS_NO_MEMORY, "a queue of %u processes", n);
}

/* --- the heap ----------------------------------------------------------------------------------- */

void ls_des_queue_push_late(ls_des_queue *q, double t, uint32_t p)
{
    const ls_des_event e = { t, p };
    uint32_t i = q->nlate++;
    for (; i > 0 && ls_des_before(&e, &q->late[(i - 1) / 2]); i = (i - 1) / 2) q->late[i] = q->late[(i - 1) / 2];
    q->late[i] = e;
}

ls_des_event ls_des_queue_pop_late(ls_des_queue *q)
{
    const ls_des_event first = q->late[0], last = q->late[--q->nlate];
    uint32_t i = 0;
    for (uint32_t k = 1; k < q->nlate; k = 2 * i + 1) {
        if (k + 1 < q->nlate && ls_des_before(&q->late[k + 1], &q->late[k])) k++;
        if (!ls_des_before(&q->late[k], &last)) break;
        q->late[i] = q->late[k];
        i = k;
    }
    q->late[i] = last;
    return first;
}

/* --- buckets -------------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    return ls_des_before(a, b) ? -1 : ls_des_before(b, a) ? 1 : 0;
}

static void sort(ls_des_event *e, uint32_t n)
{
    if (n > FEW) {
        qsort(e, n, sizeof *e, compare);
        return;
    }
    for (uint32_t i = 1; i < n; i++) {
        const ls_des_event x = e[i];
        uint32_t k = i;
        for (; k > 0 && ls_des_before(&x, &e[k - 1]); k--) e[k] = e[k - 1];
        e[k] = x;
    }
}

/* n events that come next, all later than those before. */
static void take(ls_des_queue *q, const ls_des_event *e, uint32_t n, bool same)
{
    if (same && n >= MANY) {
        q->word = q->n / 64;
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t w = e[i].p / 64;
            q->same[w] |= 1ull << (e[i].p % 64);
            q->word = w < q->word ? w : q->word;
        }
        q->nsame = n;
        q->same_t = e[0].t;
        return;
    }
    for (uint32_t i = 0; e != q->low && i < n; i++) q->low[i] = e[i];
    sort(q->low, n);
    q->at = 0;
    q->nlow = n;
}

/* Deals out what is far to a new calendar; false: it is the next bucket as it is, and there is no calendar. */
static bool new_calendar(ls_des_queue *q)
{
    const uint32_t most = most_buckets(q->n), wanted = q->nfar / 2 > 16 ? q->nfar / 2 : 16;
    const uint32_t buckets = wanted < most ? wanted : most;
    const double per_s = 0.999999 * buckets / (q->far_last - q->far_first); /* so that the last one is within */
    q->open = q->nbuckets = 0;
    q->begins = q->per_s = 0;
    q->same_t = q->far_last;
    if (!isfinite(per_s) || q->nfar <= FEW) return false;
    q->begins = q->far_first;
    q->per_s = per_s;
    q->nbuckets = buckets;
    for (uint32_t b = 0; b < buckets; b++) q->bucket[b] = LS_DES_NONE;
    for (uint32_t i = 0; i < q->nfar; i++) {
        const ls_des_event *e = &q->far[i];
        const uint32_t b = (uint32_t)((e->t - q->begins) * per_s);
        q->list[e->p] = (ls_des_listed){ e->t, q->bucket[b] };
        q->bucket[b] = e->p;
    }
    q->nfar = 0;
    return true;
}

bool ls_des_queue_open(ls_des_queue *q)
{
    for (;;) {
        while (q->open < q->nbuckets && q->bucket[q->open] == LS_DES_NONE) q->open++;
        if (q->open < q->nbuckets) break;
        if (q->nfar == 0) return false;
        if (new_calendar(q)) continue;
        const uint32_t n = q->nfar;
        q->nfar = 0;
        take(q, q->far, n, q->far_first == q->far_last);
        return true;
    }
    uint32_t n = 0;
    bool same = true;
    for (uint32_t p = q->bucket[q->open++]; p != LS_DES_NONE; p = q->list[p].next) {
        q->low[n++] = (ls_des_event){ q->list[p].t, p };
        same = same && q->low[n - 1].t == q->low[0].t;
    }
    take(q, q->low, n, same);
    return true;
}
