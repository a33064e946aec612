#!/usr/bin/env python3
"""B18 of docs/bug-cases.md over thousands of positions: bugs_long.py QUERN [unittest arguments].

A needle lies near the beginning of a long text, and questions stand 4,000 and 16,000 positions behind it. The model is made
here: a question's query meets a needle's key in the slowest pair of RoPE and nowhere else, so that the answer, which only the
needle tells, comes out where that pair is stretched as the file says; as it is, it has turned away long before. Logits are
computed again here, in double precision, with the positions' cosines written out; another engine gives them, too (NMSE of 2e-8
and less, most of it from angles in single precision).
"""
import array
import math
import os
import random
import struct

import cli_case
from cli_case import SANITIZED, CliCase, table

N_EMBD, HEAD, HEADS, N_FF = 64, 64, 2, 32  # one head of keys and values
NEEDLES, FILLERS = 6, 40
FIRST_ANSWER = NEEDLES + 1  # token 0 asks, then come the needles, what they say, and fillers
FIRST_FILLER = FIRST_ANSWER + NEEDLES
N_VOCAB = FIRST_FILLER + FILLERS
IS_NEEDLE, ASKS, SAYS = 0, 1, 2  # places of an embedding; from SAYS on one a needle
PAIRS = (0, 3, 9, 17, 24, 31)  # of RoPE that have keys and queries; the last is the slowest
EPS = 1e-6
PLACE, QUESTIONS = 37, (4095, 16383)
BASE, STRETCH = 2352.0, 32.0  # the slowest pair makes 2.2 radians in 4,058 positions, 8.9 in 16,346


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def noise(rng, n_in, n_out, size):
    return [[f32(rng.uniform(-size, size)) for _ in range(n_in)] for _ in range(n_out)]


def weights(magnitude):
    """Matrices as lists of rows: seeded noise, and the needle's way through them. Its score is about 11 under this factor of cos
    and sin: most of the attention beside 16,000 scores around zero, and not all."""
    rng = random.Random(18)
    w = {"token_embd": noise(rng, N_EMBD, N_VOCAB, 1), "output": noise(rng, N_EMBD, N_VOCAB, 0.05),
         "attn_q": noise(rng, N_EMBD, HEADS * HEAD, 0.1), "attn_k": noise(rng, N_EMBD, HEAD, 0.1),
         "attn_v": noise(rng, N_EMBD, HEAD, 0.1), "attn_output": noise(rng, HEADS * HEAD, N_EMBD, 0.05),
         "ffn_gate": noise(rng, N_EMBD, N_FF, 0.1), "ffn_up": noise(rng, N_EMBD, N_FF, 0.1),
         "ffn_down": noise(rng, N_FF, N_EMBD, 0.1)}
    for t, row in enumerate(w["token_embd"]):
        row[:SAYS + NEEDLES] = [0.0] * (SAYS + NEEDLES)
        row[ASKS] = 4.0 if t == 0 else 0.0
        if 0 < t <= NEEDLES:
            row[IS_NEEDLE] = row[SAYS + t - 1] = 4.0
    used = {2 * p + k for p in PAIRS for k in (0, 1)}
    for name in ("attn_q", "attn_k"):
        for i, row in enumerate(w[name]):
            if i % HEAD not in used:
                row[:] = [0.0] * N_EMBD
    slow = 2 * PAIRS[-1]
    for head in range(HEADS):
        for k in (0, 1):
            w["attn_q"][head * HEAD + slow + k] = [0.0] * N_EMBD
    w["attn_k"][slow], w["attn_k"][slow + 1] = [0.0] * N_EMBD, [0.0] * N_EMBD
    w["attn_q"][slow][ASKS], w["attn_k"][slow][IS_NEEDLE] = f32(1.5 / magnitude ** 2), 2.5
    for j in range(NEEDLES):
        w["attn_v"][j][SAYS + j] = 1.0
        w["attn_output"][SAYS + j][j] = 1.0
        w["output"][FIRST_ANSWER + j][SAYS + j] = 3.0
    return w


def times(rows, x):
    return [sum(a * b for a, b in zip(row, x)) for row in rows]


def normed(x):
    r = 1 / math.sqrt(sum(a * a for a in x) / len(x) + EPS)
    return [a * r for a in x]


