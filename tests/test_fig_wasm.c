/* The same source gives the same bytes: 300 requests, hostile ones too, answered by this program and by WebAssembly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "fig/fig.h"

#define REQUESTS 300
#define WASM LOCKSTEP_BUILD "/book/figures.wasm"
#define MOST_WASM (400 * 1024)

static uint64_t seed = 20260713;

static uint32_t draw(uint32_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

/* A value of a control: mostly one that is allowed, often a bound. */
static void value(const ls_fig_control *c, ls_text *out)
{
    if (c->words) {
        uint32_t n = 1;
        for (const char *w = c->words; *w; w++) n += *w == '|';
        const char *w = c->words;
        for (uint32_t k = draw(n); k > 0; k--) w = strchr(w, '|') + 1;
        ls_text_add(out, "%.*s", (int)strcspn(w, "|"), w);
        return;
    }
    const double x = draw(1000) / 999.0, span = c->most - c->least;
    const double v = c->least + (draw(2) ? x : x * x * x * x) * span;
    const uint32_t kind = draw(40);
    if (kind < 4) ls_text_add(out, "%.17g", c->least);
    else if (kind < 8) ls_text_add(out, "%.17g", c->most);
    else if (kind == 8) ls_text_add(out, "%.17g", c->most + 1);
    else if (c->whole) ls_text_add(out, "%.0f", v);
    else ls_text_add(out, "%.*g", 1 + (int)draw(17), v);
}

static void sensible(ls_text *out)
{
    static const char *const forms[] = { "--text", "--svg", "--json", "--page", "" };
    const ls_figure *f = ls_figures[draw(6)];
    int npresets = 0;
    while (f->preset[npresets].name) npresets++;
    ls_text_add(out, "%s", f->name);
    if (draw(3) == 0) ls_text_add(out, " preset=%s", f->preset[draw((uint32_t)npresets)].name);
    for (const ls_fig_control *c = f->control; c->name; c++) {
        if (draw(2)) continue;
        ls_text_add(out, " %s=", c->name);
        value(c, out);
    }
    ls_text_add(out, " %s", forms[draw(5)]);
}

static void hostile(uint32_t kind, ls_text *out)
{
    static const char *const words[] = {
        "", " ", "list", "list --json", "list --svg", "%s%n%s", "schedule %n=1", "sampler n=nan", "sampler n=inf", "sampler n=1e309",
        "sampler n=-0", "sampler n=+7", "sampler n=7.0000000000000001", "sampler n=0x10", "winner alpha_us=1e-320", "winner alpha_us=.5",
        "ledger width=4096 layers=48 ranks=1023 --json", "buckets layers=48 width=1280 vocab=65536 cap_kib=1 first_kib=1",
        "buckets mb_per_s=0.01 alpha_us=1000000 layers=48 --svg", "winner ranks=16 coll=reduce --json", "sampler --json --svg",
        "schedule algo=fold", "schedule ranks=1", "schedule ranks=1 coll=broadcast algo=auto --svg", "\xff\xfe=\x80", "sampler \xc3\xa9=1",
        "sampler\tn=3\n\rranks=2", "sampler n=3 n=3", "sampler preset=<script>", "<svg onload=alert(1)>", "ledger ranks=1025",
    };
    const uint32_t n = sizeof words / sizeof *words;
    if (kind < n) {
        ls_text_add(out, "%s", words[kind]);
        return;
    }
    sensible(out);
    const size_t len = out->n;
    switch (draw(4)) {
    case 0: /* bytes exchanged */
        for (int i = 0; i < 4; i++) out->p[draw((uint32_t)len)] = (char)(1 + draw(255));
        break;
    case 1: out->p[out->n = draw((uint32_t)len)] = 0; break; /* cut */
    case 2: /* too long */
        for (int i = 0; i < 1100; i++) ls_text_add(out, "%c", 32 + (int)draw(95));
        break;
    default: /* bytes alone */
        for (size_t i = 0; i < len; i++) out->p[i] = (char)(1 + draw(255));
    }
}

static void read_all(const char *path, ls_text *out)
{
    char buf[4096];
    size_t n;
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s: cannot be opened", path);
    while ((n = fread(buf, 1, sizeof buf, f)) > 0) ls_text_addn(out, buf, n);
    fclose(f);
}

static void native_and_wasm_answer_alike(void **state)
{
    (void)state;
    struct stat info;
    if (stat(WASM, &info) != 0) fail_msg(WASM " is missing: run scripts/setup --figures, then make build");
    if (info.st_size > MOST_WASM) fail_msg(WASM " has %lld bytes: expected at most %d", (long long)info.st_size, MOST_WASM);
    char dir[] = "/tmp/lockstep-wasm-XXXXXX", command[1024], from[64], to[64];
    assert_non_null(mkdtemp(dir));
    snprintf(from, sizeof from, "%s/requests", dir);
    snprintf(to, sizeof to, "%s/answers", dir);
    snprintf(command, sizeof command, "node '%s/tools/figures/answer.mjs' '%s' %s %s", LOCKSTEP_SOURCE, WASM, from, to);

    ls_text asked = { 0 }, want = { 0 }, got = { 0 };
    int good = 0;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        ls_text one = { 0 };
        if (i % 5 < 3) sensible(&one);
        else hostile(i / 5 * 2 + i % 5 - 3, &one);
        char *answer = ls_fig_request(ls_text_str(&one));
        assert_non_null(answer);
        good += strncmp(answer, "ok\n", 3) == 0;
        ls_text_addn(&asked, ls_text_str(&one), strlen(ls_text_str(&one)) + 1);
        ls_text_addn(&want, answer, strlen(answer) + 1);
        free(answer);
        ls_text_free(&one);
    }
    FILE *f = fopen(from, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(asked.p, 1, asked.n, f), asked.n);
    assert_int_equal(fclose(f), 0);
    const int status = system(command);
    if (status == 0) read_all(to, &got);
    unlink(from);
    unlink(to);
    rmdir(dir);
    if (status != 0) fail_msg("%s: status %d (scripts/setup --figures installs node)", command, status);

    const char *q = asked.p, *a = want.p, *b = ls_text_str(&got), *const end = b + got.n;
    for (int i = 0; i < REQUESTS; i++) {
        if (b >= end || strcmp(a, b) != 0) {
            size_t at = 0;
            while (b < end && a[at] == b[at]) at++;
            fail_msg("request %d, '%s', byte %zu: native '%.60s', wasm '%.60s'", i, q, at, a + at, b < end ? b + at : "");
        }
        q += strlen(q) + 1;
        a += strlen(a) + 1;
        b += strlen(b) + 1;
    }
    assert_ptr_equal(b, end);
    assert_in_range(good, REQUESTS / 4, REQUESTS - REQUESTS / 5); /* some of both */
    print_message("%d requests alike, %d of them answered, %d refused; figures.wasm has %lld bytes\n", REQUESTS, good, REQUESTS - good,
                  (long long)info.st_size);
    ls_text_free(&asked);
    ls_text_free(&want);
    ls_text_free(&got);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(native_and_wasm_answer_alike) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
