#!/usr/bin/env python3
"""How many single-line faults in kernel sources do the emulated tests catch?

    mutate.py BUILD_DIR [--seed N] [--count N] [--least N] [--file NAME]... [--log FILE.tsv] [--again FILE.tsv]
    mutate.py --report FILE.tsv [--notes FILE.tsv]

Changes one thing in each of COUNT lines of kernel_src/ (a bound, an index, an operand, a barrier, a fence, a mask, a scale,
a window's edge), each file getting a share by its length and at least LEAST (2). For each mutant the programs of one template
that uses the line are built, a few at a time, linked before the unchanged ones, and the cases of its op that launch one of
them are run (of samplers and the persistent kernel: the tests they have instead); the first that fails ends it. The log has
one line a mutant: how, file, line, kind, old text, new text, what caught it.

A log that is there already is gone on with. --again runs the mutants of a log again that are not "caught" there (for
instance after new cases). --report prints a log as the table of docs/mutation-report.md; the notes, a line a mutant (file,
old text, new text, note), say what survivors are. Needs a build with the targets emu_ops, emu_sample and emu_model. Runs
one mutant at a time; `nice` it.
"""
import argparse
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

OPS = {"altup.cu": "altup", "argmax.cu": "argmax", "attention_decode.cu": "attention",
       "attention_mma.cu": "attention", "attention_rope.cu": "attention", "kv_expand.cu": "attention", "attention_prefill.cu": "attention",
       "attention_wgmma.cu": "attention", "dequant.cu": "linear", "dequant_fp8.cu": "linear", "product_wgmma.cu": "linear",
       "to_fp8.cu": "linear", "embed.cu": "embed", "glu.cu": "glu", "glu_act.cu": "glu", "glu_rows.cu": "glu", "norm_rows.cu": "norm linear", "rope_rows.cu": "rope_kv attention",
       "glu_q8.cu": "glu", "latent_kv.cu": "latent_kv", "linear.cu": "linear", "linear_post.cu": "linear",
       "linear_q8.cu": "linear", "linear_cols.cu": "linear", "linear_rows.cu": "linear", "glu_cols.cu": "glu", "linear_half.cu": "linear",
       "glu_half.cu": "glu", "mix.cu": "mix", "mul.cu": "mul", "norm.cu": "norm linear", "quantise.cu": "linear",
       "persistent.cu": "-", "product.cu": "linear", "product_q8.cu": "linear", "sample_full.cu": "argmax", "sample_topk.cu": "argmax",
       "attention_tma.cu": "attention", "repack.cu": "linear", "rescale.cu": "rescale", "rope_kv.cu": "rope_kv", "select.cu": "select", "to_half.cu": "linear"}
# Other test programs than emu_ops: a template's, with their runs.
SAMPLER = ("emu_sample", [[], ["large"]])
PROGRAMS = {"sample_topk.cu": SAMPLER, "sample_full.cu": SAMPLER, "persistent.cu": ("emu_model", None)}
# Templates through which a header's lines are tried, one after the other.
HEADERS = {"attention_rows.cuh": ["attention_prefill.cu", "attention_wgmma.cu"], "epilogue.cuh": ["linear_post.cu", "linear_q8.cu"],
           "fp8.cuh": ["to_fp8.cu", "dequant_fp8.cu"], "gemv.cuh": ["linear.cu"], "gemv_q8.cuh": ["linear_q8.cu", "glu_q8.cu"],
           "gemv_cols.cuh": ["linear_cols.cu", "glu_cols.cu"], "columns.cuh": ["linear_cols.cu", "glu_cols.cu"], "gemv_half.cuh": ["linear_half.cu", "glu_half.cu"], "planes.cuh": ["linear_q8.cu", "linear.cu", "dequant.cu"],
           "quantise.cuh": ["quantise.cu", "linear_q8.cu"], "reduce.cuh": ["norm.cu", "to_half.cu"], "row_sum.cuh": ["linear_q8.cu"], "half_row.cuh": ["to_half.cu"],
           "attention_mma.cuh": ["attention_rope.cu", "attention_mma.cu"], "attention_merge.cuh": ["attention_rope.cu", "attention_mma.cu"], "kv_q8.cuh": ["attention_rope.cu"], "rope.cuh": ["rope_kv.cu", "attention_rope.cu"],
           "query_tile.cuh": ["attention_tma.cu", "rope_rows.cu"], "chunk.cuh": ["norm_rows.cu", "glu_rows.cu"], "attention_wgmma.cuh": ["attention_wgmma.cu", "attention_tma.cu"],
           "sample.cuh": ["sample_topk.cu", "sample_full.cu"], "persistent_begin.cuh": ["persistent.cu"], "ring.cuh": ["persistent.cu"]}
