/* Topologies: presets, closed forms of bisection bandwidth, pairs, and files that are refused with their line (R154,
 * R230, R231). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "lockstep/topo.h"
#include "sim/quantity.h"

#define GB 1e9
#define NEAR(a, b) assert_true(fabs((a) - (b)) <= 1e-12 * fabs(b))

static void preset(const char *name, ls_topo *out)
{
    char path[600];
    snprintf(path, sizeof path, LOCKSTEP_SOURCE "/recipes/clusters/%s.yaml", name);
    const ls_status st = ls_topo_load(path, out);
    if (st != LS_OK) fail_msg("%s: %s", name, ls_last_error());
    assert_string_equal(out->name, name);
    assert_true(*out->source);
    assert_int_equal(ls_topo_check(out), LS_OK);
}

/* R230: 8 devices per node. R231 and R154: 900 GB/s are both directions of NVLink, 50 GB/s one of an adapter. */
static void presets_have_the_numbers_of_their_data_sheets(void **state)
{
    (void)state;
    static const struct { const char *name; int per_node; double stated, network, peak; int adapters; } row[] = {
        { "h100-8", 8, 900, 50, 989, 8 }, { "a100-8", 8, 600, 25, 312, 8 }, { "b200-nvl72", 72, 1800, 50, 2500, 72 },
        { "ethernet-2", 4, 64, 1.25, 312, 1 },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_topo t;
        double rate, latency;
        preset(row[i].name, &t);
        assert_int_equal(t.nlevels, 2);
        assert_int_equal(t.level[0].count, row[i].per_node);
        assert_true(t.level[0].summed && !t.level[1].summed);
        assert_int_equal(t.level[1].ports, row[i].adapters);
        NEAR(t.device.flops_per_s, row[i].peak * 1e12);
        ls_topo_pair(&t, 0, 1, &rate, &latency);
        NEAR(rate, row[i].stated * GB / 2); /* one direction */
        ls_topo_pair(&t, 0, row[i].per_node, &rate, &latency);
        NEAR(rate, row[i].network * GB);
        assert_true(latency > t.level[0].latency_s);
        assert_int_equal(ls_topo_meet(&t, 0, row[i].per_node - 1), 0);
        assert_int_equal(ls_topo_meet(&t, row[i].per_node - 1, row[i].per_node), 1);
        assert_int_equal(ls_topo_meet(&t, 3, 3), -1);
    }
}

/* A fat tree of nodes, racks and a spine. */
static ls_topo fat_tree(int devices, int nodes, int racks, double port, double oversubscription)
{
    ls_topo t = { .name = "tree", .nlevels = 3 };
    t.level[0] = (ls_topo_level){ "node", devices, "bus", 450 * GB, true, 1e-6, 1, false, 1 };
    t.level[1] = (ls_topo_level){ "rack", nodes, "leaf", port, false, 2e-6, devices, true, 1 };
    t.level[2] = (ls_topo_level){ "site", racks, "spine", port, false, 3e-6, devices * nodes, false, oversubscription };
    assert_int_equal(ls_topo_check(&t), LS_OK);
    return t;
}

static void bisection_of_a_fat_tree_is_half_its_ports_over_the_oversubscription(void **state)
{
    (void)state;
    static const double r[] = { 1, 2, 3.5, 8 };
    for (int racks = 2; racks <= 8; racks += 2)
        for (size_t i = 0; i < 4; i++) {
            const ls_topo t = fat_tree(8, 4, racks, 50 * GB, r[i]);
            const double N = (double)ls_topo_devices(&t);
            NEAR(ls_topo_bisection(&t, 2, 0), N * 50 * GB / (2 * r[i]));
            NEAR(ls_topo_bisection(&t, 1, racks - 1), 8 * 4 * 50 * GB / 2); /* within a rack nothing is shared */
            NEAR(ls_topo_bisection(&t, 0, 0), 8 / 2 * 450 * GB);
        }
}

