#!/usr/bin/env python3
"""golden_table.py BUILD_DIR [--backend cpu|cuda]: a Markdown table of all golden models with the NMSE of their logits.

CPU: exact arithmetic against `.xlogits`, fast arithmetic against `.logits`; CUDA: against `.xlogits`. Each figure is the
worst of batch (in chunks of 24), per-token and decode modes; a row that exceeds the manifest's tolerance is marked.

    golden_table.py --report OUT_DIR/report.json     the CUDA columns of a run of tests/gpu/run.sh
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


def from_report(path, records):
    """Figures of a run on a card: the case of a model that is nearest to what is allowed."""
    with open(path, encoding="utf-8") as f:
        parts = {p["part"]: p for p in json.load(f)["parts"]}
    if not parts.get("goldens", {}).get("details"):
        sys.exit("%s: no part 'goldens' with details" % path)
    print("| config | golden model | CUDA | of what is allowed |\n|---|---|---|---|")
    for record in records:
        cases = [c for c in parts["goldens"]["details"] if c["model"] == record["name"] and c["nmse"] is not None]
        if cases:
            worst_case = max(cases, key=lambda c: c["share"])
            print("| `%s` | %s | %.1e | %.1g |" % (record["arch"], record["name"], worst_case["nmse"], worst_case["share"]))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", nargs="?")
    parser.add_argument("--report", help="report.json of tests/gpu/run.sh with its part goldens")
    parser.add_argument("--backend", choices=("cpu", "cuda"), default="cpu")
    args = parser.parse_args()
    with open(os.path.join(GOLDENS, "manifest.json"), encoding="utf-8") as f:
        records = sorted(json.load(f), key=lambda r: (r["arch"], r["name"]))
    if args.report:
        return from_report(args.report, records)
    if not args.build:
        parser.error("no build folder")
    runs = [("exact", "xlogits", "xlogits_f32_kv", ["--exact"]), ("fast", "logits", "logits", [])]
    if args.backend == "cuda":
        runs = [("CUDA", "xlogits", "xlogits_f16_kv", [])]
    print("| config | golden model | %s |" % " | ".join("%s | of tolerance" % r[0] for r in runs))
    print("|---|---|%s" % ("---|---|" * len(runs)))
    with tempfile.TemporaryDirectory() as folder:
        for record in records:
            cells = []
            for _, suffix, tolerance, flags in runs:
                reference = floats(os.path.join(GOLDENS, record["name"] + "." + suffix))
                figure, allowed = worst(args, record, os.path.join(folder, "out"), reference, flags), record["tol"][tolerance]
                cells.append("%.1e | %.1g%s" % (figure, figure / allowed, " (too much)" if figure > allowed else ""))
            print("| `%s` | %s | %s |" % (record["arch"], record["name"], " | ".join(cells)), flush=True)


if __name__ == "__main__":
    main()
