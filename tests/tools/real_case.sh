#!/bin/sh
# real_case.sh QUERN COMPARE MODEL DATA-STEM OUT N_VOCAB FIRST_ROW MAX_KL exact|fast
# Logits of a real model along a stored text, compared with the stored distributions (tests/data/real/README.md).
quern=$1 compare=$2 model=$3 stem=$4 out=$5 n_vocab=$6 first_row=$7 max_kl=$8 arithmetic=$9
[ -s "$model" ] || { echo "$model is missing: run scripts/fetch-models.sh" >&2; exit 1; }
for file in "$quern" "$compare" "$stem.tokens" "$stem.ref"; do
    [ -s "$file" ] || { echo "$file is missing" >&2; exit 1; }
done
exact=
[ "$arithmetic" = exact ] && exact=--exact
mkdir -p "$(dirname "$out")" || exit 1
trap 'rm -f "$out"' EXIT
trap 'exit 130' INT TERM
echo "$quern logits $model --tokens $stem.tokens -o $out -c 512 --backend cpu $exact"
"$quern" logits "$model" --tokens "$stem.tokens" -o "$out" -c 512 --backend cpu $exact || exit 1
"$compare" "$stem.ref" "$out" "$n_vocab" "$first_row" "$max_kl" "$arithmetic"
