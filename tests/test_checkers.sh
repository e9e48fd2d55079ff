#!/bin/bash
# The checkers of the architecture, checked: each is given something broken and must go red.
. "$(dirname "$0")/harness.sh"
tree=$tmp/tree
mkdir -p "$tree"/{tools,examples,include/lockstep,build}
cp "$source_dir"/tools/check-{floors,env,exports} "$tree/tools"
cd "$tree" || exit 1
# what the real sources are known for is not there
sed -i "/^known_[a-z]*='$/,/^'$/{//!d}; s/^group   backend.*/meet page/" tools/check-floors

red() { # text, command...: fails, and its output has the text
    local text=$1 out
    shift
    if out=$("$@" 2>&1); then echo 'it passed'; return 1; fi
    [[ $out == *"$text"* ]] || { echo "'$text' is not in: $out"; return 1; }
}

# --- check-floors: three floors, a public header, an example
fresh() {
    rm -rf src include/lockstep examples build
    mkdir -p src/{base/opts,meet,cli} include/lockstep examples build
    printf 'base\nmeet\ncli\n' >src/FLOORS
    echo '#include "base/text.h"' >src/base/text.c
    printf '#include "lockstep/status.h"\n' >src/base/text.h
    echo '#include "base/text.h"' >src/base/log.h
    printf '#include "meet/page.h"\n#include "base/text.h"\n#include <stdio.h>\n#include "lockstep/world.h"\n' >src/meet/page.c
    printf '#include "meet/page.h"\n' >src/cli/main.c
    printf '#include "lockstep/status.h"\n' >include/lockstep/world.h
    echo '#include "lockstep/world.h"' >examples/a.c
}
floors() { tools/check-floors "$@"; }
fresh
claim 'check-floors: downward and sideways passes' floors
while IFS='|' read -r file line text; do
    fresh
    printf '%s\n' "$line" >>"$file"
    claim "$file with $line is red" red "$text" floors
    claim 'and the line is named' red "$file:$(wc -l <"$file"): " floors
done <<'CASES'
src/base/text.c|#include "meet/page.h"|meet is above base
src/base/text.h|#  include  "meet/page.h"|meet is above base
src/base/text.c|#include "lockstep/world.h"|meet is above base
src/meet/page.c|#include "cli/cli.h"|cli is above meet
include/lockstep/status.h|#include "lockstep/world.h"|meet is above base
include/lockstep/world.h|#include "meet/page.h"|a public header cannot include a private one
examples/a.c|#include "meet/page.h"|examples use public headers only
src/meet/page.c|#include "page.h"|write "meet/page.h"
src/meet/page.c|#include "nett/page.h"|on no floor
src/meet/page.c|#include "lockstep/unheard.h"|on no floor
include/lockstep/unheard.h|#include "lockstep/status.h"|on no floor
src/cli/main.c|#include "base/opts_impl.h"|it is for src/base only
src/base/opts/a.c|#include "base/impl.h"|it is for src/base only
src/cli/main.c|#include "meet/store.h"|it is for src/meet only
src/base/text.h|#include "base/log.h"|includes "base/log.h": a circle
CASES
fresh
echo '#include "base/opts_impl.h"' >>src/base/text.c
echo '#include "meet/store.h"' >>src/meet/page.c
claim 'the same from their own folder, or open to others, passes' floors
mkdir -p tests
echo '#include "base/opts_impl.h"' >tests/a.c
claim 'a test that includes what is of a folder only is red' red 'tests/a.c:1:base/opts_impl.h: for the files of its folder only' floors
rm -r tests
fresh
mkdir src/attic
echo '#include "base/text.h"' >src/attic/a.c
claim 'a folder that is on no floor is red' red 'src/attic/a.c:1' floors
rm src/FLOORS
claim 'no list of floors is red' red 'FLOORS' floors

object() { # floor, file, code
    mkdir -p "$(dirname "build/CMakeFiles/floor_$1.dir/src/$1/$2")" "$(dirname "src/$1/$2")"
    touch "src/$1/$2"
    echo "$3" | cc -xc -c -o "build/CMakeFiles/floor_$1.dir/src/$1/$2.o" -
}
fresh
claim 'no objects are red' red 'build first' floors build
object base text.c 'int ls_text(void) { return 1; }'
object meet page.c 'int ls_text(void); int ls_page(void) { return ls_text(); }'
object cli main.c 'int ls_page(void); int main(void) { return ls_page(); }'
claim 'objects that call downward pass' floors build
object base log.c 'int ls_page(void); int ls_log(void) { return ls_page(); }'
claim 'a call upward is red, without any header' red 'src/base/log.c.o: calls ls_page of meet, which is above base' floors build
rm src/base/log.c
claim 'but not that of an object whose source has gone' floors build
object meet wire/tcp.c 'int ls_tcp(void) { return 1; }'
object meet page.c 'int ls_text(void); int ls_tcp(void); int ls_page(void) { return ls_text() + ls_tcp(); }'
claim 'calls within a floor pass' floors build
object meet wire/tcp.c 'extern int ls_world; int ls_tcp(void) { return ls_world; }'
object meet world.c 'int ls_page(void); int ls_world; int ls_join(void) { return ls_page(); }'
claim 'a circle of three files is red' red 'src/meet/wire/tcp.c.o: calls ls_world of world.c.o: a circle' floors build
claim 'each of its calls is named' red 'src/meet/world.c.o: calls ls_page of page.c.o: a circle' floors build
object meet world.c 'int ls_world;'
claim 'and passes once it is open' floors build

