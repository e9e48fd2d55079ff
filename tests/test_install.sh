#!/bin/bash
# test_install.sh -- what is installed is whole: it exports the public names alone, knows no folder of this machine, and
# programs in C and C++ build, link and run against it: by CMake (shared, static) and by pkg-config (shared, static).
# Where there is no C++ compiler, in C alone.
#
#   tests/test_install.sh BUILD
. "$(dirname "$0")/harness.sh"
export LC_ALL=C
unset PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_LIBDIR LD_LIBRARY_PATH CMAKE_PREFIX_PATH
cmake --install "$build" --prefix "$tmp/first" >"$tmp/install.log" 2>&1 || { cat "$tmp/install.log"; exit 1; }
mv "$tmp/first" "$tmp/prefix" # a prefix may be moved
prefix=$tmp/prefix
pc=$(find "$prefix" -name lockstep.pc)
lib=$(dirname "$(dirname "${pc:-$prefix/lib/pkgconfig/lockstep.pc}")")
sanitize=$(sed -n 's/^LOCKSTEP_SANITIZE:STRING=\(..*\)/-fsanitize=\1/p' "$build/CMakeCache.txt")
version=$("$build/lockstep" --version | sed 's/^lockstep \([0-9.]*\).*/\1/')
cp -r "$source_dir/tests/install" "$tmp/consumer" && cd "$tmp/consumer" || exit 1
cp consumer.c consumer.cc

