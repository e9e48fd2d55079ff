# harness_rows.sh -- tests with one row for each option: a command is complete when every option of its --help has one.
#
#   row["train optim.lr"]=1
#   claim 'every key of train has a row' complete train
declare -A row
flags_of() { "$build/lockstep" "$1" --help | sed -nE 's/^(      |  -., )--([a-z][a-zA-Z_.-]*)( .*|$)/\2/p'; }
complete() { # command
    local flag missing=''
    for flag in $(flags_of "$1"); do [ "${row["$1 $flag"]:-}" ] || missing+=" $flag"; done
    [ -z "$missing" ] || { echo "no row for:$missing"; return 1; }
}
