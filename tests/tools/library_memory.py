#!/usr/bin/env python3
"""Every allocation of a completion fails once: library_memory.py LIBRARY_USER FAIL_MALLOC MODEL. The library must then
fail with a line that says so, or do without; it must not crash, and the answer must not be another."""
import os
import subprocess
import sys
import tempfile

user, preload, model = [os.path.abspath(p) for p in sys.argv[1:4]]


def run(folder, first, last=None):
    out, report = os.path.join(folder, "out"), os.path.join(folder, "report")
    env = dict(os.environ, LD_PRELOAD=preload, FAIL_AT=str(first), FAIL_TO=str(last or first), FAIL_REPORT=report)
    p = subprocess.run([user, "complete", model, "A", out], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600)
    with open(out, "rb") as f:
        text = f.read()
    with open(report) as f:
        return p.returncode, text, p.stdout + p.stderr, int(f.read())


def main():
    with tempfile.TemporaryDirectory() as folder:
        code, text, printed, n = run(folder, 0)
        if (code, text, printed) != (0, b" Hello world!", b""):
            sys.exit("nothing fails: status %d, %r, %r" % (code, text, printed))
        tries = list(range(2, min(n, 400))) + list(range(400, n + 1, max(1, n // 400)))  # 1: the program's own fopen
        failed = refused = 0
        for last in (None, 1 << 40):  # once; and from then on, as where memory is really out
            for k in tries[::1 if last is None else 5]:
                code, text, printed, _ = run(folder, k, last)
                clean = (code == 1 and text.startswith(b"error: ") and len(text) > 12) or (code == 0 and text == b" Hello world!")
                refused += code == 1
                if not clean or printed:
                    print("allocation %d of %d%s: status %d, %r, %r" % (k, n, " and all later" if last else "", code, text, printed))
                    failed += 1
        print("%d allocations, %d tried, %d refusals, %d faults" % (n, len(tries), refused, failed))
        if failed or refused < 50:
            sys.exit(1)


main()
