#!/usr/bin/env bash
# tokenize_cli.sh QUERN DATA: what the two commands print, where, and their exit status.
set -u
quern=$1
data=$2
spm=$data/ggml-vocab-llama-spm.gguf
gpt2=$data/ggml-vocab-gpt-2.gguf
# shellcheck source=tests/tools/is.sh
. "$(dirname "$0")/is.sh"

is prompt 0 $'15496 995\n' "" "$quern" tokenize "$gpt2" -p "Hello world"
is model-flag 0 $'15496 995\n' "" "$quern" tokenize -m "$gpt2" -p "Hello world"
is bos 0 $'1 15043\n' "" "$quern" tokenize "$spm" -p Hello
is no-bos 0 $'15043\n' "" "$quern" tokenize "$spm" -p Hello --add-special off
is special 0 $'1 1\n' "" "$quern" tokenize "$spm" -p "<s>"
is no-special 0 $'1 529 29879 29958\n' "" "$quern" tokenize "$spm" -p "<s>" --parse-special off
is empty 0 $'\n' "" "$quern" tokenize "$gpt2" -p ""
is empty-bos 0 $'1\n' "" "$quern" tokenize "$spm" -p ""
printf 'Hello world' >"$work/text"
is file 0 $'15496 995\n' "" "$quern" tokenize "$gpt2" -f "$work/text"
is stdin 0 $'15496 995\n' "" "$quern" tokenize "$gpt2" <"$work/text"
is dash 0 $'15496 995\n' "" "$quern" tokenize "$gpt2" -f - <"$work/text"
is backslash 0 $'64 59 77\n' "" "$quern" tokenize "$gpt2" -p 'a\n'
is json 0 $'{"n":2,"ids":[1,15043],"pieces":["<s>"," Hello"]}\n' "" "$quern" tokenize "$spm" -p Hello --json
is pieces 0 $'  15496  normal        "Hello"\n' "" "$quern" tokenize "$gpt2" -p Hello --pieces

is pre 0 $'16 17 18\n' "" "$quern" tokenize "$gpt2" -p 123 --pre starcoder
is no-such-pre 1 "" "\"starcodr\" is not known (did you mean \"starcoder\"?)" "$quern" tokenize "$gpt2" -p x --pre starcodr

is detokenize 0 "Hello world" "" "$quern" detokenize "$gpt2" 15496 995
is detokenize-list 0 "Hello world" "" "$quern" detokenize "$gpt2" "[15496, 995]"
is detokenize-spm 0 "Hello" "" "$quern" detokenize "$spm" 1 15043
is detokenize-special 0 "<s>Hello" "" "$quern" detokenize "$spm" 1 15043 --special on
is detokenize-prefix 0 " Hello" "" "$quern" detokenize "$spm" 15043 --keep-prefix
is detokenize-json 0 $'{"text":"Hello"}\n' "" "$quern" detokenize "$gpt2" 15496 --json
"$quern" tokenize "$gpt2" -f "$gpt2" >"$work/ids" # bytes of any kind; malformed ones do not come back as they were
printf 'na\303\257ve \360\237\230\200\n\n\ttabs\0nul ' >"$work/text"
"$quern" tokenize "$gpt2" -f "$work/text" >"$work/ids"
"$quern" detokenize "$gpt2" -f "$work/ids" | cmp -s - "$work/text" || { echo "round trip differs"; failed=1; }

is no-model 2 "" "no model" "$quern" tokenize
is no-such-file 1 "" "quern: error: .*/none.gguf" "$quern" tokenize "$work/none.gguf" -p x
is unknown-option 2 "" "unknown option" "$quern" tokenize "$gpt2" --parse
is bad-choice 2 "" "none of off, on" "$quern" tokenize "$gpt2" -p x --add-special maybe
is both 2 "" "exclude" "$quern" tokenize "$gpt2" -p x -f "$work/text"
is bad-id 1 "" "outside the vocabulary" "$quern" detokenize "$gpt2" 50257
is no-number 1 "" "is not a token id" "$quern" detokenize "$gpt2" 12x
is cases-and-text 2 "" "--cases" "$quern" tokenize "$gpt2" -p x --cases "$work/text"
echo '{"text":"Hello","add_special":true}' >"$work/cases"
is bad-case 1 "" "cases:1: needs \"add_special\" and \"parse_special\"" "$quern" tokenize "$gpt2" --cases "$work/cases"
echo 'nonsense' >"$work/cases"
is bad-json 1 "" "cases:1: " "$quern" tokenize "$gpt2" --cases "$work/cases"
: >"$work/cases"
is no-cases 1 $'0 of 0\n' "" "$quern" tokenize "$gpt2" --cases "$work/cases"
exit "$failed"
