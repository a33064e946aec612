#!/usr/bin/env python3
"""persistent_turns.py QUERN MODEL...: in the PTX of each model's persistent kernel no register that is made before its
hidden loop (ptx_hidden_for in kernel_src/ptx.cuh) is made again in it: the second turn would find what the first one left.
Needs NVRTC, no GPU."""
import os
import re
import subprocess
import sys
import tempfile

LABEL = "QN_TURN:"
MADE = re.compile(r"^\{?\s*(?:@!?%?\w+\s+)?([a-z][\w.:]*)\s+(\{[^}]*\}|%\w+(?:\|%\w+)?)\s*,")
NOTHING_MADE = ("st.", "red.", "bar", "cp.", "prefetch", "mbarrier.init", "stmatrix")


def made(line):
    m = MADE.match(line.strip())
    if not m or m.group(1).startswith(NOTHING_MADE):
        return []
    return re.findall(r"%\w+", m.group(2))


def changed(ptx):
    """Registers made before the loop, and lines in the loop that make one of them again; None without a loop."""
    lines = ptx.split("\n")
    at = [i for i, line in enumerate(lines) if LABEL in line]
    if len(at) != 1:
        return None
    before = {r for line in lines[:at[0]] for r in made(line)}
    return before, [line.strip() for line in lines[at[0]:] if before & set(made(line))]


def main():
    quern, models = sys.argv[1], sys.argv[2:]
    good = "mov.u32 %r1, %ctaid.x;\nmov.u32 x, 0;\nQN_TURN:\nmov.u32 %r2, %tid.x;\nadd.s32 %r2, %r2, 1;\n"
    bad = "mov.u32 %r1, %tid.x;\nQN_TURN:\n{ld.v2.u32 {%r3, %r4}, [%rd1];}\n@%p1 add.s32 %r1, %r1, 512;\n"
    if changed(good)[1] or changed(bad)[1] != ["@%p1 add.s32 %r1, %r1, 512;"] or changed("ret;"):
        sys.exit("persistent_turns: does not see what it looks for")
    faults = 0
    for model in models:
        with tempfile.TemporaryDirectory() as folder:
            run = subprocess.run([quern, "ptx", model, "--persistent", "--arch", "sm_90a", "--tune", "off", "--kernel",
                                  "persistent*", "--what", "ptx", "-o", folder], capture_output=True, text=True)
            files = [f for f in os.listdir(folder) if f.endswith(".ptx")]
            if run.returncode or len(files) != 1:
                sys.exit("%s: %d files, exit status %d\n%s" % (model, len(files), run.returncode, run.stderr))
            with open(os.path.join(folder, files[0]), encoding="utf-8") as f:
                found = changed(f.read())
        if found is None or not found[0]:
            sys.exit("%s: no loop, or nothing before it" % model)
        print("%s: %d registers before the loop, %d changed in it" % (os.path.basename(model), len(found[0]), len(found[1])))
        for line in found[1][:5]:
            print("    " + line)
        faults += len(found[1])
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
