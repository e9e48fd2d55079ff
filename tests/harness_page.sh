# harness_page.sh -- runs the commands of a page's console blocks and compares the output with the page. What depends on the
# CPU (losses, digests) may differ, but runs have one digest where they have one on the page.
#
#   . "$(dirname "$0")/harness_page.sh"     after harness.sh
#   run_page docs/parallel.md
export OMP_NUM_THREADS=1
ln -s "$build" build && ln -s "$source_dir/recipes" "$source_dir/tests" . || exit 1
declare -A digest_here=() digest_there=()

# Without what depends on the CPU: the page shows it, and only digests are compared with each other.
plain() { sed -E 's/([Ll]oss|grad_norm): +[0-9.]+/\1: N/g; s/, [0-9.]+ over all ranks/, N over all ranks/; s/loss=0x[^ ]+/loss=N/; s/digest=[0-9a-f]+/digest=D/'; }

# Expected text in file $1, output in file $2: the same lines, and "..." is any text, alone in a line any lines.
same_text() {
    local -a want got
    local line rest pattern any=0 i=0
    mapfile -t want < <(plain <"$1")
    mapfile -t got < <(plain <"$2")
    for line in "${want[@]}"; do
        if [ "$line" = ... ]; then any=1 && continue; fi
        pattern='' rest=$line
        while [[ $rest == *...* ]]; do
            pattern+=$(printf %q "${rest%%...*}")'*'
            rest=${rest#*...}
        done
        pattern+=$(printf %q "$rest")
        while [ $any = 1 ] && [ $i -lt ${#got[@]} ] && ! matches "${got[i]}" "$pattern"; do i=$((i + 1)); done
        if [ $i -ge ${#got[@]} ] || ! matches "${got[i]}" "$pattern"; then
            printf 'on the page:\n%s\nin the output:\n' "$line"
            cat "$2"
            return 1
        fi
        i=$((i + 1)) any=0
    done
}
matches() { eval "[[ \$1 == $2 ]]"; }

digest_of() { sed -nE 's/^final .* digest=([0-9a-f]+)$/\1/p' "$1"; }
same_digest() { # expected text, output
    local on_page in_run
    on_page=$(digest_of "$1") in_run=$(digest_of "$2")
    [ -n "$in_run" ] || return 1
    [ "${digest_here[$on_page]:=$in_run}" = "$in_run" ] && [ "${digest_there[$in_run]:=$on_page}" = "$on_page" ] && return 0
    echo "the page has $on_page for runs that end with ${digest_here[$on_page]} and $in_run"
    return 1
}
remember() { # outside of a claim, which is a process of its own
    local on_page in_run
    on_page=$(digest_of want) in_run=$(digest_of got)
    : "${digest_here[$on_page]:=$in_run}" "${digest_there[${in_run:-none}]:=$on_page}"
}

commands=0 # of all pages
run() { # command; what the page shows after it is in the file `want`
    commands=$((commands + 1))
    if [[ $1 == 'export '* ]]; then
        eval "$1"
        return
    fi
    timeout -k 5 120 bash -c "$1" >got 2>&1
    local code=$?
    if grep -q 'error\[' want; then claim "$1: a report" test $code != 0
    else claim "$1: ends with 0" test $code = 0
    fi
    claim "$1: prints what the page shows" same_text want got
    digest_of want | grep -q . || return
    claim "$1: has a digest where the page has it" same_digest want got
    remember
}

run_page() { # file of the repository
    local command line
    command=''
    while IFS= read -r line <&3; do
        if [[ $line == '$ '* || $line == '```' ]]; then
            if [ "$command" ]; then run "$command"; fi
            command=''
            if [[ $line == '$ '* ]]; then command=${line#'$ '}; fi
            : >want
        else
            printf '%s\n' "$line" >>want
        fi
    done 3< <(awk '/^```console/ { on = 1; next } on { print } /^```/ { on = 0 }' "$source_dir/$1")
}