# --- what is exported
nm -D --defined-only "$lib/liblockstep.so" | awk '{ print $NF }' | grep -v '^_' | sort -u >exported
sed 's/.*/NAME(&)/' exported >all.inc # the consumer names each: a name without a declaration does not compile
declares() { grep -hoE '^[a-z][a-z0-9_ ]*[ *]ls_[a-z0-9_]+\(' "$prefix"/include/lockstep/*.h | grep -vE '^(typedef|static) ' |
    sed -E 's/.*[ *](ls_[a-z0-9_]+)\($/\1/' | sort -u; }
claim 'the shared library exports what its headers declare' test "$(wc -l <exported)" -ge 250
claim 'every function of theirs' test -z "$(comm -13 exported <(declares))"

claim 'the installed labs are found' test "$("$prefix/bin/lockstep" lab 1 --claim 9 --control | grep hold)" = '1 of 1 claims hold, 1 of 1 controls fail as they have to.'

mkdir tasks && cd tasks && "$prefix/bin/lockstep" lab start >/dev/null && cp "$source_dir/labs/01_buckets/ex1/solution.c" lockstep-labs/01_buckets/ex1.c
[ -n "$sanitize" ] || claim 'an exercise is checked with what is installed' "$prefix/bin/lockstep" lab 1 check 1
cd ..

# --- what is in the files
strangers() { # a folder of the machine that built it
    local f found=0
    while IFS= read -r f; do
        cp "$f" "$tmp/copy"
        [[ $f != *.so* && $f != *.a && $f != */bin/* && $f != */libexec/* ]] || strip -g "$tmp/copy" || return 1 # debuggers do want to know
        ! grep -aqF -e "$source_dir" -e "$build" -e "$tmp/first" "$tmp/copy" || { echo "${f#"$prefix/"} names a folder of the build"; found=1; }
    done < <(find "$prefix" -type f)
    return $found
}
[ -n "$sanitize" ] || claim 'no file knows where it was built or first installed' strangers # sanitizers name files of the sources
shipped() { # every file that an installed text names is installed
    local f name status=0
    while IFS=: read -r f name; do
        [[ $name != llm.c && $name != std*.h ]] || continue # a project, and headers of C
        [ -e "$prefix/include/lockstep/$name" ] || [ -e "$prefix/include/$name" ] || [ -e "$prefix/share/lockstep/$name" ] ||
            [ -e "$prefix/share/doc/lockstep/$name" ] || { echo "${f#"$prefix/"} names $name, which is not installed"; status=1; }
    done < <(grep -roE '[a-z0-9_/-]+\.(c|h|md|sh|py)\b|\b(build|bench|docs|examples|recipes|scripts|src|tests|tools)/[A-Za-z0-9_./-]*[a-z]' \
        "$prefix/include" "$prefix/share/lockstep/recipes" "$lib"/{cmake,pkgconfig} | sort -u)
    return $status
}
claim 'installed texts name installed files alone' shipped

# --- the installed program, from any folder
mkdir "$tmp/elsewhere"
elsewhere() { (cd "$tmp/elsewhere" && "$prefix/bin/lockstep" "$@"); }
for name in exercise-mlp exercise-mlp.yaml recipes/exercise-mlp.yaml; do
    claim "it trains $name" has_line 'final step=2 ' elsewhere train $name --train.steps 2
done
claim 'two ranks find it, too' has_line 'final step=2 ' elsewhere train exercise-mlp --train.steps 2 --nproc-per-node 2
echo 'train: { steps: 3 }' >"$tmp/elsewhere/exercise-mlp"
claim 'a file of that name comes first' has_line 'steps: 3 ' elsewhere train exercise-mlp --print-config
claim 'another name is refused, with those that there are' fails_with 74 'recipes: exercise-mlp fashion-cnn fashion-mnist ' elsewhere train nothing
claim 'it prints pages' cmp <(elsewhere help formats) "$source_dir/docs/formats.md"
claim 'completions are where shells look' cmp <(elsewhere completion bash) "$prefix/share/bash-completion/completions/lockstep"
claim 'of zsh' cmp <(elsewhere completion zsh) "$prefix/share/zsh/site-functions/_lockstep"
claim 'of fish' cmp <(elsewhere completion fish) "$prefix/share/fish/vendor_completions.d/lockstep.fish"
[ ! -d "$build/man" ] || claim 'a manual page per command' test "$(ls "$prefix/share/man/man1" | wc -l)" = "$(ls "$build"/man/*.1 | wc -l)"

# --- by CMake
languages=C
! command -v "${CXX:-c++}" >/dev/null || languages='C;CXX'
want="version $version of $version, $(wc -l <exported) names, sums 3 3"
cmake_build() { # folder, options...
    local dir=$1
    shift
    cmake -S . -B "$dir" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_FLAGS="$sanitize" -DCMAKE_CXX_FLAGS="$sanitize" "$@" && cmake --build "$dir"
}
gives() { # program, liblockstep.so or nothing
    local linked
    linked=$(ldd "$1" | grep -o 'liblockstep\.so' | head -1)
    [ "$linked" = "${2:-}" ] || { echo "$1 loads '$linked', not '${2:-}'"; return 1; }
    [ "$("$1")" = "$want" ] || { "$1"; echo "expected: $want"; return 1; }
}
claim "find_package(Lockstep 0.1): it builds, $languages" cmake_build cmake -DLANGUAGES="$languages"
for language in c ${languages:+$([ "$languages" = C ] || echo cc)}; do
    claim "$language, Lockstep::lockstep: it runs" gives cmake/${language}_lockstep liblockstep.so
    claim "$language, Lockstep::static: it runs" gives cmake/${language}_static
done
if [ "$languages" != C ]; then
    claim 'a project of C++ alone builds' cmake_build cxx -DLANGUAGES=CXX
    claim 'and runs' gives cxx/cc_static
fi
claim 'the version may be named whole' cmake_build whole -DVERSION="$version" -DCOMPONENTS=static
claim 'another version is refused' fails_with 1 'compatible with requested version "0.2"' cmake_build other -DVERSION=0.2
mkdir lacking
cp -r "$prefix/." lacking
rm "lacking/${lib#"$prefix/"}/liblockstep.a"
claim 'without the archive the shared library is found' cmake_build alone -DCMAKE_PREFIX_PATH="$PWD/lacking"
claim 'and static, asked for, is named as missing' fails_with 1 'Lockstep::static needs libraries that are not found: liblockstep.a' \
    cmake_build none -DCMAKE_PREFIX_PATH="$PWD/lacking" -DCOMPONENTS=static

# --- by pkg-config
if command -v pkg-config >/dev/null; then
    export PKG_CONFIG_PATH=${pc%/*}
    claim 'pkg-config knows the version' test "$(pkg-config --modversion lockstep)" = "$version"
    compile() { # out, source, flags of pkg-config...
        local out=$1 source=$2 driver=("${CC:-cc}" -std=c17)
        shift 2
        [[ $source == *.c ]] || driver=("${CXX:-c++}" -std=c++17)
        # shellcheck disable=SC2046,SC2086
        "${driver[@]}" -Wall -Wextra -Werror $sanitize "$source" $(pkg-config --cflags "$@" lockstep) -o "$out"
    }
    for source in consumer.c ${languages:+$([ "$languages" = C ] || echo consumer.cc)}; do
        claim "$source: pkg-config --libs links" compile "$source.shared" "$source" --libs
        export LD_LIBRARY_PATH=$lib
        claim 'and it runs' gives "./$source.shared" liblockstep.so
        unset LD_LIBRARY_PATH
        mkdir -p hidden && mv "$lib"/liblockstep.so* hidden # or the linker prefers it
        claim "$source: pkg-config --static --libs links" compile "$source.static" "$source" --static --libs
        claim 'and it runs alone' gives "./$source.static"
        mv hidden/* "$lib"
    done
fi
finish
