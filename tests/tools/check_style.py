#!/usr/bin/env python3
"""House rules that a few seconds of reading can check.

    check_style.py ROOT                      all rules but the format
    check_style.py ROOT --format PROGRAM     only: clang-format would change nothing
    check_style.py --self-test               each rule finds a planted fault

Prints one line a fault, FILE:LINE: rule: what; exit 1 where there is one. Functions over 80 lines are listed,
those over 100 are faults.
"""
import os
import re
import subprocess
import sys
import tempfile

FOLDERS = ("runtime", "codegen", "kernel_src", "tests")
SUFFIXES = (".c", ".h", ".cu", ".cuh")
MAX_FILE, LONG_FUNCTION, MAX_FUNCTION = 600, 80, 100

# A file includes its own room and rooms of a lower rank.
RANKS = {"base": 0, "model": 1, "text": 2, "codegen": 2, "cpu": 3, "cuda": 3, "engine": 4, "cli": 5}

# Families whose names may only stand in data. Names that are also English words or numbers are given whole.
FAMILIES = (r"qwen\w*|gemma\w*|llama\w*|mistral\w*|mixtral\w*|phi[234]\w*|olmo\w*|granite\w*|cohere[0-9]*|falcon\w*|"
            r"starcoder\w*|stablelm\w*|smollm\w*|deepseek\w*|chatglm\w*|glm4\w*|exaone\w*|gptneox\w*|bloom|baichuan\w*|"
            r"apertus|arcee|bitnet|codeshell|command[-_]r\w*|deci|ernie4\w*|hunyuan\w*|internlm\w*|jais\w*|maincoder|"
            r"minicpm\w*|mpt|nanbeige|nemotron\w*|openelm|orion|pangu\w*|plamo\w*|refact|seed[-_]oss|talkie|xverse")
# The other engine and its programs.
NOT_FAMILIES = re.compile(r"llama[._]cpp|llama-(bench|cli|server|tokenize|perplexity)")
FAMILY = re.compile(r"(?<![A-Za-z0-9])(%s)(?![A-Za-z0-9])" % FAMILIES, re.I)

OUTPUT = re.compile(r"(?<![\w.>])(exit|_exit|abort|printf|puts|putchar|perror|vprintf)\s*\(|\bstd(?:out|err)\b")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def sources(root):
    for folder in FOLDERS:
        for place, folders, files in os.walk(os.path.join(root, folder)):
            folders.sort()
            for name in sorted(files):
                if name.endswith(SUFFIXES):
                    yield os.path.relpath(os.path.join(place, name), root).replace(os.sep, "/")


def room(path):
    """The room that a path below ROOT, or a quoted include, lies in; None: no room."""
    parts = path.split("/")
    if parts[0] == "runtime":
        parts = parts[1:]
    return parts[0] if len(parts) > 1 and parts[0] in RANKS else None


