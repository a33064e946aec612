#!/usr/bin/env python3
"""What scripts need of `quern run`: log-probabilities, JSON lines, files of prompts, progress. test_cli_run.py QUERN
[unittest arguments]."""
import json
import math
import os
import re
import subprocess

from cli_case import QUERN, TERMINAL, CliCase, at_terminal, main, table

N = len(table.TOKENS)


def expected(token, banned=()):
    """Log-probability of every token after `token`, by the table."""
    logits = [0.0] * N
    for t, v in table.CHAINS.get(token, {}).items():
        logits[table.ID[t]] = v
    norm = math.log(sum(math.exp(v) for v in logits))
    return [v - norm for v in logits]


class Logprobs(CliCase):
    def check(self, rows, tokens, n):
        """rows: what was printed of `tokens`, the first of which follows the prompt's last."""
        self.assertEqual(len(rows), len(tokens) - 1)
        for row, before, token in zip(rows, tokens, tokens[1:]):
            want = expected(before)
            self.assertEqual(row["id"], table.ID[token])
            self.assertAlmostEqual(row["logprob"], want[table.ID[token]], delta=2e-5)
            top = sorted(range(N), key=lambda i: (-want[i], i))[:n]
            self.assertEqual([t["id"] for t in row["top_logprobs"]], top)
            for t in row["top_logprobs"]:
                self.assertAlmostEqual(t["logprob"], want[t["id"]], delta=2e-5)

    def test_json(self):
        for args in ([], ["--exact"]):
            j = self.answer("-p", "A", "--json", "--logprobs", "3", *args).json
            self.check(j["logprobs"], ["A", "▁Hello", "▁world", "!", "</s>"], 3)
            first = j["logprobs"][0]
            self.assertEqual((first["token"], bytes(first["bytes"])), (" Hello", b" Hello"))
        j = self.answer("-p", "F", "--json", "--logprobs", "5", "-n", "3").json
        self.check(j["logprobs"], ["F", "0", "0", "0"], 5)
        self.assertAlmostEqual(math.exp(j["logprobs"][0]["logprob"]), 0.5, delta=0.01)
        j = self.answer("-p", "F", "--json", "--logprobs", "0", "-n", "2").json
        self.check(j["logprobs"], ["F", "0", "0"], 0)
        self.assertNotIn("logprobs", self.answer("-p", "A", "--json").json)
        self.assertEqual(self.answer("-p", "A", "--json", "-n", "0", "--logprobs", "2").json["logprobs"], [])
        j = self.answer("-p", "A", "--json", "--logprobs", "1000", "-n", "1").json  # all there are
        self.assertEqual(sorted(t["id"] for t in j["logprobs"][0]["top_logprobs"]), list(range(N)))

    def test_the_logits_are_the_model_s(self):
        """Neither penalty, mask, filters nor temperature change them."""
        args = ["run", self.model, "--json", "--logprobs", "4", "-s", "3"]
        plain = self.quern(*args, "-p", "F", "-n", "8", "--temp", "1").json
        for extra in (["--temp", "5"], ["--top-k", "2"], ["--min-p", "0.3"], ["--repeat-penalty", "1.5"]):
            j = self.quern(*args, "-p", "F", "-n", "8", *(extra if "--temp" in extra else extra + ["--temp", "1"])).json
            tokens = ["F"] + [table.TOKENS[i] for i in j["ids"]]
            self.check(j["logprobs"], tokens, 4)
        self.check(plain["logprobs"], ["F"] + [table.TOKENS[i] for i in plain["ids"]], 4)
        j = self.answer("-p", "E", "--json", "--logprobs", "2", "--ignore-eos", "-n", "2").json
        self.check(j["logprobs"], ["E", "STOX", "STOX"], 2)  # end tokens lead the lists, though none is drawn
        self.assertEqual(j["logprobs"][0]["top_logprobs"][0]["id"], table.ID["<|eot|>"])

    def test_bytes(self):
        j = self.answer("-p", "B", "--json", "--logprobs", "1").json
        self.assertEqual(bytes(b for row in j["logprobs"][:-1] for b in row["bytes"]).decode(), j["text"])
        self.assertEqual(j["logprobs"][0]["bytes"], [table.EMOJI[0]])

    def test_text(self):
        r = self.expect("000", "-p", "F", "-n", "3", "--logprobs", "2")
        want = expected("F")
        rows = re.findall(r"quern: +(-[0-9.]+) +(\d+) '(.*)' \| (.*)", r.err)
        self.assertEqual(len(rows), 3)
        for logprob, token, text, top in rows:
            self.assertEqual((int(token), text), (table.ID["0"], "0"))
            self.assertAlmostEqual(float(logprob), want[table.ID["0"]], delta=2e-5)
            self.assertRegex(top, r"^-0\.\d{5} %d '0', -1\.\d{5} %d '1'$" % (table.ID["0"], table.ID["1"]))
        self.assertEqual(self.expect("000", "-p", "F", "-n", "3", "--logprobs", "2", "-q").err, "")

    def test_refusals(self):
        for bad in ("-1", "x", "1001"):
            self.refuse(["--logprobs"], "run", self.model, "-p", "A", "--logprobs", bad, code=2)


