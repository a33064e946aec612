#!/bin/sh
# shellcheck disable=SC2012
# cache_case.sh QUERN FILL LIBRARY_DIR: `quern cache` and `quern doctor` on a cache that FILL (test_jit_faults) makes;
# LIBRARY_DIR holds the fake driver.
set -eu
export LC_ALL=C
quern=$1 fill=$2 fake=$3
dir=$(mktemp -d "${TMPDIR:-/tmp}/quern-cache-case.XXXXXX")
trap 'rm -rf "$dir"' EXIT
unset QUERN_CACHE CUDA_VISIBLE_DEVICES || true

die() { echo "cache_case: $*" >&2; exit 1; }
# expect STATUS TEXT COMMAND...: exit status and a piece of the output
expect() {
    status=$1 text=$2
    shift 2
    rc=0
    out=$("$@" 2>&1) || rc=$?
    [ "$rc" = "$status" ] || die "exit status $rc instead of $status of: $* ($out)"
    case $out in *"$text"*) ;; *) die "no '$text' in the output of: $* ($out)" ;; esac
}

c=$dir/cache
expect 0 "0 entries" "$quern" cache list --cache "$c"
[ ! -e "$c" ] || die "looking made a folder"
expect 105 "" "$fill" plain "$c"
mkdir "$c/not-ours" && touch "$c/not-ours/precious" "$c/README.md"
expect 0 "5 entries" "$quern" cache list --cache "$c"
expect 0 "sm_80" env QUERN_CACHE="$c" "$quern" cache list
expect 0 "5 entries, 0 damaged" "$quern" cache verify --cache "$c"
one=$(ls -d "$c"/fill-f32-* | head -n 1)
printf x >>"$one/kernel.ptx"
expect 1 "kernel.ptx has" "$quern" cache verify --cache "$c"
expect 1 "5 entries, 1 damaged" "$quern" cache verify --cache "$c"
expect 0 "1 entries of the kernel cache are damaged" "$quern" doctor --cache "$c"
expect 101 "1 damaged entry dropped" "$fill" plain "$c"
expect 0 "5 entries, 0 damaged" "$quern" cache verify --cache "$c"
expect 0 "5 entries" "$quern" cache clear --cache "$c"
[ "$(ls "$c" | tr '\n' ' ')" = "README.md not-ours " ] || die "clear left or took: $(ls "$c")"
[ -e "$c/not-ours/precious" ] || die "clear took what is not a kernel"
touch "$dir/file"
expect 1 "file: Not a directory" "$quern" cache list --cache "$dir/file"
expect 1 "no kernel cache on disk" "$quern" cache list --cache none
expect 2 "unknown action" "$quern" cache lst
expect 2 "list, verify, warm or clear" "$quern" cache

export LD_LIBRARY_PATH="$fake"
expect 0 "Fake card 1, compute capability 9.0" env FAKE_DEVICES=2 "$quern" doctor --cache "$c"
expect 0 "$fake/libcuda.so" "$quern" doctor
expect 0 "sm_90a, variant sm90a" "$quern" doctor
expect 0 "newer than NVRTC" env FAKE_CC=199 "$quern" doctor
expect 0 "need 7.5 or newer" env FAKE_CC=61 "$quern" doctor
expect 0 "CUDA_VISIBLE_DEVICES is set to ''" env CUDA_VISIBLE_DEVICES= FAKE_CUINIT=100 "$quern" doctor
expect 0 "fabricmanager" env FAKE_CUINIT=802 "$quern" doctor
expect 0 "Models run on the CPU" env FAKE_CUINIT=999 "$quern" doctor
expect 0 "memory only" "$quern" doctor --cache none
expect 2 "" "$quern" doctor --nonsense