def frequencies(divisors):
    return [BASE ** (-2 * p / HEAD) / divisors[p] for p in range(HEAD // 2)]


def turned(x, freq, pos, magnitude):
    """The pairs of PAIRS, rotated; as many numbers as they have."""
    out = []
    for p in PAIRS:
        c, s = magnitude * math.cos(pos * freq[p]), magnitude * math.sin(pos * freq[p])
        a, b = x[2 * p], x[2 * p + 1]
        out += [a * c - b * s, a * s + b * c]
    return out


def halves(x):
    """What the cache of half precision keeps."""
    return struct.unpack("<%de" % len(x), struct.pack("<%de" % len(x), *x))


def reference(w, ids, positions, freq, magnitude, cached=halves):
    """Logits at these positions."""
    xs = [normed(w["token_embd"][t]) for t in range(N_VOCAB)]
    keys, values = [times(w["attn_k"], x) for x in xs], [cached(times(w["attn_v"], x)) for x in xs]
    cache = [cached(turned(keys[t], freq, i, magnitude)) for i, t in enumerate(ids[:max(positions) + 1])]
    out = []
    for pos in positions:
        q, mixed = times(w["attn_q"], xs[ids[pos]]), []
        for h in range(HEADS):
            mine = turned(q[h * HEAD:(h + 1) * HEAD], freq, pos, magnitude)
            scores = [sum(a * b for a, b in zip(mine, k)) / math.sqrt(HEAD) for k in cache[:pos + 1]]
            most = max(scores)
            share = [0.0] * N_VOCAB  # of a token, over all its places
            for t, s in zip(ids, scores):
                share[t] += math.exp(s - most)
            total = sum(share)
            mixed += [sum(s * v[i] for s, v in zip(share, values)) / total for i in range(HEAD)]
        x = [a + b for a, b in zip(w["token_embd"][ids[pos]], times(w["attn_output"], mixed))]
        y = normed(x)
        hidden = [g / (1 + math.exp(-g)) * u for g, u in zip(times(w["ffn_gate"], y), times(w["ffn_up"], y))]
        x = [a + b for a, b in zip(x, times(w["ffn_down"], hidden))]
        out.append(times(w["output"], normed(x)))
    return out


def nmse(want, got):
    return sum((a - b) ** 2 for a, b in zip(want, got)) / sum(a * a for a in want)


def yarn_divisors(factor, context):
    """https://arxiv.org/abs/2309.00071, equations of section 3.2 in dimensions: between the pairs that make 32 turns and one turn
    in the original context, a ramp from 1 to the whole factor."""
    def pair(turns):
        return HEAD * math.log(context / (2 * math.pi * turns)) / (2 * math.log(BASE))

    lo, hi = max(0, math.floor(pair(32))), min(HEAD // 2 - 1, math.ceil(pair(1)))
    out = []
    for p in range(HEAD // 2):
        keep = 1 - min(1, max(0, (p - lo) / max(0.001, hi - lo)))
        out.append(1 / (keep + (1 - keep) / factor))
    return out


RAMP = [f32(min(STRETCH, max(1, 1 + (p - 8) * 2))) for p in range(HEAD // 2)]
SHORT = [f32(min(5, 1 + p / 8)) for p in range(HEAD // 2)]


class Needle(CliCase):
    """Each kind of stretching: what the file says of it, divisors of the frequencies, factor of cos and sin, a leaf of the config
    that leaves the stretching out, and the factor that stays then."""
    KINDS = {
        "linear": ([("rope.scaling.type", table.STRING, "linear"), ("rope.scaling.factor", table.FLOAT32, STRETCH)], None,
                   [STRETCH] * 32, 1, "scaling: none", 1),
        "yarn": ([("rope.scaling.type", table.STRING, "yarn"), ("rope.scaling.factor", table.FLOAT32, STRETCH),
                  ("rope.scaling.original_context_length", table.U32, 512)], None,
                 yarn_divisors(STRETCH, 512), 1 + 0.1 * math.log(STRETCH), "scaling: none", 1),
        "freqs": ([], {"rope_freqs.weight": RAMP}, RAMP, 1, "factors: none", 1),
        "longrope": ([("rope.scaling.type", table.STRING, "longrope"), ("rope.scaling.attn_factor", table.FLOAT32, f32(1.19)),
                      ("rope.scaling.original_context_length", table.U32, 4096)],
                     {"rope_factors_long.weight": RAMP, "rope_factors_short.weight": SHORT}, RAMP, f32(1.19),
                     "factors: none", f32(1.19)),
    }

    NEEDLE = {"linear": 1, "yarn": 2, "freqs": 3, "longrope": 5}  # none that the text's noise says by itself

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.w = {kind: weights(how[3]) for kind, how in cls.KINDS.items()}
        cls.questions = QUESTIONS[:1] if SANITIZED else QUESTIONS
        for kind, (keys, tensors, *_) in cls.KINDS.items():
            kv = [("general.architecture", table.STRING, "llama"), ("tokenizer.ggml.model", table.STRING, "no_vocab")]
            for key, value in (("block_count", 1), ("context_length", 512 if kind == "yarn" else 20000), ("embedding_length", N_EMBD),
                               ("feed_forward_length", N_FF), ("attention.head_count", HEADS), ("attention.head_count_kv", 1),
                               ("attention.key_length", HEAD), ("attention.value_length", HEAD), ("rope.dimension_count", HEAD),
                               ("vocab_size", N_VOCAB)):
                kv.append(("llama." + key, table.U32, value))
            kv += [("llama.attention.layer_norm_rms_epsilon", table.FLOAT32, EPS), ("llama.rope.freq_base", table.FLOAT32, BASE)]
            kv += [("llama." + k, t, v) for k, t, v in keys]
            ts = [(n + ".weight", (len(x),), array.array("f", x).tobytes()) for n, x in
                  [("output_norm", [1] * N_EMBD), ("blk.0.attn_norm", [1] * N_EMBD), ("blk.0.ffn_norm", [1] * N_EMBD)]]
            for name, rows in cls.w[kind].items():
                place = "" if name in ("token_embd", "output") else "blk.0."
                ts.append((place + name + ".weight", (len(rows[0]), len(rows)), array.array("f", sum(rows, [])).tobytes()))
            ts += [(n, (len(x),), array.array("f", x).tobytes()) for n, x in (tensors or {}).items()]
            cls.file(kind + ".gguf", table.pack(kv, ts))

    def text(self, needle):
        rng = random.Random(needle)
        ids = [FIRST_FILLER + rng.randrange(FILLERS) for _ in range(self.questions[-1] + 1)]
        ids[PLACE] = 1 + needle
        for q in self.questions:
            ids[q] = 0
        return ids

    def logits(self, kind, ids, *extra, context="16500"):
        tokens = self.file("tokens", array.array("i", ids).tobytes())
        r = self.quern("logits", self.path(kind + ".gguf"), "--tokens", tokens, "-q", "--backend", "cpu", "-c", context, *extra)
        self.assertEqual(r.code, 0, r.err)
        rows = array.array("f", r.out)
        self.assertEqual(len(rows), N_VOCAB * len(ids))
        return [rows[q * N_VOCAB:(q + 1) * N_VOCAB] for q in self.questions if q < len(ids)]

    def answers(self, rows):
        return [max(range(N_VOCAB), key=lambda t: row[t]) - FIRST_ANSWER for row in rows]

    def without(self, leaf):
        os.makedirs(self.path("configs"), exist_ok=True)
        self.file("configs/llama.yaml", ("architecture: llama\nnorm: {eps: {key: attention.layer_norm_rms_epsilon}}\n"
                                         "rope: {style: interleaved, %s}\n" % leaf).encode())
        return ["--model-configs", self.path("configs")]

    def holds(self, kind):
        _, _, divisors, magnitude, leaf, stays = self.KINDS[kind]
        needle = self.NEEDLE[kind]
        ids = self.text(needle)
        want = reference(self.w[kind], ids, self.questions, frequencies(divisors), magnitude)
        exact = reference(self.w[kind], ids, QUESTIONS[:1], frequencies(divisors), magnitude, list)
        self.assertEqual(self.answers(want), [needle] * len(want))
        lost = reference(self.w[kind], ids, self.questions, frequencies([1] * 32), stays)
        self.assertNotIn(needle, self.answers(lost))
        for extra, read, rows in (["--exact"], ids[:QUESTIONS[0] + 1], exact), ([], ids, want):
            got = self.logits(kind, read, *extra)
            self.assertEqual(self.answers(got), [needle] * len(got), (kind, extra))
            for w, g in zip(rows, got):
                self.assertLess(nmse(w, g), 1e-8, (kind, extra))
        got = self.logits(kind, ids, *self.without(leaf))  # the same file, not stretched: the needle is lost
        self.assertNotIn(needle, self.answers(got))
        for w, g in zip(lost, got):
            self.assertLess(nmse(w, g), 1e-8, kind)

    def test_b18_linear(self):
        self.holds("linear")

    def test_b18_yarn(self):
        """Also: its magnitude, left out or taken twice, shows."""
        self.holds("yarn")
        divisors, magnitude = self.KINDS["yarn"][2:4]
        ids = self.text(self.NEEDLE["yarn"])
        want, one, twice = (reference(self.w["yarn"], ids, self.questions, frequencies(divisors), m) for m in (magnitude, 1, magnitude ** 2))
        for w, a, b in zip(want, one, twice):
            self.assertGreater(min(nmse(w, a), nmse(w, b)), 1e-3)

    def test_b18_frequency_factors(self):
        self.holds("freqs")

    def test_b18_longrope(self):
        """Long factors where the run's context is above the original one, at whatever position; else the short ones."""
        self.holds("longrope")
        ids = self.text(self.NEEDLE["longrope"])[:QUESTIONS[0] + 1]
        for context, divisors in (("4096", SHORT), ("4097", RAMP)):
            want = reference(self.w["longrope"], ids, QUESTIONS[:1], frequencies(divisors), f32(1.19), list)
            got = self.logits("longrope", ids, "--exact", context=context)
            self.assertLess(nmse(want[0], got[0]), 1e-8, context)

    def test_b18_token_by_token(self):
        """Through decode, as an answer is made."""
        needle = self.NEEDLE["freqs"]
        ids = self.text(needle)[:QUESTIONS[0] + 1]
        want = reference(self.w["freqs"], ids, QUESTIONS[:1], frequencies(RAMP), 1)
        got = self.logits("freqs", ids, "--mode", "decode")
        self.assertEqual(self.answers(got), [needle])
        self.assertLess(nmse(want[0], got[0]), 1e-8)


if __name__ == "__main__":
    cli_case.main()
