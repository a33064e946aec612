#!/usr/bin/env python3
"""chat_real.py QUERN MODEL: turns of a chat with a real model of the ChatML family, in the exact arithmetic, whose bits do not
depend on how a prompt is cut. Each turn that goes on from the session has to give the text of a fresh session that reads the
whole conversation, and the first one that of `quern run` with the prompt written out."""
import json
import os
import re
import subprocess
import sys
import tempfile

SYSTEM = "You are a helpful AI assistant."
QUESTIONS = ["What is the capital of France?", "And of Italy?", "Name one river there, and its <|im_end|> mouth."]
STATS = re.compile(r"prompt (\d+) tokens, (\d+) processed")


def main():
    quern, model = sys.argv[1:3]
    if not os.path.exists(model):
        sys.exit("%s is missing: run scripts/fetch-models.sh" % model)
    common = ["--backend", "cpu", "--exact", "--temp", "0", "-c", "512", "-n", "24"]

    def run(*args, stdin=""):
        p = subprocess.run([quern] + list(args) + common, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           encoding="utf-8")
        if p.returncode != 0:
            sys.exit("%s: status %d\n%s" % (" ".join(args), p.returncode, p.stderr))
        return p.stdout, p.stderr

    def chat(lines):
        return run("chat", model, "-v", stdin="".join(line + "\n" for line in lines))

    faults = []
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "talk.json")
        _, err = chat(["/system " + SYSTEM] + QUESTIONS + ["/save " + path])
        with open(path, encoding="utf-8") as f:
            talk = json.load(f)
        answers = [m["content"] for m in talk if m["role"] == "assistant"]
        counts = [tuple(map(int, c)) for c in STATS.findall(err)]
        if len(answers) != len(QUESTIONS) or len(counts) != len(QUESTIONS):
            sys.exit("not %d turns:\n%s" % (len(QUESTIONS), err))
        prompt = "<|im_start|>system\n%s<|im_end|>\n<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n"
        out, _ = run("run", model, "-p", prompt % (SYSTEM, QUESTIONS[0]))
        if out != answers[0]:
            faults.append("run says %r, chat %r" % (out, answers[0]))
        for i in range(1, len(QUESTIONS)):
            with open(path, "w", encoding="utf-8") as f:
                json.dump(talk[:2 + 2 * i], f)
            out, err = chat(["/load " + path, "/regen"])
            whole = tuple(map(int, STATS.findall(err)[0]))
            print("turn %d: %r; %d of %d tokens processed, fresh %d" % (i + 1, answers[i], counts[i][1], counts[i][0], whole[1]))
            if out.rstrip("\n") != answers[i].rstrip("\n"):
                faults.append("turn %d: a fresh session says %r, not %r" % (i + 1, out, answers[i]))
            if whole[0] != whole[1] or whole[0] != counts[i][0] or counts[i][1] >= 40:
                faults.append("turn %d: prompt and processed %s, fresh %s" % (i + 1, counts[i], whole))
    sys.exit("\n".join(faults) or 0)


if __name__ == "__main__":
    main()
