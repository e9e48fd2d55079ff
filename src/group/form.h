/* form.h -- the ways to carry out a work: one table for each, in a file of its own.
 *
 * In memory that every member has mapped: memory/oneshot.c, in_place.c, mail.c, rooted.c, attached.c and staged.c. Else
 * by reading a schedule (run.c), as messages (message.c), by another library (backend.c), or with nothing to do
 * (select.c). To add one in memory, write its file and a line in select.c.
 */
#ifndef LS_GROUP_FORM_H
#define LS_GROUP_FORM_H
#include "coll/traffic.h"
#include "group/work.h"

typedef struct ls_form {
    const char *name;  /* "oneshot": in events, `lockstep bench` and tests */
    const char *about; /* for people: what ranks do */

    /* In memory, alike on every member: a bit for each collective that it serves; whether it could carry out one, for
     * its counts and the room of slots and mailboxes (NULL: always); and whether it is to, which it then can (NULL:
     * always). `asked`: the algorithm that was asked for, or NULL. Of select.c's list the first form that serves and
     * fits is taken. Forms that are not in it are what others become while they move. */
    uint32_t colls;
    bool (*can)(const ls_work *k);
    bool (*fits)(const ls_work *k, const ls_algo *asked);
    /* It walks the spans of a vector (k->span), which is registered; others get it packed (spans.h). */
    bool spans;
    /* In memory: not everyone waits for everyone. Those collectives have numbers of their own (area.h). */
    bool rooted;
    /* In memory, optional: on the calling thread, before the work is numbered; in a dry world, too, so that what it
     * takes of the arena is planned. */
    void (*prepare)(ls_work *k);
    /* In memory: shows the peers what they wait for; true: it is there. False: not possible yet, ask again. */
    bool (*publish)(ls_work *k);
    /* Moves it: LS_OK when it is done, LS_AGAIN, or a failure. In memory it is published. NULL: it has queues of its
     * own. */
    ls_status (*turn)(ls_work *k);

    /* What this rank moves for a work, which need not have begun: its group, arguments, bytes and counts. In memory,
     * where all vectors are registered, or private alike. NULL: nothing is known. */
    ls_status (*traffic)(const ls_work *k, ls_traffic *out);
} ls_form;

static inline bool ls_in_memory(const ls_form *f) { return f->publish != NULL; }

/* Publishes a work in memory, whose phase stays 0 while that is not possible yet. */
static inline void ls_form_publish(ls_work *k)
{
    k->peer = 0;
    k->pos = 0;
    if (k->form->publish(k)) k->phase = 1;
}

/* One turn of a work. */
static inline ls_status ls_form_turn(ls_work *k)
{
    if (k->phase == 0 && ls_in_memory(k->form)) {
        ls_form_publish(k);
        if (k->phase == 0) return LS_AGAIN;
    }
    return k->form->turn(k);
}

extern const ls_form ls_form_local, ls_form_oneshot, ls_form_in_place, ls_form_mail, ls_form_rooted, ls_form_attached,
    ls_form_staged, ls_form_schedule, ls_form_messages, ls_form_backend;

#endif
