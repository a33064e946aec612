#!/bin/sh
# library_case.sh BUILD MODEL: installs into a fresh prefix; a program built through pkg-config, against the shared
# and the static library, completes a prompt; both libraries show nothing but quern.h's names.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$1
model=$2
prefix=$build/library-case
rm -rf "$prefix"
cmake --install "$build" --prefix "$prefix/a" >/dev/null
mv "$prefix/a" "$prefix/b" # an installed tree can be moved
libdir=$(dirname "$(find "$prefix/b" -name libquern.a)")
export PKG_CONFIG_PATH="$libdir/pkgconfig"
foreign=$( (nm -D --defined-only "$libdir/libquern.so"; nm -g --defined-only "$libdir/libquern.a") |
    awk 'NF == 3 && $3 !~ /^quern_/ { print $3 }')
if [ -n "$foreign" ]; then
    echo "foreign symbols: $foreign"
    exit 1
fi
${CC:-cc} "$here/library_user.c" -o "$prefix/shared" $(pkg-config --cflags --libs quern)
${CC:-cc} "$here/library_user.c" -o "$prefix/static" $(pkg-config --cflags quern) "$libdir/libquern.a" \
    $(pkg-config --static --libs-only-l quern | sed 's/-lquern//')
for program in shared static; do
    text=$(LD_LIBRARY_PATH="$libdir" "$prefix/$program" "$model" A)
    if [ "$text" != " Hello world!" ]; then
        echo "$program: '$text' is not ' Hello world!'"
        exit 1
    fi
done
for page in man/man1/quern.1 bash-completion/completions/quern zsh/site-functions/_quern \
    fish/vendor_completions.d/quern.fish; do
    if ! grep -q -e perplexity "$prefix/b/share/$page"; then
        echo "share/$page is not installed"
        exit 1
    fi
done
"$prefix/b/bin/quern" --version
