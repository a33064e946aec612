"""What the parts of run_gpu.py share: running programs, goldens, results."""
import concurrent.futures
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
GOLDENS = os.path.join(ROOT, "tests", "data", "goldens")
REFUSED_TYPES = {"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "TQ1_0", "TQ2_0", "MXFP4"}


class Skip(Exception):
    """A part that cannot run here, and why."""


class Golden:
    def __init__(self, record, folder, model):
        self.name, self.n_vocab, self.tol = record["name"], record["n_vocab"], record["tol"]
        self.model = model
        self.tokens = os.path.join(folder, self.name + ".tokens")
        self.logits = os.path.join(folder, self.name + ".logits")
        self.xlogits = os.path.join(folder, self.name + ".xlogits")
        self.quantised = any(t not in ("f16", "f32", "bf16") for t in record["tensor_types"])
        # goldens/README.md: models whose own noise is large are judged on the exact logits only.
        self.ill = self.name in ("exaone4-64l", "gemma3-27b", "gemma2-27b") or self.name.startswith(("gemma3n", "gemma4-"))


class Bench:
    """One call of the script: its folders, the programs, the results."""

    def __init__(self, args):
        self.args = args
        self.backend = args.backend
        self.out = os.path.abspath(args.out_dir)
        os.makedirs(self.out, exist_ok=True)
        self.work = args.work or tempfile.mkdtemp(prefix="quern-gpu-")
        os.makedirs(self.work, exist_ok=True)
        self.quern = self.program("quern")
        self.compare = self.program("compare_logits")
        self.cases = self.program("gpu_cases")
        self.env = dict(os.environ, QUERN_CACHE=os.path.join(self.work, "cache"))
        self.rows = []
        self.failures = []
        self.goldens = self.find_goldens()

    def program(self, name):
        for folder in ("", "tests"):
            path = os.path.join(os.path.abspath(self.args.build_dir), folder, name)
            if os.path.isfile(path):
                if not os.access(path, os.X_OK):
                    os.chmod(path, 0o755)
                return path
        sys.exit("run_gpu: %s has no %s" % (self.args.build_dir, name))

    def find_goldens(self):
        """Golden models whose architecture has a config, and quantised ones of types that quern reads."""
        archs = set()
        for name in os.listdir(os.path.join(ROOT, "model_configs")):
            if name.endswith(".yaml"):
                with open(os.path.join(ROOT, "model_configs", name), encoding="utf-8") as f:
                    line = re.search(r"^architecture:([^#\n]*)", f.read(), re.M)
                    archs |= set(re.findall(r"[\w.-]+", line.group(1)))
        made = os.path.join(self.work, "goldens")
        records = {}
        for kind in ("archs", "quants"):
            with open(os.path.join(GOLDENS, kind, "manifest.json"), encoding="utf-8") as f:
                records[kind] = json.load(f)
        names = [r["name"] for r in records["archs"] if r["arch"] in archs]
        if not all(os.path.isfile(os.path.join(made, n + ".gguf")) for n in names):
            subprocess.run([sys.executable, os.path.join(ROOT, "tests", "tools", "make_golden_models.py"),
                            os.path.join(GOLDENS, "archs", "spec.txt"), made] + names, check=True,
                           stdout=subprocess.DEVNULL)
        found = [Golden(r, os.path.join(GOLDENS, "archs"), os.path.join(made, r["name"] + ".gguf"))
                 for r in records["archs"] if r["arch"] in archs]
        for r in records["quants"]:
            if r["name"].replace("llama-", "") not in REFUSED_TYPES:
                folder = os.path.join(GOLDENS, "quants")
                found.append(Golden(r, folder, os.path.join(folder, r["name"] + ".gguf")))
        wanted = self.args.models.split(",") if self.args.models else None
        found = [g for g in found if wanted is None or g.name in wanted]
        if not found:
            sys.exit("run_gpu: no golden models")
        return found

    def golden(self, name):
        for g in self.goldens:
            if g.name == name:
                return g
        return self.goldens[0]

    def run(self, command, timeout=120, env=None, **kw):
        """(exit status, stdout, stderr, seconds); a program that hangs is killed and has status 124. On the CPU, whose speed is
        anyone's, only what takes very long hangs."""
        timeout = timeout if self.backend == "cuda" else 600
        start = time.monotonic()
        try:
            p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout,
                               env=env or self.env, text=True, errors="replace", **kw)
            return p.returncode, p.stdout, p.stderr, time.monotonic() - start
        except subprocess.TimeoutExpired:
            return 124, "", "no end within %d s" % timeout, time.monotonic() - start

    def each(self, fn, items, workers=8):
        with concurrent.futures.ThreadPoolExecutor(workers if self.backend == "cuda" else 2) as pool:
            return list(pool.map(fn, items))

    def fail(self, case, why):
        self.failures.append({"case": case, "why": why[-2000:]})

    def part(self, name, fn):
        """Runs a part that the pattern asks for. fn returns (cases, note) and records failures itself."""
        if not fnmatch.fnmatch(name, self.args.only):
            return
        start, before = time.monotonic(), len(self.failures)
        row = {"part": name, "cases": 0, "note": ""}
        try:
            row["cases"], row["note"], *more = fn(self)
            row["details"] = more[0] if more else None
            row["status"] = "ok"
        except Skip as e:
            row["status"], row["note"] = "skipped", str(e)
        except Exception as e:  # a part that breaks is a failure of that part, and the others still run
            self.fail(name, "%s: %s" % (type(e).__name__, e))
        row["failed"] = len(self.failures) - before
        if row["failed"]:
            row["status"] = "FAILED"
        row["seconds"] = round(time.monotonic() - start, 1)
        self.rows.append(row)
        print("%-16s %5d cases %4d failed %6.1f s  %-8s %s" % (name, row["cases"], row["failed"], row["seconds"],
                                                            row["status"], row["note"]), flush=True)
        for f in self.failures[before:before + 5]:
            print("    %s: %s" % (f["case"], f["why"].strip().splitlines()[-1] if f["why"].strip() else "?"), flush=True)

    def clean(self):
        if not self.args.work:
            shutil.rmtree(self.work, ignore_errors=True)


def last_line(text):
    lines = [line for line in text.strip().splitlines() if line]
    return lines[-1] if lines else ""