# The emulator's twins stand for them, or they only declare.
NOT_MUTATED = {"again.cuh", "ptx.cuh", "read_limit.cu", "types.cuh"}
SOURCE = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "kernel_src"))
PART = 16  # programs that are built before the cases are tried

# (name, pattern, replacement, only lines that match)
CHANGES = [
    ("no barrier", r"__sync(threads|warp)\(\);", ";", ""),
    ("no fence", r"(__threadfence(_block)?|ptx_\w*fence\w*|ptx_copy_commit|ptx_wgmma_commit)\([^;]*\);", ";", ""),
    ("no wait", r"ptx_(copy|wgmma|barrier)_wait[^;]*;", ";", ""),
    ("wrong mask", r"0xffffffffu", "0x7fffffffu", ""),
    ("window edge", r" (<|>=|>) ", lambda m: {"<": " <= ", ">=": " > ", ">": " >= "}[m.group(1)], "window|visible|mask|first|pos"),
    ("bound off by one", r" < ", " <= ", ""),
    ("bound off by one", r" >= ", " > ", ""),
    ("index off by one", r"\[(\w+)\]", r"[\1 + 1]", ""),
    ("index off by one", r"\[([^\[\]]*[+*][^\[\]]*)\]", r"[\1 + 1]", ""),
    ("plus for minus", r" - ", " + ", ""),
    ("minus for plus", r" \+ ", " - ", ""),
    ("wrong stride", r" \* (\w+)\b(?!::|\(|\[)", r" * (\1 + 1)", ""),
    ("division for product", r"(\w+) \* (?=\w)", r"\1 / ", ""),
    ("swapped operands", r"(\w+)\((\w+), (\w+)\)(?! *\{)", r"\1(\3, \2)", ""),
    ("swapped branches", r" \? ([^?:]+) : ([^?:;,]+)(?=[;,)])", r" ? \2 : \1", ""),
    ("shift", r"( >> |\s<<\s)(\w+)", r"\1(\2 + 1)", ""),
    ("wrong lanes", r"\b(16|8|4|2|1)\b(?=\)|;)", lambda m: str(2 * int(m.group(1))), "shfl|shuffle|lane"),
    ("and for or", r" \|\| ", " && ", ""),
    ("or for and", r" && ", " || ", ""),
    ("max for min", r"\bmin\(", "max(", ""),
    ("min for max", r"\bfmaxf\(", "fminf(", ""),
    ("wrong scale", r"\b(\d+)\.0f\b", r"\1.5f", ""),
    ("wrong scale", r" \* (\w*scale\w*)", r"", ""),
    ("constant", r"\b(\d+)\b(?![.\w])", lambda m: str(int(m.group(1)) + 1), ""),
    ("negated condition", r"if \((?!constexpr)", "if (!(", ""),
]


def templates_of(name):
    return HEADERS.get(name, [name])


def where_now(lines, number, old):
    """The number of the line nearest to the given one that has this text; 0: it is gone."""
    places = [i for i, line in enumerate(lines, 1) if line.split("//")[0].strip() == old or line.strip() == old]
    return min(places, key=lambda i: abs(i - number)) if places else 0


def mutants_of(path, name, rng):
    """All mutants of a file, as (file, line number, kind, old line, new line)."""
    found = []
    with open(path, encoding="utf-8") as f:
        lines = f.readlines()
    for number, line in enumerate(lines, 1):
        code = line.split("//")[0].rstrip("\n")
        if not code.startswith("    ") or code.strip().startswith("*") or "/*" in code or "static_assert" in code or \
                "ptx_grid" in code:
            continue
        for what, pattern, new, only in CHANGES:
            places = list(re.finditer(pattern, code)) if re.search(only, code) else []
            if not places:
                continue
            at = rng.choice(places)
            text = code[:at.start()] + (at.expand(new) if isinstance(new, str) else new(at)) + code[at.end():]
            if what == "negated condition":
                close = text.find(") {", at.start())
                if close < 0:
                    continue
                text = text[:close] + ")" + text[close:]
            if text.strip() != code.strip():
                found.append((name, number, what, line.strip(), text.strip()))
    return found


