# shellcheck shell=sh disable=SC2154,SC2086,SC2015
# lib.sh: what quickstart.sh and test.sh share; read in with `.`. The caller sets $me (its name) and $top (the checkout).

say() { printf '%s: %s\n' "$me" "$*" >&2; }
die() {
    say "$*"
    exit 1
}

# step WHAT COMMAND...: runs COMMAND with its output kept in $log; where it fails, the end of that output and one line.
step() {
    what=$1
    shift
    say "$what"
    if ! "$@" >"$log" 2>&1 </dev/null; then
        tail -n 40 "$log" >&2
        die "$what: failed; all output is in $log"
    fi
}

has_header() { printf '#define PCRE2_CODE_UNIT_WIDTH 8\n#include <%s>\n' "$1" | cc -E -x c - >/dev/null 2>&1; }

# Debian packages that are missing, collected by need.
packages=
need() { packages="$packages $*"; }

# What building quern takes.
need_build_tools() {
    command -v cmake >/dev/null || need cmake
    command -v make >/dev/null || command -v ninja >/dev/null || need make
    command -v cc >/dev/null && has_header stdio.h || need gcc libc6-dev
    has_header yaml.h || need libyaml-dev
    has_header pcre2.h || need libpcre2-dev
    has_header xxhash.h || need libxxhash-dev
    has_header jansson.h || need libjansson-dev
    has_header histedit.h || need libedit-dev
}

# What fetching a model takes.
need_pip() {
    command -v python3 >/dev/null || need python3
    python3 -m pip --version >/dev/null 2>&1 || python3 -c 'import ensurepip' 2>/dev/null || need python3-pip
}

# Installs $packages with apt, as root or through sudo; nothing where none is missing.
install_packages() {
    [ -n "$packages" ] || return 0
    command -v apt-get >/dev/null ||
        die "please install what these Debian packages hold, then run this again:$packages"
    if [ "$(id -u)" = 0 ]; then
        sudo=
    elif command -v sudo >/dev/null; then
        sudo=sudo
    else
        die "as root: apt-get install$packages; then run this again"
    fi
    step "apt-get update" $sudo apt-get update
    step "apt-get install$packages" $sudo env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends $packages
    packages=
}

n_jobs() { nproc 2>/dev/null || echo 2; }

# build FOLDER CMAKE_OPTION...
build() {
    folder=$1
    shift
    mkdir -p "$top/$folder" || die "cannot make $top/$folder"
    log=$top/$folder/$me.log
    step "configure $folder" cmake -S "$top" -B "$top/$folder" "$@"
    step "build $folder" cmake --build "$top/$folder" -j "$(n_jobs)"
}
