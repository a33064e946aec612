#!/bin/sh
# look_case.sh QUERN MODEL CONFIGS: `quern ptx`, `quern plan --kernels` and `quern cache warm`, which need NVRTC and no GPU.
set -eu
export LC_ALL=C
quern=$1 model=$2 configs=$3
dir=$(mktemp -d "${TMPDIR:-/tmp}/quern-look-case.XXXXXX")
trap 'rm -rf "$dir"' EXIT
export QUERN_CACHE="$dir/cache" CUDA_VISIBLE_DEVICES=

die() { echo "look_case: $*" >&2; exit 1; }
# expect STATUS TEXT COMMAND...: exit status and a piece of the output
expect() {
    status=$1 text=$2
    shift 2
    rc=0
    out=$("$@" 2>&1) || rc=$?
    [ "$rc" = "$status" ] || die "exit status $rc instead of $status of: $* ($out)"
    case $out in *"$text"*) ;; *) die "no '$text' in the output of: $* ($out)" ;; esac
}

expect 0 " compiled, 0 in the cache already" "$quern" cache warm "$model" --arch sm_80
expect 0 ": 0 compiled, " "$quern" cache warm "$model" --arch sm_80
expect 1 "no kernel cache" "$quern" cache warm "$model" --arch sm_80 --cache none
expect 2 "no model" "$quern" cache warm
expect 2 "takes no model" "$quern" cache list "$model"
expect 1 "architecture 'sm_12'" "$quern" ptx "$model" --arch sm_12
expect 1 "cannot be built for sm_80" "$quern" ptx "$model" --arch sm_80 --variant sm90a
expect 1 "matches none" "$quern" ptx "$model" --arch sm_80 --kernel 'nothing*'
expect 0 "kind=rms" "$quern" ptx "$model" --arch sm_80 --kernel 'norm_*'
expect 0 "variant=75" "$quern" ptx "$model" --arch sm_80 --variant sm75 --kernel 'norm_*'
expect 0 ".target sm_80" "$quern" ptx "$model" --arch sm_80 --kernel 'norm_*' --what ptx
expect 0 '#include "norm.cu"' "$quern" ptx "$model" --arch sm_80 --kernel 'norm_*' --what source
expect 1 "PTX only" "$quern" ptx "$model" --arch compute_80 --kernel 'norm_*' --what cubin -o "$dir/cubin"
expect 0 "files in" "$quern" ptx "$model" --arch sm_80 --what cubin -o "$dir/cubin"
n=$(find "$dir/cubin" -name '*.cubin' | wc -l)
"$quern" ptx "$model" --arch sm_80 --json >"$dir/list.json"
[ "$(grep -c '"registers": [0-9]' "$dir/list.json")" = "$n" ] || die "$n cubins, another number with registers"
# No disassembler: an error that says what to do. With one: a listing.
mkdir "$dir/bin"
if ! ls /usr/local/cuda*/bin/nvdisasm /usr/local/cuda*/bin/cuobjdump >/dev/null 2>&1; then
    expect 1 "no disassembler" env PATH="$dir/bin" CUDA_PATH= "$quern" ptx "$model" --arch sm_80 --what sass
fi
printf '#!/bin/sh\necho "listing of $1"\n' >"$dir/bin/nvdisasm"
chmod +x "$dir/bin/nvdisasm"
expect 0 "listing of " env PATH="$dir/bin:$PATH" "$quern" ptx "$model" --arch sm_80 --what sass --kernel 'select*'

expect 0 "cuBLASLt f16" "$quern" plan "$model" --kernels --phase prefill
expect 0 "weight cache   " "$quern" plan "$model" --kernels --phase prefill --weight-cache on
expect 0 "dequant_" "$quern" plan "$model" --kernels --phase prefill --weight-cache off
expect 0 "gemv" "$quern" plan "$model" --kernels --phase decode
expect 0 "argmax" "$quern" plan "$model" --kernels

# One value of a config that matters to one op: only its kernels (of prompts, of few tokens, and the
# one that decode has together with attention) are compiled anew, and the constant shows.
cp -r "$configs" "$dir/configs"
sed -i 's/style: interleaved/style: neox/' "$dir/configs/llama.yaml"
expect 0 ": 3 compiled, " "$quern" cache warm "$model" --arch sm_80 --model-configs "$dir/configs"
expect 0 "rope_style=neox" "$quern" ptx "$model" --arch sm_80 --model-configs "$dir/configs" --kernel 'rope_kv*'
expect 0 "rope_style=interleaved" "$quern" ptx "$model" --arch sm_80 --kernel 'rope_kv*'
