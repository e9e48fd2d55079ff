/* sets, fetch: where data sets are looked for, and how they come: what is fetched by which program, what is compared,
 * what is left after a failure. The programs that download are made up, and no others are in PATH. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/env.h"
#include "base/file.h"
#include "data/sets.h"

#define HELLO "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03" /* SHA-256 of "hello\n" */

static char dir[128];

/* The programs of a script, run in the test's folder. */
static void sh(const char *script)
{
    char command[4096];
    assert_true(snprintf(command, sizeof command, "cd '%s' && PATH=/usr/local/bin:/usr/bin:/bin && { %s\n}", dir, script) < (int)sizeof command);
    if (system(command) != 0) fail_msg("%s", command);
}

static void says(const char *want)
{
    if (!strstr(ls_last_error(), want)) fail_msg("expected \"%s\" in \"%s\"", want, ls_last_error());
}

/* What the made-up programs were asked for, a line each. */
static void was_asked(const char *want)
{
    char path[160], *text = NULL;
    size_t n;
    snprintf(path, sizeof path, "%s/log", dir);
    assert_int_equal(ls_file_read(path, 65536, &text, &n), LS_OK);
    if (!strstr(text, want)) fail_msg("expected \"%s\" in \"%s\"", want, text);
    free(text);
}

/* bin/ has what the shell needs and, as made up, `programs`; each of them runs `does`. */
static void made_up(const char *programs, const char *does)
{
    char script[2048];
    snprintf(script, sizeof script,
             "rm -rf bin cache log && mkdir bin && touch log && "
             "for p in sh mktemp rm mv cp grep tail mkdir chmod sha256sum tar gzip touch; do ln -s \"$(command -v $p)\" bin/$p; done\n"
             "for p in %s; do\n"
             "printf '%%s\\n' '#!/bin/sh' \"echo \\\"$p \\$*\\\" >>%s/log\" >bin/$p && cat >>bin/$p <<'END' && chmod +x bin/$p || exit 1\n"
             "%s\nEND\ndone", programs, dir, does);
    sh(script);
}

