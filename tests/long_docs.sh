#!/bin/bash
# long_docs.sh -- every command that README.md and docs/quickstart.md show works when it is pasted: in a minimal Debian as
# root, in the order of the pages, in one clone; and those of the program once more by an installed one, in another folder.
#
#   tests/long_docs.sh BUILD
. "$(dirname "$0")/harness.sh"
. "$(dirname "$0")/harness_fresh.sh"

# Lines after "$ " in blocks of commands.
commands_of() { awk '/^```console/ { on = 1; next } /^```/ { on = 0 } on && /^\$ / { sub(/^\$ /, ""); print }' "$source_dir/$1"; }
fails_on_purpose() { [[ $1 == *'--inject '* ]]; } # the page shows the report
left_out() { # command: why it is not run here; fails for a command that is
    case $1 in
    'make test') echo 'tests/long_fresh.sh runs it' ;;
    'git clone '*) echo 'the clone is made of this repository' ;;
    'cd lockstep') echo 'every command runs there' ;;
    *) return 1 ;;
    esac
}
# exports of the commands so far, in a file, since a claim is a process of its own: who pastes them has one shell
: >"$tmp/exports"
pasted() { # folder, command
    as root "$(cat "$tmp/exports") cd $1 && $2"
    local status=$?
    if fails_on_purpose "$2"; then
        [ $status -ne 0 ] && grep -q 'lockstep: error\[rank-died\]' "$tmp/out" && return 0
        echo "exit status $status, expected a report"
    elif [ $status = 0 ]; then
        [[ $2 != 'export '* ]] || echo "$2;" >>"$tmp/exports"
        return 0
    fi
    echo "exit status $status"
    shows 20
    return 1
}

part 'a clone for root'
git clone -q "file://$source_dir" "$root/root/lockstep" && cp "$tmp/npmrc" "$root/root/.npmrc" &&
    cp "$source_dir/README.md" "$root/root/lockstep/my-text.txt" || exit 1 # quickstart.md: a text of your own
bare=$(commands_of README.md | grep '^apt-get update && apt-get install ')
claim 'README.md says how to get git and make' test -n "$bare"
claim "$bare" pasted . "DEBIAN_FRONTEND=noninteractive; export DEBIAN_FRONTEND; $bare"
[ $failed = 0 ] || finish

for page in README.md docs/quickstart.md; do
    n=0
    while IFS= read -r command <&3; do
        n=$((n + 1))
        if [ "$command" = "$bare" ]; then continue; fi
        if why=$(left_out "$command"); then
            part "$page: $command: left out: $why"
            continue
        fi
        part "$page: $command"
        claim "$page: $command" pasted lockstep "$command"
        claim "$page: $command: leaves no process" alone
    done 3< <(commands_of "$page")
    claim "$page shows commands" test $n -gt 5
done

# --- by an installed program, in another folder ------------------------------------------------------------------------
: >"$tmp/exports"
part 'make install'
claim 'make install' pasted lockstep 'make install PREFIX=/usr/local && ldconfig'
mkdir "$root/root/elsewhere"
cp "$source_dir/CHANGELOG.md" "$root/root/elsewhere" && cp "$source_dir/README.md" "$root/root/elsewhere/my-text.txt"
mv "$root/root/lockstep" "$root/root/moved"          # nothing of the sources is needed
installed() { # a page's command as a user of the installed program gives it
    sed -E 's,build/lockstep,lockstep,g; s,recipes/([a-z0-9-]+)\.yaml,\1,g' <<<"$1"
}
claim 'the model of make train, from any folder' pasted elsewhere 'lockstep train gpt2-tiny --nproc-per-node 2'
for page in README.md docs/quickstart.md; do
    while IFS= read -r command <&3; do
        [[ $command == build/lockstep* && $command != *build/examples* ]] || continue
        command=$(installed "$command")
        part "$page, installed: $command"
        claim "$page, installed: $command" pasted elsewhere "$command"
    done 3< <(commands_of "$page")
done
claim 'nothing runs any more' alone
part 'done'
finish
