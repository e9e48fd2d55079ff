/* mesh.c -- a world as a grid of ranks, and the groups of its lines and planes. */
#include "lockstep/mesh.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

static const char *const names[LS_AXES] = { "pp", "dp", "ep", "cp", "tp" };

const char *ls_axis_name(ls_axis axis) { return names[axis]; }

/* --- which rank is where ----------------------------------------------------------------- */

ls_axis ls_mesh_axis(ls_mesh_order order, int i) { return (ls_axis)(order && order[0] != order[1] ? order[i] : i); }

ls_status ls_mesh_order_read(const char *text, int order[LS_AXES], int *named)
{
    int found[LS_AXES], n = 0, at = 0;
    unsigned seen = 0;
    for (const char *p = text;;) {
        char word[16];
        const size_t len = strcspn(p, "-");
        int a = 0;
        snprintf(word, sizeof word, "%.*s", (int)(len < 15 ? len : 15), p);
        while (a < LS_AXES && strcmp(names[a], word) != 0) a++;
        if (a == LS_AXES)
            return ls_fail(LS_BAD_CONFIG, "order %s: there is no axis '%s': expected pp, dp, ep, cp and tp with - between them, "
                           "the slowest first", text, word);
        if (seen & LS_ALONG(a)) return ls_fail(LS_BAD_CONFIG, "order %s: %s is there twice", text, word);
        seen |= LS_ALONG(a);
        found[n++] = a;
        if (!p[len]) break;
        p += len + 1;
    }
    for (int a = 0; a < LS_AXES; a++)
        if (!(seen & LS_ALONG(a))) order[at++] = a;
    for (int i = 0; i < n; i++) order[at++] = found[i];
    *named = n;
    return LS_OK;
}

void ls_mesh_strides(const int size[LS_AXES], ls_mesh_order order, int stride[LS_AXES])
{
    int next = 1;
    for (int i = LS_AXES - 1; i >= 0; i--) {
        const ls_axis a = ls_mesh_axis(order, i);
        stride[a] = next;
        next *= size[a];
    }
}

void ls_mesh_coord(const int size[LS_AXES], ls_mesh_order order, int rank, int coord[LS_AXES])
{
    int stride[LS_AXES];
    ls_mesh_strides(size, order, stride);
    for (int a = 0; a < LS_AXES; a++) coord[a] = rank / stride[a] % size[a];
}

void ls_mesh_place(const int size[LS_AXES], ls_mesh_order order, int rank, unsigned along, int *place, int *count)
{
    int coord[LS_AXES];
    ls_mesh_coord(size, order, rank, coord);
    *place = 0, *count = 1;
    for (int i = 0; i < LS_AXES; i++) {
        const ls_axis a = ls_mesh_axis(order, i);
        if (!(along & LS_ALONG(a))) continue;
        *place = *place * size[a] + coord[a];
        *count *= size[a];
    }
}

int ls_mesh_at(const int size[LS_AXES], ls_mesh_order order, int rank, unsigned along, int place)
{
    int coord[LS_AXES], stride[LS_AXES];
    ls_mesh_coord(size, order, rank, coord);
    ls_mesh_strides(size, order, stride);
    for (int i = LS_AXES - 1; i >= 0; i--) {
        const ls_axis a = ls_mesh_axis(order, i);
        if (!(along & LS_ALONG(a))) continue;
        rank += (place % size[a] - coord[a]) * stride[a];
        place /= size[a];
    }
    return rank;
}

/* --- does it fit ------------------------------------------------------------------------- */

/* The sizes nearest to `size` from below and above whose product with `others` divides the world; 0: none. */
static void nearest(int size, int64_t others, int world_size, int *below, int *above)
{
    *below = *above = 0;
    for (int n = 1; n <= world_size; n++) {
        if (world_size % (n * others) != 0) continue;
        if (n < size) *below = n;
        else if (n > size && !*above) *above = n;
    }
}

static void advise(const int size[LS_AXES], int world_size, int64_t product, ls_text *out)
{
    const int64_t others = product / size[LS_AXIS_DP];
    if (world_size % others == 0) { /* the other axes fit */
        ls_text_add(out, "dp %lld fits", (long long)(world_size / others));
        return;
    }
    for (int a = LS_AXES - 1; a >= 0; a--) {
        int below, above;
        if (size[a] == 1 || a == LS_AXIS_DP) continue;
        nearest(size[a], others / size[a], world_size, &below, &above);
        if (!below && !above) continue;
        ls_text_add(out, "with %s ", names[a]);
        if (below) ls_text_add(out, "%d", below);
        if (above) ls_text_add(out, "%s%d", below ? " or " : "", above);
        const int64_t rest = others / size[a];
        ls_text_add(out, ", dp %lld", (long long)(world_size / (rest * (below ? below : above))));
        if (below && above) ls_text_add(out, " or %lld", (long long)(world_size / (rest * above)));
        ls_text_add(out, " fits");
        return;
    }
    ls_text_add(out, "make all axes smaller, or start more ranks");
}

