#!/usr/bin/env python3
"""Every case of an archive of chat templates.

    template_cases.py QUERN ARCHIVE.tar.xz N_CASES

The archive holds NAME.cases.jsonl, with NAME.jinja unless each case has a template of its own; `quern template --cases` must
say "N of N" for each and N_CASES in all. A damaged expectation must be found: one case's expected text is changed, and must fail.
"""
import json
import os
import subprocess
import sys
import tarfile
import tempfile


def run(quern, template, cases):
    which = ["--file", template] if os.path.exists(template) else []
    done = subprocess.run([quern, "template"] + which + ["--cases", cases], stdout=subprocess.PIPE,
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
        names = sorted(n[:-12] for n in os.listdir(work) if n.endswith(".cases.jsonl"))
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
        case["expect"] = case.get("expect", "") + "!"
        with open(path + ".wrong.jsonl", "w", encoding="utf-8") as f:
            f.write(json.dumps(case) + "\n")
        status, text = run(quern, path + ".jinja", path + ".wrong.jsonl")
        if status != 1 or not text.endswith("0 of 1\n"):
            print("a wrong expectation passed: status %d\n%s" % (status, text))
            failed = 1
    print("%d files, %d cases" % (len(names), total))
    if total != n_cases:
        print("there should be %d cases" % n_cases)
        failed = 1
    return failed


sys.exit(main())
