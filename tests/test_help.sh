#!/bin/bash
# test_help.sh -- lockstep help, --help at the terminal's width and by section, and manual pages that name every command and
# every flag (where scdoc made them).
#
#   tests/test_help.sh BUILD
. "$(dirname "$0")/harness.sh"
. "$source_dir/tests/harness_rows.sh"
lockstep=$build/lockstep
cd "$tmp" || exit 1
commands() { "$lockstep" --help | sed -nE 's/^  ([a-z]+) +[a-z].*/\1/p' | grep -v '^lockstep'; }
sections() { sed -nE 's/^([a-z]+):$/\1/p' | grep -vxE 'options|example'; }

# --- topics
claim '-V is --version' cmp <("$lockstep" -V) <("$lockstep" --version)
claim 'help alone is --help' cmp <("$lockstep" help) <("$lockstep" --help)
for command in $(commands); do
    claim "help $command is its --help" cmp <("$lockstep" help "$command") <("$lockstep" "$command" --help)
done
claim 'a page' cmp <("$lockstep" help failures) "$source_dir/docs/failures.md"
claim 'a chapter of the handbook' cmp <("$lockstep" help zero) "$source_dir/docs/handbook/zero.md"
claim 'an unknown topic lists the chapters' fails_with 64 'chapters of the handbook: README all_reduce ddp' "$lockstep" help nonsense
claim 'a status name' has_line 'rank-hung, exit status 83: a rank did not answer before the deadline' "$lockstep" help rank-hung
claim 'and what to do' has_line 'to do: look at that rank with a debugger' "$lockstep" help rank-hung
for word in $(sed -nE 's/^ *X\([A-Z_]+, *-?[0-9]+, *"([a-z-]+)".*/\1/p' "$source_dir/include/lockstep/status.h"); do
    claim "$word is a topic with a meaning" has_line 'meaning: ' "$lockstep" help "$word"
done
claim 'an unknown topic is refused, with the nearest' fails_with 64 "did you mean 'train'" "$lockstep" help trian
claim 'and with the pages' fails_with 64 'your-own-model' "$lockstep" help nonsense
claim 'no way out of the handbook' fails_with 64 "no topic '../README'" "$lockstep" help ../README
claim 'two topics are refused' fails_with 64 'no command' "$lockstep" help failures formats
claim 'three words, too' fails_with 64 'one topic' "$lockstep" help train optim data

# --- by section
claim 'train --help optim has the keys of optim' test "$("$lockstep" train --help optim | grep -c '^      --optim\.')" -gt 10
shows() { "$lockstep" train --help all | tr -s ' \n' ' ' | grep -F -- "$1"; }
claim 'who reads a key of optimizers is said' shows '--optim.betas X,X adam and adamw: decay'
claim 'who reads a key of models, too' shows '--model.rope_theta X llama and moe: base'
claim 'language models are not named one by one' shows '--model.n_layer N language models: blocks'
claim 'nor are readers of what all read' shows '--optim.lr X learning rate'
claim 'and no others' test -z "$("$lockstep" train --help optim | grep -E '^ .{5}--' | grep -v -- --optim)"
claim 'help train optim is the same' cmp <("$lockstep" help train optim) <("$lockstep" train --help optim)
claim 'an unknown section is refused' fails_with 64 "did you mean 'optim'" "$lockstep" train --help optin
claim 'every section has its line' cmp <("$lockstep" train --help all | sections | sort) \
    <("$lockstep" train --help sections | sed -nE '/^sections/,/^$/s/^  ([a-z]+) .*/\1/p' | sort)
claim 'in a pipe --help is --help all' cmp <("$lockstep" train --help) <("$lockstep" train --help all)
if command -v script >/dev/null; then
    terminal() { script -qec "stty cols $1; $2" /dev/null </dev/null | tr -d '\r'; }
    claim 'on a terminal train --help names the sections' grep -q '^sections' <(terminal 80 "$lockstep train --help")
    claim 'and leaves their keys out' test -z "$(terminal 80 "$lockstep train --help" | grep -e --optim.lr)"
    claim 'on a screen' test "$(terminal 110 "$lockstep train --help" | wc -l)" -lt 50
    widest() { awk '!/^usage:|lockstep / { if (length > most) most = length } END { print most }'; }
    for columns in 60 80 100; do
        claim "help fits into $columns columns" test "$(terminal $columns "$lockstep coll --help" | widest)" -le $columns
    done
    claim 'and makes use of them' test "$(terminal 100 "$lockstep coll --help" | widest)" -gt 80
else
    echo 'skipped: no script(1), which runs a command in a terminal'
fi
claim 'COLUMNS is the width elsewhere' test "$(COLUMNS=70 "$lockstep" bench --help | grep '^ ' | grep -v lockstep | wc -L)" -le 70

# --- manual pages
without() { cmake -S "$source_dir" -B "$tmp/cmake" -DSCDOC=OFF -DBUILD_TESTING=OFF -DCMAKE_C_COMPILER="$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")" 2>&1; }
claim 'without scdoc the build says so and goes on' has_line 'manual pages: left out, there is no scdoc' without
if [ -d "$build/man" ]; then
    text() { sed 's/\\-/-/g; s/\\&//g; s/\\f[A-Z]//g; s/\\//g' "$build/man/$1.1"; }
    claim 'lockstep(1) names every command' test "$(text lockstep | sed -nE 's/.*lockstep-([a-z]+)\(1\).*/\1/p' | sort -u | tr '\n' ' ')" = \
        "$(commands | sort | tr '\n' ' ')"
    named() { # command
        local flag missing=''
        for flag in $(flags_of "$1"); do text "lockstep-$1" | grep -qE -- "^(.*, )?--${flag//./\\.}( |\$)" || missing+=" $flag"; done
        [ -z "$missing" ] || { echo "lockstep-$1(1) lacks:$missing"; return 1; }
    }
    for command in $(commands); do claim "lockstep-$command(1) names every flag" named "$command"; done
    claim 'exit codes are in lockstep(1)' test "$(text lockstep | grep -cE '^(64|65|69|70|71|74|75|76|77|78|80|82|83|130) ')" -ge 25
    claim 'the written part is there' grep -q 'torchrun' <(text lockstep-run)
else
    echo 'skipped: no manual pages were built (scripts/setup installs scdoc)'
fi
finish