ls_status ls_mesh_check(const int size[LS_AXES], int world_size)
{
    int64_t product = 1;
    ls_text text = { 0 };
    for (int a = 0; a < LS_AXES; a++) {
        if (size[a] < 1 || size[a] > world_size)
            return ls_fail(LS_BAD_CONFIG, "mesh: %s is %d; expected 1 to %d, the number of ranks", names[a], size[a], world_size);
        product *= size[a]; /* at most five numbers of a world's size: 2^80 needs worlds of 65,536 along each */
        if (product > (int64_t)1 << 40) return ls_fail(LS_BAD_CONFIG, "mesh: its sizes multiply to more than 2^40 ranks");
    }
    if (product == world_size) return LS_OK;
    for (int a = 0; a < LS_AXES; a++)
        if (size[a] > 1) ls_text_add(&text, "%s%s %d", text.n ? " x " : "", names[a], size[a]);
    ls_text_add(&text, "%s = %lld, but the world has %d ranks: ", text.n ? "" : "dp 1", (long long)product, world_size);
    advise(size, world_size, product, &text);
    const ls_status st = ls_fail(LS_BAD_CONFIG, "mesh: %s", ls_text_str(&text));
    ls_text_free(&text);
    return st;
}

/* --- groups --------------------------------------------------------------------------------- */

typedef struct maker {
    ls_mesh *m;
    unsigned along[LS_MESH_GROUPS]; /* of m->owned[] */
} maker;

static unsigned wide(const ls_mesh *m)
{
    unsigned mask = 0;
    for (int a = 0; a < LS_AXES; a++)
        if (m->size[a] > 1) mask |= LS_ALONG(a);
    return mask;
}

/* Lines or planes of a mesh. */
typedef struct lines {
    const ls_mesh *m;
    unsigned along;
} lines;

/* The first rank of a rank's line or plane: the same for its members alone. */
static int color_of(const void *arg, int rank)
{
    const lines *l = arg;
    int coord[LS_AXES], r = 0;
    ls_mesh_coord(l->m->size, l->m->order, rank, coord);
    for (int a = 0; a < LS_AXES; a++) r = r * l->m->size[a] + (l->along & LS_ALONG(a) ? 0 : coord[a]);
    return r;
}

/* The same of first and last stage; the stages between have none. */
static int ends_of(const void *arg, int rank)
{
    const lines *l = arg;
    int coord[LS_AXES];
    ls_mesh_coord(l->m->size, l->m->order, rank, coord);
    const int at = coord[LS_AXIS_PP];
    return at == 0 || at == l->m->size[LS_AXIS_PP] - 1 ? color_of(arg, rank) : -1;
}

/* "tp", or "dp-ep" where its members differ along both: all five fit. */
static const char *name_of(unsigned along, char buf[16])
{
    size_t n = 0;
    buf[0] = 0;
    for (int a = 0; a < LS_AXES; a++)
        if (along & LS_ALONG(a)) n += (size_t)snprintf(buf + n, 16 - n, "%s%s", n ? "-" : "", names[a]);
    return n ? buf : "self";
}

static ls_status make(maker *k, unsigned along, ls_group **out)
{
    ls_mesh *m = k->m;
    along &= wide(m); /* nobody differs along an axis of size 1 */
    if (along == wide(m)) {
        *out = ls_world_group(m->w);
        return LS_OK;
    }
    for (int i = 0; i < m->nowned; i++)
        if (k->along[i] == along) {
            *out = m->owned[i];
            return LS_OK;
        }
    char name[16];
    LS_TRY(ls_group_split_by(ls_world_group(m->w), color_of, &(lines){ m, along }, name_of(along, name), out));
    k->along[m->nowned] = along;
    m->owned[m->nowned++] = *out;
    return LS_OK;
}

/* First and last stage of a line of stages. */
static ls_status make_embedding(ls_mesh *m)
{
    if (m->size[LS_AXIS_PP] == 1) return LS_OK;
    const lines stages = { m, LS_ALONG(LS_AXIS_PP) };
    LS_TRY(ls_group_split_by(ls_world_group(m->w), ends_of, &stages, "embedding", &m->embedding));
    if (m->embedding) m->owned[m->nowned++] = m->embedding;
    return LS_OK;
}

static ls_status make_groups(ls_mesh *m)
{
    maker k = { .m = m };
    for (int a = 0; a < LS_AXES; a++) LS_TRY(make(&k, LS_ALONG(a), &m->axis[a]));
    const unsigned batch = LS_ALONG(LS_AXIS_DP) | LS_ALONG(LS_AXIS_EP);
    LS_TRY(make(&k, batch, &m->batch));
    LS_TRY(make(&k, batch | LS_ALONG(LS_AXIS_CP), &m->replicas));
    LS_TRY(make(&k, LS_ALONG(LS_AXIS_DP) | LS_ALONG(LS_AXIS_CP), &m->expert_replicas));
    return make_embedding(m);
}

ls_status ls_mesh_create(ls_world *w, const int size[LS_AXES], ls_mesh_order order, ls_mesh *out)
{
    memset(out, 0, sizeof *out);
    LS_TRY(ls_mesh_check(size, ls_world_size(w)));
    out->w = w;
    memcpy(out->size, size, sizeof out->size);
    for (int i = 0; i < LS_AXES; i++) out->order[i] = (int)ls_mesh_axis(order, i);
    ls_mesh_coord(size, order, ls_world_rank(w), out->coord);
    out->speaks = ls_world_rank(w) == 0;
    out->has_loss = out->coord[LS_AXIS_PP] == size[LS_AXIS_PP] - 1 && out->coord[LS_AXIS_TP] == 0;
    const ls_status st = make_groups(out);
    if (st < 0) ls_mesh_destroy(out);
    return st;
}

void ls_mesh_destroy(ls_mesh *m)
{
    while (m->nowned > 0) ls_group_destroy(m->owned[--m->nowned]);
    memset(m, 0, sizeof *m);
}
