# harness_lab.sh -- what test scripts about exercises of the labs share: an empty folder of tasks, and a lab's output.
#
#   . "$(dirname "$0")/harness_lab.sh"     after harness.sh
lockstep=$build/lockstep
cd "$tmp" || exit 1
mkdir work tasks && cd tasks || exit 1
export TMPDIR=$tmp/work OMP_NUM_THREADS=1
unset CC COLUMNS
if [ -n "$(sed -n 's/^LOCKSTEP_SANITIZE:STRING=//p' "$build/CMakeCache.txt")" ]; then
    echo 'skipped: a program without a sanitizer cannot be linked with a library that has one'
    finish
fi
lab() { # arguments: leaves out, err and code
    timeout -k 5 100 "$lockstep" lab "$@" >../out 2>../err </dev/null
    code=$?
}
ends() { [ $code = "$1" ] || { echo "exit status $code, expected $1"; cat ../out ../err; return 1; }; }
said() { grep -qF -- "$1" ../out || { cat ../out ../err; return 1; }; }
wrong() { grep -qF -- "$1" ../err || { cat ../out ../err; return 1; }; }