/* Against all subsets of half the units. */
static void bisection_is_the_least_of_all_halves(void **state)
{
    (void)state;
    for (int n = 2; n <= 9; n++)
        for (int nslow = 0; nslow <= n; nslow++) {
            ls_topo t = fat_tree(2, n, 3, 40 * GB, 1);
            double least = (double)INFINITY, rate[9];
            for (int i = 0; i < nslow; i++)
                t.slow[t.nslow++] = (ls_topo_slow){ 1, n + (n - 1 - i), (1 + (i * 7) % 11) * GB };
            t.slow[t.nslow++] = (ls_topo_slow){ 1, 0, 1 }; /* in another rack */
            assert_int_equal(ls_topo_check(&t), LS_OK);
            for (int u = 0; u < n; u++) rate[u] = ls_topo_uplink(&t, 1, n + u);
            for (unsigned set = 0; set < 1u << n; set++) {
                double sum = 0;
                if (__builtin_popcount(set) != n / 2) continue;
                for (int u = 0; u < n; u++) sum += set >> u & 1u ? rate[u] : 0;
                least = fmin(least, sum);
            }
            NEAR(ls_topo_bisection(&t, 1, 1), least);
        }
}

static void a_pair_has_the_slowest_link_between_them(void **state)
{
    (void)state;
    ls_topo t = fat_tree(4, 2, 2, 10 * GB, 16);
    double rate, latency;
    ls_topo_pair(&t, 0, 4, &rate, &latency);
    NEAR(rate, 10 * GB); /* one adapter each */
    assert_true(latency == 2e-6);
    ls_topo_pair(&t, 0, 8, &rate, &latency);
    NEAR(rate, 8 * 10 * GB / 16); /* all ports of a rack together */
    t.slow[t.nslow++] = (ls_topo_slow){ 1, 1, 1 * GB };
    for (int64_t a = 0; a < 16; a++)
        for (int64_t b = 0; b < 16; b++) {
            double back, ignored;
            ls_topo_pair(&t, a, b, &rate, &latency);
            ls_topo_pair(&t, b, a, &back, &ignored);
            assert_true(rate == back);
            const bool slow = (a / 4 == 1) != (b / 4 == 1);
            const double across = slow ? 1 * GB : a / 8 == b / 8 ? 10 * GB : 5 * GB;
            const double want = a == b ? (double)INFINITY : a / 4 == b / 4 ? 450 * GB : across;
            assert_true(rate == want);
        }
}

/* --- files ------------------------------------------------------------------------------------------------------- */

#define DEVICE "name: t\ndevice: {name: d}\n"
#define LINKS  "links:\n- {name: a, bandwidth: 8 GB/s, direction: both, latency: 1 us}\n- {name: b, bandwidth: 8 Gbit/s, direction: one, latency: 0 s}\n"
#define NODE   "- {name: node, of: device, count: 4, link: a}\n"

static ls_status read_text(const char *text, ls_topo *out) { return ls_topo_read("f.yaml", text, strlen(text), out); }

static void levels_stand_in_any_order(void **state)
{
    (void)state;
    ls_topo t;
    static const char text[] = DEVICE "levels:\n- {name: site, of: rack, count: 2, link: b, oversubscription: 4}\n"
                                      "- {name: rack, of: node, count: 3, link: b, rails: true}\n" NODE LINKS
                                      "slow:\n- {level: rack, unit: 5, bandwidth: 1 GB/s, direction: both}\n";
    if (read_text(text, &t) != LS_OK) fail_msg("%s", ls_last_error());
    assert_int_equal(t.nlevels, 3);
    assert_string_equal(t.level[0].name, "node");
    assert_string_equal(t.level[2].name, "site");
    assert_int_equal(ls_topo_devices(&t), 24);
    assert_int_equal(t.level[1].ports, 4);  /* rails: one per device */
    assert_int_equal(t.level[2].ports, 12); /* those of all nodes of a rack */
    NEAR(t.level[0].bytes_per_s, 4 * GB);
    NEAR(t.level[1].bytes_per_s, 1 * GB);
    NEAR(ls_topo_uplink(&t, 2, 0), 12 * GB / 4);
    NEAR(ls_topo_uplink(&t, 1, 5), 4 * 0.5 * GB);
    assert_int_equal(ls_topo_resize(&t, 1), LS_OK); /* the slow unit is outside now */
    assert_int_equal(t.nslow, 0);
    assert_int_equal(ls_topo_devices(&t), 12);
    assert_int_equal(ls_topo_resize(&t, 0), LS_BAD_CONFIG);
    assert_int_equal(ls_topo_resize(&t, 1 << 20), LS_BAD_CONFIG);
}

