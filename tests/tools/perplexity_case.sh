#!/bin/sh
# perplexity_case.sh QUERN MODEL TEXT CHUNKS EXPECTED [FLAG...]: perplexity of the first CHUNKS chunks of TEXT, within 0.5 %.
quern=$1 model=$2 text=$3 chunks=$4 expected=$5
shift 5
[ -s "$model" ] || { echo "$model is missing: run scripts/fetch-models.sh" >&2; exit 1; }
answer=$("$quern" perplexity "$model" -f "$text" --chunks "$chunks" --json --backend cpu "$@") || exit 1
echo "$answer"
echo "$answer" | python3 -c '
import json, sys
got, chunks, expected = json.load(sys.stdin), int(sys.argv[1]), float(sys.argv[2])
off = got["perplexity"] / expected - 1
ok = abs(off) <= 0.005 and got["n_chunks"] == chunks and got["n_scored"] == 255 * chunks and got["n_ctx"] == 512
print("%s perplexity %.4f, expected %.4f: %+.3f %%" % ("ok" if ok else "FAILED", got["perplexity"], expected, 100 * off))
sys.exit(not ok)' "$chunks" "$expected"
