#!/usr/bin/env python3
"""The lookup-table model (make_table_model.py) against everything between logits and a terminal: table_exact.py QUERN
[unittest arguments]. Draws are not only counted: each one is computed again here, from the logits and the generator that
runtime/engine/sampler.h documents (Philox4x32-10, keyed by seed and the number of tokens before)."""
import array
import collections
import json
import math
import os
import pty
import re
import signal
import subprocess

import cli_case
from cli_case import HANG, TERMINAL, CliCase, read, table

M32 = 0xffffffff


def philox(counter, key):
    c, (k0, k1) = list(counter), key
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k0, b & M32, (a >> 32) ^ c[3] ^ k1, a & M32]
        k0, k1 = (k0 + 0x9E3779B9) & M32, (k1 + 0xBB67AE85) & M32
    return c


def uniform(seed, n):
    r = philox((n & M32, n >> 32, 0, 0), (seed & M32, seed >> 32))
    return ((r[0] << 32 | r[1]) >> 11) * 2.0 ** -53


def f32(x):
    return array.array("f", [x])[0]


def sample(logits, history, seed, temp=0.8, top_k=40, top_p=0.95, min_p=0.05, repeat_penalty=1.0, repeat_last_n=64):
    """The id that docs/cli.md's rules choose, and the distance of the draw from the next candidate's share."""
    values = list(logits)
    window = history if repeat_last_n < 0 else history[max(0, len(history) - repeat_last_n):]
    if repeat_penalty != 1 and repeat_last_n != 0:
        for i in set(window):
            values[i] = f32(values[i] / f32(repeat_penalty) if values[i] > 0 else values[i] * f32(repeat_penalty))
    order = sorted((i for i in range(len(values)) if values[i] > -math.inf), key=lambda i: (-values[i], i))
    if temp == 0:
        return order[0], 1.0
    best = values[order[0]]
    if top_k:
        order = order[:top_k]
    if top_p < 1:
        goal = f32(top_p) * sum(math.exp(values[i] - best) for i in order)
        total = 0.0
        for n, i in enumerate(order):
            total += math.exp(values[i] - best)
            if total >= goal:
                order = order[:n + 1]
                break
    if min_p > 0:
        order = [i for n, i in enumerate(order) if n == 0 or math.exp(values[i] - best) >= f32(min_p)]
    weights = [math.exp((values[i] - best) / f32(temp)) for i in order]
    goal, total, distance = uniform(seed, len(history)) * sum(weights), 0.0, math.inf
    chosen = order[-1]
    for i, w in zip(order, weights):
        total += w
        distance = min(distance, abs(total - goal) / sum(weights))
        if total > goal and chosen == order[-1]:
            chosen = i
            break
    return chosen, distance


