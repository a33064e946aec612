#!/usr/bin/env python3
"""Speed of every family beside a llama of the same shape: families.py BUILD_DIR OUT_DIR [options].

For each architecture, and each variant of one whose graph differs, a file of 4096 values a token and about 6 layers is made
(family_models.py) with the golden model's own tensors and choices, and the llama of the same shape; 'quern bench' measures both in
one process, one after the other. OUT_DIR gets families.json and families.md, a table in the order of the decode ratio.

Ratios: of tokens a second where a token reads as many bytes (decode) or takes as many operations (prompt) as with the llama, to
2 %; else of bytes or operations a second, and the table says how many times the llama's a token takes (x1.23). Medians. A feed-forward without a gate is half as wide again as the
llama's, which gives it as many weights.

    families.py BUILD_DIR OUT_DIR --warm CACHE     compiles the kernels, without a GPU, and measures nothing
    families.py --table OUT_DIR/families.json      prints the table of an earlier run
"""
import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import family_models as models  # noqa: E402

PER_PROCESS = 12  # files at a time; bench takes 16
PROMPTS, GEN = ("512", "2048"), "64"
TINY_PROMPTS, TINY_GEN = ("16", "48"), "8"
SAME = 0.02
LOW = 0.85
# Why a ratio may lie below LOW: letters of the list in docs/families.md.
WHY = {"gemma3n": "j", "gemma4-e2b": "i", "gemma4-e4b": "i", "gemma4-12b": "i", "gemma4-31b": "i", "minicpm3": "g", "bitnet": "h c",
       "exaone4": "f", "exaone4-64l": "d f", "olmo2": "e f", "olmo2-swa": "e f", "command-r-plus": "a c d", "gemma2-27b": "d",
       "gemma3-27b": "d", "nemotron": "a b", "apertus": "b", "arcee": "b", "talkie": "b",
       **dict.fromkeys(["falcon", "falcon-40b", "gptneox", "gptneox-seq", "gpt2", "starcoder", "starcoder2", "mpt", "mpt-clamp-act",
                        "codeshell", "bloom", "jais2", "phi2"], "a b c"),
       **dict.fromkeys(["cohere2", "command-r", "olmo", "orion", "stablelm", "stablelm-12b", "jais"], "a c")}


def jobs_of(names, tiny):
    """[(llama's shape, [(golden, shape)])], the same shapes together."""
    groups = {}
    for name, g in models.goldens().items():
        if name in names if names else name not in models.SAME_GRAPH:
            s = models.shape_of(g, tiny)
            groups.setdefault(models.llama_of(g, s), []).append((g, s))
    return list(groups.items())


def batches(groups):
    """Lists of [(path's name, make)] of at most PER_PROCESS files; every one holds the llamas that its families stand beside."""
    out, batch = [], []
    for number, (shape, members) in enumerate(groups):
        llama = ("llama-shape-%d" % number, lambda shape=shape: models.llama_file(shape))
        while members:
            if PER_PROCESS - len(batch) < 2:
                out.append(batch)
                batch = []
            room = PER_PROCESS - len(batch) - 1
            batch.append(llama + (llama[0],))
            batch += [(g.name, lambda g=g, s=s: models.family_file(g, s), llama[0]) for g, s in members[:room]]
            members = members[room:]
    return out + [batch] if batch else out


def make_all(work, batch, sparse, jobs):
    """All files of a batch, several at a time. The makers are functions that do not travel: processes are forked."""
    paths, running = [], {}
    for entry in batch:
        path = os.path.join(work, entry[0] + ".gguf")
        paths.append(path)
        if len(running) >= jobs:
            wait_one(running)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                models.write(path, *entry[1](), sparse=sparse)
                status = 0
            finally:
                os._exit(status)
        running[pid] = path
    while running:
        wait_one(running)
    return paths


def wait_one(running):
    pid, status = os.wait()
    path = running.pop(pid, None)
    if path and status != 0:
        sys.exit("families: %s could not be written" % path)


