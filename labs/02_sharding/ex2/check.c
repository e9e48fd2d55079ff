/* check.c -- exercise 2 of lab 02: the list is carried out, and each rule is looked at. */
#include "check.h"

enum { GATHER, USE, RELEASE };
enum { MOST = 10, SPACE = 8 * MOST };

int schedule(int units, int ahead, int *what, int *unit); /* task.c */

typedef struct list {
    int units, ahead, n, what[SPACE + 1], unit[SPACE + 1];
    bool there[MOST], before[MOST]; /* gathered now; at some time */
    int gathered, used; /* units that are; uses so far */
    int at;             /* the entry that is wrong */
} list;

static int unit_of(const list *l, int use) { return use < l->units ? use : 2 * l->units - 1 - use; }

/* Whether a unit is that of one of the uses first, .., first + ahead. */
static bool is_near(const list *l, int unit, int first)
{
    for (int use = first; use <= first + l->ahead && use < 2 * l->units; use++)
        if (unit_of(l, use) == unit) return true;
    return false;
}

static const char *use(list *l, int u)
{
    if (l->used == 2 * l->units || u != unit_of(l, l->used)) return "forward uses the units in ascending order, backward in descending order, each once";
    for (int next = l->used; next <= l->used + l->ahead && next < 2 * l->units; next++) {
        const int v = unit_of(l, next);
        if (l->there[v]) continue;
        if (l->before[v]) return "it was released after forward: backward has to gather it again";
        return v == u ? "a unit is used before it is gathered"
                      : "the next units are not gathered yet: when their turn comes, the rank waits for each";
    }
    l->used++;
    return NULL;
}

static const char *gather(list *l, int u)
{
    if (l->there[u]) return "it is gathered already: its values would travel twice";
    l->there[u] = l->before[u] = true;
    if (++l->gathered <= 1 + l->ahead) return NULL;
    for (int v = 0; v < l->units; v++)
        if (l->there[v] && v != u && !is_near(l, v, l->used)) return "memory for one unit too many: release what is not needed first, then gather";
    return "more units are gathered than may be at a time";
}

static const char *release(list *l, int u)
{
    if (!l->there[u]) return "a unit is released that is not gathered";
    if (is_near(l, u, l->used)) return "it is needed for one of the next uses, and would have to be gathered again at once";
    l->there[u] = false;
    l->gathered--;
    return NULL;
}

static const char *wrong_with(list *l)
{
    if (l->n < 0 || l->n > SPACE) return "the result is the length of the list";
    for (l->at = 0; l->at < l->n; l->at++) {
        const int what = l->what[l->at], u = l->unit[l->at];
        if (u < 0 || u >= l->units || what < GATHER || what > RELEASE) return "an entry is GATHER, USE or RELEASE of a unit";
        const char *why = what == USE ? use(l, u) : what == GATHER ? gather(l, u) : release(l, u);
        if (why) return why;
    }
    if (l->used < 2 * l->units) return "a step has a forward and a backward";
    return l->gathered ? "after the step units are gathered still, so the next step has less memory" : NULL;
}

static void print(const list *l)
{
    static const char *const word[] = { "GATHER", "USE", "RELEASE" };
    printf("  list     ");
    for (int i = l->at > 6 ? l->at - 6 : 0; i < l->n && i <= l->at && i < SPACE; i++)
        printf(" %s %d,", l->what[i] >= 0 && l->what[i] <= 2 ? word[l->what[i]] : "?", l->unit[i]);
    printf(l->at < l->n ? " <- this entry is wrong\n" : " and the end\n");
}

int main(int argc, char **argv)
{
    check c = check_begin(argc, argv);
    for (int shape = 0; shape < CHECK_SHAPES; shape++) {
        list l = { .units = check_between(&c, 3, MOST), .ahead = check_between(&c, 0, 4) };
        memset(l.what, 0xff, sizeof l.what);
        l.n = schedule(l.units, l.ahead, l.what, l.unit);
        const char *idea = wrong_with(&l);
        if (!idea) continue;
        printf("shape %d of %d: units = %d, ahead = %d\n", shape + 1, CHECK_SHAPES, l.units, l.ahead);
        print(&l);
        printf("  expected  at most %d units gathered, and those of the next %d uses\n  found     %d gathered after %d uses\n",
               1 + l.ahead, l.ahead, l.gathered, l.used);
        printf("  idea      %s\n", idea);
        return 1;
    }
    return check_green(CHECK_SHAPES);
}
