#!/usr/bin/env python3
"""All that needs a GPU, in one command: the op tests' cases on the card, goldens in every mode, every step against its reference
function, the graph against direct launches, memory over many tokens, cold and damaged caches, compute-sanitizer, start-up
and speed. No network. Prints a table; OUT_DIR gets report.txt, report.json and, where something failed, failures.txt, all written
as soon as something is known. Models of the goldens run many to a process (gpu_cases many), which keeps the context.

Parts (--only GLOB): ops, goldens, check, real, racecheck, memcheck, damaged, cold and graph run beside each other; then, each alone,
flat, startup and bench. Under five minutes together, without the making of files. Only where --only names them: variants (goldens with
the kernels of sm75 and sm80), persistent (goldens with one kernel a token), routes (every way that an option selects, beside the
default), tune, families (families.py by itself: with options).
"""
import argparse
import fnmatch
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import types

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import families  # noqa: E402
from gpu_lib import ROOT, SHORT_CHUNK, UBATCH, VARIANTS, WAYS, Bench, Skip, last_line  # noqa: E402
from gpu_real import real  # noqa: E402

# Largest NMSE against the exact logits where activations are f32 or f16: 1e-5, or where the model's own noise of an f16
# cache is of that size, the golden's tolerance for it; prefill rounds activations to f16 as well, four times that.
XLOGITS = 1e-5
PREFILL_FACTOR = 4


def compare(b, golden, what, got, tolerance):
    code, out, err, _ = b.run([b.compare, what, got, str(golden.n_vocab), "%g" % tolerance])
    m = re.search(r"NMSE\D*([0-9.]+(?:e[-+]?\d+)?)", out + err, re.I)
    return code, float(m.group(1)) if m else float("nan"), last_line(out + err)


def golden_case(b, job):
    """Of quantised weights the routes with 8-bit activations are judged by the logits of an engine that rounds so, too; the
    exact ones count where activations are f16 or f32. Returns what was measured; share: NMSE by what is allowed."""
    golden, mode, extra = job
    eight_bits = golden.quantised and "--f32-activations" not in extra and (
        mode != "batch" or "-ub" in extra or "mmq" in extra)
    name = "%s %s %s" % (golden.name, mode, " ".join(extra))
    result = {"model": golden.name, "mode": mode, "options": extra, "nmse": None, "allowed": None, "share": 0.0}
    got = os.path.join(b.work, re.sub(r"\W+", "-", name) + ".bin")
    code, _, err = b.quern_run(["logits", golden.model, "--tokens", golden.tokens, "-o", got, "--mode", mode,
                                "--backend", b.backend] + ([] if "-ub" in extra else ["-ub", UBATCH]) + extra)
    if code != 0:
        b.fail(name, err or "exit status %d" % code)
        return result
    if not golden.ill:
        code, nmse, line = compare(b, golden, golden.logits, got, golden.tol["logits"])
        if code != 0:
            b.fail(name + " (logits)", line)
    if b.backend == "cuda" and not eight_bits:
        allowed = max(XLOGITS, golden.tol["xlogits_f16_kv"] * (PREFILL_FACTOR if mode == "batch" else 1))
        code, nmse, line = compare(b, golden, golden.xlogits, got, allowed)
        result.update(nmse=nmse, allowed=allowed, share=nmse / allowed)
        if code != 0:
            b.fail(name + " (exact logits)", line)
    os.remove(got)
    return result


def golden_results(b, jobs, note):
    results = b.each(lambda j: golden_case(b, j), jobs)
    return len(jobs), note + "; worst NMSE %.2g of its tolerance" % max(r["share"] for r in results), results


def goldens(b):
    jobs = [(g, mode, []) for g in b.goldens for mode in ("batch", "per-token", "decode")]
    jobs += [(g, "batch", SHORT_CHUNK) for g in b.goldens]
    if b.backend == "cuda":  # the other ways of a prompt (docs/prefill.md)
        jobs += [(g, "batch", way) for g in b.goldens for way in WAYS]
        jobs += [(g, "decode", ["--f32-activations"]) for g in b.goldens if g.quantised]
    return golden_results(b, jobs, "%d models" % len(b.goldens))