def choose(kernel_dir, files, count, least, rng):
    """Mutants in the order they are tried, and how many each file is to have: kinds and lines alternate."""
    quota, order = {}, {}
    for name in sorted(os.listdir(kernel_dir)):
        if not re.search(r"\.cuh?$", name) or name in NOT_MUTATED or files and name not in files:
            continue
        if any(t not in OPS for t in templates_of(name)):
            sys.exit("mutate.py: no op runs " + name + " (table OPS or HEADERS)")
        found = mutants_of(os.path.join(kernel_dir, name), name, rng)
        rng.shuffle(found)
        seen = {}
        for m in found:  # a kind's and a line's second mutant comes after all first ones
            m_rank = seen.get(m[2], 0) + 3 * seen.get(m[1], 0)
            seen[m[2]] = seen.get(m[2], 0) + 1
            seen[m[1]] = seen.get(m[1], 0) + 1
            order.setdefault(name, []).append((m_rank, m))
        order[name].sort(key=lambda pair: pair[0])
        quota[name] = len({m[1] for m in found})
    lines = sum(quota.values())
    spare = max(count - least * len(quota), 0)
    names = list(quota)
    rng.shuffle(names)  # a run that is ended early has tried files at random
    return {n: [m for _, m in order[n]] for n in names}, {n: least + round(spare * quota[n] / lines) for n in quota}


def compile_command_of(build):
    """Compile command of a shard as an argument list, from the build's own files."""
    with open(os.path.join(build, "tests", "CMakeFiles", "emu_kernels.dir", "flags.make")) as f:
        flags = dict(line.split(" = ", 1) for line in f.read().splitlines() if " = " in line)
    return ["g++"] + shlex.split(flags.get("CXX_DEFINES", "") + " " + flags.get("CXX_INCLUDES", "") + " " + flags.get("CXX_FLAGS", ""))


def link_command_of(build, program, work):
    """Link command of a test program, with the mutant's object before the others."""
    with open(os.path.join(build, "tests", "CMakeFiles", program + ".dir", "link.txt")) as f:
        command = shlex.split(f.read())
    command[command.index("-o") + 1] = os.path.join(work, program)
    command.insert(next(i for i, a in enumerate(command) if a.endswith(".o")), os.path.join(work, "mutant.o"))
    return command


def persistent_run():
    """Model, and arguments of emu_model."""
    ring = os.path.join(SOURCE, "..", "tests", "data", "ring", "llama-ring.")
    return ring + "gguf", [ring + "gguf", ring + "tokens", ring + "xlogits", "90", "2e-4", "ring"]


def run(command, cwd, limit):
    try:
        done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit)
        return done.returncode, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired:
        return -1, "FAILED ran for more than %d s" % limit


def shorten(out, root):
    """The first failure of a run: the case, and the finding or the error."""
    failed = [line for line in out.splitlines() if line.startswith("FAILED")] or out.strip().splitlines()[-1:] or [""]
    text = failed[0].replace("FAILED ", "").replace(root + "/", "")
    return re.sub(r"\s+", " ", re.sub(r"0x[0-9a-f]+", "", text))[:150]


def try_mutant(build, source, mutant, work):
    name, number, _, old, text = mutant
    kernels = os.path.join(work, "kernel_src")
    shutil.rmtree(kernels, ignore_errors=True)
    shutil.copytree(source, kernels)
    path = os.path.join(kernels, name)
    with open(path, encoding="utf-8") as f:
        lines = f.readlines()
    number = where_now(lines, number, old)
    if not number:
        return "gone", "the line is another now"
    lines[number - 1] = "    " + text + "\n"
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(lines)
    for template in templates_of(name):
        for op in OPS[template].split():
            how, why = try_template(build, source, kernels, template, op, work)
            if how != "survived":
                return how, why
    return how, why