class Exact(CliCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.long = cls.table("long", "--context", "100000")
        n = len(table.TOKENS)
        ids = cls.file("all-ids", array.array("i", range(n)).tobytes())
        out = subprocess.run([cli_case.QUERN, "logits", cls.long, "--tokens", ids, "--exact", "-q"], stdout=subprocess.PIPE,
                             check=True).stdout
        rows = array.array("f")
        rows.frombytes(out)
        cls.rows = [rows[n * i:n * (i + 1)] for i in range(n)]  # by last token

    def follow(self, prompt, seed, n, options, **rules):
        """Runs, and computes every choice again."""
        r = self.quern("run", self.long, "-p", prompt, "--json", "-q", "--exact", "-n", str(n), "-s", str(seed), *options)
        self.assertEqual(r.code, 0, r.err)
        history = list(r.json["prompt_ids"])
        for step, got in enumerate(r.json["ids"]):
            want, distance = sample(self.rows[history[-1]], history, seed, **rules)
            if distance > 1e-9:  # nearer to a border than that, the last bits decide
                self.assertEqual(got, want, (options, seed, step, distance))
            history.append(got)
        return r.json

    def test_philox_of_the_paper(self):
        """Known answers published with the generator."""
        self.assertEqual(philox((0, 0, 0, 0), (0, 0)), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8])
        self.assertEqual(philox((0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344), (0xa4093822, 0x299f31d0)),
                         [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1])

    def test_every_draw(self):
        cases = [([], {}), (["--temp", "1"], {"temp": 1}), (["--temp", "0.3"], {"temp": 0.3}), (["--temp", "3"], {"temp": 3}),
                 (["--top-k", "1"], {"top_k": 1}), (["--top-k", "2"], {"top_k": 2}), (["--top-k", "3", "--temp", "2"], {"top_k": 3, "temp": 2}),
                 (["--top-k", "0"], {"top_k": 0}), (["--top-p", "0.5"], {"top_p": 0.5}), (["--top-p", "0.76"], {"top_p": 0.76}),
                 (["--top-p", "1", "--min-p", "0", "--top-k", "0", "--temp", "5"], {"top_p": 1, "min_p": 0, "top_k": 0, "temp": 5}),
                 (["--min-p", "0.3", "--temp", "4"], {"min_p": 0.3, "temp": 4}), (["--min-p", "1"], {"min_p": 1}),
                 (["--top-p", "0"], {"top_p": 0}),
                 (["--repeat-penalty", "1.05", "--repeat-last-n", "3"], {"repeat_penalty": 1.05, "repeat_last_n": 3}),
                 (["--repeat-penalty", "1.3", "--repeat-last-n", "-1", "--temp", "2"],
                  {"repeat_penalty": 1.3, "repeat_last_n": -1, "temp": 2}),
                 (["--repeat-penalty", "0.9", "--temp", "1"], {"repeat_penalty": 0.9, "temp": 1}),
                 (["--repeat-penalty", "2", "--repeat-last-n", "0"], {}),
                 (["--repeat-penalty", "1.1", "--top-k", "50", "--top-p", "0.9", "--min-p", "0.01", "--temp", "1.5"],
                  {"repeat_penalty": 1.1, "top_k": 50, "top_p": 0.9, "min_p": 0.01, "temp": 1.5})]
        for options, rules in cases:
            for seed in (0, 42, 2 ** 32 + 7, 2 ** 64 - 1):
                self.follow("F", seed, 40, options, **rules)

    def test_frequencies(self):
        """After each digit 0 to 3 have 1/2, 1/4, 1/8, 1/8 (nearly); temperature 1/2 squares them."""
        logits = [table.CHAINS["F"][d] for d in "0123"]
        for temp in (1, 0.5, 2):
            weights = [math.exp(x / temp) for x in logits]
            j = self.follow("F", 7, 1500, ["--temp", str(temp), "--top-p", "1", "--min-p", "0", "--top-k", "4", "-c", "2048"],
                            temp=temp, top_p=1, min_p=0, top_k=4)
            counts = collections.Counter(j["text"])
            self.assertEqual(sum(counts.values()), 1500)
            chi2 = sum((counts[d] - 1500 * w / sum(weights)) ** 2 / (1500 * w / sum(weights)) for d, w in zip("0123", weights))
            self.assertLess(chi2, 16.3)  # 3 degrees of freedom: one in a thousand, and the draws are fixed

    def test_greedy(self):
        for seed in ("1", "2", "-1"):
            self.expect("0" * 20, "-p", "F", "-n", "20", "-s", seed)
        j = self.follow("C", 3, 30, ["--temp", "0"], temp=0)
        self.assertEqual(j["text"], "xyz" * 10)
        # a row of zeros: all tokens are equal, the lowest id wins
        self.assertEqual(self.answer("-p", "K", "-n", "1", "--json").json["ids"], [0])

    def test_ignore_eos(self):
        j = self.answer("-p", "E", "--ignore-eos", "-n", "4", "--json").json
        self.assertEqual((j["text"], j["stop"]), ("STOX" * 4, "length"))
        for seed in range(20):
            j = self.quern("run", self.model, "-p", "E", "--ignore-eos", "-n", "8", "--json", "-s", str(seed), "--temp", "9", "--top-k",
                           "0", "--top-p", "1", "--min-p", "0").json
            self.assertFalse({2, 3} & set(j["ids"]))

    def test_predict_and_context(self):
        for n, text, stop in ((0, "", "length"), (1, "x", "length"), (4, "xyzx", "length")):
            j = self.answer("-p", "C", "-n", str(n), "--json").json
            self.assertEqual((j["text"], j["stop"], j["n_generated"]), (text, stop, n))
        for n in ("-1", "1000000"):
            for context in (3, 8, 64):
                j = self.answer("-p", "C", "-n", n, "-c", str(context), "--json").json
                self.assertEqual((j["n_prompt"], j["n_generated"], j["stop"]), (2, context - 2, "length"))
        j = self.answer("-p", "C" * 63, "--json").json  # fills the context of 64
        self.assertEqual((j["n_prompt"], j["n_generated"], j["stop"], j["text"]), (64, 0, "length", ""))
        self.refuse(["65 tokens", "64"], "run", self.model, "-p", "C" * 64, "--json")
        j = self.answer("-p", "A", "-n", "4", "--json").json
        self.assertEqual((j["stop"], j["n_generated"]), ("end", 4))  # the end token is counted, and wins over the length
        self.assertEqual(self.answer("-p", "A", "-n", "3", "--json").json["stop"], "length")

    STOPS = (("D", ["STOP"], "abc", "string"), ("D", ["STOPd"], "abc", "string"), ("D", ["abcSTOPde"], "", "string"),
             ("D", ["STOY"], "abcSTOPde", "end"), ("D", ["e"], "abcSTOPd", "string"), ("D", ["a"], "", "string"),
             ("D", ["STOPdeX"], "abcSTOPde", "end"), ("D", ["zz", "cS"], "ab", "string"), ("D", ["TOP", "STO"], "abc", "string"),
             ("A", ["world", "Hello"], " ", "string"), ("A", [" Hello world!"], "", "string"), ("B", ["日"], table.EMOJI.decode() + "é", "string"),
             ("B", ["\U0001F601"], table.EMOJI.decode() + "é日本", "end"), ("H", ["ere"], "th", "string"),
             ("C", ["zxyzxyz!"], "xyz" * 20 + "xy", "length"))

    def ways(self, prompt, *args):
        """The answer's bytes: to a pipe, a file and a terminal, streamed and not, and as JSON."""
        out = {}
        for stream in ([], ["--no-stream"]):
            r = self.answer("-p", prompt, "-q", *args, *stream)
            self.assertEqual(r.code, 0, r.err)
            out["pipe", bool(stream)] = r.out
            path = self.path("out")
            with open(path, "wb") as f:
                self.assertEqual(self.answer("-p", prompt, "-q", *args, *stream, stdout=f).code, 0)
            out["file", bool(stream)] = read(path)
            out["terminal", bool(stream)] = self.terminal("-p", prompt, *args, *stream, stdin=TERMINAL)
        j = self.answer("-p", prompt, *args, "--json").json
        out["json"] = j["text"].encode()
        lines = [json.loads(x) for x in self.answer("-p", prompt, *args, "-o", "jsonl").text.splitlines()]
        out["json lines"] = "".join(x["text"] for x in lines[:-1]).encode()
        self.assertEqual([x["id"] for x in lines[:-1]], j["ids"])
        self.assertEqual((lines[-1]["text"], lines[-1]["stop"]), (j["text"], j["stop"]))
        return out, j

    def test_stop_strings_everywhere(self):
        for prompt, stops, text, reason in self.STOPS:
            out, j = self.ways(prompt, *[x for s in stops for x in ("--stop", s)])
            self.assertEqual((j["text"], j["stop"]), (text, reason), (prompt, stops))
            for way, data in out.items():
                want = text.encode() + (b"\n" if way[0] == "terminal" and text else b"")
                self.assertEqual(data, want, (prompt, stops, way))

    def test_streams_everywhere(self):
        for prompt, text in (("A", " Hello world!"), ("B", table.EMOJI.decode() + "é日本"), ("G", "\ufffd"), ("I", "\ufffdthere"),
                             ("H", "there"), ("E", ""), ("J", "\0there"), ("D", "abcSTOPde")):
            out, j = self.ways(prompt)
            for way, data in out.items():
                want = text.encode() + (b"\n" if way[0] == "terminal" and text else b"")
                self.assertEqual(data, want, (prompt, way))
            for n in range(len(j["ids"]) + 1):  # cut after every token: valid, and a beginning of the whole up to what is cut off
                part = self.answer("-p", prompt, "-n", str(n)).out.decode()
                self.assertTrue(text.startswith(part.rstrip("\ufffd")), (prompt, n, part))

    def test_what_is_certain_comes_at_once(self):
        """A token's text is written before the next one is made, to a pipe, a file and a terminal."""
        self.endless(lambda: os.pipe())
        self.endless(lambda: pty.openpty())
        path = self.path("growing")
        with open(path, "wb") as f:  # stderr tells of each token, and waits where nobody reads it
            p = self.start("run", self.long, "-p", "C", "--temp", "0", "-c", "100000", "--debug", "tokens", stdin=subprocess.DEVNULL,
                           stdout=f, stderr=subprocess.PIPE)
            for line in p.stderr:
                told = re.match(rb"quern: \[tokens\] (\d+): ", line)
                if told is not None and int(told[1]) < 300:
                    self.assertGreaterEqual(os.path.getsize(path), int(told[1]))  # all but the one it tells of, at least
                elif told is not None:
                    break
            self.assertIsNone(p.poll())
            p.send_signal(signal.SIGINT)
            p.communicate(timeout=HANG)
        self.assertEqual(p.returncode, 130)

    def endless(self, ends):
        reader, writer = ends()
        p = self.start("run", self.long, "-p", "C", "--temp", "0", "-c", "100000", "-q", stdin=subprocess.DEVNULL, stdout=writer)
        os.close(writer)
        first = os.read(reader, 64)  # what a pipe and a terminal hold beyond is far from the whole answer
        self.assertIsNone(p.poll())
        p.send_signal(signal.SIGINT)
        data = first
        while True:
            try:
                part = os.read(reader, 65536)
            except OSError:
                break
            if not part:
                break
            data += part
        os.close(reader)
        self.assertEqual(p.wait(timeout=HANG), 130)
        data = data.replace(b"\r\n", b"")
        self.assertEqual(data, (b"xyz" * (len(data) // 3 + 1))[:len(data)])  # flushed whole, nothing twice


if __name__ == "__main__":
    cli_case.main()
