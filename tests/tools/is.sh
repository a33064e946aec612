# shellcheck shell=bash disable=SC2034
# is.sh: what the shell tests of commands share; read in with `.`. Makes $work, a folder that goes away; $failed is the status
# to end with.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# is NAME STATUS STDOUT STDERR COMMAND...   stdin is what the caller redirects. STDERR: a pattern of grep; empty: nothing may
# be written there.
is() {
    local name=$1 status=$2 out=$3 err=$4
    shift 4
    "$@" >"$work/out" 2>"$work/err"
    local got=$?
    printf '%s' "$out" >"$work/want"
    if [ $got -ne "$status" ]; then
        echo "$name: exit status $got instead of $status: $(cat "$work/err")"
        failed=1
    elif ! cmp -s "$work/want" "$work/out"; then
        echo "$name: stdout is \"$(cat "$work/out")\" instead of \"$out\""
        failed=1
    elif [ -z "$err" ] && [ -s "$work/err" ] || ! grep -q -- "$err" "$work/err" && [ -n "$err" ]; then
        echo "$name: stderr is \"$(cat "$work/err")\", not like \"$err\""
        failed=1
    fi
}