class JsonLines(CliCase):
    def lines(self, *args, **kw):
        r = self.answer("-o", "jsonl", *args, **kw)
        self.assertEqual(r.code, 0, r.err)
        return [json.loads(line) for line in r.text.splitlines()]

    def test_stream_is_the_text(self):
        for prompt in "ABDEGHIJ":
            *tokens, last = self.lines("-p", prompt)
            plain = self.answer("-p", prompt).text
            self.assertEqual("".join(t["text"] for t in tokens), plain)
            self.assertEqual(last["text"], plain)
            self.assertEqual([t["id"] for t in tokens], last["ids"])
            self.assertEqual([t["index"] for t in tokens], list(range(len(tokens))))
            self.assertEqual((last["n_generated"], last["stop"]), (len(tokens), "end"))
            whole = self.answer("-p", prompt, "--json").json
            self.assertEqual(set(whole), set(last))
            for key in ("text", "ids", "prompt_ids", "stop", "n_prompt", "backend"):
                self.assertEqual(whole[key], last[key])

    def test_pieces(self):
        *tokens, _ = self.lines("-p", "B")
        self.assertEqual([t["text"] for t in tokens], ["", "", "", "\U0001F600", "é", "日本", ""])
        *tokens, last = self.lines("-p", "D", "--stop", "STOP")
        self.assertEqual(("".join(t["text"] for t in tokens), last["stop"]), ("abc", "string"))

    def test_names(self):
        plain = self.answer("-p", "A", "-o", "jsonl", "-q").text.splitlines()[:-1]
        self.assertEqual(self.answer("-p", "A", "--json-lines", "-q").text.splitlines()[:-1], plain)
        self.assertEqual(set(self.answer("-p", "A", "-o", "json").json), set(self.answer("-p", "A", "--json").json))
        self.assertEqual(self.answer("-p", "A", "--json", "-o", "text").text, " Hello world!")  # the last one counts
        self.assertEqual(len(self.lines("-p", "C", "-n", "0")), 1)

    def test_logprobs(self):
        *tokens, last = self.lines("-p", "A", "--logprobs", "2")
        whole = self.answer("-p", "A", "--logprobs", "2", "--json").json["logprobs"]
        for t, w in zip(tokens, whole):
            self.assertEqual({k: t[k] for k in w}, w)
        self.assertNotIn("logprobs", last)

    def test_lines_come_at_once(self):
        p = self.start("run", self.table("long", "--context", "100000"), "-p", "C", "--temp", "0", "-c", "100000", "-q",
                       "-o", "jsonl", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.assertEqual(json.loads(p.stdout.readline())["text"], "x")
        self.assertIsNone(p.poll())
        p.kill()
        p.wait()
        p.stdout.close()


class Prompts(CliCase):
    def prompts(self, data, *args, **kw):
        return self.answer("--prompts", self.file("prompts", data.encode()), *args, **kw)

    def results(self, data, *args, **kw):
        r = self.prompts(data, "-o", "json", *args, **kw)
        return r.code, [json.loads(line) for line in r.text.splitlines()], r.err

    def test_text(self):
        r = self.prompts("A\nC\n\nD\r\nB", "-n", "5")
        self.assertEqual((r.code, r.text), (0, " Hello world!\nxyzxy\nabcSTOPde\n\U0001F600é\n"))
        self.assertIn("4 prompts, 0 failed", r.err)
        self.assertEqual(self.prompts("x\\x41\n").text, " Hello world!\n")
        self.assertEqual(self.prompts("x\\x41\n", "--no-escape", "-n", "0").text, "\n")
        self.assertEqual(self.answer("--prompts", "-", stdin=b"A\nD\n").text, " Hello world!\nabcSTOPde\n")
        self.assertEqual(self.prompts("A\nD\n", "--no-stream").text, " Hello world!\nabcSTOPde\n")
        self.assertEqual(self.prompts("A\nD\n", "-q").err, "")
        self.assertEqual(self.prompts("\ufeffA\n").text, " Hello world!\n")

    def test_each_is_as_alone(self):
        prompts = ["A", "B", "CC", "CCA", "D", "xyzD", "xyzB", "A"]
        for extra in ([], ["--deterministic"], ["--exact"], ["-ub", "2"]):
            code, results, _ = self.results("".join(p + "\n" for p in prompts), "-n", "9", *extra)
            self.assertEqual(code, 0)
            for i, (p, r) in enumerate(zip(prompts, results)):
                alone = self.answer("-p", p, "-n", "9", "--json", *extra).json
                for key in ("text", "ids", "prompt_ids", "stop", "n_prompt"):
                    self.assertEqual(r[key], alone[key], (p, key))
                self.assertEqual(r["prompt_id"], i + 1)

    def test_sampled_as_alone(self):
        args = ["-n", "20", "--temp", "1", "-s", "7"]
        _, results, _ = self.results("F\nxF\nF\n", *args)
        alone = self.quern("run", self.model, "-p", "F", "--json", *args).json
        self.assertEqual([results[0]["text"], results[2]["text"]], 2 * [alone["text"]])
        self.assertNotEqual(results[1]["text"], alone["text"])  # draws hang on the number of tokens before

    def test_common_beginnings_are_kept(self):
        _, results, _ = self.results("xyzA\nxyzD\nxyzD\nB\n", "-n", "3")
        self.assertEqual([r["n_reused"] for r in results], [0, 4, 4, 1])
        _, results, _ = self.results("xyzA\nxyzD\n", "-n", "3", "--deterministic")
        self.assertEqual([r["n_reused"] for r in results], [0, 0])

    def test_json_lines_of_prompts(self):
        data = "\n".join(json.dumps(o) for o in (
            {"prompt": "A", "id": "first"},
            {"prompt": "C", "predict": 2, "id": 17},
            {"prompt": "D", "stop": "cS"},
            {"prompt": "D", "stop": ["OP", "zz"]},
            {"prompt": "F", "temp": 0, "repeat_penalty": 1.05, "n_predict": 5, "logprobs": 1},
            {"prompt": "F", "temperature": 1, "seed": "18446744073709551615", "max_tokens": 9},
            {"prompt": "E", "ignore_eos": True, "predict": 2},
            {"prompt": "A<|eot|>", "special": False, "predict": 0},
            {"prompt": "\\n\n", "predict": 0}))
        code, r, err = self.results(data)
        self.assertEqual(code, 0, err)
        self.assertEqual([x["prompt_id"] for x in r], ["first", 17, 3, 4, 5, 6, 7, 8, 9])
        self.assertEqual([x["text"] for x in r[:5]], [" Hello world!", "xy", "ab", "abcST", "01000"])
        self.assertEqual((r[5]["seed"], len(r[5]["text"])), (str(2**64 - 1), 9))
        self.assertEqual(len(r[4]["logprobs"]), 5)
        self.assertNotIn("logprobs", r[5])
        self.assertEqual(r[6]["text"], "STOXSTOX")
        self.assertGreater(r[7]["n_prompt"], 3)
        self.assertEqual(r[8]["prompt_ids"], [1, table.ID["\\"], table.ID["n"], table.ID["\n"]])  # taken as it is
        alone = self.quern("run", self.model, "-p", "F", "--temp", "1", "-s", str(2**64 - 1), "-n", "9").text
        self.assertEqual(r[5]["text"], alone)

    def test_stream_of_several(self):
        r = self.prompts("A\nD\n", "-o", "jsonl")
        lines = [json.loads(line) for line in r.text.splitlines()]
        for i, text in ((1, " Hello world!"), (2, "abcSTOPde")):
            *tokens, last = [x for x in lines if x["prompt_id"] == i]
            self.assertEqual(("".join(t["text"] for t in tokens), last["text"]), (text, text))

    def test_one_that_fails_leaves_the_others(self):
        lines = ['{"prompt": "A"}', '{"prompt": "A"', '[1]', '{"prompt": 5}', '{"promt": "A"}', '{"prompt": "A", "temp": -1}',
                 '{"prompt": "A", "top_p": 2}', '{"prompt": "A", "predict": 1.5}', '{"prompt": "A", "stop": 1}',
                 '{"prompt": "A", "seed": -3}', '{"prompt": "A", "ignore_eos": 1}', '{"prompt": "A", "id": []}', '{}',
                 '{"prompt": "%s", "id": "long"}' % ("C" * 64), '{"prompt": "A", "repeat_penalty": 0}',
                 '{"prompt": "A", "prompt": "D"}', '{"prompt": "A", "stop": ""}', '{"prompt": "D", "id": "last"}']
        words = [None, "column", "object", "not a text", "did you mean \"prompt\"", "temp", "top_p", "whole number", "stop", "seed",
                 "true or false", "id", "no \"prompt\"", "65 tokens", "repeat penalty", "uplicate", "empty", None]
        code, r, err = self.results("\n".join(lines))
        self.assertEqual(code, 1)
        self.assertEqual(len(r), len(lines))
        for i, (result, word) in enumerate(zip(r, words)):
            if word is None:
                self.assertIn("text", result)
            else:
                self.assertIn(word, result["error"])
                self.assertIn("error: --prompts line %d: %s" % (i + 1, result["error"]), err)
        self.assertEqual((r[0]["text"], r[-1]["text"], r[13]["prompt_id"]), (" Hello world!", "abcSTOPde", "long"))
        self.assertIn("%d prompts, %d failed" % (len(lines), len(lines) - 2), err)
        r = self.prompts("A\n%s\nD\n" % ("C" * 64))
        self.assertEqual((r.code, r.text), (1, " Hello world!\n\nabcSTOPde\n"))

    def test_logits_that_fail(self):
        """A row of NaN after one token only: the prompts that do not come to it are answered."""
        nan = self.table("nan", "--nan")
        r = self.prompts("A\nD\n", "-o", "json", model=nan)
        self.assertEqual(r.code, 1)
        for line in r.text.splitlines():
            self.assertIn("NaN", json.loads(line)["error"])

    def test_refusals(self):
        a = self.file("a", b"A\n")
        for args in (["-p", "x"], ["-f", a], ["--check"]):
            self.refuse(["--prompts"], "run", self.model, "--prompts", a, *args, code=2)
        self.refuse(["no-such"], "run", self.model, "--prompts", "no-such")
        self.refuse(["no line"], "run", self.model, "--prompts", self.file("none", b"\n\n"))
        no_bos = self.table("no-bos", "--no-bos")
        r = self.prompts('{"prompt": ""}\n{"prompt": "A"}\n', "-o", "json", model=no_bos)
        self.assertEqual(r.code, 1)
        first, second = [json.loads(line) for line in r.text.splitlines()]
        self.assertIn("empty prompt", first["error"])
        self.assertEqual(second["text"], " Hello world!")

    def test_several_answers(self):
        args = ["run", self.model, "--temp", "1", "-n", "20"]
        alone = [self.quern(*args, "-p", "F", "-s", str(s)).text for s in (5, 6, 7)]
        self.assertEqual(len(set(alone)), 3)
        r = self.quern(*args, "-p", "F", "-s", "5", "--answers", "3")
        self.assertEqual((r.code, r.text.splitlines()), (0, alone))
        r = self.quern(*args, "--prompts", self.file("two", b"F\nD\n"), "-s", "5", "--answers", "2", "-o", "json")
        rows = [json.loads(line) for line in r.text.splitlines()]
        self.assertEqual([(x["prompt_id"], x["answer"], x["seed"]) for x in rows],
                         [(1, 1, "5"), (1, 2, "6"), (2, 1, "5"), (2, 2, "6")])
        self.assertEqual([x["text"] for x in rows[:2]], alone[:2])
        self.assertIn("4 answers, 0 failed", r.err)
        self.assertNotIn("answer", self.answer("-p", "A", "--json").json)
        self.refuse(["--answers"], "run", self.model, "-p", "A", "--answers", "0", code=2)

    def test_full_disk(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        with open("/dev/full", "wb") as full:
            for form in ("text", "json", "jsonl"):
                p = subprocess.run([QUERN, "run", self.model, "--temp", "0", "-o", form, "--prompts", self.file("p", b"A\nD\n")],
                                   stdout=full, stderr=subprocess.PIPE)
                self.assertEqual((p.returncode, p.stderr.count(b"quern: error:")), (1, 1))


class Progress(CliCase):
    def stderr_of(self, *args, both=False):
        """What a terminal at stderr (and, where `both`, at stdout) is sent."""
        code, shown, _ = at_terminal([QUERN] + list(args), stdout=TERMINAL if both else subprocess.DEVNULL, stderr=TERMINAL)
        self.assertEqual(code, 0, shown)
        return shown.decode()

    def long_prompt(self, n):
        long = self.table("long", "--context", "100000")
        return ["run", long, "-f", self.file("text", b"C" * n), "-n", "1", "-c", "0", "--exact", "-ub", "256"]

    def progress(self, n, both=False):
        """What is shown of a prompt that takes long enough for progress: n tokens, or more where this machine is quick."""
        while True:
            shown = self.stderr_of(*self.long_prompt(n), both=both)
            if "\x1b[Kprompt: " in shown or 2 * n >= 100000:
                return n, shown
            n *= 2

    def test_long_prompts(self):
        n, shown = self.progress(2000)
        self.assertRegex(shown, r"\r\x1b\[Kprompt: \d+ of %d tokens, \d+\.\d s" % (n + 1))
        last = shown.rindex("\x1b[Kprompt: ")
        self.assertIn("\r\x1b[Kquern: ", shown[last:])  # wiped before the next line
        n, shown = self.progress(n, both=True)
        self.assertIn("\r\x1b[Kx", shown[shown.rindex("\x1b[Kprompt: "):])  # and before the answer
        r = self.quern(*self.long_prompt(n))
        self.assertNotIn("\x1b", r.err)
        self.assertNotIn("\r", r.err)
        self.assertNotIn("\r", self.stderr_of(*self.long_prompt(n), "-q"))

    def test_chunks(self):
        err = self.answer("-p", "C" * 20, "-n", "1", "-ub", "8", "--debug", "chunks").err
        self.assertEqual(re.findall(r"\[chunks\] (\d+) tokens, (\d+) of", err), [("8", "8"), ("8", "16"), ("5", "21")])

    def test_tokens(self):
        err = self.answer("-p", "A", "--debug", "tokens").err
        self.assertEqual(re.findall(r"\[tokens\] (\d+): (\d+) '(.*)' [0-9.]+ ms", err),
                         [("0", str(table.ID["▁Hello"]), " Hello"), ("1", str(table.ID["▁world"]), " world"),
                          ("2", str(table.ID["!"]), "!"), ("3", "2", "</s>")])


if __name__ == "__main__":
    main()
