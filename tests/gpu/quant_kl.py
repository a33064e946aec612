#!/usr/bin/env python3
"""How far the default arithmetic of a backend is from exact arithmetic on the same file, on a real text, for each tensor type:
quant_kl.py BUILD_DIR OUT_DIR [options]. Needs numpy.

Makes files of every type whose blocks divide the model's rows (quant_file.py), computes the distributions behind each token of a
stored text with --backend cpu --exact and with the backend's defaults, as a prompt (batch) and one token at a time (decode), and
reports KL(exact || default). OUT_DIR gets quant_kl.json and quant_kl.md.
"""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import quant_file  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
REAL = os.path.join(ROOT, "tests", "data", "real")
TYPES = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl", "f16", "bf16")
MODES = ("batch", "decode")


def log_softmax(path, n_vocab):
    x = np.fromfile(path, "<f4").astype(np.float64).reshape(-1, n_vocab)
    x -= x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def compare(exact, got):
    """Of two arrays of log-probabilities, [positions][n_vocab]."""
    kl = (np.exp(exact) * (exact - got)).sum(axis=1)
    best = exact.argmax(axis=1)
    top = np.sort(np.partition(exact, -2, axis=1)[:, -2:], axis=1)
    differ = best != got.argmax(axis=1)
    return {"mean_kl": float(kl.mean()), "worst_kl": float(kl.max()), "positions": len(kl), "differ": int(differ.sum()),
            "differ_decided": int((differ & (top[:, 1] - top[:, 0] > 0.25)).sum()), "finite": bool(np.isfinite(got).all())}


class Job:
    def __init__(self, args, work):
        self.args, self.work = args, work
        self.quern = os.path.join(args.build_dir, "quern")
        self.tokens, self.n_vocab = os.path.join(work, "tokens"), None

    def text(self):
        """The stored texts of the model, one behind the other, up to --positions ids."""
        with open(os.path.join(REAL, "manifest.json"), encoding="utf-8") as f:
            record = next((m for m in json.load(f) if m["file"] == os.path.basename(self.args.model)), None)
        if record is None:
            sys.exit("quant_kl: %s is no model of tests/data/real" % self.args.model)
        ids = [np.fromfile(os.path.join(REAL, "%s-%s.tokens" % (record["name"], p["name"])), "<i4") for p in record["prompts"]]
        self.n_vocab = record["n_vocab"]
        ids = np.concatenate(ids)[:self.args.positions]
        ids.tofile(self.tokens)
        return len(ids)

    def logits(self, model, name, options):
        out = os.path.join(self.work, name)
        p = subprocess.run([self.quern, "logits", model, "--tokens", self.tokens, "-o", out, "-c", "1024", *options],
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if p.returncode != 0:
            raise RuntimeError("quant_kl: %s: %s" % (name, p.stderr.strip()))
        found = log_softmax(out, self.n_vocab)
        os.remove(out)
        return found

    def one_type(self, kind, error, exact_seconds):
        """Exact distributions, then the backend's: {mode: figures}."""
        model = os.path.join(self.work, kind + ".gguf")
        start = time.monotonic()
        exact = self.logits(model, "exact", ["--backend", "cpu", "--exact", "-ub", "64"])
        exact_seconds.append(time.monotonic() - start)
        cache = ["--cache", self.args.cache] if self.args.cache else []
        result = {"type": kind, "file_bytes": os.path.getsize(model), "weight_error": error, "modes": {}}
        for mode in MODES:
            result["modes"][mode] = compare(exact, self.logits(model, mode, ["--backend", self.args.backend, "--mode", mode] + cache))
        os.remove(model)
        return result


def table(data):
    lines = ["| weights | error of weights | prompt: mean KL | worst | other token | decode: mean KL | worst | other token |",
             "|---|---:|---:|---:|---:|---:|---:|---:|"]
    for r in data["results"]:
        cells = ["%s" % r["type"], "%.1e" % r["weight_error"]]
        for mode in MODES:
            m = r["modes"][mode]
            cells += ["%.1e" % m["mean_kl"], "%.1e" % m["worst_kl"], "%d of %d" % (m["differ"], m["positions"])]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def convert(job):
    return quant_file.convert(*job)


def arguments():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("build_dir", help="folder with quern")
    a.add_argument("out_dir")
    a.add_argument("--model", default=os.path.join(ROOT, "models", "SmolLM2-135M-Instruct.Q4_1.gguf"))
    a.add_argument("--types", default=",".join(TYPES), help="default: %(default)s")
    a.add_argument("--positions", type=int, default=192, help="default: %(default)s")
    a.add_argument("--backend", default="cuda", choices=["cuda", "cpu"])
    a.add_argument("--cache", metavar="DIR", help="compiled kernels; default: quern's own")
    a.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="files made at a time")
    return a.parse_args()


def main():
    args, start, exact_seconds = arguments(), time.monotonic(), []
    kinds = args.types.split(",")
    if not set(kinds) <= set(quant_file.SIZES):
        sys.exit("quant_kl: types are " + ", ".join(quant_file.SIZES))
    os.makedirs(args.out_dir, exist_ok=True)
    shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="quern-kl-", dir=shm) as work:
        job = Job(args, work)
        data = {"model": os.path.basename(args.model), "backend": args.backend, "positions": job.text(), "results": []}
        with concurrent.futures.ProcessPoolExecutor(min(args.jobs, len(kinds))) as pool:
            made = pool.map(convert, [(args.model, kind, os.path.join(work, kind + ".gguf")) for kind in kinds])
            for kind, error in zip(kinds, made):  # one is measured while the next ones are made
                data["results"].append(job.one_type(kind, error, exact_seconds))
    data["seconds"] = {"all": time.monotonic() - start, "exact": sum(exact_seconds)}
    with open(os.path.join(args.out_dir, "quant_kl.json"), "w", encoding="utf-8") as f:
        json.dump(data, f, indent=1)
    with open(os.path.join(args.out_dir, "quant_kl.md"), "w", encoding="utf-8") as f:
        f.write(table(data) + "\n")
    print(table(data))
    print("%.0f s, of which exact arithmetic %.0f s" % (data["seconds"]["all"], data["seconds"]["exact"]))
    bad = [r["type"] for r in data["results"] for m in r["modes"].values() if not m["finite"]]
    if bad:
        print("quant_kl: logits that are not finite: " + ", ".join(bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