static void files_are_refused_with_their_line(void **state)
{
    (void)state;
    static const struct { const char *text, *says; } row[] = {
        { "", "f.yaml:1: is empty" },
        { "a: ]", "f.yaml:1: not YAML" },
        { DEVICE LINKS, "levels: is missing here" },
        { DEVICE LINKS "levels: []\n", "f.yaml:6: levels: is empty" },
        { DEVICE LINKS "levels:\n" NODE "bandwith: 1\n", "bandwith: is not a key" },
        { DEVICE "links:\n- {name: a, bandwidth: 8, direction: both, latency: 1 us}\n",
          "f.yaml:4: bandwidth: '8' is not a bandwidth: expected a number above 0 and one of B/s, kB/s, MB/s, GB/s, TB/s, Mbit/s, Gbit/s, as in 50 GB/s" },
        { DEVICE "links:\n- {name: a, bandwidth: 0 GB/s, direction: both, latency: 1 us}\n", "f.yaml:4: bandwidth: '0 GB/s' is not" },
        { DEVICE "links:\n- {name: a, bandwidth: -1 GB/s, direction: both, latency: 1 us}\n", "bandwidth: '-1 GB/s' is not" },
        { DEVICE "links:\n- {name: a, bandwidth: inf GB/s, direction: both, latency: 1 us}\n", "bandwidth: 'inf GB/s' is not" },
        { DEVICE "links:\n- {name: a, bandwidth: 1e99 GB/s, direction: both, latency: 1 us}\n", "bandwidth: '1e99 GB/s' is not" },
        { DEVICE "links:\n- {name: a, bandwidth: 8 GB/s, direction: both, latency: 1}\n",
          "latency: '1' is not a time: expected a number and one of ns, us, ms, s, as in 2 us" },
        { DEVICE "links:\n- {name: a, bandwidth: 8 GB/s, direction: sum, latency: 1 us}\n", "direction: 'sum': expected one or both" },
        { DEVICE "links:\n- {name: a, bandwidth: 8 GB/s, latency: 1 us}\n", "direction: is missing here" },
        { DEVICE LINKS "levels:\n- {name: node, of: device, count: 4, link: c}\n", "f.yaml:7: link: there is no link 'c'; did you mean 'a'?" },
        { DEVICE LINKS "levels:\n" NODE "- {name: rack, of: nodes, count: 4, link: b}\n", "f.yaml:8: of: there is no level 'nodes'; did you mean 'node'?" },
        { DEVICE LINKS "levels:\n" NODE "- {name: rack, of: row, count: 2, link: b}\n- {name: row, of: rack, count: 2, link: b}\n",
          "f.yaml:8: of: a circle: 'rack' contains itself, by way of 'row'" },
        { DEVICE LINKS "levels:\n- {name: node, of: node, count: 4, link: a}\n", "a circle: 'node' contains itself" },
        { DEVICE LINKS "levels:\n" NODE "- {name: rack, of: device, count: 4, link: b}\n", "f.yaml:8: of: another level joins the same units" },
        { DEVICE LINKS "levels:\n" NODE NODE, "f.yaml:8: node: this level is described twice" },
        { DEVICE LINKS "levels:\n- {name: device, of: node, count: 4, link: a}\n", "choose another name" },
        { DEVICE LINKS "levels:\n- {name: node, of: device, count: 0, link: a}\n", "count: expected a whole number from 1" },
        { DEVICE LINKS "levels:\n- {name: node, of: device, count: 1048577, link: a}\n", "count: expected a whole number from 1" },
        { DEVICE LINKS "levels:\n" NODE "- {name: rack, of: node, count: 1000000, link: b}\n", "f.yaml:8: rack: too many devices" },
        { DEVICE LINKS "levels:\n- {name: node, of: device, count: 4, link: a, oversubscription: 0.5}\n", "oversubscription: expected a number of 1 and more" },
        { DEVICE LINKS "levels:\n- {name: node, of: device, count: 4, link: a, rails: yes}\n", "rails: 'yes': expected false or true" },
        { DEVICE LINKS "levels:\n" NODE "slow: [{level: node, unit: 4, bandwidth: 1 GB/s, direction: one}]\n",
          "f.yaml:8: unit: '4': node joins 4 units: expected 0 to 3" },
        { DEVICE LINKS "levels:\n" NODE "slow: [{level: rack, unit: 4, bandwidth: 1 GB/s, direction: one}]\n", "level: there is no level 'rack'" },
        { DEVICE LINKS "levels:\n" NODE "slow: [{level: node, unit: 1, bandwidth: 9 GB/s, direction: both}]\n", "is not slow" },
        { DEVICE LINKS "levels:\n" NODE "slow: [{level: node, unit: 1, bandwidth: 1 GB/s, direction: both},\n"
                                        "{level: node, unit: 1, bandwidth: 1 GB/s, direction: one}]\n", "f.yaml:9: unit: is listed twice" },
        { "name: t\ndevice: {name: d, peak: 3}\n", "f.yaml:2: peak: '3' is not a rate of operations" },
        { "name: t\ndevice: {name: d, memory: 3 Gb}\n", "f.yaml:2: memory: '3 Gb' is not an amount of memory" },
        { "name: 12345678901234567890123456789012345678901234567890\n", "name: is too long" },
        { DEVICE LINKS "levels:\n" NODE "---\na: b\n", "f.yaml:9: more than one document" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_topo t;
        assert_int_equal(read_text(row[i].text, &t), LS_BAD_FILE);
        if (!strstr(ls_last_error(), row[i].says)) fail_msg("expected \"%s\", found \"%s\"", row[i].says, ls_last_error());
    }
}

static void a_world_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    ls_topo t;
    preset("h100-8", &t);
    assert_int_equal(ls_topo_check_ranks(&t, 32), LS_OK);
    assert_int_equal(ls_topo_check_ranks(&t, 33), LS_BAD_CONFIG);
    assert_non_null(strstr(ls_last_error(), "33 ranks do not fit on h100-8: it has 32 devices (4 node x 8 device)"));
    assert_int_equal(ls_topo_check_ranks(&t, 0), LS_BAD_CONFIG);
    assert_int_equal(ls_topo_load("no-such-cluster", &t), LS_IO);
    assert_non_null(strstr(ls_last_error(), "no cluster of that name"));
}