def without_comments(text):
    """The text with comments and the insides of string literals blanked, lines kept."""
    def blank(match):
        word = match.group(0)
        return re.sub(r"[^\n]", " ", word) if word.startswith("/") else word[0] + word[0]
    return re.sub(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'", blank, text, flags=re.S)


def check_includes(path, lines):
    mine = room(path)
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match or mine is None:
            continue
        name = match.group(1)
        theirs = room(name)
        if theirs and theirs != mine and RANKS[theirs] >= RANKS[mine]:
            yield number, "include", "%s may not include %s" % (mine, name)
        elif ".." in name or "/" not in name:
            yield number, "include", 'write the room: "%s/..." and no ".."' % mine


def functions(lines):
    """(first line, length) of what begins with a brace in the first column, its head included."""
    head = start = None
    for number, line in enumerate(lines, 1):
        if start is None:
            if line.startswith("{"):
                start = head or number
            elif not line.strip() or line[0] in "}#/" or line.rstrip().endswith(";"):
                head = None
            elif head is None and not line[0].isspace():
                head = number
        elif line.startswith("}"):
            yield start, number - start + 1
            head = start = None


def check_file(root, path, notes):
    with open(os.path.join(root, path), encoding="utf-8") as f:
        text = f.read()
    lines, code = text.split("\n"), without_comments(text).split("\n")
    if len(lines) - 1 > MAX_FILE:
        yield 1, "length", "%d lines, at most %d" % (len(lines) - 1, MAX_FILE)
    for start, length in functions(lines):
        if length > MAX_FUNCTION:
            yield start, "length", "a function of %d lines, at most %d" % (length, LONG_FUNCTION)
        elif length > LONG_FUNCTION:
            notes.append("%s:%d: note: a function of %d lines" % (path, start, length))
    yield from check_includes(path, lines)
    tests = path.startswith("tests/")
    for number, (line, bare) in enumerate(zip(lines, code), 1):
        if UNFINISHED.search(line):
            yield number, "unfinished", line.strip()[:80]
        if tests:
            continue
        match = FAMILY.search(NOT_FAMILIES.sub("", line))
        if match:
            yield number, "name", "'%s': names of architectures belong to model_configs/" % match.group(1)
        if path.startswith("kernel_src/") and path != "kernel_src/ptx.cuh" and re.search(r"\basm\b", bare):
            yield number, "ptx", "inline PTX belongs to kernel_src/ptx.cuh"
        if not path.startswith(("runtime/cli/", "kernel_src/")) and OUTPUT.search(bare):
            yield number, "output", "only the command line prints or exits: %s" % line.strip()[:80]


def check(root):
    faults, notes, seen = [], [], 0
    for path in sources(root):
        seen += 1
        faults += ["%s:%d: %s: %s" % (path, n, rule, what) for n, rule, what in check_file(root, path, notes)]
    return faults, notes, seen


def check_format(root, program):
    paths = list(sources(root))
    done = subprocess.run([program, "--dry-run", "-Werror", "--ferror-limit=3"] + paths, cwd=root, stderr=subprocess.PIPE)
    sys.stderr.write(done.stderr.decode(errors="replace"))
    print("%d files, clang-format %s" % (len(paths), "would change some" if done.returncode else "is content"))
    return 1 if done.returncode or not paths else 0


def self_test():
    long_function = "int f(void)\n{\n" + "    g();\n" * 120 + "}\n"
    planted = {
        "runtime/base/up.c": ('#include "model/gguf.h"\n', "include"),
        "runtime/text/side.c": ('#include "codegen/plan.h"\n', "include"),
        "runtime/cpu/near.c": ('#include "gguf.h"\n', "include"),
        "runtime/model/long.c": ("int x;\n" * 601, "length"),
        "runtime/model/deep.c": (long_function, "length"),
        "codegen/name.c": ("// as Qwen3 does\n", "name"),
        "runtime/cpu/name.c": ('if (!strcmp(arch, "llama"))\n', "name"),
        "kernel_src/a.cu": ('    asm volatile("nop;");\n', "ptx"),
        "runtime/engine/out.c": ("    exit(1);\n", "output"),
        "runtime/engine/err.c": ('    fprintf(stderr, "x");\n', "output"),
        "tests/unit/later.c": ("// TODO\n", "unfinished"),
    }
    clean = {
        "runtime/engine/fine.c": ('#include "model/gguf.h"\n#include "engine/quern.h"\n'
                                  "// exit() as llama.cpp does; coherent\nint f(void)\n{\n    return q->exit(\"abort(\");\n}\n"),
        "kernel_src/ptx.cuh": 'asm("nop;");\n',
        "runtime/cli/main.c": "    exit(1);\n",
        "tests/unit/names.c": "// qwen3\n",
    }
    with tempfile.TemporaryDirectory() as root:
        for path, text in list(clean.items()) + [(p, t) for p, (t, _) in planted.items()]:
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                f.write(text)
        found = {(f.split(":")[0], f.split(": ")[1]) for f in check(root)[0]}
    expected = {(path, rule) for path, (_, rule) in planted.items()}
    for fault in sorted(found ^ expected):
        print("self-test: %s: %s" % (fault, "not found" if fault in expected else "found where there is none"))
    print("self-test: %d of %d planted faults found" % (len(found & expected), len(expected)))
    return 1 if found != expected else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) == 4 and sys.argv[2] == "--format":
        return check_format(sys.argv[1], sys.argv[3])
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    faults, notes, seen = check(sys.argv[1])
    print("\n".join(notes + faults + ["%d files, %d faults" % (seen, len(faults))]))
    return 1 if faults or not seen else 0


if __name__ == "__main__":
    sys.exit(main())
