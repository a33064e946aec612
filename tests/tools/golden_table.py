#!/usr/bin/env python3
"""golden_table.py BUILD_DIR [--backend cpu|cuda]: a Markdown table of all golden models with the NMSE of their logits.

CPU: exact arithmetic against `.xlogits`, fast arithmetic against `.logits`; CUDA: against `.xlogits`. Each figure is the
worst of batch (in chunks of 24), per-token and decode modes; a row that exceeds the manifest's tolerance is marked.
"""
import argparse
import array
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GOLDENS = os.path.join(ROOT, "tests", "data", "goldens", "archs")
MODES = ("batch", "per-token", "decode")


def floats(path):
    values = array.array("f")
    with open(path, "rb") as f:
        values.frombytes(f.read())
    return values


def nmse(ref, got):
    if len(ref) != len(got):
        return float("inf")
    return sum((a - b) ** 2 for a, b in zip(ref, got)) / sum(a * a for a in ref)


def worst(args, record, out, reference, flags):
    name = record["name"]
    model = os.path.join(args.build, "goldens", "archs", name + ".gguf")
    figure = 0.0
    for mode in MODES:
        command = [os.path.join(args.build, "quern"), "logits", model, "--tokens", os.path.join(GOLDENS, name + ".tokens"),
                   "-o", out, "--mode", mode, "-ub", "24", "--backend", args.backend] + flags
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit("%s: %s" % (name, done.stderr.strip()))
        figure = max(figure, nmse(reference, floats(out)))
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build")
    parser.add_argument("--backend", choices=("cpu", "cuda"), default="cpu")
    args = parser.parse_args()
    with open(os.path.join(GOLDENS, "manifest.json"), encoding="utf-8") as f:
        records = json.load(f)
    runs = [("exact", "xlogits", "xlogits_f32_kv", ["--exact"]), ("fast", "logits", "logits", [])]
    if args.backend == "cuda":
        runs = [("CUDA", "xlogits", "xlogits_f16_kv", [])]
    print("| config | golden model | %s |" % " | ".join("%s | of tolerance" % r[0] for r in runs))
    print("|---|---|%s" % ("---|---|" * len(runs)))
    with tempfile.TemporaryDirectory() as folder:
        for record in sorted(records, key=lambda r: (r["arch"], r["name"])):
            cells = []
            for _, suffix, tolerance, flags in runs:
                reference = floats(os.path.join(GOLDENS, record["name"] + "." + suffix))
                figure, allowed = worst(args, record, os.path.join(folder, "out"), reference, flags), record["tol"][tolerance]
                cells.append("%.1e | %.1g%s" % (figure, figure / allowed, " (too much)" if figure > allowed else ""))
            print("| `%s` | %s | %s |" % (record["arch"], record["name"], " | ".join(cells)), flush=True)


if __name__ == "__main__":
    main()
