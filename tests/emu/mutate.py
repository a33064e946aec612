#!/usr/bin/env python3
"""How many single-line faults in kernel sources do the emulated op tests catch?

    mutate.py BUILD_DIR [--seed N] [--count N] [--template NAME.cu] [--skip NAME.cu]... [--log FILE]

Picks lines of kernel_src/ at random, changes one thing in each (a bound, an operand, a barrier, a mask, a scale), compiles
the programs of one template that uses the line, links them before the unchanged ones, and runs the cases of its op. Prints
one line a mutant: caught, survived, or no program (the compiler refuses it). Needs a build with the target emu_ops.
"""
import argparse
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

OPS = {"argmax.cu": "argmax", "attention_decode.cu": "attention", "attention_mma.cu": "attention",
       "attention_rope.cu": "attention", "attention_prefill.cu": "attention", "kv_expand.cu": "attention", "dequant.cu": "linear",
       "embed.cu": "embed", "glu.cu": "glu", "glu_act.cu": "glu", "glu_q8.cu": "glu", "linear.cu": "linear",
       "linear_post.cu": "linear", "linear_q8.cu": "linear", "linear_cols.cu": "linear", "glu_cols.cu": "glu",
       "linear_half.cu": "linear", "glu_half.cu": "glu", "mix.cu": "mix", "norm.cu": "norm", "quantise.cu": "linear",
       "repack.cu": "linear", "rope_kv.cu": "rope_kv", "select.cu": "select", "to_half.cu": "linear"}
# A template through which a header's lines are tried.
HEADERS = {"attention_mma.cuh": "attention_rope.cu", "kv_q8.cuh": "attention_rope.cu", "rope.cuh": "rope_kv.cu",
           "epilogue.cuh": "linear_post.cu", "gemv.cuh": "linear.cu", "gemv_q8.cuh": "linear_q8.cu", "gemv_cols.cuh": "linear_cols.cu",
           "gemv_half.cuh": "linear_half.cu",
           "planes.cuh": "linear_q8.cu", "quantise.cuh": "quantise.cu", "reduce.cuh": "norm.cu"}

# (name, pattern, replacement)
CHANGES = [
    ("no barrier", r"__sync(threads|warp)\(\);", ";"),
    ("wrong mask", r"0xffffffffu", "0x7fffffffu"),
    ("bound off by one", r" < ", " <= "),
    ("bound off by one", r" >= ", " > "),
    ("index off by one", r"\[(\w+)\]", r"[\1 + 1]"),
    ("plus for minus", r" - ", " + "),
    ("minus for plus", r" \+ ", " - "),
    ("wrong stride", r" \* (\w+)\b(?!::|\(|\[)", r" * (\1 + 1)"),
    ("division for product", r"(\w+) \* (?=\w)", r"\1 / "),
    ("shift", r"( >> |\s<<\s)(\w+)", r"\1(\2 + 1)"),
    ("max for min", r"\bmin\(", "max("),
    ("min for max", r"\bfmaxf\(", "fminf("),
    ("constant", r"\b(\d+)\.0f\b", r"\1.5f"),
    ("constant", r"\b(\d+)\b(?![.\w])", lambda m: str(int(m.group(1)) + 1)),
    ("negated condition", r"if \((?!constexpr)", "if (!("),
]


def mutants(kernel_dir, template, rng):
    """All (file, line number, name, new line), shuffled."""
    found = []
    for name in sorted(os.listdir(kernel_dir)):
        if name not in OPS and name not in HEADERS or template and (template != HEADERS.get(name, name)):
            continue
        with open(os.path.join(kernel_dir, name), encoding="utf-8") as f:
            for number, line in enumerate(f, 1):
                code = line.split("//")[0]
                if not code.startswith("    ") or "static_assert" in code or "ptx_grid" in code:
                    continue
                for what, pattern, new in CHANGES:
                    places = list(re.finditer(pattern, code))
                    if not places:
                        continue
                    at = rng.choice(places)
                    text = code[:at.start()] + at.expand(new) + code[at.end():] if isinstance(new, str) else \
                        code[:at.start()] + new(at) + code[at.end():]
                    if what == "negated condition":
                        close = text.find(") {", at.start())
                        if close < 0:
                            continue
                        text = text[:close] + ")" + text[close:]
                    found.append((name, number, what, text.rstrip() + "\n"))
    rng.shuffle(found)
    return found


