#!/usr/bin/env python3
"""Bug cases B30 to B35 of docs/bug-cases.md, as a user meets them: bugs_cli.py QUERN [unittest arguments]."""
import array
import json
import os
import pty
import re
import signal
import subprocess

import cli_case
from cli_case import DATA, HANG, SOURCE, CliCase, options, read, table
from terminal import Terminal

GPT2 = os.path.join(DATA, "tokenizers", "ggml-vocab-gpt-2.gguf")


class Cli(CliCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.long = cls.table("long", "--context", "100000")

    # B30: the end of the context
    def test_b30_long_prompts(self):
        for n, c in ((64, 64), (1000, 64), (8, 8), (100, 8)):
            line = self.refuse(["%d tokens" % (n + 1), str(c)], "run", self.model, "-p", "C" * n, "-c", str(c))
            self.assertRegex(line, "prompt")
            self.refuse([], "run", self.model, "-f", self.file("p", b"C" * n), "-c", str(c), "--json")
        self.expect("", "-p", "C" * 63)  # exactly full: nothing is cut, nothing can follow

    def test_b30_answers_end_at_the_limit(self):
        for n in ("-1", "100000"):
            r = self.expect("xyz" * 20 + "xy", "-p", "C", "-n", n)
            self.assertIn("stop: length", r.err)
            self.assertEqual(self.answer("-p", "C", "-n", n, "--json").json["stop"], "length")
        self.expect("", "-p", "C", "-n", "0")
        self.refuse(["-n"], "run", self.model, "-p", "C", "-n", "-2", code=2)
        self.refuse(["not supported"], "run", self.model, "-p", "C", "--context-shift", code=2)

    # B31: seeds and sampling values
    def test_b31_seeds(self):
        args = ["run", self.model, "-p", "F", "--temp", "1", "-n", "50"]
        for extra in ([], ["-s", "-1"]):
            first = self.quern(*args, *extra)
            seed = re.search(r"seed (\d+)", first.err).group(1)
            self.assertEqual(self.quern(*args, "--seed", seed).text, first.text)
            j = self.quern(*args, *extra, "--json").json
            self.assertEqual(self.quern(*args, "-s", j["seed"]).text, j["text"])
        zero = self.quern(*args, "-s", "0")
        self.assertIn("seed 0", zero.err)  # 0 is a seed like others
        self.assertEqual(self.quern(*args, "-s", "0").text, zero.text)
        texts = {self.quern(*args).text for _ in range(4)}
        self.assertGreater(len(texts), 1)

    def test_b31_values(self):
        greedy = self.expect("0" * 9, "-p", "F", "-n", "9")
        self.assertNotIn("seed", greedy.err)
        off = ["--top-k", "0", "--top-p", "1", "--min-p", "0", "--repeat-penalty", "1", "--temp", "1", "-s", "3", "-n", "40"]
        plain = self.quern("run", self.model, "-p", "F", *off).text
        self.assertEqual(self.quern("run", self.model, "-p", "F", *off, "--top-k", "100000").text, plain)
        for bad in (["--temp", "-0.1"], ["--temp", "nan"], ["--temp", "inf"], ["--top-k", "-1"], ["--top-k", "1.5"], ["--top-p", "1.01"],
                    ["--top-p", "-0.1"], ["--min-p", "2"], ["--min-p", "nan"], ["-s", "x"], ["-s", "-2"], ["-s", "1e3"],
                    ["-s", "18446744073709551616"], ["--repeat-last-n", "-2"], ["--temp", ""], ["--temp", "1,5"]):
            self.refuse([], "run", self.model, "-p", "F", *bad, code=2)
        for bad in ("0", "-1", "nan", "inf"):
            self.refuse(["--repeat-penalty"], "run", self.model, "-p", "F", "--repeat-penalty", bad, code=2)

    # B32: end tokens
    def test_b32_a_list_of_end_tokens(self):
        self.assertIn("stop: end (token 2)", self.expect(" Hello world!", "-p", "A").err)
        self.assertIn("stop: end (token 3)", self.expect("", "-p", "E").err)
        self.assertIn("end tokens: 2 '</s>' 3 '<|eot|>'", self.expect("", "-p", "E", "-v").err)
        self.expect("xy", "-p", "C", "--end-token", str(table.ID["z"]))
        self.expect("x", "-p", "C", "--end-token", "%d,%d" % (table.ID["z"], table.ID["y"]))
        self.expect("STOX" * 3, "-p", "E", "--ignore-eos", "-n", "3")
        self.refuse([], "run", self.model, "-p", "A", "--end-token", "999999")  # outside the vocabulary

    def test_b32_known_names(self):
        """A file that gives only eos: other families' names for the end of a turn are known too."""
        kv, ts = table.metadata(options()), table.tensors(options())
        for name in ("<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<|end|>"):
            renamed = [(k, t, [name if x == "<|eot|>" else x for x in v] if k == "tokenizer.ggml.tokens" else v)
                       for k, t, v in kv if k != "tokenizer.ggml.eot_token_id"]
            path = self.file("named.gguf", table.pack(renamed, ts))
            r = self.expect("", "-p", "E", "-v", model=path)
            self.assertIn("stop: end (token 3)", r.err)
            self.assertIn("3 '%s'" % name, r.err)

    # B33: scripts and Ctrl-C
    def test_b33_streams_of_scripts(self):
        with open("/dev/null", "rb") as null:
            self.expect(" Hello world!", "-p", "A", stdin=null)
        self.expect(" Hello world!", stdin=b"A")
        self.expect(" Hello world!", stdin=b"A\n")
        self.expect("abcSTOPde", "-p", "D", stdin=b"A")  # -p alone: stdin is left alone
        self.expect(" Hello world!", "-p", "D", "-f", "-", stdin=b"A")  # asked for, it stands behind -p
        self.expect(" Hello world!", "-p", "A", stdin=subprocess.DEVNULL, start_new_session=True)  # no terminal at all
        reader, writer = os.pipe()  # a stdin that never ends
        self.expect(" Hello world!", "-p", "A", stdin=reader)
        os.close(reader)
        os.close(writer)

    def test_b33_never_interactive(self):
        master, slave = pty.openpty()
        r = self.quern("run", self.model, stdin=slave)
        self.assertEqual((r.code, r.out), (2, b""))
        self.assertIn("no prompt", r.err)
        r = self.quern("run", self.model, "-p", "A", "--temp", "0", stdin=slave, stdout=slave)
        self.assertEqual(r.code, 0)
        for command in ([], ["run"], ["bench"], ["info"], ["tokenize"]):
            self.assertNotEqual(self.quern(*command, stdin=slave).code, 0)
        os.close(master)
        os.close(slave)

    def test_b33_closed_pipe(self):
        p = self.start("run", self.long, "-p", "C", "--temp", "0", "-c", "0", "-q", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE)
        self.assertEqual(len(p.stdout.read(5)), 5)
        p.stdout.close()
        err = p.stderr.read()
        p.stderr.close()
        self.assertIn(p.wait(timeout=HANG), (-signal.SIGPIPE, 1))  # it ends at once, like any filter
        self.assertNotIn(b"sanitizer", err.lower())

        def ignore():
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)

        p = self.start("run", self.long, "-p", "C", "--temp", "0", "-c", "0", "-q", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, preexec_fn=ignore, restore_signals=False)
        p.stdout.read(5)
        p.stdout.close()
        err = p.stderr.read().decode()
        p.stderr.close()
        self.assertEqual((p.wait(timeout=HANG), err), (1, "quern: error: cannot write the answer to stdout: Broken pipe\n"))

    def test_b33_full_disk(self):
        ids = self.file("ids", array.array("i", [1, 261]).tobytes())
        for command in (["run", self.model, "-p", "A"], ["run", self.model, "-p", "A", "--json"], ["run", self.model, "-p", "A", "--no-stream"],
                        ["run", self.model, "-p", "A", "-o", "jsonl"], ["info", self.model], ["plan", self.model], ["--help"],
                        ["run", "--help"], ["--version"], ["tokenize", self.model, "-p", "A"], ["detokenize", self.model, "261"],
                        ["bench", self.model, "-p", "4", "-n", "1", "-r", "1"], ["bench", self.model, "-p", "4", "-n", "1", "-r", "1", "-o", "json"],
                        ["logits", self.model, "--tokens", ids], ["draft", self.model], ["check", self.path("missing.yaml")],
                        ["doctor"], ["cache", "list", "--cache", self.dir]):
            with open("/dev/full", "wb") as full:
                r = self.quern(*command, stdout=full)
            self.assertEqual(r.code, 1, (command, r.err))
            self.assertEqual(r.err.count("quern: error: "), 1, (command, r.err))
        self.refuse(["No space left"], "logits", self.model, "--tokens", ids, "-o", "/dev/full")
        self.refuse(["No space left"], "draft", self.model, "-o", "/dev/full")

    def test_b33_closed_streams(self):
        """Numbers 0 to 2 are never given to a file that quern opens: what is printed must not land in it."""
        log = self.path("log")
        for closed in ((0,), (1,), (2,), (0, 1, 2)):
            def close(which=closed):
                for fd in which:
                    os.close(fd)

            r = self.quern("run", self.model, "-p", "A", "--temp", "0", "--log-file", log, preexec_fn_extra=close)
            self.assertEqual(r.code, 1 if 1 in closed else 0, (closed, r.err))
            self.assertNotIn(b"Hello", read(log))

    def quern(self, *args, preexec_fn_extra=None, **kw):
        if preexec_fn_extra is None:
            return super().quern(*args, **kw)
        p = subprocess.run([cli_case.QUERN] + list(args), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           preexec_fn=preexec_fn_extra, timeout=HANG)
        return cli_case.Result(p.returncode, p.stdout, p.stderr, 0)

    def test_b33_interrupt(self):
        for extra in ([], ["--json"], ["--no-stream"]):
            code, data = self.interrupted(*extra, model=self.long)
            self.assertEqual(code, 130, extra)
            if extra == ["--json"]:
                self.assertEqual(json.loads(data)["stop"], "abort")
                data = json.loads(data)["text"].encode()
            self.assertGreaterEqual(len(data), 3, extra)
            self.assertEqual(data, (b"xyz" * (len(data) // 3 + 1))[:len(data)])

    def test_b33_interrupt_by_the_terminal(self):
        """Ctrl-C typed at a terminal; its settings are as before."""
        with Terminal([cli_case.QUERN, "run", self.long, "-p", "C", "--temp", "0", "-c", "0", "-q"]) as t:
            t.wait_for("xyz" * 20)
            t.send("\x03")
            self.assertEqual(t.code(), 130)
            self.assertTrue(t.restored)

    # B34: prompt caches
    def test_b34_no_prompt_cache(self):
        self.refuse(["'--prompt-cache' is not supported"], "run", self.model, "-p", "A", "--prompt-cache", self.path("cache"), code=2)
        self.assertFalse(os.path.exists(self.path("cache")))

    def test_b34_a_common_beginning_in_one_run(self):
        """--prompts keeps what two prompts have in common; the answers are those of separate runs."""
        prompts = ["xyzxyzA", "xyzxyzD", "xyz", "xyzxyzA", "B"]
        path = self.file("prompts", "".join(json.dumps({"prompt": p}) + "\n" for p in prompts).encode())
        for extra in ([], ["--exact"], ["--deterministic"]):
            r = self.quern("run", self.model, "--temp", "0", "--prompts", path, "--json", "-n", "10", *extra)
            self.assertEqual(r.code, 0, r.err)
            together = [json.loads(x) for x in r.text.splitlines()]
            for p, j in zip(prompts, together):
                alone = self.answer("-p", p, "--json", "-n", "10", *extra).json
                self.assertEqual((j["text"], j["ids"], j["prompt_ids"]), (alone["text"], alone["ids"], alone["prompt_ids"]))
            if "--deterministic" not in extra:
                self.assertGreater(max(j["n_reused"] for j in together), 3)

    # B35: model configs
    def config(self, text):
        return self.file("c.yaml", text if isinstance(text, bytes) else text.encode())

    def test_b35_bad_configs(self):
        good = "architecture: llama\nnorm: {eps: 1e-6}\nrope: {style: interleaved}\n"
        self.assertEqual(self.quern("check", self.config(good)).code, 0)
        cases = [(good + "norm: {eps: 1e-5}\n", 4, ["norm", "line 2"]), (good + "attention: {q: a, q: b}\n", 4, ["q"]),
                 (good + "atention: {q: a}\n", 4, ["atention", "attention"]), (good + "attention: {qk_nrm: {kind: rms}}\n", 4, ["qk_norm"]),
                 (good + "ffn:\n\tkind: gated\n", 5, []), (good + "---\n" + good, 4, ["document"]),
                 (good + "a: &x [1]\n", 4, ["anchor"]), (good + "ffn: &x {kind: gated}\nattention: *x\n", 4, []),
                 (good + "ffn: {norm: no}\n", 4, []), (good + "ffn: {norm: off}\n", 4, []), (good + "ffn: {kind: [gated]}\n", 4, []),
                 (good + "ffn: [\n", 4, []), (good + "ffn: {n_ff: 1e99}\n", 4, []), (good + "ffn: {n_ff: -1}\n", 4, []),
                 (good + "? [a, b]\n: c\n", 4, []), (good + "ffn: !!str x\n", 4, []), (good + "<<: {a: b}\n", 4, []),
                 (good + "\"ff\\0n\": x\n", 4, []), (good + "ffn: {kind: \xff}\n", 4, [])]
        for text, line, words in cases:
            path = self.config(text)
            for command in (["check", path],):
                r = self.quern(*command)
                self.assertEqual(r.code, 1, text)
                message = r.out.decode(errors="replace") + r.err
                self.assertRegex(message, r"c\.yaml:(%d|%d|%d):\d+: " % (line - 1, line, line + 1), text)
                for w in words:
                    self.assertIn(w, message)

    def test_b35_bombs(self):
        bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
            "%s: &%s [%s]\n" % (c, c, ", ".join(["*" + p] * 9)) for p, c in zip("abcdefgh", "bcdefghi"))
        for data in (bomb.encode(), b"[" * 100000, b"a: " + b"{a: " * 100000, b"- " * 100000, b"# " + b"x" * 10000000,
                     b"architecture: llama\n" + b"k: v\n" * 2000000, b"\xff\xfe" + "architecture: llama\n".encode("utf-16-le"), b"\0" * 100,
                     b"a: \"" + b"x" * 5000000 + b"\"\n", b"%YAML 9.9\n---\na: b\n", b"", b"\n", b"null\n", b"- a\n", b"just text\n"):
            r = self.quern("check", self.config(data), memory=400 << 20)
            self.assertEqual(r.code, 1, (data[:20], r.err))
            self.assertRegex(r.out.decode(errors="replace") + r.err, r"c\.yaml")

    def test_b35_accepted_forms(self):
        good = "architecture: llama\nnorm: {eps: 1e-6}\nrope: {style: interleaved}\n"
        for text in (good.replace("\n", "\r\n"), "\ufeff" + good, "---\n" + good, "# comment\n" + good + "...\n", good.rstrip("\n")):
            r = self.quern("check", self.config(text))
            self.assertEqual(r.code, 0, (text, r.out, r.err))
        os.makedirs(self.path("configs"), exist_ok=True)
        self.file("configs/bad.yaml", (good + "misspelt: 1\n").encode())
        self.refuse(["bad.yaml:4:1"], "run", self.model, "-p", "A", "--model-configs", self.path("configs"))


if __name__ == "__main__":
    cli_case.main()
