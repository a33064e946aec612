#!/usr/bin/env python3
"""tests/gpu/quant_file.py: test_quant_file.py QUERN GOLDEN WORK_DIR, where GOLDEN is a golden model of f16. What each type's blocks say
is what quern reads in them: exact logits of a quantised file are those of the same values as f32; and the values are near enough to
the golden's. Exit status 77: there is no numpy."""
import os
import subprocess
import sys

try:
    import numpy as np
except ImportError:
    print("no numpy")
    sys.exit(77)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "gpu"))
import quant_file  # noqa: E402
from quant_kl import compare  # noqa: E402

# Root of the relative mean squared error of normally distributed weights: as measured, and a tenth more.
LIMITS = {"f32": 1e-9, "f16": 1e-9, "bf16": 1.9e-3, "q8_0": 5.6e-3, "q5_0": 4.5e-2, "q5_1": 4.1e-2, "q4_0": 9e-2, "q4_1": 8.4e-2,
          "iq4_nl": 8.3e-2}


def logits(quern, model, tokens, out):
    subprocess.run([quern, "logits", model, "--tokens", tokens, "-o", out, "--backend", "cpu", "--exact", "-q"], check=True)
    return np.fromfile(out, "<f4").astype(np.float64)


def main():
    quern, golden, work = sys.argv[1:]
    os.makedirs(work, exist_ok=True)
    tokens, out = golden[:-5] + ".tokens", os.path.join(work, "logits")
    faults = []
    for kind, limit in LIMITS.items():
        path, plain = os.path.join(work, kind + ".gguf"), os.path.join(work, kind + "-as-f32.gguf")
        error = quant_file.convert(golden, kind, path)
        quant_file.convert(path, "f32", plain)
        a, b = logits(quern, path, tokens, out), logits(quern, plain, tokens, out)
        nmse = float(np.square(a - b).sum() / np.square(b).sum())
        print("%-7s weights %.2e, logits against those of its values as f32: NMSE %.1e" % (kind, error, nmse))
        if not error <= limit:
            faults.append("%s: weights are wrong by %.2e, more than %.1e" % (kind, error, limit))
        if not nmse <= 1e-10:
            faults.append("%s: quern reads other values" % kind)
    p = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]))
    q = np.log(np.array([[0.25, 0.5, 0.25], [0.1, 0.8, 0.1]]))
    got = compare(p, q)
    want = 0.5 * np.log(2) - 0.25 * np.log(2)
    if abs(got["worst_kl"] - want) > 1e-12 or abs(got["mean_kl"] - want / 2) > 1e-12 or (got["differ"], got["differ_decided"]) != (1, 1):
        faults.append("KL of two known distributions: %s" % got)
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