def try_template(build, source, kernels, template, op, work):
    tests = os.path.join(build, "tests")
    gen = [os.path.join(tests, "emu_gen"), kernels, work, str(PART), "--only", template, op]
    program, runs = PROGRAMS.get(template, ("emu_ops", [[op, "--added"]]))
    if template == "persistent.cu":
        model, arguments = persistent_run()
        gen.append(model)
        runs = [arguments]
    rc, out = run(gen, tests, 300)
    if rc:
        return "no program", out.splitlines()[-1] if out else ""
    n_part = max(1, -(-int(re.search(r"(\d+) programs", out).group(1)) // PART))
    flags = [a.replace(source, kernels) for a in compile_command_of(build)]
    link = link_command_of(build, program, work)
    for part in range(n_part):
        rc, out = run(flags + ["-c", os.path.join(work, "shard_%02d.cpp" % part), "-o", os.path.join(work, "mutant.o")], tests, 1800)
        if rc:
            errors = [line for line in out.splitlines() if "error" in line]
            return "no program", errors[0][-100:] if errors else ""
        rc, out = run(link, tests, 600)
        if rc:
            return "no program", out[-100:]
        for arguments in runs:
            rc, out = run([os.path.join(work, program)] + arguments, tests, 1800)
            if rc:
                return "caught", shorten(out, kernels) or "ended with status %d" % rc
    return "survived", ""


def read_log(path):
    with open(path, encoding="utf-8") as f:
        return [line.rstrip("\n").split("\t") for line in f if line.count("\t") >= 5]


def report(path, notes_path):
    notes = {}
    if notes_path:
        with open(notes_path, encoding="utf-8") as f:
            notes = {tuple(line.rstrip("\n").split("\t")[:3]): line.rstrip("\n").split("\t")[3] for line in f if "\t" in line}
    rows = {}
    for r in read_log(path):  # a mutant that was tried again: its last line counts
        if r[0] in ("caught", "survived"):
            rows[tuple(r[1:6])] = r
    rows = list(rows.values())
    for r in rows:
        with open(os.path.join(SOURCE, r[1]), encoding="utf-8") as f:
            r[2] = str(where_now(f.readlines(), int(r[2]), r[4]) or "was " + r[2])
    caught = sum(r[0] == "caught" for r in rows)
    print("%d mutants, %d caught\n" % (len(rows), caught), file=sys.stderr)
    print("| file | line | fault | from | to | caught by, or why not |\n|---|---|---|---|---|---|")
    code = lambda text: "`" + text.replace("|", "\\|") + "`"
    for how, name, number, what, old, new, why in sorted(rows, key=lambda r: (r[1], int(r[2].split()[-1]))):
        note = notes.get((name, old, new), "")
        told = why.replace("|", "/") if how == "caught" else "**survived**: " + (note or "not explained")
        print("| %s | %s | %s | %s | %s | %s |" % (name, number, what, code(old), code(new), told))
    return 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", nargs="?")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=90)
    parser.add_argument("--least", type=int, default=2, help="mutants of each file")
    parser.add_argument("--file", action="append", help="only mutants of this kernel source")
    parser.add_argument("--log")
    parser.add_argument("--again", help="a log whose mutants that were not caught are tried again")
    parser.add_argument("--report")
    parser.add_argument("--notes")
    a = parser.parse_args()
    if a.report:
        return report(a.report, a.notes)
    if not a.build:
        parser.error("BUILD_DIR is needed")
    source = SOURCE
    if a.again:
        todo = [(r[1], int(r[2]), r[3], r[4], r[5]) for r in read_log(a.again) if r[0] != "caught"]
        lists, quota = {"": todo}, {"": len(todo)}
    else:
        lists, quota = choose(source, a.file, a.count, a.least, random.Random(a.seed))
    done = {}
    if a.log and os.path.exists(a.log):  # a run that was ended goes on
        done = {tuple(r[1:6]): r for r in read_log(a.log)}
    tally = {}
    log = open(a.log, "a", encoding="utf-8") if a.log else sys.stdout
    with tempfile.TemporaryDirectory() as work:
        for name in lists:
            left = quota[name]
            for mutant in lists[name]:
                if left == 0:
                    break
                known = done.get(tuple(str(m) for m in mutant))
                if known:
                    left -= known[0] in ("caught", "survived")
                    continue
                how, why = try_mutant(os.path.abspath(a.build), source, mutant, work)
                left -= how in ("caught", "survived")
                tally[how] = tally.get(how, 0) + 1
                print("\t".join([how] + [str(m) for m in mutant] + [why]), file=log, flush=True)
    print(", ".join("%d %s" % (n, how) for how, n in sorted(tally.items())))
    return 0


sys.exit(main())
