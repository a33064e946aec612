#!/usr/bin/env python3
"""Many commands in one process, and parts beside each other, as tests/gpu/run_gpu.py runs them: test_gpu_workers.py GPU_CASES QUERN GOLDEN_DIR WORK_DIR"""
import json
import os
import subprocess
import sys
import threading
import time
import types
import unittest

CASES, QUERN, DATA, WORK = [os.path.abspath(a) for a in sys.argv[1:5]]
del sys.argv[1:5]
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "gpu"))
from gpu_lib import Bench, Skip, Worker, Workers  # noqa: E402

# Says what a worker says, and crashes, hangs and loses its device where it is told to.
STUB = """#!/usr/bin/env python3
import json, os, sys, time
for line in sys.stdin:
    word = json.loads(line)[0]
    if word == "crash":
        sys.stderr.write("stack smashed\\n"); sys.stderr.flush(); os.abort()
    if word == "hang":
        time.sleep(60)
    open(os.path.join(sys.argv[3], "out"), "w").write(str(os.getpid()))
    print(json.dumps({"status": word == "lose", "seconds": 0, **({"lost": "error 700"} if word == "lose" else {})}), flush=True)
    if word == "lose":
        sys.exit(3)
"""


def pool(program):
    return Workers(lambda n: Worker(program, "cpu", os.path.join(WORK, "worker-%d" % n), dict(os.environ)))


class Stub(unittest.TestCase):
    def setUp(self):
        os.makedirs(WORK, exist_ok=True)
        self.program = os.path.join(WORK, "stub")
        with open(self.program, "w", encoding="utf-8") as f:
            f.write(STUB)
        os.chmod(self.program, 0o755)
        self.workers = pool(self.program)

    def tearDown(self):
        self.workers.end()

    def test_a_process_stays(self):
        first, second = [self.workers.run(["fine"], 30) for _ in range(2)]
        self.assertEqual(first[0], 0)
        self.assertEqual(first[1], second[1])

    def harmed(self, word, timeout, code, why):
        before = self.workers.run(["fine"], 30)[1]
        got = self.workers.run([word], timeout)
        self.assertEqual(got[0], code)
        self.assertIn(why, got[2])
        after = self.workers.run(["fine"], 30)
        self.assertEqual(after[0], 0)
        self.assertNotEqual(after[1], before)

    def test_crash(self):
        self.harmed("crash", 30, -6, "stack smashed")

    def test_hang(self):
        self.harmed("hang", 0.3, 124, "no end within")

    def test_lost_device(self):
        self.harmed("lose", 30, 1, "error 700")


class Real(unittest.TestCase):
    """Nothing of a command is left for the next: what each prints is what a process of its own prints."""

    def test_same_as_alone(self):
        model = os.path.join(DATA, "quants", "llama-Q4_K.gguf")
        tokens = os.path.join(DATA, "quants", "llama-Q4_K.tokens")
        logits = ["logits", model, "--tokens", tokens, "--backend", "cpu"]
        workers, out = pool(CASES), os.path.join(WORK, "logits")
        lines = [["--version"], ["nonsense"], logits[:2], ["logits", model, "-v", "--tokens", "/none"], logits + ["-o", out, "-t", "1"],
                 logits + ["--help"], logits + ["-o", "/dev/full", "-q"], logits + ["--check", "--json", "-ub", "24"],
                 ["plan", model], ["logits", model, "--debug", "all", "--tokens", "/none"], ["logits", model, "--tokens", "/none"],
                 ["cache", "list", "--cache", WORK]]
        for words in lines + lines:
            alone = subprocess.run([QUERN, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            code, text, err = workers.run(words, 300)
            self.assertEqual(code, alone.returncode, json.dumps(words) + err)
            self.assertEqual(text, alone.stdout.decode(), words)
            self.assertEqual(err, alone.stderr.decode(), words)
        self.assertEqual(workers.made, 1)
        workers.end()


class Parts(unittest.TestCase):
    """Parts that run at the same time have failures, folders and rows of their own."""

    def bench(self, only="*"):
        b = object.__new__(Bench)
        b.args, b.backend, b.work, b.out = types.SimpleNamespace(only=only, jobs=2), "cuda", WORK, WORK
        b.shown, b.lock, b.running, b.order, b.rows, b.failures = time.monotonic(), threading.RLock(), [], [], [], []
        b.about = dict.fromkeys(("card", "driver", "commit", "backend", "date"), "-")
        b.started = time.monotonic()
        os.makedirs(WORK, exist_ok=True)
        return b

    def test_together(self):
        both, b = threading.Barrier(2, timeout=20), self.bench()

        def first(p):
            both.wait()  # would break where one waited for the other
            p.fail("a case", "wrong")
            return 3, "told", {"more": 1}

        def second(p):
            both.wait()
            self.assertEqual(p.each(lambda x: 2 * x, [1, 2, 3]), [2, 4, 6])
            self.assertEqual([p.of, p.done, p.work], [3, 3, os.path.join(WORK, "second")])
            return 1, "fine"

        def third(p):
            raise Skip("nothing there")

        def fourth(p):
            raise ValueError("broken")
        b.parts([("first", first), ("third", third)], [("second", second)], [("fourth", fourth)])
        self.assertEqual([(r["part"], r["cases"], r["failed"], r["status"]) for r in b.rows],
                         [("first", 3, 1, "FAILED"), ("third", 0, 0, "skipped"), ("second", 1, 0, "ok"), ("fourth", 0, 1, "FAILED")])
        self.assertEqual([f["case"] for f in b.failures if f["case"] == "a case"], ["a case"])
        with open(os.path.join(WORK, "report.json"), encoding="utf-8") as f:
            self.assertEqual(len(json.load(f)["parts"]), 4)

    def test_only(self):
        b = self.bench("sec*")
        b.parts(*[[(n, lambda p: (1, p.name))] for n in ("first", "second")])
        self.assertEqual([r["note"] for r in b.rows], ["second"])


if __name__ == "__main__":
    unittest.main()