def bench(args, paths):
    """Rows of bench by file name. A model that fails ends the process: the others are measured by another one."""
    rows, left, failures = {}, list(paths), {}
    prompts, gen = (TINY_PROMPTS, TINY_GEN) if args.tiny else (PROMPTS, GEN)
    while left:
        command = [args.quern, "bench", *left, "-p", ",".join(prompts), "-n", gen, "-r", str(args.repeats), "-o", "jsonl",
                   "--backend", args.backend, "-q"] + (["--cache", args.cache] if args.cache else [])
        p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=args.timeout)
        for line in p.stdout.splitlines():
            r = json.loads(line)
            rows.setdefault(os.path.basename(r["model_filename"])[:-5], []).append(r)
        per_model = len(prompts) + 1
        failed = next((f for f in left if len(rows.get(os.path.basename(f)[:-5], [])) < per_model), None)
        if p.returncode == 0 or failed is None:
            break
        failures[os.path.basename(failed)[:-5]] = p.stderr.strip().splitlines()[-1:] or ["status %d" % p.returncode]
        left = left[left.index(failed) + 1:]
    return rows, failures


def launches(args, paths):
    """Of a token of decode, by file name."""
    def count(path):
        longest = (TINY_PROMPTS if args.tiny else PROMPTS)[-1]
        text = subprocess.run([args.quern, "plan", path, "-c", longest, "--kernels", "--phase", "decode"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=True).stdout
        return len(re.findall(r"^ {5}(?!grid)\S", text.split("# decode")[1], re.M))
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        return dict(zip([os.path.basename(p)[:-5] for p in paths], pool.map(count, paths)))


def test_name(row):
    return "tg" if row["n_gen"] else "pp%d" % row["n_prompt"]


def ratio(row, llama):
    """(ratio, whether a token costs as much in both, what it costs by what it costs there)"""
    rate = "gb_per_second" if row["n_gen"] else "tflop_per_second"
    cost = row[rate] * row["avg_ns"] / (llama[rate] * llama["avg_ns"])
    same, speed = abs(cost - 1) <= SAME, row["median_ts"] / llama["median_ts"]
    return (speed if same else speed * cost), same, cost


def results(batch, rows, counts):
    out = []
    for name, _, llama in batch:
        if name == llama or name not in rows or llama not in rows:
            continue
        result = {"model": name, "llama": llama, "launches": counts[name], "llama_launches": counts[llama], "tests": {}}
        for row, beside in zip(rows[name], rows[llama]):
            value, same, cost = ratio(row, beside)
            result["arch"] = row["model_type"]
            result["tests"][test_name(row)] = {"ts": row["median_ts"], "stddev": row["stddev_ts"], "llama_ts": beside["median_ts"],
                                               "ratio": value, "same_cost": same, "cost": cost}
        out.append(result)
    return out


def table(data):
    """Markdown: what the tests of a family come to, the slowest decode first."""
    tests = list(data["results"][0]["tests"])
    gen, prompts = tests[-1], tests[:-1]
    head = ["config", "model", "decode t/s", "of the llama"]
    for p in prompts:
        head += ["prompt of %s t/s" % p[2:], "of the llama"]
    head += ["launches", "why below %.2f" % LOW]
    lines = ["| " + " | ".join(head) + " |", "|---|---|" + "---:|" * (len(head) - 3) + "---|"]
    for r in sorted(data["results"], key=lambda r: r["tests"][gen]["ratio"]):
        cells = ["`%s`" % r["arch"], r["model"]]
        for t in [gen] + prompts:
            v = r["tests"][t]
            cells += ["{:,.0f}".format(v["ts"]), "%.2f%s" % (v["ratio"], "" if v["same_cost"] else " (x%.2f)" % v["cost"])]
        own, other = r.get("launches"), r.get("llama_launches")
        low = min(v["ratio"] for v in r["tests"].values()) < LOW
        cells += ["" if own is None else "%s" % own if own == other else "%s (%s)" % (own, other), WHY.get(r["model"], "?") if low else ""]
        lines.append("| " + " | ".join(cells) + " |")
    for name, why in data["failures"].items():
        lines.append("| | %s | failed: %s |" % (name, " ".join(why)) + " |" * (len(head) - 3))
    return "\n".join(lines)


def extremes(data):
    """Smallest and largest ratio of decode."""
    ratios = [list(r["tests"].values())[-1]["ratio"] for r in data["results"]]
    return min(ratios), max(ratios)


def measure(args):
    data = {"backend": args.backend, "tiny": args.tiny, "results": [], "failures": {}, "rows": {}, "seconds": {}}
    start = time.monotonic()
    groups = jobs_of(args.models.split(",") if args.models else None, args.tiny)
    if not groups:
        sys.exit("families: no golden model '%s'" % args.models)
    todo = batches(groups)
    spent = {"make": 0.0, "bench": 0.0}
    for i, batch in enumerate(todo):
        begin = time.monotonic()
        paths = make_all(args.work, batch, False, args.jobs)
        counts = launches(args, paths)
        made = time.monotonic()
        rows, failures = bench(args, paths)
        for path in paths:
            os.remove(path)
        spent["make"] += made - begin
        spent["bench"] += time.monotonic() - made
        found = results(batch, rows, counts)
        data["results"] += found
        data["failures"].update(failures)
        data["rows"].update(("%s in %d" % (k, i), v) for k, v in rows.items())
        data["seconds"] = dict(spent, all=time.monotonic() - start)
        print("families: %d of %d, %.0f s (files %.0f s): %s" % (i + 1, len(todo), time.monotonic() - start, spent["make"], ", ".join(
            "%s %.2f" % (r["model"], list(r["tests"].values())[-1]["ratio"]) for r in found)), flush=True)
        with open(os.path.join(args.out, "families.json"), "w", encoding="utf-8") as f:
            json.dump(data, f, indent=1)
    if not args.models:  # every architecture that has a golden model
        absent = {g.arch for g in models.goldens().values()} - {r["arch"] for r in data["results"]}
        data["failures"].update((arch, ["not measured"]) for arch in absent)
    if not data["results"]:
        sys.exit("families: nothing was measured: %s" % data["failures"])
    with open(os.path.join(args.out, "families.md"), "w", encoding="utf-8") as f:
        f.write(table(data) + "\n")
    return data


def warm(args):
    """Compiles what measure() will run; the files are heads with holes."""
    start, rc = time.monotonic(), 0
    groups = jobs_of(args.models.split(",") if args.models else None, args.tiny)
    todo = {entry[0]: entry for batch in batches(groups) for entry in batch}
    longest = (TINY_PROMPTS if args.tiny else PROMPTS)[-1]

    paths = dict(zip(todo, make_all(args.work, list(todo.values()), True, args.jobs)))

    def compile_one(name):
        return name, subprocess.run([args.quern, "cache", "warm", paths[name], "--arch", args.arch, "--cache", args.warm, "-c", longest,
                                     "-t", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for i, (name, p) in enumerate(pool.map(compile_one, todo)):
            print("families: %d of %d, %.0f s: %s: %s" % (i + 1, len(todo), time.monotonic() - start, name,
                                                          (p.stdout or p.stderr).strip().splitlines()[-1]), flush=True)
            rc |= p.returncode != 0
    return rc


def arguments():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("build_dir", nargs="?", help="folder with quern")
    a.add_argument("out_dir", nargs="?")
    a.add_argument("--models", help="names of golden models, separated by commas; default: all whose graphs differ")
    a.add_argument("--backend", default="cuda", choices=["cuda", "cpu"])
    a.add_argument("--tiny", action="store_true", help="small sizes, to try the script")
    a.add_argument("--repeats", type=int, default=3)
    a.add_argument("--cache", metavar="DIR", help="compiled kernels, as --warm makes them; default: quern's own")
    a.add_argument("--warm", metavar="DIR", help="compile the kernels into DIR, without a GPU, and end")
    a.add_argument("--arch", default="sm_90a", help="of --warm; default: sm_90a")
    a.add_argument("--work", metavar="DIR", help="folder for the files, 12 GB at a time; default: a temporary one in /dev/shm")
    a.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="files made, or models compiled, at a time")
    a.add_argument("--timeout", type=int, default=240, help="seconds for each process of bench")
    a.add_argument("--table", metavar="JSON", help="print the table of an earlier run and end")
    args = a.parse_args()
    if not args.table and not args.out_dir:
        a.error("BUILD_DIR and OUT_DIR are needed")
    return args


def run(args):
    """args: as arguments() gives them, with build_dir and out_dir. Exit status."""
    args.quern = os.path.join(args.build_dir, "quern")
    args.out = args.out_dir
    os.makedirs(args.out, exist_ok=True)
    if not os.access(args.quern, os.X_OK):
        sys.exit("families: %s cannot be run" % args.quern)
    shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="quern-families-", dir=args.work or shm) as args.work:
        if args.warm:
            return warm(args)
        data = measure(args)
    print(table(data))
    print("%d models, %d failures, %.0f s" % (len(data["results"]), len(data["failures"]), data["seconds"]["all"]))
    return 1 if data["failures"] else 0


def main():
    args = arguments()
    if args.table:
        with open(args.table, encoding="utf-8") as f:
            print(table(json.load(f)))
        return 0
    return run(args)


if __name__ == "__main__":
    sys.exit(main())
