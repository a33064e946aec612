"""What the parts of run_gpu.py share: running programs, goldens, results."""
import concurrent.futures
import fnmatch
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
GOLDENS = os.path.join(ROOT, "tests", "data", "goldens")
REFUSED_TYPES = {"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "TQ1_0", "TQ2_0", "MXFP4"}


# Options of a run, beside none, with which the goldens must hold (docs/prefill.md), and kernels of older cards.
UBATCH = "20"  # two chunks of the goldens' 32 tokens, the last one short
SHORT_CHUNK = ["-ub", "24"]  # its last chunk of 8 tokens takes the kernels of few rows
WAYS = (["--weight-cache", "off"], ["--prefill", "mma"], ["--attention", "flash"], ["--attention", "tma"])
VARIANTS = (["--variant", "sm75"], ["--variant", "sm80"])


class Skip(Exception):
    """A part that cannot run here, and why."""


class Worker:
    """A process that runs one command of quern after the other (gpu_cases many)."""

    def __init__(self, program, backend, folder, env):
        os.makedirs(folder, exist_ok=True)
        self.folder = folder
        with open(self.path("worker"), "wb") as own:
            self.process = subprocess.Popen([program, "many", backend, folder], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=own, env=env)

    def path(self, name):
        return os.path.join(self.folder, name)

    def text(self, name):
        try:
            with open(self.path(name), encoding="utf-8", errors="replace") as f:
                return f.read()
        except OSError:
            return ""

    def answer(self, timeout):
        """The line that the process prints; None: it ended, "": nothing in time."""
        end, line = time.monotonic() + timeout, b""
        while not line.endswith(b"\n"):
            ready = select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))[0]
            if not ready:
                return ""
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                return None
            line += more
        return line.decode()

    def run(self, words, timeout):
        """(exit status, stdout, stderr, whether the process can go on)"""
        for name in ("out", "err"):
            open(self.path(name), "wb").close()
        try:
            self.process.stdin.write(json.dumps(words).encode() + b"\n")
            self.process.stdin.flush()
            line = self.answer(timeout)
        except BrokenPipeError:
            line = None
        if line == "":
            return 124, self.text("out"), self.text("err") + "\nno end within %d s" % timeout, False
        if line is None:
            code = self.process.wait()
            return code or 1, self.text("out"), "%s%s\nthe process ended with status %d" % (
                self.text("worker"), self.text("err"), code), False
        result = json.loads(line)
        lost = result.get("lost")
        return result["status"], self.text("out"), self.text("err") + (
            "\nthe device is lost to the process: " + lost if lost else ""), not lost

    def end(self):
        """Without waiting for what it does: its input ends, and where that is not enough it is killed."""
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class Workers:
    """As many as run at a time; one that crashes or hangs is replaced."""

    def __init__(self, start):
        self.start, self.lock, self.idle, self.busy, self.made = start, threading.Lock(), [], set(), 0

    def run(self, words, timeout):
        with self.lock:
            worker = self.idle.pop() if self.idle else None
            self.made += not worker
            number = self.made
        worker = worker or self.start(number)
        with self.lock:
            self.busy.add(worker)
        code, out, err, sound = worker.run(words, timeout)
        with self.lock:
            self.busy.discard(worker)
            if sound:
                self.idle.append(worker)
        if not sound:
            worker.process.kill()
            worker.end()
        return code, out, err

    def end(self):
        with self.lock:
            idle, self.idle = self.idle, []
        for worker in idle:
            worker.end()

    def kill(self):
        for worker in list(self.busy) + self.idle:
            worker.process.kill()


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
        self.env = dict(os.environ, QUERN_CACHE=args.cache or os.path.join(self.work, "cache"))
        self.workers = Workers(lambda n: Worker(self.cases, self.backend, os.path.join(self.work, "worker-%d" % n), self.env))
        self.shown, self.lock, self.running, self.order = time.monotonic(), threading.RLock(), [], []
        for old in ("report.txt", "report.json", "failures.txt"):
            if os.path.isfile(os.path.join(self.out, old)):
                os.remove(os.path.join(self.out, old))
        self.rows = []
        self.failures = []
        self.goldens = self.find_goldens()

    def find_folder(self, name):
        """A folder of the build; None: it is not there."""
        places = [os.path.join(os.path.abspath(self.args.build_dir), folder, name) for folder in ("", "tests")]
        return next((p for p in places if os.path.isdir(p)), None)

    def find(self, name):
        for folder in ("", "tests"):
            path = os.path.join(os.path.abspath(self.args.build_dir), folder, name)
            if os.path.isfile(path):
                if not os.access(path, os.X_OK):
                    os.chmod(path, 0o755)
                return path
        return None

    def program(self, name):
        return self.find(name) or sys.exit("run_gpu: %s has no %s" % (self.args.build_dir, name))

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

    def quern_run(self, words, timeout=120):
        """A command of quern, by a process that has run others before: (exit status, stdout, stderr)."""
        return self.workers.run(words, timeout if self.backend == "cuda" else 600)

    def progress(self):
        with self.lock:
            if time.monotonic() - self.shown < 10:
                return
            self.shown = time.monotonic()
            running = ", ".join("%s %d of %d" % (p.name, p.done, p.of) for p in self.running if p.of)
            print("  %s, %d failures so far" % (running, len(self.failures)), flush=True)

    def fail(self, case, why):
        """Told of at once, so that it is known even where the script is ended from outside."""
        why = why[-2000:]
        with self.lock:
            self.failures.append({"case": case, "why": why})
            print("    FAILED %s: %s" % (case, last_line(why) or "?"), flush=True)
            with open(os.path.join(self.out, "failures.txt"), "a", encoding="utf-8") as f:
                f.write("== %s\n%s\n" % (case, why))

    def part(self, name, fn):
        """Runs a part that the pattern asks for. fn gets a Part, returns (cases, note) and records failures itself."""
        if not fnmatch.fnmatch(name, self.args.only):
            return
        part, start = Part(self, name), time.monotonic()
        with self.lock:
            self.running.append(part)
        row = {"part": name, "cases": 0, "note": ""}
        try:
            row["cases"], row["note"], *more = fn(part)
            row["details"] = more[0] if more else None
            row["status"] = "ok"
        except Skip as e:
            row["status"], row["note"] = "skipped", str(e)
        except Exception as e:  # a part that breaks is a failure of that part, and the others still run
            part.fail(name, "%s: %s" % (type(e).__name__, e))
        row["failed"] = len(part.failures)
        if row["failed"]:
            row["status"] = "FAILED"
        row["seconds"] = round(time.monotonic() - start, 1)
        with self.lock:
            self.running.remove(part)
            self.rows.append(row)
            self.rows.sort(key=lambda r: self.order.index(r["part"]))
            print("%-16s %5d cases %4d failed %6.1f s  %-8s %s" % (name, row["cases"], row["failed"], row["seconds"],
                                                                row["status"], row["note"]), flush=True)
            self.report()

    def parts(self, *chains):
        """Chains of parts: those of a chain one after the other, chains at the same time, where there is a card."""
        self.order += [name for chain in chains for name, _ in chain]

        def walk(chain):
            for name, fn in chain:
                self.part(name, fn)
        threads = [threading.Thread(target=walk, args=(chain,)) for chain in chains]
        for t in threads:
            t.start()
            if self.backend != "cuda":
                t.join()
        for t in threads:
            t.join()

    def report(self):
        """After every part, so that something is there whatever happens next."""
        head = "%(card)s, driver %(driver)s, commit %(commit)s, backend %(backend)s, %(date)s" % self.about
        seconds = time.monotonic() - self.started
        lines = [head, "", "| part | cases | failed | s | status | note |", "|---|---|---|---|---|---|"]
        lines += ["| %s | %d | %d | %.1f | %s | %s |" % (r["part"], r["cases"], r["failed"], r["seconds"], r["status"],
                                                        r["note"]) for r in self.rows]
        lines.append("\n%d failed, %.0f s" % (len(self.failures), seconds))
        with open(os.path.join(self.out, "report.txt"), "w", encoding="utf-8") as f:
            f.write("\n".join(lines) + "\n")
        with open(os.path.join(self.out, "report.json"), "w", encoding="utf-8") as f:
            json.dump(dict(self.about, seconds=round(seconds, 1), parts=self.rows, failures=self.failures), f, indent=1)
        return lines[-1].strip()

    def ended(self):
        """The script is ended from outside: what is known of the running parts, and nothing more."""
        for p in self.running:
            self.rows.append({"part": p.name, "cases": p.done, "failed": len(p.failures), "seconds": 0, "status": "ENDED",
                              "note": "ended after %d of %d cases" % (p.done, p.of)})
        self.report()
        self.workers.kill()

    def clean(self):
        if not self.args.work:
            shutil.rmtree(self.work, ignore_errors=True)


class Part:
    """What the function of a part sees: the Bench, with a folder, failures and progress of its own, since parts run beside each other."""

    def __init__(self, bench, name):
        self.bench, self.name, self.failures, self.of, self.done = bench, name, [], 0, 0
        self.work = os.path.join(bench.work, name)
        os.makedirs(self.work, exist_ok=True)

    def __getattr__(self, name):
        return getattr(self.bench, name)

    def fail(self, case, why):
        self.failures.append(case)
        self.bench.fail(case, why)

    def each(self, fn, items, workers=None):
        self.of += len(items)

        def one(item):
            result = fn(item)
            with self.bench.lock:
                self.done += 1
            self.bench.progress()
            return result
        with concurrent.futures.ThreadPoolExecutor((workers or self.args.jobs) if self.backend == "cuda" else 2) as pool:
            return list(pool.map(one, items))


def last_line(text):
    lines = [line for line in text.strip().splitlines() if line]
    return lines[-1] if lines else ""