def variants(b):
    if b.backend != "cuda":
        raise Skip("CUDA only")
    jobs = [(g, mode, v) for g in b.goldens for v in VARIANTS for mode in ("batch", "decode")]
    return golden_results(b, jobs, "sm75, sm80")


def persistent(b):
    if b.backend != "cuda":
        raise Skip("CUDA only")
    return golden_results(b, [(g, mode, ["--persistent"]) for g in b.goldens for mode in ("per-token", "decode")],
                          "%d models" % len(b.goldens))


def check_case(b, job):
    name, command = job
    code, out, err = b.quern_run(command + ["--check", "--json", "--backend", b.backend], timeout=200)
    try:
        steps = json.loads(out)["steps"]
    except ValueError:
        b.fail(name, err or "exit status %d" % code)
        return 0, 0.0
    if code != 0:
        b.fail(name, err)
    return sum(s["n"] for s in steps), max(
        (s["worst_nmse"] if s["worst_nmse"] is not None else float("inf")) / s["tolerance"]
        for s in steps if s["tolerance"] > 0)


def check(b):
    jobs = [("%s %s" % (g.name, mode), ["logits", g.model, "--tokens", g.tokens, "--mode", mode, "-ub", UBATCH])
            for g in b.goldens for mode in ("batch", "decode")]
    if b.args.text_model:
        jobs.append((os.path.basename(b.args.text_model),
                     ["run", b.args.text_model, "-p", "The history of the city began when " * 4, "-n", "6", "-c", "256"]))
    results = b.each(lambda j: check_case(b, j), jobs)
    return len(jobs), "%d steps; worst NMSE %.2g of its tolerance" % (sum(r[0] for r in results),
                                                                     max(r[1] for r in results))


def program_case(b, name, command, timeout=150):
    code, out, err, _ = b.run(command, timeout=timeout)
    try:
        result = json.loads(last_line(out))
    except ValueError:
        result = {}
    if code != 0 or not result.get("ok"):
        b.fail(name, last_line(out) + " " + err)
    return result


def parity_models(b):
    models = [b.golden(n).model for n in ("gemma3", "qwen3")]
    return models + [b.args.text_model] if b.args.text_model else models


# Programs that no op case launches: whole models, and `bench --device-limits`, have them.
NO_OP = {"persistent", "read_limit", "sample_full", "sample_topk"}


def ops(b):
    """Kernels of the emulated tests' cases, and of large ones, on the card against their reference functions (op_cases --help)."""
    if b.backend != "cuda":
        raise Skip("CUDA only")
    program, shapes, path = b.find("op_cases"), b.find_folder("shape_models"), os.path.join(b.work, "ops.json")
    if not program or not shapes:
        b.fail("ops", "%s has no %s" % (b.args.build_dir, "shape_models" if program else "op_cases"))
        return 0, ""
    code, out, err, _ = b.run([program, "--shapes", shapes, "--json", path, "--cache", b.env["QUERN_CACHE"], "--jobs",
                               str(b.args.op_jobs)] +
                             (["--all"] if b.args.all_ops else ["--every", str(b.args.every), "--seconds", str(b.args.op_seconds)]),
                             timeout=1800 if b.args.all_ops else b.args.op_seconds + 60)
    for line in re.findall(r"^FAILED (.*)", out, re.M):
        b.fail("ops " + line.split(": ")[0], line)
    if not os.path.isfile(path):
        b.fail("ops", out + err)
        return 0, ""
    with open(path, encoding="utf-8") as f:
        got = json.load(f)
    if code != 0 and not b.failures:
        b.fail("ops", out + err)
    templates = {n[:-3] for n in os.listdir(os.path.join(ROOT, "kernel_src")) if n.endswith(".cu")} - NO_OP
    missing = sorted(templates - set(got["templates"]))
    if b.args.all_ops and missing:
        b.fail("ops", "no case launches %s" % ", ".join(missing))
    near = max(got["ops"], key=lambda o: o["share"])
    return got["runs"], "%d of %d cases, %d of them large; %.2g of its tolerance: %s; %d templates%s; %d of %d programs compiled" % (
        got["cases"], got["of"], sum(o["large"] for o in got["ops"]), near["share"], near["worst"], len(got["templates"]),
        ", without " + ", ".join(missing) if missing else "", got["compiled"], got["programs"]), got


