#!/bin/sh
# golden_case.sh QUERN COMPARE MODEL TOKENS REFERENCE OUT N_VOCAB TOLERANCE MODE [FLAG...]
# Logits of MODEL for the ids of TOKENS, compared with REFERENCE. OUT stays where the comparison fails.
quern=$1 compare=$2 model=$3 tokens=$4 reference=$5 out=$6 n_vocab=$7 tolerance=$8 mode=$9
shift 9
for file in "$quern" "$compare" "$model" "$tokens" "$reference"; do
    [ -s "$file" ] || { echo "$file is missing" >&2; exit 1; }
done
mkdir -p "$(dirname "$out")" && rm -f "$out" || exit 1
echo "$quern logits $model --tokens $tokens -o $out --mode $mode --backend cpu $*"
"$quern" logits "$model" --tokens "$tokens" -o "$out" --mode "$mode" --backend cpu "$@" || exit 1
"$compare" "$reference" "$out" "$n_vocab" "$tolerance" || exit 1
rm -f "$out"
