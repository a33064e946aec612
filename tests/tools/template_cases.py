#!/usr/bin/env python3
"""Every case of an archive of chat templates.

    template_cases.py QUERN ARCHIVE.tar.xz N_CASES

The archive holds NAME.jinja with NAME.cases.jsonl; `quern template --cases` must say "N of N" for each and N_CASES in all.
A damaged expectation must be found: one case's expected text is changed, and must fail.
"""
import json
import os
import subprocess
import sys
import tarfile
import tempfile


def run(quern, template, cases):
    done = subprocess.run([quern, "template", "--file", template, "--cases", cases], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=120)
    return done.returncode, done.stdout.decode(errors="replace")


def main():
    quern, archive, n_cases = sys.argv[1], sys.argv[2], int(sys.argv[3])
    failed = total = 0
    with tempfile.TemporaryDirectory() as work:
        with tarfile.open(archive) as tar:
            for member in tar.getmembers():
                if not member.isfile() or os.path.basename(member.name) != member.name:
                    sys.exit("unexpected member %s" % member.name)
                tar.extract(member, work)
        names = sorted(n[:-6] for n in os.listdir(work) if n.endswith(".jinja"))
        for name in names:
            path = os.path.join(work, name)
            status, text = run(quern, path + ".jinja", path + ".cases.jsonl")
            last = text.rstrip("\n").split("\n")[-1].split(" of ")
            if status != 0 or len(last) != 2 or last[0] != last[1]:
                print("%s: status %d\n%s" % (name, status, text))
                failed = 1
            else:
                total += int(last[0])
        path = os.path.join(work, names[0])
        with open(path + ".cases.jsonl", encoding="utf-8") as f:
            case = json.loads(f.readline())
        case["expect"] += "!"
        with open(path + ".wrong.jsonl", "w", encoding="utf-8") as f:
            f.write(json.dumps(case) + "\n")
        status, text = run(quern, path + ".jinja", path + ".wrong.jsonl")
        if status != 1 or not text.endswith("0 of 1\n"):
            print("a wrong expectation passed: status %d\n%s" % (status, text))
            failed = 1
    print("%d templates, %d cases" % (len(names), total))
    if total != n_cases:
        print("there should be %d cases" % n_cases)
        failed = 1
    return failed


sys.exit(main())
