#!/usr/bin/env python3
"""Golden models with other hyper-parameters: variation_cases.py QUERN VARIATIONS.tar.xz CONFIG_DIR N_MODELS

The archive (tests/data/README.md) holds variations.spec, models as make_golden_models.py reads them, and variations.ref: a line
for each with name, number of tokens, tolerance and some logits of another engine. Each model goes through `quern logits` in
chunks of prompt and in decode steps, both exact, and must fit its config by `quern check`; a draft of it must parse. A damaged
expectation must be found.
"""
import os
import struct
import subprocess
import sys
import tarfile
import tempfile

import make_golden_models as golden

MODES = (["--mode", "batch", "-ub", "5"], ["--mode", "decode"])


def tokens(name, n, n_vocab):
    """Ids by a linear congruential generator that starts from the model's name."""
    state, ids = golden.fnv1a64(name), []
    for _ in range(n):
        state = (state * 6364136223846793005 + 1442695040888963407) & golden.M64
        ids.append((state >> 33) % n_vocab)
    return ids


def picked(n, n_vocab):
    """The logits that stand in variations.ref: the first 8 after three of the tokens."""
    return [(row, col) for row in sorted({n // 3, 2 * n // 3, n - 1}) for col in range(min(8, n_vocab))]


def key(model, name):
    arch = next(v for _, k, v in model[2] if k == "general.architecture")
    return next((v for _, k, v in model[2] if k in (name, arch + "." + name)), None)


def read_refs(lines):
    """name -> (number of tokens, tolerance, values)"""
    return {w[0]: (int(w[1]), float(w[2]), [float(x) for x in w[3:]]) for w in (line.split() for line in lines)}


def read_archive(path, work):
    with tarfile.open(path) as tar:
        for name in ("variations.spec", "variations.ref"):
            with open(os.path.join(work, name), "wb") as f:
                f.write(tar.extractfile(name).read())
    with open(os.path.join(work, "variations.ref"), encoding="ascii") as f:
        refs = read_refs(f)
    return golden.read_spec(os.path.join(work, "variations.spec")), refs


def nmse(due, got):
    return sum((a - b) ** 2 for a, b in zip(due, got)) / sum(a * a for a in due)


class Runner:
    def __init__(self, quern, configs, work):
        self.quern, self.configs, self.work = quern, configs, work
        self.failed = 0

    def path(self, name):
        return os.path.join(self.work, name)

    def fail(self, name, what):
        self.failed += 1
        print("%s: %s" % (name, what))

    def command(self, name, *args):
        done = subprocess.run([self.quern] + list(args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
        if done.returncode:
            self.fail(name, "quern %s: status %d: %s" % (args[0], done.returncode, done.stderr.decode(errors="replace").strip()))
        return done.returncode == 0

    def errors(self, model, ref):
        """NMSE of each mode, over the picked logits."""
        name, (n, _, due) = model[0], ref
        n_vocab = int(key(model, "vocab_size"))
        with open(self.path("m.gguf"), "wb") as f:
            f.write(golden.gguf(*model[1:]))
        with open(self.path("m.tokens"), "wb") as f:
            f.write(struct.pack("<%di" % n, *tokens(name, n, n_vocab)))
        out = []
        for mode in MODES:
            if not self.command(name, "logits", self.path("m.gguf"), "--tokens", self.path("m.tokens"), "-o", self.path("m.logits"),
                                "--backend", "cpu", "-t", "1", "-c", "0", "--exact", *mode):
                continue
            with open(self.path("m.logits"), "rb") as f:
                rows = f.read()
            if len(rows) != 4 * n * n_vocab:
                self.fail(name, "%d bytes of logits" % len(rows))
                continue
            values = struct.unpack("<%df" % (n * n_vocab), rows)
            out.append(nmse(due, [values[r * n_vocab + c] for r, c in picked(n, n_vocab)]))
        return out

    def model(self, model, ref):
        name = model[0]
        for mode, error in zip(MODES, self.errors(model, ref)):
            if not error <= ref[1]:
                self.fail(name, "%s: NMSE %.3g, tolerance %.0e" % (" ".join(mode), error, ref[1]))
        config = os.path.join(self.configs, key(model, "general.architecture") + ".yaml")
        self.command(name, "check", config, self.path("m.gguf"))
        self.command(name, "draft", self.path("m.gguf"))


def main():
    quern, archive, configs, count = sys.argv[1:5]
    with tempfile.TemporaryDirectory() as work:
        models, refs = read_archive(archive, work)
        run = Runner(quern, configs, work)
        for model in models:
            run.model(model, refs[model[0]])
        n, tolerance, due = refs[models[0][0]]
        damaged = [x + 0.01 for x in due]
        if any(error <= tolerance for error in run.errors(models[0], (n, tolerance, damaged))):
            run.fail(models[0][0], "a damaged expectation is not found")
        print("%d variations, %d faults" % (len(models), run.failed))
        return run.failed or len(models) != int(count)


if __name__ == "__main__":
    sys.exit(main() and 1)
