#!/bin/sh
# library_case.sh BUILD MODEL: installs into a fresh prefix; the program of docs/embedding.md and library_user.c, built
# through pkg-config against the shared and the static library, do what they should, also with no standard stream open;
# both libraries show nothing but quern.h's names, and use nothing that prints, exits or handles signals.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$1
model=$2
prefix=$build/library-case
cc=${CC:-cc}
die() {
    echo "library_case: $*" >&2
    exit 1
}

rm -rf "$prefix"
cmake --install "$build" --prefix "$prefix/a" >/dev/null
mv "$prefix/a" "$prefix/b" # an installed tree can be moved
libdir=$(dirname "$(find "$prefix/b" -name libquern.a)")
export PKG_CONFIG_PATH="$libdir/pkgconfig"
export LD_LIBRARY_PATH="$libdir"

foreign=$( (nm -D --defined-only "$libdir/libquern.so"; nm -g --defined-only "$libdir/libquern.a") |
    awk 'NF == 3 && $3 !~ /^quern_/ { print $3 }')
[ -z "$foreign" ] || die "foreign symbols: $foreign"
# Names without which nothing can be printed, ended or caught; files are written through fopen and write.
never='stdout|stderr|stdin|printf|puts|putchar|perror|psignal|exit|_exit|_Exit|quick_exit|abort|atexit|on_exit|__cxa_atexit|
|signal|sigaction|sigprocmask|pthread_sigmask|raise|alarm|setitimer|setlocale|setenv|putenv|unsetenv|chdir|fchdir|umask|
|fork|vfork|execve|execvp|system|popen|posix_spawn|dup2|isatty|tcsetattr|__printf_chk|__vprintf_chk|vprintf|syslog|err|errx|warn'
never="^($(echo "$never" | tr -d '\n'))\$"
for lib in "$libdir/libquern.so" "$libdir/libquern.a"; do
    case $lib in *.so) nm="nm -D" ;; *) nm="nm" ;; esac
    used=$($nm --undefined-only "$lib" | awk '{ sub(/@.*/, "", $2); print $2 }' | grep -E "$never" || true)
    [ -z "$used" ] || die "$lib uses $used"
done

sed -n '/^```c$/,/^```$/p' "$here/../../docs/embedding.md" | grep -v '^```' >"$prefix/complete.c"
[ "$(grep -c . "$prefix/complete.c")" -gt 30 ] || die "no program in docs/embedding.md"
cp "$here/library_user.c" "$prefix/user.c"
warnings="-std=c17 -D_GNU_SOURCE -Wall -Wextra -Werror"
static="$(pkg-config --cflags quern) $libdir/libquern.a $(pkg-config --static --libs-only-l quern | sed 's/-lquern//')"
for program in complete user; do
    # shellcheck disable=SC2046,SC2086
    $cc $warnings "$prefix/$program.c" -o "$prefix/$program-shared" $(pkg-config --cflags --libs quern) -pthread
    # shellcheck disable=SC2086
    $cc $warnings "$prefix/$program.c" -o "$prefix/$program-static" $static -pthread
done
if command -v c++ >/dev/null; then # the header is C++ as well
    echo '#include <quern.h>' >"$prefix/header.cpp"
    # shellcheck disable=SC2046
    c++ -Wall -Wextra -Werror -fsyntax-only $(pkg-config --cflags quern) "$prefix/header.cpp"
fi

for kind in shared static; do
    run=$prefix/complete-$kind
    text=$("$run" "$model" A 2>"$prefix/err")
    [ "$text" = " Hello world!" ] || die "$run: '$text' is not ' Hello world!'"
    [ ! -s "$prefix/err" ] || die "$run wrote on stderr: $(cat "$prefix/err")"
    rc=0
    text=$("$run" "$prefix/none.gguf" A 2>"$prefix/err") || rc=$?
    [ "$rc" = 1 ] && [ -z "$text" ] || die "$run without a model: status $rc, '$text'"
    [ "$(wc -l <"$prefix/err")" = 1 ] && grep -q none.gguf "$prefix/err" || die "$run: $(cat "$prefix/err")"
    run=$prefix/user-$kind
    "$run" complete "$model" A "$prefix/out" <&- >&- 2>&- || die "$run with closed streams: status $?"
    [ "$(cat "$prefix/out")" = " Hello world!" ] || die "$run with closed streams: '$(cat "$prefix/out")'"
    "$run" complete "$prefix/none.gguf" A "$prefix/out" <&- >&- 2>&- && die "$run took none.gguf"
    grep -q '^error: .*none.gguf' "$prefix/out" || die "$run with closed streams: '$(cat "$prefix/out")'"
    for mode in threads errors borrowed; do
        text=$("$run" $mode "$model" 2>&1) || die "$run $mode: $text"
        [ -z "$text" ] || die "$run $mode printed: $text"
    done
done
"$prefix/b/bin/quern" --version
