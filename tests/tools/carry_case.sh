#!/bin/sh
# carry_case.sh QUERN MODEL STATIC
#
# The one file `quern` works away from its checkout: copied alone to an empty folder and run there from /, with an empty
# environment, it reads MODEL, so kernel sources and model configs are inside. STATIC is ON where the libraries must be
# inside too.
set -eu
quern=$1 model=$2 static=$3
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cp "$quern" "$dir/quern"
cd /
env -i "$dir/quern" info "$model" </dev/null >"$dir/out" || {
    echo "carry: quern info failed away from its checkout"
    exit 1
}
grep -q . "$dir/out" || {
    echo "carry: quern info printed nothing"
    exit 1
}
ldd "$dir/quern"
if [ "$static" = ON ] && ldd "$dir/quern" | grep -E 'libyaml|libpcre2|libxxhash|libjansson|libedit|libbsd|libmd|libtinfo'; then
    echo "carry: these should be linked statically"
    exit 1
fi
