#!/usr/bin/env python3
"""Bug cases B17 to B20 and B22 of docs/bug-cases.md: bugs_numerics.py QUERN [unittest arguments]. The golden models
(tests/data/README.md) and goldens/long.logits, another engine's logits at positions 0, 1, 7, 100 and 127; each rule is
also broken on purpose in a copy of the config, which must show."""
import array
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys

import cli_case
from cli_case import DATA, SOURCE, CliCase, options, read, table

POSITIONS = (0, 1, 7, 100, 127)
LONG = ("llama", "llama-ropefreqs", "llama-yarn", "llama-longrope", "qwen2", "qwen3", "qwen2-yarn", "gemma2", "gemma3",
        "phi3", "phi3-longrope-long", "phi3-longrope-short", "hunyuan-dense")
GOLDENS = os.path.join(DATA, "goldens")
# A whole config for the golden `llama`, to change one leaf at a time.
LLAMA = "architecture: llama\nnorm: {eps: {key: attention.layer_norm_rms_epsilon}}\nrope: {style: interleaved}\n"


def floats(data):
    a = array.array("f")
    a.frombytes(data)
    return a


def nmse(want, got):
    return sum((a - b) ** 2 for a, b in zip(want, got)) / sum(a * a for a in want)


def long_ids(n_vocab, n=128):
    x, out = 1, []
    for _ in range(n):
        x = (1103515245 * x + 12345) % (1 << 31)
        out.append((x >> 16) % n_vocab)
    return out


