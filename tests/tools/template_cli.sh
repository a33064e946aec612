#!/usr/bin/env bash
# template_cli.sh QUERN TABLE-MODEL: what `quern template` and `quern run --chat` print, where, and their exit status.
set -u
quern=$1
model=$2
# shellcheck source=tests/tools/is.sh
. "$(dirname "$0")/is.sh"

cat >"$work/t.jinja" <<'END'
{{ bos_token }}{% for m in messages %}{{ '<|note|>' + m.role + ' ' + m.content + '<|eot|>' }}{% endfor %}
{% if mood is defined %}[{{ mood }}]{% endif %}
{% if add_generation_prompt %}{{ '<|note|>' }}{% endif %}
END
echo '{% if %}' >"$work/bad.jinja"
echo '{{ raise_exception("Not you") }}' >"$work/no.jinja"
echo '[{"role": "user", "content": "A<|eot|>"}]' >"$work/m.json"
echo '{"messages": [{"role": "user", "content": "A"}], "mood": 3}' >"$work/o.json"
text='<|note|>user A<|eot|><|eot|><|note|>'
is "a conversation" 0 "$text" '' "$quern" template --file "$work/t.jinja" --messages "$work/m.json"
is "from stdin" 0 "$text" '' "$quern" template --file "$work/t.jinja" --messages - <"$work/m.json"
is "with a model" 0 "<s>$text" '' "$quern" template "$model" --chat-template "$work/t.jinja" --messages "$work/m.json"
is "no prompt of an answer" 0 "${text%<|note|>}" '' \
    "$quern" template --file "$work/t.jinja" --messages "$work/m.json" --no-generation-prompt
is "an object with variables" 0 '<|note|>user A<|eot|>[3]<|note|>' '' \
    "$quern" template --file "$work/t.jinja" --messages "$work/o.json"
is "--var counts more" 0 '<|note|>user A<|eot|>[x y]<|note|>' '' \
    "$quern" template --file "$work/t.jinja" --messages "$work/o.json" --var 'mood=x y'
is "JSON in --var" 0 "<|note|>user A<|eot|>[{'a': [1, None]}]<|note|>" '' \
    "$quern" template --file "$work/t.jinja" --messages "$work/o.json" --var 'mood={"a": [1, null]}'
is "--chat-template-kwargs" 0 "<|note|>user A<|eot|>[True]<|note|>" '' \
    "$quern" template --file "$work/t.jinja" --messages "$work/o.json" --chat-template-kwargs '{"mood": true}'
spans="template '<|note|>user '
message  'A<|eot|>'
template '<|eot|><|note|>'
"
is "--spans" 0 "$spans" '' "$quern" template --file "$work/t.jinja" --messages "$work/m.json" --spans
is "a syntax error" 1 '' 'bad.jinja:1: expected an expression, got the end of the block' \
    "$quern" template --file "$work/bad.jinja" --messages "$work/m.json"
is "the template's own refusal" 1 '' 'error: .*no.jinja:1: Not you$' \
    "$quern" template --file "$work/no.jinja" --messages "$work/m.json"
is "no template in the model" 1 '' 'has no chat template; choose one of alpaca, ' \
    "$quern" template "$model" --messages "$work/m.json"
is "an unknown name" 1 '' "no chat template 'nosuch'" "$quern" template --chat-template nosuch --messages "$work/m.json"
is "nothing to render with" 2 '' 'no template: give a model' "$quern" template
is "a bad variable" 2 '' "'mood' is not NAME=VALUE" \
    "$quern" template --file "$work/t.jinja" --messages "$work/m.json" --var mood
is "no list" 1 '' 'neither a JSON list of messages nor an object' \
    "$quern" template --file "$work/t.jinja" --messages - <<<'{}'
is "no JSON" 1 '' 'stdin:1:' "$quern" template --file "$work/t.jinja" --messages - <<<'[}'
is "ids need a model" 1 '' 'needs a model' "$quern" template --file "$work/t.jinja" --messages "$work/m.json" --ids
"$quern" template --list | grep -qx chatml || { echo "--list does not name chatml"; failed=1; }
"$quern" template --chat-template chatml | grep -q im_start || { echo "a built-in is not printed"; failed=1; }

# run: a turn in the template. The table model answers what follows the last token; here only the prompt matters.
prompt() {
    "$quern" run "$model" -n 0 --show-prompt "$@" 2>&1 >/dev/null </dev/null | sed -n "s/^ *\([0-9]*\)  '.*/\1/p" | tr '\n' ' '
}
eot=$("$quern" tokenize "$model" -p '<|eot|>' --add-special off)
n=$(prompt -p 'A<|eot|>' --chat-template "$work/t.jinja" | tr ' ' '\n' | grep -cx "$eot")
[ "$n" = 1 ] || { echo "run --chat-template: $n end-of-turn tokens instead of 1"; failed=1; }
n=$(prompt -p 'A<|eot|>' | tr ' ' '\n' | grep -cx "$eot")
[ "$n" = 1 ] || { echo "raw: $n end-of-turn tokens instead of 1 (spelled out)"; failed=1; }
n=$(prompt -p 'A' -sys 'B\nC' --chat-template "$work/t.jinja" | tr ' ' '\n' | grep -cx "$eot")
[ "$n" = 2 ] || { echo "run -sys: $n end-of-turn tokens instead of 2"; failed=1; }
printf 'B\n' >"$work/sys"
[ "$(prompt -p A -sysf "$work/sys" --chat-template "$work/t.jinja")" = \
    "$(prompt -p A -sys B --chat-template "$work/t.jinja")" ] || { echo "-sysf differs from -sys"; failed=1; }
"$quern" run "$model" -n 0 -p A --show-prompt --chat-template "$work/t.jinja" 2>&1 | grep -q "^message  'A'" ||
    { echo "--show-prompt does not show spans"; failed=1; }
is "run --chat without a template" 1 '' 'has no chat template; choose one of' "$quern" run "$model" -p A --chat -n 1
is "run with a template that refuses" 1 '' 'Not you' "$quern" run "$model" -p A --chat-template "$work/no.jinja" -n 1
is "-sys and -sysf" 2 '' 'sys and -sysf: one of them' "$quern" run "$model" -p A -sys a -sysf b --chat-template chatml -n 1
is "--var without --chat" 2 '' 'var without --chat' "$quern" run "$model" -p A --var a=1 -n 1
is "kwargs without --chat" 2 '' 'kwargs without --chat' "$quern" run "$model" -p A --chat-template-kwargs '{"a":1}' -n 1
exit "$failed"
