#!/bin/bash
# test_vectorised.sh -- loops over elementary functions (tensor/vecmath.h) are vectorised for each instruction set that
# they are compiled for: a branch in such a loop costs its speed, and shows in no result.
#
#   tests/test_vectorised.sh BUILD
. "$(dirname "$0")/harness.sh"
[ "$(uname -m)" = x86_64 ] || { echo 'skipped: kernels have versions for several instruction sets on x86-64 only'; exit 0; }

# "function packed-multiplications" for each function of an object file.
packed() {
    objdump -d --no-show-raw-insn "$1" |
        awk '/^[0-9a-f]+ </ { name = substr($2, 2, length($2) - 3); n[name] += 0 } /v?mulps/ { n[name]++ } END { for (f in n) print f, n[f] }'
}
versions() { # object, function: three, each with packed multiplications
    packed "$1" | awk -v f="$2" '$1 ~ "^" f "\\.(default|arch_x86_64_v[34])$" { print; if ($2 > 0) good++ } END { exit good != 3 }'
}
object() { find "$build" -name "$1.c.o" -path '*/src/tensor/*' | head -n 1; }
sample=$(object op_gelu)
claim 'there are objects to look at' test -n "$sample"
packed "$sample" | grep -q '^forward.arch_x86_64_v3 ' || { echo 'skipped: this build has one version of each kernel (a sanitizer, or clang)'; finish; }

while read -r file functions; do
    for f in $functions; do claim "$file: $f, for SSE, AVX2 and AVX-512" versions "$(object "$file")" "$f"; done
done <<'ROWS'
op_gelu forward backward
op_silu forward backward
op_sigmoid forward_part backward_part
op_swiglu forward backward
op_tanh forward_part backward_part
op_softmax forward_rows backward_rows
op_cross_entropy exponentials
op_linear_cross_entropy exponentials
attention_forward exponentials_of
attention_backward slopes_of
ROWS
finish