def commands(build):
    """Compile command of a shard, link command of emu_ops, as argument lists, from the build's own files."""
    make = os.path.join(build, "tests", "CMakeFiles")
    with open(os.path.join(make, "emu_kernels.dir", "flags.make")) as f:
        flags = dict(line.split(" = ", 1) for line in f.read().splitlines() if " = " in line)
    compile_command = ["g++"] + shlex.split(flags.get("CXX_DEFINES", "") + " " + flags.get("CXX_INCLUDES", "") + " " +
                                            flags.get("CXX_FLAGS", ""))
    with open(os.path.join(make, "emu_ops.dir", "link.txt")) as f:
        return compile_command, shlex.split(f.read())


def run(command, cwd, limit):
    try:
        done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit)
        return done.returncode, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired:
        return -1, "ran for more than %d s" % limit


def try_mutant(build, source, mutant, compile_command, link, work):
    name, number, _, text = mutant
    template = HEADERS.get(name, name)
    kernels = os.path.join(work, "kernel_src")
    shutil.rmtree(kernels, ignore_errors=True)
    shutil.copytree(source, kernels)
    with open(os.path.join(kernels, name), encoding="utf-8") as f:
        lines = f.readlines()
    lines[number - 1] = text
    with open(os.path.join(kernels, name), "w", encoding="utf-8") as f:
        f.writelines(lines)
    tests = os.path.join(build, "tests")
    rc, out = run([os.path.join(tests, "emu_gen"), kernels, work, "1", "--only", template], tests, 60)
    if rc:
        return "no program", out.splitlines()[-1] if out else ""
    flags = [a.replace(source, kernels) for a in compile_command]
    rc, out = run(flags + ["-c", os.path.join(work, "shard_00.cpp"), "-o", os.path.join(work, "mutant.o")], tests, 600)
    if rc:
        errors = [line for line in out.splitlines() if "error" in line]
        return "no program", errors[0][-120:] if errors else ""
    link = list(link)
    link[link.index("-o") + 1] = os.path.join(work, "emu_ops")
    first = next(i for i, a in enumerate(link) if a.endswith(".o"))
    link.insert(first, os.path.join(work, "mutant.o"))
    rc, out = run(link, tests, 120)
    if rc:
        return "no program", out[-200:]
    rc, out = run([os.path.join(work, "emu_ops"), OPS[template]], tests, 300)
    failed = [line for line in out.splitlines() if line.startswith("FAILED")]
    return ("caught" if rc else "survived"), (failed[0][:160] if failed else out[-120:].strip() if rc else "")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--template")
    parser.add_argument("--skip", action="append", default=[], help="a template that is left out")
    parser.add_argument("--log")
    a = parser.parse_args()
    source = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "kernel_src"))
    compile_command, link = commands(a.build)
    tally = {"caught": 0, "survived": 0, "no program": 0}
    log = open(a.log, "w") if a.log else sys.stdout
    with tempfile.TemporaryDirectory() as work:
        for mutant in mutants(source, a.template, random.Random(a.seed)):
            if tally["caught"] + tally["survived"] >= a.count:
                break
            if HEADERS.get(mutant[0], mutant[0]) in a.skip:
                continue
            how, why = try_mutant(os.path.abspath(a.build), source, mutant, compile_command, link, work)
            tally[how] += 1
            print("%-10s %s:%d %s: %s   [%s]" % (how, mutant[0], mutant[1], mutant[2], mutant[3].strip(), why), file=log, flush=True)
    print("%d caught, %d survived, %d did not compile" % (tally["caught"], tally["survived"], tally["no program"]), file=log)
    return 0


sys.exit(main())