def graph(b):
    if b.backend != "cuda":
        raise Skip("CUDA only")
    results = []
    for m in parity_models(b):
        n = 2000 if m == b.args.text_model or not b.args.text_model else 600
        results.append(program_case(b, os.path.basename(m), [b.cases, "parity", m, str(n)]))
    results.append(program_case(b, "3000 tokens", [b.cases, "parity", b.golden("qwen3").model, "3000"]))
    return len(results), "captures %s" % ", ".join("%d in %d tokens" % (r.get("captures", -1), r.get("tokens", -1))
                                                   for r in results), results


def flat(b):
    b.workers.end()  # memory of the device is this part's, its time the next ones' alone
    if b.backend != "cuda":
        raise Skip("CUDA only")
    model = b.args.text_model or b.golden("qwen3").model
    r = program_case(b, "flat", [b.cases, "flat", model, "10000", "20"])
    return 1, "%s bytes more on the device, %s KiB on the host, after %s tokens and %s resets" % (
        r.get("device_bytes_grown"), r.get("host_kib_grown"), r.get("tokens"), r.get("resets")), r


def logits_with_cache(b, golden, cache, got, **kw):
    return [b.quern, "logits", golden.model, "--tokens", golden.tokens, "-o", got, "--backend", b.backend, "-ub", UBATCH,
            "--cache", cache]


def entries(cache):
    return sorted(os.listdir(cache)) if os.path.isdir(cache) else []


