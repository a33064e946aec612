#!/bin/sh
# refused_case.sh PATTERN COMMAND...: COMMAND must fail cleanly, that is with an exit code that is no signal and no sanitizer
# report, nothing on stdout, and one to three lines on stderr that match the extended regular expression PATTERN.
pattern=$1
shift
errors=$(mktemp) || exit 1
answer=$("$@" 2>"$errors")
code=$?
cat "$errors"
lines=$(wc -l <"$errors")
fault=
[ $code -gt 0 ] && [ $code -lt 126 ] || fault="exit code $code"
[ -z "$answer" ] || fault="stdout is not empty"
[ "$lines" -ge 1 ] && [ "$lines" -le 3 ] || fault="$lines lines on stderr"
grep -Eq "$pattern" "$errors" || fault="stderr does not match '$pattern'"
grep -Eq 'Sanitizer|runtime error:' "$errors" && fault="a sanitizer report"
rm -f "$errors"
[ -z "$fault" ] || { echo "FAILED: $fault" >&2; exit 1; }