# --- check-env: an archive, with one call too many
fresh
archive() { # object file, code
    rm -f build/liblockstep.a build/*.o
    printf '%s\n' 'typedef unsigned long n; void *memcpy(void *, const void *, n); int snprintf(char *, n, const char *, ...);' \
        'double exp(double); void *malloc(n); void json_delete(void *); extern int ls_env_real;' \
        'int ls_a(void *p, double x) { memcpy(p, malloc(8), 8); json_delete(p); return snprintf(p, 8, "%g", exp(x)) + ls_env_real; }' |
        cc -xc -w -fno-builtin -c -o build/a.c.o - || return 1
    echo "$2" | cc -xc -w -fno-builtin -c -o "build/$1" - && ar rc build/liblockstep.a build/a.c.o "build/$1"
}
env_check() { tools/check-env build; }
archive b.c.o 'int ls_b(void) { return 1; }'
claim 'check-env: memory, text, numbers and libraries are free' env_check
for call in time clock_gettime gettimeofday nanosleep usleep getrandom rand socket connect send recv poll open read write \
    fsync rename unlink mkdir mmap shm_open memfd_create syscall sched_yield pthread_create fork execve waitpid kill getenv \
    setenv getpid printf puts fprintf fopen fwrite stderr exit strftime json_load_file json_dumpf gzopen yaml_parser_set_input_file; do
    archive b.c.o "extern int $call(); int ls_b(void) { return $call(); }"
    claim "$call is red" red "b.c.o: $call" env_check
done
archive env_real_files.c.o 'int open(); int ls_b(void) { return open(); }'
claim 'env_real may' env_check
archive env_really.c.o 'int open(); int ls_b(void) { return open(); }'
claim 'but only env_real' red 'open' env_check
archive b.c.o 'int ls_b(void) { return 1; }'
touch src/meet/env_real_x.c
claim 'and only in base' red 'src/meet/env_real_x.c' env_check
rm src/meet/env_real_x.c build/liblockstep.a
claim 'no archive is red' red 'build first' env_check
ar rc build/liblockstep.a
claim 'an empty archive is red' red 'nothing was read' env_check

# The real archive with one stray call in it.
if [ -f "$build/liblockstep.a" ]; then
    cp "$build/liblockstep.a" build/liblockstep.a
    claim 'the library as built passes' env_check
    echo 'long time(); long ls_late(void) { return time(0); }' | cc -xc -w -c -o build/late.c.o - && ar r build/liblockstep.a build/late.c.o
    claim 'and with one look at the clock it is red' red 'late.c.o: time' env_check
fi

# --- check-exports
shared() { # code
    rm -f build/liblockstep.so
    echo "$1" | cc -xc -w -shared -fPIC -o build/liblockstep.so -
}
exports() { tools/check-exports build; }
printf '%s\n' 'int ls_a(int x);' 'const char *ls_b(void);' '/* not a declaration: ls_c(1) */' '    int (*ls_d)(void);' \
    'typedef int ls_e(int x);' 'struct ls_f *ls_g(void);' 'static inline int ls_j(void) { return 1; }' >include/lockstep/world.h
echo 'extern const int *const ls_h[];' >>include/lockstep/world.h
all='int ls_a(int x) { return x; } const char *ls_b(void) { return ""; } void *ls_g(void) { return 0; } const int *ls_h[1];'
shared "$all static int ls_more;"
claim 'check-exports: exactly the public names pass' exports
shared "$all int helper(void) { return 1; }"
claim 'a foreign name is red' red 'helper: exported' exports
shared "$all int ls_private(void) { return 1; }"
claim 'a private function is red' red 'ls_private: exported, but no header' exports
shared "$all int ls_private;"
claim 'so is a private object' red 'ls_private: exported, but no header' exports
shared "${all/ls_b(void)/ls_i(void)}"
claim 'a declared function that is missing is red' red 'ls_b: declared' exports
shared "${all/ls_h/ls_i}"
claim 'so is a declared object' red 'ls_h: declared' exports
shared 'static int ls_a(int x) { return x; }'
claim 'a library without exports is red' red 'exports nothing' exports
rm build/liblockstep.so
claim 'no library is red' red 'build first' exports

# The list that the linker gets is made of the same headers.
printf '%s\n' '{' '  global:' '    ls_a;' '    ls_b;' '    ls_g;' '    ls_h;' '  local: *;' '};' >want.map
claim 'scripts/exports lists the public names' diff want.map <("$source_dir/scripts/exports" include/lockstep/world.h)
# --- check-docs: links between two pages
mkdir -p pages/docs pages/include/lockstep
touch pages/include/lockstep/a.h
printf '# A page\n\n## What `make` does, in 2 steps\n\n```\n# no heading\n```\n[b](docs/b.md#the-end) [here](#what-make-does-in-2-steps)\n' >pages/a.md
printf '# B\n\n## The [end](x)\n[a](../a.md#a-page) [out](https://example.org/x#y)\n' >pages/docs/b.md
touch pages/docs/x
docs() { "$source_dir/tools/check-docs" pages; }
claim 'check-docs: links to pages and headings pass' docs
sed -i 's/#a-page/#the-page/' pages/docs/b.md
claim 'a heading that is not there is red' red 'link to ../a.md#the-page: docs/../a.md has no such heading' docs
sed -i 's/#the-page/#no-heading/' pages/docs/b.md
claim 'so is a line of code that looks like one' red 'has no such heading' docs
sed -i 's/#no-heading//; s,b.md#the-end,c.md,' pages/docs/b.md pages/a.md
claim 'so is a page that is not there' red 'link to docs/c.md, which does not exist' docs
sed -i 's,docs/c.md,docs/b.md,; s/(#what-make/(#how-make/' pages/a.md
claim 'and a heading of the same page' red 'link to #how-make-does-in-2-steps' docs

finish