class Numerics(CliCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        maker = os.path.join(SOURCE, "tests", "tools", "make_golden_models.py")
        subprocess.run([sys.executable, maker, os.path.join(GOLDENS, "archs", "spec.txt"), cls.dir] + list(LONG), check=True,
                       stdout=subprocess.DEVNULL)
        cls.manifest = {r["name"]: r for r in json.loads(read(os.path.join(GOLDENS, "archs", "manifest.json")))}

    def logits(self, name, ids, *extra):
        """[token][vocabulary]"""
        n = self.manifest[name]["n_vocab"]
        tokens = self.file("tokens", array.array("i", ids).tobytes())
        r = self.quern("logits", self.path(name + ".gguf"), "--tokens", tokens, "-q", "--backend", "cpu", *extra)
        self.assertEqual(r.code, 0, r.err)
        self.assertEqual(len(r.out), 4 * n * len(ids))
        return [floats(r.out[4 * n * i:4 * n * (i + 1)]) for i in range(len(ids))]

    def reference(self, name):
        """[position of POSITIONS][vocabulary]"""
        data, at = read(os.path.join(GOLDENS, "long.logits")), 0
        for other in LONG:
            n = 4 * self.manifest[other]["n_vocab"]
            if other == name:
                return [floats(data[at + i * n:at + (i + 1) * n]) for i in range(len(POSITIONS))]
            at += n * len(POSITIONS)

    def errors(self, name, *extra):
        """NMSE at each of POSITIONS"""
        got = self.logits(name, long_ids(self.manifest[name]["n_vocab"]), "-c", "256", *extra)
        return [nmse(want, got[p]) for want, p in zip(self.reference(name), POSITIONS)]

    def holds(self, *names):
        for name in names:
            for extra in ([], ["--exact"], ["--exact", "-ub", "7"]):
                for e in self.errors(name, *extra):
                    self.assertLess(e, self.manifest[name]["tol"]["logits"], (name, extra))

    def changed(self, name, pattern, replacement):
        """--model-configs with the shipped configs but for one change in the one that serves `name`."""
        folder = self.path("configs")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(os.path.join(SOURCE, "model_configs"), folder)
        arch = self.manifest[name]["arch"]
        for file in os.listdir(folder):
            path = os.path.join(folder, file)
            text = read(path).decode() if file.endswith(".yaml") else ""
            if re.search(r"^architecture:.*\b%s\b" % re.escape(arch), text, re.M):
                new, n = re.subn(pattern, replacement, text)
                self.assertGreater(n, 0, (file, pattern))
                with open(path, "w") as f:
                    f.write(new)
                return ["--model-configs", folder]
        self.fail("no config for " + arch)

    def own(self, more=""):
        """--model-configs with one config for the golden `llama`."""
        folder = self.path("own")
        os.makedirs(folder, exist_ok=True)
        self.file("own/llama.yaml", (LLAMA + more).encode())
        return ["--model-configs", folder]

    # B17: pairing of RoPE, order of QK-norm
    def test_b17_pairing(self):
        self.holds("llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3")
        for name, old, new in (("llama", "interleaved", "neox"), ("qwen2", "neox", "interleaved"), ("qwen3", "neox", "interleaved"),
                               ("gemma2", "neox", "interleaved"), ("phi3", "neox", "interleaved")):
            wrong = self.errors(name, "--exact", *self.changed(name, r"(style:\s*)%s" % old, r"\g<1>%s" % new))
            self.assertLess(wrong[0], self.manifest[name]["tol"]["logits"], name)  # invisible at position 0
            for e in wrong[1:]:
                self.assertGreater(e, 1e-4, (name, wrong))

    def test_b17_order_of_qk_norm(self):
        self.holds("qwen3", "gemma3", "hunyuan-dense")
        for name, old, new in (("qwen3", "before_rope", "after_rope"), ("hunyuan-dense", "after_rope", "before_rope")):
            wrong = self.errors(name, "--exact", *self.changed(name, old, new))
            self.assertGreater(max(wrong[1:]), 20 * self.manifest[name]["tol"]["logits"], (name, wrong))
        off = self.errors("qwen3", "--exact", *self.changed("qwen3", r"(qk_norm:\s*\{[^}]*)kind: rms", r"\g<1>kind: none"))
        self.assertGreater(max(off), 1e-2)

    def test_b17_pairing_is_asked_for(self):
        folder = self.path("no-style")
        os.makedirs(folder)
        self.file("no-style/llama.yaml", LLAMA.replace("{style: interleaved}", "{base: 10000}").encode())
        self.refuse(["rope.style"], "run", self.model, "-p", "A", "--model-configs", folder)

    # B18: stretched positions
    def test_b18_factors(self):
        self.holds("llama-ropefreqs", "llama-yarn", "llama-longrope", "qwen2-yarn", "phi3-longrope-long", "phi3-longrope-short")
        for name, how in (("llama-ropefreqs", "factors: none"), ("llama-yarn", "scaling: none"),
                          ("llama-yarn", "attn_factor: {key: rope.scaling.attn_factor, default: 1, times: 1.2}"),
                          ("llama-yarn", "beta_fast: 4"), ("llama-longrope", "factors: none")):
            wrong = self.errors(name, "--exact", *self.with_rope(how))
            self.assertGreater(max(wrong[1:]), 1e-4, (name, how, wrong))

    def with_rope(self, leaf):
        folder = self.path("rope")
        os.makedirs(folder, exist_ok=True)
        self.file("rope/llama.yaml", LLAMA.replace("style: interleaved", "style: interleaved, " + leaf).encode())
        return ["--model-configs", folder]

    def test_b18_long_and_short_factors(self):
        """The run's context decides, once: cached keys are never of another rotation than new ones."""
        name = "phi3-longrope-long"
        text = self.quern("info", self.path(name + ".gguf")).text
        original = int(re.search(r"rope\.scaling\.original_context_length\s+\S+\s+(\d+)", text).group(1))
        ids = long_ids(self.manifest[name]["n_vocab"], min(original, 16))
        short = self.logits(name, ids, "-c", str(original), "--exact")
        long = self.logits(name, ids, "-c", str(original + 1), "--exact")
        more = self.logits(name, ids, "-c", str(original + 100), "--exact")
        self.assertEqual(long, more)
        self.assertGreater(nmse(short[-1], long[-1]), 1e-4)

    # B19: scale and soft-caps
    def test_b19_soft_caps_and_scale(self):
        self.holds("gemma2")
        ids = long_ids(96, 40)
        base = self.logits("llama", ids, "--exact", *self.own())
        for same in ("attention: {softcap: 0}\noutput: {softcap: 0}\n", "attention: {scale: {formula: rsqrt_head_dim}}\n"):
            self.assertEqual(self.logits("llama", ids, "--exact", *self.own(same)), base)  # 0 is off, not all zero
        for cap in (0.5, 3, 30):
            capped = self.logits("llama", ids, "--exact", *self.own("output: {softcap: %g}\n" % cap))
            for a, b in zip(base, capped):
                for x, y in zip(a, b):
                    self.assertAlmostEqual(y, cap * math.tanh(x / cap), delta=1e-5 * cap)
        loose = self.logits("llama", ids, "--exact", *self.own("attention: {softcap: 1e4}\n"))
        self.assertLess(max(nmse(a, b) for a, b in zip(base, loose)), 1e-6)
        for tight in ("attention: {softcap: 0.1}\n", "attention: {scale: 3}\n"):
            changed = self.logits("llama", ids, "--exact", *self.own(tight))
            self.assertLess(nmse(base[0], changed[0]), 1e-9)  # one key: its weight is 1 whatever the score
            self.assertGreater(nmse(base[-1], changed[-1]), 1e-6)
        wrong = self.errors("gemma2", "--exact", *self.changed("gemma2", r"(softcap:\s*)(\{[^}]*\}|[0-9.]+)", r"\g<1>0"))
        self.assertGreater(max(wrong), 1e-3)

    # B20: values beyond the range of f16, NaN
    def test_b20_large_activations(self):
        """A residual stream of a million times the usual size (f16 ends at 65504) stays finite on the CPU; that the GPU's f16
        operands are scaled is tested under emulation."""
        ids = long_ids(96, 40)
        for scale in ("1e6", "1e9"):
            for extra in ([], ["--exact"]):
                for row in self.logits("llama", ids, *extra, *self.own("embedding: {scale: %s}\n" % scale)):
                    self.assertTrue(all(math.isfinite(x) for x in row))
        for extra in ([], ["--exact"]):
            large = self.logits("llama", ids, *extra, *self.own("residual: {scale: 1e6}\n"))
            self.assertTrue(all(math.isfinite(x) for row in large for x in row))

    def spoilt(self, name, value):
        kv, ts = table.metadata(options()), table.tensors(options())
        out = [(t[0], t[1], struct.pack("<f", value) * (len(t[2]) // 4)) if t[0] == name else t for t in ts]
        return self.file("spoilt.gguf", table.pack(kv, out))

    def test_b20_not_a_number(self):
        """It stops every command with an error; --check says where it came from."""
        nan, inf = float("nan"), float("inf")
        text = self.file("some-text", b"xyz" * 200)
        for tensor, value, step in (("token_embd.weight", nan, "embed"), ("blk.0.attn_norm.weight", nan, "blk.0.attn_norm"),
                                    ("blk.0.attn_q.weight", nan, "blk.0.q"), ("blk.0.ffn_down.weight", inf, "blk.0.ffn_down"),
                                    ("output_norm.weight", 1e38, "output"), ("output.weight", -inf, "output")):
            path = self.spoilt(tensor, value)
            for command in (["run", path, "-p", "A"], ["run", path, "-p", "A", "--temp", "0", "--exact"],
                            ["bench", path, "-p", "4", "-n", "2", "-r", "1"], ["perplexity", path, "-f", text, "-c", "32"],
                            ["logits", path, "--tokens", self.file("ids", array.array("i", [1, 261]).tobytes())]):
                r = self.quern(*command)
                self.assertEqual(r.code, 1, (command, r.err))
                self.assertRegex(r.err, r"quern: error: .*(NaN|inf)")
                self.assertNotIn(b"nan", r.out.lower())
            r = self.quern("run", path, "-p", "A", "--check", "--backend", "cpu", "-n", "1")
            self.assertEqual(r.code, 1)
            self.assertRegex(r.err, r"--check: step %s\S* \(" % re.escape(step))

    # B21: small caches
    def test_b21_types_of_the_cache(self):
        """f16 by default, q8_0 for keys and values apart; nothing smaller."""
        for option in ("-ctk", "-ctv", "--cache-type-k", "--cache-type-v"):
            for kind in ("q4_0", "q4_1", "iq4_nl", "q5_0", "f8"):
                self.refuse(["f16", "q8_0"], "run", self.model, "-p", "A", option, kind, code=2)
        for types in (["-ctk", "q8_0"], ["-ctv", "q8_0"], ["-ctk", "q8_0", "-ctv", "q8_0"]):
            self.expect(" Hello world!", "-p", "A", "--backend", "cpu", *types)
            self.refuse(["q8_0", "heads of 16", "32"], "logits", self.path("qwen2.gguf"), "--backend", "cpu", "--tokens",
                        self.file("one", b"\1\0\0\0"), *types)
            ids = long_ids(self.manifest["qwen3"]["n_vocab"], 40)
            plain, small = self.logits("qwen3", ids), self.logits("qwen3", ids, *types)
            self.assertNotEqual(plain, small)
            self.assertLess(max(nmse(a, b) for a, b in zip(plain, small)), 1e-2)

    # B22: chunks, threads and runs
    def test_b22_chunks_and_runs(self):
        for name in ("llama", "qwen3", "gemma3", "phi3"):
            ids = long_ids(self.manifest[name]["n_vocab"])
            exact = self.logits(name, ids, "-c", "256", "--exact")
            for extra in (["-ub", "1"], ["-ub", "7"], ["-ub", "64"], ["-ub", "512"], ["-t", "1"], ["-t", "3"],
                          ["--mode", "per-token"], ["--mode", "decode"]):
                self.assertEqual(self.logits(name, ids, "-c", "256", "--exact", *extra), exact, (name, extra))
            fast = self.logits(name, ids, "-c", "256")
            for extra in ([], ["-t", "1"], ["-t", "3"]):
                self.assertEqual(self.logits(name, ids, "-c", "256", *extra), fast, (name, extra))
            for extra in (["-ub", "1"], ["-ub", "7"], ["-ub", "64"]):
                other = self.logits(name, ids, "-c", "256", *extra)
                self.assertLess(max(nmse(a, b) for a, b in zip(fast, other)), 1e-4, (name, extra))
        self.assertRegex(read(os.path.join(SOURCE, "docs", "cli.md")).decode(), r"bit for bit for any `-ub`")


if __name__ == "__main__":
    cli_case.main()