static void quantities_have_units(void **state)
{
    (void)state;
    char buf[64];
    double v;
    assert_true(ls_quantity_read(LS_Q_BANDWIDTH, "400 Gbit/s", &v, buf, sizeof buf));
    assert_string_equal(ls_quantity_text(LS_Q_BANDWIDTH, v, buf, sizeof buf), "50 GB/s");
    assert_true(ls_quantity_read(LS_Q_TIME, "2.7us", &v, buf, sizeof buf));
    assert_string_equal(ls_quantity_text(LS_Q_TIME, v, buf, sizeof buf), "2.7 us");
    assert_true(ls_quantity_read(LS_Q_TIME, "0 s", &v, buf, sizeof buf) && v == 0);
    assert_string_equal(ls_quantity_text(LS_Q_TIME, 0, buf, sizeof buf), "0 ns");
    assert_true(ls_quantity_read(LS_Q_MEMORY, "80 GiB", &v, buf, sizeof buf));
    assert_string_equal(ls_quantity_text(LS_Q_MEMORY, v, buf, sizeof buf), "85.899 GB");
    assert_string_equal(ls_quantity_text(LS_Q_FLOPS, 989e12, buf, sizeof buf), "989 TFLOP/s");
    assert_string_equal(ls_quantity_text(LS_Q_BANDWIDTH, 999.9999e6, buf, sizeof buf), "1000 MB/s");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_have_the_numbers_of_their_data_sheets),
        cmocka_unit_test(bisection_of_a_fat_tree_is_half_its_ports_over_the_oversubscription),
        cmocka_unit_test(bisection_is_the_least_of_all_halves),
        cmocka_unit_test(a_pair_has_the_slowest_link_between_them),
        cmocka_unit_test(levels_stand_in_any_order),
        cmocka_unit_test(files_are_refused_with_their_line),
        cmocka_unit_test(a_world_that_does_not_fit_is_refused),
        cmocka_unit_test(quantities_have_units),
    };
    return cmocka_run_group_tests_name("topo", tests, NULL, NULL);
}