def cold(b):
    """Eight processes that find an empty cache at the same time, then one that is killed while it compiles."""
    if b.backend != "cuda":
        raise Skip("CUDA only")
    golden, cache = b.golden("llama-mix-Q4_K_M"), os.path.join(b.work, "cold")
    got = [os.path.join(b.work, "cold-%d.bin" % i) for i in range(8)]
    running = [subprocess.Popen(logits_with_cache(b, golden, cache, g), env=b.env, stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True) for g in got]
    for i, p in enumerate(running):
        _, err = p.communicate(timeout=120)
        if p.returncode != 0:
            b.fail("cold process %d" % i, err)
    with open(got[0], "rb") as f:
        first = f.read()
    for g in got[1:]:
        with open(g, "rb") as f:
            if f.read() != first:
                b.fail("cold", "%s differs from the first process's logits" % g)
    hidden = [e for e in entries(cache) if e.startswith(".")]
    if hidden:
        b.fail("cold", "left behind: %s" % hidden)
    verify(b, cache)
    killed = os.path.join(b.work, "killed")
    p = subprocess.Popen(logits_with_cache(b, golden, killed, got[0]), env=b.env, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while not entries(killed) and p.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    p.send_signal(signal.SIGKILL)
    p.wait()
    same_logits(b, "after a kill", golden, killed, first)
    verify(b, killed)
    return 10, "%d entries" % len(entries(cache))


def verify(b, cache):
    code, out, err, _ = b.run([b.quern, "cache", "verify", "--cache", cache])
    if code != 0:
        b.fail("cache verify", out + err)


def same_logits(b, name, golden, cache, want, words=""):
    got = os.path.join(b.work, "again.bin")
    code, _, err, _ = b.run(logits_with_cache(b, golden, cache, got))
    if code != 0:
        b.fail(name, err)
        return
    with open(got, "rb") as f:
        if f.read() != want:
            b.fail(name, "other logits than before")
    if words not in err:
        b.fail(name, "no '%s' in: %s" % (words, err))


def damaged(b):
    """Entries that are truncated, flipped or gone, and caches that cannot be written."""
    if b.backend != "cuda":
        raise Skip("CUDA only")
    golden, cache = b.golden("llama-mix-Q4_K_M"), os.path.join(b.work, "damaged")
    got = os.path.join(b.work, "damaged.bin")
    code, _, err, _ = b.run(logits_with_cache(b, golden, cache, got))
    if code != 0:
        b.fail("damaged", err)
        return 1, ""
    with open(got, "rb") as f:
        want = f.read()

    def files(name):
        return [os.path.join(cache, e, name) for e in entries(cache) if os.path.isfile(os.path.join(cache, e, name))]

    def truncate(path):
        os.truncate(path, os.path.getsize(path) // 2)

    def flip(path):
        with open(path, "r+b") as f:
            f.seek(os.path.getsize(path) // 2)
            byte = f.read(1)
            f.seek(-1, 1)
            f.write(bytes([byte[0] ^ 0x55]))

    cases = [(truncate, "kernel.cubin"), (flip, "kernel.cubin"), (truncate, "meta"), (os.remove, "meta"), (flip, "kernel.cu")]
    for i, (harm, name) in enumerate(cases):
        paths = files(name)
        if paths:
            harm(paths[i % len(paths)])
        same_logits(b, "%s of %s" % (harm.__name__, name), golden, cache, want)
        verify(b, cache)
    plain = os.path.join(b.work, "file")
    open(plain, "w").close()
    for where in (plain, "/proc/quern", "none"):
        same_logits(b, "cache at %s" % where, golden, where, want)
    return len(cases) + 3, ""


def sanitizer(b, tool, jobs, extra=()):
    if b.backend != "cuda":
        raise Skip("CUDA only")
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.path.isfile(program):
        raise Skip("no compute-sanitizer")
    golden = b.goldens[0]
    probe = b.run([program, "--tool", tool, "--error-exitcode", "99", b.quern, "logits", golden.model, "--tokens",
                   golden.tokens, "-o", os.devnull, "--backend", "cuda", "-ub", "24"], timeout=100)
    if re.search(r"not supported|Unable to|failed to initialize|LibraryNotLoaded", probe[1] + probe[2], re.I):
        raise Skip(re.search(r".*(?:not supported|Unable to|failed to init|NotLoaded).*", probe[1] + probe[2], re.I).group(0))

    def one(job):
        name, mode = job
        g = b.golden(name)
        code, out, err, _ = b.run([program, "--tool", tool, "--error-exitcode", "99", b.quern, "logits", g.model, "--tokens",
                                   g.tokens, "-o", os.devnull, "--mode", mode, "--backend", "cuda", "-ub", UBATCH,
                                   *extra], timeout=100)
        if code != 0:
            b.fail("%s %s %s" % (tool, name, mode), out + err)
    b.each(one, jobs, workers=4)
    return len(jobs) + 1, ""


def memcheck(b):
    return sanitizer(b, "memcheck", [(n, m) for n in ("gemma3", "qwen3", "llama-mix-Q4_K_M") for m in ("batch", "decode")])


def racecheck(b):
    """Not of attention_tma.cu, whose shared memory goes from warp to warp by mbarriers: one lane arrives for its warp behind
    __syncwarp, which racecheck does not follow to the other lanes' reads (it reports *tile of next_pair, fetched behind one
    mbarrier and given back by another). The emulator checks that kernel's barriers."""
    return sanitizer(b, "racecheck", [(n, m) for n in ("qwen3", "llama-mix-Q4_K_M") for m in ("batch", "decode")],
                     ["--attention", "flash"])


def startup_case(b, model, cache):
    code, out, err, wall = b.run([b.quern, "bench", model, "-p", "16", "-n", "1", "-r", "1", "--no-warmup", "-o", "json",
                                  "--backend", b.backend, "--cache", cache, "-c", "4096", "-ub", "512"], timeout=200)
    if code != 0:
        b.fail("startup " + os.path.basename(model), err)
        return None
    t = json.loads(out)
    s = dict(t[0].get("startup") or {}, wall_seconds=round(wall, 3), prefill_ms=round(t[0]["avg_ns"] / 1e6, 2),
             model=os.path.basename(model))
    return s


def startup(b):
    """From the start of the process to its end after a prompt and a token: with an empty cache, then with a full one."""
    models = b.args.model or [b.golden("qwen3").model]
    notes, details = [], []
    for m in models:
        cache = os.path.join(b.work, "startup")
        shutil.rmtree(cache, ignore_errors=True)
        with open(m, "rb") as f:  # into the page cache
            while f.read(1 << 24):
                pass
        for state in ("cold", "warm", "warm"):
            s = startup_case(b, m, cache)
            if s:
                s["state"] = state
                details.append(s)
        if len(details) >= 2 and details[-1].get("kernels"):
            c, w = details[-3] if len(details) >= 3 else details[0], details[-1]
            notes.append("%s: %.2f s warm (driver %.0f ms, weights %.0f ms at %.1f GB/s, %d kernels %.0f ms, cold %.0f ms)" % (
                w["model"], w["wall_seconds"], 1e3 * w["driver_seconds"], 1e3 * w["upload_seconds"],
                w["upload_gb_per_second"], w["kernels"], 1e3 * w["kernels_seconds"], 1e3 * c["kernels_seconds"]))
    return len(details), "; ".join(notes), details


def bench(b):
    models = b.args.model or [b.golden("qwen3").model]
    rows = []
    for m in models:
        sizes = ["-p", "512,2048", "-n", "128", "-d", "0,4096"] if b.args.model else ["-p", "64", "-n", "32", "-d", "0"]
        code, out, err, _ = b.run([b.quern, "bench", m, "-r", "3", "-o", "json", "--backend", b.backend] + sizes, timeout=250)
        if code != 0:
            b.fail("bench " + os.path.basename(m), err)
            continue
        rows += json.loads(out)
    note = "; ".join("%s%d@%d %.1f t/s (%.4g %s)" % ("tg" if r["n_gen"] else "pp", r["n_gen"] or r["n_prompt"], r["n_depth"],
                                                    r["avg_ts"], r["gb_per_second"] or r["tflop_per_second"],
                                                    "GB/s" if r["n_gen"] else "TFLOP/s") for r in rows)
    return len(rows), note, rows


# What an option selects in place of a default: measured beside it, so that defaults are chosen by figures.
DECODE = ["-p", "0", "-n", "128", "-d", "0,4096"]
FEW = ["-p", "2,4,8", "-n", "0"]
PROMPT = ["-p", "512,2048", "-n", "0", "-ub", "2048"]
SHORT = ["-p", "16,64,128,256,512", "-n", "0"]
ROUTES = [("decode", DECODE, []), ("decode", DECODE, ["--persistent"]), ("decode", DECODE, ["--no-fuse"]),
          ("decode", DECODE, ["--decode-attention", "rows"]),
          ("decode", DECODE, ["--f32-activations"]), ("decode", DECODE, ["--plain-gemv"]), ("decode", DECODE, ["--variant", "sm80"]),
          ("prompt", FEW, []), ("prompt", FEW, ["--rows-apart"]),
          ("prompt", SHORT, []), ("prompt", SHORT, ["--no-prompt-graph"]),
          ("prompt", PROMPT, []), ("prompt", PROMPT, ["--no-tune"]), ("prompt", PROMPT, ["--weight-cache", "off"]),
          ("prompt", PROMPT, ["--weight-cache", "serial"]), ("prompt", PROMPT, ["--prefill", "mma"]),
          ("prompt", PROMPT, ["--prefill", "mmq"]), ("prompt", PROMPT, ["--prefill", "wgmma"]),
          ("prompt", SHORT, ["--prefill", "wgmma"]), ("prompt", PROMPT, ["--prefill", "fp8"]), ("prompt", PROMPT, ["--attention", "flash"]),
          ("prompt", PROMPT, ["--no-fuse"]), ("prompt", PROMPT, ["--variant", "sm80"])]


def routes(b):
    rows, notes = [], []
    for m in b.args.model or [b.golden("qwen3").model]:
        for what, sizes, extra in ROUTES:
            sizes = sizes if b.args.model else ["-p" if what == "prompt" else "-n", "32", "-n" if what == "prompt" else "-p", "0"]
            name = " ".join([what] + extra)
            code, out, err, _ = b.run([b.quern, "bench", m, "-r", "2", "-o", "json", "--backend", b.backend] + sizes +
                                      (extra if b.backend == "cuda" else []), timeout=120)
            if code != 0:
                b.fail("routes %s %s" % (os.path.basename(m), name), err)
                continue
            got = json.loads(out)
            rows += [dict(r, route=name) for r in got]
            notes.append("%s: %s" % (name, ", ".join("%.1f" % r["avg_ts"] for r in got)))
    return len(rows), "; ".join(notes), rows


def tune(b):
    """Choices by measuring: the goldens hold with them, and decode is measured with and without."""
    if b.backend != "cuda":
        raise Skip("CUDA only")
    rows, notes, cache = [], [], os.path.join(b.work, "tune")
    for m, budget in [(b.golden("llama-mix-Q4_K_M").model, "20")] + [(m, "60") for m in b.args.model or []]:
        code, out, err, _ = b.run([b.quern, "tune", m, "--budget", budget, "-o", "json", "--backend", b.backend, "--cache", cache],
                                  timeout=150)
        if code != 0:
            b.fail("tune " + os.path.basename(m), err)
            continue
        j = json.loads(out)
        rows.append(dict(j, model=os.path.basename(m)))
        notes.append("%s: %d of %d tuned in %.0f s, token %s to %s ms" % (
            os.path.basename(m), sum(r["tuned"] is not None for r in j["launches"]), len(j["launches"]), j["seconds"],
            j["token_ms_shipped"], j["token_ms_tuned"]))
    golden_case(b, (b.golden("llama-mix-Q4_K_M"), "decode", ["--cache", cache]))
    for m in b.args.model or []:
        for extra in ([], ["--tune", "off"]):
            code, out, err, _ = b.run([b.quern, "bench", m, "-r", "3", "-o", "json", "--backend", b.backend, "--cache", cache] +
                                      DECODE + extra, timeout=150)
            if code != 0:
                b.fail(" ".join(["tune", os.path.basename(m)] + extra), err)
                continue
            got = json.loads(out)
            rows += [dict(r, tuned=not extra) for r in got]
            notes.append("%s: %s" % (" ".join(extra) or "tuned", ", ".join("%.1f" % r["avg_ts"] for r in got)))
    return len(rows), "; ".join(notes), rows


def all_families(b):
    out = os.path.join(b.out, "families")
    how = types.SimpleNamespace(
        build_dir=os.path.dirname(b.quern), out_dir=out, models=b.args.models, backend=b.backend, tiny=b.backend == "cpu", repeats=3,
        cache=b.args.cache, warm=None, work=None, jobs=os.cpu_count(), timeout=240)
    if families.run(how) != 0:
        b.fail("families", "see its table in " + out)
    with open(os.path.join(out, "families.json"), encoding="utf-8") as f:
        data = json.load(f)
    return len(data["results"]), "decode beside a llama: %.2f to %.2f" % families.extremes(data), data["results"]


def machine(b):
    card = driver = "none"
    try:
        line = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=30).stdout
        card, driver = [w.strip() for w in line.strip().splitlines()[0].split(",")]
    except (OSError, IndexError, ValueError, subprocess.TimeoutExpired):
        pass
    commit = b.args.commit or os.environ.get("QUERN_COMMIT")
    marker = os.path.join(b.args.build_dir, "commit")
    if not commit and os.path.isfile(marker):
        with open(marker, encoding="utf-8") as f:
            commit = f.read().strip()
    if not commit:
        try:
            commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=12", "HEAD"], stdout=subprocess.PIPE,
                                    stderr=subprocess.DEVNULL, text=True).stdout.strip()
        except OSError:
            pass
    return {"card": card, "driver": driver, "commit": commit or "unknown", "backend": b.backend,
            "date": time.strftime("%Y-%m-%d %H:%M:%S"), "cpus": os.cpu_count()}


def arguments():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("build_dir", help="folder with quern, and compare_logits and gpu_cases there or in tests/")
    a.add_argument("out_dir")
    a.add_argument("--only", default="*", metavar="GLOB", help="parts to run")
    a.add_argument("--models", help="names of golden models, separated by commas; default: all")
    a.add_argument("--text-model", metavar="FILE", help="a real model for check, graph and flat; default: SmolLM2 in models/")
    a.add_argument("--real-models", metavar="DIR", help="folder of real models for the part real; default: models/")
    a.add_argument("--model", action="append", metavar="FILE", help="a model for startup and bench; may be repeated")
    a.add_argument("--make", action="append", default=[], metavar="SHAPE",
                   help="first make a file of this shape with scripts/make_synthetic_gguf.py (numpy) and take it as --model")
    a.add_argument("--commit", help="shown in the table; default: QUERN_COMMIT, BUILD_DIR/commit, git")
    a.add_argument("--backend", default="cuda", choices=["cuda", "cpu"], help="cpu tries the script without a GPU")
    a.add_argument("--jobs", type=int, default=8, help="programs at a time (backend cuda); default: 8")
    a.add_argument("--every", type=int, default=4, metavar="N", help="ops: every Nth of the emulated tests' cases, and each op's first")
    a.add_argument("--all-ops", action="store_true", help="ops: all of them")
    a.add_argument("--op-seconds", type=float, default=150, help="ops: no case is begun after this time; default: 150")
    a.add_argument("--op-jobs", type=int, default=os.cpu_count(), help="ops: processes at a time; default: CPUs")
    a.add_argument("--cache", metavar="DIR", help="compiled kernels for all but the parts on caches, as tests/gpu/warm.py makes them; "
                                                 "default: a new one in --work")
    a.add_argument("--work", metavar="DIR", help="folder for what is made on the way, kept; default: a temporary one")
    return a.parse_args()


# Chains of parts that time nothing run beside each other; what needs the same kernels is in one chain, so that they are compiled
# once. Then parts that do, or look at the device's memory, each alone.
BESIDE = [[("ops", ops)], [("goldens", goldens), ("check", check), ("real", real)], [("racecheck", racecheck), ("memcheck", memcheck)],
          [("damaged", damaged), ("cold", cold), ("graph", graph)]]
ALONE = [("flat", flat), ("startup", startup), ("bench", bench)]
# Only where they are asked for: minutes of measurements, or of compiles.
MORE = [("variants", variants), ("persistent", persistent), ("routes", routes), ("tune", tune), ("families", all_families)]


def main():
    args = arguments()
    b = Bench(args)
    default = os.path.join(ROOT, "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
    args.text_model = args.text_model or (default if os.path.isfile(default) else None)
    for shape in args.make:
        path = os.path.join(b.work, shape + ".gguf")
        if not os.path.isfile(path):
            subprocess.run([sys.executable, os.path.join(ROOT, "scripts", "make_synthetic_gguf.py"), shape, path], check=True)
        args.model = (args.model or []) + [path]
    b.about, b.started = machine(b), time.monotonic()
    print("%(card)s, driver %(driver)s, commit %(commit)s, backend %(backend)s, %(date)s" % b.about, flush=True)

    def ended(number, frame):
        b.ended()
        os._exit(1)
    signal.signal(signal.SIGTERM, ended)
    signal.signal(signal.SIGINT, ended)
    b.parts(*BESIDE)
    b.parts(ALONE + [(name, fn) for name, fn in MORE if args.only != "*" and fnmatch.fnmatch(name, args.only)])
    b.workers.end()
    if not b.rows:
        print("run_gpu: no part matches '%s'" % args.only)
        return 2
    print(b.report())
    b.clean()
    return 1 if b.failures else 0


if __name__ == "__main__":
    sys.exit(main())
