#!/bin/bash
# test_completion.sh -- the shells complete every command, option and choice: tried in bash, and in fish and zsh where
# they are. Options are compared with those of --help.
#
#   tests/test_completion.sh BUILD
. "$(dirname "$0")/harness.sh"
. "$source_dir/tests/harness_rows.sh"
lockstep=$build/lockstep
mkdir "$tmp/bin" "$tmp/here" && ln -s "$lockstep" "$tmp/bin/lockstep"
export PATH=$tmp/bin:$PATH
cd "$tmp/here" || exit 1
touch my.yaml
commands() { "$lockstep" --help | sed -nE 's/^  ([a-z]+) +[a-z].*/\1/p' | grep -v '^lockstep'; }
lines() { tr -s ' \n' '\n\n' | grep . | sort; }
same() { diff <(lines <<<"$1") <(lines <<<"$2"); }

# --- bash: what Tab gives after these words, the last of which may be empty
"$lockstep" completion bash >"$tmp/bash"
tab() {
    bash --norc -c '
        source "$0" || exit 1
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
        f=$(complete -p lockstep | sed -n "s/^complete -F \([a-z_]*\) lockstep$/\1/p")
        "$f" lockstep "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
        [ ${#COMPREPLY[@]} = 0 ] || printf "%s\n" "${COMPREPLY[@]}"' "$tmp/bash" "$@"
}
gives() { # words that are expected, in one string; command line
    local want=$1
    shift
    same "$want" "$(tab "$@")"
}
claim 'bash takes the script' bash --norc -euc 'source "$0"; complete -p lockstep' "$tmp/bash"
claim 'bash: every command' gives "$(commands) --help --version" lockstep ''
claim 'bash: a beginning' gives train lockstep tr
for command in $(commands); do
    claim "bash: every option of $command" gives "$(flags_of "$command" | sed 's/^/--/')" lockstep "$command" --
done
claim 'train has many' test "$(tab lockstep train -- | wc -l)" -gt 90
claim 'bash: choices' gives 'sgd adam adamw' lockstep train --optim.name ''
claim 'bash: transports' gives 'shm tcp mixed self' lockstep bench --transport ''
claim 'bash: strategies, as they are registered' gives 'auto ddp fsdp' lockstep train --parallel.dp_strategy ''
claim 'bash: choices that begin so' gives 'adam adamw' lockstep train --optim.name a
claim 'bash: choices after =' gives 'adam adamw' lockstep train --optim.name = a
claim 'bash: all of them after =' gives 'sgd adam adamw' lockstep train --optim.name =
claim 'bash: a short option has them, too' gives 'sum prod max min avg all' lockstep bench -o ''
claim 'bash: no file is a number' gives '' lockstep train --train.steps ''
claim 'bash: a switch takes nothing' gives --peak lockstep doctor --p
claim 'bash: a file' gives my.yaml lockstep train --data.path m
claim 'bash: recipes and files' gives "my.yaml $(cd "$source_dir/recipes" && ls -- *.yaml | sed 's/\.yaml$//')" lockstep train ''
claim 'bash: what ckpt can do' gives 'diff digest ls merge reshard show verify' lockstep ckpt ''
claim 'bash: then files' gives my.yaml lockstep ckpt ls ''
claim 'bash: collectives' gives all_reduce lockstep bench all_r
claim 'bash: shells' gives 'bash zsh fish' lockstep completion ''
claim 'bash: status names and pages' gives 'rank-died rank-hung recipes run' lockstep help r
claim 'bash: options of run' gives --nproc-per-node lockstep run --nproc
claim 'bash: the program' gives "$(compgen -c lockst | sort -u)" lockstep run --nproc-per-node 2 lockst
claim 'bash: the program after --' gives "$(compgen -c lockst | sort -u)" lockstep run -- lockst
claim "bash: the program's words are its own" gives my.yaml lockstep run --nproc-per-node 2 lockstep ''
claim 'another shell is refused' fails_with 64 'expected bash, zsh or fish' "$lockstep" completion tcsh

# --- fish and zsh
if command -v fish >/dev/null; then
    "$lockstep" completion fish >"$tmp/fish"
    tab() { HOME=$tmp fish --no-config -c "source '$tmp/fish'; complete -C '$*'" | cut -f1; }
    claim 'fish: every command' same "$(commands)" "$(tab 'lockstep ')"
    for command in run train ckpt; do
        claim "fish: every option of $command" same "$(flags_of "$command" | sed 's/^/--/')" "$(tab "lockstep $command --" | grep '^--')"
    done
    claim 'fish: choices' same 'sgd adam adamw' "$(tab 'lockstep train --optim.name ')"
    claim 'fish: recipes' same 'gpt2-124m gpt2-tiny' "$(tab 'lockstep train gpt2')"
else
    echo 'skipped: no fish here'
fi
if command -v zsh >/dev/null; then
    "$lockstep" completion zsh >"$tmp/_lockstep"
    # Completion works in a terminal alone: zpty is one. Each candidate comes on a line of its own between marks.
    tab() {
        zsh -f -c '
            zmodload zsh/zpty
            zpty z zsh -f -i
            zpty -w z "PS1= ; fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -d $1/zcompdump"
            zpty -w z "compadd() { builtin compadd -O hits \"\$@\"; print -rl -- \"\" \"\${hits[@]/#/HIT }\"; builtin compadd \"\$@\"; }"
            zpty -w z "zle -C tab complete-word tabbed; tabbed() { _main_complete; print -r -- DONE; }; bindkey \"^I\" tab; print READY"
            zpty -r z line "*READY*" >/dev/null
            zpty -w -n z "$2"$'"'\\t'"'
            zpty -r z line "*DONE*"
            print -r -- "$line"
            zpty -d z' zsh "$tmp" "$1" | tr -d '\r' | sed -n 's/^HIT //p' | sort -u
    }
    claim 'zsh takes the script' zsh -f -n "$tmp/_lockstep"
    claim 'zsh: choices' same 'sgd adam adamw' "$(tab 'lockstep train --optim.name ')"
    claim 'zsh: what ckpt can do' grep -qx verify <(tab 'lockstep ckpt ')
else
    echo 'skipped: no zsh here'
fi
finish