static void is_empty(const char *name)
{
    char path[160], names[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    const int n = ls_env_get()->list(path, names, sizeof names);
    if (n != 0) fail_msg("%s: %d entries, the first is %s", path, n, n > 0 ? names : "none");
}

static void content_is(const char *path, const char *want)
{
    char *text = NULL;
    size_t n;
    if (ls_file_read(path, 4096, &text, &n) < 0) fail_msg("%s", ls_last_error());
    assert_string_equal(text, want);
    free(text);
}

static const ls_set of_debian = { .name = "greetings", .about = "two files", .source = LS_SET_DEBIAN, .package = "dataset-greetings",
                                  .download = "1 kB", .inside = "usr/share/datasets/greetings", .place = "greetings",
                                  .file = { { "hello", HELLO }, { "again.gz", HELLO } } };
static const ls_set of_npm = { .name = "greeting", .about = "a package", .source = LS_SET_NPM, .package = "@scope/greeting",
                               .version = "1.2.3", .download = "1 kB", .sha256 = HELLO, .place = "greeting-1.2.3.tgz" };

#define UNPACK "mkdir -p \"$3/usr/share/datasets/greetings\" && cd \"$3/usr/share/datasets/greetings\" && " \
    "echo hello >hello && echo hello | gzip >again.gz && echo no >more"
#define APT "case $0 in *dpkg-deb) " UNPACK "; exit ;; esac\ncase \"$*\" in *update*) exit 0 ;; *download*) touch greetings_1_all.deb ;; esac"

static void a_debian_package_is_unpacked(void **state)
{
    char path[LS_SET_PATH], file[LS_SET_PATH + 16], want[256];
    (void)state;
    made_up("apt-get dpkg-deb", APT);
    assert_false(ls_set_find(&of_debian, path));
    if (ls_set_fetch(&of_debian, path) != LS_OK) fail_msg("%s", ls_last_error());
    snprintf(want, sizeof want, "%s/cache/lockstep/datasets/greetings", dir);
    assert_string_equal(path, want);
    was_asked("apt-get -qq download dataset-greetings\ndpkg-deb -x ");
    snprintf(file, sizeof file, "%s/hello", path);
    content_is(file, "hello\n");
    char names[512];
    assert_int_equal(ls_env_get()->list(path, names, sizeof names), 2); /* what else is in the package stays there */
    *path = 0;
    assert_true(ls_set_find(&of_debian, path));
    assert_string_equal(path, want);
    assert_int_equal(ls_set_fetch(&of_debian, path), LS_OK); /* again, in its place */
    assert_true(ls_set_find(&of_debian, path));
    is_empty("temporary");
    char parent[160];
    snprintf(parent, sizeof parent, "%s/cache/lockstep/datasets", dir);
    assert_int_equal(ls_env_get()->list(parent, names, sizeof names), 1);
}

static void a_machine_without_lists_gets_its_own(void **state)
{
    char path[LS_SET_PATH];
    (void)state;
    made_up("apt-get dpkg-deb", "case \"$0 $*\" in *apt-get\\ -qq\\ download*) echo 'E: Unable to locate package' >&2; exit 100 ;; esac\n" APT);
    if (ls_set_fetch(&of_debian, path) != LS_OK) fail_msg("%s", ls_last_error());
    was_asked("apt-get -qq -o Dir::State::lists=");
    was_asked(" update\n");
}

static void a_failure_has_its_reason(void **state)
{
    char path[LS_SET_PATH];
    (void)state;
    made_up("apt-get dpkg-deb", "echo 'W: something else' >&2; echo 'E: Failed to fetch http://deb.example: no name server' >&2; "
                                "echo 'W: later' >&2; exit 100");
    assert_int_equal(ls_set_fetch(&of_debian, path), LS_IO);
    says("the data set greetings cannot be fetched; `lockstep data fetch greetings` tries again, and without a network: install Debian's "
         "package dataset-greetings, or put hello, again.gz into ");
    says("cache/lockstep/datasets/greetings. The reason: E: Failed to fetch http://deb.example: no name server");
    is_empty("cache/lockstep/datasets");
    is_empty("temporary");
    made_up("dpkg-deb", "true");
    assert_int_equal(ls_set_fetch(&of_debian, path), LS_IO);
    says("The reason: there is no apt-get here");
    made_up("apt-get dpkg-deb", "case $0 in *dpkg-deb) mkdir -p \"$3\"; exit ;; esac; touch a.deb"); /* a package without the files */
    assert_int_equal(ls_set_fetch(&of_debian, path), LS_IO);
    is_empty("cache/lockstep/datasets");
}

static void other_content_is_refused(void **state)
{
    char path[LS_SET_PATH];
    ls_set other = of_debian;
    (void)state;
    made_up("apt-get dpkg-deb", APT);
    other.file[1].sha256 = "0000000000000000000000000000000000000000000000000000000000000000";
    assert_int_equal(ls_set_fetch(&other, path), LS_BAD_FILE);
    says("again.gz: the SHA-256 of what it holds is 5891b5b522d5df08..., expected 0000000000000000...");
    is_empty("cache/lockstep/datasets");
    assert_false(ls_set_find(&other, path));
}

static void a_package_of_npm_is_the_set(void **state)
{
    char path[LS_SET_PATH];
    (void)state;
    made_up("npm", "echo hello >scope-greeting-1.2.3.tgz");
    if (ls_set_fetch(&of_npm, path) != LS_OK) fail_msg("%s", ls_last_error());
    was_asked("npm pack --loglevel=error @scope/greeting@1.2.3\n");
    content_is(path, "hello\n");
    assert_true(ls_set_find(&of_npm, path));
    made_up("npm", "echo goodbye >scope-greeting-1.2.3.tgz");
    assert_int_equal(ls_set_fetch(&of_npm, path), LS_BAD_FILE);
    says("the data set greeting: @scope/greeting 1.2.3 came, and the package's SHA-256 is ");
    says(", expected " HELLO);
    is_empty("cache/lockstep/datasets");
}

static void without_npm_curl_or_wget_fetch(void **state)
{
    static const char *const program[] = { "curl", "wget" };
    static const char *const asked[] = { "curl -fsSL -o work/p.tgz https://registry.npmjs.org/@scope/greeting/-/greeting-1.2.3.tgz\n",
                                         "wget -nv -O work/p.tgz https://registry.npmjs.org/@scope/greeting/-/greeting-1.2.3.tgz\n" };
    char path[LS_SET_PATH];
    (void)state;
    for (int i = 0; i < 2; i++) {
        made_up(program[i], "echo hello >\"$3\"");
        if (ls_set_fetch(&of_npm, path) != LS_OK) fail_msg("%s: %s", program[i], ls_last_error());
        was_asked(asked[i]);
        content_is(path, "hello\n");
    }
    made_up("cat", "true");
    assert_int_equal(ls_set_fetch(&of_npm, path), LS_IO);
    says("put https://registry.npmjs.org/@scope/greeting/-/greeting-1.2.3.tgz at ");
    says("The reason: none of npm, curl and wget is here");
}

static void files_of_a_package_of_npm(void **state)
{
    char path[LS_SET_PATH], digest[65] = "", file[LS_SET_PATH + 16], *text = NULL;
    size_t n;
    ls_set s = { .name = "parts", .source = LS_SET_NPM, .package = "parts", .version = "1", .download = "1 kB", .inside = "package",
                 .place = "parts", .sha256 = digest, .file = { { "a", NULL }, { "b", NULL } } };
    (void)state;
    made_up("npm", "cp \"$PARTS\" .");
    sh("rm -rf package && mkdir package && echo one >package/a && echo two >package/b && echo three >package/c && tar czf parts.tgz package && "
       "sha256sum parts.tgz >sum");
    snprintf(file, sizeof file, "%s/parts.tgz", dir);
    setenv("PARTS", file, 1);
    snprintf(file, sizeof file, "%s/sum", dir);
    assert_int_equal(ls_file_read(file, 4096, &text, &n), LS_OK);
    memcpy(digest, text, 64);
    free(text);
    if (ls_set_fetch(&s, path) != LS_OK) fail_msg("%s", ls_last_error());
    snprintf(file, sizeof file, "%s/b", path);
    content_is(file, "two\n");
    char names[512];
    assert_int_equal(ls_env_get()->list(path, names, sizeof names), 2);
}

static void every_set_can_be_named(void **state)
{
    (void)state;
    for (const ls_set *s = ls_sets; s->name; s++) {
        assert_ptr_equal(ls_set_named(s->name), s);
        assert_true(s->about && s->package && s->download && s->place);
        if (s->source == LS_SET_NPM) assert_int_equal(strlen(s->sha256), 64);
        for (int i = 0; s->source == LS_SET_DEBIAN && i < LS_SET_FILES && s->file[i].name; i++) {
            assert_non_null(s->file[i].sha256);
            assert_int_equal(strlen(s->file[i].sha256), 64);
        }
    }
    assert_null(ls_set_named("nothing"));
    assert_ptr_equal(ls_set_of_tokenizer("gpt2"), ls_set_named("gpt2"));
    assert_null(ls_set_of_tokenizer("byte"));
    setenv("LOCKSTEP_GPT2", "/somewhere", 1);
    assert_null(ls_set_of_tokenizer("gpt2"));
    unsetenv("LOCKSTEP_GPT2");
}

static int make_folder(void **state)
{
    char bin[160], cache[160], temporary[160];
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/lockstep-test-sets-%d", (int)getpid());
    snprintf(temporary, sizeof temporary, "mkdir -p %s/temporary", dir);
    if (system(temporary) != 0) return -1;
    snprintf(bin, sizeof bin, "%s/bin", dir);
    snprintf(cache, sizeof cache, "%s/cache", dir);
    snprintf(temporary, sizeof temporary, "%s/temporary", dir);
    unsetenv("LOCKSTEP_GPT2");
    return setenv("PATH", bin, 1) | setenv("XDG_CACHE_HOME", cache, 1) | setenv("XDG_DATA_DIRS", "/nowhere", 1) |
           setenv("TMPDIR", temporary, 1);
}

static int remove_folder(void **state)
{
    char command[160];
    (void)state;
    snprintf(command, sizeof command, "/bin/rm -rf '%s'", dir);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_debian_package_is_unpacked),   cmocka_unit_test(a_machine_without_lists_gets_its_own),
        cmocka_unit_test(a_failure_has_its_reason),       cmocka_unit_test(other_content_is_refused),
        cmocka_unit_test(a_package_of_npm_is_the_set),    cmocka_unit_test(without_npm_curl_or_wget_fetch),
        cmocka_unit_test(files_of_a_package_of_npm),      cmocka_unit_test(every_set_can_be_named),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
