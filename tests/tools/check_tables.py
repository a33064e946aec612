#!/usr/bin/env python3
"""check_tables.py CTEST BUILD SOURCE: docs/bug-cases.md and docs/wants.md are whole, and every test that they name exists."""
import fnmatch
import re
import subprocess
import sys


def rows(path, key):
    """{key: cells} of the tables' rows whose first cell is a key."""
    out = {}
    with open(path, encoding="utf-8") as f:
        for line in f:
            cells = [c.strip() for c in line.replace("\\|", "\0").strip().strip("|").split("|")]
            if line.startswith("|") and re.fullmatch(key, cells[0]):
                if cells[0] in out:
                    sys.exit("%s: %s stands there twice" % (path, cells[0]))
                out[cells[0]] = cells
    return out


def main():
    ctest, build, source = sys.argv[1:4]
    listing = subprocess.run([ctest, "--test-dir", build, "-N"], stdout=subprocess.PIPE, check=True).stdout.decode()
    tests = re.findall(r"Test +#\d+: (\S+)", listing)
    faults = []
    bugs = rows(source + "/docs/bug-cases.md", r"B\d\d")
    wants = rows(source + "/docs/wants.md", r"\d+")
    for table, want in ((bugs, ["B%02d" % i for i in range(1, 36)]), (wants, [str(i) for i in range(1, 41)])):
        faults += ["no row %s" % k for k in want if k not in table]
        for k, cells in table.items():
            for name in re.findall(r"`([^`]+)`", cells[-1]):
                # patterns stand for families of tests; fuzz_X is replayed by fuzz-replay-X
                name = re.sub(r"^fuzz_(\w+)$", r"fuzz-replay-\1", name)
                if not fnmatch.filter(tests, name):
                    faults.append("row %s: no test is called %s" % (k, name))
    for k in bugs:
        if "bug-" + k not in tests:
            faults.append("no test bug-" + k)
    print("\n".join(faults + ["%d tests, %d rows, %d faults" % (len(tests), len(bugs) + len(wants), len(faults))]))
    return 1 if faults or not tests else 0


sys.exit(main())
